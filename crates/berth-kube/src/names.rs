//! Every name that Berth and a cluster have in common: groups, labels, annotations, resources.

/// The group of our resources.
pub const GROUP: &str = "berth.dev";
/// The version of our resources.
pub const VERSION: &str = "v1alpha1";

/// `schedulerName` of every Pod that Berth places.
pub const SCHEDULER: &str = "berth";

/// Label of a namespace: the project whose work lives there. Label of our Pods: the project that pays for them.
pub const PROJECT: &str = "berth.dev/project";
/// Label of our Pods, claims and Services: the name of their Workload.
pub const WORKLOAD: &str = "berth.dev/workload";
/// Label of our Pods and claims: the identity of their Workload, so that a later one of the same name is another.
pub const WORKLOAD_UID: &str = "berth.dev/workload-uid";
/// Label of our Pods and claims: which worker, from zero.
pub const RANK: &str = "berth.dev/rank";
/// Label of our Pods and claims: which run of the Workload, from one.
pub const RUN: &str = "berth.dev/run";
/// Label of our Pods and claims, of a Workload with completions: which completion, from zero.
pub const INDEX: &str = "berth.dev/index";
/// Label of our Pods and claims, of a Workload with completions: which Pod in its place during one run, from one.
pub const TURN: &str = "berth.dev/turn";
/// Annotation of our Pods, of a Workload with completions: the devices of their place, by position, and how much of each in
/// millionths, such as `0=500000`. When a Pod is over its claim has them no more, and whoever follows it has.
pub const DEVICES: &str = "berth.dev/devices";
/// Label of anybody's Pods: the gang they belong to, by a name inside of their namespace.
pub const GROUP_NAME: &str = "berth.dev/group";
/// Annotation of anybody's Pods: how many of their gang must start together.
pub const GROUP_SIZE: &str = "berth.dev/group-size";
/// Label of anybody's Pods: `true` when all Pods of their Job start together, `false` when each starts by itself although
/// its kind would have them start together.
pub const GANG: &str = "berth.dev/gang";
/// Label of anybody's Pods: the pool of nodes they go to.
pub const NODE_POOL: &str = "berth.dev/node-pool";
/// Label of Pods: the kind of work, one of `train`, `interactive`, `distributed`, `inference`.
pub const KIND: &str = "berth.dev/kind";
/// Label of Pods: `true` or `false`, whether they may be evicted; by their kind when absent.
pub const PREEMPTIBLE: &str = "berth.dev/preemptible";
/// Label of Pods: their order inside of the project, a number or a name such as `high`.
pub const PRIORITY: &str = "berth.dev/priority";
/// Annotation of Pods, set by whoever saved their state: when, in RFC 3339.
pub const CHECKPOINT: &str = "berth.dev/checkpoint";
/// Annotation of Pods and claims: the epoch of the leader that placed them.
pub const EPOCH: &str = "berth.dev/epoch";
/// Annotation of Workloads: the request that made them, by hashes, so that one that is sent again makes no second.
pub const REQUEST: &str = "berth.dev/request";
/// Annotation of Workloads: what somebody typed to submit them.
pub const COMMAND_LINE: &str = "berth.dev/command-line";
/// Annotation of Workloads: how to read their progress from what they print.
pub const PROGRESS_PATTERN: &str = "berth.dev/progress-pattern";
/// Annotation of Workloads: the framework that starts them, in whose shell their command is.
pub const FRAMEWORK: &str = "berth.dev/framework";
/// Annotation of Workloads: they are JupyterLab, as it was asked for.
pub const NOTEBOOK: &str = "berth.dev/notebook";
/// Annotation of Pods: who they are for.
pub const USER: &str = "berth.dev/user";

/// The driver of our devices, and the class of devices that claims ask for.
pub const DRIVER: &str = "gpu.berth.dev";
/// The class of devices that claims ask for.
pub const DEVICE_CLASS: &str = DRIVER;
/// The one request of our claims.
pub const CLAIM_REQUEST: &str = "gpu";
/// Capacity of a device: its memory.
pub const CAPACITY_MEMORY: &str = "memory";
/// Capacity of a device: a million parts, of which shares are so many.
pub const CAPACITY_SHARE: &str = "share";
/// Attribute of a device: its model, as requests spell it.
pub const ATTRIBUTE_MODEL: &str = "model";
/// Attribute of a device: its position in the node.
pub const ATTRIBUTE_INDEX: &str = "index";
/// Attribute of a device: its identity.
pub const ATTRIBUTE_UUID: &str = "uuid";
/// Finalizer of allocated claims; the claim controller of Kubernetes takes it away when their last Pod is gone.
pub const CLAIM_FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Whole GPUs by count, where a node has a device plugin and no driver of ours.
pub const COUNTED_GPU: &str = "nvidia.com/gpu";
/// Label of a node with counted GPUs: their model.
pub const COUNTED_MODEL: &str = "nvidia.com/gpu.product";
/// Label of a node with counted GPUs: the memory of each, in MiB.
pub const COUNTED_MEMORY: &str = "nvidia.com/gpu.memory";
/// Label of a node with counted GPUs: how many.
pub const COUNTED_COUNT: &str = "nvidia.com/gpu.count";

/// The service account that Pods of Workloads run as; it may do nothing.
pub const WORKLOAD_ACCOUNT: &str = "berth-workload";
/// The beginning of the namespace that a project gets when it names none.
pub const NAMESPACE_PREFIX: &str = "berth-";
/// The field manager of everything Berth applies.
pub const MANAGER: &str = "berth";
