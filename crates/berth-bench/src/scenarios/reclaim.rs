//! A guarantee takes back what was borrowed.

use super::{Expected, Prepared, Scenario};
use crate::cluster::{Cluster, GPUS_PER_NODE, MEASURED, train};
use berth_types::{Change, Workload, WorkloadId};

pub(super) const LARGE: Scenario = Scenario {
    name: "reclaim_large",
    about: "a gang on half of the nodes takes them back from one-GPU borrowers that fill the cluster",
    sizes: &[100, 200, 500, 1000],
    headline: 1000,
    target_ms: 10.0,
    prepare: prepare_large,
};

pub(super) const MANY_SINGLE: Scenario = Scenario {
    name: "many_single_reclaim",
    about: "one-GPU jobs within quota, as many as the cluster has GPUs, take back every one of them",
    sizes: &[62, 125, 250, 500],
    headline: 500,
    target_ms: 100.0,
    prepare: prepare_many_single,
};

fn prepare_large(nodes: usize) -> Prepared {
    let gpus = nodes as u64 * GPUS_PER_NODE;
    let mut cluster = Cluster::of_nodes(nodes);
    let borrower = cluster.project(0);
    let owner = cluster.project(gpus);
    cluster.run_on_every_node(borrower, GPUS_PER_NODE as u8);
    let tasks = nodes as u32 / 2;
    let gang = Workload::submitted(cluster.next_id(), train(owner, GPUS_PER_NODE as u8, tasks), MEASURED);
    Prepared {
        engine: cluster.settled(),
        changes: vec![Change::Submitted(gang)],
        now: MEASURED,
        expected: Expected {
            holds: 1,
            evictions: tasks as usize * GPUS_PER_NODE as usize,
            ..Expected::default()
        },
    }
}

fn prepare_many_single(nodes: usize) -> Prepared {
    let gpus = nodes as u64 * GPUS_PER_NODE;
    let mut cluster = Cluster::of_nodes(nodes);
    let borrower = cluster.project(0);
    let owner = cluster.project(gpus);
    cluster.run_on_every_node(borrower, GPUS_PER_NODE as u8);
    let first = cluster.next_id().0;
    let changes = (first..first + gpus)
        .map(|id| Change::Submitted(Workload::submitted(WorkloadId(id), train(owner, 1, 1), MEASURED)))
        .collect();
    Prepared {
        engine: cluster.settled(),
        changes,
        now: MEASURED,
        expected: Expected { holds: gpus as usize, evictions: gpus as usize, ..Expected::default() },
    }
}
