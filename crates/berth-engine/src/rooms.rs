//! What is free on the few nodes that changed: what has no room on any of them is known without counting.

use crate::{
    fit::Fit,
    log::ChangeLog,
    node::{NodeSlot, WHOLE},
    shape::Shape,
};
use berth_types::GpuRequest;

/// More changed nodes than this are not worth a look of their own.
const LOOKED_AT_MAX: usize = 24;

/// What is free on a node.
#[derive(Clone, Copy, Debug)]
struct Room {
    slot: u32,
    /// Devices that are all free.
    whole: u32,
    /// The most millionths of one device.
    device: u32,
    cpu: u64,
    memory: u64,
}

/// What is free on some nodes.
#[derive(Clone, Debug)]
pub(crate) struct Rooms(Vec<Room>);

impl Rooms {
    /// Of the nodes that changed since `position`, if they are few.
    pub(crate) fn since(position: usize, log: &ChangeLog, nodes: &[Option<NodeSlot>]) -> Option<Self> {
        let changed = log.since(position).filter(|changed| changed.len() <= LOOKED_AT_MAX)?;
        let there = changed.iter().filter_map(|slot| Some((*slot, nodes[*slot as usize].as_ref()?)));
        let rooms = there.map(|(slot, node)| {
            let free = &node.decided;
            let device = free.devices().iter().copied().max().unwrap_or(0);
            Room { slot, whole: free.whole(), device, cpu: free.cpu, memory: free.memory }
        });
        Some(Self(rooms.collect()))
    }

    /// Whether a task might have room on one of the nodes.
    pub(crate) fn may_hold(&self, shape: &Shape, fit: &Fit) -> bool {
        self.0.iter().any(|room| room.may_hold(shape) && fit.domain_of(room.slot).is_some())
    }
}

impl Room {
    fn may_hold(&self, shape: &Shape) -> bool {
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
