//! Every command block of the README, typed in order, in a folder that has what a clone has.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};
use support::live::{Server, until};

/// Longer than a command of the README takes on a busy machine.
const WITHIN: Duration = Duration::from_secs(90);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of all blocks of shell commands, in their order, without comments.
fn commands(markdown: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_shell = false;
    for line in markdown.lines() {
        match line.strip_prefix("```") {
            Some(language) => is_shell = language == "sh",
            None if is_shell => {
                let command = line.split(" #").next().unwrap_or_default().trim();
                commands
                    .extend((!command.is_empty() && !command.starts_with('#')).then(|| command.to_owned()));
            }
            None => {}
        }
    }
    commands
}

/// What `make run` starts the server with.
fn options_of_make_run() -> String {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("is there");
    let line = makefile.lines().find_map(|line| line.strip_prefix("UP ?= ")).expect("`make run` has options");
    assert!(makefile.contains(".ci/start $(UP)"), "`make run` starts the server with them");
    line.to_owned()
}

/// A folder like the clone, which every account may enter wherever the clone lies.
fn clone(server: &Server) -> PathBuf {
    let folder = server.home.shared().join("clone");
    let open =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("is ours");
    for part in ["", "examples"] {
        let (from, to) = (root().join(part), folder.join(part));
        fs::create_dir_all(&to).expect("a folder");
        open(&to, 0o755);
        for entry in fs::read_dir(from).expect("is there").flatten().filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("is copied");
            open(&to.join(entry.file_name()), 0o644);
        }
    }
    folder
}

#[test]
fn every_command_of_the_readme_works_in_its_order() {
    let readme = fs::read_to_string(root().join("README.md")).expect("is there");
    let commands = commands(&readme);
    assert!(commands.iter().any(|line| line.contains("examples/train.py")), "{commands:?}");
    let mut server: Option<Server> = None;
    let mut typed = 0;
    for command in &commands {
        match command.as_str() {
            "make run" => server = Some(Server::start(&options_of_make_run())),
            // Whoever runs this has typed it.
            "make test" => {}
            line => {
                let server = server.as_ref().unwrap_or_else(|| panic!("`{line}` comes before `make run`"));
                type_in(server, line);
                typed += 1;
                if line.contains(" owed ") && line.contains("submit") {
                    server.until_status("team-b/mine", "Pending");
                }
            }
        }
    }
    assert!(typed >= 3, "{commands:?}");
    let server = server.expect("`make run` is the first command");
    let mine = server.until_status("team-b/mine", "Running|Succeeded");
    assert_eq!(mine["request"]["gpus"].to_string(), "4", "{mine}");
    assert_eq!(mine["preemptions"], 1, "{mine}");
    until("the example reports", || {
        server.workload("team-b/mine")["progress"]["epoch"].as_u64().is_some_and(|epoch| epoch > 0)
    });
}

/// Types a line into a shell. What watches for ever is watched until it shows the job.
fn type_in(server: &Server, line: &str) {
    let folder = clone(server);
    let programs = server.home.path().join("programs");
    fs::create_dir_all(&programs).expect("a folder");
    for name in ["berth", "runai"] {
        let link = programs.join(name);
        if !link.exists() {
            symlink(env!("CARGO_BIN_EXE_berth"), link).expect("a link");
        }
    }
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &format!("exec {line}")])
        .current_dir(&folder)
        .env_clear()
        .envs(server.home.environment())
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let is_watching = line.contains("--watch");
    let mut child = shell.spawn().expect("a shell");
    let stdout = child.stdout.take().expect("is piped");
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let text = BufReader::new(stdout).lines().map_while(Result::ok);
        text.for_each(|line| drop(sender.send(line)));
    });
    let mut shown = Vec::new();
    loop {
        match lines.recv_timeout(WITHIN) {
            Ok(text) => {
                let is_job = text.contains("mine");
                shown.push(text);
                if is_watching && is_job {
                    let _ = child.kill();
                    let _ = child.wait();
                    return;
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) if !is_watching => break,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("`{line}`: {error}: {shown:?}");
            }
        }
    }
    let status = child.wait().expect("it was started");
    assert!(status.success(), "`{line}` ended with {status}: {shown:?}");
}
