//! A control plane and its life.

use crate::{
    Image, REAL_NODE, api,
    binaries::{self, API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER},
    certificates as files, components,
    nodes::NodeSpec,
    ports,
    processes::Process,
    real::{self, RealNode},
};
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Far more than a busy machine needs, so that running into it means that something is wrong.
const READY_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// Somebody else may take a port between its choice and its use.
const PORT_TRIES: u32 = 5;
const KUBECONFIG: &str = "kubeconfig";
const KWOK_CONFIG: &str = "kwok.yaml";

/// What a cluster consists of.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are; a new folder that is removed at the end when absent. A cluster that lived there before is
    /// overwritten.
    pub folder: Option<PathBuf>,
    /// Namespaces, service accounts, Jobs, Deployments, claims from templates, garbage collection.
    pub controller_manager: bool,
    /// The stock scheduler, which takes Pods that name no other.
    pub scheduler: bool,
    /// Plays the kubelets of simulated nodes.
    pub kwok: bool,
    /// Whether the API server writes down every request, see [`Cluster::audit_log`].
    pub audit: bool,
    /// Nodes to begin with.
    pub nodes: Vec<NodeSpec>,
    /// A node of which nothing is simulated but GPUs: kubelet, containerd and runc; named [`crate::REAL_NODE`]. Needs
    /// root, see [`Cluster::real_node_available`].
    pub real_node: bool,
    /// GPUs that the real node says it has. Pods that ask for them run and see none.
    pub real_gpus: u32,
    /// A shell or a forwarded port that is silent for so long is ended by the real node; four hours when absent.
    pub stream_idle: Option<Duration>,
    /// A cluster that is there already: no control plane is started, only kwok.
    pub kubeconfig: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: None,
            controller_manager: true,
            scheduler: false,
            kwok: true,
            audit: false,
            nodes: Vec::new(),
            real_node: false,
            real_gpus: 0,
            stream_idle: None,
            kubeconfig: None,
        }
    }
}

/// Holds the folder and the processes of a control plane, and ends both when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    folder: PathBuf,
    kubeconfig: PathBuf,
    token: Option<String>,
    port: u16,
    running: Mutex<Running>,
    /// Taken out when the cluster is dropped, because a runtime may not be dropped where async code runs.
    runtime: Option<Runtime>,
    /// Last, so that the folder goes after those who write into it.
    _temporary: Option<TempDir>,
}

/// The processes, in the order in which they end.
#[derive(Debug, Default)]
struct Running {
    node: Option<RealNode>,
    kwok: Option<Process>,
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Option<Process>,
    etcd: Option<Process>,
}

impl Running {
    fn all(&mut self) -> [&mut Option<Process>; 5] {
        let Self { node: _, kwok, scheduler, controller_manager, api_server, etcd } = self;
        [kwok, scheduler, controller_manager, api_server, etcd]
    }

    /// An error with the end of the log of the first process that has ended by itself.
    fn check(&mut self) -> Result<()> {
        self.node.as_mut().map_or(Ok(()), RealNode::check)?;
        self.all().into_iter().flatten().try_for_each(Process::check)
    }

    fn end(&mut self) {
        drop(self.node.take());
        for process in self.all() {
            // Dropping ends the process and waits for it.
            drop(process.take());
        }
    }
}

impl Cluster {
    /// Whether a cluster can be started here.
    ///
    /// # Errors
    /// Says what is missing and how to get it, so that a test can say what it skips.
    pub fn available() -> Result<(), String> {
        binaries::check(&[ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK])
    }

    /// Whether a cluster with a real node can be started here.
    ///
    /// # Errors
    /// Says what is missing and how to get it, so that a test can say what it skips.
    pub fn real_node_available() -> Result<(), String> {
        Self::available().and_then(|()| real::check())
    }

    /// Starts a cluster and waits until it can be used.
    ///
    /// # Errors
    /// When a program is missing, or a component ends or does not get ready; the end of its log is in the error.
    pub fn start(options: Options) -> Result<Self> {
        let (temporary, folder) = match &options.folder {
            Some(folder) => (None, folder.clone()),
            None => {
                let temporary = tempfile::Builder::new().prefix("berth-testbed-").tempdir()?;
                let folder = temporary.path().to_owned();
                (Some(temporary), folder)
            }
        };
        let folder = prepare(&folder)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let kubeconfig = match &options.kubeconfig {
            Some(path) => path.canonicalize().with_context(|| format!("finding {}", path.display()))?,
            None => folder.join(KUBECONFIG),
        };
        let mut cluster = Self {
            kubeconfig,
            folder,
            token: None,
            port: 0,
            running: Mutex::default(),
            runtime: Some(runtime),
            _temporary: temporary,
            options,
        };
        if cluster.options.kubeconfig.is_none() {
            cluster.start_control_plane()?;
        }
        if cluster.options.kwok {
            binaries::check(&[KWOK]).map_err(anyhow::Error::msg)?;
            fs::write(cluster.folder.join(KWOK_CONFIG), include_str!("kwok.yaml"))?;
            let kwok = cluster.run(KWOK, &components::kwok(&cluster.kubeconfig, KWOK_CONFIG))?;
            cluster.running().kwok = Some(kwok);
        }
        for spec in &cluster.options.nodes {
            cluster.add_nodes(spec)?;
        }
        if cluster.options.real_node {
            cluster.start_real_node()?;
        }
        Ok(cluster)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where keys, data and a log per component are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The administrator's token; none for a cluster that was there before.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The address of the API server; none for a cluster that was there before.
    #[must_use]
    pub fn server(&self) -> Option<String> {
        self.token.is_some().then(|| self.address())
    }

    /// What the API server was asked, one JSON object per line, if [`Options::audit`] is set.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join(components::AUDIT_LOG)
    }

    /// Process numbers of what runs, by name.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, u32)> {
        let mut running = self.running();
        let numbered = |process: &Process| (process.name().to_owned(), process.pid());
        let node: Vec<_> = running.node.iter().map(|node| numbered(node.process())).collect();
        let others = running.all().into_iter().flatten().map(|process| numbered(process));
        node.into_iter().chain(others).collect()
    }

    /// An error with the end of its log if a component has ended by itself.
    ///
    /// # Errors
    /// Names the component.
    pub fn check(&self) -> Result<()> {
        self.running().check()
    }

    /// A kubeconfig for a service account, for tests of what it may do.
    ///
    /// # Errors
    /// When there is no such service account.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let kubeconfig = &self.kubeconfig;
        let token = self.block_on(async {
            let client = api::connect(kubeconfig).await?;
            api::token_of(client, namespace, account).await
        })?;
        let text = fs::read_to_string(kubeconfig)?;
        let old =
            self.token.as_deref().context("the kubeconfig of another cluster holds no token of ours")?;
        let path = self.folder.join(format!("kubeconfig-{namespace}-{account}"));
        files::write_secret(&path, &text.replace(old, &token))?;
        Ok(path)
    }

    /// Creates simulated nodes, 32 at a time, and waits until kwok, where it runs, holds them.
    ///
    /// # Errors
    /// When the API server refuses one, for instance because its name is taken.
    pub fn add_nodes(&self, spec: &NodeSpec) -> Result<()> {
        let held = self.options.kwok.then_some(READY_LIMIT);
        let added = self.block_on(async {
            let client = api::connect(&self.kubeconfig).await?;
            api::add_nodes(client, spec, held).await
        });
        added.and_then(|()| self.check())
    }

    /// Removes a node with the devices it published. Its Pods stay until a controller or a test removes them.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn remove_node(&self, name: &str) -> Result<()> {
        self.block_on(async { api::remove_node(api::connect(&self.kubeconfig).await?, name).await })
    }

    /// Gives an image to the real node, so that Pods can name it.
    ///
    /// # Errors
    /// When there is no real node, or a file of the image is not there.
    pub fn import_image(&self, image: &Image) -> Result<()> {
        self.running().node.as_ref().context("this cluster has no real node")?.import(image)
    }

    /// Asks the API server to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop_apiserver(&self) -> Result<()> {
        self.take(API_SERVER)?.stop(STOP_LIMIT)
    }

    /// Ends the API server at once, as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_apiserver(&self) -> Result<()> {
        self.take(API_SERVER)?.kill()
    }

    /// Starts the API server again, at the same address, and waits until it is ready.
    ///
    /// # Errors
    /// When it runs, or does not get ready.
    pub fn start_apiserver(&self) -> Result<()> {
        self.spawn_api_server(self.port)?;
        self.wait_until_ready(false)
    }

    /// Asks etcd to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop_etcd(&self) -> Result<()> {
        self.take(ETCD)?.stop(STOP_LIMIT)
    }

    /// Ends etcd at once, as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_etcd(&self) -> Result<()> {
        self.take(ETCD)?.kill()
    }

    /// Starts etcd again with the data it had.
    ///
    /// # Errors
    /// When it runs, or does not get ready.
    pub fn start_etcd(&self) -> Result<()> {
        if self.running().etcd.is_some() {
            bail!("etcd runs already");
        }
        let socket = self.folder.join(components::ETCD_SOCKET);
        // One that was killed leaves its socket behind.
        let _ = fs::remove_file(&socket);
        let etcd = self.run(ETCD, &components::etcd())?;
        self.running().etcd = Some(etcd);
        self.wait("etcd did not get ready", || if socket.exists() { Ok(()) } else { Err("no socket".into()) })
    }

    /// Starts the stock scheduler, for a cluster that began without it.
    ///
    /// # Errors
    /// When it runs already, or cannot be started.
    pub fn start_scheduler(&self) -> Result<()> {
        if self.running().scheduler.is_some() {
            bail!("the stock scheduler runs already");
        }
        let process = self.run(SCHEDULER, &components::scheduler(&self.kubeconfig))?;
        self.running().scheduler = Some(process);
        Ok(())
    }

    /// Asks the stock scheduler to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop_scheduler(&self) -> Result<()> {
        self.take(SCHEDULER)?.stop(STOP_LIMIT)
    }

    fn start_control_plane(&mut self) -> Result<()> {
        Self::available().map_err(anyhow::Error::msg)?;
        let token = files::token()?;
        files::write(&self.folder, &token)?;
        fs::write(self.folder.join(components::AUDIT_POLICY), components::AUDIT_RULES)?;
        self.token = Some(token);
        self.start_etcd()?;
        for left in (0..PORT_TRIES).rev() {
            self.port = ports::free()?;
            files::write_secret(&self.kubeconfig, &self.administrator())?;
            self.spawn_api_server(self.port)?;
            match self.wait_until_ready(false) {
                Err(error) if left > 0 && error.to_string().contains("address already in use") => {
                    drop(self.running().api_server.take());
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        if self.options.controller_manager {
            let process = self.run(CONTROLLER_MANAGER, &components::controller_manager(&self.kubeconfig))?;
            self.running().controller_manager = Some(process);
        }
        if self.options.scheduler {
            self.start_scheduler()?;
        }
        self.wait_until_ready(self.options.controller_manager)
    }

    fn start_real_node(&self) -> Result<()> {
        real::check().map_err(anyhow::Error::msg)?;
        if self.options.kubeconfig.is_some() {
            bail!("a real node needs certificates of this cluster, whose keys are not here");
        }
        let node = RealNode::start(&self.folder, &self.address(), ports::free()?, self.options.stream_idle)?;
        self.running().node = Some(node);
        let ask = |question: &dyn Fn(&RealNode) -> bool| self.running().node.as_ref().is_some_and(question);
        self.wait("containerd did not get ready", || {
            if ask(&RealNode::is_listening) { Ok(()) } else { Err("no socket".into()) }
        })?;
        if let Some(node) = &self.running().node {
            node.import_pause()?;
        }
        let kubeconfig = &self.kubeconfig;
        self.wait("the real node did not get ready", || {
            self.block_on(async { api::node_is_ready(api::connect(kubeconfig).await?, REAL_NODE).await })
                .map_err(|error| format!("{error:#}"))
        })?;
        let gpus = NodeSpec { gpus: self.options.real_gpus, ..NodeSpec::dgx1(1) };
        self.block_on(async { api::declare_gpus(api::connect(kubeconfig).await?, REAL_NODE, &gpus).await })
    }

    fn spawn_api_server(&self, port: u16) -> Result<()> {
        if self.running().api_server.is_some() {
            bail!("the API server runs already");
        }
        let process = self.run(API_SERVER, &components::api_server(port, &self.options))?;
        self.running().api_server = Some(process);
        Ok(())
    }

    fn run(&self, name: &str, arguments: &[String]) -> Result<Process> {
        // kwok stands for machines that are not here, so it may have memory for what it saves in processor time. What
        // may be measured runs as it does everywhere.
        let environment: &[(&str, &str)] = if name == KWOK { &[("GOGC", "400")] } else { &[] };
        let program = binaries::folder().join(name);
        Process::start(name, &program, arguments, environment, &self.folder, &self.folder)
    }

    fn take(&self, name: &str) -> Result<Process> {
        let mut running = self.running();
        let found =
            running.all().into_iter().find(|process| process.as_ref().is_some_and(|it| it.name() == name));
        found.and_then(Option::take).with_context(|| format!("{name} does not run"))
    }

    fn wait_until_ready(&self, service_account: bool) -> Result<()> {
        let limit = Duration::from_secs(10);
        self.wait("the API server did not get ready", || {
            let asked = self.block_on(async {
                tokio::time::timeout(limit, api::is_ready(&self.kubeconfig, service_account)).await
            });
            match asked {
                Ok(answer) => answer.map_err(|error| format!("{error:#}")),
                Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
            }
        })
    }

    /// Asks again and again, and gives up when a component has ended or time is over. The condition says why it does
    /// not hold.
    fn wait(&self, failure: &str, mut condition: impl FnMut() -> Result<(), String>) -> Result<()> {
        let until = Instant::now() + READY_LIMIT;
        while let Err(reason) = condition() {
            self.check()?;
            if Instant::now() > until {
                let mut running = self.running();
                let tails =
                    running.all().into_iter().flatten().map(|process| process.failure("runs").to_string());
                let mut tails = tails.collect::<Vec<_>>();
                tails.extend(running.node.as_ref().map(RealNode::tails));
                let tails = tails.join("\n");
                bail!("{failure} within {} s ({reason})\n{tails}", READY_LIMIT.as_secs());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn administrator(&self) -> String {
        let (folder, address) = (self.folder.display(), self.address());
        let token = self.token.as_deref().unwrap_or_default();
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: berth-testbed
  cluster: {{server: \"{address}\", certificate-authority: \"{folder}/{authority}\"}}
users:
- name: user
  user: {{token: \"{token}\"}}
contexts:
- name: berth-testbed
  context: {{cluster: berth-testbed, user: user}}
current-context: berth-testbed
",
            authority = files::AUTHORITY
        )
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // A panic elsewhere leaves the processes as they are, and they must still be ended.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it on a thread of its own, so that a caller that is async itself may call too.
    fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let runtime = self.runtime.as_ref().expect("the runtime is there until the cluster is dropped");
        thread::scope(|scope| {
            let thread = scope.spawn(|| runtime.block_on(future));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.running().end();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A folder without data that only its owner can look into, by its full name.
fn prepare(folder: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let context = || format!("preparing {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).with_context(context)?;
    // Only what a cluster leaves there is removed: the folder may hold files of its owner too.
    let _ = fs::remove_dir_all(folder.join("etcd"));
    real::clear(folder)?;
    // The components run in there, so that a relative name would mean another file to them.
    folder.canonicalize().with_context(context)
}
