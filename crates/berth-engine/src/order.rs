//! Who is next: every project names its head, and heads are compared level by level.

use crate::{
    claim::Ask,
    pool::Pool,
    queue::{Group, QueueKey},
    tree::{GPU, Node, ROOT},
};
use berth_types::{Phase, Time, WorkloadId};
use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

/// The workload a project or department would start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) slot: u32,
    priority: i32,
    submitted: Time,
    id: WorkloadId,
    asked: u64,
}

impl Head {
    /// A waiting workload as the head of its project.
    pub(crate) fn of(pool: &Pool, slot: u32) -> Self {
        let workload = &pool.entry(slot).workload;
        let (id, submitted) = (workload.id, workload.submitted);
        Self { slot, priority: workload.spec.priority, submitted, id, asked: pool.class_of(slot).asked }
    }

    /// Its place in the queue of its project.
    pub(crate) fn in_queue(&self) -> (Reverse<i32>, Time, WorkloadId) {
        (Reverse(self.priority), self.submitted, self.id)
    }
}

/// What goes next: a workload that fits, or one that must take something first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Fits(u32),
    Takes(u32),
}

/// The best of each kind below one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Best {
    fits: Option<Head>,
    takes: Option<Head>,
}

/// Heads by position in the tree, and what must be looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    best: Vec<Best>,
    /// Takes that found nothing at this version of the pool, by project and class, and when time alone may change that.
    failed: BTreeMap<(u32, u32), Option<Time>>,
    failed_version: u64,
    /// When time alone may let the take that was tried last succeed.
    pub(crate) attempt_retry: Option<Time>,
    /// The time heads were computed for; some workloads are barred for one instant.
    now: Time,
}

impl Heads {
    /// The instant that is being planned.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// When time alone may let a failed take succeed.
    pub(crate) fn retry(&self) -> Option<Time> {
        self.failed.values().flatten().min().copied()
    }

    /// Whether a take failed, and when time alone may change that.
    pub(crate) fn failure(&self, owner: (u32, u32)) -> Option<Option<Time>> {
        self.failed.get(&owner).copied()
    }

    pub(crate) fn restore_failure(&mut self, owner: (u32, u32), retry: Option<Time>) {
        self.failed.insert(owner, retry);
    }

    /// A workload that just came may take what those before it could not.
    pub(crate) fn forget_failure(&mut self, project: u32, class: u32) {
        self.failed.remove(&(project, class));
    }
}

impl Pool {
    /// What goes next, if anything may.
    pub(crate) fn next_head(&mut self, now: Time) -> Option<Next> {
        if self.heads.best.len() != self.tree.nodes.len() {
            self.heads.best = vec![Best::default(); self.tree.nodes.len()];
        }
        while let Some(position) = self.stale_heads.pop_last() {
            // Children have higher positions than parents, so a parent is reached after all its children.
            let best = if self.tree.at(position).children.is_empty() {
                self.project_best(position, now)
            } else {
                Best {
                    fits: self.best_child(position, |best| best.fits),
                    takes: self.best_child(position, |best| best.takes),
                }
            };
            let known = &mut self.heads.best[position as usize];
            // An account above compares what this one uses too, so an unchanged head is no reason to stop.
            let matters = *known != best || best != Best::default();
            *known = best;
            if matters && position != ROOT {
                self.stale_heads.insert(self.tree.at(position).parent);
            }
        }
        self.choose(self.heads.best[ROOT as usize])
    }

    /// Chooses between the best that fits and the best that takes. One that must take goes before those behind it in
    /// the queue of its project, and before others where it is compared with them.
    fn choose(&self, best: Best) -> Option<Next> {
        let (fits, takes) = match (best.fits, best.takes) {
            (Some(fits), Some(takes)) => (fits, takes),
            (fits, takes) => {
                return fits.map(|head| Next::Fits(head.slot)).or(takes.map(|head| Next::Takes(head.slot)));
            }
        };
        let (fitting, taking) = (self.entry(fits.slot).project, self.entry(takes.slot).project);
        let (one, other) = self.tree.below_common(fitting, taking);
        if compare(&(self.tree.at(one), fits), &(self.tree.at(other), takes)) == Ordering::Greater {
            return Some(Next::Takes(takes.slot));
        }
        match self.heads.best[fitting as usize].takes {
            Some(before) if before.in_queue() < fits.in_queue() => Some(Next::Takes(before.slot)),
            _ => Some(Next::Fits(fits.slot)),
        }
    }

    /// Remembers that a take found nothing.
    pub(crate) fn take_failed(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (project, class) = (entry.project, entry.class);
        self.heads.failed.insert((project, class), self.heads.attempt_retry);
        self.stale_heads.insert(project);
    }

    /// Forgets failures that a change or the passing of time may have undone.
    pub(crate) fn retry_takes(&mut self, now: Time) {
        let timely = self.heads.retry().is_some_and(|retry| now >= retry);
        if self.heads.failed_version != self.version || timely {
            self.heads.failed_version = self.version;
            for (project, _) in std::mem::take(&mut self.heads.failed).into_keys() {
                self.stale_heads.insert(project);
            }
        }
    }

    /// Heads depend on time only in that some workloads are barred for the instant of their eviction.
    pub(crate) fn heads_at(&mut self, now: Time) {
        if self.heads.now != now {
            let before = std::mem::replace(&mut self.heads.now, now);
            for (position, queue) in self.queues.iter_mut().enumerate() {
                let position = position as u32;
                if std::mem::take(&mut queue.rests) || queue.evicted() == Some(before) {
                    queue.waiting.values_mut().for_each(Group::wake);
                    self.stale_heads.insert(position);
                    // Those who rested were passed over by whoever failed in their place.
                    self.heads.failed.retain(|(project, _), _| *project != position);
                }
            }
        }
    }

    fn project_best(&self, project: u32, now: Time) -> Best {
        let mut best = Best::default();
        let queue = &self.queues[project as usize];
        let own_lowest = queue.victims.lowest_priority();
        // What was evicted at this instant may go elsewhere while it leaves, but takes nothing and does not start
        // again from the queue.
        let some_rest = queue.evicted() == Some(now);
        let rests = |slot: u32| some_rest && self.entry(slot).workload.evicted == Some(now);
        let leaves = |slot: u32| matches!(self.entry(slot).workload.phase, Phase::Stopping { .. });
        for (class_id, group) in &queue.waiting {
            let class = &self.classes[*class_id as usize];
            let ask = self.ask(project, class);
            let head = |(priority, submitted, id, slot): QueueKey| Head {
                slot,
                priority: priority.0,
                submitted,
                id,
                asked: class.asked,
            };
            if class.fits && self.barrier(&ask, 0).is_none() {
                let mut ready = group.ready().filter(|key| !rests(key.3) || leaves(key.3));
                let first = if some_rest { ready.next() } else { group.first() };
                let resting = if some_rest { group.resting().find(|key| leaves(key.3)) } else { None };
                for key in first.into_iter().chain(resting) {
                    offer(&mut best.fits, head(key));
                }
                continue;
            }
            if !class.possible || self.heads.failed.contains_key(&(project, *class_id)) {
                continue;
            }
            let Some(first) = group.first() else { continue };
            // Those after it in the group have no higher priority, so they cannot take more.
            if self.could_take(&ask, own_lowest.is_some_and(|lowest| lowest < first.0.0)) {
                match group.ready().find(|key| !rests(key.3)).filter(|_| some_rest) {
                    Some(key) => offer(&mut best.takes, head(key)),
                    None if !some_rest => offer(&mut best.takes, head(first)),
                    None => {}
                }
            }
        }
        best
    }

    /// Whether a take is worth trying: something of its own or of others might be taken.
    fn could_take(&self, ask: &Ask, own: bool) -> bool {
        let must_give = self.must_give(ask);
        if self.barrier(ask, must_give).is_some() {
            return false;
        }
        if must_give > 0 {
            return own;
        }
        own || !self.extras.is_empty() || self.may_take_from_others(ask)
    }

    fn best_child(&self, parent: u32, of: impl Fn(&Best) -> Option<Head>) -> Option<Head> {
        let children = self.tree.at(parent).children.iter();
        children
            .filter_map(|child| {
                of(&self.heads.best[*child as usize]).map(|head| (self.tree.at(*child), head))
            })
            .min_by(compare)
            .map(|(_, head)| head)
    }
}

impl Pool {
    /// The first of these heads of projects below an account, compared level by level.
    pub(crate) fn first_head(&self, below: u32, heads: &BTreeMap<u32, Head>) -> Option<Head> {
        if let Some(head) = heads.get(&below) {
            return Some(*head);
        }
        let children = self.tree.at(below).children.iter();
        children
            .filter_map(|child| Some((self.tree.at(*child), self.first_head(*child, heads)?)))
            .min_by(compare)
            .map(|(_, head)| head)
    }
}

/// Keeps the head that is first in the queue.
fn offer(best: &mut Option<Head>, head: Head) {
    if best.as_ref().is_none_or(|best| head.in_queue() < best.in_queue()) {
        *best = Some(head);
    }
}

/// Within share first, then the smaller part borrowed for its weight, then the older head.
fn compare(one: &(&Node, Head), other: &(&Node, Head)) -> Ordering {
    let beyond = |(node, head): &(&Node, Head)| node.used.amounts[GPU] + head.asked > node.share;
    beyond(one)
        .cmp(&beyond(other))
        .then_with(|| compare_borrowing(one, other))
        .then_with(|| (one.1.submitted, one.1.id).cmp(&(other.1.submitted, other.1.id)))
}

/// Compares what each would have borrowed for its weight; nothing borrowed is least whatever the weight.
fn compare_borrowing(one: &(&Node, Head), other: &(&Node, Head)) -> Ordering {
    let borrowed = |(node, head): &(&Node, Head)| u128::from(node.borrowed_with(head.asked));
    let (mine, theirs) = (borrowed(one), borrowed(other));
    if mine == 0 || theirs == 0 {
        return mine.cmp(&theirs);
    }
    (mine * u128::from(other.0.weight)).cmp(&(theirs * u128::from(one.0.weight)))
}
