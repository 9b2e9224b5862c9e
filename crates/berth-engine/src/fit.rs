//! Where a shape fits: for every shape in use, how many tasks each node holds and which node is best.
//!
//! An index is brought up to date only when it is asked, by the nodes that changed since it was asked last, so a shape
//! nobody waits with costs nothing. How much fits is asked far more often than where it fits best, so the order of nodes is
//! brought up to date apart.

use crate::{
    log::ChangeLog,
    mix::Mix,
    node::{NodeSlot, View},
    score,
    shape::Shape,
};
use berth_types::{Bytes, GpuRequest, Gpus, Name, TopologyLevel};
use std::collections::{BTreeMap, BTreeSet};

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

/// The index of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    view: View,
    /// Per node: the domain it counts in, if its labels are accepted.
    domain: Vec<u32>,
    /// Per node: tasks that fit now.
    copies: Vec<u32>,
    seen: Vec<u32>,
    free: DomainSums,
    /// Nodes with room.
    with_room: usize,
    /// Nodes with room, best first, as of when the order was last asked for.
    ordered: BTreeSet<(i64, u64, u32)>,
    /// Per node: its score and id in the order, if it is in it.
    in_order: Vec<Option<(i64, u64)>>,
    /// Nodes whose place in the order must be looked at again, and per node whether it is one of them.
    unordered: Vec<u32>,
    is_unordered: Vec<bool>,
    /// Per node and in all: tasks that fit into empty nodes.
    empty_copies: Vec<u32>,
    empty: DomainSums,
    domains: BTreeMap<Name, u32>,
    position: usize,
    mix_version: u64,
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
            domain: Vec::new(),
            copies: Vec::new(),
            seen: Vec::new(),
            free: DomainSums::default(),
            with_room: 0,
            ordered: BTreeSet::new(),
            in_order: Vec::new(),
            unordered: Vec::new(),
            is_unordered: Vec::new(),
            empty_copies: Vec::new(),
            empty: DomainSums::default(),
            domains: BTreeMap::new(),
            // The first look goes over every node.
            position: 0,
            mix_version: 0,
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
        let nodes = self.domain.len();
        Self {
            view,
            domain: self.domain.clone(),
            copies: vec![0; nodes],
            seen: vec![0; nodes],
            free: DomainSums::default(),
            with_room: 0,
            ordered: BTreeSet::new(),
            in_order: vec![None; nodes],
            unordered: Vec::new(),
            is_unordered: vec![false; nodes],
            empty_copies: self.empty_copies.clone(),
            empty: self.empty.clone(),
            domains: self.domains.clone(),
            position: 0,
            mix_version: 0,
            charge: self.charge,
            charge_least: self.charge_least,
        }
    }

    fn make_room_for(&mut self, nodes: usize) {
        self.domain.resize(nodes, NO_DOMAIN);
        self.copies.resize(nodes, 0);
        self.seen.resize(nodes, 0);
        self.in_order.resize(nodes, None);
        self.is_unordered.resize(nodes, false);
        self.empty_copies.resize(nodes, 0);
    }

    /// What tasks are charged depends on the devices there are only if they ask for GPU memory.
    pub(crate) fn settle_charges(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>]) {
        (self.charge_least, self.charge) = charges(shape, nodes);
    }

    /// A node came, went, or changed what does not change by scheduling.
    pub(crate) fn on_node(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], slot: u32) {
        let at = slot as usize;
        if self.domain.len() <= at {
            self.make_room_for(at + 1);
        }
        self.set_copies(slot, 0);
        if self.domain[at] != NO_DOMAIN {
            self.empty.change(self.domain[at], self.empty_copies[at], 0);
            self.empty_copies[at] = 0;
        }
        self.seen[at] = 0;
        self.domain[at] = NO_DOMAIN;
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
        self.domain[at] = domain;
        if node.ready {
            self.empty_copies[at] = node.copies_when_empty(shape);
            self.empty.change(domain, 0, self.empty_copies[at]);
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
        let at = slot as usize;
        let Some(node) = nodes[at].as_ref().filter(|_| self.domain[at] != NO_DOMAIN) else { return };
        let version = if self.view == View::Free { node.version } else { node.takeable_version };
        if self.seen[at] == version {
            return;
        }
        self.seen[at] = version;
        let keeps_off = !shape.preemptible && self.view == View::Free && !node.reserved.is_empty();
        let copies = match (node.ready, keeps_off) {
            (false, _) => 0,
            (true, false) => node.copies(shape, node.view(self.view)),
            (true, true) => node.copies(shape, &node.unreserved()),
        };
        self.set_copies(slot, copies);
    }

    fn set_copies(&mut self, slot: u32, copies: u32) {
        let at = slot as usize;
        let before = self.copies[at];
        if before == 0 && copies == 0 {
            return;
        }
        if before != copies {
            self.copies[at] = copies;
            self.free.change(self.domain[at], before, copies);
            self.with_room = self.with_room + usize::from(copies > 0) - usize::from(before > 0);
        }
        // Even with as many copies as before another node may be better.
        self.leave_unordered(slot);
    }

    fn leave_unordered(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_unordered[slot as usize], true) {
            self.unordered.push(slot);
        }
    }

    /// Brings the order up to the counts. What fits comes and goes more often than somebody asks where it fits best.
    pub(crate) fn order(&mut self, shape: &Shape, nodes: &[Option<NodeSlot>], mix: &Mix) {
        // Another mix changes which node is best, not where there is room.
        if self.view == View::Free && std::mem::replace(&mut self.mix_version, mix.version()) != mix.version()
        {
            let ordered: Vec<u32> = self.best().collect();
            ordered.into_iter().for_each(|slot| self.leave_unordered(slot));
        }
        for slot in std::mem::take(&mut self.unordered) {
            let at = slot as usize;
            self.is_unordered[at] = false;
            if let Some((score, id)) = self.in_order[at].take() {
                self.ordered.remove(&(score, id, slot));
            }
            if let Some(node) = nodes[at].as_ref().filter(|_| self.copies[at] > 0) {
                let score = match self.view {
                    View::Free => score::score(node, shape, mix),
                    // Where the most is free, the least must be taken.
                    _ => -(node.decided.gpus() as i64),
                };
                self.in_order[at] = Some((score, node.id.0));
                self.ordered.insert((score, node.id.0, slot));
            }
        }
    }

    fn best(&self) -> impl Iterator<Item = u32> {
        self.ordered.iter().map(|(_, _, slot)| *slot)
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
        self.empty_copies[slot as usize]
    }

    /// Tasks that fit on a node now.
    pub(crate) fn copies_on(&self, slot: u32) -> u32 {
        self.copies[slot as usize]
    }

    /// The domain of a node, if the shape may use it.
    pub(crate) fn domain_of(&self, slot: u32) -> Option<u32> {
        self.domain.get(slot as usize).copied().filter(|domain| *domain != NO_DOMAIN)
    }

    pub(crate) fn domain_sums(&self) -> &DomainSums {
        &self.free
    }

    /// How many nodes have room.
    pub(crate) fn nodes_with_room(&self) -> usize {
        self.with_room
    }

    /// Nodes with room, best first; the order was brought up to date before.
    pub(crate) fn best_first(&self) -> impl Iterator<Item = u32> {
        debug_assert!(self.unordered.is_empty(), "somebody asks for the best node before it is known");
        self.best()
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
