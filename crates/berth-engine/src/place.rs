//! Choosing places for all tasks of a workload at once.

use crate::{
    fit::Fit,
    node::{Free, NodeSlot},
    pool::Pool,
    shape::Shape,
};
use berth_types::{Place, Spread, TopologyLevel, WorkloadSpec};
use std::{borrow::Cow, collections::BTreeMap};

impl Pool {
    /// Whether all tasks of a class fit into what is free, and brings the counts of its shape up to date.
    pub(crate) fn class_fits(&mut self, class: u32) -> bool {
        let class = &self.classes[class as usize];
        let (shape, fit) = &mut self.shapes[class.shape as usize];
        fit.sync(shape, &self.nodes, &self.log);
        fit.most() >= u64::from(class.min)
    }

    /// Whether as many GPUs are free as a class needs at least, wherever they are; that is known without looking at nodes.
    pub(crate) fn gpus_suffice(&self, class: u32) -> bool {
        let class = &self.classes[class as usize];
        let least = u128::from(self.shapes[class.shape as usize].1.charge_least) * u128::from(class.min);
        u128::from(self.free_gpus) >= least
    }

    /// Brings the counts and the order of a class's shape up to date.
    pub(crate) fn order_nodes_for(&mut self, class: u32) {
        let (shape, fit) = &mut self.shapes[self.classes[class as usize].shape as usize];
        fit.sync(shape, &self.nodes, &self.log);
        fit.order(shape, &self.nodes, &self.mix);
    }

    /// Places for `count` tasks of a waiting workload in what is free, or none.
    pub(crate) fn place(&mut self, slot: u32, first_rank: u32, count: u32) -> Option<Vec<Place>> {
        let class = self.entry(slot).class;
        self.order_nodes_for(class);
        let class = &self.classes[class as usize];
        let spec = &self.entry(slot).workload.spec;
        let (shape, fit) = &self.shapes[class.shape as usize];
        let candidates: Vec<u32> = if fit.domain_sums().len() > 1 {
            let domain = self.tightest_domain(class.shape, count)?;
            fit.best_first().filter(|node| fit.domain_of(*node) == Some(domain)).collect()
        } else if count == 1 {
            fit.best_first().take(1).collect()
        } else {
            fit.best_first().collect()
        };
        let free = |node: &NodeSlot| if shape.preemptible { node.decided.clone() } else { node.unreserved() };
        if count > 1
            && let Some(level) = &spec.topology.preferred
            && let Some(close) = self.preferred_candidates(&candidates, level, fit, count)
        {
            return self.lay_out(&close, shape, spec, first_rank, count, free);
        }
        self.lay_out(&candidates, shape, spec, first_rank, count, free)
    }

    /// The domain of a shape's level with the least room that still suffices.
    fn tightest_domain(&self, shape: u32, count: u32) -> Option<u32> {
        let (_, fit) = &self.shapes[shape as usize];
        let sums = fit.domain_sums();
        // Ties go to the domain of the best node, which does not depend on the order nodes came in.
        let mut best: Option<(u64, u32)> = None;
        for node in fit.best_first() {
            let domain = fit.domain_of(node)?;
            let room = sums.of(domain);
            if room >= u64::from(count) && best.is_none_or(|(least, _)| room < least) {
                best = Some((room, domain));
            }
        }
        best.map(|(_, domain)| domain)
    }

    /// The candidates inside the tightest domain of a preferred level, if one has room for all.
    fn preferred_candidates(
        &self,
        candidates: &[u32],
        level: &TopologyLevel,
        fit: &Fit,
        count: u32,
    ) -> Option<Vec<u32>> {
        let mut domains: BTreeMap<Cow<'_, str>, (u64, Vec<u32>)> = BTreeMap::new();
        for slot in candidates {
            let node = self.node(*slot);
            let key = match level {
                TopologyLevel::Node => Cow::Owned(node.id.to_string()),
                TopologyLevel::Label(label) => match node.labels.get(label) {
                    Some(value) => Cow::Borrowed(&**value),
                    None => continue,
                },
            };
            let domain = domains.entry(key).or_default();
            domain.0 += u64::from(fit.copies_on(*slot));
            domain.1.push(*slot);
        }
        let fitting = domains.into_values().filter(|(room, _)| *room >= u64::from(count));
        fitting.min_by_key(|(room, _)| *room).map(|(_, nodes)| nodes)
    }

    /// Lays tasks out over nodes in the given order: as many as fit on each, or one each in turns.
    pub(crate) fn lay_out(
        &self,
        candidates: &[u32],
        shape: &Shape,
        spec: &WorkloadSpec,
        first_rank: u32,
        count: u32,
        free_of: impl Fn(&NodeSlot) -> Free,
    ) -> Option<Vec<Place>> {
        let mut places = Vec::with_capacity(count as usize);
        let mut place_on = |node: &NodeSlot, free: &mut Free, most: u32| {
            let mut placed = 0;
            while placed < most && (places.len() as u32) < count {
                let rank = first_rank + places.len() as u32;
                let Some(place) = node.choose(shape, free, rank) else { break };
                free.take(&place);
                places.push(place);
                placed += 1;
            }
            placed
        };
        match spec.spread {
            // What is apart fits once on a node, so packing it is enough.
            Spread::Pack | Spread::Apart => {
                let mut left = count;
                for slot in candidates {
                    if left == 0 {
                        break;
                    }
                    let node = self.node(*slot);
                    let mut free = free_of(node);
                    // Several devices per task can strand room unless exactly the possible copies are laid out.
                    let most = node.copies(shape, &free);
                    left -= place_on(node, &mut free, most);
                }
            }
            Spread::Spread => {
                let mut open: Vec<(&NodeSlot, Free)> =
                    candidates.iter().map(|slot| (self.node(*slot), free_of(self.node(*slot)))).collect();
                while !open.is_empty() {
                    open.retain_mut(|(node, free)| place_on(node, free, 1) == 1);
                }
            }
        }
        (places.len() as u32 == count).then_some(places)
    }

    /// Whether all places are free at this moment, not only when those who leave are gone.
    pub(crate) fn free_now(&self, places: &[Place]) -> bool {
        if let [place] = places {
            return self.node_slot(place.node).is_some_and(|slot| self.node(slot).occupied.holds(place));
        }
        let mut trials: BTreeMap<u32, Free> = BTreeMap::new();
        places.iter().all(|place| {
            let Some(slot) = self.node_slot(place.node) else { return false };
            let free = trials.entry(slot).or_insert_with(|| self.node(slot).occupied.clone());
            let holds = free.holds(place);
            if holds {
                free.take(place);
            }
            holds
        })
    }
}
