//! `berth up`: starts a server on this machine.

use crate::{
    failure::{Exit, Failure},
    names,
    server::is_alive,
    session::{self, ServerArgs},
    settings::{self, Settings, parse_ping, parse_run_as},
};
use anyhow::Context;
use berth_api::{GpuAmount, ProjectSettings, RunningServer};
use berth_server::{Access, Config, Folder, Running, Shutdown};
use clap::Args;
use std::{
    env, fs,
    io::{Read, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Set for the process that goes on in the background.
const DETACHED: &str = "BERTH_DETACHED";
/// A start in the background is waited for this long.
const START_MAX: Duration = Duration::from_secs(60);
/// The end of what a process in the background has to say to whoever started it.
const END: u8 = 0;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  berth up -d                                      with the GPUs of this machine, in the background
  berth up --nodes 2xdgx1 --project team-a=4 --project team-b=2
  berth up                                         as the last time, in the same folder
  berth up --change --nodes 3xdgx1                 with other nodes from now on
  berth up --listen 127.0.0.1:0                    on a free port, another one at every start
  berth up --listen 0.0.0.0:7370 --tls-generate    for other machines too

The folder remembers nodes, port and options in settings.toml. A start that would change them names the
differences and needs --change.")]
pub(crate) struct UpArgs {
    /// Simulated nodes for trying it out, as 2xdgx1, or a file that describes them; `this-machine` for its own GPUs [default: this-machine]
    #[arg(long, value_name = "NODES|FILE")]
    pub(crate) nodes: Option<String>,
    /// Address to listen on; port 0 takes a free port at every start [default: 127.0.0.1:7370]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Change settings that the folder remembers
    #[arg(long)]
    pub(crate) change: bool,
    /// Settings to return to their defaults, such as nodes or tls-generate
    #[arg(long, value_name = "SETTING", value_delimiter = ',', requires = "change", value_parser = settings::parse_name)]
    pub(crate) unset: Vec<String>,
    /// A project to create if it is missing, with its quota
    #[arg(long = "project", value_name = "NAME=QUOTA", value_parser = parse_project)]
    pub(crate) projects: Vec<(String, GpuAmount)>,
    /// Ping the sockets of shells at least this often; a client that is silent three times as long, and five seconds, is closed
    /// [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = valid(parse_ping))]
    pub(crate) ping_every: Option<String>,
    /// Account of tasks: `accounts` of their users, the account of the `server`, or accounts where this machine can [default: auto]
    #[arg(long, value_name = "WHO", value_parser = valid(parse_run_as))]
    pub(crate) tasks_run_as: Option<String>,
    /// First account of users' own; each user without an account of the machine gets the next [default: 2100000000]
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..=4_200_000_000))]
    pub(crate) accounts_from: Option<u32>,
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

/// Keeps the text of a value that was found to be one.
fn valid<T>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |text| parse(text).map(|_| text.to_owned())
}

/// Starts the server in the folder of `server`, and returns when it ends, or once it runs in the background.
pub(crate) fn run(server: &ServerArgs, arguments: &UpArgs) -> anyhow::Result<Exit> {
    let path = server.folder()?;
    let path = if path.is_absolute() { path } else { env::current_dir()?.join(path) };
    let folder = Folder::at(path);
    let is_detached = env::var_os(DETACHED).is_some();
    folder.check_owner()?;
    // What cannot be right is refused before a second process is started for it.
    let (settings, notes) = settings(&folder, arguments)?;
    let config = config(&folder, arguments, &settings)?;
    if arguments.detach && !is_detached {
        return detach(&folder);
    }
    start_log();
    if is_detached {
        // The terminal may close; what goes on in the background is not asked.
        let _ = rustix::process::setsid();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(config, &folder, notes))?;
    Ok(Exit::Done)
}

/// The settings of this start, with what a person should know of them.
fn settings(folder: &Folder, arguments: &UpArgs) -> anyhow::Result<(Settings, Vec<String>)> {
    let absolute = |path: &PathBuf| std::path::absolute(path);
    let given = Settings {
        nodes: arguments.nodes.as_deref().map(named_nodes).transpose()?,
        listen: arguments.listen,
        ping_every: arguments.ping_every.clone(),
        tasks_run_as: arguments.tasks_run_as.clone(),
        accounts_from: arguments.accounts_from,
        allow_mount: (!arguments.allow_mounts.is_empty())
            .then(|| allowed_mounts(&arguments.allow_mounts))
            .transpose()?,
        images: arguments.images.as_ref().map(absolute).transpose()?,
        ..Settings::default()
    };
    let given = given.with_access(&arguments.access)?.check()?;
    let (remembered, mut notes) = match Settings::of_folder(folder)? {
        Some(remembered) => (Some(remembered), Vec::new()),
        None => inferred(folder, &given)?,
    };
    let is_first = remembered.is_none();
    let (settings, differences) = given.merged(&remembered.unwrap_or_default(), &arguments.unset);
    if is_first || differences.is_empty() {
        return Ok((settings, notes));
    }
    if !arguments.change {
        if let Some(running) = read_server_file(folder).filter(|file| is_alive(file.pid)) {
            return Err(runs_already(Some(&running), folder).into());
        }
        return Err(settings::refusal(&differences, folder.path()).into());
    }
    notes.extend(differences.iter().map(|difference| format!("changed {difference}")));
    Ok((settings, notes))
}

/// What a folder that was written before settings were remembered lets us know: the nodes of its log.
fn inferred(folder: &Folder, given: &Settings) -> anyhow::Result<(Option<Settings>, Vec<String>)> {
    if !folder.store().exists() {
        return Ok((None, Vec::new()));
    }
    let written = match berth_server::read_state(folder, &Default::default()) {
        Ok(written) => written,
        // A folder in use, or one that is damaged, is told of by the start itself.
        Err(_) => return Ok((None, Vec::new())),
    };
    let nodes = &written.state.nodes;
    let own = berth_server::machine_node();
    if nodes.is_empty() || nodes.values().any(|node| node.name == own) {
        return Ok((None, Vec::new()));
    }
    let remembered = |nodes: String| Settings { nodes: Some(nodes), ..given.clone() };
    match berth_server::nodes_as_declared(nodes.values()) {
        Some(words) => {
            let note =
                format!("this folder has no settings yet; its nodes are {words}, as at its last start");
            Ok((Some(remembered(words)), vec![note]))
        }
        // A file of nodes describes them; which file it was is not known.
        None if given.nodes.is_some() => Ok((None, Vec::new())),
        None => {
            let names: Vec<&str> = nodes.values().map(|node| node.name.as_str()).collect();
            let text = format!(
                "the nodes of {} were declared ({}), and no settings say how",
                folder.path().display(),
                names.join(", ")
            );
            Err(Failure::misuse(text)
                .hint(format!(
                    "name them with --nodes, as at the last start, or use this machine instead: --nodes {}",
                    settings::THIS_MACHINE
                ))
                .into())
        }
    }
}

/// Nodes as they are remembered: a file by its absolute path, known machines with their count, so that `dgx1` and `1xdgx1` are
/// the same.
fn named_nodes(text: &str) -> anyhow::Result<String> {
    if text == settings::THIS_MACHINE {
        return Ok(text.to_owned());
    }
    if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
        let path = std::path::absolute(text)?.into_os_string().into_string();
        return path.map_err(|_| Failure::misuse("the path of the file of nodes is not UTF-8 text").into());
    }
    let nodes = berth_server::declared_nodes(text).map_err(|error| Failure::misuse(error.to_string()))?;
    Ok(berth_server::nodes_as_declared(&nodes).unwrap_or_else(|| text.to_owned()))
}

fn config(folder: &Folder, arguments: &UpArgs, settings: &Settings) -> anyhow::Result<Config> {
    let nodes = settings.declared().map(berth_server::declared_nodes).transpose();
    let nodes = nodes.map_err(|error| Failure::misuse(error.to_string()))?.unwrap_or_default();
    let project = |(name, quota): &(String, GpuAmount)| ProjectSettings {
        name: Some(name.clone()),
        quota: Some(*quota),
        ..ProjectSettings::default()
    };
    let images = match &settings.images {
        None => Default::default(),
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            toml::from_str(&text).map_err(|error| Failure::misuse(format!("{}: {error}", file.display())))?
        }
    };
    let in_file = |error: String| Failure::misuse(format!("{}: {error}", folder.settings_file().display()));
    Ok(Config {
        folder: folder.path().to_owned(),
        listen: settings.listen(),
        access: settings.access(),
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
        ping_every: settings.ping_every().map_err(in_file)?,
        patience: berth_server::PATIENCE,
        tasks_run_as: settings.tasks_run_as().map_err(in_file)?,
        accounts_from: settings.accounts_from(),
        allow_mounts: allowed_mounts(settings.allow_mount.as_deref().unwrap_or_default())?,
        settings: Some(settings.text()),
    })
}

/// Without links, as mounts are.
fn allowed_mounts(folders: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let real = |folder: &PathBuf| {
        fs::canonicalize(folder)
            .map_err(|error| Failure::misuse(format!("--allow-mount {}: {error}", folder.display())).into())
    };
    folders.iter().map(real).collect()
}

/// The server's own log goes to stderr; `BERTH_LOG` says how much of it.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BERTH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only a second server in one process would find it started.
    let _ = log.try_init();
}

async fn serve(config: Config, folder: &Folder, mut notes: Vec<String>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let listen = config.listen;
    let mut running = match berth_server::run(config).await {
        Ok(running) => running,
        Err(error) => return Err(explained(error, listen, folder)),
    };
    notes.extend(running.notes.iter().cloned());
    greet(&running, folder, &notes);
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
            let workloads = if count == 1 { "workload goes" } else { "workloads go" };
            say(&format!("berth: stopping; {count} {workloads} on without it\n"));
        }
        _ => say("berth: stopping\n"),
    }
    tokio::select! {
        () = running.stop(how) => {}
        // What runs is found again by the next start, as after a crash.
        _ = interrupt.recv() => std::process::exit(130),
    }
    say(&format!("berth: stopped; `{}` goes on from here\n", restart_words(folder)));
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
            runs_already(read_server_file(folder).as_ref(), folder).into()
        }
        ServerError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::new(Exit::Failed, format!("another program listens on {listen}"))
                .hint("choose another address, as --change --listen 127.0.0.1:0 for a free port at every start")
                .into()
        }
        ServerError::Accounts(why) => {
            Failure::new(Exit::Failed, format!("work cannot run under accounts of users: {why}"))
                .hint("--change --tasks-run-as server runs all of it under this server's own account; docs/security.md says what follows")
                .into()
        }
        error @ (ServerError::Declared(_) | ServerError::NotLoopback(_) | ServerError::Tls(_)) => {
            Failure::misuse(error.to_string()).into()
        }
        error => error.into(),
    }
}

fn runs_already(running: Option<&RunningServer>, folder: &Folder) -> Failure {
    let at = running.map(|file| format!(" at {}", file.address)).unwrap_or_default();
    Failure::new(Exit::Failed, format!("berth runs already{at}, in {}", folder.path().display()))
        .hint("stop it with `berth down`, or start another with --folder DIR --listen 127.0.0.1:0")
}

fn read_server_file(folder: &Folder) -> Option<RunningServer> {
    serde_json::from_str(&fs::read_to_string(folder.server_file()).ok()?).ok()
}

/// How this very program is called from here.
fn own_name() -> String {
    let own = env::current_exe().unwrap_or_default();
    // The program of a build is on the PATH by a link.
    let is_own = |folder: PathBuf| fs::canonicalize(folder.join("berth")).is_ok_and(|found| found == own);
    let on_path = env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(is_own));
    if on_path { "berth".into() } else { own.display().to_string() }
}

/// The command that starts a server in this folder again.
fn restart_words(folder: &Folder) -> String {
    match crate::config::default_folder() {
        Some(usual) if usual == folder.path() => format!("{} up", own_name()),
        _ => format!("{} up --folder {}", own_name(), folder.path().display()),
    }
}

/// Prints where the server is and what to type next: to the terminal, or to the process that started it in the background. The
/// log gets the notes, and no link that signs in.
fn greet(running: &Running, folder: &Folder, notes: &[String]) {
    let notes: String = notes.iter().map(|note| format!("berth: {note}\n")).collect();
    let text = notes.clone() + &greeting(running, folder);
    if env::var_os(DETACHED).is_none() {
        return say(&text);
    }
    say(&notes);
    let mut terminal = std::io::stdout().lock();
    let _ = terminal
        .write_all(text.as_bytes())
        .and_then(|()| terminal.write_all(&[END]))
        .and_then(|()| terminal.flush());
    if let Ok(nowhere) = fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(nowhere);
    }
}

fn greeting(running: &Running, folder: &Folder) -> String {
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
    let (next, end) = match env::var_os(DETACHED) {
        None => (
            "In another terminal".to_owned(),
            "Ctrl-C stops it: what runs saves its state, and goes on with the next start.".to_owned(),
        ),
        Some(_) => (
            "Next".to_owned(),
            format!(
                "It runs in the background as process {}; its log is {}.\n`{berth} down` stops it: what runs saves its state, and \
                 goes on with the next start.",
                std::process::id(),
                log_path(folder).display()
            ),
        ),
    };
    format!(
        "berth {} runs at {}, in {home}\n{fingerprint}{}\n\n{dashboard}{next}:\n{elsewhere}{create}  \
         {berth} submit hello -p {project} -g 1 -i berth/quickstart\n  \
         {berth} list -A --watch\n  {berth} logs hello -p {project} -f\n  {berth} why hello -p {project}\n\n{end}\n",
        berth_api::release(),
        running.public_url,
        running.summary(),
    )
}

fn log_path(folder: &Folder) -> PathBuf {
    folder.path().join("server.log")
}

/// Starts the same command again without a terminal, waits until it answers, and prints what it has to say.
fn detach(folder: &Folder) -> anyhow::Result<Exit> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.path())?;
    let log_path = log_path(folder);
    let log = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log_path)?;
    let before = log.metadata()?.len();
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let mut pipe = child.stdout.take().expect("it was asked for");
    let (sender, greeting) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut byte = [0];
        // Not until the end of the pipe: what the server starts may hold it too.
        let mut is_whole = false;
        while !is_whole && pipe.read(&mut byte).is_ok_and(|count| count == 1) {
            is_whole = byte[0] == END;
            text.extend((!is_whole).then_some(byte[0]));
        }
        let _ = sender.send((text, is_whole));
    });
    match greeting.recv_timeout(START_MAX) {
        Ok((text, true)) => {
            say(&String::from_utf8_lossy(&text));
            Ok(Exit::Done)
        }
        Ok(_) => {
            let status = child.wait()?;
            let said = said_since(&log_path, before);
            let exit = if status.code() == Some(Exit::Misused as i32) { Exit::Misused } else { Exit::Failed };
            Err(Failure::new(exit, format!("it did not start ({status})")).hint(said).into())
        }
        Err(_) => {
            let text = format!("it does not answer; its log is {}", log_path.display());
            Err(Failure::new(Exit::TimedOut, text).into())
        }
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
