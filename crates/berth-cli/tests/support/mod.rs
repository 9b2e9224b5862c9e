//! The command as people run it: a home of its own, a server that answers what a test tells it to, and what was printed.

#![allow(dead_code)] // Each test file uses a part of it.

pub(crate) mod live;
pub(crate) mod terminal;
pub(crate) mod typed;
pub(crate) mod wire;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};
use tempfile::TempDir;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A home without settings, in which commands are run.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder") }
    }

    /// The folder of the server.
    pub(crate) fn server_folder(&self) -> PathBuf {
        self.folder.path().join("data").join("berth")
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A folder in which everybody may write, whoever a workload runs as.
    pub(crate) fn shared(&self) -> PathBuf {
        let folder = self.folder.path().join("shared");
        fs::create_dir_all(&folder).expect("a folder");
        for (path, mode) in [(self.folder.path(), 0o755), (&folder, 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("is ours");
        }
        folder
    }

    /// Where a person of this home is at home.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 4] {
        let folder = self.folder.path();
        [
            ("HOME", folder.to_owned()),
            ("XDG_CONFIG_HOME", folder.join("config")),
            ("XDG_DATA_HOME", folder.join("data")),
            ("TZ", "UTC".into()),
        ]
    }

    /// Runs a command line of words without spaces.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// A command line that can be started; its first word is the name of the program, `berth` or `runai`.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command.arg0(words[0]).args(&words[1..]).env_clear().envs(self.environment()).stdin(Stdio::null());
        // A submission runs where its caller stands, and whoever it runs as may enter this one.
        command.current_dir("/");
        command
    }

    /// Runs a command line.
    pub(crate) fn run_words(&self, words: &[&str]) -> Ran {
        let output = self.command(words).output().expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

type Routes = BTreeMap<String, (u16, String)>;

/// A server of recorded answers, which the commands of a home find by themselves.
pub(crate) struct Fake {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Starts one for a home. Routes are `GET /api/v1/nodes` with status and body; streams of events are bodies too.
    pub(crate) fn start(home: &Home, routes: &[(&str, u16, String)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let folder = home.server_folder();
        fs::create_dir_all(&folder).expect("a folder");
        let address = listener.local_addr().expect("an address");
        let server =
            format!(r#"{{"address":"http://{address}","pid":{},"version":"0.1.0"}}"#, std::process::id());
        fs::write(folder.join("server.json"), server).expect("is written");
        fs::write(folder.join("token"), "secret\n").expect("is written");
        let routes: Routes = routes
            .iter()
            .map(|(route, status, body)| ((*route).to_owned(), (*status, body.clone())))
            .collect();
        let (routes, asked) = (Arc::new(routes), Arc::new(Mutex::new(Vec::new())));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (routes, seen) = (routes.clone(), seen.clone());
                thread::spawn(move || converse(stream.expect("a connection"), &routes, &seen));
            }
        });
        Self { asked }
    }

    /// Every request: method, path with query, and body, by spaces.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics while it holds the list").clone()
    }
}

fn converse(mut stream: TcpStream, routes: &Routes, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body is whole");
        let request = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let spoken = format!("{request} {}", String::from_utf8_lossy(&body));
        seen.lock().expect("no test panics while it holds the list").push(spoken.trim_end().to_owned());
        let path = request.split('?').next().unwrap_or_default();
        let missing =
            (404, r#"{"code":"not-found","status":404,"detail":"there is no such thing"}"#.to_owned());
        let (status, body) = routes.get(&request).or_else(|| routes.get(path)).unwrap_or(&missing);
        let answer = format!(
            "HTTP/1.1 {status} Status\r\nberth-version: 0.1.0\r\nberth-cursor: 40\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
