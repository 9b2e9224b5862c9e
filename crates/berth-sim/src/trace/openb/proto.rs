//! Berth's placement score, in the trace's units: a pure integer function of a node, a request and the expected mix.
//!
//! ```text
//! cost(node, request) = stranded(node after) - stranded(node before)        what the mix can no longer use
//!                     + 3/2 * pressure(model) * GPUs asked                  what only this model can serve
//! ```
//!
//! `stranded` is FGD's fragmentation with one addition: a class is held to use no more GPUs than the node's CPU lets
//! it fill. `pressure` is the demand that names models, per device that can serve it. Both are exact integers, so equal
//! costs are rare and the order of nodes decides next to nothing.

use super::{
    DEVICES_MAX, Hosts, PodList, Shape, WHOLE,
    replay::{NodeState, Rater, Rating},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// Classes of requests that are looked at; the rest is too rare to keep room for.
const CLASSES_MAX: usize = 32;

/// What the weights of all classes sum to, about.
const WEIGHT_SCALE: u64 = 1000;

/// A learnt mix is taken over anew each time a quarter more requests were seen, so that scores rarely change.
const LEARN_GROWTH_PERCENT: u64 = 125;

/// A request without its models and memory, and how much it counts.
#[derive(Debug, Clone, Copy)]
struct Class {
    cpu: u32,
    devices: u32,
    share: u32,
    weight: i64,
}

/// The expected requests, as far as placement asks.
#[derive(Debug, Clone, Default)]
pub struct Mix {
    classes: Vec<Class>,
    weight: i64,
    /// Per model: thousandths of a device's worth of demand that names models, per device.
    pressure: Vec<i64>,
}

impl Mix {
    /// The mix of these requests on a cluster with so many thousandths of GPUs of each model.
    pub fn new(counts: &BTreeMap<Shape, u64>, model_milli: &[u64]) -> Self {
        let mut merged: BTreeMap<(u32, u8, u32), u64> = BTreeMap::new();
        for (shape, count) in counts.iter().filter(|(shape, _)| shape.gpus > 0) {
            *merged.entry((shape.cpu_milli, shape.gpus, shape.share_milli)).or_default() += count;
        }
        let mut merged: Vec<_> = merged.into_iter().collect();
        // Chosen by the GPUs asked for, so that rare large requests are among them; weighed by how often they come.
        merged
            .sort_by_key(|&(class, count)| (Reverse(count * u64::from(class.1) * u64::from(class.2)), class));
        merged.truncate(CLASSES_MAX);
        let all: u64 = merged.iter().map(|(_, count)| count).sum();
        let classes: Vec<Class> = merged
            .into_iter()
            .map(|((cpu, devices, share), count)| Class {
                cpu,
                devices: u32::from(devices),
                share,
                weight: ((count * WEIGHT_SCALE + all / 2) / all).max(1) as i64,
            })
            .collect();
        Self {
            weight: classes.iter().map(|class| class.weight).sum::<i64>().max(1),
            classes,
            pressure: pressure(counts, model_milli),
        }
    }

    /// Thousandths of GPUs on this node that the mix is expected not to use, times the weight of the mix.
    fn stranded(&self, node: &NodeState) -> i64 {
        let free = i64::from(node.gpu_milli());
        let usable = |class: &Class| {
            let fitting = node.devices.iter().filter(|&&free| free >= class.share);
            if class.cpu > node.cpu || fitting.clone().count() < class.devices as usize {
                return 0;
            }
            let room = i64::from(fitting.sum::<u32>());
            let copies = node.cpu.checked_div(class.cpu).map_or(i64::MAX, i64::from);
            let filled = copies.saturating_mul(i64::from(class.devices * class.share));
            // Half by what fits now, half by what its CPU could fill: each alone packs some mixes worse.
            (room + room.min(filled)) / 2
        };
        self.classes.iter().map(|class| class.weight * (free - usable(class))).sum()
    }

    /// What this place costs, in millionths of a GPU.
    fn cost(&self, node: &NodeState, shape: &Shape, devices: u8, before: i64) -> i64 {
        let growth = self.stranded(&node.after(shape, devices)) - before;
        let pressure = self.pressure[usize::from(node.model)] * shape.gpu_milli() as i64;
        growth * i64::from(WHOLE) / self.weight + pressure * 3 / 2
    }
}

/// Demand that names models, spread over the devices it accepts, per device; in thousandths, if all demand together
/// were as large as the cluster.
fn pressure(counts: &BTreeMap<Shape, u64>, model_milli: &[u64]) -> Vec<i64> {
    let mut named: BTreeMap<u32, u128> = BTreeMap::new();
    let mut demand = 0u128;
    for (shape, count) in counts {
        let asked = u128::from(shape.gpu_milli()) * u128::from(*count);
        demand += asked;
        if shape.models != 0 {
            *named.entry(shape.models).or_default() += asked;
        }
    }
    let all: u128 = model_milli.iter().map(|&milli| u128::from(milli)).sum();
    let mut pressure = vec![0; model_milli.len()];
    for (models, asked) in named {
        let accepted = |model: usize| models & (1 << model) != 0;
        let capacity: u128 = (0..model_milli.len())
            .filter(|&model| accepted(model))
            .map(|model| u128::from(model_milli[model]))
            .sum();
        for model in (0..model_milli.len()).filter(|&model| accepted(model)) {
            pressure[model] += (asked * all * 1000 / (demand * capacity).max(1)) as i64;
        }
    }
    pressure
}

/// Rates by [`Mix`]; the mix is known from the start, or learnt from what arrived.
#[derive(Debug)]
pub struct Proto {
    mix: Mix,
    model_milli: Vec<u64>,
    learning: Option<Learning>,
}

#[derive(Debug, Default)]
struct Learning {
    counts: BTreeMap<Shape, u64>,
    seen: u64,
    next: u64,
}

impl Proto {
    /// Rates by the mix of a whole pod list.
    pub fn knowing(list: &PodList, hosts: &Hosts) -> Self {
        let mut counts = BTreeMap::new();
        for &pod in &list.pods {
            *counts.entry(list.shapes[pod]).or_default() += 1;
        }
        let model_milli = model_milli(hosts);
        Self { mix: Mix::new(&counts, &model_milli), model_milli, learning: None }
    }

    /// Knows nothing at first and learns from arrivals.
    pub fn learning(hosts: &Hosts) -> Self {
        let model_milli = model_milli(hosts);
        Self {
            mix: Mix::new(&BTreeMap::new(), &model_milli),
            model_milli,
            learning: Some(Learning::default()),
        }
    }
}

fn model_milli(hosts: &Hosts) -> Vec<u64> {
    let mut milli = vec![0; hosts.models.len()];
    for host in &hosts.hosts {
        milli[usize::from(host.model)] += u64::from(host.gpus) * u64::from(WHOLE);
    }
    milli
}

impl Rater for Proto {
    fn rate(&mut self, node: &NodeState, shape: &Shape) -> Rating {
        let before = self.mix.stranded(node);
        // Among equal costs the node that is left the fullest, relative to its size.
        let rated = |devices: u8| {
            let after = node.after(shape, devices);
            let left =
                after.gpu_milli() / u32::from(node.gpus.max(1)) + after.cpu / (node.cpu_total / 1000).max(1);
            Rating { key: (self.mix.cost(node, shape, devices, before), i64::from(left)), devices }
        };
        if shape.gpus != 1 || shape.share_milli == WHOLE {
            return rated(node.tightest(shape));
        }
        let left_on = |devices: u8| node.devices[devices.trailing_zeros() as usize % DEVICES_MAX];
        node.candidates(shape)
            .map(rated)
            .min_by_key(|rating| (rating.key.0, left_on(rating.devices)))
            .expect("rated only where it fits")
    }

    fn on_arrival(&mut self, shape: &Shape) -> bool {
        let Some(learning) = &mut self.learning else {
            return false;
        };
        *learning.counts.entry(*shape).or_default() += 1;
        learning.seen += 1;
        if learning.seen < learning.next {
            return false;
        }
        learning.next = (learning.seen * LEARN_GROWTH_PERCENT / 100).max(learning.seen + 1);
        self.mix = Mix::new(&learning.counts, &self.model_milli);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cpu_milli: u32, gpus: u8, share_milli: u32, models: u32) -> Shape {
        Shape { cpu_milli, memory_mib: 0, gpus, share_milli, models }
    }

    fn node(model: u8, cpu: u32, devices: &[u32]) -> NodeState {
        let mut all = [0; DEVICES_MAX];
        all[..devices.len()].copy_from_slice(devices);
        NodeState {
            model,
            gpus: devices.len() as u8,
            cpu_total: 96_000,
            cpu,
            memory: 1 << 20,
            devices: all,
            hosted: [0; 3],
        }
    }

    fn cost(mix: &Mix, node: &NodeState, shape: &Shape) -> i64 {
        mix.cost(node, shape, node.tightest(shape), mix.stranded(node))
    }

    #[test]
    fn cpu_work_goes_where_it_strands_no_gpu() {
        let mix = Mix::new(&BTreeMap::from([(shape(10_000, 1, 1000, 0), 1)]), &[10_000]);
        let cpu_only = shape(20_000, 0, 0, 0);
        let tight = node(0, 40_000, &[1000; 4]);
        let roomy = node(0, 90_000, &[1000; 4]);
        assert!(cost(&mix, &roomy, &cpu_only) < cost(&mix, &tight, &cpu_only));
    }

    #[test]
    fn work_that_may_run_anywhere_leaves_a_model_others_need() {
        let counts = BTreeMap::from([(shape(1000, 1, 1000, 0), 9), (shape(1000, 1, 1000, 0b10), 1)]);
        let mix = Mix::new(&counts, &[9_000, 1_000]);
        assert_eq!(mix.pressure, [0, 1000]);
        let anywhere = shape(1000, 1, 1000, 0);
        let common = node(0, 64_000, &[1000; 2]);
        let wanted = node(1, 64_000, &[1000; 2]);
        assert!(cost(&mix, &common, &anywhere) < cost(&mix, &wanted, &anywhere));
    }

    #[test]
    fn a_fraction_fills_a_shared_device_before_it_opens_one() {
        let counts = BTreeMap::from([(shape(1000, 1, 1000, 0), 5), (shape(1000, 1, 500, 0), 5)]);
        let mut proto = Proto { mix: Mix::new(&counts, &[2_000]), model_milli: vec![2_000], learning: None };
        let rating = proto.rate(&node(0, 64_000, &[1000, 500]), &shape(1000, 1, 500, 0));
        assert_eq!(rating.devices, 0b10);
    }
}
