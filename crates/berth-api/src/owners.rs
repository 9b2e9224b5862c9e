//! Departments and projects.

use crate::{CoresAmount, GpuAmount, MemoryAmount, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What is set of a project. In a change, what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectSettings {
    /// Its name; only when it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The department it is part of; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub department: Option<String>,
    /// The pool of nodes that quota, limit, weight and rank are for; `default` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Guaranteed GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<GpuAmount>,
    /// Guaranteed GPUs by model, part of the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_quotas: Option<BTreeMap<String, GpuAmount>>,
    /// Guaranteed CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<CoresAmount>,
    /// Guaranteed memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_quota: Option<MemoryAmount>,
    /// GPUs never passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<GpuAmount>,
    /// Weight when idle GPUs are shared; 0 does not borrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<GpuAmount>,
    /// Higher ranks are served first when idle GPUs are shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Labels of nodes that training may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_nodes: Option<BTreeMap<String, Vec<String>>>,
    /// Labels of nodes that interactive work may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interactive_nodes: Option<BTreeMap<String, Vec<String>>>,
    /// Interactive work is ended after so many seconds; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interactive_limit_secs: Option<u64>,
    /// Any work is ended after so many seconds; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u64>,
    /// Work whose GPUs have been idle for so many seconds is suspended; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_limit_secs: Option<u64>,
    /// Nothing is evicted before it ran so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_run_secs: Option<u64>,
    /// Whether its work may use the network of the node; on one machine all work does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_host_network: Option<bool>,
    /// Whether its work may be privileged; on one machine none can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privileged: Option<bool>,
    /// Settings to be unset, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// A project, with what it has in its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    /// Its name.
    pub name: String,
    /// When it was created; absent for a project from before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// What is set, for the pool asked for.
    pub settings: ProjectSettings,
    /// GPUs it has, elastic extras included.
    pub allocated: GpuAmount,
    /// GPUs of work that cannot be preempted.
    pub allocated_non_preemptible: GpuAmount,
    /// Its fair share now.
    pub fair_share: GpuAmount,
    /// GPUs its waiting work asks for.
    pub waiting: GpuAmount,
    /// Workloads that run or are about to.
    pub running_count: u64,
    /// Workloads that wait.
    pub waiting_count: u64,
}

/// Projects, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectList {
    /// The projects.
    pub items: Vec<Project>,
}

/// What is set of a department. In a change, what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DepartmentSettings {
    /// Its name; only when it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The department it is part of; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The pool of nodes that quota, limit, weight and rank are for; `default` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Guaranteed GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<GpuAmount>,
    /// GPUs never passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<GpuAmount>,
    /// Weight when idle GPUs are shared; 0 does not borrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<GpuAmount>,
    /// Higher ranks are served first when idle GPUs are shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Settings to be unset, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// A department, with what it has in its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Department {
    /// Its name.
    pub name: String,
    /// What is set, for the pool asked for.
    pub settings: DepartmentSettings,
    /// Its projects.
    pub projects: Vec<String>,
    /// GPUs its projects have.
    pub allocated: GpuAmount,
    /// The sum of its projects' quotas.
    pub projects_quota: GpuAmount,
    /// Its fair share now.
    pub fair_share: GpuAmount,
}

/// Departments, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepartmentList {
    /// The departments.
    pub items: Vec<Department>,
}

/// Something that was set, and what the person should know about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warned<T> {
    /// What was set.
    pub item: T,
    /// What the person should know, such as quotas above what the cluster has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
