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
    num::NonZeroU32,
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

    /// Which workload it is.
    pub(crate) fn workload(&self) -> WorkloadId {
        self.id
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
struct Contest {
    /// By position in the tree.
    best: Vec<Option<Head>>,
    /// The child whose head is the best of a department; of no meaning where there is none.
    best_child: Vec<u32>,
    /// Accounts that must be looked at again.
    stale: Marks,
    /// Accounts all of whose children must be compared again, not only those that changed.
    unordered: Vec<bool>,
    /// Those of the children of an account that were looked at since it was: the last for the account, and the one before
    /// for each child.
    fresh: Vec<(Option<NonZeroU32>, Option<NonZeroU32>)>,
}

/// Some accounts: a bit for each, by position in the tree.
#[derive(Clone, Debug, Default)]
struct Marks {
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
        self.fresh.resize(accounts, (None, None));
    }

    /// Who is first below an account.
    fn at(&self, position: u32) -> Option<Head> {
        self.best.get(position as usize).copied().flatten()
    }

    /// A child of an account was looked at.
    fn note_fresh(&mut self, parent: u32, child: u32) {
        // No child is the root, which is at position 0.
        let last =
            self.fresh[parent as usize].0.replace(NonZeroU32::new(child).expect("a child is not the root"));
        self.fresh[child as usize].1 = last;
    }

    /// The children of an account that were looked at since it was.
    fn fresh(&self, parent: u32) -> impl Iterator<Item = u32> {
        let last = self.fresh[parent as usize].0;
        std::iter::successors(last, |child| self.fresh[child.get() as usize].1).map(NonZeroU32::get)
    }

    /// An account must be looked at again, with everything below it.
    fn mark(&mut self, account: u32) {
        self.stale.insert(account);
        if let Some(unordered) = self.unordered.get_mut(account as usize) {
            *unordered = true;
        }
    }
}

/// Who is first while one set of classes fits.
#[derive(Clone, Debug, Default)]
struct Contests {
    fitting: Vec<u32>,
    /// Of those who fit.
    fits: Contest,
    /// Of those who must take something.
    takes: Contest,
    /// How much it has seen of the logs of changed projects and of changed claims.
    changed_seen: usize,
    claims_seen: usize,
    /// Grows with every use, so that the set is forgotten that was not met for longest.
    used: u64,
}

impl Contests {
    fn mark(&mut self, account: u32) {
        self.fits.mark(account);
        self.takes.mark(account);
    }
}

/// What fits changes back and forth while evictions leave gaps that the next start fills; so many sets are remembered.
const SETS_REMEMBERED: usize = 64;

/// What changed is remembered for so many times the number of accounts, so that a set that comes back is not begun anew.
const CHANGES_REMEMBERED: usize = 16;

/// Heads by position in the tree, and what must be looked at again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    /// For each set of classes that fitted, and how often any was used.
    contests: Vec<Contests>,
    contests_used: u64,
    /// Classes that fit, in order.
    fitting: Vec<u32>,
    /// Classes that are being looked at; kept so that looking needs no memory of its own.
    candidates: Vec<u32>,
    /// Projects whose heads must be looked at again, and those of which only a claim was opened or closed.
    changed: ChangeLog,
    claims: ChangeLog,
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
        self.heads.changed.push(project, CHANGES_REMEMBERED * self.tree.nodes.len());
    }

    /// Who of a project is first to take must be looked at again.
    pub(crate) fn mark_claim(&mut self, project: u32) {
        self.heads.claims.push(project, CHANGES_REMEMBERED * self.tree.nodes.len());
    }

    /// All heads and all claims must be looked at again.
    pub(crate) fn mark_all_heads(&mut self) {
        self.heads.all_stale = true;
    }

    /// What goes next, if anything may.
    pub(crate) fn next_head(&mut self) -> Option<Next> {
        if std::mem::take(&mut self.heads.all_stale) {
            self.reopen_all();
            self.heads.contests.clear();
        }
        self.reopen_entitled();
        let at = self.contests_of_fitting();
        let mut contests = std::mem::take(&mut self.heads.contests[at]);
        let takes = self.settle(&mut contests.takes, Self::taking_head);
        // What was closed on the way was so for those who were just looked at.
        contests.claims_seen = self.heads.claims.end();
        let fits = match self.heads.fitting.is_empty() {
            true => None,
            false => self.settle(&mut contests.fits, Self::fitting_head),
        };
        let next = self.choose(fits, takes, &contests.takes);
        self.heads.contests[at] = contests;
        next
    }

    fn projects_with_waiting(&self) -> impl Iterator<Item = u32> {
        let queues = self.queues.iter().enumerate();
        queues.filter(|(_, queue)| !queue.nobody_waits()).map(|(position, _)| position as u32)
    }

    /// Chooses between the best that fits and the best that takes. One that must take goes before those behind it in
    /// the queue of its project, and before others where it is compared with them.
    fn choose(&self, fits: Option<Head>, takes: Option<Head>, contest: &Contest) -> Option<Next> {
        let (Some(fits), Some(takes)) = (fits, takes) else {
            return fits.map(|head| Next::Fits(head.slot)).or(takes.map(|head| Next::Takes(head.slot)));
        };
        let (fitting, taking) = (self.entry(fits.slot).project, self.entry(takes.slot).project);
        // Inside a project its queue decides. By their turns one that asks for less would go first, but only where it is
        // known already that nobody before it can take anything.
        if fitting == taking {
            let first = takes.in_queue() < fits.in_queue();
            return Some(if first { Next::Takes(takes.slot) } else { Next::Fits(fits.slot) });
        }
        let (one, other) = self.tree.below_common(fitting, taking);
        let turns = (Turn::of(self.tree.at(one), &fits), Turn::of(self.tree.at(other), &takes));
        if turns.0.compare(&turns.1) == Ordering::Greater {
            return Some(Next::Takes(takes.slot));
        }
        match contest.at(fitting) {
            Some(before) if before.in_queue() < fits.in_queue() => Some(Next::Takes(before.slot)),
            _ => Some(Next::Fits(fits.slot)),
        }
    }

    /// Where the contests of the classes that fit now are; all that changed since they were used is to be looked at again.
    fn contests_of_fitting(&mut self) -> usize {
        let known = self.heads.contests.iter().position(|known| known.fitting == self.heads.fitting);
        let at = match known {
            Some(at) => at,
            None => self.remember(self.contests_beside_known()),
        };
        let Heads { contests, contests_used, changed, claims, .. } = &mut self.heads;
        *contests_used += 1;
        contests[at].used = *contests_used;
        let logs = (changed.since(contests[at].changed_seen), claims.since(contests[at].claims_seen));
        if let (Some(changed), Some(claims)) = logs {
            changed.iter().for_each(|project| contests[at].mark(*project));
            claims.iter().for_each(|project| contests[at].takes.mark(*project));
            self.heads.contests[at].changed_seen = self.heads.changed.end();
        } else {
            let used = *contests_used;
            self.heads.contests[at] = Contests { used, ..self.contests_anew() };
        }
        at
    }

    /// Remembers contests, instead of those that were not used for longest if there are too many; says where they are.
    fn remember(&mut self, new: Contests) -> usize {
        let contests = &mut self.heads.contests;
        if contests.len() < SETS_REMEMBERED {
            contests.push(new);
            return contests.len() - 1;
        }
        let by_use = contests.iter_mut().enumerate().min_by_key(|(_, known)| known.used);
        let (at, oldest) = by_use.expect("many sets are remembered");
        *oldest = new;
        at
    }

    fn contests_anew(&self) -> Contests {
        let anew = || Contest::anew(self.tree.nodes.len(), self.projects_with_waiting());
        Contests {
            fitting: self.heads.fitting.clone(),
            fits: anew(),
            takes: anew(),
            changed_seen: self.heads.changed.end(),
            claims_seen: self.heads.claims.end(),
            used: 0,
        }
    }

    /// The contests of the classes that fit now, from those of the most similar set that is known: only who was first by
    /// what came or went, or might be by it now, must be looked at again.
    fn contests_beside_known(&self) -> Contests {
        let fitting = &self.heads.fitting;
        let known = self.heads.contests.iter();
        let Some(nearest) = known.min_by_key(|known| differing(&known.fitting, fitting).count()) else {
            return self.contests_anew();
        };
        let mut contests = Contests { fitting: fitting.clone(), ..nearest.clone() };
        let differing = differing(&nearest.fitting, fitting);
        let (came, went): (Vec<u32>, Vec<u32>) =
            differing.partition(|class| fitting.binary_search(class).is_ok());
        for project in self.projects_with_waiting() {
            if contests.fits.at(project).is_some_and(|head| went.contains(&head.class)) {
                contests.fits.mark(project);
            }
            if contests.takes.at(project).is_some_and(|head| came.contains(&head.class)) {
                contests.takes.mark(project);
            }
            // Who is still leaving may start, and is no first that is ready.
            if !came.is_empty() && self.queues[project as usize].someone_rests() {
                contests.fits.mark(project);
            }
        }
        for (_, project) in came.iter().flat_map(|class| &self.classes[*class as usize].firsts) {
            contests.fits.mark(*project);
        }
        for (key, project) in went.iter().flat_map(|class| &self.classes[*class as usize].firsts) {
            let key = (key.0, key.1, key.2);
            if nearest.takes.at(*project).is_none_or(|head| key < head.in_queue()) {
                contests.takes.mark(*project);
            }
        }
        contests
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
            // An account above compares what this one uses too, so an unchanged head is no reason to stop.
            if position != ROOT {
                let parent = self.tree.at(position).parent;
                contest.note_fresh(parent, position);
                contest.stale.insert(parent);
            }
        }
        contest.at(ROOT)
    }

    /// Whose turn it is below a department. Those who were not looked at again stand to each other as before, so unless the
    /// first of them is among the others, it is compared with the others only.
    fn best_of_children(&self, contest: &mut Contest, position: u32) -> Option<Head> {
        let at = position as usize;
        let first = contest.best_child[at];
        let none = contest.best[at].is_none();
        let all = contest.unordered[at] || none || contest.fresh(position).any(|child| child == first);
        let mut best: Option<(u32, Turn<'_>)> = None;
        let mut compare = |child: u32| {
            let Some(head) = contest.best[child as usize].as_ref() else { return };
            let turn = Turn::of(self.tree.at(child), head);
            if best.as_ref().is_none_or(|(_, before)| turn.compare(before) == Ordering::Less) {
                best = Some((child, turn));
            }
        };
        if all {
            self.tree.at(position).children.iter().copied().for_each(&mut compare);
        } else {
            std::iter::once(first).chain(contest.fresh(position)).for_each(&mut compare);
        }
        let found = best.map(|(child, turn)| (child, *turn.head));
        contest.fresh[at].0 = None;
        let (child, head) = found?;
        contest.best_child[at] = child;
        Some(head)
    }

    /// The first in the queue of a project that fits and may start.
    fn fitting_head(&mut self, project: u32) -> Option<Head> {
        let mut at = 0;
        while let Some(class) = self.queues[project as usize].class_at(at) {
            if self.classes[class as usize].fits && self.may_start(project, at) {
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
        let may_start = self.barrier(&self.ask(project, class)).is_none();
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
            let class = self.queues[project as usize].class_at(at).expect("an open claim is of a first");
            if self.classes[class as usize].fits && self.may_start(project, at) {
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
        }
        self.heads.candidates = candidates;
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

    /// Whether the order of starts puts one head before that of another project.
    pub(crate) fn goes_before(&self, one: &Head, other: &Head) -> bool {
        let (first, second) =
            self.tree.below_common(self.entry(one.slot).project, self.entry(other.slot).project);
        let turns = (Turn::of(self.tree.at(first), one), Turn::of(self.tree.at(second), other));
        turns.0.compare(&turns.1) == Ordering::Less
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

/// What is in one of two ordered sets and not in the other.
fn differing(one: &[u32], other: &[u32]) -> impl Iterator<Item = u32> {
    let (mut one, mut other) = (one.iter().copied().peekable(), other.iter().copied().peekable());
    std::iter::from_fn(move || {
        loop {
            return match (one.peek(), other.peek()) {
                (Some(a), Some(b)) if a == b => {
                    one.next();
                    other.next();
                    continue;
                }
                (Some(a), Some(b)) if a > b => other.next(),
                (Some(_), _) => one.next(),
                (None, _) => other.next(),
            };
        }
    })
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
