//! Makes a container's files ready, in the shim.

use super::mounts;
use crate::{
    oci::{unpacked, write_bundle},
    task_folder::{MountStep, Order},
};

/// Unpacks the image if need be, and makes the files and the description of the container. The text says why it cannot run.
pub(super) fn prepare(order: &Order) -> Result<(), String> {
    let Some(container) = &order.launch.container else { return Ok(()) };
    let (root, image) = unpacked(&container.image, &container.images)?;
    let bundle = &container.bundle;
    let overlay = MountStep::Overlay {
        lower: vec![root.clone()],
        upper: bundle.join("upper"),
        work: bundle.join("work"),
        target: bundle.join("rootfs"),
    };
    mounts::prepare(&[overlay])?;
    write_bundle(&order.spec, container, &image, &root)
}
