//! All workloads of an installation, and where each has places.

use crate::{NodeId, Workload, WorkloadId};
use serde::{Deserialize, Serialize, Serializer};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Deref, DerefMut},
};

/// Workloads by id. Read like a map; changed only here, so that who is on a node is known without looking at all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<WorkloadId, Workload>")]
pub struct Workloads {
    all: BTreeMap<WorkloadId, Workload>,
    /// Who has a place on a node: decided, running or leaving.
    on_node: BTreeMap<NodeId, BTreeSet<WorkloadId>>,
}

impl Workloads {
    /// Puts a workload in, instead of any other with its id.
    pub fn insert(&mut self, workload: Workload) {
        let id = workload.id;
        self.remove(&id);
        self.all.insert(id, workload);
        self.index(id);
    }

    /// Takes a workload out.
    pub fn remove(&mut self, id: &WorkloadId) -> Option<Workload> {
        self.unindex(*id);
        self.all.remove(id)
    }

    /// A workload to be changed.
    pub fn get_mut(&mut self, id: &WorkloadId) -> Option<WorkloadMut<'_>> {
        if !self.all.contains_key(id) {
            return None;
        }
        self.unindex(*id);
        Some(WorkloadMut { workloads: self, id: *id })
    }

    /// Those with a place on a node: decided, running or leaving.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = &Workload> {
        self.on_node.get(&node).into_iter().flatten().map(|id| &self.all[id])
    }

    fn index(&mut self, id: WorkloadId) {
        for node in nodes_of(&self.all[&id]) {
            self.on_node.entry(node).or_default().insert(id);
        }
    }

    fn unindex(&mut self, id: WorkloadId) {
        let Some(workload) = self.all.get(&id) else { return };
        for node in nodes_of(workload) {
            if let Some(there) = self.on_node.get_mut(&node) {
                there.remove(&id);
                if there.is_empty() {
                    self.on_node.remove(&node);
                }
            }
        }
    }
}

fn nodes_of(workload: &Workload) -> impl Iterator<Item = NodeId> {
    workload.places().chain(workload.leaving()).map(|place| place.node)
}

impl Deref for Workloads {
    type Target = BTreeMap<WorkloadId, Workload>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<Workload> for Workloads {
    fn from_iter<I: IntoIterator<Item = Workload>>(workloads: I) -> Self {
        let mut all = Self::default();
        workloads.into_iter().for_each(|workload| all.insert(workload));
        all
    }
}

impl From<BTreeMap<WorkloadId, Workload>> for Workloads {
    fn from(workloads: BTreeMap<WorkloadId, Workload>) -> Self {
        workloads.into_values().collect()
    }
}

impl Serialize for Workloads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl PartialEq for Workloads {
    fn eq(&self, other: &Self) -> bool {
        // Where they are follows from what they are.
        self.all == other.all
    }
}

impl Eq for Workloads {}

/// One workload that is being changed; where it has places is noted when that is done.
#[derive(Debug)]
pub struct WorkloadMut<'a> {
    workloads: &'a mut Workloads,
    id: WorkloadId,
}

impl Deref for WorkloadMut<'_> {
    type Target = Workload;
    fn deref(&self) -> &Workload {
        &self.workloads.all[&self.id]
    }
}

impl DerefMut for WorkloadMut<'_> {
    fn deref_mut(&mut self) -> &mut Workload {
        self.workloads.all.get_mut(&self.id).expect("was there when this was made")
    }
}

impl Drop for WorkloadMut<'_> {
    fn drop(&mut self) {
        self.workloads.index(self.id);
    }
}
