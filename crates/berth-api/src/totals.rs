//! Sums over the whole cluster. Every role gets the same numbers: they name nodes and devices, never workloads or projects.

use crate::{GpuAmount, NodeState, Percent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Where a utilisation comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UtilisationSource {
    /// The driver measured it (NVML).
    Measured,
    /// The workloads on the devices reported it.
    Reported,
    /// Some devices were measured, for others workloads reported.
    Mixed,
    /// Nothing is allocated, so nothing is busy.
    Free,
    /// Nothing is known: no measurement, and a workload that reported nothing in the last minute.
    #[default]
    Unknown,
}

/// One GPU, without the names of the workloads on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceTotals {
    /// Its position on the node.
    pub index: u8,
    /// The part of it that is allocated: 0 for a free device, 1 for a full one.
    pub allocated: GpuAmount,
    /// Workloads that have a share of it.
    pub workloads: u64,
    /// Utilisation in percent; absent for a free device that nobody measures, and when it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Percent>,
    /// Where the utilisation comes from.
    pub utilisation_source: UtilisationSource,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeTotals {
    /// Its name.
    pub name: String,
    /// Whether it takes work.
    pub state: NodeState,
    /// GPUs it has.
    pub gpus: GpuAmount,
    /// GPUs that are allocated.
    pub gpus_allocated: GpuAmount,
    /// Mean utilisation of its GPUs in percent: free ones count as 0, unknown ones do not count. Absent when nothing is known of
    /// the allocated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Percent>,
    /// Where the utilisation comes from.
    pub utilisation_source: UtilisationSource,
    /// Its GPUs.
    pub devices: Vec<DeviceTotals>,
}

/// Sums over the whole cluster, the same for every role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterTotals {
    /// Nodes.
    pub nodes: u64,
    /// Nodes that take work.
    pub nodes_ready: u64,
    /// GPUs.
    pub gpus: GpuAmount,
    /// GPUs that are allocated.
    pub gpus_allocated: GpuAmount,
    /// GPUs that are not allocated, on nodes that take work.
    pub gpus_free: GpuAmount,
    /// Allocated GPUs whose workloads are known to leave them idle.
    pub gpus_idle: GpuAmount,
    /// Mean utilisation of all GPUs in percent: free ones count as 0, unknown ones do not count. Absent when nothing is known of the
    /// allocated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Percent>,
    /// Where the utilisation comes from.
    #[serde(default)]
    pub utilisation_source: UtilisationSource,
    /// Allocated GPUs whose utilisation is unknown.
    pub gpus_unknown: u64,
    /// Workloads that run or are about to.
    pub running_count: u64,
    /// Workloads that wait for GPUs: queued, stopped for others, or waiting for their next attempt.
    pub pending_count: u64,
    /// GPUs that those ask for.
    pub pending_gpus: GpuAmount,
    /// Workloads that are suspended.
    pub suspended_count: u64,
    /// Unfinished workloads by status.
    pub statuses: BTreeMap<String, u64>,
    /// The nodes, by name.
    pub by_node: Vec<NodeTotals>,
}
