//! Starts: every place of a gang is held before the first of its Pods is bound, and what fails is undone.

use super::{WriteError, Writer, ledger::Held, queue::TASKS_AT_ONCE};
use crate::{
    names,
    pods::{self, NodeGpus, Run, Seat},
    seen::{
        Key, Text,
        objects::{ClaimObject, Meta},
    },
    world::{StartFailure, StartOrder, StartTask, WaitingClaim, WaitingPod},
};
use futures_util::stream::{FuturesOrdered, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};

/// A Pod that has everything but its node.
struct Ready {
    key: Key,
    uid: Text,
    version: String,
}

/// What is read of an object that was made.
#[derive(Deserialize)]
struct Made {
    metadata: Meta,
}

/// What is read of a Pod whose binding was refused.
#[derive(Deserialize)]
struct Found {
    metadata: Meta,
    #[serde(default)]
    spec: FoundSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FoundSpec {
    node_name: Option<String>,
}

impl Writer {
    pub(super) async fn start(&self, order: StartOrder) -> Result<(), StartFailure> {
        let failed =
            |error: &dyn std::fmt::Display, placed| StartFailure { message: error.to_string(), placed };
        // Before anything that would have to be undone.
        if let Err(error) = self.make_volumes(&order).await {
            return Err(failed(&error, Vec::new()));
        }
        if let Err(error) = self.make_services(&order).await {
            return Err(failed(&error, Vec::new()));
        }
        let mut ready = Each::default();
        for task in &order.tasks {
            ready.add(self.make_ready(&order, task)).await;
        }
        let ready = ready.all().await;
        let error = ready.iter().find_map(|ready| ready.as_ref().err().map(ToString::to_string));
        let ready: Vec<Option<Ready>> = ready.into_iter().map(Result::ok).collect();
        if let Some(error) = error {
            self.undo(&order, ready.iter().flatten()).await;
            return Err(failed(&error, Vec::new()));
        }
        let ready: Vec<Ready> = ready.into_iter().flatten().collect();
        let mut bound = Each::default();
        for (task, pod) in order.tasks.iter().zip(&ready) {
            bound.add(self.bind(pod, &task.node.name)).await;
        }
        let bound = bound.all().await;
        let Some(error) = bound.iter().find_map(|bound| bound.as_ref().err().cloned()) else { return Ok(()) };
        let placed = bound.iter().enumerate().filter(|(_, bound)| bound.is_ok()).map(|(at, _)| at).collect();
        let unbound = ready.iter().zip(&bound).filter(|(_, bound)| bound.is_err()).map(|(pod, _)| pod);
        self.undo(&order, unbound).await;
        Err(failed(&error, placed))
    }

    /// Gives a Pod everything but its node: itself, if it is to be made, and its devices.
    async fn make_ready(&self, order: &StartOrder, task: &StartTask) -> Result<Ready, WriteError> {
        match &task.waiting {
            Some(waiting) => self.ready_waiting(task, waiting).await,
            None => self.ready_new(order, task).await,
        }
    }

    async fn ready_waiting(&self, task: &StartTask, waiting: &WaitingPod) -> Result<Ready, WriteError> {
        let ready = Ready {
            key: waiting.key.clone(),
            uid: waiting.uid.clone(),
            version: waiting.version.to_string(),
        };
        let Some(claim) = &waiting.claim else { return Ok(ready) };
        self.hold(task, &claim.key, &claim.uid, &ready.uid).await?;
        let mut version = claim.version.to_string();
        loop {
            match self.allocate_waiting(task, claim, version.clone(), &ready).await {
                Ok(()) => return Ok(ready),
                Err(error) => {
                    version =
                        self.unallocated(&claim.key, &claim.uid, &version, error).await?.resource_version
                }
            }
        }
    }

    /// A claim that could not be written to because somebody else did, as it is now. That changes nothing unless they gave it
    /// something.
    async fn unallocated(
        &self,
        claim: &Key,
        uid: &str,
        version: &str,
        error: WriteError,
    ) -> Result<Meta, WriteError> {
        if !matches!(error, WriteError::Refused { code: 409, .. }) {
            return Err(error);
        }
        let found: ClaimObject = read(&self.0.requests.get(&claim_path(claim)).await?)?;
        let meta = found.metadata;
        let is_free =
            meta.uid == uid && meta.deletion_timestamp.is_none() && found.status.allocation.is_none();
        if is_free && meta.resource_version != version { Ok(meta) } else { Err(error) }
    }

    async fn allocate_waiting(
        &self,
        task: &StartTask,
        claim: &WaitingClaim,
        version: String,
        pod: &Ready,
    ) -> Result<(), WriteError> {
        // A claim that is in use is not deleted before its Pods are gone.
        let protect = json!({
            "metadata": { "uid": &*claim.uid, "resourceVersion": version, "finalizers": [names::CLAIM_FINALIZER] },
        });
        let made: Made = read(&self.0.requests.merge(&claim_path(&claim.key), &protect).await?)?;
        self.allocate(task, &claim.key, &made.metadata, &claim.request, pod).await
    }

    /// Takes devices from the claim of a Pod that waits. A binding of the Pod that is still under way must fail first.
    pub(super) async fn release(&self, pod: &Key, uid: &Text, claim: &Key, claim_uid: &Text) {
        loop {
            match self.try_release(pod, uid, claim, claim_uid).await {
                Ok(()) => return,
                Err(WriteError::Fenced) => return,
                Err(error) if error.is_gone() => return,
                Err(error) => {
                    tracing::warn!(%claim, %error, "devices of a start that failed could not be given back yet");
                    tokio::time::sleep(super::LATER).await;
                }
            }
        }
    }

    async fn try_release(
        &self,
        pod: &Key,
        uid: &Text,
        claim: &Key,
        claim_uid: &Text,
    ) -> Result<(), WriteError> {
        let words = "StartRefused: an earlier start came to nothing; it is tried again";
        match self.say_unscheduled(pod, uid, words).await {
            // The Pod is gone, and its claim goes with it.
            Err(WriteError::Refused { code: 409, .. }) => return Ok(()),
            said => said?,
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let found: Found = read(&self.0.requests.get(&path).await?)?;
        if found.metadata.uid != **uid || found.spec.node_name.is_some() {
            return Ok(());
        }
        let found: ClaimObject = read(&self.0.requests.get(&claim_path(claim)).await?)?;
        let mut meta = found.metadata;
        if meta.uid != **claim_uid {
            return Ok(());
        }
        if found.status.allocation.is_some() {
            let body = json!({
                "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
                "status": { "allocation": null, "reservedFor": null },
            });
            let path = format!("{}/status", claim_path(claim));
            meta = read::<Made>(&self.0.requests.merge(&path, &body).await?)?.metadata;
        }
        // An allocation that is still under way names the version in which it was protected.
        if meta.finalizers.iter().any(|one| one == names::CLAIM_FINALIZER) {
            meta.finalizers.retain(|one| one != names::CLAIM_FINALIZER);
            let body = json!({
                "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": meta.finalizers },
            });
            self.0.requests.merge(&claim_path(claim), &body).await?;
        }
        self.0.ledgers.released(claim);
        Ok(())
    }

    async fn ready_new(&self, order: &StartOrder, task: &StartTask) -> Result<Ready, WriteError> {
        let (workload, project) = order.make.as_ref().ok_or_else(|| refused("the Workload is gone"))?;
        let seats: Vec<Seat<'_>> = order.tasks.iter().map(StartTask::seat).collect();
        let run = Run { workload, project, number: order.run, seats: &seats };
        let rank = task.place.rank;
        let pod = pods::pod(&run, rank).map_err(refused)?;
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let body = serde_json::to_value(&pod).expect("a Pod is JSON");
        let name =
            pods::pod_name(workload.metadata.name.as_deref().unwrap_or_default(), order.run, rank, task.turn);
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let owner = workload.metadata.uid.as_deref().unwrap_or_default();
        let made = self.create(&path, &name, &body, owner).await?;
        let ready = Ready {
            key: Key::new(namespace, &made.name),
            uid: made.uid.as_str().into(),
            version: made.resource_version,
        };
        if task.place.devices.is_empty() || matches!(task.node.gpus, NodeGpus::Counted { .. }) {
            return Ok(ready);
        }
        let owner = k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: made.name,
            uid: made.uid,
            controller: Some(true),
            block_owner_deletion: None,
        };
        let Some(claim) = pods::claim(&run, rank, Some(owner)).map_err(refused)? else { return Ok(ready) };
        let name = claim.metadata.name.clone().unwrap_or_default();
        let key = Key::new(namespace, &name);
        let body = serde_json::to_value(&claim).expect("a claim is JSON");
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
        let mut made = self.create(&path, &name, &body, &ready.uid).await?;
        self.hold(task, &key, &made.uid.as_str().into(), &ready.uid).await?;
        while let Err(error) = self.allocate(task, &key, &made, names::CLAIM_REQUEST, &ready).await {
            made = self.unallocated(&key, &made.uid, &made.resource_version, error).await?;
        }
        Ok(ready)
    }

    /// Makes an object. One of its name and owner that is there already was made by an earlier try whose answer was lost.
    async fn create(&self, path: &str, name: &str, body: &Value, owner: &str) -> Result<Meta, WriteError> {
        let error = match self.0.requests.post(path, body).await {
            Err(error @ WriteError::Refused { code: 409, .. }) => error,
            made => return made.and_then(|made| read(&made)).map(|made: Made| made.metadata),
        };
        let found: Made = read(&self.0.requests.get(&format!("{path}/{name}")).await?)?;
        let meta = found.metadata;
        match meta.owner_references.iter().any(|one| one.controller && one.uid == owner) {
            true if meta.deletion_timestamp.is_none() => Ok(meta),
            _ => Err(error),
        }
    }

    /// Holds shares of devices in the ledger of their node.
    async fn hold(&self, task: &StartTask, claim: &Key, uid: &Text, pod: &Text) -> Result<(), WriteError> {
        let NodeGpus::Claimed { devices, .. } = &task.node.gpus else { return Ok(()) };
        let shares = task.place.devices.iter().filter_map(|taken| {
            let device = devices.get(usize::from(taken.device))?;
            Some((device.name.as_str().into(), taken.share, taken.share.memory(device.memory)))
        });
        let held =
            Held { claim: claim.clone(), uid: uid.clone(), pod: pod.clone(), shares: shares.collect() };
        self.0.ledgers.hold(&self.0.requests, &task.node.name, held).await
    }

    /// Writes into a claim what it gets.
    async fn allocate(
        &self,
        task: &StartTask,
        claim: &Key,
        meta: &Meta,
        request: &str,
        pod: &Ready,
    ) -> Result<(), WriteError> {
        let share_ids: Vec<String> = task.place.devices.iter().map(|_| new_uuid()).collect();
        let mut status = pods::claim_status(&task.place, &task.node, &share_ids, (&pod.key.name, &pod.uid))
            .map_err(refused)?;
        let results = status.allocation.as_mut().and_then(|allocation| allocation.devices.as_mut());
        for result in results.into_iter().flat_map(|devices| devices.results.iter_mut().flatten()) {
            request.clone_into(&mut result.request);
        }
        let body = json!({
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
            "status": status,
        });
        self.0.requests.merge(&format!("{}/status", claim_path(claim)), &body).await?;
        Ok(())
    }

    /// Puts a Pod on its node, if it is still the Pod that was looked at.
    async fn bind(&self, pod: &Ready, node: &str) -> Result<(), WriteError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
        let mut version = pod.version.clone();
        loop {
            let epoch = self.0.requests.epoch()?;
            let body = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": &*pod.key.name,
                    "namespace": &*pod.key.namespace,
                    "uid": &*pod.uid,
                    "resourceVersion": version,
                    "annotations": { names::EPOCH: epoch.to_string() },
                },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            let error = match self.0.requests.post(&format!("{path}/binding"), &body).await {
                Ok(_) => return Ok(()),
                Err(error @ WriteError::Refused { code: 409, .. }) => error,
                Err(error) => return Err(error),
            };
            // Somebody wrote to the Pod in between, perhaps an earlier try of this binding.
            let found: Found = read(&self.0.requests.get(&path).await?)?;
            let same = found.metadata.uid == *pod.uid && found.metadata.deletion_timestamp.is_none();
            match found.spec.node_name.as_deref() {
                Some(bound) if bound == node && same => return Ok(()),
                None if same && found.metadata.resource_version != version => {
                    version = found.metadata.resource_version
                }
                _ => return Err(error),
            }
        }
    }

    /// Takes back what Pods got that are not to be bound: those that were made go. Claims of others are given back when it is
    /// known that their Pods still wait, because a binding whose answer was lost may have been done.
    async fn undo(&self, order: &StartOrder, pods: impl Iterator<Item = &Ready>) {
        let mut undone = Each::default();
        for pod in pods {
            undone.add(self.undo_one(order, pod)).await;
        }
        undone.all().await;
    }

    async fn undo_one(&self, order: &StartOrder, pod: &Ready) {
        if order.make.is_none() {
            return;
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": &*pod.uid } });
        if let Err(error) = self.0.requests.delete(&path, &options).await {
            tracing::warn!(pod = %pod.key, %error, "a start that failed could not be undone; its Pod is looked at again");
        }
    }
}

/// Does things for every task of a start, many at a time, and gives what each came to in their order.
struct Each<F: Future> {
    under_way: FuturesOrdered<F>,
    done: Vec<F::Output>,
}

impl<F: Future> Default for Each<F> {
    fn default() -> Self {
        Self { under_way: FuturesOrdered::new(), done: Vec::new() }
    }
}

impl<F: Future> Each<F> {
    async fn add(&mut self, one: F) {
        if self.under_way.len() == TASKS_AT_ONCE {
            self.done.extend(self.under_way.next().await);
        }
        self.under_way.push_back(one);
    }

    async fn all(mut self) -> Vec<F::Output> {
        while let Some(done) = self.under_way.next().await {
            self.done.push(done);
        }
        self.done
    }
}

/// Whether this is the Pod that was told to go, and nobody has told it so.
pub(super) fn is_staying(pod: &[u8], uid: &str) -> bool {
    read::<Made>(pod).is_ok_and(|pod| pod.metadata.uid == uid && pod.metadata.deletion_timestamp.is_none())
}

fn claim_path(claim: &Key) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name)
}

fn refused(error: impl std::fmt::Display) -> WriteError {
    WriteError::Refused { code: 422, message: error.to_string() }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, WriteError> {
    serde_json::from_slice(bytes)
        .map_err(|error| WriteError::Unanswered(format!("an answer cannot be read: {error}")))
}

/// A random identity, as RFC 9562 has them.
fn new_uuid() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
