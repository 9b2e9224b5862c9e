//! What the API answers: to good requests, to bad ones, and to the same one twice.

mod support;

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};
use support::Server;

/// A gang that no cluster of two nodes can hold, so that it waits.
fn waiting(name: &str) -> String {
    json!({"name": name, "project": "team-a", "image": "bash", "workers": 50, "gpus": 8}).to_string()
}

#[test]
fn bad_requests_have_their_problem_and_change_nothing() {
    let server = Server::start();
    let before = server.call("GET", "/api/v1/cluster", "").json()["cursor"].clone();
    let long = "x".repeat(2 << 20);
    for (method, path, body, status, code) in [
        ("POST", "/api/v1/workloads", "{", 400, "malformed"),
        ("POST", "/api/v1/workloads", "", 400, "malformed"),
        ("POST", "/api/v1/workloads", "[]", 400, "malformed"),
        ("POST", "/api/v1/workloads", r#"{"project":"team-a","image":"x","gpu":1}"#, 400, "malformed"),
        ("POST", "/api/v1/workloads", r#"{"project":"team-a","image":"x","gpus":-1}"#, 400, "malformed"),
        (
            "POST",
            "/api/v1/workloads",
            r#"{"project":"team-a","image":"x","gpus":0.1234567}"#,
            400,
            "malformed",
        ),
        ("POST", "/api/v1/workloads", r#"{"project":"taem-a","image":"x"}"#, 404, "not-found"),
        (
            "POST",
            "/api/v1/workloads",
            r#"{"project":"team-a","image":"x","name":"../../etc"}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/api/v1/workloads",
            r#"{"project":"team-a","image":"bash","run_as":"no-such-user"}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/api/v1/workloads?dry_run=true",
            r#"{"project":"team-a","image":"bash","run_as":"\u0000"}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/api/v1/workloads",
            r#"{"project":"team-a","image":"bash","privileged":true}"#,
            422,
            "invalid",
        ),
        ("POST", "/api/v1/workloads", &long, 413, "too-large"),
        ("POST", "/api/v1/projects", r#"{"quota":1}"#, 422, "invalid"),
        ("POST", "/api/v1/projects", r#"{"name":"team-a"}"#, 409, "exists"),
        ("POST", "/api/v1/projects", r#"{"name":"x","department":"nowhere"}"#, 404, "not-found"),
        ("POST", "/api/v1/projects", r#"{"name":"x","quota":100000000}"#, 400, "malformed"),
        ("PATCH", "/api/v1/projects/team-a", r#"{"name":"team-z"}"#, 422, "invalid"),
        ("PATCH", "/api/v1/projects/nobody", "{}", 404, "not-found"),
        ("PATCH", "/api/v1/projects/team-a", r#"{"unset":["everything"]}"#, 422, "invalid"),
        ("DELETE", "/api/v1/projects/nobody", "", 404, "not-found"),
        ("DELETE", "/api/v1/departments/nobody", "", 404, "not-found"),
        ("GET", "/api/v1/workloads/team-a/nothing", "", 404, "not-found"),
        ("GET", "/api/v1/workloads/abc", "", 422, "invalid"),
        ("GET", "/api/v1/workloads?limit=x", "", 400, "malformed"),
        ("GET", "/api/v1/workloads?colour=red", "", 400, "malformed"),
        ("GET", "/api/v1/workloads?cursor=zzz", "", 422, "invalid"),
        ("GET", "/api/v1/workloads?project=nobody", "", 404, "not-found"),
        ("GET", "/api/v1/workloads/team-a/nothing/logs", "", 404, "not-found"),
        ("POST", "/api/v1/workloads/team-a/nothing/suspend", "", 404, "not-found"),
        ("POST", "/api/v1/workloads/team-a/nothing/link?port=web", "", 400, "malformed"),
        ("GET", "/api/v1/audit?before=yesterday", "", 400, "malformed"),
        ("POST", "/api/v1/nodes/node9/cordon", "", 404, "not-found"),
        ("POST", "/api/v1/nodes/node1/explode", "", 404, "not-found"),
        ("POST", "/api/v1/volumes", r#"{"name":"../x"}"#, 422, "invalid"),
        ("DELETE", "/api/v1/volumes/nothing", "", 404, "not-found"),
        ("POST", "/api/v1/backup", r#"{"path":"relative.berth"}"#, 422, "invalid"),
        ("POST", "/api/v1/backup", r#"{"path":"/proc/self/stat"}"#, 409, "exists"),
        ("GET", "/api/v1/events/stream?after=999999", "", 410, "gone"),
        ("GET", "/api/v1/series/points?name=x&from=yesterday", "", 400, "malformed"),
        ("PUT", "/api/v1/projects", "{}", 405, "method-not-allowed"),
    ] {
        let answer = server.call(method, path, body);
        let short = &body[..body.len().min(80)];
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{method} {path} {short}: {}",
            answer.body
        );
        assert!(answer.headers.iter().any(|header| header == "berth-version: 0.1.0"), "{:?}", answer.headers);
    }
    let after = server.call("GET", "/api/v1/cluster", "").json()["cursor"].clone();
    assert_eq!(before, after, "nothing was written");
}

#[test]
fn what_is_not_http_does_no_harm() {
    let server = Server::start();
    for noise in
        [&b"\x16\x03\x01\x02\x00"[..], b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET /\r\n\r\n"]
    {
        let _ = server.say(noise);
    }
    let mut half = TcpStream::connect(server.address()).expect("it listens");
    half.write_all(b"POST /api/v1/workloads HTTP/1.1\r\ncontent-length: 100\r\n\r\n{").expect("is sent");
    assert_eq!(server.call("GET", "/healthz", "").status, 200);
}

#[test]
fn the_same_request_twice_is_done_once() {
    let server = Server::start();
    let token = format!("Bearer {}", server.token());
    let with_key = |key: &str, body: &str| {
        let headers = [("authorization", token.as_str()), ("idempotency-key", key)];
        server.call_with("POST", "/api/v1/workloads", body, &headers)
    };
    let first = with_key("k1", &waiting("a"));
    assert_eq!(first.status, 201, "{}", first.body);
    let second = with_key("k1", &waiting("a"));
    assert_eq!((second.status, &second.body), (201, &first.body));
    let other = with_key("k1", &waiting("b"));
    assert_eq!((other.status, other.code().as_str()), (409, "key-reused"));
    let without = server.call("POST", "/api/v1/workloads", &waiting("a"));
    assert_eq!((without.status, without.code().as_str()), (409, "exists"));
    let list = server.call("GET", "/api/v1/workloads", "").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let long = with_key(&"k".repeat(300), &waiting("c"));
    assert_eq!(long.status, 422);
}

#[test]
fn pages_go_through_unfinished_and_finished_without_a_gap() {
    let server = Server::start();
    for number in 0..25 {
        assert_eq!(server.call("POST", "/api/v1/workloads", &waiting(&format!("w{number}"))).status, 201);
    }
    for number in 0..10 {
        assert_eq!(server.call("DELETE", &format!("/api/v1/workloads/team-a/w{number}"), "").status, 200);
    }
    let walk = |filter: &str| {
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.call("GET", &format!("/api/v1/workloads?limit=4{filter}{cursor}"), "").json();
            let items = page["items"].as_array().expect("items");
            assert!(items.len() <= 4);
            names.extend(items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return names,
            }
        }
    };
    let unfinished: Vec<String> = (10..25).map(|number| format!("w{number}")).collect();
    assert_eq!(walk(""), unfinished, "deleted ones are not listed");
    let mut deleted = walk("&status=Deleted");
    deleted.sort();
    assert_eq!(deleted, (0..10).map(|number| format!("w{number}")).collect::<Vec<_>>());
    assert_eq!(walk("&project=team-b"), Vec::<String>::new());
    assert_eq!(walk("&name=w12"), ["w12"]);
    let hidden = server.call("GET", "/api/v1/workloads/team-a/w3", "");
    assert_eq!(hidden.json()["status"], "Deleted", "it is still known");
}

#[test]
fn a_stream_resumes_where_it_was_left() {
    let server = Server::start();
    server.call("POST", "/api/v1/workloads", &waiting("a"));
    let cursor = server.call("GET", "/api/v1/cluster", "").json()["cursor"].as_u64().expect("a number");
    let follow = |after: u64| {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        let request = format!(
            "GET /api/v1/events/stream?objects=true HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nlast-event-id: {after}\r\n\r\n",
            server.token()
        );
        stream.write_all(request.as_bytes()).expect("is sent");
        BufReader::new(stream)
    };
    let next = |stream: &mut BufReader<TcpStream>| loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("goes on") > 0);
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).expect("is an event");
        }
    };
    let mut live = follow(cursor);
    server.call("POST", "/api/v1/workloads", &waiting("b"));
    let event = next(&mut live);
    assert_eq!((event["kind"].as_str(), event["workload"].as_str()), (Some("submitted"), Some("team-a/b")));
    assert_eq!(event["now"]["status"], "Pending");
    server.call("DELETE", "/api/v1/workloads/team-a/b", "");
    assert_eq!(next(&mut live)["kind"], "stopped");
    // From the beginning, everything comes again, in order and without a gap.
    let mut again = follow(0);
    let mut last = 0;
    while last < cursor {
        let seq = next(&mut again)["seq"].as_u64().expect("a number");
        assert_eq!(seq, last + 1);
        last = seq;
    }
}

#[test]
fn a_backup_taken_while_it_runs_is_restored_elsewhere() {
    let mut server = Server::start();
    server.call("POST", "/api/v1/workloads", &waiting("a"));
    let file = server.folder.path().join("copy.berth");
    let body = json!({ "path": file }).to_string();
    let backup = server.call("POST", "/api/v1/backup", &body);
    assert_eq!(backup.status, 201, "{}", backup.body);
    server.call("POST", "/api/v1/workloads", &waiting("later"));
    let elsewhere = Server::start();
    let place = elsewhere.folder.path().join("other");
    berth_store::restore(&file, &place.join("store")).expect("is restored");
    server.down();
    let berth_server::Written { state, unfinished, seq } =
        berth_server::read_state(&berth_server::Folder::at(&place), &Default::default()).expect("is read");
    assert_eq!(seq, backup.json()["seq"].as_u64().expect("a number"));
    let names: Vec<&str> = state.workloads.values().map(|workload| workload.spec.name.as_str()).collect();
    assert_eq!((names, unfinished), (vec!["a"], 1));
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let mut server = Server::start();
    server.call("POST", "/api/v1/workloads", &waiting("a"));
    server.call("POST", "/api/v1/volumes", r#"{"name":"data"}"#);
    server.call("POST", "/api/v1/departments", r#"{"name":"research","quota":10}"#);
    server.call("PATCH", "/api/v1/projects/team-a", r#"{"department":"research","limit":6}"#);
    server.call("POST", "/api/v1/nodes/node2/cordon", "");
    let look = |server: &Server| {
        ["workloads/team-a/a", "volumes", "departments", "projects", "nodes"]
            .map(|path| server.call("GET", &format!("/api/v1/{path}"), "").body)
    };
    let before = look(&server);
    server.down();
    server.up(|_| {});
    assert_eq!(look(&server), before);
    assert!(before[4].contains("Cordoned"));
}

#[test]
fn a_full_disk_refuses_and_goes_on() {
    // The database may not grow: what is refused is not there, and what was there is.
    let mut server = Server::start();
    server.down();
    server.up(|config| config.store.file_bytes_max = Some(400 << 10));
    let mut accepted = Vec::new();
    let refused = (0..2_000).find_map(|number| {
        let name = format!("w{number}");
        let answer = server.call("POST", "/api/v1/workloads", &waiting(&name));
        if answer.status == 201 {
            accepted.push(name);
            return None;
        }
        Some(answer)
    });
    let refused = refused.expect("the disk is full at last");
    assert_eq!((refused.status, refused.code().as_str()), (507, "disk-full"), "{}", refused.body);
    assert_eq!(server.call("GET", "/readyz", "").status, 200);
    let list = server.call("GET", "/api/v1/workloads?limit=1000", "").json();
    let listed: Vec<String> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| item["name"].as_str().expect("a name").into())
        .collect();
    assert_eq!(listed, accepted);
    server.down();
    server.up(|_| {});
    assert_eq!(server.call("POST", "/api/v1/workloads", &waiting("room")).status, 201);
}
