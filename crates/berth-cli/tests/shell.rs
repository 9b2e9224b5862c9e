//! Shells in workers of a running server: as a person at a terminal meets them, and as a script does.

mod support;

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};
use support::{
    live::{Server, until},
    terminal::Person,
};

const SIZE: (u16, u16) = (93, 31);

/// A server that pings often, so that silence is long soon.
fn server() -> Server {
    Server::start("--nodes 1xdgx1 --project team-a=4 --project team-b=8 --ping-every 200ms")
}

fn submit(server: &Server, line: &str, script: &str) {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.extend(["--", "sh", "-c", script]);
    let ran = server.home.run_words(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn build(server: &Server) {
    submit(server, "berth submit build -p team-a -g 2 --interactive -e GREETING=hello", "sleep 1000");
    server.until_status("team-a/build", "Running");
}

#[test]
fn a_person_has_a_real_terminal_in_the_worker() {
    let server = server();
    build(&server);
    let mut person = Person::sits_at(&server.home, SIZE, "berth bash team-a/build");
    person.types("PS1='ready''> '\n");
    person.sees("ready> ");
    person.types("echo $TERM $CUDA_VISIBLE_DEVICES $GREETING $BERTH_WORKLOAD; stty size; tput colors\n");
    person.sees("xterm-256color 0,1 hello build\r\n31 93\r\n256\r\n");
    person.resizes((120, 50));
    person.types("until [ \"$(stty size)\" = '50 120' ]; do sleep 0.05; done; echo resi''zed\n");
    person.sees("resized\r\n");
    person.types("sh -c 'echo begin; exec sleep 1000'; echo not th''is\n");
    person.sees("begin\r\n");
    person.types("\x03");
    let seen = person.sees("ready> ");
    assert!(!seen.contains("not this"), "{seen:?}");
    // Silence beyond every limit: with pings every 200 ms, a side that does not answer for five seconds is gone.
    std::thread::sleep(Duration::from_secs(7));
    person.types("echo still he''re; exit 42\n");
    person.sees("still here\r\n");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(42), "{seen:?}");
}

#[test]
fn a_command_keeps_its_streams_apart_and_its_code() {
    let server = server();
    build(&server);
    let script = "cat; echo $GREETING; echo trouble >&2; test -t 1 || echo no terminal; exit 7";
    let words = ["exec", "-p", "team-a", "build", "sh", "-c", script];
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(words)
        .env_clear()
        .envs(server.home.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // More than any buffer on the way holds.
    let typed = "x".repeat(300_000) + "\n";
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = typed.clone();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).expect("it is read"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it was written");
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{typed}hello\nno terminal\n"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "trouble\n");
    let ran = server.home.run_words(&["runai", "exec", "build", "-p", "team-a", "pwd"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let ran = server.home.run_words(&["berth", "exec", "team-a/build", "-t", "--", "sh", "-c", "test -t 1"]);
    assert_eq!(ran.code, Some(0), "a terminal that was asked for is there: {ran:?}");
    let ran = server.try_run("runai bash build -p team-a");
    assert_eq!(ran.code, Some(0), "its stdin is empty, so the shell ends at once: {ran:?}");
    let ran = server.home.run_words(&["berth", "exec", "team-a/build", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(ran.code, Some(143), "{ran:?}");
}

#[test]
fn what_cannot_be_entered_says_why_and_what_to_do() {
    let server = server();
    build(&server);
    submit(&server, "berth submit waits -p team-a -g 8 --workers 2", "true");
    submit(&server, "berth submit over -p team-a -g 1", "true");
    server.until_status("team-a/over", "Succeeded");
    for (line, code, words) in [
        ("berth bash team-a/waits", 6, "team-a/waits does not run: it is Pending"),
        ("berth bash team-a/over", 6, "team-a/over is over: it is Succeeded"),
        ("berth bash team-a/biuld", 5, "did you mean build?"),
        ("berth bash team-b/build", 5, "there is one in another project: team-a/build"),
        ("berth bash team-a/build --rank 3", 6, "team-a/build has no worker 3 that runs"),
        ("berth exec team-a/build -- no-such-program", 6, "there is no program `no-such-program`"),
        ("berth attach team-a/waits", 6, "does not run"),
        ("berth port-forward team-a/build", 2, "declares no port"),
        ("berth port-forward team-a/build 70000", 2, "1 to 65535"),
    ] {
        let ran = server.try_run(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line}: {ran:?}");
    }
}

#[test]
fn a_shell_says_that_its_job_was_preempted_and_nothing_is_left() {
    let server = server();
    let patient = "trap 'exit 1' TERM; sleep 1000 & wait";
    submit(&server, "berth submit borrows -p team-a -g 8", patient);
    server.until_status("team-a/borrows", "Running");
    let mut person = Person::sits_at(&server.home, SIZE, "berth bash team-a/borrows");
    person.types("echo re''ady\n");
    person.sees("ready\r\n");
    submit(&server, "berth submit owns -p team-b -g 8", "sleep 1000");
    person.sees("berth: team-a/borrows was told to stop");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(255), "{seen:?}");
    assert!(seen.contains("berth: team-a/borrows ended here: stopped for team-b/owns"), "{seen:?}");
    server.until_status("team-b/owns", "Running");
    server.run("berth delete owns -p team-b");
    server.run("berth delete borrows -p team-a");
    until("nothing is left", || server.task_processes().is_empty());
}

#[test]
fn a_shell_says_that_its_job_is_over() {
    let server = server();
    let mark = server.home.shared().join("mark");
    let script = format!("while ! [ -e {} ]; do sleep 0.05; done; exit 3", mark.display());
    submit(&server, "berth submit short -p team-a -g 1 --backoff-limit 0", &script);
    server.until_status("team-a/short", "Running");
    let mut person = Person::sits_at(&server.home, SIZE, "berth bash team-a/short");
    person.types(&format!("touch {}\n", mark.display()));
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(255), "{seen:?}");
    assert!(seen.contains("team-a/short is over: it is Failed; it exited with code 3"), "{seen:?}");
}

#[test]
fn a_terminal_that_is_gone_ends_its_shell_also_where_no_signal_is_heard() {
    let server = server();
    build(&server);
    let mut person = Person::hears_no_hangup(&server.home, SIZE, "berth bash team-a/build");
    person.types("sh -c 'echo re''ady $$; exec sleep 1000'\n");
    person.sees("ready ");
    let pid = person.sees("\r\n").trim().to_owned();
    drop(person);
    until("nothing of it is left", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(server.workload("team-a/build")["status"], "Running", "it goes on");
}

#[test]
fn a_job_goes_on_when_the_server_restarts_and_its_shells_end_with_a_line() {
    for how in ["down", "KILL"] {
        let mut server = server();
        build(&server);
        let mut person = Person::sits_at(&server.home, SIZE, "berth bash team-a/build");
        person.types("echo re''ady $$\n");
        person.sees("ready ");
        let pid = person.sees("\r\n").trim().to_owned();
        let worker = server.workload("team-a/build")["tasks"][0]["pid"].clone();
        match how {
            "KILL" => drop(server.signal("KILL")),
            _ => {
                server.run("berth down --keep-workloads");
                server.ended();
            }
        }
        let (seen, code) = person.sees_the_end();
        assert_eq!(code, Some(255), "{seen:?}");
        let words =
            if how == "KILL" { "the connection to the server was lost" } else { "the server is stopping" };
        assert!(seen.contains(words) && seen.contains("team-a/build goes on"), "{how}: {seen:?}");
        until("the shell is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
        server.up();
        let after = server.until_status("team-a/build", "Running");
        assert_eq!(after["tasks"][0]["pid"], worker, "it was not disturbed");
        let ran = server.home.run_words(&["berth", "exec", "team-a/build", "--", "echo", "again"]);
        assert_eq!(ran.stdout, "again\n", "{ran:?}");
    }
}

#[test]
fn a_job_is_submitted_joined_left_and_joined_again() {
    let server = server();
    let line = "berth submit mine -p team-a -g 1 --interactive --attach -- bash --norc";
    let mut person = Person::sits_at(&server.home, SIZE, line);
    person.sees("this is the terminal of team-a/mine");
    person.types("stty size; X=kept; echo re''ady\n");
    person.sees("31 93\r\n");
    person.sees("ready\r\n");
    person.types("\x10\x11");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{seen:?}");
    assert!(seen.contains("left team-a/mine; it goes on"), "{seen:?}");
    assert_eq!(server.workload("team-a/mine")["status"], "Running");
    let mut person = Person::sits_at(&server.home, SIZE, "berth attach team-a/mine");
    person.types("echo $X; exit 0\n");
    person.sees("kept\r\n");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{seen:?}");
    assert!(seen.contains("team-a/mine is over: it is Succeeded"), "{seen:?}");
    assert!(server.run("berth logs mine -p team-a").contains("kept"));
}
