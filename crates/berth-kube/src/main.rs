//! The operator: scheduler and controllers in one process.

use anyhow::Result;
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
    /// The name of the cluster, for people who read the logs of several.
    #[arg(long, env = "BERTH_CLUSTER", default_value = "default")]
    cluster: String,
    /// Where it tells whether it is well: /livez and /readyz.
    #[arg(long, env = "BERTH_HTTP")]
    http: Option<std::net::SocketAddr>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    tracing::info!(cluster = arguments.cluster, version = env!("CARGO_PKG_VERSION"), "the operator starts");
    let config = run::config(arguments.kubeconfig.as_deref()).await?;
    let client = run::client(config)?;
    let options = run::Options { health: arguments.http, ..run::Options::new(arguments.namespace) };
    run::run(client, options, run::stop_asked()).await
}
