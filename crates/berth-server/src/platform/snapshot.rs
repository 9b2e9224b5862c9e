//! The platform as it is written to disk, so that a start need not read the whole log.

use super::{People, Platform, Record, VolumeRecord};
use berth_engine::Engine;
use berth_types::{ChangeError, Name, NodeId, Policy, ProjectId, State, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is known, as plain data. Made on the thread that decides, written on another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    version: u32,
    state: State,
    records: Vec<Record>,
    volumes: Vec<VolumeRecord>,
    draining: BTreeSet<NodeId>,
    #[serde(default)]
    missing: BTreeSet<NodeId>,
    next_id: u64,
    /// Images of the first form know nobody.
    #[serde(default)]
    people: People,
    /// Labels of nodes that were set by hand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_labels: BTreeMap<String, BTreeMap<Name, Option<Name>>>,
    /// Images of the first two forms have no creation times.
    #[serde(default)]
    project_created: BTreeMap<ProjectId, Time>,
}

/// The form of an image. Readers understand every version that was ever released.
const IMAGE_VERSION: u32 = 2;

impl Platform {
    pub(crate) fn image(&self) -> Image {
        Image {
            version: IMAGE_VERSION,
            state: self.engine.state(),
            records: self.records.values().cloned().collect(),
            volumes: self.volumes.values().cloned().collect(),
            draining: self.draining.clone(),
            missing: self.missing.clone(),
            next_id: self.next_id,
            people: self.people.clone(),
            node_labels: self.node_labels.clone(),
            project_created: self.project_created.clone(),
        }
    }

    /// The platform as an image shows it.
    pub(crate) fn from_image(policy: Policy, image: Image) -> Result<Self, ChangeError> {
        let Image {
            version: _,
            state,
            records,
            volumes,
            draining,
            missing,
            next_id,
            people,
            node_labels,
            project_created,
        } = image;
        let mut platform = Self::of_parts(policy, state, records, Vec::new(), draining, next_id)?;
        platform.volumes = volumes.into_iter().map(|volume| (volume.key(), volume)).collect();
        platform.people = people;
        platform.missing = missing;
        platform.node_labels = node_labels;
        platform.set_project_created(project_created);
        let ids: Vec<_> = platform.records.keys().copied().collect();
        ids.into_iter().for_each(|id| platform.note_due(id));
        Ok(platform)
    }

    /// Sets when each project was created, as a cluster or an image records it.
    pub(crate) fn set_project_created(&mut self, created: BTreeMap<ProjectId, Time>) {
        self.project_created = created;
    }

    /// The platform that these are.
    pub(crate) fn of_parts(
        policy: Policy,
        state: State,
        records: Vec<Record>,
        over: Vec<berth_api::Workload>,
        draining: BTreeSet<NodeId>,
        next_id: u64,
    ) -> Result<Self, ChangeError> {
        let mut platform = Self::new(policy.clone());
        platform.engine = Engine::with_state(policy, &state)?;
        platform.nodes = state.nodes.values().map(|node| (node.name.clone(), node.id)).collect();
        platform.projects =
            state.projects.values().map(|project| (project.name.clone(), project.id)).collect();
        platform.departments =
            state.departments.values().map(|department| (department.name.clone(), department.id)).collect();
        platform.names =
            records.iter().map(|record| ((record.project, record.name.clone()), record.id)).collect();
        platform.records = records.into_iter().map(|record| (record.id, record)).collect::<BTreeMap<_, _>>();
        platform.over = over.into_iter().map(|workload| (WorkloadId(workload.id), workload)).collect();
        platform.draining = draining;
        platform.next_id = next_id;
        Ok(platform)
    }
}
