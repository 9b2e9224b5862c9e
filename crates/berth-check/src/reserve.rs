//! Reservations: who gets one, how many there are, and who may use what is reserved.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Ledger, reservation, reserved_by_others, workloads_of},
    places::{check_gang, check_topology},
    room::{Room, View},
    starts::{Beginning, check_new_places},
};
use berth_types::{Place, Policy, StartBasis, State, Time, Workload};
use std::collections::BTreeMap;

/// Whether a reservation may be made. `state` is the state before it.
pub(crate) fn check_reserve(
    policy: &Policy,
    state: &State,
    workload: &Workload,
    places: &[Place],
    now: Time,
) -> Vec<Finding> {
    let pool = &workload.spec.pool;
    let mut findings = check_gang(workload, places);
    findings.extend(check_new_places(state, workload, places));
    findings.extend(check_topology(state, workload, places));
    let mut add = |text: String| findings.push(Finding::new(Rule::Reservation, text));

    let others: Vec<_> = workloads_of(state, pool)
        .filter(|other| other.id != workload.id && reservation(other).is_some())
        .collect();
    if others.len() >= policy.reservations_per_pool {
        add(format!(
            "workload {} gets reservation {} of at most {} in pool {pool}",
            workload.id,
            others.len() + 1,
            policy.reservations_per_pool
        ));
    }
    let project = workload.spec.project;
    if let Some(other) = others.iter().find(|other| other.spec.project == project) {
        add(format!(
            "workload {} gets a reservation while {} of the same project {project} has one",
            workload.id, other.id
        ));
    }
    let waited = now.since(workload.submitted);
    if waited < policy.reserve_after {
        add(format!(
            "workload {} waited {waited} of {} before its reservation",
            workload.id, policy.reserve_after
        ));
    }
    let ledger = Ledger::new(state, pool);
    if !Claim::waiting(&ledger, workload).may_start(&ledger) {
        add(format!("workload {} gets a reservation but may not start", workload.id));
    }
    if others.is_empty() && workload.evicted != Some(now) && Room::of(state, View::Decided).fits(workload) {
        add(format!("workload {} gets a reservation though it fits", workload.id));
    }
    if !Room::empty(state).holds(places) {
        add(format!("the places reserved for workload {} do not fit on empty nodes", workload.id));
    }
    findings
}

/// Whether a start that names its reservation fills it.
pub(crate) fn check_filled(beginning: &Beginning<'_>) -> Vec<Finding> {
    let reserved = reservation(beginning.workload);
    if beginning.basis != StartBasis::Reservation || reserved == Some(beginning.places) {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Reservation,
        format!(
            "workload {} begins by its reservation in {:?}, but reserved is {reserved:?}",
            beginning.workload.id, beginning.places
        ),
    )]
}

/// Whether non-preemptible work keeps off what is reserved for others. Work that ends by itself may fit in before,
/// and a reservation does not hold against work within quota.
pub(crate) fn check_reserved_capacity(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let ledger = Ledger::new(state, &workload.spec.pool);
    let exempt = workload.spec.preemptible
        || workload.spec.max_run.is_some()
        || Claim::placed(&ledger, workload, places).within_quota(&ledger);
    if exempt {
        return Vec::new();
    }
    overlapped(state, workload, places)
        .map(|other| {
            Finding::new(
                Rule::ReservedCapacity,
                format!("non-preemptible workload {} uses what is reserved for {}", workload.id, other.id),
            )
        })
        .into_iter()
        .collect()
}

/// Whether a start is marked as passing exactly when it uses what is reserved for another. `fresh` starts come from
/// the queue; a reservation may have been made over the places of a held one, which is then not required to be
/// marked.
pub(crate) fn check_mark(
    state: &State,
    workload: &Workload,
    places: &[Place],
    passing: bool,
    fresh: bool,
) -> Vec<Finding> {
    let text = if passing && (!workload.spec.preemptible || is_apart(state, workload, places)) {
        format!("workload {} is marked as passing and passes nobody", workload.id)
    } else if !passing
        && fresh
        && workload.spec.preemptible
        && let Some(other) = overlapped(state, workload, places)
    {
        format!(
            "workload {} uses what is reserved for {} and is not marked as passing",
            workload.id, other.id
        )
    } else {
        return Vec::new();
    };
    vec![Finding::new(Rule::PassingMark, text)]
}

/// Another workload whose reservation surely cannot be filled beside these places: the two together are more than
/// a node has.
fn overlapped<'a>(state: &'a State, workload: &'a Workload, places: &[Place]) -> Option<&'a Workload> {
    workloads_of(state, &workload.spec.pool).filter(|other| other.id != workload.id).find(|other| {
        reservation(other).is_some_and(|reserved| {
            let mut room = Room::empty(state);
            reserved.iter().for_each(|place| room.take(place));
            !room.holds(places)
        })
    })
}

/// Whether the places surely use nothing that is reserved for others: no device is shared, and CPU and memory of
/// their nodes are enough for everybody.
fn is_apart(state: &State, workload: &Workload, places: &[Place]) -> bool {
    if !reserved_by_others(state, &workload.spec.pool, workload) {
        return true;
    }
    let mut room = Room::of(state, View::Decided);
    let own = workload.places().count() > 0;
    let mut reserved_devices: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for other in workloads_of(state, &workload.spec.pool).filter(|other| other.id != workload.id) {
        for place in reservation(other).unwrap_or_default() {
            room.take(place);
            let devices = place.devices.iter().map(|taken| taken.device);
            reserved_devices.entry(place.node).or_default().extend(devices);
        }
    }
    if !own {
        places.iter().for_each(|place| room.take(place));
    }
    places.iter().all(|place| {
        let Some(reserved) = reserved_devices.get(&place.node) else {
            return true;
        };
        let free = &room.nodes[&place.node];
        let shared = place.devices.iter().any(|taken| reserved.contains(&taken.device));
        !shared && free.cpu >= 0 && free.memory >= 0
    })
}
