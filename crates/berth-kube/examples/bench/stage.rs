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
        core::v1::{Namespace, Pod, ServiceAccount},
        resource::v1::{ResourceClaim, ResourceClaimTemplate},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::WatchEvent,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex},
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
}

/// Holds what one watch saw: when each Pod was bound, and when each was told to go.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    pub(crate) bound: HashMap<String, Instant>,
    pub(crate) leaving: HashMap<String, Instant>,
}

#[derive(Debug, Clone, Deserialize)]
struct Slim {
    metadata: SlimMeta,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: String,
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
        let stage = Self { cluster, client, gpus: nodes * GPUS };
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

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
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
        let pods: Api<Pod> = self.api(namespace);
        let make = async |at: u32| -> Result<()> {
            let pod = serde_json::from_value(pod(shape, at, count, scheduler))?;
            pods.create(&PostParams::default(), &pod).await?;
            Ok(())
        };
        stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if shape.claims {
            until("every Pod has its claim", async || {
                let found = pods.list(&ListParams::default()).await?.items;
                let has = |pod: &Pod| {
                    let status = pod.status.as_ref();
                    status
                        .and_then(|status| status.resource_claim_statuses.as_ref())
                        .is_some_and(|all| !all.is_empty())
                };
                Ok(found.len() == count as usize && found.iter().all(has))
            })
            .await?;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    /// Removes all Pods, their claims, and what was written down about devices.
    pub(crate) async fn clear(&self, namespace: &str) -> Result<()> {
        self.remove_all::<Pod>(&self.api(namespace)).await?;
        self.remove_all::<ResourceClaim>(&self.api(namespace)).await?;
        self.remove_all::<api::DeviceLedger>(&Api::all(self.client.clone())).await
    }

    async fn remove_all<K>(&self, all: &Api<K>) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let now = DeleteParams::default().grace_period(0);
        until("everything is gone", async || {
            let found = all.list_metadata(&ListParams::default()).await?.items;
            let remove = async |name: String| match all.delete(&name, &now).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(|_| ()),
            };
            let names = found.iter().map(ResourceExt::name_any);
            stream::iter(names).map(remove).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            Ok(found.is_empty())
        })
        .await
    }

    /// Watches the Pods of a namespace that have a node. What had one before is not counted.
    pub(crate) async fn watch(&self, namespace: &str) -> Result<Arc<Mutex<Sight>>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName!%3D");
        let request = http::Request::get(format!("{path}&limit=1")).body(Vec::new())?;
        let list: Value = self.client.request(request).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
        let request =
            http::Request::get(format!("{path}&watch=true&resourceVersion={version}")).body(Vec::new())?;
        let events = self.client.request_events::<Slim>(request).await?;
        let sight = Arc::new(Mutex::new(Sight::default()));
        let (seen, namespace) = (Arc::downgrade(&sight), namespace.to_owned());
        tokio::spawn(async move {
            futures_util::pin_mut!(events);
            loop {
                let event = match events.try_next().await {
                    Ok(Some(WatchEvent::Error(status))) => {
                        return println!("the watch of {namespace} failed: {status:?}");
                    }
                    Ok(Some(event)) => event,
                    Ok(None) => return println!("the watch of {namespace} ended"),
                    Err(error) => return println!("the watch of {namespace} broke: {error}"),
                };
                let (now, Some(sight)) = (Instant::now(), seen.upgrade()) else { return };
                let mut sight = sight.lock().expect("nobody panics while looking");
                match event {
                    WatchEvent::Added(Slim { metadata }) => {
                        sight.bound.insert(metadata.name, now);
                    }
                    WatchEvent::Modified(Slim { metadata }) | WatchEvent::Deleted(Slim { metadata })
                        if metadata.deletion_timestamp.is_some() =>
                    {
                        sight.leaving.entry(metadata.name).or_insert(now);
                    }
                    _ => {}
                }
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

/// A Pod of a shape.
pub(crate) fn pod(shape: Shape, at: u32, count: u32, scheduler: &str) -> Value {
    let mut container = json!({ "name": "main", "image": "none" });
    if shape.claims {
        container["resources"] = json!({ "claims": [{ "name": "gpu" }] });
    } else {
        container["resources"] = json!({ "limits": { "nvidia.com/gpu": 1 } });
    }
    let mut pod = json!({
        "metadata": { "name": format!("pod-{at}") },
        "spec": { "schedulerName": scheduler, "containers": [container] },
    });
    if shape.claims {
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": "half" }]);
    }
    let together = if shape.together == 0 { count } else { shape.together };
    if together > 1 {
        pod["metadata"]["labels"] = json!({ "berth.dev/group": format!("gang-{}", at / together) });
        pod["metadata"]["annotations"] = json!({ "berth.dev/group-size": together.to_string() });
    }
    pod
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
