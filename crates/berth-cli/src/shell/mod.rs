//! `berth bash`, `exec` and `attach`: a terminal in a worker, through the server.

mod keys;
mod terminal;

use crate::{
    failure::{Exit, Failure},
    output,
    session::{Place, ProjectArg, Session},
};
use berth_api::{ShellQuery, ShellRequest, ShellTells};
use berth_client::{ClientError, ShellMessage, ShellReceiver, ShellSender};
use clap::Args;
use keys::Typed;
use std::{collections::BTreeMap, io::Write, process::ExitCode};
use terminal::Terminal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::Receiver,
};

/// What ended before its command did, as other programs for shells far away say it.
const CUT_OFF: u8 = 255;
/// As a shell says of a command that ended because its terminal was gone.
const HUNG_UP: u8 = 129;
/// Variables of the person's terminal that make sense in the worker's.
const OF_TERMINAL: [&str; 3] = ["TERM", "COLORTERM", "LANG"];

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BashArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
    /// In this worker
    #[arg(long, default_value_t = 0, value_name = "N")]
    rank: u32,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth exec build1 -- nvidia-smi -L
  berth exec build1 -- tar c results > results.tar

It has a terminal when it is run from one and its output goes there; with -t always, with -T never.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    worker: BashArgs,
    /// Keep stdin, which is always so
    #[arg(short = 'i', long, hide = true)]
    stdin: bool,
    /// With a terminal, whatever it is run from
    #[arg(short, long, overrides_with = "no_tty")]
    tty: bool,
    /// Without a terminal: what is printed and what are errors stay apart
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth submit build1 -i bash --interactive --attach -- bash
  berth attach build1                  ctrl-p ctrl-q leaves, and it goes on")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    worker: BashArgs,
    /// Look only: nothing that is typed reaches it
    #[arg(long)]
    no_stdin: bool,
}

/// As `ssh` is called: a host and a command line, which are a worker and what to run in it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RshArgs {
    /// The worker, as worker-3
    host: String,
    /// What to run there; all words are one line of shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Workers of one machine are like machines of their own to `mpirun`, whose daemons make and remove folders of one name in what
/// they take for the temporary folder of each: they have to be different ones, or one may remove what another made.
const OWN_FOLDER: &str = r#"own="${BERTH_CHECKPOINT_FILE%/*}"; if [ -n "$own" ] && [ -w "$own" ]; then export TMPDIR="$own"; fi; "#;

/// Runs a command in another worker of the workload in which this runs, with the workload's own token.
pub(crate) async fn rsh(arguments: &RshArgs) -> anyhow::Result<ExitCode> {
    let variable = |name: &str| {
        std::env::var(name)
            .map_err(|_| Failure::misuse(format!("`rsh` runs inside of a workload: {name} is not set")))
    };
    let rank = arguments.host.strip_prefix("worker-").and_then(|rank| rank.parse().ok());
    let rank = rank.ok_or_else(|| Failure::misuse(format!("{} is no worker", arguments.host)))?;
    let url = variable("BERTH_REPORT_URL")?;
    let address = url.strip_suffix("/api/v1").unwrap_or(&url).parse::<berth_client::Address>()?;
    let endpoint = berth_client::Endpoint::new(address, &variable("BERTH_REPORT_TOKEN")?)?;
    let session = Session::of_workload(berth_client::Client::new(endpoint, ""));
    let place = Place { project: variable("BERTH_PROJECT")?, name: variable("BERTH_WORKLOAD")? };
    let line = format!("{OWN_FOLDER}{}", arguments.command.join(" "));
    let line = ["sh".to_owned(), "-c".to_owned(), line].into();
    open(&session, &place, rank, What::Command(line), None).await
}

/// What is to be opened.
enum What {
    Command(Vec<String>),
    Worker { no_stdin: bool },
}

pub(crate) async fn bash(session: &Session, arguments: &BashArgs) -> anyhow::Result<ExitCode> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    open(session, &place, arguments.rank, What::Command(Vec::new()), Terminal::of_person()).await
}

pub(crate) async fn exec(session: &Session, arguments: &ExecArgs) -> anyhow::Result<ExitCode> {
    let worker = &arguments.worker;
    let place = session.place(&worker.name, &worker.project).await?;
    let terminal = match (arguments.tty, arguments.no_tty) {
        (true, _) => Some(Terminal::of_person().unwrap_or_else(Terminal::without_person)),
        (false, true) => None,
        (false, false) => Terminal::of_person(),
    };
    open(session, &place, worker.rank, What::Command(arguments.command.clone()), terminal).await
}

pub(crate) async fn attach(session: &Session, arguments: &AttachArgs) -> anyhow::Result<ExitCode> {
    let worker = &arguments.worker;
    let place = session.place(&worker.name, &worker.project).await?;
    join(session, &place, worker.rank, arguments.no_stdin).await
}

/// Joins a worker's own terminal.
pub(crate) async fn join(
    session: &Session,
    place: &Place,
    rank: u32,
    no_stdin: bool,
) -> anyhow::Result<ExitCode> {
    open(session, place, rank, What::Worker { no_stdin }, Terminal::of_person()).await
}

async fn open(
    session: &Session,
    place: &Place,
    rank: u32,
    what: What,
    terminal: Option<Terminal>,
) -> anyhow::Result<ExitCode> {
    let Place { project, name } = place;
    let query = ShellQuery { rank: Some(rank) };
    let size = terminal.as_ref().map(Terminal::size);
    let (opened, listens, leaves) = match what {
        What::Command(command) => {
            let variables = OF_TERMINAL.into_iter().filter(|_| size.is_some());
            let variables = variables.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
            let environment: BTreeMap<String, String> = variables.collect();
            let request = ShellRequest { command, environment, terminal: size };
            (session.client.exec(project, name, &query, request).await, true, false)
        }
        What::Worker { no_stdin } => {
            (session.client.attach(project, name, &query, size).await, !no_stdin, true)
        }
    };
    let (sender, mut receiver) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(session.missing(error, place).await),
    };
    let has_terminal = loop {
        match receiver.next().await? {
            ShellMessage::Told(ShellTells::Started { terminal, .. }) => break terminal,
            ShellMessage::Told(ShellTells::Refused { detail }) => {
                return Err(Failure::new(Exit::Refused, format!("{place}: {detail}")).into());
            }
            ShellMessage::Told(ShellTells::Ended { detail }) => return Ok(cut_off(&detail)),
            _ => {}
        }
    };
    let terminal = terminal.filter(|_| has_terminal);
    if leaves && terminal.is_some() {
        eprintln!("berth: this is the terminal of {place}; ctrl-p ctrl-q leaves it");
    }
    // From here on every key is for the worker; how this function ends, the terminal is as it was.
    let raw = terminal.as_ref().map(Terminal::make_raw).transpose()?;
    let typed = if listens { keys::read(leaves && terminal.is_some()) } else { keys::none() };
    let (left, leaving) = tokio::sync::oneshot::channel();
    tokio::spawn(hand_on(typed, sender, terminal, left));
    let end = tokio::select! {
        end = show(&mut receiver, raw.is_some()) => end,
        Ok(end) = leaving => Ok(end),
    };
    drop(raw);
    Ok(match end {
        Ok(End::Code(code)) => ExitCode::from(code),
        Ok(End::Left) => {
            eprintln!("\nberth: left {place}; it goes on, and `berth attach {place}` returns to it");
            ExitCode::SUCCESS
        }
        Ok(End::CutOff(detail)) => cut_off(&detail),
        Err(error) => cut_off(&format!("the connection to the server was lost ({error}); {place} goes on")),
    })
}

/// How it ended.
enum End {
    Code(u8),
    Left,
    CutOff(String),
}

fn cut_off(detail: &str) -> ExitCode {
    eprintln!("\nberth: {}", output::table::one_line(detail));
    ExitCode::from(CUT_OFF)
}

/// Shows what comes until it ends.
async fn show(receiver: &mut ShellReceiver, is_raw: bool) -> Result<End, ClientError> {
    loop {
        match receiver.next().await? {
            ShellMessage::Printed(bytes) => {
                // A reader that has seen enough ends it, as it would end a command of this machine.
                if write(&mut std::io::stdout(), &bytes).is_err() {
                    return Ok(End::Code(0));
                }
            }
            ShellMessage::Errors(bytes) => {
                let _ = write(&mut std::io::stderr(), &bytes);
            }
            ShellMessage::Told(ShellTells::Notice { detail }) => {
                let end = if is_raw { "\r\n" } else { "\n" };
                eprint!("{end}berth: {}{end}", output::table::one_line(&detail));
            }
            ShellMessage::Told(ShellTells::Exit { code, signal }) => {
                let code = code.or(signal.map(|signal| 128 + signal)).unwrap_or(1);
                return Ok(End::Code(u8::try_from(code).unwrap_or(1)));
            }
            ShellMessage::Told(ShellTells::Ended { detail } | ShellTells::Refused { detail }) => {
                return Ok(End::CutOff(detail));
            }
            ShellMessage::Told(ShellTells::Started { .. }) => {}
        }
    }
}

fn write(to: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Hands on what is typed and how large the terminal is, until nobody takes it or the person leaves.
async fn hand_on(
    mut typed: Receiver<Typed>,
    mut sender: ShellSender,
    terminal: Option<Terminal>,
    left: tokio::sync::oneshot::Sender<End>,
) {
    let mut resized = terminal.as_ref().and_then(|_| signal(SignalKind::window_change()).ok());
    // It may have changed between the first look and now, when changes are heard of.
    if let Some(terminal) = &terminal
        && !sender.resize(terminal.size()).await
    {
        return;
    }
    let mut is_open = true;
    loop {
        let taken = tokio::select! {
            typed = typed.recv(), if is_open => match typed {
                Some(Typed::Bytes(bytes)) => sender.type_bytes(&bytes).await,
                Some(Typed::Leave) => {
                    let _ = left.send(End::Left);
                    return;
                }
                // No key ends what is typed at a terminal, so this one is gone. A signal says so too, but not to who ignores it.
                Some(Typed::End) | None if terminal.as_ref().is_some_and(Terminal::has_person) => {
                    let _ = left.send(End::Code(HUNG_UP));
                    return;
                }
                Some(Typed::End) | None => {
                    is_open = false;
                    sender.close_stdin().await
                }
            },
            () = changed(resized.as_mut()) => match &terminal {
                Some(terminal) => sender.resize(terminal.size()).await,
                None => true,
            },
        };
        if !taken {
            return;
        }
    }
}

async fn changed(signal: Option<&mut tokio::signal::unix::Signal>) {
    let rung = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if rung.is_none() {
        std::future::pending::<()>().await;
    }
}
