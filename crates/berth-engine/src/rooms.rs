//! What is free on the few nodes that changed: what has no room on any of them is known without counting.

use crate::{
    fit::Fit,
    log::ChangeLog,
    node::{Free, NodeSlot, WHOLE},
    shape::Shape,
};
use berth_types::GpuRequest;

/// More changed nodes than this are not worth a look of their own.
const LOOKED_AT_MAX: usize = 24;

/// What is free on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
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
pub(crate) struct Rooms {
    rooms: Vec<Room>,
    /// As much as there is on any of them.
    most: Room,
}

impl Rooms {
    /// Of the nodes that changed since `position`, if they are few.
    pub(crate) fn since(position: usize, log: &ChangeLog, nodes: &[Option<NodeSlot>]) -> Option<Self> {
        let changed = log.since(position).filter(|changed| changed.len() <= LOOKED_AT_MAX)?;
        let there = changed.iter().filter_map(|slot| Some((*slot, nodes[*slot as usize].as_ref()?)));
        let rooms: Vec<Room> = there.map(|(slot, node)| Room::of(slot, &node.decided)).collect();
        let nothing = Room { slot: 0, whole: 0, device: 0, cpu: 0, memory: 0 };
        let most = rooms.iter().fold(nothing, |most, room| Room {
            slot: 0,
            whole: most.whole.max(room.whole),
            device: most.device.max(room.device),
            cpu: most.cpu.max(room.cpu),
            memory: most.memory.max(room.memory),
        });
        Some(Self { rooms, most })
    }

    /// Whether a task might have room on one of the nodes.
    pub(crate) fn may_hold(&self, shape: &Shape, fit: &Fit) -> bool {
        self.most.holds(shape) && self.rooms.iter().any(|room| room.may_hold(shape, fit))
    }
}

impl Room {
    /// What is free of a node, or would be.
    pub(crate) fn of(slot: u32, free: &Free) -> Self {
        let device = free.devices().iter().copied().max().unwrap_or(0);
        Self { slot, whole: free.whole(), device, cpu: free.cpu, memory: free.memory }
    }

    /// Whether a task might have room.
    pub(crate) fn may_hold(&self, shape: &Shape, fit: &Fit) -> bool {
        self.holds(shape) && fit.domain_of(self.slot).is_some()
    }

    fn holds(&self, shape: &Shape) -> bool {
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
