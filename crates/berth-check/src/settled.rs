//! What must be true once a plan's actions were applied: nobody waits for what could be had.

use crate::{
    claim::{Claim, claimants},
    finding::{Finding, Rule},
    ledger::{Ledger, reserved_by_others},
    room::{Room, View},
    search::{Reading, Sufficient, extras_make_way, is_small, set_on_one_node, smallest_set},
};
use berth_types::{Gpus, Name, NodeCondition, Phase, Place, State, Time, Workload};
use std::collections::BTreeSet;

pub(crate) fn check_settled(after: &State, now: Time) -> Vec<Finding> {
    let pools: BTreeSet<&Name> = after.workloads.values().map(|own| &own.spec.pool).collect();
    let mut findings: Vec<Finding> =
        pools.into_iter().flat_map(|pool| check_pool(after, pool, now)).collect();
    findings.extend(check_held(after));
    findings
}

fn check_pool(after: &State, pool: &Name, now: Time) -> Vec<Finding> {
    let ledger = Ledger::new(after, pool);
    let room = Room::of(after, View::Decided);
    let mut findings = Vec::new();
    for (workload, claim) in claimants(&ledger, after, now) {
        // What is reserved for others is invisible to non-preemptible work, so nothing is said about that.
        let blind = !workload.spec.preemptible && reserved_by_others(after, pool, workload);
        if blind || !extras_make_way(&ledger, &claim, now) {
            continue;
        }
        let within_quota = claim.within_quota(&ledger);
        if room.fits(workload) {
            findings.push(idle_finding(&room, workload, &claim, within_quota));
        } else if within_quota
            && workload.evicted != Some(now)
            && let Some(set) = reclaimable(&ledger, &claim, workload, now)
        {
            findings.push(Finding::new(
                Rule::QuotaGuarantee,
                format!(
                    "workload {} asks {} GPUs within quota and waits, though it would fit after {:?} and extras",
                    workload.id,
                    Gpus(claim.gpus()),
                    set.victims
                ),
            ));
        }
    }
    findings
}

fn idle_finding(room: &Room<'_>, workload: &Workload, claim: &Claim, within_quota: bool) -> Finding {
    let rule = if within_quota { Rule::QuotaGuarantee } else { Rule::IdleCapacity };
    Finding::new(
        rule,
        format!(
            "workload {} asks {} GPUs, may start and waits, though {} of its {} tasks fit into what is free",
            workload.id,
            Gpus(claim.gpus()),
            room.tasks(workload),
            workload.spec.tasks.min()
        ),
    )
}

/// Victims that could be taken for a claimant within quota: any set in small pools, sets on one node in others.
fn reclaimable(ledger: &Ledger<'_>, claim: &Claim, workload: &Workload, now: Time) -> Option<Sufficient> {
    if is_small(ledger.state, &workload.spec.pool) {
        smallest_set(ledger, claim, workload, now, Reading::Sure)
    } else {
        set_on_one_node(ledger, claim, workload, now)
    }
}

/// Held work whose places are left, its own former ones included, must have been started.
fn check_held(after: &State) -> Vec<Finding> {
    let occupied = Room::of(after, View::Occupied);
    let ready = |place: &Place| {
        let node = after.nodes.get(&place.node);
        node.is_some_and(|node| node.condition == NodeCondition::Ready)
    };
    let mut findings = Vec::new();
    for workload in after.workloads.values() {
        if let Phase::Held { places, leaving, .. } = &workload.phase
            && leaving.is_empty()
            && places.iter().all(ready)
            && occupied.holds(places)
        {
            findings.push(Finding::new(
                Rule::HeldTooLong,
                format!("workload {} is held in {places:?}, which nobody occupies", workload.id),
            ));
        }
    }
    findings
}
