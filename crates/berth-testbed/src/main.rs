//! `berth-testbed up` and `berth-testbed down`: a control plane to try Berth out with, in the background.

mod background;

use anyhow::{Context, Result};
use berth_testbed::{Cluster, Image, NodeSpec, Options};
use clap::{Parser, Subcommand};
use std::{
    ffi::{OsStr, OsString},
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
    /// Add a real node: kubelet, containerd and runc; needs root
    #[arg(long)]
    real_node: bool,
    /// GPUs the real node shall say it has
    #[arg(long, default_value_t = 0, requires = "real_node", value_name = "COUNT")]
    real_gpus: u32,
    /// A program for the real node: an image with it, its libraries and a shell, called localhost/<name>:1
    #[arg(long, requires = "real_node", value_name = "PATH")]
    program: Vec<PathBuf>,
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
        Ok(Options {
            folder: Some(folder.into()),
            scheduler: self.scheduler,
            nodes,
            real_node: self.real_node,
            real_gpus: self.real_gpus,
            ..Options::default()
        })
    }

    /// The same shape as arguments of `serve`.
    fn arguments(&self) -> Result<Vec<OsString>> {
        let mut words: Vec<OsString> = vec!["--nodes".into(), (&self.nodes).into()];
        let flags = [("--dra", self.dra), ("--scheduler", self.scheduler), ("--real-node", self.real_node)];
        words.extend(flags.into_iter().filter(|(_, set)| *set).map(|(flag, _)| flag.into()));
        if self.real_node {
            words.extend(["--real-gpus".into(), self.real_gpus.to_string().into()]);
        }
        for program in &self.program {
            let program = program.canonicalize().with_context(|| format!("finding {}", program.display()))?;
            words.extend(["--program".into(), program.into()]);
        }
        Ok(words)
    }

    /// Starts the cluster, and gives the real node its images.
    fn start(&self, options: Options) -> Result<Cluster> {
        let cluster = Cluster::start(options)?;
        if self.real_node {
            cluster.import_image(&Image::new("localhost/busybox:1").shell()?)?;
        }
        for program in &self.program {
            let name = program.file_name().and_then(OsStr::to_str).context("a program has a name")?;
            let inside = format!("/usr/local/bin/{name}");
            let image = Image::new(&format!("localhost/{name}:1")).shell()?.program(program, &inside)?;
            cluster.import_image(&image.entrypoint([inside]))?;
        }
        Ok(cluster)
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
            if shape.real_node {
                Cluster::real_node_available().map_err(anyhow::Error::msg)?;
            }
            background::up(&folder, &shape.arguments()?)
        }
        Command::Down => background::down(&folder),
        Command::Serve(shape) => {
            let options = shape.options(&folder)?;
            background::serve(&folder, || shape.start(options))
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
