//! Who is next: every project names its head, and heads are compared level by level.

use crate::{
    log::ChangeLog,
    pool::Pool,
    queue::{Claim, First, Standing},
    retry::Title,
    rooms::Rooms,
    tree::{GPU, Node, ROOT},
};
use berth_types::{Phase, Time, Workload, WorkloadId};
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
    class: u32,
    asked: u64,
}

impl Head {
    /// A waiting workload as the head of its project.
    pub(crate) fn of(pool: &Pool, slot: u32) -> Self {
        let (workload, class) = (&pool.entry(slot).workload, pool.entry(slot).class);
        let (id, submitted, asked) = (workload.id, workload.submitted, pool.class_of(slot).asked);
        Self { slot, priority: workload.spec.priority, submitted, id, class, asked }
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

/// Who is first below every account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contest {
    /// By position in the tree.
    best: Vec<Option<Head>>,
    /// The child whose head is the best of a department; of no meaning where there is none.
    best_child: Vec<u32>,
    /// Accounts that must be looked at again.
    stale: Marks,
    /// Accounts all of whose children must be compared again, not only those that changed.
    unordered: Vec<bool>,
    /// Accounts that were looked at since their parent was.
    fresh: Vec<bool>,
}

/// Some accounts: a bit for each, by position in the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    words: Vec<u64>,
    /// No word from here on has a bit.
    end: usize,
}

impl Marks {
    fn insert(&mut self, position: u32) {
        let at = position as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (position % 64);
        self.end = self.end.max(at + 1);
    }

    fn pop_last(&mut self) -> Option<u32> {
        while self.end > 0 {
            let word = &mut self.words[self.end - 1];
            if *word == 0 {
                self.end -= 1;
                continue;
            }
            let bit = 63 - word.leading_zeros();
            *word ^= 1 << bit;
            return Some((self.end as u32 - 1) * 64 + bit);
        }
        None
    }
}

impl Contest {
    /// Nobody is first yet, and all these projects are to be looked at.
    fn anew(accounts: usize, projects: impl Iterator<Item = u32>) -> Self {
        let mut contest = Self::default();
        contest.resize(accounts);
        projects.for_each(|project| contest.mark(project));
        contest
    }

    fn resize(&mut self, accounts: usize) {
        self.best.resize(accounts, None);
        self.best_child.resize(accounts, 0);
        // What is new was never compared.
        self.unordered.resize(accounts, true);
        self.fresh.resize(accounts, false);
    }

    /// Who is first below an account.
    pub(crate) fn at(&self, position: u32) -> Option<Head> {
        self.best.get(position as usize).copied().flatten()
    }

    /// An account must be looked at again, with everything below it.
    pub(crate) fn mark(&mut self, account: u32) {
        self.stale.insert(account);
        if let Some(unordered) = self.unordered.get_mut(account as usize) {
            *unordered = true;
        }
    }
}

/// The contest of those that fit, for one set of classes that do.
#[derive(Clone, Debug)]
struct FittingContest {
    fitting: Vec<u32>,
    contest: Contest,
    /// How much of the log of changed projects it has seen.
    seen: usize,
}

/// What fits changes back and forth while evictions leave gaps that the next start fills; so many sets are remembered.
const SETS_REMEMBERED: usize = 64;

/// Heads by position in the tree, and what must be looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    /// Those who must take something.
    pub(crate) taking: Contest,
    /// Those who fit; the contest used last is the last.
    fitting_contests: Vec<FittingContest>,
    /// Classes that fit, in order.
    fitting: Vec<u32>,
    /// Classes that are being looked at; kept so that looking needs no memory of its own.
    candidates: Vec<u32>,
    /// Projects whose heads must be looked at again.
    changed: ChangeLog,
    /// How often it was looked which classes fit, and how much of the log of changed nodes was seen then.
    round: u64,
    nodes_seen: usize,
    /// Everything must be looked at again.
    all_stale: bool,
    /// The time heads were computed for; some workloads are barred for one instant.
    now: Time,
}

impl Heads {
    /// The instant that is being planned.
    pub(crate) fn now(&self) -> Time {
        self.now
    }
}

impl Pool {
    /// The head of a project must be looked at again.
    pub(crate) fn mark_head(&mut self, project: u32) {
        self.queues[project as usize].forget_known();
        self.heads.taking.mark(project);
        self.heads.changed.push(project, self.tree.nodes.len());
    }

    /// All heads and all claims must be looked at again.
    pub(crate) fn mark_all_heads(&mut self) {
        self.heads.all_stale = true;
    }

    /// What goes next, if anything may.
    pub(crate) fn next_head(&mut self) -> Option<Next> {
        if std::mem::take(&mut self.heads.all_stale) {
            self.reopen_all();
            for class in &mut self.classes {
                (class.leading, class.passed_over) = Default::default();
            }
            self.heads.taking = Contest::anew(self.tree.nodes.len(), self.projects_with_waiting());
            self.heads.fitting_contests.clear();
        }
        self.reopen_entitled();
        let takes = self.best_that_takes();
        let fits = self.best_that_fits();
        self.choose(fits, takes)
    }

    fn projects_with_waiting(&self) -> impl Iterator<Item = u32> {
        let queues = self.queues.iter().enumerate();
        queues.filter(|(_, queue)| !queue.nobody_waits()).map(|(position, _)| position as u32)
    }

    /// Chooses between the best that fits and the best that takes. One that must take goes before those behind it in
    /// the queue of its project, and before others where it is compared with them.
    fn choose(&self, fits: Option<Head>, takes: Option<Head>) -> Option<Next> {
        let (Some(fits), Some(takes)) = (fits, takes) else {
            return fits.map(|head| Next::Fits(head.slot)).or(takes.map(|head| Next::Takes(head.slot)));
        };
        let (fitting, taking) = (self.entry(fits.slot).project, self.entry(takes.slot).project);
        let (one, other) = self.tree.below_common(fitting, taking);
        let turns = (Turn::of(self.tree.at(one), &fits), Turn::of(self.tree.at(other), &takes));
        if turns.0.compare(&turns.1) == Ordering::Greater {
            return Some(Next::Takes(takes.slot));
        }
        match self.heads.taking.at(fitting) {
            Some(before) if before.in_queue() < fits.in_queue() => Some(Next::Takes(before.slot)),
            _ => Some(Next::Fits(fits.slot)),
        }
    }

    fn best_that_takes(&mut self) -> Option<Head> {
        let mut contest = std::mem::take(&mut self.heads.taking);
        let best = self.settle(&mut contest, Self::taking_head);
        self.heads.taking = contest;
        best
    }

    fn best_that_fits(&mut self) -> Option<Head> {
        if self.heads.fitting.is_empty() {
            return None;
        }
        let known = self.heads.fitting_contests.iter().rposition(|known| known.fitting == self.heads.fitting);
        let mut known = match known {
            Some(at) => self.heads.fitting_contests.remove(at),
            None => {
                if self.heads.fitting_contests.len() == SETS_REMEMBERED {
                    self.heads.fitting_contests.remove(0);
                }
                let contest = Contest::anew(self.tree.nodes.len(), self.projects_with_waiting());
                FittingContest {
                    fitting: self.heads.fitting.clone(),
                    contest,
                    seen: self.heads.changed.end(),
                }
            }
        };
        match self.heads.changed.since(known.seen) {
            Some(changed) => changed.iter().for_each(|project| known.contest.mark(*project)),
            None => known.contest = Contest::anew(self.tree.nodes.len(), self.projects_with_waiting()),
        }
        known.seen = self.heads.changed.end();
        let best = self.settle(&mut known.contest, Self::fitting_head);
        self.heads.fitting_contests.push(known);
        best
    }

    /// Looks again at every account that is stale in a contest, and says who is first of all.
    fn settle(
        &mut self,
        contest: &mut Contest,
        head_of: impl Fn(&mut Self, u32) -> Option<Head>,
    ) -> Option<Head> {
        contest.resize(self.tree.nodes.len());
        // Children have higher positions than parents, so a parent is reached after all its children.
        while let Some(position) = contest.stale.pop_last() {
            let at = position as usize;
            let best = if self.tree.at(position).children.is_empty() {
                head_of(self, position)
            } else {
                self.best_of_children(contest, position)
            };
            contest.best[at] = best;
            contest.unordered[at] = false;
            contest.fresh[at] = true;
            // An account above compares what this one uses too, so an unchanged head is no reason to stop.
            if position != ROOT {
                contest.stale.insert(self.tree.at(position).parent);
            }
        }
        contest.at(ROOT)
    }

    /// Whose turn it is below a department. Those who were not looked at again stand to each other as before, so unless the
    /// first of them is among the others, it is compared with the others only.
    fn best_of_children(&self, contest: &mut Contest, position: u32) -> Option<Head> {
        let children = &self.tree.at(position).children;
        let first = contest.best_child[position as usize];
        let known = contest.best[position as usize].is_some();
        let all = contest.unordered[position as usize] || !known || contest.fresh[first as usize];
        let mut best: Option<(u32, Turn<'_>)> = None;
        for child in children {
            let counts = all || contest.fresh[*child as usize] || *child == first;
            if !counts {
                continue;
            }
            let Some(head) = contest.best[*child as usize].as_ref() else { continue };
            let turn = Turn::of(self.tree.at(*child), head);
            if best.as_ref().is_none_or(|(_, before)| turn.compare(before) == Ordering::Less) {
                best = Some((*child, turn));
            }
        }
        let found = best.map(|(child, turn)| (child, *turn.head));
        children.iter().for_each(|child| contest.fresh[*child as usize] = false);
        let (child, head) = found?;
        contest.best_child[position as usize] = child;
        Some(head)
    }

    /// The first in the queue of a project that fits and may start.
    fn fitting_head(&mut self, project: u32) -> Option<Head> {
        let mut at = 0;
        while let Some(class) = self.queues[project as usize].classes().get(at) {
            if self.classes[*class as usize].fits && self.may_start(project, at) {
                return Some(self.head(&self.queues[project as usize].firsts()[at]));
            }
            at += 1;
        }
        None
    }

    /// Whether no rule forbids the first of a class to start on free capacity.
    fn may_start(&mut self, project: u32, at: usize) -> bool {
        let mut known = self.queues[project as usize].known(at);
        if let Some(may_start) = known.may_start {
            return may_start;
        }
        let class = &self.classes[self.queues[project as usize].firsts()[at].class as usize];
        let may_start = self.barrier(&self.ask(project, class), 0).is_none();
        known.may_start = Some(may_start);
        self.queues[project as usize].remember(at, known);
        may_start
    }

    /// The first in the queue of a project that must take something and might. Claims found to be without any title are
    /// closed on the way.
    fn taking_head(&mut self, project: u32) -> Option<Head> {
        let mut passed = 0;
        while let Some(at) = self.queues[project as usize].open().get(passed) {
            let at = *at as usize;
            let class = self.queues[project as usize].classes()[at];
            if self.classes[class as usize].fits && self.may_start(project, at) {
                self.classes[class as usize].passed_over.insert(project);
                passed += 1;
                continue;
            }
            let first = self.queues[project as usize].firsts()[at];
            let mut known = self.queues[project as usize].known(at);
            let title = if known.may_take_own { Title::Now } else { self.title(project, &first) };
            match title {
                Title::Now => {
                    if !known.may_take_own {
                        known.may_take_own = self.has_own_victims(project, &first);
                        self.queues[project as usize].remember(at, known);
                    }
                    self.classes[first.class as usize].leading.insert(project);
                    return Some(self.head(&first));
                }
                Title::Later(from) => self.close_until(project, first.class, from),
                Title::None => self.close_claim(project, first.class, Claim::NotEntitled),
            }
        }
        None
    }

    fn head(&self, first: &First) -> Head {
        let (priority, submitted, id, slot) = first.key;
        let asked = self.classes[first.class as usize].asked;
        Head { slot, priority: priority.0, submitted, id, class: first.class, asked }
    }

    /// Looks again which classes fit. A start alone can only end a fit, never make one.
    pub(crate) fn refresh_fits(&mut self, only_shrinks_capacity: bool) {
        let mut candidates = std::mem::take(&mut self.heads.candidates);
        candidates.clear();
        let mut rooms = None;
        if only_shrinks_capacity {
            candidates.extend_from_slice(&self.heads.fitting);
        } else {
            candidates.extend(&self.waiting_classes);
            self.heads.round += 1;
            let seen = std::mem::replace(&mut self.heads.nodes_seen, self.log.end());
            rooms = Rooms::since(seen, &self.log, &self.nodes);
        }
        let round = self.heads.round;
        for class_id in candidates.iter().copied() {
            let class = &mut self.classes[class_id as usize];
            let last_looked_at = std::mem::replace(&mut class.round, round);
            let (shape, fit) = &self.shapes[class.shape as usize];
            if class.fits && fit.surely_holds(class.min, &self.log) {
                continue;
            }
            // What did not fit in the last round, and has no room on what changed since, does not fit now.
            let no_room = || rooms.as_ref().is_some_and(|rooms| !rooms.may_hold(shape, fit));
            if !class.fits && last_looked_at + 1 == round && no_room() {
                continue;
            }
            let fits = self.gpus_suffice(class_id) && self.class_fits(class_id);
            let class = &mut self.classes[class_id as usize];
            if fits == class.fits {
                continue;
            }
            class.fits = fits;
            match (fits, self.heads.fitting.binary_search(&class_id)) {
                (true, Err(at)) => self.heads.fitting.insert(at, class_id),
                (false, Ok(at)) => {
                    self.heads.fitting.remove(at);
                }
                _ => {}
            }
            self.mark_for_fit(class_id, fits);
        }
        self.heads.candidates = candidates;
    }

    /// A class fits, or does not any longer: whether it must take matters only where it is first to, or would be.
    fn mark_for_fit(&mut self, class_id: u32, fits: bool) {
        let class = &mut self.classes[class_id as usize];
        if fits {
            while let Some(project) = class.leading.pop_last() {
                if self.heads.taking.at(project).is_some_and(|head| head.class == class_id) {
                    self.heads.taking.mark(project);
                }
            }
        } else {
            while let Some(project) = class.passed_over.pop_last() {
                self.heads.taking.mark(project);
            }
        }
    }

    /// Heads depend on time only in that some workloads are barred for the instant of their eviction.
    pub(crate) fn heads_at(&mut self, now: Time) {
        if self.heads.now == now {
            return;
        }
        self.heads.now = now;
        for project in 0..self.queues.len() as u32 {
            let queue = &self.queues[project as usize];
            if queue.someone_rests() || queue.evicted() == Some(now) {
                let mut queue = std::mem::take(&mut self.queues[project as usize]);
                let classes: Vec<u32> = queue.counts().map(|(class, _)| class).collect();
                let before: Vec<_> = classes.iter().map(|class| queue.first_ready(*class)).collect();
                queue.stand_anew(|slot| self.standing(&self.entry(slot).workload));
                for (class, before) in classes.into_iter().zip(before) {
                    self.classes[class as usize].change_first(project, before, queue.first_ready(class));
                }
                self.queues[project as usize] = queue;
                // Those who rested were passed over by whoever failed in their place.
                self.reopen_project(project);
            }
        }
    }

    /// The first of these heads of projects below an account, compared level by level.
    pub(crate) fn first_head(&self, below: u32, heads: &BTreeMap<u32, Head>) -> Option<Head> {
        if let Some(head) = heads.get(&below) {
            return Some(*head);
        }
        let children = self.tree.at(below).children.iter();
        let firsts: Vec<(u32, Head)> =
            children.filter_map(|child| Some((*child, self.first_head(*child, heads)?))).collect();
        first_of(firsts.iter().map(|(child, head)| (self.tree.at(*child), head)))
    }

    /// How a waiting workload stands at the instant that is being planned.
    pub(crate) fn standing(&self, workload: &Workload) -> Standing {
        match (workload.evicted == Some(self.heads.now), &workload.phase) {
            (false, _) => Standing::Ready,
            (true, Phase::Stopping { .. }) => Standing::Leaving,
            (true, _) => Standing::Resting,
        }
    }
}

/// The head of the account whose turn it is.
fn first_of<'a>(heads: impl Iterator<Item = (&'a Node, &'a Head)>) -> Option<Head> {
    heads.map(|(node, head)| Turn::of(node, head)).min_by(Turn::compare).map(|turn| *turn.head)
}

/// When it is the turn of an account with a head, beside others.
struct Turn<'a> {
    node: &'a Node,
    head: &'a Head,
    beyond_share: bool,
    /// What would be borrowed with the head.
    borrowed: u64,
}

impl<'a> Turn<'a> {
    fn of(node: &'a Node, head: &'a Head) -> Self {
        let beyond_share = node.used.amounts[GPU] + head.asked > node.share;
        Self { node, head, beyond_share, borrowed: node.borrowed_with(head.asked) }
    }

    /// Within share first, then the smaller part borrowed for its weight, then the older head.
    fn compare(&self, other: &Self) -> Ordering {
        let age = |turn: &Self| (turn.head.submitted, turn.head.id);
        self.beyond_share
            .cmp(&other.beyond_share)
            .then_with(|| self.compare_borrowing(other))
            .then_with(|| age(self).cmp(&age(other)))
    }

    /// Compares what each would have borrowed for its weight; nothing borrowed is least whatever the weight.
    fn compare_borrowing(&self, other: &Self) -> Ordering {
        if self.borrowed == 0 || other.borrowed == 0 {
            return self.borrowed.cmp(&other.borrowed);
        }
        let product = |turn: &Self, by: &Self| u128::from(turn.borrowed) * u128::from(by.node.weight);
        product(self, other).cmp(&product(other, self))
    }
}
