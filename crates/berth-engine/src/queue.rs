//! What waits, by project and class, and what could be taken, by project.

use crate::{tree::Sign, units::Precedence};
use berth_types::{Selector, Span, Time, WorkloadId};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

/// Order inside a project: priority, submission, id. The slot comes along.
pub(crate) type QueueKey = (Reverse<i32>, Time, WorkloadId, u32);

/// Work of one project that may be taken, in groups within which the least loss is the latest checkpoint or start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    groups: BTreeMap<VictimGroup, BTreeSet<VictimKey>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimGroup {
    pub(crate) priority: i32,
    /// GPUs of the workload's base.
    pub(crate) gpus: u64,
    pub(crate) checkpoints: bool,
}

/// Latest checkpoint or start first, then latest start, then id. The slot comes along, and the node if it is one.
type VictimKey = (Reverse<Time>, Reverse<Time>, WorkloadId, u32, Option<u32>);

/// What the order of victims needs to know of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimEntry {
    pub(crate) group: VictimGroup,
    pub(crate) saved: Time,
    pub(crate) started: Time,
    pub(crate) id: WorkloadId,
    pub(crate) slot: u32,
    /// The node all of it is on, if it is one.
    pub(crate) node: Option<u32>,
}

impl VictimEntry {
    fn key(&self) -> VictimKey {
        (Reverse(self.saved), Reverse(self.started), self.id, self.slot, self.node)
    }
}

/// The next victim of a project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) slot: u32,
    pub(crate) priority: i32,
    pub(crate) started: Time,
    /// The node all of it is on, if it is one.
    pub(crate) node: Option<u32>,
}

impl Victims {
    pub(crate) fn insert(&mut self, entry: VictimEntry) {
        self.groups.entry(entry.group).or_default().insert(entry.key());
    }

    pub(crate) fn remove(&mut self, entry: VictimEntry) {
        if let Some(group) = self.groups.get_mut(&entry.group) {
            group.remove(&entry.key());
            if group.is_empty() {
                self.groups.remove(&entry.group);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All of them, in no order that matters.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.groups.values().flatten().map(|(_, _, _, slot, _)| *slot)
    }

    /// Those below a priority, in no order that matters, each with the node all of it is on, if it is one.
    pub(crate) fn below(&self, priority: i32) -> impl Iterator<Item = (u32, Option<u32>)> {
        let below = self.groups.iter().take_while(move |(group, _)| group.priority < priority);
        below.flat_map(|(_, members)| members).map(|(_, _, _, slot, node)| (*slot, *node))
    }

    /// Those up to a size, in no order that matters, each with its start and the node all of it is on, if it is one.
    pub(crate) fn up_to(&self, largest: u64) -> impl Iterator<Item = (u32, Time, Option<u32>)> {
        let groups = self.groups.iter().filter(move |(group, _)| group.gpus <= largest);
        groups.flat_map(|(_, members)| members).map(|(_, started, _, slot, node)| (*slot, started.0, *node))
    }

    /// GPUs of those below a priority.
    pub(crate) fn gpus_below(&self, priority: i32) -> u64 {
        let below = self.groups.iter().take_while(|(group, _)| group.priority < priority);
        below.map(|(group, members)| group.gpus * members.len() as u64).sum()
    }

    /// The lowest priority that could be taken.
    pub(crate) fn lowest_priority(&self) -> Option<i32> {
        self.groups.first_key_value().map(|(group, _)| group.priority)
    }

    /// The sizes there are, in GPUs.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.groups.keys().map(|group| group.gpus)
    }

    /// Victims up to a size, in the order they are taken: lower priority, least work lost, later start, id.
    pub(crate) fn in_order(&self, now: Time, cap: Span, largest: u64) -> VictimOrder<'_> {
        let groups = self.groups.iter().filter(|(group, _)| group.gpus <= largest);
        let mut order = VictimOrder { runs: Vec::new(), heads: BinaryHeap::new(), now, cap };
        for (group, members) in groups {
            order.runs.push(VictimRun { group: *group, members: members.iter() });
            order.refill(order.runs.len() - 1);
        }
        order
    }
}

struct VictimRun<'a> {
    group: VictimGroup,
    members: std::collections::btree_set::Iter<'a, VictimKey>,
}

/// Priority, work lost, later start, id.
type VictimRank = (i32, u128, Reverse<Time>, WorkloadId);

/// The first of a run, by its rank; then its slot and node, and which run it is.
type VictimHead = Reverse<(VictimRank, u32, Option<u32>, usize)>;

/// Merges the groups of a project.
pub(crate) struct VictimOrder<'a> {
    runs: Vec<VictimRun<'a>>,
    heads: BinaryHeap<VictimHead>,
    now: Time,
    cap: Span,
}

impl VictimOrder<'_> {
    /// The next of a run is its head.
    fn refill(&mut self, at: usize) {
        let run = &mut self.runs[at];
        let Some((saved, started, id, slot, node)) = run.members.next() else { return };
        let span = self.now.since(saved.0);
        let span = if run.group.checkpoints { span } else { span.min(self.cap) };
        let lost = u128::from(run.group.gpus) * u128::from(span.0);
        let rank = (run.group.priority, lost, *started, *id);
        self.heads.push(Reverse((rank, *slot, *node, at)));
    }
}

impl Iterator for VictimOrder<'_> {
    type Item = Victim;
    fn next(&mut self) -> Option<Victim> {
        let Reverse(((priority, _, started, _), slot, node, run)) = self.heads.pop()?;
        self.refill(run);
        Some(Victim { slot, priority, started: started.0, node })
    }
}

/// How a waiting workload stands at the instant that is being planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Ready,
    /// Evicted at this instant and still leaving: it may go elsewhere, but takes nothing.
    Leaving,
    /// Evicted at this instant and gone: it does nothing until the next.
    Resting,
}

/// Waiting workloads of one project and class, in queue order and by how they stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    ready: BTreeSet<QueueKey>,
    leaving: BTreeSet<QueueKey>,
    resting: BTreeSet<QueueKey>,
}

impl Group {
    fn insert(&mut self, key: QueueKey, standing: Standing) {
        match standing {
            Standing::Ready => self.ready.insert(key),
            Standing::Leaving => self.leaving.insert(key),
            Standing::Resting => self.resting.insert(key),
        };
    }

    /// Whether it was ready.
    fn remove(&mut self, key: &QueueKey) -> bool {
        let ready = self.ready.remove(key);
        if !ready && !self.leaving.remove(key) {
            self.resting.remove(key);
        }
        ready
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.leaving.is_empty() && self.resting.is_empty()
    }

    fn len(&self) -> u64 {
        (self.ready.len() + self.leaving.len() + self.resting.len()) as u64
    }

    /// All of them, in no order that matters.
    pub(crate) fn all(&self) -> impl Iterator<Item = QueueKey> {
        self.ready.iter().chain(&self.leaving).chain(&self.resting).copied()
    }

    /// Those that are ready, in order.
    pub(crate) fn ready(&self) -> impl Iterator<Item = QueueKey> {
        self.ready.iter().copied()
    }
}

/// Whether the first of a class may be worth a try to take what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Open,
    /// Its accounts do not let it take anything.
    NotEntitled,
    /// Nothing was found, and nothing has happened since that could change that.
    Failed,
}

/// The first workload of a class in the queue of a project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    pub(crate) key: QueueKey,
    pub(crate) class: u32,
    /// It is the first of those that are still leaving, not of those that are ready.
    pub(crate) leaves: bool,
    pub(crate) claim: Claim,
}

/// What is asked again and again about the first of a class; the firsts are large, and most are only passed by.
#[derive(Clone, Copy, Debug)]
struct Glance {
    class: u32,
    known: Known,
}

/// What was found out about the first of a class, as long as its accounts are as they were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    epoch: u32,
    /// Whether it may start on free capacity.
    pub(crate) may_start: Option<bool>,
    /// Work of its own project entitles it to be tried.
    pub(crate) may_take_own: bool,
}

impl First {
    pub(crate) fn is_ready_of(&self, class: u32) -> bool {
        self.class == class && !self.leaves
    }
}

/// What the engine keeps per project beside its account.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectQueue {
    /// Waiting workloads by class.
    waiting: BTreeMap<u32, Group>,
    /// The first of every class, in queue order.
    firsts: Vec<First>,
    /// The same at a glance, and which of them have an open claim.
    glances: Vec<Glance>,
    open: Vec<u32>,
    /// Grows whenever something may have changed that is known of them.
    epoch: u32,
    /// What its share left room for when the titles of its claims were last looked at.
    pub(crate) room_in_share: i128,
    /// GPUs that waiting workloads which could ever run are charged.
    pub(crate) demand: u64,
    pub(crate) victims: Victims,
    /// Nodes that training and interactive work may use.
    pub(crate) selectors: (Selector, Selector),
    pub(crate) min_run: Span,
    pub(crate) interactive_time_limit: Option<Span>,
    pub(crate) time_limit: Option<Span>,
    pub(crate) idle_limit: Option<Span>,
    /// When workloads of this project that are still known were last evicted.
    evictions: BTreeMap<Time, u32>,
    /// Whether what the project runs is counted as above its quota and above its share.
    pub(crate) above: [bool; 2],
    /// Its place in the order in which borrowers give, while it is above its quota or share.
    pub(crate) precedence: Option<Precedence>,
    /// Workloads that do not stand ready at this instant.
    resting: u32,
    /// Who has a reservation.
    pub(crate) reservation: Option<u32>,
}

impl ProjectQueue {
    pub(crate) fn nobody_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether somebody does not stand ready at this instant.
    pub(crate) fn someone_rests(&self) -> bool {
        self.resting > 0
    }

    /// How many workloads wait in each class.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.waiting.iter().map(|(class, group)| (*class, group.len()))
    }

    /// Waiting workloads of one class.
    pub(crate) fn group(&self, class: u32) -> Option<&Group> {
        self.waiting.get(&class)
    }

    /// The first of every class, in queue order.
    pub(crate) fn firsts(&self) -> &[First] {
        &self.firsts
    }

    /// What is known of one of them.
    pub(crate) fn known(&self, at: usize) -> Known {
        let known = self.glances[at].known;
        if known.epoch == self.epoch { known } else { Known { epoch: self.epoch, ..Known::default() } }
    }

    pub(crate) fn remember(&mut self, at: usize, known: Known) {
        self.glances[at].known = known;
    }

    /// The accounts of the project changed.
    pub(crate) fn forget_known(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The class of one of the firsts, if there are so many.
    pub(crate) fn class_at(&self, at: usize) -> Option<u32> {
        self.glances.get(at).map(|glance| glance.class)
    }

    /// The first of a class that is ready, among the firsts.
    pub(crate) fn first_of(&self, class: u32) -> Option<&First> {
        self.position_of(class).map(|at| &self.firsts[at])
    }

    fn position_of(&self, class: u32) -> Option<usize> {
        let mut positions = self.glances.iter().enumerate().filter(|(_, glance)| glance.class == class);
        positions.find(|(at, _)| !self.firsts[*at].leaves).map(|(at, _)| at)
    }

    /// Where among the firsts those are that are ready and have an open claim.
    pub(crate) fn open(&self) -> &[u32] {
        &self.open
    }

    /// Opens or closes the claim of a class.
    pub(crate) fn set_claim(&mut self, class: u32, claim: Claim) {
        let Some(at) = self.position_of(class).filter(|at| self.firsts[*at].claim != claim) else { return };
        self.firsts[at].claim = claim;
        let (at, place) = (at as u32, self.open.partition_point(|open| *open < at as u32));
        match claim {
            Claim::Open => self.open.insert(place, at),
            _ if self.open.get(place) == Some(&at) => drop(self.open.remove(place)),
            _ => {}
        }
    }

    /// The first of a class that is ready.
    pub(crate) fn first_ready(&self, class: u32) -> Option<QueueKey> {
        self.waiting.get(&class)?.ready.first().copied()
    }

    /// Whether it is the first of its class.
    pub(crate) fn add_waiting(&mut self, class: u32, key: QueueKey, standing: Standing) -> bool {
        self.resting += u32::from(standing != Standing::Ready);
        let group = self.waiting.entry(class).or_default();
        let first = group.is_empty();
        group.insert(key, standing);
        self.settle_firsts(class);
        first
    }

    /// Whether it was the last of its class.
    pub(crate) fn remove_waiting(&mut self, class: u32, key: &QueueKey) -> bool {
        let group = self.waiting.get_mut(&class).expect("a waiting workload is in its group");
        self.resting -= u32::from(!group.remove(key));
        let last = group.is_empty();
        if last {
            self.waiting.remove(&class);
        }
        self.settle_firsts(class);
        last
    }

    /// At another instant everybody stands as `standing` says.
    pub(crate) fn stand_anew(&mut self, standing: impl Fn(u32) -> Standing) {
        self.resting = 0;
        for (class, group) in std::mem::take(&mut self.waiting) {
            let mut anew = Group::default();
            for key in group.ready.into_iter().chain(group.leaving).chain(group.resting) {
                let standing = standing(key.3);
                self.resting += u32::from(standing != Standing::Ready);
                anew.insert(key, standing);
            }
            self.waiting.insert(class, anew);
            self.settle_firsts(class);
        }
    }

    fn settle_firsts(&mut self, class: u32) {
        while let Some(at) = self.glances.iter().position(|glance| glance.class == class) {
            self.glances.remove(at);
            self.firsts.remove(at);
        }
        let group = self.waiting.get(&class);
        let ready = group.and_then(|group| group.ready.first());
        let leaving = group.and_then(|group| group.leaving.first());
        for (key, leaves) in [(ready, false), (leaving, true)] {
            let Some(key) = key.copied() else { continue };
            let at = self.firsts.partition_point(|first| first.key < key);
            self.firsts.insert(at, First { key, class, leaves, claim: Claim::Open });
            self.glances.insert(at, Glance { class, known: Known::default() });
        }
        self.settle_open();
    }

    fn settle_open(&mut self) {
        self.open.clear();
        let firsts = self.firsts.iter().enumerate();
        let open = firsts.filter(|(_, first)| first.claim == Claim::Open && !first.leaves);
        self.open.extend(open.map(|(at, _)| at as u32));
    }

    /// When work of this project was last evicted, if ever.
    pub(crate) fn evicted(&self) -> Option<Time> {
        self.evictions.last_key_value().map(|(at, _)| *at)
    }

    pub(crate) fn count_eviction(&mut self, at: Time, sign: Sign) {
        let count = self.evictions.entry(at).or_default();
        *count = sign.apply(u64::from(*count), 1) as u32;
        if *count == 0 {
            self.evictions.remove(&at);
        }
    }
}
