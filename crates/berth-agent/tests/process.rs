//! Real processes: how they start, end, and are ended.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, Granted, Shutdown, TaskId};
use berth_types::{Bytes, Share, Span, WorkloadId};
use support::{Machine, PATIENCE, Temp, id, kill, marked, runs, shell, spec};

#[test]
fn a_task_starts_and_its_code_is_told() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    for code in [0, 1, 42, 255] {
        machine.host.ensure_started(shell(id(code), &format!("echo hello; echo trouble >&2; exit {code}")));
    }
    for code in [0, 1, 42, 255] {
        machine.started(id(code));
        assert_eq!(machine.exited(id(code)), (Exit::Code(code as i32), false));
        assert_eq!(machine.log(id(code)), "hello\ntrouble\n");
    }
}

#[test]
fn a_task_that_dies_of_a_signal_is_told_with_the_signal() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "kill -SEGV $$"));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(11), false));
}

#[test]
fn a_task_is_started_once_however_often_it_is_asked_for() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let file = temp.join("starts");
    let spec = shell(id(1), &format!("echo started >> {}", file.display()));
    for _ in 0..5 {
        machine.host.ensure_started(spec.clone());
    }
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    machine.host.ensure_started(spec.clone());
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(spec);
    assert_eq!(
        machine.exited(id(1)),
        (Exit::Code(0), false),
        "a later agent tells it again and does not run it again"
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), "started\n");
}

#[test]
fn a_stop_gives_the_task_its_grace() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine
        .host
        .ensure_started(shell(id(1), "trap 'echo saved; exit 7' TERM; echo ready; sleep 1000 & wait"));
    machine.started(id(1));
    machine.log_with(id(1), "ready");
    machine.host.ensure_stopped(id(1), Span::secs(600));
    assert_eq!(machine.exited(id(1)), (Exit::Code(7), true));
    assert_eq!(machine.log(id(1)), "ready\nsaved\n");
}

/// A child that ignores the request, and a daemon that left the session, are part of the task.
const STUBBORN: &str = "
    bash -c 'trap \"\" TERM; echo ignoring; while true; do sleep 1000; done' &
    setsid bash -c '(trap \"\" TERM; echo daemon; while true; do sleep 1000; done) & exit 0'
    trap '' TERM
    echo $$ >&2
    while true; do sleep 1000; done";

#[test]
fn what_ignores_a_stop_is_ended_by_force_with_the_whole_tree() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), STUBBORN));
    machine.started(id(1));
    machine.log_with(id(1), "ignoring");
    machine.log_with(id(1), "daemon");
    let mark = mark(&temp, id(1));
    assert!(marked(&mark).len() >= 4, "the shim and three loops");
    machine.host.ensure_stopped(id(1), Span(50));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(9), true));
    assert_eq!(marked(&mark), Vec::<u32>::new());
}

#[test]
fn a_shorter_grace_wins_and_a_longer_one_does_not() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "trap '' TERM; echo ready; while true; do sleep 1000; done"));
    machine.started(id(1));
    machine.log_with(id(1), "ready");
    machine.host.ensure_stopped(id(1), Span::secs(3600));
    machine.host.ensure_stopped(id(1), Span(20));
    machine.host.ensure_stopped(id(1), Span::secs(3600));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(9), true));
}

#[test]
fn what_the_first_process_leaves_behind_ends_with_it() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "setsid sleep 1000 & sleep 1001 & exit 3"));
    assert_eq!(machine.exited(id(1)), (Exit::Code(3), false));
    assert_eq!(marked(&mark(&temp, id(1))), Vec::<u32>::new());
}

#[test]
fn a_task_that_never_ran_is_stopped_for_good() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_stopped(id(1), Span::secs(5));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(15), true));
    let file = temp.join("ran");
    machine.host.ensure_started(shell(id(1), &format!("touch {}", file.display())));
    machine.host.ensure_started(shell(id(2), "true"));
    machine.exited(id(2));
    assert!(!file.exists());
}

#[test]
fn a_stop_right_after_a_start_ends_the_task() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    for number in 0..20 {
        machine.host.ensure_started(spec(id(number), &["sleep", "1000"]));
        machine.host.ensure_stopped(id(number), Span::secs(60));
    }
    for number in 0..20 {
        assert_eq!(machine.exited(id(number)), (Exit::Signal(15), true));
    }
}

#[test]
fn when_a_shim_is_killed_its_workload_dies_and_is_told_as_lost() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), STUBBORN));
    let pid = machine.started(id(1));
    machine.log_with(id(1), "daemon");
    machine.log_with(id(1), "ignoring");
    kill(shim_of(&machine, id(1)), "-KILL");
    assert_eq!(machine.exited(id(1)), (Exit::Lost, false));
    assert!(!runs(pid));
    assert_eq!(marked(&mark(&temp, id(1))), Vec::<u32>::new());
}

#[test]
fn the_environment_names_the_task_and_its_devices() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let half = Share::from_millionths(500_000).unwrap();
    let memory = Bytes::mib(32_510);
    let device = Granted {
        index: 3,
        uuid: String::new(),
        minor: None,
        model: "V100".into(),
        memory,
        share: half,
        memory_limit: half.memory(memory),
    };
    let task = TaskId { workload: WorkloadId(17), run: 2, rank: 1 };
    let mut spec = shell(
        task,
        "env; test -d \"$BERTH_CHECKPOINT_DIR\" && python3 -c 'import berth; print(berth.__doc__)'",
    );
    spec.devices = vec![device];
    (spec.workers, spec.hosts) = (2, vec!["node-1".into(), "node-1".into()]);
    spec.environment =
        [("NODE_NAME", "mine"), ("EXTRA", "1")].map(|(name, value)| (name.into(), value.into())).into();
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(task), (Exit::Code(0), false));
    let log = machine.log(task);
    for line in [
        "CUDA_VISIBLE_DEVICES=3",
        "BERTH_GPU_MEMORY_MIB=16255",
        "BERTH_GPU_SHARE=0.5",
        "RUNAI_NUM_OF_GPUS=0.5",
        "BERTH_WORKLOAD=job",
        "RUNAI_JOB_NAME=job",
        "BERTH_PROJECT=team-a",
        "BERTH_RUN=2",
        "RANK=1",
        "WORLD_SIZE=2",
        "LOCAL_RANK=1",
        "MASTER_ADDR=127.0.0.1",
        "JOB_UUID=berth-17",
        "NODE_NAME=mine",
        "EXTRA=1",
    ] {
        assert!(log.lines().any(|found| found == line), "{line} is missing in {log}");
    }
    assert!(log.contains("Tells Berth how a job is doing"), "{log}");
    assert!(!log.contains("CARGO"), "nothing of the agent's own environment leaks");
}

#[test]
fn the_workers_of_a_run_find_each_other_on_one_port() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut ports = std::collections::BTreeSet::new();
    for rank in 0..4 {
        let task = TaskId { workload: WorkloadId(1), run: 1, rank };
        let mut spec = shell(task, "echo $MASTER_PORT");
        spec.workers = 4;
        machine.host.ensure_started(spec);
        machine.exited(task);
        ports.insert(machine.log(task));
    }
    assert_eq!(ports.len(), 1, "{ports:?}");
    assert!(ports.first().unwrap().trim().parse::<u16>().is_ok());
}

#[test]
fn a_shutdown_ends_all_or_leaves_all() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(spec(id(1), &["sleep", "1000"]));
    let pid = machine.started(id(1));
    machine.host.shutdown(Shutdown::Keep);
    assert!(runs(pid));
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine
        .host
        .recover(vec![berth_agent::Wanted { spec: spec(id(1), &["sleep", "1000"]), stopping: false }]);
    assert_eq!(machine.started(id(1)), pid);
    machine.host.shutdown(Shutdown::EndAll);
    assert_eq!(machine.exited(id(1)), (Exit::Signal(15), true));
    assert!(!runs(pid));
}

#[test]
fn progress_and_checkpoints_are_told() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let script = "echo 'epoch 3/10 loss: 0.25'; touch $BERTH_CHECKPOINT_FILE; sleep 1000";
    machine.host.ensure_started(shell(id(1), script));
    let fact = machine.wait("progress", |fact| matches!(fact, Fact::Progress { .. }));
    let Fact::Progress { report, .. } = fact else { panic!("{fact:?}") };
    assert_eq!((report.epoch, report.epochs, report.loss.as_deref()), (Some(3), Some(10), Some("0.25")));
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![berth_agent::Wanted { spec: shell(id(1), script), stopping: true }]);
    machine.wait("progress of before", |fact| matches!(fact, Fact::Progress { .. }));
    machine.wait("the checkpoint of before", |fact| matches!(fact, Fact::Checkpoint { .. }));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(15), true));
}

#[test]
fn a_checkpoint_in_the_last_moment_is_told() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    for number in 1..=10 {
        machine.host.ensure_started(shell(id(number), "exec touch $BERTH_CHECKPOINT_FILE"));
        machine.exited(id(number));
        let is_told = |fact: &Fact| matches!(fact, Fact::Checkpoint { id: of, .. } if *of == id(number));
        machine.wait("a checkpoint", is_told);
    }
}

#[test]
fn a_task_that_lives_enters_a_control_group_with_what_it_started() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    if !machine.host.notes().is_empty() {
        println!("SKIPPED: control groups: {}", machine.host.notes().join(" "));
        return;
    }
    let task = id(1);
    machine.host.ensure_started(shell(task, "sleep 1000 & echo $!; wait"));
    let first = machine.started(task);
    let child: u32 = machine.log_with(task, "\n").trim().parse().expect("a process");
    let group_of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let is_in = |pid: u32| group_of(pid).contains("/berth-") && group_of(pid).contains(&task.to_string());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !(is_in(first) && is_in(child)) {
        assert!(std::time::Instant::now() < deadline, "{} {}", group_of(first), group_of(child));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    machine.host.ensure_stopped(task, Span::secs(5));
    machine.exited(task);
    assert!(!runs(child));
}

#[test]
fn a_memory_limit_holds_where_the_machine_has_control_groups() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    if !machine.host.notes().is_empty() {
        println!("SKIPPED: memory limit: {}", machine.host.notes().join(" "));
        return;
    }
    let mut spec = spec(id(1), &["python3", "-c", "x = bytearray(400 << 20); print('got it')"]);
    (spec.memory, spec.cpu) = (Bytes::mib(100), berth_types::Cpu(500));
    machine.host.ensure_started(spec);
    let (exit, stopped) = machine.exited(id(1));
    assert!(matches!(exit, Exit::Signal(9) | Exit::Code(1)), "{exit:?}");
    assert!(!stopped && !machine.log(id(1)).contains("got it"));
}

fn mark(temp: &Temp, id: TaskId) -> String {
    let folder = std::fs::read_to_string(temp.join("agent/id")).expect("the agent's folder has a name");
    format!("BERTH_TASK={folder}/{id}\0")
}

fn shim_of(machine: &Machine, id: TaskId) -> u32 {
    let record = std::fs::read_to_string(machine.host.task_dir(id).join("shim.json")).expect("a shim");
    let record: serde_json::Value = serde_json::from_str(&record).expect("a record");
    assert!(PATIENCE.as_secs() > 0);
    record["pid"].as_u64().expect("a number") as u32
}
