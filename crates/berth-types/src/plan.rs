//! Plans: what the engine decided in one cycle.

use crate::{Place, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Why a workload may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartBasis {
    /// It keeps its project within quota.
    Quota,
    /// It borrows, and its project stays within its fair share.
    FairShare,
    /// It borrows idle capacity beyond its project's fair share.
    Idle,
    /// It replaces lower-priority work of its own project.
    Priority,
    /// It fills the places reserved for it.
    Reservation,
}

/// Which rule lets a victim be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EvictRule {
    /// For a workload within quota, from a project that borrows.
    QuotaReclaim,
    /// For a project within its fair share, from one above its own.
    ShareReclaim,
    /// For higher priority inside one project.
    Preemption,
    /// It was passing a reservation that can now be filled.
    Passing,
}

/// Why a workload is ended for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// Its own maximum run time or its project's time limit has passed.
    TimeLimit,
    /// Its GPUs were idle for longer than its project allows.
    Idle,
}

/// One decision. Decisions of a plan are carried out in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Start every task of the minimum in these places, together.
    Start {
        /// Who.
        workload: WorkloadId,
        /// Where.
        places: Vec<Place>,
        /// Why it may.
        basis: StartBasis,
        /// It uses capacity reserved for another and is the first to go.
        passing: bool,
    },
    /// Keep these places for a workload until those who leave them are gone.
    Hold {
        /// Who.
        workload: WorkloadId,
        /// Where.
        places: Vec<Place>,
        /// Why it may.
        basis: StartBasis,
    },
    /// Stop a workload and return it to the queue.
    Evict {
        /// Who.
        workload: WorkloadId,
        /// For whom.
        winner: WorkloadId,
        /// By which rule.
        rule: EvictRule,
        /// Work destroyed, in GPU-milliseconds.
        lost: u128,
    },
    /// Stop a workload and start it again in other places; or let one that is leaving go to other places instead
    /// of the queue.
    Move {
        /// Who.
        workload: WorkloadId,
        /// Where to.
        places: Vec<Place>,
        /// For whom; nobody when it was leaving already.
        winner: Option<WorkloadId>,
        /// Work destroyed, in GPU-milliseconds; zero when it was leaving already.
        lost: u128,
    },
    /// Start elastic extras of a running workload.
    Grow {
        /// Who.
        workload: WorkloadId,
        /// Where the extras go.
        places: Vec<Place>,
    },
    /// Stop elastic extras of a running workload.
    Shrink {
        /// Who.
        workload: WorkloadId,
        /// Which extras.
        ranks: Vec<u32>,
        /// For whom.
        winner: WorkloadId,
    },
    /// End a workload for good.
    Stop {
        /// Who.
        workload: WorkloadId,
        /// Why.
        reason: StopReason,
    },
    /// Name places for a workload that could not fit for long.
    Reserve {
        /// Who.
        workload: WorkloadId,
        /// Where.
        places: Vec<Place>,
    },
    /// Take back the places named for a workload.
    Unreserve {
        /// Who.
        workload: WorkloadId,
    },
}

impl Action {
    /// The workload this decision is about.
    pub fn workload(&self) -> WorkloadId {
        match self {
            Self::Start { workload, .. }
            | Self::Hold { workload, .. }
            | Self::Evict { workload, .. }
            | Self::Move { workload, .. }
            | Self::Grow { workload, .. }
            | Self::Shrink { workload, .. }
            | Self::Stop { workload, .. }
            | Self::Reserve { workload, .. }
            | Self::Unreserve { workload } => *workload,
        }
    }
}

/// What the engine decided in one cycle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The time the plan was made for.
    pub at: Time,
    /// The decisions, in the order they take effect.
    pub actions: Vec<Action>,
    /// When only time passes, the next instant at which the plan can change.
    pub wake: Option<Time>,
}

impl Plan {
    /// Workloads that lose a place to a winner: those evicted, moved or shrunk for it, by id.
    pub fn displaced_by(&self, winner: WorkloadId) -> BTreeSet<WorkloadId> {
        let displaced = self.actions.iter().filter_map(|action| match action {
            Action::Evict { workload, winner, .. }
            | Action::Shrink { workload, winner, .. }
            | Action::Move { workload, winner: Some(winner), .. } => Some((*workload, *winner)),
            _ => None,
        });
        displaced.filter(|(_, of)| *of == winner).map(|(workload, _)| workload).collect()
    }
}
