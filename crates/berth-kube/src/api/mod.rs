//! The resources that people and Berth write: departments, projects, pools of nodes, workloads, and the ledger of the
//! devices of each node. The API server judges what it can alone, by schema and rules; [`crate::convert`] judges the rest.

#![allow(
    unreachable_pub,
    reason = "the derive for schemas makes public copies of structs inside of functions"
)]

mod amount;
mod ledger;
mod owners;
mod pool;
mod status;
mod workload;

pub use amount::Amount;
pub use ledger::{DeviceAllocation, DeviceLedger, DeviceLedgerSpec};
pub use owners::{
    Department, DepartmentSpec, Entitlement, Member, MemberKind, OwnerStatus, Project, ProjectSpec,
};
pub use pool::{NodePool, NodePoolSpec, NodePoolStatus, PoolSelector};
pub use status::{LastEviction, Progress, WorkloadPhase, WorkloadStatus};
pub use workload::{Restart, ServiceType, TopologySpec, VolumeSpec, Workload, WorkloadKind, WorkloadSpec};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

/// The definitions of all our resources.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let all = [Department::crd(), DeviceLedger::crd(), NodePool::crd(), Project::crd(), Workload::crd()];
    all.into_iter().map(without_null).collect()
}

/// What is null counts as absent: the API server then takes it away before any rule sees it.
fn without_null(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("nullable");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(crd).expect("a definition is JSON");
    strip(&mut value);
    serde_json::from_value(value).expect("is still a definition")
}

#[cfg(test)]
mod tests;
