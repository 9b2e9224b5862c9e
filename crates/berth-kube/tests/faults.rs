//! Faults on a real cluster: the operator is killed while it binds gangs, two lead for a while, the API server and etcd come and
//! go, everybody writes at once, nodes go, budgets refuse. Afterwards nothing is half started, nothing is given twice, and
//! whoever waits knows why.
//!
//! `BERTH_KILLS` says how often the operator is killed; `BERTH_SEED` chooses what happens.

mod faulty;
mod mirror;

use berth_sim::random::SplitMix64;
use berth_testbed::{Cluster, NodeSpec};
use faulty::{Counts, Operator, Yard};
use mirror::{block_on, cluster, connect, install};
use std::time::Duration;

/// How often the operator is killed unless somebody says otherwise.
const KILLS: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = number("BERTH_SEED").unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64 % 1_000_000)
    });
    eprintln!("BERTH_SEED={seed}");
    seed
}

fn nodes() -> Vec<NodeSpec> {
    vec![
        NodeSpec { prefix: "counted".into(), ..NodeSpec::dgx1(2) },
        NodeSpec { prefix: "shared".into(), ..NodeSpec::dgx1(2).with_dra() },
    ]
}

async fn begin(cluster: &Cluster) -> (Yard, Operator) {
    let client = connect(cluster.kubeconfig()).await;
    install(&client).await;
    let operator = Operator::start(cluster, "first");
    let yard = Yard::new(client).await;
    (yard, operator)
}

#[test]
fn an_operator_that_is_killed_while_it_binds_leaves_no_half_gang_and_no_device_given_twice() {
    let options = berth_testbed::Options { nodes: nodes(), ..Default::default() };
    let Some(cluster) = cluster("kills of the operator", options) else { return };
    let mut random = SplitMix64::new(seed());
    block_on(async {
        let (mut yard, mut operator) = begin(&cluster).await;
        let kills = number("BERTH_KILLS").unwrap_or(KILLS);
        let mut counts = Counts::default();
        while counts.kills < kills {
            yard.submit_some(&mut random, &mut counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(900))).await;
            operator.kill();
            counts.kills += 1;
            yard.count_halves(&mut counts).await;
            yard.free_lease().await;
            operator = Operator::start(&cluster, &format!("after-kill-{}", counts.kills));
            // The next one is sometimes killed while it still takes over.
            if random.percent(20) && counts.kills < kills {
                tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
                operator.kill();
                counts.kills += 1;
                yard.free_lease().await;
                operator = Operator::start(&cluster, &format!("after-kill-{}", counts.kills));
            }
            yard.settle(&format!("kill {}", counts.kills), &mut operator, &cluster, &mut counts).await;
            yard.clear_some(&mut random).await;
        }
        eprintln!("{counts}");
        operator.stop();
    });
}

#[test]
fn a_cluster_that_falters_is_put_right_again() {
    let options = berth_testbed::Options { nodes: nodes(), ..Default::default() };
    let Some(cluster) = cluster("faults of the cluster", options) else { return };
    let mut random = SplitMix64::new(seed());
    block_on(async {
        let (mut yard, mut operator) = begin(&cluster).await;
        let mut counts = Counts::default();
        // Two leaders for a while: one sleeps past its lease, another takes over, and the first wakes up.
        for round in 0..2 {
            yard.submit_some(&mut random, &mut counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(600))).await;
            operator.pause();
            counts.pauses += 1;
            let mut next = Operator::start(&cluster, &format!("takes-over-{round}"));
            yard.until_led_by_another(&operator).await;
            yard.submit_some(&mut random, &mut counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(900))).await;
            operator.wake();
            operator.until_ended().await;
            yard.settle("two leaders", &mut next, &cluster, &mut counts).await;
            operator = next;
            yard.clear_some(&mut random).await;
        }
        // The API server and etcd are killed and come back; every watch is dropped.
        for round in 0..4 {
            yard.submit_some(&mut random, &mut counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(700))).await;
            if round % 2 == 0 {
                cluster.kill_apiserver().expect("it runs");
                tokio::time::sleep(Duration::from_millis(random.below(3000))).await;
            } else {
                cluster.kill_etcd().expect("it runs");
                tokio::time::sleep(Duration::from_millis(random.below(8000))).await;
                cluster.start_etcd().expect("it starts again");
                cluster.kill_apiserver().expect("it runs");
            }
            cluster.start_apiserver().expect("it starts again");
            counts.restarts += 1;
            yard.settle("a restart", &mut operator, &cluster, &mut counts).await;
            yard.clear_some(&mut random).await;
        }
        // Everybody writes, Pods are deleted while they are bound, nodes go and come back.
        let writers = yard.write_all_the_time();
        for round in 0..4 {
            yard.submit_some(&mut random, &mut counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
            yard.delete_pods(&mut random, &mut counts).await;
            let node = if round % 2 == 0 { "counted1" } else { "shared1" };
            cluster.remove_node(node).expect("it is there");
            counts.nodes_lost += 1;
            tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
            let spec = nodes().swap_remove(round % 2);
            cluster.add_nodes(&NodeSpec { count: 1, ..spec }).expect("it comes back");
            yard.settle("writers, deletions, a lost node", &mut operator, &cluster, &mut counts).await;
            yard.clear_some(&mut random).await;
        }
        counts.conflicting_writes = writers.stop().await;
        // A budget refuses what quota would take.
        yard.clear().await;
        yard.borrow_behind_budgets(&mut counts).await;
        yard.settle("budgets", &mut operator, &cluster, &mut counts).await;
        eprintln!("{counts}");
        operator.stop();
    });
}
