//! What an administrator applies to a cluster.

use crate::failure::Failure;
use clap::Subcommand;
use std::io::Write;

/// Everything in one file, made from the code of the operator and kept equal to it by a test there.
const MANIFEST: &str = include_str!("../../../deploy/manifest.yaml");
/// What the file says where something can be chosen.
const NAMESPACE: &str = "berth-system";
const IMAGE: &str = concat!("ghcr.io/berth/berth:", env!("CARGO_PKG_VERSION"));
const CLUSTER: &str = "- name: BERTH_CLUSTER\n          value: default\n";

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Print the one file for `kubectl apply -f`
    #[command(
        after_help = "Example:\n  berth operator manifest --cluster lab > berth.yaml\n  kubectl apply --server-side -f berth.yaml"
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
    },
}

pub(crate) fn run(command: &OperatorCommand) -> anyhow::Result<()> {
    let OperatorCommand::Manifest { cluster, namespace, image } = command;
    let text = manifest(cluster, namespace, image)?;
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
    fn names_cannot_write_into_the_file() {
        assert!(manifest("a\nb", NAMESPACE, IMAGE).is_err());
        assert!(manifest("lab", "../x", IMAGE).is_err());
        assert!(manifest("lab", NAMESPACE, "x y").is_err());
    }
}
