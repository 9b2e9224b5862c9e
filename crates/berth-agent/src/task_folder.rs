//! One task's folder: what was ordered, and what became of it. Written by the agent and by the task's shim.
//!
//! ```text
//! lock           locked by whoever is responsible for the task: the agent until the shim runs, then the shim
//! spec.json      the order; written by the agent before the shim starts
//! shim.json      the shim's own process; written before it looks for stop.json
//! started.json   the workload's process; its presence means that the task ran
//! stop.json      the request to stop; written by the agent before it looks for shim.json
//! exit.json      how it ended; on the disk before the lock is free
//! ```

use crate::{AgentError, Exit, Mount, Report, TaskId, TaskSpec, folder, oci::Container};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// What the shim is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) spec: TaskSpec,
    pub(crate) launch: Launch,
    /// What every process of the task carries in its environment.
    pub(crate) mark: String,
    /// Where facts are told.
    pub(crate) agent: PathBuf,
    /// The file whose change means a checkpoint.
    pub(crate) checkpoint_file: PathBuf,
    pub(crate) log_file_bytes_max: u64,
    pub(crate) log_files_max: u32,
    /// Where control groups are made, when the machine allows it.
    pub(crate) control_group: Option<crate::cgroup::Place>,
}

/// What is executed, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) argv: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) working_dir: PathBuf,
    /// Mounted in a namespace of the task's own, in this order.
    pub(crate) mounts: Vec<MountStep>,
    /// What an engine is to mount.
    pub(crate) binds: Vec<Mount>,
    pub(crate) run_as: Option<(u32, u32)>,
    /// Each port that was asked for, and the port that serves it.
    pub(crate) ports: Vec<(u16, u16)>,
    /// Run when everything is over, whatever became of it.
    pub(crate) cleanup: Vec<Vec<String>>,
    /// What is executed makes this container.
    pub(crate) container: Option<Container>,
}

/// One mount in the namespace of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MountStep {
    /// A folder or file of this machine.
    Bind(Mount),
    /// A file system whose changes go to a folder of their own. Copied where the system has no such thing.
    Overlay { lower: Vec<PathBuf>, upper: PathBuf, work: PathBuf, target: PathBuf },
    /// Folders at their own places for whoever may not enter those above them; nothing else of those is there any more. The shim
    /// goes on to need a folder of its own.
    Reveal { folders: Vec<PathBuf>, own: PathBuf },
}

/// A process that can be told from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) start_ticks: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) boot_id: String,
    pub(crate) unix_ms: u64,
    pub(crate) ports: Vec<(u16, u16)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stop {
    /// When the grace is over, on the clock that counts from boot.
    pub(crate) deadline_boot_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) unix_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Exit(Exit),
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) report: Report,
    pub(crate) unix_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) unix_ms: u64,
}

/// What a shim tells over the agent's socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Started(TaskId, Started),
    Progress(TaskId, Progress),
    Checkpoint(TaskId, Checkpoint),
}

/// The folder, not yet looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskFolder(PathBuf);

impl TaskFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn create(&self) -> Result<(), AgentError> {
        folder::create(&self.0, 0o700)
    }

    /// Takes responsibility for the task, or says that somebody has it.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, AgentError> {
        let file = self.open_lock()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(AgentError::file("locking", &self.0)(error)),
        }
    }

    /// The file that is locked, without a lock.
    pub(crate) fn open_lock(&self) -> Result<File, AgentError> {
        let path = self.0.join("lock");
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        opened.map_err(AgentError::file("opening", path))
    }

    pub(crate) fn order(&self) -> Option<Order> {
        self.read("spec.json")
    }

    pub(crate) fn write_order(&self, order: &Order) -> Result<(), AgentError> {
        self.write("spec.json", order)
    }

    pub(crate) fn shim(&self) -> Option<Process> {
        self.read("shim.json")
    }

    pub(crate) fn write_shim(&self, shim: Process) -> Result<(), AgentError> {
        self.write("shim.json", &shim)
    }

    pub(crate) fn started(&self) -> Option<Started> {
        self.read("started.json")
    }

    pub(crate) fn write_started(&self, started: &Started) -> Result<(), AgentError> {
        self.write("started.json", started)
    }

    pub(crate) fn stop(&self) -> Option<Stop> {
        self.read("stop.json")
    }

    pub(crate) fn write_stop(&self, stop: Stop) -> Result<(), AgentError> {
        self.write("stop.json", &stop)
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.read("exit.json")
    }

    /// The only record that is synced: while the machine runs, files need no sync to outlive a process; after a crash of the
    /// machine nothing runs any more, and all that must be known is whether a task had come to its end.
    pub(crate) fn write_ended(&self, ended: &Ended) -> Result<(), AgentError> {
        folder::write_durable(&self.0.join("exit.json"), &json(ended))
    }

    pub(crate) fn progress(&self) -> Option<Progress> {
        self.read("progress.json")
    }

    pub(crate) fn write_progress(&self, progress: &Progress) -> Result<(), AgentError> {
        self.write("progress.json", progress)
    }

    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.read("checkpoint.json")
    }

    pub(crate) fn write_checkpoint(&self, checkpoint: Checkpoint) -> Result<(), AgentError> {
        self.write("checkpoint.json", &checkpoint)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.0.join(name)).ok()?).ok()
    }

    fn write<T: Serialize>(&self, name: &str, record: &T) -> Result<(), AgentError> {
        folder::write(&self.0.join(name), &json(record))
    }
}

fn json<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("records have text keys and no cycle")
}

impl Process {
    /// This process.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self { pid, start_ticks: start_ticks(pid)? })
    }

    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: start_ticks(pid)? })
    }

    /// Whether it is still the same process, running or not yet reaped.
    pub(crate) fn is_there(self) -> bool {
        start_ticks(self.pid).is_ok_and(|ticks| ticks == self.start_ticks)
    }
}

fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name may hold spaces and brackets; what follows the last bracket are fields 3 and on.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_ascii_whitespace().nth(19).and_then(|text| text.parse().ok());
    ticks.ok_or_else(|| io::Error::other("/proc/<pid>/stat has another shape"))
}
