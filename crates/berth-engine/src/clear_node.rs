//! Clearing a node: who is moved off it so that a waiting task has room there, and where to.

use crate::{
    node::{Free, NodeSlot},
    pool::Pool,
    shape::Shape,
};
use berth_types::{NodeId, Place, WorkloadId};
use std::{cmp::Reverse, collections::BTreeMap};

/// Up to this many workloads that could leave a node, every set of them is tried.
const EVERY_SET_MAX: usize = 12;
/// Nodes tried for one workload that is moved, the best for it first.
const TARGETS_TRIED: usize = 8;

/// A way to make room on one node.
pub(crate) struct Clearing {
    /// Where the waiting workload starts.
    pub(crate) place: Place,
    /// Who is moved, and where to.
    pub(crate) moved: Vec<(u32, Place)>,
    /// GPU-milliseconds that the moves destroy.
    pub(crate) cost: u128,
}

impl Clearing {
    /// Less work lost comes first, then fewer moves: what has no GPU costs nothing to move, and is left where it is all the same.
    pub(crate) fn rank(&self) -> (u128, usize) {
        (self.cost, self.moved.len())
    }
}

/// The search for the cheapest set of workloads to move off their places on one node, so that a waiting task has room there.
pub(crate) struct ClearNode<'a> {
    pool: &'a Pool,
    /// What is free of nodes where something is evicted first; of others it is what is decided.
    gone: &'a BTreeMap<NodeId, Free>,
    at: u32,
    /// The waiting workload, whose own reservation is in nobody's way.
    slot: u32,
    shape: &'a Shape,
    /// Cost, id and slot of what may be moved, cheapest first.
    movable: Vec<(u128, WorkloadId, u32)>,
    chosen: Vec<u32>,
    /// Only what ranks below this is looked for: the work lost, and the number of moves.
    pub(crate) below: Option<(u128, usize)>,
    found: Option<Clearing>,
    steps_left: u32,
}

impl<'a> ClearNode<'a> {
    pub(crate) fn new(
        pool: &'a Pool,
        gone: &'a BTreeMap<NodeId, Free>,
        at: u32,
        slot: u32,
        movable: Vec<(u128, WorkloadId, u32)>,
    ) -> Self {
        let shape = &pool.shapes[pool.class_of(slot).shape as usize].0;
        Self {
            pool,
            gone,
            at,
            slot,
            shape,
            movable,
            chosen: Vec::new(),
            below: None,
            found: None,
            steps_left: 0,
        }
    }

    /// The cheapest set, if one ranks below `below`, and the steps of the search that are left.
    pub(crate) fn cheapest(mut self, steps: u32) -> (Option<Clearing>, u32) {
        self.steps_left = steps;
        if self.movable.len() > EVERY_SET_MAX {
            self.take_cheapest_first();
        }
        let free = self.free_at(self.at).clone();
        self.try_sets_from(0, 0, &free);
        (self.found, self.steps_left)
    }

    /// What is free of a node before anything is moved.
    fn free_at(&self, at: u32) -> &'a Free {
        let node = self.pool.node(at);
        self.gone.get(&node.id).unwrap_or(&node.decided)
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
        let mut free = self.free_at(self.at).clone();
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
        let mut free = self.free_at(self.at).clone();
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
        let (pool, cleared, owner) = (self.pool, self.at, self.slot);
        let (shape, fit) = &pool.shapes[pool.class_of(*task).shape as usize];
        let here = (fit.copies_when_empty(cleared) > 0).then_some(cleared);
        // Where something is evicted there may be room that the index of what is free does not know.
        let freed = self.gone.keys().filter_map(|id| pool.node_slot(*id));
        let freed = freed.filter(|at| *at != cleared && fit.copies_when_empty(*at) > 0);
        let others =
            fit.best_first().filter(|at| *at != cleared && !self.gone.contains_key(&pool.node(*at).id));
        let targets = freed
            .chain(others)
            .filter(|at| pool.node(*at).ready && !pool.node(*at).is_reserved_beside(owner));
        for at in here.into_iter().chain(targets.take(TARGETS_TRIED)) {
            let node = pool.node(at);
            let free = free_of.get(&at).unwrap_or(self.free_at(at)).clone();
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
