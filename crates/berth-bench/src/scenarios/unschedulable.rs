//! A gang within its quota that no allowed set of victims can serve. The answer is a proof, and it must be a quick one:
//! it is given again after every change that might matter.

use super::{Expected, Prepared, Scenario, Waits};
use crate::cluster::{Cluster, GPUS_PER_NODE, MEASURED, train};
use berth_types::{Change, Verdict, Workload};

const SIZES: &[usize] = &[100, 200, 500, 1000];

/// The gang that waits: ten whole nodes.
const GANG_TASKS: u32 = 10;
const GANG_GPUS: u64 = GANG_TASKS as u64 * GPUS_PER_NODE;

pub(super) const COUNT: Scenario = Scenario {
    name: "unschedulable",
    about: "80 GPUs are asked for and only 79 are borrowed",
    sizes: SIZES,
    headline: 1000,
    target_ms: 0.1,
    prepare: prepare_count,
};

pub(super) const SHAPE: Scenario = Scenario {
    name: "unschedulable_shape",
    about: "800 GPUs are borrowed, but every node also holds a job that may not be taken",
    sizes: SIZES,
    headline: 1000,
    target_ms: 1.0,
    prepare: prepare_shape,
};

pub(super) const BUDGET: Scenario = Scenario {
    name: "unschedulable_budget",
    about: "three borrowers share every node; together they borrow enough, two of them too little for ten nodes",
    sizes: SIZES,
    headline: 1000,
    target_ms: 5.0,
    prepare: prepare_budget,
};

fn prepare_count(nodes: usize) -> Prepared {
    let mut cluster = Cluster::of_nodes(nodes);
    let borrower = cluster.project(nodes as u64 * GPUS_PER_NODE - (GANG_GPUS - 1));
    cluster.run_on_every_node(borrower, 8);
    with_waiting_gang(cluster, |verdict| matches!(verdict, Verdict::TooLittle { .. }))
}

fn prepare_shape(nodes: usize) -> Prepared {
    let mut cluster = Cluster::of_nodes(nodes);
    let borrower = cluster.project((nodes as u64 * 7).saturating_sub(800));
    let in_quota = cluster.project(nodes as u64);
    cluster.run_on_every_node(borrower, 7);
    cluster.run_on_every_node(in_quota, 1);
    with_waiting_gang(cluster, is_proof)
}

fn prepare_budget(nodes: usize) -> Prepared {
    let nodes_count = nodes as u64;
    let mut cluster = Cluster::of_nodes(nodes);
    // Ten nodes hold 30, 30 and 20 of their jobs; what they borrow sums to the 80 that are asked for.
    for (jobs, borrowed) in [(3, 29), (3, 29), (2, 22)] {
        let project = cluster.project(nodes_count * jobs - borrowed);
        cluster.run_on_every_node(project, jobs as u8);
    }
    with_waiting_gang(cluster, |verdict| is_proof(verdict) || matches!(verdict, Verdict::NotFound))
}

fn is_proof(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::TooLittle { .. } | Verdict::NoShape { .. } | Verdict::Exhausted)
}

fn with_waiting_gang(mut cluster: Cluster, is_accepted: fn(&Verdict) -> bool) -> Prepared {
    let owner = cluster.project(GANG_GPUS);
    let id = cluster.next_id();
    let gang = Workload::submitted(id, train(owner, GPUS_PER_NODE as u8, GANG_TASKS), MEASURED);
    Prepared {
        engine: cluster.settled(),
        changes: vec![Change::Submitted(gang)],
        now: MEASURED,
        expected: Expected { waits: Some(Waits { workload: id, is_accepted }), ..Expected::default() },
    }
}
