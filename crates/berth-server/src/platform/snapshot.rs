//! The platform as it is written to disk, so that a start need not read the whole log.

use super::{People, Platform, Record, VolumeRecord};
use berth_engine::Engine;
use berth_types::{ChangeError, NodeId, Policy, State, WorkloadId};
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
    next_id: u64,
    /// Images of the first form know nobody.
    #[serde(default)]
    people: People,
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
            next_id: self.next_id,
            people: self.people.clone(),
        }
    }

    /// The platform as an image shows it.
    pub(crate) fn from_image(policy: Policy, image: Image) -> Result<Self, ChangeError> {
        let Image { version: _, state, records, volumes, draining, next_id, people } = image;
        let mut platform = Self::of_parts(policy, state, records, Vec::new(), draining, next_id)?;
        platform.volumes = volumes.into_iter().map(|volume| (volume.key(), volume)).collect();
        platform.people = people;
        let ids: Vec<_> = platform.records.keys().copied().collect();
        ids.into_iter().for_each(|id| platform.note_due(id));
        Ok(platform)
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
