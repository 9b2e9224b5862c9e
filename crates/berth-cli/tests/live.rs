//! The running product with real processes: what people do with it, and what they do wrong.

mod support;

use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};
use support::live::{Server, jupyter, until};

fn small() -> Server {
    Server::start("--nodes 1xdgx1 --project team-a=4 --project team-b=4")
}

/// Runs a shell script as a workload.
fn shell(server: &Server, name: &str, options: &str, script: &str) {
    let mut words = vec!["berth", "submit", name, "-p", "team-a"];
    words.extend(options.split_whitespace());
    words.extend(["--", "sh", "-c", script]);
    let ran = server.home.run_words(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_stop_saves_everything_and_the_next_start_goes_on() {
    let mut server = small();
    server.run("berth submit trains -p team-a -g 1 -i berth/quickstart");
    server.run("berth submit waits -p team-a -g 8 --workers 9 -i berth/quickstart");
    server.until_status("team-a/trains", "Running");
    until("it has begun", || server.run("berth logs trains -p team-a").contains("Epoch 1"));
    assert_eq!(server.signal("INT"), Some(0), "{}", server.log());
    assert!(server.log().contains("1 workload saves its state"), "{}", server.log());
    assert!(server.task_processes().is_empty(), "nothing is left behind");
    let checked = server.run("berth check");
    assert!(
        checked.contains("2 unfinished workloads; 0 findings"),
        "what waits to resume counts too: {checked}"
    );
    let not_running = server.try_run("berth list");
    assert_eq!(not_running.code, Some(3), "{not_running:?}");
    server.up();
    server.until_status("team-a/trains", "Running");
    assert_eq!(server.workload("team-a/waits")["status"], "Pending");
    until("it goes on", || server.run("berth logs trains -p team-a").contains("resumed from epoch"));
    assert_eq!(server.workload("team-a/trains")["failures"], 0);
}

#[test]
fn a_server_whose_words_nobody_takes_still_ends_what_runs() {
    let mut server = small();
    assert_eq!(server.signal("TERM"), Some(0), "{}", server.log());
    let log = server.home.path().join("server.log");
    fs::remove_file(&log).expect("is there");
    std::os::unix::fs::symlink("/dev/full", &log).expect("is made");
    server.up();
    shell(&server, "sleeps", "-g 1", "sleep 1000");
    server.until_status("team-a/sleeps", "Running");
    assert_eq!(server.signal("INT"), Some(0));
    assert!(server.task_processes().is_empty(), "nothing is left behind");
}

#[test]
fn a_killed_server_finds_what_runs_and_what_ended_meanwhile() {
    let mut server = small();
    shell(&server, "goes-on", "-g 1", "sleep 1000");
    shell(&server, "ends", "-g 1", "echo done; exit 0");
    let mark = server.home.shared().join("mark");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 7", mark.display());
    shell(&server, "later", "-g 1 --backoff-limit 0", &script);
    let before = server.until_status("team-a/goes-on", "Running")["tasks"][0]["pid"].clone();
    server.until_status("team-a/later", "Running");
    server.until_status("team-a/ends", "Succeeded");
    server.signal("KILL");
    fs::write(&mark, "").expect("is written");
    server.up();
    let failed = server.until_status("team-a/later", "Failed");
    assert_eq!(failed["ended"]["exit_code"], 7, "{failed}");
    let after = server.until_status("team-a/goes-on", "Running");
    assert_eq!(
        (&after["tasks"][0]["pid"], after["runs"].as_u64()),
        (&before, Some(1)),
        "it was not disturbed"
    );
}

#[test]
fn a_failure_is_told_with_its_code_and_its_log_is_kept_after_deletion() {
    let server = small();
    shell(&server, "bad", "-g 1 --backoff-limit 0", "echo to stdout; echo to stderr >&2; exit 3");
    let waited = server.try_run("berth wait bad -p team-a --timeout 60s");
    assert_eq!(waited.code, Some(1), "{waited:?}");
    let shown = server.workload("team-a/bad");
    assert_eq!((shown["status"].as_str(), shown["ended"]["exit_code"].as_i64()), (Some("Failed"), Some(3)));
    assert_eq!(shown["message"], "it exited with code 3");
    shell(&server, "early", "-g 1", "echo epoch 1/10 eta: 90s; sleep 0.3");
    let early = server.until_status("team-a/early", "Succeeded");
    assert_eq!(early["progress"]["epoch"], 1, "{early}");
    assert_eq!(early["progress"]["left_secs"], Value::Null, "nothing is left of what is over: {early}");
    server.run("berth submit never -p team-a -i bash");
    server.until_status("team-a/never", "Failed");
    let no_log = server.try_run("berth logs never -p team-a");
    assert_eq!(no_log.code, Some(5), "{no_log:?}");
    assert!(
        no_log.stderr.contains("it is Failed: `bash` runs nothing by itself")
            && !no_log.stderr.contains("did you mean"),
        "what kept it from running is said: {no_log:?}"
    );
    server.run("berth delete bad -p team-a");
    assert!(!server.run("berth list -A").contains("bad"));
    let log = server.run("berth logs bad -p team-a");
    assert!(log.contains("to stdout\n") && log.contains("to stderr\n"), "{log}");
    shell(&server, "bad", "-g 1", "true");
    assert_eq!(
        server.try_run("berth wait bad -p team-a --timeout 60s").code,
        Some(0),
        "the name is free again"
    );
}

#[test]
fn a_workload_knows_who_and_where_it_is() {
    let server = small();
    shell(&server, "half", "-g 0.5 -e MINE=yes", "env | sort; echo from $RUNAI_JOB_NAME");
    server.until_status("team-a/half", "Succeeded");
    let log = server.run("berth logs half -p team-a");
    for line in [
        "CUDA_VISIBLE_DEVICES=0",
        "BERTH_GPU_MEMORY_MIB=16255",
        "BERTH_PROJECT=team-a",
        "BERTH_NODE=node1",
        "BERTH_RUN=1",
        "RUNAI_PROJECT=team-a",
        "WORLD_SIZE=1",
        "MINE=yes",
        "from half",
    ] {
        assert!(log.lines().any(|have| have == line), "{line} is missing: {log}");
    }
    shell(
        &server,
        "gang",
        "-g 2 --workers 3",
        "echo rank $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES at $MASTER_PORT",
    );
    server.until_status("team-a/gang", "Succeeded");
    let ports: Vec<String> = (0..3)
        .map(|rank| {
            let log = server.run(&format!("berth logs gang -p team-a --rank {rank}"));
            assert!(log.starts_with(&format!("rank {rank} of 3 on ")), "{log}");
            log.rsplit(' ').next().expect("a port").to_owned()
        })
        .collect();
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
}

#[test]
fn suspended_work_gives_its_gpus_to_others_and_comes_back() {
    let server = small();
    server.run("berth submit first -p team-a -g 8 -i berth/quickstart");
    server.until_status("team-a/first", "Running");
    server.run("berth submit second -p team-a -g 8 -i berth/quickstart");
    let why = server.run("berth why second -p team-a");
    assert!(why.contains("team-a/first"), "it names who holds what it needs: {why}");
    server.run("berth suspend first -p team-a");
    server.until_status("team-a/second", "Running");
    assert_eq!(server.workload("team-a/first")["status"], "Suspended");
    server.run("berth resume first -p team-a");
    assert_eq!(server.workload("team-a/first")["status"], "Pending");
    server.run("berth delete second -p team-a");
    server.until_status("team-a/first", "Running");
    until("it goes on", || server.run("berth logs first -p team-a").contains("resumed from epoch"));
}

#[test]
fn limits_end_what_runs_too_long() {
    let server = small();
    shell(&server, "long", "-g 1 --max-run-time 1s --grace 1s", "sleep 1000");
    let over = server.until_status("team-a/long", "TimedOut");
    assert!(over["ended"]["at"].is_string());
    let events = server.run("berth events long -p team-a");
    assert!(events.contains("is ended by its time limit"), "{events}");
    server.run("berth project update team-a --interactive-limit 1s");
    shell(&server, "shell", "-g 1 --interactive --grace 1s", "sleep 1000");
    server.until_status("team-a/shell", "TimedOut");
}

#[test]
fn idle_gpus_are_given_back() {
    let server = small();
    server.run("berth project update team-a --idle-limit 1s");
    shell(&server, "idle", "-g 1", "echo 'berth: {\"utilisation\": 0}'; sleep 1000");
    let shown = server.until_status("team-a/idle", "Suspended");
    assert_eq!(shown["gpus_allocated"], 0);
}

#[test]
fn progress_is_shown_however_it_is_told() {
    let server = small();
    shell(&server, "prints", "-g 1", "echo 'epoch 3/10 loss: 0.25'; sleep 1000");
    shell(
        &server,
        "python",
        "-g 1",
        "python3 -c 'import berth; berth.report(epoch=4, epochs=8, loss=0.5, lr=0.1); berth.checkpoint()'; sleep 1000",
    );
    let post = "curl -s -X POST -H \"Authorization: Bearer $BERTH_REPORT_TOKEN\" -d '{\"percent\": 70}' $BERTH_REPORT_URL/report; sleep 1000";
    shell(&server, "posts", "-g 1", post);
    for (name, percent) in [("prints", 30), ("python", 50), ("posts", 70)] {
        until(&format!("{name} is at {percent}"), || {
            server.workload(&format!("team-a/{name}"))["progress"]["percent"] == percent
        });
    }
    assert_eq!(server.workload("team-a/prints")["progress"]["loss"], "0.25");
    assert_eq!(server.workload("team-a/python")["progress"]["metrics"]["lr"], "0.1");
    until("the checkpoint is known", || server.workload("team-a/python")["checkpoint_at"].is_string());
    let list = server.run("berth list -A");
    assert!(list.contains("30%") && list.contains("70%"), "{list}");
}

#[test]
fn a_volume_is_shared_and_kept() {
    let server = small();
    server.run("berth volume create data");
    let target = server.home.shared().join("seen");
    let options = format!("-g 0.1 --pvc data:{}", target.display());
    shell(&server, "writes", &options, &format!("echo hello > {}/file", target.display()));
    server.until_status("team-a/writes", "Succeeded");
    let read_only = format!("{options}:ro");
    shell(
        &server,
        "reads",
        &read_only,
        &format!("cat {0}/file; touch {0}/x || echo refused", target.display()),
    );
    server.until_status("team-a/reads", "Succeeded");
    assert!(server.run("berth logs reads -p team-a").contains("hello\n"));
    assert!(server.run("berth logs reads -p team-a").contains("refused"));
    shell(&server, "uses", &options, "sleep 1000");
    let refused = server.try_run("berth volume delete data");
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("is used by team-a/uses"), "{refused:?}");
}

#[test]
fn work_runs_as_who_was_asked_for() {
    let server = small();
    if fs::metadata(server.home.path()).map(|home| home.uid()).ok() != Some(0) {
        println!("SKIPPED: running as somebody else needs root");
        return;
    }
    // As the home of root is.
    fs::set_permissions(server.home.path(), fs::Permissions::from_mode(0o700)).expect("is closed");
    server.run("berth volume create data");
    let seen = "/mnt/berth-test-data";
    let script = format!("id -u; id -g; echo $HOME; touch {seen}/mine $BERTH_CHECKPOINT_DIR/x && echo wrote");
    let options = format!("--run-as 3999:3998 --pvc data:{seen}");
    shell(&server, "theirs", &options, &script);
    server.until_status("team-a/theirs", "Succeeded");
    let log = server.run("berth logs theirs -p team-a");
    assert_eq!(log, "3999\n3998\n/run/berth/work\nwrote\n");
    let page = server.run("berth get theirs -p team-a");
    assert!(page.contains("Runs as") && page.contains("3999:3998"), "{page}");
    shell(&server, "named", "--run-as nobody", "id -un; echo $USER $LOGNAME");
    server.until_status("team-a/named", "Succeeded");
    assert_eq!(server.run("berth logs named -p team-a"), "nobody\nnobody nobody\n");
    shell(&server, "mine", "--run-as-user", "id -u; id -g");
    server.until_status("team-a/mine", "Succeeded");
    assert_eq!(server.run("berth logs mine -p team-a"), "0\n0\n");
    shell(&server, "two", "--run-as-uid 3999 --run-as-gid 3997", "id -g");
    server.until_status("team-a/two", "Succeeded");
    assert_eq!(server.run("berth logs two -p team-a"), "3997\n");
    // The built-in trainer is the product's own program, wherever that lies.
    server.run("berth submit trains -p team-a -g 1 -i berth/quickstart --run-as 3999:3998 -- --epochs 1 --step-time-ms 1");
    server.until_status("team-a/trains", "Succeeded");
    assert!(fs::remove_dir(seen).is_ok(), "the place of the mount is empty outside");
}

#[test]
fn a_backup_is_restored_into_another_folder_and_started() {
    let server = small();
    server.run("berth submit waits -p team-a -g 8 --workers 9 -i berth/quickstart");
    let file = server.home.path().join("copy.backup");
    server.run(&format!("berth backup {}", file.display()));
    let folder = server.home.path().join("other");
    server.run(&format!("berth restore {} --folder {}", file.display(), folder.display()));
    let checked = server.run(&format!("berth check --folder {}", folder.display()));
    assert!(checked.contains("1 nodes, 2 projects, 1 unfinished workloads; 0 findings"), "{checked}");
    let again = server.try_run(&format!("berth restore {} --folder {}", file.display(), folder.display()));
    assert_eq!(again.code, Some(1), "nothing is overwritten: {again:?}");
    let while_it_runs = server.try_run("berth check");
    assert!(while_it_runs.stderr.contains("the server runs"), "{while_it_runs:?}");
}

#[test]
fn a_dry_run_says_what_would_happen_and_does_nothing() {
    let server = small();
    server.run("berth submit lent -p team-a -g 8 -i berth/quickstart");
    server.until_status("team-a/lent", "Running");
    let preview = server.run("berth submit owed -p team-b -g 4 -i berth/quickstart --dry-run");
    assert!(preview.contains("team-a/lent"), "{preview}");
    assert_eq!(server.json("berth list -A")["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.workload("team-a/lent")["preemptions"], 0);
}

#[test]
fn a_notebook_answers_at_its_address() {
    if !jupyter() {
        return;
    }
    let server = small();
    server.run("berth submit nb -p team-a -g 0.5 -i jupyter/base-notebook --interactive --service-type=ingress --port 8888");
    let shown = server.until_status("team-a/nb", "Running|Failed");
    assert_eq!(shown["status"], "Running", "{shown}");
    let url = shown["urls"][0].as_str().expect("an address").to_owned();
    assert!(url.ends_with("/team-a/nb/"), "{url}");
    assert!(server.run("runai list -A").contains(&url));
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let server = small();
    server.run("berth submit taken -p team-a -g 1 -i berth/quickstart");
    let long = "x".repeat(10_000);
    let cases: [(&str, i32, &str); 33] = [
        ("berth submit x -p taem-a -g 1 -i bash", 5, "did you mean team-a?"),
        ("berth submit x -p team-a -g 1", 2, "neither an image nor a command"),
        ("berth submit x -p team-a -g 1 -i acme/train:7", 2, "stands for no program of this machine"),
        ("berth submit taken -p team-a -g 1 -i bash", 6, "exists already"),
        ("berth submit x -p team-a -g -1 -i bash", 2, "-1"),
        ("berth submit x -p team-a -g 1.5 -i bash", 2, "neither whole GPUs nor a fraction"),
        ("berth submit x -p team-a -g many -i bash", 2, "not a number"),
        ("berth submit x -p team-a -g 65 -i bash", 2, "one worker cannot have 65 GPUs"),
        ("berth submit ../x -p team-a -g 1 -i bash", 2, "is not a name"),
        (&format!("berth submit {long} -p team-a -i bash"), 2, "is not a name"),
        ("berth submit é -p team-a -g 1 -i bash", 2, "is not a name"),
        ("berth submit x -p team-a --memory 1Q -i bash", 2, "unknown unit"),
        ("berth submit x -p team-a --pvc nothing:/x -i bash", 5, "there is no volume"),
        ("berth submit x -p team-a --node-pool moon -i bash", 2, "no node is in the pool"),
        ("berth submit x -p team-a --max-run-time 0s -i bash", 2, "ends it before it begins"),
        ("berth submit x -p team-a --workers 0 -i bash", 2, "0 workers"),
        ("berth submit x -p team-a --priority urgent -i bash", 2, "urgent"),
        (
            "berth submit x -p team-a -i bash --run-as no-such-user",
            2,
            "this machine has no user `no-such-user`",
        ),
        ("berth submit x -p team-a -i bash --run-as root:no-such-group", 2, "no group `no-such-group`"),
        ("berth submit x -p team-a -i bash --run-as 3999999999", 2, "its group must be named"),
        ("berth submit x -p team-a -i bash --run-as 1:2:3", 2, "no group `2:3`"),
        ("berth submit x -p team-a -i bash --run-as-user --run-as root", 2, "cannot be used with"),
        ("berth submit x -p team-a -i bash --workers -2", 2, "invalid value '-2'"),
        ("berth project create x --quota -3", 2, "invalid value '-3'"),
        ("berth logs", 2, "Usage: berth logs <NAME>"),
        ("berth get nothing -p team-a", 5, "no workload nothing"),
        ("berth logs takne -p team-a", 5, "did you mean taken?"),
        ("berth suspend nothing -p team-a", 5, "nothing"),
        ("berth node drain node9", 5, "did you mean node1?"),
        ("berth project create team-a", 6, "exists already"),
        ("berth project delete team-a --yes", 6, "unfinished workloads"),
        ("berth delete nothing taken2 -p team-a", 5, "nothing"),
        ("berth frobnicate", 2, "unknown command"),
    ];
    for (line, code, part) in cases {
        let ran = server.try_run(line);
        let short = &line[..line.char_indices().nth(80).map_or(line.len(), |(at, _)| at)];
        assert_eq!(ran.code, Some(code), "{short}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{short}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{short}");
    }
    let large = format!("A={}", "x".repeat(100_000));
    let words: Vec<String> = (0..15).flat_map(|_| ["-e".to_owned(), large.clone()]).collect();
    let mut line = vec!["berth", "submit", "x", "-p", "team-a", "-i", "bash"];
    line.extend(words.iter().map(String::as_str));
    let ran = server.home.run_words(&line);
    assert_ne!(ran.code, Some(0), "{}", &ran.stderr[..ran.stderr.len().min(200)]);
    assert_eq!(
        server.json("berth list -A")["items"].as_array().map(Vec::len),
        Some(1),
        "nothing was half done"
    );
    let allowed = server.try_run("berth project create huge --quota 500");
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(
        allowed.stderr.contains("more than the 8"),
        "a quota above what there is is warned of: {allowed:?}"
    );
}

#[test]
fn a_file_with_a_mistake_is_shown_with_its_place() {
    let server = small();
    let file = server.home.path().join("job.yaml");
    fs::write(&file, "name: x\nproject: team-a\nimage: bash\ngpus: lots\n").expect("is written");
    let ran = server.try_run(&format!("berth submit -f {}", file.display()));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("job.yaml") && ran.stderr.contains("4") && ran.stderr.contains('^'),
        "{}",
        ran.stderr
    );
    fs::write(&file, "name: x\nproject: team-a\nimage: bash\ncommand: [sleep, '1000']\ngpus: 0.5\n")
        .expect("is written");
    server.run(&format!("berth submit -f {}", file.display()));
    server.until_status("team-a/x", "Running");
}

#[test]
fn a_wrong_token_and_a_foreign_server_are_told_apart() {
    let server = small();
    let (address, _) = server.endpoint();
    let with = |token: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_berth"));
        command.args(["list", "--server", &address]).env_clear().env("BERTH_TOKEN", token);
        let output = command.output().expect("starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = with("wrong");
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("token"), "{said}");
    let second = server.try_run("berth up --listen 127.0.0.1:0");
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("berth runs already"), "{second:?}");
}

#[test]
fn a_machine_without_gpus_still_runs_what_asks_for_none() {
    let server = Server::start("--project team-a=0");
    assert!(
        server.log().contains("no GPUs to share") || Path::new("/dev/nvidia0").exists(),
        "{}",
        server.log()
    );
    shell(&server, "plain", "", "echo fine");
    server.until_status("team-a/plain", "Succeeded");
    let nodes: Value = server.json("berth node list");
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1));
}
