//! Elastic extras: on capacity that no waiting minimum can use.

use crate::{pool::Pool, tree::GPU};
use berth_types::{Action, Phase, Span, Time};

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
            let used: Vec<u32> = tasks
                .iter()
                .map(|task| task.place.rank)
                .chain(leaving.iter().map(|place| place.rank))
                .collect();
            let extras = tasks.iter().filter(|task| task.extra).count();
            let missing = entry.workload.spec.tasks.extras() as usize - extras;
            let all = entry.workload.spec.tasks.min()..entry.workload.spec.tasks.max();
            let ranks: Vec<u32> = all.filter(|rank| !used.contains(rank)).take(missing).collect();
            let mut places = Vec::new();
            for rank in ranks {
                let Some(place) = self.place_for_extra(slot, rank, &places) else { break };
                places.push(place);
            }
            if !places.is_empty() {
                let workload = self.entry(slot).workload.id;
                self.decide(slot, Action::Grow { workload, places }, now, actions);
            }
        }
    }

    /// A place that is free at this moment, beside those already chosen, within every limit.
    fn place_for_extra(
        &mut self,
        slot: u32,
        rank: u32,
        chosen: &[berth_types::Place],
    ) -> Option<berth_types::Place> {
        let class = self.entry(slot).class;
        self.class_fits(class);
        let (entry, class) = (self.entry(slot), self.class_of(slot));
        let (shape, fit) = &self.shapes[class.shape as usize];
        let already: u64 = chosen.iter().map(|place| place.gpus().0).sum();
        let allowed = self.tree.path(entry.project).all(|(_, node)| {
            let with = node.used.amounts[GPU] + node.extras + already + fit.charge;
            node.weight > 0 && node.limit.is_none_or(|limit| with <= limit)
        });
        if !allowed {
            return None;
        }
        let home = entry.workload.base_places().next().and_then(|place| self.node_slot(place.node));
        let domain = home.and_then(|node| fit.domain_of(node))?;
        fit.best_first().filter(|node| fit.domain_of(*node) == Some(domain)).find_map(|at| {
            let node = self.node(at);
            let free = if shape.preemptible { node.decided.clone() } else { node.unreserved() };
            let mut free = free.and(&node.occupied);
            for place in chosen.iter().filter(|place| place.node == node.id) {
                free.take(place);
            }
            node.choose(shape, &free, rank)
        })
    }
}
