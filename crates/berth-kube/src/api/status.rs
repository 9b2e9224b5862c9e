//! Where a workload stands: all that is known of it besides its Pods, so that a scheduler that died can be replaced.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Where a workload stands, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadPhase {
    /// Waits for its place.
    #[default]
    Pending,
    /// Has its place; others are leaving it.
    Held,
    /// Its Pods are being started.
    Starting,
    /// Runs.
    Running,
    /// Was told to stop.
    Stopping,
    /// Stopped, until it is resumed.
    Suspended,
    /// Did its work.
    Succeeded,
    /// Failed, and no retry is left.
    Failed,
    /// Ended by a time limit.
    TimedOut,
}

impl WorkloadPhase {
    /// Whether it is over.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::TimedOut)
    }
}

impl fmt::Display for WorkloadPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names are those of the variants, as in the API.
        fmt::Debug::fmt(self, f)
    }
}

/// Where a workload stands.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Where it stands, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<WorkloadPhase>,
    /// Why, in one word for programs, such as `OverQuota` or `BackOff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in one sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The project that pays for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its nodes, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Its nodes for lists: one or two by name, more by the first and a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// GPUs it asks for, all workers of its minimum together, such as `0.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    /// GPUs it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus_allocated: Option<String>,
    /// Its place in the queue: when it was first seen, kept through evictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<MicroTime>,
    /// When its current run began, or its last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// When it was last evicted, moved or shrunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<MicroTime>,
    /// Why it was last stopped for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_eviction: Option<LastEviction>,
    /// How often it was stopped for others.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub evictions: i64,
    /// How often it was started; the number of its current run.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub runs: i64,
    /// How often a run failed or was lost.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub failures: i64,
    /// Completions that are done, such as `0-4,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
    /// When it last saved its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_at: Option<MicroTime>,
    /// A failed run is started again not before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<MicroTime>,
    /// Workers that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_ready: Option<i64>,
    /// Workers it has places for, or asks for while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_wanted: Option<i64>,
    /// The exit code of the worker that decided its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Addresses at which its ports are reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// How far it is, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The generation this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: `Accepted`, false with the reason when it cannot be run as it is written; `Running`; `Finished`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Why a workload was stopped for others.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastEviction {
    /// The rule: `quota-reclaim`, `share-reclaim`, `preemption` or `passing`.
    pub rule: String,
    /// For whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// Work that was lost, in GPU-seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_gpu_seconds: i64,
}

impl std::fmt::Display for LastEviction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.winner {
            Some(winner) => write!(f, "stopped for {winner} ({}); it resumes by itself", self.rule),
            None => write!(f, "stopped ({}); it resumes by itself", self.rule),
        }
    }
}

/// How far a workload is, as it says itself.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// All of it in a few words, for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Done, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
    /// Epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Epochs in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<i64>,
    /// Step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Steps in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i64>,
    /// Loss, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// Accuracy, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<String>,
    /// Time left, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_secs: Option<i64>,
    /// Whatever else it reports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
    /// When it last said something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
