//! Starts the workload's process. The only file of this crate with unsafe code: what happens in the child before it becomes the
//! workload, and a mount namespace of one's own.
#![allow(unsafe_code)]

use crate::{
    account::{self, Account},
    cgroup::{Group, Limits},
    process::MEETING_WORK,
    task_folder::Order,
};
use rustix::{
    process::{Gid, Uid},
    process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal},
    thread::{UnshareFlags, set_thread_gid, set_thread_groups, set_thread_uid, unshare_unsafe},
};
use std::{
    io::{self, PipeReader, Write, pipe},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// A workload that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) output: PipeReader,
    pub(super) group: Option<Group>,
}

/// Starts what was ordered. The text says why it cannot run.
pub(super) fn spawn(order: &Order) -> Result<Running, String> {
    let launch = &order.launch;
    let [program, args @ ..] = &launch.argv[..] else {
        return Err("there is nothing to run".into());
    };
    // Looked up here, where a slow directory service keeps nobody else waiting.
    let account = launch.run_as.filter(|_| account::is_root());
    let account = account.map(|(user, group)| Account::of(user, group)).transpose()?;
    // Limits must hold from the first instruction. To enter takes the kernel some 15 ms, so without limits it is done later.
    let limits = limits(order);
    let group = order.control_group.as_ref().filter(|_| limits.any()).and_then(|place| {
        Group::create(place, &order.spec.id.to_string(), limits)
            .inspect_err(|error| eprintln!("berth: no control group: {error}"))
            .ok()
    });
    let mut doors = group.as_ref().and_then(|group| group.doors().ok()).unwrap_or_default();
    let (output, writer) = pipe().map_err(|error| format!("no pipe for its output: {error}"))?;
    let second = writer.try_clone().map_err(|error| format!("no pipe for its output: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(account.iter().flat_map(|account| account.variables(MEETING_WORK)))
        .envs(&launch.environment)
        .current_dir(&launch.working_dir)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(second)
        .process_group(0);
    let identity = account.as_ref().map(Identity::of);
    let shim = getpid();
    let prepare = move || in_child(shim, &mut doors, identity.as_ref());
    // SAFETY: the shim has one thread, so no lock can be held by another at the fork, and what runs in the child are a few
    // system calls and writes of constants to files that were opened before.
    unsafe { command.pre_exec(prepare) };
    // A child that is not waited for through `Child` is reaped by the shim's loop, which reaps everything.
    let spawned = command.spawn();
    match spawned {
        Ok(child) => Ok(Running { pid: child.id(), output, group }),
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            Err(explain(&error, program, order))
        }
    }
}

/// What the task may use.
pub(super) fn limits(order: &Order) -> Limits {
    Limits { memory: order.spec.memory, cpu: order.spec.cpu }
}

/// An account as the kernel knows it.
struct Identity {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    fn of(account: &Account) -> Self {
        let groups = account.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        Self { user: Uid::from_raw(account.user), group: Gid::from_raw(account.group), groups }
    }
}

fn in_child(shim: Pid, doors: &mut [std::fs::File], identity: Option<&Identity>) -> io::Result<()> {
    for door in doors {
        // A process of real-time priority may not enter some groups; it runs without.
        let _ = door.write(b"0");
    }
    if let Some(Identity { user, group, groups }) = identity {
        // The user last: whoever is not root may not choose its groups.
        set_thread_groups(groups)?;
        set_thread_gid(*group)?;
        set_thread_uid(*user)?;
    }
    // After the change of user, which would clear it. Without the shim nobody could stop it, count its time or tell of its end.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(shim) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

fn explain(error: &io::Error, program: &str, order: &Order) -> String {
    let folder = &order.launch.working_dir;
    if !folder.is_dir() {
        return format!("the working folder {} does not exist", folder.display());
    }
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no program `{program}` on this machine"),
        io::ErrorKind::PermissionDenied => match order.launch.run_as {
            Some((user, _)) => format!("`{program}` may not be executed by user {user}: {error}"),
            None => format!("`{program}` may not be executed: {error}"),
        },
        _ => format!("`{program}` could not be started: {error}"),
    }
}

/// Runs a command of ours to its end, without a word.
pub(super) fn run_quietly(command: &[String], order: &Order) {
    let [program, args @ ..] = command else { return };
    let ended = Command::new(program)
        .args(args)
        .env("BERTH_TASK", &order.mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if let Err(error) = ended {
        eprintln!("berth: {program}: {error}");
    }
}

/// From here on, what this process and its children mount is seen by them alone.
pub(super) fn own_mounts() -> rustix::io::Result<()> {
    // SAFETY: only the table of mounts is unshared, no file descriptors, and the shim has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}
