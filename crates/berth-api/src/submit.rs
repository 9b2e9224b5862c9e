//! Submissions.

use crate::{CoresAmount, GpuAmount, MemoryAmount, SuggestedChange, Timestamp, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The kind of work, which sets its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KindName {
    /// Unattended training; may be preempted.
    #[default]
    Train,
    /// A person is waiting; is not preempted and stays within quota.
    Interactive,
    /// Training by a gang of workers.
    Distributed,
    /// Serving.
    Inference,
}

/// What runs a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeName {
    /// A process of the machine; the image is looked up in the table of images.
    #[default]
    Process,
    /// A container by an OCI runtime, from a folder or an archive.
    Oci,
    /// A container by Docker or Podman.
    Docker,
}

/// Who starts again when a worker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// All workers, together, after a pause during which others have the GPUs.
    Gang,
    /// That worker alone, in its place.
    Worker,
}

/// What starts the command on each worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// Nothing: it is started as it is, and finds the others by its environment.
    #[default]
    None,
    /// PyTorch's `torchrun`, one process for each GPU of a worker.
    Torchrun,
    /// `mpirun` in the first worker, one process in each.
    Mpi,
}

impl Framework {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// How a port is meant to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServiceType {
    /// From the machine of whoever asks for it.
    Portforward,
    /// By an address outside of the cluster.
    Loadbalancer,
    /// By a port of the node.
    Nodeport,
    /// By a path of one address.
    Ingress,
}

/// A priority by number, or by one of the names `very-low` (10), `low` (25), `medium` (50), `medium-high` (75), `high`
/// (100), `very-high` (125), `critical` (200).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PriorityName {
    /// A number; higher comes first.
    Number(i32),
    /// A name.
    Name(String),
}

/// A folder of the host that the workload sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// The folder of the host.
    pub source: String,
    /// Where the workload sees it.
    pub target: String,
    /// Whether it may only be read.
    #[serde(default)]
    pub read_only: bool,
}

/// A named volume that the workload sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// The name of the volume.
    pub name: String,
    /// Where the workload sees it.
    pub target: String,
    /// Whether it may only be read.
    #[serde(default)]
    pub read_only: bool,
}

/// Variables that lead to the programs and packages of a caller. They are no secrets: a client sends them, and whoever sees the
/// workload sees their values. Every other variable stays with the caller unless it is named.
pub const CALLER_VARIABLES: [&str; 8] = [
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
];

/// The place of a caller who shares the machine with the server. A process of that machine starts in this directory, with these
/// variables. A container does not, because it has files of its own. What the request itself says wins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CallerPlace {
    /// The current directory of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Variables that lead to the caller's programs, such as `PATH` and `VIRTUAL_ENV`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// What somebody wants to run. Everything but the project has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadRequest {
    /// Its name; unique among the unfinished work of its project. Made up when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The beginning of a name to be made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// Who owns it.
    pub project: String,
    /// Its kind.
    pub kind: KindName,
    /// The image.
    pub image: String,
    /// Runs instead of what the image would run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// GPUs of each worker: a whole number, or a fraction of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuAmount>,
    /// GPU memory of each worker, instead of `gpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<MemoryAmount>,
    /// Devices over which a fraction, or an amount of memory, is taken: so much of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_devices: Option<u8>,
    /// Accepted GPU models; empty accepts all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// CPU of each worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CoresAmount>,
    /// Memory of each worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryAmount>,
    /// Workers; more than one is a gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Workers that must start together; the others are elastic extras. All, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_workers: Option<u32>,
    /// Who starts again when a worker fails; the gang when absent, of inference the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// What starts the command on each worker.
    #[serde(skip_serializing_if = "Framework::is_none")]
    pub framework: Framework,
    /// How often the command is to be run to a good end, each time with another BERTH_INDEX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
    /// How many of these are worked at together; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Order inside its project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<PriorityName>,
    /// Whether it may be preempted; by its kind when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// It is ended after running this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_secs: Option<u64>,
    /// How often a failed run is started again; 6 when absent, 0 for interactive work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<u32>,
    /// Time between notice and the end; 30 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_secs: Option<u64>,
    /// The pool of nodes; `default` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Labels a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// `node`, or the label within one value of which all workers must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_required: Option<String>,
    /// `node`, or the label within one value of which all workers should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_preferred: Option<String>,
    /// Whether workers go to as many nodes as possible.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Whether no two workers may be on one node; it waits until there are enough.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Folders of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountRequest>,
    /// Named volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Ports the workload listens on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// JupyterLab, ready to use at its address: an image, a port and a token of its own are given to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub notebook: bool,
    /// How they are meant to be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_type: Option<ServiceType>,
    /// Large shared memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub large_shm: bool,
    /// Whether it uses the network of the node; its project must allow it. On one machine all work does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// Whether it is privileged; its project must allow it. On one machine none can be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Where the command starts; an absolute path. The workload's own folder when absent, in a container what the image says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The place of the caller, for a process of the machine that both share. The server copies from it what applies into
    /// `working_dir` and `environment`; the workload is shown without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerPlace>,
    /// Whether it has a terminal, which people can join.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// Whether it reads what those who join it type.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Who it runs as on the machine, as `NAME`, `NAME:GROUP` or `UID:GID`; who runs the server, when absent. Shown as numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as: Option<String>,
    /// What runs it.
    pub runtime: RuntimeName,
    /// Never fetch the image.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local_image: bool,
    /// A pattern with named groups (`epoch`, `epochs`, `step`, `steps`, `loss`, `accuracy`, `percent`) that finds progress in
    /// printed lines; common forms are known without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_pattern: Option<String>,
    /// The command line it was submitted with, to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
}

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// The workload as it stands.
    pub workload: Workload,
    /// What the person should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a submission would do; nothing was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Whether it would start at once, or as soon as those who must leave have left.
    pub starts: bool,
    /// Nodes it would start on.
    pub nodes: Vec<String>,
    /// Workloads that would be stopped for it, as `project/name`; those that the caller may list.
    pub evicts: Vec<String>,
    /// So many that the caller may not list, by project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evicts_others: BTreeMap<String, u64>,
    /// Why it would wait, if it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The instant at which that may change by time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_at: Option<Timestamp>,
    /// The program it would run, for a process of the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Where it would start; absent for the workload's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The user and group of the machine it would run as, as `UID:GID`; absent for those of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<String>,
    /// Changes of the request with which it would start at once, cheapest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SuggestedChange>,
    /// What the person should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
