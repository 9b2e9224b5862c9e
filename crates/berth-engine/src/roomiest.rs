//! The most that is free on any of a few nodes: what needs more has no room on one of them, and that is known without
//! counting.

use crate::{
    log::ChangeLog,
    node::{NodeSlot, WHOLE},
    shape::Shape,
};
use berth_types::GpuRequest;

/// More changed nodes than this are not worth a look of their own.
const LOOKED_AT_MAX: usize = 24;

/// The most there is of each on one of some nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Roomiest {
    /// Devices that are all free.
    whole: u32,
    /// Millionths of one device.
    device: u32,
    cpu: u64,
    memory: u64,
}

impl Roomiest {
    /// Of the nodes that changed since `position`, if they are few.
    pub(crate) fn since(position: usize, log: &ChangeLog, nodes: &[Option<NodeSlot>]) -> Option<Self> {
        let changed = log.since(position).filter(|changed| changed.len() <= LOOKED_AT_MAX)?;
        let mut roomiest = Self::default();
        for node in changed.iter().filter_map(|slot| nodes[*slot as usize].as_ref()) {
            let free = &node.decided;
            let partly = free.devices().iter().copied().max().unwrap_or(0);
            roomiest.whole = roomiest.whole.max(free.whole());
            roomiest.device = roomiest.device.max(partly);
            roomiest.cpu = roomiest.cpu.max(free.cpu);
            roomiest.memory = roomiest.memory.max(free.memory);
        }
        Some(roomiest)
    }

    /// Whether a task might have room on one of the nodes.
    pub(crate) fn may_hold(&self, shape: &Shape) -> bool {
        let request = &shape.request;
        let gpu = match request.gpu {
            GpuRequest::None => true,
            GpuRequest::Whole(devices) => self.whole >= u32::from(devices.get()),
            GpuRequest::Fraction { share, .. } => self.device >= share.millionths(),
            GpuRequest::Memory { .. } => self.device > 0,
        };
        debug_assert!(self.device <= WHOLE, "a device has more free than there is of it");
        gpu && self.cpu >= request.cpu.0 && self.memory >= request.memory.0
    }
}
