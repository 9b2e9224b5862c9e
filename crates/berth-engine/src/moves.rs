//! Moves: making room by putting running work elsewhere, when that costs less than it gives.

use crate::{
    claim::Ask,
    node::{Free, NodeSlot},
    pool::Pool,
    shape::Shape,
};
use berth_types::{Action, Gpus, Phase, Place, Span, StartBasis, Time, WorkloadId};
use std::{cell::Cell, cmp::Reverse, collections::BTreeMap};

/// Nodes looked at for one move; the emptiest come first, so more rarely helps.
const NODES_TRIED: usize = 64;
/// Waiting workloads for which a move is sought in one round; the first in order of priority and submission.
const CANDIDATES_MAX: usize = 8;
/// Projects whose first workload of a class is looked at, in queue order.
const PROJECTS_LOOKED_AT: usize = 16;
/// Up to this many workloads that could leave a node, every set of them is tried.
const EVERY_SET_MAX: usize = 12;
/// Nodes tried for one workload that is moved, the best for it first.
const TARGETS_TRIED: usize = 8;

/// The first instant at which a move may be made that cannot be made now.
#[derive(Default)]
struct Later(Cell<Option<Time>>);

impl Later {
    fn note(&self, at: Time) {
        self.0.set(Some(self.0.get().map_or(at, |known| known.min(at))));
    }
}

/// A way to make room on one node.
struct Clearing {
    /// Where the waiting workload starts.
    place: Place,
    /// Who is moved, and where to.
    moved: Vec<(u32, Place)>,
    /// GPU-milliseconds that the moves destroy.
    cost: u128,
}

impl Clearing {
    /// Less work lost comes first, then fewer moves: what has no GPU costs nothing to move, and is left where it is all the same.
    fn rank(&self) -> (u128, usize) {
        (self.cost, self.moved.len())
    }
}

impl Pool {
    /// Lets waiting workloads of one task start by moving others out of their way.
    pub(crate) fn make_moves(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.next_move = None;
        if !self.policy.moves || self.waiting_classes.is_empty() {
            return;
        }
        let later = Later::default();
        for (project, slot) in self.move_candidates(now, &later) {
            let ask = self.ask(project, self.class_of(slot));
            let Some(clearing) = self.find_clearing(slot, &ask, now, &later) else { continue };
            let waited = now.since(self.entry(slot).workload.waits_since());
            let gives = u128::from(ask.amounts[0]) * u128::from(waited.0) / u128::from(Gpus::SCALE);
            if gives <= clearing.cost {
                later.note(self.worth_from(&ask, clearing.cost, slot));
                continue;
            }
            self.clear_and_start(slot, &ask, clearing, now, actions);
        }
        self.next_move = later.0.get();
    }

    /// The first waiting workload of each class that may start, fits nowhere, is one task, and is owed what it asks for or
    /// has waited long enough. Those of one class mostly fare alike, so others of it are not looked at.
    fn move_candidates(&self, now: Time, later: &Later) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for class_id in &self.waiting_classes {
            let class = &self.classes[*class_id as usize];
            let room = self.free_gpus >= class.asked;
            if class.min != 1 || class.fits || !class.possible || !room || class.asked == 0 {
                continue;
            }
            for ((priority, submitted, id, slot), project) in class.firsts.iter().take(PROJECTS_LOOKED_AT) {
                let ask = self.ask(*project, class);
                if self.barrier(&ask).is_some() {
                    continue;
                }
                let from = if self.within_quota(&ask) { now } else { self.patient_from(*slot) };
                if from > now {
                    later.note(from);
                } else {
                    found.push((*priority, *submitted, *id, *project, *slot));
                    break;
                }
            }
        }
        found.sort_unstable();
        found.truncate(CANDIDATES_MAX);
        found.into_iter().map(|(_, _, _, project, slot)| (project, slot)).collect()
    }

    /// The cheapest way to make room for one task by moving others.
    fn find_clearing(&mut self, slot: u32, ask: &Ask, now: Time, later: &Later) -> Option<Clearing> {
        let nodes = self.nodes_to_clear(slot);
        // Where else the work on them fits must be known.
        let tasks: Vec<u32> = nodes.iter().flat_map(|at| self.node(*at).tasks.iter().copied()).collect();
        for task in tasks {
            self.order_nodes_for(self.entry(task).class);
        }
        let guaranteed = self.within_quota(ask);
        let mut best: Option<Clearing> = None;
        for at in nodes {
            let tasks = self.node(at).tasks.iter();
            let movable = tasks.filter(|task| self.may_move(**task, slot, guaranteed, now, later));
            let mut movable: Vec<(u128, WorkloadId, u32)> = movable
                .map(|task| (self.cost_of_move(*task, now), self.entry(*task).workload.id, *task))
                .collect();
            movable.sort_unstable();
            movable.dedup();
            let mut search = ClearNode::new(self, at, slot, movable);
            search.below = best.as_ref().map(Clearing::rank);
            best = search.cheapest().or(best);
        }
        best
    }

    /// The emptiest nodes that would have room for a task if they were empty, in the order of their ids where as much is
    /// free.
    fn nodes_to_clear(&self, slot: u32) -> Vec<u32> {
        let fit = &self.shapes[self.class_of(slot).shape as usize].1;
        let mut nodes: Vec<(Reverse<u64>, u64, u32)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.ready && node.reserved.is_empty()) else {
                continue;
            };
            let free = node.decided.gpus();
            if fit.copies_when_empty(at as u32) > 0 {
                nodes.push((Reverse(free), node.id.0, at as u32));
            }
        }
        nodes.sort_unstable();
        nodes.truncate(NODES_TRIED);
        nodes.into_iter().map(|(_, _, at)| at).collect()
    }

    fn cost_of_move(&self, task: u32, now: Time) -> u128 {
        let workload = &self.entry(task).workload;
        let gpus: Gpus = workload.places().map(Place::gpus).sum();
        let restart = u128::from(gpus.0) * u128::from(self.policy.restart_cost.0) / u128::from(Gpus::SCALE);
        workload.work_lost(now, self.policy.lost_cap) + restart
    }

    /// Preemptible work of one task that has run long enough; when it will have is noted otherwise. In-quota work of
    /// others moves only for a guarantee, and a guarantee heeds nothing but the minimum run time.
    fn may_move(&self, task: u32, slot: u32, guaranteed: bool, now: Time, later: &Later) -> bool {
        let entry = self.entry(task);
        let Phase::Running { tasks, leaving, since, .. } = &entry.workload.phase else { return false };
        let single = tasks.len() == 1 && leaving.is_empty() && entry.workload.spec.tasks.max() == 1;
        let own = entry.project == self.entry(slot).project;
        let borrows = self.tree.at(entry.project).borrowed_with(0) > 0;
        let movable = entry.workload.spec.preemptible && single && (guaranteed || own || borrows);
        let patience = if guaranteed { Span::ZERO } else { self.policy.patience };
        let from = *since + self.queues[entry.project as usize].min_run.max(patience).max(Span(1));
        if movable && from > now {
            later.note(from);
        }
        movable && from <= now
    }

    fn clear_and_start(
        &mut self,
        slot: u32,
        ask: &Ask,
        clearing: Clearing,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let winner = self.entry(slot).workload.id;
        let basis: StartBasis = self.basis(ask);
        for (task, place) in clearing.moved {
            let workload = &self.entry(task).workload;
            let lost = workload.work_lost(now, self.policy.lost_cap);
            let workload = workload.id;
            let places = vec![place];
            self.decide(task, Action::Move { workload, places, winner: Some(winner), lost }, now, actions);
        }
        self.put(slot, vec![clearing.place], basis, now, actions);
    }

    /// When the wait will have outgrown the cost of the move.
    fn worth_from(&self, ask: &Ask, cost: u128, slot: u32) -> Time {
        let per_milli = u128::from(ask.amounts[0]).max(1);
        let wait = (cost * u128::from(Gpus::SCALE)).div_ceil(per_milli) + 1;
        self.entry(slot).workload.waits_since() + Span(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// The search for the cheapest set of workloads to move off their places on one node, so that a waiting task has room there.
struct ClearNode<'a> {
    pool: &'a Pool,
    at: u32,
    shape: &'a Shape,
    /// Cost, id and slot of what may be moved, cheapest first.
    movable: Vec<(u128, WorkloadId, u32)>,
    chosen: Vec<u32>,
    /// Only what ranks below this is looked for: the work lost, and the number of moves.
    below: Option<(u128, usize)>,
    found: Option<Clearing>,
    steps_left: u32,
}

impl<'a> ClearNode<'a> {
    fn new(pool: &'a Pool, at: u32, slot: u32, movable: Vec<(u128, WorkloadId, u32)>) -> Self {
        let shape = &pool.shapes[pool.class_of(slot).shape as usize].0;
        let steps_left = pool.policy.search_steps;
        Self { pool, at, shape, movable, chosen: Vec::new(), below: None, found: None, steps_left }
    }

    /// The cheapest set, if one ranks below `below`.
    fn cheapest(mut self) -> Option<Clearing> {
        if self.movable.len() > EVERY_SET_MAX {
            self.take_cheapest_first();
        }
        let free = self.node().decided.clone();
        self.try_sets_from(0, 0, &free);
        self.found
    }

    fn node(&self) -> &'a NodeSlot {
        self.pool.node(self.at)
    }

    fn place_of(&self, task: u32) -> &'a Place {
        let mut places = self.pool.entry(task).workload.places();
        places.next().expect("what runs has a place")
    }

    /// Chooses the cheapest until there is room, then leaves out the costliest that are not needed: an answer that the search
    /// for a cheaper one starts from, where there are too many sets to try all.
    fn take_cheapest_first(&mut self) {
        let mut free = self.node().decided.clone();
        let mut taken: Vec<(u128, u32)> = Vec::new();
        for (cost, _, task) in &self.movable {
            if self.node().copies(self.shape, &free) > 0 {
                break;
            }
            free.give(self.place_of(*task));
            taken.push((*cost, *task));
        }
        if self.node().copies(self.shape, &free) == 0 {
            return;
        }
        for index in (0..taken.len()).rev() {
            free.take(self.place_of(taken[index].1));
            match self.node().copies(self.shape, &free) > 0 {
                true => drop(taken.remove(index)),
                false => free.give(self.place_of(taken[index].1)),
            }
        }
        let cost = taken.iter().map(|(cost, _)| cost).sum();
        self.chosen = taken.into_iter().map(|(_, task)| task).collect();
        self.accept(cost, &free);
        self.chosen.clear();
    }

    /// Tries every set that has the chosen ones and any of those from `index` on.
    fn try_sets_from(&mut self, index: usize, cost: u128, free: &Free) {
        if self.below.is_some_and(|below| (cost, self.chosen.len()) >= below) || self.steps_left == 0 {
            return;
        }
        self.steps_left -= 1;
        let has_room = self.node().copies(self.shape, free) > 0;
        if has_room && !self.chosen.is_empty() && self.accept(cost, free) {
            return;
        }
        let Some((more, _, task)) = self.movable.get(index).copied() else { return };
        if !has_room && !self.has_room_without(&self.movable[index..], free) {
            return;
        }
        let mut with = free.clone();
        with.give(self.place_of(task));
        self.chosen.push(task);
        self.try_sets_from(index + 1, cost + more, &with);
        self.chosen.pop();
        self.try_sets_from(index + 1, cost, free);
    }

    fn has_room_without(&self, rest: &[(u128, WorkloadId, u32)], free: &Free) -> bool {
        let mut free = free.clone();
        rest.iter().for_each(|(_, _, task)| free.give(self.place_of(*task)));
        self.node().copies(self.shape, &free) > 0
    }

    /// Keeps the chosen set if the waiting task and everybody in the set have places.
    fn accept(&mut self, cost: u128, free: &Free) -> bool {
        let mut moved = self.chosen.clone();
        // Large ones fit in fewer places, so they choose first.
        moved.sort_unstable_by_key(|task| {
            (Reverse(self.place_of(*task).gpus()), self.pool.entry(*task).workload.id)
        });
        for place in self.node().options(self.shape, free, 0) {
            let mut free_of: BTreeMap<u32, Free> = BTreeMap::new();
            let mut left = free.clone();
            left.take(&place);
            free_of.insert(self.at, left);
            let mut places = Vec::with_capacity(moved.len());
            if self.house(&moved, &mut free_of, &mut places)
                && let Some(moved) = self.one_after_the_other(moved.iter().copied().zip(places).collect())
            {
                let clearing = Clearing { place, moved, cost };
                self.below = Some(clearing.rank());
                self.found = Some(clearing);
                return true;
            }
        }
        false
    }

    /// The moves in an order in which each finds its place free when its turn comes: one may go where another goes away.
    /// None where they would wait for each other in a circle.
    fn one_after_the_other(&self, mut moves: Vec<(u32, Place)>) -> Option<Vec<(u32, Place)>> {
        let node = self.node();
        let mut free = node.decided.clone();
        let mut ordered = Vec::with_capacity(moves.len());
        while !moves.is_empty() {
            let next = moves.iter().position(|(task, place)| {
                let mut free = free.clone();
                free.give(self.place_of(*task));
                place.node != node.id || free.holds(place)
            });
            let (task, place) = moves.remove(next?);
            free.give(self.place_of(task));
            if place.node == node.id {
                free.take(&place);
            }
            ordered.push((task, place));
        }
        Some(ordered)
    }

    /// Finds other places for all of these, given what is free on the nodes that were touched.
    fn house(&mut self, tasks: &[u32], free_of: &mut BTreeMap<u32, Free>, places: &mut Vec<Place>) -> bool {
        let Some((task, rest)) = tasks.split_first() else { return true };
        let (pool, cleared) = (self.pool, self.at);
        let (shape, fit) = &pool.shapes[pool.class_of(*task).shape as usize];
        let here = (fit.copies_when_empty(cleared) > 0).then_some(cleared);
        let others = fit.best_first().filter(|at| *at != cleared && pool.node(*at).reserved.is_empty());
        for at in here.into_iter().chain(others.take(TARGETS_TRIED)) {
            let node = pool.node(at);
            let free = free_of.get(&at).unwrap_or(&node.decided).clone();
            for place in node.options(shape, &free, 0) {
                let is_at = self.place_of(*task);
                if place.node == is_at.node && place.devices == is_at.devices {
                    continue;
                }
                if self.steps_left == 0 {
                    return false;
                }
                self.steps_left -= 1;
                let mut left = free.clone();
                left.take(&place);
                let before = free_of.insert(at, left);
                places.push(place);
                if self.house(rest, free_of, places) {
                    return true;
                }
                places.pop();
                match before {
                    Some(before) => free_of.insert(at, before),
                    None => free_of.remove(&at),
                };
            }
        }
        false
    }
}
