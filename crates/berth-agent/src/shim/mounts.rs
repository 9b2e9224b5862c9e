//! What a task sees at another place than it is, in a mount namespace of its own. It is gone with the task's last process.

use super::child::own_mounts;
use crate::{Mount, task_folder::MountStep};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2},
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount},
};
use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process::Command,
};

/// Carries out the steps. The text says why it is not possible.
pub(super) fn prepare(steps: &[MountStep]) -> Result<(), String> {
    if steps.is_empty() {
        return Ok(());
    }
    own_mounts().map_err(|error| {
        format!(
            "this machine does not let Berth mount anything ({error}): mount folders at their own path, as in \
             `-v /data:/data`, or use a container runtime"
        )
    })?;
    // What the machine mounts later is still seen here, and nothing of this is seen there.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| format!("the mounts of this machine could not be made private: {error}"))?;
    steps.iter().try_for_each(|step| match step {
        MountStep::Bind(bind_mount) => bind(bind_mount),
        MountStep::Overlay { lower, upper, work, target } => overlay(lower, upper, work, target),
    })
}

fn bind(Mount { source, target, read_only }: &Mount) -> Result<(), String> {
    let failed = |error: rustix::io::Errno| {
        format!("{} could not be mounted at {}: {error}", source.display(), target.display())
    };
    // Links were refused when the task was looked at; one that was put there since is not followed either.
    let from = without_links(source).map_err(failed)?;
    let to = match without_links(target) {
        Err(rustix::io::Errno::NOENT) => make_folder(target).map_err(failed)?,
        opened => opened.map_err(failed)?,
    };
    mount_bind_recursive(through(&from), through(&to)).map_err(failed)?;
    if *read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"").map_err(failed)?;
    }
    Ok(())
}

fn without_links(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Makes an empty folder to mount something at. It stays: another task may be using it too.
fn make_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(rustix::io::Errno::NOENT);
    };
    match mkdirat(without_links(parent)?, name, Mode::from_raw_mode(0o755)) {
        // Another task was quicker.
        Ok(()) | Err(rustix::io::Errno::EXIST) => without_links(path),
        Err(error) => Err(error),
    }
}

fn through(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

fn overlay(lower: &[std::path::PathBuf], upper: &Path, work: &Path, target: &Path) -> Result<(), String> {
    for folder in [upper, work, target] {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    // The root of the container is the root of this layer, and must be open to whoever it runs as.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(upper, open).map_err(|error| format!("{}: {error}", upper.display()))?;
    // The kernel reads the lowest layer last, and takes colons and commas as separators.
    let plain =
        |path: &Path| path.to_str().filter(|text| !text.contains([':', ',', '\\'])).map(ToOwned::to_owned);
    let layers: Option<Vec<String>> = lower.iter().map(|layer| plain(layer)).collect();
    if let (Some(layers), Some(upper), Some(work)) = (layers, plain(upper), plain(work)) {
        let options = format!("lowerdir={},upperdir={upper},workdir={work}", layers.join(":"));
        let options = CString::new(options).map_err(|error| error.to_string())?;
        if mount("overlay", target, "overlay", MountFlags::empty(), options.as_c_str()).is_ok() {
            return Ok(());
        }
    }
    copy(lower, target)
}

/// Where the kernel has no overlay, or not on this file system, the layers are copied, the lowest first.
fn copy(lower: &[std::path::PathBuf], target: &Path) -> Result<(), String> {
    for layer in lower.iter().rev() {
        let copied = Command::new("cp")
            .args(["-a", "--reflink=auto", "--"])
            .arg(layer.join("."))
            .arg(target)
            .status()
            .map_err(|error| format!("cp could not be started: {error}"))?;
        if !copied.success() {
            return Err(format!("{} could not be copied to {}", layer.display(), target.display()));
        }
    }
    Ok(())
}
