//! What is installed: one file for `kubectl apply -f`, made from what the code needs.

mod operator;
mod roles;
mod server;
mod yaml;

pub use roles::{operator_rules, own_rules, researcher_rules, server_rules};
#[cfg(test)]
pub(crate) use yaml::fresh;
pub use yaml::yaml;

use crate::{api, names, tenancy};
use serde_json::{Value, json};

/// What differs between installations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the cluster, for people.
    pub cluster: String,
    /// The namespace of the operator.
    pub namespace: String,
    /// The image of the operator and of the server.
    pub image: String,
    /// How many operators; one leads, the others stand by.
    pub replicas: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: "default".into(),
            namespace: "berth-system".into(),
            image: concat!("ghcr.io/berth/berth:", env!("CARGO_PKG_VERSION")).into(),
            replicas: 2,
        }
    }
}

/// Labels of everything that is installed.
fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "berth", "app.kubernetes.io/component": "operator" })
}

/// Every object of an installation, in the order in which they are applied.
pub fn manifest(settings: &Settings) -> Vec<Value> {
    let mut objects = vec![namespace(settings)];
    objects
        .extend(api::crds().into_iter().map(|crd| serde_json::to_value(crd).expect("a definition is JSON")));
    objects.push(device_class());
    objects.extend(roles::objects(settings));
    objects.extend(operator::objects(settings));
    objects.extend(server::objects(settings));
    objects
}

fn namespace(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            "labels": {
                "app.kubernetes.io/name": "berth",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

/// The devices that claims of Berth ask for.
fn device_class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": names::DEVICE_CLASS, "labels": { "app.kubernetes.io/name": "berth" } },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{}'", names::DRIVER) } }] },
    })
}

/// The name of the role that members of projects get.
const RESEARCHER: &str = tenancy::RESEARCHER_ROLE;
/// The name of most of what is installed.
const OPERATOR: &str = "berth-operator";
/// How much is said; written down so that whoever wants to hear more finds where to change it.
const LOG: &str = "info";

#[cfg(test)]
mod tests;
