//! Everything that descends from the shim, and its end.

use crate::{Exit, cgroup::Group};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use std::{collections::BTreeSet, fs};

/// A process that ended, as the kernel tells it to its parent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    pub(super) pid: u32,
    pub(super) status: WaitStatus,
}

/// How a process ended, in the words of a task.
pub(super) fn exit_of(status: WaitStatus) -> Exit {
    let code = status.exit_status().map(Exit::Code);
    code.or(status.terminating_signal().map(Exit::Signal)).unwrap_or(Exit::Lost)
}

/// The session of a process.
pub(super) fn session(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Takes every ended child off the kernel's list.
pub(super) fn reap() -> (Vec<Reaped>, Left) {
    let mut reaped = Vec::new();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                reaped.push(Reaped { pid: pid.as_raw_nonzero().get() as u32, status });
            }
            Ok(None) => return (reaped, Left::Some),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (reaped, Left::None),
        }
    }
}

/// Whether there are children left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    None,
    Some,
}

/// Sends a signal to everything that descends from the shim or is in the task's control group. Nobody else's process is hit:
/// a child that is not reaped keeps its number, and so do its descendants as long as they descend from it.
pub(super) fn signal(group: Option<&Group>, signal: Signal) {
    let mut pids: BTreeSet<u32> = descendants(std::process::id()).into_iter().collect();
    if let Some(group) = group {
        if signal == Signal::KILL {
            group.kill();
        }
        pids.extend(group.processes());
    }
    // Once each: a second request would interrupt the answer to the first.
    for pid in pids {
        send(pid, signal);
    }
}

pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

/// Every descendant of a process, parents before children.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::from([root]));
    let mut next = 0;
    let mut parent = root;
    loop {
        match children(parent) {
            Some(children) => found.extend(children.into_iter().filter(|child| seen.insert(*child))),
            // A kernel without lists of children, or a process that is gone.
            None if parent == root => return by_parents(root),
            None => {}
        }
        match found.get(next) {
            Some(pid) => parent = *pid,
            None => return found,
        }
        next += 1;
    }
}

fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        found.extend(list.split_ascii_whitespace().filter_map(|text| text.parse::<u32>().ok()));
    }
    Some(found)
}

/// The same from the parent that each process names, which costs a look at every process of the machine.
fn by_parents(root: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let pids = crate::folder::names("/proc".as_ref()).into_iter().filter_map(|name| name.parse::<u32>().ok());
    let all: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
