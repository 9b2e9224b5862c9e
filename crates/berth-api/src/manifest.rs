//! The manifest that installs Berth on a Kubernetes cluster, as text. It is generated from the operator's code and committed, so that
//! a program can print or serve it without any Kubernetes type.

use crate::{NAME_RULE, Problem, is_name, quoted};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// The committed manifest, with its defaults.
pub const MANIFEST: &str = include_str!("../../../deploy/manifest.yaml");
/// The namespace that the committed manifest installs into.
pub const MANIFEST_NAMESPACE: &str = "berth-system";
/// The image that the committed manifest runs.
pub const MANIFEST_IMAGE: &str = concat!("ghcr.io/berth/berth:", env!("CARGO_PKG_VERSION"));
/// Where the committed manifest names the cluster.
const CLUSTER: &str = "- name: BERTH_CLUSTER\n          value: default\n";

/// What can be chosen of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ManifestQuery {
    /// The name of the cluster.
    pub cluster: String,
    /// The namespace to install into; `berth-system` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of operator and server; the one of this release when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Returns the manifest for a cluster. Values that are not a name or an image are refused, so that none can add YAML of its own.
pub fn manifest(cluster: &str, namespace: &str, image: &str) -> Result<String, Problem> {
    for (what, name) in [("cluster", cluster), ("namespace", namespace)] {
        if !is_name(name) {
            let text = format!("{} is not a valid {what} name", quoted(name));
            return Err(Problem::invalid(what, text).hint(NAME_RULE));
        }
    }
    let is_image = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    if image.is_empty() || !image.chars().all(is_image) {
        let text = format!("{} is not a valid image", quoted(image));
        return Err(Problem::invalid("image", text).hint("write it as registry/name:tag"));
    }
    Ok(MANIFEST
        .replace(CLUSTER, &CLUSTER.replace("default", cluster))
        .replace(MANIFEST_IMAGE, image)
        .replace(MANIFEST_NAMESPACE, namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_has_the_chosen_cluster_namespace_and_image() {
        assert!(MANIFEST.contains(CLUSTER) && MANIFEST.contains(MANIFEST_IMAGE), "the defaults are there");
        let text = manifest("lab", "gpus", "registry.lab/berth:2").expect("a manifest");
        assert!(text.contains("value: lab\n") && text.contains("image: registry.lab/berth:2\n"));
        assert!(text.contains("namespace: gpus\n") && !text.contains(MANIFEST_NAMESPACE));
    }

    #[test]
    fn values_cannot_add_yaml_to_the_manifest() {
        assert!(manifest("a\nb", MANIFEST_NAMESPACE, MANIFEST_IMAGE).is_err());
        assert!(manifest("lab", "../x", MANIFEST_IMAGE).is_err());
        assert!(manifest("lab", MANIFEST_NAMESPACE, "x y").is_err());
    }
}
