//! A submission works where its caller stands: directory, PATH and virtual environment; and bad ones are refused with the fix.

mod support;

use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use support::{
    Ran,
    live::{Server, until},
};

const NODES: &str = "--nodes 1xdgx1 --project team-a=4 --project team-b=4";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A shell of a person in a directory.
struct Caller<'a> {
    server: &'a Server,
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl<'a> Caller<'a> {
    fn at(server: &'a Server, folder: &Path) -> Self {
        Self { server, folder: folder.to_owned(), variables: vec![("PATH", PATH.into())] }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.server.home.command(&line.split_whitespace().collect::<Vec<_>>());
        command.current_dir(&self.folder).envs(self.variables.clone());
        command
    }

    fn run(&self, line: &str) -> Ran {
        ran(&mut self.command(line))
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A directory that every account may enter, with a program in it.
fn project(server: &Server) -> PathBuf {
    let folder = server.home.shared().join("project");
    fs::create_dir_all(folder.join("tools")).expect("a folder");
    program(&folder.join("tools/say"), "#!/bin/sh\necho tool of the project\n");
    fs::write(folder.join("train.py"), "import os\nprint('at', os.getcwd())\n").expect("is written");
    open(&folder, 0o755);
    open(&folder.join("tools"), 0o755);
    folder
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("is written");
    open(path, 0o755);
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("is ours");
}

fn log(server: &Server, place: &str) -> String {
    server.try_run(&format!("berth logs {place}")).stdout
}

fn count(server: &Server) -> usize {
    server.json("berth list -A")["items"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_workload_runs_in_the_directory_of_its_caller_with_its_path_and_virtual_environment() {
    let server = Server::start(NODES);
    let folder = project(&server);
    let tools = folder.join("tools").display().to_string();
    let caller = Caller::at(&server, &folder)
        .with("PATH", format!("{tools}:{PATH}"))
        .with("VIRTUAL_ENV", tools.clone())
        .with("AWS_SECRET_ACCESS_KEY", "hush");
    assert_eq!(caller.run("berth submit py -p team-a -g 1 --wait -- python3 train.py").code, Some(0));
    assert_eq!(log(&server, "team-a/py"), format!("at {}\n", folder.display()));
    assert_eq!(caller.run("berth submit tool -p team-a -g 1 --wait -- say").code, Some(0));
    assert_eq!(log(&server, "team-a/tool"), "tool of the project\n");

    let shown = server.workload("team-a/tool");
    assert_eq!(shown["request"]["working_dir"], folder.display().to_string(), "{shown}");
    assert_eq!(shown["request"]["environment"]["VIRTUAL_ENV"], tools, "{shown}");
    assert!(shown["request"]["environment"]["PATH"].as_str().is_some_and(|path| path.starts_with(&tools)));
    assert!(shown["request"].get("caller").is_none(), "{shown}");
    assert!(!shown.to_string().contains("hush"), "secrets stay with the caller: {shown}");

    // A clone, typed from somewhere else, runs where the first one did.
    let file = server.home.shared().join("clone.json");
    fs::write(&file, clone(&shown["request"], "again").to_string()).expect("is written");
    let line = format!("berth submit -f {} --wait", file.display());
    assert_eq!(Caller::at(&server, Path::new("/")).run(&line).code, Some(0));
    assert_eq!(log(&server, "team-a/again"), "tool of the project\n");
}

fn clone(request: &Value, name: &str) -> Value {
    let mut request = request.clone();
    request["name"] = name.into();
    request.as_object_mut().expect("a request").remove("run_as");
    request
}

#[test]
fn a_working_directory_can_be_named_and_its_own_folder_asked_for() {
    let server = Server::start(NODES);
    let folder = project(&server);
    let caller = Caller::at(&server, &folder);
    let at = |name: &str, words: &str| {
        let run = caller.run(&format!("berth submit {name} -p team-a -g 1 --wait {words} -- pwd"));
        assert_eq!(run.code, Some(0), "{run:?}");
        log(&server, &format!("team-a/{name}")).trim().to_owned()
    };
    assert_eq!(at("here", ""), folder.display().to_string());
    assert_eq!(at("named", "--working-dir /usr"), "/usr");
    assert_eq!(at("below", "--working-dir tools"), folder.join("tools").display().to_string());
    assert_eq!(at("above", "--working-dir tools/.."), folder.display().to_string());
    assert!(at("own", "--working-dir -").ends_with("work") || !is_root());
    assert!(server.workload("team-a/own")["request"].get("working_dir").is_none());
}

#[test]
fn bad_directories_and_programs_are_refused_with_the_fix_and_nothing_is_submitted() {
    let server = Server::start(NODES);
    let folder = project(&server);
    fs::write(folder.join("plain"), "#!/bin/sh\n").expect("is written");
    open(&folder.join("plain"), 0o644);
    let gone = folder.join("gone");
    fs::create_dir(&gone).expect("a folder");
    let caller = Caller::at(&server, &folder);
    for (words, parts) in [
        ("--working-dir /no/such/place -- true", &["/no/such/place does not exist", "--working-dir"][..]),
        ("--working-dir no/such/place -- true", &["no/such/place does not exist"]),
        ("--working-dir /etc/passwd -- true", &["/etc/passwd is not a directory"]),
        ("-- pyhton3 train.py", &["no program `pyhton3`", "did you mean `python3`?"]),
        ("-- no-such-program-anywhere", &["no program `no-such-program-anywhere`", "PATH"]),
        ("-- ./plain", &["plain is not executable", "chmod +x"]),
        ("-- ./tools", &["is a directory, not a program"]),
        ("-- ./missing", &["there is no program", "missing"]),
        ("-v /no/such:/mnt -- true", &["/no/such"]),
        ("-i no/such-image -- true", &["no/such-image", "images.toml"]),
        ("--pvc nothing:/mnt -- true", &["there is no volume"]),
    ] {
        for dry in ["", "--dry-run "] {
            let run = caller.run(&format!("berth submit bad -p team-a -g 1 {dry}{words}"));
            assert!(matches!(run.code, Some(2 | 5)), "{words}: {run:?}");
            for part in parts {
                assert!(run.stderr.contains(part), "{words}: {part}: {run:?}");
            }
        }
    }
    let nowhere = {
        // The directory goes between the start of the shell and the command that is typed in it.
        let script = format!("rmdir {} && exec \"$0\" submit bad -p team-a -g 1 -- true", gone.display());
        let from_nowhere = Caller::at(&server, &gone).command("berth");
        let program = from_nowhere.get_program().to_owned();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script]).arg(program).current_dir(&gone).env_clear();
        shell.envs(from_nowhere.get_envs().filter_map(|(name, value)| Some((name, value?))));
        ran(&mut shell)
    };
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    assert!(
        nowhere.stderr.contains("current directory") && nowhere.stderr.contains("--working-dir"),
        "{nowhere:?}"
    );
    assert_eq!(count(&server), 0, "nothing was submitted");
}

#[test]
fn a_directory_that_is_closed_to_the_account_of_the_task_is_refused_with_every_way_out() {
    if !is_root() {
        eprintln!("SKIPPED: work runs under accounts of its users only when the server is root's");
        return;
    }
    let server = Server::start(NODES);
    let folder = project(&server);
    let closed = folder.join("closed");
    fs::create_dir_all(closed.join("inside/bin")).expect("a folder");
    open(&closed, 0o700);
    let caller = Caller::at(&server, &closed.join("inside"));
    for dry in ["", "--dry-run "] {
        let run = caller.run(&format!("berth submit a -p team-a -g 1 {dry}-- true"));
        assert_eq!(run.code, Some(2), "{run:?}");
        let fix = format!("setfacl -m u:2100000000:x {}", closed.display());
        for part in [
            "user 2100000000",
            "is closed to that user",
            &fix,
            "--tasks-run-as server",
            "--pvc",
            "--working-dir -",
        ] {
            assert!(run.stderr.contains(part), "{part}: {run:?}");
        }
    }
    // A virtual environment out of reach would be passed over for the next Python on the PATH.
    let bin = closed.join("inside/bin").display().to_string();
    let caller = Caller::at(&server, &folder)
        .with("PATH", format!("{bin}:{PATH}"))
        .with("VIRTUAL_ENV", closed.join("inside").display().to_string());
    let run = caller.run("berth submit a -p team-a -g 1 -- python3 train.py");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("VIRTUAL_ENV") && run.stderr.contains("setfacl"), "{run:?}");
    assert_eq!(count(&server), 0, "nothing was submitted");

    // What Berth brings itself needs no directory of anybody.
    let run = Caller::at(&server, &closed.join("inside"))
        .run("berth submit demo -p team-a -g 1 -i berth/quickstart");
    assert_eq!(run.code, Some(0), "{run:?}");
    server.until_status("team-a/demo", "Running");
    assert!(server.workload("team-a/demo")["request"].get("working_dir").is_none());
}

#[test]
fn a_dry_run_shows_program_directory_and_account_and_warns_of_a_missing_script() {
    let server = Server::start(NODES);
    let folder = project(&server);
    let caller = Caller::at(&server, &folder);
    let run = caller.run("berth submit a -p team-a -g 1 --dry-run -- python3 train.py");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stdout.contains("bin/python3 in ") && run.stdout.contains(&folder.display().to_string()),
        "{run:?}"
    );
    assert!(run.stdout.contains("It would start at once on node1."), "{run:?}");
    assert!(!is_root() || run.stdout.contains("as user 2100000000"), "{run:?}");
    assert_eq!(run.stderr, "");
    let run = caller.run("berth submit a -p team-a -g 1 --dry-run -- python3 trian.py");
    assert!(run.stderr.contains("there is no file") && run.stderr.contains("trian.py"), "{run:?}");
    let run = caller.run("berth submit a -p team-a -g 9 --dry-run -- true");
    assert!(run.code == Some(0) && run.stdout.contains("It would wait"), "{run:?}");
    assert_eq!(count(&server), 0, "nothing was submitted");
}

#[test]
fn a_directory_that_is_gone_at_a_later_start_fails_the_workload_with_that_message() {
    let server = Server::start(NODES);
    let folder = project(&server);
    server.run("berth submit other -p team-b -g 8 --interactive --preemptible -- sleep 1000");
    server.until_status("team-b/other", "Running");
    let later = folder.join("later");
    fs::create_dir(&later).expect("a folder");
    open(&later, 0o755);
    let caller = Caller::at(&server, &later);
    assert_eq!(caller.run("berth submit waits -p team-a -g 6 -- pwd").code, Some(0));
    fs::remove_dir(&later).expect("is empty");
    server.run("berth delete other -p team-b");
    let failed = server.until_status("team-a/waits", "Failed");
    assert!(failed.to_string().contains("later does not exist"), "{failed}");
}

#[test]
fn a_caller_that_sees_other_files_keeps_its_place_to_itself() {
    let unshare = Command::new("unshare").args(["-m", "true"]).output();
    if !is_root() || !unshare.is_ok_and(|ran| ran.status.success()) {
        eprintln!("SKIPPED: another mount namespace needs root and `unshare`");
        return;
    }
    let server = Server::start(NODES);
    let folder = project(&server);
    let caller = Caller::at(&server, &folder);
    let other = |words: &str| {
        let command = caller.command(&format!("berth submit {words}"));
        let mut apart = Command::new("unshare");
        apart.arg("-m").arg(command.get_program()).args(command.get_args()).current_dir(&folder).env_clear();
        apart.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        ran(&mut apart)
    };
    let run = other("apart -p team-a -g 1 --wait -- pwd");
    assert_eq!(run.code, Some(0), "{run:?}");
    let shown = server.workload("team-a/apart");
    assert!(
        shown["request"].get("working_dir").is_none() && shown["request"].get("environment").is_none(),
        "{shown}"
    );
    let run = other("apart2 -p team-a -g 1 --working-dir tools -- pwd");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("relative path") && run.stderr.contains("absolute"), "{run:?}");
}

#[test]
fn the_example_reports_saves_its_state_and_goes_on_in_the_same_directory_after_a_preemption() {
    let server = Server::start("--nodes 1xdgx1 --project team-a=8 --project team-b=0");
    let folder = project(&server);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/train.py");
    let text = fs::read_to_string(&example).expect("is there");
    let code = text.rsplit("\"\"\"").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')).count();
    assert!(lines <= 16, "it is said to be about 15 lines, and has {lines}");
    fs::write(folder.join("example.py"), text).expect("is written");
    let caller = Caller::at(&server, &folder);
    let run = caller.run("berth submit mine -p team-b -g 4 -- python3 example.py");
    assert_eq!(run.code, Some(0), "{run:?}");
    until("it has learnt something", || {
        server.workload("team-b/mine")["progress"]["epoch"].as_u64().is_some_and(|epoch| epoch >= 3)
    });
    server.run("berth submit owner -p team-a -g 8 -- sleep 1000");
    server.until_status("team-a/owner", "Running");
    server.until_status("team-b/mine", "Preempted|Pending");
    server.run("berth delete owner -p team-a");
    server.until_status("team-b/mine", "Running");
    let resumed = || {
        let log = log(&server, "team-b/mine");
        let after =
            log.lines().rev().find_map(|line| line.strip_prefix("starts after epoch "))?.parse::<u64>();
        after.ok()
    };
    until("it says where it goes on", || resumed().is_some());
    assert!(resumed().is_some_and(|epoch| epoch >= 3), "{:?}", resumed());
    let shown = server.workload("team-b/mine");
    assert_eq!(shown["request"]["working_dir"], folder.display().to_string(), "{shown}");
}
