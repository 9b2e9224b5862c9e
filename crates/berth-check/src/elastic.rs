//! Elastic extras: when they grow, and what may be shrunk.

use crate::{
    claim::claimants,
    finding::{Finding, Rule},
    ledger::{Ledger, reservation, workloads_of},
    places::{check_apart, check_ranks},
    room::{Room, View},
    starts::{check_decided_room, check_new_places},
    tree::named,
};
use berth_types::{Gpus, Place, State, Time, Workload};
use std::collections::BTreeSet;

/// Whether extras may be started in these places.
pub(crate) fn check_grow(state: &State, workload: &Workload, places: &[Place], now: Time) -> Vec<Finding> {
    let mut findings = check_new_places(state, workload, places);
    let all = || workload.places().chain(workload.leaving()).chain(places);
    findings.extend(check_ranks(workload, all()));
    findings.extend(check_apart(workload, all()));
    findings.extend(check_room(state, workload, places));
    findings.extend(check_account(state, workload, places));
    findings.extend(check_nobody_waits(state, workload, places, now));
    let spare = workload.spec.tasks.max() - workload.spec.tasks.min();
    let extras = workload.extra_places().count() + places.len();
    if extras > spare as usize {
        findings.push(Finding::new(
            Rule::Gang,
            format!("workload {} grows to {extras} extras of {spare}", workload.id),
        ));
    }
    if workload.evicted == Some(now) {
        findings.push(Finding::new(
            Rule::RestartAtOnce,
            format!("workload {} was shrunk at {now:?} and grows at the same instant", workload.id),
        ));
    }
    findings
}

/// Extras start at once, so their places must be free in both views.
fn check_room(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !Room::of(state, View::Decided).holds(places) {
        findings.extend(check_decided_room(state, workload, places));
    }
    if !Room::of(state, View::Occupied).holds(places) {
        findings.push(Finding::new(
            Rule::StartBeforeFree,
            format!("workload {} grows into places that are still occupied: {places:?}", workload.id),
        ));
    }
    findings
}

/// Extras stay below every limit, and do not borrow on weight zero.
fn check_account(state: &State, workload: &Workload, places: &[Place]) -> Vec<Finding> {
    let ledger = Ledger::new(state, &workload.spec.pool);
    let more: Gpus = places.iter().map(Place::gpus).sum();
    let mut findings = Vec::new();
    for account in ledger.tree.path(workload.spec.project) {
        let sum = Gpus(ledger.used_gpus(account) + ledger.extras(account)) + more;
        if let Some(limit) = ledger.tree.limit(account).filter(|limit| sum > *limit) {
            findings.push(Finding::new(
                Rule::Limit,
                format!(
                    "extras of workload {} take {} to {sum} GPUs, past the limit {limit}",
                    workload.id,
                    named(account)
                ),
            ));
        }
        let quota = ledger.tree.quota(account);
        if ledger.tree.has_quota(account) && ledger.tree.weight(account).is_zero() && sum > quota {
            findings.push(Finding::new(
                Rule::Borrowing,
                format!(
                    "extras of workload {} take {} to {sum} GPUs, past the quota {quota} with weight 0",
                    workload.id,
                    named(account)
                ),
            ));
        }
    }
    findings
}

/// No waiting minimum could use what is free. With reservations, what is free depends on who asks, so nothing is
/// said then.
fn check_nobody_waits(state: &State, workload: &Workload, places: &[Place], now: Time) -> Vec<Finding> {
    let pool = &workload.spec.pool;
    if workloads_of(state, pool).any(|other| reservation(other).is_some()) {
        return Vec::new();
    }
    let ledger = Ledger::new(state, pool);
    let room = Room::of(state, View::Decided);
    claimants(&ledger, state, now)
        .into_iter()
        .filter(|(waiting, _)| room.fits(waiting))
        .map(|(waiting, claim)| {
            Finding::new(
                Rule::Grow,
                format!(
                    "workload {} grows by {} while {} waits, may start its {} GPUs and fits",
                    workload.id,
                    places.len(),
                    waiting.id,
                    Gpus(claim.gpus())
                ),
            )
        })
        .collect()
}

/// Whether the ranks to be shrunk are extras that run, and were not grown by the same plan.
pub(crate) fn check_shrink(workload: &Workload, ranks: &[u32], grown: &BTreeSet<u32>) -> Vec<Finding> {
    let extras: BTreeSet<u32> = workload.extra_places().map(|place| place.rank).collect();
    let mut findings = Vec::new();
    for rank in ranks {
        if !extras.contains(rank) {
            findings.push(Finding::new(
                Rule::Shrink,
                format!(
                    "rank {rank} of workload {} is shrunk but no extra; extras are {extras:?}",
                    workload.id
                ),
            ));
        }
        if grown.contains(rank) {
            findings.push(Finding::new(
                Rule::EvictionAtOnce,
                format!("extra {rank} of workload {} is grown and shrunk in one plan", workload.id),
            ));
        }
    }
    findings
}
