//! What a server remembers of how it was started: nodes, port and options last until a person changes them.

mod support;

use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use support::live::{Server, until};

/// Nodes by name, state and number of GPUs.
fn nodes(server: &Server) -> Vec<(String, String, usize)> {
    let list = server.json("berth node list");
    let node = |node: &Value| {
        let text = |key: &str| node[key].as_str().expect("a word").to_owned();
        (text("name"), text("state"), node["devices"].as_array().expect("a list").len())
    };
    list["items"].as_array().expect("a list").iter().map(node).collect()
}

fn ready(names: &[&str]) -> Vec<(String, String, usize)> {
    names.iter().map(|name| ((*name).to_owned(), "Ready".to_owned(), 8)).collect()
}

fn settings(server: &Server) -> String {
    fs::read_to_string(server.home.server_folder().join("settings.toml")).expect("is remembered")
}

#[test]
fn a_start_without_options_has_the_nodes_and_the_port_of_the_last_one() {
    let mut server = Server::start("--nodes 2xdgx1 --project team-a=4 --ping-every 5s");
    server.run("berth submit long -p team-a -g 8 -- sleep 600");
    server.until_status("team-a/long", "Running");
    server.run("berth down --keep-workloads");
    server.ended();
    let file = server.home.server_folder().join("settings.toml");
    assert_eq!(fs::metadata(&file).expect("is there").permissions().mode() & 0o777, 0o600);
    let remembered = settings(&server);
    for line in ["version = 1", "nodes = \"2xdgx1\"", "listen = \"127.0.0.1:0\"", "ping-every = \"5s\""] {
        assert!(remembered.contains(line), "{line}: {remembered}");
    }
    server.up_with(&[] as &[&str]);
    assert_eq!(nodes(&server), ready(&["node1", "node2"]));
    server.until_status("team-a/long", "Running");
    assert_eq!(settings(&server), remembered);
}

#[test]
fn a_start_that_would_change_settings_names_each_difference_and_changes_nothing() {
    let mut server = Server::start("--nodes 2xdgx1 --project team-a=4");
    server.run("berth down");
    server.ended();
    let remembered = settings(&server);
    let before = server.run("berth check");
    for detach in ["", "-d"] {
        let ran =
            server.try_run(&format!("berth up --nodes 1xdgx2 --ping-every 5s --listen 127.0.0.1:9 {detach}"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        for difference in [
            "nodes: 2xdgx1 -> 1xdgx2",
            "listen: 127.0.0.1:0 -> 127.0.0.1:9",
            "ping-every: 20s -> 5s",
            "--change",
        ] {
            assert!(ran.stderr.contains(difference), "{difference}: {ran:?}");
        }
    }
    assert_eq!(settings(&server), remembered);
    assert_eq!(server.run("berth check"), before, "nothing was written");
    // What is said again, or is the default, changes nothing.
    server.up_with(&["--nodes", "2xdgx1", "--ping-every", "20s"]);
    server.run("berth down");
    server.ended();
    server.up_with(&["--change", "--nodes", "1xdgx1"]);
    assert_eq!(nodes(&server), ready(&["node1"]));
    assert!(settings(&server).contains("nodes = \"1xdgx1\""));
    server.run("berth down");
    server.ended();
    server.up_with(&["--change", "--unset", "nodes"]);
    assert!(settings(&server).contains("nodes = \"this-machine\""), "{}", settings(&server));
    assert_ne!(nodes(&server)[0].0, "node1");
}

#[test]
fn nodes_that_come_back_are_open_unless_an_administrator_cordoned_them() {
    let mut server = Server::start("--nodes 2xdgx1 --project team-a=16");
    for name in ["one", "two"] {
        server.run(&format!("berth submit {name} -p team-a -g 8 -- sleep 600"));
        server.until_status(&format!("team-a/{name}"), "Running");
    }
    let restart = |server: &mut Server, options: &[&str]| {
        server.run("berth down --keep-workloads");
        server.ended();
        server.up_with(options);
    };
    restart(&mut server, &["--change", "--nodes", "1xdgx1"]);
    assert_eq!(nodes(&server)[1].1, "Cordoned", "it is not among the nodes, and work is on it");
    let ran = server.try_run("berth node uncordon node2");
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("is not among the nodes"), "{ran:?}");
    restart(&mut server, &["--change", "--nodes", "2xdgx1"]);
    assert_eq!(nodes(&server), ready(&["node1", "node2"]));
    server.run("berth node cordon node2");
    restart(&mut server, &[]);
    assert_eq!(nodes(&server)[1].1, "Cordoned", "an administrator cordoned it");
    restart(&mut server, &["--change", "--nodes", "1xdgx1"]);
    restart(&mut server, &["--change", "--nodes", "2xdgx1"]);
    assert_eq!(nodes(&server)[1].1, "Cordoned", "an administrator cordoned it, and it went and came back");
}

#[test]
fn a_start_in_the_background_prints_what_a_start_prints() {
    let server = Server::stopped();
    let ran = server
        .try_run("berth up -d --listen 127.0.0.1:0 --nodes 2xdgx1 --project team-a=4 --tasks-run-as server");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "all work runs under the server's own account",
        "2 nodes with 16 GPUs",
        "Dashboard",
        "/#code=",
        "submit hello -p team-a -g 1",
        "server.log",
        "berth down",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    let log = fs::read_to_string(server.home.server_folder().join("server.log")).expect("a log");
    assert!(!log.contains("#code="), "a link that signs in is for a person, not for a log: {log}");
    assert!(log.contains("all work runs under"), "{log}");
    server.run("berth down");
    let ran = server.try_run("berth up -d");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(nodes(&server), ready(&["node1", "node2"]));
    server.run("berth down");
}

#[test]
fn a_start_in_the_background_that_fails_says_so() {
    let server = Server::stopped();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("an address");
    let ran = server.try_run(&format!("berth up -d --nodes 1xdgx1 --listen {listen}"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("another program listens on {listen}")), "{ran:?}");
    let ran = server.try_run("berth up -d --nodes 1xdgx1 --listen 127.0.0.1:0");
    assert_eq!(ran.code, Some(0), "nothing was remembered of the start that failed: {ran:?}");
    let again = server.try_run("berth up -d");
    assert!(again.code != Some(0) && again.stderr.contains("runs already"), "{again:?}");
    server.run("berth down");
}

#[test]
fn root_uses_no_folder_that_another_account_prepared() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: giving a folder to another account needs root");
        return;
    }
    let server = Server::stopped();
    let folder = server.home.server_folder();
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("settings.toml"), "version = 1\nallow-mount = [\"/\"]\n").expect("is written");
    std::os::unix::fs::chown(&folder, Some(65_500), None).expect("is given away");
    for detach in ["", " -d"] {
        let ran = server.try_run(&format!("berth up --nodes 1xdgx1 --listen 127.0.0.1:0{detach}"));
        assert!(ran.code.is_some_and(|code| code != 0), "{ran:?}");
        assert!(ran.stderr.contains("belongs to user 65500") && ran.stderr.contains("--folder"), "{ran:?}");
    }
    assert!(!folder.join("token").exists() && !folder.join("store").exists(), "nothing was made");
}

/// Unpacks the folder that version 0.1.0 wrote, which has no settings.
fn old_folder() -> Server {
    let server = Server::stopped();
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../berth-server/tests/fixtures/folder-0.1.0.tar.gz");
    let folder = server.home.server_folder();
    fs::create_dir_all(&folder).expect("a folder");
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&folder).status();
    assert!(unpacked.expect("tar is there").success());
    server
}

#[test]
fn a_folder_without_settings_keeps_the_nodes_it_was_declared_with() {
    let mut server = old_folder();
    let refused = server.try_run("berth up --listen 127.0.0.1:0 --nodes 1xdgx2");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("nodes: 2xdgx1 -> 1xdgx2"), "{refused:?}");
    server.up_with(&["--listen", "127.0.0.1:0"]);
    assert_eq!(nodes(&server), ready(&["node1", "node2"]));
    until("it says which nodes it took", || {
        server.log().contains("its nodes are 2xdgx1, as at its last start")
    });
    assert!(settings(&server).contains("nodes = \"2xdgx1\""));
}

#[test]
fn settings_that_cannot_be_read_are_named_and_nothing_starts() {
    let server = Server::stopped();
    let folder = server.home.server_folder();
    fs::create_dir_all(&folder).expect("a folder");
    for (text, says) in [
        ("version = 1\nlisten = 7\n", "settings.toml"),
        ("version = 1\nnods = \"2xdgx1\"\n", "nods"),
        ("version = 9\n", "later release"),
        ("version = 1\nnodes = \"2xdgx9\"\n", "choose one of dgx1"),
    ] {
        fs::write(folder.join("settings.toml"), text).expect("is written");
        let ran = server.try_run("berth up");
        assert_eq!(ran.code, Some(2), "{text}: {ran:?}");
        assert!(ran.stderr.contains(says), "{text}: {ran:?}");
        assert!(!folder.join("store").exists(), "nothing was started");
    }
}

#[test]
fn a_quota_of_the_command_line_that_an_existing_project_does_not_have_is_told() {
    let mut server = Server::start("--nodes 2xdgx1 --project team-a=4");
    server.run("berth project update team-a --quota 2");
    server.run("berth down");
    server.ended();
    server.up();
    until("the quota is told", || {
        let log = server.log();
        log.contains("project team-a has a quota of 2 and keeps it; `berth project update team-a --quota 4`")
    });
    assert_eq!(server.json("berth project describe team-a")["settings"]["quota"], 2);
}

#[test]
fn one_machine_needs_no_count() {
    let server = Server::start("--nodes workstation,dgx1");
    let all: Vec<usize> = nodes(&server).into_iter().map(|(.., gpus)| gpus).collect();
    assert_eq!(all, [2, 8]);
}

#[test]
fn a_crash_during_the_first_start_leaves_no_settings() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = Server::stopped();
    let ran = server
        .try_run(&format!("berth up --nodes 2xdgx1 --listen {}", taken.local_addr().expect("an address")));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        !server.home.server_folder().join("settings.toml").exists(),
        "a start that failed is not remembered"
    );
}
