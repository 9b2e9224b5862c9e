//! What somebody tries who has no leave, or who has some and wants more.

mod support;

use serde_json::json;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};
use support::{Answer, Server, read_answer};

/// A server that loses its patience soon.
fn hasty() -> Server {
    let mut server = Server::start();
    server.down();
    server.up(|config| config.patience = Duration::from_millis(500));
    server
}

/// Reads until the other side closes; how long that took.
fn closed_after(stream: &mut TcpStream) -> Duration {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut said = Vec::new();
    let read = stream.read_to_end(&mut said);
    assert!(!matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "it stays open");
    start.elapsed()
}

#[test]
fn who_asks_slowly_is_left_and_nobody_else_waits() {
    let server = hasty();
    let mut slow: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            let start =
                if number % 2 == 0 { "GET /api/v1/cluster HTTP/1.1\r\nhost: x\r\nx-slow: " } else { "" };
            stream.write_all(start.as_bytes()).expect("is sent");
            stream
        })
        .collect();
    assert_eq!(server.call("GET", "/api/v1/cluster", "").status, 200, "others are answered meanwhile");
    // One of them goes on a byte at a time, which wins no time.
    let mut dripping = slow.pop().expect("one of them");
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until && dripping.write_all(b"a").is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_left = Instant::now() < until;
    for stream in &mut slow {
        assert!(closed_after(stream) < Duration::from_secs(30));
    }
    assert!(is_left, "it was left while it dripped");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let server = hasty();
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    let head = format!(
        "POST /api/v1/workloads HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{",
        server.token()
    );
    stream.write_all(head.as_bytes()).expect("is sent");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let answer = read_answer(stream);
    assert_eq!((answer.status, answer.code().as_str()), (400, "malformed"), "{}", answer.body);
    assert!(answer.body.contains("did not come within"), "{}", answer.body);
}

#[test]
fn what_is_too_large_is_refused() {
    let server = Server::start();
    let long = "x".repeat(200 << 10);
    let many: String = (0..500).map(|number| format!("x-{number}: y\r\n")).collect();
    for (what, request) in [
        ("a long line", format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n")),
        ("a long header", format!("GET / HTTP/1.1\r\nhost: x\r\nx: {long}\r\n\r\n")),
        ("many headers", format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n")),
    ] {
        let status = server.say(request.as_bytes()).status;
        assert!([400, 414, 431].contains(&status), "{what}: {status}");
    }
    // The length is a lie in both directions, or not a number at all.
    let token = server.token();
    for (length, status) in [("99999999999999999999", 400), ("-1", 400), ("3000000", 413)] {
        let request = format!(
            "POST /api/v1/workloads HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{{}}"
        );
        assert_eq!(server.say(request.as_bytes()).status, status, "{length}");
    }
    let chunks = "10000\r\n".to_owned() + &"x".repeat(0x10000) + "\r\n";
    let endless = format!(
        "POST /api/v1/workloads HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ntransfer-encoding: chunked\r\n\r\n{}",
        chunks.repeat(64)
    );
    assert_eq!(server.say(endless.as_bytes()).status, 413);
    let deep =
        format!(r#"{{"project":"team-a","environment":{}1{}}}"#, r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    assert_eq!(server.call("POST", "/api/v1/workloads", &deep).status, 400);
    assert_eq!(server.call("GET", "/healthz", "").status, 200);
}

/// Ways to write a path that leads out of a folder, as names and as parts of a URL.
const OUT: [&str; 12] = [
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..\\..",
    "a\0b",
    "a\nb",
    "%2e%2e%2f",
    "....//",
    "-rf",
    "\u{202e}a",
];

fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn everything_in(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            found.insert(entry.path().display().to_string());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let server = Server::start();
    let outside = server.folder.path().parent().expect("a folder above").join("passwd");
    let before = everything_in(&server.folder.path().join("volumes"));
    for name in OUT {
        for (path, body) in [
            ("/api/v1/workloads", json!({"project": "team-a", "image": "bash", "name": name})),
            ("/api/v1/workloads", json!({"project": name, "image": "bash"})),
            ("/api/v1/projects", json!({"name": name, "quota": 1})),
            ("/api/v1/departments", json!({"name": name, "quota": 1})),
            ("/api/v1/volumes", json!({"name": name})),
            (
                "/api/v1/workloads",
                json!({"project": "team-a", "image": "bash", "volumes": [{"name": name, "target": "/data"}]}),
            ),
        ] {
            let answer = server.call("POST", path, &body.to_string());
            assert!(
                [400, 404, 422].contains(&answer.status),
                "{path} {name:?}: {} {}",
                answer.status,
                answer.body
            );
        }
        let name = escaped(name);
        for (method, path) in [
            ("GET", format!("/api/v1/workloads/team-a/{name}/logs")),
            ("GET", format!("/api/v1/workloads/{name}/{name}/logs?run=1")),
            ("GET", format!("/api/v1/workloads/{name}/job")),
            ("DELETE", format!("/api/v1/volumes/{name}")),
            ("DELETE", format!("/api/v1/projects/{name}")),
            ("POST", format!("/api/v1/nodes/{name}/cordon")),
            ("GET", format!("/{name}/{name}/")),
            ("GET", format!("/assets/{name}")),
        ] {
            let answer = server.call(method, &path, "");
            assert!(
                [400, 404, 422].contains(&answer.status),
                "{method} {path}: {} {}",
                answer.status,
                answer.body
            );
            assert!(!answer.body.contains("root:x:0"), "{path}");
        }
    }
    // A mount is a path, and must say where it leads.
    for (source, target) in
        [("/data/../etc", "/x"), ("relative", "/x"), ("/data", "../x"), ("/data", "/a/../../b")]
    {
        let body =
            json!({"project": "team-a", "image": "bash", "mounts": [{"source": source, "target": target}]});
        let answer = server.call("POST", "/api/v1/workloads", &body.to_string());
        assert_eq!(answer.status, 422, "{source} {target}: {}", answer.body);
    }
    assert!(!outside.exists());
    assert_eq!(everything_in(&server.folder.path().join("volumes")), before);
}

fn upgrade(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut all = vec![
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    all.extend(headers);
    server.call_with("GET", path, "", &all)
}

/// Whatever page a browser shows can make it send requests with its cookies, and open sockets, but add no header of its own.
#[test]
fn a_page_of_somebody_else_changes_nothing_and_opens_no_socket() {
    let server = Server::start();
    let signed_in =
        server.call_with("POST", "/api/v1/session", &format!(r#"{{"token":"{}"}}"#, server.token()), &[]);
    let set =
        signed_in.headers.iter().find_map(|header| header.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = set.split(';').next().expect("a value").to_owned();
    let key = signed_in.json()["key"].as_str().expect("a key").to_owned();
    let evil =
        [("cookie", cookie.as_str()), ("origin", "http://evil.example"), ("content-type", "text/plain")];
    let before = server.call("GET", "/api/v1/cluster", "").json()["cursor"].clone();
    for (method, path, body) in [
        ("POST", "/api/v1/workloads", r#"{"project":"team-a","image":"bash"}"#),
        ("POST", "/api/v1/shutdown", "{}"),
        ("DELETE", "/api/v1/projects/team-b", ""),
        ("POST", "/api/v1/tokens", r#"{"name":"mine"}"#),
        ("POST", "/api/v1/session/links", ""),
        ("GET", "/api/v1/workloads", ""),
    ] {
        let answer = server.call_with(method, path, body, &evil);
        assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body);
        let allows = answer.headers.iter().find(|header| header.starts_with("access-control-allow"));
        assert_eq!(allows, None, "no other page may read an answer");
    }
    let asks_first = [
        ("origin", "http://evil.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "berth-page"),
    ];
    let preflight = server.call_with("OPTIONS", "/api/v1/workloads", "", &asks_first);
    assert!(
        !preflight.headers.iter().any(|header| header.starts_with("access-control-allow")),
        "{preflight:?}"
    );
    for path in ["exec", "attach", "connect?port=80"] {
        let path = format!("/api/v1/workloads/team-a/job/{path}");
        assert_eq!(upgrade(&server, &path, &evil[..2]).status, 401, "{path}");
        // Its own page may, and is told that there is no such job.
        let own = [("cookie", cookie.as_str()), ("berth-page", key.as_str()), ("connection", "upgrade")];
        assert_ne!(upgrade(&server, &path, &own).status, 401, "{path}");
    }
    let after = server.call("GET", "/api/v1/cluster", "").json()["cursor"].clone();
    assert_eq!(before, after, "nothing was changed");
}

#[test]
fn a_request_that_could_be_read_in_two_ways_is_one_request_or_none() {
    let server = Server::start();
    let token = server.token();
    let hidden = format!(
        "DELETE /api/v1/projects/team-b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    for heads in [
        "content-length: 0\r\ncontent-length: 5\r\n".to_owned(),
        "content-length: 5, 6\r\n".to_owned(),
        format!("content-length: {}\r\ntransfer-encoding: identity\r\n", hidden.len()),
        "transfer-encoding: chunked, identity\r\n".to_owned(),
        "transfer-encoding : chunked\r\n".to_owned(),
        " host: y\r\n".to_owned(),
    ] {
        let request = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{heads}\r\n{hidden}");
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        assert!(said.starts_with("HTTP/1.1 4"), "{heads:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{heads:?}: {said}");
    }
    assert_eq!(server.call("GET", "/api/v1/projects/team-b", "").status, 200, "it is still there");
}
