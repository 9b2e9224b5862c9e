//! What a new agent makes of what an old one left.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, TaskSpec, Wanted};
use berth_types::Span;
use std::{fs, time::Instant};
use support::{Machine, PATIENCE, Temp, id, kill, marked, runs, shell};

fn wanted(spec: TaskSpec) -> Wanted {
    Wanted { spec, stopping: false }
}

/// Waits for something that no fact tells of.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_runs_is_taken_over_and_what_ended_meanwhile_is_told() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let gate = temp.join("gate");
    let slow = shell(id(1), "echo first; sleep 1000");
    let ends = shell(id(2), &format!("while ! test -e {}; do sleep 0.01; done; exit 5", gate.display()));
    let never = shell(id(3), "exit 6");
    machine.host.ensure_started(slow.clone());
    machine.host.ensure_started(ends.clone());
    let pid = machine.started(id(1));
    machine.started(id(2));
    let record = machine.host.task_dir(id(2)).join("exit.json");
    drop(machine);
    fs::write(&gate, "").unwrap();
    until("the task never ended", || record.exists());
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![wanted(slow), wanted(ends), wanted(never)]);
    assert_eq!(machine.started(id(1)), pid);
    assert_eq!(machine.exited(id(2)), (Exit::Code(5), false));
    assert_eq!(machine.exited(id(3)), (Exit::Code(6), false));
    machine.host.ensure_stopped(id(1), Span::secs(60));
    assert_eq!(machine.exited(id(1)), (Exit::Signal(15), true));
    assert_eq!(machine.log(id(1)), "first\n");
}

#[test]
fn what_is_not_wanted_is_ended_without_a_word() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(
        id(1),
        "trap '' TERM; (setsid sleep 1000 &); echo ready; sleep 1000; sleep 1000",
    ));
    machine.started(id(1));
    machine.log_with(id(1), "ready");
    let folder = fs::read_to_string(temp.join("agent/id")).unwrap();
    drop(machine);
    let machine = Machine::new(&temp);
    machine.host.recover(Vec::new());
    until("it was left", || marked(&format!("BERTH_TASK={folder}/")).is_empty());
    assert!(machine.facts.try_recv().is_err(), "nobody asked");
}

#[test]
fn a_task_whose_shim_died_while_nobody_looked_is_lost_and_nothing_of_it_is_left() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let spec = shell(id(1), "(setsid sleep 1000 &); echo ready; sleep 1000");
    machine.host.ensure_started(spec.clone());
    let pid = machine.started(id(1));
    machine.log_with(id(1), "ready");
    let shim = fs::read_to_string(machine.host.task_dir(id(1)).join("shim.json")).unwrap();
    let shim: serde_json::Value = serde_json::from_str(&shim).unwrap();
    let shim = shim["pid"].as_u64().unwrap() as u32;
    let folder = fs::read_to_string(temp.join("agent/id")).unwrap();
    drop(machine);
    kill(shim, "-KILL");
    until("the kernel did not end it", || !runs(pid));
    let mark = format!("BERTH_TASK={folder}/");
    assert_eq!(marked(&mark).len(), 1, "the daemon is on its own");
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![wanted(spec)]);
    assert_eq!(machine.exited(id(1)), (Exit::Lost, false));
    assert_eq!(marked(&mark), Vec::<u32>::new());
}

#[test]
fn after_a_reboot_what_may_have_run_is_lost_and_what_had_ended_is_not() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let done = shell(id(1), "exit 3");
    machine.host.recover(Vec::new());
    machine.host.ensure_started(done.clone());
    machine.exited(id(1));
    drop(machine);
    fs::write(temp.join("agent/boot"), "another boot of this machine").unwrap();
    let ran = temp.join("ran");
    let mut machine = Machine::new(&temp);
    // The folder of the second task is not there: its record did not reach the disk, or it was never begun.
    let unknown = shell(id(2), &format!("touch {}", ran.display()));
    machine.host.recover(vec![wanted(done), wanted(unknown.clone())]);
    assert_eq!(machine.exited(id(1)), (Exit::Code(3), false));
    assert_eq!(machine.exited(id(2)), (Exit::Lost, false));
    assert!(!ran.exists());
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![wanted(shell(id(3), "true"))]);
    assert_eq!(machine.exited(id(3)), (Exit::Code(0), false), "the same boot now");
}

#[test]
fn two_agents_do_not_share_a_folder() {
    use std::process::{Command, Stdio};
    let temp = Temp::new();
    let _machine = Machine::new(&temp);
    let second = Command::new(support::PROGRAM)
        .arg("serve")
        .arg(temp.join("agent"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by another agent"));
}

#[test]
fn a_fact_comes_once_in_the_life_of_an_agent() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let spec = shell(id(1), "echo epoch 1/2");
    for _ in 0..3 {
        machine.host.ensure_started(spec.clone());
    }
    machine.exited(id(1));
    machine.host.ensure_started(spec);
    machine.host.ensure_stopped(id(1), Span::secs(1));
    machine.host.ensure_started(shell(id(2), "true"));
    machine.exited(id(2));
    let of = |wanted: fn(&Fact) -> bool| {
        machine.seen.iter().filter(|fact| fact.id() == id(1) && wanted(fact)).count()
    };
    assert_eq!(of(|fact| matches!(fact, Fact::Started { .. })), 1);
    assert_eq!(of(|fact| matches!(fact, Fact::Progress { .. })), 1);
    assert_eq!(of(|fact| matches!(fact, Fact::Exited { .. })), 1);
}
