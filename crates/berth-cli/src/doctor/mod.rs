//! `berth doctor`: what a machine or a cluster needs, and the fix for each failure. It needs no running server.
//!
//! ```text
//! machine, kubectl --gather--> facts --check, pure--> verdicts --> table or JSON, exit code
//! ```

mod cluster;
mod machine;
mod verdict;

use crate::{
    failure::{Exit, Failure},
    output::{self, Look, OutputArgs},
    session::ServerArgs,
    settings::Settings,
};
use berth_server::Folder;
use clap::Args;
use std::{env, path::PathBuf};
use verdict::Report;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth doctor                                  can this machine run `berth up`?
  berth doctor --folder /data/berth             with the disk and the port of that folder
  berth doctor --kubernetes                     can the cluster of the current kubeconfig run the operator?
  berth doctor --kubeconfig lab.yaml --json

Exits with 1 when something that is needed fails; warnings alone exit with 0.")]
pub(crate) struct DoctorArgs {
    /// Check a Kubernetes cluster instead of this machine, by kubectl
    #[arg(long)]
    kubernetes: bool,
    /// Kubeconfig of the cluster to check
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    kube_context: Option<String>,
    /// Namespace of the operator
    #[arg(long, value_name = "NAME", default_value = berth_api::MANIFEST_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(server: &ServerArgs, arguments: &DoctorArgs) -> anyhow::Result<Exit> {
    let checks = if arguments.kubernetes || arguments.kubeconfig.is_some() || arguments.kube_context.is_some()
    {
        crate::names::check("namespace", &arguments.namespace)?;
        let kubectl = cluster::Kubectl {
            program: "kubectl".into(),
            kubeconfig: arguments.kubeconfig.clone(),
            context: arguments.kube_context.clone(),
        };
        cluster::check(&cluster::gather(&kubectl, &arguments.namespace))
    } else {
        let folder = std::path::absolute(server.folder()?)?;
        let folder = Folder::at(folder);
        // Settings that cannot be read are a finding, and no reason to look at nothing else.
        let (settings, broken) = match Settings::of_folder(&folder) {
            Ok(settings) => (settings.unwrap_or_default(), None),
            Err(error) => (Settings::default(), Some(Failure::of(&error).text)),
        };
        machine::check(&machine::gather(&folder, &settings, broken))
    };
    let report = Report { checks };
    let look = Look::of(arguments.output);
    output::write_part(output::render(arguments.output.form(), &look, &report)?.as_bytes())?;
    Ok(if report.fails() { Exit::Failed } else { Exit::Done })
}

/// Where a program is, by the PATH.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
