//! Starts, holds and their order.

use super::build::*;
use crate::Rule;
use StartBasis::{FairShare, Idle, Quota};
use berth_types::*;

fn two_nodes<const W: usize>(workloads: [Workload; W]) -> State {
    let mut nodes = [node(1, 4), node(2, 4)];
    nodes[0].labels.insert("rack".into(), "a".into());
    state(nodes, [project(1, quota(4)), project(2, quota(4))], workloads)
}

#[test]
fn a_start_within_quota_on_free_devices_is_fine() {
    let all = two_nodes([train(1, 1, 2)]);
    assert_eq!(broken(&all, [start(1, [place(0, 1, [0, 1])], Quota)]), []);
}

#[test]
fn a_gang_starts_whole() {
    let all = two_nodes([elastic(train(1, 1, 1), 2, 2)]);
    let half = start(1, [place(0, 1, [0])], Quota);
    assert_eq!(broken(&all, [half]), [Rule::Gang]);
}

#[test]
fn nodes_must_be_ready_and_accepted() {
    let action = || start(1, [place(0, 2, [0])], Quota);
    let mut all = two_nodes([train(1, 1, 1)]);
    all.nodes.get_mut(&NodeId(2)).unwrap().condition = NodeCondition::Cordoned;
    assert_eq!(broken(&all, [action()]), [Rule::NodeAccepted]);

    let mut all = two_nodes([train(1, 1, 1)]);
    let selector = Selector([("rack".into(), ["a".into()].into())].into());
    all.projects.get_mut(&ProjectId(1)).unwrap().train_nodes = selector;
    assert_eq!(broken(&all, [action()]), [Rule::NodeAccepted]);

    let mut all = two_nodes([train(1, 1, 1)]);
    let labels = &mut all.nodes.get_mut(&NodeId(2)).unwrap().labels;
    labels.insert(POOL_LABEL.into(), "other".into());
    assert_eq!(broken(&all, [action()]), [Rule::NodeAccepted]);
}

#[test]
fn a_required_topology_level_holds_the_gang() {
    let apart = || start(1, [place(0, 1, [0]), place(1, 2, [0])], Quota);
    let gang = |level| {
        two_nodes([with(elastic(train(1, 1, 1), 2, 2), |own| {
            own.spec.topology.required = level;
        })])
    };
    assert_eq!(broken(&gang(None), [apart()]), []);
    assert_eq!(broken(&gang(Some(TopologyLevel::Node)), [apart()]), [Rule::Topology]);
    let rack = Some(TopologyLevel::Label("rack".into()));
    assert_eq!(broken(&gang(rack.clone()), [apart()]), [Rule::Topology]);
    let together = start(1, [place(0, 1, [0]), place(1, 1, [1])], Quota);
    assert_eq!(broken(&gang(rack), [together]), []);
}

#[test]
fn tasks_that_must_be_apart_share_no_node() {
    let gang = |spread| two_nodes([with(elastic(train(1, 1, 1), 2, 3), |own| own.spec.spread = spread)]);
    let together = || start(1, [place(0, 1, [0]), place(1, 1, [1])], Quota);
    assert_eq!(broken(&gang(Spread::Spread), [together()]), []);
    assert_eq!(broken(&gang(Spread::Apart), [together()]), [Rule::Apart]);
    assert_eq!(broken(&gang(Spread::Apart), [start(1, [place(0, 1, [0]), place(1, 2, [0])], Quota)]), []);
    let running = |spread| {
        let gang = with(elastic(train(1, 1, 1), 2, 3), |own| own.spec.spread = spread);
        two_nodes([run(gang, [place(0, 1, [0]), place(1, 2, [0])])])
    };
    let beside = || Action::Grow { workload: WorkloadId(1), places: vec![place(2, 2, [1])] };
    assert_eq!(broken(&running(Spread::Pack), [beside()]), []);
    assert_eq!(broken(&running(Spread::Apart), [beside()]), [Rule::Apart]);
}

#[test]
fn a_start_waits_for_leavers_and_a_hold_needs_them() {
    let all = two_nodes([ending(train(1, 1, 4), [place(0, 1, 0..4)]), train(2, 1, 4)]);
    let (taken, free) = ([place(0, 1, 0..4)], [place(0, 2, 0..4)]);
    assert_eq!(broken(&all, [start(2, taken.clone(), Quota)]), [Rule::DeviceCapacity, Rule::StartBeforeFree]);
    assert_eq!(broken(&all, [hold(2, taken, Quota)]), []);
    assert_eq!(broken(&all, [hold(2, free, Quota)]), [Rule::HoldWithoutCause]);
}

#[test]
fn a_leaver_that_returns_to_the_queue_keeps_its_turn() {
    let all = two_nodes([leaving(train(1, 1, 4), [place(0, 1, 0..4)]), train(2, 1, 4)]);
    let (left, free) = ([place(0, 1, 0..4)], [place(0, 2, 0..4)]);
    assert_eq!(broken(&all, [hold(2, left.clone(), Quota)]), [Rule::StartOrder]);
    assert_eq!(broken(&all, [relocate(1, free.clone()), hold(2, left, FairShare)]), []);
    // What is over does not come back, so nobody waits for it.
    let all = two_nodes([ending(train(1, 1, 4), [place(0, 1, 0..4)]), train(2, 1, 4)]);
    assert_eq!(broken(&all, [start(2, free, Quota)]), []);
}

#[test]
fn places_must_be_free_as_decided() {
    let all = two_nodes([run(train(1, 1, 1), [place(0, 1, [0])]), train(2, 2, 1)]);
    let action = hold(2, [place(0, 1, [0])], Quota);
    assert_eq!(broken(&all, [action]), [Rule::DeviceCapacity]);
}

#[test]
fn held_work_starts_where_it_was_held_and_by_the_same_basis() {
    let held = |basis| {
        with(train(1, 1, 1), |own| {
            own.phase = Phase::Held { places: vec![place(0, 1, [0])], basis, leaving: Vec::new() };
        })
    };
    let all = two_nodes([held(Some(Quota))]);
    assert_eq!(broken(&all, [start(1, [place(0, 1, [0])], Quota)]), []);
    assert_eq!(broken(&all, [start(1, [place(0, 1, [0])], Idle)]), [Rule::Basis]);
    assert_eq!(broken(&two_nodes([held(None)]), [start(1, [place(0, 1, [0])], Idle)]), []);
    let elsewhere = start(1, [place(0, 1, [1])], Quota);
    assert_eq!(broken(&all, [elsewhere]), [Rule::Gang, Rule::Applicable]);
}

#[test]
fn a_limit_is_not_passed_at_any_level_and_extras_count() {
    let mut all =
        two_nodes([run(elastic(train(1, 1, 1), 1, 2), [place(0, 1, [0]), place(1, 1, [1])]), train(2, 2, 1)]);
    let limit = Entitlement { limit: Some(Gpus::whole(2)), ..Entitlement::default() };
    all.departments.insert(DepartmentId(1), department(1, limit));
    for project in all.projects.values_mut() {
        project.department = Some(DepartmentId(1));
    }
    let action = || start(2, [place(0, 2, [0])], Quota);
    assert_eq!(broken(&all, [action()]), [Rule::Limit]);
    // The extra is in the way of the limit, so it goes.
    assert_eq!(broken(&all, [shrink(1, &[1], 2), action()]), []);
}

#[test]
fn non_preemptible_work_stays_within_quota() {
    let running = run(fixed(train(1, 1, 4)), [place(0, 1, 0..4)]);
    let all = two_nodes([running, fixed(train(2, 1, 1))]);
    let action = start(2, [place(0, 2, [0])], Idle);
    assert_eq!(broken(&all, [action]), [Rule::NonPreemptibleQuota]);
    // Preemptible work above the same quota is not in its way.
    let running = run(train(1, 1, 4), [place(0, 1, 0..4)]);
    let all = two_nodes([running, fixed(train(2, 1, 1))]);
    assert_eq!(broken(&all, [start(2, [place(0, 2, [0])], Idle)]), []);
}

#[test]
fn weight_zero_does_not_borrow() {
    let mut all = two_nodes([run(train(1, 1, 4), [place(0, 1, 0..4)]), train(2, 1, 1)]);
    let own = all.projects.get_mut(&ProjectId(1)).unwrap();
    own.entitlements.get_mut(&default_pool()).unwrap().weight = Some(Gpus::ZERO);
    assert_eq!(broken(&all, [start(2, [place(0, 2, [0])], Idle)]), [Rule::Borrowing]);
}

#[test]
fn the_basis_is_true() {
    let running = run(train(1, 1, 4), [place(0, 1, 0..4)]);
    let all = two_nodes([running, train(2, 1, 1), train(3, 2, 4)]);
    let action = |basis| start(2, [place(0, 2, [0])], basis);
    // Project 2 comes first, which is another finding; here only the basis matters.
    assert!(broken(&all, [action(Quota)]).contains(&Rule::Basis));
    assert!(broken(&all, [action(FairShare)]).contains(&Rule::Basis));
    assert!(!broken(&all, [action(Idle)]).contains(&Rule::Basis));
}

#[test]
fn the_queue_of_a_project_is_kept() {
    let all = two_nodes([train(1, 1, 1), train(2, 1, 1)]);
    let second = start(2, [place(0, 1, [0])], Quota);
    assert_eq!(broken(&all, [second.clone()]), [Rule::StartOrder]);
    assert_eq!(broken(&all, [start(1, [place(0, 1, [1])], Quota), second.clone()]), []);
    // One that does not fit may be passed.
    let all = two_nodes([train(1, 1, 8), train(2, 1, 1)]);
    assert_eq!(broken(&all, [second]), []);
}

#[test]
fn the_smaller_borrower_comes_first() {
    let running = || run(train(1, 1, 4), [place(0, 1, 0..4)]);
    let all = two_nodes([running(), train(2, 1, 1), train(3, 2, 1)]);
    let borrower = start(2, [place(0, 2, [0])], FairShare);
    assert_eq!(broken(&all, [borrower.clone()]), [Rule::StartOrder]);
    let within = start(3, [place(0, 2, [1])], Quota);
    assert_eq!(broken(&all, [within.clone(), borrower.clone()]), []);
    // What was evicted at this very instant does not compete.
    let evicted = with(train(3, 2, 1), |own| own.evicted = Some(NOW));
    let all = two_nodes([running(), train(2, 1, 1), evicted]);
    assert_eq!(broken(&all, [borrower]), []);
    assert_eq!(broken(&all, [within]), [Rule::RestartAtOnce]);
}

#[test]
fn departments_are_compared_before_their_projects() {
    // Department 1 (projects 1 and 2) is above its quota, project 3 is not, though project 2 alone is within its own.
    let mut all = state(
        [node(1, 8)],
        [project(1, quota(2)), project(2, quota(2)), project(3, quota(4))],
        [run(train(1, 1, 4), [place(0, 1, 0..4)]), train(2, 2, 1), train(3, 3, 1)],
    );
    all.departments.insert(DepartmentId(1), department(1, quota(4)));
    for id in [1, 2] {
        all.projects.get_mut(&ProjectId(id)).unwrap().department = Some(DepartmentId(1));
    }
    let (two, three) = (start(2, [place(0, 1, [4])], FairShare), start(3, [place(0, 1, [5])], Quota));
    assert_eq!(broken(&all, [two.clone()]), [Rule::StartOrder]);
    assert_eq!(broken(&all, [three, two]), []);
}
