//! The raw loop: posts exactly what the operator posts for Pods that are all there, and decides nothing.
//!
//! It runs in a process of its own, with the operator's client settings and as many requests at once, and has one idle
//! watch on Pods and one on Nodes open, because nobody could schedule without them.

use anyhow::{Context, Result, bail, ensure};
use berth_kube::{
    api::{DeviceAllocation, DeviceLedgerSpec},
    names,
    pods::{ClaimedGpu, NodeGpus, SeatNode, claim_status},
    run::{REQUESTS_AT_ONCE, client},
};
use berth_types::{Bytes, Cpu, DeviceShare, NodeId, Place, Share};
use futures_util::future::try_join_all;
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::HashMap, path::Path, sync::Arc};
use tokio::sync::Semaphore;

/// Devices of a node, and Pods that share one of them.
const DEVICES: usize = 8;
const SHARERS: usize = 2;
const DEVICE_MEMORY: Bytes = Bytes::mib(32_510);

/// What the loop posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Writes {
    /// Bindings.
    Bind,
    /// Ledgers, claims and bindings, for halves of devices.
    Claims,
    /// Evictions of half of all Pods.
    Evict,
}

/// What is read of an object.
#[derive(Debug, Deserialize)]
struct Object {
    metadata: Meta,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    resource_claim_statuses: Vec<Claimed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Claimed {
    resource_claim_name: String,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<Object>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    more: String,
}

pub(crate) async fn connect(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    client(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Posts all there is to post.
pub(crate) async fn run(kubeconfig: &Path, namespace: &str, writes: Writes) -> Result<()> {
    let client = connect(kubeconfig).await?;
    let pods = list(&client, &format!("/api/v1/namespaces/{namespace}/pods")).await?;
    let nodes = list(&client, "/api/v1/nodes").await?;
    let mut nodes: Vec<String> = nodes.into_iter().map(|node| node.metadata.name).collect();
    nodes.sort_unstable_by_key(|name| (name.len(), name.clone()));
    for path in ["/api/v1/pods", "/api/v1/nodes"] {
        tokio::spawn(watch_idly(client.clone(), path));
    }
    let poster = Arc::new(Poster { client: client.clone(), gate: Semaphore::new(REQUESTS_AT_ONCE) });
    match writes {
        Writes::Bind => bind_all(poster, pods, &nodes).await,
        Writes::Evict => evict_half(poster, pods).await,
        Writes::Claims => {
            let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
            let claims = list(&client, &path).await?;
            claim_all(poster, pods, claims, &nodes).await
        }
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Object>> {
    let (mut all, mut more) = (Vec::new(), String::new());
    loop {
        let request = http::Request::get(format!("{path}?limit=1000&continue={more}")).body(Vec::new())?;
        let page: List = client.request(request).await?;
        all.extend(page.items);
        if page.metadata.more.is_empty() {
            return Ok(all);
        }
        more = page.metadata.more;
    }
}

/// Reads what comes, and makes nothing of it.
async fn watch_idly(client: Client, path: &str) -> Result<()> {
    let request = http::Request::get(format!("{path}?watch=true&resourceVersion=0")).body(Body::empty())?;
    let mut body = client.send(request).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

struct Poster {
    client: Client,
    gate: Semaphore,
}

impl Poster {
    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(body)?;
        let _turn = self.gate.acquire().await?;
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", "application/json")
            .body(Body::from(bytes))?;
        let response = self.client.send(request).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if !parts.status.is_success() {
            bail!("{method} {path}: {} {}", parts.status, String::from_utf8_lossy(&bytes));
        }
        Ok(bytes.to_vec())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>> {
        self.send("POST", path, "application/json", body).await
    }

    async fn merge(&self, path: &str, body: &Value) -> Result<Vec<u8>> {
        self.send("PATCH", path, "application/merge-patch+json", body).await
    }

    async fn bind(&self, pod: &Meta, node: &str) -> Result<()> {
        let Meta { name, namespace, uid, resource_version } = pod;
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": resource_version,
                "annotations": { names::EPOCH: "1" },
            },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        self.post(&format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"), &body).await?;
        Ok(())
    }

    async fn evict(&self, pod: &Meta) -> Result<()> {
        let Meta { name, namespace, uid, .. } = pod;
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": { "gracePeriodSeconds": 30, "preconditions": { "uid": uid } },
        });
        self.post(&format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"), &body).await?;
        Ok(())
    }
}

/// One task for each, as the operator has for each start.
async fn all_of<T>(tasks: Vec<tokio::task::JoinHandle<Result<T>>>) -> Result<()> {
    for task in try_join_all(tasks).await? {
        task?;
    }
    Ok(())
}

async fn bind_all(poster: Arc<Poster>, pods: Vec<Object>, nodes: &[String]) -> Result<()> {
    ensure!(pods.len() <= nodes.len() * DEVICES, "more Pods than GPUs");
    let tasks = pods.into_iter().enumerate().map(|(at, pod)| {
        let (poster, node) = (Arc::clone(&poster), nodes[at / DEVICES].clone());
        tokio::spawn(async move { poster.bind(&pod.metadata, &node).await })
    });
    all_of(tasks.collect()).await
}

async fn evict_half(poster: Arc<Poster>, pods: Vec<Object>) -> Result<()> {
    let half = pods.len() / 2;
    let tasks = pods.into_iter().take(half).map(|pod| {
        let poster = Arc::clone(&poster);
        tokio::spawn(async move { poster.evict(&pod.metadata).await })
    });
    all_of(tasks.collect()).await
}

/// A Pod with its claim and the device it gets.
struct Guest {
    pod: Meta,
    claim: Meta,
    device: usize,
}

async fn claim_all(
    poster: Arc<Poster>,
    pods: Vec<Object>,
    claims: Vec<Object>,
    nodes: &[String],
) -> Result<()> {
    let mut claims: HashMap<String, Meta> =
        claims.into_iter().map(|claim| (claim.metadata.name.clone(), claim.metadata)).collect();
    let mut guests = Vec::new();
    for (at, pod) in pods.into_iter().enumerate() {
        let claim = pod.status.resource_claim_statuses.first();
        let claim = claim.and_then(|claim| claims.remove(&claim.resource_claim_name));
        let claim = claim.context("a Pod without its claim")?;
        guests.push(Guest { pod: pod.metadata, claim, device: at % (DEVICES * SHARERS) / SHARERS });
    }
    let mut tasks = Vec::new();
    for node in nodes {
        let rest = guests.split_off(guests.len().min(DEVICES * SHARERS));
        let here = std::mem::replace(&mut guests, rest);
        if here.is_empty() {
            break;
        }
        let (poster, node) = (Arc::clone(&poster), node.clone());
        tasks.push(tokio::spawn(async move { fill_node(&poster, here, &node).await }));
    }
    ensure!(guests.is_empty(), "more Pods than halves of GPUs");
    all_of(tasks).await
}

/// The first Pod of a node writes its ledger; the others, who wait for that, share the second write.
async fn fill_node(poster: &Poster, guests: Vec<Guest>, node: &str) -> Result<()> {
    const LEDGERS: &str = "/apis/berth.dev/v1alpha1/deviceledgers";
    let ledger = |guests: &[Guest], version: Option<String>| {
        let mut body = json!({
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "DeviceLedger",
            "metadata": { "name": node },
            "spec": DeviceLedgerSpec { epoch: 1, allocations: guests.iter().map(allocation).collect() },
        });
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.into();
        }
        body
    };
    let made = poster.post(LEDGERS, &ledger(&guests[..1], None)).await?;
    let first = finish(poster, &guests[0], node);
    let others = async {
        if guests.len() > 1 {
            let body = ledger(&guests, Some(version_of(&made)?));
            poster.send("PUT", &format!("{LEDGERS}/{node}"), "application/json", &body).await?;
        }
        try_join_all(guests[1..].iter().map(|guest| finish(poster, guest, node))).await
    };
    tokio::try_join!(first, others)?;
    Ok(())
}

fn version_of(object: &[u8]) -> Result<String> {
    let object: Value = serde_json::from_slice(object)?;
    Ok(object["metadata"]["resourceVersion"].as_str().context("an object without a version")?.to_owned())
}

fn allocation(guest: &Guest) -> DeviceAllocation {
    let share = half();
    DeviceAllocation {
        claim: format!("{}/{}", guest.claim.namespace, guest.claim.name),
        uid: guest.claim.uid.clone(),
        device: format!("gpu-{}", guest.device),
        share: i64::from(share.millionths()),
        memory: share.memory(DEVICE_MEMORY).0 as i64,
        owner: Some(guest.pod.uid.clone()),
    }
}

fn half() -> Share {
    Share::from_millionths(500_000).expect("a half is a share")
}

/// The claim's finalizer, its allocation, and the binding.
async fn finish(poster: &Poster, guest: &Guest, node: &str) -> Result<()> {
    let Meta { name, namespace, uid, resource_version } = &guest.claim;
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
    let protect = json!({ "metadata": {
        "uid": uid, "resourceVersion": resource_version, "finalizers": [names::CLAIM_FINALIZER],
    } });
    let version = version_of(&poster.merge(&path, &protect).await?)?;
    let devices = (0..DEVICES).map(|at| ClaimedGpu { name: format!("gpu-{at}"), memory: DEVICE_MEMORY });
    let seat = SeatNode {
        name: node.to_owned(),
        gpus: NodeGpus::Claimed { pool: node.to_owned(), devices: devices.collect() },
    };
    let place = Place {
        rank: 0,
        node: NodeId(0),
        devices: vec![DeviceShare { device: guest.device as u8, share: half() }],
        cpu: Cpu::ZERO,
        memory: Bytes::ZERO,
    };
    // Any unique text of this form will do.
    let share_ids = [guest.pod.uid.clone()];
    let mut status = claim_status(&place, &seat, &share_ids, (&guest.pod.name, &guest.pod.uid))
        .map_err(|refusal| anyhow::anyhow!(refusal.message))?;
    let results = status.allocation.as_mut().and_then(|allocation| allocation.devices.as_mut());
    for result in results.into_iter().flat_map(|devices| devices.results.iter_mut().flatten()) {
        result.request = crate::stage::REQUEST.to_owned();
    }
    let body = json!({
        "metadata": { "uid": uid, "resourceVersion": version },
        "status": status,
    });
    poster.merge(&format!("{path}/status"), &body).await?;
    poster.bind(&guest.pod, node).await
}
