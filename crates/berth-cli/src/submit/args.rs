//! The arguments of `submit`: the report's flags and today's.

use super::values::{
    parse_environment, parse_mount, parse_port, parse_priority, parse_secs, parse_selector, parse_volume,
};
use crate::{output::OutputArgs, session::ProjectArg, wait::Until};
use berth_api::{CoresAmount, GpuAmount, MemoryAmount, MountRequest, PriorityName, VolumeMount};
use clap::{Args, builder::PossibleValuesParser};
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1
  berth submit build1 -i python -g 0.5 --interactive -- sleep infinity
  berth submit gang -i trainer -g 8 --workers 4 --max-run-time 12h -- torchrun train.py
  berth submit sweep -f job.yaml -g 2 -e SEED=7
  berth submit nb -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 \\
      --command=start-notebook.sh --args=\"--NotebookApp.base_url=nb\"
  berth submit mine -g 1 -- python3 train.py        in this directory, with this PATH and virtual environment
  berth submit big -i trainer -g 8 --dry-run

With --wait the exit code is that of `berth wait`.")]
pub(crate) struct SubmitArgs {
    /// Its name; made up when absent
    pub(crate) name: Option<String>,
    /// Its name, as releases after the report write it
    #[arg(long = "name", hide = true, value_name = "NAME", conflicts_with = "name")]
    pub(crate) named: Option<String>,
    #[command(flatten)]
    pub(crate) project: ProjectArg,
    /// The image
    #[arg(short, long)]
    pub(crate) image: Option<String>,
    /// GPUs of each worker: a whole number, or a fraction of one
    #[arg(short, long = "gpus", visible_alias = "gpu", value_name = "GPUS")]
    pub(crate) gpus: Option<GpuAmount>,
    /// The command and its arguments, instead of what the image would run
    #[arg(last = true, value_name = "CMD")]
    pub(crate) trailing: Vec<String>,
    /// A file with the request as YAML or JSON, `-` for stdin; flags win over it
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The beginning of a name to be made up
    #[arg(long, visible_alias = "job-name-prefix", value_name = "PREFIX", conflicts_with = "name")]
    pub(crate) name_prefix: Option<String>,
    /// Check program, directory, image and volumes, show what would happen, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait until it has ended, or until it runs
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "finished", value_name = "UNTIL")]
    pub(crate) wait: Option<Until>,
    /// Join its terminal as soon as it runs; gives it one
    #[arg(long, conflicts_with_all = ["wait", "dry_run"])]
    pub(crate) attach: bool,
    /// Submit for another person
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// A person is waiting: not preempted, and within quota
    #[arg(long, help_heading = "Kind", conflicts_with = "inference")]
    pub(crate) interactive: bool,
    /// JupyterLab, ready to use; its link is printed when it answers
    #[arg(long, help_heading = "Kind", conflicts_with_all = ["inference", "workers", "attach"])]
    pub(crate) jupyter: bool,
    /// It serves
    #[arg(long, help_heading = "Kind")]
    pub(crate) inference: bool,
    /// It may borrow, and may be preempted
    #[arg(long, help_heading = "Kind")]
    pub(crate) preemptible: bool,
    /// Workers; more than one is a gang
    #[arg(long, help_heading = "Kind", value_name = "N")]
    pub(crate) workers: Option<u32>,
    /// Workers that must start together; the others are elastic extras
    #[arg(long, help_heading = "Kind", value_name = "N")]
    pub(crate) min_workers: Option<u32>,
    /// Who starts again when a worker fails: all of them, or it alone in its place
    #[arg(long, help_heading = "Kind", value_parser = PossibleValuesParser::new(["gang", "worker"]))]
    pub(crate) restart: Option<String>,
    /// What starts the command on the workers
    #[arg(long, help_heading = "Kind", value_parser = PossibleValuesParser::new(["none", "torchrun", "mpi"]))]
    pub(crate) framework: Option<String>,
    /// Run the command to a good end so many times, each with another BERTH_INDEX
    #[arg(long, help_heading = "Kind", value_name = "N")]
    pub(crate) completions: Option<u32>,
    /// So many of these at once
    #[arg(long, help_heading = "Kind", value_name = "N")]
    pub(crate) parallelism: Option<u32>,
    /// Processes of MPI, as `runai submit-mpi` counts them; one worker each
    #[arg(long, hide = true, value_name = "N", conflicts_with = "workers")]
    pub(crate) processes: Option<u32>,
    /// Replicas of what serves; the same as --workers
    #[arg(long, hide = true, value_name = "N", conflicts_with_all = ["workers", "processes"])]
    pub(crate) replicas: Option<u32>,
    /// A number, or very-low, low, medium, medium-high, high, very-high, critical
    #[arg(long, help_heading = "Kind", value_parser = parse_priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<PriorityName>,
    /// End it after running this long, as 90m or 12h
    #[arg(long, help_heading = "Kind", value_name = "TIME", value_parser = parse_secs)]
    pub(crate) max_run_time: Option<u64>,
    /// How often a failed run is started again
    #[arg(long, alias = "backoffLimit", help_heading = "Kind", value_name = "N")]
    pub(crate) backoff_limit: Option<u32>,
    /// Time between notice and the end
    #[arg(long, help_heading = "Kind", value_name = "TIME", value_parser = parse_secs)]
    pub(crate) grace: Option<u64>,

    /// GPU memory of each worker, instead of -g, as 8Gi
    #[arg(long, help_heading = "Resources", value_name = "BYTES", conflicts_with = "gpus")]
    pub(crate) gpu_memory: Option<MemoryAmount>,
    /// Devices of which a fraction, or an amount of memory, is taken: so much of each
    #[arg(long, help_heading = "Resources", value_name = "N")]
    pub(crate) gpu_devices: Option<u8>,
    /// Accepted GPU models
    #[arg(long, help_heading = "Resources", value_name = "MODEL", value_delimiter = ',')]
    pub(crate) gpu_models: Vec<String>,
    /// Cores of each worker
    #[arg(long, help_heading = "Resources", value_name = "CORES")]
    pub(crate) cpu: Option<CoresAmount>,
    /// Memory of each worker, as 16Gi
    #[arg(long, help_heading = "Resources", value_name = "BYTES")]
    pub(crate) memory: Option<MemoryAmount>,
    /// Large shared memory
    #[arg(long, help_heading = "Resources")]
    pub(crate) large_shm: bool,

    /// The pool of nodes
    #[arg(long, alias = "node-pools", help_heading = "Place", value_name = "POOL")]
    pub(crate) node_pool: Option<String>,
    /// A label that nodes must have
    #[arg(long, help_heading = "Place", value_name = "LABEL=VALUE", value_parser = parse_selector)]
    pub(crate) node_selector: Vec<(String, String)>,
    /// `node`, or the label within one value of which all workers must be
    #[arg(long, help_heading = "Place", value_name = "LABEL")]
    pub(crate) topology: Option<String>,
    /// `node`, or the label within one value of which all workers should be
    #[arg(long, help_heading = "Place", value_name = "LABEL")]
    pub(crate) topology_preferred: Option<String>,
    /// Workers go to as many nodes as possible
    #[arg(long, help_heading = "Place")]
    pub(crate) spread: bool,
    /// No two workers on one node: it waits until there are enough nodes
    #[arg(long, help_heading = "Place")]
    pub(crate) apart: bool,

    /// What runs instead of the image's own command; also written as `-- CMD ARGS`
    // The releases after the report made it a switch whose command follows `--`; both are understood.
    #[arg(long, help_heading = "Process", num_args = 0..=1, default_missing_value = "", value_name = "CMD")]
    pub(crate) command: Vec<String>,
    /// An argument of the command; may be repeated, and may begin with a dash
    #[arg(long, help_heading = "Process", allow_hyphen_values = true, value_name = "ARG")]
    pub(crate) args: Vec<String>,
    /// A variable of the environment; NAME alone takes it from here
    #[arg(short, long, help_heading = "Process", value_name = "NAME=VALUE", value_parser = parse_environment)]
    pub(crate) environment: Vec<(String, String)>,
    /// Where the command starts; `-` for a folder of its own [default: the current directory, if the server is on this machine]
    #[arg(long, help_heading = "Process", value_name = "DIR", allow_hyphen_values = true)]
    pub(crate) working_dir: Option<String>,
    /// Give it a terminal that `berth attach` joins
    #[arg(short, long, help_heading = "Process")]
    pub(crate) tty: bool,
    /// Let it read what those who join it type
    #[arg(long, help_heading = "Process")]
    pub(crate) stdin: bool,
    /// Run it as you, with your user and group on this machine
    #[arg(long, help_heading = "Process", conflicts_with_all = ["run_as", "run_as_uid"])]
    pub(crate) run_as_user: bool,
    /// Run it as this user, and group, of the machine
    #[arg(long, help_heading = "Process", value_name = "USER[:GROUP]")]
    pub(crate) run_as: Option<String>,
    /// The same in two flags, as other releases write it
    #[arg(long, hide = true, value_name = "UID", conflicts_with = "run_as")]
    pub(crate) run_as_uid: Option<u32>,
    #[arg(long, hide = true, value_name = "GID", requires = "run_as_uid")]
    pub(crate) run_as_gid: Option<u32>,
    /// Use the network of the node; the project must allow it
    #[arg(long, help_heading = "Process")]
    pub(crate) host_network: bool,
    /// Run it privileged; the project must allow it
    #[arg(long, help_heading = "Process")]
    pub(crate) privileged: bool,
    /// What runs it
    #[arg(long, help_heading = "Process", value_parser = PossibleValuesParser::new(["process", "oci", "docker"]))]
    pub(crate) runtime: Option<String>,
    /// Never fetch the image: it must be on the machine
    #[arg(long, help_heading = "Process")]
    pub(crate) local_image: bool,
    /// A pattern with named groups (epoch, epochs, step, steps, loss, accuracy, percent) that finds progress in its lines
    #[arg(long, help_heading = "Process", value_name = "REGEX")]
    pub(crate) progress_pattern: Option<String>,

    /// A folder of the host
    #[arg(short, long, help_heading = "Data and ports", value_name = "HOST:PATH[:ro]", value_parser = parse_mount)]
    pub(crate) volume: Vec<MountRequest>,
    /// A named volume
    #[arg(long, help_heading = "Data and ports", value_name = "NAME:PATH[:ro]", value_parser = parse_volume)]
    pub(crate) pvc: Vec<VolumeMount>,
    /// A port it listens on
    #[arg(long, help_heading = "Data and ports", value_parser = parse_port)]
    pub(crate) port: Vec<u16>,
    /// How its ports are meant to be reached
    #[arg(short, long, help_heading = "Data and ports", value_name = "TYPE",
        value_parser = PossibleValuesParser::new(["portforward", "loadbalancer", "nodeport", "ingress"]))]
    pub(crate) service_type: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
