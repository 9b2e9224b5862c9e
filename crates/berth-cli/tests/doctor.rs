//! `berth doctor` on this very machine, and against a real API server.

mod support;

use berth_testbed::{Cluster, NodeSpec, Options};
use serde_json::Value;
use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};
use support::Home;

/// The verdict of each check, by name.
fn verdict<'a>(report: &'a Value, name: &str) -> &'a str {
    let checks = report["checks"].as_array().expect("checks");
    let check =
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    check["verdict"].as_str().expect("a verdict")
}

fn assert_fixes(report: &Value) {
    for check in report["checks"].as_array().expect("checks") {
        let has_fix = check["fix"].as_str().is_some_and(|fix| !fix.is_empty());
        assert_eq!(has_fix, check["verdict"] != "ok", "a fix for each failure, and none else: {check}");
    }
}

#[test]
fn this_machine_is_checked_without_a_server() {
    let home = Home::new();
    let folder = home.server_folder();
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("settings.toml"), "version = 1\nlisten = \"127.0.0.1:0\"\n").expect("is written");
    let ran = home.run("berth doctor --json");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    assert_fixes(&report);
    let names: Vec<&str> = report["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "GPU driver",
            "Container runtime",
            "Control groups",
            "Accounts",
            "Folder",
            "Free disk",
            "Port",
            "Clock",
            "Snapshots"
        ]
    );
    assert_eq!((verdict(&report, "Folder"), verdict(&report, "Port")), ("ok", "ok"), "{report}");
    let failed =
        report["checks"].as_array().expect("checks").iter().any(|check| check["verdict"] == "failure");
    assert_eq!(ran.code, Some(i32::from(failed)), "{ran:?}");
    let left: Vec<_> =
        fs::read_dir(&folder).expect("is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["settings.toml"], "probing leaves nothing behind");

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = format!("version = 1\nlisten = \"{}\"\n", taken.local_addr().expect("an address"));
    fs::write(folder.join("settings.toml"), listen).expect("is written");
    let ran = home.run("berth doctor");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("failure") && ran.stdout.contains("fix: end the program that listens there"),
        "{ran:?}"
    );

    fs::write(folder.join("settings.toml"), "version = 1\nnods = 1\n").expect("is written");
    let ran = home.run("berth doctor");
    assert!(ran.code == Some(1) && ran.stdout.contains("nods"), "{ran:?}");
}

#[test]
fn without_kubectl_a_cluster_cannot_be_checked_and_that_is_said() {
    let home = Home::new();
    let ran = home.run("berth doctor --kubernetes");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("install kubectl"), "{ran:?}");
}

/// Runs the doctor against a cluster, with kubectl on its path.
fn examine(home: &Home, kubeconfig: &Path) -> (Option<i32>, Value) {
    let kubectl = berth_testbed::kubectl().expect("kubectl is there with the rest");
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = kubectl.parent().filter(|folder| folder.is_absolute()) {
        path.push(":");
        path.push(folder);
    }
    let output = home
        .command(&["berth", "doctor", "--json", "--kubeconfig", kubeconfig.to_str().expect("text")])
        .env("PATH", path)
        .env("KUBECACHEDIR", home.path())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

#[test]
fn a_real_cluster_is_checked_before_and_after_the_operator_is_installed() {
    if let Err(reason) = Cluster::available() {
        eprintln!("NOT TESTED: a_real_cluster_is_checked: {reason}");
        return;
    }
    if berth_testbed::kubectl().is_none() {
        eprintln!("NOT TESTED: a_real_cluster_is_checked: kubectl is missing");
        return;
    }
    let cluster = Cluster::start(Options::default()).expect("it starts");
    let home = Home::new();
    let (code, report) = examine(&home, cluster.kubeconfig());
    assert_fixes(&report);
    assert_eq!(code, Some(1), "no node has GPUs: {report}");
    assert_eq!((verdict(&report, "API server"), verdict(&report, "GPUs")), ("ok", "failure"), "{report}");
    assert_eq!(verdict(&report, "Operator's rights"), "ok", "an administrator may install it: {report}");
    assert_eq!(verdict(&report, "Snapshots"), "warning", "{report}");
    assert_eq!(verdict(&report, "Storage class"), "warning", "{report}");

    cluster.add_nodes(&NodeSpec::dgx1(1).with_dra()).expect("nodes");
    let kubectl = |arguments: &[&str], input: &str| {
        let mut child = Command::new(berth_testbed::kubectl().expect("was there"))
            .args(arguments)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("KUBECACHEDIR", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("kubectl starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes())
            .expect("is read");
        assert!(child.wait().expect("it was started").success(), "kubectl {arguments:?}");
    };
    let manifest = home.run("berth operator manifest --cluster lab").stdout;
    kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifest);
    let (code, report) = examine(&home, cluster.kubeconfig());
    assert_eq!(verdict(&report, "GPUs"), "ok", "{report}");
    assert_eq!(verdict(&report, "Operator's rights"), "ok", "{report}");
    assert_eq!(code, Some(0), "{report}");

    kubectl(&["delete", "clusterrolebinding", "berth-operator"], "");
    let (code, report) = examine(&home, cluster.kubeconfig());
    assert_eq!((code, verdict(&report, "Operator's rights")), (Some(1), "failure"), "{report}");
}
