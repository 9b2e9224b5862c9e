//! Faults on a real cluster: the operator is killed while it binds gangs, two lead for a while, the API server and etcd come and
//! go, everybody writes at once, nodes go, budgets refuse. Afterwards nothing is half started, nothing is given twice, and
//! whoever waits knows why.
//!
//! `BERTH_KILLS` says how often the operator is killed, and makes the other stories longer; `BERTH_SEED` chooses what happens.

mod faulty;
mod mirror;

use berth_sim::random::SplitMix64;
use berth_testbed::{Cluster, NodeSpec};
use faulty::{Counts, Operator, Yard};
use mirror::{block_on, cluster, connect, install};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How often the operator is killed unless somebody says otherwise.
const KILLS: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Rounds of a story: a sample, or all when somebody asks for many kills.
fn rounds(sample: usize, all: usize) -> usize {
    if number("BERTH_KILLS").is_some() { all } else { sample }
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

/// One cluster at a time: they are large.
static TURN: Mutex<()> = Mutex::new(());

/// Starts a cluster with an operator in it, and lets something happen there.
fn play(
    what: &str,
    story: impl AsyncFnOnce(&Cluster, &mut Yard, &mut Operator, &mut SplitMix64, &mut Counts),
) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = berth_testbed::Options { nodes: nodes(), ..Default::default() };
    let Some(cluster) = cluster(what, options) else { return };
    let mut random = SplitMix64::new(seed());
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let mut operator = Operator::start(&cluster, "first");
        let mut yard = Yard::new(client).await;
        let mut counts = Counts::default();
        story(&cluster, &mut yard, &mut operator, &mut random, &mut counts).await;
        eprintln!("{what}: {counts}");
        operator.stop();
    });
}

#[test]
fn an_operator_that_is_killed_while_it_binds_leaves_no_half_gang_and_no_device_given_twice() {
    play("kills", async |cluster, yard, operator, random, counts| {
        let kills = number("BERTH_KILLS").unwrap_or(KILLS);
        while counts.kills < kills {
            yard.submit_some(random, counts).await;
            // A gang is bound within a tenth of a second, so that is when most kills come.
            let most = if random.percent(80) { 100 } else { 900 };
            tokio::time::sleep(Duration::from_millis(random.below(most))).await;
            operator.kill();
            counts.kills += 1;
            yard.count_halves(counts).await;
            yard.free_lease().await;
            *operator = Operator::start(cluster, "after-a-kill");
            // The next one is sometimes killed while it still takes over.
            if random.percent(20) && counts.kills < kills {
                tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
                operator.kill();
                counts.kills += 1;
                yard.free_lease().await;
                *operator = Operator::start(cluster, "after-two-kills");
            }
            yard.settle(&format!("kill {}", counts.kills), operator, cluster, counts).await;
            yard.clear_some(random).await;
        }
    });
}

/// One sleeps past its lease, another takes over, and the first wakes up.
#[test]
fn two_that_both_believe_to_lead_do_no_harm() {
    play("two leaders", async |cluster, yard, operator, random, counts| {
        for round in 0..2 {
            yard.submit_some(random, counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
            operator.pause();
            counts.pauses += 1;
            let mut next = Operator::start(cluster, &format!("takes-over-{round}"));
            yard.until_led_by_another(operator).await;
            yard.submit_some(random, counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
            operator.wake();
            operator.until_ended().await;
            yard.settle("two leaders", &mut next, cluster, counts).await;
            *operator = next;
            yard.clear_some(random).await;
        }
    });
}

/// With every restart every watch is dropped.
#[test]
fn the_api_server_and_etcd_are_killed_and_come_back() {
    play("restarts", async |cluster, yard, operator, random, counts| {
        for round in 0..rounds(2, 4) {
            yard.submit_some(random, counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(200))).await;
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
            yard.until_lease_renewed(operator, cluster).await;
            yard.settle("a restart", operator, cluster, counts).await;
            yard.clear_some(random).await;
        }
    });
}

#[test]
fn everybody_writes_while_pods_are_deleted_and_nodes_go() {
    play("writers, deletions, lost nodes", async |cluster, yard, operator, random, counts| {
        let writers = yard.write_all_the_time();
        for round in 0..rounds(2, 8) {
            yard.submit_some(random, counts).await;
            tokio::time::sleep(Duration::from_millis(random.below(150))).await;
            yard.delete_pods(random, counts).await;
            let node = if round % 2 == 0 { "counted1" } else { "shared1" };
            cluster.remove_node(node).expect("it is there");
            counts.nodes_lost += 1;
            tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
            let spec = nodes().swap_remove(round % 2);
            cluster.add_nodes(&NodeSpec { count: 1, ..spec }).expect("it comes back");
            yard.settle(&format!("round {round}"), operator, cluster, counts).await;
            yard.clear_some(random).await;
        }
        counts.conflicting_writes = writers.stop().await;
    });
}

#[test]
fn a_budget_that_refuses_is_honoured_and_another_gives_way() {
    play("budgets", async |cluster, yard, operator, _, counts| {
        yard.borrow_behind_budgets(counts).await;
        yard.settle("budgets", operator, cluster, counts).await;
    });
}
