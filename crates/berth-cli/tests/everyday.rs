//! Commands of every day: which server they go to, several things at once, questions before what cannot be undone.

mod support;

use serde_json::{Value, json};
use std::fs;
use support::{Fake, Home, terminal::Person};

fn route(route: &'static str, body: Value) -> (&'static str, u16, String) {
    (route, 200, body.to_string())
}

fn workload(project: &str, name: &str) -> Value {
    json!({
        "id": 7, "name": name, "project": project, "user": "ada", "kind": "distributed", "status": "Running", "priority": 50,
        "preemptible": true, "submitted_at": "2026-11-17T08:00:00.000Z", "gpus_requested": 1, "gpus_allocated": 0,
        "workers_min": 2, "workers_max": 2, "tasks": [], "runs": 1, "failures": 0, "preemptions": 0,
        "request": {"project": project, "image": "quickstart"}
    })
}

fn project(name: &str) -> Value {
    json!({"name": name, "settings": {"quota": 4}, "allocated": 0, "allocated_non_preemptible": 0, "fair_share": 4,
        "waiting": 0, "running_count": 0, "waiting_count": 0})
}

fn node(name: &str, state: &str) -> Value {
    json!({"name": name, "state": state, "pool": "default", "labels": {}, "devices": [], "gpus_allocated": 0, "cpu": 8,
        "cpu_allocated": 0, "memory": "8Gi", "memory_allocated": "0", "workloads": []})
}

#[test]
fn the_list_of_contexts_shows_the_server_that_commands_really_go_to() {
    let home = Home::new();
    let elsewhere = home.path().join("elsewhere");
    assert_eq!(home.run("berth context add lab --server http://127.0.0.1:9").code, Some(0));
    assert_eq!(home.run("berth context use lab").code, Some(0));
    let chosen = |variable: &str, value: &str| {
        let output = home
            .command(&["berth", "context", "list", "--json"])
            .env(variable, value)
            .output()
            .expect("starts");
        let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let items = list["items"].as_array().expect("a list");
        let chosen = items.iter().filter(|item| item["chosen"] == true);
        let chosen: Vec<String> =
            chosen.map(|item| format!("{} {}", item["name"], item["server"]).replace('"', "")).collect();
        (chosen.join(","), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(chosen("UNRELATED", "x"), ("lab http://127.0.0.1:9".into(), String::new()));
    let (shown, said) = chosen("BERTH_HOME", elsewhere.to_str().expect("text"));
    assert_eq!(shown, format!("default {}", elsewhere.display()));
    assert!(said.contains("BERTH_HOME is set, so commands go to"), "{said}");
    let (shown, said) = chosen("BERTH_SERVER", "http://127.0.0.1:8");
    assert_eq!(shown, "");
    assert!(said.contains("BERTH_SERVER is set, so commands go to http://127.0.0.1:8"), "{said}");
}

#[test]
fn whoami_names_the_server() {
    let home = Home::new();
    let _fake = Fake::start(&home, &[route("GET /api/v1/whoami", json!({"user": "ada", "roles": []}))]);
    let ran = home.run("berth whoami");
    assert!(ran.stdout.contains("server:  http://127.0.0.1:"), "{ran:?}");
}

#[test]
fn the_chosen_project_is_that_of_one_server() {
    let routes = [
        route("GET /api/v1/projects", json!({"items": [project("team-a"), project("team-b")]})),
        route("GET /api/v1/projects/team-a", project("team-a")),
        route("GET /api/v1/projects/team-b", project("team-b")),
        route("GET /api/v1/workloads", json!({"items": []})),
    ];
    let (here, there) = (Home::new(), Home::new());
    let (own, other) = (Fake::start(&here, &routes), Fake::start(&there, &routes));
    let add = format!("berth context add lab --folder {}", there.server_folder().display());
    assert_eq!(here.run(&add).code, Some(0));
    assert_eq!(here.run("berth project set team-a").code, Some(0));
    assert_eq!(here.run("berth project set team-b --context lab").code, Some(0));
    let config = fs::read_to_string(here.path().join("config/berth/config.toml")).expect("is there");
    assert!(
        config.contains("project = \"team-a\"") && config.contains("projects.\"lab\" = \"team-b\""),
        "{config}"
    );
    here.run("berth list");
    here.run("berth list --context lab");
    assert!(own.asked().iter().any(|asked| asked.contains("project=team-a")), "{:?}", own.asked());
    assert!(other.asked().iter().any(|asked| asked.contains("project=team-b")), "{:?}", other.asked());
}

#[test]
fn several_nodes_are_cordoned_at_once_and_a_wrong_name_stops_none_of_the_others() {
    let home = Home::new();
    let fake = Fake::start(
        &home,
        &[
            route("GET /api/v1/nodes", json!({"items": [node("node1", "Ready"), node("node2", "Ready")]})),
            route("POST /api/v1/nodes/node1/cordon", node("node1", "Cordoned")),
            route("POST /api/v1/nodes/node2/cordon", node("node2", "Cordoned")),
        ],
    );
    let ran = home.run("berth node cordon node1 nod3 node2");
    assert_eq!(ran.code, Some(5), "{ran:?}");
    for words in ["node node1 is Cordoned now", "node node2 is Cordoned now", "there is no node \"nod3\""] {
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
    assert_eq!(home.run("berth node drain node1 ../x").code, Some(2));
    assert!(
        !fake.asked().iter().any(|asked| asked.contains("drain")),
        "nothing half done: {:?}",
        fake.asked()
    );
}

fn work() -> Vec<(&'static str, u16, String)> {
    vec![
        route(
            "GET /api/v1/workloads",
            json!({"items": [workload("team-a", "one"), workload("team-b", "two")]}),
        ),
        route("GET /api/v1/workloads/team-a/one", workload("team-a", "one")),
        route("DELETE /api/v1/workloads/team-a/one", workload("team-a", "one")),
        route("DELETE /api/v1/workloads/team-b/two", workload("team-b", "two")),
        route("GET /api/v1/projects/team-a", project("team-a")),
        route(
            "GET /api/v1/roles",
            json!({"items": [{"user": "bob", "role": "researcher", "scope": "project/team-a"}]}),
        ),
        ("DELETE /api/v1/projects/team-a", 204, String::new()),
        ("GET /api/v1/workloads/team-a/one/logs?rank=0", 200, "epoch 1\nepoch 2\n".into()),
        ("GET /api/v1/workloads/team-a/one/logs?rank=1", 200, "joined\nno end".into()),
    ]
}

#[test]
fn what_cannot_be_undone_asks_first() {
    let home = Home::new();
    let fake = Fake::start(&home, &work());
    let deleted = || fake.asked().iter().filter(|asked| asked.starts_with("DELETE")).count();
    for line in ["berth delete -A", "berth project delete team-a"] {
        let ran = home.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains("nothing was done") && ran.stderr.contains("--yes"), "{line}: {ran:?}");
    }
    assert_eq!(deleted(), 0);
    let mut person = Person::sits_at(&home, (200, 24), "berth project delete team-a");
    person.sees("One role in it is revoked. Finished workloads stay in the history");
    person.types("n\r");
    assert_eq!(person.sees_the_end().1, Some(1));
    assert_eq!(deleted(), 0);
    let mut person = Person::sits_at(&home, (200, 24), "berth delete -A");
    person.sees("Delete 2 workloads of all projects? [y/N]");
    person.types("y\r");
    assert_eq!(person.sees_the_end().1, Some(0));
    assert_eq!(deleted(), 2);
    assert_eq!(home.run("berth project delete team-a --yes").code, Some(0));
    assert_eq!(deleted(), 3);
    assert_eq!(home.run("berth delete -A one").code, Some(2), "all, or some");
}

#[test]
fn logs_of_all_workers_say_who_printed_each_line() {
    let home = Home::new();
    let _fake = Fake::start(&home, &work());
    let ran = home.run("berth logs team-a/one --all");
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "[0] epoch 1\n[0] epoch 2\n[1] joined\n[1] no end\n"),
        "{ran:?}"
    );
    assert_eq!(home.run("berth logs team-a/one --all --rank 1").code, Some(2));
}

#[test]
fn tables_of_events_leave_progress_out_and_programs_get_everything() {
    let home = Home::new();
    let event = |seq: u64, kind: &str| json!({"seq": seq, "at": "2026-11-17T08:00:01.000Z", "kind": kind, "level": "normal", "message": format!("m{seq}")});
    let items = [event(1, "started"), event(2, "progressed"), event(3, "checkpointed"), event(4, "evicted")];
    let _fake = Fake::start(&home, &[route("GET /api/v1/events", json!({"items": items, "cursor": 4}))]);
    let ran = home.run("berth events --no-headers");
    let kinds = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
    };
    assert_eq!(kinds(&ran.stdout), ["started", "evicted"], "{ran:?}");
    assert!(
        ran.stderr.contains("2 reports of progress and checkpoints are left out; `berth events --all`"),
        "{ran:?}"
    );
    assert_eq!(kinds(&home.run("berth events --no-headers --all").stdout).len(), 4);
    let json: Value = serde_json::from_str(&home.run("berth events --json").stdout).expect("JSON");
    assert_eq!(json["items"].as_array().map(Vec::len), Some(4));
}

#[test]
fn top_alone_shows_workloads() {
    let home = Home::new();
    let cluster = json!({"version": "0.1.0", "mode": "embedded", "folder": "/x", "started_at": "2026-11-17T08:00:00.000Z",
        "nodes": 1, "nodes_ready": 1, "gpus": 8, "gpus_allocated": 1, "running_count": 1, "waiting_count": 0, "projects": 1,
        "declared": true, "cursor": 1});
    let mut routes = work();
    routes.push(route("GET /api/v1/cluster", cluster));
    routes.push(route("GET /api/v1/nodes", json!({"items": [node("node1", "Ready")]})));
    let _fake = Fake::start(&home, &routes);
    let ran = home.run("berth top --once");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("one") && ran.stdout.contains("1 of 8 GPUs allocated"), "{ran:?}");
    assert!(home.run("berth top node --once").stdout.contains("node1"));
}

#[test]
fn a_negative_amount_is_told_what_it_must_be() {
    let home = Home::new();
    let ran = home.run("berth project create team-a --quota -1");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("must be 0 or more"), "{ran:?}");
}
