//! The shim's loop: output, signals, checkpoints, the end.

use super::{
    child::{self, Running},
    output::Output,
    shells::{Beside, Shells},
    tell::Teller,
    tree::{self, Left},
    until,
};
use crate::{
    Exit, Report,
    account::Account,
    cgroup::Group,
    clock::{boot_ms, unix_ms},
    progress::TICK_MS,
    task_folder::{Checkpoint, Order, Process, Progress, TaskFolder, Told},
    watch,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM},
    low_level::pipe::register,
};
use std::{
    io::{self, Read},
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::{Duration, SystemTime},
};

/// Reports are told at most this often.
const REPORT_EVERY_MS: u64 = 500;
/// A task without limits enters its control group when it has lived this long: entering costs the kernel longer than many a
/// short task takes, and until then its tree is known by descent.
const JOIN_AFTER_MS: u64 = 1_000;
/// How often the file is looked at that means a checkpoint when it is touched. A watch of the kernel would tell at once, but a
/// user has 128 of them in all, and there are machines with more tasks.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// While the tree is ended, what was born in the meantime is looked for this often.
const KILL_AGAIN_MS: u64 = 20;

/// Signals that arrived, as bytes in sockets.
#[derive(Debug)]
pub(super) struct Signals {
    stop: UnixStream,
    child: UnixStream,
}

impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        let ((stop, stop_sender), (child, child_sender)) = (UnixStream::pair()?, UnixStream::pair()?);
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            register(signal, stop_sender.try_clone()?)?;
        }
        register(SIGCHLD, child_sender)?;
        stop.set_nonblocking(true)?;
        child.set_nonblocking(true)?;
        Ok(Self { stop, child })
    }

    /// Waits so long before the workload begins; whether it is to stop instead.
    pub(super) fn stop_within(&self, pause_ms: u64) -> io::Result<bool> {
        let until = boot_ms() + pause_ms;
        while let left @ 1.. = until.saturating_sub(boot_ms()) {
            let timeout =
                Timespec { tv_sec: (left / 1000) as i64, tv_nsec: (left % 1000 * 1_000_000) as i64 };
            match poll(&mut [PollFd::new(&self.stop, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

fn took(stream: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
        any = true;
    }
    any
}

/// Owns a running workload until nothing of it is left.
pub(super) struct Control<'a> {
    folder: &'a TaskFolder,
    order: &'a Order,
    /// Who the task runs as, if not as this process.
    account: Option<Account>,
    signals: Signals,
    output: Output,
    shells: Shells,
    group: Option<Group>,
    process: Process,
    teller: Option<Teller>,
    /// When the file that means a checkpoint is looked at.
    checkpoints: OwnedFd,
    checkpoint_modified: Option<SystemTime>,
    /// When it enters its control group, if it has not.
    join_at_ms: Option<u64>,
    /// When what still runs is ended.
    deadline: Option<u64>,
    /// How the first process ended. From then on everything else is ended.
    exit: Option<Exit>,
    told_at_ms: u64,
    untold: Option<Told>,
}

impl<'a> Control<'a> {
    pub(super) fn new(
        folder: &'a TaskFolder,
        order: &'a Order,
        account: Option<Account>,
        signals: Signals,
        shells: Shells,
        running: Running,
        process: Process,
    ) -> io::Result<Self> {
        let output = Output::new(folder, order, running.output, running.keyboard)?;
        let teller = Teller::open(&order.agent);
        let checkpoints = watch::ticks(CHECKPOINT_EVERY)?;
        let group = running.group;
        let joins_later = order.control_group.is_some() && !child::limits(order).any();
        let mut control = Self {
            folder,
            order,
            account,
            signals,
            output,
            shells,
            group,
            process,
            teller,
            checkpoints,
            checkpoint_modified: None,
            join_at_ms: joins_later.then(|| boot_ms() + JOIN_AFTER_MS),
            deadline: None,
            exit: None,
            told_at_ms: 0,
            untold: None,
        };
        // An agent that died before it heard of the start is followed by one that may listen by now.
        if let Some(started) = folder.started() {
            control.tell(Told::Started(order.spec.id, started));
        }
        // A checkpoint or a request may have come before.
        control.on_checkpoint_file();
        if folder.stop().is_some() {
            control.on_stop();
        }
        Ok(control)
    }

    /// Until the whole tree is gone.
    pub(super) fn run(mut self) -> io::Result<Exit> {
        loop {
            let now = boot_ms();
            if took(&mut self.signals.stop) {
                self.on_stop();
            }
            if took(&mut self.signals.child)
                && let Some(exit) = self.on_children()
            {
                return Ok(self.finish(exit));
            }
            let must_end = self.exit.is_some() || self.deadline.is_some_and(|deadline| deadline <= now);
            if must_end {
                tree::signal(self.group.as_ref(), Signal::KILL);
                // A child may have been reaped between the look and the signal; the look comes again.
                if let Some(exit) = self.on_children() {
                    return Ok(self.finish(exit));
                }
            }
            let more = self.output.copy_some(now, |bytes| self.shells.on_output(bytes));
            // From the moment at which it ends, nothing new begins beside it.
            if !must_end {
                let task =
                    Beside { order: self.order, account: self.account.as_ref(), group: self.group.as_ref() };
                self.shells.look(task, &mut self.output);
            }
            self.on_tick(now);
            if !more {
                self.wait(must_end)?;
            }
        }
    }

    fn wait(&mut self, must_end: bool) -> io::Result<()> {
        let timeout = self.timeout(must_end);
        let timeout = timeout
            .map(|ms| Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 });
        let mut fds = vec![
            PollFd::new(&self.signals.stop, PollFlags::IN),
            PollFd::new(&self.signals.child, PollFlags::IN),
            PollFd::new(&self.checkpoints, PollFlags::IN),
        ];
        let source = self.output.source();
        if let Some(source) = &source {
            fds.push(PollFd::new(source, PollFlags::IN));
        }
        let shells = if must_end { Vec::new() } else { self.shells.sources() };
        fds.extend(shells.iter().map(|shell| PollFd::new(shell, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let checkpoint = !fds[2].revents().is_empty();
        drop(fds);
        if checkpoint {
            self.on_checkpoint_file();
        }
        Ok(())
    }

    /// The next moment at which something is to be done, in milliseconds from now.
    fn timeout(&self, must_end: bool) -> Option<u64> {
        let now = boot_ms();
        let again = must_end.then_some(KILL_AGAIN_MS);
        let deadline = self.deadline.filter(|_| !must_end).map(until);
        let tick = self.output.scanner.has_put_off().then_some(TICK_MS);
        let report = self.output.scanner.has_report() || self.untold.is_some();
        let report = report.then(|| (self.told_at_ms + REPORT_EVERY_MS).saturating_sub(now).max(1));
        let join = self.join_at_ms.map(|at| at.saturating_sub(now).max(1));
        let shells = self.shells.wake_at_ms().map(|at| at.saturating_sub(now).max(1));
        [again, deadline, tick, report, join, shells].into_iter().flatten().min()
    }

    /// The agent, or a person, wants it to end. A later and shorter grace wins.
    fn on_stop(&mut self) {
        let asked = self.folder.stop().map(|stop| stop.deadline_boot_ms);
        let asked = asked.unwrap_or_else(|| boot_ms() + self.order.spec.grace.0);
        let first = self.deadline.is_none();
        self.deadline = Some(self.deadline.map_or(asked, |deadline| deadline.min(asked)));
        if first {
            if self.order.launch.container.is_some() {
                // A container's runtime passes the request on to its first process, and that one asks the others.
                tree::send(self.process.pid, Signal::TERM);
            } else {
                tree::signal(self.group.as_ref(), Signal::TERM);
            }
            // What was halted could not react.
            tree::signal(self.group.as_ref(), Signal::CONT);
        }
    }

    /// Reaps. Gives how the task ended when nothing of it is left.
    fn on_children(&mut self) -> Option<Exit> {
        let (reaped, left) = tree::reap();
        if let Some(first) = reaped.iter().find(|reaped| reaped.pid == self.process.pid) {
            self.exit = Some(match tree::exit_of(first.status) {
                Exit::Code(code) => self.exit_of(code),
                exit => exit,
            });
        }
        self.shells.on_reaped(&reaped, self.exit.is_some());
        let others = self.group.as_ref().is_some_and(|group| !group.processes().is_empty());
        (left == Left::None && !others).then_some(self.exit.unwrap_or(Exit::Lost))
    }

    /// A container's runtime ends with 128 and the signal of which the workload died.
    fn exit_of(&self, code: i32) -> Exit {
        match self.order.launch.container {
            Some(_) if (129..=192).contains(&code) => Exit::Signal(code - 128),
            _ => Exit::Code(code),
        }
    }

    /// The file's own time tells whether it was touched since.
    fn on_checkpoint_file(&mut self) {
        watch::clear(&self.checkpoints);
        let modified =
            std::fs::symlink_metadata(&self.order.checkpoint_file).and_then(|file| file.modified()).ok();
        if modified.is_some() && modified != self.checkpoint_modified {
            self.checkpoint_modified = modified;
            self.on_checkpoint();
        }
    }

    fn on_checkpoint(&mut self) {
        let checkpoint = Checkpoint { unix_ms: unix_ms() };
        if let Err(error) = self.folder.write_checkpoint(checkpoint) {
            eprintln!("berth: {error}");
        }
        self.tell(Told::Checkpoint(self.order.spec.id, checkpoint));
    }

    /// Makes the control group and takes in what is there; what it forks from then on is born in it.
    fn join(&mut self) {
        let Some(place) = &self.order.control_group else { return };
        match Group::create(place, &self.order.spec.id.to_string(), child::limits(self.order)) {
            Ok(group) => {
                tree::descendants(std::process::id()).into_iter().for_each(|pid| group.take_in(pid));
                self.group = Some(group);
            }
            Err(error) => eprintln!("berth: no control group: {error}"),
        }
    }

    fn on_tick(&mut self, now: u64) {
        if self.exit.is_none() && self.join_at_ms.is_some_and(|at| at <= now) {
            self.join_at_ms = None;
            self.join();
        }
        self.output.scanner.tick(now);
        if self.output.scanner.take_checkpoint() {
            self.on_checkpoint();
        }
        if now < self.told_at_ms + REPORT_EVERY_MS {
            return;
        }
        if let Some(untold) = self.untold.take() {
            self.told_at_ms = now;
            self.tell(untold);
        }
        if let Some(report) = self.output.scanner.take_report() {
            self.told_at_ms = now;
            self.on_report(report);
        }
    }

    fn on_report(&mut self, report: Report) {
        let progress = Progress { report, unix_ms: unix_ms() };
        if let Err(error) = self.folder.write_progress(&progress) {
            eprintln!("berth: {error}");
        }
        self.tell(Told::Progress(self.order.spec.id, progress));
    }

    /// A report that cannot be told now is in its file and followed by others; anything else is kept and told again.
    fn tell(&mut self, told: Told) {
        let has_it = self.teller.as_ref().is_none_or(|teller| teller.tell(&told));
        if !has_it && !matches!(told, Told::Progress(..)) {
            self.untold = Some(told);
        }
    }

    /// Takes what is still in the pipe. Whoever holds the other end from outside of the tree is not waited for.
    fn finish(mut self, exit: Exit) -> Exit {
        while self.output.copy_some(boot_ms(), |bytes| self.shells.on_output(bytes)) {}
        self.shells.finish(exit);
        // It may have saved its state in its last moment.
        self.on_checkpoint_file();
        self.output.scanner.settle();
        if self.output.scanner.take_checkpoint() {
            self.on_checkpoint();
        }
        if let Some(report) = self.output.scanner.take_report() {
            self.on_report(report);
        }
        if let Some(group) = &self.group {
            group.remove();
        }
        exit
    }
}
