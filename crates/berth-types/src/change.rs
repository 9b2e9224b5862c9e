//! Changes: everything that can happen, in one list.

use crate::{
    Action, AfterStop, Department, DepartmentId, Node, NodeId, Outcome, Phase, Project, ProjectId, Task,
    Time, Workload, WorkloadId,
};
use serde::{Deserialize, Serialize};

/// How a task ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// It did its work.
    Succeeded,
    /// It failed.
    Failed,
    /// Its node is gone, and it with it.
    Lost,
}

/// Something that happened.
// A submission is much larger than the rest. Boxed, every submission would cost one more allocation, and all that is saved
// is room in the few changes that are in memory at a time.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A node came or changed.
    NodeSet(Node),
    /// A node went; tasks on it are reported separately, and before.
    NodeRemoved(NodeId),
    /// A department came or changed.
    DepartmentSet(Department),
    /// A department went; it must be empty.
    DepartmentRemoved(DepartmentId),
    /// A project came or changed.
    ProjectSet(Project),
    /// A project went; it must have no unfinished workload.
    ProjectRemoved(ProjectId),
    /// A workload was submitted.
    Submitted(Workload),
    /// Somebody asked for the end of a workload.
    Cancelled {
        /// Which.
        workload: WorkloadId,
        /// When.
        at: Time,
    },
    /// A finished workload is forgotten.
    Forgotten(WorkloadId),
    /// All tasks of a started workload are known to run.
    Confirmed {
        /// Which.
        workload: WorkloadId,
    },
    /// A leaving task is gone.
    Stopped {
        /// Whose.
        workload: WorkloadId,
        /// Which task.
        rank: u32,
        /// When.
        at: Time,
    },
    /// A running task ended by itself.
    Ended {
        /// Whose.
        workload: WorkloadId,
        /// Which task.
        rank: u32,
        /// How.
        outcome: TaskOutcome,
        /// When.
        at: Time,
    },
    /// A started workload could not be started, or a held one never will be because its node is gone; its places are given
    /// back.
    Refused {
        /// Which.
        workload: WorkloadId,
        /// When.
        at: Time,
    },
    /// A workload saved its state.
    Checkpointed {
        /// Which.
        workload: WorkloadId,
        /// When.
        at: Time,
    },
    /// The GPUs of a workload became idle, or busy again.
    Idle {
        /// Which.
        workload: WorkloadId,
        /// Since when.
        since: Option<Time>,
    },
    /// The engine decided something.
    Decided {
        /// What.
        action: Action,
        /// When.
        at: Time,
    },
}

impl Change {
    /// The existing workload this change is about, if it is about one.
    pub fn workload(&self) -> Option<WorkloadId> {
        match self {
            Self::Cancelled { workload, .. }
            | Self::Confirmed { workload }
            | Self::Stopped { workload, .. }
            | Self::Ended { workload, .. }
            | Self::Refused { workload, .. }
            | Self::Checkpointed { workload, .. }
            | Self::Idle { workload, .. } => Some(*workload),
            Self::Decided { action, .. } => Some(action.workload()),
            _ => None,
        }
    }
}

/// Why a change cannot be taken. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// No such workload.
    #[error("there is no workload {0}")]
    UnknownWorkload(WorkloadId),
    /// No such project.
    #[error("there is no project {0}")]
    UnknownProject(ProjectId),
    /// No such department.
    #[error("there is no department {0}")]
    UnknownDepartment(DepartmentId),
    /// No such node.
    #[error("there is no node {0}")]
    UnknownNode(NodeId),
    /// The id is taken.
    #[error("there is a workload {0} already")]
    DuplicateWorkload(WorkloadId),
    /// A department would contain itself.
    #[error("department {0} would be part of itself")]
    CyclicDepartment(DepartmentId),
    /// Others still belong to it.
    #[error("{0} is still in use")]
    InUse(String),
    /// A field is outside its bounds.
    #[error("{0}")]
    Invalid(String),
    /// The workload is in no phase in which this can happen.
    #[error("workload {workload} is {phase}, so it cannot be {change}")]
    WrongPhase {
        /// Which workload.
        workload: WorkloadId,
        /// What it is.
        phase: &'static str,
        /// What was to happen.
        change: &'static str,
    },
}

impl Workload {
    /// Lets a change happen to this workload.
    pub fn apply(&mut self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::Cancelled { at, .. } => self.on_end(Outcome::Cancelled, *at),
            Change::Confirmed { .. } => match &mut self.phase {
                Phase::Running { confirmed, .. } => {
                    *confirmed = true;
                    Ok(())
                }
                _ => Err(self.wrong_phase("confirmed")),
            },
            Change::Stopped { rank, at, .. } => self.on_stopped(*rank, *at),
            Change::Ended { rank, outcome, at, .. } => self.on_task_ended(*rank, *outcome, *at),
            Change::Refused { at, .. } => match &mut self.phase {
                // What could not be started are the extras; the minimum runs.
                Phase::Running { tasks, confirmed: confirmed @ false, .. }
                    if tasks.iter().any(|task| task.extra) =>
                {
                    tasks.retain(|task| !task.extra);
                    *confirmed = true;
                    Ok(())
                }
                Phase::Running { leaving, confirmed: false, .. } | Phase::Held { leaving, .. } => {
                    let leaving = leaving.clone();
                    self.requeue_or_stop(leaving, AfterStop::Requeue, *at);
                    Ok(())
                }
                _ => Err(self.wrong_phase("refused")),
            },
            Change::Checkpointed { at, .. } => match self.phase {
                Phase::Running { .. } | Phase::Stopping { .. } => {
                    self.checkpoint = Some(*at);
                    Ok(())
                }
                _ => Err(self.wrong_phase("checkpointed")),
            },
            Change::Idle { since, .. } => {
                self.idle_since = *since;
                Ok(())
            }
            Change::Decided { action, at } => self.on_decided(action, *at),
            _ => Err(self.wrong_phase("changed this way")),
        }
    }

    fn on_decided(&mut self, action: &Action, at: Time) -> Result<(), ChangeError> {
        match (action, &mut self.phase) {
            (Action::Start { places, passing, .. }, Phase::Queued { .. }) => {
                self.start(places.clone(), Vec::new(), *passing, at);
            }
            (Action::Start { places, passing, .. }, Phase::Held { places: held, leaving, .. }) => {
                if !leaving.is_empty() || places != held {
                    return Err(self.wrong_phase("started before its place is free"));
                }
                self.start(places.clone(), Vec::new(), *passing, at);
            }
            (Action::Hold { places, basis, .. }, Phase::Queued { .. }) => {
                let (places, basis) = (places.clone(), Some(*basis));
                self.phase = Phase::Held { places, basis, leaving: Vec::new() };
            }
            (Action::Evict { .. }, Phase::Running { tasks, leaving, .. }) => {
                let mut leaving = std::mem::take(leaving);
                leaving.extend(tasks.drain(..).map(|task| task.place));
                self.evicted = Some(at);
                self.requeue_or_stop(leaving, AfterStop::Requeue, at);
            }
            (Action::Evict { .. }, Phase::Held { leaving, .. }) => {
                let leaving = std::mem::take(leaving);
                self.evicted = Some(at);
                self.requeue_or_stop(leaving, AfterStop::Requeue, at);
            }
            (Action::Move { places, .. }, Phase::Running { tasks, leaving, .. }) => {
                let mut leaving = std::mem::take(leaving);
                leaving.extend(tasks.drain(..).map(|task| task.place));
                self.evicted = Some(at);
                self.idle_since = None;
                self.phase = Phase::Held { places: places.clone(), basis: None, leaving };
            }
            (Action::Move { places, .. }, Phase::Stopping { leaving, then: AfterStop::Requeue }) => {
                let leaving = std::mem::take(leaving);
                self.phase = Phase::Held { places: places.clone(), basis: None, leaving };
            }
            (Action::Grow { places, .. }, Phase::Running { tasks, confirmed, .. }) => {
                tasks.extend(places.iter().map(|place| Task { place: place.clone(), extra: true }));
                *confirmed = false;
            }
            (Action::Shrink { ranks, .. }, Phase::Running { tasks, leaving, .. }) => {
                let (gone, kept): (Vec<_>, Vec<_>) =
                    tasks.drain(..).partition(|task| task.extra && ranks.contains(&task.place.rank));
                *tasks = kept;
                leaving.extend(gone.into_iter().map(|task| task.place));
                self.evicted = Some(at);
            }
            (Action::Stop { .. }, Phase::Running { .. }) => return self.on_end(Outcome::TimedOut, at),
            (Action::Reserve { places, .. }, Phase::Queued { reservation }) => {
                *reservation = Some(crate::Reservation { places: places.clone(), since: at });
            }
            (Action::Unreserve { .. }, Phase::Queued { reservation }) => *reservation = None,
            (action, _) => return Err(self.wrong_phase(verb(action))),
        }
        Ok(())
    }

    fn start(&mut self, places: Vec<crate::Place>, leaving: Vec<crate::Place>, passing: bool, at: Time) {
        let tasks = places.into_iter().map(|place| Task { place, extra: false }).collect();
        self.idle_since = None;
        self.phase = Phase::Running { tasks, leaving, since: at, confirmed: false, passing };
    }

    fn on_end(&mut self, outcome: Outcome, at: Time) -> Result<(), ChangeError> {
        let leaving = match &mut self.phase {
            Phase::Finished { .. } => return Err(self.wrong_phase("ended")),
            Phase::Queued { .. } => Vec::new(),
            Phase::Held { leaving, .. } | Phase::Stopping { leaving, .. } => std::mem::take(leaving),
            Phase::Running { tasks, leaving, .. } => {
                let mut leaving = std::mem::take(leaving);
                leaving.extend(tasks.drain(..).map(|task| task.place));
                leaving
            }
        };
        self.requeue_or_stop(leaving, AfterStop::Finish(outcome), at);
        Ok(())
    }

    fn on_stopped(&mut self, rank: u32, at: Time) -> Result<(), ChangeError> {
        let leaving = match &mut self.phase {
            Phase::Held { leaving, .. }
            | Phase::Running { leaving, .. }
            | Phase::Stopping { leaving, .. } => leaving,
            _ => return Err(self.wrong_phase("stopped")),
        };
        let Some(position) = leaving.iter().position(|place| place.rank == rank) else {
            return Err(ChangeError::Invalid(format!("task {rank} of workload {} is not leaving", self.id)));
        };
        leaving.remove(position);
        if let Phase::Stopping { leaving, then } = &mut self.phase {
            let (leaving, then) = (std::mem::take(leaving), *then);
            self.requeue_or_stop(leaving, then, at);
        }
        Ok(())
    }

    fn on_task_ended(&mut self, rank: u32, outcome: TaskOutcome, at: Time) -> Result<(), ChangeError> {
        if self.leaving().iter().any(|place| place.rank == rank) {
            return self.on_stopped(rank, at);
        }
        let Phase::Running { tasks, leaving, .. } = &mut self.phase else {
            return Err(self.wrong_phase("ended"));
        };
        let Some(position) = tasks.iter().position(|task| task.place.rank == rank) else {
            return Err(ChangeError::Invalid(format!("task {rank} of workload {} does not run", self.id)));
        };
        let ended = tasks.remove(position);
        match outcome {
            TaskOutcome::Succeeded if tasks.iter().any(|task| !task.extra) => {}
            TaskOutcome::Failed | TaskOutcome::Lost if ended.extra => {}
            TaskOutcome::Succeeded => {
                let mut leaving = std::mem::take(leaving);
                leaving.extend(tasks.drain(..).map(|task| task.place));
                self.requeue_or_stop(leaving, AfterStop::Finish(Outcome::Succeeded), at);
            }
            TaskOutcome::Failed | TaskOutcome::Lost => {
                let mut leaving = std::mem::take(leaving);
                leaving.extend(tasks.drain(..).map(|task| task.place));
                self.failures = self.failures.saturating_add(1);
                // A lost node is not the workload's fault, so it does not use up a retry.
                let again = outcome == TaskOutcome::Lost || self.failures <= self.spec.retry_limit;
                let then = if again { AfterStop::Requeue } else { AfterStop::Finish(Outcome::Failed) };
                self.requeue_or_stop(leaving, then, at);
            }
        }
        Ok(())
    }

    fn requeue_or_stop(&mut self, leaving: Vec<crate::Place>, then: AfterStop, at: Time) {
        self.phase = match (leaving.is_empty(), then) {
            (false, then) => Phase::Stopping { leaving, then },
            (true, AfterStop::Requeue) => Phase::Queued { reservation: None },
            (true, AfterStop::Finish(outcome)) => Phase::Finished { outcome, at },
        };
    }

    fn wrong_phase(&self, change: &'static str) -> ChangeError {
        let phase = match self.phase {
            Phase::Queued { .. } => "queued",
            Phase::Held { .. } => "held",
            Phase::Running { .. } => "running",
            Phase::Stopping { .. } => "stopping",
            Phase::Finished { .. } => "finished",
        };
        ChangeError::WrongPhase { workload: self.id, phase, change }
    }
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Start { .. } => "started",
        Action::Hold { .. } => "held",
        Action::Evict { .. } => "evicted",
        Action::Move { .. } => "moved",
        Action::Grow { .. } => "grown",
        Action::Shrink { .. } => "shrunk",
        Action::Stop { .. } => "ended",
        Action::Reserve { .. } => "reserved for",
        Action::Unreserve { .. } => "unreserved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bytes, Cpu, DeviceShare, GpuRequest, Kind, Place, Request, Selector, Share, Span, Spread, StartBasis,
        Tasks, Topology, WorkloadSpec, default_pool,
    };
    use std::num::NonZeroU8;

    const AT: Time = Time(1_000);

    fn place(device: u8) -> Place {
        let devices = vec![DeviceShare { device, share: Share::WHOLE }];
        Place { rank: 0, node: NodeId(1), devices, cpu: Cpu::ZERO, memory: Bytes::ZERO }
    }

    fn submitted() -> Workload {
        let gpu = GpuRequest::Whole(NonZeroU8::MIN);
        let spec = WorkloadSpec {
            name: "train".into(),
            project: ProjectId(1),
            user: "user".into(),
            kind: Kind::Train,
            request: Request { gpu, models: Default::default(), cpu: Cpu::ZERO, memory: Bytes::ZERO },
            tasks: Tasks::ONE,
            pool: default_pool(),
            selector: Selector::default(),
            topology: Topology::default(),
            spread: Spread::Pack,
            priority: 50,
            preemptible: true,
            max_run: None,
            retry_limit: 0,
            grace: Span::secs(30),
        };
        Workload::submitted(WorkloadId(1), spec, Time(0))
    }

    fn decide(workload: &mut Workload, action: Action) {
        workload.apply(&Change::Decided { action, at: AT }).expect("it can be decided");
    }

    fn refuse(workload: &mut Workload) -> Result<(), ChangeError> {
        workload.apply(&Change::Refused { workload: workload.id, at: AT })
    }

    #[test]
    fn a_held_workload_that_is_refused_returns_to_the_queue() {
        let mut own = submitted();
        let (workload, basis) = (own.id, StartBasis::Quota);
        decide(&mut own, Action::Hold { workload, places: vec![place(0)], basis });
        assert_eq!(refuse(&mut own), Ok(()));
        assert_eq!(own.phase, Phase::Queued { reservation: None });
        assert_eq!(own.failures, 0, "it is not the workload's fault");
        assert!(refuse(&mut own).is_err(), "there is nothing left to refuse");
    }

    #[test]
    fn a_moved_workload_that_is_refused_still_leaves_its_former_places() {
        let mut own = submitted();
        let (workload, basis) = (own.id, StartBasis::Quota);
        decide(&mut own, Action::Start { workload, places: vec![place(0)], basis, passing: false });
        decide(&mut own, Action::Move { workload, places: vec![place(1)], winner: None, lost: 0 });
        assert_eq!(refuse(&mut own), Ok(()));
        assert_eq!(own.phase, Phase::Stopping { leaving: vec![place(0)], then: AfterStop::Requeue });
        own.apply(&Change::Stopped { workload, rank: 0, at: AT }).expect("it is leaving");
        assert_eq!(own.phase, Phase::Queued { reservation: None });
    }

    #[test]
    fn a_workload_that_is_known_to_run_cannot_be_refused() {
        let mut own = submitted();
        let (workload, basis) = (own.id, StartBasis::Quota);
        decide(&mut own, Action::Start { workload, places: vec![place(0)], basis, passing: false });
        own.apply(&Change::Confirmed { workload }).expect("it runs");
        let before = own.clone();
        assert!(refuse(&mut own).is_err());
        assert_eq!(own, before);
    }
}
