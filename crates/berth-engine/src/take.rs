//! Taking: which victims make room for a workload that does not fit.
//!
//! Three searches, cheapest first, each over the same trial: victims in their order until there is room, then whatever
//! is not needed is left out; node by node, cheapest first, when budgets are tight; and every set, within a budget of
//! steps. Bounds say "cannot" before any of them starts where counts alone can tell.

use crate::{
    claim::{Ask, Reach},
    fit::Fit,
    ledger::{Line, Rule},
    node::{Free, TAKING, View},
    pool::Pool,
    shape::Shape,
    tree::GPU,
    trial::{Trial, Unit},
    units::{Units, Useful},
};
use berth_types::{Action, EvictRule, Gpus, Phase, Place, StartBasis, Time, Verdict, WorkloadId};
use std::collections::BTreeMap;

/// Victims and the places they make room for.
pub(crate) struct Taking {
    pub(crate) units: Vec<Unit>,
    pub(crate) places: Vec<Place>,
    rule: Rule,
}

/// One way to take: by which rule from others, whether from own work of lower priority, and how close to the line.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) rule: Rule,
    pub(crate) own: bool,
    pub(crate) lines: &'static [Line],
}

impl Way {
    /// The view that holds everything this way might take from others.
    fn view(self) -> View {
        match self.rule {
            Rule::Quota => View::Quota,
            Rule::Share => View::Share,
            Rule::None => View::Extras,
        }
    }
}

/// Up to this many victims beside extras, every set of them is compared.
pub(crate) const EVERY_SET_MAX: usize = 12;
/// With more victims than this, nodes are looked at one by one after the first of them.
const MANY: usize = 256;

impl Pool {
    /// What a workload could take to be placed, or why nothing.
    pub(crate) fn find_taking(&mut self, slot: u32, now: Time) -> Result<Taking, Verdict> {
        self.retries.attempt = None;
        let ask = self.ask(self.entry(slot).project, self.class_of(slot));
        let mut verdict = Verdict::NotEntitled;
        for (way, reach) in self.ways_for(slot, &ask) {
            match self.find_taking_by(slot, ask, way, &reach, now) {
                Err(found) => verdict = found,
                Ok(taking) if self.could_be_taken_back(slot, &taking) => verdict = Verdict::NotEntitled,
                taking => return taking,
            }
        }
        Err(verdict)
    }

    fn find_taking_by(
        &mut self,
        slot: u32,
        ask: Ask,
        way: Way,
        reach: &Reach,
        now: Time,
    ) -> Result<Taking, Verdict> {
        self.prove_too_little(slot, &ask, reach, way)?;
        self.order_nodes_for(self.entry(slot).class);
        self.prove_no_shape(slot, way)?;
        if way.rule == Rule::Share {
            self.prove_patience(slot, now)?;
        }
        let useful = self.useful_for(slot, &ask, way);
        let mut units = Units::new(self, slot, &ask, reach, (way.rule, way.own), useful, now);
        let found = self.search(slot, ask, way, reach, &mut units);
        let retry = units.retry;
        self.retries.note(retry);
        found
    }

    /// Says "not yet" to a share for which the wait has not been long enough.
    fn prove_patience(&mut self, slot: u32, now: Time) -> Result<(), Verdict> {
        let from = self.patient_from(slot);
        if from <= now {
            return Ok(());
        }
        self.retries.note(Some(from));
        Err(Verdict::NotEntitled)
    }

    /// Where victims could make room, unless they are needed for more than that, wherever they run.
    fn useful_for(&self, slot: u32, ask: &Ask, way: Way) -> Option<Useful<'_>> {
        // What its own project gives may bring a claim within quota, against which no reservation holds.
        let lifts_reservations = way.own && !ask.preemptible && !self.reservations.is_empty();
        let anywhere =
            lifts_reservations || !self.is_entitled_by(ask, way.rule) || !self.tight_limits(ask).is_empty();
        (!anywhere).then(|| {
            let entry = self.entry(slot);
            let victims = self.queues[entry.project as usize].victims.below(entry.workload.spec.priority);
            let mut own = Vec::new();
            for (victim, node) in victims.filter(|_| way.own) {
                match node {
                    Some(node) => own.push(node),
                    None => {
                        let places = self.entry(victim).workload.places();
                        own.extend(places.filter_map(|place| self.node_slot(place.node)));
                    }
                }
            }
            own.sort_unstable();
            own.dedup();
            Useful { fit: self.taking_fit(self.class_of(slot).shape, way.view()), own }
        })
    }

    /// The ways to take, in the order they are tried, and what each could entitle to: from others before own work of lower
    /// priority, which a claim within quota takes only where others do not suffice.
    pub(crate) fn ways_for(&self, slot: u32, ask: &Ask) -> Vec<(Way, Reach)> {
        let entry = self.entry(slot);
        let priority = entry.workload.spec.priority;
        let lowest = self.queues[entry.project as usize].victims.lowest_priority();
        let has_own = lowest.is_some_and(|lowest| lowest < priority);
        let from_others = self.reach(ask, None);
        let with_own = has_own.then(|| self.reach(ask, Some(priority)));
        let borrows = ask.preemptible && !self.within_quota(ask);
        let mut ways = Vec::new();
        let mut add = |rule: Rule, own: bool, lines: &'static [Line], reach: &Reach| {
            if !self.is_barred(ask, reach) {
                ways.push((Way { rule, own, lines }, reach.clone()));
            }
        };
        for (own, reach) in [(false, Some(&from_others)), (true, with_own.as_ref())] {
            let Some(reach) = reach else { continue };
            let reclaims = self.may_reclaim_quota(reach);
            if reclaims {
                add(Rule::Quota, own, &[Line::Keep, Line::Straddle], reach);
            }
            if !own && !reclaims && !self.extras.is_empty() {
                add(Rule::None, own, &[Line::Keep], reach);
            }
            if borrows && reach.share {
                add(Rule::Share, own, &[Line::Keep], reach);
            }
        }
        if let Some(reach) = &with_own {
            add(Rule::None, true, &[Line::Keep], reach);
        }
        ways
    }

    /// Says "cannot" when everything free and everything that could be taken is too little.
    fn prove_too_little(&self, slot: u32, ask: &Ask, reach: &Reach, way: Way) -> Result<(), Verdict> {
        let Way { rule, own, .. } = way;
        // A request for GPU memory may get a larger device than it is charged for while it waits.
        let class = self.class_of(slot);
        let needed = u128::from(self.shapes[class.shape as usize].1.charge_least) * u128::from(class.min);
        let root = self.tree.at(crate::tree::ROOT);
        let mut most = u128::from(self.free_gpus) + u128::from(root.extras);
        if own {
            let queue = &self.queues[self.entry(slot).project as usize];
            let node = self.tree.at(self.entry(slot).project);
            most += if queue.victims.is_empty() { 0 } else { u128::from(node.used.amounts[GPU]) };
        }
        let line = if rule == Rule::Share { Line::Keep } else { Line::Straddle };
        let ledger = crate::ledger::Ledger::new(*ask, reach, rule, line);
        for project in self.borrowers.iter().rev().map(|borrower| borrower.project) {
            if most >= needed {
                return Ok(());
            }
            if !self.queues[project as usize].victims.is_empty() {
                most += ledger.most_from(self, project);
            }
        }
        if most >= needed {
            return Ok(());
        }
        Err(Verdict::TooLittle { most: Gpus(most as u64), needed: Gpus(needed as u64) })
    }

    /// Says "cannot" when even with everything gone that the rule might let be taken there are too few places.
    fn prove_no_shape(&mut self, slot: u32, way: Way) -> Result<(), Verdict> {
        let class = self.class_of(slot);
        let (shape_id, needed) = (class.shape, u64::from(class.min));
        let view = way.view();
        self.sync_taking_fit(shape_id, view);
        // Own work of lower priority, and what is reserved for the claimant, are not part of the view.
        let own_reservation = !self.entry(slot).workload.reserved_places().is_empty();
        let most = self.taking_fit(shape_id, view).most();
        if most < needed && !way.own && !own_reservation {
            return Err(Verdict::NoShape { most, needed });
        }
        Ok(())
    }

    /// Whether nothing could be taken in a view, so that it is that of what is free.
    fn takes_nothing(&self, shape: &Shape, view: View) -> bool {
        // Who keeps off reservations does not see what is free of them.
        view == View::Extras && self.extras.is_empty() && (shape.preemptible || self.reservations.is_empty())
    }

    /// Brings the index of a view up to date; that of what is free was before.
    fn sync_taking_fit(&mut self, shape_id: u32, view: View) {
        self.emptiest.sync(&self.nodes, &self.log);
        if self.takes_nothing(&self.shapes[shape_id as usize].0, view) {
            return;
        }
        self.settle_takeable();
        let at = TAKING.iter().position(|taking| *taking == view).expect("something is taken in this view");
        let (shape, free) = &self.shapes[shape_id as usize];
        let home = self.taking_shapes[shape_id as usize];
        let fit = self.taking_fits[home as usize][at].get_or_insert_with(|| Box::new(free.in_view(view)));
        fit.sync(shape, &self.nodes, &self.takeable_log);
    }

    /// Where a shape would fit if everything were taken that might be; up to date when a claim is made.
    pub(crate) fn taking_fit(&self, shape_id: u32, view: View) -> &Fit {
        let (shape, free) = &self.shapes[shape_id as usize];
        if self.takes_nothing(shape, view) {
            return free;
        }
        let at = TAKING.iter().position(|taking| *taking == view).expect("something is taken in this view");
        let home = self.taking_shapes[shape_id as usize];
        self.taking_fits[home as usize][at].as_ref().expect("was made for this claim")
    }

    fn search<'a>(
        &'a self,
        slot: u32,
        ask: Ask,
        way: Way,
        reach: &Reach,
        units: &mut Units<'a>,
    ) -> Result<Taking, Verdict> {
        let rule = way.rule;
        let fit = self.taking_fit(self.class_of(slot).shape, way.view());
        let mut verdict = Verdict::NotEntitled;
        for line in way.lines {
            let mut trial = Trial::new(self, slot, ask, reach, rule, *line);
            let by_order = trial.by_order(units, MANY + units.extras());
            let few = !units.are_more_than(EVERY_SET_MAX + units.extras());
            if few {
                // Even all of them make no room. Not being entitled with all proves nothing: what goes on the other side of a
                // full department takes away the right that a sibling's work alone gives.
                if let Err(verdict @ Verdict::NoShape { .. }) = by_order {
                    return Err(verdict);
                }
                trial.clear();
                match trial.by_best_set(units, self.policy.search_steps) {
                    Some(true) => return self.finish(slot, trial, rule),
                    Some(false) => verdict = Verdict::Exhausted,
                    None => verdict = Verdict::NotFound,
                }
                continue;
            }
            if by_order == Ok(true) {
                return self.finish(slot, trial, rule);
            }
            let many = units.are_more_than(MANY);
            if !many {
                by_order?;
            }
            trial.clear();
            if many {
                if trial.by_best_nodes(fit, units) {
                    return self.finish(slot, trial, rule);
                }
                // Those who are protected say when to try again.
                units.get(MANY);
            } else if trial.by_node(units) {
                return self.finish(slot, trial, rule);
            }
            verdict = Verdict::NotFound;
        }
        Err(verdict)
    }

    /// Whether work of its own project that waits with a higher priority could preempt the winner of a share at once, and would
    /// keep by that what it could not have taken itself.
    fn could_be_taken_back(&self, slot: u32, taking: &Taking) -> bool {
        if taking.rule != Rule::Share {
            return false;
        }
        let (entry, class) = (self.entry(slot), self.class_of(slot));
        let priority = entry.workload.spec.priority;
        let firsts = self.queues[entry.project as usize].firsts().iter();
        firsts.take_while(|first| first.key.0.0 > priority).any(|first| {
            let other = &self.classes[first.class as usize];
            // Work that is not preemptible is bounded by its own quota, and could take what it is owed by itself.
            let could_preempt = self.shapes[other.shape as usize].0.preemptible && other.asked <= class.asked;
            could_preempt && self.copies_beside(other.shape, taking) >= other.min
        })
    }

    /// How many tasks of a shape would fit on the nodes of a winner in its stead.
    fn copies_beside(&self, shape: u32, taking: &Taking) -> u32 {
        let (shape, fit) = &self.shapes[shape as usize];
        let mut nodes: BTreeMap<u32, Free> = BTreeMap::new();
        let winner = taking.places.iter().filter_map(|place| self.node_slot(place.node));
        for at in winner.filter(|at| fit.domain_of(*at).is_some()) {
            nodes.entry(at).or_insert_with(|| self.node(at).decided.clone());
        }
        for unit in &taking.units {
            let places = self.entry(unit.slot).workload.places();
            for place in places.filter(|place| unit.extra.is_none_or(|rank| rank == place.rank)) {
                if let Some(free) = self.node_slot(place.node).and_then(|at| nodes.get_mut(&at)) {
                    free.give(place);
                }
            }
        }
        nodes.iter().map(|(at, free)| fit.copies_in(shape, self.node(*at), *at, free)).sum()
    }

    fn finish(&self, slot: u32, mut trial: Trial<'_>, rule: Rule) -> Result<Taking, Verdict> {
        trial.leave_out_unneeded();
        let places = trial.lay_out().ok_or(Verdict::NotFound)?;
        debug_assert_eq!(places.len() as u32, self.class_of(slot).min);
        Ok(Taking { units: trial.into_units(), places, rule })
    }

    /// Takes what was found and places the workload.
    pub(crate) fn carry_out(&mut self, slot: u32, taking: Taking, now: Time, actions: &mut Vec<Action>) {
        // Who leaves mostly leaves the nodes on which the winner starts.
        self.log.begin_batch();
        self.takeable_log.begin_batch();
        let own_project = self.entry(slot).project;
        let owed_before = self.within_quota(&self.ask(own_project, self.class_of(slot)));
        let preempts = self.evict_units(slot, &taking.units, taking.rule, now, actions);
        // What is gone counts: the claim may be within quota only now.
        let basis = match self.basis(&self.ask(own_project, self.class_of(slot))) {
            _ if preempts && !owed_before => StartBasis::Priority,
            basis => basis,
        };
        self.put(slot, taking.places, basis, now, actions);
        self.log.end_batch();
        self.takeable_log.end_batch();
    }

    /// Shrinks and evicts units for a winner; whether some are of its own project.
    pub(crate) fn evict_units(
        &mut self,
        slot: u32,
        units: &[Unit],
        by: Rule,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> bool {
        let winner = self.entry(slot).workload.id;
        let own_project = self.entry(slot).project;
        let mut preempts = false;
        let mut shrinks: BTreeMap<WorkloadId, (u32, Vec<u32>)> = BTreeMap::new();
        for unit in units {
            if let Some(rank) = unit.extra {
                let id = self.entry(unit.slot).workload.id;
                shrinks.entry(id).or_insert_with(|| (unit.slot, Vec::new())).1.push(rank);
            }
        }
        for (workload, (victim, mut ranks)) in shrinks {
            ranks.sort_unstable();
            self.decide(victim, Action::Shrink { workload, ranks, winner }, now, actions);
        }
        for unit in units.iter().filter(|unit| unit.extra.is_none()) {
            let entry = self.entry(unit.slot);
            let rule = match (entry.project == own_project, by) {
                (true, _) => {
                    preempts = true;
                    EvictRule::Preemption
                }
                (false, Rule::Quota) => EvictRule::QuotaReclaim,
                (false, _) => EvictRule::ShareReclaim,
            };
            let lost = entry.workload.work_lost(now, self.policy.lost_cap);
            let workload = entry.workload.id;
            self.decide(unit.slot, Action::Evict { workload, winner, rule, lost }, now, actions);
        }
        preempts
    }

    /// Starts a waiting workload in its places, or holds them until those who leave are gone.
    pub(crate) fn put(
        &mut self,
        slot: u32,
        places: Vec<Place>,
        basis: StartBasis,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        self.make_room_under_limits(slot, now, actions);
        let workload = self.entry(slot).workload.id;
        if matches!(self.entry(slot).workload.phase, Phase::Stopping { .. }) {
            self.decide(slot, Action::Move { workload, places, winner: None, lost: 0 }, now, actions);
        } else if self.free_now(&places) {
            let passing = self.passes_reservation(slot, &places);
            self.decide(slot, Action::Start { workload, places, basis, passing }, now, actions);
        } else {
            self.decide(slot, Action::Hold { workload, places, basis }, now, actions);
        }
    }

    /// Shrinks extras that would, with this workload, pass a limit: the newest first, and none that is not needed.
    fn make_room_under_limits(&mut self, slot: u32, now: Time, actions: &mut Vec<Action>) {
        let winner = self.entry(slot).workload.id;
        let ask = self.ask(self.entry(slot).project, self.class_of(slot));
        let tight = self.tight_limits(&ask);
        if tight.is_empty() {
            return;
        }
        let mut shrunk: Vec<(u32, u32, u64)> = Vec::new();
        let enough = |shrunk: &[(u32, u32, u64)]| {
            tight.iter().all(|(account, over)| {
                let below = shrunk.iter().filter(|(victim, _, _)| self.is_below(*victim, *account));
                let total = self.extras_below(*account);
                below.map(|(_, _, gpus)| gpus).sum::<u64>() >= (*over).min(total)
            })
        };
        for (_, victim) in self.extras.iter().rev() {
            let mut extras: Vec<&Place> = self.entry(*victim).workload.extra_places().collect();
            extras.sort_unstable_by_key(|place| std::cmp::Reverse(place.rank));
            for place in extras {
                let useful = tight.iter().any(|(account, _)| self.is_below(*victim, *account));
                if useful && !enough(&shrunk) {
                    shrunk.push((*victim, place.rank, place.gpus().0));
                }
            }
        }
        let mut index = 0;
        while index < shrunk.len() {
            let left_out = shrunk.remove(index);
            if !enough(&shrunk) {
                shrunk.insert(index, left_out);
                index += 1;
            }
        }
        for (victim, rank, _) in shrunk {
            let workload = self.entry(victim).workload.id;
            self.decide(victim, Action::Shrink { workload, ranks: vec![rank], winner }, now, actions);
        }
    }

    /// Accounts whose limit extras stand in the way of, and by how much.
    pub(crate) fn tight_limits(&self, ask: &Ask) -> Vec<(u32, u64)> {
        let path = self.tree.path(ask.project);
        path.filter_map(|(position, node)| {
            let with = node.used.amounts[GPU] + node.extras + ask.amounts[GPU];
            let over = with.saturating_sub(node.limit?);
            (node.extras > 0 && over > 0).then_some((position, over))
        })
        .collect()
    }

    pub(crate) fn is_below(&self, slot: u32, account: u32) -> bool {
        self.tree.path(self.entry(slot).project).any(|(position, _)| position == account)
    }

    fn extras_below(&self, account: u32) -> u64 {
        self.tree.at(account).extras
    }
}
