//! Takings: every set of victims, and whether the rules allow it.

use super::{layouts::any_layout, running};
use crate::{
    claim::Claim,
    ledger::{Ledger, reserved_by_others},
    patience::check_patience,
    rights::check_rights,
    room::{Room, View, accepts},
    search::{Reading, has_takeable_extras},
    share::fair_shares,
    starts::check_entitled,
    taking::{Group, Winning, check_victim},
    tree::split,
    walk::happen,
};
use berth_types::{
    Account, Action, Change, EvictRule, Gpus, Place, Policy, StartBasis, State, Time, Workload, WorkloadId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// A set of victims that the rules allow, with what happens for it.
pub(super) struct Taking<'a> {
    /// By which rule victims of other projects go.
    pub(super) rule: EvictRule,
    /// Whole workloads that are evicted.
    pub(super) victims: Vec<&'a Workload>,
    pub(super) group: Group,
}

/// The first allowed set found, fewest victims first.
pub(super) fn first<'a>(
    policy: &'a Policy,
    state: &'a State,
    claimant: &'a Workload,
    now: Time,
) -> Option<Taking<'a>> {
    let mut found = None;
    for_each(policy, state, claimant, now, Reading::Sure, &mut |taking| {
        found = Some(taking);
        true
    });
    found
}

/// Every allowed set, extras that can be taken gone with each.
pub(super) fn all<'a>(
    policy: &'a Policy,
    state: &'a State,
    claimant: &'a Workload,
    now: Time,
) -> Vec<Taking<'a>> {
    let mut found = Vec::new();
    for_each(policy, state, claimant, now, Reading::Possible, &mut |taking| {
        found.push(taking);
        false
    });
    found
}

fn for_each<'a>(
    policy: &'a Policy,
    state: &'a State,
    claimant: &'a Workload,
    now: Time,
    extras: Reading,
    accept: &mut dyn FnMut(Taking<'a>) -> bool,
) {
    let pool = &claimant.spec.pool;
    let fits = Room::of(state, View::Decided).fits(claimant) && may_start(state, claimant);
    if fits || reserved_by_others(state, pool, claimant) {
        return;
    }
    let search = Search { policy, state, claimant, now, before: Rc::new(state.clone()) };
    for rule in [EvictRule::QuotaReclaim, EvictRule::ShareReclaim] {
        let candidates = search.candidates(rule);
        let of_others = |set: usize| {
            let mut victims = members(&candidates, set);
            victims.any(|victim| victim.spec.project != claimant.spec.project)
        };
        let mut sets: Vec<usize> = (0..1 << candidates.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        for set in sets {
            // Without victims of others no rule is named, and the set is tried once.
            if rule == EvictRule::ShareReclaim && !of_others(set) {
                continue;
            }
            let victims: Vec<&Workload> = members(&candidates, set).collect();
            if let Some(group) = search.allowed(rule, &victims, extras)
                && accept(Taking { rule, victims, group })
            {
                return;
            }
        }
    }
}

/// The candidates whose bits are set.
pub(super) fn members<'a, 's>(
    candidates: &'s [&'a Workload],
    set: usize,
) -> impl Iterator<Item = &'a Workload> + 's {
    candidates.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, victim)| *victim)
}

fn may_start(state: &State, claimant: &Workload) -> bool {
    let ledger = Ledger::new(state, &claimant.spec.pool);
    Claim::waiting(&ledger, claimant).may_start_beside_extras(&ledger)
}

/// The search for sets of one claimant.
pub(super) struct Search<'a> {
    pub(super) policy: &'a Policy,
    pub(super) state: &'a State,
    pub(super) claimant: &'a Workload,
    pub(super) now: Time,
    pub(super) before: Rc<State>,
}

impl<'a> Search<'a> {
    /// Workloads that the rule, or preemption, might let be taken.
    pub(super) fn candidates(&self, rule: EvictRule) -> Vec<&'a Workload> {
        let ledger = Ledger::new(self.state, &self.claimant.spec.pool);
        let claim = Claim::waiting(&ledger, self.claimant);
        let shares = fair_shares(self.state, &self.claimant.spec.pool);
        running(self.state, self.claimant)
            .filter(|victim| check_victim(self.state, victim, None, self.now).is_empty())
            .filter(|victim| {
                if victim.spec.project == self.claimant.spec.project {
                    return victim.spec.priority < self.claimant.spec.priority;
                }
                let (_, chain) = split(&claim.path, &ledger.tree.path(victim.spec.project));
                chain.into_iter().all(|account| is_above_line(&ledger, &claim, &shares, rule, account))
            })
            .collect()
    }

    /// What happens when these are evicted and all extras that can be taken are, if the rules allow it and there is room then.
    fn allowed(&self, rule: EvictRule, victims: &[&Workload], extras: Reading) -> Option<Group> {
        let mut room = Room::of(self.state, View::Decided);
        victims.iter().flat_map(|victim| victim.places()).for_each(|place| room.give(place));
        let shrinks = self.shrinks(victims, extras, &mut room);
        if !room.fits(self.claimant) {
            return None;
        }
        let evictions = victims.iter().map(|victim| self.eviction(rule, victim));
        let group =
            Group { before: Rc::clone(&self.before), taken: shrinks.into_iter().chain(evictions).collect() };
        self.is_allowed(&group).then_some(group)
    }

    /// Every extra that can be taken, of workloads that stay.
    fn shrinks(&self, victims: &[&Workload], extras: Reading, room: &mut Room<'_>) -> Vec<Action> {
        let mut shrinks = Vec::new();
        for other in running(self.state, self.claimant) {
            let protected = !has_takeable_extras(self.state, other, self.now, extras);
            let ranks: Vec<u32> = other.extra_places().map(|place| place.rank).collect();
            if protected || ranks.is_empty() || victims.iter().any(|victim| victim.id == other.id) {
                continue;
            }
            other.extra_places().for_each(|place| room.give(place));
            shrinks.push(Action::Shrink { workload: other.id, ranks, winner: self.claimant.id });
        }
        shrinks
    }

    pub(super) fn eviction(&self, rule: EvictRule, victim: &Workload) -> Action {
        let is_own = victim.spec.project == self.claimant.spec.project;
        Action::Evict {
            workload: victim.id,
            winner: self.claimant.id,
            rule: if is_own { EvictRule::Preemption } else { rule },
            lost: victim.work_lost(self.now, self.policy.lost_cap),
        }
    }

    /// Whether the rules allow a group in some layout of the claimant.
    pub(super) fn is_allowed(&self, group: &Group) -> bool {
        let Some(after) = self.after(group) else { return false };
        let room = Room::of(&after, View::Decided);
        if !room.is_sound() {
            return false;
        }
        let mut tried: Vec<BTreeMap<_, Gpus>> = Vec::new();
        any_layout(&after, &room, self.claimant, &mut |places| {
            // Layouts that are charged alike fare alike.
            let charge = crate::ledger::Amounts::of(&after, places).models;
            if tried.contains(&charge) {
                return false;
            }
            tried.push(charge);
            self.has_rights(group, &after, places)
        })
    }

    pub(super) fn after(&self, group: &Group) -> Option<State> {
        let mut after = self.state.clone();
        for action in &group.taken {
            happen(&mut after, &Change::Decided { action: action.clone(), at: self.now }).ok()?;
        }
        Some(after)
    }

    /// Whether waiting work of the claimant's project with a higher priority could preempt it at once where it took by share.
    fn could_be_taken_back(&self, group: &Group, after: &State, places: &[Place]) -> bool {
        let by_share =
            |action: &Action| matches!(action, Action::Evict { rule: EvictRule::ShareReclaim, .. });
        if !group.taken.iter().any(by_share) {
            return false;
        }
        let ledger = Ledger::new(after, &self.claimant.spec.pool);
        let asked = Claim::waiting(&ledger, self.claimant).gpus();
        let room = Room::of(after, View::Decided);
        let mut others = after.workloads.values().filter(|other| {
            super::waits(other)
                && other.spec.preemptible
                && other.spec.project == self.claimant.spec.project
                && other.spec.priority > self.claimant.spec.priority
                && Claim::waiting(&ledger, other).gpus() <= asked
        });
        others.any(|other| {
            let nodes: BTreeSet<_> = places.iter().map(|place| place.node).collect();
            let nodes =
                nodes.iter().filter_map(|id| after.nodes.get(id)).filter(|node| accepts(after, other, node));
            let copies: u64 = nodes.map(|node| room.copies(node, &other.spec.request)).sum();
            copies >= u64::from(other.spec.tasks.min())
        })
    }

    pub(super) fn has_rights(&self, group: &Group, after: &State, places: &[Place]) -> bool {
        let winning =
            Winning { after, workload: self.claimant, places, basis: StartBasis::Idle, now: self.now };
        !self.could_be_taken_back(group, after, places)
            && check_entitled(after, self.claimant, places).is_empty()
            && check_rights(group, &winning).is_empty()
            && check_patience(self.policy, group, &winning).is_empty()
    }
}

/// Whether an account is above the line of a rule in anything the claimant asks for.
fn is_above_line(
    ledger: &Ledger<'_>,
    claim: &Claim,
    shares: &BTreeMap<Account, Gpus>,
    rule: EvictRule,
    account: Account,
) -> bool {
    if rule == EvictRule::ShareReclaim {
        return ledger.used_gpus(account) > shares.get(&account).map_or(0, |share| share.0);
    }
    !ledger.tree.has_quota(account)
        || claim.dimensions().iter().any(|dimension| {
            let quota = ledger.tree.quota_in(account, dimension);
            quota.is_some_and(|quota| ledger.used(account, dimension) > quota)
        })
}

/// The workloads that a group evicts.
pub(super) fn evicted(taken: &[Action]) -> Vec<WorkloadId> {
    let evicted = taken.iter().filter(|action| matches!(action, Action::Evict { .. }));
    let mut ids: Vec<WorkloadId> = evicted.map(Action::workload).collect();
    ids.sort_unstable();
    ids
}
