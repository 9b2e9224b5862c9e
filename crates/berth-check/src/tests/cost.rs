//! Checks stay cheap enough for tens of thousands of property cases.

use super::build::*;
use crate::{check_plan, check_settled, check_state};
use berth_types::*;
use std::time::Instant;

#[test]
fn six_nodes_and_twenty_workloads_are_checked_quickly() {
    let nodes = [1, 2, 3, 4, 5, 6].map(|id| node(id, 4));
    let projects = [1, 2, 3, 4].map(|id| project(id, quota(6)));
    let mut all = state(nodes, projects, []);
    for id in 0..12 {
        let devices = [(id % 2 * 2) as u8, (id % 2 * 2 + 1) as u8];
        let workload = run(train(id, 1 + id % 3, 2), [place(0, 1 + id / 2, devices)]);
        all.workloads.insert(workload.id, workload);
    }
    for id in 12..20 {
        let workload = train(id, 1 + id % 4, 3);
        all.workloads.insert(workload.id, workload);
    }
    // Project 4 waits within quota; its first takes two victims on node 1.
    let winner = all.workloads.values().find(|own| own.is_queued() && own.spec.project == ProjectId(4));
    let winner = winner.unwrap().id.0;
    let actions = plan([
        evict(0, winner, EvictRule::QuotaReclaim, 2),
        evict(1, winner, EvictRule::QuotaReclaim, 2),
        hold(winner, [place(0, 1, 0..3)], StartBasis::Quota),
    ]);
    let rounds = 50;
    let begin = Instant::now();
    for _ in 0..rounds {
        assert_eq!(check_state(&all), []);
        assert_eq!(check_plan(&Policy::default(), &all, &actions), []);
        assert_ne!(check_settled(&Policy::default(), &all, NOW), []);
    }
    let each = begin.elapsed() / rounds;
    println!("{each:?} for each round");
    // Far above what it takes, so that a busy machine does not fail it and brute force gone wild does.
    assert!(each.as_millis() < 50, "{each:?}");
}
