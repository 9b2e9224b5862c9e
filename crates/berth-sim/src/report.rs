//! The state of a world as rows: for tables, for JSON, for expectations.

use crate::World;
use berth_types::{
    Account, AfterStop, Gpus, Outcome, Phase, Place, ProjectId, State, Time, Workload, WorkloadId,
};
use serde::{Serialize, Serializer};
use std::{collections::BTreeSet, fmt};

/// Where a workload stands, in one word. A workload that was evicted is queued again from that moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Waits, or is on its way back to the queue.
    Queued,
    /// Waits, and has places named for it.
    Reserved,
    /// Has its places, and waits for others to leave them.
    Held,
    /// Was told to start and not to stop.
    Running,
    /// Is over or ending for good, however.
    Finished,
    /// Did its work.
    Succeeded,
    /// Failed and was not started again.
    Failed,
    /// Was deleted.
    Cancelled,
    /// Was ended by a limit.
    TimedOut,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Reserved => "reserved",
            Self::Held => "held",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed-out",
        })
    }
}

/// Whether a workload stands there.
pub fn stands(workload: &Workload, standing: Standing) -> bool {
    let most_specific = specific(workload);
    match standing {
        Standing::Queued => matches!(most_specific, Standing::Queued | Standing::Reserved),
        Standing::Finished => matches!(
            most_specific,
            Standing::Succeeded | Standing::Failed | Standing::Cancelled | Standing::TimedOut
        ),
        other => most_specific == other,
    }
}

/// Where a workload stands, as text.
pub fn standing_text(workload: &Workload) -> String {
    specific(workload).to_string()
}

fn specific(workload: &Workload) -> Standing {
    match workload.phase {
        Phase::Queued { reservation: Some(_) } => Standing::Reserved,
        Phase::Queued { .. } | Phase::Stopping { then: AfterStop::Requeue, .. } => Standing::Queued,
        Phase::Held { .. } => Standing::Held,
        Phase::Running { .. } => Standing::Running,
        Phase::Finished { outcome, .. } | Phase::Stopping { then: AfterStop::Finish(outcome), .. } => {
            match outcome {
                Outcome::Succeeded => Standing::Succeeded,
                Outcome::Failed => Standing::Failed,
                Outcome::Cancelled => Standing::Cancelled,
                Outcome::TimedOut => Standing::TimedOut,
            }
        }
    }
}

/// The workloads that stand there, of one project or of all.
pub fn standing_of(state: &State, project: Option<ProjectId>, standing: Standing) -> BTreeSet<WorkloadId> {
    state
        .workloads
        .values()
        .filter(|workload| project.is_none_or(|project| workload.spec.project == project))
        .filter(|workload| stands(workload, standing))
        .map(|workload| workload.id)
        .collect()
}

/// Names of workloads, or `none`.
pub fn names(state: &State, ids: impl IntoIterator<Item = WorkloadId>) -> String {
    let names: Vec<_> = ids.into_iter().map(|id| workload_name(state, id)).collect();
    if names.is_empty() { "none".into() } else { names.join(",") }
}

/// The name of a workload.
pub fn workload_name(state: &State, id: WorkloadId) -> String {
    let found = state.workloads.get(&id);
    found.map_or_else(|| format!("workload {id}"), |workload| workload.spec.name.clone())
}

/// The name of a project.
pub fn project_name(state: &State, id: ProjectId) -> String {
    let found = state.projects.get(&id);
    found.map_or_else(|| format!("project {id}"), |project| project.name.clone())
}

/// The name of an account.
pub fn account_name(state: &State, account: Account) -> String {
    match account {
        Account::Project(id) => project_name(state, id),
        Account::Department(id) => match state.departments.get(&id) {
            Some(department) => format!("department {}", department.name),
            None => format!("department {id}"),
        },
    }
}

/// GPUs a project has, with elastic extras.
pub fn project_gpus(state: &State, project: ProjectId) -> Gpus {
    state
        .workloads
        .values()
        .filter(|workload| workload.spec.project == project)
        .flat_map(|workload| workload.places().map(Place::gpus))
        .sum()
}

/// GPUs a project is guaranteed, in all pools together.
pub fn project_quota(state: &State, project: ProjectId) -> Gpus {
    let entitlements =
        state.projects.get(&project).into_iter().flat_map(|project| project.entitlements.values());
    entitlements.filter_map(|entitlement| entitlement.quota).sum()
}

/// The fair share of a project, in all pools together; none when the engine names none.
pub fn fair_share(world: &World, project: ProjectId) -> Option<Gpus> {
    let pools: BTreeSet<_> = world.state().nodes.values().map(|node| node.pool()).collect();
    let shares = pools.iter().flat_map(|pool| world.engine().fair_shares(pool));
    let own: Vec<Gpus> =
        shares.filter(|(account, _)| *account == Account::Project(project)).map(|(_, share)| share).collect();
    (!own.is_empty()).then(|| own.into_iter().sum())
}

/// All GPUs.
pub fn all_gpus(state: &State) -> Gpus {
    state.nodes.values().map(|node| Gpus::whole(node.devices.len() as u64)).sum()
}

/// GPUs nobody was given.
pub fn free_gpus(state: &State) -> Gpus {
    let given: Gpus = state.workloads.values().flat_map(|workload| workload.places().map(Place::gpus)).sum();
    all_gpus(state).saturating_sub(given)
}

/// Where a workload is, as text.
pub fn placed(state: &State, id: WorkloadId) -> String {
    let name = workload_name(state, id);
    match state.workloads.get(&id) {
        Some(workload) if workload.places().next().is_some() => {
            format!("{name} on {}", places_text(state, workload.places()))
        }
        Some(workload) => format!("{name} {}", standing_text(workload)),
        None => format!("{name} unknown"),
    }
}

/// Places as text: nodes, devices, and shares that are not whole.
pub fn places_text<'a>(state: &State, places: impl Iterator<Item = &'a Place>) -> String {
    let texts: Vec<String> = places
        .map(|place| {
            let node = match state.nodes.get(&place.node) {
                Some(node) => node.name.clone(),
                None => format!("node {}", place.node),
            };
            let devices: Vec<String> = place
                .devices
                .iter()
                .map(|taken| match taken.share.gpus() {
                    Gpus::ONE => taken.device.to_string(),
                    share => format!("{}({share})", taken.device),
                })
                .collect();
            if devices.is_empty() { node } else { format!("{node}:{}", devices.join(",")) }
        })
        .collect();
    texts.join(" ")
}

/// A time as people read it: the time since the beginning.
pub fn clock(at: Time) -> String {
    let (secs, millis) = (at.0 / 1000, at.0 % 1000);
    let part = match millis {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_string(),
    };
    match (secs / 3600, secs / 60 % 60, secs % 60) {
        (0, 0, secs) => format!("{secs}{part}s"),
        (0, minutes, secs) => format!("{minutes}m{secs:02}{part}s"),
        (hours, minutes, secs) => format!("{hours}h{minutes:02}m{secs:02}{part}s"),
    }
}

fn as_number<S: Serializer>(gpus: &Gpus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(gpus.0 as f64 / Gpus::SCALE as f64)
}

fn as_optional_number<S: Serializer>(gpus: &Option<Gpus>, serializer: S) -> Result<S::Ok, S::Error> {
    match gpus {
        Some(gpus) => as_number(gpus, serializer),
        None => serializer.serialize_none(),
    }
}

/// What a project has.
#[derive(Debug, Clone, Serialize)]
pub struct ProjectRow {
    /// Its name.
    pub name: String,
    /// GPUs it has, with elastic extras.
    #[serde(serialize_with = "as_number")]
    pub gpus: Gpus,
    /// GPUs it is guaranteed.
    #[serde(serialize_with = "as_number")]
    pub quota: Gpus,
    /// Its fair share, when the engine names one.
    #[serde(serialize_with = "as_optional_number")]
    pub fair_share: Option<Gpus>,
    /// How many of its workloads run.
    pub running: usize,
    /// Names of those that wait for others to leave their places.
    pub held: Vec<String>,
    /// Names of those that wait.
    pub queued: Vec<String>,
}

/// Where a workload is.
#[derive(Debug, Clone, Serialize)]
pub struct WorkloadRow {
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Where it stands.
    pub standing: String,
    /// GPUs it has.
    #[serde(serialize_with = "as_number")]
    pub gpus: Gpus,
    /// Node and devices of each task.
    pub places: String,
}

/// A state as rows.
#[derive(Debug, Clone, Serialize)]
pub struct Snapshot {
    /// When.
    pub at: Time,
    /// All GPUs.
    #[serde(serialize_with = "as_number")]
    pub all: Gpus,
    /// GPUs nobody was given.
    #[serde(serialize_with = "as_number")]
    pub free: Gpus,
    /// Projects in the order they were declared.
    pub projects: Vec<ProjectRow>,
    /// Workloads in the order they were submitted.
    pub workloads: Vec<WorkloadRow>,
}

impl Snapshot {
    /// The state of a world now.
    pub fn of(world: &World) -> Self {
        let state = world.state();
        let named = |project, standing| -> Vec<String> {
            let ids = standing_of(state, Some(project), standing);
            ids.into_iter().map(|id| workload_name(state, id)).collect()
        };
        let projects = state.projects.values().map(|project| ProjectRow {
            name: project.name.clone(),
            gpus: project_gpus(state, project.id),
            quota: project_quota(state, project.id),
            fair_share: fair_share(world, project.id),
            running: standing_of(state, Some(project.id), Standing::Running).len(),
            held: named(project.id, Standing::Held),
            queued: named(project.id, Standing::Queued),
        });
        let workloads = state.workloads.values().map(|workload| WorkloadRow {
            name: workload.spec.name.clone(),
            project: project_name(state, workload.spec.project),
            standing: standing_text(workload),
            gpus: workload.places().map(Place::gpus).sum(),
            places: places_text(state, workload.places()),
        });
        Self {
            at: world.now(),
            all: all_gpus(state),
            free: free_gpus(state),
            projects: projects.collect(),
            workloads: workloads.collect(),
        }
    }

    /// The projects as a table, and a line that sums them up.
    pub fn table(&self) -> String {
        let held = self.projects.iter().any(|row| !row.held.is_empty());
        let mut rows = vec![vec!["PROJECT", "GPUS/QUOTA", "FAIR", "RUNNING"]];
        if held {
            rows[0].push("HELD");
        }
        rows[0].push("QUEUED");
        let mut rows: Vec<Vec<String>> =
            rows.into_iter().map(|row| row.into_iter().map(String::from).collect()).collect();
        let listed = |names: &[String]| match names {
            [] => "-".to_string(),
            names => names.join(" "),
        };
        for row in &self.projects {
            let mut cells = vec![
                row.name.clone(),
                format!("{}/{}", row.gpus, row.quota),
                row.fair_share.map_or("-".into(), |share| share.to_string()),
                row.running.to_string(),
            ];
            if held {
                cells.push(listed(&row.held));
            }
            cells.push(listed(&row.queued));
            rows.push(cells);
        }
        let running: usize = self.projects.iter().map(|row| row.running).sum();
        let queued: usize = self.projects.iter().map(|row| row.queued.len()).sum();
        format!(
            "{}{} of {} GPUs given, {running} running, {queued} queued\n",
            align(&rows),
            self.all.saturating_sub(self.free),
            self.all
        )
    }

    /// The unfinished workloads as a table.
    pub fn workload_table(&self) -> String {
        let mut rows = vec![["WORKLOAD", "PROJECT", "STATE", "GPUS", "WHERE"].map(String::from).to_vec()];
        let unfinished = ["queued", "reserved", "held", "running"];
        for row in self.workloads.iter().filter(|row| unfinished.contains(&row.standing.as_str())) {
            rows.push(vec![
                row.name.clone(),
                row.project.clone(),
                row.standing.clone(),
                row.gpus.to_string(),
                if row.places.is_empty() { "-".into() } else { row.places.clone() },
            ]);
        }
        align(&rows)
    }
}

/// Pads the cells of every column to the same width, two spaces apart.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
