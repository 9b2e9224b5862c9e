//! Elastic extras: on capacity that no waiting minimum can use.

use crate::{
    node::{Free, NodeSlot},
    pool::Pool,
    shape::Shape,
    tree::GPU,
};
use berth_types::{Action, NodeId, Phase, Place, Span, Time};
use std::collections::BTreeSet;

impl Pool {
    /// Gives running elastic workloads more tasks, oldest first, one after another while there is room.
    pub(crate) fn grow_elastic(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.next_grow = None;
        let growing: Vec<u32> = self.elastic.iter().map(|(_, _, slot)| *slot).collect();
        for slot in growing {
            let entry = self.entry(slot);
            // What was shrunk at this instant does not grow at it.
            if entry.workload.evicted == Some(now) {
                self.next_grow = Some(now + Span(1));
                continue;
            }
            let Phase::Running { tasks, leaving, .. } = &entry.workload.phase else { continue };
            let places = tasks.iter().map(|task| &task.place).chain(leaving);
            let used: BTreeSet<u32> = places.map(|place| place.rank).collect();
            let extras = tasks.iter().filter(|task| task.extra).count();
            let missing = entry.workload.spec.tasks.extras() as usize - extras;
            let all = entry.workload.spec.tasks.min()..entry.workload.spec.tasks.max();
            let ranks: Vec<u32> = all.filter(|rank| !used.contains(rank)).take(missing).collect();
            let places = self.places_for_extras(slot, &ranks);
            if !places.is_empty() {
                let workload = self.entry(slot).workload.id;
                self.decide(slot, Action::Grow { workload, places }, now, actions);
            }
        }
    }

    /// Places that are free at this moment for as many of these ranks as there are, within every limit.
    fn places_for_extras(&mut self, slot: u32, ranks: &[u32]) -> Vec<Place> {
        let class = self.entry(slot).class;
        self.order_nodes_for(class);
        let entry = self.entry(slot);
        let (shape, fit) = &self.shapes[self.class_of(slot).shape as usize];
        let mut places: Vec<Place> = Vec::new();
        let home = entry.workload.base_places().next().and_then(|place| self.node_slot(place.node));
        let Some(domain) = home.and_then(|node| fit.domain_of(node)) else { return places };
        let own = entry.workload.places().chain(entry.workload.leaving());
        let own: BTreeSet<NodeId> = own.filter(|_| shape.apart()).map(|place| place.node).collect();
        let mut gpus = 0;
        for at in fit.best_first().filter(|node| fit.domain_of(*node) == Some(domain)) {
            let node = self.node(at);
            if own.contains(&node.id) {
                continue;
            }
            let mut free = free_at_this_moment(node, shape);
            loop {
                let Some(rank) = ranks.get(places.len()) else { return places };
                if !self.allows_extras(entry.project, gpus + fit.charge) {
                    return places;
                }
                let Some(place) = node.choose(shape, &free, *rank) else { break };
                free.take(&place);
                gpus += place.gpus().0;
                places.push(place);
                if shape.apart() {
                    break;
                }
            }
        }
        places
    }

    /// Whether a project may have so many more GPUs of extras.
    fn allows_extras(&self, project: u32, gpus: u64) -> bool {
        self.tree.path(project).all(|(_, node)| {
            let with = node.used.amounts[GPU] + node.extras + gpus;
            let is_owed = node.has_quota && with <= node.quota;
            (node.weight > 0 || is_owed) && node.limit.is_none_or(|limit| with <= limit)
        })
    }
}

/// What a shape may use of a node without waiting for anybody to leave.
fn free_at_this_moment(node: &NodeSlot, shape: &Shape) -> Free {
    let free = if shape.preemptible { node.decided.clone() } else { node.unreserved() };
    free.and(&node.occupied)
}
