//! Passing a reservation by ending before it is filled.
//!
//! Preemptible work passes every reservation and makes way when it can be filled. Other work passes only those whose
//! places are expected to be in use by others for longer than it may run, and only if it starts at once: the end of
//! what is held is not known yet.

use crate::{
    node::{Free, NodeSlot},
    order::Head,
    pool::Pool,
    tree::ROOT,
};
use berth_types::{Action, NodeId, Phase, Place, Span, Time};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Waiting workloads of one project and class that are asked whether they end in time; the first in the queue.
const PASSERS_ASKED: usize = 64;

/// When a reservation is expected to be filled, and whose it is.
type Fill = (Reverse<Time>, u32);

impl Pool {
    /// Starts non-preemptible work on reserved capacity that it leaves before it is needed.
    pub(crate) fn pass_reservations(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some((slot, places)) = self.next_to_pass(now) {
            let ask = self.ask(self.entry(slot).project, self.class_of(slot));
            let basis = self.basis(&ask);
            self.put(slot, places, basis, now, actions);
        }
    }

    /// Whether a workload that fits nowhere else may pass reservations now.
    pub(crate) fn may_pass(&self, slot: u32, now: Time) -> bool {
        let fills = self.expected_fills(now);
        let passed = self.passed_by(slot, &fills, now);
        !passed.is_empty() && self.place_passing(slot, passed).is_some()
    }

    /// The first head that may pass, with its places.
    fn next_to_pass(&mut self, now: Time) -> Option<(u32, Vec<Place>)> {
        let fills = self.expected_fills(now);
        if fills.is_empty() {
            return None;
        }
        let mut heads: BTreeMap<u32, Head> = BTreeMap::new();
        let mut places_of: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
        let classes: Vec<u32> = self.waiting_classes.iter().copied().collect();
        for class_id in classes {
            let class = &self.classes[class_id as usize];
            if self.shapes[class.shape as usize].0.preemptible || !class.possible || self.class_fits(class_id)
            {
                continue;
            }
            self.order_nodes_for(class_id);
            for (_, project) in self.classes[class_id as usize].firsts.iter().copied() {
                let Some((slot, places)) = self.first_passer(project, class_id, &fills, now) else {
                    continue;
                };
                let head = Head::of(self, slot);
                if heads.get(&project).is_none_or(|first| head.in_queue() < first.in_queue()) {
                    heads.insert(project, head);
                    places_of.insert(slot, places);
                }
            }
        }
        let slot = self.first_head(ROOT, &heads)?.slot;
        Some((slot, places_of.remove(&slot).expect("every head has places")))
    }

    /// The first workload of a project and class that may start and ends before reservations in whose places it fits.
    fn first_passer(
        &self,
        project: u32,
        class_id: u32,
        fills: &[Fill],
        now: Time,
    ) -> Option<(u32, Vec<Place>)> {
        if self.barrier(&self.ask(project, &self.classes[class_id as usize])).is_some() {
            return None;
        }
        let group = self.queues[project as usize].group(class_id)?;
        // Whoever passes no more reservations than one before it has no more room.
        let mut too_few = 0;
        for (_, _, _, slot) in group.ready().take(PASSERS_ASKED) {
            let passed = self.passed_by(slot, fills, now);
            if passed.len() <= too_few {
                continue;
            }
            match self.place_passing(slot, passed) {
                Some(places) => return Some((slot, places)),
                None => too_few = passed.len(),
            }
        }
        None
    }

    /// The reservations that are filled no sooner than a waiting workload ends if it starts now.
    fn passed_by<'a>(&self, slot: u32, fills: &'a [Fill], now: Time) -> &'a [Fill] {
        let entry = self.entry(slot);
        let starts = entry.workload.is_queued() && entry.workload.evicted != Some(now);
        let end = self.run_limit(entry).filter(|_| starts).map(|limit| now + limit);
        let count = end.map_or(0, |end| fills.partition_point(|(Reverse(fill), _)| *fill >= end));
        &fills[..count]
    }

    /// Places that are free at this moment, beside all reservations but those that are passed.
    fn place_passing(&self, slot: u32, passed: &[Fill]) -> Option<Vec<Place>> {
        let class = self.class_of(slot);
        let (shape, fit) = &self.shapes[class.shape as usize];
        let passes = |owner: u32| owner == slot || passed.iter().any(|(_, passed)| *passed == owner);
        let free = |node: &NodeSlot| node.unreserved_beside(&node.decided, passes);
        let named = passed.iter().flat_map(|(_, owner)| self.entry(*owner).workload.reserved_places());
        let named: BTreeSet<NodeId> = named.map(|place| place.node).collect();
        // By domain, the room with what is passed, and the nodes where that is.
        let mut domains: BTreeMap<u32, (u64, Vec<u32>)> = BTreeMap::new();
        for at in named.into_iter().filter_map(|id| self.node_slot(id)) {
            let node = self.node(at);
            let Some(domain) = fit.domain_of(at).filter(|_| node.ready) else { continue };
            let (room, nodes) =
                domains.entry(domain).or_insert_with(|| (fit.domain_sums().of(domain), Vec::new()));
            *room += u64::from(node.copies(shape, &free(node)) - fit.copies_on(at));
            nodes.push(at);
        }
        let fitting = domains.into_iter().filter(|(_, (room, _))| *room >= u64::from(class.min));
        let (domain, (_, reserved)) =
            fitting.min_by_key(|(_, (room, nodes))| (*room, self.node(nodes[0]).id))?;
        let beside =
            fit.best_first().filter(|at| fit.domain_of(*at) == Some(domain) && !reserved.contains(at));
        let nodes: Vec<u32> = beside.chain(reserved.iter().copied()).collect();
        let places = self.lay_out(&nodes, shape, &self.entry(slot).workload.spec, 0, class.min, free)?;
        self.free_now(&places).then_some(places)
    }

    /// The reservations of which it is known when they are filled, those filled last first.
    fn expected_fills(&self, now: Time) -> Vec<Fill> {
        let owners = self.reservations.iter().map(|(_, _, owner)| *owner);
        let mut fills: Vec<Fill> =
            owners.filter_map(|owner| Some((Reverse(self.expected_fill(owner)?), owner))).collect();
        fills.retain(|(Reverse(fill), _)| *fill > now);
        fills.sort_unstable_by_key(|(fill, owner)| (*fill, self.entry(*owner).workload.id));
        fills
    }

    /// When the last of those in the way of a reservation must have ended; nothing when nobody is in its way, or
    /// somebody whose end is not known.
    fn expected_fill(&self, owner: u32) -> Option<Time> {
        let entry = self.entry(owner);
        let Phase::Queued { reservation: Some(reservation) } = &entry.workload.phase else { return None };
        let mut nodes = self.free_around(&reservation.places)?;
        let tasks: BTreeSet<u32> = nodes.keys().flat_map(|at| self.node(*at).tasks.iter().copied()).collect();
        let mut ends = BTreeSet::new();
        for task in tasks {
            let workload = &self.entry(task).workload;
            // Extras make way for everybody.
            workload.extra_places().for_each(|place| self.give_on(&mut nodes, place));
            ends.extend(self.makes_way_by(task, reservation.since).map(|end| (end, workload.id, task)));
        }
        if self.hold_together(&nodes, &reservation.places) {
            return None;
        }
        let last = ends.into_iter().find_map(|(end, _, task)| {
            self.entry(task).workload.base_places().for_each(|place| self.give_on(&mut nodes, place));
            self.hold_together(&nodes, &reservation.places).then_some(end)
        })?;
        // Before that, time alone may let the owner take what is in its way.
        let takes_at = self.retries.retry_of((entry.project, entry.class));
        Some(takes_at.map_or(last, |at| last.min(at)))
    }

    /// When a workload is out of the way of a reservation made at `reserved`, if that is known.
    fn makes_way_by(&self, slot: u32, reserved: Time) -> Option<Time> {
        let entry = self.entry(slot);
        let Phase::Running { since, passing, .. } = entry.workload.phase else { return None };
        let min_run = self.queues[entry.project as usize].min_run.max(Span(1));
        let evicted = (passing && since >= reserved).then(|| since + min_run);
        self.deadline(entry, since).into_iter().chain(evicted).min()
    }

    fn give_on(&self, nodes: &mut BTreeMap<u32, Free>, place: &Place) {
        if let Some(free) = self.node_slot(place.node).and_then(|at| nodes.get_mut(&at)) {
            free.give(place);
        }
    }
}
