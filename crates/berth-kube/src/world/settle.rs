//! Settling: what is, held against what was decided, one difference at a time.

use super::{
    Effect, EvictOrder, STRANGERS, StartFailure, World,
    clear::UNSEEN,
    groups::{GroupKey, Wanted},
    rank::Rank,
};
use crate::seen::{
    Refusal, Text,
    pod::{PodGpus, Stage},
};
use berth_types::{
    AfterStop, Change, EvictRule, Outcome, Phase, Place, Span, Task, TaskOutcome, Time, Workload, WorkloadId,
};

/// How long nobody tries again to evict what something refused to let go.
const PROTECTION: Span = Span::secs(60);
/// Between looks at Pods on nodes that cannot be counted yet.
const UNCOUNTED: Span = Span::secs(5);
/// The longest wait between two tries of a start.
const BACK_OFF_MAX: Span = Span::secs(300);

impl World {
    /// Settles every group of which something changed.
    pub(super) fn settle(&mut self) {
        while let Some(id) = self.dirty.pop_first() {
            self.settle_group(id);
        }
    }

    fn settle_group(&mut self, id: WorkloadId) {
        if !self.groups.contains_key(&id) {
            return;
        }
        if self.looks_on {
            self.forget_in_engine(id);
            self.consider(id);
            return self.drop_if_empty(id);
        }
        match self.engine.workload(id) {
            None => self.consider(id),
            Some(workload) if workload.spec.project == STRANGERS => self.adopt(id),
            Some(_) => {}
        }
        self.take_turns(id);
        while let Some(change) = self.next_difference(id) {
            if !self.must(&change) {
                break;
            }
        }
        self.order_stops(id);
        self.clear_strays(id);
        self.release_claims(id);
        self.seek_unseen(id);
        self.unprotect(id);
        self.regroup(id);
        match self.engine.workload(id).map(|workload| &workload.phase) {
            Some(Phase::Finished { outcome, .. }) => self.on_over(id, *outcome),
            Some(Phase::Queued { .. }) => self.reconsider(id),
            _ => {}
        }
        self.say(id);
        self.drop_if_empty(id);
    }

    /// Tells the engine of a group that it does not know, if it is to know it.
    fn consider(&mut self, id: WorkloadId) {
        let refusal = match self.wanted(id) {
            Wanted::There(workload) => {
                let places: Vec<Place> = workload.places().chain(workload.leaving()).cloned().collect();
                self.note_tenant(id, &places);
                match self.engine.apply(&Change::Submitted(*workload)) {
                    Ok(()) => None,
                    Err(error) => Some(Refusal::new("Refused", error.to_string())),
                }
            }
            Wanted::Waits(refusal) => refusal,
            Wanted::Over => None,
        };
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.refusal = refusal;
        if let Some(until) = group.not_before.filter(|until| *until > self.now) {
            self.due.insert((until, id));
        }
        let is_uncounted = |uid| self.pods.get(uid).is_some_and(|pod| pod.node.is_some() && !pod.is_over());
        if self.engine.workload(id).is_none() && self.groups[&id].pods.iter().any(is_uncounted) {
            self.due.insert((self.now + UNCOUNTED, id));
        }
    }

    /// Pods that nobody was to pay for may have somebody now.
    fn adopt(&mut self, id: WorkloadId) {
        let is_ours = self.groups[&id].pods.iter().any(|uid| self.pods.get(uid).is_some_and(|pod| pod.ours));
        if !is_ours && self.has_late_claim(id) {
            self.forget_in_engine(id);
            return self.consider(id);
        }
        if !is_ours
            || self.groups[&id].starting
            || !self.engine.workload(id).is_some_and(Workload::is_running)
        {
            return;
        }
        let Wanted::There(workload) = self.wanted(id) else { return };
        if workload.spec.project != STRANGERS {
            self.forget_in_engine(id);
            self.must(&Change::Submitted(*workload));
        }
    }

    /// Whether devices of a Pod that others placed became known only after the Pod.
    fn has_late_claim(&self, id: WorkloadId) -> bool {
        let pods = self.groups[&id].pods.iter().filter_map(|uid| self.pods.get(uid));
        let mut claims = pods.filter_map(|pod| match &pod.gpus {
            PodGpus::Claimed(key) => self.claims.get(key),
            _ => None,
        });
        let counted =
            self.engine.workload(id).is_none_or(|one| one.places().any(|place| !place.devices.is_empty()));
        !counted && claims.any(|claim| claim.taken.as_ref().is_some_and(|taken| !taken.is_empty()))
    }

    /// Pods that joined a group after it had started become its extras, and those that went are not waited for.
    fn regroup(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        if group.starting || !group.is_gang() {
            return;
        }
        let Some(workload) = self.engine.workload(id) else { return };
        let Phase::Running { tasks, leaving, confirmed: true, .. } = &workload.phase else { return };
        let there =
            |uid: &Text| self.pods.get(uid).is_some_and(|pod| !pod.is_over() && !pod.leaving && !pod.gated);
        let known = workload.spec.tasks.max() as usize;
        let is_seen = |task: &Task| self.pod_of(id, task.place.rank).is_some_and(|pod| pod.node.is_some());
        if !leaving.is_empty()
            || group.pods.iter().filter(|uid| there(uid)).count() == known
            || !tasks.iter().all(is_seen)
        {
            return;
        }
        let Wanted::There(wanted) = self.wanted(id) else { return };
        if wanted.is_running() && wanted.spec.tasks.max() as usize != known {
            self.forget_in_engine(id);
            self.must(&Change::Submitted(*wanted));
        }
    }

    /// Takes a group out of the queue, or changes what it asks for there.
    fn reconsider(&mut self, id: WorkloadId) {
        let wanted = self.wanted(id);
        let known = self.engine.workload(id).expect("a workload that waits");
        match wanted {
            // A reservation is the engine's, and stays.
            Wanted::There(workload)
                if workload.spec == known.spec && workload.phase == Phase::Queued { reservation: None } => {}
            Wanted::There(workload) => {
                self.forget_in_engine(id);
                if let Err(error) = self.engine.apply(&Change::Submitted(*workload)) {
                    let group = self.groups.get_mut(&id).expect("a group that is looked at");
                    group.refusal = Some(Refusal::new("Refused", error.to_string()));
                }
            }
            Wanted::Waits(refusal) => {
                self.forget_in_engine(id);
                let group = self.groups.get_mut(&id).expect("a group that is looked at");
                group.refusal = refusal;
                if let Some(until) = group.not_before {
                    self.due.insert((until, id));
                }
            }
            Wanted::Over => self.forget_in_engine(id),
        }
    }

    /// The engine forgets a workload, wherever it stands. What it held is free for the engine at once, so this is for what has
    /// no Pods, or whose Pods are told to the engine again right away.
    pub(super) fn forget_in_engine(&mut self, id: WorkloadId) {
        let at = self.now;
        while let Some(workload) = self.engine.workload(id) {
            let change = match &workload.phase {
                Phase::Finished { .. } => Change::Forgotten(id),
                Phase::Stopping { leaving, then: AfterStop::Finish(_) } => {
                    Change::Stopped { workload: id, rank: leaving[0].rank, at }
                }
                _ => Change::Cancelled { workload: id, at },
            };
            if !self.must(&change) {
                return;
            }
        }
    }

    /// The first thing that happened to a group and that the engine does not know.
    fn next_difference(&self, id: WorkloadId) -> Option<Change> {
        let (group, workload, at) = (&self.groups[&id], self.engine.workload(id)?, self.now);
        let ends = matches!(
            workload.phase,
            Phase::Finished { .. } | Phase::Stopping { then: AfterStop::Finish(_), .. }
        );
        if !ends && self.is_unwanted(id) {
            return Some(Change::Cancelled { workload: id, at });
        }
        // Nothing is known of its Pods until the start is known to be done, or not.
        if group.starting {
            return None;
        }
        for place in workload.leaving() {
            if self.fate(id, place.rank).is_some() {
                return Some(Change::Stopped { workload: id, rank: place.rank, at });
            }
        }
        let Phase::Running { tasks, .. } = &workload.phase else { return None };
        for task in tasks {
            let rank = task.place.rank;
            if group.ranks.get(&rank).is_some_and(|rank| rank.next.is_some()) {
                continue;
            }
            if let Some(outcome) = self.fate(id, rank) {
                return Some(Change::Ended { workload: id, rank, outcome, at });
            }
        }
        if self.only_endless_left(id, tasks) {
            return Some(Change::Cancelled { workload: id, at });
        }
        let checkpoint = tasks.iter().filter_map(|task| self.pod_of(id, task.place.rank)?.checkpoint).max();
        match checkpoint {
            // Whoever says that it will have been saved has not saved it.
            Some(saved) if saved <= at && workload.checkpoint.is_none_or(|known| known < saved) => {
                Some(Change::Checkpointed { workload: id, at: saved })
            }
            _ => None,
        }
    }

    /// How a task ended, if it did.
    pub(super) fn fate(&self, id: WorkloadId, rank: u32) -> Option<TaskOutcome> {
        let rank_of = self.groups[&id].ranks.get(&rank);
        // A task that this process never ordered and never saw has no Pod.
        let Some(rank_of) = rank_of else { return Some(TaskOutcome::Lost) };
        // It has no Pod, and is not about to get one before it is asked again.
        if rank_of.idle || (rank_of.next.is_some() && rank_of.pod.is_none()) {
            return Some(TaskOutcome::Succeeded);
        }
        if rank_of.gone {
            return Some(TaskOutcome::Lost);
        }
        let pod = self.pods.get(rank_of.pod.as_ref()?)?;
        match pod.stage {
            Stage::Succeeded => Some(TaskOutcome::Succeeded),
            Stage::Failed if pod.turned_away || rank_of.told => Some(TaskOutcome::Lost),
            Stage::Failed => Some(TaskOutcome::Failed),
            Stage::Pending | Stage::Running => None,
        }
    }

    fn pod_of(&self, id: WorkloadId, rank: u32) -> Option<&crate::seen::pod::PodSeen> {
        let uid = self.groups[&id].ranks.get(&rank)?.pod.as_ref()?;
        self.pods.get(uid).map(AsRef::as_ref)
    }

    /// Whether those that could end did, and only Pods are left that never would.
    fn only_endless_left(&self, id: WorkloadId, tasks: &[Task]) -> bool {
        let group = &self.groups[&id];
        let done = group.pods.iter().filter_map(|uid| self.pods.get(uid)).any(|pod| {
            pod.stage == Stage::Succeeded
                && !pod.endless
                && group.ranks.values().any(|rank| rank.pod.as_ref() == Some(&pod.uid))
        });
        let endless = |task: &Task| self.pod_of(id, task.place.rank).is_some_and(|pod| pod.endless);
        done && group.is_gang() && tasks.iter().all(endless)
    }

    /// Whether a Workload is not to run any more.
    pub(super) fn is_unwanted(&self, id: WorkloadId) -> bool {
        let group = &self.groups[&id];
        if !matches!(group.key, GroupKey::Workload(_)) {
            return false;
        }
        group
            .workload
            .as_ref()
            .is_none_or(|workload| workload.metadata.deletion_timestamp.is_some() || workload.spec.suspend)
    }

    /// Tells Pods to go whose tasks are leaving.
    fn order_stops(&mut self, id: WorkloadId) {
        let Some(workload) = self.engine.workload(id) else { return };
        let grace = workload.spec.grace;
        let ranks: Vec<u32> = workload.leaving().iter().map(|place| place.rank).collect();
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        if group.starting {
            return;
        }
        let politely = group.leaves_politely;
        for rank in ranks {
            let Some(rank) = group.ranks.get_mut(&rank).filter(|rank| !rank.told) else { continue };
            let Some(pod) = rank.pod.as_ref().and_then(|uid| self.pods.get(uid)) else { continue };
            rank.told = true;
            self.effects.push(Effect::Evict(EvictOrder {
                workload: id,
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                grace,
                politely,
            }));
        }
    }

    /// The engine is done with a workload.
    fn on_over(&mut self, id: WorkloadId, outcome: Outcome) {
        self.must(&Change::Forgotten(id));
        let now = self.now;
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.ranks.clear();
        group.leaves_politely = false;
        if std::mem::take(&mut group.undone) {
            return;
        }
        let Some(workload) = group.workload.clone() else { return };
        let stopped = workload.spec.suspend || workload.metadata.deletion_timestamp.is_some();
        let is_final =
            workload.status.as_ref().and_then(|status| status.phase).is_some_and(|one| one.is_final());
        if outcome == Outcome::Cancelled && (stopped || is_final) {
            return;
        }
        if outcome == Outcome::Failed {
            group.failures += 1;
            if group.failures <= crate::convert::backoff_limit(&workload.spec) {
                let wait = back_off(group.failures);
                group.not_before = Some(now + wait);
                group.refusal =
                    Some(Refusal::new("BackOff", format!("it failed and is started again in {wait}")));
                self.due.insert((now + wait, id));
                return;
            }
        }
        if outcome == Outcome::Succeeded && self.has_free_completion(id) {
            // Workers were lost while another process decided; what is left takes its turn in the queue.
            self.dirty.insert(id);
            return;
        }
        self.say_over(id, outcome);
    }

    /// What became of a start.
    pub(super) fn on_started(&mut self, id: WorkloadId, run: u32, result: Result<(), StartFailure>) {
        let now = self.now;
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.run == run && group.starting) else {
            return;
        };
        group.starting = false;
        self.dirty.insert(id);
        tracing::debug!(workload = %id, run, ?result, "a start is over");
        match result {
            Ok(()) => {
                group.refused_starts = 0;
                group.ranks.values_mut().for_each(|rank| rank.ordered = false);
                if group.ranks.values().any(Rank::is_unseen) {
                    group.seek_at = Some(now + UNSEEN);
                    self.due.insert((now + UNSEEN, id));
                }
                let unconfirmed = self.engine.workload(id).is_some_and(|workload| {
                    matches!(workload.phase, Phase::Running { confirmed: false, .. })
                });
                if unconfirmed {
                    self.must(&Change::Confirmed { workload: id });
                }
            }
            Err(failure) if group.ranks.values().any(|rank| rank.ordered && rank.turn > 1) => {
                self.undo_turns(id, &failure);
            }
            Err(failure) => {
                self.promised_ports.forget(id);
                tracing::info!(group = ?group.key, run, message = failure.message, "a start is refused and tried again");
                group.refused_starts += 1;
                let until = now + back_off(group.refused_starts);
                group.not_before = Some(until);
                group.refusal = Some(Refusal::new("StartRefused", failure.message));
                self.due.insert((until, id));
                self.undo_start(id, &failure.placed);
            }
        }
    }

    /// Of a start that failed, whatever was placed goes again; what was not is given back at once.
    fn undo_start(&mut self, id: WorkloadId, placed: &[usize]) {
        let at = self.now;
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.leaves_politely = false;
        // An order names the ranks that were not there before it, in their order.
        let (mut position, mut any_placed, mut unplaced) = (0, false, Vec::new());
        for rank in group.ranks.values_mut().filter(|rank| rank.ordered) {
            rank.ordered = false;
            rank.gone = !placed.contains(&position);
            any_placed |= !rank.gone;
            unplaced.extend(rank.pod.clone().filter(|_| rank.gone));
            position += 1;
        }
        if !matches!(group.key, GroupKey::Workload(_)) {
            unplaced.iter().for_each(|uid| self.release_claim(id, uid));
        }
        let unconfirmed = self
            .engine
            .workload(id)
            .is_some_and(|workload| matches!(workload.phase, Phase::Running { confirmed: false, .. }));
        if unconfirmed && !any_placed {
            self.must(&Change::Refused { workload: id, at });
        } else if unconfirmed {
            self.leave_undone(id);
        }
    }

    /// What was placed of a start that failed leaves. The engine is told that it ends, and not that it comes back, because it
    /// would hold places for it that are not to be tried before some time has passed.
    fn leave_undone(&mut self, id: WorkloadId) {
        let Some(mut workload) = self.engine.workload(id).cloned() else { return };
        let ranks = &self.groups[&id].ranks;
        let is_placed = |place: &&Place| ranks.get(&place.rank).is_some_and(|rank| !rank.gone);
        let leaving = workload.places().filter(is_placed).cloned().collect();
        workload.phase = Phase::Stopping { leaving, then: AfterStop::Finish(Outcome::Cancelled) };
        self.forget_in_engine(id);
        self.must(&Change::Submitted(workload));
        self.groups.get_mut(&id).expect("a group that is looked at").undone = true;
    }

    /// Somebody else refused to let a Pod go: its group stays, and somebody else must give.
    pub(super) fn on_not_evicted(&mut self, id: WorkloadId, pod: &Text, message: &str) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        for rank in group.ranks.values_mut().filter(|rank| rank.pod.as_ref() == Some(pod)) {
            rank.told = false;
        }
        let Some(workload) = self.engine.workload(id).cloned() else { return };
        let is_returning =
            matches!(workload.phase, Phase::Stopping { then: AfterStop::Requeue, .. } | Phase::Held { .. });
        if !is_returning && workload.leaving().is_empty() {
            return;
        }
        // A task of it that went already, or is about to, cannot be called back.
        let stays = |place: &&Place| {
            place.rank < workload.spec.tasks.min()
                && self.pod_of(id, place.rank).is_none_or(|pod| !pod.leaving && !pod.is_over())
        };
        let whole = workload.leaving().iter().filter(stays).count();
        let until = self.now + PROTECTION;
        if is_returning && whole < workload.spec.tasks.min() as usize {
            // What let one of a gang go cannot keep the others: they are of no use without it.
            tracing::info!(workload = %workload.spec.name, %message, "an eviction was refused; the rest of the gang goes too");
            self.groups.get_mut(&id).expect("a group that is looked at").leaves_politely = false;
            self.dirty.insert(id);
            return;
        }
        tracing::info!(workload = %workload.spec.name, %message, "an eviction was refused; another victim is sought");
        self.release_holders(&workload);
        self.reinstate(id, workload, false);
        if let Some(group) = self.groups.get_mut(&id) {
            group.protected = Some(until);
            group.leaves_politely = false;
            group.evicted = None;
            group.evictions = group.evictions.saturating_sub(1);
        }
        self.due.insert((until, id));
        self.dirty.insert(id);
    }

    /// Whoever was to have the places of a workload that stays is back in the queue.
    fn release_holders(&mut self, workload: &Workload) {
        let at = self.now;
        let nodes: Vec<_> = workload.leaving().iter().map(|place| place.node).collect();
        let holders: Vec<WorkloadId> = self
            .engine
            .workloads()
            .filter(|other| matches!(other.phase, Phase::Held { .. }) && other.id != workload.id)
            .filter(|other| other.places().any(|place| nodes.contains(&place.node)))
            .map(|other| other.id)
            .collect();
        for holder in holders {
            self.must(&Change::Refused { workload: holder, at });
            self.dirty.insert(holder);
        }
    }

    /// Tells the engine that a workload runs where it was leaving.
    fn reinstate(&mut self, id: WorkloadId, mut workload: Workload, preemptible: bool) {
        let min = workload.spec.tasks.min();
        let kept: Vec<Place> = match &workload.phase {
            Phase::Held { leaving, .. } => leaving.clone(),
            _ => workload.places().chain(workload.leaving()).cloned().collect(),
        };
        let tasks = kept.into_iter().map(|place| Task { extra: place.rank >= min, place }).collect();
        let since = workload.running_since().unwrap_or(self.now);
        workload.phase =
            Phase::Running { tasks, leaving: Vec::new(), since, confirmed: true, passing: false };
        workload.spec.preemptible = preemptible;
        workload.evicted = None;
        self.forget_in_engine(id);
        self.must(&Change::Submitted(workload));
    }

    /// What was protected for a while can be evicted again.
    fn unprotect(&mut self, id: WorkloadId) {
        let now = self.now;
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        if group.protected.is_none_or(|until| until > now) {
            return;
        }
        group.protected = None;
        let Some(workload) = self.engine.workload(id).filter(|workload| workload.is_running()).cloned()
        else {
            return;
        };
        self.reinstate(id, workload, true);
    }

    pub(super) fn on_evicted(
        &mut self,
        id: WorkloadId,
        winner: Option<WorkloadId>,
        rule: EvictRule,
        lost: u128,
    ) {
        let now = self.now;
        let winner =
            winner.and_then(|winner| self.engine.workload(winner)).map(|winner| winner.spec.name.clone());
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.evicted = Some(now);
        group.evictions += 1;
        group.leaves_politely = true;
        group.said.evicted(rule, winner, lost);
    }

    fn drop_if_empty(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        let idle = self.engine.workload(id).is_none() && group.workload.is_none();
        let over = |uid| self.pods.get(uid).is_none_or(|pod| pod.is_over());
        if idle && group.pods.iter().all(over) {
            self.drop_group(id);
        }
    }
}

/// The wait before the next try: a second, then twice as long each time.
pub(super) fn back_off(tries: u32) -> Span {
    Span(1000u64.saturating_mul(1 << tries.saturating_sub(1).min(16))).min(BACK_OFF_MAX)
}

/// The time at which something happened, for people.
pub(super) fn stamp(at: Time) -> String {
    let at = i64::try_from(at.0).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.unwrap_or_default().to_string()
}
