//! Workloads: what a user submits.

use super::{
    amount::{self, Amount},
    status::WorkloadStatus,
};
use k8s_openapi::api::core::v1::EnvVar;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The kind of work, which sets its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
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

impl WorkloadKind {
    /// As labels and people write it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Interactive => "interactive",
            Self::Distributed => "distributed",
            Self::Inference => "inference",
        }
    }
}

/// How ports are reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// From inside of the cluster, and by forwarding a port.
    #[default]
    ClusterIP,
    /// By a port of every node.
    NodePort,
    /// By an address outside of the cluster.
    LoadBalancer,
    /// By a path of the cluster's ingress.
    Ingress,
}

/// Who starts again when a worker fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// All workers, together, after a pause during which others have the GPUs.
    #[default]
    Gang,
    /// That worker alone, in its place, by its node.
    Worker,
}

/// Fields that say what runs and where it may. They are part of its Pods, so they are as they were submitted until it
/// is suspended.
const FROZEN: [&str; 35] = [
    "image",
    "command",
    "args",
    "env",
    "workingDir",
    "stdin",
    "tty",
    "gpus",
    "gpuDevices",
    "gpuMemory",
    "gpuModels",
    "cpu",
    "memory",
    "workers",
    "minWorkers",
    "restart",
    "completions",
    "parallelism",
    "preemptible",
    "nodePool",
    "nodeSelector",
    "topology",
    "spread",
    "apart",
    "ports",
    "serviceType",
    "ingressHost",
    "volumes",
    "largeShm",
    "hostNetwork",
    "privileged",
    "runAsUser",
    "imagePullPolicy",
    "imagePullSecrets",
    "user",
];

/// Either it was suspended, or nothing frozen has changed.
fn frozen() -> String {
    // Written out: the cost of comparing two optional values is estimated as if they had no bounds.
    let same = FROZEN.map(|field| {
        format!("(has(self.{field}) ? has(oldSelf.{field}) && self.{field} == oldSelf.{field} : !has(oldSelf.{field}))")
    });
    let same = same.join(" && ");
    format!("oldSelf.?suspend.orValue(false) || ({same})")
}

/// What somebody wants to run.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Workload",
    namespaced,
    doc = "Work for GPUs: one Pod, or a gang of them that starts together or not at all.",
    status = "WorkloadStatus",
    derive = "PartialEq",
    shortname = "wl",
    category = "berth",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "Project", type_ = "string", json_path = ".status.project"),
    printcolumn(name = "User", type_ = "string", json_path = ".spec.user"),
    printcolumn(name = "GPUs", type_ = "string", json_path = ".status.gpus"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress.text", priority = 1),
    printcolumn(name = "Runs", type_ = "integer", json_path = ".status.runs", priority = 1),
    printcolumn(name = "URLs", type_ = "string", json_path = ".status.urls", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    selectable = ".spec.kind",
    selectable = ".status.phase",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 50")
        .message("the name of a workload begins with a letter, has lowercase letters, digits and '-', and is at most 50 long: its Pods and its Service are named after it")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.gpus) || !has(self.gpuMemory)")
    .message("ask for gpus or for gpuMemory, not for both").field_path(".gpuMemory"))]
#[x_kube(validation = Rule::new("!has(self.gpuDevices) || has(self.gpuMemory) || (has(self.gpus) && isQuantity(string(self.gpus)) && quantity(string(self.gpus)).compareTo(quantity('0')) > 0 && quantity(string(self.gpus)).compareTo(quantity('1')) < 0)")
    .message("gpuDevices takes a part of several devices: say how much of each with a fraction in gpus, or with gpuMemory").field_path(".gpuDevices"))]
#[x_kube(validation = Rule::new("!has(self.gpuModels) || size(self.gpuModels) == 0 || has(self.gpuMemory) || (has(self.gpus) && !(string(self.gpus) in ['0', '0.0', '0m']))")
    .message("gpuModels names models, but no GPU is asked for: say how many with gpus").field_path(".gpuModels"))]
#[x_kube(validation = Rule::new("!has(self.minWorkers) || self.minWorkers <= (has(self.workers) ? self.workers : 1)")
    .message("minWorkers cannot be above workers").field_path(".minWorkers"))]
#[x_kube(validation = Rule::new("!has(self.workers) || self.workers <= 1 || self.kind in ['distributed', 'inference']")
    .message("more than one worker is kind: distributed, or kind: inference for several that serve").field_path(".workers"))]
#[x_kube(validation = Rule::new("!has(self.parallelism) || has(self.completions)")
    .message("parallelism is of completions: say how many with completions").field_path(".parallelism"))]
#[x_kube(validation = Rule::new("!has(self.completions) || !(self.kind in ['interactive', 'inference'])")
    .message("work that a person waits for, or that serves, has no completions").field_path(".completions"))]
#[x_kube(validation = Rule::new("!has(self.completions) || (!has(self.workers) && !has(self.minWorkers) && !has(self.restart))")
    .message("completions are worked at by as many workers as parallelism says, each started again alone: leave out workers, minWorkers and restart").field_path(".completions"))]
#[x_kube(validation = Rule::new("!has(self.serviceType) || (has(self.ports) && size(self.ports) > 0)")
    .message("serviceType says how ports are reached: name them in ports").field_path(".serviceType"))]
#[x_kube(validation = Rule::new("!has(self.ingressHost) || (has(self.serviceType) && self.serviceType == 'Ingress')")
    .message("ingressHost is for serviceType: Ingress").field_path(".ingressHost"))]
#[x_kube(validation = Rule::new("self.kind == oldSelf.kind")
    .message("the kind of a workload stays: delete it and submit another").field_path(".kind"))]
#[x_kube(validation = Rule::new(frozen())
    .message("what runs, and what it asks for, cannot change while it is not suspended: set suspend: true first, or submit another workload; priority, maxRunTime, gracePeriod, backoffLimit and suspend can change at any time"))]
pub struct WorkloadSpec {
    /// The kind of work, which sets its defaults.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Who it is for, as lists show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub user: Option<String>,
    /// The image.
    #[schemars(length(min = 1, max = 4096))]
    pub image: String,
    /// When the image is fetched: `Always`, `IfNotPresent`, `Never`; by Kubernetes' own rule when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: Option<String>,
    /// Secrets of the namespace with which the image is fetched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub image_pull_secrets: Vec<String>,
    /// Runs instead of what the image would run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 65_536)))]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 65_536)))]
    pub args: Vec<String>,
    /// Environment; as in a Pod, so that values may come from secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Where the command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub working_dir: Option<String>,
    /// Whether it can be typed to, by whoever attaches to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Whether it has a terminal, which can be typed to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// GPUs of each worker: a whole number, or a fraction of one such as "0.5" or 500m. None when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::gpus")]
    pub gpus: Option<Amount>,
    /// Devices over which a fraction, or an amount of GPU memory, is taken: so much of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub gpu_devices: Option<i32>,
    /// GPU memory of each worker, instead of `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::gpu_memory")]
    pub gpu_memory: Option<Amount>,
    /// Accepted models of GPUs; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub gpu_models: Vec<String>,
    /// Cores of CPU of each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::cpu")]
    pub cpu: Option<Amount>,
    /// Memory of each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::memory")]
    pub memory: Option<Amount>,
    /// Workers; one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub workers: Option<i32>,
    /// Workers that must start together; the others are elastic extras. All, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_workers: Option<i32>,
    /// Who starts again when a worker fails; `gang` when absent, of inference `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// It is run so many times, each time with another index in `BERTH_INDEX`; it is done when each has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub completions: Option<i32>,
    /// Workers that work at completions at one time, each at one after the other; one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub parallelism: Option<i32>,
    /// Order inside of its project: a number, or a name such as `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::priority")]
    pub priority: Option<Amount>,
    /// Whether it may be preempted; by its kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// The pool of nodes; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub node_pool: Option<String>,
    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// How close together its workers must and should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologySpec>,
    /// Whether its workers go to as many nodes as possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Whether no two of its workers may be on one node; it waits until there are enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Ports it listens on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 1, max = 65_535)), extend("x-kubernetes-list-type" = "set"))]
    pub ports: Vec<i32>,
    /// How they are reached; `ClusterIP` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<ServiceType>,
    /// The host of its Ingress; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ingress_host: Option<String>,
    /// Volumes it sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub volumes: Vec<VolumeSpec>,
    /// Shared memory as large as its memory, instead of 64 MiB.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large_shm: bool,
    /// Whether it uses the network of the node; its project must allow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// Whether it is privileged; its project must allow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// The user id it runs as; that of the image when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// It is ended after running this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::positive_span")]
    pub max_run_time: Option<String>,
    /// Time between notice and the end when it is stopped; 30s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::span")]
    pub grace_period: Option<String>,
    /// How often a failed run is started again; 6 when absent, 0 for interactive work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub backoff_limit: Option<i32>,
    /// Whether it is stopped, and kept, until this is false again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// A template of its Pods, for what has no field here. Fields of the workload come before those of the template, and
    /// what Berth decides (scheduler, claims, names, ranks) is as Berth decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::anything")]
    pub pod_template: Option<Value>,
}

impl WorkloadSpec {
    /// How many times it is run, if it says so.
    pub fn completions(&self) -> Option<u32> {
        self.completions.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0)
    }
}

/// How close together the workers of a gang must and should be: `node`, or the label of a rack, a block.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// All workers within one value of this label, or it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub required: Option<String>,
    /// All workers within one value of this label if one has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub preferred: Option<String>,
}

/// A volume, and where the workload sees it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.claim) != has(self.hostPath)")
    .message("name a persistent volume claim with claim, or a folder of the node with hostPath, and not both"))]
pub struct VolumeSpec {
    /// A persistent volume claim of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim: Option<String>,
    /// A folder of the node; the project must allow privileged work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("self.startsWith('/') && !self.contains('..')").message("write an absolute path without `..`"))]
    pub host_path: Option<String>,
    /// Where the workload sees it.
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("self.startsWith('/') && !self.contains('..') && !self.contains(':')").message("write an absolute path without `..` and `:`"))]
    pub path: String,
    /// A folder of the volume, instead of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !self.contains('..')").message("write a path inside of the volume, without `..`"))]
    pub sub_path: Option<String>,
    /// Whether it may only be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}
