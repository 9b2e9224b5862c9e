//! Which claims are worth a try. A claim is the wish of a project's first waiting workload of a class to take what it
//! needs. It is open until its accounts give it no title or a try finds nothing; then it is closed, and opened again only
//! by what could make a difference, so that a cycle does not try again what must fail again.

use crate::{
    claim::Ask,
    node::{Free, NodeSlot},
    pool::Pool,
    queue::{Claim, First},
    rooms::{Room, Rooms},
    tree::GPU,
};
use berth_types::{Place, Time};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

/// What could let a claim that failed succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Room on a node where its project has work of its own.
    OwnRoom,
    /// That, or room for so many tasks in what is free.
    Room(u64),
    /// Any change of the pool.
    Change,
}

/// A claim that failed, and what could change that.
#[derive(Clone, Copy, Debug)]
struct Failure {
    needs: Needs,
    /// When time alone may.
    retry: Option<Time>,
}

/// What entitles a claim to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Title {
    None,
    /// Its share, once it has waited long enough for it.
    Later(Time),
    Now,
}

/// Project and class.
type Claimant = (u32, u32);

/// Claims that failed: by project, those of its classes that did, in order.
#[derive(Clone, Debug, Default)]
struct Failures(Vec<Vec<(u32, Failure)>>);

impl Failures {
    fn of(&self, project: u32) -> impl Iterator<Item = &(u32, Failure)> {
        self.0.get(project as usize).into_iter().flatten()
    }

    fn get(&self, (project, class): Claimant) -> Option<&Failure> {
        let of_project = self.0.get(project as usize)?;
        let at = of_project.binary_search_by_key(&class, |(class, _)| *class).ok()?;
        Some(&of_project[at].1)
    }

    fn insert(&mut self, (project, class): Claimant, failure: Failure) {
        if self.0.len() <= project as usize {
            self.0.resize(project as usize + 1, Vec::new());
        }
        let of_project = &mut self.0[project as usize];
        match of_project.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => of_project[at].1 = failure,
            Err(at) => of_project.insert(at, (class, failure)),
        }
    }

    fn remove(&mut self, (project, class): Claimant) -> Option<Failure> {
        let of_project = self.0.get_mut(project as usize)?;
        let at = of_project.binary_search_by_key(&class, |(class, _)| *class).ok()?;
        Some(of_project.remove(at).1)
    }

    fn claimants(&self) -> impl Iterator<Item = Claimant> {
        let by_project = self.0.iter().enumerate();
        by_project.flat_map(|(project, failed)| failed.iter().map(move |(class, _)| (project as u32, *class)))
    }
}

/// Claims that failed, by what could let them succeed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retries {
    failed: Failures,
    by_time: BTreeSet<(Time, Claimant)>,
    by_change: BTreeSet<Claimant>,
    /// Those of them that failed in an earlier plan, since when nothing changed that could help them.
    not_tried: BTreeSet<Claimant>,
    /// By class: the room needed, and by whom.
    by_room: BTreeMap<u32, BTreeSet<(u64, u32)>>,
    /// The version of the pool at which those wait that need any change.
    version: u64,
    /// How much of the log of changed nodes was looked at.
    nodes_seen: usize,
    /// How much of it was looked at for room in what is free.
    rooms_seen: usize,
    /// Projects whose accounts may entitle them to more than before.
    pub(crate) to_reconsider: BTreeSet<u32>,
    /// Whether any share is another than before.
    pub(crate) shares_moved: bool,
    /// Whether any account uses more or less than before, which is room in the shares of its siblings.
    pub(crate) rooms_moved: bool,
    /// When time alone may let the take that was tried last succeed.
    pub(crate) attempt: Option<Time>,
}

impl Retries {
    /// When time alone may let a failed claim succeed.
    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// When time alone may let a claim succeed, if it failed.
    pub(crate) fn retry_of(&self, claimant: Claimant) -> Option<Time> {
        self.failed.get(claimant)?.retry
    }

    /// Notes when time alone may let the take that is being tried succeed.
    pub(crate) fn note(&mut self, retry: Option<Time>) {
        self.attempt = self.attempt.into_iter().chain(retry).min();
    }

    fn insert(&mut self, claimant: Claimant, failure: Failure) {
        self.failed.insert(claimant, failure);
        self.by_time.extend(failure.retry.map(|retry| (retry, claimant)));
        match failure.needs {
            Needs::OwnRoom => {}
            Needs::Change => {
                self.by_change.insert(claimant);
            }
            Needs::Room(room) => {
                self.by_room.entry(claimant.1).or_default().insert((room, claimant.0));
            }
        }
    }

    fn remove(&mut self, claimant: Claimant) {
        let Some(failure) = self.failed.remove(claimant) else { return };
        if let Some(retry) = failure.retry {
            self.by_time.remove(&(retry, claimant));
        }
        match failure.needs {
            Needs::OwnRoom => {}
            Needs::Change => {
                self.by_change.remove(&claimant);
                self.not_tried.remove(&claimant);
            }
            Needs::Room(room) => {
                if let Some(of_class) = self.by_room.get_mut(&claimant.1) {
                    of_class.remove(&(room, claimant.0));
                    if of_class.is_empty() {
                        self.by_room.remove(&claimant.1);
                    }
                }
            }
        }
    }

    /// Classes of a project that failed for want of room.
    fn for_want_of_room(&self, project: u32) -> impl Iterator<Item = u32> {
        let failed = self.failed.of(project);
        failed.filter(|(_, failure)| failure.needs != Needs::Change).map(|(class, _)| *class)
    }
}

impl Pool {
    /// Remembers that a take found nothing.
    pub(crate) fn take_failed(&mut self, slot: u32, now: Time) {
        let entry = self.entry(slot);
        let (project, class) = (entry.project, entry.class);
        let ask = self.ask(project, &self.classes[class as usize]);
        let needs = self.needs(slot, &ask, now);
        let retry = match needs {
            Needs::Change => self.retries.attempt,
            // Where all of its own work gives too little room, time alone changes nothing but what others owe it.
            _ => {
                let reach = self.reach(&ask, self.own_priority(project, slot));
                self.may_take_from_others(&ask, &reach).then(|| self.patient_from(slot))
            }
        };
        let failure = Failure { needs, retry };
        self.close_claim(project, class, Claim::Failed);
        self.retries.insert((project, class), failure);
    }

    /// What could let a claim succeed that failed just now.
    fn needs(&mut self, slot: u32, ask: &Ask, now: Time) -> Needs {
        let reach = self.reach(ask, self.own_priority(ask.project, slot));
        let from_others = self.may_reclaim_quota(&reach)
            || (self.may_take_from_others(ask, &reach) && self.patient_from(slot) <= now);
        if from_others || !self.extras.is_empty() || self.may_come_within_quota(slot, ask) {
            return Needs::Change;
        }
        self.class_fits(self.entry(slot).class);
        let (entry, class) = (self.entry(slot), self.class_of(slot));
        let (shape, fit) = &self.shapes[class.shape as usize];
        let mut nodes: BTreeMap<u32, Free> = BTreeMap::new();
        let usable = |place: &Place| self.node_slot(place.node).filter(|at| fit.domain_of(*at).is_some());
        let decided = |at: u32| self.node(at).decided.clone();
        // What is reserved for the claimant is free to nobody else, so it is not among what is free.
        for at in entry.workload.reserved_places().iter().filter_map(usable) {
            nodes.entry(at).or_insert_with(|| decided(at));
        }
        let victims = self.queues[entry.project as usize].victims.below(entry.workload.spec.priority);
        for place in victims.flat_map(|(victim, _)| self.entry(victim).workload.places()) {
            if let Some(at) = usable(place) {
                nodes.entry(at).or_insert_with(|| decided(at)).give(place);
            }
        }
        let most: u64 =
            nodes.iter().map(|(node, free)| u64::from(self.node(*node).copies(shape, free))).sum();
        let missing = u64::from(class.min).saturating_sub(most);
        match fit.most() < missing {
            // With all of the room it needs free it has nothing to take, unless a limit makes it.
            true if most == 0 && !self.must_take(ask) => Needs::OwnRoom,
            true => Needs::Room(missing),
            false => Needs::Change,
        }
    }

    /// Whether work that must keep off reservations might come within quota, against which none holds, if its project
    /// gives all it can.
    fn may_come_within_quota(&self, slot: u32, ask: &Ask) -> bool {
        if ask.preemptible || self.reservations.is_empty() {
            return false;
        }
        let priority = self.entry(slot).workload.spec.priority;
        let given = self.queues[ask.project as usize].victims.gpus_below(priority);
        self.tree.path(ask.project).all(|(_, node)| {
            let used = node.used.amounts[GPU].saturating_sub(given);
            !node.has_quota || used + ask.amounts[GPU] <= node.quota
        })
    }

    /// Closes the claim of a project's first workload of a class.
    pub(crate) fn close_claim(&mut self, project: u32, class: u32, why: Claim) {
        self.queues[project as usize].set_claim(class, why);
        self.mark_claim(project);
    }

    /// Opens a claim, whatever closed it.
    pub(crate) fn open_claim(&mut self, project: u32, class: u32) {
        self.retries.remove((project, class));
        self.queues[project as usize].set_claim(class, Claim::Open);
        self.mark_claim(project);
    }

    /// What closed the claim of a project's first workload of a class.
    pub(crate) fn closed(&self, project: u32, class: u32) -> Option<Closed> {
        let first = self.queues[project as usize].first_of(class)?;
        (first.claim != Claim::Open).then(|| Closed {
            claim: first.claim,
            failure: self.retries.failed.get((project, class)).copied(),
        })
    }

    /// Closes a claim again as it was.
    pub(crate) fn close_again(&mut self, project: u32, class: u32, closed: Closed) {
        self.close_claim(project, class, closed.claim);
        if let Some(failure) = closed.failure {
            self.retries.insert((project, class), failure);
        }
    }

    /// Opens all claims of a project.
    pub(crate) fn reopen_project(&mut self, project: u32) {
        let classes: Vec<u32> = self.queues[project as usize].counts().map(|(class, _)| class).collect();
        for class in classes {
            self.open_claim(project, class);
        }
        self.mark_head(project);
    }

    /// Opens all claims.
    pub(crate) fn reopen_all(&mut self) {
        self.retries.to_reconsider.clear();
        for project in 0..self.queues.len() as u32 {
            self.reopen_project(project);
        }
    }

    fn closed_firsts(&self, project: u32) -> Vec<First> {
        let firsts = self.queues[project as usize].firsts().iter();
        firsts.filter(|first| first.claim != Claim::Open && !first.leaves).copied().collect()
    }

    /// Opens the claims of projects whose accounts entitle them to more than before.
    pub(crate) fn reopen_entitled(&mut self) {
        if std::mem::take(&mut self.retries.shares_moved) {
            self.reconsider_shares();
        }
        for project in std::mem::take(&mut self.retries.to_reconsider) {
            self.renew_room_in_share(project);
            for first in self.closed_firsts(project) {
                let opens = match first.claim {
                    Claim::Open => false,
                    Claim::NotEntitled => self.title(project, &first) != Title::None,
                    Claim::Failed => self.is_entitled_otherwise(project, &first),
                };
                if opens {
                    self.open_claim(project, first.class);
                }
            }
        }
    }

    /// Looks whether what others started or ended let a claim in or out of its share. Whether one might have been.
    pub(crate) fn reconsider_rooms(&mut self) -> bool {
        if std::mem::take(&mut self.retries.rooms_moved) {
            self.reconsider_shares();
        }
        !self.retries.to_reconsider.is_empty()
    }

    /// Finds projects of which a claim came within its share, or is no longer.
    fn reconsider_shares(&mut self) {
        for project in 0..self.queues.len() as u32 {
            let (before, after) = self.renew_room_in_share(project);
            let between = before.min(after) + 1..=before.max(after);
            let moved =
                |first: &First| between.contains(&i128::from(self.classes[first.class as usize].asked));
            // What its own work of lower priority would leave differs from claim to claim.
            let queue = &self.queues[project as usize];
            let may_move = !queue.victims.is_empty() || queue.firsts().iter().any(moved);
            if before != after && may_move {
                self.retries.to_reconsider.insert(project);
            }
        }
    }

    /// What its share left a project room for, and leaves now.
    fn renew_room_in_share(&mut self, project: u32) -> (i128, i128) {
        let path = self.tree.path(project).enumerate();
        // What is preemptible below a department may go for a claim, so it leaves room at best.
        let rooms = path.map(|(level, (_, node))| {
            let stays = if level == 0 { &node.used } else { &node.non_preemptible };
            i128::from(node.share) - i128::from(stays.amounts[GPU])
        });
        let after = rooms.min().unwrap_or(0);
        (std::mem::replace(&mut self.queues[project as usize].room_in_share, after), after)
    }

    /// Whether a claim that failed for want of room has another title to take from others than it had, or must give
    /// something now.
    fn is_entitled_otherwise(&self, project: u32, first: &First) -> bool {
        let Some(failure) = self.retries.failed.get((project, first.class)) else { return false };
        let ask = self.ask(project, &self.classes[first.class as usize]);
        match failure.needs {
            Needs::Change => false,
            Needs::OwnRoom if self.must_take(&ask) => true,
            _ => {
                let reach = self.reach(&ask, self.own_priority(project, first.key.3));
                self.may_come_within_quota(first.key.3, &ask)
                    || self.may_reclaim_quota(&reach)
                    || self.may_take_from_others(&ask, &reach) != failure.retry.is_some()
            }
        }
    }

    /// What title a workload has to take something, of its own project or of others.
    pub(crate) fn title(&self, project: u32, first: &First) -> Title {
        let class = &self.classes[first.class as usize];
        let ask = self.ask(project, class);
        let has_own = self.has_own_victims(project, first);
        let reach = self.reach(&ask, has_own.then_some(first.key.0.0));
        if !class.possible || self.is_barred(&ask, &reach) {
            return Title::None;
        }
        if has_own || !self.extras.is_empty() || self.may_reclaim_quota(&reach) {
            return Title::Now;
        }
        match self.patient_from(first.key.3) {
            _ if !self.may_take_from_others(&ask, &reach) => Title::None,
            from if from <= self.heads.now() => Title::Now,
            from => Title::Later(from),
        }
    }

    /// The priority of a workload, if its project has work of a lower one that could go for it.
    pub(crate) fn own_priority(&self, project: u32, slot: u32) -> Option<i32> {
        let priority = self.entry(slot).workload.spec.priority;
        let lowest = self.queues[project as usize].victims.lowest_priority();
        lowest.filter(|lowest| *lowest < priority).map(|_| priority)
    }

    /// Whether its project has work that the first of a class, and so maybe one after it, could preempt.
    pub(crate) fn has_own_victims(&self, project: u32, first: &First) -> bool {
        // Those after it in the group have no higher priority, so they cannot take more.
        let lowest = self.queues[project as usize].victims.lowest_priority();
        lowest.is_some_and(|lowest| lowest < first.key.0.0)
    }

    /// Closes a claim that has no title before an instant.
    pub(crate) fn close_until(&mut self, project: u32, class: u32, from: Time) {
        self.close_claim(project, class, Claim::Failed);
        self.retries.insert((project, class), Failure { needs: Needs::OwnRoom, retry: Some(from) });
    }

    /// Opens failed claims that any change or the passing of time may let succeed.
    pub(crate) fn retry_takes(&mut self, now: Time) {
        let mut due: BTreeSet<Claimant> = BTreeSet::new();
        due.extend(
            self.retries.by_time.iter().take_while(|(at, _)| *at <= now).map(|(_, claimant)| *claimant),
        );
        self.retries.not_tried.clear();
        if std::mem::replace(&mut self.retries.version, self.version) != self.version {
            due.extend(&self.retries.by_change);
        } else {
            self.retries.not_tried = self.retries.by_change.clone();
        }
        for (project, class) in due {
            self.open_claim(project, class);
        }
        self.retry_with_room();
    }

    /// Opens claims that would fail as they did, before somebody else changes that: who would have been tried first fails
    /// first, and who comes after can profit, as if none had failed before. Whether there were any.
    pub(crate) fn retry_not_tried(&mut self) -> bool {
        let not_tried = std::mem::take(&mut self.retries.not_tried);
        for (project, class) in not_tried.iter().copied() {
            self.open_claim(project, class);
        }
        !not_tried.is_empty()
    }

    /// Opens claims that failed for want of room and may have it now.
    pub(crate) fn retry_with_room(&mut self) {
        let mut due: BTreeSet<Claimant> = BTreeSet::new();
        self.with_room_beside_own(&mut due);
        let seen = std::mem::replace(&mut self.retries.rooms_seen, self.log.end());
        let rooms = Rooms::since(seen, &self.log, &self.nodes);
        let classes: Vec<u32> = self.retries.by_room.keys().copied().collect();
        for class in classes {
            // Where there is no room on what changed, there is not more of it than when the claims failed.
            let (shape, fit) = &self.shapes[self.classes[class as usize].shape as usize];
            if rooms.as_ref().is_some_and(|rooms| !rooms.may_hold(shape, fit)) {
                continue;
            }
            self.class_fits(class);
            let most = self.shapes[self.classes[class as usize].shape as usize].1.most();
            let of_class = self.retries.by_room[&class].iter();
            due.extend(of_class.take_while(|(room, _)| *room <= most).map(|(_, project)| (*project, class)));
        }
        for (project, class) in due {
            self.open_claim(project, class);
        }
    }

    /// Claims that failed for want of room and may have it now, on a node that changed, beside work of their own project.
    fn with_room_beside_own(&mut self, due: &mut BTreeSet<Claimant>) {
        let seen = std::mem::replace(&mut self.retries.nodes_seen, self.log.end());
        let Some(changed) = self.log.since(seen) else {
            due.extend(self.retries.failed.claimants());
            return;
        };
        let mut changed = changed.to_vec();
        changed.sort_unstable();
        changed.dedup();
        let mut owners: Vec<(u32, u32)> = Vec::new();
        for slot in changed {
            let Some(node) = self.nodes[slot as usize].as_ref().filter(|node| node.ready) else { continue };
            let reserved = node.reserved.iter().map(|(owner, _)| (self.entry(*owner).project, *owner));
            owners.clear();
            owners.extend(node.projects.iter().copied().zip(node.tasks.iter().copied()).chain(reserved));
            owners.retain(|(project, _)| self.retries.failed.of(*project).next().is_some());
            owners.sort_unstable();
            owners.dedup();
            for of_project in owners.chunk_by(|one, other| one.0 == other.0) {
                self.with_room_beside(node, slot, of_project, due);
            }
        }
    }

    /// Those of one project on one node, given with the slots of what it has there.
    fn with_room_beside(
        &self,
        node: &NodeSlot,
        slot: u32,
        of_project: &[(u32, u32)],
        due: &mut BTreeSet<Claimant>,
    ) {
        let project = of_project[0].0;
        let mut all_free = node.decided.clone();
        for (_, task) in of_project {
            let here = self.entry(*task).workload.places().filter(|place| place.node == node.id);
            here.for_each(|place| all_free.give(place));
        }
        let most = Room::of(slot, &all_free);
        for class_id in self.retries.for_want_of_room(project) {
            let class = &self.classes[class_id as usize];
            let (shape, fit) = &self.shapes[class.shape as usize];
            // Even all that its project has here may give too little for one task.
            if !most.may_hold(shape, fit) {
                continue;
            }
            let Some(first) = self.queues[project as usize].first_of(class_id) else { continue };
            let mut free = Cow::Borrowed(&node.decided);
            for (_, task) in of_project {
                let workload = &self.entry(*task).workload;
                if workload.spec.priority < first.key.0.0 {
                    let here = workload.places().filter(|place| place.node == node.id);
                    here.for_each(|place| free.to_mut().give(place));
                }
            }
            if fit.copies_in(shape, node, slot, &free) > 0 {
                due.insert((project, class_id));
            }
        }
    }
}

/// Why a claim is closed, so that it can be closed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    claim: Claim,
    failure: Option<Failure>,
}
