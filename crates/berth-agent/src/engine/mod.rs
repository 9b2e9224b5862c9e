//! Tasks as containers of a Docker or Podman engine.
//!
//! ```text
//! Reactor --drive, stop--> engine's thread --API--> dockerd, podman
//!         <--records, then Asked::Told----
//! ```
//!
//! The engine takes the place of the shim: it is the parent, and outlives the agent. A container's name is made of the agent's
//! folder and the task, so the engine itself refuses to create a task a second time; its label finds it again after a restart.
//! The records in the task's folder are the same as those of a shim.

mod create;
mod drive;
mod follow;
mod shell;

use crate::{
    ShellSpec, TaskId,
    environment::MARK,
    reactor::{Asked, Mailbox, ShellSender},
    task_folder::{Order, TaskFolder, Told},
};
use bollard::{Docker, query_parameters::ListContainersOptionsBuilder};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::mpsc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const LABEL_FOLDER: &str = "berth.folder";
const LABEL_TASK: &str = "berth.task";
/// An engine that is restarted is asked again after this long, and then in longer steps.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(10);

/// What the engine's thread is asked to do.
#[derive(Debug)]
enum Ask {
    Drive(Box<Order>, TaskFolder),
    Stop(TaskId, TaskFolder),
    Shell(TaskId, Option<ShellSpec>, ShellSender),
    /// Whether an engine answers, and has this image.
    Check(Option<String>, mpsc::Sender<Result<(), String>>),
    /// Everything of this folder that is not among these goes.
    Keep(BTreeSet<TaskId>),
}

/// The way to the engine's thread, which starts with the first task that needs it.
pub(crate) struct Engine {
    address: Option<String>,
    folder_id: String,
    mailbox: Mailbox,
    asks: Option<UnboundedSender<Ask>>,
}

impl Engine {
    pub(crate) fn new(address: Option<String>, folder_id: String, mailbox: Mailbox) -> Self {
        Self { address, folder_id, mailbox, asks: None }
    }

    /// Runs a task to its end, or takes it over.
    pub(crate) fn drive(&mut self, order: Order, task: TaskFolder) {
        self.ask(Ask::Drive(Box::new(order), task));
    }

    /// A request to stop was written into the task's folder.
    pub(crate) fn stop(&mut self, id: TaskId, task: TaskFolder) {
        self.ask(Ask::Stop(id, task));
    }

    /// Runs a command in a container, or joins the container.
    pub(crate) fn shell(&mut self, id: TaskId, spec: Option<ShellSpec>, answer: ShellSender) {
        self.ask(Ask::Shell(id, spec, answer));
    }

    /// Whether an engine answers, and has an image if one is named. The text says why not, and what to do about it.
    pub(crate) fn check(&mut self, image: Option<String>, answer: mpsc::Sender<Result<(), String>>) {
        self.ask(Ask::Check(image, answer));
    }

    /// Ends every container of this folder that is not wanted. Without an engine there is none.
    pub(crate) fn keep(&mut self, wanted: BTreeSet<TaskId>) {
        if addresses(self.address.clone()).iter().any(|address| is_there(address)) {
            self.ask(Ask::Keep(wanted));
        }
    }

    fn ask(&mut self, ask: Ask) {
        let addresses = addresses(self.address.clone());
        let asks = self.asks.get_or_insert_with(|| {
            let (sender, receiver) = unbounded_channel();
            let worker =
                Worker { folder_id: self.folder_id.clone(), mailbox: self.mailbox.clone(), addresses };
            std::thread::spawn(move || worker.run(receiver));
            sender
        });
        // The thread ends with this sender and never before it.
        let _ = asks.send(ask);
    }
}

/// Where an engine may answer, best first: at this address, or where engines usually do.
pub(crate) fn addresses(address: Option<String>) -> Vec<String> {
    if let Some(address) = address.or_else(|| std::env::var("DOCKER_HOST").ok()) {
        return vec![address];
    }
    let user = rustix::process::geteuid().as_raw();
    let sockets = [
        "/var/run/docker.sock".to_owned(),
        format!("/run/user/{user}/podman/podman.sock"),
        "/run/podman/podman.sock".to_owned(),
    ];
    sockets
        .into_iter()
        .filter(|socket| Path::new(socket).exists())
        .map(|path| format!("unix://{path}"))
        .collect()
}

fn is_there(address: &str) -> bool {
    address.strip_prefix("unix://").is_none_or(|socket| Path::new(socket).exists())
}

/// What the thread works with.
#[derive(Clone)]
struct Worker {
    folder_id: String,
    mailbox: Mailbox,
    addresses: Vec<String>,
}

impl Worker {
    fn run(self, mut asks: UnboundedReceiver<Ask>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime.inspect_err(|error| eprintln!("berth: no runtime for containers: {error}"))
        else {
            return;
        };
        runtime.block_on(async {
            while let Some(ask) = asks.recv().await {
                let worker = self.clone();
                tokio::spawn(async move {
                    match ask {
                        Ask::Drive(order, task) => drive::drive(worker, *order, task).await,
                        Ask::Stop(id, task) => drive::stop(worker, id, task).await,
                        Ask::Shell(id, spec, answer) => shell::answer(worker, id, spec, answer).await,
                        Ask::Check(image, answer) => {
                            // Whoever asked may not wait any more.
                            let _ = answer.send(drive::check(&worker, image.as_deref()).await);
                        }
                        Ask::Keep(wanted) => worker.keep(&wanted).await,
                    }
                });
            }
        });
    }

    /// An engine that answers. The text says that there is none.
    async fn connect(&self) -> Result<Docker, String> {
        for address in &self.addresses {
            let Ok(docker) = Docker::connect_with_host(address) else { continue };
            // Engines speak up to a version of their own; Podman's is far behind Docker's.
            if let Ok(docker) = docker.negotiate_version().await {
                return Ok(docker);
            }
        }
        let tried =
            if self.addresses.is_empty() { "no socket was found".into() } else { self.addresses.join(", ") };
        Err(format!(
            "no container engine answers ({tried}): start Docker or `podman system service`, or set DOCKER_HOST"
        ))
    }

    /// Ends what is not wanted, however often an engine that has much to do has to be asked.
    async fn keep(&self, wanted: &BTreeSet<TaskId>) {
        // What is made from here on is somebody's business.
        let until = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut retry = RETRY_FIRST;
        while let Err(why) = self.try_keep(wanted, until as i64).await {
            eprintln!("berth: ending containers that nobody wants: {why}");
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_LAST);
        }
    }

    async fn try_keep(&self, wanted: &BTreeSet<TaskId>, until: i64) -> Result<(), String> {
        let docker = self.connect().await?;
        let filters = HashMap::from([("label", vec![format!("{LABEL_FOLDER}={}", self.folder_id)])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = docker.list_containers(Some(options)).await.map_err(|error| error.to_string())?;
        for container in found.into_iter().filter(|one| one.created.is_none_or(|made| made <= until)) {
            let label = container.labels.as_ref().and_then(|labels| labels.get(LABEL_TASK));
            let id = label.and_then(|text| text.parse::<TaskId>().ok());
            if id.is_none_or(|id| !wanted.contains(&id))
                && let Some(name) = container.id
            {
                drive::remove(&docker, &name).await?;
            }
        }
        Ok(())
    }

    fn name(&self, id: TaskId) -> String {
        format!("berth-{}-{id}", self.folder_id)
    }

    fn mark(&self, id: TaskId) -> String {
        format!("{MARK}={}/{id}", self.folder_id)
    }

    fn tell(&self, told: Told) {
        self.mailbox.ask(Asked::Told(told));
    }

    fn tell_ended(&self, id: TaskId) {
        self.mailbox.ask(Asked::Unlocked(id));
    }
}
