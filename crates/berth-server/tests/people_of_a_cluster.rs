//! People in front of a cluster, which has no room for them: they are in a file, last over a restart, and what cannot be
//! written does not happen.

mod support;

use berth_api::{LogQuery, Problem};
use berth_server::{Access, Answering, Cluster, ClusterImage, Later, Made, RequestKey, Serving, Wish};
use berth_types::{Project, ProjectId, State};
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};
use support::{Answer, read_answer};
use tokio::sync::{mpsc, oneshot, watch};

/// What a cluster shows of a workload that is over.
fn over() -> berth_api::Workload {
    serde_json::from_value(serde_json::json!({
        "id": 7, "name": "done", "project": "team-a", "user": "root", "kind": "train", "status": "Succeeded",
        "priority": 50, "preemptible": true, "submitted_at": "2026-11-18T08:00:00Z",
        "ended": { "at": "2026-11-18T09:00:00Z", "outcome": "succeeded" },
        "gpus_requested": 1, "gpus_allocated": 0, "workers_min": 1, "workers_max": 1, "tasks": [],
        "runs": 1, "failures": 0, "preemptions": 0, "request": { "name": "done", "project": "team-a" },
    }))
    .expect("is a workload")
}

/// A cluster with two projects, in which nothing runs and one workload is over.
struct Quiet(watch::Sender<u64>);

impl Cluster for Quiet {
    fn mode(&self) -> &'static str {
        "quiet"
    }

    fn image(&self) -> ClusterImage {
        let mut state = State::default();
        for (id, name) in [(1, "team-a"), (2, "team-b")] {
            state.projects.insert(ProjectId(id), Project::named(ProjectId(id), name));
        }
        ClusterImage { state, over: vec![over()], ..ClusterImage::default() }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn carry_out(&self, _: Vec<Wish>) -> Later<Result<(), Problem>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn made_by(&self, _: &RequestKey) -> Option<Made> {
        None
    }

    fn log(&self, _: String, _: String, _: LogQuery) -> Later<Result<mpsc::Receiver<Vec<u8>>, Problem>> {
        Box::pin(std::future::ready(Ok(mpsc::channel(1).1)))
    }
}

/// A server in front of it, until it is dropped.
struct Gate {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    token: String,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Gate {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, Access::default())
    }

    fn start_with(folder: &Path, access: Access) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let serving = Serving {
            folder: folder.to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            access,
            user: "root".into(),
            clock: berth_server::now,
            ping_every: berth_server::PING_EVERY,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (answers_at, told) = oneshot::channel::<Answering>();
        let cluster = Arc::new(Quiet(watch::Sender::new(0)));
        let serving = runtime.spawn(async move {
            let until = async { drop(stopped.await) };
            berth_server::serve(serving, cluster, answers_at, until).await.expect("it serves");
        });
        let address = runtime.block_on(told).expect("it answers").address;
        let token = fs::read_to_string(folder.join("token")).expect("a token").trim().to_owned();
        Self { runtime, address, token, stop: Some(stop), serving: Some(serving) }
    }

    fn call(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let request = format!(
            "{method} /api/v1/{path} HTTP/1.1\r\nhost: berth\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("is sent");
        read_answer(stream)
    }

    fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        self.call(&self.token, method, path, body)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            let _ = self.runtime.block_on(serving);
        }
    }
}

#[test]
fn people_last_over_a_restart_and_a_token_ends_for_good() {
    let folder = tempfile::tempdir().expect("a folder");
    let gate = Gate::start(folder.path());
    assert_eq!(gate.admin("POST", "users", r#"{"name":"bob"}"#).status, 201);
    assert_eq!(gate.admin("POST", "users", r#"{"name":"bob"}"#).status, 409);
    let role = r#"{"user":"bob","role":"researcher","scope":"project/team-a"}"#;
    assert_eq!(gate.admin("POST", "roles", role).status, 201);
    let nowhere = r#"{"user":"bob","role":"researcher","scope":"project/none"}"#;
    assert_eq!(gate.admin("POST", "roles", nowhere).status, 404);
    let made = gate.admin("POST", "tokens", r#"{"user":"bob","name":"laptop"}"#).json();
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    let kept = fs::read_to_string(folder.path().join("people.json")).expect("is kept");
    assert!(kept.contains("bob") && !kept.contains(&secret), "the hash is kept, not the secret");
    let mode = fs::metadata(folder.path().join("people.json")).expect("is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(gate);

    let gate = Gate::start(folder.path());
    let me = gate.call(&secret, "GET", "whoami", "");
    assert_eq!((me.status, &me.json()["roles"][0]["role"]), (200, &"researcher".into()), "{}", me.body);
    assert_eq!(gate.call(&secret, "GET", "projects/team-a", "").status, 200);
    assert_eq!(gate.call(&secret, "GET", "projects/team-b", "").status, 403);
    let above = gate.call(&secret, "POST", "users", r#"{"name":"eve"}"#);
    assert_eq!(above.status, 403, "{}", above.body);
    let id = made["token"]["id"].as_u64().expect("a number");
    assert_eq!(gate.admin("DELETE", &format!("tokens/{id}"), "").status, 204);
    drop(gate);

    let gate = Gate::start(folder.path());
    let refused = gate.call(&secret, "GET", "whoami", "");
    assert!(refused.status == 401 && refused.body.contains("revoked"), "{}", refused.body);
    let next = gate.admin("POST", "tokens", r#"{"user":"bob","name":"laptop"}"#).json();
    assert!(next["token"]["id"].as_u64() > Some(id), "no number is given twice");
    assert_eq!(gate.admin("DELETE", "users/bob", "").status, 204);
    let secret = next["secret"].as_str().expect("a secret");
    assert_eq!(gate.call(secret, "GET", "whoami", "").status, 401, "tokens go with their user");
    assert_eq!(gate.admin("GET", "roles", "").json()["items"], serde_json::json!([]));
}

#[test]
fn what_is_over_in_a_cluster_is_shown_by_its_name_and_by_its_identity() {
    let folder = tempfile::tempdir().expect("a folder");
    let gate = Gate::start(folder.path());
    for path in ["workloads/team-a/done", "workloads/7"] {
        let shown = gate.admin("GET", path, "");
        assert_eq!(
            (shown.status, shown.json()["status"].clone()),
            (200, serde_json::json!("Succeeded")),
            "{path}"
        );
    }
    assert_eq!(gate.admin("GET", "workloads/8", "").status, 404);
}

#[test]
fn what_cannot_be_written_about_people_does_not_happen() {
    let folder = tempfile::tempdir().expect("a folder");
    let gate = Gate::start(folder.path());
    // A folder in its place keeps the file from being written, whoever the server runs as.
    let aside = folder.path().join("people.new");
    fs::create_dir_all(aside.join("taken")).expect("is made");
    let refused = gate.admin("POST", "users", r#"{"name":"bob"}"#);
    assert_eq!((refused.status, refused.code()), (503, "read-only".into()), "{}", refused.body);
    assert_eq!(gate.admin("GET", "users", "").json()["items"], serde_json::json!([]), "nobody was made");
    fs::remove_dir_all(&aside).expect("is removed");
    assert_eq!(gate.admin("POST", "users", r#"{"name":"bob"}"#).status, 201);
}

#[test]
fn a_damaged_file_of_people_is_said_and_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(Gate::start(folder.path()));
    fs::write(folder.path().join("people.json"), "{").expect("is written");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let serving = Serving {
        folder: folder.path().to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        access: Default::default(),
        user: "root".into(),
        clock: berth_server::now,
        ping_every: berth_server::PING_EVERY,
    };
    let cluster = Arc::new(Quiet(watch::Sender::new(0)));
    let served = berth_server::serve(serving, cluster, oneshot::channel().0, std::future::pending());
    let error = runtime.block_on(served).expect_err("it does not start");
    assert!(error.to_string().contains("people.json"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("people.json")).expect("is there"), "{");
}

#[test]
fn a_server_in_front_of_a_cluster_speaks_tls_like_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access { tls_generate: true, ..Access::default() };
    let gate = Gate::start_with(folder.path(), access.clone());
    let file = fs::read(folder.path().join("server.json")).expect("it runs");
    let file: serde_json::Value = serde_json::from_slice(&file).expect("is JSON");
    assert_eq!(file["address"], format!("https://{}", gate.address));
    let fingerprint = file["fingerprint"].as_str().expect("it speaks TLS").to_owned();
    let healthy = |gate: &Gate| {
        gate.runtime.block_on(async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let trust = berth_tls::Trust::Fingerprint(fingerprint.parse().expect("a fingerprint"));
            let stream = tokio::net::TcpStream::connect(gate.address).await.expect("it listens");
            let connector = berth_tls::Connector::new(&trust).expect("is understood");
            let mut stream = connector.connect("localhost", stream).await.expect("it is trusted");
            let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.expect("is sent");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200")
        })
    };
    assert!(healthy(&gate));
    let plain = gate.admin("GET", "whoami", "");
    assert!(plain.status == 400 && plain.body.contains("speaks TLS"), "{}", plain.body);
    drop(gate);
    assert!(healthy(&Gate::start_with(folder.path(), access)), "the certificate lasts over a restart");
}
