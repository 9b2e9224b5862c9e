//! What an administrator applies to a cluster.

mod access;

use crate::failure::Failure;
use access::ServerAccess;
use clap::Subcommand;
use serde_json::Value;
use std::io::Write;

/// Everything in one file, made from the code of the operator and kept equal to it by a test there.
const MANIFEST: &str = include_str!("../../../deploy/manifest.yaml");
/// What the file says where something can be chosen.
const NAMESPACE: &str = "berth-system";
const IMAGE: &str = concat!("ghcr.io/berth/berth:", env!("CARGO_PKG_VERSION"));
/// What stands between two objects of the file.
const BETWEEN: &str = "\n---\n";
const CLUSTER: &str = "- name: BERTH_CLUSTER\n          value: default\n";

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Print the one file for `kubectl apply -f`
    #[command(
        after_help = "Examples:\n  berth operator manifest --cluster lab > berth.yaml\n  kubectl apply --server-side -f berth.yaml\n  \
            berth operator manifest --cluster lab --tls-secret berth-cert --public-name berth.example > berth.yaml"
    )]
    Manifest {
        /// The name of the cluster, for people
        #[arg(long, value_name = "NAME")]
        cluster: String,
        /// The namespace of everything that is installed
        #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
        namespace: String,
        /// The image of the operator and of the server
        #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
        image: String,
        #[command(flatten)]
        access: Box<ServerAccess>,
    },
}

pub(crate) fn run(command: &OperatorCommand) -> anyhow::Result<()> {
    let OperatorCommand::Manifest { cluster, namespace, image, access } = command;
    let text = manifest(cluster, namespace, image)?;
    access.check()?;
    let text = if access.is_any() { with_access(&text, access)? } else { text };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn manifest(cluster: &str, namespace: &str, image: &str) -> Result<String, Failure> {
    for (what, name) in [("cluster", cluster), ("namespace", namespace)] {
        if !berth_api::is_name(name) {
            let text = format!("{} is no name of a {what}", berth_api::quoted(name));
            return Err(Failure::misuse(text).hint(berth_api::NAME_RULE));
        }
    }
    let is_image = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    if image.is_empty() || !image.chars().all(is_image) {
        return Err(Failure::misuse(format!("{} is no image", berth_api::quoted(image)))
            .hint("write it as registry/name:tag"));
    }
    Ok(MANIFEST
        .replace(CLUSTER, &CLUSTER.replace("default", cluster))
        .replace(IMAGE, image)
        .replace(NAMESPACE, namespace))
}

/// The same with what lets people reach the server. What is not about that is left as it is written.
fn with_access(manifest: &str, access: &ServerAccess) -> anyhow::Result<String> {
    let mut texts: Vec<String> = manifest.split(BETWEEN).map(str::to_owned).collect();
    let mut more = Vec::new();
    for text in texts.iter_mut().filter(|text| text.contains(access::OF_SERVER)) {
        let mut object: Value = serde_saphyr::from_str(text)?;
        more.extend(access.add_to(&mut object));
        *text = yaml(&object)?;
    }
    let more = more.iter().map(yaml).collect::<anyhow::Result<Vec<_>>>()?;
    texts.extend(more);
    Ok(texts.join(BETWEEN) + "\n")
}

fn yaml(object: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(object)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_in_the_file() {
        assert!(MANIFEST.contains(CLUSTER) && MANIFEST.contains(IMAGE), "the file has what can be chosen");
        let text = manifest("lab", "gpus", "registry.lab/berth:2").expect("a manifest");
        assert!(text.contains("value: lab\n") && text.contains("image: registry.lab/berth:2\n"));
        assert!(text.contains("namespace: gpus\n") && !text.contains(NAMESPACE));
    }

    #[test]
    fn where_nothing_is_added_everything_is_as_it_was() {
        let text = with_access(MANIFEST, &ServerAccess::default()).expect("a manifest");
        assert_eq!(text.trim_end(), MANIFEST.trim_end());
    }

    #[test]
    fn names_cannot_write_into_the_file() {
        assert!(manifest("a\nb", NAMESPACE, IMAGE).is_err());
        assert!(manifest("lab", "../x", IMAGE).is_err());
        assert!(manifest("lab", NAMESPACE, "x y").is_err());
    }
}
