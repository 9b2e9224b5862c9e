//! Ends what a task left behind when its shim can no longer do it.
//!
//! Every process of a task carries a mark in its environment, so that it is found wherever it went: another session, another
//! parent, another group.

use crate::{
    TaskId,
    cgroup::{Group, Place},
    environment::MARK,
    folder,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{collections::BTreeSet, fs, os::fd::OwnedFd, path::Path};

/// How long one look waits for what it has killed. A process in the middle of a read from a dead disk takes longer, and is
/// then looked for again.
const WAIT_SECS: i64 = 1;

/// The tasks of this folder that have processes, with those processes.
pub(crate) fn marked(folder_id: &str) -> Vec<(u32, TaskId)> {
    let own = std::process::id();
    let pids = folder::names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| *pid != own).filter_map(|pid| Some((pid, mark_of(pid, folder_id)?))).collect()
}

fn mark_of(pid: u32, folder_id: &str) -> Option<TaskId> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry
            .strip_prefix(MARK.as_bytes())?
            .strip_prefix(b"=")?
            .strip_prefix(folder_id.as_bytes())?
            .strip_prefix(b"/")
    })?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Ends every process of these tasks, and returns when none is left.
pub(crate) fn end(folder_id: &str, tasks: &BTreeSet<TaskId>, place: Option<&Place>) {
    let groups =
        place.iter().flat_map(|place| tasks.iter().map(|id| Group::existing(place, &id.to_string())));
    let groups: Vec<Group> = groups.collect();
    loop {
        let mut pids: BTreeSet<u32> = groups.iter().flat_map(Group::processes).collect();
        groups.iter().for_each(Group::kill);
        let mut held = Vec::new();
        for (pid, id) in marked(folder_id) {
            if tasks.contains(&id) {
                pids.insert(pid);
            }
        }
        for pid in pids {
            // The descriptor is taken before the last look, so that the signal cannot hit a later process of that number.
            let Some(descriptor) = open(pid) else { continue };
            let marked = mark_of(pid, folder_id).is_some_and(|id| tasks.contains(&id));
            if marked || groups.iter().any(|group| group.processes().contains(&pid)) {
                let _ = pidfd_send_signal(&descriptor, Signal::KILL);
                held.push(descriptor);
            }
        }
        if held.is_empty() {
            break;
        }
        wait(&held);
    }
    groups.iter().for_each(Group::remove);
}

fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()
}

fn wait(held: &[OwnedFd]) {
    for descriptor in held {
        let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: WAIT_SECS, tv_nsec: 0 }));
    }
}
