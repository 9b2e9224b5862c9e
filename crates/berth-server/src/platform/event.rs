//! What can happen, as it is written down.

use super::{
    people::PeopleChange,
    record::{Stop, VolumeRecord, Warning},
};
use crate::platform::TaskReport;
use berth_api::{ProgressView, WorkloadRequest};
use berth_types::{
    Action, Department, DepartmentId, Name, Node, NodeId, Project, ProjectId, Span, Time, Workload,
    WorkloadId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One start of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct TaskKey {
    pub(crate) workload: WorkloadId,
    /// Which start of the workload, from one.
    pub(crate) run: u32,
    pub(crate) rank: u32,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TaskExit {
    Code(i32),
    Signal(i32),
    /// Nobody knows: its machine, or what watched over it, died.
    Lost,
    /// It never ran, and never will.
    Refused(String),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Happened {
    /// A node came or changed.
    Node {
        node: Node,
        draining: bool,
        /// It is cordoned because the last start did not name it. Logs of before say of no node that it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        missing: bool,
    },
    /// Somebody changed the labels of a node. `labels` is everything that was ever set (or removed, without a value) by hand; it
    /// wins over what a start declares.
    NodeLabels { node: Node, labels: BTreeMap<Name, Option<Name>> },
    /// A node went.
    NodeRemoved { id: NodeId, name: String },
    /// A department came or changed.
    Department { department: Department },
    /// A department went.
    DepartmentRemoved { id: DepartmentId, name: String },
    /// A project came or changed.
    Project { project: Project },
    /// A project went.
    ProjectRemoved { id: ProjectId, name: String },
    /// A volume was made.
    Volume { volume: VolumeRecord },
    /// A volume went.
    VolumeRemoved {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<String>,
    },
    /// Users, roles or tokens changed.
    People { change: PeopleChange },
    /// A workload was submitted.
    Submitted { workload: Box<Workload>, request: Box<WorkloadRequest> },
    /// Somebody asked for the end of a workload, or for a pause.
    Stopped { workload: WorkloadId, stop: Stop, by: String },
    /// A parked workload returns to the queue.
    Resumed { workload: WorkloadId, by: Option<String> },
    /// A task is known to run.
    TaskStarted { task: TaskKey, pid: Option<u32>, ports: Vec<(u16, u16)> },
    /// All tasks of a workload are known to run.
    Confirmed { workload: WorkloadId },
    /// A task is gone.
    TaskExited { task: TaskKey, exit: TaskExit },
    /// A workload saved its state.
    Checkpointed { workload: WorkloadId },
    /// The GPUs of a workload became idle, or busy again.
    Idle { workload: WorkloadId, since: Option<Time> },
    /// A workload said how far it is.
    Progressed { workload: WorkloadId, report: Box<TaskReport> },
    /// A limit is near, and somebody should know.
    Warned {
        workload: WorkloadId,
        warning: Warning,
        text: String,
        /// When the limit ends the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends: Option<Time>,
    },
    /// A finished workload is listed no more.
    Hidden { workload: WorkloadId },
    /// The engine decided something.
    Decided { action: Action },
}

impl Happened {
    /// Its name in the log.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Node { .. } => "node",
            Self::NodeLabels { .. } => "node-labels",
            Self::NodeRemoved { .. } => "node-removed",
            Self::Department { .. } => "department",
            Self::DepartmentRemoved { .. } => "department-removed",
            Self::Project { .. } => "project",
            Self::ProjectRemoved { .. } => "project-removed",
            Self::Volume { .. } => "volume",
            Self::VolumeRemoved { .. } => "volume-removed",
            Self::People { change } => change.kind(),
            Self::Submitted { .. } => "submitted",
            Self::Stopped { .. } => "stopped",
            Self::Resumed { .. } => "resumed",
            Self::TaskStarted { .. } => "task-started",
            Self::Confirmed { .. } => "running",
            Self::TaskExited { .. } => "task-exited",
            Self::Checkpointed { .. } => "checkpointed",
            Self::Idle { .. } => "idle",
            Self::Progressed { .. } => "progressed",
            Self::Warned { .. } => "warned",
            Self::Hidden { .. } => "hidden",
            Self::Decided { action } => match action {
                Action::Start { .. } => "started",
                Action::Hold { .. } => "held",
                Action::Evict { .. } => "evicted",
                Action::Move { .. } => "moved",
                Action::Grow { .. } => "grown",
                Action::Shrink { .. } => "shrunk",
                Action::Stop { .. } => "ended",
                Action::Reserve { .. } => "reserved",
                Action::Unreserve { .. } => "unreserved",
            },
        }
    }

    /// The workload it is about.
    pub(crate) fn workload(&self) -> Option<WorkloadId> {
        match self {
            Self::Submitted { workload, .. } => Some(workload.id),
            Self::Stopped { workload, .. }
            | Self::Resumed { workload, .. }
            | Self::Confirmed { workload }
            | Self::Checkpointed { workload }
            | Self::Idle { workload, .. }
            | Self::Progressed { workload, .. }
            | Self::Hidden { workload }
            | Self::Warned { workload, .. } => Some(*workload),
            Self::TaskStarted { task, .. } | Self::TaskExited { task, .. } => Some(task.workload),
            Self::Decided { action } => Some(action.workload()),
            _ => None,
        }
    }
}

/// Words about what happened, written with it: names may be gone when somebody reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workload_id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warning: bool,
    pub(crate) message: String,
    /// What a workload said of itself, so that its numbers can be drawn over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Box<ProgressView>>,
}

/// An event as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logged {
    pub(crate) happened: Happened,
    pub(crate) about: About,
}

/// What the agent is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) start: Vec<TaskKey>,
    pub(crate) stop: Vec<(TaskKey, Span)>,
    pub(crate) forget: Vec<WorkloadId>,
}

impl Orders {
    pub(crate) fn is_empty(&self) -> bool {
        self.start.is_empty() && self.stop.is_empty() && self.forget.is_empty()
    }
}
