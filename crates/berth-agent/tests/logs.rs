//! Logs and progress of real tasks that print too much, too long, or nonsense.
#![allow(missing_docs)]

mod support;

use berth_agent::{AgentConfig, AgentError, Exit, Fact, LogStart, TaskId};
use berth_types::Bytes;
use std::time::Duration;
use support::{Machine, Temp, config, id, shell};

fn small_logs(temp: &Temp) -> AgentConfig {
    AgentConfig {
        log_file_max: Bytes(10_000),
        log_files_max: 3,
        kept_logs_max: Bytes(60_000),
        ..config(temp.path())
    }
}

#[test]
fn a_follower_sees_every_line_while_the_log_is_rotated() {
    let temp = Temp::new();
    let mut machine = Machine::with(AgentConfig { log_files_max: 1000, ..small_logs(&temp) });
    machine.host.ensure_started(shell(id(1), "for i in $(seq 1 20000); do echo line $i; done"));
    machine.started(id(1));
    let mut reader = machine.host.log(id(1), LogStart::Offset(0)).unwrap();
    let mut text = Vec::new();
    loop {
        let ended = reader.is_ended();
        while let Some(chunk) = reader.read().unwrap() {
            assert_eq!(chunk.offset, text.len() as u64);
            text.extend_from_slice(&chunk.bytes);
        }
        if ended {
            break;
        }
        reader.wait(Duration::from_secs(60)).unwrap();
    }
    let lines: Vec<&str> = std::str::from_utf8(&text).unwrap().lines().collect();
    assert_eq!(lines.len(), 20_000);
    assert!(lines.iter().enumerate().all(|(index, line)| *line == format!("line {}", index + 1)));
    let mut tail = machine.host.log(id(1), LogStart::Lines(2)).unwrap();
    assert_eq!(tail.read().unwrap().unwrap().bytes, b"line 19999\nline 20000\n");
}

/// The kernel gives a user few watches, and a machine may have more tasks than that.
#[test]
fn a_machine_without_watches_has_logs_and_checkpoints_too() {
    const NONE: &str = "BERTH_TEST_WITHOUT_WATCHES";
    if std::env::var_os(NONE).is_none() {
        // A user namespace has a limit of its own, which nobody else on this machine has to live with.
        let limit = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", limit, "sh"]);
        if !command.arg("true").output().is_ok_and(|output| output.status.success()) {
            println!("NOT TESTED: a machine without watches, because this one has no user namespaces");
            return;
        }
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", limit, "sh"]);
        command.arg(std::env::current_exe().expect("a program"));
        command.args(["--exact", "a_machine_without_watches_has_logs_and_checkpoints_too"]).env(NONE, "yes");
        let output = command.output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let temp = Temp::new();
    let mut machine = Machine::with(small_logs(&temp));
    let mark = temp.join("mark");
    let script = format!(
        "echo first; while ! [ -e {} ]; do sleep 0.05; done; touch \"$BERTH_CHECKPOINT_FILE\"; echo second; exec sleep 1000",
        mark.display()
    );
    machine.host.ensure_started(shell(id(1), &script));
    machine.started(id(1));
    machine.log_with(id(1), "first\n");
    std::fs::write(mark, "").expect("is written");
    machine.log_with(id(1), "second\n");
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
    machine.host.ensure_stopped(id(1), berth_types::Span::ZERO);
    machine.exited(id(1));
}

#[test]
fn garbage_and_lines_of_ten_megabytes_do_no_harm() {
    let temp = Temp::new();
    let mut machine = Machine::with(small_logs(&temp));
    let script = "head -c 10000000 /dev/zero | tr '\\0' x; echo; head -c 3000000 /dev/urandom; echo; echo epoch 2/3; echo done";
    machine.host.ensure_started(shell(id(1), script));
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    let log = machine.log(id(1));
    assert!(log.ends_with("done\n"));
    assert!(log.len() < 300_000, "{}", log.len());
    machine.wait("progress", |fact| matches!(fact, Fact::Progress { report, .. } if report.epoch == Some(2)));
}

#[test]
fn logs_of_forgotten_workloads_are_kept_up_to_a_bound() {
    let temp = Temp::new();
    let mut machine = Machine::with(small_logs(&temp));
    for number in 1..=9 {
        machine.host.ensure_started(shell(id(number), "for i in $(seq 1 1000); do echo line $i; done"));
        machine.exited(id(number));
        machine.host.forget(id(number).workload);
    }
    let gone = |id: TaskId| !machine.host.task_dir(id).exists();
    let until = std::time::Instant::now() + support::PATIENCE;
    let settled = || {
        let kept: u64 = walk(&temp.join("agent/logs"));
        (1..=9).all(|number| gone(id(number))) && kept <= 60_000
    };
    while !settled() {
        assert!(std::time::Instant::now() < until, "the folders never went");
        std::thread::yield_now();
    }
    assert!(machine.log(id(9)).ends_with("line 1000\n"), "the newest is there");
    assert_eq!(machine.host.logged_tasks(id(9).workload), [id(9)]);
    assert!(matches!(machine.host.log(id(99), LogStart::Offset(0)), Err(AgentError::NoLog(_))));
}

fn walk(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
