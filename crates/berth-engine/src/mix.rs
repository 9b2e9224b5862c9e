//! The mix of requests that placement keeps room for: set by policy, or learnt from the workloads that are there.

use crate::{node::NodeSlot, tree::Sign};
use berth_types::{GpuRequest, Gpus, Name, Policy, Request, WorkloadSpec};
use std::{cmp::Reverse, collections::BTreeMap};

/// Classes of requests that are looked at; the rest is too rare to keep room for.
const CLASSES_MAX: usize = 32;
/// What the weights of all classes sum to, about.
const WEIGHT_SCALE: u64 = 1000;
/// A learnt count matters by its leading bits only, so that the mix changes rarely and not by the order of events.
const LEADING_BITS: u32 = 3;

/// A request without its models and memory, and how much it counts.
#[derive(Clone, Copy, Debug)]
struct Class {
    cpu: u64,
    devices: u64,
    /// Millionths of each device.
    share: u32,
    weight: i64,
}

/// The expected mix of requests.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Grows whenever the mix becomes another.
    version: u64,
    learns: bool,
    stale: bool,
    counts: BTreeMap<Request, u64>,
    classes: Vec<Class>,
    weight: i64,
    /// Devices of ready nodes by model, and whether they must be counted anew.
    devices: BTreeMap<Name, u128>,
    devices_stale: bool,
    /// By model: thousandths of a device's worth of demand that names models, per device.
    pressure: BTreeMap<Name, i64>,
}

impl Mix {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut counts = BTreeMap::new();
        for entry in &policy.mix {
            *counts.entry(entry.request.clone()).or_default() += entry.count;
        }
        Self {
            version: 1,
            learns: policy.mix.is_empty(),
            stale: true,
            counts,
            classes: Vec::new(),
            weight: 1,
            devices: BTreeMap::new(),
            devices_stale: true,
            pressure: BTreeMap::new(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A workload came or went.
    pub(crate) fn count(&mut self, spec: &WorkloadSpec, sign: Sign) {
        if !self.learns {
            return;
        }
        let tasks = u64::from(spec.tasks.min());
        if let Some(count) = self.counts.get_mut(&spec.request) {
            let before = leading(*count);
            *count = sign.apply(*count, tasks);
            self.stale |= leading(*count) != before;
            if *count == 0 {
                self.counts.remove(&spec.request);
            }
        } else {
            self.counts.insert(spec.request.clone(), tasks);
            self.stale = true;
        }
    }

    /// Devices came or went, or a node opened or closed.
    pub(crate) fn on_nodes_changed(&mut self) {
        self.stale = true;
        self.devices_stale = true;
    }

    /// Works the mix out anew if what it depends on changed.
    pub(crate) fn refresh(&mut self, nodes: &[Option<NodeSlot>]) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.version += 1;
        let count_of = |count: u64| if self.learns { leading(count) } else { count };
        let mut merged: BTreeMap<(u64, u64, u32), u64> = BTreeMap::new();
        for (request, count) in &self.counts {
            let share = match request.gpu {
                GpuRequest::Whole(_) => Gpus::SCALE as u32,
                GpuRequest::Fraction { share, .. } => share.millionths(),
                GpuRequest::None | GpuRequest::Memory { .. } => continue,
            };
            let key = (request.cpu.0, u64::from(request.gpu.devices()), share);
            *merged.entry(key).or_default() += count_of(*count);
        }
        let mut merged: Vec<_> = merged.into_iter().collect();
        // Chosen by the GPUs asked for, so that rare large requests are among them; weighed by how often they come.
        merged.sort_by_key(|(class, count)| {
            (Reverse(u128::from(*count) * u128::from(class.1) * u128::from(class.2)), *class)
        });
        merged.truncate(CLASSES_MAX);
        let all: u64 = merged.iter().map(|(_, count)| count).sum::<u64>().max(1);
        self.classes = merged
            .into_iter()
            .map(|((cpu, devices, share), count)| Class {
                cpu,
                devices,
                share,
                weight: ((count * WEIGHT_SCALE + all / 2) / all).max(1) as i64,
            })
            .collect();
        self.weight = self.classes.iter().map(|class| class.weight).sum::<i64>().max(1);
        if std::mem::take(&mut self.devices_stale) {
            self.devices.clear();
            let ready = nodes.iter().flatten().filter(|node| node.ready);
            for device in ready.flat_map(|node| &node.devices) {
                match self.devices.get_mut(&device.model) {
                    Some(count) => *count += 1,
                    None => {
                        self.devices.insert(device.model.clone(), 1);
                    }
                }
            }
        }
        self.pressure = self.pressure_by_model();
    }

    /// Demand that names models, spread over the devices it accepts, per device; in thousandths, if all demand together
    /// were as large as the pool.
    fn pressure_by_model(&self) -> BTreeMap<Name, i64> {
        let all: u128 = self.devices.values().sum();
        let mut demand: u128 = 0;
        let mut pressure: BTreeMap<Name, i64> = BTreeMap::new();
        let asked = |request: &Request, count: u64| {
            let charge = request.gpu.charge_on(berth_types::Bytes::MAX).unwrap_or_default();
            let count = if self.learns { leading(count) } else { count };
            u128::from(charge.0) * u128::from(count)
        };
        for (request, count) in &self.counts {
            demand += asked(request, *count);
        }
        for (request, count) in self.counts.iter().filter(|(request, _)| !request.models.is_empty()) {
            let accepted = self.devices.iter().filter(|(model, _)| request.accepts_model(model));
            let capacity: u128 = accepted.clone().map(|(_, count)| count).sum();
            for (model, _) in accepted {
                let part = asked(request, *count) * all * 1000 / (demand * capacity).max(1);
                *pressure.entry(model.clone()).or_default() += part as i64;
            }
        }
        pressure
    }

    /// How much demand that names models weighs on a device of this model.
    pub(crate) fn pressure(&self, model: &Name) -> i64 {
        if self.pressure.is_empty() { 0 } else { self.pressure.get(model).copied().unwrap_or(0) }
    }

    /// How many millionths of GPUs more the mix is expected not to use when a node has so much less free. One rounding, so that
    /// nodes that are alike in this are equal.
    pub(crate) fn stranded_more(&self, before: (&[u32], u64), after: (&[u32], u64)) -> i64 {
        (self.stranded(after.0, after.1) - self.stranded(before.0, before.1)) / self.weight
    }

    /// The sum over the mix, by weight, of the millionths of GPUs that it is expected not to use on a node with this much free:
    /// a class cannot use devices it does not fit on, nor more of them than the CPU lets it fill.
    fn stranded(&self, devices: &[u32], cpu: u64) -> i64 {
        // Most devices are all free or all taken, so classes look at the others only.
        let mut partial = [0u32; 8];
        let (mut whole, mut partials, mut free) = (0u64, 0, 0u64);
        for &device in devices {
            free += u64::from(device);
            if device == crate::node::WHOLE {
                whole += 1;
            } else if device > 0 {
                // More than eight partly used devices are summed as if they were the last.
                partial[partials.min(7)] = device.max(partial[partials.min(7)]);
                partials += 1;
            }
        }
        let partial = &partial[..partials.min(8)];
        let mut sum = 0;
        for class in &self.classes {
            let (mut fitting, mut room) = (whole, whole * Gpus::SCALE);
            for &device in partial.iter().filter(|device| **device >= class.share) {
                fitting += 1;
                room += u64::from(device);
            }
            let usable = if class.cpu > cpu || fitting < class.devices {
                0
            } else {
                let copies = cpu.checked_div(class.cpu).unwrap_or(u64::MAX);
                let filled = copies.saturating_mul(class.devices * u64::from(class.share));
                // Half by what fits now, half by what its CPU could fill: each alone packs some mixes worse.
                (room + room.min(filled)) / 2
            };
            sum += class.weight * (free as i64 - usable as i64);
        }
        sum
    }
}

/// A count without all but its leading bits.
fn leading(count: u64) -> u64 {
    let bits = u64::BITS - count.leading_zeros();
    let dropped = bits.saturating_sub(LEADING_BITS);
    count >> dropped << dropped
}
