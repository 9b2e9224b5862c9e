//! The command line: arguments in, exit code out. stdout is data, stderr is talk.
//!
//! Nothing is decided here; commands are read, handed to the crate that knows, and the answer is written.

mod sim;

use clap::{CommandFactory, Parser, Subcommand};
use std::{ffi::OsString, io, process::ExitCode};

/// The command was understood and could not be carried out, or something expected did not hold.
const FAILED: u8 = 1;
/// The command, or a file it names, cannot be understood.
const MISUSED: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "berth",
    version,
    about = "Shares GPUs fairly: quotas, borrowing, fractions, gangs, and always a reason",
    after_help = "Examples:\n  \
        berth sim run scenarios/tr4858.berth      run a scenario against the real scheduler\n  \
        berth completions bash > ~/.local/share/bash-completion/completions/berth",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try the scheduler on a virtual cluster
    #[command(subcommand, arg_required_else_help = true)]
    Sim(sim::SimCommand),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  berth completions zsh > ~/.zfunc/_berth")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs one command line, program name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not mistakes. Whether anybody reads them is not our concern.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(MISUSED) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Sim(command) => sim::run(command),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "berth", &mut text);
            write_data(&text).map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("berth: {error:#}");
        ExitCode::from(FAILED)
    })
}

/// Writes data to stdout. A reader that has seen enough, such as `head`, is no failure.
fn write_data(data: &[u8]) -> anyhow::Result<()> {
    use io::Write;
    match io::stdout().lock().write_all(data).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_defined_without_contradiction() {
        Cli::command().debug_assert();
    }
}
