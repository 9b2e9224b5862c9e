//! What runs in place of an image, what is refused, and what a process sees at another place.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, Mount, Shutdown};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use support::{Machine, Temp, config, id, shell, spec};

fn mount(source: &Path, target: &Path, read_only: bool) -> Mount {
    Mount { source: source.into(), target: target.into(), read_only, lent: false }
}

#[test]
fn what_cannot_run_is_refused_with_what_to_do() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let plain = temp.join("plain");
    fs::write(&plain, "echo no").unwrap();
    let mut refused = |number: u64, image: &str, command: &[&str], text: &str| {
        let mut spec = spec(id(number), command);
        spec.image = image.into();
        machine.host.ensure_started(spec);
        let message = machine.refused(id(number));
        assert!(message.contains(text), "{message}");
    };
    refused(1, "acme/train:1", &[], "images.toml");
    refused(2, "ubuntu", &[], "give a command after --");
    refused(3, "ubuntu", &["no-such-program"], "there is no program `no-such-program`");
    refused(4, "bash", &[], "give a command after --");
    refused(5, "ubuntu", &[plain.to_str().unwrap()], "may not be executed");
}

#[test]
fn a_notebook_without_jupyter_is_refused_with_the_command_that_installs_it() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut spec = spec(id(1), &["start-notebook.sh"]);
    spec.image = "jupyter/base-notebook".into();
    spec.environment.insert("PATH".into(), "/usr/bin:/bin".into());
    machine.host.ensure_started(spec);
    let message = machine.refused(id(1));
    assert!(message.contains("pip install") && message.contains("jupyterlab"), "{message}");
}

#[test]
fn a_notebook_gets_a_free_port_and_todays_names_of_its_options() {
    let temp = Temp::new();
    let program = temp.join("cache/jupyter/bin/jupyter-lab");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "#!/bin/bash\nprintf '%s\\n' \"$@\"\nsleep 1000\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let asked = taken.local_addr().unwrap().port();
    let mut machine = Machine::new(&temp);
    for number in 1..3 {
        let mut spec = spec(id(number), &["start-notebook.sh"]);
        spec.image = "jupyter/base-notebook".into();
        spec.args = vec!["--NotebookApp.base_url=team-a-job".into()];
        spec.ports = vec![asked];
        spec.environment.insert("JUPYTER_TOKEN".into(), "secret".into());
        machine.host.ensure_started(spec);
    }
    let mut real = Vec::new();
    for number in 1..3 {
        let fact =
            machine.wait("a start", |fact| matches!(fact, Fact::Started { .. }) && fact.id() == id(number));
        let Fact::Started { ports, .. } = fact else { panic!("{fact:?}") };
        assert_eq!(ports[0].0, asked);
        real.push(ports[0].1);
        let log = machine.log_with(id(number), "base_url");
        assert!(
            log.contains("--ServerApp.base_url=team-a-job") && log.contains("--ServerApp.ip=127.0.0.1"),
            "{log}"
        );
        assert!(log.contains(&format!("--ServerApp.port={}\n", ports[0].1)), "{log}");
        assert!(!log.contains("secret"), "everybody on the machine can read arguments: {log}");
    }
    assert!(real[0] != real[1] && !real.contains(&asked), "{real:?}");
    machine.host.shutdown(Shutdown::EndAll);
}

#[test]
fn a_program_stands_for_an_image_by_a_line_in_the_table() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    fs::write(temp.join("agent/images.toml"), "\"acme/*\" = { program = [\"echo\", \"acme says\"] }\n")
        .unwrap();
    let mut spec = spec(id(1), &[]);
    spec.image = "acme/train:7".into();
    spec.args = vec!["hello".into()];
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    assert_eq!(machine.log(id(1)), "acme says hello\n");
}

#[test]
fn a_folder_is_seen_at_its_own_path_and_at_another() {
    let temp = Temp::new();
    let (data, elsewhere) = (temp.join("data"), temp.join("elsewhere"));
    fs::create_dir(&data).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(data.join("file"), "content").unwrap();
    let mut machine = Machine::new(&temp);
    let mut spec = shell(id(1), &format!("cat {}/file {}/file", data.display(), elsewhere.display()));
    spec.mounts = vec![mount(&data, &data, false), mount(&data, &elsewhere, false)];
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    assert_eq!(machine.log(id(1)), "contentcontent");
    assert!(fs::read_dir(&elsewhere).unwrap().next().is_none(), "nobody else sees the mount");
}

#[test]
fn a_read_only_folder_cannot_be_written_by_the_task() {
    let temp = Temp::new();
    let data = temp.join("data");
    fs::create_dir(&data).unwrap();
    let mut machine = Machine::new(&temp);
    let mut spec = shell(id(1), &format!("touch {}/new", data.display()));
    spec.mounts = vec![mount(&data, &data, true)];
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(1), false));
    assert!(machine.log(id(1)).contains("Read-only"), "{}", machine.log(id(1)));
    assert!(!data.join("new").exists());
}

#[test]
fn mounts_that_lead_elsewhere_are_refused() {
    let temp = Temp::new();
    let (data, link) = (temp.join("data"), temp.join("link"));
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let mut machine = Machine::new(&temp);
    let missing = temp.join("missing");
    let cases = [
        (mount(&missing, &missing, false), missing.to_str().unwrap()),
        (mount(&link, &data, false), "leads elsewhere through a link"),
        (mount(Path::new("data"), &data, false), "not an absolute path"),
        (mount(&data, Path::new("/tmp/../etc"), false), "without `..`"),
        (mount(&data, Path::new("/"), false), "at `/`"),
        (mount(&data, Path::new("/proc"), false), "Berth itself needs it"),
        (mount(&data, temp.path(), false), "Berth itself needs it"),
        (mount(&data, Path::new("/no/such/place"), false), "its parent folder does not exist"),
    ];
    for (number, (mount, text)) in cases.into_iter().enumerate() {
        let id = id(number as u64);
        let mut spec = shell(id, "true");
        spec.mounts = vec![mount];
        machine.host.ensure_started(spec);
        let message = machine.refused(id);
        assert!(message.contains(text), "{message}");
    }
}

/// Whether to go on; says so once if not.
fn is_root() -> bool {
    let own = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    if own.as_ref().ok() != Some(&0) {
        println!("SKIPPED: running as somebody else needs root");
    }
    own.ok() == Some(0)
}

#[test]
fn a_task_may_run_as_somebody_else() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    // As the folder of a server is, and the home of root above it.
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut machine = Machine::new(&temp);
    let script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME $PWD; touch $BERTH_CHECKPOINT_FILE $BERTH_CHECKPOINT_DIR/x \
                  here && echo wrote; python3 -c 'import berth; print(berth.checkpoint_dir())'; ls /root >/dev/null || echo closed";
    let mut spec = shell(id(1), script);
    spec.run_as = Some((3_999, 3_998));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    let log = machine.log(id(1));
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("cannot open")).collect();
    let home = "/run/berth/work";
    let expected = [
        "3999",
        "3998",
        "3998",
        &format!("{home} ada ada {home}"),
        "wrote",
        &format!("{home}/checkpoint"),
        "closed",
    ];
    assert_eq!(lines, expected, "{log}");
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
    let owner = |path: &str| std::os::unix::fs::MetadataExt::uid(&fs::metadata(temp.join(path)).unwrap());
    assert_eq!(owner("agent/work/1/here"), 3_999);
    assert_eq!(owner("agent/tasks/1/1-0"), 0, "the log is not theirs to change");
}

/// The first user of this machine who is not root and is in more than its own group, if there is one.
fn sociable() -> Option<(u32, u32, String)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        let groups = std::process::Command::new("id").args(["-G", fields[0]]).output().ok()?;
        let groups = String::from_utf8_lossy(&groups.stdout).trim().to_owned();
        (uid != 0 && groups.contains(' ')).then_some((uid, gid, groups))
    })
}

#[test]
fn somebody_else_has_all_of_their_groups_and_none_of_ours() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let Some((uid, gid, groups)) = sociable() else {
        println!("SKIPPED: no user of this machine is in two groups");
        return;
    };
    let mut spec = shell(id(1), "id -G; echo $HOME; cat /proc/self/status | grep CapEff");
    spec.run_as = Some((uid, gid));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    let log = machine.log(id(1));
    let sorted = |text: &str| {
        let mut all: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(sorted(log.lines().next().unwrap()), sorted(&groups), "{log}");
    assert!(log.contains("CapEff:\t0000000000000000"), "{log}");
}

#[test]
fn the_built_in_trainer_runs_as_somebody_else_too() {
    if !is_root() {
        return;
    }
    let temp = Temp::new();
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o700)).unwrap();
    // The program lies where nobody else may look.
    let hidden = temp.join("hidden");
    fs::create_dir(&hidden).unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    let mut config = config(&temp.join("agent"));
    let program = hidden.join("berth-agent");
    fs::copy(&config.quickstart[0], &program).unwrap();
    config.quickstart[0] = program.into_os_string();
    let mut machine = Machine::with(config);
    let mut spec = shell(id(1), "");
    (spec.image, spec.command, spec.args) =
        ("berth/quickstart".into(), vec![], vec!["--epochs".into(), "1".into()]);
    spec.run_as = Some((3_999, 3_999));
    machine.host.ensure_started(spec);
    machine.wait("its start", |fact| matches!(fact, Fact::Started { .. }));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !machine.log(id(1)).contains("poch") {
        assert!(std::time::Instant::now() < deadline, "{}", machine.log(id(1)));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
