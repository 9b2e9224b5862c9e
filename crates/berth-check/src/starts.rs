//! Starts and holds of waiting work, and starts of held work.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::Ledger,
    places::{check_apart, check_gang, check_nodes, check_ranks, check_shape, check_topology},
    room::{Room, View},
    share::fair_shares,
};
use berth_types::{GpuRequest, Place, StartBasis, State, Time, Workload};

/// A start or hold of a workload that waits in the queue.
pub(crate) struct Beginning<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) places: &'a [Place],
    pub(crate) basis: StartBasis,
    /// A start rather than a hold.
    pub(crate) now: bool,
}

/// Whether a waiting workload may begin in these places, whoever else waits.
pub(crate) fn check_beginning(state: &State, beginning: &Beginning<'_>, at: Time) -> Vec<Finding> {
    let Beginning { workload, places, basis, now } = *beginning;
    let mut findings = check_gang(workload, places);
    findings.extend(check_new_places(state, workload, places));
    findings.extend(check_topology(state, workload, places));
    findings.extend(check_decided_room(state, workload, places));
    findings.extend(check_occupied_room(state, workload, places, now));
    findings.extend(check_entitled(state, workload, places));
    findings.extend(check_basis(state, workload, places, basis));
    if workload.evicted == Some(at) {
        findings.push(Finding::new(
            Rule::RestartAtOnce,
            format!("workload {} was evicted at {at:?} and is given places at the same instant", workload.id),
        ));
    }
    findings
}

/// Whether a held workload starts where it was held, and only when those places are left.
pub(crate) fn check_held_start(
    state: &State,
    workload: &Workload,
    held: &[Place],
    places: &[Place],
) -> Vec<Finding> {
    let mut findings = check_occupied_room(state, workload, places, true);
    if held != places {
        findings.push(Finding::new(
            Rule::Gang,
            format!("workload {} starts in other places than it was held in", workload.id),
        ));
    }
    findings
}

/// Whether a held workload starts by what it was held by.
pub(crate) fn check_held_basis(
    workload: &Workload,
    held_by: Option<StartBasis>,
    basis: StartBasis,
) -> Vec<Finding> {
    let other = held_by.filter(|held_by| *held_by != basis);
    let text = |held_by| format!("workload {} was held by {held_by:?} and starts by {basis:?}", workload.id);
    other.map(|held_by| Finding::new(Rule::Basis, text(held_by))).into_iter().collect()
}

/// Whether new places have the right shape and are on nodes that may be used.
pub(crate) fn check_new_places(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let mut findings = check_shape(state, workload, places);
    findings.extend(check_ranks(workload, places));
    findings.extend(check_apart(workload, places));
    findings.extend(check_nodes(state, workload, places));
    findings
}

/// Whether new places are free as decided. The workload's own places make way, because it would leave them.
pub(crate) fn check_decided_room(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let mut room = Room::of(state, View::Decided);
    workload.places().for_each(|place| room.give(place));
    if room.holds(places) {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::DeviceCapacity,
        format!("the places given to workload {} are not free as decided: {places:?}", workload.id),
    )]
}

/// A start needs places that nobody occupies, a hold needs somebody in the way.
fn check_occupied_room(state: &State, workload: &Workload, places: &[Place], now: bool) -> Vec<Finding> {
    let free = Room::of(state, View::Occupied).holds(places);
    let (rule, text) = match (now, free) {
        (true, false) => (Rule::StartBeforeFree, "is started in places that are still occupied"),
        (false, true) => (Rule::HoldWithoutCause, "is held for places that nobody occupies"),
        _ => return Vec::new(),
    };
    vec![Finding::new(rule, format!("workload {} {text}: {places:?}", workload.id))]
}

/// Limits, quotas of non-preemptible work and borrowing, with what the places really cost.
pub(crate) fn check_entitled(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let ledger = Ledger::new(state, &workload.spec.pool);
    let claim = Claim::placed(&ledger, workload, places);
    let mut findings = claim.limit_findings(&ledger, true);
    findings.extend(claim.fixed_findings(&ledger));
    findings.extend(claim.borrowing_findings(&ledger));
    findings
}

/// Whether the basis that is named is true; the others are named by what happens around the start.
fn check_basis(state: &State, workload: &Workload, places: &[Place], basis: StartBasis) -> Vec<Finding> {
    let ledger = Ledger::new(state, &workload.spec.pool);
    let claim = Claim::placed(&ledger, workload, places);
    let (holds, text) = match basis {
        StartBasis::Quota => (claim.within_quota(&ledger), "is not within quota"),
        StartBasis::FairShare => (
            // Work charged by GPU memory moves demand when it leaves its device, so with any such work about a share
            // is not the same before and after victims are gone.
            charged_by_memory(state) || claim.within_share(&ledger, &fair_shares(state, &workload.spec.pool)),
            "is not within its fair share",
        ),
        StartBasis::Idle | StartBasis::Priority | StartBasis::Reservation => return Vec::new(),
    };
    if holds {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Basis,
        format!(
            "workload {} begins by {basis:?} but with {} GPUs {text}",
            workload.id,
            berth_types::Gpus(claim.gpus())
        ),
    )]
}

fn charged_by_memory(state: &State) -> bool {
    let by_memory = |workload: &Workload| matches!(workload.spec.request.gpu, GpuRequest::Memory { .. });
    state.workloads.values().any(|workload| !workload.is_finished() && by_memory(workload))
}
