//! The `berth` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // What runs inside of a workload starts thousands of times, and must not wait for the definition of the arguments.
    match std::env::args_os().nth(1).as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(word @ ("shim" | "quickstart")) => inside_a_workload(word),
        _ => berth_cli::run(std::env::args_os()),
    }
}

/// What runs inside of a workload: `berth shim` and `berth quickstart`, with the arguments of the process.
fn inside_a_workload(word: &str) -> ExitCode {
    let arguments = std::env::args_os().skip(2);
    match word {
        "shim" => berth_agent::shim_main(arguments),
        _ => berth_agent::quickstart_main(arguments),
    }
}
