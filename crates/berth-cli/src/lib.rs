//! The command line: arguments in, exit code out. stdout is data, stderr is talk.
//!
//! Nothing is decided here; commands are read, handed to the crate that knows, and the answer is written.
//!
//! ```text
//! arguments --(runai: their spelling becomes ours)--> Command --> Session --> one call --> Show --> stdout
//! ```

mod audit;
mod backup;
mod check;
mod completions;
mod config;
mod confirm;
mod context;
mod department;
mod describe;
mod doctor;
mod events;
mod failure;
mod history;
mod lifecycle;
mod list;
mod login;
mod logs;
mod man;
mod names;
mod node;
mod operator;
mod output;
mod people;
mod port_forward;
mod project;
mod runai;
mod server;
mod session;
mod settings;
mod shell;
mod show;
mod sign_on;
mod sim;
mod submit;
mod top;
mod up;
mod url;
mod volume;
mod wait;

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use failure::{Exit, Failure};
use lifecycle::Verb;
use output::Spelling;
use session::{ServerArgs, Session};
use std::{ffi::OsString, process::ExitCode};

/// The command was understood and could not be carried out, or something expected did not hold.
const FAILED: u8 = Exit::Failed as u8;
/// The command, or a file it names, cannot be understood.
const MISUSED: u8 = Exit::Misused as u8;

#[derive(Debug, Parser)]
#[command(
    name = "berth",
    version,
    about = "Shares GPUs fairly: quotas, borrowing, fractions, gangs, and always a reason",
    after_help = help_end(),
    arg_required_else_help = true,
    infer_subcommands = false
)]
struct Cli {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: Command,
}

/// The end of `berth --help`.
fn help_end() -> String {
    let examples = "Examples:\n  \
        berth project create team-a --quota 4\n  \
        berth submit hyper1 -p team-a -g 1 -i gcr.io/run-ai-demo/quickstart\n  \
        berth list --watch\n  \
        berth why hyper1";
    let variables = "Environment:\n  \
        BERTH_HOME     the folder of the server\n  \
        BERTH_SERVER   the address of a server, with BERTH_TOKEN\n  \
        BERTH_CA_FILE  who vouches for a server that speaks TLS\n  \
        BERTH_CONTEXT  a server by its name\n  \
        BERTH_PROJECT  the project of commands that name none\n  \
        NO_COLOR       no colours";
    format!("{examples}\n\n{variables}\n\n{}", failure::EXIT_CODES)
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a server on this machine
    Up(up::UpArgs),
    /// End the server
    Down(server::DownArgs),
    /// Read the log of a stopped server again, and check what it arrives at
    Check(check::CheckArgs),
    /// Check what this machine or a cluster needs, and print the fix for each failure
    Doctor(doctor::DoctorArgs),
    /// Show whether the server runs, and what it has
    Status(output::OutputArgs),
    /// Print a link that opens the dashboard, signed in
    Dashboard,
    /// Submit a workload
    Submit(Box<submit::SubmitArgs>),
    /// Submit a workload whose workers are processes of MPI
    #[command(hide = true)]
    SubmitMpi(Box<submit::SubmitArgs>),
    /// Take a command of `mpirun` to another worker
    #[command(hide = true)]
    Rsh(shell::RshArgs),
    /// List workloads
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Show all about a workload
    #[command(visible_alias = "describe")]
    Get(describe::OneArgs),
    /// Say why a workload waits, and what would start it
    Why(describe::OneArgs),
    /// Print what a workload printed
    Logs(logs::LogsArgs),
    /// Open a shell in a worker, with its environment and GPUs
    Bash(shell::BashArgs),
    /// Run a command in a worker, with its environment and GPUs
    Exec(shell::ExecArgs),
    /// Join a worker's own terminal
    Attach(shell::AttachArgs),
    /// Start JupyterLab, ready to use, and print its link
    Notebook(Box<submit::SubmitArgs>),
    /// Print a link to a workload's port for a browser
    Url(url::UrlArgs),
    /// Reach ports of a workload from this machine
    PortForward(port_forward::PortForwardArgs),
    /// Wait until workloads run or have ended
    Wait(wait::WaitArgs),
    /// End workloads for good
    #[command(visible_alias = "cancel")]
    Delete(lifecycle::ManyArgs),
    /// Stop workloads until they are resumed
    Suspend(lifecycle::ManyArgs),
    /// Let suspended workloads wait for their place again
    Resume(lifecycle::ManyArgs),
    /// Watch what nodes and workloads do
    Top(top::TopArgs),
    /// Show what happened
    Events(events::EventsArgs),
    /// Show what has ended, and who had how many GPUs when
    History(history::HistoryArgs),
    /// Projects: who owns quota
    #[command(subcommand, arg_required_else_help = true)]
    Project(project::ProjectCommand),
    /// Departments: projects that share a quota
    #[command(subcommand, arg_required_else_help = true)]
    Department(department::DepartmentCommand),
    /// Nodes: hosts, and whether they take work
    #[command(subcommand, arg_required_else_help = true)]
    Node(node::NodeCommand),
    /// Volumes: named folders that workloads share
    #[command(subcommand, arg_required_else_help = true)]
    Volume(volume::VolumeCommand),
    /// Remember a server, with a token of yours
    Login(login::LoginArgs),
    /// Show who you are to the server, and what you may do
    #[command(name = "whoami")]
    WhoAmI(output::OutputArgs),
    /// Users: who may have roles and tokens
    #[command(subcommand, arg_required_else_help = true)]
    User(people::UserCommand),
    /// Roles: who may do what, where
    #[command(subcommand, arg_required_else_help = true)]
    Role(people::RoleCommand),
    /// Tokens: what users show the server
    #[command(subcommand, arg_required_else_help = true)]
    Token(people::TokenCommand),
    /// Show who changed what, from where, and what was refused
    Audit(audit::AuditArgs),
    /// Servers by name: which one commands go to
    #[command(subcommand, arg_required_else_help = true)]
    Context(context::ContextCommand),
    /// Write everything into one file
    Backup(backup::BackupArgs),
    /// Make a folder from a backup
    Restore(backup::RestoreArgs),
    /// Print the releases of this command and of the server
    Version(server::VersionArgs),
    /// Kubernetes: what an administrator applies to a cluster
    #[command(subcommand, arg_required_else_help = true)]
    Operator(operator::OperatorCommand),
    /// Try the scheduler on a virtual cluster
    #[command(subcommand, arg_required_else_help = true)]
    Sim(sim::SimCommand),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  berth completions zsh > ~/.zfunc/_berth")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them into a folder
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: Option<std::path::PathBuf>,
    },
}

/// Runs one command line, program name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed: Vec<OsString> = arguments.into_iter().collect();
    let spelling = if runai::is_meant(typed.first()) { Spelling::Runai } else { Spelling::Berth };
    let arguments = match spelling {
        Spelling::Berth => typed.clone(),
        Spelling::Runai => runai::translate(typed.clone()),
    };
    let matches = definition(spelling).try_get_matches_from(arguments);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error, spelling),
    };
    dispatch(cli, &typed, spelling).unwrap_or_else(|error| {
        let failure = Failure::of(&error);
        // A name or a path in it may hold what a terminal takes for orders.
        let text = failure.to_string().replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
        eprintln!("{}: {text}", spelling.command());
        failure.exit.into()
    })
}

/// The command as it is parsed. A negative number is a value that is wrong, and no unknown flag.
fn definition(spelling: Spelling) -> clap::Command {
    fn with_numbers(command: clap::Command) -> clap::Command {
        let is_option = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
        command
            .mut_args(move |arg| if is_option(&arg) { arg.allow_negative_numbers(true) } else { arg })
            .mut_subcommands(with_numbers)
    }
    with_numbers(Cli::command()).name(spelling.command())
}

/// Help and version are answers, not mistakes. Whether anybody reads them is not our concern.
fn misunderstood(error: &clap::Error, spelling: Spelling) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        let command = spelling.command();
        let mut parser = Cli::command();
        let known: Vec<String> = parser_names(&mut parser, error);
        let hint = match names::nearest(word, known.iter().map(String::as_str)) {
            Some(nearest) => format!("; did you mean {nearest:?}?"),
            None => String::new(),
        };
        eprintln!(
            "{command}: unknown command {}{hint}\n  all are shown by `{command} --help`",
            names::quoted(word)
        );
        return Exit::Misused.into();
    }
    let _ = error.print();
    if error.use_stderr() { Exit::Misused.into() } else { ExitCode::SUCCESS }
}

/// The commands one of which was meant: those that the parser offers, or else all of the first level.
fn parser_names(parser: &mut clap::Command, error: &clap::Error) -> Vec<String> {
    match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.clone(),
        Some(ContextValue::String(name)) => vec![name.clone()],
        _ => parser.get_subcommands().map(|command| command.get_name().to_owned()).collect(),
    }
}

fn dispatch(cli: Cli, typed: &[OsString], spelling: Spelling) -> anyhow::Result<ExitCode> {
    let server = &cli.server;
    let exit = match &cli.command {
        Command::Sim(_) => {
            let Command::Sim(command) = cli.command else { unreachable!("it was just looked at") };
            return sim::run(command);
        }
        Command::Completions { shell } => {
            write_data(&completions::script(*shell, Cli::command()))?;
            Exit::Done
        }
        Command::Operator(command) => {
            operator::run(command)?;
            Exit::Done
        }
        Command::Context(command) => context::run(server, command)?,
        Command::Login(arguments) => block_on(login::run(server, arguments))?,
        Command::Man { folder } => man::run(folder.as_deref(), Cli::command())?,
        Command::Up(arguments) => up::run(server, arguments)?,
        Command::Doctor(arguments) => doctor::run(server, arguments)?,
        Command::Check(arguments) => check::run(server, *arguments)?,
        Command::Restore(arguments) => backup::restore(server, arguments)?,
        Command::Version(arguments) => server::version(server, *arguments)?,
        // Their exit code is that of what they ran.
        Command::Bash(arguments) => {
            return block_on(shell::bash(&Session::open(server, None, spelling)?, arguments));
        }
        Command::Exec(arguments) => {
            return block_on(shell::exec(&Session::open(server, None, spelling)?, arguments));
        }
        Command::Rsh(arguments) => return block_on(shell::rsh(arguments)),
        Command::Attach(arguments) => {
            return block_on(shell::attach(&Session::open(server, None, spelling)?, arguments));
        }
        Command::Submit(_) | Command::SubmitMpi(_) | Command::Notebook(_) => {
            let arguments = match cli.command {
                Command::Submit(arguments) => arguments,
                Command::SubmitMpi(arguments) => {
                    let framework = arguments.framework.clone().or_else(|| Some("mpi".into()));
                    Box::new(submit::SubmitArgs { framework, ..*arguments })
                }
                Command::Notebook(arguments) => Box::new(submit::SubmitArgs { jupyter: true, ..*arguments }),
                _ => unreachable!("it was just looked at"),
            };
            let words: Vec<String> = typed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            // What cannot be right is said before anybody is asked.
            let mut request = submit::request(&arguments)?;
            request.command_line = Some(submit::shown_command_line(&words));
            let session = Session::open(server, arguments.user.as_deref(), spelling)?;
            return block_on(submit::run(&session, &arguments, request));
        }
        command => {
            let session = Session::open(server, None, spelling)?;
            block_on(call(&session, command))?
        }
    };
    Ok(exit.into())
}

/// Commands that need a server and nothing else.
async fn call(session: &Session, command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::List(arguments) => list::run(session, arguments).await,
        Command::Get(arguments) => describe::get(session, arguments).await,
        Command::Why(arguments) => describe::why(session, arguments).await,
        Command::Logs(arguments) => logs::run(session, arguments).await,
        Command::Url(arguments) => url::run(session, arguments).await,
        Command::PortForward(arguments) => port_forward::run(session, arguments).await,
        Command::Wait(arguments) => wait::run(session, arguments).await,
        Command::Delete(arguments) => lifecycle::run(session, Verb::Delete, arguments).await,
        Command::Suspend(arguments) => lifecycle::run(session, Verb::Suspend, arguments).await,
        Command::Resume(arguments) => lifecycle::run(session, Verb::Resume, arguments).await,
        Command::Top(command) => top::run(session, command).await,
        Command::Events(arguments) => events::run(session, arguments).await,
        Command::History(arguments) => history::run(session, arguments).await,
        Command::Project(command) => project::run(session, command).await,
        Command::Department(command) => department::run(session, command).await,
        Command::Node(command) => node::run(session, command).await,
        Command::Volume(command) => volume::run(session, command).await,
        Command::WhoAmI(output) => people::who_am_i(session, *output).await,
        Command::User(command) => people::users(session, command).await,
        Command::Role(command) => people::roles(session, command).await,
        Command::Token(command) => people::tokens(session, command).await,
        Command::Audit(arguments) => audit::run(session, arguments).await,
        Command::Backup(arguments) => backup::backup(session, arguments).await,
        Command::Down(arguments) => server::down(session, arguments).await,
        Command::Dashboard => server::dashboard(session).await,
        Command::Status(output) => server::status(session, *output).await,
        _ => {
            unreachable!("commands that need more than a server are carried out before")
        }
    }
}

/// One thread is enough for one request, and starts at once.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?.block_on(future)
}

/// Writes data to stdout. A reader that has seen enough, such as `head`, is no failure.
fn write_data(data: &[u8]) -> anyhow::Result<()> {
    output::write_part(data).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_defined_without_contradiction() {
        Cli::command().debug_assert();
    }
}
