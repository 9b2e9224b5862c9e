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

/// Where groups can be made, and what will not hold all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: Option<Place>,
    /// A sentence for a person.
    pub(crate) note: Option<String>,
}

/// Finds where groups can be made, by making one.
pub(crate) fn detect(name: &str) -> Found {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    find(Path::new(ROOT), &own, name)
}

/// The same below a root, for a process that is in these groups.
fn find(root: &Path, own: &str, name: &str) -> Found {
    let own: BTreeMap<&str, &str> = own
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .flat_map(|(controllers, path)| controllers.split(',').map(move |controller| (controller, path)))
        .collect();
    let below = |tree: &Path, path: &str| tree.join(path.trim_start_matches('/')).join(name);
    if root.join("cgroup.controllers").exists() {
        // A group with processes hands no controllers down, and the agent is in its own one; the root's are for root alone.
        let own = below(root, own.get("").copied().unwrap_or("/"));
        return find_unified(&[own, root.join(name)]);
    }
    let trees = ["freezer", "memory", "cpu", "pids"];
    let found = trees.into_iter().filter_map(|controller| {
        let place = below(&root.join(controller), own.get(controller)?);
        try_group(&place).ok().map(|()| (controller.to_owned(), place))
    });
    let found: BTreeMap<_, _> = found.collect();
    if found.is_empty() {
        let note = format!("no control groups (nothing under {} can be written)", root.display());
        return Found { place: None, note: Some(note + ": limits of CPU and memory do not hold") };
    }
    let missing = ["cpu", "memory"].into_iter().filter(|controller| !found.contains_key(*controller));
    let note = lacking(&missing.collect::<Vec<_>>(), root);
    Found { place: Some(Place::Split(found)), note }
}

/// The first place where all limits hold, else the first where groups can be made at all.
fn find_unified(places: &[PathBuf]) -> Found {
    let mut best: Option<(Vec<&str>, &PathBuf)> = None;
    let mut refused = String::new();
    for place in places {
        match try_unified(place) {
            Ok(missing) if best.as_ref().is_none_or(|(least, _)| missing.len() < least.len()) => {
                best = Some((missing, place));
            }
            Ok(_) => {}
            Err(error) if refused.is_empty() => refused = format!("{}: {error}", place.display()),
            Err(_) => {}
        }
    }
    match best {
        Some((missing, place)) => {
            Found { place: Some(Place::Unified(place.clone())), note: lacking(&missing, place) }
        }
        None => {
            let note = format!("no control groups ({refused}): limits of CPU and memory do not hold");
            Found { place: None, note: Some(note) }
        }
    }
}

fn lacking(controllers: &[&str], place: &Path) -> Option<String> {
    (!controllers.is_empty()).then(|| {
        let place = place.display();
        format!(
            "control groups at {place} have no controller for {}: such limits do not hold; where systemd runs, start Berth as a \
             service with Delegate=yes",
            controllers.join(" and ")
        )
    })
}

/// Makes a group and removes it; gives the limits that would not hold in it.
fn try_unified(place: &Path) -> io::Result<Vec<&'static str>> {
    if !place.parent().is_some_and(Path::exists) {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::create_dir_all(place)?;
    hand_down(place);
    let probe = place.join("probe");
    let made = fs::create_dir(&probe);
    // What a group can limit is what the one above it hands down.
    let there = fs::read_to_string(probe.join("cgroup.controllers")).unwrap_or_default();
    let removed = made.and_then(|()| fs::remove_dir(&probe));
    let _ = fs::remove_dir(place);
    removed?;
    let missing = |controller: &&str| !there.split_whitespace().any(|word| word == *controller);
    Ok(["cpu", "memory"].into_iter().filter(missing).collect())
}

/// Lets the groups of tasks have limits, as far as the kernel and who manages the groups above allow.
fn hand_down(place: &Path) {
    for above in [place.parent(), Some(place)].into_iter().flatten() {
        // One at a time: one that is not there would take the others with it.
        for controller in ["+memory", "+cpu", "+pids"] {
            let _ = fs::write(above.join("cgroup.subtree_control"), controller);
        }
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
                hand_down(parent);
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

    /// Every process in it, and in the groups that the task itself may have made below.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let folders = self.folders.iter().flat_map(|folder| with_groups_below(folder));
        let lists = folders.filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok());
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
            // A group can be removed when it has no group below.
            for group in with_groups_below(folder).into_iter().rev() {
                let _ = fs::remove_dir(group);
            }
            if let Some(place) = folder.parent() {
                let _ = fs::remove_dir(place);
            }
        }
    }
}

/// A group and all below it, from the top.
fn with_groups_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(group) = all.get(next).cloned() {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        all.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
        next += 1;
    }
    all
}

fn quota_micros(cpu: Cpu) -> u64 {
    // The kernel takes no less than a millisecond.
    (cpu.0 * PERIOD_MICROS / 1000).max(1000)
}

/// A limit that the kernel does not take is no reason not to run.
fn set(folder: &Path, name: &str, value: impl ToString) {
    let _ = fs::write(folder.join(name), value.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskId, scratch::Scratch};
    use berth_types::WorkloadId;
    use std::{
        collections::BTreeSet,
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    const LIMITS: Limits = Limits { memory: Bytes::mib(512), cpu: Cpu(1_500) };
    const NONE: Limits = Limits { memory: Bytes::ZERO, cpu: Cpu::ZERO };

    fn read(folder: &Path, name: &str) -> Option<String> {
        fs::read_to_string(folder.join(name)).ok()
    }

    #[test]
    fn limits_of_version_2_are_written_as_the_kernel_reads_them() {
        let scratch = Scratch::new();
        let place = Place::Unified(scratch.path().join("own/berth"));
        let folder = scratch.path().join("own/berth/1.1.0");
        Group::create(&place, "1.1.0", LIMITS).unwrap();
        let written = ["pids.max", "memory.max", "memory.oom.group", "cpu.max"]
            .map(|name| read(&folder, name).unwrap());
        assert_eq!(written, ["16384", "536870912", "1", "150000 100000"]);
        for above in ["own", "own/berth"] {
            assert!(
                read(&scratch.path().join(above), "cgroup.subtree_control").is_some(),
                "{above} hands down"
            );
        }
        assert_eq!(read(&folder, "cgroup.subtree_control"), None, "the task's own group holds processes");
        Group::create(&place, "2.1.0", Limits { cpu: Cpu(1), ..NONE }).unwrap();
        let folder = scratch.path().join("own/berth/2.1.0");
        assert_eq!(
            read(&folder, "cpu.max").unwrap(),
            "1000 100000",
            "the kernel takes no less than a millisecond"
        );
        assert_eq!(read(&folder, "memory.max"), None);
    }

    #[test]
    fn limits_of_version_1_are_written_as_the_kernel_reads_them() {
        let scratch = Scratch::new();
        let trees = ["freezer", "memory", "cpu", "pids"];
        let trees = trees.map(|tree| (tree.to_owned(), scratch.path().join(tree).join("berth")));
        let group = Group::create(&Place::Split(trees.into()), "1.1.0", LIMITS).unwrap();
        let file = |path: &str| read(scratch.path(), path);
        assert_eq!(file("memory/berth/1.1.0/memory.limit_in_bytes").unwrap(), "536870912");
        assert_eq!(file("cpu/berth/1.1.0/cpu.cfs_period_us").unwrap(), "100000");
        assert_eq!(file("cpu/berth/1.1.0/cpu.cfs_quota_us").unwrap(), "150000");
        assert_eq!(group.folders.len(), 3, "a tree that lists processes is enough");
    }

    /// A folder that looks like the kernel's tree as far as it is looked at; no group in it hands anything down.
    fn tree(scratch: &Scratch) -> PathBuf {
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("user.slice/session")).unwrap();
        fs::write(root.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        root
    }

    #[test]
    fn limits_that_will_not_hold_are_said() {
        let scratch = Scratch::new();
        let root = tree(&scratch);
        let found = find(&root, "0::/user.slice/session\n", "berth-x");
        assert_eq!(found.place, Some(Place::Unified(root.join("user.slice/session/berth-x"))));
        let note = found.note.unwrap();
        assert!(note.contains("cpu and memory") && note.contains("Delegate=yes"), "{note}");
        let nothing = find(&scratch.path().join("nothing"), "", "berth-x");
        assert_eq!(nothing.place, None);
        assert!(nothing.note.unwrap().contains("do not hold"));
    }

    #[test]
    fn a_machine_with_both_versions_uses_the_one_with_controllers() {
        let scratch = Scratch::new();
        for tree in ["memory", "cpu", "freezer", "unified"] {
            fs::create_dir_all(scratch.path().join(tree)).unwrap();
        }
        fs::write(scratch.path().join("unified/cgroup.controllers"), "").unwrap();
        let found = find(scratch.path(), "3:memory:/\n2:cpu:/\n1:freezer:/\n0::/\n", "berth-x");
        let Some(Place::Split(trees)) = found.place else { panic!("{found:?}") };
        assert_eq!(trees.keys().map(String::as_str).collect::<Vec<_>>(), ["cpu", "freezer", "memory"]);
        assert_eq!(found.note, None);
    }

    /// Where version 2 is on this machine, if groups can be made there.
    fn real(test: &str) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounted = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("").to_owned();
        let place = mounted.next()?.join(own).join(format!("berth-test-{}-{test}", std::process::id()));
        if let Err(error) = try_group(&place) {
            println!("SKIPPED: groups of version 2: {}: {error}", place.display());
            return None;
        }
        Some(place)
    }

    fn sleeper() -> Child {
        // It forks, ignores requests to end, and its child leaves its session.
        let script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & wait";
        let mut command = Command::new("bash");
        command.args(["-c", "read -r go; eval \"$1\"", "bash", script]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_group_of_version_2_holds_the_whole_tree_and_ends_it_at_once() {
        let Some(place) = real("kill") else { return };
        let group = Group::create(&Place::Unified(place.clone()), "1.1.0", LIMITS).unwrap();
        let mut child = sleeper();
        group.take_in(child.id());
        // What it forks from now on is born in the group.
        drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n"));
        until("three processes are in the group", || group.processes().len() == 3);
        // A task may make groups of its own below.
        let below = place.join("1.1.0/below/deeper");
        fs::create_dir_all(&below).unwrap();
        let moved = group.processes().into_iter().find(|pid| *pid != child.id()).unwrap();
        fs::write(below.join("cgroup.procs"), moved.to_string()).unwrap();
        assert_eq!(group.processes().len(), 3, "those below count");
        let same = Group::existing(&Place::Unified(place.clone()), "1.1.0");
        assert_eq!(same.processes(), group.processes(), "whoever comes later finds them");
        group.kill();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        until("all are gone", || group.processes().is_empty());
        until("the groups are removed", || {
            group.remove();
            !place.exists()
        });
    }

    #[test]
    fn a_process_enters_a_group_of_version_2_before_its_first_instruction() {
        let Some(place) = real("door") else { return };
        let group = Group::create(&Place::Unified(place.clone()), "1.1.0", NONE).unwrap();
        let mut doors = group.doors().unwrap();
        assert_eq!(doors.len(), 1);
        // The door is the standard output of a shell, which enters as it would from between fork and exec.
        let door = doors.remove(0);
        let mut child =
            Command::new("sh").args(["-c", "echo 0; exec sleep 1000"]).stdout(door).spawn().unwrap();
        until("it has entered", || group.processes() == [child.id()]);
        group.kill();
        child.wait().unwrap();
        until("the groups are removed", || {
            group.remove();
            !place.exists()
        });
    }

    #[test]
    fn what_a_dead_shim_left_in_a_group_of_version_2_is_ended() {
        let Some(place) = real("sweep") else { return };
        let id = TaskId { workload: WorkloadId(1), run: 1, rank: 0 };
        let group = Group::create(&Place::Unified(place.clone()), &id.to_string(), NONE).unwrap();
        let mut child = sleeper();
        group.take_in(child.id());
        drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n"));
        until("three processes are in the group", || group.processes().len() == 3);
        // Reaped beside it, or a process that is dead and not reaped would be waited for.
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        // None of them carries the mark: the group alone says whose they are.
        crate::sweep::end("no-such-folder", &BTreeSet::from([id]), Some(&Place::Unified(place.clone())));
        reaper.join().unwrap();
        until("the groups are removed", || {
            group.remove();
            !place.exists()
        });
    }
}
