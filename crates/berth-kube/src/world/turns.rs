//! Turns: of a workload with completions, whoever is done takes the next in its place, and whoever failed tries the same again.
//! The engine hears nothing of it: what they hold, they keep.
//!
//! What is done is written into the status of the Workload, and which completion a Pod is for on the Pod, so that another
//! process goes on where this one stopped.

use super::{
    Effect, StartFailure, StartOrder, World,
    groups::GroupKey,
    rank::{Rank, run_of},
    settle::back_off,
};
use crate::{
    api::WorkloadPhase,
    convert,
    seen::pod::{Member, PodSeen, Stage},
};
use berth_types::{DeviceShare, Phase, Place, Request, TaskOutcome, Turn, WorkloadId, restart_pause};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl World {
    /// Decides what becomes of workers that are done or failed, and orders whoever's turn it is.
    pub(super) fn take_turns(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        let Some(spec) = group.workload.as_ref().map(|workload| &workload.spec) else { return };
        let Some(all) = spec.completions() else { return };
        let limit = convert::backoff_limit(spec);
        if group.starting || self.is_unwanted(id) {
            return;
        }
        let places: Vec<Place> = match self.engine.workload(id).map(|workload| &workload.phase) {
            Some(Phase::Running { tasks, confirmed: true, .. }) => {
                tasks.iter().map(|task| task.place.clone()).collect()
            }
            _ => return,
        };
        for place in &places {
            self.decide_turn(id, place.rank, all, limit);
        }
        self.order_turns(id, &places);
    }

    fn decide_turn(&mut self, id: WorkloadId, rank: u32, all: u32, limit: u32) {
        let now = self.now;
        let succeeded = match self.fate(id, rank) {
            Some(TaskOutcome::Succeeded) => true,
            Some(TaskOutcome::Failed) => false,
            _ => return,
        };
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        let taken: BTreeSet<u32> = group.ranks.values().filter_map(|rank| rank.index).collect();
        let Some(known) = group.ranks.get_mut(&rank).filter(|rank| rank.next.is_none() && !rank.idle) else {
            return;
        };
        let counts = !succeeded && !known.found_over;
        let may_fail = group.failures < limit || !counts;
        match group.done.turn(all, (known.index, succeeded), may_fail, &taken) {
            Turn::Next(index) => {
                (known.index, known.restarts) = (Some(index), 0);
                known.next = Some(now);
            }
            Turn::Again => {
                group.failures += u32::from(counts);
                known.restarts += 1;
                known.next = Some(now + restart_pause(known.restarts));
            }
            Turn::Nothing | Turn::Failed => {}
        }
        self.due.extend(known.next.map(|at| (at, id)));
    }

    /// Orders the Pods that follow others in their places.
    fn order_turns(&mut self, id: WorkloadId, places: &[Place]) {
        let now = self.now;
        let ranks = &self.groups[&id].ranks;
        let turn = |place: &Place| {
            let rank = ranks.get(&place.rank).filter(|rank| rank.next.is_some_and(|at| at <= now))?;
            Some((place.clone(), rank.turn + 1, rank.index))
        };
        let due: Vec<_> = places.iter().filter_map(turn).collect();
        // A place whose node is gone is lost, of which the engine hears by its Pod.
        let Some(tasks) = self.new_pods(id, &due).filter(|tasks| !tasks.is_empty()) else { return };
        let make = self.to_make(id);
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        for task in &tasks {
            let Some(rank) = group.ranks.get_mut(&task.place.rank) else { continue };
            let Rank { index, restarts, .. } = *rank;
            *rank = Rank { turn: task.turn, index, restarts, ordered: true, ..Rank::default() };
        }
        group.starting = true;
        self.effects.push(Effect::Start(StartOrder { workload: id, run: group.run, make, tasks }));
    }

    /// Of a start of turns that failed, whatever was not placed is tried again in its place, which nobody else has.
    pub(super) fn undo_turns(&mut self, id: WorkloadId, failure: &StartFailure) {
        let now = self.now;
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.refused_starts += 1;
        let until = now + back_off(group.refused_starts);
        tracing::info!(group = ?group.key, message = failure.message, "a turn is refused and tried again");
        let ordered = group.ranks.values_mut().filter(|rank| rank.ordered);
        for (position, rank) in ordered.enumerate() {
            rank.ordered = false;
            if !failure.placed.contains(&position) {
                // Its number is not used again: what was made of it may still be about to go.
                (rank.pod, rank.next) = (None, Some(until));
            }
        }
        self.due.insert((until, id));
    }

    /// The first turns of a run: each worker takes the first completion that nobody has. Workers for whom nothing is left get no
    /// Pod, and are done.
    pub(super) fn first_turns(&mut self, id: WorkloadId, places: &[Place]) -> Vec<(Place, u32, Option<u32>)> {
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        let Some(all) = group.completions() else {
            return places.iter().map(|place| (place.clone(), 1, None)).collect();
        };
        let mut taken = BTreeSet::new();
        let mut turns = Vec::new();
        for place in places {
            match group.done.first_free(all, &taken) {
                Some(index) => {
                    taken.insert(index);
                    turns.push((place.clone(), 1, Some(index)));
                }
                None => drop(group.ranks.insert(place.rank, Rank { idle: true, ..Rank::default() })),
            }
        }
        turns
    }

    /// Whether a completion is left that nobody works at.
    pub(super) fn has_free_completion(&self, id: WorkloadId) -> bool {
        let group = &self.groups[&id];
        group.completions().is_some_and(|all| group.done.first_free(all, &BTreeSet::new()).is_some())
    }

    /// Workers between two turns, by rank, with their last Pods: they are over, and others are about to follow.
    pub(super) fn between_turns(
        &self,
        id: WorkloadId,
        bound: &BTreeMap<u32, Arc<PodSeen>>,
    ) -> BTreeMap<u32, Arc<PodSeen>> {
        let group = &self.groups[&id];
        let (GroupKey::Workload(_), Some(workload)) = (&group.key, &group.workload) else {
            return BTreeMap::new();
        };
        let Some(all) = workload.spec.completions() else { return BTreeMap::new() };
        let status = workload.status.as_ref();
        let is_written = |run: u32| {
            status.is_some_and(|status| {
                status.runs == i64::from(run)
                    && matches!(status.phase, Some(WorkloadPhase::Running | WorkloadPhase::Starting))
            })
        };
        // Whoever decides takes no place for theirs of which nothing is left but words: others may have it by now.
        let run = match bound.values().find_map(|pod| run_of(pod)) {
            Some(run) if !bound.values().any(|pod| pod.leaving) => run,
            None if self.looks_on && is_written(group.run) => group.run,
            _ => return BTreeMap::new(),
        };
        let mut last: BTreeMap<u32, &Arc<PodSeen>> = BTreeMap::new();
        for pod in group.pods.iter().filter_map(|uid| self.pods.get(uid)) {
            let Member::Workload { rank, run: of, turn, index: Some(_), .. } = pod.member else { continue };
            let is_later = |known: &&Arc<PodSeen>| matches!(known.member, Member::Workload { turn: other, .. } if other < turn);
            if of == run && last.get(&rank).is_none_or(is_later) {
                last.insert(rank, pod);
            }
        }
        let mut taken: BTreeSet<u32> = bound.values().filter_map(|pod| index_of(pod)).collect();
        let follows = |(_, pod): &(u32, &Arc<PodSeen>)| match pod.stage {
            Stage::Failed => !pod.turned_away,
            // Whether one is left for it depends on how many were before it.
            Stage::Succeeded => match group.done.first_free(all, &taken) {
                Some(index) => taken.insert(index),
                None => false,
            },
            Stage::Pending | Stage::Running => false,
        };
        let unbound = last.into_iter().filter(|(rank, _)| !bound.contains_key(rank));
        unbound.filter(follows).map(|(rank, pod)| (rank, Arc::clone(pod))).collect()
    }

    /// The place that a Pod which is over left to whoever follows it, as it says itself: its claim has nothing any more.
    pub(super) fn place_left(&self, rank: u32, pod: &PodSeen, request: &Request) -> Option<Place> {
        let node = self.node_id(pod.node.as_ref()?)?;
        let devices = pod.devices.clone()?;
        let there = self.engine.nodes().get(&node)?.devices.len();
        let is_there = |taken: &DeviceShare| usize::from(taken.device) < there;
        let place = Place { rank, node, devices, cpu: request.cpu, memory: request.memory };
        place.devices.iter().all(is_there).then_some(place)
    }

    /// Whether so many workers are all that is left of a run that once was whole: of completions some are done, and the others
    /// go on.
    pub(super) fn was_whole(&self, id: WorkloadId, there: usize, run: u32) -> bool {
        let group = &self.groups[&id];
        let Some(all) = group.completions() else { return false };
        let left = all.saturating_sub(group.done.count()) as usize;
        let pods = group.pods.iter().filter_map(|uid| self.pods.get(uid));
        let mut later = pods.filter(|pod| run_of(pod) == Some(run));
        there > 0
            && (there >= left
                || later.any(|pod| pod.is_over() || matches!(pod.member, Member::Workload { turn: 2.., .. })))
    }
}

fn index_of(pod: &PodSeen) -> Option<u32> {
    match pod.member {
        Member::Workload { index, .. } => index,
        _ => None,
    }
}
