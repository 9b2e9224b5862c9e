//! Containers made by a real OCI runtime from a tiny image that is built here.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, Mount, RuntimeKind, TaskSpec, Wanted};
use berth_types::{Bytes, Cpu, Span};
use std::{fs, process::Command};
use support::{Machine, Temp, busybox, id, kill, marked, spec};

/// Whether to go on; says so once if not.
fn can_run(what: &str) -> bool {
    match busybox::missing(&["runc", "busybox"]) {
        None => true,
        Some(reason) => {
            println!("SKIPPED: {what}: {reason}");
            false
        }
    }
}

fn container(number: u64, image: &std::path::Path, script: &str) -> TaskSpec {
    let mut spec = spec(id(number), &["/bin/sh", "-c", script]);
    (spec.runtime, spec.image) = (RuntimeKind::Oci, image.display().to_string());
    spec
}

/// What is left of containers, mounts and groups of this agent.
fn leftovers(temp: &Temp) -> Vec<String> {
    let folder = fs::read_to_string(temp.join("agent/id")).expect("the agent's folder has a name");
    let groups = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", &format!("berth-{folder}*")])
        .output()
        .expect("find");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let states = fs::read_dir(temp.join("agent/containers")).into_iter().flatten().flatten();
    let mut left: Vec<String> =
        String::from_utf8_lossy(&groups.stdout).lines().map(ToOwned::to_owned).collect();
    left.extend(
        mounts.lines().filter(|line| line.contains(temp.path().to_str().unwrap())).map(ToOwned::to_owned),
    );
    left.extend(states.map(|entry| entry.path().display().to_string()));
    left.extend(marked(&format!("BERTH_TASK={folder}/")).iter().map(ToString::to_string));
    left
}

#[test]
fn a_container_sees_its_own_files_and_what_it_was_given() {
    if !can_run("containers") {
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let data = temp.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("file"), "of the machine\n").unwrap();
    let mut machine = Machine::new(&temp);
    let script = "cat /data/file; id -u; test -e /etc/debian_version || echo own files; touch /new; touch /data/x || echo ro; \
                  echo $BERTH_WORKLOAD $GREETING; df -k /dev/shm; touch $BERTH_CHECKPOINT_FILE $BERTH_CHECKPOINT_DIR/y; exit 4";
    let mut spec = container(1, &root, script);
    spec.mounts = vec![Mount { source: data.clone(), target: "/data".into(), read_only: true, lent: false }];
    spec.environment.insert("GREETING".into(), "hello".into());
    (spec.large_shm, spec.memory, spec.cpu) = (true, Bytes::mib(200), Cpu(700));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(4), false), "{}", machine.log(id(1)));
    let log = machine.log(id(1));
    for line in ["of the machine", "0", "own files", "ro", "job hello"] {
        assert!(log.lines().any(|found| found == line), "`{line}` is missing in {log}");
    }
    assert!(!root.join("new").exists(), "the image is not written to");
    assert!(temp.join("agent/work/1/checkpoint/y").exists());
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
    assert_eq!(leftovers(&temp), Vec::<String>::new());
}

#[test]
fn an_archive_is_unpacked_once_and_runs_as_it_says() {
    if !can_run("image archives") {
        return;
    }
    let temp = Temp::new();
    let config = serde_json::json!({
        "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["id -u; id -g; echo $FROM; pwd"], "User": "worker",
        "Env": ["PATH=/bin", "FROM=image"], "WorkingDir": "/tmp",
    });
    let archive = busybox::archive(temp.path(), "berth-test:1", &config);
    let mut machine = Machine::new(&temp);
    let line = format!("\"acme/tool\" = {{ archive = \"{}\" }}\n", archive.display());
    fs::write(temp.join("agent/images.toml"), line).unwrap();
    for number in 1..=2 {
        let mut spec = spec(id(number), &[]);
        spec.image = "acme/tool:7".into();
        machine.host.ensure_started(spec);
    }
    for number in 1..=2 {
        assert_eq!(machine.exited(id(number)), (Exit::Code(0), false), "{}", machine.log(id(number)));
        assert_eq!(machine.log(id(number)), "1234\n99\nimage\n/tmp\n");
    }
    let unpacked =
        fs::read_dir(temp.join("agent/images")).unwrap().flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(unpacked.count(), 1);
    let mut broken = spec(id(3), &[]);
    (broken.runtime, broken.image) = (RuntimeKind::Oci, temp.join("agent/id").display().to_string());
    machine.host.ensure_started(broken);
    let message = machine.refused(id(3));
    assert!(message.contains("could not be unpacked"), "{message}");
    let mut unknown = spec(id(4), &[]);
    (unknown.runtime, unknown.image) = (RuntimeKind::Oci, "acme/other".into());
    machine.host.ensure_started(unknown);
    assert!(machine.refused(id(4)).contains("docker save"));
}

#[test]
fn a_container_is_asked_to_stop_and_then_ended() {
    if !can_run("stopping containers") {
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let mut machine = Machine::new(&temp);
    let polite = "trap 'echo saved; exit 7' TERM; echo ready; while true; do sleep 0.1; done";
    let rude = "trap '' TERM; echo ready; while true; do sleep 0.1; done";
    machine.host.ensure_started(container(1, &root, polite));
    machine.host.ensure_started(container(2, &root, rude));
    for number in [1, 2] {
        machine.started(id(number));
        machine.log_with(id(number), "ready");
    }
    machine.host.ensure_stopped(id(1), Span::secs(60));
    machine.host.ensure_stopped(id(2), Span(100));
    assert_eq!(machine.exited(id(1)), (Exit::Code(7), true));
    assert_eq!(machine.log(id(1)), "ready\nsaved\n");
    assert_eq!(machine.exited(id(2)), (Exit::Signal(9), true));
    assert_eq!(leftovers(&temp), Vec::<String>::new());
}

#[test]
fn a_container_outlives_the_agent_and_not_its_shim() {
    if !can_run("recovery of containers") {
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let mut machine = Machine::new(&temp);
    let task = container(1, &root, "echo ready; while true; do sleep 0.1; done");
    machine.host.ensure_started(task.clone());
    let pid = machine.started(id(1));
    machine.log_with(id(1), "ready");
    drop(machine);
    let mut machine = Machine::new(&temp);
    machine.host.recover(vec![Wanted { spec: task, stopping: false }]);
    assert_eq!(machine.started(id(1)), pid);
    let record = fs::read_to_string(machine.host.task_dir(id(1)).join("shim.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    kill(record["pid"].as_u64().unwrap() as u32, "-KILL");
    assert_eq!(machine.exited(id(1)), (Exit::Lost, false));
    assert_eq!(leftovers(&temp), Vec::<String>::new());
}

#[test]
fn a_container_may_run_as_somebody_else() {
    if !can_run("containers") {
        return;
    }
    let temp = Temp::new();
    let root = busybox::root(temp.path());
    let mut machine = Machine::new(&temp);
    let script =
        "id -u; id -g; echo $HOME; touch $BERTH_CHECKPOINT_DIR/x && echo wrote; touch /etc/x || echo closed";
    let mut spec = container(1, &root, script);
    spec.run_as = Some((3_999, 3_998));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false), "{}", machine.log(id(1)));
    let log = machine.log(id(1));
    for line in ["3999", "3998", "/", "wrote", "closed"] {
        assert!(log.lines().any(|found| found == line), "`{line}` is missing in {log}");
    }
    assert_eq!(leftovers(&temp), Vec::<String>::new());
}
