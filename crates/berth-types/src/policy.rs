//! Settings of the engine that are not anybody's entitlement.

use crate::{Request, Span};
use serde::{Deserialize, Serialize};

/// How often a request is expected, relative to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixEntry {
    /// What a task asks for.
    pub request: Request,
    /// How often, in any unit.
    pub count: u64,
}

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// A head that waited this long without fitting gets a reservation.
    pub reserve_after: Span,
    /// Reservations at one time in one pool.
    pub reservations_per_pool: usize,
    /// Work lost by a job without checkpoints counts at most this long per GPU.
    pub lost_cap: Span,
    /// Time a restart costs, charged to every move.
    pub restart_cost: Span,
    /// Share reclaim and moves are for work that has waited this long, and disturb only work that has run this long.
    /// What is owed within quota never waits for it.
    pub patience: Span,
    /// Whether running work may be moved to let waiting work start.
    pub moves: bool,
    /// Steps of one search for victims beyond what bounds and the greedy search decide.
    pub search_steps: u32,
    /// The expected mix of requests; empty learns it from the workloads that are there.
    pub mix: Vec<MixEntry>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            reserve_after: Span::secs(600),
            reservations_per_pool: 4,
            lost_cap: Span::secs(3600),
            restart_cost: Span::secs(30),
            patience: Span::secs(3600),
            moves: true,
            search_steps: 20_000,
            mix: Vec::new(),
        }
    }
}
