//! Fair shares by hand.

use super::build::*;
use crate::fair_shares;
use berth_types::*;

fn shares(state: &State) -> Vec<u64> {
    fair_shares(state, &default_pool()).into_values().map(|share| share.0).collect()
}

#[test]
fn the_rest_goes_by_weight_and_stops_at_demand() {
    let projects = [project(1, quota(4)), project(2, quota(2)), project(3, quota(2))];
    let mut all = state([node(1, 8), node(2, 8)], projects, [train(1, 1, 5), train(2, 2, 8), train(3, 3, 8)]);
    // 8 are guaranteed; of the other 8 the first takes the 1 it still asks for, the others 3.5 each.
    assert_eq!(shares(&all), [5_000_000, 5_500_000, 5_500_000]);
    // Only work that could ever run is demand.
    all.workloads.insert(train(3, 3, 9));
    assert_eq!(shares(&all), [5_000_000, 8_000_000, 0]);
}

#[test]
fn a_millionth_left_over_goes_to_the_smallest_account() {
    let projects = [1, 2, 3].map(|id| project(id, quota(0)));
    let all = state([node(1, 1)], projects, [1, 2, 3].map(|id| train(id, id, 1)));
    assert_eq!(shares(&all), [333_334, 333_333, 333_333]);
}

#[test]
fn higher_ranks_come_first_and_weight_zero_gets_nothing_extra() {
    let higher = Entitlement { rank: 1, ..quota(0) };
    let none = Entitlement { weight: Some(Gpus::ZERO), ..quota(1) };
    let projects = [project(1, quota(1)), project(2, higher), project(3, none)];
    let all = state([node(1, 4)], projects, [train(1, 1, 4), train(2, 2, 1), train(3, 3, 4)]);
    assert_eq!(shares(&all), [2_000_000, 1_000_000, 1_000_000]);
}

#[test]
fn departments_divide_what_they_get_and_limits_cap_demand() {
    let limited = Entitlement { limit: Some(Gpus::whole(3)), ..quota(2) };
    let mut all = state(
        [node(1, 8)],
        [project(1, quota(1)), project(2, quota(1)), project(3, quota(0))],
        [train(1, 1, 4), train(2, 2, 4), train(3, 3, 8)],
    );
    all.departments.insert(DepartmentId(1), department(1, limited));
    for id in [1, 2] {
        all.projects.get_mut(&ProjectId(id)).unwrap().department = Some(DepartmentId(1));
    }
    assert_eq!(shares(&all), [3_000_000, 1_500_000, 1_500_000, 5_000_000]);
}

#[test]
fn a_cordoned_node_counts_only_with_what_is_on_it() {
    let mut all = state(
        [node(1, 4), node(2, 4)],
        [project(1, quota(0))],
        [run(train(1, 1, 1), [place(0, 2, [0])]), train(2, 1, 4), train(3, 1, 4)],
    );
    all.nodes.get_mut(&NodeId(2)).unwrap().condition = NodeCondition::Cordoned;
    assert_eq!(shares(&all), [5_000_000]);
}
