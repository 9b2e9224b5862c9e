//! An empty cluster is filled in one cycle.

use super::{Expected, Prepared, Scenario};
use crate::cluster::{Cluster, GPUS_PER_NODE, MEASURED, train};
use berth_types::{Change, Workload, WorkloadId};

pub(super) const FILL: Scenario = Scenario {
    name: "fill",
    about: "one-GPU jobs, as many as the cluster has GPUs, start on empty nodes",
    sizes: &[62, 125, 250, 500],
    headline: 500,
    target_ms: 20.0,
    prepare,
};

fn prepare(nodes: usize) -> Prepared {
    let gpus = nodes as u64 * GPUS_PER_NODE;
    let mut cluster = Cluster::of_nodes(nodes);
    let owner = cluster.project(gpus);
    let changes = (1..=gpus)
        .map(|id| Change::Submitted(Workload::submitted(WorkloadId(id), train(owner, 1, 1), MEASURED)))
        .collect();
    Prepared {
        engine: cluster.settled(),
        changes,
        now: MEASURED,
        expected: Expected { starts: gpus as usize, ..Expected::default() },
    }
}
