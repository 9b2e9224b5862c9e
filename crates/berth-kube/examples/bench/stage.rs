//! The stage: a real control plane with simulated nodes, Pods to place, and one watch from outside that sees them bound.

use crate::{
    process::{Started, cpu_secs},
    raw::{self, Writes},
};
use anyhow::{Context, Result, bail};
use berth_kube::api;
use berth_testbed::{Cluster, NodeSpec};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        core::v1::{Namespace, ServiceAccount},
        resource::v1::ResourceClaimTemplate,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::WatchEvent,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// GPUs of a node.
pub(crate) const GPUS: u32 = 8;
/// Name of the one request of claims.
pub(crate) const REQUEST: &str = "part";
/// Where Pods are that are bound by whoever is measured.
pub(crate) const NAMESPACE: &str = "berth-bench";
/// Requests at once when Pods are made and removed.
const AT_ONCE: usize = 64;
/// For so long hardly anything happens when everything is done.
const QUIET: Duration = Duration::from_secs(2);
/// Far more than anything takes, so that running into it means that something is wrong.
const LIMIT: Duration = Duration::from_secs(900);

/// Pods of which group sizes, and how they ask for GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Pods that start together; 1 for single Pods, 0 for all of them.
    pub(crate) together: u32,
    pub(crate) claims: bool,
}

/// A control plane with nodes, and a client.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) gpus: u32,
    /// Lots of Pods that were made so far.
    lots: AtomicU32,
}

/// Holds what one watch saw: when each Pod was bound, and when each was told to go.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    pub(crate) bound: HashMap<String, Instant>,
    pub(crate) leaving: HashMap<String, Instant>,
}

#[derive(Debug, Deserialize)]
struct SlimList {
    items: Vec<Slim>,
}

#[derive(Debug, Clone, Deserialize)]
struct Slim {
    metadata: SlimMeta,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

impl Stage {
    pub(crate) async fn new(nodes: u32, dra: bool) -> Result<Self> {
        let spec = NodeSpec::dgx1(nodes);
        let spec = if dra { spec.with_dra() } else { spec };
        println!(
            "a control plane with {nodes} nodes of {GPUS} GPUs ({})",
            if dra { "claims" } else { "counted" }
        );
        let options = berth_testbed::Options { nodes: vec![spec], ..Default::default() };
        let cluster = tokio::task::block_in_place(|| Cluster::start(options))?;
        let client = raw::connect(cluster.kubeconfig()).await?;
        let stage = Self { cluster, client, gpus: nodes * GPUS, lots: AtomicU32::new(0) };
        let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
        for crd in api::crds() {
            crds.create(&PostParams::default(), &crd).await?;
        }
        for crd in api::crds() {
            let name = crd.name_any();
            until("our resources are there", async || {
                let found = crds.get(&name).await?;
                let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
                Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"))
            })
            .await?;
        }
        stage.namespace("berth-system").await?;
        stage.project("bench", NAMESPACE, json!({ "quota": stage.gpus })).await?;
        if dra {
            let template = json!({
                "metadata": { "name": "half" },
                "spec": { "spec": { "devices": { "requests": [{ "name": REQUEST, "exactly": {
                    "deviceClassName": "gpu.berth.dev", "capacity": { "requests": { "share": "500000" } },
                } }] } } },
            });
            let templates: Api<ResourceClaimTemplate> = Api::namespaced(stage.client.clone(), NAMESPACE);
            templates.create(&PostParams::default(), &serde_json::from_value(template)?).await?;
        }
        Ok(stage)
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let body = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        namespaces.create(&PostParams::default(), &body).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        until("the service account of a namespace", async || Ok(accounts.get_opt("default").await?.is_some()))
            .await
    }

    /// A project whose namespace is there before anybody asks for it.
    pub(crate) async fn project(&self, name: &str, namespace: &str, spec: Value) -> Result<()> {
        self.namespace(namespace).await?;
        let projects: Api<api::Project> = Api::all(self.client.clone());
        let project = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name }, "spec": spec,
        });
        projects.create(&PostParams::default(), &serde_json::from_value(project)?).await?;
        Ok(())
    }

    pub(crate) async fn change_project(&self, name: &str, spec: Value) -> Result<()> {
        let projects: Api<api::Project> = Api::all(self.client.clone());
        projects.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
        Ok(())
    }

    pub(crate) fn pid(&self, name: &str) -> Result<u32> {
        let pids = self.cluster.pids();
        let found = pids.into_iter().find(|(known, _)| known == name);
        Ok(found.with_context(|| format!("{name} does not run"))?.1)
    }

    pub(crate) fn cpu_of(&self, name: &str) -> f64 {
        self.pid(name).map_or(0.0, cpu_secs)
    }

    /// Makes Pods that wait, and waits until everything of them is there.
    pub(crate) async fn make_pods(
        &self,
        shape: Shape,
        namespace: &str,
        count: u32,
        scheduler: &str,
    ) -> Result<()> {
        let lot = self.next_lot();
        let make = async |at: u32| self.make_pod(namespace, &pod(shape, lot, at, count, scheduler)).await;
        stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if shape.claims {
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            until("every Pod has its claim", async || {
                let list: Value = self.client.request(http::Request::get(&path).body(Vec::new())?).await?;
                let pods = list["items"].as_array().context("a list has items")?;
                let has = |pod: &&Value| pod["status"]["resourceClaimStatuses"][0].is_object();
                Ok(pods.iter().filter(has).count() == count as usize)
            })
            .await?;
        }
        self.wait_until_quiet().await
    }

    /// A number for Pods that are made together. Each lot has names of its own: kwok removes Pods by name, some time after
    /// others have, and would remove their namesakes.
    pub(crate) fn next_lot(&self) -> u32 {
        self.lots.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until the control plane is done with what came before.
    pub(crate) async fn wait_until_quiet(&self) -> Result<()> {
        let busy = || {
            let names = ["kube-apiserver", "kube-controller-manager", "kwok"];
            names.into_iter().map(|name| self.cpu_of(name)).sum::<f64>()
        };
        let mut before = busy();
        until("the control plane is quiet", async || {
            tokio::time::sleep(QUIET).await;
            let now = busy();
            let used = now - std::mem::replace(&mut before, now);
            Ok(used < 0.15 * QUIET.as_secs_f64())
        })
        .await
    }

    pub(crate) async fn make_pod(&self, namespace: &str, pod: &Value) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let request = http::Request::post(path).header("content-type", "application/json");
        let _: IgnoredAny = self.client.request(request.body(serde_json::to_vec(pod)?)?).await?;
        Ok(())
    }

    /// Removes all Pods, their claims, and what was written down about devices.
    pub(crate) async fn clear(&self, namespace: &str) -> Result<()> {
        self.remove_all(&format!("/api/v1/namespaces/{namespace}/pods")).await?;
        self.remove_all(&format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")).await?;
        self.remove_all("/apis/berth.dev/v1alpha1/deviceledgers").await
    }

    async fn remove_all(&self, path: &str) -> Result<()> {
        until("everything is gone", async || {
            let list: SlimList = self.client.request(http::Request::get(path).body(Vec::new())?).await?;
            let remove = async |one: &Slim| -> Result<()> {
                let path = format!("{path}/{}?gracePeriodSeconds=0", one.metadata.name);
                match self.client.request::<IgnoredAny>(http::Request::delete(path).body(Vec::new())?).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    other => Ok(other.map(|_| ())?),
                }
            };
            stream::iter(&list.items).map(remove).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            Ok(list.items.is_empty())
        })
        .await
    }

    /// Watches the Pods of a namespace that have a node. What had one before is not counted.
    pub(crate) async fn watch(&self, namespace: &str) -> Result<Arc<Mutex<Sight>>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName!%3D");
        let request = http::Request::get(format!("{path}&limit=1")).body(Vec::new())?;
        let list: Value = self.client.request(request).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
        let sight = Arc::new(Mutex::new(Sight::default()));
        let watch = watch(self.client.clone(), path, version.to_owned(), Arc::downgrade(&sight));
        tokio::spawn(async move {
            if let Err(error) = watch.await {
                println!("a watch broke: {error:#}");
            }
        });
        Ok(sight)
    }

    /// How many requests that write the API server has answered, by what they write.
    pub(crate) async fn writes(&self) -> Result<BTreeMap<String, u64>> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client.request_text(request).await?;
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let from = line.find(&format!("{name}=\""))? + name.len() + 2;
                line[from..].split('"').next()
            };
            let (verb, resource) = (label("verb").unwrap_or(""), label("resource").unwrap_or(""));
            if !["POST", "PUT", "PATCH", "DELETE", "APPLY"].contains(&verb) || resource == "leases" {
                continue;
            }
            let part = label("subresource").filter(|part| !part.is_empty());
            let name =
                part.map_or_else(|| format!("{verb} {resource}"), |part| format!("{verb} {resource}/{part}"));
            let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap_or(0.0);
            *counts.entry(name).or_insert(0) += value as u64;
        }
        Ok(counts)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.cluster.folder().join(name)
    }

    /// The operator, in a process of its own.
    pub(crate) fn operator(&self, level: &str) -> Result<Started> {
        let program = std::env::current_exe()?;
        // Examples are built next to the folder of programs.
        let folder = program.parent().and_then(|folder| folder.parent()).context("a folder of programs")?;
        let kubeconfig = format!("--kubeconfig={}", self.cluster.kubeconfig().display());
        Started::new(&folder.join("berth-operator"), &[kubeconfig], level, self.log("operator.log"))
    }

    /// The raw loop, in a process of its own.
    pub(crate) fn raw(&self, namespace: &str, writes: Writes) -> Result<Started> {
        let words = ["raw", "--namespace", namespace, "--kubeconfig"].map(str::to_owned);
        let writes =
            clap::ValueEnum::to_possible_value(&writes).context("a known word")?.get_name().to_owned();
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let arguments: Vec<String> =
            words.into_iter().chain([kubeconfig, "--writes".into(), writes]).collect();
        Started::new(&std::env::current_exe()?, &arguments, "warn", self.log("raw.log"))
    }
}

/// Watches for as long as somebody looks. The server ends a watch that does not take what it sends in time, as happens on
/// a busy machine; it is resumed where it was.
async fn watch(client: Client, path: String, mut version: String, seen: Weak<Mutex<Sight>>) -> Result<()> {
    while seen.strong_count() > 0 {
        let path = format!("{path}&watch=true&resourceVersion={version}");
        let events = client.request_events::<Slim>(http::Request::get(path).body(Vec::new())?).await?;
        futures_util::pin_mut!(events);
        while let Some(event) = events.try_next().await? {
            let (now, Some(sight)) = (Instant::now(), seen.upgrade()) else { return Ok(()) };
            let mut sight = sight.lock().expect("nobody panics while looking");
            match event {
                WatchEvent::Added(Slim { metadata }) => {
                    version = metadata.resource_version;
                    sight.bound.insert(metadata.name, now);
                }
                WatchEvent::Modified(Slim { metadata }) | WatchEvent::Deleted(Slim { metadata }) => {
                    version = metadata.resource_version;
                    if metadata.deletion_timestamp.is_some() {
                        sight.leaving.entry(metadata.name).or_insert(now);
                    }
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("{}", status.message),
            }
        }
    }
    Ok(())
}

/// A Pod of a shape.
pub(crate) fn pod(shape: Shape, lot: u32, at: u32, count: u32, scheduler: &str) -> Value {
    let mut container = json!({ "name": "main", "image": "none" });
    if shape.claims {
        container["resources"] = json!({ "claims": [{ "name": "gpu" }] });
    } else {
        container["resources"] = json!({ "limits": { "nvidia.com/gpu": 1 } });
    }
    let mut pod = json!({
        "metadata": { "name": pod_name(lot, at) },
        "spec": { "schedulerName": scheduler, "containers": [container] },
    });
    if shape.claims {
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": "half" }]);
    }
    let together = if shape.together == 0 { count } else { shape.together };
    if together > 1 {
        pod["metadata"]["labels"] = json!({ "berth.dev/group": format!("gang-{lot}-{}", at / together) });
        pod["metadata"]["annotations"] = json!({ "berth.dev/group-size": together.to_string() });
    }
    pod
}

pub(crate) fn pod_name(lot: u32, at: u32) -> String {
    format!("pod-{lot}-{at}")
}

/// Waits for something.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !holds().await? {
        if Instant::now() > end {
            bail!("{what}: not within {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
