//! What is taken of the devices of one node.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The devices of one node, of the same name, and who has which part of them. Whoever allocates changes this object
/// first: its resourceVersion is the compare-and-swap that keeps two writers from giving the same share twice.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "DeviceLedger",
    doc = "Who has which part of the devices of one node. Kept by Berth; read it, but leave it as it is.",
    derive = "PartialEq",
    category = "berth",
    printcolumn(
        name = "Allocations",
        type_ = "string",
        json_path = ".spec.allocations[*].claim",
        priority = 1
    ),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".spec.epoch"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLedgerSpec {
    /// The epoch of the leader that wrote it last; a lower one may not write any more.
    #[schemars(range(min = 0))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message("a leader of an earlier epoch may not write"))]
    pub epoch: i64,
    /// What is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub allocations: Vec<DeviceAllocation>,
}

/// A part of one device, and who has it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceAllocation {
    /// The claim, as `namespace/name`.
    #[schemars(length(min = 1, max = 512))]
    pub claim: String,
    /// The identity of the claim.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// The device, as its driver names it.
    #[schemars(length(min = 1, max = 63))]
    pub device: String,
    /// How much of it, in millionths.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub share: i64,
    /// How much of its memory, in bytes.
    #[schemars(range(min = 0))]
    pub memory: i64,
    /// The identity of the Pod it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub owner: Option<String>,
}
