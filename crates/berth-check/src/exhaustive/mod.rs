//! An oracle that does not believe "cannot": in small worlds every set of victims, every set of moves and every layout is
//! tried, and whatever the rules allow must have been found.
//!
//! ```text
//! State before a claim --takings--> every allowed set --preferred--> the sets of rule 6 --> the one that was taken is one
//! State after a plan ---takings, clearings--> nothing is left that a waiting workload could take
//! ```
//!
//! What a set needs to be allowed is asked of the same checks that judge a plan, so this module searches and ranks only.

mod clearings;
mod layouts;
mod preferred;
mod takings;

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Ledger, reservation, workloads_of},
    taking::winner_of,
    walk::happen,
};
use berth_types::{Action, AfterStop, Change, Kind, Phase, Plan, Policy, State, Time, Workload, WorkloadId};
use std::collections::BTreeMap;
use takings::Taking;

/// The most running workloads of a small world.
const RUNNING_MAX: usize = 8;
/// The most waiting workloads of a small world.
const WAITING_MAX: usize = 4;
/// The most devices of a small world.
const DEVICES_MAX: usize = 6;

/// Whether a world is small enough for everything to be tried: at most 8 running and 4 waiting workloads and 6 devices, and
/// no reservation, because what a reservation hides depends on who asks.
pub(crate) fn is_small(state: &State) -> bool {
    let count = |is: fn(&Workload) -> bool| state.workloads.values().filter(|own| is(own)).count();
    let devices: usize = state.nodes.values().map(|node| node.devices.len()).sum();
    count(|own| own.places().next().is_some()) <= RUNNING_MAX
        && count(waits) <= WAITING_MAX
        && devices <= DEVICES_MAX
        && count(|own| reservation(own).is_some()) == 0
}

/// Whether a workload waits for places: in the queue, or on its way back to it.
fn waits(workload: &Workload) -> bool {
    matches!(workload.phase, Phase::Queued { .. } | Phase::Stopping { then: AfterStop::Requeue, .. })
}

/// What a plan of a small world took although another allowed set is better, and what it left though the rules allow it.
pub(crate) fn check_plan(policy: &Policy, before: &State, plan: &Plan) -> Vec<Finding> {
    if !is_small(before) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut state = before.clone();
    let mut groups: BTreeMap<WorkloadId, (State, Vec<Action>)> = BTreeMap::new();
    for action in &plan.actions {
        if let Some(winner) = winner_of(action) {
            groups.entry(winner).or_insert_with(|| (state.clone(), Vec::new())).1.push(action.clone());
        } else if let Some((before, taken)) = groups.remove(&action.workload()) {
            findings.extend(check_choice(policy, &before, &taken, action.workload(), plan.at));
        }
        if happen(&mut state, &Change::Decided { action: action.clone(), at: plan.at }).is_err() {
            return findings;
        }
    }
    if is_small(&state) {
        findings.extend(check_left(policy, &state, plan.at));
    }
    findings
}

/// Whether what was taken for a winner is what the rules prefer.
fn check_choice(
    policy: &Policy,
    before: &State,
    taken: &[Action],
    winner: WorkloadId,
    now: Time,
) -> Vec<Finding> {
    let Some(winner) = before.workloads.get(&winner) else { return Vec::new() };
    if taken.iter().any(|action| matches!(action, Action::Move { .. })) {
        return clearings::check_cheapest(policy, before, taken, winner, now);
    }
    preferred::check_choice(policy, before, taken, winner, now)
}

/// Workloads that wait although the rules let something be taken or moved for them.
fn check_left(policy: &Policy, after: &State, now: Time) -> Vec<Finding> {
    let mut findings = Vec::new();
    let may_take = |own: &&Workload| waits(own) && own.evicted != Some(now) && is_first(after, own);
    for claimant in after.workloads.values().filter(may_take) {
        let found = takings::first(policy, after, claimant, now)
            .map(|taking| taken_text(&taking))
            .or_else(|| clearings::first(policy, after, claimant, now).map(|clearing| clearing.text()));
        if let Some(found) = found {
            let ledger = Ledger::new(after, &claimant.spec.pool);
            let claim = Claim::waiting(&ledger, claimant);
            let owed = if claim.within_quota(&ledger) { "within quota" } else { "above quota" };
            findings.push(Finding::new(
                Rule::NotFound,
                format!("workload {} waits {owed}, though the rules allow {found}", claimant.id),
            ));
        }
    }
    findings
}

/// Whether the workload is the first in the queue of its project among those with the same request. Only the first takes.
fn is_first(state: &State, claimant: &Workload) -> bool {
    let key = |own: &Workload| (std::cmp::Reverse(own.spec.priority), own.submitted, own.id);
    let asks_the_same = |own: &Workload| {
        let (one, other) = (&own.spec, &claimant.spec);
        one.project == other.project
            && ((one.kind == Kind::Interactive) == (other.kind == Kind::Interactive))
            && one.preemptible == other.preemptible
            && (&one.request, one.tasks.min()) == (&other.request, other.tasks.min())
            && (&one.selector, &one.topology, one.spread) == (&other.selector, &other.topology, other.spread)
    };
    let mut before = state.workloads.values().filter(|own| waits(own) && key(own) < key(claimant));
    !before.any(asks_the_same)
}

fn taken_text(taking: &Taking<'_>) -> String {
    let ids: Vec<WorkloadId> = taking.victims.iter().map(|victim| victim.id).collect();
    let extras = taking.group.taken.iter().filter(|action| matches!(action, Action::Shrink { .. })).count();
    format!("by {:?} to evict {ids:?}, and to shrink {extras} workloads", taking.rule)
}

/// Workloads of one pool with places.
fn running<'a>(state: &'a State, claimant: &'a Workload) -> impl Iterator<Item = &'a Workload> {
    workloads_of(state, &claimant.spec.pool).filter(|own| own.is_running())
}
