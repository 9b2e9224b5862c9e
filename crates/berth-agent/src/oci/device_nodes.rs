//! Which device files a container gets: those of its own GPUs, and those that every program of the driver needs.
//!
//! What the driver's libraries are is the image's affair: it brings them, or they are mounted.

use crate::Granted;
use rustix::fs::{FileType, major, minor, stat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Not of one GPU: the driver's front door, and its unified memory. Not every machine has all of them.
const SHARED: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceNode {
    pub(crate) path: PathBuf,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The driver's device files in a folder, in order.
pub(crate) fn list(folder: &Path) -> Vec<DeviceNode> {
    let names = crate::folder::names(folder).into_iter().filter(|name| name.starts_with("nvidia"));
    let node = |name: String| {
        let path = folder.join(name);
        let found = stat(&path).ok()?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        is_device.then(|| DeviceNode { path, major: major(found.st_rdev), minor: minor(found.st_rdev) })
    };
    names.filter_map(node).collect()
}

/// Of all device files, those for what was granted; none for declared devices. The text says why it is not possible.
pub(crate) fn of_task(granted: &[Granted], all: &[DeviceNode]) -> Result<Vec<DeviceNode>, String> {
    let mut own: Vec<DeviceNode> = Vec::new();
    let named = |name: &str| all.iter().find(|node| node.path.file_name().is_some_and(|found| found == name));
    for device in granted.iter().filter(|device| !device.uuid.is_empty()) {
        let uuid = &device.uuid;
        if uuid.starts_with("MIG-") {
            return Err(format!(
                "{uuid} is a part of a divided GPU, which is given to containers of Docker and Podman only"
            ));
        }
        // Numbers of the driver's list are no numbers of files, so a guess could be somebody else's GPU.
        let number =
            device.minor.ok_or_else(|| format!("the driver does not say which device file is {uuid}"))?;
        let name = format!("nvidia{number}");
        let node = named(&name).ok_or_else(|| {
            format!("the device file {name} of {uuid} does not exist: `nvidia-modprobe -c {number}` makes it")
        })?;
        if !own.contains(node) {
            own.push(node.clone());
        }
    }
    if !own.is_empty() {
        own.extend(SHARED.iter().filter_map(|name| named(name)).cloned());
    }
    Ok(own)
}

/// The device files as a container finds them.
pub(super) fn described(nodes: &[DeviceNode]) -> Vec<Value> {
    let describe = |node: &DeviceNode| {
        let name = node.path.file_name().unwrap_or_default().to_string_lossy();
        json!({ "path": format!("/dev/{name}"), "type": "c", "major": node.major, "minor": node.minor,
                "fileMode": 0o666, "uid": 0, "gid": 0 })
    };
    nodes.iter().map(describe).collect()
}

/// Everything is forbidden but these; the runtime adds what every container has, such as `/dev/null`.
pub(super) fn rules(nodes: &[DeviceNode]) -> Vec<Value> {
    let allow = |node: &DeviceNode| json!({ "allow": true, "type": "c", "major": node.major, "minor": node.minor, "access": "rw" });
    [json!({ "allow": false, "access": "rwm" })].into_iter().chain(nodes.iter().map(allow)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_types::{Bytes, Share};

    /// As on a machine with four GPUs, whose files are not in the order of the driver's list.
    fn listing() -> Vec<DeviceNode> {
        let node = |name: &str, major: u32, minor: u32| DeviceNode {
            path: Path::new("/dev").join(name),
            major,
            minor,
        };
        vec![
            node("nvidia-modeset", 195, 254),
            node("nvidia-uvm", 511, 0),
            node("nvidia-uvm-tools", 511, 1),
            node("nvidia0", 195, 0),
            node("nvidia1", 195, 1),
            node("nvidia10", 195, 10),
            node("nvidia2", 195, 2),
            node("nvidiactl", 195, 255),
        ]
    }

    fn granted(uuid: &str, index: u8, minor: Option<u32>) -> Granted {
        let (uuid, model, memory) = (uuid.to_owned(), "A100".to_owned(), Bytes::gib(40));
        Granted { index, uuid, minor, model, memory, share: Share::WHOLE, memory_limit: memory }
    }

    fn names(granted: &[Granted], all: &[DeviceNode]) -> String {
        let nodes = of_task(granted, all).unwrap();
        nodes.iter().map(|node| node.path.display().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_container_sees_its_own_gpus_and_what_all_need() {
        let all = listing();
        let shared = "/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools";
        assert_eq!(names(&[granted("GPU-a", 0, Some(2))], &all), format!("/dev/nvidia2 {shared}"));
        let two = [granted("GPU-b", 1, Some(10)), granted("GPU-c", 2, Some(1))];
        assert_eq!(names(&two, &all), format!("/dev/nvidia10 /dev/nvidia1 {shared}"));
        // Two shares of one device are one file.
        let twice = [granted("GPU-b", 1, Some(0)), granted("GPU-b", 1, Some(0))];
        assert_eq!(names(&twice, &all), format!("/dev/nvidia0 {shared}"));
        // Without the module of unified memory there is no file of it.
        let few: Vec<DeviceNode> = all.into_iter().filter(|node| node.major == 195).collect();
        assert_eq!(names(&[granted("GPU-a", 0, Some(0))], &few), "/dev/nvidia0 /dev/nvidiactl");
    }

    #[test]
    fn who_has_no_real_gpu_gets_no_device_file() {
        assert_eq!(names(&[], &listing()), "");
        assert_eq!(names(&[granted("", 0, None), granted("", 1, None)], &listing()), "");
        assert_eq!(rules(&[]), [json!({ "allow": false, "access": "rwm" })]);
    }

    #[test]
    fn nothing_is_guessed() {
        for (device, why) in [
            (granted("GPU-a", 0, None), "does not say which device file is GPU-a"),
            (granted("GPU-a", 0, Some(7)), "nvidia-modprobe -c 7"),
            (granted("MIG-a", 0, Some(0)), "a part of a divided GPU"),
        ] {
            let message = of_task(&[device], &listing()).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn rules_forbid_everything_else() {
        let nodes = of_task(&[granted("GPU-a", 0, Some(1))], &listing()).unwrap();
        assert_eq!(
            described(&nodes)[0],
            json!({ "path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1, "fileMode": 438, "uid": 0, "gid": 0 })
        );
        let rules = rules(&nodes);
        assert_eq!(rules.len(), 1 + nodes.len());
        assert_eq!(rules[0], json!({ "allow": false, "access": "rwm" }));
        assert_eq!(rules[1], json!({ "allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw" }));
    }

    #[test]
    fn a_listing_holds_device_files_only() {
        assert_eq!(list(Path::new("/no/such/folder")), []);
        let scratch = crate::scratch::Scratch::new();
        std::fs::write(scratch.path().join("nvidia0"), "a plain file").unwrap();
        assert_eq!(list(scratch.path()), []);
    }
}
