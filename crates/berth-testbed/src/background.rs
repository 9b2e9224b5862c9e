//! A cluster that runs while nobody waits for it, found again by its folder.

use anyhow::{Context, Result, bail};
use berth_testbed::Cluster;
use rustix::process::{Pid, Signal, kill_process, setsid};
use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const POLL: Duration = Duration::from_millis(50);
const DOWN_LIMIT: Duration = Duration::from_secs(30);
/// Who serves the cluster: its process number, and when it started, so that a number used again means nobody else.
const OWNER: &str = "owner";
/// Written when the cluster can be used; holds the path of its kubeconfig.
const READY: &str = "ready";
const LOG: &str = "testbed.log";

/// Starts this program again as `serve` with these arguments, and waits until the cluster can be used.
pub(crate) fn up(folder: &Path, arguments: &[&str]) -> Result<()> {
    if let Some(owner) = owner(folder) {
        let kubeconfig =
            fs::read_to_string(folder.join(READY)).context("the cluster is being started just now")?;
        println!("The cluster runs already (process {}).", owner.pid);
        explain(&kubeconfig);
        return Ok(());
    }
    Cluster::available().map_err(anyhow::Error::msg)?;
    fs::create_dir_all(folder)?;
    for left_over in [OWNER, READY] {
        let _ = fs::remove_file(folder.join(left_over));
    }
    let log = fs::File::create(folder.join(LOG))?;
    let mut child = Command::new(env::current_exe()?)
        .arg("serve")
        .args(arguments)
        .arg("--folder")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    loop {
        if let Ok(kubeconfig) = fs::read_to_string(folder.join(READY)) {
            println!("The cluster is up (process {}).", child.id());
            explain(&kubeconfig);
            return Ok(());
        }
        if child.try_wait()?.is_some() {
            bail!("the cluster could not be started:\n{}", fs::read_to_string(folder.join(LOG))?.trim_end());
        }
        thread::sleep(POLL);
    }
}

/// Ends whoever serves the cluster, and removes the folder.
pub(crate) fn down(folder: &Path) -> Result<()> {
    let Some(owner) = owner(folder) else {
        println!("No cluster runs in {}.", folder.display());
        return Ok(());
    };
    kill_process(owner.pid(), Signal::TERM).context("ending the cluster")?;
    let until = Instant::now() + DOWN_LIMIT;
    while owner.is_alive() {
        if Instant::now() > until {
            // The kernel ends its children with it.
            kill_process(owner.pid(), Signal::KILL).context("ending the cluster")?;
        }
        thread::sleep(POLL);
    }
    fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    println!("The cluster is down, and {} is removed.", folder.display());
    Ok(())
}

/// Runs the cluster until a signal comes or one of its components ends.
pub(crate) fn serve(folder: &Path, start: impl FnOnce() -> Result<Cluster>) -> Result<()> {
    // It shall outlive the terminal it was started from. One that leads its group already is a foreground process.
    let _ = setsid();
    fs::create_dir_all(folder)?;
    if let Some(owner) = owner(folder) {
        bail!("a cluster runs in {} already (process {})", folder.display(), owner.pid);
    }
    fs::write(folder.join(OWNER), Owner::myself()?.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = start()?;
    // Until here a signal ends this process at once, and the kernel its children.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    // Moved into its place, so that nobody reads half of it.
    let draft = folder.join("ready.new");
    fs::write(&draft, cluster.kubeconfig().display().to_string())?;
    fs::rename(&draft, folder.join(READY))?;
    loop {
        if runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(1), signals.next()).await.is_ok() })
        {
            return Ok(());
        }
        cluster.check()?;
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn explain(kubeconfig: &str) {
    let kubectl = berth_testbed::kubectl().map_or("kubectl".into(), |path| path.display().to_string());
    println!("\n  export KUBECONFIG={kubeconfig}\n  {kubectl} get nodes\n\n`make kube-down` ends it.");
}

/// A process by number and time of start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: i32,
    started: u64,
}

/// Who serves the cluster of this folder, if anybody does.
fn owner(folder: &Path) -> Option<Owner> {
    let text = fs::read_to_string(folder.join(OWNER)).ok()?;
    let (pid, started) = text.trim().split_once(' ')?;
    let owner = Owner { pid: pid.parse().ok().filter(|pid| *pid > 0)?, started: started.parse().ok()? };
    owner.is_alive().then_some(owner)
}

impl Owner {
    fn myself() -> Result<Self> {
        let pid = i32::try_from(std::process::id())?;
        Ok(Self { pid, started: start_of(pid).context("reading /proc/self")? })
    }

    fn is_alive(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    fn pid(self) -> Pid {
        Pid::from_raw(self.pid).expect("numbers of owners are positive")
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

/// When a process started, in ticks since the machine did; none when it has ended, waited for or not.
fn start_of(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so counting begins after it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok()).flatten()
}
