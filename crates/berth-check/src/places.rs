//! Places: whether they give a workload what it asked for, where it may be.

use crate::{
    finding::{Finding, Rule},
    room::{accepts, domain, is_apart},
};
use berth_types::{Place, State, Workload};
use std::collections::BTreeSet;

/// Whether every place gives one task what it asked for, on devices that exist and are accepted.
pub(crate) fn check_shape<'p>(
    state: &State,
    workload: &Workload,
    places: impl IntoIterator<Item = &'p Place>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in places {
        for text in shape_problems(state, workload, place) {
            findings.push(Finding::new(
                Rule::PlaceShape,
                format!("task {} of workload {} on node {}: {text}", place.rank, workload.id, place.node),
            ));
        }
    }
    findings
}

fn shape_problems(state: &State, workload: &Workload, place: &Place) -> Vec<String> {
    let request = &workload.spec.request;
    let mut problems = Vec::new();
    let Some(node) = state.nodes.get(&place.node) else {
        return vec!["there is no such node".into()];
    };
    if place.cpu != request.cpu || place.memory != request.memory {
        problems.push(format!(
            "has {:?} and {:?}, asked for {:?} and {:?}",
            place.cpu, place.memory, request.cpu, request.memory
        ));
    }
    if place.devices.len() != usize::from(request.gpu.devices()) {
        problems.push(format!("has {} devices, asked for {}", place.devices.len(), request.gpu.devices()));
    }
    if !place.devices.is_sorted_by(|one, next| one.device < next.device) {
        problems.push("its devices are not distinct and rising".into());
    }
    for taken in &place.devices {
        let Some(device) = node.devices.get(usize::from(taken.device)) else {
            problems.push(format!("device {} of a node with {}", taken.device, node.devices.len()));
            continue;
        };
        if !request.accepts_model(&device.model) {
            problems.push(format!("device {} is a {}", taken.device, device.model));
        }
        let share = request.gpu.share_on(device.memory);
        if share != Some(taken.share) {
            problems.push(format!("has {:?} of device {}, asked for {share:?}", taken.share, taken.device));
        }
    }
    problems
}

/// Whether ranks are distinct and below the largest number of tasks.
pub(crate) fn check_ranks<'p>(
    workload: &Workload,
    places: impl IntoIterator<Item = &'p Place>,
) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for place in places {
        let max = workload.spec.tasks.max();
        if !seen.insert(place.rank) || place.rank >= max {
            findings.push(Finding::new(
                Rule::Ranks,
                format!(
                    "rank {} of workload {} with at most {max} tasks is out of range or there twice",
                    place.rank, workload.id
                ),
            ));
        }
    }
    findings
}

/// Whether the places are exactly the ranks of the minimum.
pub(crate) fn check_gang(workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let ranks: BTreeSet<u32> = places.iter().map(|place| place.rank).collect();
    let min = workload.spec.tasks.min();
    if places.len() as u64 == u64::from(min) && ranks.into_iter().eq(0..min) {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Gang,
        format!("workload {} is given {} places, its minimum is {min} tasks", workload.id, places.len()),
    )]
}

/// Whether every place is on a node that the workload may use now.
pub(crate) fn check_nodes(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let refused = |place: &&Place| {
        let node = state.nodes.get(&place.node);
        !node.is_some_and(|node| accepts(state, workload, node))
    };
    places
        .iter()
        .filter(refused)
        .map(|place| {
            Finding::new(
                Rule::NodeAccepted,
                format!(
                    "task {} of workload {} is put on node {}, which is not ready, of another pool, or not accepted",
                    place.rank, workload.id, place.node
                ),
            )
        })
        .collect()
}

/// Whether a gang that must stay in one domain does.
pub(crate) fn check_topology(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let domains: BTreeSet<_> = places
        .iter()
        .map(|place| state.nodes.get(&place.node).and_then(|node| domain(workload, node)))
        .collect();
    if domains.len() <= 1 && !domains.contains(&None) {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Topology,
        format!(
            "workload {} must be in one domain of {:?}, its places are in {domains:?}",
            workload.id, workload.spec.topology.required
        ),
    )]
}

/// Whether tasks that must be apart are on nodes of their own, those that are leaving included.
pub(crate) fn check_apart<'p>(
    workload: &Workload,
    places: impl IntoIterator<Item = &'p Place>,
) -> Vec<Finding> {
    let mut nodes = BTreeSet::new();
    let shared = |place: &&Place| is_apart(workload) && !nodes.insert(place.node);
    let text = |place: &Place| {
        format!("workload {} must be apart, and has two tasks on node {}", workload.id, place.node)
    };
    places.into_iter().filter(shared).map(|place| Finding::new(Rule::Apart, text(place))).collect()
}
