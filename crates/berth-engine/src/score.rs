//! Which node is best for a shape: the one on which it strands the least of what the mix of requests could use.

use crate::{
    mix::Mix,
    node::{NodeSlot, WHOLE},
    shape::Shape,
};

/// How much a model that others must have weighs against stranding, in halves.
const PRESSURE_HALVES: i64 = 3;
/// Room for the second criterion below the first.
const FULLNESS_SCALE: i64 = 4096;

/// Above every cost, and with room for as many devices as a node has below the next criterion.
const OPENED_SHIFT: u32 = 52;

/// Smaller is better: nodes where a task must leave first and nodes with reservations come last; then nodes on which a part of a
/// device opens a free one; then the cost in millionths of a GPU; then the node that is left the fullest for its size.
pub(crate) fn score(node: &NodeSlot, shape: &Shape, mix: &Mix) -> i64 {
    let free = &node.decided;
    let blocked = node.copies(shape, &node.occupied) == 0;
    let mut after = [0u32; berth_types::Node::DEVICES_MAX];
    let after = &mut after[..free.devices().len()];
    after.copy_from_slice(free.devices());
    let (mut pressure, mut opened) = (0, 0);
    for (device, share) in node.pick(shape, free) {
        opened += i64::from(!shape.whole && after[device] == WHOLE);
        after[device] -= share;
        pressure += mix.pressure(&node.devices[device].model) * i64::from(share);
    }
    let cpu = free.cpu.saturating_sub(shape.request.cpu.0);
    let growth = mix.stranded_more((free.devices(), free.cpu), (after, cpu));
    let cost = growth + pressure * PRESSURE_HALVES / 2 / 1000;
    let left: u64 = after.iter().map(|free| u64::from(*free)).sum();
    let gpu_left = left / 1000 / (node.devices.len() as u64).max(1);
    let cpu_left = (cpu * 1000).checked_div(node.cpu.0).unwrap_or(0);
    (i64::from(blocked) << 60)
        + (i64::from(!node.reserved.is_empty()) << 59)
        + (opened << OPENED_SHIFT)
        + cost * FULLNESS_SCALE
        + (gpu_left + cpu_left).min(FULLNESS_SCALE as u64 - 1) as i64
}
