//! Orders of nodes, brought up to date only when somebody asks.

use crate::{log::ChangeLog, mix::Mix, node::NodeSlot, score, shape::Shape};
use std::{cmp::Reverse, collections::BTreeSet};

/// Nodes with room for a shape, best first, as of when the order was last asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking {
    ordered: BTreeSet<(i64, u64, u32)>,
    /// Per node: its score and id in the order, if it is in it.
    in_order: Vec<Option<(i64, u64)>>,
    /// Nodes whose place in the order must be looked at again, and per node whether it is one of them.
    unordered: Vec<u32>,
    is_unordered: Vec<bool>,
    mix_version: u64,
}

impl Ranking {
    pub(crate) fn make_room_for(&mut self, nodes: usize) {
        self.in_order.resize(nodes, None);
        self.is_unordered.resize(nodes, false);
    }

    /// The place of a node must be looked at again.
    pub(crate) fn mark(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_unordered[slot as usize], true) {
            self.unordered.push(slot);
        }
    }

    /// Brings the order up to date. What fits comes and goes more often than somebody asks where it fits best.
    pub(crate) fn refresh(
        &mut self,
        shape: &Shape,
        nodes: &[Option<NodeSlot>],
        mix: &Mix,
        has_room: impl Fn(u32) -> bool,
    ) {
        // Another mix changes which node is best, not where there is room.
        if std::mem::replace(&mut self.mix_version, mix.version()) != mix.version() {
            let ordered: Vec<u32> = self.ordered.iter().map(|(_, _, slot)| *slot).collect();
            ordered.into_iter().for_each(|slot| self.mark(slot));
        }
        while let Some(slot) = self.unordered.pop() {
            let at = slot as usize;
            self.is_unordered[at] = false;
            let node = nodes[at].as_ref().filter(|_| has_room(slot));
            let now = node.map(|node| (score::score(node, shape, mix), node.id.0));
            let before = std::mem::replace(&mut self.in_order[at], now);
            if before == now {
                continue;
            }
            if let Some((score, id)) = before {
                self.ordered.remove(&(score, id, slot));
            }
            self.ordered.extend(now.map(|(score, id)| (score, id, slot)));
        }
    }

    /// The nodes, best first.
    pub(crate) fn best(&self) -> impl Iterator<Item = u32> {
        debug_assert!(self.unordered.is_empty(), "somebody asks for the best node before it is known");
        self.ordered.iter().map(|(_, _, slot)| *slot)
    }
}

/// All nodes, those with the most free GPUs first, then the smaller id: where the most is free, the least must be
/// taken, whoever takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Emptiest {
    ordered: BTreeSet<(Reverse<u64>, u64, u32)>,
    /// Per node: its free GPUs and id in the order, if it is in it.
    in_order: Vec<Option<(u64, u64)>>,
    position: usize,
}

impl Emptiest {
    /// Brings the order up to the nodes as they are.
    pub(crate) fn sync(&mut self, nodes: &[Option<NodeSlot>], log: &ChangeLog) {
        if self.position == log.end() {
            return;
        }
        self.in_order.resize(nodes.len(), None);
        match log.since(self.position).filter(|_| self.position > 0) {
            Some(changed) => changed.iter().for_each(|slot| self.update(nodes, *slot)),
            None => (0..nodes.len() as u32).for_each(|slot| self.update(nodes, slot)),
        }
        self.position = log.end().max(1);
    }

    fn update(&mut self, nodes: &[Option<NodeSlot>], slot: u32) {
        let now = nodes[slot as usize].as_ref().map(|node| (node.decided.gpus(), node.id.0));
        let before = std::mem::replace(&mut self.in_order[slot as usize], now);
        if before == now {
            return;
        }
        if let Some((free, id)) = before {
            self.ordered.remove(&(Reverse(free), id, slot));
        }
        self.ordered.extend(now.map(|(free, id)| (Reverse(free), id, slot)));
    }

    /// The nodes, the emptiest first.
    pub(crate) fn first(&self) -> impl Iterator<Item = u32> {
        self.ordered.iter().map(|(_, _, slot)| *slot)
    }
}
