//! Why a workload waits.

use crate::{CoresAmount, Eviction, GpuAmount, MemoryAmount, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Who holds what a waiting workload needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// As `project/name`.
    pub workload: String,
    /// GPUs it holds on nodes the waiting workload may use.
    pub gpus: GpuAmount,
}

/// What workloads of a project hold that the caller may not list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldByProject {
    /// The project.
    pub project: String,
    /// How many workloads.
    pub workloads: u64,
    /// GPUs they hold on nodes the waiting workload may use.
    pub gpus: GpuAmount,
}

/// What others could do to start it now; each was tried before it was named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remedies {
    /// One sentence for people.
    pub text: String,
    /// These workloads end, as `project/name`; those that the caller may list.
    pub end: Vec<String>,
    /// Limits of these accounts are lifted, as `project NAME` or `department NAME`.
    pub lift_limits: Vec<String>,
    /// Quotas of these accounts grow to this much.
    pub raise_quotas: BTreeMap<String, GpuAmount>,
    /// So many workloads end that the caller may not list, by project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub end_others: BTreeMap<String, u64>,
}

/// What a waiting workload asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Requested {
    /// GPUs of all workers that must start together.
    pub gpus: GpuAmount,
    /// Workers that must start together.
    pub workers: u32,
    /// CPU of each worker, if it asks for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CoresAmount>,
    /// Memory of each worker, if it asks for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryAmount>,
    /// Accepted GPU models; empty accepts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
}

/// What the nodes have that a waiting workload may use: ready nodes of its pool with its labels and GPU models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsableNodes {
    /// How many nodes.
    pub nodes: u64,
    /// Their GPUs.
    pub gpus: GpuAmount,
    /// Free GPUs of these. GPUs of workloads that are stopping count as free.
    pub free: GpuAmount,
}

/// What a project or department has in the pool of a waiting workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountNumbers {
    /// `project` or `department`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Guaranteed GPUs; absent for a department without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<GpuAmount>,
    /// GPUs in use, without elastic extras.
    pub used: GpuAmount,
    /// The part of these that cannot be preempted.
    pub used_non_preemptible: GpuAmount,
    /// Its fair share.
    pub fair_share: GpuAmount,
    /// GPUs it never passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<GpuAmount>,
}

/// One cause that keeps a workload from the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    /// `gpus`, `cpu`, `memory`, `node-size`, `node-cpu`, `node-memory`, `gpu-memory`, `gpu-model`, `cordoned`, `node-selector`,
    /// `node-affinity`, `node-pool`, `pool-size`, `workers`, `topology`, `apart`, `reservation`.
    pub cause: String,
    /// One sentence for people.
    pub text: String,
    /// What one worker, or all of them, ask for, where it is an amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The most there is of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<String>,
    /// The nodes it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// The position of a waiting workload in the order of starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueNumbers {
    /// From 1, in its project: by priority, then submission. Work that can never start, or that a limit or quota bars, is not
    /// counted.
    pub position: u64,
    /// Waiting workloads of its project, counted in the same way.
    pub waiting: u64,
    /// The workloads of its project before it, first first; ten at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<String>,
    /// How many heads of other projects come before it.
    pub heads_ahead_count: u64,
    /// Those heads that the caller may list, as `project/name`; ten at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads_ahead: Vec<String>,
    /// Projects of those heads that the caller may not list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects_ahead: Vec<String>,
}

/// A change of the request with which the workload would start now. The scheduler planned it before it was named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuggestedChange {
    /// `gpu-model`, `node-pool`, `node-selector`, `cpu`, `memory`, `preemptible`, `min-workers`, `workers`, `gpus`.
    pub kind: String,
    /// Options of `berth submit` to give instead, such as `-g 2`; empty where one is left out.
    pub options: String,
    /// One sentence for people.
    pub text: String,
    /// Workloads that would be stopped or moved for it by the rules, as `project/name`; those that the caller may list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<String>,
    /// So many that the caller may not list, by project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stops_others: BTreeMap<String, u64>,
}

/// Why a workload waits, or that it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// As `project/name`.
    pub workload: String,
    /// Whether it waits at all.
    pub waits: bool,
    /// The rule that holds it: `never`, `limit`, `non-preemptible-quota`, `no-borrowing`, `no-capacity`, `minimum-run`,
    /// `patience`, `leaving`, `ready`; `suspended`, `back-off`; or how it stands when it does not wait.
    pub rule: String,
    /// One sentence or a few for people, with the numbers.
    pub text: String,
    /// The numbers of the rule, by name.
    pub numbers: BTreeMap<String, String>,
    /// The first instant at which time alone may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who holds what it needs, largest first; those that the caller may list.
    pub held_by: Vec<Held>,
    /// What others hold that the caller may not list, by project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by_projects: Vec<HeldByProject>,
    /// What others could do to start it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedies>,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Requested>,
    /// What the nodes have that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<UsableNodes>,
    /// Its project, and each department above it that has a quota or a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountNumbers>,
    /// What keeps it from the nodes. When one cause alone does, all such causes; otherwise causes that do together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<Blocked>,
    /// When and by whom it was preempted, if that is why it waits. The winner is a project where the caller may not list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Eviction>,
    /// Its position in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueNumbers>,
    /// What its owner can change to start it now, cheapest first; three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SuggestedChange>,
}
