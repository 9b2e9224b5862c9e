//! A trial: the pool as it would be if some victims were gone, without touching the pool.

use crate::{
    claim::{Ask, Reach},
    fit::Fit,
    hash::IdMap,
    least_loss::{self, Loss},
    ledger::{Dimensions, Ledger, Line, Rule},
    node::{Free, NodeSlot},
    pool::Pool,
    positions::Positions,
    shape::Shape,
    tree::GPU,
    trial_level::{self, TrialLevel},
    units::{Giver, Units},
    victim_places::Places,
};
use berth_types::{NodeId, Place, Verdict, WorkloadId};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Domains tried one by one when budgets are tight.
const DOMAINS_TRIED: usize = 64;

/// After so many nodes in a row on which budgets forbid what is needed, the rest is not looked at.
const NODES_REFUSED_MAX: u32 = 256;

/// What is taken as one: a whole workload, or one of its elastic extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unit {
    pub(crate) slot: u32,
    /// The rank of the extra; none for the whole workload.
    pub(crate) extra: Option<u32>,
}

struct Taken<'a> {
    unit: Unit,
    places: Places<'a>,
    size: Dimensions,
}

struct TrialNode {
    free: Free,
    copies: u32,
}

/// What is known of the node that is being looked at; kept, so that looking at many needs no memory of its own.
#[derive(Default)]
struct LookedAt {
    /// What may be taken of projects, and what budgets leave of each while nothing more is taken.
    known: Positions<Option<(Giver, u64)>>,
    /// Projects, what budgets leave of each, and what it has here.
    projects: Vec<(u32, u64, u64)>,
    /// Which of the victims here may be taken.
    allowed: Vec<usize>,
    /// Whole workloads after extras, by priority, work lost and id.
    victims: Vec<(bool, i32, u128, WorkloadId, Unit)>,
}

/// The trial of one claim.
pub(crate) struct Trial<'a> {
    pool: &'a Pool,
    slot: u32,
    shape: &'a Shape,
    fit: &'a Fit,
    min: u64,
    ask: Ask,
    /// Reserved capacity counts as free.
    ignores_reservations: bool,
    /// Nodes with reservations that the claimant may use.
    reserved: Vec<u32>,
    /// The claimant's accounts, from the project up.
    levels: Vec<TrialLevel<'a>>,
    /// Whether the rules allow a start, and to take from others, before anything is gone; they do then also afterwards.
    entitled: bool,
    /// Victims of the claimant's own project.
    from_own: u32,
    /// Accounts whose limit extras stand in the way of: how much must go below each, and how much does.
    tight: Vec<(u32, u64, u64)>,
    /// Victims of other projects; without any, no quota is reclaimed.
    from_others: u32,
    ledger: Ledger,
    nodes: IdMap<u32, TrialNode>,
    /// Room by domain, where it differs from what is free.
    room: BTreeMap<u32, u64>,
    /// The domain that was first to have room.
    domain: Option<u32>,
    taken: Vec<Taken<'a>>,
    in_trial: BTreeSet<Unit>,
    extras_taken: BTreeSet<(u32, u32)>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(pool: &'a Pool, slot: u32, ask: Ask, reach: &Reach, rule: Rule, line: Line) -> Self {
        let class = pool.class_of(slot);
        let (shape, fit) = &pool.shapes[class.shape as usize];
        let levels =
            pool.tree.path(ask.project).zip(pool.must_go(&ask)).map(|((position, node), must_go)| {
                TrialLevel { position, node, must_go, taken: [0; 4], victims_beside: 0 }
            });
        let mut trial = Self {
            pool,
            slot,
            shape,
            fit,
            min: u64::from(class.min),
            ask,
            ignores_reservations: shape.preemptible || pool.within_quota(&ask),
            reserved: Vec::new(),
            levels: levels.collect(),
            entitled: pool.is_entitled_by(&ask, rule),
            from_own: 0,
            tight: pool.tight_limits(&ask).into_iter().map(|(account, over)| (account, over, 0)).collect(),
            from_others: 0,
            ledger: Ledger::new(ask, reach, rule, line),
            nodes: IdMap::default(),
            room: BTreeMap::new(),
            domain: None,
            taken: Vec::new(),
            in_trial: BTreeSet::new(),
            extras_taken: BTreeSet::new(),
        };
        trial.reset();
        trial
    }

    /// Back to nothing taken. Nodes with reservations are looked at anew, because the index sees them as those do who
    /// must keep off every reservation.
    fn reset(&mut self) {
        self.nodes.clear();
        self.room.clear();
        if !self.shape.preemptible {
            let reservations = self.pool.reservations.iter();
            let places =
                reservations.flat_map(|(_, _, slot)| self.pool.entry(*slot).workload.reserved_places());
            let nodes: BTreeSet<NodeId> = places.map(|place| place.node).collect();
            let usable = |slot: &u32| self.fit.domain_of(*slot).is_some() && self.pool.node(*slot).ready;
            self.reserved =
                nodes.into_iter().filter_map(|id| self.pool.node_slot(id)).filter(usable).collect();
            for at in 0..self.reserved.len() {
                self.look_at(self.reserved[at]);
            }
        }
        self.find_domain();
    }

    fn find_domain(&mut self) {
        self.domain = self.domain_with_room();
    }

    /// The domain that has room, if one has: of the best node, or of the smallest that was looked at.
    fn domain_with_room(&self) -> Option<u32> {
        let with_room = |domain: &u32| self.room_in(*domain) >= self.min;
        if self.fit.most() >= self.min {
            let mut domains = self.fit.best_first().filter_map(|node| self.fit.domain_of(node));
            if let Some(domain) = domains.find(with_room) {
                return Some(domain);
            }
        }
        let touched = self.nodes.keys().filter_map(|node| {
            let domain = self.fit.domain_of(*node).filter(with_room)?;
            Some((self.pool.node(*node).id, domain))
        });
        touched.min().map(|(_, domain)| domain)
    }

    /// Forgets everything taken.
    pub(crate) fn clear(&mut self) {
        while let Some(taken) = self.taken.pop() {
            self.undo(&taken);
        }
        self.reset();
    }

    /// Takes victims in order until there is room, at most so many. False when there is room but budgets forbid the
    /// set; an error when even all of them make no room.
    pub(crate) fn by_order(&mut self, units: &mut Units<'a>, most: usize) -> Result<bool, Verdict> {
        if self.min == 1 && !units.are_anywhere() {
            return self.by_order_on_one_node(units, most);
        }
        let mut next = 0;
        while !self.suffices() {
            let Some(unit) = (next < most).then(|| units.get(next)).flatten() else {
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

    /// The same for one task, which needs room on one node: who runs elsewhere is not even charged.
    fn by_order_on_one_node(&mut self, units: &mut Units<'a>, most: usize) -> Result<bool, Verdict> {
        let mut nodes: IdMap<u32, (Free, Vec<Unit>)> = IdMap::default();
        let mut extras_gone: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut next = 0;
        while !self.suffices() {
            let Some(unit) = (next < most).then(|| units.get(next)).flatten() else {
                return Err(Verdict::NoShape { most: self.fit.most(), needed: 1 });
            };
            next += 1;
            for place in self.places_of(unit).as_slice() {
                if extras_gone.contains(&(unit.slot, place.rank)) {
                    continue;
                }
                if unit.extra.is_some() {
                    extras_gone.insert((unit.slot, place.rank));
                }
                let Some(at) = self.usable_node(place) else { continue };
                let node = self.pool.node(at);
                let (free, here) = nodes.entry(at).or_insert_with(|| (node.decided.clone(), Vec::new()));
                free.give(place);
                if here.last() != Some(&unit) {
                    here.push(unit);
                }
                if self.copies_in(node, at, free) > 0 {
                    std::mem::take(here).into_iter().for_each(|unit| self.take(unit));
                    break;
                }
            }
        }
        self.leave_out_unneeded();
        Ok(self.ledger.holds())
    }

    /// The node of a place, if the claimant may use it.
    fn usable_node(&self, place: &Place) -> Option<u32> {
        let at = self.pool.node_slot(place.node)?;
        (self.fit.domain_of(at).is_some() && self.pool.node(at).ready).then_some(at)
    }

    /// Tasks of the claimant that fit into `free` of a node.
    fn copies_in(&self, node: &NodeSlot, at: u32, free: &Free) -> u32 {
        if self.ignores_reservations || node.reserved.is_empty() {
            self.fit.copies_in(self.shape, node, at, free)
        } else {
            self.fit.copies_in(self.shape, node, at, &self.visible(node, free))
        }
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

    /// Makes room on the nodes where the least must be taken, as long as budgets allow. Looks at each node once, so
    /// the cost is that of the nodes, not of all victims.
    pub(crate) fn by_best_nodes(&mut self, fit: &Fit, units: &mut Units<'a>) -> bool {
        let mut refused = 0;
        let mut looked_at = LookedAt::default();
        let start = if self.shape.level.is_some() { self.domain_for(fit) } else { Some(0) };
        let Some(domain) = start else { return false };
        for node in self.pool.emptiest.first().filter(|node| fit.has_room_on(*node)) {
            if self.room_in(domain) >= self.min {
                break;
            }
            if self.shape.level.is_some() && fit.domain_of(node) != Some(domain) {
                continue;
            }
            let victims = self.victims_on(node, units, &mut looked_at);
            let mut took = false;
            while self.room_in(domain) < self.min {
                let copy = victims.as_ref().and_then(|victims| self.cheapest_copy(node, victims));
                let Some((_, chosen)) = copy else { break };
                for unit in chosen {
                    self.take(unit);
                    self.in_trial.insert(unit);
                }
                took = true;
                looked_at.known.clear();
            }
            refused = if took { 0 } else { refused + 1 };
            if refused >= NODES_REFUSED_MAX {
                return false;
            }
        }
        self.domain = Some(domain);
        self.suffices() && self.ledger.holds()
    }

    /// The domain with the most room if everything were taken, by its best node.
    fn domain_for(&self, fit: &Fit) -> Option<u32> {
        let most = fit.most();
        let with_room = self.pool.emptiest.first().filter(|node| fit.has_room_on(*node));
        let mut domains = with_room.filter_map(|node| fit.domain_of(node));
        domains.find(|domain| fit.domain_sums().of(*domain) == most)
    }

    /// What could be taken on one node without touching another, extras first, then in the order of victims; nothing
    /// when all of it, as far as budgets allow, gives too few GPUs for one more task.
    fn victims_on(
        &mut self,
        node: u32,
        units: &mut Units<'a>,
        looked_at: &mut LookedAt,
    ) -> Option<Vec<Unit>> {
        let here = self.pool.node(node);
        let LookedAt { known, projects, victims, allowed } = looked_at;
        projects.clear();
        victims.clear();
        allowed.clear();
        let mut most = self.nodes.get(&node).map_or(&here.decided, |trial| &trial.free).gpus();
        if !self.pool.extras.is_empty() {
            let slots: BTreeSet<u32> = here.tasks.iter().copied().collect();
            for slot in slots {
                let workload = &self.pool.entry(slot).workload;
                for extra in workload.extra_places().filter(|place| place.node == here.id) {
                    most += extra.gpus().0;
                    victims.push((false, 0, 0, workload.id, Unit { slot, extra: Some(extra.rank) }));
                }
            }
        }
        for (at, (_, brief)) in here.victims.iter().enumerate() {
            let giver = match known.get(brief.project) {
                Some(giver) => *giver,
                None => {
                    let giver = units
                        .giver(brief.project)
                        .map(|giver| (giver, self.ledger.most_left(self.pool, brief.project)));
                    known.insert(brief.project, giver);
                    giver
                }
            };
            let Some((_, left)) = giver.filter(|(giver, _)| units.may_take_of(giver, brief)) else {
                continue;
            };
            // What is more than budgets leave cannot go, with or without others.
            if brief.base_gpus > left {
                continue;
            }
            match projects.iter_mut().find(|(project, _, _)| *project == brief.project) {
                Some((_, _, gpus)) => *gpus += brief.base_gpus,
                None => projects.push((brief.project, left, brief.base_gpus)),
            }
            allowed.push(at);
        }
        most += projects.iter().map(|(_, left, gpus)| left.min(gpus)).sum::<u64>();
        let copies = u64::from(self.copies_on(node)) + 1;
        if most < copies * self.fit.gpus_per_task(self.shape, node) {
            return None;
        }
        // Most nodes are refused, so only here it is asked what would be lost.
        for (slot, brief) in allowed.iter().map(|at| &here.victims[*at]) {
            let lost = units.work_lost(brief);
            victims.push((true, brief.priority, lost, brief.id, Unit { slot: *slot, extra: None }));
        }
        victims.sort_unstable();
        Some(victims.iter().map(|(_, _, _, _, unit)| *unit).collect())
    }

    fn by_node_in(&mut self, domain: u32, local: &BTreeMap<u32, &Vec<Unit>>) -> bool {
        // Cheapest first; equal costs go to the smaller node.
        let mut options = BinaryHeap::new();
        let entry = |cost: u64, node: u32, pool: &Pool| std::cmp::Reverse((cost, pool.node(node).id, node));
        self.in_trial.clear();
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
                self.in_trial.insert(unit);
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
        if before >= self.fit.copies_when_empty(node) {
            return None;
        }
        let start = self.taken.len();
        for unit in units {
            if self.copies_on(node) > before {
                break;
            }
            if self.in_trial.contains(unit) {
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
            found = Some((
                kept.iter().map(|taken| taken.size[0]).sum(),
                kept.iter().map(|taken| taken.unit).collect(),
            ));
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

    /// Takes the best of all sets within budgets that make room: whether there is one, or nothing when the steps run out.
    pub(crate) fn by_best_set(&mut self, units: &mut Units<'a>, steps: u32) -> Option<bool> {
        let all: Vec<Unit> = units.all().to_vec();
        let (extras, whole) = all.split_at(units.extras());
        // Extras go before anything else; those that are not needed are left out in the end.
        extras.iter().for_each(|extra| self.take(*extra));
        let mut sets = Vec::new();
        let mut steps = steps;
        let is_done = self.collect_sets(whole, 0, 0, &mut sets, &mut steps);
        self.clear();
        if !is_done {
            return None;
        }
        let is_minimal = |set: &u32| !sets.iter().any(|other| other != set && other & set == *other);
        let sets: Vec<u32> = sets.iter().copied().filter(is_minimal).collect();
        let members = |set: u32| whole.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1);
        let losses: Vec<Vec<Loss>> = sets
            .iter()
            .map(|set| members(*set).filter_map(|(_, unit)| units.loss_of(unit.slot)).collect())
            .collect();
        let Some(best) = least_loss::best_of(&losses) else { return Some(false) };
        let chosen: Vec<Unit> = members(sets[best]).map(|(_, unit)| *unit).collect();
        extras.iter().chain(&chosen).for_each(|unit| self.take(*unit));
        Some(true)
    }

    /// Collects sets that make room and have those `taken` already, and any from `at` on; one that has room is not made larger.
    /// Whether the steps sufficed.
    fn collect_sets(
        &mut self,
        whole: &[Unit],
        at: usize,
        taken: u32,
        sets: &mut Vec<u32>,
        steps: &mut u32,
    ) -> bool {
        if self.suffices() {
            sets.push(taken);
            return true;
        }
        let Some(unit) = whole.get(at) else { return true };
        let Some(left) = steps.checked_sub(1) else { return false };
        *steps = left;
        let is_done = !self.push(*unit) || self.collect_sets(whole, at + 1, taken | 1 << at, sets, steps);
        self.pop();
        self.find_domain();
        is_done && self.collect_sets(whole, at + 1, taken, sets, steps)
    }

    /// Leaves out every victim without which there is still room, the last in order first.
    pub(crate) fn leave_out_unneeded(&mut self) {
        // Whole workloads come after all extras in the order, so those that stay are known when extras are looked at.
        let mut whole: BTreeSet<u32> = BTreeSet::new();
        let mut kept = Vec::with_capacity(self.taken.len());
        while let Some(taken) = self.taken.pop() {
            // An extra goes with the whole of its workload in any case.
            let goes_anyway = taken.unit.extra.is_some() && whole.contains(&taken.unit.slot);
            let domain = self.domain;
            self.undo(&taken);
            if !self.suffices() && self.shape.level.is_some() {
                // Another domain may do without it.
                self.find_domain();
            }
            if goes_anyway || !self.suffices() {
                self.redo(&taken);
                self.domain = domain;
                if taken.unit.extra.is_none() {
                    whole.insert(taken.unit.slot);
                }
                kept.push(taken);
            }
        }
        kept.reverse();
        self.taken = kept;
    }

    /// The victims, without extras that go with their whole workload.
    pub(crate) fn into_units(self) -> Vec<Unit> {
        let units: Vec<Unit> = self.taken.iter().map(|taken| taken.unit).collect();
        let whole: BTreeSet<u32> =
            units.iter().filter(|unit| unit.extra.is_none()).map(|unit| unit.slot).collect();
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
        let touched = self.nodes.iter().filter(|(node, trial)| trial.copies > 0 && inside(node));
        let mut touched: Vec<u32> = touched.map(|(node, _)| *node).collect();
        touched.sort_unstable_by_key(|node| self.pool.node(*node).id);
        candidates.extend(touched);
        let spec = &self.pool.entry(self.slot).workload.spec;
        self.pool.lay_out(&candidates, self.shape, spec, 0, self.min as u32, |node| self.free_on(node))
    }

    fn free_on(&self, node: &NodeSlot) -> Free {
        let slot = self.pool.node_slot(node.id).expect("a node of the pool");
        let free = self.nodes.get(&slot).map_or(&node.decided, |trial| &trial.free);
        self.visible(node, free)
    }

    /// What of `free` the claimant may use.
    fn visible(&self, node: &NodeSlot, free: &Free) -> Free {
        if self.ignores_reservations { free.clone() } else { node.unreserved_of(free, self.slot) }
    }

    fn copies_on(&self, node: u32) -> u32 {
        self.nodes.get(&node).map_or_else(|| self.fit.copies_on(node), |trial| trial.copies)
    }

    fn room_in(&self, domain: u32) -> u64 {
        self.room.get(&domain).copied().unwrap_or_else(|| self.fit.domain_sums().of(domain))
    }

    fn suffices(&self) -> bool {
        self.domain.is_some_and(|domain| self.room_in(domain) >= self.min) && self.may_start()
    }

    /// Whether the rules allow the start, wherever there is room, once everything taken is gone.
    pub(crate) fn may_start(&self) -> bool {
        self.tight.iter().all(|(_, over, gone)| gone >= over) && (self.entitled || self.is_entitled())
    }

    /// Takes one more; whether everything taken may be taken together.
    pub(crate) fn push(&mut self, unit: Unit) -> bool {
        self.take(unit);
        self.ledger.holds()
    }

    /// Gives back what was taken last.
    fn pop(&mut self) {
        let last = self.taken.pop().expect("something was taken");
        self.undo(&last);
    }

    /// Whether the rules allow the start once everything taken is gone, and to take it.
    fn is_entitled(&self) -> bool {
        let may_start = |level: &TrialLevel<'_>| {
            let borrows = self.ask.preemptible && level.node.weight == 0;
            level.taken[GPU] >= level.must_go && (!borrows || level.is_within_quota(&self.ask))
        };
        self.levels.iter().all(may_start)
            && match (self.from_others > 0, self.ledger.rule()) {
                (true, Rule::Quota) => trial_level::may_reclaim_quota(&self.levels, &self.ask),
                (true, _) => self.levels.iter().all(|level| level.is_within_share(&self.ask)),
                (false, _) => self.may_preempt(),
            }
    }

    /// Whether a project may use what it gets by preempting its own work: no more than before, or what it is owed, or
    /// what no one else is owed. Non-preemptible work is bounded by its own quota.
    fn may_preempt(&self) -> bool {
        self.from_own == 0
            || !self.ask.preemptible
            || self.levels[0].taken[GPU] >= self.ask.amounts[GPU]
            || self.levels.iter().all(|level| level.is_within_quota(&self.ask))
            || self.levels.iter().all(|level| level.is_within_share(&self.ask))
    }

    fn places_of(&self, unit: Unit) -> Places<'a> {
        let workload = &self.pool.entry(unit.slot).workload;
        match unit.extra {
            Some(rank) => Places::of(workload.extra_places().filter(|place| place.rank == rank)),
            None if self.extras_taken.is_empty() => Places::of(workload.places()),
            None => Places::of(
                workload.places().filter(|place| !self.extras_taken.contains(&(unit.slot, place.rank))),
            ),
        }
    }

    fn take(&mut self, unit: Unit) {
        let places = self.places_of(unit);
        let mut size = [0; 4];
        if unit.extra.is_none() {
            size = self.size_of(unit.slot);
        }
        let taken = Taken { unit, places, size };
        self.redo(&taken);
        self.taken.push(taken);
    }

    /// What a workload is charged, in the dimensions of a budget.
    fn size_of(&self, slot: u32) -> Dimensions {
        let workload = &self.pool.entry(slot).workload;
        if let Some(model) = self.ask.model {
            let charge = self.pool.charge_of(workload.base_places());
            let of_model = charge.models.iter().find(|(of, _)| *of == model).map_or(0, |(_, gpus)| *gpus);
            return [charge.amounts[0], charge.amounts[1], charge.amounts[2], of_model];
        }
        let mut size = [0; 4];
        for place in workload.base_places() {
            size[0] += place.gpus().0;
            size[1] += place.cpu.0;
            size[2] += place.memory.0;
        }
        size
    }

    fn redo(&mut self, taken: &Taken<'a>) {
        self.charge(taken, true);
        for place in taken.places.as_slice() {
            self.change_node(place, true);
        }
    }

    fn undo(&mut self, taken: &Taken<'a>) {
        self.charge(taken, false);
        for place in taken.places.as_slice() {
            self.change_node(place, false);
        }
    }

    fn charge(&mut self, taken: &Taken<'a>, take: bool) {
        for (account, _, gone) in &mut self.tight {
            if self.pool.is_below(taken.unit.slot, *account) {
                let gpus: u64 = taken.places.as_slice().iter().map(|place| place.gpus().0).sum();
                *gone = if take { *gone + gpus } else { *gone - gpus };
            }
        }
        if let Some(rank) = taken.unit.extra {
            if take {
                self.extras_taken.insert((taken.unit.slot, rank));
            } else {
                self.extras_taken.remove(&(taken.unit.slot, rank));
            }
            return;
        }
        let project = self.pool.entry(taken.unit.slot).project;
        let is_own = project == self.ask.project;
        let below = match is_own {
            true => 0,
            false => {
                let (beside, _) = self.pool.tree.below_common(self.ask.project, project);
                let at = self.levels.iter().position(|level| level.position == beside);
                let at = at.expect("the account below a common one is the claimant's");
                let count = &mut self.levels[at].victims_beside;
                *count = if take { *count + 1 } else { *count - 1 };
                at + 1
            }
        };
        for level in &mut self.levels[below..] {
            for (sum, size) in level.taken.iter_mut().zip(taken.size) {
                *sum = if take { *sum + size } else { *sum - size };
            }
        }
        match (is_own, take) {
            (true, true) => self.from_own += 1,
            (true, false) => self.from_own -= 1,
            (false, true) => {
                self.from_others += 1;
                self.ledger.take(self.pool, project, &taken.size);
            }
            (false, false) => {
                self.from_others -= 1;
                self.ledger.give(self.pool, project, &taken.size);
            }
        }
        if below < self.levels.len() {
            self.look_at_reservations();
        }
    }

    /// What goes may bring a claim within quota, and then no reservation holds against it.
    fn look_at_reservations(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let ignores = self.levels.iter().all(|level| level.is_within_quota(&self.ask));
        if std::mem::replace(&mut self.ignores_reservations, ignores) != ignores {
            for at in 0..self.reserved.len() {
                self.recount(self.reserved[at]);
            }
        }
    }

    fn change_node(&mut self, place: &Place, give: bool) {
        let Some(slot) = self.usable_node(place) else { return };
        let node = self.pool.node(slot);
        let trial = self
            .nodes
            .entry(slot)
            .or_insert_with(|| TrialNode { free: node.decided.clone(), copies: self.fit.copies_on(slot) });
        if give {
            trial.free.give(place);
        } else {
            trial.free.take(place);
        }
        self.recount(slot);
    }

    /// Makes a node part of the trial as it is.
    fn look_at(&mut self, slot: u32) {
        let free = self.pool.node(slot).decided.clone();
        self.nodes.insert(slot, TrialNode { free, copies: self.fit.copies_on(slot) });
        self.recount(slot);
    }

    /// Counts again how many tasks a node of the trial holds.
    fn recount(&mut self, slot: u32) {
        let node = self.pool.node(slot);
        let domain = self.fit.domain_of(slot).expect("a node of the trial has a domain");
        let after = self.copies_in(node, slot, &self.nodes[&slot].free);
        let trial = self.nodes.get_mut(&slot).expect("was just looked at");
        let before = std::mem::replace(&mut trial.copies, after);
        if before != after {
            let room = self.room.entry(domain).or_insert_with(|| self.fit.domain_sums().of(domain));
            *room = *room - u64::from(before) + u64::from(after);
            if self.domain.is_none() && *room >= self.min {
                self.domain = Some(domain);
            }
        }
    }
}
