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
    /// Nodes that could be cleared.
    nodes: Vec<u32>,
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
                let (nodes, found) = (self.nodes_to_clear(slot), Vec::new());
                let mut search =
                    Search { pool: self, slot, ask: *ask, now, later, gives, steps_left, nodes, found };
                search.try_sets(&mut trial, &whole);
                if let Some(both) = search.best(&units, &whole) {
                    return Some(both);
                }
            }
        }
        None
    }
}

impl Search<'_, '_> {
    /// Tries sets of victims, the smallest first and none that has one which makes room already, so that each that is found is
    /// minimal, also when the steps run out.
    fn try_sets(&mut self, trial: &mut Trial<'_>, whole: &[Unit]) {
        let mut sets: Vec<u32> = (1..1 << whole.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        for set in sets {
            if self.found.iter().any(|(found, _)| found & set == *found) {
                continue;
            }
            let Some(left) = self.steps_left.checked_sub(1) else { return };
            self.steps_left = left;
            let victims = members(whole, set);
            let may_start = victims.iter().all(|unit| trial.push(*unit)) && trial.may_start();
            trial.clear();
            if may_start {
                self.clear_beside(victims, set);
            }
        }
    }

    /// Keeps the cheapest moves that make room beside a set of victims, if they are worth it.
    fn clear_beside(&mut self, evicted: Vec<Unit>, set: u32) {
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
            return;
        }
        let mut best: Option<Clearing> = None;
        for at in &self.nodes {
            let mut search = self.pool.clear_node(*at, self.slot, (&free, &gone), self.now, self.later);
            search.below = best.as_ref().map(Clearing::rank);
            let (found, left) = search.cheapest(self.steps_left);
            self.steps_left = left;
            best = found.or(best);
        }
        match best {
            Some(clearing) if clearing.cost < self.gives => {
                self.found.push((set, Both { evicted, clearing }))
            }
            Some(clearing) => self.later.note(self.pool.worth_from(&self.ask, clearing.cost, self.slot)),
            None => {}
        }
    }

    /// The one with the best set of victims.
    fn best(mut self, units: &Units<'_>, whole: &[Unit]) -> Option<Both> {
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
