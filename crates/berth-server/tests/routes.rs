//! Every route: described, closed to strangers, and closed to workloads unless it is about themselves.

mod support;

use serde_json::Value;
use std::path::Path;
use support::Server;

/// Routes that need no token: whoever watches over the process learns nothing but that it lives.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/api/v1/oidc"];
/// Where people without a token sign in, with what is answered to nothing; there is no single sign-on here.
const SIGN_IN: [(&str, &str, u16); 4] = [
    ("POST", "/api/v1/session", 422),
    ("GET", "/api/v1/oidc/start", 404),
    ("GET", "/api/v1/oidc/callback", 404),
    ("POST", "/api/v1/oidc/token", 400),
];
/// Routes for workloads about themselves.
const OF_WORKLOADS: [&str; 2] = ["/api/v1/report", "/api/v1/checkpoint"];

fn routes() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&berth_server::openapi()).expect("is JSON");
    let paths = document["paths"].as_object().expect("paths");
    let methods = |(path, item): (&String, &Value)| {
        let item = item.as_object().expect("an item");
        item.keys().map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

fn filled(path: &str) -> String {
    let names = [("{project}", "team-a"), ("{name}", "team-a"), ("{id}", "1"), ("{action}", "cordon")];
    names.iter().fold(path.to_owned(), |path, (hole, name)| path.replace(hole, name))
}

#[test]
fn the_committed_description_is_the_one_that_is_served() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi.json");
    if std::env::var_os("BERTH_UPDATE").is_some() {
        std::fs::write(&file, berth_server::openapi()).expect("is written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == berth_server::openapi(),
        "openapi.json is not fresh: BERTH_UPDATE=1 cargo test -p berth-server --test routes"
    );
    let server = Server::start();
    assert_eq!(server.call("GET", "/openapi.json", "").body, committed);
}

#[test]
fn no_route_is_open_to_strangers() {
    let server = Server::start();
    let routes = routes();
    assert!(routes.len() > 35, "{}", routes.len());
    for (method, path) in &routes {
        let path = filled(path);
        let (nobody, stranger) = (
            server.call_with(method, &path, "{}", &[]),
            server.call_with(method, &path, "{}", &[("authorization", "Bearer wrong")]),
        );
        if OPEN.contains(&path.as_str()) {
            assert_eq!((nobody.status, stranger.status), (200, 200), "{method} {path}");
            continue;
        }
        if let Some((_, _, status)) =
            SIGN_IN.iter().find(|known| (known.0, known.1) == (method.as_str(), path.as_str()))
        {
            assert_eq!(nobody.status, *status, "without a code or a token");
            continue;
        }
        assert_eq!((nobody.status, stranger.status), (401, 401), "{method} {path}");
        assert_eq!(nobody.code(), "unauthenticated");
    }
    for path in ["/api/v1/nothing", "/api/v2/workloads", "/..", "/nothing", "/metrics/x"] {
        assert_eq!(server.call_with("GET", path, "", &[]).status, 401, "{path}");
        assert_eq!(server.call("GET", path, "").status, 404, "{path}");
    }
}

#[test]
fn the_manifest_of_a_cluster_can_be_downloaded() {
    let server = Server::start();
    let answer = server.call("GET", "/api/v1/manifest?cluster=lab", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let expected = berth_api::manifest("lab", berth_api::MANIFEST_NAMESPACE, berth_api::MANIFEST_IMAGE);
    assert_eq!(answer.body, expected.expect("a manifest"));
    let wrong = server.call("GET", "/api/v1/manifest?cluster=a%0Ab", "");
    assert_eq!((wrong.status, wrong.json()["field"].as_str()), (422, Some("cluster")), "{}", wrong.body);
    assert_eq!(server.call("GET", "/api/v1/manifest", "").status, 400, "a cluster has a name");
}

#[test]
fn a_project_shows_when_it_was_created() {
    let server = Server::start();
    let created = |name: &str| {
        let project = server.call("GET", &format!("/api/v1/projects/{name}"), "").json();
        project["created_at"].as_str().expect("a time").to_owned()
    };
    let before = created("team-a");
    let changed = server.call("PATCH", "/api/v1/projects/team-a", r#"{"quota":3}"#);
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(created("team-a"), before, "a change keeps it");
}

#[test]
fn a_workload_may_speak_of_itself_only() {
    let server = Server::start();
    let submitted =
        server.call("POST", "/api/v1/workloads", r#"{"project":"team-a","image":"bash","gpus":99}"#);
    assert_eq!(submitted.status, 422, "{}", submitted.body);
    let submitted = server.call(
        "POST",
        "/api/v1/workloads",
        r#"{"project":"team-a","image":"bash","workers":50,"gpus":8}"#,
    );
    let id = submitted.json()["workload"]["id"].as_u64().expect("an identity");
    let token = berth_server::workload_token(&server.token(), id);
    let headers = [("authorization", format!("Bearer {token}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (method, path) in routes() {
        let path = filled(&path);
        let status = server.call_with(&method, &path, "{}", &headers).status;
        let signs_in = SIGN_IN.iter().find(|known| (known.0, known.1) == (method.as_str(), path.as_str()));
        let expected = match path.as_str() {
            _ if signs_in.is_some() => signs_in.map_or(0, |(_, _, status)| *status),
            path if OPEN.contains(&path) => 200,
            path if OF_WORKLOADS.contains(&path) => 204,
            "/api/v1/world" => 200,
            "/openapi.json" => 200,
            _ => 403,
        };
        assert_eq!(status, expected, "{method} {path}");
    }
    for path in OF_WORKLOADS {
        assert_eq!(server.call("POST", path, "{}").status, 403, "a person is no workload: {path}");
    }
    assert_eq!(server.call("GET", "/api/v1/world", "").status, 403, "a person is no workload");
}

#[test]
fn only_loopback_is_listened_on_without_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = berth_server::Config {
        folder: folder.path().to_owned(),
        listen: "0.0.0.0:0".parse().expect("an address"),
        access: Default::default(),
        nodes: Vec::new(),
        projects: Vec::new(),
        images: Default::default(),
        shim: None,
        program: "berth".into(),
        quickstart: None,
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
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let error = runtime.block_on(berth_server::run(config)).expect_err("others could reach it");
    assert!(error.to_string().contains("other machines reach 0.0.0.0:0, so TLS is needed"), "{error}");
}
