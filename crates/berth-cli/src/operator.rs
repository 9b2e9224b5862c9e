//! What an administrator applies to a cluster.

mod access;
mod rights;

use crate::failure::Failure;
use access::ServerAccess;
use berth_api::{MANIFEST_IMAGE, MANIFEST_NAMESPACE};
use clap::Subcommand;
pub(crate) use rights::{ACCOUNT, Rule, rules};
use serde_json::Value;
use std::io::Write;

/// What stands between two objects of the file.
const BETWEEN: &str = "\n---\n";

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
        #[arg(long, value_name = "NAME", default_value = MANIFEST_NAMESPACE)]
        namespace: String,
        /// The image of the operator and of the server
        #[arg(long, value_name = "IMAGE", default_value = MANIFEST_IMAGE)]
        image: String,
        #[command(flatten)]
        access: Box<ServerAccess>,
    },
}

pub(crate) fn run(command: &OperatorCommand) -> anyhow::Result<()> {
    let OperatorCommand::Manifest { cluster, namespace, image, access } = command;
    let text = berth_api::manifest(cluster, namespace, image).map_err(|problem| {
        let failure = Failure::misuse(problem.detail);
        problem.hint.into_iter().fold(failure, Failure::hint)
    })?;
    access.check()?;
    let text = if access.is_any() { with_access(&text, access)? } else { text };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
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
    use berth_api::MANIFEST;

    #[test]
    fn where_nothing_is_added_everything_is_as_it_was() {
        let text = with_access(MANIFEST, &ServerAccess::default()).expect("a manifest");
        assert_eq!(text.trim_end(), MANIFEST.trim_end());
    }
}
