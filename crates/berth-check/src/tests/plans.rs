//! Growing, moving, ending, and plans that cannot happen.

use super::build::*;
use crate::{Rule, check_plan};
use StartBasis::Quota;
use berth_types::*;

fn grow(places: impl IntoIterator<Item = Place>) -> Action {
    Action::Grow { workload: WorkloadId(1), places: places.into_iter().collect() }
}

fn growing(waiting: Workload) -> State {
    state(
        [node(1, 4)],
        [project(1, quota(1)), project(2, quota(2))],
        [run(elastic(train(1, 1, 1), 1, 3), [place(0, 1, [0])]), waiting],
    )
}

#[test]
fn extras_grow_on_what_nobody_can_use() {
    let action = || grow([place(1, 1, [1])]);
    assert_eq!(broken(&growing(train(2, 2, 4)), [action()]), []);
    assert_eq!(broken(&growing(train(2, 2, 2)), [action()]), [Rule::Grow]);
}

#[test]
fn extras_are_bounded_by_tasks_room_limit_and_weight() {
    let all = growing(train(2, 2, 4));
    let too_many = grow([place(1, 1, [1]), place(2, 1, [2]), place(3, 1, [3])]);
    assert_eq!(broken(&all, [too_many]), [Rule::Ranks, Rule::Gang]);
    let occupied = grow([place(1, 1, [0])]);
    assert_eq!(broken(&all, [occupied]), [Rule::DeviceCapacity, Rule::StartBeforeFree]);
    let mut limited = all.clone();
    let own = limited.projects.get_mut(&ProjectId(1)).unwrap();
    own.entitlements.get_mut(&default_pool()).unwrap().limit = Some(Gpus::ONE);
    assert_eq!(broken(&limited, [grow([place(1, 1, [1])])]), [Rule::Limit]);
    let mut weightless = all;
    let own = weightless.projects.get_mut(&ProjectId(1)).unwrap();
    own.entitlements.get_mut(&default_pool()).unwrap().weight = Some(Gpus::ZERO);
    assert_eq!(broken(&weightless, [grow([place(1, 1, [1])])]), [Rule::Borrowing]);
}

#[test]
fn what_grows_is_not_shrunk_in_the_same_plan() {
    let all = growing(train(2, 2, 4));
    let found = broken(&all, [grow([place(1, 1, [1])]), shrink(1, &[1], 2)]);
    assert_eq!(found, [Rule::EvictionAtOnce, Rule::WinnerStarts]);
    let shrunk = with(run(elastic(train(1, 1, 1), 1, 3), [place(0, 1, [0])]), |own| own.evicted = Some(NOW));
    let mut all = growing(train(2, 2, 4));
    all.workloads.insert(shrunk);
    assert_eq!(broken(&all, [grow([place(1, 1, [1])])]), [Rule::RestartAtOnce]);
}

/// Two nodes of two: one workload on each, so that two GPUs are free but not together.
fn fragmented() -> State {
    state(
        [node(1, 2), node(2, 2)],
        [project(1, quota(2)), project(2, quota(2))],
        [run(train(1, 1, 1), [place(0, 1, [0])]), run(train(2, 1, 1), [place(0, 2, [0])]), train(3, 2, 2)],
    )
}

fn moved(workload: u64, places: Place, winner: Option<u64>) -> Action {
    Action::Move {
        workload: WorkloadId(workload),
        places: vec![places],
        winner: winner.map(WorkloadId),
        lost: 0,
    }
}

#[test]
fn a_move_makes_room_for_a_winner() {
    let all = fragmented();
    let winner = || hold(3, [place(0, 2, [0, 1])], Quota);
    let away = || moved(2, place(0, 1, [1]), Some(3));
    assert_eq!(broken(&all, [away(), winner()]), []);
    assert_eq!(broken(&all, [away()]), [Rule::WinnerStarts]);
    let onto_another = moved(2, place(0, 1, [0]), Some(3));
    assert_eq!(broken(&all, [onto_another, winner()]), [Rule::DeviceCapacity]);
    let policy = Policy { moves: false, ..Policy::default() };
    let found = check_plan(&policy, &all, &plan([away(), winner()]));
    assert_eq!(rules(found), [Rule::Move]);
    let mut fixed = fragmented();
    fixed.workloads.get_mut(&WorkloadId(2)).unwrap().spec.preemptible = false;
    assert_eq!(broken(&fixed, [away(), winner()]), [Rule::NotPreemptible]);
}

#[test]
fn a_move_for_a_borrower_comes_after_a_wait() {
    let waiting = |gpus| {
        let mut all = fragmented();
        all.projects.insert(ProjectId(2), project(2, quota(gpus)));
        all.workloads.get_mut(&WorkloadId(3)).unwrap().submitted = Time(NOW.0 - PATIENCE.0 + 1);
        all
    };
    let actions = |basis| [moved(2, place(0, 1, [1]), Some(3)), hold(3, [place(0, 2, [0, 1])], basis)];
    assert_eq!(broken(&waiting(2), actions(Quota)), []);
    assert_eq!(broken(&waiting(0), actions(StartBasis::FairShare)), [Rule::Patience]);
}

#[test]
fn a_leaver_moves_when_its_turn_comes() {
    let leaver = leaving(train(2, 1, 1), [place(0, 1, [0])]);
    let all = |waiting| {
        state([node(1, 2)], [project(1, quota(1)), project(2, quota(1))], [leaver.clone(), waiting])
    };
    let action = |winner| moved(2, place(0, 1, [1]), winner);
    assert_eq!(broken(&all(train(3, 2, 2)), [action(None)]), []);
    assert_eq!(broken(&all(train(3, 2, 2)), [action(Some(3))]), [Rule::WinnerStarts, Rule::Move]);
    // A workload that was submitted before it and fits as well has its turn first.
    let older = with(train(3, 2, 1), |own| own.submitted = Time(0));
    assert_eq!(broken(&all(older), [action(None)]), [Rule::StartOrder]);
}

#[test]
fn a_leaver_takes_only_after_the_instant_of_its_eviction() {
    let all = |evicted| {
        let leaver = leaving(train(2, 2, 1), [place(0, 1, [0])]);
        state(
            [node(1, 2)],
            [project(1, quota(0)), project(2, quota(1)), project(3, quota(1))],
            [
                with(leaver, |own| own.evicted = Some(evicted)),
                run(train(1, 1, 1), [place(0, 1, [1])]),
                with(fixed(train(3, 3, 1)), |own| {
                    own.phase =
                        Phase::Held { places: vec![place(0, 1, [0])], basis: None, leaving: Vec::new() };
                }),
            ],
        )
    };
    let taking = || [evict(1, 2, EvictRule::QuotaReclaim, 1), moved(2, place(0, 1, [1]), None)];
    assert_eq!(broken(&all(EARLIER), taking()), []);
    assert_eq!(broken(&all(NOW), taking()), [Rule::RestartAtOnce]);
}

#[test]
fn only_limits_that_have_passed_end_work() {
    let mut all = fragmented();
    let stop = |reason| Action::Stop { workload: WorkloadId(1), reason };
    assert_eq!(broken(&all, [stop(StopReason::TimeLimit)]), [Rule::Stop]);
    all.projects.get_mut(&ProjectId(1)).unwrap().time_limit = Some(Span::secs(10));
    assert_eq!(broken(&all, [stop(StopReason::TimeLimit)]), []);
    assert_eq!(broken(&all, [stop(StopReason::Idle)]), [Rule::Stop]);
}

#[test]
fn what_cannot_happen_is_found() {
    let all = fragmented();
    let action = Action::Unreserve { workload: WorkloadId(1) };
    assert_eq!(broken(&all, [action]), [Rule::Applicable]);
}
