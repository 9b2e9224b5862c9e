//! Clearings: every set of workloads that could be moved out of the way, alone or beside what is evicted for a guarantee.

use super::{
    layouts::places_of_task,
    running,
    takings::{Search, members},
};
use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Ledger, reserved_by_others},
    room::{Room, View},
    search::ran_long_enough,
    taking::Group,
};
use berth_types::{Account, Action, EvictRule, Gpus, Place, Policy, State, Time, Workload, WorkloadId};
use std::rc::Rc;

/// Moves that make room, and what is evicted beside them.
pub(super) struct Clearing {
    moved: Vec<WorkloadId>,
    evicted: Vec<WorkloadId>,
    /// GPU-milliseconds that the moves destroy.
    cost: u128,
}

impl Clearing {
    pub(super) fn text(&self) -> String {
        let Self { moved, evicted, cost } = self;
        format!("to move {moved:?} and to evict {evicted:?} at a cost of {cost}")
    }
}

/// A set of moves that the rules allow for a waiting workload, if there is one: of moves alone the cheapest.
pub(super) fn first(policy: &Policy, state: &State, claimant: &Workload, now: Time) -> Option<Clearing> {
    let search = MoveSearch::new(policy, state, claimant, now)?;
    search.cheapest(&[]).or_else(|| search.beside_evictions())
}

/// Whether no cheaper set of moves would have done.
pub(super) fn check_cheapest(
    policy: &Policy,
    before: &State,
    taken: &[Action],
    winner: &Workload,
    now: Time,
) -> Vec<Finding> {
    if !taken.iter().all(|action| matches!(action, Action::Move { .. })) {
        return Vec::new();
    }
    let Some(search) = MoveSearch::new(policy, before, winner, now) else { return Vec::new() };
    let moved: Vec<&Workload> =
        taken.iter().filter_map(|action| before.workloads.get(&action.workload())).collect();
    let cost: u128 = moved.iter().map(|own| search.cost_of(own)).sum();
    let cheapest = search.cheapest(&[]);
    let cheaper = cheapest.filter(|other| (other.cost, other.moved.len()) < (cost, moved.len()));
    let text = |other: Clearing| {
        let moved: Vec<WorkloadId> = moved.iter().map(|own| own.id).collect();
        format!(
            "workload {} moves {moved:?} at a cost of {cost}, where it would do {}",
            winner.id,
            other.text()
        )
    };
    cheaper.map(|other| Finding::new(Rule::CheapestMoves, text(other))).into_iter().collect()
}

struct MoveSearch<'a> {
    search: Search<'a>,
    /// Whether the claimant is within quota, so that a move keeps a guarantee.
    guaranteed: bool,
}

impl<'a> MoveSearch<'a> {
    /// Nothing where the policy or the workload allow no moves.
    fn new(policy: &'a Policy, state: &'a State, claimant: &'a Workload, now: Time) -> Option<Self> {
        let pool = &claimant.spec.pool;
        let ledger = Ledger::new(state, pool);
        let claim = Claim::waiting(&ledger, claimant);
        let guaranteed = claim.within_quota(&ledger);
        let patient = guaranteed || now.since(claimant.waits_since()) >= policy.patience;
        let allowed = policy.moves
            && patient
            && claimant.is_queued()
            && claimant.spec.tasks.min() == 1
            && claim.gpus() > 0
            && !reserved_by_others(state, pool, claimant)
            && !Room::of(state, View::Decided).fits(claimant);
        let search = Search { policy, state, claimant, now, before: Rc::new(state.clone()) };
        allowed.then_some(Self { search, guaranteed })
    }

    /// Work that may be moved: preemptible, of one task, out of its minimum run time; without a guarantee also out of the
    /// patience, and of a project that borrows or the claimant's own.
    fn movable(&self) -> Vec<&'a Workload> {
        let Search { policy, state, claimant, now, .. } = self.search;
        let ledger = Ledger::new(state, &claimant.spec.pool);
        let may_move = |own: &&Workload| {
            let Some(since) = own.running_since() else { return false };
            let account = Account::Project(own.spec.project);
            let disturbs = own.spec.project == claimant.spec.project
                || ledger.used_gpus(account) > ledger.tree.quota(account).0;
            own.spec.preemptible
                && own.spec.tasks.max() == 1
                && own.leaving().is_empty()
                && since != now
                && ran_long_enough(state, own, since, now)
                && (self.guaranteed || disturbs && now.since(since) >= policy.patience)
        };
        running(state, claimant).filter(may_move).collect()
    }

    fn cost_of(&self, own: &Workload) -> u128 {
        let Search { policy, now, .. } = self.search;
        let gpus: Gpus = own.places().map(Place::gpus).sum();
        let restart = u128::from(gpus.0) * u128::from(policy.restart_cost.0) / u128::from(Gpus::SCALE);
        own.work_lost(now, policy.lost_cap) + restart
    }

    /// Whether the wait has outgrown a cost.
    fn is_worth(&self, cost: u128) -> bool {
        let Search { state, claimant, now, .. } = self.search;
        let ledger = Ledger::new(state, &claimant.spec.pool);
        let asked = Claim::waiting(&ledger, claimant).gpus();
        let waited = now.since(claimant.waits_since());
        u128::from(asked) * u128::from(waited.0) / u128::from(Gpus::SCALE) > cost
    }

    /// The cheapest set of moves that makes room once these are gone, if it is worth its cost.
    fn cheapest(&self, gone: &[&Workload]) -> Option<Clearing> {
        let movable: Vec<&Workload> =
            self.movable().into_iter().filter(|own| gone.iter().all(|other| other.id != own.id)).collect();
        let cost = |set: usize| members(&movable, set).map(|own| self.cost_of(own)).sum::<u128>();
        let mut sets: Vec<(u128, u32, usize)> =
            (1..1 << movable.len()).map(|set: usize| (cost(set), set.count_ones(), set)).collect();
        sets.sort_unstable();
        sets.retain(|(cost, _, _)| self.is_worth(*cost));
        let (cost, _, set) = sets
            .into_iter()
            .find(|(_, _, set)| self.makes_room(gone, &members(&movable, *set).collect::<Vec<_>>()))?;
        let ids = |all: Vec<&Workload>| all.iter().map(|own| own.id).collect();
        Some(Clearing { moved: ids(members(&movable, set).collect()), evicted: ids(gone.to_vec()), cost })
    }

    /// Sets of moves beside victims of a claim within quota.
    fn beside_evictions(&self) -> Option<Clearing> {
        if !self.guaranteed {
            return None;
        }
        let candidates = self.search.candidates(EvictRule::QuotaReclaim);
        (1..1_usize << candidates.len()).find_map(|set| {
            let gone: Vec<&Workload> = members(&candidates, set).collect();
            let taken = gone.iter().map(|own| self.search.eviction(EvictRule::QuotaReclaim, own)).collect();
            let group = Group { before: Rc::clone(&self.search.before), taken };
            let clearing = self.cheapest(&gone)?;
            let after = self.search.after(&group)?;
            let claimant = self.search.claimant;
            // Where it goes does not matter for its rights: worlds with moves have one model.
            let node = after.nodes.values().find(|node| crate::room::accepts(&after, claimant, node))?;
            let empty = Room::empty(&after);
            let place = places_of_task(&after, &empty, claimant, 0)
                .into_iter()
                .find(|place| place.node == node.id)?;
            self.search.has_rights(&group, &after, &[place]).then_some(clearing)
        })
    }

    /// Whether the claimant and all of these have places, other ones than they have now, once those that go are gone; and
    /// whether they can be moved one after the other.
    fn makes_room(&self, gone: &[&Workload], moved: &[&Workload]) -> bool {
        let Search { state, claimant, .. } = self.search;
        let mut room = Room::of(state, View::Decided);
        gone.iter().flat_map(|own| own.places()).for_each(|place| room.give(place));
        let start = room.clone();
        moved.iter().flat_map(|own| own.places()).for_each(|place| room.give(place));
        // Moved workloads leave the node on which the claimant starts. Chains of moves over several nodes are not tried.
        let is_in_the_way =
            |place: &Place| moved.iter().all(|own| own.places().all(|at| at.node == place.node));
        places_of_task(state, &room, claimant, 0).into_iter().filter(is_in_the_way).any(|place| {
            let mut room = room.clone();
            room.take(&place);
            let rights = gone.is_empty().then(|| {
                let group = Group { before: Rc::clone(&self.search.before), taken: Vec::new() };
                self.search.has_rights(&group, state, std::slice::from_ref(&place))
            });
            rights.unwrap_or(true) && house(state, &mut room, moved, &mut Vec::new(), &start)
        })
    }
}

/// Whether all of these have other places in what is free.
fn house(
    state: &State,
    room: &mut Room<'_>,
    moved: &[&Workload],
    places: &mut Vec<Place>,
    start: &Room<'_>,
) -> bool {
    let Some(own) = moved.get(places.len()) else { return one_after_the_other(start, moved, places) };
    let is_at = own.places().next().expect("what runs has a place");
    for place in places_of_task(state, room, own, 0) {
        if place.node == is_at.node && place.devices == is_at.devices {
            continue;
        }
        room.take(&place);
        places.push(place);
        let housed = house(state, room, moved, places, start);
        let place = places.pop().expect("was just pushed");
        room.give(&place);
        if housed {
            return true;
        }
    }
    false
}

/// Whether there is an order in which each finds its place free when its turn comes.
fn one_after_the_other(start: &Room<'_>, moved: &[&Workload], places: &[Place]) -> bool {
    let mut room = start.clone();
    let mut left: Vec<usize> = (0..moved.len()).collect();
    while !left.is_empty() {
        let next = left.iter().position(|at| {
            let mut room = room.clone();
            moved[*at].places().for_each(|place| room.give(place));
            room.holds(std::slice::from_ref(&places[*at]))
        });
        let Some(next) = next else { return false };
        let at = left.remove(next);
        moved[at].places().for_each(|place| room.give(place));
        room.take(&places[at]);
    }
    true
}
