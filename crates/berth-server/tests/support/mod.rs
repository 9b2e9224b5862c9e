//! A server in this process, and a client that says exactly what a test wants said.
#![allow(dead_code)] // Each test file uses a part of it.

use berth_server::{Config, Running, Shutdown};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

/// A server with a folder of its own.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("is JSON: {}", self.body))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().expect("a problem has a code").to_owned()
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut server = Self::stopped();
        server.up(|_| {});
        server
    }

    /// An empty folder, and no server in it yet.
    pub(crate) fn stopped() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        Self { folder: tempfile::tempdir().expect("a folder"), runtime, running: None }
    }

    /// Starts it in its folder.
    pub(crate) fn up(&mut self, change: impl FnOnce(&mut Config)) {
        let project = |name: &str, quota: &str| berth_api::ProjectSettings {
            name: Some(name.into()),
            quota: quota.parse().ok(),
            ..berth_api::ProjectSettings::default()
        };
        let mut config = Config {
            folder: self.folder.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            access: Default::default(),
            nodes: berth_server::declared_nodes("2xdgx1").expect("is understood"),
            projects: vec![project("team-a", "4"), project("team-b", "2")],
            images: Default::default(),
            // Nothing of these tests runs a task that lives.
            shim: Some(vec!["/bin/false".into()]),
            program: "berth".into(),
            quickstart: Some(vec!["/bin/false".into()]),
            policy: Default::default(),
            store: Default::default(),
            user: "ada".into(),
            clock: berth_server::now,
            ping_every: berth_server::PING_EVERY,
            patience: berth_server::PATIENCE,
            tasks_run_as: berth_server::TasksRunAs::Server,
            accounts_from: berth_server::ACCOUNTS_FROM,
            allow_mounts: Vec::new(),
            settings: None,
        };
        change(&mut config);
        self.running = Some(self.runtime.block_on(berth_server::run(config)).expect("it starts"));
    }

    pub(crate) fn down(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop(Shutdown::KeepWorkloads));
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").address
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("token")).expect("a token").trim().to_owned()
    }

    pub(crate) fn store(&self) -> PathBuf {
        Path::new(self.folder.path()).join("store")
    }

    /// Calls with the token of the installation.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.call_with(method, path, body, &[("authorization", &format!("Bearer {}", self.token()))])
    }

    /// Calls with these headers only.
    pub(crate) fn call_with(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: berth\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        self.say(request.as_bytes())
    }

    /// Says something that need not be HTTP.
    pub(crate) fn say(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        // A server that has seen enough closes early.
        let _ = stream.write_all(request);
        read_answer(stream)
    }
}

/// Reads head and body; a body without length ends with the connection, or with the first event of a stream.
pub(crate) fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (mut headers, mut length) = (Vec::new(), None);
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        let header = line.trim_end().to_ascii_lowercase();
        length = header.strip_prefix("content-length: ").and_then(|length| length.parse().ok()).or(length);
        headers.push(header);
    }
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body).expect("the body is whole");
        }
        None if headers.iter().any(|header| header.contains("event-stream")) => {}
        None => drop(reader.read_to_end(&mut body)),
    }
    Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}
