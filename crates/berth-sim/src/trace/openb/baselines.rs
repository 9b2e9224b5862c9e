//! The policies FGD was compared with.

use super::{
    Shape, WHOLE,
    replay::{NodeState, Rater, Rating},
    shuffle,
};
use crate::random::SplitMix64;

/// The largest host of the trace, by which amounts are made comparable.
const CPU_MAX: f64 = 128_000.0;
const GPU_MAX: f64 = 8_000.0;

/// Rates by a formula over a node and a shape; the tightest devices are taken.
#[derive(Debug)]
pub struct Formula(pub fn(&NodeState, &Shape) -> i64);

impl Rater for Formula {
    fn rate(&mut self, node: &NodeState, shape: &Shape) -> Rating {
        Rating { key: (-(self.0)(node, shape), 0), devices: node.tightest(shape) }
    }
}

/// Least CPU and GPU left over, each against the largest host.
pub fn best_fit(node: &NodeState, shape: &Shape) -> i64 {
    let cpu = f64::from(node.cpu - shape.cpu_milli) / CPU_MAX;
    let gpu = (f64::from(node.gpu_milli()) - shape.gpu_milli() as f64) / GPU_MAX;
    ((1.0 - (0.5 * cpu + 0.5 * gpu)) * 100.0) as i64
}

/// Smallest dot product of request and free amounts.
pub fn dot_product(node: &NodeState, shape: &Shape) -> i64 {
    let cpu = f64::from(node.cpu) / CPU_MAX * f64::from(shape.cpu_milli) / CPU_MAX;
    let gpu = f64::from(node.gpu_milli()) / GPU_MAX * shape.gpu_milli() as f64 / GPU_MAX;
    ((1.0 - (cpu + gpu) / 2.0) * 100.0) as i64
}

/// A device in use first, then a free one on a node in use, then an empty node.
pub fn packing(node: &NodeState, shape: &Shape) -> i64 {
    if shape.gpus == 0 {
        return 0;
    }
    let in_use = node.gpu_milli() < u32::from(node.gpus) * WHOLE;
    let taken = node.tightest(shape);
    let shared =
        (0..node.devices.len()).any(|index| taken & (1 << index) != 0 && node.devices[index] < WHOLE);
    let fullness = 33 - i64::from(node.gpu_milli()) * 33 / 8000;
    match (in_use, shared) {
        (true, true) => 67 + fullness,
        (true, false) => 33 + fullness,
        (false, _) => fullness,
    }
}

/// Nodes that host the same kind of pod first: alone, among others, empty nodes, then the rest.
pub fn clustering(node: &NodeState, shape: &Shape) -> i64 {
    if shape.gpus == 0 {
        return 0;
    }
    let kind = usize::from(shape.share_milli < WHOLE);
    let (same, other) = (node.hosted[kind] > 0, node.hosted[1 - kind] > 0);
    let fullness = 24 - i64::from(node.gpu_milli()) * 24 / 8000;
    match (same, other) {
        (true, false) => 75 + fullness,
        (true, true) => 50 + fullness,
        (false, false) => 25 + fullness,
        (false, true) => fullness,
    }
}

/// A random node and random devices.
#[derive(Debug)]
pub struct AnyNode(pub SplitMix64);

impl Rater for AnyNode {
    fn rate(&mut self, node: &NodeState, shape: &Shape) -> Rating {
        let mut devices = 0;
        let mut fitting: Vec<usize> =
            (0..node.devices.len()).filter(|&index| node.devices[index] >= shape.share_milli).collect();
        shuffle(&mut fitting, &mut self.0);
        fitting.iter().take(usize::from(shape.gpus)).for_each(|index| devices |= 1 << index);
        Rating { key: (0, 0), devices }
    }
}
