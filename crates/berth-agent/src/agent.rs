//! The agent of this machine: a handle for callers, and the thread behind it.

use crate::{
    AgentConfig, AgentError, Checked, Fact, Host, Listening, LogReader, LogStart, Planned, RuntimeKind,
    Shell, ShellSpec, Shutdown, TaskId, TaskSpec, TerminalSize, Unfit, Wanted, access, account, cgroup,
    check,
    devices::{self, Devices, Vendor},
    folder::{Folder, names},
    images::Images,
    listening,
    reactor::{Asked, Mailbox, Reactor, ShellSender},
    shell, shim,
};
use berth_types::{Span, WorkloadId};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::Duration,
};

/// A container engine that takes longer than this is not there.
const ENGINE_WITHIN: Duration = Duration::from_secs(30);

/// Starts the agent of this machine on its folder. Facts go to the sender, until the agent is shut down or dropped.
pub fn local(config: AgentConfig, facts: mpsc::Sender<Fact>) -> Result<Arc<dyn Host>, AgentError> {
    let folder = Arc::new(Folder::open(&config.folder)?);
    crate::python::install(folder.root())?;
    let images = Images::new(&config, folder.root())?;
    let cgroup::Found { place, note } = cgroup::detect(&format!("berth-{}", folder.id()));
    let notes: Vec<String> = note.into_iter().collect();
    let (mailbox, reactor) = Reactor::new(config.clone(), Arc::clone(&folder), images.clone(), place, facts)?;
    let thread = std::thread::Builder::new()
        .name("berth-agent".into())
        .spawn(move || reactor.run())
        .map_err(|source| AgentError::System { doing: "starting the agent's thread", source })?;
    let vendors = devices::vendors();
    Ok(Arc::new(Agent { folder, images, config, mailbox, notes, vendors, thread: Mutex::new(Some(thread)) }))
}

/// Whether this process can run tasks as users of the machine that have this number and others. The text says why not.
pub fn can_run_as_others(first: u32) -> Result<(), String> {
    if !account::is_root() {
        let own = rustix::process::geteuid().as_raw();
        return Err(format!("this server runs as user {own} and not as root"));
    }
    access::can_become(first, first)
        .map_err(|error| format!("this machine does not let root become user {first}: {error}"))?;
    match shim::can_have_own_mounts() {
        true => Ok(()),
        false => Err("this machine does not let root mount anything, as in many containers".into()),
    }
}

struct Agent {
    folder: Arc<Folder>,
    images: Images,
    config: AgentConfig,
    mailbox: Mailbox,
    notes: Vec<String>,
    vendors: Vec<Box<dyn Vendor>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Host for Agent {
    fn devices(&self) -> Devices {
        devices::look(&self.vendors)
    }

    fn check(&self, planned: &Planned) -> Result<Checked, Unfit> {
        let checked = check::check(planned, &self.images, &self.config, self.folder.root())?;
        if planned.runtime == RuntimeKind::Docker {
            self.check_engine(planned).map_err(Unfit::Image)?;
        }
        Ok(checked)
    }

    fn find_user(&self, text: &str) -> Result<(u32, u32), String> {
        account::find(text)
    }

    fn ensure_started(&self, spec: TaskSpec) {
        self.mailbox.ask(Asked::Start(Box::new(spec)));
    }

    fn ensure_stopped(&self, id: TaskId, grace: Span) {
        self.mailbox.ask(Asked::Stop(id, grace));
    }

    fn recover(&self, wanted: Vec<Wanted>) {
        self.mailbox.ask(Asked::Recover(wanted));
    }

    fn forget(&self, workload: WorkloadId) {
        self.mailbox.ask(Asked::Forget(workload));
    }

    fn logged_tasks(&self, workload: WorkloadId) -> Vec<TaskId> {
        let folders = [self.folder.workload_tasks(workload), self.folder.kept_logs(workload)];
        let id = |name: String| {
            let (run, rank) = name.split_once('-')?;
            format!("{workload}.{run}.{rank}").parse().ok()
        };
        let mut tasks: Vec<TaskId> = folders.iter().flat_map(|folder| names(folder)).filter_map(id).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    fn log(&self, id: TaskId, start: LogStart) -> Result<LogReader, AgentError> {
        let running = self.task_dir(id);
        let kept = self.folder.kept_logs(id.workload).join(format!("{}-{}", id.run, id.rank));
        // A link in its place would lead anywhere.
        let is_folder = |folder: &PathBuf| folder.symlink_metadata().is_ok_and(|found| found.is_dir());
        if ![&running, &kept].into_iter().any(is_folder) {
            return Err(AgentError::NoLog(id.to_string()));
        }
        LogReader::open(&running, &kept, start).map_err(AgentError::file("reading the log in", running))
    }

    fn shell(&self, id: TaskId, spec: ShellSpec) -> Result<Shell, AgentError> {
        let task = self.folder.task(id);
        match self.is_in_engine(id) {
            true => self.ask_engine(|answer| Asked::Shell(id, Some(spec), answer)),
            false => shell::run(&task, spec).map_err(AgentError::NoShell),
        }
    }

    fn attach(&self, id: TaskId, size: Option<TerminalSize>) -> Result<Shell, AgentError> {
        match self.is_in_engine(id) {
            true => self.ask_engine(|answer| Asked::Shell(id, None, answer)),
            false => shell::attach(&self.folder.task(id), size).map_err(AgentError::NoShell),
        }
    }

    fn listening(&self, id: TaskId, port: u16) -> Listening {
        match listening::look(port, &listening::mark_of(&self.folder, id)) {
            // An engine may keep the processes of its containers from being looked at.
            Listening::Other if self.is_in_engine(id) => Listening::Task,
            listening => listening,
        }
    }

    fn task_dir(&self, id: TaskId) -> PathBuf {
        self.folder.task(id).path().to_owned()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn shutdown(&self, policy: Shutdown) {
        self.mailbox.ask(Asked::Shutdown(policy));
        let thread = self.thread.lock().map(|mut thread| thread.take());
        if let Ok(Some(thread)) = thread {
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }
}

impl Agent {
    fn is_in_engine(&self, id: TaskId) -> bool {
        self.folder.task(id).order().is_some_and(|order| order.spec.runtime == RuntimeKind::Docker)
    }

    /// Whether a container engine answers, and has the image if it may not fetch it.
    fn check_engine(&self, planned: &Planned) -> Result<(), String> {
        let (sender, answer) = mpsc::channel();
        let image = planned.local_image.then(|| planned.image.clone());
        self.mailbox.ask(Asked::Engine(image, sender));
        answer
            .recv_timeout(ENGINE_WITHIN)
            .unwrap_or_else(|_| Err("the container engine does not answer".into()))
    }

    fn ask_engine(&self, asked: impl FnOnce(ShellSender) -> Asked) -> Result<Shell, AgentError> {
        let (sender, answer) = mpsc::channel();
        self.mailbox.ask(asked(sender));
        let answer = answer.recv_timeout(ENGINE_WITHIN);
        answer
            .unwrap_or_else(|_| Err("the container engine does not answer".into()))
            .map_err(AgentError::NoShell)
    }
}

/// Whoever drops the agent is not asked what becomes of the tasks, so they go on.
impl Drop for Agent {
    fn drop(&mut self) {
        self.shutdown(Shutdown::Keep);
    }
}
