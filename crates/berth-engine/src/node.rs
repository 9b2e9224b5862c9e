//! One node as the engine sees it: what is decided on it, what is occupied, and by whom.

use crate::{brief::Brief, shape::Shape, tree::Sign};
use berth_types::{Bytes, Cpu, Device, DeviceShare, Gpus, Name, Node, NodeCondition, NodeId, Place, Share};
use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
};

/// All of one device, in millionths.
pub(crate) const WHOLE: u32 = Gpus::SCALE as u32;

/// As many devices as most nodes have.
const FEW: usize = 8;

/// An amount for each device of a node; nearly always it needs no memory of its own.
#[derive(Clone, Debug)]
enum ByDevice {
    Few(u8, [u32; FEW]),
    Many(Box<[u32]>),
}

impl ByDevice {
    fn all(devices: usize, amount: u32) -> Self {
        match u8::try_from(devices) {
            Ok(few) if devices <= FEW => Self::Few(few, [amount; FEW]),
            _ => Self::Many(vec![amount; devices].into()),
        }
    }
}

impl Deref for ByDevice {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::Few(count, amounts) => &amounts[..usize::from(*count)],
            Self::Many(amounts) => amounts,
        }
    }
}

impl DerefMut for ByDevice {
    fn deref_mut(&mut self) -> &mut [u32] {
        match self {
            Self::Few(count, amounts) => &mut amounts[..usize::from(*count)],
            Self::Many(amounts) => amounts,
        }
    }
}

/// Free amounts of one node in one view; small enough to copy for a trial.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// Free millionths by device.
    devices: ByDevice,
    /// Free millionths of all devices.
    sum: u32,
    /// Devices that are all free.
    whole: u32,
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
}

impl Free {
    /// All of so many devices, CPU and memory.
    fn all(devices: usize, cpu: u64, memory: u64) -> Self {
        let count = devices as u32;
        Self { devices: ByDevice::all(devices, WHOLE), sum: count * WHOLE, whole: count, cpu, memory }
    }

    /// Free millionths by device.
    pub(crate) fn devices(&self) -> &[u32] {
        &self.devices
    }

    /// Devices that are all free.
    pub(crate) fn whole(&self) -> u32 {
        self.whole
    }

    /// Free millionths of all devices.
    pub(crate) fn gpus(&self) -> u64 {
        u64::from(self.sum)
    }

    fn set(&mut self, device: usize, free: u32) {
        let before = std::mem::replace(&mut self.devices[device], free);
        self.sum = self.sum - before + free;
        self.whole = self.whole - u32::from(before == WHOLE) + u32::from(free == WHOLE);
    }

    pub(crate) fn give(&mut self, place: &Place) {
        for taken in &place.devices {
            let device = taken.device as usize;
            self.set(device, self.devices[device] + taken.share.millionths());
        }
        self.cpu += place.cpu.0;
        self.memory += place.memory.0;
    }

    pub(crate) fn take(&mut self, place: &Place) {
        for taken in &place.devices {
            let device = taken.device as usize;
            self.set(device, self.devices[device] - taken.share.millionths());
        }
        self.cpu -= place.cpu.0;
        self.memory -= place.memory.0;
    }

    /// Takes as much of a place as there is.
    fn withhold(&mut self, place: &Place) {
        for taken in &place.devices {
            let device = taken.device as usize;
            self.set(device, self.devices[device].saturating_sub(taken.share.millionths()));
        }
        self.cpu = self.cpu.saturating_sub(place.cpu.0);
        self.memory = self.memory.saturating_sub(place.memory.0);
    }

    /// Gives a place back, of which parts may be free already.
    pub(crate) fn restore(&mut self, place: &Place) {
        for taken in &place.devices {
            let device = taken.device as usize;
            self.set(device, (self.devices[device] + taken.share.millionths()).min(WHOLE));
        }
        self.cpu += place.cpu.0;
        self.memory += place.memory.0;
    }

    /// What is free here and there.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        for device in 0..self.devices.len() {
            self.set(device, self.devices[device].min(other.devices[device]));
        }
        self.cpu = self.cpu.min(other.cpu);
        self.memory = self.memory.min(other.memory);
        self
    }

    /// Whether a place is free here.
    pub(crate) fn holds(&self, place: &Place) -> bool {
        place.devices.iter().all(|taken| self.devices[taken.device as usize] >= taken.share.millionths())
            && self.cpu >= place.cpu.0
            && self.memory >= place.memory.0
    }
}

/// What of a node could be free: what is, or with everything that some rule might let be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Free when everything that was told to leave has left.
    Free,
    /// With elastic extras gone.
    Extras,
    /// With work of projects above their quota gone too.
    Quota,
    /// With work of projects above their fair share gone too.
    Share,
}

/// The views in which something is taken.
pub(crate) const TAKING: [View; 3] = [View::Extras, View::Quota, View::Share];

/// A node, its two views of capacity, and the workloads that count on it. What indexes look at stands first, and lies
/// together.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct NodeSlot {
    /// Amounts named by reservations, which non-preemptible work may not use.
    pub(crate) reserved: Vec<(u32, Place)>,
    pub(crate) id: NodeId,
    /// Grows with every change of what is free, so that an index can see whether it is behind.
    pub(crate) version: u32,
    /// Grows with every change of what could be taken, which changes of what is free are too.
    pub(crate) takeable_version: u32,
    pub(crate) ready: bool,
    /// Whether all devices are of one model and size.
    alike: bool,
    /// Places that are occupied here, also those that take nothing.
    pub(crate) occupants: u32,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Bytes,
    /// Free when everything that was told to leave has left.
    pub(crate) decided: Free,
    /// Free amounts in each of the views in which something is taken; an upper bound of what one claim may take.
    takeable: [Free; 3],
    /// Free at this moment.
    pub(crate) occupied: Free,
    /// Slots of workloads with a decided place here, one entry per place.
    pub(crate) tasks: Vec<u32>,
    /// Positions of their projects, in the same order.
    pub(crate) projects: Vec<u32>,
    /// How many of those places are held.
    pub(crate) held: u32,
    /// Running preemptible workloads that are here and nowhere else.
    pub(crate) victims: Vec<(u32, Brief)>,
    pub(crate) devices: Vec<Device>,
    pub(crate) labels: BTreeMap<Name, Name>,
}

impl NodeSlot {
    pub(crate) fn new(node: &Node) -> Self {
        let free = Free::all(node.devices.len(), node.cpu.0, node.memory.0);
        Self {
            id: node.id,
            ready: node.condition == NodeCondition::Ready,
            alike: node
                .devices
                .windows(2)
                .all(|pair| (&pair[0].model, pair[0].memory) == (&pair[1].model, pair[1].memory)),
            devices: node.devices.clone(),
            cpu: node.cpu,
            memory: node.memory,
            labels: node.labels.clone(),
            decided: free.clone(),
            takeable: [free.clone(), free.clone(), free.clone()],
            occupied: free,
            reserved: Vec::new(),
            tasks: Vec::new(),
            projects: Vec::new(),
            held: 0,
            victims: Vec::new(),
            occupants: 0,
            version: 1,
            takeable_version: 1,
        }
    }

    /// Free amounts in a view.
    pub(crate) fn view(&self, view: View) -> &Free {
        match view {
            View::Free => &self.decided,
            View::Extras => &self.takeable[0],
            View::Quota => &self.takeable[1],
            View::Share => &self.takeable[2],
        }
    }

    /// Free amounts in a view in which something is taken.
    pub(crate) fn takeable_mut(&mut self, view: View) -> &mut Free {
        let at = TAKING.iter().position(|taking| *taking == view).expect("something is taken in this view");
        &mut self.takeable[at]
    }

    /// A place is decided or given back; what can be taken of it is counted apart.
    pub(crate) fn decide(&mut self, place: &Place, sign: Sign) {
        for free in std::iter::once(&mut self.decided).chain(&mut self.takeable) {
            match sign {
                Sign::Plus => free.take(place),
                Sign::Minus => free.give(place),
            }
        }
    }

    /// Keeps what is placed on a node that did not change size.
    pub(crate) fn keep_places_of(&mut self, known: Self) {
        self.decided = known.decided;
        self.takeable = known.takeable;
        self.occupied = known.occupied;
        self.reserved = known.reserved;
        self.tasks = known.tasks;
        self.projects = known.projects;
        self.held = known.held;
        self.victims = known.victims;
        self.occupants = known.occupants;
    }

    /// What is free of an empty node.
    pub(crate) fn empty(&self) -> Free {
        Free::all(self.devices.len(), self.cpu.0, self.memory.0)
    }

    /// Whether anything here is reserved for others than the owner.
    pub(crate) fn is_reserved_beside(&self, owner: u32) -> bool {
        self.reserved.iter().any(|(of, _)| *of != owner)
    }

    /// What work that must not touch reservations may use.
    pub(crate) fn unreserved(&self) -> Free {
        self.unreserved_of(&self.decided, u32::MAX)
    }

    /// What is left of `free` without what reservations of others than `owner` name.
    pub(crate) fn unreserved_of(&self, free: &Free, owner: u32) -> Free {
        self.unreserved_beside(free, |of| of == owner)
    }

    /// What is left of `free` without what reservations name, but for those of owners that are `passed`.
    pub(crate) fn unreserved_beside(&self, free: &Free, passed: impl Fn(u32) -> bool) -> Free {
        let mut free = free.clone();
        for (_, place) in self.reserved.iter().filter(|(of, _)| !passed(*of)) {
            free.withhold(place);
        }
        free
    }

    /// How many tasks of a shape fit into this node when it is empty.
    pub(crate) fn copies_when_empty(&self, shape: &Shape) -> u32 {
        let wanted = u32::from(shape.request.gpu.devices());
        if self.alike && wanted == 1 || shape.whole {
            let share_on =
                |device: &Device| shape.share_on(device).map_or(0, |share| WHOLE / share.millionths());
            let copies = match self.alike {
                true => self.devices.first().map_or(0, share_on) * self.devices.len() as u32,
                false => self.devices.iter().map(share_on).sum(),
            };
            return shape.bound(self.cpu.0, self.memory.0).min(copies / wanted);
        }
        self.copies(shape, &self.empty())
    }

    /// Whether a shape could use any device of this node, or needs none.
    pub(crate) fn has_devices_for(&self, shape: &Shape) -> bool {
        shape.request.gpu.devices() == 0 || self.devices.iter().any(|device| shape.share_on(device).is_some())
    }

    /// Millionths a task of a shape takes of each of its devices, if all devices here are alike and serve it.
    pub(crate) fn share_if_alike(&self, shape: &Shape) -> Option<u32> {
        let device = self.devices.first().filter(|_| self.alike)?;
        shape.share_on(device).map(Share::millionths)
    }

    /// How many tasks of a shape fit into `free` of this node; exact.
    pub(crate) fn copies(&self, shape: &Shape, free: &Free) -> u32 {
        match self.share_if_alike(shape) {
            None if self.alike && shape.request.gpu.devices() > 0 => 0,
            share => self.copies_of_share(shape, free, share.unwrap_or(0)),
        }
    }

    /// The same when it is known what a task takes of each of its devices: looking at one is enough then to know what
    /// each gives. A share of 0 says that devices differ.
    pub(crate) fn copies_of_share(&self, shape: &Shape, free: &Free, share: u32) -> u32 {
        let wanted = u32::from(shape.request.gpu.devices());
        // Most nodes have nothing free, and that is seen at once.
        let nothing = if shape.whole { free.whole < wanted } else { wanted > 0 && free.sum < share.max(1) };
        if nothing {
            return 0;
        }
        let bound = shape.bound(free.cpu, free.memory);
        if wanted == 0 || bound == 0 {
            return bound;
        }
        if share == 0 {
            return self.copies_on_various(shape, free, wanted, bound);
        }
        if shape.whole {
            return bound.min(free.whole / wanted);
        }
        let partly = free.devices.iter().filter(|free| (share..WHOLE).contains(free));
        if wanted == 1 {
            return bound.min(free.whole * (WHOLE / share) + partly.map(|free| free / share).sum::<u32>());
        }
        let each: Vec<u32> = free.devices.iter().map(|free| free / share).collect();
        copies_on_distinct(&each, wanted, bound)
    }

    fn copies_on_various(&self, shape: &Shape, free: &Free, wanted: u32, bound: u32) -> u32 {
        if shape.whole {
            let accepted = self.devices.iter().zip(free.devices.iter());
            let count = accepted.filter(|(device, free)| **free == WHOLE && shape.accepts(device)).count();
            return bound.min(count as u32 / wanted);
        }
        let fits = |device: &Device, free: u32| match shape.share_on(device) {
            Some(share) => free / share.millionths(),
            None => 0,
        };
        let each = self.devices.iter().zip(free.devices.iter()).map(|(device, free)| fits(device, *free));
        if wanted == 1 {
            return bound.min(each.sum());
        }
        copies_on_distinct(&each.collect::<Vec<u32>>(), wanted, bound)
    }

    /// The devices one task of a shape would take of `free`, without building a place: the tightest, or the first.
    pub(crate) fn pick<'a>(
        &'a self,
        shape: &'a Shape,
        free: &'a Free,
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let wanted = usize::from(shape.request.gpu.devices());
        let fitting = self.devices.iter().zip(free.devices.iter()).enumerate().filter_map(
            move |(at, (device, free))| {
                let share = shape.share_on(device)?.millionths();
                (*free >= share).then_some((at, share, *free))
            },
        );
        let tightest =
            (wanted == 1).then(|| fitting.clone().min_by_key(|(at, _, free)| (*free, *at))).flatten();
        let several = fitting.take(if wanted == 1 { 0 } else { wanted });
        tightest.into_iter().chain(several).map(|(at, share, _)| (at, share))
    }

    /// Chooses devices for one task of a shape in `free`: those that need nobody to leave first, then the tightest
    /// fit, then the lowest position. The choice keeps as many further copies possible as there can be.
    pub(crate) fn choose(&self, shape: &Shape, free: &Free, rank: u32) -> Option<Place> {
        let request = &shape.request;
        if free.cpu < request.cpu.0 || free.memory < request.memory.0 {
            return None;
        }
        let wanted = usize::from(request.gpu.devices());
        let mut devices = Vec::with_capacity(wanted);
        if wanted > 0 {
            let mut options: Vec<(bool, u32, u32, u8, Share)> = Vec::with_capacity(self.devices.len());
            for (position, device) in self.devices.iter().enumerate() {
                let Some(share) = shape.share_on(device) else { continue };
                let left = free.devices[position];
                if left < share.millionths() {
                    continue;
                }
                let blocked = self.occupied.devices[position] < share.millionths();
                // With several devices per task, devices with room for most copies go first: that is what keeps
                // the count of further copies exact. With one, the tightest goes first.
                let room = if wanted > 1 { u32::MAX - left / share.millionths() } else { 0 };
                options.push((blocked, room, left - share.millionths(), position as u8, share));
            }
            if options.len() < wanted {
                return None;
            }
            if wanted > 1 && !shape.whole {
                options.sort_unstable_by_key(|option| (option.1, option.0, option.2, option.3));
            } else {
                options.sort_unstable();
            }
            options.truncate(wanted);
            devices.extend(options.iter().map(|option| DeviceShare { device: option.3, share: option.4 }));
            devices.sort_unstable_by_key(|taken| taken.device);
        }
        Some(Place { rank, node: self.id, devices, cpu: request.cpu, memory: request.memory })
    }

    /// The places one task of a shape could have in `free` that differ for others, best first: for a part of one device,
    /// each device of another model or with another amount free; otherwise the one that would be chosen.
    pub(crate) fn options(&self, shape: &Shape, free: &Free, rank: u32) -> Vec<Place> {
        let Some(best) = self.choose(shape, free, rank) else { return Vec::new() };
        if shape.whole || shape.request.gpu.devices() != 1 {
            return vec![best];
        }
        let mut devices: Vec<(u32, &Name, u8, Share)> = Vec::new();
        for (at, device) in self.devices.iter().enumerate() {
            let left = free.devices[at];
            let share = shape.share_on(device).filter(|share| left >= share.millionths());
            devices.extend(share.map(|share| (left, &device.model, at as u8, share)));
        }
        devices.sort_unstable_by_key(|(left, model, at, _)| (*left, *model, *at));
        devices.dedup_by_key(|(left, model, _, _)| (*left, *model));
        let place =
            |device: u8, share: Share| Place { devices: vec![DeviceShare { device, share }], ..best.clone() };
        devices.into_iter().map(|(_, _, device, share)| place(device, share)).collect()
    }

    /// GPUs of this node that count as capacity: all of a ready node, what is decided on another.
    pub(crate) fn capacity(&self) -> u64 {
        if self.ready {
            return self.devices.len() as u64 * Gpus::SCALE;
        }
        self.decided_gpus()
    }

    /// Millionths of its devices that are decided.
    pub(crate) fn decided_gpus(&self) -> u64 {
        self.devices.len() as u64 * Gpus::SCALE - self.decided.gpus()
    }
}

/// The largest number of copies, up to a bound, that can each be given so many distinct devices.
fn copies_on_distinct(each: &[u32], wanted: u32, bound: u32) -> u32 {
    let enough = |copies: u32| each.iter().map(|fit| (*fit).min(copies)).sum::<u32>() >= wanted * copies;
    let (mut low, mut high) = (0, bound.min(each.iter().sum::<u32>() / wanted));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if enough(middle) { low = middle } else { high = middle - 1 }
    }
    low
}
