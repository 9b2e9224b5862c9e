//! The running product, from outside: the program is started as people start it and spoken to over HTTP.
//!
//! Rates are held against limits measured in the same run: a durable write of nothing through the same HTTP stack, a
//! process started by hand, a sync of the same disk.

mod caller;
mod server;

use crate::{
    measure::millis,
    report::{Report, Row},
};
use anyhow::{Context, Result, ensure};
use caller::Caller;
use server::Server;
use std::{
    fs::File,
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub(crate) const NAME: &str = "platform";
pub(crate) const ABOUT: &str = "the running product: durable submissions by 64 clients, submit to running, short tasks, memory, start, list";

const CLIENTS: usize = 64;
const MEASURED: Duration = Duration::from_secs(5);
const STARTS: usize = 60;
const SHORT_TASKS: usize = 1_000;
const FINISHED: usize = 100_000;
const WAITING: usize = 10_000;

/// Measures everything.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    rates(report)?;
    starts(report)?;
    history(report)
}

/// Durable submissions per second against durable writes of nothing, in turns.
fn rates(report: &mut Report) -> Result<()> {
    let server = Server::start("1xworkstation")?;
    let (mut best_ping, mut best_submit) = (0f64, 0f64);
    // In turns, and the best of each: other work on the machine only takes away.
    for round in 0..3 {
        let ping = rate(&server, |caller, _| caller.post("/api/v1/ping", "{}").map(drop))?;
        let submit = rate(&server, |caller, count| {
            let name = format!("r{round}-{count}");
            let answer = caller.post("/api/v1/workloads", &waiting_request(&name))?;
            ensure!(answer.contains("\"id\""), "{answer}");
            Ok(())
        })?;
        println!("  round {round}: {ping:.0} pings/s, {submit:.0} submissions/s");
        best_ping = best_ping.max(ping);
        best_submit = best_submit.max(submit);
    }
    report.add(Row::new("platform/ping_64/rate", best_ping, "1/s", None));
    report.add(Row::new("platform/submit_64/rate", best_submit, "1/s", None));
    report.add(Row::new(
        "platform/submit_64/pings_per_submission",
        best_ping / best_submit,
        "ratio",
        Some(2.0),
    ));
    report.add(Row::new("platform/submit_64/ms_per_submission", 1e3 / best_submit, "ms", Some(0.5)));
    Ok(())
}

/// A workload that waits: more GPUs than there are free.
fn waiting_request(name: &str) -> String {
    format!(
        r#"{{"name":"{name}","project":"bench","image":"bash","gpus":2,"command":["sleep","1000"],"kind":"train"}}"#
    )
}

fn rate(server: &Server, act: impl Fn(&mut Caller, u64) -> Result<()> + Sync) -> Result<f64> {
    let count = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let client = || -> Result<()> {
            let mut caller = server.caller()?;
            while begin.elapsed() < MEASURED {
                act(&mut caller, count.fetch_add(1, Relaxed))?;
            }
            Ok(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    Ok(count.into_inner() as f64 / begin.elapsed().as_secs_f64())
}

/// How long it takes from a submission to a process that runs, and what a short task costs from end to end.
fn starts(report: &mut Report) -> Result<()> {
    let server = Server::start("1xdgx1")?;
    let mut caller = server.caller()?;
    let mut times = Vec::new();
    for count in 0..STARTS {
        // It prints the time, because it may run under an account that can write nowhere that this program knows.
        let request = format!(
            r#"{{"name":"s{count}","project":"bench","image":"bash","gpus":1,"command":["sh","-c","date +%s%N"]}}"#
        );
        let begin = std::time::SystemTime::now();
        caller.post("/api/v1/workloads", &request)?;
        // Followed to its end, so that no question takes the processor from what is measured.
        let ran = caller.get(&format!("/api/v1/workloads/bench/s{count}/logs?follow=true"))?;
        let ran: u128 = ran.trim().parse().with_context(|| format!("a time, and not `{}`", ran.trim()))?;
        let begin = begin.duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        times.push(ran.saturating_sub(begin) as f64 / 1e6);
        server.until_idle(&mut caller)?;
    }
    let (fork, sync) = (fork_exec_ms()?, sync_ms(server.folder())?);
    let started = median(&mut times);
    let limit = fork + 3.0 * sync + 3.0;
    println!("  submit to running: {started:.2} ms; fork and exec {fork:.2} ms, a sync {sync:.2} ms");
    report.add(Row::new("platform/fork_exec/p50", fork, "ms", None));
    report.add(Row::new("platform/fdatasync/p50", sync, "ms", None));
    report.add(Row::new("platform/submit_to_running/p50", started, "ms", Some(limit)));

    let begin = Instant::now();
    for count in 0..SHORT_TASKS {
        let request = format!(
            r#"{{"name":"t{count}","project":"bench","image":"bash","gpus":0.1,"command":["true"]}}"#
        );
        caller.post("/api/v1/workloads", &request)?;
    }
    server.until_idle(&mut caller)?;
    let each = millis(begin.elapsed()) / SHORT_TASKS as f64;
    report.add(Row::new("platform/short_task/each", each, "ms", None));
    report.add(Row::new("platform/short_task/fork_execs_each", each / fork, "ratio", None));
    Ok(())
}

/// A process by hand, of the kind the measured task is: a shell that writes a file.
fn fork_exec_ms() -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begin = Instant::now();
        Command::new("sh").args(["-c", "date +%s%N > /dev/null"]).stdout(Stdio::null()).status()?;
        times.push(millis(begin.elapsed()));
    }
    Ok(median(&mut times))
}

fn sync_ms(folder: &std::path::Path) -> Result<f64> {
    let mut file = File::create(folder.join("sync"))?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begin = Instant::now();
        file.write_all(&[b'x'; 400])?;
        file.sync_data()?;
        times.push(millis(begin.elapsed()));
    }
    Ok(median(&mut times))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Memory, start and list with a long history.
fn history(report: &mut Report) -> Result<()> {
    let mut server = Server::start("1xworkstation")?;
    println!("  filling: {FINISHED} finished, {WAITING} waiting");
    let left = AtomicU64::new((FINISHED + WAITING) as u64);
    std::thread::scope(|scope| -> Result<()> {
        let client = || -> Result<()> {
            let mut caller = server.caller()?;
            loop {
                let before = left.fetch_sub(1, Relaxed);
                if before == 0 || before > (FINISHED + WAITING) as u64 {
                    return Ok(());
                }
                let name = format!("h{before}");
                caller.post("/api/v1/workloads", &waiting_request(&name))?;
                if before as usize <= FINISHED {
                    caller.delete(&format!("/api/v1/workloads/bench/{name}"))?;
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    let filled = server.memory_bytes()?;
    report.add(Row::new(
        "platform/long_history/memory_after_filling",
        filled,
        "bytes",
        Some((300 << 20) as f64),
    ));
    let started = server.restart()?;
    report.add(Row::new("platform/long_history/start", millis(started), "ms", Some(1_000.0)));
    report.add(Row::new(
        "platform/long_history/memory",
        server.memory_bytes()?,
        "bytes",
        Some((300 << 20) as f64),
    ));
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(millis(server.list()?));
    }
    report.add(Row::new("platform/long_history/list/p50", median(&mut times), "ms", Some(30.0)));
    Ok(())
}
