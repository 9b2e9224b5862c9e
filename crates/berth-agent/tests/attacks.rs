//! Workloads that set out to reach what is not theirs, or to outlive their task. Most need root, as what they attack does.
#![allow(missing_docs)]

mod support;

use berth_agent::{AgentConfig, AgentError, Exit, LogStart, Mount, RuntimeKind, TaskId};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};
use support::{Machine, Temp, busybox, config, id, marked, shell, spec};

const SOMEBODY: (u32, u32) = (3_999, 3_999);

/// Whether to go on; says so once if not.
fn is_root() -> bool {
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    if own.as_ref().ok() != Some(&0) {
        println!("SKIPPED: running as somebody else needs root");
    }
    own.ok() == Some(0)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("is ours");
}

fn folder(path: PathBuf, bits: u32) -> PathBuf {
    fs::create_dir_all(&path).expect("a folder");
    mode(&path, bits);
    path
}

fn mount(source: &Path, target: &Path) -> Mount {
    Mount { source: source.into(), target: target.into(), read_only: false, lent: false }
}

fn second_run(id: TaskId) -> TaskId {
    TaskId { run: 2, ..id }
}

#[test]
fn links_in_place_of_working_folders_give_nothing_away() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    let store = folder(temp.join("store"), 0o700);
    let mut machine = Machine::new(&temp);
    // Where the second run will look for its checkpoints, and for what it is told by touching a file.
    let script = format!(
        "cd $HOME && rmdir checkpoint && ln -s {store} checkpoint && ln -s {store} 2-0 && echo planted",
        store = store.display()
    );
    let mut first = shell(id(1), &script);
    first.run_as = Some(SOMEBODY);
    machine.host.ensure_started(first);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false), "{}", machine.log(id(1)));
    let mut second = shell(second_run(id(1)), "ls $BERTH_CHECKPOINT_DIR/ || echo closed; id -u");
    second.run_as = Some(SOMEBODY);
    machine.host.ensure_started(second);
    machine.exited(second_run(id(1)));
    let log = machine.log(second_run(id(1)));
    assert!(log.contains("closed") && log.contains("3999"), "{log}");
    let found = fs::metadata(&store).expect("it is there");
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o700), "the store was not given away");
    // The folder of a forgotten workload goes, and what its links lead to stays.
    machine.host.forget(id(1).workload);
    let work = temp.join("agent/work/1");
    let deadline = std::time::Instant::now() + support::PATIENCE;
    while work.exists() {
        assert!(std::time::Instant::now() < deadline, "{} stays", work.display());
        std::thread::yield_now();
    }
    assert!(store.exists());
}

#[test]
fn a_container_is_not_shown_what_a_link_leads_to() {
    if !is_root() {
        return;
    }
    if let Some(reason) = busybox::missing(&["runc", "busybox"]) {
        println!("SKIPPED: containers: {reason}");
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let (closed, data) = (folder(temp.join("closed"), 0o700), folder(temp.join("data"), 0o755));
    folder(closed.join("inner"), 0o755);
    fs::write(closed.join("inner/secret"), "x").expect("a file");
    let mut config = config(temp.path());
    let allowed = folder(temp.join("allowed"), 0o700);
    folder(allowed.join("inner"), 0o755);
    config.allowed_mounts = vec![allowed.clone()];
    let mut machine = Machine::with(config);
    let container = |number: u64, source: &Path| {
        let mut spec = spec(id(number), &["/bin/sh", "-c", "cd /data && echo seen"]);
        (spec.runtime, spec.image) = (RuntimeKind::Oci, root.display().to_string());
        spec.mounts = vec![mount(source, Path::new("/data"))];
        spec.run_as = Some(SOMEBODY);
        spec
    };
    machine.host.ensure_started(container(1, &closed.join("inner")));
    assert!(
        machine.refused(id(1)).contains("user 3999, as whom this workload would run, cannot reach"),
        "{}",
        machine.refused(id(1))
    );
    for (number, source) in [(2, data), (3, allowed.join("inner"))] {
        machine.host.ensure_started(container(number, &source));
        assert_eq!(machine.exited(id(number)), (Exit::Code(0), false), "{}", machine.log(id(number)));
    }
    // A workload of processes may have left a link where a container of the next run would be shown its checkpoints.
    let work = folder(temp.join("agent/work/4"), 0o700);
    symlink(&closed, work.join("checkpoint")).expect("a link");
    machine.host.ensure_started(container(4, &temp.join("data")));
    let message = machine.refused(id(4));
    assert!(message.contains("checkpoint could not be mounted"), "{message}");
    // An image that is named by its path is read by root.
    let archive = closed.join("image.tar");
    fs::write(&archive, "x").expect("a file");
    for (number, image) in [(5, &archive), (6, &closed.join("inner"))] {
        let mut spec = container(number, &temp.join("data"));
        spec.image = image.display().to_string();
        machine.host.ensure_started(spec);
        let message = machine.refused(id(number));
        assert!(message.contains("may not be read by user 3999"), "{message}");
    }
}

#[test]
fn what_somebody_may_not_reach_is_neither_mounted_nor_begun_in() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    mode(temp.path(), 0o755);
    let closed = folder(temp.join("closed"), 0o700);
    let (inner, open) = (folder(closed.join("inner"), 0o777), folder(temp.join("open"), 0o777));
    let server = folder(temp.join("server"), 0o700);
    let mut machine = Machine::with(AgentConfig { private: server.clone(), ..config(temp.path()) });
    let agent = temp.join("agent");
    for (number, source, target, text) in [
        (1, &inner, open.clone(), "cannot reach"),
        (2, &server, open.clone(), "the server keeps its own there"),
        // To mount over what the shim works with would let it write for somebody else.
        (3, &open, agent.join("tasks"), "Berth itself needs it"),
        (4, &open, agent.join("tasks/4/1-0"), "Berth itself needs it"),
        (5, &open, "/proc/self".into(), "Berth itself needs it"),
        (6, &open, "/run/berth/work".into(), "Berth itself needs it"),
        (7, &open, inner.clone(), "could not be mounted"),
        // An empty folder that root makes there would mean something to the machine.
        (8, &open, "/etc/berth-attack".into(), "may not make it"),
    ] {
        let mut task = shell(id(number), "echo ran");
        (task.mounts, task.run_as) = (vec![mount(source, &target)], Some(SOMEBODY));
        machine.host.ensure_started(task);
        let message = machine.refused(id(number));
        assert!(message.contains(text), "{number}: {message}");
    }
    assert!(!Path::new("/etc/berth-attack").exists());
    let mut task = shell(id(20), "echo ran; ls; pwd");
    (task.working_dir, task.run_as) = (Some(inner.clone()), Some(SOMEBODY));
    machine.host.ensure_started(task);
    let message = machine.refused(id(20));
    assert!(message.contains("is closed to user 3999"), "{message}");
    // Where it may go, it goes, and root's own work is not held up by any of this.
    let mut task = shell(id(21), "pwd; touch /berth-attack-data/x && echo wrote");
    task.mounts = vec![mount(&open, Path::new("/berth-attack-data"))];
    (task.working_dir, task.run_as) = (Some(open.clone()), Some(SOMEBODY));
    machine.host.ensure_started(task);
    assert_eq!(machine.exited(id(21)), (Exit::Code(0), false), "{}", machine.log(id(21)));
    assert!(machine.log(id(21)).contains("wrote"), "{}", machine.log(id(21)));
    let _ = fs::remove_dir("/berth-attack-data");
}

#[test]
fn what_is_mounted_over_the_machines_libraries_is_no_use() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    mode(temp.path(), 0o755);
    // A list of users in which it is root, and a program that would believe it.
    let fake = folder(temp.join("fake"), 0o777);
    fs::write(fake.join("passwd"), "somebody:x:0:0::/root:/bin/sh\n").expect("a file");
    let program = temp.join("id");
    fs::copy("/usr/bin/id", &program).expect("a program");
    mode(&program, 0o4755);
    let mut machine = Machine::new(&temp);
    let script =
        format!("{} -u; grep -E 'NoNewPrivs|CapEff|CapPrm|CapInh' /proc/self/status", program.display());
    let mut task = shell(id(1), &script);
    task.mounts = vec![mount(&fake, Path::new("/etc"))];
    task.run_as = Some(SOMEBODY);
    machine.host.ensure_started(task);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false), "{}", machine.log(id(1)));
    let log = machine.log(id(1));
    assert!(log.starts_with("3999\n") && log.contains("NoNewPrivs:\t1"), "{log}");
    for line in log.lines().filter(|line| line.starts_with("Cap")) {
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
}

#[test]
fn a_link_in_place_of_a_log_is_not_followed() {
    let temp = Temp::new();
    let secret = temp.join("secret");
    fs::write(&secret, "root:x").expect("a file");
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(shell(id(1), "echo hello"));
    machine.exited(id(1));
    let task = machine.host.task_dir(id(1));
    let log = task.join("log-000000000000");
    assert_eq!(fs::read_to_string(&log).expect("a log"), "hello\n");
    fs::remove_file(&log).expect("is ours");
    symlink(&secret, &log).expect("a link");
    let mut reader = machine.host.log(id(1), LogStart::Offset(0)).expect("a reader");
    assert!(reader.read().is_err(), "what a link leads to is not read");
    let moved = temp.join("moved");
    fs::rename(&task, &moved).expect("is ours");
    symlink(temp.path(), &task).expect("a link");
    let read = machine.host.log(id(1), LogStart::Offset(0));
    assert!(matches!(read, Err(AgentError::NoLog(_))));
    // What goes on in it would be somebody else's, too.
    fs::remove_file(&task).expect("a link");
    fs::rename(&moved, &task).expect("is ours");
}

/// Leaves its session, its group and its parent, forgets its environment, and closes what it has open.
const FLEES: &str = "import os, sys, time
for _ in range(2):
    if os.fork(): os._exit(0)
    os.setsid()
if os.environ.get('BERTH_TASK'):
    os.execve(sys.executable, ['berth-attack-daemon', '-c', 'import time; open(\"%s\", \"w\").close(); time.sleep(1000)'], {})
";

#[test]
fn what_flees_from_its_group_session_and_parent_ends_with_its_task() {
    let temp = Temp::new();
    mode(temp.path(), 0o777);
    let fled = temp.join("fled");
    let script = FLEES.replace("%s", fled.to_str().expect("text"));
    fs::write(temp.join("flee.py"), script).expect("a file");
    let mut machine = Machine::new(&temp);
    let command = format!(
        "python3 {}; while [ ! -e {} ]; do sleep 0.05; done; echo fled; sleep 1000",
        temp.join("flee.py").display(),
        fled.display()
    );
    let mut task = shell(id(1), &command);
    task.run_as = is_root().then_some(SOMEBODY);
    machine.host.ensure_started(task);
    machine.started(id(1));
    machine.log_with(id(1), "fled");
    let fugitive = || {
        let pids = fs::read_dir("/proc").expect("/proc").flatten();
        let own = fled.display().to_string();
        pids.filter(|entry| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            words.starts_with("berth-attack-daemon") && words.contains(&own)
        })
        .count()
    };
    assert_eq!(fugitive(), 1, "it runs, and carries no mark");
    machine.host.ensure_stopped(id(1), berth_types::Span(200));
    machine.exited(id(1));
    assert_eq!(fugitive(), 0);
    let folder_id = fs::read_to_string(temp.join("agent/id")).expect("a name");
    assert_eq!(marked(&folder_id), Vec::<u32>::new());
}

#[test]
fn a_tool_in_a_closed_home_is_shown_with_nothing_around_it() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    mode(temp.path(), 0o755);
    // As with root: tools, the Python they are made from, and the agent itself are all below one home that is closed.
    let home = folder(temp.join("home"), 0o700);
    fs::write(home.join("secret"), "x").expect("a file");
    let (tool, made_from) = (home.join("cache/tool/bin"), home.join("python/bin"));
    for path in [&tool, &made_from] {
        fs::create_dir_all(path).expect("a folder");
    }
    fs::copy("/bin/sh", made_from.join("python3")).expect("a program");
    symlink(made_from.join("python3"), tool.join("python3")).expect("a link");
    fs::write(home.join("cache/tool/pyvenv.cfg"), "").expect("a file");
    let script = format!(
        "#!{}/python3\necho tool as $(id -u); touch {}/x || echo closed\n",
        tool.display(),
        tool.display()
    );
    fs::write(tool.join("run"), script).expect("a program");
    mode(&tool.join("run"), 0o755);
    let mut config = AgentConfig {
        cache: home.join("cache"),
        ..AgentConfig::new(home.join("server/agent"), support::now)
    };
    (config.shim, config.quickstart) =
        (vec![support::PROGRAM.into(), "shim".into()], vec![support::PROGRAM.into()]);
    folder(home.join("server"), 0o700);
    let mut machine = Machine::with(config);
    let run = tool.join("run").display().to_string();
    let look = format!(
        "{run}; ls {home}; cat {home}/secret; ls {home}/server || echo closed too",
        home = home.display()
    );
    let mut task = shell(id(1), &look);
    (task.command[0], task.run_as) = (run.clone(), Some(SOMEBODY));
    machine.host.ensure_started(task.clone());
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false), "{}", machine.log(id(1)));
    assert!(machine.log(id(1)).contains("tool as 3999"), "{}", machine.log(id(1)));
    // What begins otherwise is shown nothing.
    (task.id, task.command[0]) = (id(2), "bash".into());
    machine.host.ensure_started(task.clone());
    machine.exited(id(2));
    assert!(!machine.log(id(2)).contains("tool as"), "{}", machine.log(id(2)));
    // And from within, the rest of the home is not there.
    let inside = format!(
        "#!{}/python3\nls {home}; cat {home}/secret; ls {home}/server || echo closed too\n",
        tool.display(),
        home = home.display()
    );
    fs::write(tool.join("look"), inside).expect("a program");
    mode(&tool.join("look"), 0o755);
    (task.id, task.command) = (id(3), vec![tool.join("look").display().to_string()]);
    machine.host.ensure_started(task);
    machine.exited(id(3));
    let log = machine.log(id(3));
    assert!(log.starts_with("cache\npython\nserver\n") && log.contains("closed too"), "{log}");
    assert!(!log.contains("\nx"), "{log}");
}
