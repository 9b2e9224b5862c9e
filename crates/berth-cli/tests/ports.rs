//! Ports of workloads through a running server: a real program behind them, and a real JupyterLab.

mod support;

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};
use support::{
    live::{Server, jupyter, until},
    wire::{Answer, ask_at, socket},
};

/// Says what it was asked, in its own words; listens where it is told to.
const ECHO: &str = r#"
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(302 if self.path == "/away" else 200)
        if self.path == "/away": self.send_header("location", "/home")
        self.send_header("set-cookie", "berth-session=evil; Path=/")
        self.send_header("set-cookie", "own=1; Path=/")
        self.send_header("service-worker-allowed", "/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(str(len(body)).encode() + b" from " + os.environ["RANK"].encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// Where workloads are reached: another address than that of the API, so that their scripts are strangers to the dashboard.
fn ports_address(server: &Server, place: &str) -> String {
    let url = server.workload(place)["urls"][0].as_str().expect("an address").to_owned();
    let end = url["http://".len()..].find('/').expect("a path") + "http://".len();
    let address = url[..end].to_owned();
    assert_ne!(address, server.endpoint().0);
    address
}

/// One request over a connection of its own, to the address of the API.
fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    ask_at(&server.endpoint().0, method, path, headers, body)
}

fn bearer(server: &Server) -> String {
    format!("Bearer {}", server.endpoint().1.trim())
}

/// A forwarded port, until it is dropped.
struct Forward {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    local: String,
}

impl Forward {
    fn start(server: &Server, place: &str, port: u16) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["port-forward", place, &format!("0:{port}")])
            .env_clear()
            .envs(server.home.environment())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let first = lines.next().expect("it says where").expect("a line");
        assert!(first.contains(&format!("leads to port {port} of {place}")), "{first}");
        let local = first.split(' ').nth(1).expect("an address").to_owned();
        Self { child, lines, local }
    }

    /// What it says of a connection.
    fn said(&mut self) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find(|line| !line.contains("ctrl-c")).expect("it says something")
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// With the token of the installation.
fn trusted(server: &Server, path: &str) -> Answer {
    ask(server, "GET", path, &[("authorization", &bearer(server))], "")
}

fn submit(server: &Server, line: &str, words: &[&str]) {
    let mut all: Vec<&str> = line.split_whitespace().collect();
    all.push("--");
    all.extend(words);
    let ran = server.home.run_words(&all);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn small() -> Server {
    Server::start("--nodes 1xdgx1 --project team-a=4 --project team-b=4 --ping-every 500ms")
}

#[test]
fn a_port_is_reached_by_its_paths_and_only_with_leave() {
    let server = small();
    submit(&server, "berth submit web -p team-a -g 1 --port 9876", &["python3", "-c", ECHO]);
    let shown = server.until_status("team-a/web", "Running");
    let address = ports_address(&server, "team-a/web");
    assert_eq!(shown["urls"], json!([format!("{address}/team-a/web/")]), "{shown}");
    assert!(server.run("runai list -A").contains(&format!("{address}/team-a/web/")));
    // Who asks before it listens waits for a while; here until it surely does.
    until("it listens", || trusted(&server, "/team-a/web/").status == 200);
    let answer = trusted(&server, "/team-a/web/some/page?x=1");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.starts_with("/some/page?x=1\n"), "{answer:?}");
    for path in ["/web-9876/x", "/team-a-web/x", "/team-a/web-9876/x"] {
        assert!(trusted(&server, path).body.starts_with("/x\n"), "{path}");
    }
    assert_eq!(trusted(&server, "/team-a/web").all("location"), ["/team-a/web/"]);
    assert_eq!(trusted(&server, "/team-a/web/away").all("location"), ["/team-a/web/home"]);
    // Nobody, a stranger, and who knows another workload.
    assert_eq!(ask(&server, "GET", "/team-a/web/", &[], "").status, 401);
    assert_eq!(ask(&server, "GET", "/team-a/web/", &[("authorization", "Bearer wrong")], "").status, 401);
    let page = ask(&server, "GET", "/team-a/web/", &[("accept", "text/html")], "");
    assert!(page.status == 401 && page.body.contains("<code>berth url NAME</code>"), "{page:?}");
    // Nothing of the platform reaches the workload, and it sets nothing beyond its path.
    let headers = [
        ("authorization", bearer(&server)),
        ("cookie", "berth-session=x; mine=1".into()),
        ("berth-user", "root".into()),
        ("x-forwarded-for", "1.2.3.4".into()),
    ];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = ask(&server, "GET", "/team-a/web/", &headers, "");
    let seen = answer.body.to_ascii_lowercase();
    for word in ["authorization", "berth-", "1.2.3.4"] {
        assert!(!seen.contains(word), "{word}: {seen}");
    }
    assert!(seen.contains("cookie: mine=1") && seen.contains("x-forwarded-prefix: /team-a/web"), "{seen}");
    assert_eq!(answer.all("set-cookie"), ["own=1; Path=/team-a/web"]);
    assert_eq!(answer.all("service-worker-allowed"), [""; 0]);
    // A body larger than any request of the API, through the same door.
    let large = "x".repeat(3 << 20);
    let answer = ask(&server, "POST", "/team-a/web/", &[("authorization", &bearer(&server))], &large);
    assert!(answer.status == 200 && answer.body.contains("3145728 from 0"), "{answer:?}");
}

fn visit_api(server: &Server, path: &str, cookie: &str) -> Answer {
    ask(server, "GET", path, &[("cookie", cookie)], "")
}

#[test]
fn a_link_is_good_once_for_one_workload_and_one_origin() {
    let server = small();
    submit(&server, "berth submit web -p team-a -g 1 --port 9876", &["python3", "-c", ECHO]);
    submit(&server, "berth submit other -p team-b -g 1 --port 9876", &["python3", "-c", ECHO]);
    server.until_status("team-a/web", "Running");
    server.until_status("team-b/other", "Running");
    for path in ["/team-a/web/", "/team-b/other/"] {
        until("it listens", || trusted(&server, path).status == 200);
    }
    let link = server.run("berth url web -p team-a");
    let address = ports_address(&server, "team-a/web");
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        ask_at(&address, method, path, headers, body)
    };
    let path = link.trim().strip_prefix(&address).expect("the server's own address").to_owned();
    let opened = ask("GET", &path, &[], "");
    assert_eq!((opened.status, opened.all("location")), (303, vec!["/team-a/web/"]), "{opened:?}");
    let cookie = opened.all("set-cookie")[0].to_owned();
    assert!(cookie.contains("; Path=/team-a/web; HttpOnly; SameSite=Lax"), "{cookie}");
    assert_eq!(ask("GET", &path, &[], "").status, 403, "it was used");
    let cookie = cookie.split(';').next().expect("a pair");
    let visit = |path: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("cookie", cookie)];
        headers.extend(more);
        ask("GET", path, &headers, "")
    };
    let answer = visit("/team-a/web/", &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.body.to_ascii_lowercase().contains("cookie"), "{answer:?}");
    let own = visit("/team-a/web/", &[("authorization", "Bearer of-the-workload")]);
    assert!(own.body.contains("Bearer of-the-workload"), "what is not ours passes: {own:?}");
    assert_eq!(visit("/team-b/other/", &[]).status, 403);
    for path in ["/api/v1/workloads", "/api/v1/workloads/team-a/web", "/metrics", "/team-a/web/"] {
        let status = visit_api(&server, path, cookie).status;
        assert_eq!(status, 401, "a link opens nothing of the API: {path}");
    }
    assert_eq!(visit("/api/v1/workloads", &[]).status, 404, "the API is not at this address");
    assert_eq!(visit("/team-a/web/", &[("origin", "http://evil.example")]).status, 403);
    let forged = cookie.replace('=', "=9");
    assert_eq!(ask("GET", "/team-a/web/", &[("cookie", &forged)], "").status, 401);
    let shadowed = format!("berth-session=shadow; {cookie}");
    assert_eq!(ask("GET", "/team-a/web/", &[("cookie", &shadowed)], "").status, 200);
    // Both asked for one port: each is led to its own program.
    assert!(trusted(&server, "/nb-9876/").status == 404);
    let ambiguous = trusted(&server, "/team-b/other/");
    assert_eq!(ambiguous.status, 200, "{ambiguous:?}");
}

#[test]
fn a_port_nobody_listens_on_or_somebody_else_does_is_said_to_be_so() {
    let server = small();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port();
    submit(&server, "berth submit deaf -p team-a -g 1 --port 9555", &["sleep", "1000"]);
    server.until_status("team-a/deaf", "Running");
    let page = ask(
        &server,
        "GET",
        "/team-a/deaf/",
        &[("accept", "text/html"), ("authorization", &bearer(&server))],
        "",
    );
    assert_eq!(page.status, 502, "{page:?}");
    assert!(page.body.contains("nobody listens on port 9555 of worker 0 of team-a/deaf"), "{page:?}");
    assert_eq!(page.all("refresh"), ["2"], "a browser looks again: it may still be starting");
    let curl = |port: u16| {
        let mut forward = Forward::start(&server, "team-a/deaf", port);
        let mut stream = TcpStream::connect(&forward.local).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        let mut nothing = Vec::new();
        let _ = stream.read_to_end(&mut nothing);
        assert!(nothing.is_empty());
        forward.said()
    };
    assert!(curl(9555).contains("nobody listens on port 9555"));
    assert!(
        curl(port).contains("belongs to somebody else than team-a/deaf"),
        "another's program is not reached"
    );
}

#[test]
fn a_forwarded_port_carries_bytes_both_ways() {
    let server = small();
    submit(&server, "berth submit web -p team-a -g 1 --port 9876", &["python3", "-c", ECHO]);
    server.until_status("team-a/web", "Running");
    until("it listens", || trusted(&server, "/team-a/web/").status == 200);
    let forward = Forward::start(&server, "team-a/web", 9876);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&forward.local).expect("it listens");
        stream.write_all(b"GET /direct HTTP/1.0\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.contains("/direct\n"), "{answer}");
    }
}

#[test]
fn a_real_jupyterlab_computes_behind_its_link() {
    if !jupyter() {
        return;
    }
    let server = small();
    let printed = server.run("berth notebook nb -p team-a -g 0.5");
    let link = printed.lines().last().expect("a link").to_owned();
    let address = ports_address(&server, "team-a/nb");
    let path = link.strip_prefix(&address).expect("the address of workloads");
    let opened = ask_at(&address, "GET", path, &[], "");
    assert_eq!(opened.status, 303, "{opened:?}");
    let cookie = opened.all("set-cookie")[0].split(';').next().expect("a pair").to_owned();
    let visit = |path: &str| ask_at(&address, "GET", path, &[("cookie", &cookie)], "");
    let lab = visit("/team-a/nb/lab");
    assert!(lab.status == 200 && lab.body.contains("JupyterLab"), "{} {}", lab.status, lab.body);
    let status = trusted(&server, "/team-a/nb/api/status");
    let status: Value = serde_json::from_str(status.body.trim()).expect("is JSON");
    assert_eq!(status["kernels"], 0, "{status}");
    assert_eq!(ask_at(&address, "GET", "/team-a/nb/api/status", &[], "").status, 401);
    let direct = server.workload("team-a/nb");
    let started = ask_at(&address, "POST", "/team-a/nb/api/kernels", &[("cookie", &cookie)], "{}");
    assert_eq!(started.status, 201, "{started:?} {direct}");
    let kernel: Value = serde_json::from_str(started.body.trim()).expect("is JSON");
    let kernel = kernel["id"].as_str().expect("an id");
    let channels = format!("/team-a/nb/api/kernels/{kernel}/channels");
    let refused = socket(&address, &channels, &[]).err().expect("nobody is let in");
    assert_eq!(refused.status, 401, "{refused:?}");
    let foreign = [("cookie", cookie.as_str()), ("origin", "http://evil.example")];
    let refused = socket(&address, &channels, &foreign).err().expect("another origin is not let in");
    assert_eq!(refused.status, 403, "{refused:?}");
    let mut socket = socket(&address, &channels, &[("cookie", &cookie)]).expect("a socket");
    let request = json!({"header": {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3",
        "date": "2026-01-01T00:00:00Z"}, "parent_header": {}, "metadata": {}, "channel": "shell",
        "content": {"code": "print(6 * 7)", "silent": false, "store_history": false, "user_expressions": {},
            "allow_stdin": false, "stop_on_error": true}});
    socket.say(&request.to_string());
    let mut heard = String::new();
    until("the kernel computes", || {
        heard = socket.hear();
        heard.contains("\"text\": \"42\\n\"") || heard.contains("\"text\":\"42\\n\"")
    });
    // Its own token is not in the list of processes, and its port is closed to who comes beside the server.
    let listed = Command::new("ps").args(["-eo", "args"]).output().expect("ps");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("base_url=/team-a/nb/"), "it runs");
    assert!(!listed.lines().any(|line| line.contains("jupyter-lab") && line.contains("token=")), "{listed}");
}
