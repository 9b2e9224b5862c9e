//! What happened, in one line each.

use crate::{
    report::{clock, places_text, project_name, workload_name},
    world::Entry,
};
use berth_types::{
    Action, Change, EvictRule, GpuRequest, NodeCondition, Phase, StartBasis, State, StopReason, TaskOutcome,
    Workload, WorkloadId,
};

/// Something that happened, for people: when, what it is about, and the whole line.
pub fn narrate(state: &State, entry: &Entry) -> Option<String> {
    let text = match &entry.change {
        Change::Submitted(workload) => format!("submit {}: {}", named(state, workload.id), asks(workload)),
        Change::Cancelled { workload, .. } => format!("delete {}", named(state, *workload)),
        Change::Ended { workload, rank, outcome, .. } => {
            let how = match outcome {
                TaskOutcome::Succeeded => "done",
                TaskOutcome::Failed => "failed",
                TaskOutcome::Lost => "lost with its node",
            };
            match (outcome, state.workloads.get(workload)) {
                // One line per gang is enough when it did its work.
                (TaskOutcome::Succeeded, _) if *rank > 0 => return None,
                (_, Some(found)) if found.spec.tasks.max() > 1 && *outcome != TaskOutcome::Succeeded => {
                    format!("{how} {}, worker {rank}", named(state, *workload))
                }
                _ => format!("{how} {}", named(state, *workload)),
            }
        }
        Change::Refused { workload, .. } => {
            format!("refused {}: it cannot start there", named(state, *workload))
        }
        Change::Checkpointed { workload, .. } => format!("checkpoint {}", named(state, *workload)),
        Change::NodeSet(node) if entry.at.0 > 0 => match node.condition {
            NodeCondition::Ready => format!("node {} takes new work", node.name),
            NodeCondition::Cordoned => format!("node {} takes no new work", node.name),
        },
        Change::NodeRemoved(id) => format!("node {id} removed"),
        Change::ProjectSet(project) if entry.at.0 > 0 => format!("project {} changed", project.name),
        Change::DepartmentSet(department) if entry.at.0 > 0 => {
            format!("department {} changed", department.name)
        }
        Change::Decided { action, .. } => decided(state, action),
        _ => return None,
    };
    Some(format!("{:>8}  {text}", clock(entry.at)))
}

fn decided(state: &State, action: &Action) -> String {
    let who = named(state, action.workload());
    match action {
        Action::Start { places, basis, passing, .. } => {
            let passing = if *passing { ", passing a reservation" } else { "" };
            let places = places_text(state, places.iter());
            format!("start {who} on {places}: {}{passing}", basis_text(*basis))
        }
        Action::Hold { places, basis, .. } => {
            let places = places_text(state, places.iter());
            format!("hold {places} for {who}: {}", basis_text(*basis))
        }
        Action::Evict { winner, rule, lost, .. } => {
            let rule = match rule {
                EvictRule::QuotaReclaim => "quota reclaim",
                EvictRule::ShareReclaim => "share reclaim",
                EvictRule::Preemption => "preemption",
                EvictRule::Passing => "it was passing a reservation",
            };
            let winner = workload_name(state, *winner);
            format!("evict {who} for {winner}: {rule}, lost {}", gpu_hours(*lost))
        }
        Action::Move { places, winner, lost, .. } => {
            let places = places_text(state, places.iter());
            match winner {
                Some(winner) => {
                    let winner = workload_name(state, *winner);
                    format!("move {who} to {places} for {winner}: lost {}", gpu_hours(*lost))
                }
                None => format!("move {who} to {places}: it was leaving anyway"),
            }
        }
        Action::Grow { places, .. } => format!("grow {who} by {}", places_text(state, places.iter())),
        Action::Shrink { ranks, winner, .. } => {
            format!("shrink {who} by {} for {}", ranks.len(), workload_name(state, *winner))
        }
        Action::Stop { reason, .. } => {
            let reason = match reason {
                StopReason::TimeLimit => "its time limit has passed",
                StopReason::Idle => "its GPUs were idle for too long",
            };
            format!("stop {who}: {reason}")
        }
        Action::Reserve { places, .. } => format!("reserve {} for {who}", places_text(state, places.iter())),
        Action::Unreserve { .. } => format!("unreserve the places of {who}"),
    }
}

fn basis_text(basis: StartBasis) -> &'static str {
    match basis {
        StartBasis::Quota => "within quota",
        StartBasis::FairShare => "borrowed within its fair share",
        StartBasis::Idle => "borrowed while idle",
        StartBasis::Priority => "by priority",
        StartBasis::Reservation => "its reservation",
    }
}

fn named(state: &State, id: WorkloadId) -> String {
    match state.workloads.get(&id) {
        Some(workload) => format!("{} ({})", workload.spec.name, project_name(state, workload.spec.project)),
        None => workload_name(state, id),
    }
}

fn asks(workload: &Workload) -> String {
    let request = &workload.spec.request;
    let each = match request.gpu {
        GpuRequest::None => "no GPU".to_string(),
        GpuRequest::Whole(count) => format!("{count} GPU"),
        GpuRequest::Fraction { share, devices } if devices.get() == 1 => format!("{} GPU", share.gpus()),
        GpuRequest::Fraction { share, devices } => format!("{} of {devices} GPUs", share.gpus()),
        GpuRequest::Memory { bytes, devices } if devices.get() == 1 => {
            format!("{} of GPU memory", berth_types::Bytes(bytes.get()))
        }
        GpuRequest::Memory { bytes, devices } => {
            format!("{} of each of {devices} GPUs", berth_types::Bytes(bytes.get()))
        }
    };
    let tasks = workload.spec.tasks;
    match (tasks.min(), tasks.max()) {
        (1, 1) => each,
        (least, most) if least == most => format!("{most} workers, {each} each"),
        (least, most) => format!("{least} to {most} workers, {each} each"),
    }
}

/// Work in GPU-milliseconds as GPU-hours with one decimal, rounded to nearest.
pub fn gpu_hours(millis: u128) -> String {
    let tenths = (millis + 180_000) / 360_000;
    format!("{}.{} GPU-h", tenths / 10, tenths % 10)
}

/// Whether a workload is waiting, so that there is something to explain.
pub fn waits(workload: &Workload) -> bool {
    matches!(workload.phase, Phase::Queued { .. } | Phase::Held { .. } | Phase::Stopping { .. })
}
