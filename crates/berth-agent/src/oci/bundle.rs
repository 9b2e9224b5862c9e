//! The description of a container for the runtime.

use super::{
    Container, ImageConfig, USUAL_PATH,
    device_nodes::{self, DeviceNode},
};
use crate::{TaskSpec, account::Account, folder};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// What containers of Docker may do, too.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
const PERIOD_MICROS: u64 = 100_000;
const PROCESSES_MAX: u64 = 16_384;

/// Writes `config.json`. The text says why it cannot be run.
pub(crate) fn write_bundle(
    spec: &TaskSpec,
    container: &Container,
    image: &ImageConfig,
    root: &Path,
) -> Result<(), String> {
    let args = args(spec, image)?;
    let user = user(spec, image, root)?;
    give_work(container, &user)?;
    let devices = device_nodes::of_task(&spec.devices, &device_nodes::list(Path::new("/dev")))?;
    let working_dir = spec.working_dir.as_ref().map(|folder| folder.display().to_string());
    let working_dir = working_dir.or_else(|| image.working_dir.clone().filter(|folder| !folder.is_empty()));
    // Whoever is not root needs none of what root may do.
    let capabilities: &[&str] = if user.user == 0 { &CAPABILITIES } else { &[] };
    let config = json!({
        "ociVersion": "1.0.2",
        "hostname": spec.name.chars().take(63).collect::<String>(),
        "root": { "path": "rootfs", "readonly": false },
        "process": {
            "terminal": spec.terminal,
            "cwd": working_dir.unwrap_or_else(|| "/".into()),
            "args": args,
            "env": environment(container, image, &user),
            "user": { "uid": user.user, "gid": user.group, "additionalGids": user.groups },
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
        },
        "mounts": mounts(spec, container),
        "linux": {
            // The network is the machine's, so that ports are what they are.
            "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
            "devices": device_nodes::described(&devices),
            "resources": resources(spec, &devices),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    });
    let text = serde_json::to_vec(&config).map_err(|error| error.to_string())?;
    folder::write(&container.bundle.join("config.json"), &text).map_err(|error| error.to_string())
}

/// What replaces the entry point also drops the image's own arguments.
fn args(spec: &TaskSpec, image: &ImageConfig) -> Result<Vec<String>, String> {
    let mut args = spec.command.clone();
    if args.is_empty() {
        args = image.entrypoint.clone().unwrap_or_default();
        args.extend(if spec.args.is_empty() {
            image.cmd.clone().unwrap_or_default()
        } else {
            spec.args.clone()
        });
    } else {
        args.extend(spec.args.clone());
    }
    if args.is_empty() {
        Err(format!("`{}` runs nothing by itself: give a command after --", spec.image))
    } else {
        Ok(args)
    }
}

fn environment(container: &Container, image: &ImageConfig, user: &Inhabitant) -> Vec<String> {
    let own = [("PATH", USUAL_PATH), ("HOME", &user.home)];
    let mut all: BTreeMap<String, String> =
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let own = image.env.iter().flatten().filter_map(|text| text.split_once('='));
    all.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    all.extend(container.environment.clone());
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Who a container runs as.
#[derive(Debug, PartialEq, Eq)]
struct Inhabitant {
    user: u32,
    group: u32,
    /// Every other group whose files it may use.
    groups: Vec<u32>,
    home: String,
}

/// Who was asked for, with the groups it has on this machine; else who the image names, with the groups it has there.
fn user(spec: &TaskSpec, image: &ImageConfig, root: &Path) -> Result<Inhabitant, String> {
    let users = entries(root, "passwd");
    let number = |fields: &[String], at: usize| fields.get(at).and_then(|text| text.parse::<u32>().ok());
    let home = |uid: u32| {
        let listed = users.iter().find(|fields| number(fields, 2) == Some(uid));
        let home = listed.and_then(|fields| fields.get(5)).filter(|home| !home.is_empty()).cloned();
        home.unwrap_or_else(|| if uid == 0 { "/root".into() } else { "/".into() })
    };
    if let Some((uid, gid)) = spec.run_as {
        let Account { user, group, groups, .. } = Account::of(uid, gid)?;
        return Ok(Inhabitant { user, group, groups, home: home(user) });
    }
    let text = image.user.as_deref().unwrap_or_default();
    let (name, group) = text.split_once(':').unwrap_or((text, ""));
    let name = if name.is_empty() { "0" } else { name };
    let unknown = || format!("the image runs as `{text}`, and names no such user");
    let listed = users.iter().find(|fields| fields[0] == name || fields[2] == name);
    let uid =
        name.parse().ok().or_else(|| listed.and_then(|fields| number(fields, 2))).ok_or_else(unknown)?;
    let all = entries(root, "group");
    let gid = match group {
        "" => listed.and_then(|fields| number(fields, 3)).unwrap_or(0),
        group => group
            .parse()
            .ok()
            .or_else(|| all.iter().find(|fields| fields[0] == group).and_then(|fields| number(fields, 2)))
            .ok_or_else(unknown)?,
    };
    // As Docker does: a group that was chosen is the only one.
    let member = |fields: &&Vec<String>| {
        let members = fields.get(3).map_or("", String::as_str);
        group.is_empty() && listed.is_some_and(|listed| members.split(',').any(|member| member == listed[0]))
    };
    let groups =
        all.iter().filter(member).filter_map(|fields| number(fields, 2)).filter(|other| *other != gid);
    Ok(Inhabitant { user: uid, group: gid, groups: groups.collect(), home: home(uid) })
}

/// The lines of the image's list of users or groups.
fn entries(root: &Path, file: &str) -> Vec<Vec<String>> {
    // A link as the list of users would be read on this machine instead of in the image.
    let path = root.join("etc").join(file);
    let plain = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    let text = fs::read_to_string(path).ok().filter(|_| plain).unwrap_or_default();
    let fields = |line: &str| line.split(':').map(ToOwned::to_owned).collect::<Vec<String>>();
    text.lines().map(fields).filter(|fields| fields.len() > 2).collect()
}

/// What Berth lends the container to write to is its own, also when the image and not the request says who that is.
fn give_work(container: &Container, user: &Inhabitant) -> Result<(), String> {
    container.lent.iter().try_for_each(|path| {
        folder::give(path, user.user, user.group)
            .map_err(|error| format!("{} could not be given to user {}: {error}", path.display(), user.user))
    })
}

fn mounts(spec: &TaskSpec, container: &Container) -> Vec<Value> {
    let shm = if spec.large_shm { "size=50%" } else { "size=64m" };
    let special = |target: &str, kind: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": kind, "options": options });
    let bind = |source: &Path, target: &Path, read_only: bool| {
        json!({ "destination": target, "type": "bind", "source": source,
                "options": ["rbind", if read_only { "ro" } else { "rw" }, "nosuid", "nodev"] })
    };
    let mut all = vec![
        special("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        special("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        special("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        special("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", shm]),
        special("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        special("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    for file in ["/etc/resolv.conf", "/etc/hosts"] {
        if let Ok(real) = fs::canonicalize(file) {
            all.push(bind(&real, Path::new(file), true));
        }
    }
    all.extend(container.mounts.iter().map(|mount| bind(&mount.source, &mount.target, mount.read_only)));
    all
}

fn resources(spec: &TaskSpec, devices: &[DeviceNode]) -> Value {
    let mut resources = json!({
        "pids": { "limit": PROCESSES_MAX },
        "devices": device_nodes::rules(devices),
    });
    if !spec.memory.is_zero() {
        resources["memory"] = json!({ "limit": spec.memory.0 });
    }
    if !spec.cpu.is_zero() {
        let quota = (spec.cpu.0 * PERIOD_MICROS / 1000).max(1000);
        resources["cpu"] = json!({ "quota": quota, "period": PERIOD_MICROS });
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn words(words: &[&str]) -> Option<Vec<String>> {
        Some(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn spec(command: &[&str], args: &[&str]) -> TaskSpec {
        let text = r#"{"id":"1.1.0","name":"job","project":"a","user":"u","kind":"train","node":"n","runtime":"oci",
            "image":"i","command":[],"args":[],"environment":{},"working_dir":null,"mounts":[],"large_shm":false,
            "ports":[],"cpu":0,"memory":0,"devices":[],"workers":1,"hosts":[],"run_as":null,"progress_pattern":null,
            "grace":0}"#;
        let spec: TaskSpec = serde_json::from_str(text).unwrap();
        TaskSpec { command: words(command).unwrap(), args: words(args).unwrap(), ..spec }
    }

    #[test]
    fn commands_and_arguments_replace_what_the_image_says() {
        let image =
            ImageConfig { entrypoint: words(&["run"]), cmd: words(&["all"]), ..ImageConfig::default() };
        let args =
            |command: &[&str], given: &[&str]| super::args(&spec(command, given), &image).unwrap().join(" ");
        assert_eq!(args(&[], &[]), "run all");
        assert_eq!(args(&[], &["some"]), "run some");
        assert_eq!(args(&["sh"], &[]), "sh");
        assert_eq!(args(&["sh"], &["-c"]), "sh -c");
        assert!(super::args(&spec(&[], &[]), &ImageConfig::default()).unwrap_err().contains("after --"));
    }

    #[test]
    fn a_user_is_looked_up_in_the_image() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("etc")).unwrap();
        fs::write(
            scratch.path().join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\njovyan:x:1000:100::/home/jovyan:/bin/sh\n",
        )
        .unwrap();
        fs::write(
            scratch.path().join("etc/group"),
            "users:x:100:a\ndocker:x:9:a,jovyan\nstaff:x:10:jovyan2\n",
        )
        .unwrap();
        let of = |text: &str| {
            let image = ImageConfig { user: Some(text.into()), ..ImageConfig::default() };
            let found = user(&spec(&[], &[]), &image, scratch.path())?;
            Ok::<_, String>(format!("{}:{} {:?} {}", found.user, found.group, found.groups, found.home))
        };
        assert_eq!(of("").unwrap(), "0:0 [] /root");
        assert_eq!(of("jovyan").unwrap(), "1000:100 [9] /home/jovyan");
        assert_eq!(of("1000").unwrap(), "1000:100 [9] /home/jovyan");
        assert_eq!(of("jovyan:users").unwrap(), "1000:100 [] /home/jovyan");
        assert_eq!(of("7:users").unwrap(), "7:100 [] /");
        assert!(of("nobody-here").is_err());
        assert!(of("7:no-such-group").is_err());
    }

    #[test]
    fn who_is_asked_for_wins_over_who_the_image_names() {
        let scratch = Scratch::new();
        let image = ImageConfig { user: Some("jovyan".into()), ..ImageConfig::default() };
        let spec = TaskSpec { run_as: Some((3_999_999_999, 7)), ..spec(&[], &[]) };
        let found = user(&spec, &image, scratch.path()).unwrap();
        assert_eq!((found.user, found.group, found.home.as_str()), (3_999_999_999, 7, "/"));
    }
}
