//! What a task sees at another place than it is, in a mount namespace of its own. It is gone with the task's last process.

use super::child::own_mounts;
use crate::{
    Mount,
    access::{self, without_links},
    account::Account,
    folder,
    process::{MEETING, MEETING_WORK},
    task_folder::MountStep,
};
use rustix::{
    fs::{Mode, mkdirat},
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount},
};
use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
};

/// The lists of users and groups as a task sees them that runs under an account the machine has no name for: without one, many a
/// program refuses to run. Made before anything is mounted, from what is the machine's own.
pub(super) fn lists(folder: &Path, account: Option<&Account>) -> Vec<(PathBuf, PathBuf)> {
    let Some(lines) = account.and_then(|account| account.lines(MEETING_WORK)) else { return Vec::new() };
    let made = ["passwd", "group"].into_iter().zip(lines).map(|(name, line)| {
        let (list, copy) = (Path::new("/etc").join(name), folder.join(name));
        let mut text = std::fs::read_to_string(&list)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        std::fs::write(&copy, text + &line)?;
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        Ok((copy, list))
    });
    made.collect::<std::io::Result<_>>().unwrap_or_default()
}

/// Carries out the steps, for a task that runs as an account, or as whoever runs this. The text says why it is not possible.
pub(super) fn prepare(
    steps: &[MountStep],
    account: Option<&Account>,
    lists: &[(PathBuf, PathBuf)],
) -> Result<(), String> {
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
    for (copy, list) in lists {
        // A machine that keeps its lists elsewhere has no name for it, and that is all.
        let _ = without_links(list).and_then(|list| mount_bind_recursive(copy, through(&list)));
    }
    steps.iter().try_for_each(|step| match step {
        MountStep::Bind(bind_mount) => bind(bind_mount, account),
        MountStep::Overlay { lower, upper, work, target } => overlay(lower, upper, work, target),
        MountStep::Reveal { folders, own } => reveal(folders, own, account),
    })
}

/// Puts an empty folder over each one that the account may not enter, with nothing in it but the way to what is shown.
fn reveal(folders: &[PathBuf], own: &Path, account: Option<&Account>) -> Result<(), String> {
    let Some(account) = account else { return Ok(()) };
    for folder in folders {
        let failed = |error: std::io::Error| format!("{} could not be shown: {error}", folder.display());
        if access::enter_as_account(account, folder).is_ok() {
            continue;
        }
        let mut above: Vec<&Path> = folder.ancestors().skip(1).collect();
        above.reverse();
        let closed = above.into_iter().find(|path| access::enter_as_account(account, path).is_err());
        // What is closed itself is its owner's affair.
        let Some(closed) = closed else { continue };
        let opened = without_links(folder).map_err(|error| failed(error.into()))?;
        // Others that lie below the same folder, and what the shim needs, are gone with it unless they are taken along.
        let taken = folders.iter().filter(|other| *other != folder && other.starts_with(closed));
        let mut taken: Vec<(&Path, OwnedFd, u32)> =
            taken.filter_map(|other| Some((other.as_path(), without_links(other).ok()?, 0o755))).collect();
        if own.starts_with(closed) {
            taken.push((own, without_links(own).map_err(|error| failed(error.into()))?, 0o700));
        }
        taken.insert(0, (folder, opened, 0o755));
        mount("berth", closed, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=1m")
            .map_err(|error| failed(error.into()))?;
        for (path, from, bits) in taken {
            std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), bits)
                .create(path)
                .map_err(failed)?;
            mount_bind_recursive(through(&from), path).map_err(|error| failed(error.into()))?;
            if path != own {
                mount_remount(path, MountFlags::BIND | MountFlags::RDONLY, c"")
                    .map_err(|error| failed(error.into()))?;
            }
        }
    }
    Ok(())
}

fn bind(bound: &Mount, account: Option<&Account>) -> Result<(), String> {
    let Mount { source, target, read_only, .. } = bound;
    let failed = |error: rustix::io::Errno| {
        format!("{} could not be mounted at {}: {error}", source.display(), target.display())
    };
    let from = open_source(bound, account)?;
    let reached = match account.filter(|_| !target.starts_with(MEETING)) {
        Some(account) => access::as_account(account, target),
        None => without_links(target),
    };
    let to = match reached {
        Err(rustix::io::Errno::NOENT) => {
            make_folder(target, account).map_err(|error| no_place(target, account, error))?
        }
        opened => opened.map_err(failed)?,
    };
    mount_bind_recursive(through(&from), through(&to)).map_err(failed)?;
    if *read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"").map_err(failed)?;
    }
    Ok(())
}

/// Opens what is to be mounted. Links were refused when the task was looked at; one that was put there since is not followed
/// either. What a person named must be reached by whoever the task runs as: the mount itself asks nobody.
fn open_source(mount: &Mount, account: Option<&Account>) -> Result<OwnedFd, String> {
    let source = mount.source.display();
    match account.filter(|_| !mount.lent) {
        None => without_links(&mount.source).map_err(|error| format!("{source} could not be mounted: {error}")),
        Some(account) => access::as_account(account, &mount.source).map_err(|error| {
            format!(
                "{source} could not be mounted: user {} may not reach it ({error}): open the folders above it to that user, or \
                 start the server with `berth up --change --allow-mount {source}`",
                account.user
            )
        }),
    }
}

/// Puts what a container is to see where only this task sees it, so that the container's runtime finds what was looked at, and
/// nothing that was put in its place.
pub(super) fn stage(mounts: &[Mount], account: Option<&Account>) -> Result<Vec<Mount>, String> {
    let places = Path::new(MEETING).join("mounts");
    folder::create(Path::new(MEETING), 0o755).map_err(|error| error.to_string())?;
    folder::create(&places, 0o700).map_err(|error| error.to_string())?;
    // Beside everything on the disk: whoever removes the container's files must not find a person's data among them.
    mount("berth", &places, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0700,size=4m")
        .map_err(|error| format!("{} could not be made: {error}", places.display()))?;
    let staged = mounts.iter().enumerate().map(|(number, mount)| {
        let from = open_source(mount, account)?;
        let place = places.join(number.to_string());
        let failed =
            |error: std::io::Error| format!("{} could not be mounted: {error}", mount.source.display());
        let is_folder = std::fs::metadata(through(&from)).map_err(failed)?.is_dir();
        match is_folder {
            true => std::fs::create_dir(&place).map_err(failed)?,
            false => drop(std::fs::File::create(&place).map_err(failed)?),
        }
        mount_bind_recursive(through(&from), &place).map_err(|error| failed(error.into()))?;
        Ok(Mount { source: place, ..mount.clone() })
    });
    staged.collect()
}

fn no_place(target: &Path, account: Option<&Account>, error: rustix::io::Errno) -> String {
    let target = target.display();
    match account {
        None => format!("{target} could not be made: {error}"),
        Some(account) => format!(
            "{target} does not exist, and user {} may not make it ({error}): mount at a path that exists, or \
             below `/mnt`",
            account.user
        ),
    }
}

/// Where anybody may have an empty folder to mount something at. Elsewhere one can mean something to the machine.
const FOR_MOUNTS: [&str; 6] = ["/mnt", "/media", "/srv", "/opt", "/data", "/workspace"];

/// Makes an empty folder to mount something at. It stays: another task may be using it too. Who may not make it gets it in the
/// usual places only.
fn make_folder(path: &Path, account: Option<&Account>) -> rustix::io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(rustix::io::Errno::NOENT);
    };
    let is_plain = parent == Path::new("/") && !name.as_encoded_bytes().starts_with(b".");
    let is_usual = is_plain || FOR_MOUNTS.iter().any(|place| parent.starts_with(place));
    let parent = without_links(parent)?;
    let make = || mkdirat(&parent, name, Mode::from_raw_mode(0o755));
    let made = match account.filter(|_| !is_usual) {
        None => make(),
        Some(account) => access::acting_as(account, make),
    };
    match made {
        // Another task was quicker.
        Ok(()) | Err(rustix::io::Errno::EXIST) => without_links(path),
        Err(error) => Err(error),
    }
}

fn through(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

fn overlay(lower: &[PathBuf], upper: &Path, work: &Path, target: &Path) -> Result<(), String> {
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
fn copy(lower: &[PathBuf], target: &Path) -> Result<(), String> {
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
