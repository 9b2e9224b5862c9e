//! Which machine a process runs on, and which files it sees. Both sides of the wire ask here.

use std::{fs, os::unix::fs::MetadataExt};

/// Identifies the files that this process sees: the boot of the kernel, the mount namespace, and the root directory. Two processes
/// with the same identity find the same file at the same path. None where the kernel does not say.
///
/// An address proves nothing: a tunnel or a container may stand behind 127.0.0.1.
pub fn machine_identity() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mounts = fs::read_link("/proc/self/ns/mnt").ok()?;
    let root = fs::metadata("/").ok()?;
    Some(format!("{}/{}/{}:{}", boot.trim(), mounts.to_str()?, root.dev(), root.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_always_has_the_same_identity() {
        let identity = machine_identity().expect("Linux has one");
        assert_eq!(machine_identity().as_deref(), Some(identity.as_str()));
        assert!(identity.contains("/mnt:["), "{identity}");
    }
}
