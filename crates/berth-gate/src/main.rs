//! Serves the platform's API in front of a Kubernetes cluster.

use anyhow::{Context, Result};
use berth_gate::Gate;
use berth_server::Serving;
use clap::Parser;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::sync::oneshot;

/// Serves the platform's API in front of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "berth-gate", version)]
struct Arguments {
    /// The cluster; without it, the one this process runs in, or the one of KUBECONFIG.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where its token and the history for charts are.
    #[arg(long, env = "BERTH_HOME")]
    folder: PathBuf,
    /// Where it listens.
    #[arg(long, env = "BERTH_LISTEN", default_value = "127.0.0.1:7370")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let config = berth_kube::run::config(arguments.kubeconfig.as_deref()).await?;
    let gate = Gate::open(berth_kube::run::client(config)?).await?;
    let user = std::env::var("USER").unwrap_or_else(|_| "berth".into());
    let serving = Serving {
        folder: arguments.folder,
        listen: arguments.listen,
        user,
        clock: berth_server::now,
        ping_every: berth_server::PING_EVERY,
    };
    let (answers_at, told) = oneshot::channel();
    let said = async {
        if let Ok(address) = told.await {
            println!("berth answers at http://{address}, in front of the cluster");
        }
    };
    let serve = berth_server::serve(serving, Arc::new(gate), answers_at, berth_kube::run::stop_asked());
    let (served, ()) = tokio::join!(serve, said);
    served.context("the API cannot be served")
}
