//! What happened between two pictures of a cluster, in the words in which one machine tells it.

use crate::{
    feed::Told,
    platform::{About, EvictionRecord, Happened, Parked, Platform, Record, Stop, VolumeRecord},
};
use berth_api::Status;
use berth_types::{Phase, Workload, WorkloadId};
use std::collections::BTreeMap;

/// Everything that is different, owners and nodes first, then workloads in the order of their numbers.
pub(crate) fn differences(before: &Platform, after: &Platform) -> Vec<Told> {
    let mut told = Vec::new();
    owners(before, after, &mut told);
    nodes(before, after, &mut told);
    volumes(before, after, &mut told);
    for record in after.unfinished() {
        workload(before, after, record, &mut told);
    }
    over(before, after, &mut told);
    told
}

fn say(platform: &Platform, happened: &Happened) -> Told {
    Told { kind: happened.kind().into(), about: platform.about(happened) }
}

fn owners(before: &Platform, after: &Platform, told: &mut Vec<Told>) {
    let (was, is) = (before.engine(), after.engine());
    for department in is.departments().values().filter(|one| was.departments().get(&one.id) != Some(one)) {
        told.push(say(after, &Happened::Department { department: department.clone() }));
    }
    for (id, gone) in was.departments().iter().filter(|(id, _)| !is.departments().contains_key(id)) {
        told.push(say(before, &Happened::DepartmentRemoved { id: *id, name: gone.name.clone() }));
    }
    let ours = |platform: &Platform, name: &str| platform.project_id(name).is_some();
    for project in is.projects().values().filter(|one| was.projects().get(&one.id) != Some(one)) {
        if ours(after, &project.name) {
            told.push(say(after, &Happened::Project { project: project.clone() }));
        }
    }
    for (id, gone) in was.projects().iter().filter(|(id, _)| !is.projects().contains_key(id)) {
        if ours(before, &gone.name) {
            told.push(say(before, &Happened::ProjectRemoved { id: *id, name: gone.name.clone() }));
        }
    }
}

fn nodes(before: &Platform, after: &Platform, told: &mut Vec<Told>) {
    let (was, is) = (before.engine().nodes(), after.engine().nodes());
    for (id, node) in is {
        // Labels come and go with what Pods ask for; people care whether it takes work, and what it has.
        let same = was.get(id).is_some_and(|known| {
            (known.condition, &known.devices, &known.name) == (node.condition, &node.devices, &node.name)
        });
        let draining = after.is_draining(*id);
        if !same || draining != before.is_draining(*id) {
            told.push(say(after, &Happened::Node { node: node.clone(), draining, missing: false }));
        }
    }
    for (id, gone) in was.iter().filter(|(id, _)| !is.contains_key(id)) {
        told.push(say(before, &Happened::NodeRemoved { id: *id, name: gone.name.clone() }));
    }
}

fn volumes(before: &Platform, after: &Platform, told: &mut Vec<Told>) {
    let has = |platform: &Platform, volume: &VolumeRecord| {
        volume.project.as_ref().is_some_and(|project| platform.has_volume(&volume.name, project))
    };
    for volume in after.volumes().filter(|volume| !has(before, volume)) {
        told.push(say(after, &Happened::Volume { volume: volume.clone() }));
    }
    for VolumeRecord { name, project, .. } in before.volumes().filter(|volume| !has(after, volume)) {
        told.push(say(before, &Happened::VolumeRemoved { name: name.clone(), project: project.clone() }));
    }
}

/// Words about an unfinished workload that no other line of the log has.
fn words(record: &Record, kind: &str, warning: bool, message: String) -> Told {
    Told { kind: kind.into(), about: About { warning, message, ..about(record) } }
}

fn about(record: &Record) -> About {
    About {
        workload: Some(format!("{}/{}", record.request.project, record.name)),
        workload_id: Some(record.id.0),
        project: Some(record.request.project.clone()),
        ..About::default()
    }
}

fn workload(before: &Platform, after: &Platform, now: &Record, told: &mut Vec<Told>) {
    let from = told.len();
    let known = before.record(now.id);
    let was = known.map(Standing::of).unwrap_or_default();
    let is = Standing::of(now);
    if known.is_none() {
        told.push(words(now, "submitted", false, format!("submitted by {}", now.user)));
    }
    if is.preemptions > was.preemptions {
        let known = now.evictions.front().map(EvictionRecord::words);
        let message = known.unwrap_or_else(|| "stopped for others; it resumes by itself".into());
        told.push(words(now, "evicted", true, message));
    }
    if is.failures > was.failures {
        let message = now.message.clone().unwrap_or_else(|| "a worker failed; it is tried again".into());
        told.push(words(now, "task-exited", true, message));
    }
    match (was.suspended, is.suspended) {
        (false, true) => told.push(words(now, "stopped", false, "is suspended".into())),
        (true, false) => told.push(words(now, "resumed", false, "returns to the queue".into())),
        _ => {}
    }
    if is.ends && !was.ends {
        told.push(words(now, "stopped", false, "is being deleted".into()));
    }
    let again = is.runs > was.runs;
    if is.placed && (again || !was.placed) {
        let places: Vec<_> = now.tasks.values().map(|task| task.place.clone()).collect();
        told.push(words(now, "started", false, format!("starts on {}", after.places(&places))));
    }
    if is.runs_all && (again || !was.runs_all) {
        told.push(say(after, &Happened::Confirmed { workload: now.id }));
    }
    if let Some(all) = now.request.completions
        && known.is_some_and(|known| known.done != now.done)
    {
        let message = format!("{} of {all} completions are done", now.done.count());
        told.push(words(now, "changed", false, message));
    }
    let saved = |platform: &Platform| platform.engine().workload(now.id).and_then(|one| one.checkpoint);
    if saved(after).is_some() && saved(after) != saved(before) {
        told.push(say(after, &Happened::Checkpointed { workload: now.id }));
    }
    if let Some(report) =
        now.progress.as_ref().filter(|new| known.and_then(|one| one.progress.as_ref()) != Some(new))
    {
        let report = Box::new(report.clone());
        told.push(say(after, &Happened::Progressed { workload: now.id, report }));
    }
    let phase =
        |platform: &Platform| platform.engine().workload(now.id).map(|one: &Workload| one.phase.clone());
    if told.len() == from && (known != Some(now) || phase(before) != phase(after)) {
        let held = matches!(phase(after), Some(Phase::Held { .. }));
        told.push(match held && !matches!(phase(before), Some(Phase::Held { .. })) {
            true => words(now, "held", false, "gets its place when those who leave are gone".into()),
            false => words(now, "changed", false, standing(after, now)),
        });
    }
}

/// Where a workload stands, in a few words.
fn standing(platform: &Platform, record: &Record) -> String {
    let message = || record.message.clone();
    let status = || platform.workload_view(record.id, false).map(|view| format!("is now {}", view.status));
    message().or_else(status).unwrap_or_else(|| "changed".into())
}

/// Where a workload stands, as far as lines of the log speak of it.
#[derive(Default)]
struct Standing {
    preemptions: u32,
    failures: u32,
    runs: u32,
    suspended: bool,
    ends: bool,
    placed: bool,
    runs_all: bool,
}

impl Standing {
    fn of(record: &Record) -> Self {
        let stays = || record.tasks.values().filter(|task| !task.stopping);
        let placed = stays().next().is_some();
        Self {
            preemptions: record.preemptions,
            failures: record.failures,
            runs: record.runs,
            suspended: matches!(record.parked, Some((Parked::Suspended { .. }, _))),
            ends: record.stop == Some(Stop::Deleted),
            placed,
            runs_all: placed && stays().all(|task| task.started.is_some()),
        }
    }
}

fn over(before: &Platform, after: &Platform, told: &mut Vec<Told>) {
    let was: BTreeMap<WorkloadId, &berth_api::Workload> = by_id(before);
    let is = by_id(after);
    for (id, one) in &is {
        if was.contains_key(id) {
            continue;
        }
        let text = one.message.clone().unwrap_or_else(|| one.status.to_string());
        let warning = one.status != Status::Succeeded;
        told.push(Told { kind: "ended".into(), about: About { warning, message: text, ..about_over(one) } });
    }
    for (_, gone) in was.iter().filter(|(id, _)| !is.contains_key(id) && after.record(**id).is_none()) {
        let message = "is listed no more".into();
        told.push(Told { kind: "hidden".into(), about: About { message, ..about_over(gone) } });
    }
    for gone in before.unfinished() {
        if after.record(gone.id).is_none() && !is.contains_key(&gone.id) {
            told.push(words(gone, "ended", false, "is deleted".into()));
        }
    }
}

fn by_id(platform: &Platform) -> BTreeMap<WorkloadId, &berth_api::Workload> {
    platform.all_over().into_iter().map(|one| (WorkloadId(one.id), one)).collect()
}

fn about_over(one: &berth_api::Workload) -> About {
    About {
        workload: Some(format!("{}/{}", one.project, one.name)),
        workload_id: Some(one.id),
        project: Some(one.project.clone()),
        ..About::default()
    }
}
