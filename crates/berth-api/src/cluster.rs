//! The cluster: nodes, devices, volumes.

use crate::{CoresAmount, GpuAmount, MemoryAmount, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The installation as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The release of the server.
    pub version: String,
    /// `embedded` or `kubernetes`.
    pub mode: String,
    /// Since when the server runs.
    pub started_at: Timestamp,
    /// Its folder.
    pub folder: String,
    /// Nodes.
    pub nodes: u64,
    /// Nodes that take work.
    pub nodes_ready: u64,
    /// GPUs.
    pub gpus: GpuAmount,
    /// GPUs that are given.
    pub gpus_allocated: GpuAmount,
    /// Workloads that run.
    pub running_count: u64,
    /// Workloads that wait.
    pub waiting_count: u64,
    /// Projects.
    pub projects: u64,
    /// The last event.
    pub cursor: u64,
    /// Whether the devices are real or declared for trying it out.
    pub declared: bool,
    /// Identifies the machine and the files that the server sees. A client with the same identity finds the same files at the same
    /// paths. Absent in front of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Sums that are the same for every role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<crate::ClusterTotals>,
}

/// Whether a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum NodeState {
    /// Takes new work.
    Ready,
    /// Keeps what runs on it and takes nothing new.
    Cordoned,
    /// Cordoned, and what runs on it is being stopped.
    Draining,
}

/// A workload on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningOn {
    /// As `project/name`.
    pub workload: String,
    /// Its share.
    pub share: GpuAmount,
}

/// How busy a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceUse {
    /// How busy, in percent.
    pub utilisation: u8,
    /// Memory in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<MemoryAmount>,
    /// Who says so: `nvml`, or `reported` by the workloads on it.
    pub source: String,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// Its position on the node.
    pub index: u8,
    /// Its model.
    pub model: String,
    /// Its memory.
    pub memory: MemoryAmount,
    /// How much of it is given.
    pub allocated: GpuAmount,
    /// To whom.
    pub workloads: Vec<RunningOn>,
    /// How busy it is, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DeviceUse>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it takes part.
    pub state: NodeState,
    /// Its pool.
    pub pool: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its GPUs.
    pub devices: Vec<DeviceView>,
    /// GPUs that are given.
    pub gpus_allocated: GpuAmount,
    /// All of its CPU.
    pub cpu: CoresAmount,
    /// CPU that is given.
    pub cpu_allocated: CoresAmount,
    /// All of its memory.
    pub memory: MemoryAmount,
    /// Memory that is given.
    pub memory_allocated: MemoryAmount,
    /// Workloads with a place on it, as `project/name`.
    pub workloads: Vec<String>,
    /// Mean utilisation of its GPUs in percent: free ones count as 0, unknown ones do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<crate::Percent>,
    /// Where the utilisation comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation_source: Option<crate::UtilisationSource>,
}

/// Nodes, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// The nodes.
    pub items: Vec<Node>,
}

/// A change of a node's labels. Either all of it happens, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeLabels {
    /// Labels to set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Labels to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Whether a label that has another value is changed; otherwise that is an error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overwrite: bool,
}

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    /// Its name.
    pub name: String,
    /// The project that may use it; every project when absent. In a cluster a volume belongs to a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How much fits into it, in a cluster. On one machine a volume grows with what is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<MemoryAmount>,
}

/// Which volume is meant, where several projects have one of that name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeQuery {
    /// The project it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// A named folder that workloads share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The project that may use it; every project when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its folder on the host; in a cluster, the namespace and name of its claim.
    pub path: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Unfinished workloads that use it, as `project/name`.
    pub workloads: Vec<String>,
}

/// Volumes, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// The volumes.
    pub items: Vec<Volume>,
}

/// Where a backup is written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// A file of the server's machine that is not there yet; an absolute path.
    pub path: String,
}

/// A backup that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Backup {
    /// The file.
    pub path: String,
    /// The last event in it.
    pub seq: u64,
    /// Its size.
    pub bytes: u64,
}
