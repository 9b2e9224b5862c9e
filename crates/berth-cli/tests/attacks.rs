//! Workloads and people who want more than is theirs, against the whole product.

mod support;

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
};
use support::{
    live::{Server, jupyter, until},
    wire::{Answer, ask_at},
};

/// Whether to go on; says so once if not.
fn is_root() -> bool {
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    if own.as_ref().ok() != Some(&0) {
        println!("SKIPPED: a wall between work and the server needs root");
    }
    own.ok() == Some(0)
}

/// A server with two users, each a researcher of a project of their own; the folders above the server's own are open.
struct World {
    server: Server,
    tokens: BTreeMap<&'static str, String>,
}

impl World {
    fn new(options: &str) -> Self {
        let server =
            Server::start(&format!("--nodes 1xdgx1 --project team-a=4 --project team-b=4 {options}"));
        fs::set_permissions(server.home.path(), fs::Permissions::from_mode(0o755)).expect("is ours");
        let mut tokens = BTreeMap::new();
        for (user, project) in [("bob", "team-a"), ("eve", "team-b")] {
            server.run(&format!("berth user create {user}"));
            server.run(&format!("berth role grant {user} researcher project/{project}"));
            let secret = server.run(&format!("berth token create laptop --user {user}"));
            tokens.insert(user, secret.trim().to_owned());
        }
        Self { server, tokens }
    }

    fn ask(&self, user: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.tokens[user]);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        ask_at(&self.server.endpoint().0, method, path, &headers, &body)
    }

    fn submit(&self, user: &str, request: &Value) -> Answer {
        self.ask(user, "POST", "/api/v1/workloads", request)
    }

    /// Submits what must be accepted, and waits for one of these statuses.
    fn run(&self, user: &str, request: &Value, status: &str) -> Value {
        let answer = self.submit(user, request);
        assert_eq!(answer.status, 201, "{answer:?}");
        let text = |name: &str| request[name].as_str().expect("a text").to_owned();
        self.server.until_status(&format!("{}/{}", text("project"), text("name")), status)
    }

    fn log(&self, place: &str) -> String {
        self.server.run(&format!("berth logs {place}"))
    }

    /// The first process of a workload.
    fn process(&self, place: &str) -> u32 {
        let shown = self.server.workload(place);
        shown["tasks"][0]["pid"].as_u64().unwrap_or_else(|| panic!("a process: {shown}")) as u32
    }
}

/// Tries to read everything it is told, and says what it could.
const THIEF: &str = r#"
import os, sys
tried = 0
for path in sys.argv[2:]:
    tried += 1
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        print("READ", path, flush=True)
    except OSError: pass
try:
    os.kill(int(sys.argv[1]), 0)
    print("SIGNALLED", flush=True)
except OSError: pass
print("TRIED", tried, "AS", os.getuid(), os.getgid(), os.getgroups(), flush=True)
"#;

#[test]
fn work_reaches_neither_the_server_nor_the_work_of_others() {
    if !is_root() {
        return;
    }
    let world = World::new("--tasks-run-as accounts");
    let server = &world.server;
    let sleeps = json!({"name": "victim", "project": "team-a", "gpus": 1, "command": ["bash", "-c", "echo mine; sleep 1000"],
        "environment": {"SECRET": "of-bob"}});
    world.run("bob", &sleeps, "Running");
    until("the victim says something", || world.log("team-a/victim").contains("mine"));
    let victim = world.process("team-a/victim");
    let parent = |pid: u32| -> u32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        let fields = stat.rsplit_once(')').expect("a name").1;
        fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).expect("a parent")
    };
    let folder = server.home.server_folder();
    let id = server.workload("team-a/victim")["id"].to_string();
    let id = id.trim_matches('"');
    let (task, work) = (format!("agent/tasks/{id}"), format!("agent/work/{id}"));
    let inside = [
        "",
        "token",
        "server.json",
        "store",
        "audit",
        "volumes",
        "agent/tasks",
        &task,
        &format!("{task}/1-0/spec.json"),
        &format!("{task}/1-0/log-000000000000"),
        &work,
        &format!("{work}/checkpoint"),
    ];
    let mut paths: Vec<PathBuf> = inside.iter().map(|name| folder.join(name)).collect();
    let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.exists()).collect();
    assert_eq!(missing, Vec::<&PathBuf>::new(), "they are there");
    for pid in [server.pid(), parent(victim), victim] {
        for file in ["environ", "mem", "fd", "root", "cwd"] {
            paths.push(format!("/proc/{pid}/{file}").into());
        }
    }
    paths.push("/etc/shadow".into());
    let mut command = vec!["python3".to_owned(), "-c".into(), THIEF.into(), victim.to_string()];
    command.extend(paths.iter().map(|path| path.display().to_string()));
    world.run(
        "eve",
        &json!({"name": "thief", "project": "team-b", "gpus": 1, "command": command}),
        "Succeeded",
    );
    let log = world.log("team-b/thief");
    assert!(!log.contains("READ") && !log.contains("SIGNALLED"), "{log}");
    assert!(log.contains(&format!("TRIED {}", paths.len())), "{log}");
    // Each has an account of their own, which is nobody's on this machine, with no group besides.
    let account = |user: &str| {
        let users = server.json("berth user list");
        let items = users["items"].as_array().expect("users").clone();
        let found = items.into_iter().find(|item| item["name"] == user).expect("a user");
        found["account"].as_str().unwrap_or_else(|| panic!("an account: {found}")).to_owned()
    };
    let (bob, eve) = (account("bob"), account("eve"));
    assert_ne!(bob, eve);
    let number = eve.split(':').next().expect("a number");
    assert!(log.contains(&format!("AS {number} {number} []")), "{log} {eve}");
    assert_eq!(
        fs::metadata(format!("/proc/{victim}")).expect("it runs").uid().to_string(),
        bob.split(':').next().expect("a number")
    );
    // Who enters the worker is who works there.
    let entered = server.run("berth exec team-a/victim -- id -u");
    assert_eq!(format!("{}:{}", entered.trim(), entered.trim()), bob);
    let confined = server.run("berth exec team-a/victim -- grep NoNewPrivs /proc/self/status");
    assert!(confined.contains('1'), "{confined}");
    // Nobody becomes root by asking, however they write it, or somebody else.
    for account in ["root", "0:0", "0", "65534:0", "nobody", &bob] {
        let asked =
            json!({"name": "mighty", "project": "team-b", "gpus": 0, "command": ["id"], "run_as": account});
        let answer = world.submit("eve", &asked);
        assert_eq!(answer.status, 403, "{account}: {answer:?}");
    }
    let own = json!({"name": "own", "project": "team-b", "gpus": 0, "command": ["id", "-u"], "run_as": eve});
    world.run("eve", &own, "Succeeded");
    // What is mounted, or begun in, is what they may reach.
    fs::create_dir(server.home.path().join("closed")).expect("a folder");
    let closed = server.home.path().join("closed/inner");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(server.home.path().join("closed"), fs::Permissions::from_mode(0o700))
        .expect("is ours");
    let folder = folder.display().to_string();
    server.run("berth volume create theirs --project team-a");
    for (name, more) in [
        ("store", json!({"mounts": [{"source": format!("{folder}/store"), "target": "/mnt/berth-attack"}]})),
        ("whole", json!({"mounts": [{"source": folder, "target": "/mnt/berth-attack"}]})),
        ("closed", json!({"mounts": [{"source": closed, "target": "/mnt/berth-attack"}]})),
        ("within", json!({"working_dir": format!("{folder}/volumes/theirs")})),
        ("image", json!({"image": folder, "runtime": "oci"})),
    ] {
        let mut request =
            json!({"name": name, "project": "team-b", "gpus": 0, "command": ["ls"], "backoff_limit": 0});
        request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = world.submit("eve", &request);
        if answer.status == 201 {
            let ended = server.until_status(&format!("team-b/{name}"), "Failed");
            println!("{name}: {}", ended["message"]);
        } else {
            assert!([403, 422].contains(&answer.status), "{name}: {answer:?}");
        }
    }
    let foreign = json!({"name": "foreign", "project": "team-b", "gpus": 0, "command": ["ls"],
        "volumes": [{"name": "theirs", "target": "/mnt/berth-attack"}]});
    let answer = world.submit("eve", &foreign);
    assert!([403, 404, 422].contains(&answer.status), "a volume of another project: {answer:?}");
    let _ = fs::remove_dir("/mnt/berth-attack");
}

#[test]
fn an_admin_says_whose_account_work_runs_under() {
    if !is_root() {
        return;
    }
    let world = World::new("");
    let server = &world.server;
    let whoami = |name: &str| json!({"name": name, "project": "team-a", "gpus": 0, "command": ["bash", "-c", "id -un; echo $USER"]});
    world.run("bob", &whoami("first"), "Succeeded");
    assert_eq!(
        world.log("team-a/first"),
        "bob\nbob\n",
        "who has no name on the machine is called as Berth calls them"
    );
    assert_eq!(world.ask("bob", "PATCH", "/api/v1/users/bob", &json!({"account": "root"})).status, 403);
    assert!(server.run("berth user set bob --account nobody").contains("65534:"));
    world.run("bob", &whoami("second"), "Succeeded");
    assert_eq!(world.log("team-a/second"), "nobody\nnobody\n");
    let refused = server.try_run("berth user set bob --account no-such-account");
    assert!(refused.code != Some(0) && refused.stderr.contains("no user `no-such-account`"), "{refused:?}");
    server.run("berth user set bob --account none");
    world.run("bob", &whoami("third"), "Succeeded");
    assert_eq!(world.log("team-a/third"), "bob\nbob\n");
    // A user of the same name who comes later is somebody else.
    let before = server.workload("team-a/third")["request"]["run_as"].clone();
    server.run("berth user delete bob");
    let (address, token) = server.endpoint();
    let headers = [("authorization", format!("Bearer {}", token.trim())), ("berth-user", "bob".into())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = ask_at(&address, "POST", "/api/v1/workloads", &headers, &whoami("later").to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    let later = server.until_status("team-a/later", "Succeeded")["request"]["run_as"].clone();
    assert!(before.is_string() && later.is_string() && before != later, "{before} {later}");
}

#[test]
fn a_server_that_does_not_wall_off_work_says_so() {
    let server = Server::start("--nodes 1xdgx1 --project team-a=4 --tasks-run-as server");
    assert!(server.log().contains("all work runs under the server's own account"), "{}", server.log());
    server.run("berth submit own -p team-a -g 0 -- id -u");
    server.until_status("team-a/own", "Succeeded");
    let own = fs::metadata("/proc/self").expect("/proc").uid();
    assert_eq!(server.run("berth logs own -p team-a").trim(), own.to_string());
    if is_root() {
        let walled = Server::start("--nodes 1xdgx1 --project team-a=4");
        assert!(!walled.log().contains("server's own account"), "{}", walled.log());
    }
}

/// Every process, with the words it was started with and its environment.
fn processes() -> Vec<(u32, String, String)> {
    let read = |pid: u32, file: &str| {
        String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()).into_owned()
    };
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.map(|pid| (pid, read(pid, "cmdline"), read(pid, "environ"))).collect()
}

fn variable(environment: &str, name: &str) -> Option<String> {
    environment.split('\0').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

#[test]
fn a_token_is_seen_by_whom_it_belongs_to_and_nobody_else() {
    let mut world = World::new("");
    let sleeps = |name: &str, project: &str| json!({"name": name, "project": project, "gpus": 1, "command": ["bash", "-c", "env | grep -v TOKEN; sleep 1000"]});
    world.run("bob", &sleeps("one", "team-a"), "Running");
    world.run("eve", &sleeps("two", "team-b"), "Running");
    if jupyter() {
        world.run(
            "bob",
            &json!({"name": "notes", "project": "team-a", "gpus": 0, "notebook": true}),
            "Running",
        );
        world.server.run("berth url notes -p team-a");
    }
    // A shell beside it, and a browser's session.
    let mut shell = world
        .server
        .home
        .command(&["berth", "exec", "team-a/one", "--", "sleep", "1000"])
        .spawn()
        .expect("starts");
    until("the shell runs", || {
        processes().iter().any(|(_, words, environment)| {
            words.starts_with("sleep\x001000")
                && variable(environment, "BERTH_WORKLOAD").as_deref() == Some("one")
        })
    });
    let (address, installation) = world.server.endpoint();
    let signed_in =
        ask_at(&address, "POST", "/api/v1/session", &[], &json!({"token": installation.trim()}).to_string());
    assert_eq!(signed_in.status, 201, "{signed_in:?}");
    let session = signed_in.all("set-cookie")[0].split([';', '=']).nth(1).expect("a value").to_owned();
    // Whose each secret is: nobody's environment, or that of one workload.
    let mut secrets: Vec<(String, Option<String>)> =
        world.tokens.values().map(|token| (token.clone(), None)).collect();
    secrets.push((installation.trim().to_owned(), None));
    secrets.push((session, None));
    let seen = processes();
    for (_, _, environment) in &seen {
        let Some(task) = variable(environment, "BERTH_TASK") else { continue };
        let workload = task.split('.').next().expect("a task").to_owned();
        for name in ["BERTH_REPORT_TOKEN", "JUPYTER_TOKEN"] {
            let secret = variable(environment, name).map(|secret| (secret, Some(workload.clone())));
            secrets.extend(secret.filter(|secret| !secrets.contains(secret)));
        }
    }
    let folder_id = fs::read_to_string(world.server.home.server_folder().join("agent/id")).expect("a name");
    secrets.retain(|(_, owner)| owner.as_ref().is_none_or(|owner| owner.starts_with(&folder_id)));
    assert!(
        secrets.iter().filter(|(_, owner)| owner.is_some()).count() >= 2,
        "workloads have tokens of their own"
    );
    for (secret, owner) in &secrets {
        assert!(secret.len() >= 16, "a secret: {secret}");
        for (pid, words, environment) in &seen {
            assert!(!words.contains(secret), "process {pid} has it among its words: {words}");
            let of =
                variable(environment, "BERTH_TASK").and_then(|task| Some(task.split('.').next()?.to_owned()));
            let is_own = owner.is_some() && of == *owner;
            assert!(
                is_own || !environment.contains(secret),
                "process {pid} of {of:?} has one of {owner:?} in its environment"
            );
        }
    }
    // Nothing of the server's own environment reaches who stands between it and the work.
    let shims = seen
        .iter()
        .filter(|(_, words, environment)| words.contains("\0shim\0") && environment.contains(&folder_id));
    assert!(shims.clone().count() >= 2);
    for (pid, _, environment) in shims {
        assert_eq!(variable(environment, "XDG_DATA_HOME"), None, "{pid}");
    }
    // Listings, events, logs: as the mightiest reader sees them.
    let bearer = format!("Bearer {}", installation.trim());
    let headers = [("authorization", bearer.as_str())];
    let mut shown = vec![world.server.log()];
    for path in [
        "workloads",
        "workloads?finished=true",
        "workloads/team-a/one",
        "workloads/team-b/two",
        "workloads/team-a/one/why",
        "workloads/team-a/one/logs",
        "workloads/team-b/two/logs",
        "events?limit=1000",
        "audit?limit=1000",
        "users",
        "roles",
        "tokens",
        "nodes",
        "cluster",
        "projects",
        "volumes",
        "series",
        "session",
        "whoami",
    ] {
        let answer = ask_at(&address, "GET", &format!("/api/v1/{path}"), &headers, "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        shown.push(format!("{path}: {}", answer.body));
    }
    shown.push(ask_at(&address, "GET", "/metrics", &headers, "").body);
    for command in [
        "berth list -A -o wide",
        "berth list -A -o json",
        "berth get team-a/one -o yaml",
        "berth events",
        "berth audit",
        "berth token list -o json",
        "berth why team-a/one",
        "berth top --once",
    ] {
        let ran = world.server.try_run(command);
        shown.push(format!("{command}: {}{}", ran.stdout, ran.stderr));
    }
    let _ = shell.kill();
    let _ = shell.wait();
    world.server.signal("TERM");
    // And files, but those that are made to keep it: the token of the installation, and the orders of tasks, for root alone.
    let mut folders = vec![world.server.home.server_folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("is read").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if name == "token" || name == "spec.json" {
                let mode = fs::metadata(&path).expect("is there").mode() & 0o777;
                assert_eq!(mode, 0o600, "{}", path.display());
            } else if let Ok(bytes) = fs::read(&path) {
                shown.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&bytes)));
            }
        }
    }
    for text in &shown {
        for (secret, owner) in &secrets {
            let place = text.find(secret.as_str()).map(|at| text[at.saturating_sub(200)..at].to_owned());
            assert_eq!(place, None, "a secret of {owner:?} in {}", &text[..text.len().min(80)]);
        }
    }
}

/// Says what it was asked, head by head, and believes nothing.
const EAR: &str = r#"
import os, socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.request.recv(65536)
            if not piece: return
            head += piece
        self.request.settimeout(0.5)
        try:
            while True:
                piece = self.request.recv(65536)
                if not piece: break
                head += piece
        except OSError: pass
        body = b"[[" + head + b"]]"
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nberth-user: root\r\nset-cookie: __Host-berth-session=evil; Path=/; Secure\r\n"
        answer += b"set-cookie: berth-z=evil\r\nset-cookie: a=1; Path=/team-b\r\nconnection: close\r\n\r\n"
        self.request.sendall(answer % len(body) + body)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

#[test]
fn nothing_is_smuggled_through_a_port() {
    let world = World::new("");
    let server = &world.server;
    let request = json!({"name": "ear", "project": "team-a", "gpus": 1, "ports": [9876], "command": ["python3", "-c", EAR]});
    world.run("bob", &request, "Running");
    let (address, token) = server.endpoint();
    let authority = address.trim_start_matches("http://").to_owned();
    let bearer = format!("Bearer {}", token.trim());
    let say = |request: &str| {
        let mut stream = TcpStream::connect(&authority).expect("it listens");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a limit");
        let _ = stream.write_all(request.as_bytes());
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    };
    let head = |more: &str| {
        format!(
            "GET /team-a/ear/x HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\nauthorization: {bearer}\r\n{more}"
        )
    };
    until("it listens", || say(&format!("{}\r\n", head(""))).starts_with("HTTP/1.1 200"));
    for more in [
        "Cookie: BERTH-session=x; ok=1\r\ncookie: __Secure-Berth-x=1;berth-y=2\r\n",
        "BERTH-USER: root\r\nBerth_User: x\r\n",
        "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nx-forwarded-proto: https\r\n",
        "Connection: close, x-secret\r\nx-secret: 6.6.6.6\r\nkeep-alive: 6.6.6.6\r\nproxy-authorization: 6.6.6.6\r\nte: 6.6.6.6\r\n",
        "Authorization: Bearer 6.6.6.6\r\n",
    ] {
        let said = say(&format!("{}{more}\r\n", head("")));
        let (answer, heard) = said.split_once("[[").unwrap_or((&said, ""));
        let heard = heard.to_ascii_lowercase();
        for word in [token.trim(), "6.6.6.6", "session=", "berth-y", "berth-user", "secure-berth"] {
            assert!(!heard.contains(&word.to_ascii_lowercase()), "{more:?}: {word}: {heard}");
        }
        let answer = answer.to_ascii_lowercase();
        assert!(!answer.contains("evil") && !answer.contains("path=/team-b"), "{answer}");
    }
    // Two readings of one request: whatever is passed on is one request, with one length.
    let inner = "GET /team-a/ear/hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    for (more, body) in [
        (
            format!("content-length: {}\r\ntransfer-encoding: chunked\r\n", inner.len() + 5),
            format!("0\r\n\r\n{inner}"),
        ),
        ("content-length: 0\r\ncontent-length: 60\r\n".into(), inner.to_owned()),
        ("transfer-encoding: xchunked\r\n".into(), inner.to_owned()),
        ("x: 1\r\n transfer-encoding: chunked\r\n".into(), format!("0\r\n\r\n{inner}")),
    ] {
        let said = say(&format!("{}{more}\r\n{body}", head("").replace("GET", "POST")));
        let heard = said.split_once("[[").map_or("", |(_, heard)| heard);
        let heads = heard.matches(" HTTP/1.1\r\n").count();
        assert!(heads <= 1, "{more:?}: {said}");
        let lower = heard.to_ascii_lowercase();
        assert!(
            !(lower.contains("content-length:") && lower.contains("transfer-encoding:")),
            "{more:?}: {said}"
        );
    }
}

#[test]
fn a_workload_that_fills_its_log_flees_and_ignores_its_end_is_ended() {
    let world = World::new("");
    let script = "trap '' TERM HUP INT
        (setsid bash -c 'trap \"\" TERM; while true; do sleep 1000; done' &)
        yes a line that says nothing | head -c 150000000; echo full; while true; do sleep 1000; done";
    let request = json!({"name": "rude", "project": "team-a", "gpus": 1, "command": ["bash", "-c", script], "grace_secs": 1});
    world.run("bob", &request, "Running");
    let server = &world.server;
    until("it has printed everything", || server.run("berth logs team-a/rude --tail 1").contains("full"));
    let size = |folder: PathBuf| -> u64 {
        let files = fs::read_dir(folder).expect("a folder").flatten();
        files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    };
    let id = server.workload("team-a/rude")["id"].to_string();
    let kept = size(server.home.server_folder().join("agent/tasks").join(id.trim_matches('"')).join("1-0"));
    assert!(kept < 80 << 20, "{kept} bytes of 150 MB are kept");
    assert!(server.task_processes().len() >= 4);
    server.run("berth delete team-a/rude");
    until("nothing of it is left", || server.task_processes().is_empty());
}
