//! What a real API server says about our resources, our roles and the objects of a run. Without its programs it says what
//! is not tested, and passes.

use berth_kube::{
    api::{Member, MemberKind, Project, ProjectSpec, Workload},
    manifest::{Settings, manifest},
    pods::{self, ClaimedGpu, NodeGpus, Run, Seat, SeatNode},
    tenancy,
};
use berth_testbed::{Cluster, Options};
use berth_types::{Bytes, Cpu, DeviceShare, NodeId, Place, Share};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{future::Future, path::Path, time::Duration};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// A cluster with Berth's manifest, or a line that says why there is none.
fn start(test: &str) -> Option<Cluster> {
    if let Err(reason) = Cluster::available() {
        eprintln!("NOT TESTED: {test}: {reason}");
        return None;
    }
    let options = Options { controller_manager: false, kwok: false, ..Options::default() };
    let cluster = Cluster::start(options).expect("the cluster starts");
    run(async {
        let admin = Server::connect(cluster.kubeconfig()).await;
        for object in manifest(&Settings::default()) {
            admin.apply(&object).await.expect("what is shipped is accepted");
        }
        // Definitions are served a moment after they were taken.
        for _ in 0..100 {
            let all = ["workloads", "projects", "departments", "nodepools", "deviceledgers"];
            let mut known = 0;
            for plural in all {
                known += usize::from(admin.get(&format!("/apis/berth.dev/v1alpha1/{plural}")).await.is_ok());
            }
            if known == all.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the resources are not served");
    });
    Some(cluster)
}

/// The API server, as somebody sees it.
struct Server(Client);

impl Server {
    async fn connect(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig was written");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Self(Client::try_from(config.expect("the kubeconfig is understood")).expect("a client"))
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, String> {
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("is JSON") };
        let answer = self.0.request::<Value>(request.body(body).expect("a request")).await;
        answer.map_err(|error| error.to_string())
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        self.send("GET", path, "application/json", &Value::Null).await
    }

    async fn create(&self, object: &Value) -> Result<Value, String> {
        self.send("POST", &collection(object), "application/json", object).await
    }

    /// Only asks whether it would be accepted.
    async fn try_create(&self, object: &Value) -> Result<Value, String> {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
        self.send("POST", &path, "application/json", object).await
    }

    async fn apply(&self, object: &Value) -> Result<Value, String> {
        let path = format!("{}?fieldManager=berth&force=true", item(object));
        self.send("PATCH", &path, "application/apply-patch+yaml", object).await
    }

    async fn merge(&self, path: &str, change: &Value) -> Result<Value, String> {
        self.send("PATCH", path, "application/merge-patch+json", change).await
    }
}

/// Where objects of this kind live.
fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

fn item(object: &Value) -> String {
    format!("{}/{}", collection(object), object["metadata"]["name"].as_str().expect("is named"))
}

fn typed(version: &str, kind: &str, object: impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(object).expect("is JSON");
    value["apiVersion"] = json!(version);
    value["kind"] = json!(kind);
    value
}

fn ours(kind: &str, name: &str, spec: &Value) -> Value {
    typed("berth.dev/v1alpha1", kind, json!({ "metadata": { "name": name }, "spec": spec }))
}

fn workload(name: &str, spec: &Value) -> Value {
    let mut all = json!({ "image": "trainer" });
    all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let mut object = ours("Workload", name, &all);
    object["metadata"]["namespace"] = json!("default");
    object
}

#[test]
fn the_api_server_refuses_what_cannot_be_and_says_what_to_do() {
    let Some(cluster) = start("the rules of our resources") else { return };
    run(async {
        let admin = Server::connect(cluster.kubeconfig()).await;
        for spec in [
            json!({}),
            json!({ "gpus": 2 }),
            json!({ "gpus": "0.5" }),
            json!({ "gpus": "500m", "gpuDevices": 2 }),
            json!({ "gpus": 0 }),
            json!({ "gpus": null }),
            json!({ "gpuMemory": "16Gi" }),
            json!({ "gpuMemory": 17_179_869_184_u64 }),
            json!({ "kind": "distributed", "workers": 4, "minWorkers": 2 }),
            json!({ "priority": "high" }),
            json!({ "priority": 70 }),
            json!({ "maxRunTime": "1h30m", "gracePeriod": "0s" }),
            json!({ "env": [{ "name": "T", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
            json!({ "volumes": [{ "claim": "data", "path": "/data" }], "ports": [80], "serviceType": "NodePort" }),
            json!({ "podTemplate": { "spec": { "anything": { "is": "kept" } } } }),
        ] {
            let answer = admin.try_create(&workload("good", &spec)).await;
            assert!(answer.is_ok(), "{spec}: {answer:?}");
        }
        let kept = json!({ "anything": { "is": "kept" } });
        let answer = admin.try_create(&workload("good", &json!({ "podTemplate": { "spec": kept } }))).await;
        assert_eq!(answer.expect("is accepted")["spec"]["podTemplate"]["spec"], kept);

        let long = "a".repeat(58);
        for (object, words) in [
            (workload("bad", &json!({ "gpus": "1.5" })), "above one GPU only whole GPUs"),
            (workload("bad", &json!({ "gpus": -1 })), "cannot be negative"),
            (workload("bad", &json!({ "gpus": "many" })), "write a whole number of GPUs"),
            (workload("bad", &json!({ "gpus": 65 })), "more than 64 GPUs"),
            (workload("bad", &json!({ "gpus": 1, "gpuMemory": "1Gi" })), "not for both"),
            (workload("bad", &json!({ "gpuMemory": 0 })), "hold nothing"),
            (workload("bad", &json!({ "gpuDevices": 2, "gpus": 2 })), "say how much of each"),
            (workload("bad", &json!({ "gpuModels": ["V100"] })), "no GPU is asked for"),
            (workload("bad", &json!({ "workers": 2 })), "kind: distributed"),
            (workload("bad", &json!({ "kind": "distributed", "minWorkers": 2 })), "cannot be above workers"),
            (workload("bad", &json!({ "kind": "batch" })), "supported values"),
            (workload("bad", &json!({ "priority": "urgent" })), "write a number, or one of"),
            (workload("bad", &json!({ "maxRunTime": "0s" })), "above nothing"),
            (workload("bad", &json!({ "gracePeriod": "soon" })), "with a unit"),
            (workload("bad", &json!({ "memory": "much" })), "write memory as a quantity"),
            (workload("bad", &json!({ "volumes": [{ "path": "/data" }] })), "name a persistent volume claim"),
            (workload("bad", &json!({ "serviceType": "NodePort" })), "name them in ports"),
            (workload("bad", &json!({ "gpu": 1 })), "unknown field"),
            (workload("1bad", &json!({})), "begins with a letter"),
            (workload(&long, &json!({})), "at most 50 long"),
            (ours("Project", &long, &json!({})), "at most 57 long"),
            (ours("Project", "p", &json!({ "pools": { "default": { "quota": 1 } } })), "directly in spec"),
            (
                ours("Project", "p", &json!({ "pools": { "big": { "quota": "x" } } })),
                "write an amount of GPUs",
            ),
            (ours("Project", "p", &json!({ "namespaces": ["kube-system"] })), "belong to no project"),
            (ours("Department", "d", &json!({ "parent": "d" })), "part of itself"),
            (ours("NodePool", "p", &json!({})), "may go without labels"),
        ] {
            let refused = admin.try_create(&object).await.expect_err(&object.to_string());
            assert!(refused.contains(words), "{}: {refused}", object["spec"]);
        }
        let ledger = |epoch: i64| ours("DeviceLedger", "node1", &json!({ "epoch": epoch }));
        admin.create(&ledger(2)).await.expect("is accepted");
        let refused = admin.merge(&item(&ledger(1)), &json!({ "spec": { "epoch": 1 } })).await;
        assert!(refused.expect_err("has an earlier epoch").contains("earlier epoch"));

        what_runs_stays_until_it_is_suspended(&admin).await;
    });
}

async fn what_runs_stays_until_it_is_suspended(admin: &Server) {
    let object = workload("train", &json!({ "gpus": 2, "command": ["a"] }));
    admin.create(&object).await.expect("is accepted");
    let path = item(&object);
    for (change, words) in [
        (json!({ "gpus": 3 }), "set suspend: true first"),
        (json!({ "command": ["b"] }), "set suspend: true first"),
        (json!({ "env": [{ "name": "A", "value": "1" }] }), "set suspend: true first"),
        (json!({ "kind": "interactive" }), "delete it and submit another"),
    ] {
        let refused = admin.merge(&path, &json!({ "spec": change })).await.expect_err("is refused");
        assert!(refused.contains(words), "{change}: {refused}");
    }
    for change in [
        json!({ "priority": "high", "maxRunTime": "2h" }),
        json!({ "suspend": true }),
        json!({ "gpus": 3, "command": ["b"] }),
        json!({ "suspend": false, "gpus": "0.5" }),
    ] {
        admin.merge(&path, &json!({ "spec": change })).await.expect("is accepted");
    }
    assert!(admin.merge(&path, &json!({ "spec": { "gpus": 1 } })).await.is_err(), "it may run again");
}

#[test]
fn with_the_shipped_roles_a_worker_is_made_allocated_and_bound() {
    let Some(cluster) = start("the objects of a run, with the shipped roles") else { return };
    let account = cluster.kubeconfig_of("berth-system", "berth-operator").expect("the account was applied");
    run(async {
        let admin = Server::connect(cluster.kubeconfig()).await;
        let operator = Server::connect(&account).await;
        let member = Member { kind: MemberKind::User, name: "ada".into() };
        let project = Project::new("team-a", ProjectSpec { members: vec![member], ..ProjectSpec::default() });
        for tenancy in tenancy::tenancies(&project) {
            let members = typed("rbac.authorization.k8s.io/v1", "RoleBinding", tenancy.members);
            let account = typed("v1", "ServiceAccount", tenancy.account);
            for object in [typed("v1", "Namespace", tenancy.namespace), account, members] {
                operator.apply(&object).await.expect("the operator makes what projects need");
            }
        }
        let mut submitted = workload(
            "gang",
            &json!({
                "kind": "distributed", "workers": 2, "gpus": "0.5", "gpuDevices": 2, "gpuModels": ["V100"], "cpu": 1,
                "memory": "4Gi", "largeShm": true, "ports": [8888], "serviceType": "Ingress", "user": "ada",
                "volumes": [{ "claim": "data", "path": "/data" }], "priority": "high", "gracePeriod": "90s",
            }),
        );
        submitted["metadata"]["namespace"] = json!("berth-team-a");
        let workload: Workload =
            serde_json::from_value(admin.create(&submitted).await.expect("is accepted")).expect("is read");
        let status = json!({ "status": { "phase": "Starting", "queuedAt": "2026-11-17T08:00:00.000123Z" } });
        let written = operator.merge(&format!("{}/status", item(&submitted)), &status).await;
        assert_eq!(written.expect("the operator says where it stands")["status"], status["status"]);

        admin
            .create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node1" } }))
            .await
            .expect("a node");
        let half = Share::from_millionths(500_000).expect("half");
        let devices = [1, 4].map(|device| DeviceShare { device, share: half }).to_vec();
        let place = Place { rank: 0, node: NodeId(1), devices, cpu: Cpu::ZERO, memory: Bytes::ZERO };
        let device = |index| ClaimedGpu { name: format!("gpu-{index}"), memory: Bytes::mib(32_510) };
        let gpus = NodeGpus::Claimed { pool: "node1".into(), devices: (0..8).map(device).collect() };
        let node = SeatNode { name: "node1".into(), gpus };
        let seats = [Seat { place: &place, node: &node, turn: 1, index: None }];
        let run = Run { workload: &workload, project: "team-a", number: 1, seats: &seats };

        for service in pods::services(&workload, "team-a") {
            operator.apply(&typed("v1", "Service", service)).await.expect("a Service");
        }
        let ingress = pods::ingress(&workload, "team-a").expect("it asks for one");
        operator.apply(&typed("networking.k8s.io/v1", "Ingress", ingress)).await.expect("an Ingress");
        let pod = typed("v1", "Pod", pods::pod(&run, 0).expect("has a place"));
        let made = operator.create(&pod).await.expect("a Pod");
        let claim = pods::claim(&run, 0, pods::owner(&workload)).expect("can be asked for");
        let claim = typed("resource.k8s.io/v1", "ResourceClaim", claim);
        operator.create(&claim).await.expect("a claim");

        let ids = ["5a1c0000-0000-4000-8000-000000000001", "5a1c0000-0000-4000-8000-000000000002"]
            .map(str::to_owned);
        let uid = made["metadata"]["uid"].as_str().expect("has an identity");
        let status = pods::claim_status(&place, &node, &ids, ("gang-r1-0", uid)).expect("can be");
        let status = serde_json::to_value(status).expect("is JSON");
        let path = format!("{}/status", item(&claim));
        let written = operator.merge(&path, &json!({ "status": status })).await.expect("is allocated");
        assert_eq!(written["status"], status, "in the canonical form, so nothing was changed");

        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "gang-r1-0", "uid": uid },
            "target": { "kind": "Node", "name": "node1" },
        });
        let path = format!("{}/binding", item(&pod));
        operator.send("POST", &path, "application/json", &binding).await.expect("is bound");
        assert_eq!(admin.get(&item(&pod)).await.expect("is there")["spec"]["nodeName"], "node1");

        for (path, what) in [
            ("/api/v1/secrets", "secrets"),
            ("/api/v1/configmaps", "configuration"),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "roles"),
        ] {
            assert!(operator.get(path).await.is_err(), "the operator must not read {what}");
        }
        let mut open = pod.clone();
        open["metadata"]["name"] = json!("open");
        open["spec"]["hostNetwork"] = json!(true);
        let refused = admin.create(&open).await.expect_err("the project may not");
        assert!(refused.contains("violates PodSecurity"), "{refused}");
    });
}
