//! Volumes that are made for the node that was chosen, as for Pods of Kubernetes' own scheduler: the node is written on the
//! claim, and whoever makes volumes of its class does the rest.

use super::{WriteError, Writer, start::read};
use crate::{
    seen::{
        Key,
        objects::VolumeClaimObject,
        volume::{SELECTED_NODE, VolumeClaimSeen},
    },
    world::{StartOrder, UnboundVolume},
};
use futures_util::future::try_join_all;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The longest wait for volumes. Those that come later are there at the next try.
const LONGEST: Duration = Duration::from_secs(120);
/// Between looks at a claim.
const PAUSE: Duration = Duration::from_millis(500);

impl Writer {
    /// Has the volumes of a start made, and waits for them.
    pub(super) async fn make_volumes(&self, order: &StartOrder) -> Result<(), WriteError> {
        let mut nodes: BTreeMap<&UnboundVolume, BTreeSet<&str>> = BTreeMap::new();
        for task in &order.tasks {
            for volume in &task.volumes {
                nodes.entry(volume).or_default().insert(&task.node.name);
            }
        }
        let made = nodes.iter().filter_map(|(volume, nodes)| Some(self.make_volume(volume, nodes.first()?)));
        try_join_all(made).await?;
        match nodes.iter().find(|(_, nodes)| nodes.len() > 1) {
            None => Ok(()),
            // It was made for one node, and is perhaps out of reach of the others.
            Some((volume, _)) => Err(refused(format!(
                "claim {} has its volume now; places are decided again where it can be reached",
                volume.claim.name
            ))),
        }
    }

    async fn make_volume(&self, volume: &UnboundVolume, node: &str) -> Result<(), WriteError> {
        let began = Instant::now();
        let (claim, path) = (&volume.claim, path(&volume.claim));
        let body = json!({ "metadata": { "uid": &*volume.uid, "annotations": { SELECTED_NODE: node } } });
        let mut found: VolumeClaimObject = read(&self.0.requests.merge(&path, &body).await?)?;
        loop {
            let seen = VolumeClaimSeen::of(found);
            if seen.uid != volume.uid || seen.leaving {
                return Err(refused(format!("claim {} went while its volume was made", claim.name)));
            }
            if seen.volume.is_some() {
                return Ok(());
            }
            if seen.selected.as_deref() != Some(node) {
                return Err(refused(format!(
                    "the volume of claim {0} could not be made for node {node}: `kubectl describe pvc {0}` says why",
                    claim.name
                )));
            }
            if began.elapsed() > LONGEST {
                return Err(refused(format!(
                    "the volume of claim {0} was not made for node {node} within {1} s: `kubectl describe pvc {0}` says why",
                    claim.name,
                    LONGEST.as_secs()
                )));
            }
            tokio::time::sleep(PAUSE).await;
            self.0.requests.epoch()?;
            found = read(&self.0.requests.get(&path).await?)?;
        }
    }
}

fn path(claim: &Key) -> String {
    format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.namespace, claim.name)
}

fn refused(message: String) -> WriteError {
    WriteError::Refused { code: 409, message }
}
