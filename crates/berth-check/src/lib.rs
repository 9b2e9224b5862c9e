//! The rules of `docs/scheduling.md` as an oracle.
//!
//! Given a state, a plan made for it, or the state after a plan, this crate says which rules are broken and by which
//! numbers. It owns an independent reading of the rules: it must never share code with the engine, know how the
//! engine finds its plans, or hold a clock. It is written to be read next to the rules, not to be fast; what needs
//! brute force is tried in small pools only.
//!
//! ```text
//! State ------------------> check_state    capacity, shapes, ranks
//! State + Plan -----------> check_plan     each action against the state just before it
//! State after the plan ---> check_settled  nobody waits for what could be had
//! State + Plan -----------> check_exhaustively  in small worlds, everything is tried
//! ```
//!
//! Where the rules leave an end open, what the engine did is given the benefit of the doubt, and what it failed to do
//! is held against it only when every reading demands it.

mod capacity;
mod claim;
mod elastic;
mod exhaustive;
mod finding;
mod ledger;
mod order;
mod patience;
mod places;
mod reserve;
mod rights;
mod room;
mod search;
mod settled;
mod share;
mod starts;
mod taking;
mod tree;
mod walk;

#[cfg(test)]
mod tests;

pub use finding::{Finding, Rule};

use berth_types::{Account, Gpus, Name, Plan, Policy, State, Time, WorkloadId};
use std::collections::BTreeMap;

/// Checks that hold for any state, whatever happened before.
pub fn check_state(state: &State) -> Vec<Finding> {
    capacity::check_state(state)
}

/// Checks a plan made for `before` at `plan.at`: every action against the state just before it, every group of
/// victims together, and the state after all of them.
pub fn check_plan(policy: &Policy, before: &State, plan: &Plan) -> Vec<Finding> {
    walk::check_plan(policy, before, plan)
}

/// Checks the state after a plan's actions were applied: quota is a guarantee, and capacity that waiting work may
/// use is not idle. No rule of it depends on the policy today.
pub fn check_settled(_policy: &Policy, after: &State, now: Time) -> Vec<Finding> {
    settled::check_settled(after, now)
}

/// Whether a state is a small world, in which [`check_exhaustively`] tries everything: at most 8 running and 4 waiting
/// workloads and 6 devices, and no reservation.
pub fn is_small_world(state: &State) -> bool {
    exhaustive::is_small(state)
}

/// Tries every set of victims and moves of a small world: whatever the rules allow and the plan did not find is a finding,
/// and so is a set that was taken although the rules prefer another. Nothing in larger worlds.
pub fn check_exhaustively(policy: &Policy, before: &State, plan: &Plan) -> Vec<Finding> {
    exhaustive::check_plan(policy, before, plan)
}

/// The fair share of every account of one pool.
pub fn fair_shares(state: &State, pool: &Name) -> BTreeMap<Account, Gpus> {
    share::fair_shares(state, pool)
}

/// The fewest victims of any set by quota reclaim and preemption after which a waiting workload within quota fits;
/// sets that leave every level at or above quota come before others, as the rules prefer them. Elastic extras and
/// moves are not counted. Nothing when no such set exists, the workload does not wait or is not within quota, or the
/// pool is too large for brute force.
pub fn fewest_victims(_policy: &Policy, state: &State, claimant: WorkloadId, now: Time) -> Option<usize> {
    let workload = state.workloads.get(&claimant).filter(|own| own.is_queued())?;
    let ledger = ledger::Ledger::new(state, &workload.spec.pool);
    let claim = claim::Claim::waiting(&ledger, workload);
    if !claim.within_quota(&ledger) || !claim.may_start(&ledger) {
        return None;
    }
    // Its own project's work goes only where that of borrowers does not suffice.
    let of_others = |victim: &berth_types::Workload| victim.spec.project != workload.spec.project;
    let reading = search::Reading::Possible;
    let set = search::smallest_set_among(&ledger, &claim, workload, now, reading, of_others)
        .or_else(|| search::smallest_set(&ledger, &claim, workload, now, reading))?;
    Some(set.victims.len())
}

/// Checks that planning again gives nothing: every one of the following plans is empty.
pub fn check_empty(plans: &[Plan]) -> Vec<Finding> {
    let busy = plans.iter().enumerate().filter(|(_, plan)| !plan.actions.is_empty());
    busy.map(|(position, plan)| {
        Finding::new(
            Rule::Stability,
            format!(
                "plan {} of {} after a plan is not empty at {:?}: {:?}",
                position + 1,
                plans.len(),
                plan.at,
                plan.actions
            ),
        )
    })
    .collect()
}
