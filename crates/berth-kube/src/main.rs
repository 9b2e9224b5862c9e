//! The operator: scheduler and controllers in one process.

use anyhow::{Context, Result};
use berth_kube::run;
use clap::Parser;
use std::path::PathBuf;

/// Places Pods on the nodes of a Kubernetes cluster, fairly.
#[derive(Debug, Parser)]
#[command(name = "berth-operator", version)]
struct Arguments {
    /// The cluster; without it, the one this process runs in, or the one of KUBECONFIG.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the operator, where its lease is.
    #[arg(long, env = "BERTH_NAMESPACE", default_value = "berth-system")]
    namespace: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let config = match &arguments.kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &Default::default())
                .await
                .context("the kubeconfig cannot be used")?
        }
        None => kube::Config::infer().await.context("no cluster is known; set KUBECONFIG")?,
    };
    let client = run::client(config)?;
    run::run(client, run::Options::new(arguments.namespace), stop()).await
}

/// Until somebody asks for the end.
async fn stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}
