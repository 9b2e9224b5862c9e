//! Every route, as nobody and as each role, inside and outside of its scope. A route that has no row here fails the test.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use support::Server;

/// Who calls: everybody has their role in team-a, or in the department it is part of; team-b is outside.
const CALLERS: [&str; 7] = ["admin", "department", "lead", "owner", "colleague", "viewer", "none"];

/// What a route answers to whom. `1` is let in, `0` is refused; in the order of [`CALLERS`]: first about team-a, then about
/// team-b. A route that shows to each what they may see lets everybody in.
const TABLE: [(&str, &str, &str); 58] = [
    ("GET /openapi.json", "1111111", "1111111"),
    ("GET /metrics", "1000000", "1000000"),
    ("POST /api/v1/report", "0000000", "0000000"),
    ("POST /api/v1/checkpoint", "0000000", "0000000"),
    ("GET /api/v1/world", "0000000", "0000000"),
    ("GET /api/v1/cluster", "1111111", "1111111"),
    ("GET /api/v1/manifest", "1111111", "1111111"),
    ("POST /api/v1/backup", "1000000", "1000000"),
    ("POST /api/v1/shutdown", "1000000", "1000000"),
    ("POST /api/v1/ping", "1000000", "1000000"),
    ("GET /api/v1/projects", "1111111", "1111111"),
    ("POST /api/v1/projects", "1100000", "1000000"),
    ("GET /api/v1/projects/{name}", "1111110", "1000000"),
    ("PATCH /api/v1/projects/{name}", "1100000", "1000000"),
    ("DELETE /api/v1/projects/{name}", "1100000", "1000000"),
    ("GET /api/v1/departments", "1111111", "1111111"),
    ("POST /api/v1/departments", "1100000", "1000000"),
    ("GET /api/v1/departments/{name}", "1111110", "1000000"),
    ("PATCH /api/v1/departments/{name}", "1000000", "1000000"),
    ("DELETE /api/v1/departments/{name}", "1000000", "1000000"),
    ("GET /api/v1/nodes", "1111111", "1111111"),
    ("GET /api/v1/nodes/{name}", "1111111", "1111111"),
    ("PATCH /api/v1/nodes/{name}", "1000000", "1000000"),
    ("POST /api/v1/nodes/{name}/{action}", "1000000", "1000000"),
    ("GET /api/v1/workloads", "1111110", "1000000"),
    ("POST /api/v1/workloads", "1111100", "1000000"),
    ("GET /api/v1/workloads/{id}", "1111110", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}", "1111110", "1000000"),
    ("DELETE /api/v1/workloads/{project}/{name}", "1111000", "1000000"),
    ("POST /api/v1/workloads/{project}/{name}/suspend", "1111000", "1000000"),
    ("POST /api/v1/workloads/{project}/{name}/resume", "1111000", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}/why", "1111110", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}/logs", "1111110", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}/exec", "1111000", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}/attach", "1111000", "1000000"),
    ("GET /api/v1/workloads/{project}/{name}/connect", "1111000", "1000000"),
    ("POST /api/v1/workloads/{project}/{name}/link", "1111000", "1000000"),
    ("GET /api/v1/events", "1111111", "1111111"),
    ("GET /api/v1/events/stream", "1111111", "1111111"),
    ("GET /api/v1/series", "1111111", "1111111"),
    ("GET /api/v1/series/points", "1111110", "1000000"),
    ("GET /api/v1/session", "1111111", "1111111"),
    ("DELETE /api/v1/session", "1111111", "1111111"),
    ("POST /api/v1/session/links", "1111111", "1111111"),
    ("GET /api/v1/volumes", "1111111", "1111111"),
    ("POST /api/v1/volumes", "1111100", "1000000"),
    ("DELETE /api/v1/volumes/{name}", "1110000", "1000000"),
    ("GET /api/v1/whoami", "1111111", "1111111"),
    ("GET /api/v1/users", "1111111", "1111111"),
    ("POST /api/v1/users", "1000000", "1000000"),
    ("PATCH /api/v1/users/{name}", "1000000", "1000000"),
    ("DELETE /api/v1/users/{name}", "1000000", "1000000"),
    ("GET /api/v1/roles", "1111111", "1111111"),
    ("POST /api/v1/roles", "1110000", "1000000"),
    ("POST /api/v1/roles/revoke", "1110000", "1000000"),
    ("GET /api/v1/tokens", "1111111", "1111111"),
    ("POST /api/v1/tokens", "1000000", "1000000"),
    ("GET /api/v1/audit", "1110000", "1110000"),
];
/// Its answer depends on whose token it is, which has a test of its own.
const APART: &str = "DELETE /api/v1/tokens/{id}";
/// Routes that need no token.
const OPEN: [&str; 7] = [
    "GET /healthz",
    "GET /readyz",
    "POST /api/v1/session",
    "GET /api/v1/oidc",
    "GET /api/v1/oidc/start",
    "GET /api/v1/oidc/callback",
    "POST /api/v1/oidc/token",
];

struct World {
    server: Server,
    tokens: BTreeMap<&'static str, String>,
    ids: BTreeMap<&'static str, u64>,
}

impl World {
    fn new() -> Self {
        let server = Server::start();
        let ok = |method: &str, path: &str, body: &str| {
            let answer = server.call(method, path, body);
            assert!((200..300).contains(&answer.status), "{method} {path} {body}: {}", answer.body);
            answer
        };
        ok("POST", "/api/v1/departments", r#"{"name":"vision"}"#);
        ok("POST", "/api/v1/departments", r#"{"name":"sound"}"#);
        ok("PATCH", "/api/v1/projects/team-a", r#"{"department":"vision"}"#);
        ok("PATCH", "/api/v1/projects/team-b", r#"{"department":"sound"}"#);
        for name in ["vol-a", "vol-b"] {
            let body = format!(r#"{{"name":"{name}","project":"{}"}}"#, name.replace("vol", "team"));
            ok("POST", "/api/v1/volumes", &body);
        }
        let mut tokens = BTreeMap::new();
        for name in CALLERS.into_iter().chain(["other"]) {
            ok("POST", "/api/v1/users", &format!(r#"{{"name":"{name}"}}"#));
            let grant = match name {
                "admin" => "admin all",
                "department" => "department-lead department/vision",
                "lead" => "project-lead project/team-a",
                "owner" | "colleague" => "researcher project/team-a",
                "viewer" => "viewer project/team-a",
                "other" => "researcher project/team-b",
                _ => "",
            };
            if let Some((role, scope)) = grant.split_once(' ') {
                let body = format!(r#"{{"user":"{name}","role":"{role}","scope":"{scope}"}}"#);
                ok("POST", "/api/v1/roles", &body);
            }
            let made = ok("POST", "/api/v1/tokens", &format!(r#"{{"user":"{name}","name":"test"}}"#));
            tokens.insert(name, made.json()["secret"].as_str().expect("a secret").to_owned());
        }
        let mut world = Self { server, tokens, ids: BTreeMap::new() };
        for (who, project) in [("owner", "team-a"), ("other", "team-b")] {
            let body = format!(
                r#"{{"project":"{project}","name":"job","image":"bash","workers":50,"gpus":8,"ports":[8888]}}"#
            );
            let made = world.call(who, "POST", "/api/v1/workloads", &body);
            assert_eq!(made.status, 201, "{}", made.body);
            world.ids.insert(project, made.json()["workload"]["id"].as_u64().expect("an id"));
        }
        world
    }

    fn call(&self, who: &str, method: &str, path: &str, body: &str) -> support::Answer {
        let token = format!("Bearer {}", self.tokens[who]);
        self.server.call_with(method, path, body, &[("authorization", &token)])
    }

    /// A request to a route about a project that changes nothing even where it is let in.
    fn request(&self, route: &str, project: &'static str) -> (String, String, String) {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let department = if project == "team-a" { "vision" } else { "sound" };
        let name = match path {
            path if path.starts_with("/api/v1/departments") => department,
            path if path.starts_with("/api/v1/projects") => project,
            path if path.starts_with("/api/v1/volumes") => "vol-x",
            path if path.starts_with("/api/v1/nodes") => "dgx1-1",
            path if path.starts_with("/api/v1/users") => "nobody",
            // Its guard looks for the owner, and a second look at what was deleted would find none.
            _ => "job",
        };
        let volume = if project == "team-a" { "vol-a" } else { "vol-b" };
        let name = if path == "/api/v1/volumes/{name}" { volume } else { name };
        let filled = path
            .replace("{project}", project)
            .replace("{name}", name)
            .replace("{action}", "dance")
            .replace("{id}", &self.ids[project].to_string());
        let query = match path {
            "/api/v1/workloads" if method == "GET" => format!("?project={project}"),
            "/api/v1/manifest" => "?cluster=lab".to_owned(),
            "/api/v1/series/points" => {
                format!("?name=gpus_allocated/{project}&from=2020-01-01T00:00:00Z&to=2020-01-01T00:00:00Z")
            }
            _ => String::new(),
        };
        let body = match (method, path) {
            // Names that are none: whoever is let in is told so.
            ("POST", "/api/v1/projects") => format!(r#"{{"name":"..","department":"{department}"}}"#),
            ("POST", "/api/v1/departments") => format!(r#"{{"name":"..","parent":"{department}"}}"#),
            ("POST", "/api/v1/workloads") => format!(r#"{{"project":"{project}","name":".."}}"#),
            ("POST", "/api/v1/volumes") => format!(r#"{{"name":"..","project":"{project}"}}"#),
            ("POST", "/api/v1/roles" | "/api/v1/roles/revoke") => {
                format!(r#"{{"user":"nobody","role":"viewer","scope":"project/{project}"}}"#)
            }
            ("POST", "/api/v1/tokens") => r#"{"user":"nobody","name":"x"}"#.to_owned(),
            ("POST", "/api/v1/users") => r#"{"name":".. /"}"#.to_owned(),
            ("POST", "/api/v1/backup") => r#"{"path":"relative"}"#.to_owned(),
            ("PATCH", _) => r#"{"name":"other"}"#.to_owned(),
            _ => String::new(),
        };
        (method.to_owned(), filled + &query, body)
    }
}

fn described() -> Vec<String> {
    let document: Value = serde_json::from_str(&berth_server::openapi()).expect("is JSON");
    let paths = document["paths"].as_object().expect("paths").iter();
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("an item").keys();
        methods.map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    paths.flat_map(of_path).collect()
}

#[test]
fn every_route_has_a_row() {
    for route in described() {
        let rows = TABLE.iter().filter(|(known, _, _)| *known == route).count();
        let apart = route == APART || OPEN.contains(&route.as_str());
        assert_eq!(rows, usize::from(!apart), "{route}");
    }
}

#[test]
fn each_role_is_let_in_where_the_table_says() {
    let world = World::new();
    let mut wrong = Vec::new();
    for (route, inside, outside) in TABLE {
        // These end what the others need; who is refused has been asked, and who is let in is asked in other tests.
        let ends = [
            "DELETE /api/v1/workloads/{project}/{name}",
            "DELETE /api/v1/volumes/{name}",
            "POST /api/v1/shutdown",
            "POST /api/v1/workloads/{project}/{name}/suspend",
        ]
        .contains(&route);
        for (project, row) in [("team-a", inside), ("team-b", outside)] {
            let (method, path, body) = world.request(route, project);
            let stranger = world.server.call_with(&method, &path, &body, &[]);
            assert_eq!(stranger.status, 401, "nobody: {method} {path}");
            for (who, expected) in CALLERS.iter().zip(row.chars()) {
                if ends && expected == '1' {
                    continue;
                }
                let answer = world.call(who, &method, &path, &body);
                let refused = answer.status == 403 || (route.ends_with("/{id}") && answer.status == 404);
                if refused != (expected == '0') || answer.status == 401 || answer.status >= 500 {
                    wrong.push(format!("{who}: {method} {path}: {} {}", answer.status, answer.body));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ports_are_for_the_owner_and_those_who_lead() {
    let world = World::new();
    for (who, expected) in CALLERS.iter().zip("1111000".chars()) {
        let status = world.call(who, "GET", "/team-a/job/", "").status;
        assert_eq!(status != 403, expected == '1', "{who}: {status}");
        let outside = world.call(who, "GET", "/team-b/job/", "").status;
        assert_eq!(outside != 403, *who == "admin", "{who}: {outside}");
    }
    assert_eq!(world.server.call_with("GET", "/team-a/job/", "", &[]).status, 401);
}

#[test]
fn lists_show_what_the_caller_may_see() {
    let world = World::new();
    for path in [
        "workloads",
        "projects",
        "events?limit=1000",
        "series",
        "departments",
        "volumes",
        "nodes",
        "users",
        "roles",
    ] {
        let path = format!("/api/v1/{path}");
        let all = world.call("admin", "GET", &path, "").body;
        for who in ["lead", "owner", "viewer", "none"] {
            let seen = world.call(who, "GET", &path, "").body;
            for hidden in ["team-b", "sound", "vol-b"] {
                assert!(!seen.contains(hidden), "{who} sees {hidden} in {path}: {seen}");
            }
            assert!(
                who == "none" || !all.contains("team-a/job") || seen.contains("team-a/job"),
                "{who} {path}"
            );
        }
    }
}

#[test]
fn nobody_grants_above_themselves_or_for_others() {
    let world = World::new();
    let grant = |who: &str, role: &str, scope: &str| {
        let body = format!(r#"{{"user":"none","role":"{role}","scope":"{scope}"}}"#);
        world.call(who, "POST", "/api/v1/roles", &body).status
    };
    assert_eq!(grant("lead", "project-lead", "project/team-a"), 201);
    assert_eq!(grant("lead", "department-lead", "department/vision"), 403);
    assert_eq!(grant("lead", "researcher", "project/team-b"), 403);
    assert_eq!(grant("department", "department-lead", "department/vision"), 201);
    assert_eq!(grant("department", "admin", "all"), 403);
    assert_eq!(grant("department", "viewer", "all"), 403);
    assert_eq!(grant("owner", "viewer", "project/team-a"), 403);
    assert_eq!(grant("admin", "admin", "project/team-a"), 422);
    let take = r#"{"user":"admin","role":"admin","scope":"all"}"#;
    assert_eq!(world.call("department", "POST", "/api/v1/roles/revoke", take).status, 403);
    let token = r#"{"user":"admin","name":"x"}"#;
    assert_eq!(world.call("department", "POST", "/api/v1/tokens", token).status, 403);
    // A quota is raised by whoever leads what it is part of, and what reaches out of a container by an admin.
    let quota = r#"{"quota":100}"#;
    assert_eq!(world.call("department", "PATCH", "/api/v1/departments/vision", quota).status, 403);
    assert_eq!(world.call("department", "PATCH", "/api/v1/projects/team-a", quota).status, 200);
    assert_eq!(
        world.call("department", "PATCH", "/api/v1/projects/team-a", r#"{"allow_privileged":true}"#).status,
        403
    );
    assert_eq!(
        world.call("department", "PATCH", "/api/v1/projects/team-a", r#"{"department":"sound"}"#).status,
        403
    );
}

#[test]
fn a_token_that_does_not_count_is_told_why() {
    let mut world = World::new();
    let refusal = |world: &World, value: &str| {
        let answer = world.server.call_with("GET", "/api/v1/whoami", "", &[("authorization", value)]);
        (answer.status, answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |text: &str| (401, text.to_owned());
    let token = world.tokens["owner"].clone();
    assert_eq!(refusal(&world, &format!("Bearer {token}")).0, 200);
    assert_eq!(refusal(&world, "Basic abc"), refused("this is no token"));
    assert_eq!(refusal(&world, "Bearer berth-1-zz"), refused("this is no token"));
    let mut guess = token.clone();
    guess.replace_range(token.len() - 1.., if token.ends_with('0') { "1" } else { "0" });
    assert_eq!(refusal(&world, &format!("Bearer {guess}")), refused("the token is not known here"));

    let made = world.call("owner", "POST", "/api/v1/tokens", r#"{"name":"short","expires_secs":1}"#).json();
    let short = made["secret"].as_str().expect("a secret").to_owned();
    let id = made["token"]["id"].as_u64().expect("a number");
    assert_eq!(
        world.call("colleague", "DELETE", &format!("/api/v1/tokens/{id}"), "").status,
        404,
        "not theirs"
    );
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while refusal(&world, &format!("Bearer {short}")).0 == 200 {
        assert!(std::time::Instant::now() < deadline, "it ends");
    }
    assert_eq!(refusal(&world, &format!("Bearer {short}")), refused("the token has expired"));

    let own = world.call("owner", "GET", "/api/v1/tokens", "").json();
    let id = own["items"][0]["id"].as_u64().expect("a number");
    assert_eq!(world.call("owner", "DELETE", &format!("/api/v1/tokens/{id}"), "").status, 204);
    assert_eq!(refusal(&world, &format!("Bearer {token}")), refused("the token was revoked"));
    // Over a restart it stays so, and the others stay who they are.
    world.server.down();
    world.server.up(|_| {});
    assert_eq!(refusal(&world, &format!("Bearer {token}")), refused("the token was revoked"));
    let who = world.call("lead", "GET", "/api/v1/whoami", "").json();
    assert_eq!(
        (who["user"].as_str(), who["roles"][0]["scope"].as_str()),
        (Some("lead"), Some("project/team-a"))
    );
}

#[test]
fn no_secret_is_written_or_listed() {
    let mut world = World::new();
    let secret = world.tokens["owner"].rsplit('-').next().expect("a secret").to_owned();
    for path in ["tokens", "users", "roles", "events?limit=1000", "audit", "whoami", "session"] {
        let body = world.server.call("GET", &format!("/api/v1/{path}"), "").body;
        assert!(!body.contains(&secret), "{path}");
    }
    world.server.down();
    let mut folders = vec![world.server.folder.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("is read") {
            let path = entry.expect("is read").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                files += 1;
                let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{}", path.display());
            }
        }
    }
    assert!(files > 2, "the store and the audit log were looked at");
}

#[test]
fn changes_and_refusals_are_in_the_audit_log() {
    let world = World::new();
    world.call("viewer", "POST", "/api/v1/workloads", r#"{"project":"team-a"}"#);
    let audit = world.call("admin", "GET", "/api/v1/audit?limit=1000", "").json();
    let items = audit["items"].as_array().expect("entries");
    let found = |user: &str, action: &str, status: u64| {
        items
            .iter()
            .find(|entry| entry["user"] == user && entry["action"] == action && entry["status"] == status)
    };
    let submitted = found("owner", "POST /api/v1/workloads", 201).expect("a submission");
    assert_eq!((&submitted["target"], &submitted["from"]), (&"team-a/job".into(), &"127.0.0.1".into()));
    let refused = found("viewer", "POST /api/v1/workloads", 403).expect("a refusal");
    assert!(refused["problem"].as_str().expect("a reason").contains("may not submit"));
    let made = found("ada", "POST /api/v1/users", 201).expect("a user was made");
    assert!(!made["target"].as_str().expect("a target").contains('/'), "the user is named: {made}");
    // Whoever leads a project sees what was done there, and nothing else.
    let led = world.call("lead", "GET", "/api/v1/audit?limit=1000", "").json();
    let led = led["items"].as_array().expect("entries");
    assert!(!led.is_empty() && led.iter().all(|entry| entry["project"] == "team-a"), "{led:?}");
}

#[test]
fn guessing_tokens_is_slowed_down() {
    let server = Server::start();
    let mut statuses = BTreeMap::new();
    for _ in 0..260 {
        let answer = server.call_with("GET", "/api/v1/cluster", "", &[("authorization", "Bearer guess")]);
        *statuses.entry(answer.status).or_insert(0) += 1;
        if answer.status == 429 {
            assert!(
                answer.headers.iter().any(|header| header.starts_with("retry-after: ")),
                "{:?}",
                answer.headers
            );
        }
    }
    assert!(statuses[&401] >= 200 && statuses[&429] > 0, "{statuses:?}");
    assert_eq!(
        server.call("GET", "/api/v1/cluster", "").status,
        200,
        "who has a token on this machine is let in"
    );
    let sign_in = server.call_with("POST", "/api/v1/session", r#"{"token":"guess"}"#, &[]);
    assert_eq!(sign_in.status, 429, "{}", sign_in.body);
}

#[test]
fn one_user_submits_so_much_at_once_and_others_go_on() {
    let world = World::new();
    let mut statuses = BTreeMap::new();
    let mut last = None;
    // What cannot be is counted like what can: it is the asking that is limited.
    let wrong = r#"{"project":"team-a","image":"bash","gpus":99}"#;
    for _ in 0..1_200 {
        let answer = world.call("owner", "POST", "/api/v1/workloads", wrong);
        *statuses.entry(answer.status).or_insert(0) += 1;
        if answer.status == 429 {
            last = Some(answer);
            break;
        }
    }
    let refused = last.unwrap_or_else(|| panic!("nothing was refused: {statuses:?}"));
    assert!(refused.body.contains("too many submissions of one user"), "{}", refused.body);
    assert!(
        refused.headers.iter().any(|header| header.starts_with("retry-after: ")),
        "{:?}",
        refused.headers
    );
    assert!(statuses.values().sum::<u32>() > 900, "a burst is allowed: {statuses:?}");
    assert_eq!(
        world.call("colleague", "POST", "/api/v1/workloads", wrong).status,
        422,
        "others are not held up"
    );
    assert_eq!(world.call("owner", "GET", "/api/v1/workloads", "").status, 200, "looking is not held up");
}

#[test]
fn what_cannot_be_noted_is_not_done() {
    let mut server = Server::start();
    server.down();
    // A file that is full is put aside under a number; where that is taken, nothing more can be written.
    let audit = server.folder.path().join("audit");
    let mut full = vec![b' '; 32 << 20];
    full.push(b'\n');
    std::fs::write(audit.join("audit.jsonl"), full).expect("is written");
    server.up(|_| {});
    let taken = audit.join(format!("audit-{:020}.jsonl", 0));
    std::fs::create_dir_all(taken.join("taken")).expect("is made");
    let create =
        |name: &str| server.call("POST", "/api/v1/projects", &format!(r#"{{"name":"{name}","quota":1}}"#));
    let refused = create("one");
    assert_eq!((refused.status, refused.code()), (503, "read-only".into()), "{}", refused.body);
    assert!(refused.body.contains("nothing was done"), "{}", refused.body);
    assert_eq!(server.call("GET", "/api/v1/projects/one", "").status, 404, "it was not done");
    std::fs::remove_dir_all(&taken).expect("is removed");
    assert_eq!(create("two").status, 201);
    let noted = server.call("GET", "/api/v1/audit", "").json();
    let found = noted["items"].as_array().expect("entries").iter();
    let found: Vec<_> = found.map(|entry| (entry["action"].clone(), entry["status"].clone())).collect();
    assert_eq!(found, [("POST /api/v1/projects".into(), 201.into())], "{noted}");
}
