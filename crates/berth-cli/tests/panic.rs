//! A mistake in the thread that decides: the server ends at once, what runs goes on, and the next start takes it over.
//!
//! The server of this test is this very program with a clock that fails on demand. Everything else in it is the product's.

mod support;

use berth_types::Time;
use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use support::live::{Server, until};

/// Says to a copy of this program where it is to serve.
const FOLDER: &str = "BERTH_TEST_PANIC_FOLDER";
const ABORTED: i32 = 6;

fn mark(folder: &Path) -> PathBuf {
    folder.join("now-fail")
}

/// The machine's time, until the thread that decides is to fail.
fn failing_clock() -> Time {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from).unwrap_or_default();
    let decides = std::thread::current().name() == Some("berth-control");
    assert!(!(decides && mark(&folder).exists()), "the clock fails, as it was asked to");
    berth_server::now()
}

#[test]
fn serves_when_the_other_test_asks_for_it() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let berth = |word: &str| Some(vec![env!("CARGO_BIN_EXE_berth").into(), word.into()]);
    let config = berth_server::Config {
        folder: folder.into(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        access: Default::default(),
        nodes: berth_server::declared_nodes("1xdgx1").expect("is understood"),
        projects: Vec::new(),
        images: Default::default(),
        shim: berth("shim"),
        quickstart: berth("quickstart"),
        program: env!("CARGO_BIN_EXE_berth").into(),
        policy: Default::default(),
        store: Default::default(),
        user: "ada".into(),
        clock: failing_clock,
        ping_every: berth_server::PING_EVERY,
        patience: berth_server::PATIENCE,
        tasks_run_as: berth_server::TasksRunAs::Server,
        accounts_from: berth_server::ACCOUNTS_FROM,
        allow_mounts: Vec::new(),
        settings: None,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _running = runtime.block_on(berth_server::run(config)).expect("it starts");
    // Its end is the point of the test; whoever started it does not wait longer than this.
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn a_panic_of_the_deciding_thread_ends_the_server_and_nothing_else() {
    let mut server = Server::start("--nodes 1xdgx1 --project team-a=4");
    server.run("berth submit goes-on -p team-a -g 1 -- sleep 1000");
    let pid = server.until_status("team-a/goes-on", "Running")["tasks"][0]["pid"].clone();
    server.run("berth down --keep-workloads");
    server.ended();

    let folder = server.home.server_folder();
    let said = server.home.path().join("said");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "serves_when_the_other_test_asks_for_it", "--nocapture"])
        .env(FOLDER, &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said).expect("a file"))
        .process_group(0)
        .spawn()
        .expect("this program starts");
    until("it answers", || {
        assert!(matches!(child.try_wait(), Ok(None)), "{}", fs::read_to_string(&said).unwrap_or_default());
        server.try_run("berth list -A").code == Some(0)
    });
    assert_eq!(server.until_status("team-a/goes-on", "Running")["tasks"][0]["pid"], pid);
    server.run("berth submit waits -p team-a -g 8 --workers 2 -i berth/quickstart");

    fs::write(mark(&folder), "").expect("is written");
    // The clock is asked with the next thing that happens.
    let _ = server.try_run("berth submit too-late -p team-a -g 1 -- true");
    let status = child.wait().expect("it was started");
    let said = fs::read_to_string(&said).expect("is there");
    assert_eq!(status.signal(), Some(ABORTED), "{status}: {said}");
    assert!(said.contains("berth-control failed, which is a mistake in berth"), "{said}");
    assert_eq!(server.try_run("berth list -A").code, Some(3), "nobody answers");
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "what runs goes on");

    fs::remove_file(mark(&folder)).expect("is removed");
    server.up();
    let recovered = server.until_status("team-a/goes-on", "Running");
    assert_eq!((&recovered["tasks"][0]["pid"], &recovered["runs"]), (&pid, &1.into()), "it was taken over");
    assert_eq!(server.workload("team-a/waits")["status"], "Pending", "what was acknowledged is there");
    assert_eq!(server.signal("INT"), Some(0), "{}", server.log());
    assert!(server.run("berth check").contains("0 findings"));
    assert!(server.task_processes().is_empty(), "nothing is left behind");
}
