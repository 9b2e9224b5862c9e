//! Capacity, shapes and ranks of any state.

use super::build::*;
use crate::{Rule, check_state};
use berth_types::*;

fn broken_by(workloads: [Workload; 2]) -> Vec<Rule> {
    let mut node = node(1, 2);
    node.cpu = Cpu::cores(4);
    rules(check_state(&state([node], [project(1, quota(8))], workloads)))
}

#[test]
fn two_workloads_side_by_side_are_fine() {
    let one = run(train(1, 1, 1), [place(0, 1, [0])]);
    let two = run(train(2, 1, 1), [place(0, 1, [1])]);
    assert_eq!(broken_by([one, two]), []);
}

#[test]
fn a_device_given_twice_is_found() {
    let one = run(train(1, 1, 1), [place(0, 1, [0])]);
    let two = run(train(2, 1, 1), [place(0, 1, [0])]);
    assert_eq!(broken_by([one, two]), [Rule::DeviceCapacity]);
}

#[test]
fn a_leaver_counts_as_occupied_but_not_as_decided() {
    let one = leaving(train(1, 1, 1), [place(0, 1, [0])]);
    let held = with(train(2, 1, 1), |own| {
        own.phase = Phase::Held { places: vec![place(0, 1, [0])], basis: None, leaving: Vec::new() };
    });
    assert_eq!(broken_by([one.clone(), held]), []);
    let two = run(train(2, 1, 1), [place(0, 1, [0])]);
    assert_eq!(broken_by([one, two]), [Rule::DeviceCapacity]);
}

#[test]
fn cpu_of_a_node_given_twice_is_found() {
    let greedy = |id, device| {
        let mut place = place(0, 1, [device]);
        place.cpu = Cpu::cores(3);
        with(run(train(id, 1, 1), [place]), |own| own.spec.request.cpu = Cpu::cores(3))
    };
    assert_eq!(broken_by([greedy(1, 0), greedy(2, 1)]), [Rule::NodeCapacity]);
}

#[test]
fn a_place_must_be_what_was_asked_for() {
    let fine = run(train(1, 1, 1), [place(0, 1, [0])]);
    let beyond = run(train(2, 1, 1), [place(0, 1, [7])]);
    assert_eq!(broken_by([fine.clone(), beyond]), [Rule::PlaceShape]);
    let too_few = run(train(2, 1, 2), [place(0, 1, [1])]);
    assert_eq!(broken_by([fine.clone(), too_few]), [Rule::PlaceShape]);
    let other_model = with(run(train(2, 1, 1), [place(0, 1, [1])]), |own| {
        own.spec.request.models.insert("a100".into());
    });
    assert_eq!(broken_by([fine.clone(), other_model]), [Rule::PlaceShape]);
    let other_share = with(run(train(2, 1, 1), [place(0, 1, [1])]), |own| {
        own.spec.request.gpu = GpuRequest::Fraction {
            share: Share::from_millionths(500_000).unwrap(),
            devices: std::num::NonZeroU8::MIN,
        };
    });
    assert_eq!(broken_by([fine, other_share]), [Rule::PlaceShape]);
}

#[test]
fn ranks_are_distinct_and_extras_few() {
    let fine = run(elastic(train(1, 1, 0), 1, 2), [place(0, 1, []), place(1, 1, [])]);
    let twice = run(elastic(train(2, 1, 0), 1, 2), [place(0, 1, []), place(0, 1, [])]);
    assert_eq!(broken_by([fine.clone(), twice]), [Rule::Ranks]);
    let many = run(elastic(train(2, 1, 0), 1, 2), [place(0, 1, []), place(1, 1, []), place(2, 1, [])]);
    assert_eq!(broken_by([fine, many]), [Rule::Ranks, Rule::Gang]);
}
