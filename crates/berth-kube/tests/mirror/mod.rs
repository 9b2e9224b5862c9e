//! A cluster with the operator in it, and a simulated one beside it that hears of the same things.
#![allow(dead_code, reason = "each test uses a part of it")]

use berth_kube::{
    api,
    run::{self, Options},
};
use berth_sim::{Work, World};
use berth_testbed::{Cluster, NodeSpec};
use berth_types::{
    GpuRequest, Kind, Name, NodeId, Place, Project, Span, Spread, State, Topology, TopologyLevel, Workload,
    WorkloadId, WorkloadSpec,
};
use k8s_openapi::{
    api::core::v1::{Namespace, Pod, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// How long anything may take; what a budget kept is tried again after a minute.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(50);

/// A cluster, or a line that says why there is none.
pub(crate) fn cluster(test: &str, options: berth_testbed::Options) -> Option<Cluster> {
    if let Err(reason) = Cluster::available() {
        eprintln!("NOT TESTED: {test}: {reason}");
        return None;
    }
    Some(Cluster::start(options).expect("the cluster starts"))
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Set RUST_LOG to see what the operator says.
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub(crate) async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig was written");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    run::client(config.expect("the kubeconfig is understood")).expect("a client")
}

/// Our resources, and the namespace of the operator.
pub(crate) async fn install(client: &Client) {
    install_resources(client).await;
    namespace(client, "berth-system").await;
}

pub(crate) async fn install_resources(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in api::crds() {
        crds.create(&PostParams::default(), &crd).await.expect("our resources are accepted");
    }
    for crd in api::crds() {
        let name = crd.metadata.name.expect("a name");
        until(&name, async || {
            let found = crds.get(&name).await.expect("it was made");
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|one| one.type_ == "Established" && one.status == "True")
        })
        .await;
    }
}

pub(crate) async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let body = serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a namespace");
    namespaces.create(&PostParams::default(), &body).await.expect("a namespace is made");
}

/// Waits until the namespace of a project is there with everything that Pods need.
pub(crate) async fn until_there(client: &Client, namespace: &str) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    until("the namespace of a project", async || {
        let default = accounts.get_opt("default").await.is_ok_and(|found| found.is_some());
        default && accounts.get_opt("berth-workload").await.is_ok_and(|found| found.is_some())
    })
    .await;
}

/// Waits for something.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// The operator, inside of this process.
pub(crate) struct Operator {
    stop: oneshot::Sender<()>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Operator {
    pub(crate) fn start(client: &Client) -> Self {
        let (stop, stopped) = oneshot::channel();
        let run = run::run(client.clone(), Options::new("berth-system"), async move {
            let _ = stopped.await;
        });
        let running = tokio::spawn(async move {
            let result = run.await;
            if let Err(error) = &result {
                eprintln!("the operator ended: {error:#}");
            }
            result
        });
        Self { stop, running }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.expect("it does not panic").expect("it stops well");
    }
}

/// What a workload has, in names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Has {
    Waits,
    /// Its tasks: the node, and shares of devices in millionths.
    Runs(Vec<(String, Vec<(u8, u32)>)>),
}

/// What every unfinished workload has; nothing while something is under way.
pub(crate) fn standing(state: &State) -> Option<BTreeMap<String, Has>> {
    let mut standing = BTreeMap::new();
    for workload in state.workloads.values().filter(|workload| !workload.is_finished()) {
        let under_way = !workload.leaving().is_empty() || (!workload.is_running() && !workload.is_queued());
        if under_way {
            return None;
        }
        let place = |place: &Place| {
            let devices = place.devices.iter().map(|one| (one.device, one.share.millionths())).collect();
            (state.nodes[&place.node].name.clone(), devices)
        };
        let mut places: Vec<_> = workload.places().map(place).collect();
        places.sort();
        let has = if places.is_empty() { Has::Waits } else { Has::Runs(places) };
        standing.insert(workload.spec.name.clone(), has);
    }
    Some(standing)
}

/// A real cluster, and a simulated one that hears of the same things.
pub(crate) struct Mirror {
    pub(crate) client: Client,
    pub(crate) sim: World,
    /// Names of projects, and in which namespace their work is.
    projects: BTreeMap<berth_types::ProjectId, String>,
    names: BTreeMap<WorkloadId, (String, String)>,
}

impl Mirror {
    pub(crate) fn new(client: &Client, sim: World) -> Self {
        Self { client: client.clone(), sim, projects: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// Waits until the real cluster stands where the simulated one does when all is settled.
    pub(crate) async fn agree(&mut self, after: &str) -> State {
        eprintln!("{after}");
        let limit = self.sim.now() + Span::secs(3600);
        assert!(self.sim.run_until_settled(limit), "{after}: the simulation does not settle");
        let expected = standing(self.sim.state()).expect("what is settled is not under way");
        let end = Instant::now() + LIMIT;
        loop {
            let state = run::look(self.client.clone()).await.expect("the API server answers");
            let found = standing(&state);
            if found.as_ref() == Some(&expected) {
                let findings = berth_check::check_state(&state);
                assert!(findings.is_empty(), "{after}: {findings:?}");
                return state;
            }
            if Instant::now() > end {
                panic!("{after}: the clusters differ\nsimulated {expected:#?}\nreal {found:#?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) async fn project(&mut self, project: &Project) {
        self.sim.apply(berth_types::Change::ProjectSet(project.clone())).expect("a project that can be");
        let name = project.name.clone();
        self.projects.insert(project.id, name.clone());
        let entitlement = project.entitlements.values().next().cloned().unwrap_or_default();
        let text = |gpus: berth_types::Gpus| berth_kube::quantity::gpus_text(gpus);
        let mut spec = json!({});
        for (field, value) in
            [("quota", entitlement.quota), ("limit", entitlement.limit), ("weight", entitlement.weight)]
        {
            if let Some(value) = value {
                spec[field] = text(value).into();
            }
        }
        if entitlement.rank != 0 {
            spec["rank"] = entitlement.rank.into();
        }
        let body = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name }, "spec": spec,
        });
        let projects: Api<api::Project> = Api::all(self.client.clone());
        let parameters = PatchParams::apply("test").force();
        projects.patch(&name, &parameters, &Patch::Apply(&body)).await.expect("the project is accepted");
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        until("the namespace of a project", async || {
            namespaces.get_opt(&format!("berth-{name}")).await.expect("the API server answers").is_some()
        })
        .await;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(self.client.clone(), &format!("berth-{name}"));
        until("the account of a project", async || {
            accounts.get_opt("berth-workload").await.expect("the API server answers").is_some()
        })
        .await;
    }

    pub(crate) async fn submit(&mut self, id: WorkloadId, spec: &WorkloadSpec, work: Work) {
        let now = self.sim.now();
        self.sim.submit(Workload::submitted(id, spec.clone(), now), work).expect("a workload that can be");
        let namespace = format!("berth-{}", self.projects[&spec.project]);
        self.names.insert(id, (namespace.clone(), spec.name.clone()));
        let workloads: Api<api::Workload> = Api::namespaced(self.client.clone(), &namespace);
        let body = serde_json::from_value(workload_json(spec)).expect("a workload");
        workloads.create(&PostParams::default(), &body).await.expect("the workload is accepted");
    }

    /// Workloads that are not over, by id.
    pub(crate) fn unfinished(&self) -> Vec<WorkloadId> {
        let workloads = self.sim.state().workloads.values();
        workloads.filter(|workload| !workload.is_finished()).map(|workload| workload.id).collect()
    }

    pub(crate) fn running(&self) -> Vec<WorkloadId> {
        let workloads = self.sim.state().workloads.values();
        workloads.filter(|workload| workload.is_running()).map(|workload| workload.id).collect()
    }

    /// The tasks of a workload do their work, one after the other.
    pub(crate) async fn finish(&mut self, id: WorkloadId, after: &str) {
        let (namespace, name) = self.names[&id].clone();
        let ranks: Vec<u32> = self.sim.state().workloads[&id].base_places().map(|place| place.rank).collect();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        for rank in ranks {
            let (at, outcome) = (self.sim.now(), berth_types::TaskOutcome::Succeeded);
            let ended = berth_types::Change::Ended { workload: id, rank, outcome, at };
            self.sim.apply(ended).expect("it runs");
            let labels = format!("berth.dev/workload={name},berth.dev/rank={rank}");
            let pod = self.running_pod(&pods, &labels, after).await;
            eprintln!("ends {pod}");
            // As its kubelet would say.
            let patch = json!({ "status": { "phase": "Succeeded" } });
            pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .expect("it is there");
            self.agree(&format!("{after}, task {rank} of {name} ended")).await;
        }
    }

    /// The Pod of a task that runs. It is placed before its node says that it runs.
    async fn running_pod(&self, pods: &Api<Pod>, labels: &str, after: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let found = pods.list(&ListParams::default().labels(labels)).await;
            let mut found = found.expect("the API server answers").items.into_iter();
            let runs = |pod: &Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            };
            if let Some(pod) = found.rfind(runs) {
                return pod.name_any();
            }
            assert!(Instant::now() < end, "{after}: no Pod of {labels} runs");
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn lose(&mut self, cluster: &Cluster, name: &str) {
        let id = self.node(name);
        self.sim.lose(id);
        cluster.remove_node(name).expect("it is there");
    }

    pub(crate) fn restore(&mut self, cluster: &Cluster, name: &str) {
        let first: u32 = name.trim_start_matches("node").parse().expect("nodes have numbers");
        self.sim.restore(NodeId(u64::from(first)));
        let spec = NodeSpec { first, ..NodeSpec::dgx1(1).with_dra() };
        cluster.add_nodes(&spec).expect("it was removed");
    }

    fn node(&self, name: &str) -> NodeId {
        let nodes = &self.sim.state().nodes;
        nodes.values().find(|node| node.name == name).expect("a node").id
    }

    /// Everything goes, so that another story can begin.
    pub(crate) async fn clear(&mut self) {
        for project in self.projects.values() {
            let namespace = format!("berth-{project}");
            let workloads: Api<api::Workload> = Api::namespaced(self.client.clone(), &namespace);
            let all = ListParams::default();
            workloads.delete_collection(&DeleteParams::default(), &all).await.expect("workloads go");
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            until("no Pod is left", async || {
                pods.list(&all).await.expect("the API server answers").items.is_empty()
            })
            .await;
            let projects: Api<api::Project> = Api::all(self.client.clone());
            projects.delete(project, &DeleteParams::default()).await.expect("the project goes");
        }
    }

    pub(crate) async fn delete(&mut self, ids: &[WorkloadId]) {
        let at = self.sim.now();
        for id in ids {
            self.sim.apply(berth_types::Change::Cancelled { workload: *id, at }).expect("it is there");
            let (namespace, name) = &self.names[id];
            let workloads: Api<api::Workload> = Api::namespaced(self.client.clone(), namespace);
            workloads.delete(name, &DeleteParams::default()).await.expect("it is there");
        }
    }
}

/// A workload of the simulator as somebody would write it for Kubernetes.
pub(crate) fn workload_json(spec: &WorkloadSpec) -> Value {
    let kind = match spec.kind {
        Kind::Train if spec.tasks.max() == 1 => "train",
        Kind::Train | Kind::Distributed => "distributed",
        Kind::Interactive => "interactive",
        Kind::Inference => "inference",
    };
    let mut body = json!({
        "kind": kind,
        "image": "berth/quickstart",
        "priority": spec.priority,
        "preemptible": spec.preemptible,
        "gracePeriod": "1s",
        "backoffLimit": spec.retry_limit.min(100),
        "spread": spec.spread == Spread::Spread,
        "apart": spec.spread == Spread::Apart,
    });
    match spec.request.gpu {
        GpuRequest::None => {}
        GpuRequest::Whole(count) => body["gpus"] = count.get().into(),
        GpuRequest::Fraction { share, devices } => {
            body["gpus"] = berth_kube::quantity::gpus_text(share.gpus()).into();
            if devices.get() > 1 {
                body["gpuDevices"] = devices.get().into();
            }
        }
        GpuRequest::Memory { bytes, devices } => {
            body["gpuMemory"] = bytes.get().to_string().into();
            if devices.get() > 1 {
                body["gpuDevices"] = devices.get().into();
            }
        }
    }
    if !spec.request.cpu.is_zero() {
        body["cpu"] = berth_kube::quantity::cpu_text(spec.request.cpu).into();
    }
    if !spec.request.memory.is_zero() {
        body["memory"] = spec.request.memory.0.to_string().into();
    }
    if !spec.request.models.is_empty() {
        body["gpuModels"] = spec.request.models.iter().map(|model| Value::from(&**model)).collect();
    }
    if spec.tasks.max() > 1 {
        body["workers"] = spec.tasks.max().into();
        if spec.tasks.min() < spec.tasks.max() {
            body["minWorkers"] = spec.tasks.min().into();
        }
    }
    let level = |level: &TopologyLevel| match level {
        TopologyLevel::Node => Value::from("node"),
        TopologyLevel::Label(label) => Value::from(&**label),
    };
    let Topology { required, preferred } = &spec.topology;
    if required.is_some() || preferred.is_some() {
        body["topology"] = json!({});
        if let Some(required) = required {
            body["topology"]["required"] = level(required);
        }
        if let Some(preferred) = preferred {
            body["topology"]["preferred"] = level(preferred);
        }
    }
    let first = |values: &std::collections::BTreeSet<Name>| values.first().map(ToString::to_string);
    for (key, values) in &spec.selector.0 {
        body["nodeSelector"][&**key] = first(values).into();
    }
    json!({
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "Workload",
        "metadata": { "name": spec.name },
        "spec": body,
    })
}

/// The name of a node of the simulator.
pub(crate) fn node_name(state: &State, id: NodeId) -> String {
    state.nodes[&id].name.clone()
}

/// Nodes of the simulator like those of the cluster.
pub(crate) fn sim_nodes(count: u32) -> Vec<berth_types::Node> {
    let text = format!("nodes {count} x dgx1");
    let scenario = berth_sim::scenario::Scenario::parse("nodes", &text).expect("a line about nodes");
    let nodes = scenario.lines.into_iter().find_map(|line| match line.statement {
        berth_sim::scenario::Statement::Nodes(nodes) => Some(nodes),
        _ => None,
    });
    nodes.expect("nodes")
}
