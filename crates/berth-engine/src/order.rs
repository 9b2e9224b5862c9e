//! Who is next: every project names its head, and heads are compared level by level.

use crate::{
    claim::Ask,
    pool::Pool,
    tree::{GPU, Node, ROOT},
};
use berth_types::{Phase, Time, WorkloadId};
use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
};

/// The workload a project or department would start next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) slot: u32,
    /// It does not fit and must take something first.
    pub(crate) takes: bool,
    priority: i32,
    submitted: Time,
    id: WorkloadId,
    asked: u64,
}

/// Heads by position in the tree, and what must be looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    best: Vec<Option<Head>>,
    /// Takes that found nothing at this version of the pool, by project and class.
    failed: BTreeSet<(u32, u32)>,
    failed_version: u64,
    /// When waiting for time alone may let a failed take succeed.
    pub(crate) retry: Option<Time>,
    /// The time heads were computed for; some workloads are barred for one instant.
    now: Time,
}

impl Pool {
    /// The head that goes next, if any may.
    pub(crate) fn next_head(&mut self, now: Time) -> Option<Head> {
        if self.heads.best.len() != self.tree.nodes.len() {
            self.heads.best = vec![None; self.tree.nodes.len()];
        }
        while let Some(position) = self.stale_heads.pop_last() {
            // Children have higher positions than parents, so a parent is reached after all its children.
            let best = if self.tree.at(position).children.is_empty() {
                self.project_head(position, now)
            } else {
                self.best_child(position)
            };
            let known = &mut self.heads.best[position as usize];
            let changed = *known != best || best.is_some();
            *known = best;
            if changed && position != ROOT {
                self.stale_heads.insert(self.tree.at(position).parent);
            }
        }
        self.heads.best[ROOT as usize]
    }

    /// Remembers that a take found nothing.
    pub(crate) fn take_failed(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (project, class) = (entry.project, entry.class);
        self.heads.failed.insert((project, class));
        self.stale_heads.insert(project);
    }

    /// Forgets failures that a change or the passing of time may have undone.
    pub(crate) fn retry_takes(&mut self, now: Time) {
        let timely = self.heads.retry.is_some_and(|retry| now >= retry);
        if self.heads.failed_version != self.version || timely {
            self.heads.failed_version = self.version;
            self.heads.retry = None;
            for (project, _) in std::mem::take(&mut self.heads.failed) {
                self.stale_heads.insert(project);
            }
        }
    }

    /// Heads depend on time only in that some workloads are barred for the instant of their eviction.
    pub(crate) fn heads_at(&mut self, now: Time) {
        if self.heads.now != now {
            self.heads.now = now;
            for (position, queue) in self.queues.iter().enumerate() {
                if queue.barred {
                    self.stale_heads.insert(position as u32);
                }
            }
        }
    }

    /// The time heads were computed for.
    pub(crate) fn heads_now(&self) -> Time {
        self.heads.now
    }

    fn project_head(&mut self, project: u32, now: Time) -> Option<Head> {
        let mut best: Option<(Reverse<i32>, Time, WorkloadId, Head)> = None;
        let mut barred = false;
        for (class_id, group) in &self.queues[project as usize].waiting {
            let class = &self.classes[*class_id as usize];
            let ask = self.ask(project, class);
            let free_to_start = class.fits && self.barrier(&ask, 0).is_none();
            let may_take = !free_to_start && class.possible && !self.heads.failed.contains(&(project, *class_id));
            if !free_to_start && !may_take {
                continue;
            }
            for key in group {
                let (priority, submitted, id, slot) = *key;
                if best.as_ref().is_some_and(|best| (best.0, best.1, best.2) < (priority, submitted, id)) {
                    break;
                }
                let workload = &self.entry(slot).workload;
                let leaving = matches!(workload.phase, Phase::Stopping { .. });
                if workload.evicted == Some(now) && !leaving {
                    barred = true;
                    continue;
                }
                if !free_to_start && (leaving || !self.could_take(&ask, priority.0)) {
                    // Those after it in the group have no higher priority, so they cannot take more.
                    if leaving {
                        continue;
                    }
                    break;
                }
                let head = Head {
                    slot,
                    takes: !free_to_start,
                    priority: priority.0,
                    submitted,
                    id,
                    asked: class.asked,
                };
                best = Some((priority, submitted, id, head));
                break;
            }
        }
        self.queues[project as usize].barred = barred;
        best.map(|(_, _, _, head)| head)
    }

    /// Whether a take is worth trying: something of its own or of others might be taken.
    fn could_take(&self, ask: &Ask, priority: i32) -> bool {
        let own = self.queues[ask.project as usize].victims.lowest_priority().is_some_and(|lowest| lowest < priority);
        if self.must_give(ask) > 0 {
            return own;
        }
        if self.barrier(ask, 0).is_some() {
            return false;
        }
        own || !self.extras.is_empty() || self.may_take_from_others(ask)
    }

    fn best_child(&self, parent: u32) -> Option<Head> {
        let children = self.tree.at(parent).children.iter();
        children
            .filter_map(|child| self.heads.best[*child as usize].map(|head| (self.tree.at(*child), head)))
            .min_by(|one, other| compare(one, other))
            .map(|(_, head)| head)
    }
}

/// Within share first, then the smaller part borrowed for its weight, then the older head.
fn compare(one: &(&Node, Head), other: &(&Node, Head)) -> Ordering {
    let beyond = |(node, head): &(&Node, Head)| node.used.amounts[GPU] + head.asked > node.share;
    let borrowed = |(node, head): &(&Node, Head)| u128::from(node.borrowed_with(head.asked));
    let (one_weight, other_weight) = (u128::from(one.0.weight), u128::from(other.0.weight));
    beyond(one)
        .cmp(&beyond(other))
        .then_with(|| (borrowed(one) * other_weight).cmp(&(borrowed(other) * one_weight)))
        .then_with(|| (one.1.submitted, one.1.id).cmp(&(other.1.submitted, other.1.id)))
}
