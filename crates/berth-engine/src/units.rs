//! What could be taken for a claimant, in the order it is taken, found only as far as it is asked for.

use crate::{
    claim::Ask,
    ledger::{Ledger, Line, Rule},
    pool::Pool,
    queue::VictimOrder,
    tree::GPU,
    trial::Unit,
};
use berth_types::{Account, Span, Time};
use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// Victims of one claim, in order.
pub(crate) struct Units<'a> {
    pool: &'a Pool,
    now: Time,
    found: Vec<Unit>,
    projects: BinaryHeap<Precedence>,
    /// The claimant's project and priority, whose lower-priority work comes last.
    own: Option<(u32, i32)>,
    claimant: Option<(u32, i32)>,
    current: Option<Run<'a>>,
    /// How long after its start work is left alone by the rule that takes.
    patience: Span,
    /// When the first protected victim can be taken.
    pub(crate) retry: Option<Time>,
}

struct Run<'a> {
    victims: VictimOrder<'a>,
    min_run: Span,
    /// Only work below this priority.
    below: Option<i32>,
}

impl<'a> Units<'a> {
    pub(crate) fn new(pool: &'a Pool, slot: u32, ask: &Ask, rule: Rule, own: bool, now: Time) -> Self {
        let mut found = Vec::new();
        for (_, victim) in &pool.extras {
            let extras = pool.entry(*victim).workload.extra_places().map(|place| place.rank);
            let from = found.len();
            found.extend(extras.map(|rank| Unit { slot: *victim, extra: Some(rank) }));
            // The newest extras of a workload go first.
            found[from..].sort_unstable_by_key(|unit| Reverse(unit.extra));
        }
        let mut ledger = Ledger::new(pool, *ask, rule, Line::Straddle);
        let mut projects = Vec::new();
        if rule != Rule::None {
            for project in pool.above.iter().copied() {
                let victims = &pool.queues[project as usize].victims;
                if victims.is_empty() || !ledger.may_take_from(pool, project) {
                    continue;
                }
                let largest = ledger.largest_from(pool, project);
                if victims.sizes().any(|size| size <= largest) {
                    projects.push(Precedence::of(pool, project, largest));
                }
            }
        }
        let entry = pool.entry(slot);
        let own = own.then_some((entry.project, entry.workload.spec.priority));
        let patience = if rule == Rule::Share { pool.policy.patience } else { Span::ZERO };
        Self {
            pool,
            now,
            found,
            projects: projects.into(),
            own,
            claimant: own,
            current: None,
            patience,
            retry: None,
        }
    }

    /// The unit at a position in the order.
    pub(crate) fn get(&mut self, index: usize) -> Option<Unit> {
        while self.found.len() <= index {
            let unit = self.find()?;
            self.found.push(unit);
        }
        Some(self.found[index])
    }

    /// All of them.
    pub(crate) fn all(&mut self) -> &[Unit] {
        while let Some(unit) = self.find() {
            self.found.push(unit);
        }
        &self.found
    }

    /// Only the first of them.
    pub(crate) fn first(&mut self, count: usize) -> Self {
        self.get(count);
        let found = self.found[..count.min(self.found.len())].to_vec();
        Self {
            pool: self.pool,
            now: self.now,
            found,
            projects: BinaryHeap::new(),
            own: None,
            claimant: self.claimant,
            current: None,
            patience: self.patience,
            retry: None,
        }
    }

    /// Whether a workload is among them, wherever it stands in the order.
    pub(crate) fn contains(&mut self, victim: u32, ledger: &mut Ledger, own: Option<(u32, i32)>) -> bool {
        let entry = self.pool.entry(victim);
        let workload = &entry.workload;
        let Some(since) = workload.running_since().filter(|_| workload.spec.preemptible) else {
            return false;
        };
        let allowed = match own.filter(|(project, _)| *project == entry.project) {
            Some((_, priority)) => workload.spec.priority < priority,
            None => ledger.may_take_from(self.pool, entry.project),
        };
        let from = since + self.min_run(entry.project).max(Span(1));
        if allowed && from > self.now {
            self.retry = Some(self.retry.map_or(from, |known| known.min(from)));
        }
        allowed && from <= self.now
    }

    /// Work an eviction destroys.
    pub(crate) fn work_lost(&self, victim: u32) -> u128 {
        self.pool.entry(victim).workload.work_lost(self.now, self.pool.policy.lost_cap)
    }

    /// The claimant's project and priority, if own work of lower priority is among them.
    pub(crate) fn claimant(&self) -> Option<(u32, i32)> {
        self.claimant
    }

    fn find(&mut self) -> Option<Unit> {
        loop {
            if self.current.is_none() {
                self.current = Some(self.next_run()?);
            }
            let run = self.current.as_mut().expect("was just set");
            let Some(victim) = run.victims.next() else {
                self.current = None;
                continue;
            };
            let workload = &self.pool.entry(victim).workload;
            if run.below.is_some_and(|below| workload.spec.priority >= below) {
                self.current = None;
                continue;
            }
            // What was started at this very instant is not evicted at it.
            let from = workload.running_since().unwrap_or(self.now) + run.min_run.max(Span(1));
            if from > self.now {
                self.retry = Some(self.retry.map_or(from, |known| known.min(from)));
                continue;
            }
            return Some(Unit { slot: victim, extra: None });
        }
    }

    fn next_run(&mut self) -> Option<Run<'a>> {
        let (project, below, largest) = match self.projects.pop() {
            Some(precedence) => (precedence.project, None, precedence.largest),
            None => {
                let (project, priority) = self.own.take()?;
                (project, Some(priority), u64::MAX)
            }
        };
        let queue = &self.pool.queues[project as usize];
        let victims = queue.victims.in_order(self.now, self.pool.policy.lost_cap, largest);
        Some(Run { victims, min_run: self.min_run(project), below })
    }

    /// How long work of a project runs before it can be taken.
    fn min_run(&self, project: u32) -> Span {
        self.pool.queues[project as usize].min_run.max(self.patience)
    }
}

/// The order in which projects give: the largest excess over fair share for its weight, then the one evicted least
/// recently, then the smallest account.
#[derive(PartialEq, Eq)]
struct Precedence {
    excess: i128,
    weight: i128,
    then: Reverse<(Option<Time>, Account)>,
    project: u32,
    /// Victims above this size cannot be given.
    largest: u64,
}

impl Precedence {
    fn of(pool: &Pool, project: u32, largest: u64) -> Self {
        let node = pool.tree.at(project);
        Self {
            excess: i128::from(node.used.amounts[GPU]) - i128::from(node.share),
            weight: i128::from(node.weight.max(1)),
            then: Reverse((pool.queues[project as usize].evicted(), node.account)),
            project,
            largest,
        }
    }
}

impl Ord for Precedence {
    fn cmp(&self, other: &Self) -> Ordering {
        let ratio = (self.excess * other.weight).cmp(&(other.excess * self.weight));
        ratio.then_with(|| self.then.cmp(&other.then))
    }
}

impl PartialOrd for Precedence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
