//! Two hundred shells and two hundred sockets to a port at once, and what is left of them afterwards: nothing.
//!
//! `BERTH_CROWD_SECS` says for how long they are used; `make soak` uses them for five minutes.

mod support;

use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};
use support::{
    live::{Server, until},
    wire::{Socket, socket},
};

const SHELLS: usize = 200;
const SOCKETS: usize = 200;
/// What each says before anything is measured, so that memory is what such a crowd needs.
const WARM_ROUNDS: usize = 40;
/// What may be opened once and kept, such as files of the store that nobody had read before.
const SPARE_DESCRIPTORS: usize = 8;
/// What memory may grow by while the same crowd goes on.
const GROWTH_KIB_MAX: u64 = 16 << 10;

/// Takes sockets, and gives back whatever comes over them.
const PARROT: &str = r#"
import base64, hashlib, os, socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        key = b""
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"sec-websocket-key:"): key = line.split(b":")[1].strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.request.sendall(b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: " + accept + b"\r\n\r\n")
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 512
Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// What a process has of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Has {
    memory_kib: u64,
    descriptors: usize,
    threads: u64,
}

impl Has {
    fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or(0);
        Self { memory_kib: number("VmRSS:"), descriptors, threads: number("Threads:") }
    }
}

struct Place {
    server: Server,
    /// The shims of both workloads, and the process that parrots.
    others: Vec<u32>,
}

/// Everything that is looked at before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Count {
    server: Has,
    others: Vec<Has>,
    processes: usize,
}

impl Place {
    fn new() -> Self {
        // Nobody here answers a ping, and who is silent for three of them is taken for gone: they come later than a crowd takes to
        // be opened on a busy machine.
        let server = Server::start("--nodes 1xdgx1 --project team-a=4 --ping-every 600s");
        let submit = |line: &str, words: &[&str]| {
            let mut all: Vec<&str> = line.split_whitespace().collect();
            all.extend(words);
            let ran = server.home.run_words(&all);
            assert_eq!(ran.code, Some(0), "{ran:?}");
        };
        submit("berth submit desk -p team-a -g 1 --", &["sleep", "100000"]);
        // A port of its own: another server of this machine may promise the same one before anybody listens on it.
        let port = 10_000 + std::process::id() % 9_000;
        let line = format!("berth submit parrot -p team-a -g 1 --port {port} --");
        submit(&line, &["python3", "-c", PARROT]);
        let mut others = Vec::new();
        for place in ["team-a/desk", "team-a/parrot"] {
            server.until_status(place, "Running");
            let pid = server.workload(place)["tasks"][0]["pid"].as_u64().expect("a process") as u32;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
            let fields = stat.rsplit_once(')').expect("a name").1;
            others.push(fields.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a parent"));
            if place.ends_with("parrot") {
                others.push(pid);
            }
        }
        Self { server, others }
    }

    fn count(&self) -> Count {
        Count {
            server: Has::of(self.server.pid()),
            others: self.others.iter().map(|pid| Has::of(*pid)).collect(),
            processes: self.server.task_processes().len(),
        }
    }

    /// Opens everything.
    fn crowd(&self) -> Crowd {
        let (address, token) = self.server.endpoint();
        let bearer = format!("Bearer {}", token.trim());
        let opened = |path: &str, more: &[(&str, &str)]| {
            let mut headers = vec![("authorization", bearer.as_str())];
            headers.extend(more);
            socket(&address, path, &headers).unwrap_or_else(|answer| panic!("{path}: {answer:?}"))
        };
        let shells = (0..SHELLS).map(|number| {
            let path = "/api/v1/workloads/team-a/desk/exec";
            let mut shell = opened(path, &[("sec-websocket-protocol", "berth.shell.v1")]);
            let terminal = (number % 2 == 0).then(|| json!({"columns": 80, "rows": 24}));
            let mut start = json!({"type": "start", "command": ["sh"]});
            if let Some(terminal) = terminal {
                start["terminal"] = terminal;
            }
            shell.say(&start.to_string());
            let first = shell.hear();
            assert!(first.contains("started"), "{first}");
            shell
        });
        let shells = shells.collect();
        let sockets = (0..SOCKETS).map(|_| opened("/team-a/parrot/socket", &[])).collect();
        Crowd { shells, sockets }
    }
}

struct Crowd {
    shells: Vec<Socket>,
    sockets: Vec<Socket>,
}

impl Crowd {
    /// Everybody says something, and hears what becomes of it.
    fn speak(&mut self, round: usize) {
        for (number, shell) in self.shells.iter_mut().enumerate() {
            // The line itself comes back from a terminal; what is printed differs from what was typed.
            shell.say_bytes(format!("\0echo $((1000 * {round} + {number}))-said\n").as_bytes());
        }
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            socket.say_raw(format!("{round:08}{number:08}").as_bytes());
        }
        for (number, shell) in self.shells.iter_mut().enumerate() {
            let expected = format!("{}-said", 1000 * round + number);
            let mut heard = String::new();
            while !heard.contains(&expected) {
                heard.push_str(shell.hear().trim_start_matches(['\u{1}', '\u{2}']));
            }
        }
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            assert_eq!(socket.hear_raw(16), format!("{round:08}{number:08}").into_bytes());
        }
    }
}

#[test]
fn a_crowd_of_shells_and_sockets_leaves_nothing_behind() {
    let secs = std::env::var("BERTH_CROWD_SECS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(20);
    let place = Place::new();
    let empty = place.count();
    // Whoever hangs up is gone when the last of what it had is closed, everywhere.
    let is_gone = || {
        let now = place.count();
        let closed = |now: &Has, empty: &Has| now.descriptors <= empty.descriptors + SPARE_DESCRIPTORS;
        now.processes <= empty.processes
            && closed(&now.server, &empty.server)
            && now.others.iter().zip(&empty.others).all(|(now, empty)| closed(now, empty))
    };
    // What is made once and kept, such as room for messages, is made by the first crowd.
    let mut first = place.crowd();
    (0..WARM_ROUNDS).for_each(|round| first.speak(round));
    let full = place.count();
    drop(first);
    until("the first crowd is gone", is_gone);
    let mut crowd = place.crowd();
    let end = Instant::now() + Duration::from_secs(secs);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        rounds += 1;
        crowd.speak(rounds);
    }
    let during = place.count();
    assert!(during.processes >= empty.processes + SHELLS, "{during:?}");
    drop(crowd);
    until("the crowd is gone", is_gone);
    let after = place.count();
    println!("{SHELLS} shells and {SOCKETS} sockets for {secs} s, {rounds} rounds");
    for (when, count) in [("empty", &empty), ("full", &full), ("at the end", &during), ("after", &after)] {
        println!("{when}: {count:?}");
    }
    // Freed memory stays with the process for a while, so the same crowd is held against itself: a longer one needs no more.
    let every = |count: &Count| [count.server].into_iter().chain(count.others.clone()).collect::<Vec<Has>>();
    for (when, then) in [("at the end", &during), ("after", &after)] {
        for (full, then) in every(&full).into_iter().zip(every(then)) {
            assert!(
                then.memory_kib <= full.memory_kib + GROWTH_KIB_MAX,
                "memory grew from {full:?} to {then:?} {when}"
            );
        }
    }
    for (empty, after) in every(&empty).into_iter().zip(every(&after)) {
        assert!(after.threads <= empty.threads + 8, "threads grew from {empty:?} to {after:?}");
    }
}
