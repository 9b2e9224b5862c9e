//! Which of the allowed sets rule 6 prefers, found by striking out the others in the words of the rule.

use super::takings::{self, Taking, evicted};
use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::Ledger,
    search::{Bench, Reading},
    share::fair_shares,
};
use berth_types::{Account, Action, EvictRule, Gpus, Policy, ProjectId, State, Time, Workload, WorkloadId};
use std::{cmp::Reverse, collections::BTreeMap};

/// One step of giving up a set: the next victim, and what its project has above its fair share for its weight just before.
struct Step {
    project: ProjectId,
    /// Excess and weight; none for the claimant's own project, which gives last.
    excess: Option<(i128, i128)>,
    priority: i32,
    evicted_last: Option<Time>,
}

/// A set in the running.
struct Set<'a> {
    victims: Vec<&'a Workload>,
    steps: Vec<Step>,
    lost: u128,
}

impl Set<'_> {
    fn ids(&self) -> Vec<WorkloadId> {
        let mut ids: Vec<WorkloadId> = self.victims.iter().map(|victim| victim.id).collect();
        ids.sort_unstable();
        ids
    }
}

/// Whether the set that was taken is one that the rule prefers among all that are allowed in the same way.
pub(super) fn check_choice(
    policy: &Policy,
    before: &State,
    taken: &[Action],
    winner: &Workload,
    now: Time,
) -> Vec<Finding> {
    let chosen = evicted(taken);
    let rule = taken.iter().find_map(|action| match action {
        Action::Evict { rule, .. } if *rule != EvictRule::Preemption => Some(*rule),
        _ => None,
    });
    if chosen.is_empty() || rule == Some(EvictRule::Passing) {
        return Vec::new();
    }
    let ledger = Ledger::new(before, &winner.spec.pool);
    let claim = Claim::waiting(&ledger, winner);
    let is_own = |victim: &&Workload| victim.spec.project == winner.spec.project;
    // Whether its own work goes too, and whether a line is straddled: sets of the better kind are preferred, whatever they lose.
    let kind_of = |victims: &[&Workload]| -> (bool, bool) {
        let others: Vec<&Workload> = victims.iter().copied().filter(|victim| !is_own(victim)).collect();
        let own = others.len() < victims.len();
        let bench = Bench::new(&ledger, &claim, others, Reading::Possible);
        (own, rule == Some(EvictRule::QuotaReclaim) && !bench.stays_above(bench.all()))
    };
    let victims: Vec<&Workload> = chosen.iter().map(|id| &before.workloads[id]).collect();
    let chosen_kind = kind_of(&victims);
    let by_same_rule = |taking: &Taking<'_>| {
        rule.is_some_and(|rule| taking.rule == rule) || taking.victims.iter().all(is_own)
    };
    let all = takings::all(policy, before, winner, now).into_iter().filter(by_same_rule);
    let all: Vec<Taking<'_>> = all.collect();
    let ids = |taking: &Taking<'_>| taking.victims.iter().map(|victim| victim.id).collect::<Vec<_>>();
    let all_ids: Vec<Vec<WorkloadId>> = all.iter().map(ids).collect();
    let is_part = |one: &[WorkloadId], other: &[WorkloadId]| {
        one.len() < other.len() && one.iter().all(|id| other.contains(id))
    };
    let is_minimal = |taking: &Taking<'_>| !all_ids.iter().any(|other| is_part(other, &ids(taking)));
    let allowed: Vec<Vec<&Workload>> = all
        .iter()
        .filter(|taking| is_minimal(taking))
        .map(|taking| taking.victims.clone())
        .filter(|victims| kind_of(victims) == chosen_kind)
        .collect();
    let sets = allowed.into_iter().map(|victims| set_of(policy, &ledger, winner, victims, now)).collect();
    let best = preferred(sets);
    if best.is_empty() || best.iter().any(|set| set.ids() == chosen) {
        return Vec::new();
    }
    let better: Vec<(Vec<WorkloadId>, u128)> = best.iter().map(|set| (set.ids(), set.lost)).collect();
    let lost: u128 = victims.iter().map(|victim| victim.work_lost(now, policy.lost_cap)).sum();
    vec![Finding::new(
        Rule::BestVictims,
        format!("workload {} takes {chosen:?}, which loses {lost}; the rules prefer {better:?}", winner.id),
    )]
}

fn set_of<'a>(
    policy: &Policy,
    ledger: &Ledger<'_>,
    winner: &Workload,
    victims: Vec<&'a Workload>,
    now: Time,
) -> Set<'a> {
    let shares = fair_shares(ledger.state, &winner.spec.pool);
    let lost_of = |victim: &Workload| victim.work_lost(now, policy.lost_cap);
    let lost = victims.iter().map(|victim| lost_of(victim)).sum();
    let mut left = victims.clone();
    left.sort_by_key(|victim| {
        (victim.spec.priority, lost_of(victim), Reverse(victim.running_since()), victim.id)
    });
    let mut gone: BTreeMap<ProjectId, u64> = BTreeMap::new();
    let mut steps = Vec::new();
    while !left.is_empty() {
        let excess_of = |project: ProjectId| {
            let account = Account::Project(project);
            let used = ledger.used_gpus(account) - gone.get(&project).copied().unwrap_or(0);
            let share = shares.get(&account).map_or(0, |share| share.0);
            let weight = i128::from(ledger.tree.weight(account).0.max(1));
            (project != winner.spec.project).then_some((i128::from(used) - i128::from(share), weight))
        };
        let last = |project: ProjectId| evicted_last(ledger.state, project);
        // The first of those whose turn it is gives; the list is in the order in which one project gives.
        let turn = (0..left.len())
            .reduce(|one, other| {
                let (p, q) = (left[one].spec.project, left[other].spec.project);
                match compare(excess_of(p), excess_of(q)).then_with(|| (last(q), q).cmp(&(last(p), p))) {
                    std::cmp::Ordering::Less => other,
                    _ => one,
                }
            })
            .expect("is not empty");
        let victim = left.remove(turn);
        let project = victim.spec.project;
        steps.push(Step {
            project,
            excess: excess_of(project),
            priority: victim.spec.priority,
            evicted_last: last(project),
        });
        let gpus: Gpus = victim.base_places().map(berth_types::Place::gpus).sum();
        *gone.entry(project).or_default() += gpus.0;
    }
    Set { victims, steps, lost }
}

/// When work of a project was last evicted.
fn evicted_last(state: &State, project: ProjectId) -> Option<Time> {
    let own = state.workloads.values().filter(|workload| workload.spec.project == project);
    own.filter_map(|workload| workload.evicted).max()
}

/// Compares excess over weight; the claimant's own project has the least.
fn compare(one: Option<(i128, i128)>, other: Option<(i128, i128)>) -> std::cmp::Ordering {
    match (one, other) {
        (Some((excess, weight)), Some((other_excess, other_weight))) => {
            (excess * other_weight).cmp(&(other_excess * weight))
        }
        _ => one.is_some().cmp(&other.is_some()),
    }
}

/// The sets that no step, no loss and no size tells apart from the best.
fn preferred(mut sets: Vec<Set<'_>>) -> Vec<Set<'_>> {
    let longest = sets.iter().map(|set| set.steps.len()).max().unwrap_or(0);
    for at in 0..longest {
        let Some(most) = sets
            .iter()
            .filter_map(|set| set.steps.get(at))
            .map(|step| step.excess)
            .reduce(|one, other| if compare(one, other).is_lt() { other } else { one })
        else {
            break;
        };
        sets.retain(|set| set.steps.get(at).is_none_or(|step| compare(step.excess, most).is_eq()));
        let mut lowest: BTreeMap<ProjectId, i32> = BTreeMap::new();
        for step in sets.iter().filter_map(|set| set.steps.get(at)) {
            let known = lowest.entry(step.project).or_insert(step.priority);
            *known = step.priority.min(*known);
        }
        sets.retain(|set| set.steps.get(at).is_none_or(|step| step.priority == lowest[&step.project]));
    }
    let rank = |set: &Set<'_>| {
        let last: Vec<Option<Time>> = set.steps.iter().map(|step| step.evicted_last).collect();
        (set.lost, set.victims.len(), last)
    };
    let Some(best) = sets.iter().map(rank).min() else { return sets };
    sets.retain(|set| rank(set) == best);
    sets
}
