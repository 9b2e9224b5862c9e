//! Workloads and the phases they go through.

use crate::{
    Gpus, Name, NodeId, Place, ProjectId, Request, Selector, Span, StartBasis, Tasks, Time, Topology,
    WorkloadId,
};
use serde::{Deserialize, Serialize};

/// The kind of work, which sets its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Unattended training.
    Train,
    /// A person is waiting: a shell, a notebook.
    Interactive,
    /// Training by a gang of workers.
    Distributed,
    /// Serving.
    Inference,
}

impl Kind {
    /// Whether work of this kind may be evicted unless it says otherwise.
    pub fn preemptible(self) -> bool {
        matches!(self, Self::Train | Self::Distributed)
    }

    /// The priority of work of this kind unless it says otherwise.
    pub fn priority(self, preemptible: bool) -> i32 {
        match self {
            Self::Inference => 125,
            Self::Interactive if preemptible => 75,
            Self::Interactive => 100,
            Self::Train | Self::Distributed => 50,
        }
    }
}

/// How the tasks of a workload are laid out over nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Spread {
    /// Close together, so that large work still fits.
    #[default]
    Pack,
    /// Over as many nodes as possible.
    Spread,
    /// Never two on one node, or the gang waits.
    Apart,
}

impl Spread {
    /// What is meant by somebody who asks for many nodes, or for no two on one; the second says the more.
    pub fn asked(spread: bool, apart: bool) -> Self {
        match (spread, apart) {
            (_, true) => Self::Apart,
            (true, false) => Self::Spread,
            (false, false) => Self::Pack,
        }
    }
}

/// What a user submits, as far as placing it is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadSpec {
    /// Its name, for people.
    pub name: String,
    /// Who owns it.
    pub project: ProjectId,
    /// Who submitted it.
    pub user: String,
    /// Its kind.
    pub kind: Kind,
    /// What each task asks for.
    pub request: Request,
    /// How many tasks.
    pub tasks: Tasks,
    /// The pool it runs in.
    pub pool: Name,
    /// Nodes it may use, within those its project may use.
    pub selector: Selector,
    /// How close its tasks must be.
    pub topology: Topology,
    /// How its tasks are laid out.
    pub spread: Spread,
    /// Order inside its project; higher first.
    pub priority: i32,
    /// Whether it may be evicted.
    pub preemptible: bool,
    /// It ends by itself, or is ended, after running this long.
    pub max_run: Option<Span>,
    /// How often a failed or lost run is started again.
    pub retry_limit: u32,
    /// Time between notice and the end when it is evicted.
    pub grace: Span,
}

/// A task in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Where it is.
    pub place: Place,
    /// An elastic extra: not part of the minimum, first to go.
    pub extra: bool,
}

/// Places named for a workload that could not fit for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The named places, one per task of the minimum.
    pub places: Vec<Place>,
    /// When they were named.
    pub since: Time,
}

/// How a workload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every task ended well.
    Succeeded,
    /// A task failed and no retry was left.
    Failed,
    /// Somebody asked for its end.
    Cancelled,
    /// A time limit or idle limit ended it.
    TimedOut,
}

/// What happens when the last leaving task is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterStop {
    /// Back to the queue, with its place there.
    Requeue,
    /// It is over.
    Finish(Outcome),
}

/// Where a workload stands. `leaving` places are still occupied by tasks that were told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for a decision.
    Queued {
        /// Places named for it, once it has waited long.
        reservation: Option<Reservation>,
    },
    /// Its places are decided; it starts when those who leave them are gone.
    Held {
        /// The decided places, one per task of the minimum.
        places: Vec<Place>,
        /// Why it may start; none when it was moved here.
        basis: Option<StartBasis>,
        /// Its own former places, when it is being moved.
        leaving: Vec<Place>,
    },
    /// Its tasks have been told to start.
    Running {
        /// Its tasks; the minimum without gaps, then extras.
        tasks: Vec<Task>,
        /// Extras that were told to stop.
        leaving: Vec<Place>,
        /// When this run was started.
        since: Time,
        /// Whether all tasks are known to run.
        confirmed: bool,
        /// It started on capacity reserved for another and is the first to go.
        passing: bool,
    },
    /// All of its tasks have been told to stop.
    Stopping {
        /// Places still occupied.
        leaving: Vec<Place>,
        /// What comes then.
        then: AfterStop,
    },
    /// It is over.
    Finished {
        /// How.
        outcome: Outcome,
        /// When.
        at: Time,
    },
}

/// A workload: what was asked, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its identity.
    pub id: WorkloadId,
    /// What was asked.
    pub spec: WorkloadSpec,
    /// When; its place in the queue, kept through evictions.
    pub submitted: Time,
    /// Where it stands.
    pub phase: Phase,
    /// The last checkpoint of this or an earlier run.
    pub checkpoint: Option<Time>,
    /// When it was last evicted, moved or shrunk.
    pub evicted: Option<Time>,
    /// Since when its GPUs have been idle.
    pub idle_since: Option<Time>,
    /// Failed or lost runs so far.
    pub failures: u32,
}

impl Workload {
    /// A workload that has just been submitted.
    pub fn submitted(id: WorkloadId, spec: WorkloadSpec, at: Time) -> Self {
        Self {
            id,
            spec,
            submitted: at,
            phase: Phase::Queued { reservation: None },
            checkpoint: None,
            evicted: None,
            idle_since: None,
            failures: 0,
        }
    }

    /// Places that count for it: decided or running, not those it is leaving.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (held, tasks): (&[Place], &[Task]) = match &self.phase {
            Phase::Held { places, .. } => (places, &[]),
            Phase::Running { tasks, .. } => (&[], tasks),
            _ => (&[], &[]),
        };
        held.iter().chain(tasks.iter().map(|task| &task.place))
    }

    /// Places that count for it and are not elastic extras.
    pub fn base_places(&self) -> impl Iterator<Item = &Place> {
        let (held, tasks): (&[Place], &[Task]) = match &self.phase {
            Phase::Held { places, .. } => (places, &[]),
            Phase::Running { tasks, .. } => (&[], tasks),
            _ => (&[], &[]),
        };
        held.iter().chain(tasks.iter().filter(|task| !task.extra).map(|task| &task.place))
    }

    /// Places of elastic extras.
    pub fn extra_places(&self) -> impl Iterator<Item = &Place> {
        let tasks: &[Task] = match &self.phase {
            Phase::Running { tasks, .. } => tasks,
            _ => &[],
        };
        tasks.iter().filter(|task| task.extra).map(|task| &task.place)
    }

    /// Places whose tasks were told to stop and are not known to be gone.
    pub fn leaving(&self) -> &[Place] {
        match &self.phase {
            Phase::Held { leaving, .. }
            | Phase::Running { leaving, .. }
            | Phase::Stopping { leaving, .. } => leaving,
            _ => &[],
        }
    }

    /// Places that are physically in use: started, or leaving and not gone.
    pub fn occupied(&self) -> impl Iterator<Item = &Place> {
        let tasks: &[Task] = match &self.phase {
            Phase::Running { tasks, .. } => tasks,
            _ => &[],
        };
        tasks.iter().map(|task| &task.place).chain(self.leaving())
    }

    /// Places named for it while it waits.
    pub fn reserved_places(&self) -> &[Place] {
        match &self.phase {
            Phase::Queued { reservation: Some(reservation) } => &reservation.places,
            _ => &[],
        }
    }

    /// Whether its reservation names a place on this node.
    pub fn reserved_on(&self, node: NodeId) -> bool {
        self.reserved_places().iter().any(|place| place.node == node)
    }

    /// Whether it waits for a decision.
    pub fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// Whether its tasks have been told to start and not to stop.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Whether it is over.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// When the current run was started.
    pub fn running_since(&self) -> Option<Time> {
        match self.phase {
            Phase::Running { since, .. } => Some(since),
            _ => None,
        }
    }

    /// When its wait began: with its submission, and anew with each eviction.
    pub fn waits_since(&self) -> Time {
        self.evicted.map_or(self.submitted, |evicted| evicted.max(self.submitted))
    }

    /// The work an eviction at `now` destroys, in GPU-milliseconds: since the last checkpoint or start. Without
    /// checkpoints it counts at most `cap` per GPU.
    pub fn work_lost(&self, now: Time, cap: Span) -> u128 {
        let Some(start) = self.running_since() else {
            return 0;
        };
        let span = match self.checkpoint {
            Some(checkpoint) => now.since(start.max(checkpoint)),
            None => now.since(start).min(cap),
        };
        let gpus: Gpus = self.places().map(Place::gpus).sum();
        u128::from(gpus.0) * u128::from(span.0) / u128::from(Gpus::SCALE)
    }
}
