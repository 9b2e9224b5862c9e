//! Where the programs of the control plane are.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The version of Kubernetes whose programs are used.
pub const KUBERNETES_VERSION: &str = "1.36.4";

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(crate) const SCHEDULER: &str = "kube-scheduler";
pub(crate) const KWOK: &str = "kwok";

/// Sets the signal a child gets when the thread that started it is gone; part of util-linux.
pub(crate) const SETPRIV: &str = "setpriv";

/// The folder the programs are in: `BERTH_KUBE_BIN`, or the cache that `.ci/ensure kube` fills.
pub(crate) fn folder() -> PathBuf {
    if let Some(folder) = env::var_os("BERTH_KUBE_BIN") {
        return folder.into();
    }
    let cache = env::var_os("BERTH_CACHE").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/".into())).join(".cache/berth"),
        PathBuf::from,
    );
    cache.join(format!("tools/kubernetes-{KUBERNETES_VERSION}/bin"))
}

/// Says which of these programs are missing, and what to do about it.
pub(crate) fn check(wanted: &[&str]) -> Result<(), String> {
    let folder = folder();
    let missing: Vec<&str> = wanted.iter().copied().filter(|name| !is_program(&folder.join(name))).collect();
    if !missing.is_empty() {
        return Err(format!(
            "{} missing in {}: `.ci/ensure kube` builds what is missing, BERTH_KUBE_BIN names another folder",
            missing.join(", "),
            folder.display()
        ));
    }
    if !is_on_path(SETPRIV) {
        return Err(format!("{SETPRIV} missing: install util-linux"));
    }
    Ok(())
}

/// What to type for kubectl: its name where the shell finds it, or the path of the one that was built.
#[must_use]
pub fn kubectl() -> Option<PathBuf> {
    if is_on_path("kubectl") {
        return Some("kubectl".into());
    }
    Some(folder().join("kubectl")).filter(|path| is_program(path))
}

fn is_on_path(name: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| is_program(&folder.join(name)))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_built() {
        let module = include_str!("../../../testbed/kubernetes/go.mod");
        let wanted = format!("k8s.io/kubernetes v{KUBERNETES_VERSION}");
        assert!(module.lines().any(|line| line.trim().trim_start_matches("require ") == wanted));
    }
}
