//! What is open when a token is revoked, or a role taken back, ends soon after, and says why.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};
use support::{
    Home,
    live::{Server, until},
    terminal::Person,
};

/// Listens where it is told to, says hello to whoever connects, and then nothing.
const QUIET: &str = r#"
import os, socket, time
socket = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
print("ready", flush=True)
kept = []
while True:
    connection, _ = socket.accept()
    try:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nhello\n")
        kept.append(connection)
    except OSError as error:
        print(error, flush=True)
"#;

/// Somebody with a role in team-a, and a token of their own.
struct Bob {
    home: Home,
    token: String,
}

impl Bob {
    /// With work that listens on a port, which no other test takes.
    fn new(server: &Server, port: u16) -> Self {
        server.run("berth user create bob");
        server.run("berth role grant bob researcher project/team-a");
        let token = server.run("berth token create laptop --user bob").trim().to_owned();
        let home = Home::new();
        let file = home.path().join("token");
        fs::write(&file, &token).expect("is written");
        let (address, _) = server.endpoint();
        let ran = home.run(&format!("berth login --server {address} --token-file {}", file.display()));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let port = port.to_string();
        let words = [
            "berth", "submit", "quiet", "-p", "team-a", "-g", "1", "--port", &port, "--", "python3", "-c",
            QUIET,
        ];
        let ran = home.run_words(&words);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        until("it listens", || server.try_run("berth logs team-a/quiet").stdout.contains("ready\n"));
        Self { home, token }
    }
}

/// A command that goes on until it ends by itself, or the test does, and everything it has said.
struct Going {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Going {
    fn start(home: &Home, line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = home.command(&words);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.expect("the binary starts");
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        let said = Arc::new(Mutex::new(String::new()));
        for stream in streams {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    said.lock().expect("nobody panics with it").push_str(&(line + "\n"));
                }
            });
        }
        Self { child, said }
    }

    fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has said something.
    fn says(&self, text: &str) {
        until(text, || self.said().contains(text));
    }

    fn ends(&mut self) -> Option<i32> {
        self.child.wait().expect("it was started").code()
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn everything_that_is_open_ends_with_its_token() {
    let server = Server::start("--nodes 1xdgx1 --project team-a=4");
    let bob = Bob::new(&server, 28_431);
    let mut shell = Person::sits_at(&bob.home, (80, 24), "berth bash team-a/quiet");
    shell.types("echo $((6*7))-here\n");
    shell.sees("42-here");
    let forward = Going::start(&bob.home, "berth port-forward team-a/quiet 0:28431");
    forward.says("leads to port 28431");
    let local = forward.said().split(' ').nth(1).expect("an address").to_owned();
    let mut forwarded = TcpStream::connect(local).expect("it listens");
    let mut hello = [0; 17];
    forwarded.write_all(b"hi").expect("is sent");
    forwarded.read_exact(&mut hello).expect("it answers");
    let url = server.workload("team-a/quiet")["urls"][0].as_str().expect("an address").to_owned();
    let authority = url.trim_start_matches("http://").split('/').next().expect("an address").to_owned();
    let mut proxied = TcpStream::connect(&authority).expect("it listens");
    let request = format!(
        "GET /team-a/quiet/ HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {}\r\n\r\n",
        bob.token
    );
    proxied.write_all(request.as_bytes()).expect("is sent");
    let mut proxied = BufReader::new(proxied);
    let mut line = String::new();
    while !line.contains("hello") {
        assert!(proxied.read_line(&mut line).expect("it answers") > 0, "{line}");
    }
    let mut events = Going::start(&bob.home, "berth events -f -p team-a");
    let mut log = Going::start(&bob.home, "berth logs -f team-a/quiet");
    log.says("ready");
    let mut quota = 4;
    until("events are followed", || {
        quota += 1;
        server.run(&format!("berth project update team-a --quota {quota}"));
        events.said().contains("team-a")
    });

    server.run("berth token revoke 1");
    shell.sees("the token was revoked");
    assert_ne!(shell.sees_the_end().1, Some(0));
    forward.says("the token was revoked");
    // Both come to their end, which nothing else would bring about.
    let mut rest = Vec::new();
    let _ = forwarded.read_to_end(&mut rest);
    let _ = proxied.read_to_end(&mut rest);
    events.says("the token was revoked");
    assert_eq!(events.ends(), Some(6));
    log.says("the token was revoked");
    assert_eq!(log.ends(), Some(6));
    assert_eq!(server.workload("team-a/quiet")["status"], "Running", "the work goes on");
}

#[test]
fn a_shell_ends_with_the_role_that_allowed_it() {
    let server = Server::start("--nodes 1xdgx1 --project team-a=4");
    let bob = Bob::new(&server, 28_432);
    let mut shell = Person::sits_at(&bob.home, (80, 24), "berth bash team-a/quiet");
    shell.types("echo $((6*7))-here\n");
    shell.sees("42-here");
    server.run("berth role revoke bob researcher project/team-a");
    shell.sees("bob may not");
    assert_ne!(shell.sees_the_end().1, Some(0));
}
