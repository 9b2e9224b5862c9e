//! Moves: making room by putting running work elsewhere, when that costs less than it gives.

use crate::{claim::Ask, node::Free, pool::Pool};
use berth_types::{Action, Gpus, Phase, Place, Span, StartBasis, Time, WorkloadId};
use std::{cell::Cell, cmp::Reverse, collections::BTreeMap};

/// Nodes looked at for one move; the emptiest come first, so more rarely helps.
const NODES_TRIED: usize = 64;
/// Waiting workloads for which a move is sought in one round; the first in order of priority and submission.
const CANDIDATES_MAX: usize = 8;
/// Projects whose first workload of a class is looked at, in queue order.
const PROJECTS_LOOKED_AT: usize = 16;

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
    node: u32,
    moved: Vec<(u32, Vec<Place>)>,
    /// GPU-milliseconds that the moves destroy.
    cost: u128,
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
                if self.barrier(&ask, 0).is_some() {
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

    /// The cheapest node on which moving others makes room for one task.
    fn find_clearing(&mut self, slot: u32, ask: &Ask, now: Time, later: &Later) -> Option<Clearing> {
        let nodes = self.nodes_to_clear(slot);
        // Where else the work on them fits must be known.
        let tasks: Vec<u32> = nodes.iter().flat_map(|at| self.node(*at).tasks.iter().copied()).collect();
        for task in tasks {
            self.order_nodes_for(self.entry(task).class);
        }
        let guaranteed = self.within_quota(ask);
        let found = nodes.into_iter().filter_map(|at| self.clear_node(at, slot, guaranteed, now, later));
        found.min_by_key(|clearing| (clearing.cost, self.node(clearing.node).id))
    }

    /// The emptiest nodes that would have room for a task if they were empty. A node that gives nothing of its own only
    /// shifts the lack elsewhere.
    fn nodes_to_clear(&self, slot: u32) -> Vec<u32> {
        let fit = &self.shapes[self.class_of(slot).shape as usize].1;
        let mut nodes: Vec<(Reverse<u64>, u64, u32)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.ready && node.reserved.is_empty()) else {
                continue;
            };
            let free = node.decided.gpus();
            if free > 0 && fit.copies_when_empty(at as u32) > 0 {
                nodes.push((Reverse(free), node.id.0, at as u32));
            }
        }
        nodes.sort_unstable();
        nodes.truncate(NODES_TRIED);
        nodes.into_iter().map(|(_, _, at)| at).collect()
    }

    fn clear_node(&self, at: u32, slot: u32, guaranteed: bool, now: Time, later: &Later) -> Option<Clearing> {
        let class = self.class_of(slot);
        let shape = &self.shapes[class.shape as usize].0;
        let node = self.node(at);
        let mut movable: Vec<(u128, WorkloadId, u32)> = node
            .tasks
            .iter()
            .filter(|task| self.may_move(**task, slot, guaranteed, now, later))
            .map(|task| (self.cost_of_move(*task, now), self.entry(*task).workload.id, *task))
            .collect();
        movable.sort_unstable();
        movable.dedup();
        let mut free = node.decided.clone();
        let mut moved: Vec<(u32, Vec<Place>)> = Vec::new();
        let mut elsewhere: BTreeMap<u32, Free> = BTreeMap::new();
        for (_, _, task) in movable {
            if node.copies(shape, &free) > 0 {
                break;
            }
            let Some(places) = self.place_elsewhere(task, at, &mut elsewhere) else { continue };
            for place in self.entry(task).workload.places() {
                free.give(place);
            }
            moved.push((task, places));
        }
        if node.copies(shape, &free) == 0 || moved.is_empty() {
            return None;
        }
        // Whoever is not in the way stays, the costliest first.
        for index in (0..moved.len()).rev() {
            let workload = &self.entry(moved[index].0).workload;
            workload.places().for_each(|place| free.take(place));
            if node.copies(shape, &free) > 0 {
                moved.remove(index);
            } else {
                workload.places().for_each(|place| free.give(place));
            }
        }
        let cost = moved.iter().map(|(task, _)| self.cost_of_move(*task, now)).sum();
        Some(Clearing { node: at, moved, cost })
    }

    fn cost_of_move(&self, task: u32, now: Time) -> u128 {
        let workload = &self.entry(task).workload;
        let gpus: Gpus = workload.places().map(Place::gpus).sum();
        let restart = u128::from(gpus.0) * u128::from(self.policy.restart_cost.0) / u128::from(Gpus::SCALE);
        // What a move destroys is weighed against what it gives, so all of it counts.
        workload.work_lost(now, Span(u64::MAX)) + restart
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

    /// A free place for a moved task on another node that accepts it.
    fn place_elsewhere(&self, task: u32, but: u32, trial: &mut BTreeMap<u32, Free>) -> Option<Vec<Place>> {
        let class = self.class_of(task);
        let (shape, fit) = &self.shapes[class.shape as usize];
        let at = fit.best_first().find(|at| {
            let node = self.node(*at);
            *at != but
                && node.reserved.is_empty()
                && trial.get(at).is_none_or(|free| node.copies(shape, free) > 0)
        })?;
        let node = self.node(at);
        let free = trial.entry(at).or_insert_with(|| node.decided.clone());
        let place = node.choose(shape, free, 0)?;
        free.take(&place);
        Some(vec![place])
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
        for (task, places) in clearing.moved {
            let workload = &self.entry(task).workload;
            let lost = workload.work_lost(now, self.policy.lost_cap);
            let workload = workload.id;
            self.decide(task, Action::Move { workload, places, winner: Some(winner), lost }, now, actions);
        }
        let node = self.node(clearing.node);
        let shape = &self.shapes[self.class_of(slot).shape as usize].0;
        let place = node.choose(shape, &node.decided, 0).expect("the node was cleared for it");
        self.put(slot, vec![place], basis, now, actions);
    }

    /// When the wait will have outgrown the cost of the move.
    fn worth_from(&self, ask: &Ask, cost: u128, slot: u32) -> Time {
        let per_milli = u128::from(ask.amounts[0]).max(1);
        let wait = (cost * u128::from(Gpus::SCALE)).div_ceil(per_milli) + 1;
        self.entry(slot).workload.waits_since() + Span(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}
