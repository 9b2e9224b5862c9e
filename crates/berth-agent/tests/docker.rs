//! Containers of a real engine: Podman's service, with a tiny image that is built here. Nothing is fetched from anywhere.
#![cfg(feature = "docker")]
#![allow(missing_docs)]

mod support;

use berth_agent::{AgentConfig, Exit, Fact, Mount, Planned, RuntimeKind, TaskSpec, Wanted};
use berth_types::{Bytes, Span};
use std::{
    fs,
    io::Read,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{Machine, Temp, busybox, config, id, spec};

const IMAGE: &str = "localhost/berth-test:1";

/// An engine of its own for one test.
struct Podman {
    service: Child,
    socket: PathBuf,
    options: Vec<String>,
}

impl Podman {
    /// None, with one line that says so, where it cannot be.
    fn start(temp: &Temp) -> Option<Self> {
        match Self::try_start(temp) {
            Ok(podman) => Some(podman),
            Err(reason) => {
                println!("SKIPPED: containers of an engine: {reason}");
                None
            }
        }
    }

    fn try_start(temp: &Temp) -> Result<Self, String> {
        if let Some(reason) = busybox::missing(&["podman", "runc", "busybox"]) {
            return Err(reason);
        }
        let folder = |name: &str| temp.join(name).display().to_string();
        let mut options: Vec<String> =
            ["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=file"]
                .map(ToOwned::to_owned)
                .into();
        options
            .extend([format!("--root={}", folder("podman")), format!("--runroot={}", folder("podman-run"))]);
        let socket = temp.join("podman.sock");
        let service = Command::new("podman")
            .args(&options)
            .args(["system", "service", "--time=0"])
            .arg(format!("unix://{}", socket.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("podman: {error}"))?;
        let podman = Self { service, socket, options };
        let until = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(&podman.socket).is_err() {
            if Instant::now() > until {
                return Err("podman did not answer within a minute".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let config = serde_json::json!({ "Env": ["PATH=/bin"] });
        let archive = busybox::archive(temp.path(), IMAGE, &config);
        podman.podman(&["load", "-q", "-i", archive.to_str().expect("a path")])?;
        Ok(podman)
    }

    fn podman(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new("podman")
            .args(&self.options)
            .args(args)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(format!("podman {args:?}: {}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn containers(&self) -> String {
        self.podman(&["ps", "-a", "--format", "{{.Names}} {{.Status}}"]).expect("a list")
    }

    fn config(&self, temp: &Temp) -> AgentConfig {
        AgentConfig { engine: Some(format!("unix://{}", self.socket.display())), ..config(temp.path()) }
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "-a", "-f", "-t", "0"]);
        let _ = self.service.kill();
        let _ = self.service.wait();
        if let Some(mut errors) = self.service.stderr.take() {
            let _ = errors.read_to_string(&mut String::new());
        }
    }
}

fn container(number: u64, script: &str) -> TaskSpec {
    let mut spec = spec(id(number), &["/bin/sh", "-c", script]);
    (spec.runtime, spec.image) = (RuntimeKind::Docker, IMAGE.into());
    spec
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + support::PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_engine_runs_stops_and_is_recovered() {
    let temp = Temp::new();
    let Some(podman) = Podman::start(&temp) else { return };
    runs_and_tells(&temp, &podman);
    runs_as_somebody_else(&temp, &podman);
    stops(&podman, &temp);
    recovers(&podman, &temp);
    refuses(&podman, &temp);
    assert_eq!(podman.containers().trim(), "");
}

fn runs_and_tells(temp: &Temp, podman: &Podman) {
    let data = temp.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("file"), "of the machine\n").unwrap();
    let mut machine = Machine::with(podman.config(temp));
    let script =
        "cat /data/file; echo $BERTH_WORKLOAD; echo epoch 2/4; touch $BERTH_CHECKPOINT_FILE; sleep 1; exit 5";
    let mut task = container(1, script);
    task.mounts = vec![Mount { source: data, target: "/data".into(), read_only: true, lent: false }];
    task.memory = Bytes::mib(100);
    machine.host.ensure_started(task.clone());
    machine.host.ensure_started(task);
    machine.started(id(1));
    assert_eq!(machine.exited(id(1)), (Exit::Code(5), false));
    assert_eq!(machine.log(id(1)), "of the machine\njob\nepoch 2/4\n");
    machine.wait("progress", |fact| matches!(fact, Fact::Progress { report, .. } if report.epoch == Some(2)));
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
}

fn runs_as_somebody_else(temp: &Temp, podman: &Podman) {
    let mut machine = Machine::with(podman.config(temp));
    let mut spec = container(
        17,
        "id -u; id -g; touch $BERTH_CHECKPOINT_DIR/x && echo wrote; touch /etc/x || echo closed",
    );
    spec.run_as = Some((3_999, 3_998));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(17)), (Exit::Code(0), false), "{}", machine.log(id(17)));
    let log = machine.log(id(17));
    for line in ["3999", "3998", "wrote", "closed"] {
        assert!(log.lines().any(|found| found == line), "`{line}` is missing in {log}");
    }
}

fn stops(podman: &Podman, temp: &Temp) {
    let mut machine = Machine::with(podman.config(temp));
    machine.host.ensure_started(container(
        2,
        "trap 'echo saved; exit 7' TERM; echo ready; while true; do sleep 0.1; done",
    ));
    machine.host.ensure_started(container(3, "trap '' TERM; echo ready; while true; do sleep 0.1; done"));
    for number in [2, 3] {
        machine.started(id(number));
        machine.log_with(id(number), "ready");
    }
    machine.host.ensure_stopped(id(2), Span::secs(60));
    machine.host.ensure_stopped(id(3), Span::secs(600));
    machine.host.ensure_stopped(id(3), Span(200));
    assert_eq!(machine.exited(id(2)), (Exit::Code(7), true));
    assert_eq!(machine.log(id(2)), "ready\nsaved\n");
    assert_eq!(machine.exited(id(3)), (Exit::Signal(9), true));
}

fn recovers(podman: &Podman, temp: &Temp) {
    let mut machine = Machine::with(podman.config(temp));
    let goes_on =
        container(4, "echo one; while ! test -e /berth/checkpoint/go; do sleep 0.1; done; echo two; exit 3");
    let ends = container(5, "echo only; sleep 0.5; exit 6");
    machine.host.ensure_started(goes_on.clone());
    machine.host.ensure_started(ends.clone());
    machine.host.ensure_started(container(6, "echo ready; while true; do sleep 0.1; done"));
    for (number, word) in [(4, "one"), (5, "only"), (6, "ready")] {
        machine.started(id(number));
        machine.log_with(id(number), word);
    }
    drop(machine);
    until("it never ended", || {
        podman.containers().lines().any(|line| line.contains("5.1.0") && line.contains("Exited"))
    });
    let mut machine = Machine::with(podman.config(temp));
    let wanted = [goes_on, ends].map(|spec| Wanted { spec, stopping: false });
    machine.host.recover(wanted.into());
    assert_eq!(machine.exited(id(5)), (Exit::Code(6), false));
    fs::write(temp.join("agent/work/4/checkpoint/go"), "").unwrap();
    assert_eq!(machine.exited(id(4)), (Exit::Code(3), false));
    assert_eq!(machine.log(id(4)), "one\ntwo\n", "nothing is missing and nothing is there twice");
    until("an unwanted container runs", || !podman.containers().contains("6.1.0"));
}

fn refuses(podman: &Podman, temp: &Temp) {
    let mut machine =
        Machine::with(AgentConfig { engine: Some("unix:///nowhere.sock".into()), ..podman.config(temp) });
    machine.host.ensure_started(container(7, "true"));
    let message = machine.refused(id(7));
    assert!(message.contains("no container engine answers"), "{message}");
}

#[test]
fn a_local_image_is_used_and_never_fetched() {
    let temp = Temp::new();
    let Some(podman) = Podman::start(&temp) else { return };
    let mut machine = Machine::with(podman.config(&temp));
    let mut here = container(1, "exit 3");
    here.local_image = true;
    machine.host.ensure_started(here.clone());
    assert_eq!(machine.exited(here.id).0, Exit::Code(3));
    let mut missing = container(2, "true");
    // A registry that refuses at once: a fetch would say so.
    (missing.image, missing.local_image) = ("localhost:1/berth-none:1".into(), true);
    machine.host.ensure_started(missing.clone());
    let message = machine.refused(missing.id);
    assert!(message.contains("is not on this machine") && message.contains("--local-image"), "{message}");
    let planned = |image: &str, local_image| Planned {
        runtime: RuntimeKind::Docker,
        image: image.into(),
        local_image,
        command: Vec::new(),
        args: Vec::new(),
        environment: Default::default(),
        working_dir: None,
        caller_dir: None,
        caller_environment: Default::default(),
        mounts: Vec::new(),
        run_as: None,
    };
    assert!(machine.host.check(&planned(IMAGE, true)).is_ok());
    assert!(machine.host.check(&planned("localhost:1/berth-none:1", false)).is_ok(), "it is fetched later");
    let unfit = machine.host.check(&planned("localhost:1/berth-none:1", true)).unwrap_err();
    assert!(unfit.to_string().contains("is not on this machine"), "{unfit}");
}
