//! The `berth` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_cli::run(std::env::args_os())
}
