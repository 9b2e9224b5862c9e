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
pub(crate) const KUBELET: &str = "kubelet";
pub(crate) const CONTAINERD: &str = "containerd";
pub(crate) const SHIM: &str = "containerd-shim-runc-v2";
pub(crate) const CTR: &str = "ctr";
/// Gives a Pod a pair of network devices, one end of it on the machine.
pub(crate) const PTP: &str = "ptp";
pub(crate) const HOST_LOCAL: &str = "host-local";
pub(crate) const LOOPBACK: &str = "loopback";
/// Installs a chart.
const HELM: &str = "helm";

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
        return Err(self::missing(&missing));
    }
    if find(SETPRIV).is_none() {
        return Err(format!("{SETPRIV} missing: install util-linux"));
    }
    Ok(())
}

fn missing(names: &[&str]) -> String {
    format!(
        "{} missing in {}: `.ci/ensure kube` builds what is missing, BERTH_KUBE_BIN names another folder",
        names.join(", "),
        folder().display()
    )
}

/// What to type for kubectl: its name where the shell finds it, or the path of the one that was built.
#[must_use]
pub fn kubectl() -> Option<PathBuf> {
    found_or_built("kubectl")
}

/// What to type for Helm, in the same way.
///
/// # Errors
/// Says how to get it, so that a test can say what it skips.
pub fn helm() -> Result<PathBuf, String> {
    found_or_built(HELM).ok_or_else(|| missing(&[HELM]))
}

fn found_or_built(name: &str) -> Option<PathBuf> {
    if find(name).is_some() {
        return Some(name.into());
    }
    Some(folder().join(name)).filter(|path| is_program(path))
}

/// The program that the shell would find.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| is_program(path))
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
