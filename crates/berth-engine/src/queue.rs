//! What waits, by project and class, and what could be taken, by project.

use crate::tree::Sign;
use berth_types::{Selector, Span, Time, WorkloadId};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
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

/// Latest checkpoint or start first, then latest start, then id.
type VictimKey = (Reverse<Time>, Reverse<Time>, WorkloadId, u32);

/// What the order of victims needs to know of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimEntry {
    pub(crate) group: VictimGroup,
    pub(crate) saved: Time,
    pub(crate) started: Time,
    pub(crate) id: WorkloadId,
    pub(crate) slot: u32,
}

impl VictimEntry {
    fn key(&self) -> VictimKey {
        (Reverse(self.saved), Reverse(self.started), self.id, self.slot)
    }
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
        self.groups.values().flatten().map(|(_, _, _, slot)| *slot)
    }

    /// The lowest priority that could be taken.
    pub(crate) fn lowest_priority(&self) -> Option<i32> {
        self.groups.first_key_value().map(|(group, _)| group.priority)
    }

    /// The sizes there are, in GPUs.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.groups.keys().map(|group| group.gpus)
    }

    /// Slots of victims up to a size, in the order they are taken: lower priority, least work lost, later start, id.
    pub(crate) fn in_order(&self, now: Time, cap: Span, largest: u64) -> VictimOrder<'_> {
        let runs = self
            .groups
            .iter()
            .filter(|(group, _)| group.gpus <= largest)
            .map(|(group, members)| VictimRun { group: *group, members: members.iter(), head: None })
            .collect();
        VictimOrder { runs, now, cap }
    }
}

struct VictimRun<'a> {
    group: VictimGroup,
    members: std::collections::btree_set::Iter<'a, VictimKey>,
    head: Option<(VictimRank, u32)>,
}

/// Priority, work lost, later start, id.
type VictimRank = (i32, u128, Reverse<Time>, WorkloadId);

/// Merges the groups of a project.
pub(crate) struct VictimOrder<'a> {
    runs: Vec<VictimRun<'a>>,
    now: Time,
    cap: Span,
}

impl Iterator for VictimOrder<'_> {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        let (now, cap) = (self.now, self.cap);
        for run in &mut self.runs {
            if run.head.is_none() {
                run.head = run.members.next().map(|(saved, started, id, slot)| {
                    let span = now.since(saved.0);
                    let span = if run.group.checkpoints { span } else { span.min(cap) };
                    let lost = u128::from(run.group.gpus) * u128::from(span.0);
                    ((run.group.priority, lost, *started, *id), *slot)
                });
            }
        }
        let best = self.runs.iter_mut().filter(|run| run.head.is_some()).min_by_key(|run| run.head)?;
        best.head.take().map(|(_, slot)| slot)
    }
}

/// Waiting workloads of one project and class, in queue order. Those evicted at the instant that is being planned
/// rest: they take nothing and do not start from the queue, and there can be many of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    ready: BTreeSet<QueueKey>,
    resting: BTreeSet<QueueKey>,
    /// The first that is ready, kept beside the group so that passing it by touches no other memory.
    first: Option<QueueKey>,
}

impl Group {
    pub(crate) fn insert(&mut self, key: QueueKey, rests: bool) {
        if rests {
            self.resting.insert(key);
        } else {
            self.ready.insert(key);
            self.first = Some(self.first.map_or(key, |first| first.min(key)));
        }
    }

    pub(crate) fn remove(&mut self, key: &QueueKey) {
        if !self.ready.remove(key) {
            self.resting.remove(key);
        } else if self.first == Some(*key) {
            self.first = self.ready.first().copied();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.resting.len()
    }

    /// Nobody rests at another instant.
    pub(crate) fn wake(&mut self) {
        self.ready.append(&mut self.resting);
        self.first = self.ready.first().copied();
    }

    pub(crate) fn first(&self) -> Option<QueueKey> {
        self.first
    }

    /// Those that do not rest, in order.
    pub(crate) fn ready(&self) -> impl Iterator<Item = QueueKey> {
        self.ready.iter().copied()
    }

    /// Those that rest, in order.
    pub(crate) fn resting(&self) -> impl Iterator<Item = QueueKey> {
        self.resting.iter().copied()
    }
}

/// What the engine keeps per project beside its account.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectQueue {
    /// Waiting workloads by class, each class in queue order.
    pub(crate) waiting: BTreeMap<u32, Group>,
    pub(crate) victims: Victims,
    /// Nodes that training and interactive work may use.
    pub(crate) selectors: (Selector, Selector),
    pub(crate) min_run: Span,
    pub(crate) interactive_time_limit: Option<Span>,
    pub(crate) time_limit: Option<Span>,
    pub(crate) idle_limit: Option<Span>,
    /// When workloads of this project that are still known were last evicted.
    evictions: BTreeMap<Time, u32>,
    /// Whether the project is above its quota and above its share, so that what it runs can be taken.
    pub(crate) above: [bool; 2],
    /// Whether workloads rest in a group.
    pub(crate) rests: bool,
    /// Who has a reservation.
    pub(crate) reservation: Option<u32>,
}

impl ProjectQueue {
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
