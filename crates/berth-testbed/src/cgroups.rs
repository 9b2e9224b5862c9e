//! A group of processes of its own in every hierarchy of the machine, below which a kubelet makes its groups.

use anyhow::{Context, Result};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const PREFIX: &str = "berth-testbed";
const REMOVE_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Removed, with every group below, when it is dropped. By then its processes must have been ended.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    name: String,
    hierarchies: Vec<PathBuf>,
}

impl ControlGroup {
    /// Makes the groups, and removes those whose owner was killed.
    pub(crate) fn create(suffix: &str) -> Result<Self> {
        let hierarchies = hierarchies(&fs::read_to_string("/proc/self/mountinfo")?);
        for hierarchy in &hierarchies {
            remove_orphans(hierarchy);
        }
        let group = Self { name: format!("{PREFIX}-{}-{suffix}", std::process::id()), hierarchies };
        if let [only] = &group.hierarchies[..] {
            // Where there is but one hierarchy, controllers are handed down one by one. Those that are missing are
            // named by kubelet.
            for controller in ["cpu", "cpuset", "io", "memory", "pids"] {
                let _ = fs::write(only.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        for hierarchy in &group.hierarchies {
            let path = hierarchy.join(&group.name);
            fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        }
        Ok(group)
    }

    /// As kubelet calls it.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let until = Instant::now() + REMOVE_LIMIT;
        for hierarchy in &self.hierarchies {
            let path = hierarchy.join(&self.name);
            // The kernel takes a moment to notice that the last process is gone.
            while let Err(error) = remove(&path) {
                if Instant::now() > until {
                    eprintln!("berth-testbed: {} could not be removed: {error}", path.display());
                    break;
                }
                thread::sleep(POLL);
            }
        }
    }
}

/// Where the hierarchies are mounted, from the kernel's list of mounts.
fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let kind = source.split(' ').next().unwrap_or_default();
        let path = mount.split(' ').nth(4).filter(|_| kind == "cgroup" || kind == "cgroup2");
        found.extend(path.map(PathBuf::from));
    }
    found
}

/// Groups go from the inside out; the files in them are the kernel's.
fn remove(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Whoever is killed leaves its groups, empty. They are removed when the next node starts.
fn remove_orphans(hierarchy: &Path) {
    for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = remove(&entry.path());
        }
    }
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_among_all_mounts() {
        let mounts = "21 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 29 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
            39 29 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let wanted: [PathBuf; 2] = ["/sys/fs/cgroup/cpu".into(), "/sys/fs/cgroup/unified".into()];
        assert_eq!(hierarchies(mounts), wanted);
    }

    #[test]
    fn owners_are_read_from_names() {
        assert_eq!(owner("berth-testbed-42-0a"), Some(42));
        assert_eq!(owner("kubepods"), None);
        assert_eq!(owner("berth-testbed"), None);
    }
}
