//! Reservations and those who pass them.

use super::build::*;
use crate::{Rule, check_plan};
use StartBasis::{Idle, Reservation};
use berth_types::*;

/// Two nodes of four; project 1 has waited for a whole node since the beginning.
fn waiting<const W: usize>(others: [Workload; W]) -> State {
    let mut all = state(
        [node(1, 4), node(2, 4)],
        [project(1, quota(0)), project(2, quota(0)), project(3, quota(0))],
        others,
    );
    if !all.workloads.contains_key(&WorkloadId(9)) {
        all.workloads.insert(train(9, 1, 4));
    }
    all
}

fn full() -> [Workload; 2] {
    [run(train(1, 2, 1), [place(0, 1, [0])]), run(train(2, 2, 1), [place(0, 2, [0])])]
}

fn reserve() -> Action {
    Action::Reserve { workload: WorkloadId(9), places: vec![place(0, 1, 0..4)] }
}

#[test]
fn who_waited_long_gets_a_reservation() {
    assert_eq!(broken(&waiting(full()), [reserve()]), []);
    let late = with(train(9, 1, 4), |own| own.submitted = NOW);
    let [one, two] = full();
    assert_eq!(broken(&waiting([one, two, late]), [reserve()]), [Rule::Reservation]);
    // It fits on the second node.
    let [one, _] = full();
    assert_eq!(broken(&waiting([one]), [reserve()]), [Rule::Reservation]);
}

#[test]
fn reservations_are_few() {
    let [one, two] = full();
    let sibling = reserved(train(8, 1, 4), [place(0, 2, 0..4)]);
    let same_project = waiting([one.clone(), two.clone(), sibling]);
    assert_eq!(broken(&same_project, [reserve()]), [Rule::Reservation]);
    let other = reserved(train(8, 3, 4), [place(0, 2, 0..4)]);
    let other_project = waiting([one, two, other]);
    assert_eq!(broken(&other_project, [reserve()]), []);
    let policy = Policy { reservations_per_pool: 1, ..Policy::default() };
    let found = check_plan(&policy, &other_project, &plan([reserve()]));
    assert_eq!(rules(found), [Rule::Reservation]);
}

/// Workload 9 has node 1 reserved; workload 3 of project 3 may start on what is free.
fn with_reservation(third: Workload) -> State {
    let [one, two] = full();
    let own = reserved(train(9, 1, 4), [place(0, 1, 0..4)]);
    waiting([one, two, own, third])
}

fn start_third(node: u64, passing: bool) -> Action {
    Action::Start { workload: WorkloadId(3), places: vec![place(0, node, [1])], basis: Idle, passing }
}

#[test]
fn work_on_reserved_capacity_is_marked_as_passing() {
    let all = with_reservation(train(3, 3, 1));
    assert_eq!(broken(&all, [start_third(1, true)]), []);
    assert_eq!(broken(&all, [start_third(1, false)]), [Rule::PassingMark]);
    assert_eq!(broken(&all, [start_third(2, false)]), []);
    assert_eq!(broken(&all, [start_third(2, true)]), [Rule::PassingMark]);
}

#[test]
fn non_preemptible_work_keeps_off_reserved_capacity() {
    // Its project is above quota by preemptible work, so it starts on free capacity only.
    let mut all = with_reservation(fixed(train(3, 2, 1)));
    all.projects.insert(ProjectId(2), project(2, quota(1)));
    assert_eq!(broken(&all, [start_third(1, false)]), [Rule::ReservedCapacity]);
    assert_eq!(broken(&all, [start_third(2, false)]), []);
    // A reservation does not hold against work within quota.
    all.projects.insert(ProjectId(2), project(2, quota(3)));
    assert_eq!(broken(&all, [start_third(1, false)]), []);
}

#[test]
fn non_preemptible_work_passes_a_reservation_if_it_ends_before_those_in_its_way() {
    let mut all = with_reservation(fixed(train(3, 2, 1)));
    all.projects.insert(ProjectId(2), project(2, quota(1)));
    let passes = |all: &State, runs: Option<u64>, in_the_way: Option<Time>| {
        let mut all = all.clone();
        all.workloads.get_mut(&WorkloadId(3)).unwrap().spec.max_run = runs.map(Span);
        all.workloads.get_mut(&WorkloadId(1)).unwrap().spec.max_run =
            in_the_way.map(|end| end.since(EARLIER));
        let found = broken(&all, [start_third(1, false)]);
        assert!(found.is_empty() || found == [Rule::ReservedCapacity], "{found:?}");
        found.is_empty()
    };
    let end = NOW + Span(5_000);
    assert!(passes(&all, Some(5_000), Some(end)));
    assert!(!passes(&all, Some(5_001), Some(end)));
    assert!(!passes(&all, None, Some(end)));
    assert!(!passes(&all, Some(1), None));
    // Extras are in nobody's way, so the reservation can be filled at once.
    let extras = run(elastic(train(1, 2, 1), 1, 2), [place(0, 2, [1]), place(1, 1, [0])]);
    all.workloads.insert(extras);
    assert!(!passes(&all, Some(1), Some(end)));
}

#[test]
fn the_end_of_what_is_held_is_not_known() {
    let limited = |own: &mut Workload| own.spec.max_run = Some(Span::secs(1));
    let [one, two] = full().map(|own| with(own, |own| own.spec.max_run = Some(Span::secs(3600))));
    let third = with(fixed(train(3, 2, 1)), limited);
    let leaver = leaving(train(4, 3, 1), [place(0, 1, [1])]);
    let own = reserved(train(9, 1, 4), [place(0, 1, 0..4)]);
    let mut all = waiting([one, two, own, third, leaver]);
    all.projects.insert(ProjectId(2), project(2, quota(1)));
    assert_eq!(broken(&all, [hold(3, [place(0, 1, [1])], Idle)]), [Rule::ReservedCapacity]);
    assert_eq!(broken(&all, [start(3, [place(0, 1, [2])], Idle)]), []);
}

#[test]
fn passing_work_goes_when_the_reservation_is_filled() {
    let passing = |mark| {
        let mut all = waiting([
            with(run(train(1, 2, 1), [place(0, 1, [0])]), |own| {
                if let Phase::Running { passing, .. } = &mut own.phase {
                    *passing = mark;
                }
            }),
            reserved(train(9, 1, 4), [place(0, 1, 0..4)]),
        ]);
        // Passing work has no minimum run time.
        all.projects.get_mut(&ProjectId(2)).unwrap().min_run = Span::secs(3600);
        all
    };
    let evicted = || evict(1, 9, EvictRule::Passing, 1);
    let fill = |node, basis| hold(9, [place(0, node, 0..4)], basis);
    assert_eq!(broken(&passing(true), [evicted(), fill(1, Reservation)]), []);
    assert_eq!(broken(&passing(false), [evicted(), fill(1, Reservation)]), [Rule::PassingEviction]);
    assert_eq!(
        broken(&passing(true), [evicted(), fill(1, Idle)]),
        [Rule::PassingEviction, Rule::MinimalVictims]
    );
    let elsewhere = start(9, [place(0, 2, 0..4)], Reservation);
    assert_eq!(broken(&passing(true), [elsewhere]), [Rule::Reservation]);
}
