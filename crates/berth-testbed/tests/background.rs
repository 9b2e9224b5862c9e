//! `berth-testbed up` and `down`, as `make kube-up` and `make kube-down` call them.

use berth_testbed::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

fn call(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth-testbed"));
    command.args(arguments).arg("--folder").arg(folder).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// The process that serves the cluster of a folder, and its children.
fn family(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("owner")).expect("the owner is written down");
    let owner: i32 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    let mut pids = vec![owner];
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent == Some(owner) {
            pids.push(entry.file_name().to_string_lossy().parse().expect("a number"));
        }
    }
    pids
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_cluster_is_started_once_and_ended_once() {
    if let Err(reason) = Cluster::available() {
        return eprintln!("NOT TESTED: the cluster in the background: {reason}");
    }
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("kube");

    let wrong = call(&folder, &["up", "--nodes", "2xdgx9"]);
    assert!(!wrong.status.success() && said(&wrong).contains("choose one of dgx1"), "{}", said(&wrong));

    let up = call(&folder, &["up", "--nodes", "1xdgx1,1xworkstation"]);
    assert!(said(&up).contains("is up") && said(&up).contains("export KUBECONFIG="), "{}", said(&up));
    let again = call(&folder, &["up"]);
    assert!(said(&again).contains("runs already") && again.status.success(), "{}", said(&again));

    let pids = family(&folder);
    assert_eq!(pids.len(), 5, "the owner, etcd, the API server, the controllers, kwok: {pids:?}");
    let down = call(&folder, &["down"]);
    assert!(said(&down).contains("is down"), "{}", said(&down));
    assert!(!pids.iter().any(|pid| is_alive(*pid)) && !folder.exists());
    let again = call(&folder, &["down"]);
    assert!(said(&again).contains("No cluster runs") && again.status.success(), "{}", said(&again));
}

#[test]
fn an_owner_that_is_killed_takes_its_cluster_along() {
    if let Err(reason) = Cluster::available() {
        return eprintln!("NOT TESTED: a killed owner: {reason}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let up = call(folder.path(), &["up", "--nodes", "1xdgx1"]);
    assert!(up.status.success(), "{}", said(&up));
    let pids = family(folder.path());
    kill_process(Pid::from_raw(pids[0]).expect("a number"), Signal::KILL).expect("it runs");
    let end = Instant::now() + Duration::from_secs(30);
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < end, "some of {pids:?} are left");
        std::thread::sleep(Duration::from_millis(20));
    }
    let up = call(folder.path(), &["up", "--nodes", "1xdgx1"]);
    assert!(said(&up).contains("is up"), "{}", said(&up));
    assert!(call(folder.path(), &["down"]).status.success());
}
