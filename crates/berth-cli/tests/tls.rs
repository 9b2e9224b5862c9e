//! A server that speaks TLS: everything works over it, whoever does not trust it is told what to do, and nothing is spoken plainly
//! to other machines by accident.

mod support;

use berth_tls::{Connector, Trust};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};
use support::{
    Home, Ran,
    live::{Server, until},
    terminal::Person,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers requests with what it was asked, and echoes what comes over a connection that was switched.
const ECHO: &str = r#"
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("upgrade"):
            self.send_response(101); self.send_header("upgrade", "echo"); self.send_header("connection", "upgrade"); self.end_headers()
            while True:
                said = self.connection.recv(100)
                if not said: return
                self.connection.sendall(said.upper())
        body = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

fn server() -> Server {
    Server::start("--tls-generate --nodes 1xdgx1 --project team-a=4 --ping-every 200ms")
}

fn certificate(server: &Server) -> PathBuf {
    server.home.server_folder().join("tls/certificate.pem")
}

/// A person of another home, with a token in a file.
struct Elsewhere {
    home: Home,
    address: String,
    token: PathBuf,
}

impl Elsewhere {
    fn of(server: &Server) -> Self {
        let (address, token) = server.endpoint();
        let home = Home::new();
        let path = home.path().join("token");
        fs::write(&path, token).expect("is written");
        Self { home, address, token: path }
    }

    fn login(&self, options: &str) -> Ran {
        let token = self.token.display();
        self.home.run(&format!("berth login {} --token-file {token} {options}", self.address))
    }
}

/// One request over TLS, with the certificate of the server as its authority; what comes back until the end, or until a text.
fn over_tls(server: &Server, url: &str, request: &str, until: &str) -> String {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let authority = url.trim_start_matches("https://").split('/').next().expect("an address").to_owned();
        let stream = tokio::net::TcpStream::connect(&authority).await.expect("it listens");
        let trust = Trust::of_file(&certificate(server)).expect("is read");
        let host = authority.rsplit_once(':').expect("a port").0;
        let connector = Connector::new(&trust).expect("is understood");
        let mut stream = connector.connect(host, stream).await.expect("it is trusted");
        stream.write_all(request.replace("HOST", &authority).as_bytes()).await.expect("is sent");
        let (mut answer, mut buffer) = (String::new(), [0; 1024]);
        while until.is_empty() || !answer.contains(until) {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => answer.push_str(&String::from_utf8_lossy(&buffer[..count])),
            }
        }
        answer
    })
}

#[test]
fn everything_works_over_tls() {
    let server = server();
    assert!(server.endpoint().0.starts_with("https://127.0.0.1:"), "{:?}", server.endpoint());
    // Commands on this machine find it by its folder, and know its certificate by that.
    let words = [
        "berth", "submit", "echo", "-p", "team-a", "-g", "1", "--port", "28433", "--", "python3", "-c", ECHO,
    ];
    assert_eq!(server.home.run_words(&words).code, Some(0));
    server.until_status("team-a/echo", "Running");
    let post = "curl -s -X POST -H \"Authorization: Bearer $BERTH_REPORT_TOKEN\" -d '{\"percent\": 70}' $BERTH_REPORT_URL/report; \
         echo told; sleep 1000";
    let words = ["berth", "submit", "posts", "-p", "team-a", "-g", "1", "--", "sh", "-c", post];
    assert_eq!(server.home.run_words(&words).code, Some(0));
    until("a workload reports", || server.workload("team-a/posts")["progress"]["percent"] == 70);
    until("its log is read", || server.run("berth logs team-a/posts").contains("told"));
    let exec = server.home.run_words(&["berth", "exec", "team-a/echo", "--", "sh", "-c", "exit 7"]);
    assert_eq!(exec.code, Some(7), "{exec:?}");
    let mut person = Person::sits_at(&server.home, (80, 24), "berth bash team-a/echo");
    person.types("echo $((6*7))-here; exit 3\n");
    person.sees("42-here");
    assert_eq!(person.sees_the_end().1, Some(3));

    let mut watch = Watch::start(&server.home, "berth events --follow");
    server.run("berth project create team-z --quota 1");
    watch.sees("team-z");

    let url = server.workload("team-a/echo")["urls"][0].as_str().expect("an address").to_owned();
    assert!(url.starts_with("https://"), "{url}");
    let bearer = format!("authorization: Bearer {}\r\n", server.endpoint().1.trim());
    let request = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: HOST\r\n{more}\r\n");
    let path = "/team-a/echo/some";
    let answer = over_tls(&server, &url, &request(path, &format!("{bearer}connection: close\r\n")), "");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("/some\n"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("x-forwarded-proto: https"), "{answer}");
    let switch = format!("{bearer}connection: upgrade\r\nupgrade: echo\r\n");
    let switched = over_tls(&server, &url, &(request(path, &switch) + "spoken"), "SPOKEN");
    assert!(switched.starts_with("HTTP/1.1 101") && switched.ends_with("SPOKEN"), "{switched}");

    let forward = Watch::start(&server.home, "berth port-forward team-a/echo 0:28433");
    let local = forward.first.split(' ').nth(1).expect("an address").to_owned();
    let mut stream = TcpStream::connect(local).expect("it listens");
    stream.write_all(b"GET /forwarded HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("/forwarded\n"), "{answer}");

    // The dashboard: its page, and a cookie that is for TLS only; the same for the link to a port.
    let link = server.run("berth dashboard");
    assert!(link.starts_with("https://"), "{link}");
    let code = link.trim().split_once("#code=").expect("a code").1.to_owned();
    let close = "connection: close\r\n";
    let page = over_tls(&server, &link, &request("/", close), "");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("content-security-policy"), "{page}");
    let body = format!(r#"{{"code":"{code}"}}"#);
    let sign_in = format!(
        "POST /api/v1/session HTTP/1.1\r\nhost: HOST\r\n{close}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let signed_in = over_tls(&server, &link, &sign_in, "").to_ascii_lowercase();
    let cookie = signed_in.lines().find(|line| line.starts_with("set-cookie")).expect("a cookie");
    assert!(signed_in.starts_with("http/1.1 201") && cookie.ends_with("; secure"), "{signed_in}");
    let link = server.run("berth url team-a/echo");
    let path = &link.trim()[link.match_indices('/').nth(2).expect("a path").0..];
    let entered = over_tls(&server, &link, &request(path, close), "").to_ascii_lowercase();
    let cookie = entered.lines().find(|line| line.starts_with("set-cookie")).expect("a cookie");
    assert!(entered.starts_with("http/1.1 303") && cookie.ends_with("; secure"), "{entered}");

    // Where workloads report nobody else is let in.
    let environment = server.run("berth exec team-a/echo -- printenv BERTH_REPORT_URL");
    let reports = environment.trim().trim_start_matches("http://").trim_end_matches("/api/v1");
    let mut stream = TcpStream::connect(reports).expect("it listens");
    let request = format!("GET /api/v1/cluster HTTP/1.1\r\nhost: x\r\n{bearer}{close}\r\n");
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

/// A command that goes on, and what it prints; ended with the test.
struct Watch {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    first: String,
}

impl Watch {
    /// Starts it, and waits for its first line.
    fn start(home: &Home, line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = home.command(&words);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        let (sender, lines) = std::sync::mpsc::channel();
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        drop(sender);
        let mut lines: Box<dyn Iterator<Item = String>> = Box::new(lines.into_iter());
        let first = lines.next().unwrap_or_default();
        Self { child, lines, first }
    }

    fn sees(&mut self, text: &str) {
        let first = std::mem::take(&mut self.first);
        assert!(first.contains(text) || self.lines.any(|line| line.contains(text)), "never said: {text}");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_does_not_know_the_certificate_is_told_what_to_do_before_a_token_is_sent() {
    let server = server();
    let file: Value = serde_json::from_str(
        &fs::read_to_string(server.home.server_folder().join("server.json")).expect("is there"),
    )
    .expect("is JSON");
    let fingerprint = file["fingerprint"].as_str().expect("it speaks TLS").to_owned();
    assert!(server.log().contains(&fingerprint), "{}", server.log());
    let mode =
        fs::metadata(certificate(&server).with_file_name("key.pem")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let elsewhere = Elsewhere::of(&server);
    let refused = elsewhere.login("");
    assert_eq!(refused.code, Some(6), "{refused:?}");
    for words in
        ["nobody who is trusted here signed it", &format!("--trust-fingerprint {fingerprint}"), "--ca-file"]
    {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    let wrong = format!("SHA256:{}", "0".repeat(64));
    let refused = elsewhere.login(&format!("--trust-fingerprint {wrong}"));
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("another one than the one that is trusted"), "{}", refused.stderr);
    assert_eq!(
        elsewhere.home.run("berth context list").stdout.matches("https").count(),
        0,
        "nothing is kept"
    );

    let known = elsewhere.login(&format!("--trust-fingerprint {fingerprint}"));
    assert_eq!(known.code, Some(0), "{known:?}");
    assert!(elsewhere.home.run("berth project list").stdout.contains("team-a"), "it is remembered");

    let elsewhere = Elsewhere::of(&server);
    let vouched = elsewhere.login(&format!("--ca-file {}", certificate(&server).display()));
    assert_eq!(vouched.code, Some(0), "{vouched:?}");
    assert!(elsewhere.home.run("berth project list").stdout.contains("team-a"), "it is remembered");
    let ran = Home::new()
        .command(&["berth", "project", "list", "--server", &server.endpoint().0])
        .env("BERTH_CA_FILE", certificate(&server))
        .env("BERTH_TOKEN", server.endpoint().1.trim())
        .output()
        .expect("it runs");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("team-a"), "{ran:?}");

    // Without TLS, and with it where there is none.
    let plain = server.endpoint().0.replacen("https", "http", 1);
    let ran = Home::new().run(&format!("berth status --server {plain}"));
    assert!(ran.stderr.contains("this server speaks TLS") && ran.stderr.contains("https://"), "{ran:?}");
    let other = Server::start("--nodes 1xdgx1");
    let tls = other.endpoint().0.replacen("http", "https", 1);
    let ran = Home::new().run(&format!("berth status --server {tls}"));
    assert!(ran.code == Some(3) && ran.stderr.contains("does not speak TLS"), "{ran:?}");
}

fn fingerprint_of(server: &Server) -> String {
    let text = fs::read_to_string(server.home.server_folder().join("server.json")).expect("is there");
    let file: Value = serde_json::from_str(&text).expect("is JSON");
    file["fingerprint"].as_str().expect("it speaks TLS").to_owned()
}

#[test]
fn files_of_a_certificate_are_taken_up_when_they_change() {
    let made = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    for folder in &made {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let source = berth_tls::Source::Made { folder: folder.path().to_owned(), names };
        berth_tls::Certificate::open(source).expect("it is made");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = |from: &Path| {
        for name in ["key.pem", "certificate.pem"] {
            fs::copy(from.join(name), folder.path().join(name)).expect("is copied");
        }
    };
    place(made[0].path());
    let path = folder.path().display();
    let server =
        Server::start(&format!("--tls-cert {path}/certificate.pem --tls-key {path}/key.pem --nodes 1xdgx1"));
    let before = fingerprint_of(&server);
    place(made[1].path());
    until("the new one is used", || fingerprint_of(&server) != before);
    server.run("berth status");
    fs::write(folder.path().join("certificate.pem"), "nonsense").expect("is written");
    until("it says that it cannot be used", || server.log().contains("cannot be used"));
    server.run("berth status");
}

#[test]
fn nobody_listens_to_other_machines_without_tls_by_accident() {
    let home = Home::new();
    let refused = home.run("berth up --listen 0.0.0.0:0");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for option in ["--tls-cert", "--tls-generate", "--insecure-listen"] {
        assert!(refused.stderr.contains(option), "{}", refused.stderr);
    }
    for (options, words) in [
        ("--tls-cert /nowhere/c.pem", "--tls-key"),
        ("--tls-cert /nowhere/c.pem --tls-key /nowhere/k.pem", "/nowhere/c.pem cannot be read"),
    ] {
        let refused = home.run(&format!("berth up --listen 127.0.0.1:0 {options}"));
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{refused:?}");
    }
}
