//! What keeps a waiting workload from the nodes, cause by cause.
//!
//! Each cause is tried: with the cause ignored, do the nodes have room? All causes that suffice alone are named. When none
//! does, as many as are needed together.

use crate::{
    details::{free_gpus, served_devices},
    node::{Free, NodeSlot, View},
    pool::Pool,
    shape::{Shape, ShapeKey},
};
use berth_types::{Blocker, Bytes, Cpu, GpuRequest, Gpus, Name, NodeId, Selector, TopologyLevel, WorkloadId};
use std::collections::{BTreeMap, BTreeSet};

/// One cause that can be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Topology,
    Apart,
    Selector,
    Affinity,
    Model,
    DeviceMemory,
    Reserved,
    Cordoned,
    Memory,
    Cpu,
    Gpus,
}

/// Causes in the order in which they are left out of a set that blocks together: the last are named the most readily.
const CAUSES: [Cause; 11] = [
    Cause::Topology,
    Cause::Apart,
    Cause::Selector,
    Cause::Affinity,
    Cause::Model,
    Cause::DeviceMemory,
    Cause::Reserved,
    Cause::Cordoned,
    Cause::Memory,
    Cause::Cpu,
    Cause::Gpus,
];

/// What of each node counts as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// All of it.
    Empty,
    /// What is free in a view.
    View(View),
}

/// A question about room: a shape with some causes ignored.
pub(crate) struct Room<'a> {
    pool: &'a Pool,
    shape: Shape,
    /// Some device of a node must serve this, also where GPUs are ignored.
    device: Option<Shape>,
    ignored: &'a [Cause],
    given: Given,
    /// Whether reservations keep it off.
    keeps_off: bool,
}

impl<'a> Room<'a> {
    /// The question whether a pool has room for a shape.
    pub(crate) fn new(pool: &'a Pool, shape: &Shape, given: Given, ignored: &'a [Cause]) -> Self {
        let ignores = |cause| ignored.contains(&cause);
        let mut key = ShapeKey {
            request: shape.request.clone(),
            selector: shape.selector.clone(),
            project_selector: shape.project_selector.clone(),
            preemptible: shape.preemptible,
            level: shape.level.clone(),
            apart: shape.apart(),
        };
        if ignores(Cause::Selector) {
            key.selector = Selector::default();
        }
        if ignores(Cause::Affinity) {
            key.project_selector = Selector::default();
        }
        if ignores(Cause::Topology) {
            key.level = None;
        }
        if ignores(Cause::Apart) {
            key.apart = false;
        }
        if ignores(Cause::Model) {
            key.request.models.clear();
        }
        if ignores(Cause::Cpu) {
            key.request.cpu = Cpu::ZERO;
        }
        if ignores(Cause::Memory) {
            key.request.memory = Bytes::ZERO;
        }
        let mut device = None;
        if ignores(Cause::Gpus) || ignores(Cause::DeviceMemory) {
            device = (!ignores(Cause::DeviceMemory)).then(|| Shape::new(&key));
            key.request.gpu = GpuRequest::None;
        }
        let keeps_off = !shape.preemptible && given == Given::View(View::Free) && !ignores(Cause::Reserved);
        Self { pool, shape: Shape::new(&key), device, ignored, given, keeps_off }
    }

    /// Tasks that fit a node.
    fn copies(&self, node: &NodeSlot) -> u32 {
        let is_ready = node.ready || self.ignored.contains(&Cause::Cordoned);
        let has_device = match (&self.device, self.ignored.contains(&Cause::DeviceMemory)) {
            (Some(device), _) => node.has_devices_for(device),
            (None, true) => node.devices.iter().any(|device| self.shape.accepts(device)),
            (None, false) => true,
        };
        if !is_ready || !has_device || !self.shape.selects(&node.labels) {
            return 0;
        }
        match self.given {
            // Most nodes have no reservation, and what is free of them need not be copied.
            Given::View(view) if !self.keeps_off || node.reserved.is_empty() => {
                node.copies(&self.shape, node.view(view))
            }
            _ => node.copies(&self.shape, &self.free(node)),
        }
    }

    fn free(&self, node: &NodeSlot) -> Free {
        match self.given {
            Given::Empty => node.empty(),
            Given::View(_) if self.keeps_off && !node.reserved.is_empty() => node.unreserved(),
            Given::View(view) => node.view(view).clone(),
        }
    }

    /// The most tasks that fit one domain; counting ends when `enough` do.
    pub(crate) fn most(&self, enough: u64) -> u64 {
        let mut domains: BTreeMap<Option<&Name>, u64> = BTreeMap::new();
        let mut most = 0;
        for node in self.pool.nodes.iter().flatten() {
            let copies = u64::from(self.copies(node));
            let sum = match &self.shape.level {
                None => domains.entry(None).or_default(),
                Some(TopologyLevel::Node) => {
                    most = most.max(copies);
                    continue;
                }
                Some(TopologyLevel::Label(key)) => match node.labels.get(key) {
                    Some(value) => domains.entry(Some(value)).or_default(),
                    None => continue,
                },
            };
            *sum += copies;
            most = most.max(*sum);
            if most >= enough {
                return most;
            }
        }
        most
    }

    /// Nodes on which a task fits.
    fn nodes(&self) -> impl Iterator<Item = &'a NodeSlot> {
        self.pool.nodes.iter().flatten().filter(|node| self.copies(node) > 0)
    }
}

impl Pool {
    /// What keeps a waiting workload from the nodes: from empty ones, if it can `never` start, or from what is free.
    pub(crate) fn blockers(&self, slot: u32, never: bool) -> Vec<Blocker> {
        if self.nodes.iter().flatten().next().is_none() {
            return vec![Blocker::NoNodes];
        }
        let class = self.class_of(slot);
        let (shape, min) = (&self.shapes[class.shape as usize].0, u64::from(class.min));
        let asked = u32::from(shape.request.gpu.devices());
        if asked > 0 && self.nodes.iter().flatten().all(|node| node.devices.is_empty()) {
            return vec![Blocker::NodeGpus { asked, largest: 0 }];
        }
        let given = if never { Given::Empty } else { Given::View(View::Free) };
        let has_room = |ignored: &[Cause]| Room::new(self, shape, given, ignored).most(min) >= min;
        if has_room(&[]) {
            return Vec::new();
        }
        let relevant: Vec<Cause> =
            CAUSES.into_iter().filter(|cause| self.is_relevant(shape, *cause, never)).collect();
        let alone: Vec<Cause> = relevant.iter().copied().filter(|cause| has_room(&[*cause])).collect();
        let mut found: Vec<Blocker> = Vec::new();
        let mut name = |cause: Cause, ignored: &[Cause]| {
            let blocker = self.blocker(shape, min, cause, ignored, never);
            if !found.contains(&blocker) {
                found.push(blocker);
            }
        };
        if alone.is_empty() {
            let mut together = relevant;
            if !has_room(&together) {
                return Vec::new();
            }
            for cause in CAUSES {
                let fewer: Vec<Cause> = together.iter().copied().filter(|other| *other != cause).collect();
                if fewer.len() < together.len() && has_room(&fewer) {
                    together = fewer;
                }
            }
            together.iter().rev().for_each(|cause| name(*cause, &together));
        } else {
            alone.iter().rev().for_each(|cause| name(*cause, &[*cause]));
        }
        found
    }

    /// Whether a cause can be one for a shape at all.
    fn is_relevant(&self, shape: &Shape, cause: Cause, never: bool) -> bool {
        match cause {
            Cause::Topology => shape.level.is_some(),
            Cause::Apart => shape.apart(),
            Cause::Selector => !shape.selector.0.is_empty(),
            Cause::Affinity => !shape.project_selector.0.is_empty(),
            Cause::Model => !shape.request.models.is_empty(),
            Cause::DeviceMemory => never && matches!(shape.request.gpu, GpuRequest::Memory { .. }),
            Cause::Reserved => !never && !shape.preemptible && !self.reservations.is_empty(),
            Cause::Cordoned => self.nodes.iter().flatten().any(|node| !node.ready),
            Cause::Memory => shape.request.memory > Bytes::ZERO,
            Cause::Cpu => shape.request.cpu > Cpu::ZERO,
            Cause::Gpus => shape.request.gpu.devices() > 0,
        }
    }

    /// A cause with its numbers. `ignored` are the causes without which there is room, this one among them.
    fn blocker(&self, shape: &Shape, min: u64, cause: Cause, ignored: &[Cause], never: bool) -> Blocker {
        let given = if never { Given::Empty } else { Given::View(View::Free) };
        let room = Room::new(self, shape, given, ignored);
        let request = &shape.request;
        let most = || Room::new(self, shape, given, &[]).most(min);
        // Where one task fits, it is their number that does not.
        let size = |fits: bool, blocker: Blocker| match (fits, never) {
            (true, true) => Blocker::PoolSize { tasks: min, most: most() },
            (true, false) if min > 1 => Blocker::TooFewFit { tasks: min, most: most() },
            _ => blocker,
        };
        match cause {
            Cause::Selector => {
                Blocker::Selector { free: self.free_on(&room, |node| !shape.selector.accepts(&node.labels)) }
            }
            Cause::Affinity => Blocker::Affinity {
                free: self.free_on(&room, |node| !shape.project_selector.accepts(&node.labels)),
            },
            Cause::Model => {
                let models: BTreeSet<Name> =
                    room.nodes().flat_map(|node| &node.devices).map(|device| device.model.clone()).collect();
                Blocker::Model {
                    there: models.into_iter().filter(|model| !request.accepts_model(model)).collect(),
                }
            }
            Cause::DeviceMemory => {
                let devices =
                    room.nodes().flat_map(|node| &node.devices).filter(|device| shape.accepts(device));
                let largest = devices.map(|device| device.memory).max().unwrap_or(Bytes::ZERO);
                let asked = match request.gpu {
                    GpuRequest::Memory { bytes, .. } => Bytes(bytes.get()),
                    _ => Bytes::ZERO,
                };
                Blocker::DeviceMemory { asked, largest }
            }
            Cause::Cordoned => {
                let mut nodes: Vec<NodeId> =
                    room.nodes().filter(|node| !node.ready).map(|node| node.id).collect();
                nodes.sort_unstable();
                Blocker::Cordoned { nodes, free: self.free_on(&room, |node| !node.ready) }
            }
            Cause::Reserved => {
                let reserved = room.nodes().flat_map(|node| &node.reserved);
                let owners: BTreeSet<WorkloadId> =
                    reserved.map(|(owner, _)| self.entry(*owner).workload.id).collect();
                Blocker::Reserved { owners: owners.into_iter().collect() }
            }
            Cause::Topology => Blocker::Topology { tasks: min, most: most() },
            Cause::Apart => Blocker::Apart { tasks: min, most: most() },
            Cause::Gpus if never => {
                let asked = u32::from(request.gpu.devices());
                let devices = |node: &NodeSlot| match &room.device {
                    Some(device) => served_devices(device, node).count() as u32,
                    None => node.devices.iter().filter(|device| room.shape.accepts(device)).count() as u32,
                };
                let largest = room.nodes().map(devices).max().unwrap_or(0);
                size(asked <= largest, Blocker::NodeGpus { asked, largest })
            }
            Cause::Gpus => {
                let asked = u32::from(request.gpu.devices());
                let largest = room.nodes().map(|node| free_gpus(shape, node)).max().unwrap_or(Gpus::ZERO);
                size(Gpus::whole(u64::from(asked)) <= largest, Blocker::GpusInUse { asked, largest })
            }
            Cause::Cpu if never => {
                let largest = room.nodes().map(|node| node.cpu).max().unwrap_or(Cpu::ZERO);
                size(request.cpu <= largest, Blocker::NodeCpu { asked: request.cpu, largest })
            }
            Cause::Cpu => {
                let largest = room.nodes().map(|node| Cpu(room.free(node).cpu)).max().unwrap_or(Cpu::ZERO);
                size(request.cpu <= largest, Blocker::CpuInUse { asked: request.cpu, largest })
            }
            Cause::Memory if never => {
                let largest = room.nodes().map(|node| node.memory).max().unwrap_or(Bytes::ZERO);
                size(request.memory <= largest, Blocker::NodeMemory { asked: request.memory, largest })
            }
            Cause::Memory => {
                let largest =
                    room.nodes().map(|node| Bytes(room.free(node).memory)).max().unwrap_or(Bytes::ZERO);
                size(request.memory <= largest, Blocker::MemoryInUse { asked: request.memory, largest })
            }
        }
    }

    /// Free GPUs on those nodes with room that `counts` names.
    fn free_on(&self, room: &Room<'_>, counts: impl Fn(&NodeSlot) -> bool) -> Gpus {
        room.nodes().filter(|node| counts(node)).map(|node| Gpus(node.decided.gpus())).sum()
    }
}
