//! What runs in place of an image, what is refused, and what a process sees at another place.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, Mount, Shutdown};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use support::{Machine, Temp, config, id, shell, spec};

fn mount(source: &Path, target: &Path, read_only: bool) -> Mount {
    Mount { source: source.into(), target: target.into(), read_only }
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
        spec.environment.insert("BERTH_JUPYTER_TOKEN".into(), "secret".into());
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
        assert!(log.contains("--IdentityProvider.token=secret"), "{log}");
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
        (mount(&link, &data, false), "leads to /etc through a link"),
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

#[test]
fn a_task_may_run_as_somebody_else() {
    let temp = Temp::new();
    if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).ok() != Some(0) {
        println!("SKIPPED: running as somebody else needs root");
        return;
    }
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut machine = Machine::with(config(temp.path()));
    let mut spec = shell(
        id(1),
        "id -u; id -g; id -G; touch $BERTH_CHECKPOINT_FILE $BERTH_CHECKPOINT_DIR/x && echo wrote",
    );
    spec.run_as = Some((65_534, 65_534));
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(id(1)), (Exit::Code(0), false));
    assert_eq!(machine.log(id(1)), "65534\n65534\n65534\nwrote\n");
}
