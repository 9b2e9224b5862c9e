//! Checks that hold for any state.

use crate::{
    finding::{Finding, Rule},
    places::{check_gang, check_ranks, check_shape},
    room::{Room, View},
};
use berth_types::{Gpus, Phase, State, Workload};

pub(crate) fn check_state(state: &State) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in [View::Decided, View::Occupied] {
        findings.extend(check_capacity(state, view));
    }
    for workload in state.workloads.values() {
        findings.extend(check_shape(state, workload, workload.places().chain(workload.leaving())));
        findings.extend(check_tasks(workload));
    }
    findings
}

/// Whether nothing is given away twice in one view.
pub(crate) fn check_capacity(state: &State, view: View) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, free) in Room::of(state, view).nodes {
        let node = &state.nodes[&id];
        for (device, free) in free.devices.iter().enumerate().filter(|(_, free)| **free < 0) {
            let used = Gpus((Gpus::SCALE as i64 - free) as u64);
            findings.push(Finding::new(
                Rule::DeviceCapacity,
                format!("{view:?} view: {used} of device {device} of node {id} is in use"),
            ));
        }
        let over = [("CPU", free.cpu, node.cpu.0), ("memory", free.memory, node.memory.0)];
        for (what, free, all) in over.into_iter().filter(|(_, free, _)| *free < 0) {
            findings.push(Finding::new(
                Rule::NodeCapacity,
                format!("{view:?} view: {} {what} of {all} of node {id} is in use", i128::from(all) - free),
            ));
        }
    }
    findings
}

/// Whether a workload has as many tasks as its phase allows.
fn check_tasks(workload: &Workload) -> Vec<Finding> {
    let (min, max) = (workload.spec.tasks.min(), workload.spec.tasks.max());
    match &workload.phase {
        Phase::Held { places, .. } => {
            let mut findings = check_gang(workload, places);
            findings.extend(check_ranks(workload, places));
            findings
        }
        Phase::Running { tasks, leaving, .. } => {
            // A rank that is leaving and running at once could not be told apart when it is reported gone.
            let all = tasks.iter().map(|task| &task.place).chain(leaving);
            let mut findings = check_ranks(workload, all);
            let extras = tasks.iter().filter(|task| task.extra).count();
            let base = tasks.len() - extras;
            // Tasks of the minimum that succeeded are gone, so fewer than the minimum may be left.
            if base == 0 || base > min as usize || extras > (max - min) as usize {
                findings.push(Finding::new(
                    Rule::Gang,
                    format!(
                        "workload {} of {min} to {max} tasks runs {base} and {extras} extras",
                        workload.id
                    ),
                ));
            }
            findings
        }
        _ => Vec::new(),
    }
}
