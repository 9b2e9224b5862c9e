//! Commands beside tasks, and tasks with a terminal of their own.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, RuntimeKind, Shell, ShellEnd, ShellSpec, TerminalSize};
use berth_types::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};
use support::{Machine, PATIENCE, Temp, busybox, id, marked, runs, shell, spec};

const SIZE: TerminalSize = TerminalSize { columns: 91, rows: 17 };

fn script(script: &str, terminal: Option<TerminalSize>) -> ShellSpec {
    let command = ["sh", "-c", script].map(str::to_owned).into();
    ShellSpec { command, environment: BTreeMap::from([("MINE".into(), "yes".into())]), terminal }
}

/// Waits until there is something to read, or to write.
fn wait(descriptor: &impl AsFd, flags: PollFlags, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(descriptor, flags)], Some(&timeout)).expect("it waits");
}

/// Reads until a text came, or to the end.
fn read_until(from: &OwnedFd, text: &str) -> String {
    let (mut all, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(from, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::IO) => break,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN) => {
                assert!(
                    Instant::now() < deadline,
                    "{text:?} never came: {:?}",
                    String::from_utf8_lossy(&all)
                );
                wait(from, PollFlags::IN, deadline);
            }
            Err(error) => panic!("{error}"),
        }
        if !text.is_empty() && String::from_utf8_lossy(&all).contains(text) {
            break;
        }
    }
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(all.contains(text), "{text:?} never came: {all:?}");
    all
}

fn type_text(shell: &Shell, text: &str) {
    rustix::io::write(&shell.input, text.as_bytes()).expect("somebody reads");
}

fn end(shell: &Shell) -> ShellEnd {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match shell.control.end() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                wait(&shell.control, PollFlags::IN, deadline);
            }
            ended => return ended.expect("it ended"),
        }
    }
}

fn gone(pid: u32) {
    let deadline = Instant::now() + PATIENCE;
    while runs(pid) {
        assert!(Instant::now() < deadline, "process {pid} never ends");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_has_what_the_task_has_and_its_streams_apart() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut task = shell(id(1), "sleep 1000");
    task.environment.insert("THEIRS".into(), "too".into());
    task.working_dir = Some(temp.path().into());
    machine.host.ensure_started(task);
    machine.started(id(1));
    let printed = "cat; pwd; echo $MINE $THEIRS $BERTH_WORKLOAD $RANK; echo trouble >&2; exit 7";
    let mut beside = machine.host.shell(id(1), script(printed, None)).expect("it runs");
    assert!(!beside.has_terminal);
    type_text(&beside, "typed\n");
    beside.input = fs::File::open("/dev/null").expect("is there").into();
    let expected = format!("typed\n{}\nyes too job 0\n", temp.path().display());
    assert_eq!(read_until(&beside.output, ""), expected);
    assert_eq!(read_until(beside.errors.as_ref().expect("pipes have one"), ""), "trouble\n");
    assert_eq!(end(&beside), ShellEnd { exit: Exit::Code(7), with_task: false });
    assert_eq!(machine.log(id(1)), "", "what a person does there is not what the task prints");
    machine.host.ensure_stopped(id(1), Span::ZERO);
    machine.exited(id(1));
}

#[test]
fn a_shell_has_a_terminal_with_a_size_and_an_interrupt() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "sleep 1000"));
    machine.started(id(1));
    let beside = machine
        .host
        .shell(id(1), ShellSpec { command: vec![], environment: BTreeMap::new(), terminal: Some(SIZE) });
    let beside = beside.expect("it runs");
    type_text(&beside, "PS1='ready> '; stty size\n");
    read_until(&beside.output, "17 91");
    beside.control.resize(TerminalSize { columns: 120, rows: 40 });
    type_text(&beside, "stty size; tty; trap 'echo winch' WINCH\n");
    read_until(&beside.output, "40 120");
    type_text(&beside, "sh -c 'echo begin; exec sleep 1000'; echo not this\n");
    read_until(&beside.output, "begin\r\n");
    type_text(&beside, "\x03");
    type_text(&beside, "echo code $?\n");
    let seen = read_until(&beside.output, "code 130\r\n");
    assert!(!seen.contains("not this\r\n"), "{seen:?}");
    type_text(&beside, "exit 42\n");
    assert_eq!(end(&beside), ShellEnd { exit: Exit::Code(42), with_task: false });
    machine.host.ensure_stopped(id(1), Span::ZERO);
    machine.exited(id(1));
}

#[test]
fn a_shell_ends_with_its_task_and_nothing_is_left() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "trap 'exit 0' TERM; echo ready; sleep 1000 & wait"));
    machine.started(id(1));
    machine.log_with(id(1), "ready");
    let stubborn = "trap '' TERM HUP INT; echo deaf; while true; do sleep 1000; done";
    let beside = machine.host.shell(id(1), script(stubborn, Some(SIZE))).expect("it runs");
    read_until(&beside.output, "deaf");
    machine.host.ensure_stopped(id(1), Span::secs(600));
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), true), "a shell does not keep its task from ending");
    assert_eq!(end(&beside), ShellEnd { exit: Exit::Signal(9), with_task: true });
    let folder = fs::read_to_string(temp.join("agent/id")).expect("the folder has a name");
    assert_eq!(marked(&format!("BERTH_TASK={folder}/")), [0u32; 0]);
    let refused = machine.host.shell(id(1), script("true", None)).expect_err("it is over").to_string();
    assert!(refused.contains("does not run any more"), "{refused}");
}

#[test]
fn who_hangs_up_leaves_no_process_behind_and_the_task_goes_on() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "sleep 1000"));
    let task = machine.started(id(1));
    for terminal in [None, Some(SIZE)] {
        let usual = machine.host.shell(id(1), script("echo $$; sleep 1000", terminal)).expect("it runs");
        let pid: u32 = read_until(&usual.output, "\n").trim().parse().expect("a number");
        let deaf = "trap '' HUP; echo $$; while true; do sleep 1000; done";
        let deaf = machine.host.shell(id(1), script(deaf, terminal)).expect("it runs");
        let stubborn: u32 = read_until(&deaf.output, "\n").trim().parse().expect("a number");
        drop((usual, deaf));
        gone(pid);
        gone(stubborn);
    }
    assert!(runs(task));
    machine.host.ensure_stopped(id(1), Span::ZERO);
    machine.exited(id(1));
}

#[test]
fn what_cannot_be_run_is_said() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "sleep 1000"));
    machine.started(id(1));
    let missing =
        ShellSpec { command: vec!["no-such-program".into()], environment: BTreeMap::new(), terminal: None };
    let refused = machine.host.shell(id(1), missing.clone()).expect_err("there is none").to_string();
    assert!(refused.contains("no program `no-such-program`"), "{refused}");
    let long = ShellSpec { command: vec!["x".repeat(200 << 10)], ..missing };
    let refused = machine.host.shell(id(1), long).expect_err("it is too long").to_string();
    assert!(refused.contains("too long"), "{refused}");
    machine.host.ensure_stopped(id(1), Span::ZERO);
    machine.exited(id(1));
}

#[test]
fn a_task_with_a_terminal_is_joined_left_and_joined_again() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut task = spec(id(1), &["bash", "--norc", "-i"]);
    task.terminal = true;
    task.environment.insert("PS1".into(), "prompt> ".into());
    machine.host.ensure_started(task);
    machine.started(id(1));
    let first = machine.host.attach(id(1), Some(SIZE)).expect("it is joined");
    assert!(first.has_terminal);
    read_until(&first.output, "prompt> ");
    type_text(&first, "stty size; X=kept\n");
    read_until(&first.output, "17 91");
    drop(first);
    // A later agent finds the terminal where the first one left it, because the shim has it.
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![berth_agent::Wanted {
        spec: {
            let mut task = spec(id(1), &["bash", "--norc", "-i"]);
            task.terminal = true;
            task
        },
        stopping: false,
    }]);
    machine.started(id(1));
    let second = machine.host.attach(id(1), None).expect("it is joined");
    read_until(&second.output, "17 91");
    type_text(&second, "echo $X; exit 5\n");
    read_until(&second.output, "kept\r\n");
    assert_eq!(end(&second), ShellEnd { exit: Exit::Code(5), with_task: true });
    assert_eq!(machine.exited(id(1)), (Exit::Code(5), false));
    assert!(machine.log(id(1)).contains("kept"), "what is on the terminal is in the log");
}

#[test]
fn a_task_that_reads_from_a_pipe_reads_what_is_typed_to_its_end() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut task = shell(id(1), "sort; echo done");
    task.stdin = true;
    machine.host.ensure_started(task);
    machine.started(id(1));
    let mut joined = machine.host.attach(id(1), None).expect("it is joined");
    assert!(!joined.has_terminal);
    type_text(&joined, "b\na\n");
    joined.input = fs::File::open("/dev/null").expect("is there").into();
    assert_eq!(read_until(&joined.output, "done\n"), "a\nb\ndone\n");
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
}

#[test]
fn a_command_in_a_container_is_among_its_files_with_a_terminal() {
    if let Some(reason) = busybox::missing(&["runc", "busybox"]) {
        println!("SKIPPED: commands in containers: {reason}");
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let mut machine = Machine::new(&temp);
    let mut task = spec(id(1), &["/bin/sh", "-c", "touch /made-here; echo ready; sleep 1000"]);
    (task.runtime, task.image) = (RuntimeKind::Oci, root.display().to_string());
    machine.host.ensure_started(task);
    machine.started(id(1));
    machine.log_with(id(1), "ready");
    let beside =
        machine.host.shell(id(1), script("ls -d /made-here; echo $BERTH_WORKLOAD $MINE; exit 4", None));
    let beside = beside.expect("it runs");
    assert_eq!(read_until(&beside.output, ""), "/made-here\njob yes\n");
    assert_eq!(end(&beside), ShellEnd { exit: Exit::Code(4), with_task: false });
    let terminal = machine
        .host
        .shell(id(1), ShellSpec { command: vec![], environment: BTreeMap::new(), terminal: Some(SIZE) });
    let terminal = terminal.expect("it runs");
    // The runtime gives its own terminal our size a moment after it is there.
    type_text(
        &terminal,
        "until [ \"$(stty size)\" = '17 91' ]; do :; done; test -t 0 && echo a term''inal\n",
    );
    read_until(&terminal.output, "\na terminal\r");
    type_text(&terminal, "ls -d /made-here\n");
    read_until(&terminal.output, "\n/made-here\r");
    terminal.control.resize(TerminalSize { columns: 100, rows: 30 });
    type_text(&terminal, "until [ \"$(stty size)\" = '30 100' ]; do :; done\n");
    // Who prints this is in front: the shell reads letter by letter, and an interrupt in between would be one more letter.
    type_text(&terminal, "sh -c 'echo inter''ruptible; exec sleep 1000'\n");
    read_until(&terminal.output, "\ninterruptible\r");
    type_text(&terminal, "\x03");
    type_text(&terminal, "exit 9\n");
    assert_eq!(end(&terminal), ShellEnd { exit: Exit::Code(9), with_task: false });
    machine.host.ensure_stopped(id(1), Span::ZERO);
    machine.exited(id(1));
}
