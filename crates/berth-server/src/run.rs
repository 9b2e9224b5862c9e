//! Starts everything, and stops it again.

use crate::{
    Access, Folder, ServerError,
    auth::{Door, TaskTokens},
    controller::{self, Controller, Message, Shared},
    feed::Feed,
    http, listen, oidc,
    platform::Platform,
    release,
    tasks::{self, Tasks},
};
use berth_agent::{AgentConfig, ImageEntry};
use berth_api::ProjectSettings;
use berth_store::{Settings, Store};
use berth_types::{Node, Policy, State, Time, WorkloadId, default_pool};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, RwLock,
        atomic::AtomicU64,
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinSet};

/// Answers that are under way are waited for this long at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// How often something is said on an open socket unless it is set: more often than what stands between forgets the connection.
pub const PING_EVERY: Duration = Duration::from_secs(20);

/// Whoever connects has asked within this time unless it is set.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The first account of users' own unless it is set: above what machines, containers and directory services give out, and below
/// where some programs see a sign.
pub const ACCOUNTS_FROM: u32 = 2_100_000_000;

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything is kept.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// How it is reached from elsewhere.
    pub access: Access,
    /// Declared nodes; the machine itself when none are.
    pub nodes: Vec<Node>,
    /// Projects that are made if they are missing.
    pub projects: Vec<ProjectSettings>,
    /// What runs in place of an image, besides what is built in.
    pub images: BTreeMap<String, ImageEntry>,
    /// The program of the shim, and of the built-in trainer, with leading arguments; this program when unset.
    pub shim: Option<Vec<OsString>>,
    /// The command `berth`, as workloads can run it.
    pub program: PathBuf,
    /// The same for the built-in trainer.
    pub quickstart: Option<Vec<OsString>>,
    /// Settings of the engine.
    pub policy: Policy,
    /// Settings of the store.
    pub store: Settings,
    /// Who starts it.
    pub user: String,
    /// The time by which it decides.
    pub clock: fn() -> Time,
    /// On the socket of a shell something is said at least this often.
    pub ping_every: Duration,
    /// Whoever connects has asked for something within this time, and sent it whole within the same again.
    pub patience: Duration,
    /// Who work runs as.
    pub tasks_run_as: TasksRunAs,
    /// The first account of users' own; each user without another one has the next.
    pub accounts_from: u32,
    /// What lies in these folders may be mounted by every workload, whoever may reach it otherwise.
    pub allow_mounts: Vec<PathBuf>,
    /// Settings of this start as the folder remembers them, written when it has succeeded.
    pub settings: Option<String>,
}

/// Who work runs as unless its submission says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TasksRunAs {
    /// As accounts where this machine can, and as the server where it cannot.
    #[default]
    Auto,
    /// As accounts of users; where this machine cannot, the server does not start.
    Accounts,
    /// As whoever runs the server.
    Server,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// What runs is asked to stop, and resumes with the next start.
    EndWorkloads,
    /// What runs goes on, and the next start takes it over.
    KeepWorkloads,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// The same, as this machine reaches it.
    pub url: String,
    /// The same, as people reach it.
    pub public_url: String,
    /// The fingerprint of its certificate, when it speaks TLS.
    pub fingerprint: Option<String>,
    /// What a person should know, such as what this machine cannot do.
    pub notes: Vec<String>,
    declared: bool,
    folder: Folder,
    shared: Arc<Shared>,
    door: Door,
    messages: Sender<Message>,
    controller: Option<JoinHandle<()>>,
    releaser: Option<JoinHandle<()>>,
    tasks: Tasks,
    http: tokio::task::JoinHandle<()>,
    http_stop: Option<oneshot::Sender<()>>,
    sockets: http::Sockets,
    /// Looks after the certificate.
    watching: JoinSet<()>,
    /// Dropped with this, which ends the measuring.
    _measure_stop: Sender<()>,
    stop_asked: Option<oneshot::Receiver<Shutdown>>,
}

/// Starts a server; when this returns, it answers.
pub async fn run(config: Config) -> Result<Running, ServerError> {
    config.access.check(config.listen)?;
    let oidc = oidc::Settings::of(&config.access)?.map(oidc::Provider::new);
    let folder = Folder::at(&config.folder);
    folder.prepare()?;
    // The store locks the folder, so from here on it is ours.
    let (store, start) = Store::open(&folder.store(), &config.store)?;
    let store = Arc::new(store);
    let token = folder.token()?;
    let door = Door::new(token, config.user.clone());
    let (mut platform, seq) = controller::load(&store, &config.policy, start.snapshot.as_ref())?;

    let audit = crate::audit::Audit::open(&folder.audit())
        .map_err(ServerError::file("opening the audit log in", &folder.audit()))?;
    let listening = listen::listen(config.listen, &config.access, &folder).await?;

    let mut agent = AgentConfig::new(folder.agent(), config.clock);
    agent.images = config.images.clone();
    agent.private = folder.path().canonicalize().map_err(ServerError::file("finding", folder.path()))?;
    agent.allowed_mounts = config.allow_mounts.clone();
    if let Some(shim) = config.shim.clone() {
        agent.shim = shim;
    }
    if let Some(quickstart) = config.quickstart.clone() {
        agent.quickstart = quickstart;
    }
    let (fact_sender, facts) = mpsc::channel();
    let host = berth_agent::local(agent, fact_sender)?;
    let mut notes = host.notes();
    if let Some(first) = accounts(&config, &mut notes)? {
        platform.set_accounts(first);
    }
    let declared = !config.nodes.is_empty();
    let gpus = if declared { Vec::new() } else { host.devices().gpus };
    let tasks = Tasks {
        host: Arc::clone(&host),
        volumes: folder.volumes(),
        tokens: door.tasks(),
        program: config.program.display().to_string(),
        report_url: listening.report_url.clone(),
        gpus: gpus.into(),
    };
    let nodes =
        if declared { config.nodes.clone() } else { vec![crate::declare::this_machine(&*host, &mut notes)] };
    let now = (config.clock)();
    platform.set_address(listening.ports_url.clone());
    set_up(&mut platform, nodes, &config.projects, now, &mut notes)?;
    let first = platform.take_news();
    platform.begin_window(now);

    let shared = Arc::new(Shared {
        platform: RwLock::new(platform),
        seq: AtomicU64::new(seq),
        epoch: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        plans: AtomicU64::new(0),
        measured: RwLock::default(),
        clock: config.clock,
    });
    let feed = Arc::new(Feed::new(seq));
    let (messages, inbox) = mpsc::channel();
    let (pending, released) = mpsc::channel();
    let keys = controller::Keys::default();
    let mut controller = Controller {
        shared: Arc::clone(&shared),
        store: Arc::clone(&store),
        policy: config.policy.clone(),
        tasks: tasks.clone(),
        feed: Arc::clone(&feed),
        messages: inbox,
        own: messages.clone(),
        pending,
        outbox: Vec::new(),
        epoch: 0,
        closing: false,
        now,
        snapshot_seq: start.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq),
        snapshotting: false,
        sampled: Time(0),
        keys: Arc::clone(&keys),
    };
    controller.begin(first);

    let releaser = {
        let (feed, tasks, messages) = (Arc::clone(&feed), tasks.clone(), messages.clone());
        thread("berth-release", move || release::run(released, feed, tasks, keys, messages))?
    };
    {
        let messages = messages.clone();
        thread("berth-facts", move || tasks::forward(facts, messages))?;
    }
    let (measure_stop, measure_stopped) = mpsc::channel();
    if !tasks.gpus.is_empty() {
        let messages = messages.clone();
        thread("berth-measure", move || tasks::measure(&*host, &measure_stopped, &messages))?;
    }
    tasks.recover(&shared.read());
    let controller = thread("berth-control", move || controller.run())?;

    let (stop, stop_asked) = oneshot::channel();
    let (http_stop, http_stopped) = oneshot::channel();
    let sockets = http::Sockets::new();
    let state = http::AppState::new(http::Parts {
        shared: Arc::clone(&shared),
        store: Arc::clone(&store),
        feed,
        tasks: Some(tasks.clone()),
        mirror: None,
        messages: messages.clone(),
        door: door.clone(),
        audit,
        folder: folder.clone(),
        declared,
        started: now,
        ping_every: config.ping_every,
        speaks_tls: listening.certificate.is_some(),
        public_url: listening.public_url.clone(),
        oidc,
        patience: config.patience,
        sockets: sockets.clone(),
        stop,
    });
    drop(store);
    let file = listening.server_file();
    let watching = listening.watch(&folder);
    let http = tokio::spawn(http::serve(listening.sockets, state, http_stopped));
    // Only a start that succeeded is remembered, and it is before anybody can find the server.
    if let Some(settings) = &config.settings {
        folder.keep_settings(settings)?;
    }
    folder.write_server_file(&file)?;
    Ok(Running {
        address: listening.address,
        url: listening.url,
        public_url: listening.public_url,
        fingerprint: file.fingerprint,
        notes,
        declared,
        folder,
        shared,
        door,
        messages,
        controller: Some(controller),
        releaser: Some(releaser),
        tasks,
        http,
        http_stop: Some(http_stop),
        sockets,
        watching,
        _measure_stop: measure_stop,
        stop_asked: Some(stop_asked),
    })
}

impl Running {
    /// Waits until somebody asks the server to stop.
    pub async fn stop_asked(&mut self) -> Shutdown {
        match self.stop_asked.take() {
            // When nobody can ask any more it is ending already.
            Some(asked) => asked.await.unwrap_or(Shutdown::KeepWorkloads),
            None => std::future::pending().await,
        }
    }

    /// What there is, in a sentence.
    pub fn summary(&self) -> String {
        let platform = self.shared.read();
        let nodes = platform.engine().nodes();
        let gpus: usize = nodes.values().map(|node| node.devices.len()).sum();
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let declared = if self.declared { ", simulated" } else { "" };
        format!(
            "{} with {}{declared}; {}; {}",
            count(nodes.len(), "node"),
            count(gpus, "GPU"),
            count(platform.engine().projects().len(), "project"),
            count(platform.unfinished().count(), "unfinished workload"),
        )
    }

    /// A link to the dashboard that signs in whoever started this, once.
    pub fn dashboard_link(&self) -> Option<String> {
        let (code, _) = self.door.sessions().link(&self.door.owner(), self.shared.now()).ok()?;
        Some(format!("{}/#code={code}", self.public_url))
    }

    /// The first project by name, for examples.
    pub fn first_project(&self) -> Option<String> {
        let platform = self.shared.read();
        platform.engine().projects().values().map(|project| project.name.clone()).min()
    }

    /// How many workloads have tasks now.
    pub fn running_count(&self) -> usize {
        self.shared.read().unfinished().filter(|record| !record.tasks.is_empty()).count()
    }

    /// Stops it; when this returns, everything that was accepted is on the disk.
    pub async fn stop(mut self, how: Shutdown) {
        let end_workloads = how == Shutdown::EndWorkloads;
        let _ = self.messages.send(Message::Close { end_workloads });
        let controller = self.controller.take().expect("it is stopped once");
        let releaser = self.releaser.take().expect("it is stopped once");
        let tasks = self.tasks.clone();
        let ended = tokio::task::spawn_blocking(move || {
            let _ = controller.join();
            let _ = releaser.join();
            tasks.host.shutdown(match how {
                Shutdown::EndWorkloads => berth_agent::Shutdown::EndAll,
                Shutdown::KeepWorkloads => berth_agent::Shutdown::Keep,
            });
        });
        let _ = ended.await;
        if let Some(stop) = self.http_stop.take() {
            let _ = stop.send(());
        }
        // A client that neither reads nor goes does not keep the server from ending.
        let last = async {
            let _ = (&mut self.http).await;
            self.sockets.all_closed().await;
        };
        if tokio::time::timeout(LAST_ANSWERS, last).await.is_err() {
            self.http.abort();
        }
        self.watching.shutdown().await;
        self.folder.remove_server_file();
    }
}

/// The token with which a workload reports about itself, from the token of the installation.
pub fn workload_token(token: &str, workload: u64) -> String {
    TaskTokens::new(token).token(WorkloadId(workload))
}

/// What a stopped server has written.
#[derive(Debug)]
pub struct Written {
    /// The state as the engine knows it; suspended work, and work that waits after a failure, is not in it.
    pub state: State,
    /// Workloads that are not over, those included.
    pub unfinished: usize,
    /// The last event.
    pub seq: u64,
}

/// Reads everything a stopped server has written, as a start does.
pub fn read_state(folder: &Folder, policy: &Policy) -> Result<Written, ServerError> {
    let (store, start) = Store::open(&folder.store(), &Settings::default())?;
    let (platform, seq) = controller::load(&store, policy, start.snapshot.as_ref())?;
    Ok(Written { state: platform.engine().state(), unfinished: platform.unfinished().count(), seq })
}

/// The first account of users' own, if work runs under accounts; says so if it does not.
fn accounts(config: &Config, notes: &mut Vec<String>) -> Result<Option<u32>, ServerError> {
    let first = config.accounts_from;
    let why = match config.tasks_run_as {
        TasksRunAs::Server => "--tasks-run-as server".to_owned(),
        wanted => match (berth_agent::can_run_as_others(first), wanted) {
            (Ok(()), _) => return Ok(Some(first)),
            (Err(why), TasksRunAs::Accounts) => return Err(ServerError::Accounts(why)),
            (Err(why), _) => why,
        },
    };
    notes.push(format!(
        "all work runs under the server's own account, and may read what that may, the server's folder included ({why}); \
         docs/security.md"
    ));
    Ok(None)
}

fn set_up(
    platform: &mut Platform,
    nodes: Vec<Node>,
    projects: &[ProjectSettings],
    now: Time,
    notes: &mut Vec<String>,
) -> Result<(), ServerError> {
    let declared = |problem: berth_api::Problem| ServerError::Declared(problem.detail);
    platform.set_nodes(nodes, now).map_err(declared)?;
    for settings in projects {
        let name = settings.name.as_deref().unwrap_or_default();
        let Some(id) = platform.project_id(name) else {
            platform.create_project(settings, now).map_err(declared)?;
            continue;
        };
        let known = &platform.engine().projects()[&id];
        let quota = known.entitlements.get(&default_pool()).and_then(|entitlement| entitlement.quota);
        if let Some(wanted) = settings.quota.filter(|wanted| Some(wanted.0) != quota) {
            let quota = quota.unwrap_or_default();
            notes.push(format!(
                "project {name} has a quota of {quota} and keeps it; `berth project update {name} --quota {wanted}` changes it"
            ));
        }
    }
    Ok(())
}

/// Starts a thread without which the server is none: when it panics, the process ends at once. Workloads go on, and the next
/// start reads what was written instead of what was left half done.
fn thread(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServerError> {
    let guarded = move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
            eprintln!("berth: {name} failed, which is a mistake in berth; start it again to go on");
            std::process::abort();
        }
    };
    std::thread::Builder::new()
        .name(name.into())
        .spawn(guarded)
        .map_err(|source| ServerError::Start { doing: name, source })
}
