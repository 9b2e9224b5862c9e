//! Moves: making room by putting running work elsewhere, when that costs less than it gives.

use crate::{
    claim::Ask,
    clear_node::{ClearNode, Clearing},
    node::Free,
    pool::Pool,
};
use berth_types::{Action, Gpus, NodeId, Phase, Place, Span, StartBasis, Time, WorkloadId};
use std::{cell::Cell, cmp::Reverse, collections::BTreeMap};

/// Nodes looked at for one move; the emptiest come first, so more rarely helps.
const NODES_TRIED: usize = 64;
/// Waiting workloads for which a move is sought in one round; the first in order of priority and submission.
const CANDIDATES_MAX: usize = 8;
/// Projects whose first workload of a class is looked at, in queue order.
const PROJECTS_LOOKED_AT: usize = 16;

/// The first instant at which a move may be made that cannot be made now.
#[derive(Default)]
pub(crate) struct Later(Cell<Option<Time>>);

impl Later {
    pub(crate) fn note(&self, at: Time) {
        self.0.set(Some(self.0.get().map_or(at, |known| known.min(at))));
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
            self.order_for_moves(slot);
            let gives = self.gives(slot, &ask, now);
            let before = actions.len();
            match self.find_clearing(slot, &ask, now, &later) {
                Some(clearing) if clearing.cost < gives => {
                    self.clear_and_start(slot, &ask, clearing, now, actions);
                }
                clearing => {
                    if let Some(clearing) = clearing {
                        later.note(self.worth_from(&ask, clearing.cost, slot));
                    }
                    self.evict_and_move(slot, &ask, now, &later, actions);
                }
            }
            // The others may have room now, or be owed less.
            if actions.len() > before {
                break;
            }
        }
        self.next_move = later.0.get();
    }

    /// GPU-time that a workload has waited for.
    pub(crate) fn gives(&self, slot: u32, ask: &Ask, now: Time) -> u128 {
        let waited = now.since(self.entry(slot).workload.waits_since());
        u128::from(ask.amounts[0]) * u128::from(waited.0) / u128::from(Gpus::SCALE)
    }

    /// Of each class that fits nowhere and is one task, the first waiting workload that may start and is owed what it asks
    /// for, and the first that has waited long enough if that comes before it. Those of one class that are owed alike mostly
    /// fare alike, so others of it are not looked at.
    fn move_candidates(&self, now: Time, later: &Later) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for class_id in &self.waiting_classes {
            let class = &self.classes[*class_id as usize];
            if class.min != 1 || class.fits || !class.possible || class.asked == 0 {
                continue;
            }
            // Moves alone make no GPU free; beside them something may be evicted for what is owed.
            let room = self.free_gpus >= class.asked;
            let mut patient = false;
            for ((priority, submitted, id, slot), project) in class.firsts.iter().take(PROJECTS_LOOKED_AT) {
                let ask = self.ask(*project, class);
                let owed = self.within_quota(&ask);
                // What is owed may evict what stands between it and a limit.
                let barred = match owed {
                    true => self.is_barred(&ask, &self.reach(&ask, self.own_priority(*project, *slot))),
                    false => patient || !room || self.barrier(&ask).is_some(),
                };
                if barred {
                    continue;
                }
                let from = if owed { now } else { self.patient_from(*slot) };
                if from > now {
                    later.note(from);
                    continue;
                }
                found.push((*priority, *submitted, *id, *project, *slot));
                patient = true;
                if owed {
                    break;
                }
            }
        }
        found.sort_unstable();
        found.truncate(CANDIDATES_MAX);
        found.into_iter().map(|(_, _, _, project, slot)| (project, slot)).collect()
    }

    /// Orders the nodes for a workload and for all that might be moved for it: where else that fits must be known.
    fn order_for_moves(&mut self, slot: u32) {
        self.order_nodes_for(self.entry(slot).class);
        let nodes = self.nodes_to_clear(slot);
        let tasks: Vec<u32> = nodes.iter().flat_map(|at| self.node(*at).tasks.iter().copied()).collect();
        for task in tasks {
            self.order_nodes_for(self.entry(task).class);
        }
    }

    /// The cheapest way to make room for one task by moving others.
    fn find_clearing(&self, slot: u32, ask: &Ask, now: Time, later: &Later) -> Option<Clearing> {
        if self.free_gpus < ask.amounts[0] || self.barrier(ask).is_some() {
            return None;
        }
        let mut best: Option<Clearing> = None;
        let gone = BTreeMap::new();
        for at in self.nodes_to_clear(slot) {
            let mut search = self.clear_node(at, slot, (&gone, &[]), now, later);
            search.below = best.as_ref().map(Clearing::rank);
            best = search.cheapest(self.policy.search_steps).0.or(best);
        }
        best
    }

    /// The search for what to move off a node, when these are gone and this much is free of the nodes where they were.
    pub(crate) fn clear_node<'a>(
        &'a self,
        at: u32,
        slot: u32,
        (free, gone): (&'a BTreeMap<NodeId, Free>, &[u32]),
        now: Time,
        later: &Later,
    ) -> ClearNode<'a> {
        let guaranteed = self.within_quota(&self.ask(self.entry(slot).project, self.class_of(slot)));
        let tasks = self.node(at).tasks.iter().filter(|task| !gone.contains(task));
        let movable = tasks.filter(|task| self.may_move(**task, slot, guaranteed, now, later));
        let mut movable: Vec<(u128, WorkloadId, u32)> = movable
            .map(|task| (self.cost_of_move(*task, now), self.entry(*task).workload.id, *task))
            .collect();
        movable.sort_unstable();
        movable.dedup();
        ClearNode::new(self, free, at, slot, movable)
    }

    /// The emptiest nodes that would have room for a task if they were empty, in the order of their ids where as much is
    /// free.
    pub(crate) fn nodes_to_clear(&self, slot: u32) -> Vec<u32> {
        let fit = &self.shapes[self.class_of(slot).shape as usize].1;
        let mut nodes: Vec<(Reverse<u64>, u64, u32)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.ready && !node.is_reserved_beside(slot)) else {
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

    pub(crate) fn clear_and_start(
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
    pub(crate) fn worth_from(&self, ask: &Ask, cost: u128, slot: u32) -> Time {
        let per_milli = u128::from(ask.amounts[0]).max(1);
        let wait = (cost * u128::from(Gpus::SCALE)).div_ceil(per_milli) + 1;
        self.entry(slot).workload.waits_since() + Span(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}
