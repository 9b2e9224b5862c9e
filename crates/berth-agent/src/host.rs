//! The face of the agent: what the control plane may ask of a machine.

use crate::{
    AgentError, Checked, Fact, Listening, LogReader, LogStart, Planned, Shell, ShellSpec, TaskId, TaskSpec,
    TerminalSize, Unfit, Wanted, devices::Devices,
};
use berth_types::{Bytes, Span, Time, WorkloadId};
use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

/// A machine that runs tasks. Calls return at once; what becomes of them comes as [`Fact`]s.
pub trait Host: Send + Sync {
    /// What hardware there is.
    fn devices(&self) -> Devices;

    /// Whether a task could be started here now, and what would become of it: looks at its image, mounts, working directory and
    /// program. This one waits for the file system, for the list of users and for a container engine.
    fn check(&self, planned: &Planned) -> Result<Checked, Unfit>;

    /// The user and group that a text means, if tasks can be run as them here. It says why not, and what to do about it.
    fn find_user(&self, text: &str) -> Result<(u32, u32), String>;

    /// Makes sure that the task was started. A task is started at most once, however often and after whatever crash this is
    /// called; a task that ended stays ended.
    fn ensure_started(&self, spec: TaskSpec);

    /// Makes sure that the task ends: a request, and force when the grace is over. A later call with a shorter grace wins.
    /// [`Fact::Exited`] follows, also for a task that never ran.
    fn ensure_stopped(&self, id: TaskId, grace: Span);

    /// To be called once after a start: takes over what runs, tells what ended meanwhile, starts what was never started, and
    /// ends everything that is not wanted.
    fn recover(&self, wanted: Vec<Wanted>);

    /// The folders of an ended workload may go. Its logs stay, as long as all kept logs are within their bound.
    fn forget(&self, workload: WorkloadId);

    /// The tasks of a workload that have a log, in order.
    fn logged_tasks(&self, workload: WorkloadId) -> Vec<TaskId>;

    /// Reads the log of a task, also of an ended or forgotten one.
    fn log(&self, id: TaskId, start: LogStart) -> Result<LogReader, AgentError>;

    /// Runs a command beside a task that runs, among what the task sees. This one waits until the command was started.
    fn shell(&self, id: TaskId, spec: ShellSpec) -> Result<Shell, AgentError>;

    /// Joins a task that runs: what it prints from now on, and its input if it has one. Waits until it is joined.
    fn attach(&self, id: TaskId, size: Option<TerminalSize>) -> Result<Shell, AgentError>;

    /// Who listens on a port of this machine, as seen from a task.
    fn listening(&self, id: TaskId, port: u16) -> Listening;

    /// The folder of a task.
    fn task_dir(&self, id: TaskId) -> PathBuf;

    /// What this machine cannot do, in sentences for a person. Empty when all is well.
    fn notes(&self) -> Vec<String>;

    /// Ends the agent. Returns when everything that was asked for is done.
    fn shutdown(&self, policy: Shutdown);
}

/// What becomes of tasks when the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// They go on, and the next agent on this folder takes them over.
    Keep,
    /// They are asked to end, each with its own grace, and waited for.
    EndAll,
}

/// Settings of the agent of this machine.
#[derive(Clone)]
pub struct AgentConfig {
    /// Where everything is kept.
    pub folder: PathBuf,
    /// The program of the shim and its leading arguments; the task's folder is added.
    pub shim: Vec<OsString>,
    /// The program of the built-in trainer and its leading arguments.
    pub quickstart: Vec<OsString>,
    /// What runs in place of an image, besides what is built in and what `images.toml` in the folder says.
    pub images: BTreeMap<String, ImageEntry>,
    /// Where tools that Berth installed are, such as JupyterLab.
    pub cache: PathBuf,
    /// What no task may mount: the folder of the control plane.
    pub private: PathBuf,
    /// What lies in these folders may be mounted by anybody, whoever may reach it.
    pub allowed_mounts: Vec<PathBuf>,
    /// Where a container engine answers, as in DOCKER_HOST; none to look in the usual places.
    pub engine: Option<String>,
    /// A file of a task's log is rotated at this size.
    pub log_file_max: Bytes,
    /// So many files of a task's log are kept.
    pub log_files_max: u32,
    /// Logs of ended tasks together are kept up to this size.
    pub kept_logs_max: Bytes,
    /// The time that facts carry.
    pub clock: fn() -> Time,
}

/// What runs in place of an image. In `images.toml`: `"acme/train" = { program = ["/opt/train"] }`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ImageEntry {
    /// A program of this machine with its leading arguments.
    Program(Vec<String>),
    /// A folder that is the root of a container.
    Root(PathBuf),
    /// An archive made by `docker save` or `podman save`.
    Archive(PathBuf),
}

impl AgentConfig {
    /// The usual settings for a folder; the shim is this very program.
    pub fn new(folder: impl Into<PathBuf>, clock: fn() -> Time) -> Self {
        let own =
            std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")).into_os_string();
        let cache = std::env::var_os("BERTH_CACHE").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/var/lib"), PathBuf::from);
        let folder = folder.into();
        Self {
            private: folder.clone(),
            folder,
            shim: vec![own.clone(), "shim".into()],
            quickstart: vec![own, "quickstart".into()],
            images: BTreeMap::new(),
            cache: cache.unwrap_or_else(|| home().join(".cache/berth")),
            allowed_mounts: Vec::new(),
            engine: None,
            log_file_max: Bytes::mib(16),
            log_files_max: 4,
            kept_logs_max: Bytes::gib(2),
            clock,
        }
    }
}

/// Who is told.
pub(crate) type Facts = std::sync::mpsc::Sender<Fact>;
