//! The nouns of Berth.
//!
//! Everything that crosses a crate boundary is written down here once: amounts, nodes and devices, departments and
//! projects, workloads and their phases, the changes that happen to them, and the plans that answer those changes.
//! This crate knows no clock, no socket and no scheduling rule.
//!
//! ```text
//! Change --apply--> State            (what is)
//! State  --engine--> Plan            (what to do)
//! Plan   --Change::Decided--> State  (what was decided)
//! ```

mod amount;
mod change;
mod completions;
mod ids;
mod node;
mod plan;
mod policy;
mod project;
mod reason;
mod request;
mod state;
mod wait;
mod workload;
mod workloads;

pub use amount::{AmountError, Bytes, Cpu, Gpus, Share, Span, Time};
pub use change::{Change, ChangeError, TaskOutcome};
pub use completions::{Completed, Turn, restart_pause};
pub use ids::{DepartmentId, NodeId, ProjectId, WorkloadId};
pub use node::{Device, DeviceShare, Node, NodeCondition, POOL_LABEL, Place, Selector, default_pool};
pub use plan::{Action, EvictRule, Plan, StartBasis, StopReason};
pub use policy::{MixEntry, Policy};
pub use project::{Department, Entitlement, Project};
pub use reason::{Account, Explanation, Holder, Passed, PassedQuota, Remedy, Verdict, WaitReason};
pub use request::{GpuRequest, Request, Tasks, Topology, TopologyLevel};
pub use state::{State, no_room, validate_entitlement, validate_node, validate_places, validate_submission};
pub use wait::{AccountUse, Blocker, QueuePosition, RequestChange, Suggestion, WaitDetails};
pub use workload::{AfterStop, Kind, Outcome, Phase, Reservation, Spread, Task, Workload, WorkloadSpec};
pub use workloads::{WorkloadMut, Workloads};

/// A shared, immutable name: of a model, a label, a pool.
pub type Name = std::sync::Arc<str>;
