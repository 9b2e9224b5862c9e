//! The agent as a program of its own, to look at it without a control plane, and for its tests.
//!
//! ```text
//! berth-agent shim FOLDER          the shim of one task
//! berth-agent quickstart ...       the trainer
//! berth-agent serve FOLDER         requests as JSON lines from stdin, facts as JSON lines to stdout
//! ```

use berth_agent::{AgentConfig, Shutdown, TaskId, TaskSpec, Wanted, local, quickstart_main, shim_main};
use berth_types::{Span, Time, WorkloadId};
use serde::Deserialize;
use std::{
    ffi::OsString,
    io::{BufRead, Write},
    process::ExitCode,
    sync::mpsc,
    time::{SystemTime, UNIX_EPOCH},
};

/// One request.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Start(Box<TaskSpec>),
    Stop(TaskId, Span),
    Recover(Vec<Wanted>),
    Forget(WorkloadId),
    EndAll,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let word = args.next().unwrap_or_default();
    match word.to_str() {
        Some("shim") => shim_main(args),
        Some("quickstart") => quickstart_main(args),
        Some("serve") => serve(args.next().unwrap_or_else(|| OsString::from("."))),
        _ => {
            eprintln!("berth-agent: shim, quickstart or serve");
            ExitCode::from(2)
        }
    }
}

fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64))
}

fn serve(folder: OsString) -> ExitCode {
    let (sender, facts) = mpsc::channel();
    let host = match local(AgentConfig::new(folder, now), sender) {
        Ok(host) => host,
        Err(error) => {
            eprintln!("berth-agent: {error}");
            return ExitCode::FAILURE;
        }
    };
    std::thread::spawn(move || {
        for fact in facts {
            let line = serde_json::to_string(&fact).expect("a fact has text keys");
            if writeln!(std::io::stdout(), "{line}").is_err() {
                return;
            }
        }
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Line::Start(spec)) => host.ensure_started(*spec),
            Ok(Line::Stop(id, grace)) => host.ensure_stopped(id, grace),
            Ok(Line::Recover(wanted)) => host.recover(wanted),
            Ok(Line::Forget(workload)) => host.forget(workload),
            Ok(Line::EndAll) => {
                host.shutdown(Shutdown::EndAll);
                return ExitCode::SUCCESS;
            }
            Err(error) => eprintln!("berth-agent: {error}"),
        }
    }
    host.shutdown(Shutdown::Keep);
    ExitCode::SUCCESS
}
