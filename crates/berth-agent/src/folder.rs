//! The agent's folder on the disk, and who may use it.
//!
//! ```text
//! id                  a random name, carried by every process of every task
//! boot                the boot of the machine in which the last recovery was done
//! tasks/17/2-0/       one task: what was ordered, what became of it, its log; for the agent and the shim only
//! work/17/            where the workload starts, and its checkpoints; kept over its runs
//! work/17/2-0/        what one task may touch to tell something
//! logs/17/2-0/        logs of workloads that were forgotten
//! ```

use crate::{AgentError, TaskId, task_folder::TaskFolder};
use berth_types::WorkloadId;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchown},
    io::Errno,
    process::{Gid, Uid},
};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A folder that this process alone uses until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    id: String,
    boot: String,
    rebooted: bool,
    /// The system's lock lives as long as this handle.
    _lock: File,
}

impl Folder {
    pub(crate) fn open(root: &Path) -> Result<Self, AgentError> {
        create(root, 0o711)?;
        let root = &root.canonicalize().map_err(AgentError::file("finding", root))?;
        let lock_path = root.join("agent.lock");
        let lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(AgentError::file("opening", &lock_path))?;
        // A lock of the process, not of the open file: a child between fork and exec must not hold it for a dead agent.
        if rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(AgentError::Locked { folder: root.clone() });
        }
        for (name, mode) in [("tasks", 0o700), ("work", 0o711), ("logs", 0o700), ("python", 0o755)] {
            create(&root.join(name), mode)?;
        }
        let id = match fs::read_to_string(root.join("id")) {
            Ok(id) if !id.is_empty() => id,
            _ => {
                let id = random_name();
                write_durable(&root.join("id"), id.as_bytes())?;
                id
            }
        };
        let boot = boot_id();
        let rebooted = fs::read_to_string(root.join("boot")).is_ok_and(|last| last != boot);
        Ok(Self { root: root.clone(), id, boot, rebooted, _lock: lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The random name of this folder.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the machine was started anew since the last recovery, so that what was not synced may be gone.
    pub(crate) fn rebooted(&self) -> bool {
        self.rebooted
    }

    /// What every process of a task carries in its environment.
    pub(crate) fn mark(&self, id: TaskId) -> String {
        format!("{}/{id}", self.id)
    }

    /// From now on, what is not on the disk did not happen.
    pub(crate) fn recovered(&self) -> Result<(), AgentError> {
        write_durable(&self.root.join("boot"), self.boot.as_bytes())
    }

    pub(crate) fn task(&self, id: TaskId) -> TaskFolder {
        TaskFolder::new(self.workload_tasks(id.workload).join(format!("{}-{}", id.run, id.rank)))
    }

    pub(crate) fn workload_tasks(&self, workload: WorkloadId) -> PathBuf {
        self.root.join("tasks").join(workload.to_string())
    }

    pub(crate) fn workload_work(&self, workload: WorkloadId) -> PathBuf {
        self.root.join("work").join(workload.to_string())
    }

    pub(crate) fn kept_logs(&self, workload: WorkloadId) -> PathBuf {
        self.root.join("logs").join(workload.to_string())
    }

    /// What the task may touch to tell something.
    pub(crate) fn signals(&self, id: TaskId) -> PathBuf {
        self.workload_work(id.workload).join(format!("{}-{}", id.run, id.rank))
    }

    pub(crate) fn checkpoints(&self, workload: WorkloadId) -> PathBuf {
        self.workload_work(workload).join("checkpoint")
    }

    /// Makes what the workload itself may write to, and gives it to who it runs as.
    pub(crate) fn make_work(&self, id: TaskId, run_as: Option<(u32, u32)>) -> Result<(), AgentError> {
        for path in [self.workload_work(id.workload), self.checkpoints(id.workload), self.signals(id)] {
            create(&path, 0o700)?;
            if let Some((user, group)) = run_as {
                give(&path, user, group).map_err(AgentError::file("giving away", &path))?;
            }
        }
        Ok(())
    }

    /// Every task that has a folder.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let mut found = Vec::new();
        for workload in names(&self.root.join("tasks")) {
            for task in names(&self.root.join("tasks").join(&workload)) {
                let id: Option<TaskId> = task
                    .split_once('-')
                    .and_then(|(run, rank)| format!("{workload}.{run}.{rank}").parse().ok());
                found.extend(id);
            }
        }
        found.sort_unstable();
        found
    }
}

/// The names in a folder, in order; none when there is no such folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The specs of tasks hold secrets of their users, so each folder is as closed as its use allows.
pub(crate) fn create(path: &Path, mode: u32) -> Result<(), AgentError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created = DirBuilder::new().recursive(true).mode(mode).create(path);
            created.map_err(AgentError::file("creating", path))
        }
        Err(error) => Err(AgentError::file("creating", path)(error)),
    }
}

/// Gives a folder to somebody. A workload may have put something else in its place since, such as a link to the store, which is
/// not given away; to the workload it is what it made of it.
pub(crate) fn give(path: &Path, user: u32, group: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(folder) => Ok(fchown(&folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?),
        Err(Errno::LOOP | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Puts a file in its place as a whole: who reads sees the old content or the new. It survives a crash of the process, and
/// not always one of the machine.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), AgentError> {
    write_with(path, content, false)
}

/// The same, and it survives a crash of the machine.
pub(crate) fn write_durable(path: &Path, content: &[u8]) -> Result<(), AgentError> {
    write_with(path, content, true)
}

fn write_with(path: &Path, content: &[u8], durable: bool) -> Result<(), AgentError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The process is in the name, because an agent and a shim may write at once.
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).clone();
    let written = options.open(&beside).and_then(|mut file| {
        file.write_all(content)?;
        if durable { file.sync_all() } else { Ok(()) }
    });
    written
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| if durable { File::open(folder)?.sync_all() } else { Ok(()) })
        .map_err(AgentError::file("writing", path))
}

/// The name of this boot of the machine.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn random_name() -> String {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    random.trim().replace('-', "")
}
