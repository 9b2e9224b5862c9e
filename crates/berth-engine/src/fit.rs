//! Where a shape fits: for every shape in use, how many tasks each node holds and which node is best.
//!
//! An index is brought up to date only when it is asked, by the nodes that changed since it was asked last, so a shape
//! nobody waits with costs nothing. How much fits is asked far more often than where it fits best, so the order of nodes is
//! brought up to date apart.

use crate::{
    log::ChangeLog,
    mix::Mix,
    node::{Free, NodeSlot, View},
    ranking::Ranking,
    shape::Shape,
};
use berth_types::{Bytes, GpuRequest, Gpus, Name, TopologyLevel};
use std::collections::BTreeMap;

/// A shape that no node ever accepted has no domain.
const NO_DOMAIN: u32 = u32::MAX;

/// Copies summed by domain of the shape's topology level.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainSums {
    sums: Vec<u64>,
    /// How many domains have a sum, so that the largest is known.
    by_sum: BTreeMap<u64, u32>,
}

impl DomainSums {
    fn change(&mut self, domain: u32, before: u32, after: u32) {
        let domain = domain as usize;
        if self.sums.len() <= domain {
            self.sums.resize(domain + 1, 0);
        }
        let old = self.sums[domain];
        let new = old - u64::from(before) + u64::from(after);
        self.sums[domain] = new;
        // One domain needs no order among domains.
        if self.sums.len() > 1 || !self.by_sum.is_empty() {
            if self.by_sum.is_empty() {
                for sum in &self.sums {
                    *self.by_sum.entry(*sum).or_default() += 1;
                }
                return;
            }
            if let Some(count) = self.by_sum.get_mut(&old) {
                *count -= 1;
                if *count == 0 {
                    self.by_sum.remove(&old);
                }
            }
            *self.by_sum.entry(new).or_default() += 1;
        }
    }

    pub(crate) fn of(&self, domain: u32) -> u64 {
        self.sums.get(domain as usize).copied().unwrap_or(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    pub(crate) fn max(&self) -> u64 {
        match self.by_sum.last_key_value() {
            Some((max, _)) => *max,
            None => self.sums.first().copied().unwrap_or(0),
        }
    }
}

/// What the index of a shape knows of one node; kept together, because they are looked at together.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The domain it counts in, if its labels are accepted.
    domain: u32,
    /// Tasks that fit now.
    copies: u32,
    /// The version of the node when they were counted.
    seen: u32,
    /// Tasks that fit when it is empty and ready.
    empty_copies: u32,
    /// Millionths one task takes of each of its devices, where all devices are alike; 0 where they are not.
    share: u32,
}

const NOT_ACCEPTED: Cell = Cell { domain: NO_DOMAIN, copies: 0, seen: 0, empty_copies: 0, share: 0 };

/// The index of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    view: View,
    cells: Vec<Cell>,
    /// Nodes it accepts: cells are many and far apart, and most changes are of nodes that some shape cannot use.
    accepted: Vec<u64>,
    free: DomainSums,
    /// Nodes with room, and how many there are.
    has_room: Vec<u64>,
    with_room: usize,
    /// The best of them, where nothing is taken.
    ranking: Option<Ranking>,
    empty: DomainSums,
    /// The most tasks that ever fitted on one empty node.
    most_on_one: u32,
    domains: BTreeMap<Name, u32>,
    position: usize,
    /// GPUs one waiting task is charged: on the smallest device it may use.
    pub(crate) charge: u64,
    /// GPUs one task is charged at least: on the largest device it may use.
    pub(crate) charge_least: u64,
}

impl Fit {
    /// The index of what is free.
    pub(crate) fn new(shape: &Shape, nodes: &[Option<NodeSlot>]) -> Self {
        let mut fit = Self {
            view: View::Free,
            cells: Vec::new(),
            accepted: Vec::new(),
            free: DomainSums::default(),
            has_room: Vec::new(),
            with_room: 0,
            ranking: Some(Ranking::default()),
            empty: DomainSums::default(),
            most_on_one: 0,
            domains: BTreeMap::new(),
            // The first look goes over every node.
            position: 0,
            charge: 0,
            charge_least: 0,
        };
        fit.make_room_for(nodes.len());
        for slot in 0..nodes.len() {
            fit.on_node(shape, nodes, slot as u32);
        }
        fit.settle_charges(shape, nodes);
        fit
    }

    /// The index of what would be free if something were taken, beside this one of what is.
    pub(crate) fn in_view(&self, view: View) -> Self {
        Self {
            view,
            cells: self.cells.iter().map(|cell| Cell { copies: 0, seen: 0, ..*cell }).collect(),
            accepted: self.accepted.clone(),
            free: DomainSums::default(),
            has_room: vec![0; self.has_room.len()],
            with_room: 0,
            ranking: None,
            empty: self.empty.clone(),
            most_on_one: self.most_on_one,
            domains: self.domains.clone(),
            position: 0,
            charge: self.charge,
            charge_least: self.charge_least,
        }
    }

    fn make_room_for(&mut self, nodes: usize) {
        self.cells.resize(nodes, NOT_ACCEPTED);
        self.accepted.resize(nodes.div_ceil(64), 0);
        self.has_room.resize(nodes.div_ceil(64), 0);
        if let Some(ranking) = &mut self.ranking {
            ranking.make_room_for(nodes);
        }
    }

    /// What tasks are charged depends on the devices there are only if they ask for GPU memory.
    pub(crate) fn settle_charges(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>]) {
        (self.charge_least, self.charge) = charges(shape, nodes);
    }

    /// A node came, went, or changed what does not change by scheduling.
    pub(crate) fn on_node(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], slot: u32) {
        let at = slot as usize;
        if self.cells.len() <= at {
            self.make_room_for(at + 1);
        }
        self.set_copies(slot, 0);
        let known = std::mem::replace(&mut self.cells[at], NOT_ACCEPTED);
        self.accepted[at / 64] &= !(1 << (at % 64));
        if known.domain != NO_DOMAIN {
            self.empty.change(known.domain, known.empty_copies, 0);
        }
        let Some(node) =
            nodes[at].as_ref().filter(|node| shape.selects(&node.labels) && node.has_devices_for(shape))
        else {
            return;
        };
        let domain = match &shape.level {
            None => 0,
            Some(TopologyLevel::Node) => slot,
            Some(TopologyLevel::Label(key)) => {
                let Some(value) = node.labels.get(key) else { return };
                let next = self.domains.len() as u32;
                *self.domains.entry(value.clone()).or_insert(next)
            }
        };
        let empty_copies = if node.ready { node.copies_when_empty(shape) } else { 0 };
        let share = node.share_if_alike(shape).unwrap_or(0);
        self.cells[at] = Cell { domain, empty_copies, share, ..NOT_ACCEPTED };
        self.accepted[at / 64] |= 1 << (at % 64);
        if node.ready {
            self.empty.change(domain, 0, empty_copies);
            self.most_on_one = self.most_on_one.max(empty_copies);
        }
    }

    /// Brings the counts up to the nodes as they are.
    pub(crate) fn sync(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], log: &ChangeLog) {
        if self.position == log.end() {
            return;
        }
        match log.since(self.position).filter(|changed| self.position > 0 && changed.len() < nodes.len()) {
            Some(changed) => {
                for &slot in changed {
                    self.update(shape, nodes, slot);
                }
            }
            None => {
                for slot in 0..nodes.len() {
                    self.update(shape, nodes, slot as u32);
                }
            }
        }
        self.position = log.end().max(1);
    }

    fn update(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], slot: u32) {
        if self.accepted[slot as usize / 64] >> (slot % 64) & 1 == 0 {
            return;
        }
        let cell = &mut self.cells[slot as usize];
        let Some(node) = nodes[slot as usize].as_ref() else { return };
        let version = if self.view == View::Free { node.version } else { node.takeable_version };
        if std::mem::replace(&mut cell.seen, version) == version {
            return;
        }
        let keeps_off = !shape.preemptible && self.view == View::Free && !node.reserved.is_empty();
        let copies = match (node.ready, keeps_off) {
            (false, _) => 0,
            (true, false) => node.copies_of_share(shape, node.view(self.view), cell.share),
            (true, true) => node.copies_of_share(shape, &node.unreserved(), cell.share),
        };
        self.set_copies(slot, copies);
    }

    fn set_copies(&mut self, slot: u32, copies: u32) {
        let cell = &mut self.cells[slot as usize];
        let before = std::mem::replace(&mut cell.copies, copies);
        if before == 0 && copies == 0 {
            return;
        }
        if before != copies {
            self.free.change(cell.domain, before, copies);
        }
        if (before > 0) != (copies > 0) {
            self.has_room[slot as usize / 64] ^= 1 << (slot % 64);
            self.with_room = self.with_room + usize::from(copies > 0) - usize::from(before > 0);
        }
        // Even with as many copies as before another node may be better.
        if let Some(ranking) = &mut self.ranking {
            ranking.mark(slot);
        }
    }

    /// Brings the order up to the counts.
    pub(crate) fn order(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], mix: &Mix) {
        let Some(ranking) = &mut self.ranking else { return };
        let cells = &self.cells;
        ranking.refresh(shape, nodes, mix, |slot| cells[slot as usize].copies > 0);
    }

    /// How many tasks of the shape fit into `free` of a node that it accepts.
    pub(crate) fn copies_in(&self, shape: &Shape, node: &NodeSlot, slot: u32, free: &Free) -> u32 {
        node.copies_of_share(shape, free, self.cells[slot as usize].share)
    }

    /// GPUs a task takes at least on a node that the shape accepts; 0 when that depends on the device.
    pub(crate) fn gpus_per_task(&self, shape: &Shape, slot: u32) -> u64 {
        u64::from(shape.request.gpu.devices()) * u64::from(self.cells[slot as usize].share)
    }

    /// Whether so many tasks surely fit still, whatever became of the nodes that changed since they were counted.
    pub(crate) fn surely_holds(&self, tasks: u32, log: &ChangeLog) -> bool {
        let uncounted = (log.end() - self.position) as u64;
        let lost = uncounted.saturating_mul(u64::from(self.most_on_one));
        self.position > 0 && self.free.len() == 1 && self.most() >= lost.saturating_add(u64::from(tasks))
    }

    /// The most tasks that fit inside one domain.
    pub(crate) fn most(&self) -> u64 {
        self.free.max()
    }

    /// The most tasks that fit inside one domain of an empty pool.
    pub(crate) fn most_when_empty(&self) -> u64 {
        self.empty.max()
    }

    /// Tasks that fit on a node when it is empty and ready.
    pub(crate) fn copies_when_empty(&self, slot: u32) -> u32 {
        self.cells[slot as usize].empty_copies
    }

    /// Tasks that fit on a node now.
    pub(crate) fn copies_on(&self, slot: u32) -> u32 {
        self.cells[slot as usize].copies
    }

    /// Whether any task fits on a node now.
    pub(crate) fn has_room_on(&self, slot: u32) -> bool {
        self.has_room[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// The domain of a node, if the shape may use it.
    pub(crate) fn domain_of(&self, slot: u32) -> Option<u32> {
        self.cells.get(slot as usize).map(|cell| cell.domain).filter(|domain| *domain != NO_DOMAIN)
    }

    pub(crate) fn domain_sums(&self) -> &DomainSums {
        &self.free
    }

    /// How many nodes have room.
    pub(crate) fn nodes_with_room(&self) -> usize {
        self.with_room
    }

    /// Nodes with room, in no order that matters.
    pub(crate) fn room(&self) -> impl Iterator<Item = u32> {
        self.has_room.iter().enumerate().flat_map(|(at, bits)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        })
    }

    /// Nodes with room, best first; the order was brought up to date before.
    pub(crate) fn best_first(&self) -> impl Iterator<Item = u32> {
        self.ranking.iter().flat_map(Ranking::best)
    }
}

/// GPUs charged for one task on the largest and on the smallest device it may use.
fn charges(shape: &Shape, nodes: &[Option<NodeSlot>]) -> (u64, u64) {
    let devices = u64::from(shape.request.gpu.devices());
    let fixed = match shape.request.gpu {
        GpuRequest::None => 0,
        GpuRequest::Whole(_) => Gpus::whole(devices).0,
        GpuRequest::Fraction { share, .. } => share.gpus().times(devices).0,
        GpuRequest::Memory { bytes, .. } => {
            let usable = nodes.iter().flatten().filter(|node| node.ready && shape.selects(&node.labels));
            let memories = usable
                .flat_map(|node| &node.devices)
                .filter(|device| shape.accepts(device) && device.memory >= Bytes(bytes.get()))
                .map(|device| device.memory);
            let (smallest, largest) = (memories.clone().min(), memories.max());
            let charge = |memory: Option<Bytes>| {
                memory.and_then(|memory| shape.request.gpu.charge_on(memory)).map_or(1, |charge| charge.0)
            };
            return (charge(largest), charge(smallest));
        }
    };
    (fixed, fixed)
}
