//! The shim: the small process that stands between the agent and one task.
//!
//! ```text
//! agent --spawn, locked file as stdin--> shim --fork, exec--> workload and its children
//!       <--started, by a pipe----------      <--output, by a pipe--
//!       <--progress, by the socket-----      --> log, exit.json
//!       --stop.json, SIGTERM---------->      --SIGTERM, SIGKILL-->
//! ```
//!
//! It outlives the agent, so a task does not notice when the control plane is restarted or killed. The task does not outlive
//! it: the kernel ends the workload's first process with it, and the agent whatever else is left. It has one thread, starts no
//! runtime and parses no options, because its start is part of the start of every task.

mod child;
mod container;
mod control;
mod mounts;
mod output;
mod shells;
mod tell;
mod tree;

use crate::{
    Exit,
    account::Account,
    clock::{boot_ms, unix_ms},
    task_folder::{Ended, Order, Outcome, Process, Started, TaskFolder},
};
pub(crate) use child::can_have_own_mounts;
use control::Control;
use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};
pub(crate) use tell::SOCKET;

/// Runs the shim of the task in the folder that is the only argument. Call it before anything else is set up.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(folder) = args.into_iter().next() else {
        eprintln!("berth: `shim` is started by berth itself, with the folder of a task");
        return ExitCode::from(2);
    };
    let folder = TaskFolder::new(PathBuf::from(folder));
    match run(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth: the shim of {} failed: {error}", folder.path().display());
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &TaskFolder) -> io::Result<()> {
    // The signals of the terminal in which the agent runs are not for its tasks.
    let _ = rustix::process::setsid();
    // What loses its parent becomes a child of the shim, so that nothing leaves the tree.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = control::Signals::register()?;
    // Before the look at stop.json: the agent writes that first and then looks here, so one of both sees the other.
    folder.write_shim(Process::own()?).map_err(io::Error::other)?;
    let order = folder.order().ok_or_else(|| io::Error::other("there is no order"))?;
    let shells = shells::Shells::listen(folder.path());
    let outcome = if folder.stop().is_some() || signals.stop_within(order.spec.pause.0)? {
        Outcome::Exit(Exit::Signal(rustix::process::Signal::TERM.as_raw()))
    } else {
        let account = child::account(&order);
        let started = account.and_then(|account| Ok((start(folder, &order, account.as_ref())?, account)));
        match started {
            Ok(((running, process), account)) => Outcome::Exit(
                Control::new(folder, &order, account, signals, shells, running, process)?.run()?,
            ),
            Err(message) => Outcome::Refused(message),
        }
    };
    for command in &order.launch.cleanup {
        child::run_quietly(command, &order);
    }
    // What the workload left in memory is for the disk now, and the lock is free only when this process is gone.
    folder.write_ended(&Ended { outcome, unix_ms: unix_ms() }).map_err(io::Error::other)
}

/// Does what a shim that died could not do.
pub(crate) fn clean_up(folder: &TaskFolder) {
    if let Some(order) = folder.order().filter(|_| folder.ended().is_none()) {
        for command in &order.launch.cleanup {
            child::run_quietly(command, &order);
        }
    }
}

/// Starts the workload and tells of it. The text says why it cannot run.
fn start(
    folder: &TaskFolder,
    order: &Order,
    account: Option<&Account>,
) -> Result<(child::Running, Process), String> {
    let at_home = account.filter(|_| order.launch.container.is_none());
    let lists = mounts::lists(folder.path(), at_home);
    mounts::prepare(&order.launch.mounts, account, &lists)?;
    container::prepare(order, account)?;
    let running = child::spawn(order, account)?;
    let process = Process::of(running.pid).unwrap_or(Process { pid: running.pid, start_ticks: 0 });
    let started = Started {
        process,
        boot_id: crate::folder::boot_id(),
        unix_ms: unix_ms(),
        ports: order.launch.ports.clone(),
    };
    if let Err(error) = folder.write_started(&started) {
        eprintln!("berth: {error}");
    }
    // Nobody may listen any more; whoever comes next reads the file.
    let line = serde_json::to_string(&started).unwrap_or_default();
    let _ = writeln!(io::stdout(), "{line}");
    Ok((running, process))
}

/// Milliseconds until a time on the clock that counts from boot.
fn until(at_boot_ms: u64) -> u64 {
    at_boot_ms.saturating_sub(boot_ms())
}
