//! Which node is best for a shape.

use crate::{mix::Mix, node::NodeSlot, shape::Shape};

/// Smaller is better.
pub(crate) fn score(node: &NodeSlot, shape: &Shape, _mix: &Mix) -> i64 {
    let blocked = node.copies(shape, &node.occupied) == 0;
    let reserved = !node.reserved.is_empty();
    let left: u64 = node.decided.devices.iter().map(|free| u64::from(*free)).sum();
    (i64::from(blocked) << 60) + (i64::from(reserved) << 59) + left as i64
}
