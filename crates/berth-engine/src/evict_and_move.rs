//! Evicting some and moving others for one claim within quota, where neither makes room alone.
//!
//! Work of others that is within quota may be moved for a guarantee, not evicted, and what borrows may be evicted. Only where
//! few could be evicted this is tried, every set of them, within the step budget.

use crate::{
    claim::Ask,
    clear_node::Clearing,
    least_loss::{self, Loss},
    ledger::Rule,
    moves::Later,
    node::Free,
    pool::Pool,
    take::{EVERY_SET_MAX, Way},
    trial::{Trial, Unit},
    units::Units,
};
use berth_types::{Action, NodeId, Time};
use std::collections::BTreeMap;

/// A set of victims and the moves that make room beside it.
struct Both {
    evicted: Vec<Unit>,
    clearing: Clearing,
}

/// The search over sets of victims.
struct Search<'a, 'l> {
    pool: &'a Pool,
    slot: u32,
    ask: Ask,
    now: Time,
    later: &'l Later,
    /// GPU-time waited: what the moves must cost less than.
    gives: u128,
    steps_left: u32,
    found: Vec<(u32, Both)>,
}

impl Pool {
    /// Starts a workload within quota by evicting some and moving others, if that is worth it.
    pub(crate) fn evict_and_move(
        &mut self,
        slot: u32,
        ask: &Ask,
        now: Time,
        later: &Later,
        actions: &mut Vec<Action>,
    ) {
        if !self.within_quota(ask) {
            return;
        }
        let Some(both) = self.find_both(slot, ask, now, later) else { return };
        self.evict_units(slot, &both.evicted, Rule::Quota, now, actions);
        self.clear_and_start(slot, ask, both.clearing, now, actions);
    }

    fn find_both(&self, slot: u32, ask: &Ask, now: Time, later: &Later) -> Option<Both> {
        for (way, reach) in self.ways_for(slot, ask).into_iter().filter(|(way, _)| way.rule == Rule::Quota) {
            let Way { rule, own, lines } = way;
            let mut units = Units::new(self, slot, ask, &reach, (rule, own), None, now);
            let extras = units.extras();
            if units.are_more_than(EVERY_SET_MAX + extras) {
                return None;
            }
            let whole: Vec<Unit> = units.all()[extras..].to_vec();
            if let Some(retry) = units.retry {
                later.note(retry);
            }
            for line in lines {
                let mut trial = Trial::new(self, slot, *ask, &reach, rule, *line);
                let gives = self.gives(slot, ask, now);
                let steps_left = self.policy.search_steps;
                let mut search =
                    Search { pool: self, slot, ask: *ask, now, later, gives, steps_left, found: Vec::new() };
                search.try_sets_from(&mut trial, &whole, 0, 0);
                if let Some(both) = search.best(&units, &whole) {
                    return Some(both);
                }
            }
        }
        None
    }
}

impl Search<'_, '_> {
    /// Tries every set that has those `taken` and any from `at` on; one that makes room is not made larger.
    fn try_sets_from(&mut self, trial: &mut Trial<'_>, whole: &[Unit], at: usize, taken: u32) {
        if taken != 0 && trial.may_start() && self.clear_beside(whole, taken) {
            return;
        }
        let Some(unit) = whole.get(at) else { return };
        let Some(left) = self.steps_left.checked_sub(1) else { return };
        self.steps_left = left;
        if trial.push(*unit) {
            self.try_sets_from(trial, whole, at + 1, taken | 1 << at);
        }
        trial.pop();
        self.try_sets_from(trial, whole, at + 1, taken);
    }

    /// Whether moves beside a set of victims make room and are worth it; keeps the cheapest.
    fn clear_beside(&mut self, whole: &[Unit], taken: u32) -> bool {
        let evicted = members(whole, taken);
        let gone: Vec<u32> = evicted.iter().map(|unit| unit.slot).collect();
        let mut free: BTreeMap<NodeId, Free> = BTreeMap::new();
        let mut free_gpus = self.pool.free_gpus;
        for place in gone.iter().flat_map(|slot| self.pool.entry(*slot).workload.places()) {
            let Some(at) = self.pool.node_slot(place.node) else { continue };
            let node = self.pool.node(at);
            free.entry(place.node).or_insert_with(|| node.decided.clone()).give(place);
            free_gpus += place.gpus().0;
        }
        if free_gpus < self.ask.amounts[0] {
            return false;
        }
        let mut best: Option<Clearing> = None;
        for at in self.pool.nodes_to_clear(self.slot) {
            let mut search = self.pool.clear_node(at, self.slot, (&free, &gone), self.now, self.later);
            search.below = best.as_ref().map(Clearing::rank);
            let (found, left) = search.cheapest(self.steps_left);
            self.steps_left = left;
            best = found.or(best);
        }
        let Some(clearing) = best else { return false };
        if clearing.cost >= self.gives {
            self.later.note(self.pool.worth_from(&self.ask, clearing.cost, self.slot));
            return false;
        }
        self.found.push((taken, Both { evicted, clearing }));
        true
    }

    /// The one with the best set of victims.
    fn best(mut self, units: &Units<'_>, whole: &[Unit]) -> Option<Both> {
        let sets: Vec<u32> = self.found.iter().map(|(set, _)| *set).collect();
        self.found.retain(|(set, _)| !sets.iter().any(|other| other != set && other & set == *other));
        let losses: Vec<Vec<Loss>> = self
            .found
            .iter()
            .map(|(set, _)| members(whole, *set).iter().filter_map(|unit| units.loss_of(unit.slot)).collect())
            .collect();
        let best = least_loss::best_of(&losses)?;
        Some(self.found.swap_remove(best).1)
    }
}

/// The units whose bits are set.
fn members(whole: &[Unit], set: u32) -> Vec<Unit> {
    whole.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, unit)| *unit).collect()
}
