//! Every command of TR-4858, one by one, and what becomes of it. Its run-together and broken lines are split as evident.

use super::*;
use crate::{Cli, Command};
use berth_api::{KindName, ServiceType};
use clap::Parser;

/// Splits a line as a shell would, as far as the report needs it.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is a word").push(c),
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

fn parse(line: &str) -> Command {
    let arguments = words(line).into_iter().map(Into::into).collect();
    Cli::try_parse_from(crate::runai::translate(arguments))
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .command
}

fn submitted(line: &str) -> WorkloadRequest {
    match parse(line) {
        Command::Submit(arguments) => request(&arguments).unwrap_or_else(|error| panic!("{line}: {error}")),
        other => panic!("{line}: {other:?}"),
    }
}

/// What is set of a request, which is what the server is sent.
fn json(line: &str) -> serde_json::Value {
    let mut value = serde_json::to_value(submitted(line)).expect("is JSON");
    let fields = value.as_object_mut().expect("is an object");
    fields.retain(|_, value| *value != serde_json::json!(false) && *value != serde_json::json!("process"));
    value
}

#[test]
fn section_4_5_unattended_training() {
    assert!(matches!(parse("runai project set team-a"), Command::Project(_)));
    assert_eq!(
        json("runai submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1"),
        serde_json::json!({"name": "hyper1", "project": "", "kind": "train", "image": "gcr.io/run-ai-demo/quickstart", "gpus": 1})
    );
    assert!(matches!(parse("runai list"), Command::List(_)));
    assert!(matches!(parse("runai get hyper1"), Command::Get(_)));
    assert!(matches!(parse("runai logs hyper1"), Command::Logs(_)));
    assert!(matches!(parse("runai delete hyper1"), Command::Delete(_)));
}

#[test]
fn section_4_5_interactive_build() {
    assert_eq!(
        json("runai submit build1 -i python -g 1 --interactive --command sleep --args infinity"),
        serde_json::json!({"name": "build1", "project": "", "kind": "interactive", "image": "python", "gpus": 1,
            "command": ["sleep"], "args": ["infinity"]})
    );
    assert!(matches!(parse("runai bash build1"), Command::Bash(_)));
}

#[test]
fn section_4_5_connected_ports() {
    assert_eq!(
        json(
            "runai submit test-ingress -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 \
             --args=\"--NotebookApp.base_url=test-ingress\" --command=start-notebook.sh"
        ),
        serde_json::json!({"name": "test-ingress", "project": "", "kind": "interactive", "image": "jupyter/base-notebook",
            "gpus": 1, "ports": [8888], "service_type": "ingress", "command": ["start-notebook.sh"],
            "args": ["--NotebookApp.base_url=test-ingress"]})
    );
}

#[test]
fn section_4_6_the_benchmark() {
    assert_eq!(
        json(
            "runai submit netapp1 -i netapp/tensorflow-tfl-py3:20.01.0 --local-image --large-shm -v /mnt:/mnt -v /tmp:/tmp \
             --command python --args \"/netapp/scripts/run.py\" \
             --args \"--dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/\" --args \"--num_mounts=2\" \
             --args \"--dgx_version=dgx1\" --args \"--num_devices=1\" -g 1"
        ),
        serde_json::json!({"name": "netapp1", "project": "", "kind": "train", "image": "netapp/tensorflow-tfl-py3:20.01.0",
            "gpus": 1, "local_image": true, "large_shm": true, "command": ["python"],
            "mounts": [{"source": "/mnt", "target": "/mnt", "read_only": false},
                       {"source": "/tmp", "target": "/tmp", "read_only": false}],
            "args": ["/netapp/scripts/run.py", "--dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/",
                     "--num_mounts=2", "--dgx_version=dgx1", "--num_devices=1"]})
    );
}

#[test]
fn section_4_11_volumes() {
    assert_eq!(
        json(
            "runai submit pvc-test -p team-a --pvc test:/tmp/pvc1mount -i gcr.io/run-ai-demo/quickstart -g 1"
        ),
        serde_json::json!({"name": "pvc-test", "project": "team-a", "kind": "train", "image": "gcr.io/run-ai-demo/quickstart",
            "gpus": 1, "volumes": [{"name": "test", "target": "/tmp/pvc1mount", "read_only": false}]})
    );
    assert!(matches!(parse("runai get pvc-test -p team-a"), Command::Get(_)));
    assert!(matches!(parse("runai bash pvc-test -p team-a"), Command::Bash(_)));
}

#[test]
fn the_testing_details_line_by_line() {
    let notebook = submitted(
        "runai submit a-1-1-jupyter -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 \
         --args=\"--NotebookApp.base_url=team-a-test-ingress\" --command=start-notebook.sh -p team-a",
    );
    assert_eq!(notebook.service_type, Some(ServiceType::Ingress));
    assert_eq!(notebook.args, ["--NotebookApp.base_url=team-a-test-ingress"]);
    assert_eq!((notebook.project.as_str(), notebook.kind), ("team-a", KindName::Interactive));
    for (line, gpus, interactive, project) in [
        ("a-1-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-a", "1", false, "team-a"),
        ("a-2-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a", "2", false, "team-a"),
        ("b-1-g06 -i gcr.io/run-ai-demo/quickstart -g 0.6 --interactive -p team-b", "0.6", true, "team-b"),
        ("b-2-g04 -i gcr.io/run-ai-demo/quickstart -g 0.4 --interactive -p team-b", "0.4", true, "team-b"),
        ("b-3-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-b", "1", false, "team-b"),
        ("b-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-b", "2", false, "team-b"),
        ("c-1-g05 -i gcr.io/run-ai-demo/quickstart -g 0.5 --interactive -p team-c", "0.5", true, "team-c"),
        ("c-2-g03 -i gcr.io/run-ai-demo/quickstart -g 0.3 --interactive -p team-c", "0.3", true, "team-c"),
        ("c-3-g02 -i gcr.io/run-ai-demo/quickstart -g 0.2 --interactive -p team-c", "0.2", true, "team-c"),
        ("c-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-c", "2", false, "team-c"),
        ("c-5-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-c", "1", false, "team-c"),
        ("d-1-gggg -i gcr.io/run-ai-demo/quickstart -g 4 -p team-d", "4", false, "team-d"),
        ("d-2-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-d", "2", false, "team-d"),
        ("d-3-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-d", "2", false, "team-d"),
        ("a-3-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a", "2", false, "team-a"),
        ("a-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a", "2", false, "team-a"),
        ("b-5-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-b", "2", false, "team-b"),
        ("c-6-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-c", "2", false, "team-c"),
    ] {
        let kind = if interactive { KindName::Interactive } else { KindName::Train };
        let expected = WorkloadRequest {
            name: line.split(' ').next().map(str::to_owned),
            project: project.to_owned(),
            kind,
            image: "gcr.io/run-ai-demo/quickstart".to_owned(),
            gpus: Some(gpus.parse().expect("an amount")),
            ..WorkloadRequest::default()
        };
        assert_eq!(submitted(&format!("runai submit {line}")), expected);
    }
    let Command::Delete(arguments) = parse("runai delete -p team-d d-1-gggg d-2-gg d-3-gg") else {
        panic!("it is a delete")
    };
    let text = format!("{arguments:?}");
    assert!(
        text.contains(r#"["d-1-gggg", "d-2-gg", "d-3-gg"]"#) && text.contains(r#"Some("team-d")"#),
        "{text}"
    );
}

#[test]
fn todays_form_means_the_same_as_the_reports() {
    let today = submitted("berth submit build1 -i python -g 1 --interactive -- sleep infinity");
    assert_eq!(
        today,
        submitted("berth submit build1 -i python -g 1 --interactive --command sleep --args infinity")
    );
    assert_eq!(
        today,
        submitted("berth submit build1 -i python -g 1 --interactive --command -- sleep infinity")
    );
    assert_eq!(
        today,
        submitted("berth submit build1 -i python -g 1 --interactive --command sleep -- infinity")
    );
}

#[test]
fn todays_flags_become_a_request() {
    assert_eq!(
        json(
            "berth submit --name-prefix sweep -p a -i t --gpu-memory 8Gi --gpu-devices 2 --gpu-models A100,H100 --cpu 0.5 \
             --memory 1Gi --workers 4 --min-workers 2 --priority high --preemptible --max-run-time 2h --backoff-limit 0 \
             --node-pool fast --node-selector zone=a --topology rack --topology-preferred node --spread --apart -e A=b=c \
             --grace 90s --runtime docker --working-dir /w --progress-pattern (?<epoch>x) -v /a:/b:ro -s nodeport \
             --port 80:8080 --large-shm --host-network --privileged"
        ),
        serde_json::json!({"name_prefix": "sweep", "project": "a", "kind": "distributed", "image": "t",
            "gpu_memory": 8_589_934_592u64, "gpu_devices": 2, "gpu_models": ["A100", "H100"], "cpu": 0.5,
            "memory": 1_073_741_824, "workers": 4, "min_workers": 2, "priority": "high", "preemptible": true,
            "max_run_secs": 7200, "backoff_limit": 0, "node_pool": "fast", "node_selector": {"zone": "a"},
            "topology_required": "rack", "topology_preferred": "node", "spread": true, "apart": true, "environment": {"A": "b=c"},
            "grace_secs": 90, "runtime": "docker", "working_dir": "/w", "progress_pattern": "(?<epoch>x)",
            "mounts": [{"source": "/a", "target": "/b", "read_only": true}], "service_type": "nodeport",
            "ports": [8080], "large_shm": true, "host_network": true, "privileged": true})
    );
    assert_eq!(submitted("berth submit s -i x --inference").kind, KindName::Inference);
    assert_eq!(submitted("runai submit --name s -i x"), submitted("runai submit s -i x"));
}

fn refused(line: &str) -> String {
    match Cli::try_parse_from(words(line)) {
        Err(error) => error.to_string(),
        Ok(Cli { command: Command::Submit(arguments), .. }) => {
            request(&arguments).expect_err("is refused").to_string()
        }
        Ok(other) => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_right_is_refused_before_anybody_is_asked() {
    for (line, text) in [
        ("berth submit ../etc -i x", "is not a name of a workload"),
        ("berth submit a -p Team -i x", "is not a name of a project"),
        ("berth submit a -g 1", "nothing to run"),
        ("berth submit a -i x -g half", "is not a number"),
        ("berth submit a -i x -g 1 --gpu-memory 1Gi", "cannot be used with"),
        ("berth submit a -i x --args b -- c", "named by --args and after"),
        ("berth submit a -i x --command", "names no command"),
        ("berth submit a -i x --interactive --inference", "cannot be used with"),
        ("berth submit a -i x --service-type carrier-pigeon", "possible values"),
        ("berth submit a -i x --max-run-time 90", "90m"),
    ] {
        let refused = refused(line);
        assert!(refused.contains(text), "{line}: {refused}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.yaml");
    let text = "name: from-file\nproject: team-b\nimage: python\ngpus: 0.5\nmemory: 16Gi\npriority: low\n\
                environment:\n  SEED: \"1\"\n  KEEP: me\ncommand: [python, -u]\nargs: [a.py]\n";
    std::fs::write(&path, text).expect("is written");
    let request = submitted(&format!("berth submit -f {} -g 2 -e SEED=7 -- sh -c x", path.display()));
    assert_eq!((request.name.as_deref(), request.project.as_str()), (Some("from-file"), "team-b"));
    assert_eq!(request.gpus, Some("2".parse().expect("an amount")));
    assert_eq!(request.memory, Some("16Gi".parse().expect("an amount")));
    assert_eq!(request.environment["SEED"], "7");
    assert_eq!(request.environment["KEEP"], "me");
    assert_eq!(
        (request.command, request.args),
        (vec!["sh".to_owned()], vec!["-c".to_owned(), "x".to_owned()])
    );
}

fn wrong(text: &str) -> String {
    file::parse("job.yaml", text).expect_err("is refused").text
}

#[test]
fn a_mistake_in_a_file_is_shown_where_it_is() {
    assert_eq!(
        wrong("project: a\ngpus: half\n"),
        "job.yaml:2:7: `half` is not a number; write for example `2` or `0.5`\n   |\n 2 | gpus: half\n   |       ^"
    );
    assert_eq!(
        wrong("project: a\nimgae: x\n"),
        "job.yaml:2:1: unknown field `imgae`; did you mean `image`?\n   |\n 2 | imgae: x\n   | ^"
    );
    for (text, place) in [
        ("project: a\nimage: [x\n", "job.yaml:2:8: expected string scalar\n"),
        ("project: a\n  image: x\n", "job.yaml:2:8: mapping values are not allowed in this context\n"),
        ("project: a\nworkers: -1\n", "job.yaml:2:10: expected a whole number that is not negative\n"),
        ("project: a\nmounts:\n  - source: /a\n", "job.yaml:3:5: missing field `target`\n"),
        ("project: a\nproject: b\n", "job.yaml:2:1: duplicate mapping key: project\n"),
        ("{\"project\": \"a\",\n \"gpus\": true}", "job.yaml:2:14: expected a number, or the text of one\n"),
        ("{\"project\": \"a\",\n \"gpu\": 1}", "job.yaml:2:6: unknown field `gpu`; did you mean `gpus`?\n"),
        ("kind: interactiv\n", "job.yaml:1:7: unknown variant `interactiv`"),
        ("\n \n", "job.yaml is empty"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.starts_with(place), "{wrong}");
    }
}

#[test]
fn a_file_that_is_no_request_never_ends_in_a_panic() {
    let deep = "[".repeat(10_000);
    let anchors = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n";
    for text in
        [deep.as_str(), anchors, "- a\n- b\n", "\u{0}", "\t\t", "a: b: c", "---\n---\n", "\"", "'", "{"]
    {
        assert!(file::parse("x", text).is_err(), "{text:?}");
    }
}
