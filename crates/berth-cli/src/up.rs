//! `berth up`: starts a server on this machine.

use crate::{
    failure::{Exit, Failure},
    names,
    session::{self, ServerArgs},
};
use anyhow::Context;
use berth_api::{GpuAmount, ProjectSettings, RunningServer};
use berth_server::{Access, Config, Folder, Running, Shutdown, TasksRunAs};
use clap::Args;
use std::{
    env, fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Set for the process that goes on in the background.
const DETACHED: &str = "BERTH_DETACHED";
/// A start in the background is waited for this long.
const START_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  berth up -d                                      with the GPUs of this machine, in the background
  berth up --nodes 2xdgx1 --project team-a=4 --project team-b=2
  berth up --listen 127.0.0.1:0                    on any free port
  berth up --listen 0.0.0.0:7370 --tls-generate    for other machines too")]
pub(crate) struct UpArgs {
    /// Nodes declared for trying it out, as 2xdgx1, or a file that describes them; this machine when absent
    #[arg(long, value_name = "NODES|FILE")]
    pub(crate) nodes: Option<String>,
    /// Where it listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7370", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// A project that is created if it is missing, with its quota
    #[arg(long = "project", value_name = "NAME=QUOTA", value_parser = parse_project)]
    pub(crate) projects: Vec<(String, GpuAmount)>,
    /// Say something on the sockets of shells at least this often; who is silent three times as long, and five seconds, is gone
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = parse_ping)]
    pub(crate) ping_every: Duration,
    /// Who work runs as: `accounts` of its users, the account of the `server`, or accounts where this machine can
    #[arg(long, default_value = "auto", value_name = "WHO", value_parser = parse_run_as)]
    pub(crate) tasks_run_as: TasksRunAs,
    /// The first account of users' own; each user without an account of the machine has the next
    #[arg(long, default_value_t = berth_server::ACCOUNTS_FROM, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..=4_200_000_000))]
    pub(crate) accounts_from: u32,
    /// Let every workload mount what lies in this folder, whoever may reach it otherwise
    #[arg(long = "allow-mount", value_name = "FOLDER")]
    pub(crate) allow_mounts: Vec<PathBuf>,
    /// Go on in the background
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// What images run as processes: a TOML file, as `"acme/train" = { program = ["/opt/train"] }`
    #[arg(long, value_name = "FILE")]
    pub(crate) images: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) access: Access,
}

fn parse_project(text: &str) -> Result<(String, GpuAmount), String> {
    let (name, quota) = text.split_once('=').ok_or("write NAME=QUOTA, as team-a=4")?;
    names::check("project", name).map_err(|failure| failure.to_string())?;
    Ok((name.to_owned(), quota.parse().map_err(|error: berth_types::AmountError| error.to_string())?))
}

fn parse_run_as(text: &str) -> Result<TasksRunAs, String> {
    match text {
        "auto" => Ok(TasksRunAs::Auto),
        "accounts" => Ok(TasksRunAs::Accounts),
        "server" => Ok(TasksRunAs::Server),
        _ => Err("write auto, accounts or server".into()),
    }
}

fn parse_ping(text: &str) -> Result<Duration, String> {
    let span: berth_types::Span = text.parse().map_err(|error| format!("{error}; write for example 20s"))?;
    match span.0 {
        0..100 => Err("the shortest time is 100ms".into()),
        millis => Ok(Duration::from_millis(millis)),
    }
}

/// Starts the server in the folder of `server`, and returns when it ends, or once it runs in the background.
pub(crate) fn run(server: &ServerArgs, arguments: &UpArgs) -> anyhow::Result<Exit> {
    let path = server.folder()?;
    let path = if path.is_absolute() { path } else { env::current_dir()?.join(path) };
    let folder = Folder::at(path);
    if arguments.detach && env::var_os(DETACHED).is_none() {
        return detach(&folder);
    }
    let config = config(&folder, arguments)?;
    start_log();
    if env::var_os(DETACHED).is_some() {
        // The terminal may close; what goes on in the background is not asked.
        let _ = rustix::process::setsid();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(config, &folder))?;
    Ok(Exit::Done)
}

fn config(folder: &Folder, arguments: &UpArgs) -> anyhow::Result<Config> {
    let nodes = arguments.nodes.as_deref().map(berth_server::declared_nodes).transpose();
    let nodes = nodes.map_err(|error| Failure::misuse(error.to_string()))?.unwrap_or_default();
    let project = |(name, quota): &(String, GpuAmount)| ProjectSettings {
        name: Some(name.clone()),
        quota: Some(*quota),
        ..ProjectSettings::default()
    };
    let images = match &arguments.images {
        None => Default::default(),
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            toml::from_str(&text).map_err(|error| Failure::misuse(format!("{}: {error}", file.display())))?
        }
    };
    Ok(Config {
        folder: folder.path().to_owned(),
        listen: arguments.listen,
        access: arguments.access.clone(),
        nodes,
        projects: arguments.projects.iter().map(project).collect(),
        images,
        shim: None,
        program: std::env::current_exe().unwrap_or_else(|_| "berth".into()),
        quickstart: None,
        policy: Default::default(),
        store: Default::default(),
        user: session::user_name(),
        clock: berth_server::now,
        ping_every: arguments.ping_every,
        patience: berth_server::PATIENCE,
        tasks_run_as: arguments.tasks_run_as,
        accounts_from: arguments.accounts_from,
        allow_mounts: allowed_mounts(arguments)?,
    })
}

/// Without links, as mounts are.
fn allowed_mounts(arguments: &UpArgs) -> anyhow::Result<Vec<PathBuf>> {
    let real = |folder: &PathBuf| {
        fs::canonicalize(folder)
            .map_err(|error| Failure::misuse(format!("--allow-mount {}: {error}", folder.display())).into())
    };
    arguments.allow_mounts.iter().map(real).collect()
}

/// The server's own log goes to stderr; `BERTH_LOG` says how much of it.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BERTH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only a second server in one process would find it started.
    let _ = log.try_init();
}

async fn serve(config: Config, folder: &Folder) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listen = config.listen;
    let mut running = match berth_server::run(config).await {
        Ok(running) => running,
        Err(error) => return Err(explained(error, listen, folder)),
    };
    greet(&running, folder);
    let how = tokio::select! {
        how = running.stop_asked() => how,
        _ = interrupt.recv() => Shutdown::EndWorkloads,
        _ = terminate.recv() => Shutdown::EndWorkloads,
    };
    match (how, running.running_count()) {
        (Shutdown::EndWorkloads, count @ 1..) => {
            let workloads = if count == 1 { "workload saves its" } else { "workloads save their" };
            say(&format!(
                "berth: stopping; {count} {workloads} state (once more to stop at once, leaving them to the next start)\n"
            ));
        }
        (Shutdown::KeepWorkloads, count @ 1..) => {
            say(&format!("berth: stopping; {count} workloads go on without it\n"));
        }
        _ => say("berth: stopping\n"),
    }
    tokio::select! {
        () = running.stop(how) => {}
        // What runs is found again by the next start, as after a crash.
        _ = interrupt.recv() => std::process::exit(130),
    }
    say(&format!("berth: stopped; `{}` goes on from here\n", restart_words()));
    Ok(())
}

/// Whoever listened may be gone, as `tee` is after a Ctrl-C for both. That is no reason to end before the work has.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn explained(error: berth_server::ServerError, listen: SocketAddr, folder: &Folder) -> anyhow::Error {
    use berth_server::ServerError;
    match error {
        ServerError::Store(berth_store::StoreError::Locked { .. }) => {
            let at = read_server_file(folder).map(|file| format!(" at {}", file.address)).unwrap_or_default();
            Failure::new(Exit::Failed, format!("berth runs already{at}, in {}", folder.path().display()))
                .hint("stop it with `berth down`, or start another with --folder DIR --listen 127.0.0.1:0")
                .into()
        }
        ServerError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::new(Exit::Failed, format!("somebody else listens on {listen}"))
                .hint("choose another address with --listen, as --listen 127.0.0.1:0 for any free port")
                .into()
        }
        ServerError::Accounts(why) => {
            Failure::new(Exit::Failed, format!("work cannot run under accounts of users: {why}"))
                .hint("--tasks-run-as server runs all of it under this server's own account; docs/security.md says what follows")
                .into()
        }
        error @ (ServerError::Declared(_) | ServerError::NotLoopback(_) | ServerError::Tls(_)) => {
            Failure::misuse(error.to_string()).into()
        }
        error => error.into(),
    }
}

fn read_server_file(folder: &Folder) -> Option<RunningServer> {
    serde_json::from_str(&fs::read_to_string(folder.server_file()).ok()?).ok()
}

/// How this very program is called from here.
fn own_name() -> String {
    let own = env::current_exe().unwrap_or_default();
    let on_path = env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join("berth") == own));
    if on_path { "berth".into() } else { own.display().to_string() }
}

fn restart_words() -> String {
    let words: Vec<String> = env::args().skip(1).collect();
    format!("{} {}", own_name(), words.join(" "))
}

fn greet(running: &Running, folder: &Folder) {
    for note in &running.notes {
        say(&format!("berth: {note}\n"));
    }
    let (berth, home) = (own_name(), folder.path().display());
    let elsewhere = match crate::config::default_folder() {
        Some(usual) if usual == folder.path() => String::new(),
        _ => format!("  export BERTH_HOME={home}\n"),
    };
    let project = running.first_project().unwrap_or_else(|| "NAME".into());
    let create = if running.first_project().is_none() {
        format!("  {berth} project create NAME --quota 2\n")
    } else {
        String::new()
    };
    let dashboard = match running.dashboard_link() {
        Some(link) => {
            format!("Dashboard (signs you in once; `{berth} dashboard` makes another link):\n  {link}\n\n")
        }
        None => String::new(),
    };
    let fingerprint = match &running.fingerprint {
        Some(fingerprint) => format!(
            "Its certificate is {fingerprint}; from another machine:\n  \
             berth login {} --trust-fingerprint {fingerprint}\n",
            running.public_url
        ),
        None => String::new(),
    };
    say(&format!(
        "berth {} runs at {}, in {home}\n{fingerprint}{}\n\n{dashboard}In another terminal:\n{elsewhere}{create}  \
         {berth} submit hello -p {project} -g 1 -i berth/quickstart\n  \
         {berth} list -A --watch\n  {berth} logs hello -p {project} -f\n  {berth} why hello -p {project}\n\n\
         Ctrl-C stops it: what runs saves its state, and goes on with the next start.\n",
        berth_api::release(),
        running.public_url,
        running.summary(),
    ));
}

/// Starts the same command again without a terminal, and waits until it answers.
fn detach(folder: &Folder) -> anyhow::Result<Exit> {
    fs::create_dir_all(folder.path())?;
    let log_path = folder.path().join("server.log");
    let log = fs::OpenOptions::new().create(true).append(true).open(&log_path)?;
    let before = log.metadata()?.len();
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Some(file) = read_server_file(folder).filter(|file| file.pid == child.id()) {
            eprintln!(
                "berth: runs at {}, process {}; its log is {}",
                file.address,
                file.pid,
                log_path.display()
            );
            return Ok(Exit::Done);
        }
        if let Some(status) = child.try_wait()? {
            let said = said_since(&log_path, before);
            return Err(Failure::new(Exit::Failed, format!("it did not start ({status})")).hint(said).into());
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::TimedOut,
                format!("it does not answer; its log is {}", log_path.display()),
            )
            .into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn said_since(log: &Path, before: u64) -> String {
    let text = fs::read(log).unwrap_or_default();
    let said = text.get(before as usize..).unwrap_or_default();
    String::from_utf8_lossy(said).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_named_with_their_quota() {
        assert_eq!(
            parse_project("team-a=4").expect("is read"),
            ("team-a".into(), "4".parse().expect("an amount"))
        );
        assert!(
            parse_project("team-a").is_err()
                && parse_project("../x=1").is_err()
                && parse_project("a=b").is_err()
        );
    }
}
