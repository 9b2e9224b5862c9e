//! Commands as people and scripts meet them: what is printed where, and the exit code.

mod support;

use serde_json::{Value, json};
use std::fs;
use support::{Fake, Home};

fn workload(project: &str, name: &str, status: &str) -> Value {
    json!({
        "id": 7, "name": name, "project": project, "user": "ada", "kind": "train", "status": status, "priority": 50,
        "preemptible": true, "submitted_at": "2026-11-17T08:00:00.000Z", "gpus_requested": 1, "gpus_allocated": 0,
        "workers_min": 1, "workers_max": 1, "tasks": [], "runs": 2, "failures": 0, "preemptions": 0,
        "request": {"project": project, "image": "quickstart"}
    })
}

fn project(name: &str) -> Value {
    json!({"name": name, "settings": {"quota": 4}, "allocated": 0, "allocated_non_preemptible": 0, "fair_share": 4,
        "waiting": 0, "running_count": 0, "waiting_count": 0})
}

fn route(route: &'static str, body: Value) -> (&'static str, u16, String) {
    (route, 200, body.to_string())
}

fn usual() -> Vec<(&'static str, u16, String)> {
    let submitted = json!({"workload": workload("team-a", "hyper1", "Pending"), "warnings": ["quota is above the cluster"]});
    let mut deleted = workload("team-a", "hyper1", "Terminating");
    deleted["message"] = json!("stopping");
    vec![
        route("GET /api/v1/projects", json!({"items": [project("team-a"), project("team-b")]})),
        route("GET /api/v1/projects/team-a", project("team-a")),
        route("GET /api/v1/workloads", json!({"items": [workload("team-a", "hyper1", "Running")]})),
        route("GET /api/v1/workloads/team-a/hyper1", workload("team-a", "hyper1", "Running")),
        route("DELETE /api/v1/workloads/team-a/hyper1", deleted),
        route("GET /api/v1/events", json!({"items": [], "cursor": 40})),
        ("POST /api/v1/workloads", 201, submitted.to_string()),
        ("GET /api/v1/workloads/team-a/hyper1/logs", 200, "epoch 1\nepoch 2\n".into()),
    ]
}

#[test]
fn without_a_server_every_command_says_how_to_start_one() {
    let home = Home::new();
    for line in [
        "berth list",
        "berth status",
        "berth submit a -p a -i x",
        "berth down",
        "berth project set a",
        "runai list",
    ] {
        let ran = home.run(line);
        assert_eq!(ran.code, Some(3), "{line}: {ran:?}");
        assert!(ran.stderr.contains("berth is not running: start it with `berth up`"), "{line}: {ran:?}");
        assert_eq!(ran.stdout, "");
    }
    let ran = home.run("berth list --server http://127.0.0.1:1");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("nobody answers at http://127.0.0.1:1"), "{ran:?}");
    let ran = home.run("berth list --server https://127.0.0.1:1");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("nobody answers at https://127.0.0.1:1"), "{ran:?}");
    let ran = home.run("berth list --server ftp://berth.example");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("begins with http:// or https://"), "{ran:?}");
}

#[test]
fn a_mistyped_command_is_answered_with_the_one_that_was_meant() {
    let home = Home::new();
    let ran = home.run("runai delte hyper1");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("runai: unknown command \"delte\"; did you mean \"delete\"?\n"),
        "{ran:?}"
    );
    let ran = home.run("berth project crate team-a");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("berth: unknown command \"crate\"; did you mean \"create\"?\n"),
        "{ran:?}"
    );
    let ran = home.run("berth frobnicate");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(2), "berth: unknown command \"frobnicate\"\n  all are shown by `berth --help`\n")
    );
}

#[test]
fn a_list_is_data_on_stdout_and_nothing_else() {
    let home = Home::new();
    let fake = Fake::start(&home, &usual());
    let ran = home.run("berth list -o name");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "team-a/hyper1\n", ""));
    let asked = fake.asked();
    assert!(
        asked.len() == 1 && asked[0].starts_with("GET /api/v1/workloads?ended_after="),
        "one request is enough: {asked:?}"
    );
    let ran = home.run("berth list -p team-a --status running --finished --no-headers");
    assert!(ran.stdout.starts_with("hyper1  Running  train  team-a  ada  1  "), "{ran:?}");
    assert_eq!(fake.asked()[1], "GET /api/v1/workloads?project=team-a&status=Running");
    let ran = home.run("runai list");
    assert!(ran.stdout.starts_with("NAME    STATUS   AGE  "), "{ran:?}");
    let ran = home.run("runai list -p team-a");
    assert!(ran.stdout.starts_with("Showing jobs for project team-a\n\nNAME "), "{ran:?}");
    let ran = home.run("runai list -p team-a -o name");
    assert_eq!(ran.stdout, "team-a/hyper1\n", "scripts see data only");
}

#[test]
fn a_chosen_project_is_kept_for_later_commands() {
    let home = Home::new();
    let fake = Fake::start(&home, &usual());
    let ran = home.run("runai project set team-a");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    let config = home.path().join("config").join("berth").join("config.toml");
    assert_eq!(fs::read_to_string(config).expect("is there"), "project = \"team-a\"\n");
    let ran = home.run("runai submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("The job 'hyper1' has been submitted successfully\n"), "{ran:?}");
    assert!(ran.stderr.contains("warning: quota is above the cluster"), "{ran:?}");
    let sent = fake.asked().pop().expect("a request");
    let body: Value =
        serde_json::from_str(sent.strip_prefix("POST /api/v1/workloads ").expect("a create")).expect("JSON");
    assert_eq!(
        (&body["project"], &body["name"], &body["gpus"]),
        (&json!("team-a"), &json!("hyper1"), &json!(1))
    );
    assert_eq!(body["command_line"], "runai submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1");
    let ran = home.run("berth project list --no-headers");
    assert!(ran.stdout.starts_with("team-a (default)  "), "{ran:?}");
    let ran = home.run("berth project set tema-a");
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("there is no project \"tema-a\"\n  did you mean team-a?"), "{ran:?}");
}

#[test]
fn what_is_missing_is_named_with_what_was_probably_meant() {
    let home = Home::new();
    let _fake = Fake::start(&home, &usual());
    let ran = home.run("berth get hyper2 -p team-a");
    assert_eq!(ran.code, Some(5));
    assert!(ran.stderr.contains("team-a has no workload hyper2\n  did you mean hyper1?"), "{ran:?}");
    let ran = home.run("berth logs team-b/hyper1");
    assert!(ran.stderr.contains("there is one in another project: team-a/hyper1"), "{ran:?}");
    let ran = home.run("berth why hyper1 -p team-aa");
    assert!(ran.stderr.contains("there is no project \"team-aa\"\n  did you mean team-a?"), "{ran:?}");
    let ran = home.run("berth get hyper1");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("no project is named or chosen") && ran.stderr.contains("team-a, team-b"),
        "{ran:?}"
    );
}

#[test]
fn names_that_are_none_never_reach_the_server() {
    let home = Home::new();
    let fake = Fake::start(&home, &usual());
    let long = "x".repeat(10_000);
    for name in ["../../etc/passwd", "a\u{202e}b", "A", long.as_str(), "team-a/../x", "-x"] {
        for words in
            [vec!["berth", "get", "-p", "team-a", "--", name], vec!["berth", "project", "delete", "--", name]]
        {
            let ran = home.run_words(&words);
            assert_eq!(ran.code, Some(2), "{name}: {ran:?}");
            assert!(ran.stderr.len() < 500, "{ran:?}");
        }
    }
    assert_eq!(fake.asked(), Vec::<String>::new());
}

#[test]
fn logs_and_deletions_use_the_words_of_each_spelling() {
    let home = Home::new();
    let fake = Fake::start(&home, &usual());
    let ran = home.run("berth logs team-a/hyper1 -f --tail 2 --previous");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "epoch 1\nepoch 2\n"), "{ran:?}");
    assert_eq!(fake.asked()[1], "GET /api/v1/workloads/team-a/hyper1/logs?follow=true&run=1&tail=2");
    let ran = home.run("berth delete team-a/hyper1 team-a/nobody");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{ran:?}");
    assert!(ran.stderr.contains("team-a/hyper1 stopping (30s grace)\n"), "{ran:?}");
    assert!(ran.stderr.contains("team-a has no workload nobody"), "{ran:?}");
    let ran = home.run("runai delete -p team-a hyper1");
    assert_eq!(ran.stdout, "The job 'hyper1' has been deleted successfully\n");
}

#[test]
fn waiting_tells_by_its_exit_code_how_it_ended() {
    for (status, code) in [("Succeeded", 0), ("Failed", 1), ("TimedOut", 1), ("Deleted", 1)] {
        let home = Home::new();
        let event = json!({"seq": 41, "at": "2026-11-17T08:00:01.000Z", "kind": "ended", "level": "normal", "message": "m",
            "workload_id": 7, "now": workload("team-a", "hyper1", status)});
        let mut routes = usual();
        routes.push(("GET /api/v1/events/stream", 200, format!("id: 41\ndata: {event}\n\n")));
        let fake = Fake::start(&home, &routes);
        let ran = home.run("berth wait team-a/hyper1");
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(&format!("team-a/hyper1 {status}")), "{ran:?}");
        assert_eq!(
            fake.asked()[1],
            "GET /api/v1/events/stream?after=40&objects=true",
            "from where the list ended"
        );
    }
    let home = Home::new();
    let _fake = Fake::start(&home, &usual());
    assert_eq!(home.run("berth wait team-a/hyper1 --for running").code, Some(0));
    // The last event of a workload that is over may come without it.
    let event = json!({"seq": 41, "at": "2026-11-17T08:00:01.000Z", "kind": "task-exited", "level": "normal",
        "message": "m", "workload_id": 7});
    let mut routes = usual();
    routes.push(("GET /api/v1/events/stream", 200, format!("id: 41\ndata: {event}\n\n")));
    routes.push(route("GET /api/v1/workloads/7", workload("team-a", "hyper1", "Failed")));
    let home = Home::new();
    let _fake = Fake::start(&home, &routes);
    assert_eq!(home.run("berth wait team-a/hyper1 --timeout 20s").code, Some(1));
    let mut routes = usual();
    routes.push(("GET /api/v1/events/stream", 200, ": nothing happens\n\n".into()));
    let home = Home::new();
    let _fake = Fake::start(&home, &routes);
    let ran = home.run("berth wait team-a/hyper1 --timeout 100ms");
    assert_eq!(ran.code, Some(4), "{ran:?}");
}

#[test]
fn a_file_with_a_mistake_is_shown_where_it_is() {
    let home = Home::new();
    let path = home.path().join("job.yaml");
    fs::write(&path, "image: python\ngpus: lots\n").expect("is written");
    let ran = home.run(&format!("berth submit -f {}", path.display()));
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("job.yaml:2:7: `lots` is not a number") && ran.stderr.contains("|       ^"),
        "{ran:?}"
    );
    assert_eq!(home.run("berth submit -f /nowhere/job.yaml").code, Some(1));
}

#[test]
fn a_folder_in_use_is_not_restored_into() {
    let home = Home::new();
    let _fake = Fake::start(&home, &usual());
    let ran = home.run("berth restore x.backup");
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("end it with `berth down`"), "{ran:?}");
    let ran =
        home.run(&format!("berth restore /nowhere/x.backup --folder {}", home.path().join("new").display()));
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn every_command_explains_itself() {
    let home = Home::new();
    let mut open = vec![Vec::<String>::new()];
    let mut count = 0;
    while let Some(path) = open.pop() {
        let mut words = vec!["berth"];
        words.extend(path.iter().map(String::as_str));
        words.push("--help");
        let ran = home.run_words(&words);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{path:?}");
        assert!(ran.stdout.contains("Usage: berth"), "{path:?}");
        count += 1;
        let commands = ran.stdout.split("\nCommands:\n").nth(1).unwrap_or_default();
        let names = commands.lines().take_while(|line| line.starts_with("  "));
        for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            let mut inner = path.clone();
            inner.push(name.to_owned());
            open.push(inner);
        }
    }
    assert!(count > 45, "{count} commands");
    let ran = home.run("berth --help");
    for code in ["0  done", "3  berth is not running", "6  the server refused"] {
        assert!(ran.stdout.contains(code), "{}", ran.stdout);
    }
}

#[test]
fn version_completions_and_manual_pages_need_no_server() {
    let home = Home::new();
    let ran = home.run("berth version");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "berth 0.1.0\n"));
    for shell in ["bash", "zsh", "fish"] {
        let ran = home.run(&format!("berth completions {shell}"));
        assert!(ran.code == Some(0) && ran.stdout.contains("berth"), "{shell}");
    }
    assert!(home.run("berth man").stdout.contains(".TH"));
    let folder = home.path().join("man");
    assert_eq!(home.run(&format!("berth man {}", folder.display())).code, Some(0));
    assert!(folder.join("berth-submit.1").exists());
}

/// What a shell says to a script of its own language, with `berth` on its path. None, and a word about it, without the shell.
fn said_by(shell: &str, home: &Home, script: &str) -> Option<String> {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_berth")).parent().expect("a folder");
    let output = std::process::Command::new(shell)
        .args(["-c", script])
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("XDG_DATA_HOME", home.path().join("data"))
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .output();
    match output {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("SKIPPED: completions of {shell}: {error}");
            None
        }
    }
}

/// The names that are offered after these words. `line` makes a script of the shell from the file of completions and the words.
fn offered(shell: &str, line: impl Fn(&str, &str) -> String) {
    let home = Home::new();
    let _fake = Fake::start(&home, &usual());
    let script = home.path().join(format!("completions.{shell}"));
    fs::write(&script, home.run(&format!("berth completions {shell}")).stdout).expect("is written");
    let complete = |words: &str| said_by(shell, &home, &line(&script.display().to_string(), words));
    for (words, names) in [
        ("berth logs", "team-a/hyper1\n"),
        ("berth list -p", "team-a\nteam-b\n"),
        ("berth project set", "team-a\nteam-b\n"),
        ("berth project delete", "team-a\nteam-b\n"),
    ] {
        let Some(said) = complete(words) else { return };
        assert_eq!(said, names, "{shell}: {words}");
    }
    let Some(said) = complete("berth") else { return };
    assert!(said.contains("submit"), "{shell}: {said}");
}

#[test]
fn bash_completes_names_of_what_is_there() {
    offered("bash", |script, words| {
        let count = words.split(' ').count();
        format!(
            "source {script}; COMP_WORDS=({words} ''); COMP_CWORD={count}; _berth_names berth '' x; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
    });
}

#[test]
fn zsh_completes_names_of_what_is_there() {
    // Outside of its editor the shell has no completion system: names go to `compadd`, words to `_describe` and `_arguments`.
    let stubs = "compdef() { }; compadd() { shift; print -l -- \"$@\" }; _arguments() { _berth_commands }; \
                 _describe() { print -l -- \"${(@P)4}\" }";
    offered("zsh", |script, words| {
        let count = words.split(' ').count() + 1;
        format!("{stubs}; source {script}; words=({words} ''); CURRENT={count}; _berth")
    });
}

#[test]
fn fish_completes_names_of_what_is_there() {
    offered("fish", |script, words| format!("source {script}; complete -C '{words} '"));
}

#[test]
fn a_watched_list_in_a_pipe_has_a_line_for_each_change() {
    use std::io::BufRead;
    let home = Home::new();
    let mut ended = workload("team-a", "hyper1", "Succeeded");
    ended["message"] = json!("exit code 0");
    let event = |seq: u64, now: Value| {
        let event = json!({"seq": seq, "at": "2026-11-17T08:00:01.000Z", "kind": "k", "level": "normal", "message": "m",
            "workload_id": 7, "now": now});
        format!("id: {seq}\ndata: {event}\n\n")
    };
    let stream = event(41, workload("team-a", "hyper1", "Stopping")) + &event(42, ended);
    let mut routes = usual();
    routes.push(("GET /api/v1/events/stream", 200, stream));
    let _fake = Fake::start(&home, &routes);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["list", "--watch", "--folder"])
        .arg(home.server_folder())
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let statuses: Vec<String> = lines
        .by_ref()
        .take(4)
        .map(|line| line.expect("is text").split_whitespace().nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(statuses, ["STATUS", "Running", "Stopping", "Succeeded"]);
    child.kill().expect("is ended");
    child.wait().expect("is collected");
}

#[test]
fn down_waits_until_the_process_is_gone() {
    let home = Home::new();
    let mut routes = usual();
    routes.push(("POST /api/v1/shutdown", 202, String::new()));
    let fake = Fake::start(&home, &routes);
    let ran = home.run("berth down --timeout 100ms");
    assert_eq!(ran.code, Some(4), "the server is this very process: {ran:?}");
    let mut server = std::process::Command::new("sleep").arg("0.2").spawn().expect("starts");
    let path = home.server_folder().join("server.json");
    let text = fs::read_to_string(&path).expect("is there");
    fs::write(&path, text.replace(&std::process::id().to_string(), &server.id().to_string()))
        .expect("is written");
    let ran = home.run("berth down");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "berth: it has ended\n"), "{ran:?}");
    assert!(
        fake.asked().iter().all(|asked| asked.starts_with("POST /api/v1/shutdown")),
        "{:?}",
        fake.asked()
    );
    server.wait().expect("is collected");
}

#[test]
fn servers_are_known_by_name_and_tokens_stay_private() {
    use std::os::unix::fs::PermissionsExt;
    let here = Home::new();
    let _fake = Fake::start(&here, &[("GET /api/v1/nodes", 200, r#"{"items":[]}"#.into())]);
    let away = Home::new();
    let ran = away.run("berth node list");
    assert_ne!(ran.code, Some(0), "no server runs on this machine");
    let folder = here.server_folder();
    let ran = away.run(&format!("berth context add lab --folder {}", folder.display()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(away.run("berth node list --context lab").code, Some(0));
    assert_eq!(away.run("berth context use lab").code, Some(0));
    assert_eq!(away.run("berth node list").code, Some(0), "it is chosen");
    let elsewhere = away.run("berth node list --context default");
    assert_ne!(elsewhere.code, Some(0), "what is typed is closer than what was chosen");

    let token = away.path().join("token");
    std::fs::write(&token, "a-secret\n").expect("a file");
    let add = format!("berth context add far --server http://127.0.0.1:9 --token-file {}", token.display());
    assert_eq!(away.run(&add).code, Some(0));
    let list = away.run("berth context list");
    assert!(list.stdout.contains("lab") && list.stdout.contains("http://127.0.0.1:9"), "{list:?}");
    assert!(!list.stdout.contains("a-secret"), "{list:?}");
    let file = away.path().join("config/berth/contexts/far.json");
    let mode = std::fs::metadata(&file).expect("it is remembered").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    assert_eq!(away.run("berth context remove lab").code, Some(0));
    assert_ne!(away.run("berth node list").code, Some(0), "it is forgotten, and not chosen any more");
    for (line, says) in [
        ("berth node list --context fat", "did you mean far"),
        ("berth context use ../far", "is not a name of a context"),
        ("berth context add default --folder x", "choose another name"),
        ("berth context add bare", "--server URL"),
        ("berth context add far --server ftp://x", "ftp"),
    ] {
        let ran = away.run(line);
        assert!(ran.code != Some(0) && ran.stderr.contains(says), "{line}: {ran:?}");
    }
}
