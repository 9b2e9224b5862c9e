//! Brute force over sets of victims, for small states and for single nodes.

use crate::{
    claim::Claim,
    ledger::{Amounts, Ledger, workloads_of},
    room::{Room, View, accepts},
    tree::{Dimension, split},
};
use berth_types::{Account, Name, Node, Place, Span, State, Time, Workload, WorkloadId};
use std::collections::BTreeSet;

/// Brute force looks at no more nodes of a pool than this.
const NODES_MAX: usize = 6;
/// Brute force looks at no more unfinished workloads of a pool, and no more candidates, than this.
const WORKLOADS_MAX: usize = 12;

/// How the open ends of the rules are read. What is sure may be demanded of the engine; what is possible may be
/// forgiven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// No extras of workloads inside their minimum run time, and GPUs only for those who ask for some.
    Sure,
    /// Extras of everybody, and GPUs for everybody.
    Possible,
}

/// Whether the pool is small enough for brute force.
pub(crate) fn is_small(state: &State, pool: &Name) -> bool {
    let nodes = state.nodes.values().filter(|node| node.pool() == *pool);
    nodes.count() <= NODES_MAX && workloads_of(state, pool).count() <= WORKLOADS_MAX
}

/// Whether the workload ran for its project's minimum run time.
pub(crate) fn ran_long_enough(state: &State, workload: &Workload, since: Time, now: Time) -> bool {
    let project = state.projects.get(&workload.spec.project);
    let minimum = project.map_or(Span::ZERO, |project| project.min_run);
    now.since(since) >= minimum
}

/// Whether the workload can be a victim of anybody at all.
fn is_takeable(state: &State, workload: &Workload, now: Time) -> bool {
    workload.spec.preemptible
        && workload
            .running_since()
            .is_some_and(|since| since != now && ran_long_enough(state, workload, since, now))
}

/// Whether extras of the workload can be taken.
pub(crate) fn has_takeable_extras(state: &State, workload: &Workload, now: Time, reading: Reading) -> bool {
    workload.running_since().is_some_and(|since| {
        reading == Reading::Possible || (since != now && ran_long_enough(state, workload, since, now))
    })
}

/// The decided room of a state after all extras that can be taken were taken.
pub(crate) fn room_without_extras<'a>(
    state: &'a State,
    pool: &Name,
    now: Time,
    reading: Reading,
) -> Room<'a> {
    let mut room = Room::of(state, View::Decided);
    for workload in workloads_of(state, pool) {
        if has_takeable_extras(state, workload, now, reading) {
            workload.extra_places().for_each(|place| room.give(place));
        }
    }
    room
}

/// Whether no extras keep the claimant from starting below its limits, or all of them can surely be taken.
pub(crate) fn extras_make_way(ledger: &Ledger<'_>, claim: &Claim, now: Time) -> bool {
    claim.limit_findings(ledger, true).is_empty()
        || workloads_of(ledger.state, &ledger.pool)
            .filter(|workload| workload.extra_places().next().is_some())
            .all(|workload| has_takeable_extras(ledger.state, workload, now, Reading::Sure))
}

/// One dimension of one level in which victims may be taken, with what each victim contributes to it.
struct Excess {
    quota: u64,
    used: u64,
    parts: Vec<u64>,
}

impl Excess {
    fn left(&self, mask: usize) -> u64 {
        let parts = self.parts.iter().enumerate();
        let taken: u64 = parts.filter(|(i, _)| mask & (1 << i) != 0).map(|(_, part)| part).sum();
        self.used.saturating_sub(taken)
    }

    /// What is left when the largest victim is taken last, just before it is.
    fn left_before_largest(&self) -> u64 {
        let largest = self.parts.iter().copied().max().unwrap_or(0);
        self.used.saturating_sub(self.parts.iter().sum()) + largest
    }

    fn was_above(&self) -> bool {
        self.used > self.quota
    }
}

/// One account from which victims may be taken.
struct Level {
    account: Account,
    excesses: Vec<Excess>,
    /// Positions of the victims below it.
    members: Vec<usize>,
}

impl Level {
    fn is_touched_by(&self, mask: usize) -> bool {
        self.members.iter().any(|member| mask & (1 << member) != 0)
    }
}

/// Victims and the accounts their taking must leave above quota until the last is taken.
pub(crate) struct Bench<'a> {
    pub(crate) victims: Vec<&'a Workload>,
    levels: Vec<Level>,
}

impl<'a> Bench<'a> {
    /// Sets up the accounts of all victims of other projects; a victim of the claimant's own project has none.
    pub(crate) fn new(
        ledger: &Ledger<'_>,
        claim: &Claim,
        victims: Vec<&'a Workload>,
        reading: Reading,
    ) -> Self {
        let chains: Vec<Vec<Account>> = victims
            .iter()
            .map(|victim| split(&claim.path, &ledger.tree.path(victim.spec.project)).1)
            .collect();
        let amounts: Vec<Amounts> =
            victims.iter().map(|victim| Amounts::of(ledger.state, victim.base_places())).collect();
        let accounts: BTreeSet<Account> = chains.iter().flatten().copied().collect();
        let asked = |dimension: &Dimension| match dimension {
            Dimension::Gpus if reading == Reading::Possible => true,
            dimension => claim.get(dimension) > 0,
        };
        let dimensions: Vec<Dimension> = claim.dimensions().into_iter().filter(asked).collect();
        let level = |account: Account| Level {
            account,
            members: (0..victims.len()).filter(|i| chains[*i].contains(&account)).collect(),
            excesses: dimensions
                .iter()
                .filter_map(|dimension| {
                    let part = |i: usize| {
                        let member = chains[i].contains(&account);
                        if member { amounts[i].get(dimension) } else { 0 }
                    };
                    Some(Excess {
                        quota: ledger.tree.quota_in(account, dimension)?,
                        used: ledger.used(account, dimension),
                        parts: (0..victims.len()).map(part).collect(),
                    })
                })
                .collect(),
        };
        let levels =
            accounts.into_iter().filter(|account| ledger.tree.has_quota(*account)).map(level).collect();
        Self { victims, levels }
    }

    /// The set of all victims, when they are few.
    pub(crate) fn all(&self) -> usize {
        (1 << self.victims.len()) - 1
    }

    /// Whether one more victim may be taken after those of `mask`: each of its levels is still above quota.
    fn may_follow(&self, victim: usize, mask: usize) -> bool {
        let mut own = self.levels.iter().filter(|level| level.members.contains(&victim));
        own.all(|level| {
            let mut excesses = level.excesses.iter();
            excesses.any(|excess| excess.left(mask) > excess.quota)
        })
    }

    /// For every set of victims, whether it may be taken in some order.
    fn takeable_sets(&self) -> Vec<bool> {
        let mut takeable = vec![true; self.all() + 1];
        for mask in 1..takeable.len() {
            takeable[mask] = (0..self.victims.len()).any(|last| {
                let others = mask & !(1 << last);
                others != mask && takeable[others] && self.may_follow(last, others)
            });
        }
        takeable
    }

    /// Whether all victims may be taken in some order; if not, the account that forbids it.
    pub(crate) fn refusal(&self) -> Option<Account> {
        if self.victims.len() <= WORKLOADS_MAX {
            let refused = !self.takeable_sets()[self.all()];
            let first = self.levels.iter().find(|level| !largest_may_be_last(level));
            return refused.then(|| first.or(self.levels.first()).map(|level| level.account)).flatten();
        }
        let level = self.levels.iter().find(|level| !largest_may_be_last(level))?;
        Some(level.account)
    }

    /// An account that taking the set leaves below quota in everything in which it was above: surely straddled.
    pub(crate) fn straddled(&self, mask: usize) -> Option<Account> {
        let touched = self.levels.iter().filter(|level| level.is_touched_by(mask));
        touched
            .filter(|level| {
                let mut above = level.excesses.iter().filter(|excess| excess.was_above());
                above.all(|excess| excess.left(mask) < excess.quota)
            })
            .map(|level| level.account)
            .next()
    }

    /// Whether every account stays at or above quota in everything in which it was above.
    pub(crate) fn stays_above(&self, mask: usize) -> bool {
        let touched = self.levels.iter().filter(|level| level.is_touched_by(mask));
        touched
            .flat_map(|level| &level.excesses)
            .filter(|excess| excess.was_above())
            .all(|excess| excess.left(mask) >= excess.quota)
    }
}

/// Whether the level is above quota before its largest victim is taken last.
fn largest_may_be_last(level: &Level) -> bool {
    let mut excesses = level.excesses.iter();
    excesses.any(|excess| excess.left_before_largest() > excess.quota)
}

/// A set of victims that suffices.
#[derive(Debug, Clone)]
pub(crate) struct Sufficient {
    pub(crate) victims: Vec<WorkloadId>,
    /// Whether every level stays at or above quota.
    pub(crate) clean: bool,
}

/// Workloads that the claimant may take by quota reclaim or preemption, one by one.
fn candidates<'a>(ledger: &Ledger<'a>, claim: &Claim, claimant: &Workload, now: Time) -> Vec<&'a Workload> {
    ledger
        .state
        .workloads
        .values()
        .filter(|victim| victim.spec.pool == claimant.spec.pool)
        .filter(|victim| is_takeable(ledger.state, victim, now))
        .filter(|victim| {
            if victim.spec.project == claimant.spec.project {
                return victim.spec.priority < claimant.spec.priority;
            }
            let (upper, _) = split(&claim.path, &ledger.tree.path(victim.spec.project));
            upper.iter().all(|account| claim.within_quota_at(ledger, *account))
        })
        .collect()
}

/// The set with the fewest victims after which the claimant fits, among those that leave every level at or above
/// quota if there is one, among all otherwise. Nothing when none exists or the pool is too large.
pub(crate) fn smallest_set(
    ledger: &Ledger<'_>,
    claim: &Claim,
    claimant: &Workload,
    now: Time,
    reading: Reading,
) -> Option<Sufficient> {
    smallest_set_among(ledger, claim, claimant, now, reading, |_| true)
}

/// The same of some victims only.
pub(crate) fn smallest_set_among(
    ledger: &Ledger<'_>,
    claim: &Claim,
    claimant: &Workload,
    now: Time,
    reading: Reading,
    among: impl Fn(&Workload) -> bool,
) -> Option<Sufficient> {
    if !is_small(ledger.state, &claimant.spec.pool) {
        return None;
    }
    let room = room_without_extras(ledger.state, &claimant.spec.pool, now, reading);
    let mut victims = candidates(ledger, claim, claimant, now);
    victims.retain(|victim| among(victim));
    // Capacity is all that victims are taken for here, so those on other nodes only cost time.
    victims.retain(|victim| {
        victim.base_places().any(|place| {
            let node = ledger.state.nodes.get(&place.node);
            node.is_some_and(|node| accepts(ledger.state, claimant, node))
        })
    });
    let bench = Bench::new(ledger, claim, victims, reading);
    search(&bench, &room, |_| true, |room| room.fits(claimant))
}

/// A set of victims on one node after which the one task of the claimant fits there.
pub(crate) fn set_on_one_node(
    ledger: &Ledger<'_>,
    claim: &Claim,
    claimant: &Workload,
    now: Time,
) -> Option<Sufficient> {
    if claimant.spec.tasks.min() != 1 {
        return None;
    }
    let room = room_without_extras(ledger.state, &claimant.spec.pool, now, Reading::Sure);
    let all = candidates(ledger, claim, claimant, now);
    let mut nodes = ledger.state.nodes.values();
    nodes.find_map(|node| {
        if !accepts(ledger.state, claimant, node) || crate::room::domain(claimant, node).is_none() {
            return None;
        }
        let on_node = |place: &&Place| place.node == node.id;
        let gpus_here = |victim: &Workload| -> u64 {
            victim.base_places().filter(on_node).map(|place| place.gpus().0).sum()
        };
        let mut victims = all.clone();
        victims.retain(|victim| victim.base_places().any(|place| on_node(&place)));
        // The largest suffice soonest; leaving out the others can only miss a witness.
        victims.sort_by_key(|victim| std::cmp::Reverse(gpus_here(victim)));
        victims.truncate(WORKLOADS_MAX);
        let bench = Bench::new(ledger, claim, victims, Reading::Sure);
        let fits = |room: &Room<'_>| fits_on(room, node, claimant);
        search(&bench, &room, |place| place.node == node.id, fits)
    })
}

fn fits_on(room: &Room<'_>, node: &Node, claimant: &Workload) -> bool {
    room.copies(node, &claimant.spec.request) >= 1
}

/// Tries every set that may be taken, fewest victims first, clean sets before others.
fn search(
    bench: &Bench<'_>,
    room: &Room<'_>,
    counts: impl Fn(&Place) -> bool,
    fits: impl Fn(&Room<'_>) -> bool,
) -> Option<Sufficient> {
    let enough = |mask: usize| {
        let mut room = room.clone();
        for (i, victim) in bench.victims.iter().enumerate() {
            if mask & (1 << i) != 0 {
                let places = victim.base_places().filter(|place| counts(place));
                places.for_each(|place| room.give(place));
            }
        }
        fits(&room)
    };
    // When not even all of them suffice, no set does, and that is the common case.
    if !enough(bench.all()) {
        return None;
    }
    let takeable = bench.takeable_sets();
    let mut best: Option<(bool, u32, usize)> = None;
    for (mask, _) in takeable.iter().enumerate().filter(|(_, takeable)| **takeable) {
        let cost = (!bench.stays_above(mask), mask.count_ones(), mask);
        if best.is_none_or(|best| cost < best) && enough(mask) {
            best = Some(cost);
        }
    }
    best.map(|(straddles, _, mask)| Sufficient {
        victims: (0..bench.victims.len())
            .filter(|i| mask & (1 << i) != 0)
            .map(|i| bench.victims[i].id)
            .collect(),
        clean: !straddles,
    })
}
