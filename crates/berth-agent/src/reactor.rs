//! The agent's thread: what was asked for, what shims tell, and who ended, in one loop without a timer.
//!
//! ```text
//! Asked --mailbox--+
//! shim: started ---+--epoll--> Reactor --Fact--> control plane
//! shim: told ------+
//! shim: ended -----+
//! ```

use crate::{
    AgentConfig, AgentError, Exit, Fact, RuntimeKind, Shell, ShellSpec, Shutdown, TaskId, TaskSpec, Wanted,
    cgroup::Place,
    clock::{Clock, boot_ms, unix_ms},
    folder::Folder,
    host::Facts,
    images::Images,
    launch,
    ports::Ports,
    shim::SOCKET,
    sweep,
    task_folder::{Checkpoint, Ended, Outcome, Process, Progress, Started, Stop, TaskFolder, Told},
};
use berth_types::{Span, WorkloadId};
use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{PipeReader, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixDatagram,
    },
    process::Child,
    sync::{Arc, mpsc},
};

const WAKE: u64 = 0;
const SOCKET_TOKEN: u64 = 1;
const FIRST_TOKEN: u64 = 2;
/// A shim that ends before it did anything is started again once: a signal meant for others may have hit it.
const ATTEMPTS_MAX: u32 = 2;

/// What the thread is asked to do.
#[derive(Debug)]
pub(crate) enum Asked {
    Start(Box<TaskSpec>),
    Stop(TaskId, Span),
    Recover(Vec<Wanted>),
    Forget(WorkloadId),
    /// A command in a container of an engine, or the container's own terminal.
    Shell(TaskId, Option<ShellSpec>, ShellSender),
    /// Whether a container engine answers, and has an image if one is named.
    Engine(Option<String>, mpsc::Sender<Result<(), String>>),
    Shutdown(Shutdown),
    /// What a dead shim left is ended.
    Swept(TaskId),
    /// A shim whose process was not known is gone, or a container has ended.
    Unlocked(TaskId),
    /// A container's news.
    #[cfg(feature = "docker")]
    Told(Told),
}

/// Where the answer to a request for a shell goes.
pub(crate) type ShellSender = mpsc::Sender<Result<Shell, String>>;

/// Where requests go.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    sender: mpsc::Sender<Asked>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    pub(crate) fn ask(&self, asked: Asked) {
        // After the end of the thread there is nobody to do it, and nothing to tell.
        if self.sender.send(asked).is_ok() {
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// A task whose shim runs, or is being made sure not to.
#[derive(Debug)]
pub(crate) struct Live {
    /// None for a shim that another agent started.
    child: Option<Child>,
    /// None while the shim's process is not known, or after its end.
    pidfd: Option<OwnedFd>,
    /// Where the shim tells that the workload runs.
    pipe: Option<PipeReader>,
    heard: Vec<u8>,
    tokens: Vec<u64>,
    grace: Span,
    started_told: bool,
    /// When what was told last had happened.
    progress_ms: u64,
    checkpoint_ms: u64,
    /// Nobody wants to hear of it.
    silent: bool,
    attempts: u32,
    /// It is a container of an engine and has no shim.
    in_engine: bool,
}

impl Live {
    fn new(grace: Span, silent: bool, attempts: u32) -> Self {
        Self {
            child: None,
            pidfd: None,
            pipe: None,
            heard: Vec::new(),
            tokens: Vec::new(),
            grace,
            started_told: false,
            progress_ms: 0,
            checkpoint_ms: 0,
            silent,
            attempts,
            in_engine: false,
        }
    }
}

#[derive(Debug)]
enum State {
    Live(Box<Live>),
    Sweeping { silent: bool },
    Ended,
}

/// What an event is about.
#[derive(Debug, Clone, Copy)]
enum Source {
    Pipe(TaskId),
    Shim(TaskId),
}

pub(crate) struct Reactor {
    pub(crate) config: AgentConfig,
    pub(crate) folder: Arc<Folder>,
    pub(crate) images: Images,
    pub(crate) place: Option<Place>,
    pub(crate) ports: Ports,
    clock: Clock,
    facts: Facts,
    asked: mpsc::Receiver<Asked>,
    mailbox: Mailbox,
    epoll: OwnedFd,
    socket: UnixDatagram,
    tasks: BTreeMap<TaskId, State>,
    sources: BTreeMap<u64, Source>,
    next_token: u64,
    /// Workloads whose folders go when their last task has ended.
    forgotten: BTreeSet<WorkloadId>,
    ending: Option<Shutdown>,
    #[cfg(feature = "docker")]
    engine: crate::engine::Engine,
}

impl Reactor {
    pub(crate) fn new(
        config: AgentConfig,
        folder: Arc<Folder>,
        images: Images,
        place: Option<Place>,
        facts: Facts,
    ) -> Result<(Mailbox, Self), AgentError> {
        let (sender, asked) = mpsc::channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(AgentError::system("eventfd"))?;
        let mailbox = Mailbox { sender, wake: Arc::new(wake) };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(AgentError::system("epoll"))?;
        let socket = listen(&folder)?;
        let add = |fd: &dyn std::os::fd::AsFd, token| {
            let data = epoll::EventData::new_u64(token);
            epoll::add(&epoll, fd.as_fd(), data, epoll::EventFlags::IN).map_err(AgentError::system("epoll"))
        };
        add(&mailbox.wake.as_ref(), WAKE)?;
        add(&socket, SOCKET_TOKEN)?;
        let clock = Clock(config.clock);
        #[cfg(feature = "docker")]
        let engine =
            crate::engine::Engine::new(config.engine.clone(), folder.id().to_owned(), mailbox.clone());
        let reactor = Self {
            config,
            folder,
            images,
            place,
            ports: Ports::default(),
            clock,
            facts,
            asked,
            mailbox: mailbox.clone(),
            epoll,
            socket,
            tasks: BTreeMap::new(),
            sources: BTreeMap::new(),
            next_token: FIRST_TOKEN,
            forgotten: BTreeSet::new(),
            ending: None,
            #[cfg(feature = "docker")]
            engine,
        };
        Ok((mailbox, reactor))
    }

    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.is_done() {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The descriptor is ours and open: the kernel has no reason left to refuse.
                Err(error) => panic!("epoll: {error}"),
            }
            // What a shim told before it ended comes before its end.
            self.on_told();
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => self.on_asked(),
                    SOCKET_TOKEN => {}
                    token => match self.sources.get(&token) {
                        Some(Source::Pipe(id)) => self.on_pipe(*id),
                        Some(Source::Shim(id)) => self.on_shim_ended(*id),
                        None => {}
                    },
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        match self.ending {
            None => false,
            Some(Shutdown::Keep) => true,
            Some(Shutdown::EndAll) => self.tasks.values().all(|state| matches!(state, State::Ended)),
        }
    }

    fn on_asked(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.mailbox.wake, &mut count);
        while let Ok(asked) = self.asked.try_recv() {
            match asked {
                Asked::Start(spec) => self.on_start(*spec, 0),
                Asked::Stop(id, grace) => self.on_stop(id, grace),
                Asked::Recover(wanted) => self.on_recover(wanted),
                Asked::Forget(workload) => {
                    self.forgotten.insert(workload);
                    self.forget_if_ended(workload);
                }
                Asked::Shell(id, spec, answer) => self.on_shell(id, spec, answer),
                Asked::Engine(image, answer) => self.on_engine(image, answer),
                Asked::Swept(id) => self.on_swept(id),
                Asked::Unlocked(id) => self.on_shim_ended(id),
                #[cfg(feature = "docker")]
                Asked::Told(told) => self.on_news(told),
                Asked::Shutdown(policy) => self.on_shutdown(policy),
            }
            if self.is_done() {
                return;
            }
        }
    }

    /// Looks at what is on the disk and does what is left to do: the same for a first request, a second one, and a recovery.
    fn on_start(&mut self, spec: TaskSpec, attempts: u32) {
        let id = spec.id;
        if self.tasks.contains_key(&id) || self.ending.is_some() {
            return;
        }
        let task = self.folder.task(id);
        let lock = match task.create().and_then(|()| task.try_lock()) {
            Ok(Some(lock)) => lock,
            Ok(None) => return self.adopt(id, false),
            Err(error) => return self.refuse(id, &error.to_string()),
        };
        if let Some(started) = task.started() {
            let at = self.clock.at(started.unix_ms);
            self.tell(Fact::Started { id, pid: Some(started.process.pid), ports: started.ports, at });
        }
        if task.ended().is_some() {
            return self.tell_ended(id, false);
        }
        if spec.runtime == RuntimeKind::Docker {
            return self.start_in_engine(&spec, &task);
        }
        // A shim that wrote its process may have started the workload, even if it came to no record of that.
        if task.shim().is_some() {
            return self.sweep(id, false);
        }
        let launched =
            launch::order(self, &spec).and_then(|order| launch::shim(&self.config, &task, &order, lock));
        match launched {
            Err(message) => self.refuse(id, &message),
            Ok((child, pipe)) => {
                let pid = Pid::from_child(&child);
                let mut live = Live::new(spec.grace, false, attempts + 1);
                live.child = Some(child);
                let pipe_token = self.watch(&pipe, Source::Pipe(id));
                live.pipe = Some(pipe);
                live.tokens.extend(pipe_token);
                self.watch_shim(id, &mut live, pid);
                self.tasks.insert(id, State::Live(Box::new(live)));
            }
        }
    }

    /// Hands a task to the engine, which knows by itself whether it has it already.
    fn start_in_engine(&mut self, spec: &TaskSpec, task: &TaskFolder) {
        let order = task.order().map_or_else(|| launch::order(self, spec), Ok);
        let written = order.and_then(|order| match task.write_order(&order) {
            Ok(()) => Ok(order),
            Err(error) => Err(error.to_string()),
        });
        match written {
            Err(message) => self.refuse(spec.id, &message),
            Ok(order) => {
                let mut live = Live::new(spec.grace, false, ATTEMPTS_MAX);
                // A start that an earlier agent recorded was told of above.
                (live.in_engine, live.started_told) = (true, task.started().is_some());
                self.tasks.insert(spec.id, State::Live(Box::new(live)));
                #[cfg(feature = "docker")]
                self.engine.drive(order, task.clone());
                #[cfg(not(feature = "docker"))]
                drop(order);
            }
        }
    }

    /// Takes over a task whose shim was started by an agent that is gone.
    fn adopt(&mut self, id: TaskId, silent: bool) {
        let task = self.folder.task(id);
        let order = task.order();
        let grace = order.as_ref().map_or(Span::secs(30), |order| order.spec.grace);
        let mut live = Live::new(grace, silent, ATTEMPTS_MAX);
        let shim = task.shim().and_then(|shim| Some((shim, Pid::from_raw(shim.pid as i32)?)));
        if let Some((shim, pid)) = shim {
            self.watch_shim(id, &mut live, pid);
            // The number may have been given to another process between the record and the descriptor.
            if !shim.is_there() {
                self.unwatch(&mut live);
            }
        }
        if live.pidfd.is_none() {
            self.wait_for_lock(id);
        }
        if let Some(order) = &order {
            self.ports.take(id, launch::ports_of(order));
        }
        self.tasks.insert(id, State::Live(Box::new(live)));
        if let Some(started) = task.started() {
            self.on_started(id, &started);
        }
        self.on_records(id);
    }

    /// A shim that has not yet said which process it is holds the lock until its end.
    fn wait_for_lock(&self, id: TaskId) {
        let (task, mailbox) = (self.folder.task(id), self.mailbox.clone());
        std::thread::spawn(move || {
            if let Ok(lock) = task.open_lock() {
                let _ = lock.lock();
            }
            mailbox.ask(Asked::Unlocked(id));
        });
    }

    fn watch_shim(&mut self, id: TaskId, live: &mut Live, pid: Pid) {
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        live.tokens.extend(self.watch(&pidfd, Source::Shim(id)));
        live.pidfd = Some(pidfd);
    }

    fn watch(&mut self, fd: &impl std::os::fd::AsFd, source: Source) -> Option<u64> {
        let token = self.next_token;
        self.next_token += 1;
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, fd.as_fd(), data, epoll::EventFlags::IN).ok()?;
        self.sources.insert(token, source);
        Some(token)
    }

    fn unwatch(&mut self, live: &mut Live) {
        for token in live.tokens.drain(..) {
            self.sources.remove(&token);
        }
        (live.pidfd, live.pipe) = (None, None);
    }

    fn on_pipe(&mut self, id: TaskId) {
        let Some(State::Live(live)) = self.tasks.get_mut(&id) else { return };
        let Some(pipe) = &mut live.pipe else { return };
        let mut bytes = [0; 4096];
        let count = pipe.read(&mut bytes).unwrap_or(0);
        live.heard.extend_from_slice(&bytes[..count]);
        let line =
            live.heard.split(|byte| *byte == b'\n').next().filter(|line| line.len() < live.heard.len());
        let started = line.and_then(|line| serde_json::from_slice::<Started>(line).ok());
        if count == 0 || started.is_some() {
            // Closing it takes it out of epoll.
            live.pipe = None;
        }
        if let Some(started) = started {
            self.on_started(id, &started);
        }
    }

    fn on_started(&mut self, id: TaskId, started: &Started) {
        let Some(State::Live(live)) = self.tasks.get_mut(&id) else { return };
        if live.started_told || live.silent {
            return;
        }
        live.started_told = true;
        let at = self.clock.at(started.unix_ms);
        self.tell(Fact::Started { id, pid: Some(started.process.pid), ports: started.ports.clone(), at });
    }

    fn on_told(&mut self) {
        let mut bytes = [0; 64 << 10];
        while let Ok(count) = self.socket.recv(&mut bytes) {
            let Ok(told) = serde_json::from_slice(&bytes[..count]) else { continue };
            self.on_news(told);
        }
    }

    fn on_news(&mut self, told: Told) {
        match told {
            Told::Started(id, started) => self.on_started(id, &started),
            Told::Progress(id, progress) => self.on_progress(id, progress),
            Told::Checkpoint(id, checkpoint) => self.on_checkpoint(id, checkpoint),
        }
    }

    fn on_progress(&mut self, id: TaskId, progress: Progress) {
        let Some(State::Live(live)) = self.tasks.get_mut(&id) else { return };
        if !live.silent && progress.unix_ms > live.progress_ms {
            live.progress_ms = progress.unix_ms;
            self.tell(Fact::Progress { id, report: progress.report, at: self.clock.at(progress.unix_ms) });
        }
    }

    fn on_checkpoint(&mut self, id: TaskId, checkpoint: Checkpoint) {
        let Some(State::Live(live)) = self.tasks.get_mut(&id) else { return };
        if !live.silent && checkpoint.unix_ms > live.checkpoint_ms {
            live.checkpoint_ms = checkpoint.unix_ms;
            self.tell(Fact::Checkpoint { id, at: self.clock.at(checkpoint.unix_ms) });
        }
    }

    /// The newest progress and checkpoint of a task, as far as they were not told: the socket may have been full, or nobody there.
    fn on_records(&mut self, id: TaskId) {
        let task = self.folder.task(id);
        if let Some(progress) = task.progress() {
            self.on_progress(id, progress);
        }
        if let Some(checkpoint) = task.checkpoint() {
            self.on_checkpoint(id, checkpoint);
        }
    }

    fn on_shim_ended(&mut self, id: TaskId) {
        let Some(State::Live(live)) = self.tasks.get_mut(&id) else { return };
        if let Some(child) = &mut live.child {
            let _ = child.wait();
        }
        let task = self.folder.task(id);
        if let Some(started) = task.started() {
            self.on_started(id, &started);
        }
        self.on_records(id);
        let Some(State::Live(mut live)) = self.tasks.remove(&id) else { return };
        self.unwatch(&mut live);
        if task.ended().is_some() {
            self.tell_ended(id, live.silent);
        } else if task.shim().is_some() {
            self.sweep(id, live.silent);
        } else if task.stop().is_some() {
            self.end(id, Exit::Signal(Signal::TERM.as_raw()), live.silent);
        } else if let (Some(order), true) = (task.order(), live.attempts < ATTEMPTS_MAX) {
            self.on_start(order.spec, live.attempts);
        } else {
            let said = std::fs::read_to_string(task.path().join("shim.err")).unwrap_or_default();
            let said = said.lines().last().unwrap_or("it said nothing").to_owned();
            self.refuse(id, &format!("the task's shim could not start: {said}"));
        }
    }

    /// Ends what a dead shim left, away from this thread: a process that waits for a dead disk can take long.
    fn sweep(&mut self, id: TaskId, silent: bool) {
        self.tasks.insert(id, State::Sweeping { silent });
        let (folder, place, mailbox) = (Arc::clone(&self.folder), self.place.clone(), self.mailbox.clone());
        std::thread::spawn(move || {
            sweep::end(folder.id(), &BTreeSet::from([id]), place.as_ref());
            crate::shim::clean_up(&folder.task(id));
            mailbox.ask(Asked::Swept(id));
        });
    }

    fn on_swept(&mut self, id: TaskId) {
        let Some(State::Sweeping { silent }) = self.tasks.get(&id) else { return };
        let silent = *silent;
        self.end(id, Exit::Lost, silent);
    }

    /// Writes down and tells how a task ended whose shim did not.
    fn end(&mut self, id: TaskId, exit: Exit, silent: bool) {
        let task = self.folder.task(id);
        let ended = Ended { outcome: Outcome::Exit(exit), unix_ms: unix_ms() };
        if let Err(error) = task.create().and_then(|()| task.write_ended(&ended)) {
            eprintln!("berth: {error}");
        }
        self.tell_ended(id, silent);
    }

    fn refuse(&mut self, id: TaskId, message: &str) {
        let task = self.folder.task(id);
        let ended = Ended { outcome: Outcome::Refused(message.to_owned()), unix_ms: unix_ms() };
        if let Err(error) = task.create().and_then(|()| task.write_ended(&ended)) {
            // It is told nevertheless; a recovery would find the same reason again.
            eprintln!("berth: {error}");
        }
        self.on_ended(id);
        self.tell(Fact::Refused { id, message: message.to_owned(), at: self.clock.now() });
    }

    fn tell_ended(&mut self, id: TaskId, silent: bool) {
        let task = self.folder.task(id);
        let ended = task.ended();
        self.on_ended(id);
        let Some(ended) = ended.filter(|_| !silent) else { return };
        let at = self.clock.at(ended.unix_ms);
        match ended.outcome {
            Outcome::Refused(message) => self.tell(Fact::Refused { id, message, at }),
            Outcome::Exit(exit) => {
                let stopped = task.stop().is_some();
                self.tell(Fact::Exited { id, exit, at, stopped });
            }
        }
    }

    fn on_ended(&mut self, id: TaskId) {
        self.tasks.insert(id, State::Ended);
        self.ports.give_back(id);
        self.forget_if_ended(id.workload);
        crate::housekeeping::trim(&self.folder, self.config.kept_logs_max);
    }

    fn on_stop(&mut self, id: TaskId, grace: Span) {
        if !self.tasks.contains_key(&id) {
            let task = self.folder.task(id);
            if let Some(order) = task.order().filter(|order| order.spec.runtime == RuntimeKind::Docker) {
                // Written first, so that a container that was never created is not created now.
                request_stop(&task, grace);
                self.on_start(order.spec, 0);
            }
        }
        if !self.tasks.contains_key(&id) {
            let task = self.folder.task(id);
            match task.create().and_then(|()| task.try_lock()) {
                Ok(None) => self.adopt(id, false),
                Ok(Some(_)) if task.ended().is_some() => return self.tell_ended(id, false),
                Ok(Some(_)) => {
                    request_stop(&task, Span::ZERO);
                    return match task.shim() {
                        Some(_) => self.sweep(id, false),
                        // It never ran, and the record keeps it from ever being started.
                        None => self.end(id, Exit::Signal(Signal::TERM.as_raw()), false),
                    };
                }
                Err(error) => return self.refuse(id, &error.to_string()),
            }
        }
        let Some(State::Live(live)) = self.tasks.get(&id) else { return };
        let task = self.folder.task(id);
        request_stop(&task, grace);
        #[cfg(feature = "docker")]
        if live.in_engine {
            return self.engine.stop(id, task);
        }
        match &live.pidfd {
            Some(pidfd) => {
                let _ = pidfd_send_signal(pidfd, Signal::TERM);
            }
            // The request was written before this look: either the shim is here, or it will see the request.
            None => {
                if let Some(shim) = task.shim() {
                    signal(shim, Signal::TERM);
                }
            }
        }
    }

    /// The engine's thread answers by itself.
    fn on_shell(&mut self, id: TaskId, spec: Option<ShellSpec>, answer: ShellSender) {
        #[cfg(feature = "docker")]
        self.engine.shell(id, spec, answer);
        #[cfg(not(feature = "docker"))]
        {
            let _ = (id, spec);
            let _ = answer.send(Err("this build of Berth cannot talk to container engines".into()));
        }
    }

    /// The engine's thread answers by itself.
    fn on_engine(&mut self, image: Option<String>, answer: mpsc::Sender<Result<(), String>>) {
        #[cfg(feature = "docker")]
        self.engine.check(image, answer);
        #[cfg(not(feature = "docker"))]
        {
            let _ = image;
            let _ = answer.send(Err("this build of Berth cannot talk to container engines".into()));
        }
    }

    fn on_recover(&mut self, wanted: Vec<Wanted>) {
        let ids: BTreeSet<TaskId> = wanted.iter().map(|wanted| wanted.spec.id).collect();
        // The look comes before anything is started, so that nothing new is among the victims.
        let marked: BTreeSet<TaskId> = sweep::marked(self.folder.id())
            .into_iter()
            .map(|(_, id)| id)
            .filter(|id| !ids.contains(id))
            .collect();
        let mut left = BTreeSet::new();
        for id in self.folder.tasks().into_iter().chain(marked).filter(|id| !ids.contains(id)) {
            if self.tasks.contains_key(&id) {
                continue;
            }
            match self.folder.task(id).try_lock() {
                Ok(None) => {
                    self.adopt(id, true);
                    self.on_stop(id, Span::ZERO);
                }
                _ => {
                    left.insert(id);
                }
            }
        }
        if !left.is_empty() {
            let (folder, place) = (Arc::clone(&self.folder), self.place.clone());
            std::thread::spawn(move || {
                sweep::end(folder.id(), &left, place.as_ref());
                for id in left {
                    crate::shim::clean_up(&folder.task(id));
                }
            });
        }
        #[cfg(feature = "docker")]
        self.engine.keep(ids.into_iter().filter(|id| self.folder.task(*id).ended().is_none()).collect());
        for Wanted { spec, stopping } in wanted {
            let (id, grace) = (spec.id, spec.grace);
            if spec.runtime == RuntimeKind::Docker {
                // The engine has outlived a reboot, and knows.
                self.on_start(spec, 0);
                if stopping {
                    self.on_stop(id, grace);
                }
            } else if stopping {
                self.on_stop(id, grace);
            } else if self.folder.rebooted() && !self.was_recorded(id) {
                // The record of its start may not have reached the disk. It runs no more, and must not run again.
                self.end(id, Exit::Lost, false);
            } else {
                self.on_start(spec, 0);
            }
        }
        if let Err(error) = self.folder.recovered() {
            eprintln!("berth: {error}");
        }
    }

    fn was_recorded(&self, id: TaskId) -> bool {
        let task = self.folder.task(id);
        task.ended().is_some() || task.shim().is_some()
    }

    fn on_shutdown(&mut self, policy: Shutdown) {
        self.ending = Some(policy);
        if policy == Shutdown::EndAll {
            let live = self.tasks.iter().filter_map(|(id, state)| match state {
                State::Live(live) => Some((*id, live.grace)),
                _ => None,
            });
            for (id, grace) in live.collect::<Vec<_>>() {
                self.on_stop(id, grace);
            }
        }
    }

    fn forget_if_ended(&mut self, workload: WorkloadId) {
        if !self.forgotten.contains(&workload) {
            return;
        }
        let first = TaskId { workload, run: 0, rank: 0 };
        let last = TaskId { workload, run: u32::MAX, rank: u32::MAX };
        if self.tasks.range(first..=last).all(|(_, state)| matches!(state, State::Ended)) {
            self.forgotten.remove(&workload);
            let ids: Vec<TaskId> = self.tasks.range(first..=last).map(|(id, _)| *id).collect();
            for id in ids {
                self.tasks.remove(&id);
            }
            crate::housekeeping::forget(&self.folder, workload, self.config.kept_logs_max);
        }
    }

    fn tell(&self, fact: Fact) {
        // Whoever does not listen any more is about to shut the agent down.
        let _ = self.facts.send(fact);
    }
}

/// Asks for the end; of two requests the one with the earlier end counts.
fn request_stop(task: &TaskFolder, grace: Span) {
    let deadline = boot_ms().saturating_add(grace.0);
    let deadline = task.stop().map_or(deadline, |stop| stop.deadline_boot_ms.min(deadline));
    if let Err(error) = task.write_stop(Stop { deadline_boot_ms: deadline }) {
        eprintln!("berth: {error}");
    }
}

fn signal(process: Process, signal: Signal) {
    let pidfd = Pid::from_raw(process.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(pidfd) = pidfd.filter(|_| process.is_there()) {
        let _ = pidfd_send_signal(pidfd, signal);
    }
}

/// The socket on which shims tell. Its address goes through a descriptor, because a path may have 107 bytes only.
fn listen(folder: &Folder) -> Result<UnixDatagram, AgentError> {
    let path = folder.root().join(SOCKET);
    let _ = std::fs::remove_file(&path);
    let root = std::fs::File::open(folder.root()).map_err(AgentError::file("opening", folder.root()))?;
    let bound = UnixDatagram::bind(format!("/proc/self/fd/{}/{SOCKET}", root.as_raw_fd()));
    let socket = bound.map_err(AgentError::file("listening on", &path))?;
    socket.set_nonblocking(true).map_err(AgentError::file("listening on", &path))?;
    Ok(socket)
}
