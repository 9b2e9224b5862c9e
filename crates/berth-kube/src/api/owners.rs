//! Departments and projects: who owns quota.

use super::amount::{self, Amount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a department or project is entitled to in one pool of nodes.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entitlement {
    /// Guaranteed GPUs. A project without a quota is guaranteed none; a department without one, what its children are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::quota")]
    pub quota: Option<Amount>,
    /// Guaranteed GPUs by model; part of the quota, not on top of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "amount::model_quotas")]
    pub model_quotas: BTreeMap<String, Amount>,
    /// Guaranteed cores of CPU; unlimited when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::cpu")]
    pub cpu_quota: Option<Amount>,
    /// Guaranteed memory; unlimited when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::memory")]
    pub memory_quota: Option<Amount>,
    /// GPUs never passed; unlimited when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::quota")]
    pub limit: Option<Amount>,
    /// Weight when idle GPUs are shared; the quota, or 1 when the quota is 0, when absent. 0 does not borrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::quota")]
    pub weight: Option<Amount>,
    /// Higher ranks are served first when idle GPUs are shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
}

/// A group of projects, possibly inside of another department.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Department",
    doc = "A group of projects that shares a quota, possibly inside of another department.",
    status = "OwnerStatus",
    derive = "PartialEq",
    shortname = "dept",
    category = "berth",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parent"),
    printcolumn(name = "Quota", type_ = "string", json_path = ".spec.quota"),
    printcolumn(name = "Allocated", type_ = "string", json_path = ".status.allocated"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63")
        .message("the name of a department has lowercase letters, digits and '-', begins and ends with a letter or digit, and is at most 63 long"),
    validation = Rule::new("!has(self.spec.parent) || self.spec.parent != self.metadata.name")
        .message("a department cannot be part of itself")
)]
#[serde(rename_all = "camelCase")]
pub struct DepartmentSpec {
    /// The department it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub parent: Option<String>,
    /// What it is entitled to in the pool `default`.
    #[serde(flatten)]
    pub entitlement: Entitlement,
    /// What it is entitled to in other pools, by the name of the pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub pools: BTreeMap<String, Entitlement>,
}

/// What users submit work to.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Project",
    doc = "Who owns work and quota. Its namespaces are made by Berth; what runs there counts for it.",
    status = "OwnerStatus",
    derive = "PartialEq",
    shortname = "proj",
    category = "berth",
    printcolumn(name = "Department", type_ = "string", json_path = ".spec.department"),
    printcolumn(name = "Quota", type_ = "string", json_path = ".spec.quota"),
    printcolumn(name = "Limit", type_ = "string", json_path = ".spec.limit"),
    printcolumn(name = "Allocated", type_ = "string", json_path = ".status.allocated"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waiting"),
    printcolumn(name = "Fair share", type_ = "string", json_path = ".status.fairShare", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 57")
        .message("the name of a project has lowercase letters, digits and '-', begins and ends with a letter or digit, and is at most 57 long: its namespace is called berth- and this name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.pools) || !('default' in self.pools)")
    .message("what the project has in the pool `default` is written directly in spec, not below pools"))]
pub struct ProjectSpec {
    /// The department it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub department: Option<String>,
    /// What it is entitled to in the pool `default`.
    #[serde(flatten)]
    pub entitlement: Entitlement,
    /// What it is entitled to in other pools, by the name of the pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub pools: BTreeMap<String, Entitlement>,
    /// Namespaces whose work is of this project; one called `berth-` and its name when absent. Those that do not exist
    /// are made. A namespace belongs to one project: the one that named it first keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))")
        .message("the name of a namespace has lowercase letters, digits and '-'"))]
    #[x_kube(validation = Rule::new("self.all(name, !name.startsWith('kube-') && name != 'default')")
        .message("namespaces of Kubernetes itself, and `default`, belong to no project"))]
    pub namespaces: Vec<String>,
    /// People who may submit work in its namespaces, as the cluster knows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub members: Vec<Member>,
    /// Labels of nodes that training, distributed work and inference may use, with the accepted values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub train_nodes: BTreeMap<String, Vec<String>>,
    /// Labels of nodes that interactive work may use, with the accepted values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub interactive_nodes: BTreeMap<String, Vec<String>>,
    /// Interactive work is ended after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::positive_span")]
    pub interactive_time_limit: Option<String>,
    /// Any work is ended after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::positive_span")]
    pub time_limit: Option<String>,
    /// Work whose GPUs have been idle this long is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::positive_span")]
    pub idle_limit: Option<String>,
    /// Nothing of this project is evicted before it ran this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount::span")]
    pub min_run_time: Option<String>,
    /// Whether its work may use the network of the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_host_network: bool,
    /// Whether its work may be privileged, and see folders of the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_privileged: bool,
}

/// A person, or all persons of a group.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// `User` or `Group`.
    #[serde(default)]
    pub kind: MemberKind,
    /// The name, as whoever authenticates people says it.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Whether a member is one person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberKind {
    /// One person.
    #[default]
    User,
    /// Everybody of a group.
    Group,
}

impl MemberKind {
    /// As Kubernetes writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
        }
    }
}

/// What a department or project has.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerStatus {
    /// GPUs it has in the pool `default`, elastic extras included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<String>,
    /// GPUs of work that cannot be preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_non_preemptible: Option<String>,
    /// Its fair share now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<String>,
    /// Workloads that run or are about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<i64>,
    /// Workloads that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i64>,
    /// Its namespaces that are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// One sentence, when there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: `Ready`, false with a reason when something is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
