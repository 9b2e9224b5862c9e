//! Control groups: limits that hold, and a list of processes that nothing can leave.
//!
//! Version 2 and version 1 of the kernel's interface; where neither can be written, tasks run without, and the shim ends what
//! descends from it.

use berth_types::{Bytes, Cpu};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// More processes than a sound task has, and fewer than hurt its neighbours.
const PROCESSES_MAX: u32 = 16_384;
const PERIOD_MICROS: u64 = 100_000;
const ROOT: &str = "/sys/fs/cgroup";

/// Where the groups of this agent's tasks are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// One tree for everything.
    Unified(PathBuf),
    /// A tree per controller.
    Split(BTreeMap<String, PathBuf>),
}

/// What a task may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) memory: Bytes,
    pub(crate) cpu: Cpu,
}

impl Limits {
    /// Whether there is one.
    pub(crate) fn any(self) -> bool {
        !self.memory.is_zero() || !self.cpu.is_zero()
    }
}

/// Finds where groups can be made, by making one. The text says what will not hold.
pub(crate) fn detect(name: &str) -> Result<Place, String> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own: BTreeMap<&str, &str> = own
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .flat_map(|(controllers, path)| controllers.split(',').map(move |controller| (controller, path)))
        .collect();
    let root = Path::new(ROOT);
    let below = |tree: &Path, path: &str| tree.join(path.trim_start_matches('/')).join(name);
    if root.join("cgroup.controllers").exists() {
        let place = below(root, own.get("").copied().unwrap_or("/"));
        return match try_group(&place) {
            Ok(()) => Ok(Place::Unified(place)),
            Err(error) => {
                Err(format!("no control groups ({}: {error}): limits of CPU do not hold", place.display()))
            }
        };
    }
    let trees = ["freezer", "memory", "cpu", "pids"];
    let found = trees.into_iter().filter_map(|controller| {
        let place = below(&root.join(controller), own.get(controller)?);
        try_group(&place).ok().map(|()| (controller.to_owned(), place))
    });
    let found: BTreeMap<_, _> = found.collect();
    if found.is_empty() {
        Err(format!("no control groups (nothing under {ROOT} can be written): limits of CPU do not hold"))
    } else {
        Ok(Place::Split(found))
    }
}

fn try_group(place: &Path) -> io::Result<()> {
    if !place.parent().is_some_and(Path::exists) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let probe = place.join("probe");
    fs::create_dir_all(&probe)?;
    let removed = fs::remove_dir(&probe);
    let _ = fs::remove_dir(place);
    removed
}

/// The group of one task.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    unified: bool,
}

impl Group {
    /// Makes the group, with its limits where the kernel takes them.
    pub(crate) fn create(place: &Place, task: &str, limits: Limits) -> io::Result<Self> {
        match place {
            Place::Unified(parent) => {
                let folder = parent.join(task);
                fs::create_dir_all(&folder)?;
                for above in [parent.parent(), Some(parent)].into_iter().flatten() {
                    for controller in ["+memory", "+cpu", "+pids"] {
                        let _ = fs::write(above.join("cgroup.subtree_control"), controller);
                    }
                }
                set(&folder, "pids.max", PROCESSES_MAX);
                if !limits.memory.is_zero() {
                    set(&folder, "memory.max", limits.memory.0);
                    set(&folder, "memory.oom.group", 1);
                }
                if !limits.cpu.is_zero() {
                    set(&folder, "cpu.max", format!("{} {PERIOD_MICROS}", quota_micros(limits.cpu)));
                }
                Ok(Self { folders: vec![folder], unified: true })
            }
            Place::Split(trees) => {
                let mut folders = Vec::new();
                for (controller, parent) in trees {
                    let needed = match controller.as_str() {
                        "memory" => !limits.memory.is_zero(),
                        "cpu" => !limits.cpu.is_zero(),
                        "pids" => !trees.contains_key("freezer"),
                        _ => true,
                    };
                    if !needed {
                        continue;
                    }
                    let folder = parent.join(task);
                    fs::create_dir_all(&folder)?;
                    match controller.as_str() {
                        "memory" => set(&folder, "memory.limit_in_bytes", limits.memory.0),
                        "cpu" => {
                            set(&folder, "cpu.cfs_period_us", PERIOD_MICROS);
                            set(&folder, "cpu.cfs_quota_us", quota_micros(limits.cpu));
                        }
                        "pids" => set(&folder, "pids.max", PROCESSES_MAX),
                        _ => {}
                    }
                    folders.push(folder);
                }
                Ok(Self { folders, unified: false })
            }
        }
    }

    /// The group of a task whose shim is gone.
    pub(crate) fn existing(place: &Place, task: &str) -> Self {
        match place {
            Place::Unified(parent) => Self { folders: vec![parent.join(task)], unified: true },
            Place::Split(trees) => {
                Self { folders: trees.values().map(|parent| parent.join(task)).collect(), unified: false }
            }
        }
    }

    /// Files to which a process writes `0` to join.
    pub(crate) fn doors(&self) -> io::Result<Vec<File>> {
        let open = |folder: &PathBuf| File::options().write(true).open(folder.join("cgroup.procs"));
        self.folders.iter().map(open).collect()
    }

    /// Takes a running process in; what it has forked already stays outside.
    pub(crate) fn take_in(&self, pid: u32) {
        for folder in &self.folders {
            let _ = fs::write(folder.join("cgroup.procs"), pid.to_string());
        }
    }

    /// Every process in it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let lists =
            self.folders.iter().filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok());
        let mut pids: Vec<u32> = lists
            .flat_map(|list| list.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Ends every process in it at once, where the kernel can do that. What forks meanwhile is ended too.
    pub(crate) fn kill(&self) {
        if self.unified {
            for folder in &self.folders {
                let _ = fs::write(folder.join("cgroup.kill"), "1");
            }
        }
    }

    /// Removes the group, and the place when this was the last.
    pub(crate) fn remove(&self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
            if let Some(place) = folder.parent() {
                let _ = fs::remove_dir(place);
            }
        }
    }
}

fn quota_micros(cpu: Cpu) -> u64 {
    // The kernel takes no less than a millisecond.
    (cpu.0 * PERIOD_MICROS / 1000).max(1000)
}

/// A limit that the kernel does not take is no reason not to run.
fn set(folder: &Path, name: &str, value: impl ToString) {
    let _ = fs::write(folder.join(name), value.to_string());
}
