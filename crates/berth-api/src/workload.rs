//! Workloads as they are shown.

use crate::{GpuAmount, KindName, MemoryAmount, Timestamp, WorkloadRequest};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use utoipa::{IntoParams, ToSchema};

/// Where a workload stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum Status {
    /// Waits for its place.
    Pending,
    /// Has its place; others are leaving it, or its processes are being started.
    Starting,
    /// Runs.
    Running,
    /// Was told to stop, and will return to the queue.
    Stopping,
    /// Was told to stop for good.
    Terminating,
    /// Stopped by a person or by an idle limit, until it is resumed.
    Suspended,
    /// Failed, and is started again after a pause.
    BackOff,
    /// Did its work.
    Succeeded,
    /// Failed, and no retry is left.
    Failed,
    /// Ended by a time limit.
    TimedOut,
    /// Deleted by a person.
    Deleted,
}

impl Status {
    /// Whether it is over.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::TimedOut | Self::Deleted)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "Pending",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Terminating => "Terminating",
            Self::Suspended => "Suspended",
            Self::BackOff => "BackOff",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::TimedOut => "TimedOut",
            Self::Deleted => "Deleted",
        })
    }
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// Which, from zero.
    pub rank: u32,
    /// Its node.
    pub node: String,
    /// Its devices, by their position on the node.
    pub devices: Vec<u8>,
    /// GPUs it is charged for.
    pub gpus: GpuAmount,
    /// Memory of its share of a device, when it has less than whole devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<MemoryAmount>,
    /// Where it stands.
    pub status: Status,
    /// An elastic extra.
    pub extra: bool,
    /// Its process, while it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// One index of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndexView {
    /// Which, from zero.
    pub index: u32,
    /// Where it stands.
    pub status: Status,
    /// The worker that ran it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// The run in which that was; its log is that of this run and worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// How often it was started.
    pub attempts: u32,
    /// The exit code of its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// When its last attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// How far it is, as it says itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ProgressView {
    /// Done, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Epochs in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Steps in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Loss, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// Accuracy, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<String>,
    /// Throughput in samples per second, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<String>,
    /// Time left, in seconds: as it says, or from its pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_secs: Option<u64>,
    /// Whatever else it reports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
    /// Utilisation of its GPUs in percent, as it reported in the last minute of its present run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<u8>,
    /// When it last said something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// What a workload says of itself. All fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReportRequest {
    /// Epoch.
    pub epoch: Option<u64>,
    /// Epochs in all.
    pub epochs: Option<u64>,
    /// Step.
    pub step: Option<u64>,
    /// Steps in all.
    pub steps: Option<u64>,
    /// Done, in percent.
    pub percent: Option<u8>,
    /// Loss.
    #[schema(value_type = Option<f64>)]
    pub loss: Option<serde_json::Value>,
    /// Accuracy.
    #[schema(value_type = Option<f64>)]
    pub accuracy: Option<serde_json::Value>,
    /// Throughput in samples per second.
    #[schema(value_type = Option<f64>)]
    pub throughput: Option<serde_json::Value>,
    /// Time left, in seconds or as `"90s"`.
    #[schema(value_type = Option<f64>)]
    pub eta: Option<serde_json::Value>,
    /// How busy its GPUs are, in percent.
    pub utilisation: Option<u8>,
    /// It has just saved its state.
    pub checkpoint: bool,
    /// Anything else, by name.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, String>)]
    pub metrics: BTreeMap<String, serde_json::Value>,
}

/// The workers of a workload that are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct World {
    /// How many.
    pub size: u32,
    /// Which.
    pub ranks: Vec<u32>,
    /// How many must be there.
    pub min: u32,
    /// How many may be there.
    pub max: u32,
}

impl World {
    /// Their ranks in one text, for [`WorldQuery`].
    pub fn known_as(&self) -> String {
        self.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Which change is waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WorldQuery {
    /// Ranks that are known, as `0,1,2`: an answer comes when there are others, or after half a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlike: Option<String>,
}

/// To which port a link leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LinkQuery {
    /// Which of its ports, as the workload names it; the first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A link to a workload's port that is good once, for a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The link. It is a secret until it was opened.
    pub url: String,
    /// How long it waits to be opened.
    pub expires_secs: u64,
}

/// Why a workload was stopped and returned to the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Eviction {
    /// When.
    pub at: Timestamp,
    /// By which rule: `quota-reclaim`, `share-reclaim`, `preemption`, `passing`, `move`.
    pub rule: String,
    /// For whom, as `project/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// Work destroyed, in GPU-seconds.
    pub lost_gpu_secs: u64,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// The exit code of the task that decided it, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// Its identity.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub project: String,
    /// Who submitted it.
    pub user: String,
    /// Its kind.
    pub kind: KindName,
    /// Where it stands.
    pub status: Status,
    /// One sentence about that, when there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Whether it may be preempted.
    pub preemptible: bool,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it first ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its current run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Seconds for which it ran, in all runs that are over: time in the queue does not count. While it runs, add the time since
    /// `running_since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_secs: Option<u64>,
    /// GPUs it asks for, all workers of its minimum together.
    pub gpus_requested: GpuAmount,
    /// GPUs it has.
    pub gpus_allocated: GpuAmount,
    /// Workers it asks for at least.
    pub workers_min: u32,
    /// Workers it asks for at most.
    pub workers_max: u32,
    /// Its workers that have a place.
    pub tasks: Vec<TaskView>,
    /// The indices of a sweep, when one workload is asked for. At most 1000, those that succeeded or wait are left out first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<IndexView>,
    /// How often it was started.
    pub runs: u32,
    /// How often a run failed.
    pub failures: u32,
    /// How often it was stopped for others.
    pub preemptions: u32,
    /// The last of those, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Eviction>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    /// When it last saved its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_at: Option<Timestamp>,
    /// Since when its GPUs have been idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// Addresses at which its ports are reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// What was asked for. Values of the environment are left out of lists.
    pub request: WorkloadRequest,
}

impl Workload {
    /// Its nodes, each once, in order.
    pub fn nodes(&self) -> Vec<&str> {
        let mut nodes: Vec<&str> = self.tasks.iter().map(|task| task.node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Workloads, unfinished first by submission, then finished, the last to end first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadList {
    /// The workloads.
    pub items: Vec<Workload>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which workloads are listed: those for which everything that is set holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WorkloadQuery {
    /// Of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// With this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// With a place on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only unfinished (`false`), only finished (`true`), or both (absent). Deleted ones are listed with `status=Deleted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<bool>,
    /// Whether deleted ones are listed too, among the finished.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Of the finished, only those that ended at this time or later.
    #[param(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_after: Option<Timestamp>,
    /// Rows of a page; 1000 at most, 500 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Where the page begins: `next` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which part of a log is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Of this worker; 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Of this index of a sweep: of its last attempt. Not together with `rank` or `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Of this run; the newest when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
    /// Only the last lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// Go on while it runs.
    pub follow: bool,
}
