//! Volumes for the node that was chosen, as for Pods of Kubernetes' own scheduler: the node is written on the claim, and whoever
//! makes volumes of its class does the rest; where they are made by hand, the claim is written on one that is free.

use super::{WriteError, Writer, start::read};
use crate::{
    seen::{
        Key, Text,
        objects::VolumeClaimObject,
        volume::{SELECTED_NODE, VolumeClaimSeen},
    },
    world::{StartOrder, UnboundVolume},
};
use futures_util::future::try_join_all;
use serde_json::json;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The longest wait for volumes. Those that come later are there at the next try.
const LONGEST: Duration = Duration::from_secs(120);
/// Annotation of a volume that was given to its claim by a program, which may take it back.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Between looks at a claim.
const PAUSE: Duration = Duration::from_millis(500);

impl Writer {
    /// Has the volumes of a start made, and waits for them.
    pub(super) async fn make_volumes(&self, order: &StartOrder) -> Result<(), WriteError> {
        let mut claims: BTreeMap<&Key, BTreeMap<&str, &UnboundVolume>> = BTreeMap::new();
        for task in &order.tasks {
            for volume in &task.volumes {
                claims.entry(&volume.claim).or_default().insert(&task.node.name, volume);
            }
        }
        let made = claims.values().filter_map(|nodes| {
            let (node, volume) = nodes.first_key_value()?;
            Some(self.make_volume(volume, node))
        });
        try_join_all(made).await?;
        match claims.iter().find(|(_, nodes)| nodes.len() > 1) {
            None => Ok(()),
            // It is for one node, and perhaps out of reach of the others.
            Some((claim, _)) => Err(refused(format!(
                "claim {} has its volume now; places are decided again where it can be reached",
                claim.name
            ))),
        }
    }

    async fn make_volume(&self, volume: &UnboundVolume, node: &str) -> Result<(), WriteError> {
        let began = Instant::now();
        let (claim, path) = (&volume.claim, path(&volume.claim));
        let mut found: VolumeClaimObject = match &volume.choice {
            Some(choice) => {
                self.give_volume(volume, choice, node).await?;
                read(&self.0.requests.get(&path).await?)?
            }
            None => {
                let body =
                    json!({ "metadata": { "uid": &*volume.uid, "annotations": { SELECTED_NODE: node } } });
                read(&self.0.requests.merge(&path, &body).await?)?
            }
        };
        loop {
            let seen = VolumeClaimSeen::of(found);
            if seen.uid != volume.uid || seen.leaving {
                return Err(refused(format!("claim {} went while its volume was made", claim.name)));
            }
            if seen.volume.is_some() {
                return Ok(());
            }
            if volume.choice.is_none() && seen.selected.as_deref() != Some(node) {
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

impl Writer {
    /// Gives a claim the first of the volumes that nobody else got meanwhile; whoever binds volumes does the rest.
    async fn give_volume(
        &self,
        volume: &UnboundVolume,
        choice: &[(Text, Text)],
        node: &str,
    ) -> Result<(), WriteError> {
        let claim = &volume.claim;
        for (name, version) in choice {
            let body = json!({
                "metadata": { "resourceVersion": &**version, "annotations": { BOUND_BY_CONTROLLER: "yes" } },
                "spec": { "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": &*claim.namespace, "name": &*claim.name, "uid": &*volume.uid,
                } },
            });
            match self.0.requests.merge(&format!("/api/v1/persistentvolumes/{name}"), &body).await {
                Ok(_) => return Ok(()),
                Err(WriteError::Refused { code: 404 | 409, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(refused(format!("no volume of node {node} is left for claim {}", claim.name)))
    }
}

fn path(claim: &Key) -> String {
    format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", claim.namespace, claim.name)
}

fn refused(message: String) -> WriteError {
    WriteError::Refused { code: 409, message }
}
