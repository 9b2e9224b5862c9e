//! Reservations: large work does not starve.

use crate::{
    node::{Free, NodeSlot},
    pool::{Entry, Pool},
    tree::GPU,
};
use berth_types::{Action, EvictRule, NodeId, Phase, Place, Span, StartBasis, Time};
use std::collections::{BTreeMap, BTreeSet};

impl Pool {
    /// Whether preemptible work uses capacity that a reservation of another workload needs.
    pub(crate) fn passes_reservation(&self, slot: u32, places: &[Place]) -> bool {
        let workload = &self.entry(slot).workload;
        if self.reservations.is_empty() || !workload.spec.preemptible {
            return false;
        }
        let mut nodes: BTreeMap<u32, Free> = BTreeMap::new();
        for place in places {
            let Some(at) = self.node_slot(place.node) else { continue };
            let free = nodes.entry(at).or_insert_with(|| {
                let node = self.node(at);
                let mut free = node.decided.clone();
                // A held workload counts already.
                for own in workload.places().filter(|own| own.node == place.node) {
                    free.give(own);
                }
                node.unreserved_of(&free, slot)
            });
            if !free.holds(place) {
                return true;
            }
            free.take(place);
        }
        false
    }

    /// Starts workloads whose reserved places are free or held by passing work, oldest reservation first.
    pub(crate) fn fill_reservations(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.next_fill = None;
        let reserved: Vec<u32> = self.reservations.iter().map(|(_, _, slot)| *slot).collect();
        for slot in reserved {
            self.class_fits(self.entry(slot).class);
            let workload = &self.entry(slot).workload;
            let Phase::Queued { reservation: Some(reservation) } = &workload.phase else { continue };
            let fit = &self.shapes[self.class_of(slot).shape as usize].1;
            let usable =
                |place: &Place| self.node_slot(place.node).is_some_and(|node| fit.domain_of(node).is_some());
            if !reservation.places.iter().all(usable) {
                // The nodes it may use have changed since.
                let workload = workload.id;
                self.decide(slot, Action::Unreserve { workload }, now, actions);
                continue;
            }
            if workload.evicted == Some(now) {
                continue;
            }
            let (winner, since, places) = (workload.id, reservation.since, reservation.places.clone());
            let ask = self.ask(self.entry(slot).project, self.class_of(slot));
            if self.barrier(&ask).is_some() {
                continue;
            }
            let Some(passing) = self.passing_on(slot, &places, since, now) else {
                if let Some(places) = self.place_beside_own_reservation(slot) {
                    let basis = self.basis(&ask);
                    self.put(slot, places, basis, now, actions);
                }
                continue;
            };
            for victim in passing {
                let entry = self.entry(victim);
                let lost = entry.workload.work_lost(now, self.policy.lost_cap);
                let workload = entry.workload.id;
                self.decide(
                    victim,
                    Action::Evict { workload, winner, rule: EvictRule::Passing, lost },
                    now,
                    actions,
                );
            }
            self.put(slot, places, StartBasis::Reservation, now, actions);
        }
    }

    /// Places anywhere for a workload with a reservation, which need not keep off what is reserved for itself.
    fn place_beside_own_reservation(&self, slot: u32) -> Option<Vec<Place>> {
        let class = self.class_of(slot);
        let (shape, fit) = &self.shapes[class.shape as usize];
        let free = |node: &NodeSlot| {
            if shape.preemptible { node.decided.clone() } else { node.unreserved_of(&node.decided, slot) }
        };
        let own = self.entry(slot).workload.reserved_places().iter();
        let own: BTreeSet<u32> = own.filter_map(|place| self.node_slot(place.node)).collect();
        let beside =
            own.iter().map(|at| u64::from(self.node(*at).copies(shape, &free(self.node(*at))))).sum::<u64>();
        if fit.most() + beside < u64::from(class.min) {
            return None;
        }
        let mut domains: BTreeMap<u32, (u64, Vec<(NodeId, u32)>)> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let (Some(node), Some(domain)) = (node, fit.domain_of(at as u32)) else { continue };
            let copies = if node.ready { node.copies(shape, &free(node)) } else { 0 };
            if copies > 0 {
                let domain = domains.entry(domain).or_default();
                domain.0 += u64::from(copies);
                domain.1.push((node.id, at as u32));
            }
        }
        let fitting = domains.into_values().filter(|(room, _)| *room >= u64::from(class.min));
        let (_, mut nodes) = fitting.min_by_key(|(room, nodes)| (*room, nodes.iter().min().copied()))?;
        nodes.sort_unstable();
        let nodes: Vec<u32> = nodes.into_iter().map(|(_, at)| at).collect();
        self.lay_out(&nodes, shape, &self.entry(slot).workload.spec, 0, class.min, free)
    }

    /// Whether passing work makes way for the owner of a reservation: no project within its quota loses anything to others, and
    /// inside a project nothing goes for work of a lower priority.
    fn gives_way(&self, passing: &Entry, owner: u32) -> bool {
        let owner = self.entry(owner);
        if passing.project == owner.project {
            return passing.workload.spec.priority <= owner.workload.spec.priority;
        }
        let node = self.tree.at(passing.project);
        node.used.amounts[GPU] > node.quota
    }

    /// The workloads passing a reservation made at `reserved` whose end frees all of `places`, or none if that does
    /// not.
    fn passing_on(&mut self, owner: u32, places: &[Place], reserved: Time, now: Time) -> Option<Vec<u32>> {
        let mut nodes = self.free_around(places)?;
        let mut candidates: BTreeSet<(u128, berth_types::WorkloadId, u32)> = BTreeSet::new();
        let mut retry = self.next_fill;
        for slot in nodes.keys() {
            for task in &self.node(*slot).tasks {
                let entry = self.entry(*task);
                let Phase::Running { passing: true, since, .. } = entry.workload.phase else { continue };
                // What ran before passed another reservation.
                if since < reserved || !self.gives_way(entry, owner) {
                    continue;
                }
                let from = since + self.queues[entry.project as usize].min_run.max(Span(1));
                if from <= now {
                    candidates.insert((
                        entry.workload.work_lost(now, self.policy.lost_cap),
                        entry.workload.id,
                        *task,
                    ));
                } else {
                    retry = Some(retry.map_or(from, |known| known.min(from)));
                }
            }
        }
        self.next_fill = retry;
        let fits = |nodes: &BTreeMap<u32, Free>| self.hold_together(nodes, places);
        let change = |nodes: &mut BTreeMap<u32, Free>, victim: u32, give: bool| {
            for place in self.entry(victim).workload.places() {
                let slot = self.node_slot(place.node).expect("a running task is on a node");
                if let Some(free) = nodes.get_mut(&slot) {
                    if give { free.give(place) } else { free.take(place) }
                }
            }
        };
        let mut victims = Vec::new();
        for (_, _, victim) in candidates {
            if fits(&nodes) {
                break;
            }
            change(&mut nodes, victim, true);
            victims.push(victim);
        }
        if !fits(&nodes) {
            return None;
        }
        // Whoever is not in the way stays, the costliest first.
        for index in (0..victims.len()).rev() {
            change(&mut nodes, victims[index], false);
            if fits(&nodes) {
                victims.remove(index);
            } else {
                change(&mut nodes, victims[index], true);
            }
        }
        Some(victims)
    }

    /// What is free on the nodes of some places; nothing when one of them takes no work.
    pub(crate) fn free_around(&self, places: &[Place]) -> Option<BTreeMap<u32, Free>> {
        let mut nodes = BTreeMap::new();
        for place in places {
            let slot = self.node_slot(place.node).filter(|slot| self.node(*slot).ready)?;
            nodes.entry(slot).or_insert_with(|| self.node(slot).decided.clone());
        }
        Some(nodes)
    }

    /// Whether all places are free at once on nodes with this much free.
    pub(crate) fn hold_together(&self, nodes: &BTreeMap<u32, Free>, places: &[Place]) -> bool {
        let mut trial = nodes.clone();
        places.iter().all(|place| {
            let slot = self.node_slot(place.node).expect("a place is on a node");
            let free = trial.get_mut(&slot).expect("its node is among them");
            let holds = free.holds(place);
            if holds {
                free.take(place);
            }
            holds
        })
    }

    /// Names places for heads that have waited long and fit nowhere. One for which there are none to name, because other
    /// reservations have them, is in nobody's way.
    pub(crate) fn make_reservations(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.reservations.len() >= self.policy.reservations_per_pool {
            return;
        }
        let mut without_places = BTreeSet::new();
        for (_, _, slot) in self.starving(now) {
            if self.reservations.len() >= self.policy.reservations_per_pool {
                break;
            }
            // Reservations only take away what can be named, so those who ask for the same fare alike.
            let entry = self.entry(slot);
            let same = (entry.class, entry.workload.spec.spread);
            if without_places.contains(&same) {
                continue;
            }
            let Some(places) = self.places_to_reserve(slot) else {
                without_places.insert(same);
                continue;
            };
            let workload = self.entry(slot).workload.id;
            self.decide(slot, Action::Reserve { workload, places }, now, actions);
        }
    }

    /// The first waiting workload of each project that may start and fits nowhere, if it has waited long enough.
    fn starving(&self, now: Time) -> BTreeSet<(Time, berth_types::WorkloadId, u32)> {
        self.unfit_heads()
            .filter(|(waits_since, _, _)| *waits_since + self.policy.reserve_after <= now)
            .collect()
    }

    fn unfit_heads(&self) -> impl Iterator<Item = (Time, berth_types::WorkloadId, u32)> + '_ {
        let queues = self.queues.iter().enumerate().filter(|(_, queue)| queue.reservation.is_none());
        queues.filter_map(|(project, queue)| {
            let mut head = None;
            for first in queue.firsts() {
                if head.is_some_and(|head| head < first.key) {
                    break;
                }
                let class = &self.classes[first.class as usize];
                let startable =
                    class.possible && !class.fits && self.barrier(&self.ask(project as u32, class)).is_none();
                let Some(group) = queue.group(first.class).filter(|_| startable) else { continue };
                let queued = group.ready().find(|(_, _, _, slot)| self.entry(*slot).workload.is_queued());
                head = head.into_iter().chain(queued).min();
            }
            head.map(|(_, _, id, slot)| (self.entry(slot).workload.waits_since(), id, slot))
        })
    }

    /// When the next workload will have waited long enough for a reservation.
    pub(crate) fn next_reservation(&self, now: Time) -> Option<Time> {
        if self.reservations.len() >= self.policy.reservations_per_pool {
            return None;
        }
        let times = self.unfit_heads().map(|(waits_since, _, _)| waits_since + self.policy.reserve_after);
        times.filter(|at| *at > now).min()
    }

    /// Places on the nodes that are closest to having room: the least in use by others, outside other reservations.
    fn places_to_reserve(&self, slot: u32) -> Option<Vec<Place>> {
        let class = self.class_of(slot);
        let (shape, fit) = &self.shapes[class.shape as usize];
        let spec = &self.entry(slot).workload.spec;
        let mut domains: BTreeMap<u32, Vec<(u64, u64, u32)>> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let (Some(node), Some(domain)) = (node, fit.domain_of(at as u32)) else { continue };
            if !node.ready || !node.reserved.is_empty() {
                continue;
            }
            let copies = node.copies(shape, &node.empty());
            if copies == 0 {
                continue;
            }
            let in_use = node.decided_gpus();
            domains.entry(domain).or_default().push((in_use, node.id.0, at as u32));
        }
        let mut best: Option<(u64, u64, Vec<u32>)> = None;
        for mut nodes in domains.into_values() {
            nodes.sort_unstable();
            let first = nodes[0].1;
            let (mut room, mut cost, mut chosen) = (0, 0, Vec::new());
            for (in_use, _, at) in nodes {
                if room >= class.min {
                    break;
                }
                let node = self.node(at);
                room += node.copies(shape, &node.empty());
                cost += in_use;
                chosen.push(at);
            }
            let better = best.as_ref().is_none_or(|(least, id, _)| (cost, first) < (*least, *id));
            if room >= class.min && better {
                best = Some((cost, first, chosen));
            }
        }
        let (_, _, nodes) = best?;
        self.lay_out(&nodes, shape, spec, 0, class.min, |node| {
            // Devices in use look fuller, so the emptiest are named; all of the node can be named in the end.
            node.empty()
        })
    }
}
