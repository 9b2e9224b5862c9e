//! What could be taken for a claimant, in the order it is taken, found only as far as it is asked for.

use crate::{
    brief::Brief,
    claim::{Ask, Reach},
    fit::Fit,
    least_loss::Loss,
    ledger::{Ledger, Line, Rule},
    pool::Pool,
    queue::VictimOrder,
    tree::GPU,
    trial::Unit,
};
use berth_types::{Account, Span, Time};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BinaryHeap, btree_set},
    iter::{Peekable, Rev},
};

/// With no more nodes than this on which victims could make room, those there are looked at and no others.
const FEW_NODES: usize = 64;

/// More victims than this are not looked at for one claim.
const LOOKED_AT_MAX: usize = 4096;

/// Where victims of a claim could make room.
pub(crate) struct Useful<'a> {
    /// Where others alone could.
    pub(crate) fit: &'a Fit,
    /// Nodes with own work of lower priority, which could help there; in order.
    pub(crate) own: Vec<u32>,
}

impl Useful<'_> {
    fn is_on(&self, node: u32) -> bool {
        self.fit.has_room_on(node) || self.own.binary_search(&node).is_ok()
    }
}

/// Victims of one claim, in order.
pub(crate) struct Units<'a> {
    pool: &'a Pool,
    now: Time,
    found: Vec<Unit>,
    /// Only victims there, where victims are needed for the room they make alone.
    useful: Option<Useful<'a>>,
    /// Borrowers not looked at yet.
    borrowers: Option<Peekable<Rev<btree_set::Iter<'a, Precedence>>>>,
    /// What may be taken of them.
    ledger: Ledger,
    /// The claimant's project and priority, whose lower-priority work comes last.
    own: Option<(u32, i32)>,
    claimant: Option<(u32, i32)>,
    /// Borrowers of which some victims were found; the one with the largest excess that is left gives next.
    open: BinaryHeap<Run<'a>>,
    looked_at: usize,
    extras: usize,
    /// How long after its start work is left alone by the rule that takes.
    patience: Span,
    /// When the first protected victim can be taken.
    pub(crate) retry: Option<Time>,
}

/// What may be taken of one project.
#[derive(Clone, Copy)]
pub(crate) struct Giver {
    /// Only work below this priority.
    below: Option<i32>,
    /// GPUs of the largest victim it could give.
    largest: u64,
    min_run: Span,
}

/// The victims of one project that were not found yet.
struct Run<'a> {
    /// Its place in the order once those found are gone; none for the claimant's own project, which comes last.
    precedence: Option<Precedence>,
    victims: VictimOrder<'a>,
    min_run: Span,
    /// Only work below this priority.
    below: Option<i32>,
}

impl PartialEq for Run<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Run<'_> {}

impl PartialOrd for Run<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Run<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.precedence.cmp(&other.precedence)
    }
}

impl<'a> Units<'a> {
    /// Victims that a rule lets a claimant take; `own` is whether lower-priority work of its own project is among them.
    pub(crate) fn new(
        pool: &'a Pool,
        slot: u32,
        ask: &Ask,
        reach: &Reach,
        (rule, own): (Rule, bool),
        useful: Option<Useful<'a>>,
        now: Time,
    ) -> Self {
        let entry = pool.entry(slot);
        let own = own.then_some((entry.project, entry.workload.spec.priority));
        let mut units = Self {
            pool,
            now,
            found: Vec::new(),
            useful,
            borrowers: (rule != Rule::None).then(|| pool.borrowers.iter().rev().peekable()),
            ledger: Ledger::new(*ask, reach, rule, Line::Straddle),
            own,
            claimant: own,
            open: BinaryHeap::new(),
            looked_at: 0,
            extras: 0,
            patience: if rule == Rule::Share { pool.policy.patience } else { Span::ZERO },
            retry: None,
        };
        units.find_extras();
        units.extras = units.found.len();
        units.gather_if_few();
        units
    }

    fn find_extras(&mut self) {
        for (_, victim) in &self.pool.extras {
            let places = self.pool.entry(*victim).workload.extra_places();
            let useful = places.filter(|place| {
                let at = self.pool.node_slots[&place.node];
                self.useful.as_ref().is_none_or(|useful| useful.is_on(at))
            });
            let from = self.found.len();
            self.found.extend(useful.map(|place| Unit { slot: *victim, extra: Some(place.rank) }));
            // The newest extras of a workload go first.
            self.found[from..].sort_unstable_by_key(|unit| Reverse(unit.extra));
        }
    }

    /// Finds all victims at once where they can only be on few nodes.
    fn gather_if_few(&mut self) {
        let Some(useful) = &self.useful else { return };
        let nodes = useful.fit.nodes_with_room() + useful.own.len();
        if nodes > FEW_NODES {
            return;
        }
        let mut slots: Vec<u32> = match (self.ledger.rule(), self.own) {
            // From nobody but its own project.
            (Rule::None, Some((project, priority))) => {
                let own = self.pool.queues[project as usize].victims.below(priority);
                own.map(|(slot, _)| slot).collect()
            }
            _ => {
                let nodes = useful.fit.room().chain(useful.own.iter().copied());
                nodes.flat_map(|node| &self.pool.node(node).tasks).copied().collect()
            }
        };
        slots.sort_unstable();
        slots.dedup();
        let mut by_project: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for slot in slots {
            let Some(brief) = self.may_take(slot) else { continue };
            let rank = (brief.priority, self.work_lost(&brief), Reverse(brief.started), brief.id);
            by_project.entry(brief.project).or_default().push((rank, slot, brief.base_gpus));
        }
        let mut givers: BinaryHeap<(Option<Precedence>, u32)> = BinaryHeap::new();
        for (project, victims) in &mut by_project {
            // The next to go is taken from the end.
            victims.sort_unstable_by(|one, other| other.cmp(one));
            let own = self.own.is_some_and(|(own, _)| own == *project);
            givers.push((self.pool.queues[*project as usize].precedence.filter(|_| !own), *project));
        }
        while let Some((precedence, project)) = givers.pop() {
            let Some((_, slot, gpus)) = by_project.get_mut(&project).and_then(Vec::pop) else { continue };
            self.found.push(Unit { slot, extra: None });
            givers.push((precedence.map(|precedence| precedence.after(gpus)), project));
        }
        (self.borrowers, self.own) = (None, None);
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

    /// How many extras are among them; those come first.
    pub(crate) fn extras(&self) -> usize {
        self.extras
    }

    /// What is lost with one of them that is a whole workload.
    pub(crate) fn loss_of(&self, slot: u32) -> Option<Loss> {
        let brief = self.pool.brief(slot)?;
        let own = self.claimant.is_some_and(|(project, _)| project == brief.project);
        let precedence = self.pool.queues[brief.project as usize].precedence.filter(|_| !own);
        Some(Loss {
            precedence,
            project: brief.project,
            priority: brief.priority,
            gpus: brief.base_gpus,
            lost: self.work_lost(&brief),
            started: brief.started,
            id: brief.id,
        })
    }

    /// Whether victims are needed for more than the room they make, so that they may be anywhere.
    pub(crate) fn are_anywhere(&self) -> bool {
        self.useful.is_none()
    }

    /// Whether there are more than so many, or may be.
    pub(crate) fn are_more_than(&mut self, count: usize) -> bool {
        // When all but one are found already, the next is found at once.
        (self.found.len() < count && self.are_surely_more_than(count))
            || self.get(count).is_some()
            || self.looked_at >= LOOKED_AT_MAX
    }

    /// Counts them in no order, which is quicker than to find so many in theirs.
    fn are_surely_more_than(&mut self, count: usize) -> bool {
        let mut left = (count + 1).saturating_sub(self.found.len());
        // Those found already are not counted again, so only borrowers nobody looked at yet are.
        for Precedence { project, .. } in self.borrowers.clone().into_iter().flatten() {
            if left == 0 {
                break;
            }
            let Some(largest) = largest_from(self.pool, &self.ledger, *project) else { continue };
            let from = |started: Time| started + self.min_run(*project).max(Span(1));
            let victims = self.pool.queues[*project as usize].victims.up_to(largest);
            let useful = victims
                .filter(|(slot, started, node)| from(*started) <= self.now && self.is_useful(*slot, *node));
            left -= useful.take(left).count();
        }
        left == 0
    }

    /// A running workload that may be taken as a whole, wherever it stands in the order; notes when it may if only time
    /// forbids it.
    fn may_take(&mut self, victim: u32) -> Option<Brief> {
        let brief = self.pool.brief(victim)?;
        let giver = self.giver(brief.project)?;
        self.may_take_of(&giver, &brief).then_some(brief)
    }

    /// What may be taken of a project, if anything.
    pub(crate) fn giver(&mut self, project: u32) -> Option<Giver> {
        let min_run = self.min_run(project);
        match self.claimant.filter(|(own, _)| *own == project) {
            Some((_, priority)) => Some(Giver { below: Some(priority), largest: u64::MAX, min_run }),
            None => {
                let largest = self.ledger.largest_from(self.pool, project)?;
                Some(Giver { below: None, largest, min_run })
            }
        }
    }

    /// Whether one of its workloads may be taken; notes when it may if only time forbids it.
    pub(crate) fn may_take_of(&mut self, giver: &Giver, brief: &Brief) -> bool {
        let allowed =
            brief.base_gpus <= giver.largest && giver.below.is_none_or(|below| brief.priority < below);
        allowed && self.is_unprotected(brief.started, giver.min_run)
    }

    /// What was started at this very instant is not evicted at it, nor anything inside its minimum run time.
    fn is_unprotected(&mut self, since: Time, min_run: Span) -> bool {
        let from = since + min_run.max(Span(1));
        if from > self.now {
            self.retry = Some(self.retry.map_or(from, |known| known.min(from)));
        }
        from <= self.now
    }

    /// Work an eviction destroys.
    pub(crate) fn work_lost(&self, victim: &Brief) -> u128 {
        victim.work_lost(self.now, self.pool.policy.lost_cap)
    }

    fn find(&mut self) -> Option<Unit> {
        while self.looked_at < LOOKED_AT_MAX {
            let mut run = self.next_run()?;
            self.looked_at += 1;
            let (min_run, below) = (run.min_run, run.below);
            let Some(victim) =
                run.victims.next().filter(|victim| below.is_none_or(|below| victim.priority < below))
            else {
                continue;
            };
            let found =
                self.is_useful(victim.slot, victim.node) && self.is_unprotected(victim.started, min_run);
            if found {
                let gpus = self.pool.brief(victim.slot).map_or(0, |brief| brief.base_gpus);
                run.precedence = run.precedence.map(|precedence| precedence.after(gpus));
            }
            self.open.push(run);
            if found {
                return Some(Unit { slot: victim.slot, extra: None });
            }
        }
        None
    }

    fn is_useful(&self, slot: u32, node: Option<u32>) -> bool {
        let Some(useful) = &self.useful else { return true };
        match node {
            Some(node) => useful.is_on(node),
            None => {
                let mut places = self.pool.entry(slot).workload.places();
                places.any(|place| useful.is_on(self.pool.node_slots[&place.node]))
            }
        }
    }

    /// The project whose turn it is: the largest excess first, the claimant's own project last.
    fn next_run(&mut self) -> Option<Run<'a>> {
        let untouched = self.next_borrower();
        let precedence_open = self.open.peek().map(|run| run.precedence);
        if let Some((precedence, largest)) = untouched
            && precedence_open.is_none_or(|open| open < Some(precedence))
        {
            self.borrowers.as_mut().and_then(Iterator::next);
            return Some(self.run(precedence.project, Some(precedence), None, largest));
        }
        self.open.pop().or_else(|| {
            let (project, priority) = self.own.take()?;
            Some(self.run(project, None, Some(priority), u64::MAX))
        })
    }

    fn run(&self, project: u32, precedence: Option<Precedence>, below: Option<i32>, largest: u64) -> Run<'a> {
        let victims = &self.pool.queues[project as usize].victims;
        let victims = victims.in_order(self.now, self.pool.policy.lost_cap, largest);
        Run { precedence, victims, min_run: self.min_run(project), below }
    }

    /// How long work of a project runs before it can be taken.
    fn min_run(&self, project: u32) -> Span {
        self.pool.queues[project as usize].min_run.max(self.patience)
    }

    /// The next project not looked at from which something may be taken, and the largest victim it could give.
    fn next_borrower(&mut self) -> Option<(Precedence, u64)> {
        loop {
            let precedence = **self.borrowers.as_mut()?.peek()?;
            if let Some(largest) = largest_from(self.pool, &self.ledger, precedence.project) {
                return Some((precedence, largest));
            }
            self.borrowers.as_mut()?.next();
        }
    }
}

/// The largest victim a project could give, if it could give any.
fn largest_from(pool: &Pool, ledger: &Ledger, project: u32) -> Option<u64> {
    let victims = &pool.queues[project as usize].victims;
    if victims.is_empty() {
        return None;
    }
    let largest = ledger.largest_from(pool, project)?;
    victims.sizes().any(|size| size <= largest).then_some(largest)
}

/// The order in which projects give: the largest excess over fair share for its weight, then the one evicted least
/// recently, then the smallest account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Precedence {
    excess: i128,
    weight: i128,
    then: Reverse<(Option<Time>, Account)>,
    pub(crate) project: u32,
}

impl Precedence {
    pub(crate) fn of(pool: &Pool, project: u32) -> Self {
        let node = pool.tree.at(project);
        Self {
            excess: i128::from(node.used.amounts[GPU]) - i128::from(node.share),
            weight: i128::from(node.weight.max(1)),
            then: Reverse((pool.queues[project as usize].evicted(), node.account)),
            project,
        }
    }

    /// When work of the project was last evicted, then its account: the smaller gives first among equals.
    pub(crate) fn evicted_last(&self) -> (Option<Time>, Account) {
        self.then.0
    }

    /// Its place once so many GPUs of it are gone.
    pub(crate) fn after(self, gpus: u64) -> Self {
        Self { excess: self.excess - i128::from(gpus), ..self }
    }

    /// Compares what two projects have above their fair share, for their weight.
    pub(crate) fn compare_excess(&self, other: &Self) -> Ordering {
        (self.excess * other.weight).cmp(&(other.excess * self.weight))
    }
}

impl Ord for Precedence {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare_excess(other).then_with(|| self.then.cmp(&other.then))
    }
}

impl PartialOrd for Precedence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
