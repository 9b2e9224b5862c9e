//! What must be true after a plan.

use super::build::*;
use crate::{Rule, check_empty, check_state, fewest_victims};
use berth_types::*;

/// One node of four: project 1 borrows two, project 2 waits.
fn borrowed(waiting: Workload) -> State {
    state(
        [node(1, 4)],
        [project(1, quota(2)), project(2, quota(2))],
        [run(train(1, 1, 2), [place(0, 1, [0, 1])]), run(train(2, 1, 2), [place(0, 1, [2, 3])]), waiting],
    )
}

#[test]
fn idle_capacity_is_found() {
    let all = |waiting| {
        let nodes = [node(1, 4)];
        let running = run(train(1, 1, 2), [place(0, 1, [0, 1])]);
        state(nodes, [project(1, quota(2))], [running, waiting])
    };
    assert_eq!(unsettled(&all(train(2, 1, 2))), [Rule::IdleCapacity]);
    assert_eq!(unsettled(&all(train(2, 1, 3))), []);
    let evicted = with(train(2, 1, 2), |own| own.evicted = Some(NOW));
    assert_eq!(unsettled(&all(evicted)), []);
}

#[test]
fn borrowed_capacity_is_given_back() {
    assert_eq!(unsettled(&borrowed(train(3, 2, 2))), [Rule::QuotaGuarantee]);
    // Above its quota it has no such right.
    assert_eq!(unsettled(&borrowed(train(3, 2, 3))), []);
}

#[test]
fn minimum_run_times_and_fresh_starts_excuse() {
    let mut all = borrowed(train(3, 2, 2));
    all.projects.get_mut(&ProjectId(1)).unwrap().min_run = Span::secs(3600);
    assert_eq!(unsettled(&all), []);
    let mut all = borrowed(train(3, 2, 2));
    for id in [1, 2] {
        if let Phase::Running { since, .. } = &mut all.workloads.get_mut(&WorkloadId(id)).unwrap().phase {
            *since = NOW;
        }
    }
    assert_eq!(unsettled(&all), []);
}

#[test]
fn a_project_at_its_quota_owes_nothing() {
    let mut all = borrowed(train(3, 2, 2));
    all.projects.insert(ProjectId(1), project(1, quota(4)));
    assert_eq!(unsettled(&all), []);
}

#[test]
fn higher_priority_preempts_inside_a_project() {
    let higher = with(train(3, 1, 2), |own| own.spec.priority = 60);
    let mut all = borrowed(higher);
    // The project is above its quota, so this is not the guarantee's business.
    assert_eq!(unsettled(&all), []);
    all.projects.insert(ProjectId(1), project(1, quota(8)));
    assert_eq!(unsettled(&all), [Rule::QuotaGuarantee]);
}

#[test]
fn extras_give_way_to_the_guarantee() {
    let mut all = state(
        [node(1, 2)],
        [project(1, quota(1)), project(2, quota(1))],
        [run(elastic(train(1, 1, 1), 1, 2), [place(0, 1, [0]), place(1, 1, [1])]), train(2, 2, 1)],
    );
    assert_eq!(unsettled(&all), [Rule::QuotaGuarantee]);
    all.workloads.get_mut(&WorkloadId(2)).unwrap().spec.request.gpu =
        GpuRequest::Whole(std::num::NonZeroU8::new(2).unwrap());
    assert_eq!(unsettled(&all), []);
}

#[test]
fn a_single_node_is_witness_enough_in_large_pools() {
    let mut all = borrowed(train(3, 2, 2));
    for id in 2..=8 {
        let mut full = node(id, 1);
        full.condition = NodeCondition::Cordoned;
        all.nodes.insert(full.id, full);
    }
    assert_eq!(unsettled(&all), [Rule::QuotaGuarantee]);
    assert_eq!(fewest_victims(&Policy::default(), &all, WorkloadId(3), NOW), None);
}

#[test]
fn six_nodes_with_twenty_workloads_are_judged_without_trying_every_set() {
    let nodes = [1, 2, 3, 4, 5, 6].map(|id| node(id, 4));
    let projects = [1, 2, 3, 4].map(|id| project(id, quota(6)));
    let mut all = state(nodes, projects, []);
    for id in 0..12 {
        let devices = [(id % 2 * 2) as u8, (id % 2 * 2 + 1) as u8];
        let workload = run(train(id, 1 + id % 3, 2), [place(0, 1 + id / 2, devices)]);
        all.workloads.insert(workload);
    }
    for id in 12..20 {
        let workload = train(id, 1 + id % 4, 3);
        all.workloads.insert(workload);
    }
    assert_eq!(check_state(&all), []);
    // Project 4 waits within quota; its first, 15, takes two victims on node 1.
    assert_eq!(unsettled(&all), [Rule::QuotaGuarantee]);
    let taking = [
        evict(0, 15, EvictRule::QuotaReclaim, 2),
        evict(1, 15, EvictRule::QuotaReclaim, 2),
        hold(15, [place(0, 1, 0..3)], StartBasis::Quota),
    ];
    assert_eq!(broken(&all, taking), []);
}

#[test]
fn the_fewest_victims_are_counted() {
    let fewest = |state: &State| fewest_victims(&Policy::default(), state, WorkloadId(3), NOW);
    assert_eq!(fewest(&borrowed(train(3, 2, 2))), Some(1));
    assert_eq!(fewest(&borrowed(train(3, 2, 3))), None);
    // Two straddle the line and are allowed, because nothing less suffices.
    let mut all = borrowed(train(3, 2, 3));
    all.projects.insert(ProjectId(1), project(1, quota(1)));
    all.projects.insert(ProjectId(2), project(2, quota(3)));
    assert_eq!(fewest(&all), Some(2));
    // With a quota of two the second would be taken from a project at its quota.
    all.projects.insert(ProjectId(1), project(1, quota(2)));
    assert_eq!(fewest(&all), None);
}

#[test]
fn held_work_does_not_wait_for_nobody() {
    let held = with(train(1, 1, 1), |own| {
        own.phase = Phase::Held { places: vec![place(0, 1, [0])], basis: None, leaving: Vec::new() };
    });
    let in_the_way = leaving(train(2, 1, 1), [place(0, 1, [0])]);
    let projects = || [project(1, quota(2))];
    assert_eq!(unsettled(&state([node(1, 1)], projects(), [held.clone()])), [Rule::HeldTooLong]);
    assert_eq!(unsettled(&state([node(1, 1)], projects(), [held, in_the_way])), []);
}

#[test]
fn planning_again_gives_nothing() {
    let busy = plan([Action::Unreserve { workload: WorkloadId(1) }]);
    assert_eq!(rules(check_empty(&[plan([]), busy])), [Rule::Stability]);
    assert_eq!(rules(check_empty(&[plan([]), plan([])])), []);
}
