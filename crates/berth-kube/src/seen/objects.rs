//! Objects of Kubernetes, as far as they are read. What is not named here is skipped while it is parsed, because most of a Pod
//! is of no interest to a scheduler and there are many of them.

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};

/// Labels, annotations, selectors, amounts.
pub(crate) type Texts = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) creation_timestamp: Option<jiff::Timestamp>,
    pub(crate) deletion_timestamp: Option<jiff::Timestamp>,
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
    pub(crate) finalizers: Vec<String>,
    pub(crate) owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) controller: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) allocatable: Texts,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) scheduler_name: String,
    pub(crate) node_name: Option<String>,
    pub(crate) node_selector: Texts,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) topology_spread_constraints: Vec<SpreadConstraint>,
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Vec<Container>,
    /// What all containers have together, where somebody said that.
    pub(crate) resources: Resources,
    pub(crate) overhead: Texts,
    pub(crate) resource_claims: Vec<PodClaim>,
    pub(crate) scheduling_gates: Vec<serde::de::IgnoredAny>,
    pub(crate) scheduling_group: Option<SchedulingGroup>,
    pub(crate) priority: Option<i32>,
    pub(crate) termination_grace_period_seconds: Option<u64>,
    pub(crate) active_deadline_seconds: Option<u64>,
    pub(crate) host_network: bool,
    #[serde(rename = "hostPID")]
    pub(crate) host_pid: bool,
    #[serde(rename = "hostIPC")]
    pub(crate) host_ipc: bool,
    pub(crate) security_context: Option<PodSecurityContext>,
    pub(crate) volumes: Vec<Volume>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SchedulingGroup {
    pub(crate) pod_group_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) security_context: Option<SecurityContext>,
    pub(crate) resources: Resources,
    pub(crate) restart_policy: Option<String>,
    pub(crate) ports: Vec<ContainerPort>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerPort {
    pub(crate) host_port: u16,
    pub(crate) protocol: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    #[serde(deserialize_with = "amounts")]
    pub(crate) requests: Texts,
    #[serde(deserialize_with = "amounts")]
    pub(crate) limits: Texts,
}

/// Amounts of Pods are texts; in templates of other objects they are as somebody wrote them, often numbers.
fn amounts<'de, D: Deserializer<'de>>(from: D) -> Result<Texts, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Amount {
        Text(String),
        Number(serde_json::Number),
    }
    let amounts: Option<BTreeMap<String, Amount>> = Option::deserialize(from)?;
    let text = |amount: Amount| match amount {
        Amount::Text(text) => text,
        Amount::Number(number) => number.to_string(),
    };
    Ok(amounts.unwrap_or_default().into_iter().map(|(name, amount)| (name, text(amount))).collect())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodClaim {
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
    pub(crate) resource_claim_template_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) ephemeral: Option<serde::de::IgnoredAny>,
    pub(crate) persistent_volume_claim: Option<VolumeClaim>,
    pub(crate) host_path: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeClaim {
    pub(crate) claim_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpreadConstraint {
    pub(crate) when_unsatisfiable: String,
    pub(crate) topology_key: String,
    pub(crate) label_selector: LabelSelector,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    pub(crate) node_affinity: Option<NodeAffinity>,
    pub(crate) pod_affinity: Option<PodAffinity>,
    pub(crate) pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Option<NodeTerms>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeTerms {
    pub(crate) node_selector_terms: Vec<NodeTerm>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeTerm {
    pub(crate) match_expressions: Vec<Expression>,
    pub(crate) match_fields: Vec<Expression>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct Expression {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) required: Vec<PodTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(crate) preferred: Vec<WeightedPodTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WeightedPodTerm {
    pub(crate) weight: i32,
    pub(crate) pod_affinity_term: PodTerm,
}

/// Pods that another Pod wants to be near to or far from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodTerm {
    pub(crate) label_selector: LabelSelector,
    pub(crate) topology_key: String,
    pub(crate) namespaces: Vec<String>,
    pub(crate) namespace_selector: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: Texts,
    pub(crate) match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) start_time: Option<jiff::Timestamp>,
    pub(crate) resource_claim_statuses: Vec<PodClaimStatus>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerStatus {
    pub(crate) state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodClaimStatus {
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SliceObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: SliceSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SliceSpec {
    pub(crate) driver: String,
    pub(crate) node_name: Option<String>,
    pub(crate) pool: SlicePool,
    pub(crate) devices: Vec<SliceDevice>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlicePool {
    pub(crate) name: String,
    pub(crate) generation: i64,
    pub(crate) resource_slice_count: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SliceDevice {
    pub(crate) name: String,
    pub(crate) allow_multiple_allocations: bool,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) capacity: BTreeMap<String, Capacity>,
    pub(crate) taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Attribute {
    pub(crate) string: Option<String>,
    pub(crate) int: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Capacity {
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: ClaimSpec,
    pub(crate) status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimSpec {
    pub(crate) devices: ClaimDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimDevices {
    pub(crate) requests: Vec<DeviceRequest>,
    pub(crate) constraints: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeviceRequest {
    pub(crate) name: String,
    pub(crate) exactly: Option<ExactRequest>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExactRequest {
    pub(crate) device_class_name: String,
    pub(crate) allocation_mode: String,
    pub(crate) count: Option<u64>,
    pub(crate) selectors: Vec<DeviceSelector>,
    pub(crate) capacity: Option<CapacityRequests>,
    pub(crate) admin_access: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceSelector {
    pub(crate) cel: Cel,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cel {
    pub(crate) expression: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CapacityRequests {
    pub(crate) requests: Texts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    pub(crate) allocation: Option<Allocation>,
    pub(crate) reserved_for: Vec<Consumer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Consumer {
    pub(crate) uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Allocation {
    pub(crate) devices: AllocationDevices,
}

impl Allocation {
    /// The nodes whose devices it has: a node's pool has the node's name.
    pub(crate) fn nodes(&self) -> BTreeSet<&str> {
        self.devices.results.iter().map(|result| result.pool.as_str()).collect()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AllocationDevices {
    pub(crate) results: Vec<AllocationResult>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AllocationResult {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) consumed_capacity: Texts,
}

/// A native group of Pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodGroupObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodGroupSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodGroupSpec {
    pub(crate) scheduling_policy: GroupPolicy,
    pub(crate) scheduling_constraints: GroupConstraints,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupConstraints {
    pub(crate) topology: Vec<GroupTopology>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupTopology {
    pub(crate) key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupPolicy {
    pub(crate) gang: Option<Gang>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Gang {
    pub(crate) min_count: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceObject {
    pub(crate) metadata: Meta,
}

/// A claim of a persistent volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeClaimObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: VolumeClaimSpec,
    pub(crate) status: VolumePhase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeClaimSpec {
    pub(crate) volume_name: String,
    pub(crate) storage_class_name: Option<String>,
    pub(crate) access_modes: Vec<String>,
    pub(crate) volume_mode: Option<String>,
    pub(crate) resources: Resources,
    pub(crate) selector: LabelSelector,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumePhase {
    pub(crate) phase: String,
}

/// A persistent volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeObject {
    pub(crate) metadata: Meta,
    pub(crate) spec: VolumeSpec,
    pub(crate) status: VolumePhase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    pub(crate) node_affinity: Option<VolumeAffinity>,
    pub(crate) claim_ref: Option<ClaimReference>,
    pub(crate) capacity: Texts,
    pub(crate) access_modes: Vec<String>,
    pub(crate) storage_class_name: String,
    pub(crate) volume_mode: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeAffinity {
    pub(crate) required: Option<NodeTerms>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// How volumes of a class are made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageClassObject {
    pub(crate) metadata: Meta,
    pub(crate) provisioner: String,
    pub(crate) volume_binding_mode: String,
    pub(crate) allowed_topologies: Vec<StorageTopology>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageTopology {
    pub(crate) match_label_expressions: Vec<StorageLabel>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StorageLabel {
    pub(crate) key: String,
    pub(crate) values: Vec<String>,
}
