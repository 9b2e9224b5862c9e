//! The `berth` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // What runs inside of a workload starts thousands of times, and must not wait for the definition of the arguments.
    match std::env::args_os().nth(1).as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(word @ ("shim" | "quickstart")) => inside_a_workload(word),
        _ => berth_cli::run(std::env::args_os()),
    }
}

/// The seam for what runs inside of a workload: `berth shim` and `berth quickstart`, with the arguments of the process.
fn inside_a_workload(word: &str) -> ExitCode {
    eprintln!("berth: `{word}` is not part of this build");
    ExitCode::from(2)
}
