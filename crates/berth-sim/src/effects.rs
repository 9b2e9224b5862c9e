//! What a cluster does with decisions: tasks start, work, save, end and leave.

use crate::{
    verify::one,
    work::{Checkpoints, Progress, Work},
    world::{Event, World},
};
use berth_types::{Action, AfterStop, Change, Gpus, Phase, Place, Span, TaskOutcome, Time, WorkloadId};

impl World {
    pub(crate) fn on_decided(&mut self, change: &Change) {
        let Change::Decided { action, .. } = change else {
            return;
        };
        match action {
            Action::Start { workload, places, .. } => {
                let workload = *workload;
                let progress = self.progress_of(workload);
                progress.run += 1;
                progress.confirm_token += 1;
                progress.stopping.clear();
                let (run, token) = (progress.run, progress.confirm_token);
                let at = self.now + self.start_delay();
                if self.random.percent(self.options.faults.refused) {
                    self.push(at, Event::Refuse { workload, run });
                } else {
                    self.push(at, Event::Begun { workload, token });
                }
                self.lose_starts(workload, places);
            }
            Action::Grow { workload, places } => {
                let workload = *workload;
                let progress = self.progress_of(workload);
                progress.confirm_token += 1;
                let token = progress.confirm_token;
                let at = self.now + self.start_delay();
                self.push(at, Event::Begun { workload, token });
                self.lose_starts(workload, places);
            }
            _ => {}
        }
        self.follow(action.workload());
    }

    /// Compares what a workload does with what it is, and schedules what follows from the difference.
    pub(crate) fn follow(&mut self, id: WorkloadId) {
        let Some(workload) = self.state.workloads.get(&id) else {
            return;
        };
        let tasks = match &workload.phase {
            Phase::Running { tasks, .. } => tasks.len() as u64,
            _ => 0,
        };
        let leaving: Vec<u32> = workload.leaving().iter().map(|place| place.rank).collect();
        let gpus: Gpus = workload.places().map(Place::gpus).sum();
        let project = workload.spec.project;
        let ends = matches!(
            workload.phase,
            Phase::Finished { .. } | Phase::Stopping { then: AfterStop::Finish(_), .. }
        );
        let delay = workload.spec.grace.min(self.options.stop_delay).max(Span(1));

        let now = self.now;
        let progress = self.progress_of(id);
        let counted = std::mem::replace(&mut progress.gpus, gpus);
        if tasks == 0 && progress.rate() > 0 && !ends {
            progress.interrupt(now);
        } else if tasks < progress.rate() {
            progress.set_rate(now, tasks);
        }
        let run = progress.run;
        let new: Vec<u32> =
            leaving.iter().copied().filter(|rank| !progress.stopping.contains(rank)).collect();
        progress.stopping = leaving.into_iter().collect();
        self.count_gpus(project, counted, gpus);
        self.schedule_end(id);
        for rank in new {
            let late = self.lateness();
            self.push(now + delay + late, Event::Stopped { workload: id, rank, run });
        }
    }

    pub(crate) fn on_event(&mut self, event: Event) {
        let at = self.now;
        match event {
            Event::Outside(change) => {
                if let Err(error) = self.take((*change).clone()) {
                    self.find(vec![one("outside-change", format!("{change:?}: {error}"))]);
                }
            }
            Event::Begun { workload, token } => self.on_begun(workload, token),
            Event::Confirm { workload, token } => {
                if self.awaits_confirmation(workload, token) {
                    self.must_take(Change::Confirmed { workload });
                }
            }
            Event::Refuse { workload, run } => {
                let unconfirmed = self.state.workloads.get(&workload).is_some_and(|workload| {
                    matches!(workload.phase, Phase::Running { confirmed: false, .. })
                });
                if unconfirmed && self.progress_of(workload).run == run {
                    self.must_take(Change::Refused { workload, at });
                }
            }
            Event::Stopped { workload, rank, run, .. } => {
                if self.progress_of(workload).run == run && self.is_leaving(workload, rank) {
                    self.must_take(Change::Stopped { workload, rank, at });
                }
            }
            Event::Done { workload, token } => {
                if self.progress_of(workload).token == token {
                    self.on_done(workload);
                }
            }
            Event::Checkpoint { workload, run } => self.on_checkpoint_due(workload, run),
            Event::StartedOnLost { workload, rank } => {
                let there = self.state.workloads.get(&workload).is_some_and(|found| {
                    found.occupied().any(|place| place.rank == rank && self.lost.contains_key(&place.node))
                });
                if there {
                    let outcome = TaskOutcome::Lost;
                    self.must_take(Change::Ended { workload, rank, outcome, at });
                }
            }
            Event::NodeBack(node) => self.restore_node(node),
        }
    }

    fn on_begun(&mut self, workload: WorkloadId, token: u64) {
        if !self.awaits_confirmation(workload, token) {
            return;
        }
        let now = self.now;
        let tasks = self.tasks_running(workload).len() as u64;
        let progress = self.progress_of(workload);
        let first = progress.rate() == 0;
        progress.set_rate(now, tasks);
        let (run, checkpoints) = (progress.run, progress.work.checkpoints);
        self.schedule_end(workload);
        if let (true, Checkpoints::Every(span)) = (first, checkpoints) {
            self.push(now + span.max(Span(1)), Event::Checkpoint { workload, run });
        }
        let faults = &self.options.faults;
        let (lost, resend) = (faults.lost, faults.resend_after);
        let mut late = self.lateness();
        // A lost confirmation is sent again by whoever did not hear an answer, possibly more than once.
        while self.random.percent(lost) {
            late = late.saturating_add(resend);
        }
        if late.is_zero() {
            self.must_take(Change::Confirmed { workload });
        } else {
            self.push(now + late, Event::Confirm { workload, token });
        }
    }

    fn on_done(&mut self, workload: WorkloadId) {
        let at = self.now;
        let minimum: Vec<u32> = match self.state.workloads.get(&workload).map(|found| &found.phase) {
            Some(Phase::Running { tasks, .. }) => {
                tasks.iter().filter(|task| !task.extra).map(|task| task.place.rank).collect()
            }
            _ => return,
        };
        for rank in minimum {
            let outcome = TaskOutcome::Succeeded;
            self.must_take(Change::Ended { workload, rank, outcome, at });
        }
    }

    fn on_checkpoint_due(&mut self, workload: WorkloadId, run: u64) {
        let at = self.now;
        let progress = self.progress_of(workload);
        let Checkpoints::Every(span) = progress.work.checkpoints else {
            return;
        };
        if progress.run != run || progress.rate() == 0 {
            return;
        }
        progress.save(at);
        self.must_take(Change::Checkpointed { workload, at });
        self.push(at + span.max(Span(1)), Event::Checkpoint { workload, run });
    }

    /// An end that moved is scheduled again; the old event is stale by its token.
    fn schedule_end(&mut self, workload: WorkloadId) {
        let progress = self.progress_of(workload);
        if progress.scheduled == progress.token {
            return;
        }
        progress.scheduled = progress.token;
        let token = progress.token;
        if let Some(at) = progress.end() {
            let at = at.max(Time(self.now.0 + 1));
            self.push(at, Event::Done { workload, token });
        }
    }

    /// Tasks told to start on a node that is gone never run; that is noticed a moment later.
    fn lose_starts(&mut self, workload: WorkloadId, places: &[Place]) {
        for place in places {
            if self.lost.contains_key(&place.node) {
                let rank = place.rank;
                self.push(self.now + Span(1), Event::StartedOnLost { workload, rank });
            }
        }
    }

    fn awaits_confirmation(&self, workload: WorkloadId, token: u64) -> bool {
        let current = self.progress.get(&workload).is_some_and(|progress| progress.confirm_token == token);
        let unconfirmed = self
            .state
            .workloads
            .get(&workload)
            .is_some_and(|workload| matches!(workload.phase, Phase::Running { confirmed: false, .. }));
        current && unconfirmed
    }

    fn is_leaving(&self, workload: WorkloadId, rank: u32) -> bool {
        self.state
            .workloads
            .get(&workload)
            .is_some_and(|found| found.leaving().iter().any(|place| place.rank == rank))
    }

    fn tasks_running(&self, workload: WorkloadId) -> &[berth_types::Task] {
        match self.state.workloads.get(&workload).map(|found| &found.phase) {
            Some(Phase::Running { tasks, .. }) => tasks,
            _ => &[],
        }
    }

    /// Work submitted without any runs until it is stopped.
    fn progress_of(&mut self, workload: WorkloadId) -> &mut Progress {
        self.progress.entry(workload).or_insert_with(|| Progress::new(Work::default(), 1))
    }

    fn start_delay(&self) -> Span {
        self.options.start_delay.max(Span(1))
    }

    /// How much later than usual a piece of news arrives.
    fn lateness(&mut self) -> Span {
        let faults = &self.options.faults;
        let (late, most) = (faults.late, faults.late_by);
        if self.random.percent(late) { Span(1 + self.random.below(most.0)) } else { Span::ZERO }
    }
}
