//! Words about what happened. Rendered from the data, never the other way round.

use super::{About, Happened, Platform, TaskExit, record::Stop};
use berth_types::{Action, EvictRule, NodeCondition, Place, StartBasis, StopReason};
use std::collections::BTreeMap;

/// A rule by its short name.
pub(crate) fn rule(rule: EvictRule) -> &'static str {
    match rule {
        EvictRule::QuotaReclaim => "quota-reclaim",
        EvictRule::ShareReclaim => "share-reclaim",
        EvictRule::Preemption => "preemption",
        EvictRule::Passing => "passing",
    }
}

fn basis(basis: StartBasis) -> &'static str {
    match basis {
        StartBasis::Quota => "within quota",
        StartBasis::FairShare => "borrowing, within its fair share",
        StartBasis::Idle => "borrowing what is idle",
        StartBasis::Priority => "instead of lower-priority work of its project",
        StartBasis::Reservation => "in the places reserved for it",
    }
}

impl Platform {
    /// What is said about something that is about to happen.
    pub(crate) fn about(&self, happened: &Happened) -> About {
        let mut about = About { message: self.message(happened), ..About::default() };
        match happened {
            Happened::Submitted { workload, request } => {
                about.workload = Some(format!("{}/{}", request.project, workload.spec.name));
                about.workload_id = Some(workload.id.0);
                about.project = Some(request.project.clone());
            }
            Happened::Node { node, .. } => about.node = Some(node.name.clone()),
            Happened::NodeLabels { node, .. } => about.node = Some(node.name.clone()),
            Happened::NodeRemoved { name, .. } => about.node = Some(name.clone()),
            Happened::Project { project } => about.project = Some(project.name.clone()),
            Happened::ProjectRemoved { name, .. } => about.project = Some(name.clone()),
            _ => {}
        }
        if let Some(record) = happened.workload().and_then(|id| self.records.get(&id)) {
            about.workload = Some(self.full_name(record.id));
            about.workload_id = Some(record.id.0);
            about.project = Some(record.request.project.clone());
            if let Happened::Progressed { report, .. } = happened {
                about.progress = Some(Box::new(super::view::progress(report, None)));
            }
        }
        about.warning = match happened {
            Happened::Warned { .. } => true,
            Happened::TaskExited { exit, task } => {
                let record = self.records.get(&task.workload);
                let stopping =
                    record.and_then(|record| record.tasks.get(&task.rank)).is_some_and(|task| task.stopping);
                !stopping && *exit != TaskExit::Code(0)
            }
            Happened::Decided { action } => {
                matches!(action, Action::Evict { .. } | Action::Stop { .. } | Action::Shrink { .. })
                    || matches!(action, Action::Move { winner: Some(_), .. })
            }
            _ => false,
        };
        about
    }

    fn message(&self, happened: &Happened) -> String {
        match happened {
            Happened::Node { missing: true, .. } => {
                "is cordoned: the last start did not name it, and work is still on it".into()
            }
            Happened::Node { node, draining, .. } => match (node.condition, draining) {
                (NodeCondition::Ready, _) => format!("takes work; it has {} GPUs", node.devices.len()),
                (NodeCondition::Cordoned, true) => "is being drained".into(),
                (NodeCondition::Cordoned, false) => "is cordoned: it takes no new work".into(),
            },
            Happened::NodeLabels { node, .. } => super::labels::told(node),
            Happened::NodeRemoved { .. } => "is gone".into(),
            Happened::Department { department } => format!("department {} changed", department.name),
            Happened::DepartmentRemoved { name, .. } => format!("department {name} deleted"),
            Happened::Project { .. } => "project changed".into(),
            Happened::ProjectRemoved { .. } => "project deleted".into(),
            Happened::Volume { volume } => format!("volume {} created", volume.name),
            Happened::VolumeRemoved { name, .. } => format!("volume {name} deleted"),
            Happened::People { change } => change.message(),
            Happened::Submitted { workload, .. } => format!("submitted by {}", workload.spec.user),
            Happened::Stopped { stop: Stop::Suspended, by, .. } => format!("suspended by {by}"),
            Happened::Stopped { stop: Stop::Drained, by, .. } => {
                format!("stopped by {by}; it resumes by itself")
            }
            Happened::Stopped { by, .. } => format!("deleted by {by}"),
            Happened::Resumed { by: Some(by), .. } => format!("resumed by {by}"),
            Happened::Resumed { by: None, .. } => "is tried again".into(),
            Happened::TaskStarted { task, pid, .. } => match pid {
                Some(pid) => format!("worker {} runs as process {pid}", task.rank),
                None => format!("worker {} runs", task.rank),
            },
            Happened::Confirmed { .. } => "runs".into(),
            Happened::TaskExited { task, exit } => match exit {
                TaskExit::Code(code) => format!("worker {} exited with code {code}", task.rank),
                TaskExit::Signal(signal) => format!("worker {} was ended by signal {signal}", task.rank),
                TaskExit::Lost => format!("worker {} was lost", task.rank),
                TaskExit::Refused(reason) => format!("worker {} could not be started: {reason}", task.rank),
            },
            Happened::Checkpointed { .. } => "saved its state".into(),
            Happened::Idle { since: Some(_), .. } => "its GPUs are idle".into(),
            Happened::Idle { since: None, .. } => "its GPUs are busy again".into(),
            Happened::Progressed { report, .. } => match report.percent() {
                Some(percent) => format!("is at {percent} %"),
                None => "reported progress".into(),
            },
            Happened::Warned { text, .. } => text.clone(),
            Happened::Hidden { .. } => "is listed no more".into(),
            Happened::Decided { action } => self.decision(action),
        }
    }

    fn decision(&self, action: &Action) -> String {
        match action {
            Action::Start { places, basis: why, passing, .. } => {
                let passing = if *passing { ", passing a reservation" } else { "" };
                format!("starts on {}: {}{passing}", self.places(places), basis(*why))
            }
            Action::Hold { places, basis: why, .. } => {
                format!("gets {} when those who leave are gone: {}", self.places(places), basis(*why))
            }
            Action::Evict { winner, rule: by, lost, .. } => {
                let (winner, by) = (self.full_name(*winner), rule(*by));
                format!("preempted by {winner} ({by}); {}", at_risk(*lost))
            }
            Action::Move { places, winner: Some(winner), lost, .. } => {
                let winner = self.full_name(*winner);
                format!("moves to {} for {winner}; {}", self.places(places), at_risk(*lost))
            }
            Action::Move { places, winner: None, .. } => {
                format!("goes to {} instead of the queue", self.places(places))
            }
            Action::Grow { places, .. } => {
                format!("grows by {} workers on {}", places.len(), self.places(places))
            }
            Action::Shrink { ranks, winner, .. } => {
                format!("gives back {} extra workers for {}", ranks.len(), self.full_name(*winner))
            }
            Action::Stop { reason: StopReason::TimeLimit, .. } => "is ended by its time limit".into(),
            Action::Stop { reason: StopReason::Idle, .. } => {
                "is suspended: its GPUs were idle for too long".into()
            }
            Action::Reserve { places, .. } => {
                format!("has waited long: {} is reserved for it", self.places(places))
            }
            Action::Unreserve { .. } => "its reservation is taken back".into(),
        }
    }

    /// Places by node: `node1:0,1 node2:4`.
    pub(crate) fn places(&self, places: &[Place]) -> String {
        let mut by_node: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for place in places {
            let node = self.engine.nodes().get(&place.node).map_or("?", |node| node.name.as_str());
            by_node
                .entry(node)
                .or_default()
                .extend(place.devices.iter().map(|taken| taken.device.to_string()));
        }
        let texts = by_node.into_iter().map(|(node, mut devices)| {
            devices.dedup();
            if devices.is_empty() { node.to_owned() } else { format!("{node}:{}", devices.join(",")) }
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}

/// Work since the last checkpoint. A workload that saves its state during its grace period loses none of it.
fn at_risk(lost: u128) -> String {
    format!("{} since its last checkpoint, lost unless it saves them now", gpu_time(lost))
}

/// GPU-milliseconds as people read them.
fn gpu_time(lost: u128) -> String {
    let secs = lost / 1_000;
    match secs {
        0..120 => format!("{secs} GPU-seconds"),
        120..7200 => format!("{} GPU-minutes", secs / 60),
        _ => format!("{} GPU-hours", secs / 3600),
    }
}
