//! `berth node label`: groups nodes, and lasts.

mod support;

use std::fs;
use support::live::Server;

/// Two nodes, one with a label of its own.
fn server() -> Server {
    let folder = std::env::temp_dir().join(format!(
        "berth-labels-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("nodes.toml");
    let text = "[[node]]\nname = \"n1\"\ntype = \"dgx1\"\nlabels = { rack = \"r1\" }\n\n[[node]]\nname = \"n2\"\ntype = \"dgx1\"\n";
    fs::write(&file, text).expect("is written");
    Server::start(&format!("--nodes {} --project team-a=16", file.display()))
}

#[test]
fn labels_group_nodes_survive_a_restart_and_win_over_declared_ones() {
    let mut server = server();
    server.run("berth submit waits -p team-a -g 1 --node-selector zone=a -- sleep 1000");
    server.until_status("team-a/waits", "Pending");
    server.run("berth node label n2 zone=a rack=r2");
    let placed = server.until_status("team-a/waits", "Running");
    assert_eq!(placed["tasks"][0]["node"], "n2", "{placed}");

    // A label that has another value is changed on request only, and nothing of the rest happens.
    let run = server.try_run("berth node label n1 rack=r9 zone=b");
    assert_eq!(run.code, Some(6), "{run:?}");
    assert!(run.stderr.contains("rack=r1") && run.stderr.contains("--overwrite"), "{run:?}");
    assert!(server.json("berth node describe n1")["labels"].get("zone").is_none(), "nothing half done");
    server.run("berth node label n1 rack=r9 --overwrite");

    // Work that runs stays, also where it could not start again; and such a state can be read again.
    server.run("berth node label n2 zone-");
    assert_eq!(server.workload("team-a/waits")["status"], "Running");
    for signal in ["KILL", "TERM"] {
        server.signal(signal);
        server.up();
        assert_eq!(
            server.json("berth node describe n1")["labels"]["rack"],
            "r9",
            "wins over the file, after {signal}"
        );
        assert_eq!(
            server.json("berth node describe n2")["labels"].to_string(),
            r#"{"rack":"r2"}"#,
            "after {signal}"
        );
    }
    server.run("berth node label n1 rack-");
    server.signal("TERM");
    server.up();
    assert!(
        server.json("berth node describe n1")["labels"].get("rack").is_none(),
        "what was removed stays away"
    );
    let list = server.run("berth node list --show-labels");
    assert!(list.contains("LABELS") && list.contains("rack=r2"), "{list}");
}

#[test]
fn what_is_no_label_is_refused_with_the_rule() {
    let server = server();
    for (words, code, part) in [
        ("n1 rack", 2, "KEY=VALUE"),
        ("n1 a/b/c=d", 2, "at most 63 letters"),
        ("n1 rack=a/b", 2, "at most 63 letters"),
        ("n1 rack=-a", 2, "at most 63 letters"),
        ("n1 rack=r1 rack-", 2, "named twice"),
        ("n1 berth/devices=x", 2, "Berth's own"),
        ("n1 berth/pool=No_Pool", 2, "not the name of a pool"),
        ("n3 rack=r1", 5, "did you mean"),
        ("n1", 2, "KEY=VALUE"),
    ] {
        let run = server.try_run(&format!("berth node label {words}"));
        assert_eq!(run.code, Some(code), "{words}: {run:?}");
        assert!(run.stderr.contains(part), "{words}: {run:?}");
    }
    // The pool of a node decides whose its GPUs are, so it changes on an empty node only.
    server.run("berth submit busy -p team-a -g 8 -- sleep 1000");
    let placed = server.until_status("team-a/busy", "Running")["tasks"][0]["node"]
        .as_str()
        .expect("a node")
        .to_owned();
    let run = server.try_run(&format!("berth node label {placed} berth/pool=research"));
    assert_eq!(run.code, Some(6), "{run:?}");
    assert!(run.stderr.contains("node drain"), "{run:?}");
    let other = if placed == "n1" { "n2" } else { "n1" };
    server.run(&format!("berth node label {other} berth/pool=research"));
    assert_eq!(server.json(&format!("berth node describe {other}"))["pool"], "research");
}
