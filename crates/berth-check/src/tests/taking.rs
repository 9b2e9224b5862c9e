//! Who may take whom.

use super::build::*;
use crate::Rule;
use EvictRule::{Preemption, QuotaReclaim, ShareReclaim};
use StartBasis::{FairShare, Idle, Priority, Quota};
use berth_types::*;

/// One node of four GPUs. Project 1 runs two workloads of two GPUs each, project 2 waits for two.
fn borrowed(lender: u64, borrower: u64) -> State {
    state(
        [node(1, 4)],
        [project(1, quota(borrower)), project(2, quota(lender))],
        [
            run(train(1, 1, 2), [place(0, 1, [0, 1])]),
            run(train(2, 1, 2), [place(0, 1, [2, 3])]),
            train(3, 2, 2),
        ],
    )
}

fn held(basis: StartBasis) -> Action {
    hold(3, [place(0, 1, [0, 1])], basis)
}

#[test]
fn quota_is_reclaimed_from_a_borrower() {
    let all = borrowed(2, 2);
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 2), held(Quota)]), []);
}

#[test]
fn a_project_at_its_quota_loses_nothing() {
    let all = borrowed(2, 4);
    assert_eq!(
        broken(&all, [evict(1, 3, QuotaReclaim, 2), held(Quota)]),
        [Rule::QuotaReclaim, Rule::QuotaUntouched]
    );
}

#[test]
fn only_work_within_quota_reclaims_quota() {
    let all = borrowed(1, 2);
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 2), held(Idle)]), [Rule::QuotaReclaim]);
}

#[test]
fn non_preemptible_fresh_and_held_work_is_not_taken() {
    let actions = |gpus| [evict(1, 3, QuotaReclaim, gpus), held(Quota)];
    let mut all = borrowed(2, 2);
    all.workloads.get_mut(&WorkloadId(1)).unwrap().spec.preemptible = false;
    assert_eq!(broken(&all, actions(2)), [Rule::NotPreemptible]);

    let mut all = borrowed(2, 2);
    if let Phase::Running { since, .. } = &mut all.workloads.get_mut(&WorkloadId(1)).unwrap().phase {
        *since = NOW;
    }
    assert_eq!(broken(&all, actions(0)), [Rule::EvictionAtOnce]);

    let mut all = borrowed(2, 2);
    all.projects.get_mut(&ProjectId(1)).unwrap().min_run = Span::secs(3600);
    assert_eq!(broken(&all, actions(2)), [Rule::MinimumRun]);

    let mut all = borrowed(2, 2);
    all.workloads.get_mut(&WorkloadId(1)).unwrap().phase =
        Phase::Held { places: vec![place(0, 1, [0, 1])], basis: None, leaving: Vec::new() };
    let found = broken(&all, [evict(1, 3, QuotaReclaim, 0), start(3, [place(0, 1, [0, 1])], Quota)]);
    assert_eq!(found, [Rule::VictimRuns]);
}

#[test]
fn the_work_lost_is_counted() {
    let all = borrowed(2, 2);
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 1), held(Quota)]), [Rule::WorkLost]);
}

#[test]
fn nobody_is_taken_without_need() {
    let all = borrowed(2, 0);
    let actions = [evict(2, 3, QuotaReclaim, 2), evict(1, 3, QuotaReclaim, 2), held(Quota)];
    assert_eq!(broken(&all, actions), [Rule::MinimalVictims]);
}

#[test]
fn victims_need_a_winner_that_begins() {
    let all = borrowed(2, 2);
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 2)]), [Rule::WinnerStarts]);
}

#[test]
fn the_line_is_straddled_only_when_it_must_be() {
    // Project 1 has quota 3 and runs 1 + 3; taking the 3 straddles, and the 1 of project 3 would have been enough.
    let workloads = |spare: u64| {
        [
            run(train(1, 1, 3), [place(0, 1, 0..3)]),
            run(train(2, 1, 1), [place(0, 1, [3])]),
            run(train(4, spare, 1), [place(0, 1, [4])]),
            train(3, 2, 2),
        ]
    };
    let projects =
        || [project(1, quota(3)), project(2, quota(2)), project(3, quota(0)), project(4, quota(1))];
    let actions = || [evict(1, 3, QuotaReclaim, 3), held(Quota)];
    let all = state([node(1, 5)], projects(), workloads(3));
    assert_eq!(broken(&all, actions()), [Rule::Straddle]);
    // When the other one is at its quota, nothing else suffices.
    let all = state([node(1, 5)], projects(), workloads(4));
    assert_eq!(broken(&all, actions()), []);
}

#[test]
fn a_department_within_quota_reclaims_from_others_not_from_a_sibling_in_quota() {
    let mut all = borrowed(1, 2);
    all.departments.insert(DepartmentId(1), department(1, quota(2)));
    all.projects.get_mut(&ProjectId(2)).unwrap().department = Some(DepartmentId(1));
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 2), held(FairShare)]), []);
}

#[test]
fn a_share_is_reclaimed_only_from_above_a_share() {
    // Both have no quota and ask for more than there is, so both are due two of four.
    let all = borrowed(0, 0);
    let actions = [evict(1, 3, ShareReclaim, 2), held(FairShare)];
    assert_eq!(broken(&all, actions.clone()), []);
    // With a larger weight the first is due more than what would be left to it.
    let mut all = borrowed(0, 0);
    let own = all.projects.get_mut(&ProjectId(1)).unwrap();
    own.entitlements.get_mut(&default_pool()).unwrap().weight = Some(Gpus::whole(3));
    let found = broken(&all, actions.clone());
    assert_eq!(found, [Rule::Basis, Rule::ShareReclaim]);
    // A workload within quota does not reclaim a share.
    assert_eq!(broken(&borrowed(2, 2), actions), [Rule::ShareReclaim]);
}

#[test]
fn a_share_is_reclaimed_after_a_wait_and_from_work_that_has_run() {
    let reclaim = [evict(1, 3, ShareReclaim, 2), held(FairShare)];
    let recent = Time(NOW.0 - PATIENCE.0 + 1);
    let mut all = borrowed(0, 0);
    all.workloads.get_mut(&WorkloadId(3)).unwrap().submitted = recent;
    assert_eq!(broken(&all, reclaim.clone()), [Rule::Patience]);
    // An eviction begins the wait anew.
    let mut all = borrowed(0, 0);
    all.workloads.get_mut(&WorkloadId(3)).unwrap().evicted = Some(recent);
    assert_eq!(broken(&all, reclaim.clone()), [Rule::Patience]);
    let mut all = borrowed(0, 0);
    match &mut all.workloads.get_mut(&WorkloadId(1)).unwrap().phase {
        Phase::Running { since, .. } => *since = recent,
        other => unreachable!("it runs, and is not {other:?}"),
    }
    assert!(broken(&all, reclaim).contains(&Rule::Patience));
    // What is owed within quota waits for nobody.
    let mut all = borrowed(2, 2);
    all.workloads.get_mut(&WorkloadId(3)).unwrap().submitted = recent;
    assert_eq!(broken(&all, [evict(1, 3, QuotaReclaim, 2), held(Quota)]), []);
}

#[test]
fn preemption_stays_inside_a_project_and_below_a_priority() {
    let waiting = |project, priority| {
        let mut all = borrowed(0, 0);
        let mut own = all.workloads.get_mut(&WorkloadId(3)).unwrap();
        own.spec.project = ProjectId(project);
        own.spec.priority = priority;
        drop(own);
        all
    };
    let actions = || [evict(1, 3, Preemption, 2), held(Priority)];
    assert_eq!(broken(&waiting(1, 60), actions()), []);
    assert_eq!(broken(&waiting(1, 50), actions()), [Rule::Preemption]);
    assert_eq!(broken(&waiting(2, 60), actions()), [Rule::Preemption]);
}

/// One node of two GPUs: an elastic workload with one extra, and one more running, one waiting.
fn with_extra() -> State {
    state(
        [node(1, 3)],
        [project(1, quota(1)), project(2, quota(1)), project(3, quota(0))],
        [
            run(elastic(train(1, 1, 1), 1, 2), [place(0, 1, [0]), place(1, 1, [1])]),
            run(train(2, 3, 1), [place(0, 1, [2])]),
            train(3, 2, 1),
        ],
    )
}

#[test]
fn extras_go_first() {
    let all = with_extra();
    let hold_on = |device| hold(3, [place(0, 1, [device])], Quota);
    assert_eq!(broken(&all, [shrink(1, &[1], 3), hold_on(1)]), []);
    assert_eq!(broken(&all, [evict(2, 3, QuotaReclaim, 1), hold_on(2)]), [Rule::ExtrasFirst]);
    let both = [shrink(1, &[1], 3), evict(2, 3, QuotaReclaim, 1), hold_on(2)];
    assert_eq!(broken(&all, both), [Rule::MinimalVictims, Rule::ExtrasFirst]);
}

#[test]
fn the_minimum_is_not_shrunk() {
    let all = with_extra();
    let found = broken(&all, [shrink(1, &[0, 1], 3), hold(3, [place(0, 1, [1])], Quota)]);
    assert_eq!(found, [Rule::MinimalVictims, Rule::Shrink]);
}
