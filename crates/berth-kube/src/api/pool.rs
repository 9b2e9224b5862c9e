//! Pools of nodes.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Nodes that share quotas of their own. A node is in the first pool, by name, whose labels it has; in `default` when
/// there is none.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "NodePool",
    doc = "Nodes that share quotas of their own.",
    derive = "PartialEq",
    category = "berth",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "GPUs", type_ = "string", json_path = ".status.gpus"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    status = "NodePoolStatus",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63")
        .message("the name of a pool has lowercase letters, digits and '-', begins and ends with a letter or digit, and is at most 63 long"),
    validation = Rule::new("self.metadata.name == 'default' || size(self.spec.nodeSelector.matchLabels) > 0")
        .message("only the pool `default` may go without labels: name those of its nodes in nodeSelector.matchLabels")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Which nodes are in it.
    #[serde(default)]
    pub node_selector: PoolSelector,
    /// Labels that say where a node is, from the widest (a building, a block) to the narrowest (a rack).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub topology: Vec<String>,
}

/// Which nodes are in a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSelector {
    /// Labels that a node must have, all of them.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
}

/// What is in a pool.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    /// How many nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Their GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
}

impl NodePool {
    /// Whether a node with these labels is in it.
    pub fn accepts<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let wanted = &self.spec.node_selector.match_labels;
        wanted.iter().all(|(key, value)| label(key) == Some(value.as_str()))
    }
}
