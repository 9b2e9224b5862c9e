//! `berth-testbed up` and `berth-testbed down`: a control plane to try Berth out with, in the background.

mod background;

use anyhow::Result;
use berth_testbed::{Cluster, NodeSpec, Options};
use clap::{Parser, Subcommand};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A real Kubernetes control plane on loopback, with simulated nodes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The folder the cluster lives in
    #[arg(long, global = true, env = "BERTH_KUBE_FOLDER", default_value_os_t = default_folder())]
    folder: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start it in the background, unless it runs
    Up(Shape),
    /// End it and remove its folder
    Down,
    /// Run it until a signal comes
    Serve(Shape),
}

#[derive(Debug, Clone, clap::Args)]
struct Shape {
    /// Simulated nodes, as 2xdgx1, or 1xdgx1,2xworkstation
    #[arg(long, default_value = "2xdgx1")]
    nodes: String,
    /// Publish GPUs as devices that can be shared (ResourceSlices), not as a count of nvidia.com/gpu
    #[arg(long)]
    dra: bool,
    /// Run the stock scheduler too
    #[arg(long)]
    scheduler: bool,
}

impl Shape {
    fn options(&self, folder: &Path) -> Result<Options> {
        let mut first = 1;
        let mut nodes = Vec::new();
        for text in self.nodes.split(',') {
            let spec = NodeSpec { first, dra: self.dra, ..NodeSpec::parse(text.trim())? };
            first += spec.count;
            nodes.push(spec);
        }
        Ok(Options { folder: Some(folder.into()), scheduler: self.scheduler, nodes, ..Options::default() })
    }

    /// The same shape as arguments of `serve`.
    fn arguments(&self) -> Vec<&str> {
        let mut words = vec!["--nodes", &self.nodes];
        words.extend(self.dra.then_some("--dra"));
        words.extend(self.scheduler.then_some("--scheduler"));
        words
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth-testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { command, folder }: Arguments) -> Result<()> {
    match command {
        Command::Up(shape) => {
            // A mistake is said here, not by a process whose words are in a file.
            shape.options(&folder)?;
            background::up(&folder, &shape.arguments())
        }
        Command::Down => background::down(&folder),
        Command::Serve(shape) => {
            let options = shape.options(&folder)?;
            background::serve(&folder, || Cluster::start(options))
        }
    }
}

fn default_folder() -> PathBuf {
    let cache = std::env::var_os("BERTH_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(".cache/berth"),
        PathBuf::from,
    );
    cache.join("kube")
}
