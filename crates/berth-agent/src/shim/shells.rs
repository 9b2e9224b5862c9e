//! Commands that people run beside the workload, and people who look at the workload's own terminal.

use super::{
    child::{self, Stdio},
    output::Output,
    tree,
};
use crate::{
    Exit,
    account::Account,
    cgroup::Group,
    clock::boot_ms,
    shell::{self, ShellAnswer, ShellEnd, ShellOrder},
    task_folder::Order,
};
use rustix::process::Signal;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// What ignores a hang-up is ended after this.
const HANG_UP_GRACE_MS: u64 = 5_000;
/// Whoever connects and says nothing does not keep others out.
const OPEN_MAX: usize = 512;
/// What a viewer has not taken yet; the rest of what is printed is in the log.
const UNREAD_BYTES_MAX: usize = 256 << 10;

/// The task beside which something is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    pub(super) order: &'a Order,
    /// Who it runs as, if not as this process.
    pub(super) account: Option<&'a Account>,
    pub(super) group: Option<&'a Group>,
}

/// Everything that is open beside the workload.
#[derive(Debug, Default)]
pub(super) struct Shells {
    listener: Option<OwnedFd>,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    connection: OwnedFd,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Nothing was said yet.
    New,
    /// A command. When whoever asked for it is gone, it is ended then.
    Command { pid: u32, end_at_ms: Option<u64> },
    /// Somebody looks at the workload's own output.
    Viewer { typed: Option<File>, printed: File, unread: Vec<u8> },
    /// To be forgotten.
    Over,
}

impl Shells {
    /// A task that cannot be entered is still a task.
    pub(super) fn listen(folder: &std::path::Path) -> Self {
        let listener = shell::listen(folder)
            .inspect_err(|error| eprintln!("berth: no shell can be opened beside this task: {error}"))
            .ok();
        Self { listener, open: Vec::new() }
    }

    /// What to wait for.
    pub(super) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        let listener = self.listener.iter().filter(|_| self.open.len() < OPEN_MAX).map(AsFd::as_fd);
        let waits = |open: &&Open| !matches!(open.what, What::Command { end_at_ms: Some(_), .. });
        let open = self.open.iter().filter(waits).flat_map(|open| {
            let typed = match &open.what {
                What::Viewer { typed: Some(typed), .. } => Some(typed.as_fd()),
                _ => None,
            };
            [Some(open.connection.as_fd()), typed].into_iter().flatten()
        });
        listener.chain(open).collect()
    }

    /// When to look again, whatever happens; on the clock that counts from boot.
    pub(super) fn wake_at_ms(&self) -> Option<u64> {
        let at = |open: &Open| match &open.what {
            What::Command { end_at_ms, .. } => *end_at_ms,
            // Whoever reads slowly is offered the rest again soon.
            What::Viewer { unread, .. } if !unread.is_empty() => Some(boot_ms() + 20),
            _ => None,
        };
        self.open.iter().filter_map(at).min()
    }

    /// Does what there is to do.
    pub(super) fn look(&mut self, task: Beside<'_>, output: &mut Output) {
        if let Some(listener) = &self.listener {
            while self.open.len() < OPEN_MAX
                && let Ok(connection) = shell::accept(listener)
            {
                self.open.push(Open { connection, what: What::New });
            }
        }
        let now = boot_ms();
        for open in &mut self.open {
            open.look(task, output, now);
        }
        self.open.retain(|open| !matches!(open.what, What::Over));
    }

    /// The workload printed something.
    pub(super) fn on_output(&mut self, bytes: &[u8]) {
        for open in &mut self.open {
            if let What::Viewer { printed, unread, .. } = &mut open.what {
                let room = UNREAD_BYTES_MAX.saturating_sub(unread.len());
                unread.extend_from_slice(&bytes[..bytes.len().min(room)]);
                write_some(printed, unread);
            }
        }
    }

    /// Children ended; those who wait for one of them are told.
    pub(super) fn on_reaped(&mut self, reaped: &[tree::Reaped], with_task: bool) {
        for open in &mut self.open {
            let What::Command { pid, .. } = open.what else { continue };
            if let Some(reaped) = reaped.iter().find(|reaped| reaped.pid == pid) {
                let exit = tree::exit_of(reaped.status);
                let _ = shell::send(&open.connection, &ShellAnswer::Ended(ShellEnd { exit, with_task }), &[]);
                open.what = What::Over;
            }
        }
        self.open.retain(|open| !matches!(open.what, What::Over));
    }

    /// The workload is over: whoever looked at it hears how.
    pub(super) fn finish(&mut self, exit: Exit) {
        for open in &mut self.open {
            if let What::Viewer { printed, unread, .. } = &mut open.what {
                write_some(printed, unread);
            }
            let _ =
                shell::send(&open.connection, &ShellAnswer::Ended(ShellEnd { exit, with_task: true }), &[]);
        }
        self.open.clear();
    }
}

impl Open {
    fn look(&mut self, task: Beside<'_>, output: &mut Output, now: u64) {
        if let What::Command { pid, end_at_ms: Some(at) } = self.what {
            if at <= now {
                end(pid);
                self.what = What::Over;
            }
            return;
        }
        loop {
            match shell::receive::<ShellOrder>(&self.connection) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(Some((said, descriptors))) => self.on_said(said, descriptors, task, output),
                Ok(None) | Err(_) => return self.on_gone(now),
            }
            if matches!(self.what, What::Over) {
                return;
            }
        }
        if let What::Viewer { typed, printed, unread } = &mut self.what {
            write_some(printed, unread);
            if let Some(keys) = typed
                && !output.type_some(keys)
            {
                *typed = None;
            }
        }
    }

    fn on_said(
        &mut self,
        said: ShellOrder,
        descriptors: Vec<OwnedFd>,
        task: Beside<'_>,
        output: &mut Output,
    ) {
        match (said, &self.what) {
            (ShellOrder::Resize(size), What::Viewer { .. }) => output.resize(size),
            (ShellOrder::Run { command, environment, terminal }, What::New) => {
                let command = if command.is_empty() { shell::usual_shell() } else { command };
                let stdio = Stdio::of(descriptors, terminal);
                let Beside { order, account, group } = task;
                let started = stdio.and_then(|stdio| {
                    child::spawn_beside(order, account, group, &command, &environment, stdio)
                });
                match started {
                    Ok(pid) => {
                        self.what = What::Command { pid, end_at_ms: None };
                        let _ = shell::send(&self.connection, &ShellAnswer::Started { terminal }, &[]);
                    }
                    Err(why) => {
                        let _ = shell::send(&self.connection, &ShellAnswer::Refused(why), &[]);
                        self.what = What::Over;
                    }
                }
            }
            (ShellOrder::Attach, What::New) => {
                let mut descriptors = descriptors.into_iter();
                let (Some(typed), Some(printed)) = (descriptors.next(), descriptors.next()) else {
                    self.what = What::Over;
                    return;
                };
                if shell::no_block(&typed).and_then(|()| shell::no_block(&printed)).is_err() {
                    self.what = What::Over;
                    return;
                }
                let terminal = output.has_terminal();
                let _ = shell::send(&self.connection, &ShellAnswer::Started { terminal }, &[]);
                // What is not read from is closed, so that whoever types learns it.
                let typed = output.takes_input().then(|| File::from(typed));
                let mut viewer = (File::from(printed), output.recent());
                write_some(&mut viewer.0, &mut viewer.1);
                self.what = What::Viewer { typed, printed: viewer.0, unread: viewer.1 };
            }
            _ => {}
        }
    }

    /// Whoever asked is gone: the command hears it as a terminal would say it, and is ended if it does not care.
    fn on_gone(&mut self, now: u64) {
        match &mut self.what {
            What::Command { pid, end_at_ms } => {
                for pid in family(*pid) {
                    tree::send(pid, Signal::HUP);
                    tree::send(pid, Signal::CONT);
                }
                *end_at_ms = Some(now + HANG_UP_GRACE_MS);
            }
            _ => self.what = What::Over,
        }
    }
}

/// Ends a command with everything it started and did not let go of.
fn end(pid: u32) {
    for pid in family(pid) {
        tree::send(pid, Signal::KILL);
    }
}

/// What descends from a command, or is still in its session.
fn family(leader: u32) -> Vec<u32> {
    let mut all = tree::descendants(leader);
    let in_session = |pid: &u32| tree::session(*pid) == Some(leader);
    all.extend(tree::descendants(std::process::id()).into_iter().filter(in_session));
    all.push(leader);
    all.sort_unstable();
    all.dedup();
    all
}

/// Gives what fits. Whoever does not read any more loses the rest.
fn write_some(to: &mut File, unread: &mut Vec<u8>) {
    while !unread.is_empty() {
        match to.write(unread) {
            Ok(count) => drop(unread.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => unread.clear(),
        }
    }
}

/// Takes what was typed, at most one buffer; none at its end.
pub(super) fn read_some(from: &mut File, buffer: &mut [u8]) -> Option<usize> {
    match from.read(buffer) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
            Some(0)
        }
        Err(_) => None,
    }
}
