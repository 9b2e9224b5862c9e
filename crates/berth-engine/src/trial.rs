//! A trial: the pool as it would be if some victims were gone, without touching the pool.

use crate::{
    claim::Ask,
    fit::Fit,
    hash::IdMap,
    ledger::{Dimensions, Ledger, Line, Rule},
    node::{Free, NodeSlot},
    pool::Pool,
    shape::Shape,
    units::Units,
};
use berth_types::{NodeId, Place, Verdict};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Domains tried one by one when budgets are tight.
const DOMAINS_TRIED: usize = 64;

/// What is taken as one: a whole workload, or one of its elastic extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unit {
    pub(crate) slot: u32,
    /// The rank of the extra; none for the whole workload.
    pub(crate) extra: Option<u32>,
}

struct Taken<'a> {
    unit: Unit,
    places: Vec<&'a Place>,
    size: Dimensions,
}

struct TrialNode {
    free: Free,
    copies: u32,
}

/// The trial of one claim.
pub(crate) struct Trial<'a> {
    pool: &'a Pool,
    slot: u32,
    shape: &'a Shape,
    fit: &'a Fit,
    min: u64,
    project: u32,
    model: Option<usize>,
    /// Reserved capacity counts as free.
    ignores_reservations: bool,
    must_give: u64,
    given: u64,
    ledger: Ledger,
    nodes: IdMap<u32, TrialNode>,
    /// Room by domain, where it differs from what is free.
    room: BTreeMap<u32, u64>,
    /// The domain that was first to have room.
    domain: Option<u32>,
    taken: Vec<Taken<'a>>,
    extras_taken: BTreeSet<(u32, u32)>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(pool: &'a Pool, slot: u32, ask: Ask, rule: Rule, line: Line, must_give: u64) -> Self {
        let class = pool.class_of(slot);
        let (shape, fit) = &pool.shapes[class.shape as usize];
        let mut trial = Self {
            pool,
            slot,
            shape,
            fit,
            min: u64::from(class.min),
            project: ask.project,
            model: ask.model,
            ignores_reservations: shape.preemptible || rule == Rule::Quota,
            must_give,
            given: 0,
            ledger: Ledger::new(pool, ask, rule, line),
            nodes: IdMap::default(),
            room: BTreeMap::new(),
            domain: None,
            taken: Vec::new(),
            extras_taken: BTreeSet::new(),
        };
        trial.find_free_domain();
        trial
    }

    fn find_free_domain(&mut self) {
        if self.fit.most() >= self.min {
            let sums = self.fit.domain_sums();
            self.domain = self.fit.best_first().find_map(|node| {
                self.fit.domain_of(node).filter(|domain| sums.of(*domain) >= self.min)
            });
        }
    }

    /// Forgets everything taken.
    pub(crate) fn clear(&mut self) {
        while let Some(taken) = self.taken.pop() {
            self.undo(&taken);
        }
        self.nodes.clear();
        self.room.clear();
        self.domain = None;
        self.find_free_domain();
    }

    /// Takes victims in order until there is room. False when there is room but budgets forbid the set; an error
    /// when even everything makes no room.
    pub(crate) fn by_order(&mut self, units: &mut Units<'a>) -> Result<bool, Verdict> {
        let mut next = 0;
        while !self.suffices() {
            let Some(unit) = units.get(next) else {
                let most = self.room.values().copied().max().unwrap_or(0).max(self.fit.most());
                return Err(match most >= self.min {
                    true => Verdict::NotEntitled,
                    false => Verdict::NoShape { most, needed: self.min },
                });
            };
            self.take(unit);
            next += 1;
        }
        self.leave_out_unneeded();
        Ok(self.ledger.holds())
    }

    /// Makes room node by node, each time where the least must be taken, within budgets throughout.
    pub(crate) fn by_node(&mut self, units: &mut Units<'a>) -> bool {
        let mut by_node: BTreeMap<u32, Vec<Unit>> = BTreeMap::new();
        for unit in units.all() {
            let places = self.places_of(*unit);
            if let [place] = places.as_slice()
                && let Some(node) = self.pool.node_slot(place.node)
                && self.fit.domain_of(node).is_some()
            {
                by_node.entry(node).or_default().push(*unit);
            }
        }
        // In the order of their smallest node, which does not depend on the order nodes came in.
        let mut domains: BTreeMap<u32, NodeId> = BTreeMap::new();
        for node in by_node.keys() {
            let id = self.pool.node(*node).id;
            let domain = self.fit.domain_of(*node).expect("was asked for before");
            let first = domains.entry(domain).or_insert(id);
            *first = id.min(*first);
        }
        let mut domains: Vec<(NodeId, u32)> = domains.into_iter().map(|(domain, id)| (id, domain)).collect();
        domains.sort_unstable();
        for (_, domain) in domains.into_iter().take(DOMAINS_TRIED) {
            let local = by_node.iter().filter(|(node, _)| self.fit.domain_of(**node) == Some(domain));
            let local: BTreeMap<u32, &Vec<Unit>> = local.map(|(node, units)| (*node, units)).collect();
            if self.by_node_in(domain, &local) && self.suffices() {
                return true;
            }
            self.clear();
        }
        false
    }

    fn by_node_in(&mut self, domain: u32, local: &BTreeMap<u32, &Vec<Unit>>) -> bool {
        // Cheapest first; equal costs go to the smaller node.
        let mut options = BinaryHeap::new();
        let entry = |cost: u64, node: u32, pool: &Pool| std::cmp::Reverse((cost, pool.node(node).id, node));
        for (node, units) in local {
            if let Some((cost, _)) = self.cheapest_copy(*node, units) {
                options.push(entry(cost, *node, self.pool));
            }
        }
        while self.room_in(domain) < self.min {
            let Some(std::cmp::Reverse((expected, _, node))) = options.pop() else { return false };
            let Some((cost, victims)) = self.cheapest_copy(node, local[&node]) else { continue };
            if cost > expected {
                options.push(entry(cost, node, self.pool));
                continue;
            }
            for unit in victims {
                self.take(unit);
            }
            if let Some((cost, _)) = self.cheapest_copy(node, local[&node]) {
                options.push(entry(cost, node, self.pool));
            }
        }
        self.domain = Some(domain);
        self.ledger.holds()
    }

    /// The victims on one node that make room for one more task, and the GPUs they cost.
    fn cheapest_copy(&mut self, node: u32, units: &[Unit]) -> Option<(u64, Vec<Unit>)> {
        let before = self.copies_on(node);
        let start = self.taken.len();
        for unit in units {
            if self.copies_on(node) > before {
                break;
            }
            if self.taken.iter().any(|taken| taken.unit == *unit) {
                continue;
            }
            self.take(*unit);
            if !self.ledger.holds() {
                let taken = self.taken.pop().expect("was just taken");
                self.undo(&taken);
            }
        }
        let mut found = None;
        if self.copies_on(node) > before {
            // The largest that are not needed are left out first.
            let mut kept: Vec<Taken<'a>> = self.taken.drain(start..).collect();
            kept.sort_by_key(|taken| std::cmp::Reverse(taken.size[0]));
            let mut index = 0;
            while index < kept.len() {
                let candidate = kept.remove(index);
                self.undo(&candidate);
                if self.copies_on(node) <= before {
                    self.redo(&candidate);
                    kept.insert(index, candidate);
                    index += 1;
                }
            }
            found = Some((kept.iter().map(|taken| taken.size[0]).sum(), kept.iter().map(|taken| taken.unit).collect()));
            for taken in &kept {
                self.undo(taken);
            }
        } else {
            while self.taken.len() > start {
                let taken = self.taken.pop().expect("is longer than the start");
                self.undo(&taken);
            }
        }
        found
    }

    /// Tries every set within budgets: whether one makes room, or nothing when the steps run out.
    pub(crate) fn by_every_set(&mut self, units: &mut Units<'a>, steps: u32) -> Option<bool> {
        let units: Vec<Unit> = units.all().to_vec();
        let mut steps = steps;
        self.every_set_from(&units, &mut steps)
    }

    fn every_set_from(&mut self, units: &[Unit], steps: &mut u32) -> Option<bool> {
        if self.suffices() {
            return Some(true);
        }
        let Some((first, rest)) = units.split_first() else { return Some(false) };
        *steps = steps.checked_sub(1)?;
        self.take(*first);
        if self.ledger.holds() && self.every_set_from(rest, steps)? {
            return Some(true);
        }
        let taken = self.taken.pop().expect("was just taken");
        self.undo(&taken);
        self.domain = None;
        self.find_free_domain();
        self.every_set_from(rest, steps)
    }

    /// Leaves out every victim without which there is still room, the last in order first.
    pub(crate) fn leave_out_unneeded(&mut self) {
        let whole: BTreeSet<u32> =
            self.taken.iter().filter(|taken| taken.unit.extra.is_none()).map(|taken| taken.unit.slot).collect();
        let mut kept = Vec::with_capacity(self.taken.len());
        while let Some(taken) = self.taken.pop() {
            // An extra goes with the whole of its workload in any case.
            let goes_anyway = taken.unit.extra.is_some() && whole.contains(&taken.unit.slot);
            self.undo(&taken);
            if goes_anyway || !self.suffices() {
                self.redo(&taken);
                kept.push(taken);
            }
        }
        kept.reverse();
        self.taken = kept;
    }

    /// The victims, without extras that go with their whole workload.
    pub(crate) fn into_units(self) -> Vec<Unit> {
        let units: Vec<Unit> = self.taken.iter().map(|taken| taken.unit).collect();
        let whole: BTreeSet<u32> = units.iter().filter(|unit| unit.extra.is_none()).map(|unit| unit.slot).collect();
        units.into_iter().filter(|unit| unit.extra.is_none() || !whole.contains(&unit.slot)).collect()
    }

    /// Places for every task of the claimant.
    pub(crate) fn lay_out(&self) -> Option<Vec<Place>> {
        let domain = self.domain?;
        let inside = |node: &u32| self.fit.domain_of(*node) == Some(domain);
        let mut candidates: Vec<u32> = self
            .fit
            .best_first()
            .filter(inside)
            .filter(|node| !self.nodes.contains_key(node))
            .take(self.min as usize)
            .collect();
        let mut touched: Vec<u32> = self.taken.iter().flat_map(|taken| &taken.places).filter_map(|place| self.pool.node_slot(place.node)).collect();
        touched.extend(self.fit.best_first().filter(|node| self.nodes.contains_key(node)));
        touched.sort_unstable_by_key(|node| self.pool.node(*node).id);
        touched.dedup();
        candidates.extend(touched.into_iter().filter(inside).filter(|node| self.pool.node(*node).ready));
        let spec = &self.pool.entry(self.slot).workload.spec;
        self.pool.lay_out(&candidates, self.shape, spec, 0, self.min as u32, |node| self.free_on(node))
    }

    fn free_on(&self, node: &NodeSlot) -> Free {
        let slot = self.pool.node_slot(node.id).expect("a node of the pool");
        let free = self.nodes.get(&slot).map_or(&node.decided, |trial| &trial.free);
        if self.ignores_reservations { free.clone() } else { node.unreserved_of(free) }
    }

    fn copies_on(&self, node: u32) -> u32 {
        self.nodes.get(&node).map_or_else(|| self.fit.copies_on(node), |trial| trial.copies)
    }

    fn room_in(&self, domain: u32) -> u64 {
        self.room.get(&domain).copied().unwrap_or_else(|| self.fit.domain_sums().of(domain))
    }

    fn suffices(&self) -> bool {
        self.given >= self.must_give && self.domain.is_some_and(|domain| self.room_in(domain) >= self.min)
    }

    fn places_of(&self, unit: Unit) -> Vec<&'a Place> {
        let workload = &self.pool.entry(unit.slot).workload;
        match unit.extra {
            Some(rank) => workload.extra_places().filter(|place| place.rank == rank).collect(),
            None => workload
                .places()
                .filter(|place| !self.extras_taken.contains(&(unit.slot, place.rank)))
                .collect(),
        }
    }

    fn take(&mut self, unit: Unit) {
        let places = self.places_of(unit);
        let mut size = [0; 4];
        if unit.extra.is_none() {
            let charge = self.pool.charge_of(self.pool.entry(unit.slot).workload.base_places());
            size[..3].copy_from_slice(&charge.amounts);
            size[3] = charge.models.iter().find(|(model, _)| Some(*model) == self.model).map_or(0, |(_, gpus)| *gpus);
        }
        let taken = Taken { unit, places, size };
        self.redo(&taken);
        self.taken.push(taken);
    }

    fn redo(&mut self, taken: &Taken<'a>) {
        self.charge(taken, true);
        for place in &taken.places {
            self.change_node(place, true);
        }
    }

    fn undo(&mut self, taken: &Taken<'a>) {
        self.charge(taken, false);
        for place in &taken.places {
            self.change_node(place, false);
        }
    }

    fn charge(&mut self, taken: &Taken<'a>, take: bool) {
        if let Some(rank) = taken.unit.extra {
            if take {
                self.extras_taken.insert((taken.unit.slot, rank));
            } else {
                self.extras_taken.remove(&(taken.unit.slot, rank));
            }
            return;
        }
        let project = self.pool.entry(taken.unit.slot).project;
        match (project == self.project, take) {
            (true, true) => self.given += taken.size[0],
            (true, false) => self.given -= taken.size[0],
            (false, true) => {
                self.ledger.may_take_from(self.pool, project);
                self.ledger.take(project, &taken.size);
            }
            (false, false) => self.ledger.give(project, &taken.size),
        }
    }

    fn change_node(&mut self, place: &Place, give: bool) {
        let Some(slot) = self.pool.node_slot(place.node) else { return };
        let Some(domain) = self.fit.domain_of(slot) else { return };
        let node = self.pool.node(slot);
        if !node.ready {
            return;
        }
        if !self.nodes.contains_key(&slot) {
            let trial = TrialNode { free: node.decided.clone(), copies: self.fit.copies_on(slot) };
            self.nodes.insert(slot, trial);
        }
        let trial = self.nodes.get_mut(&slot).expect("was just put there");
        if give {
            trial.free.give(place);
        } else {
            trial.free.take(place);
        }
        let before = u64::from(trial.copies);
        trial.copies = if self.ignores_reservations || node.reserved.is_empty() {
            node.copies(self.shape, &trial.free)
        } else {
            node.copies(self.shape, &node.unreserved_of(&trial.free))
        };
        let after = u64::from(trial.copies);
        if before != after {
            let room = self.room.entry(domain).or_insert_with(|| self.fit.domain_sums().of(domain));
            *room = *room - before + after;
            if self.domain.is_none() && *room >= self.min {
                self.domain = Some(domain);
            }
        }
    }
}
