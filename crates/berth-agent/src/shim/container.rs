//! Makes a container's files ready, in the shim.

use super::mounts;
use crate::{
    ImageEntry, access,
    account::Account,
    oci::{Container, unpacked, write_bundle},
    task_folder::{MountStep, Order},
};
use std::os::fd::{AsRawFd, OwnedFd};

/// Unpacks the image if need be, and makes the files and the description of the container. The text says why it cannot run.
pub(super) fn prepare(order: &Order, account: Option<&Account>) -> Result<(), String> {
    let Some(container) = &order.launch.container else { return Ok(()) };
    let (entry, _opened) = named(container, account)?;
    let (root, image) = unpacked(&entry, &container.images)?;
    let bundle = &container.bundle;
    let overlay = MountStep::Overlay {
        lower: vec![root.clone()],
        upper: bundle.join("upper"),
        work: bundle.join("work"),
        target: bundle.join("rootfs"),
    };
    mounts::prepare(&[overlay], None, &[])?;
    let mounts = mounts::stage(&container.mounts, account)?;
    let container = Container { mounts, ..container.clone() };
    write_bundle(&order.spec, &container, &image, &root)
}

/// An image that a person named by its path must be open to whoever the container runs as: it is unpacked by root. What was
/// opened is what is read, whatever is put in its place meanwhile.
fn named(container: &Container, account: Option<&Account>) -> Result<(ImageEntry, Option<OwnedFd>), String> {
    let Some(account) = account.filter(|_| container.by_path) else {
        return Ok((container.image.clone(), None));
    };
    let (ImageEntry::Root(path) | ImageEntry::Archive(path)) = &container.image else {
        return Ok((container.image.clone(), None));
    };
    let opened = access::read_as_account(account, path).map_err(|error| {
        format!("the image {} may not be read by user {}: {error}", path.display(), account.user)
    })?;
    // Named by this process, because another one may have to read it.
    let through = format!("/proc/{}/fd/{}", std::process::id(), opened.as_raw_fd()).into();
    let entry = match &container.image {
        ImageEntry::Root(_) => ImageEntry::Root(through),
        _ => ImageEntry::Archive(through),
    };
    Ok((entry, Some(opened)))
}
