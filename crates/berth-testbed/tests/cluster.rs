//! Starts real control planes. Without the programs it says what is not tested, and passes.

use berth_testbed::{Cluster, DRIVER, NodeSpec, Options, SHARE_WHOLE};
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    batch::v1::Job,
    core::v1::{ConfigMap, Node, Pod, ServiceAccount},
    resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::{
    future::Future,
    path::Path,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);

/// A cluster, or a line that says why there is none.
fn start(test: &str, options: Options) -> Option<Cluster> {
    if let Err(reason) = Cluster::available() {
        eprintln!("NOT TESTED: {test}: {reason}");
        return None;
    }
    Some(Cluster::start(options).expect("the cluster starts"))
}

async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig was written");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig is understood")).expect("a client")
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Waits for an answer that is wanted, and fails with the last one.
async fn until<T: std::fmt::Debug>(what: &str, ask: impl AsyncFn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{what}; the last answer: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn pod(name: &str, annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }))
    .expect("a pod")
}

async fn create_and_bind(pods: &Api<Pod>, pod: Pod, node: &str) {
    let name = pod.metadata.name.clone().expect("pods of this test have names");
    pods.create(&PostParams::default(), &pod).await.expect("the pod is created");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let _: Value =
        pods.create_subresource("binding", &name, &PostParams::default(), &binding).await.expect("is bound");
}

async fn phase(pods: &Api<Pod>, name: &str) -> Option<String> {
    let pod = pods.get_opt(name).await.expect("the API server answers")?;
    Some(pod.status?.phase.unwrap_or_default())
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_cluster_that_is_dropped_leaves_neither_processes_nor_files() {
    let options = Options { scheduler: true, nodes: vec![NodeSpec::dgx1(1)], ..Options::default() };
    let Some(cluster) = start("what a cluster leaves", options) else { return };
    let pids = cluster.pids();
    let names: Vec<&str> = pids.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"]);
    assert!(pids.iter().all(|(_, pid)| is_alive(*pid)));
    let folder = cluster.folder().to_owned();
    drop(cluster);
    let left: Vec<_> = pids.iter().filter(|(_, pid)| is_alive(*pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!folder.exists());
}

#[test]
fn pods_on_simulated_nodes_run_and_end_as_their_annotations_say() {
    let Some(cluster) = start("simulated nodes", Options::default()) else { return };
    cluster.add_nodes(&NodeSpec::dgx1(2)).expect("nodes are added");
    run(async {
        let client = connect(cluster.kubeconfig()).await;
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.expect("nodes");
        for node in &nodes {
            let status = node.status.as_ref().expect("a status");
            let conditions = status.conditions.as_deref().unwrap_or_default();
            assert!(conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"), "{conditions:?}");
            assert_eq!(status.allocatable.as_ref().expect("allocatable")["nvidia.com/gpu"].0, "8");
            assert_eq!(node.spec.as_ref().and_then(|spec| spec.taints.clone()), None);
        }
        assert_eq!(nodes.items.len(), 2);

        let pods = Api::<Pod>::default_namespaced(client);
        let done = json!({"berth.dev/simulate-seconds": "1"});
        let failed = json!({"berth.dev/simulate-seconds": "1", "berth.dev/simulate-exit": "3"});
        create_and_bind(&pods, pod("forever", json!({})), "node1").await;
        create_and_bind(&pods, pod("slow-to-go", json!({"berth.dev/simulate-grace": "2"})), "node1").await;
        create_and_bind(&pods, pod("done", done), "node2").await;
        create_and_bind(&pods, pod("failed", failed), "node2").await;
        let is = |wanted: &'static str| move |phase: &Option<String>| phase.as_deref() == Some(wanted);
        until("it runs", async || phase(&pods, "forever").await, is("Running")).await;
        until("it runs", async || phase(&pods, "slow-to-go").await, is("Running")).await;

        let asked = Instant::now();
        pods.delete("slow-to-go", &DeleteParams::default()).await.expect("is deleted");
        until("it is done", async || phase(&pods, "done").await, is("Succeeded")).await;
        until("it has failed", async || phase(&pods, "failed").await, is("Failed")).await;
        let status = pods.get("failed").await.expect("the pod is there").status.expect("a status");
        let state = status.container_statuses.expect("a container")[0].state.clone().expect("a state");
        assert_eq!(state.terminated.expect("it has ended").exit_code, 3);

        until("it is gone", async || phase(&pods, "slow-to-go").await, Option::is_none).await;
        assert!(asked.elapsed() >= Duration::from_secs(1), "gone after {:?}", asked.elapsed());
        assert_eq!(phase(&pods, "forever").await.as_deref(), Some("Running"));
        pods.delete("forever", &DeleteParams::default()).await.expect("is deleted");
        until("it is gone", async || phase(&pods, "forever").await, Option::is_none).await;
    });
}

#[test]
fn devices_are_published_and_go_with_their_node() {
    let options = Options { nodes: vec![NodeSpec::dgx1(2).with_dra()], ..Options::default() };
    let Some(cluster) = start("devices", options) else { return };
    run(async {
        let slices = Api::<ResourceSlice>::all(connect(cluster.kubeconfig()).await);
        let slice = slices.get(&format!("node1-{DRIVER}")).await.expect("a slice");
        let device = &slice.spec.devices.as_ref().expect("devices")[7];
        assert_eq!(device.allow_multiple_allocations, Some(true));
        let capacity = device.capacity.as_ref().expect("a capacity");
        assert_eq!(capacity["memory"].value.0, "32510Mi");
        assert_eq!((capacity["share"].value.0.as_str(), SHARE_WHOLE), ("1M", 1_000_000));

        cluster.remove_node("node1").expect("the node is removed");
        let left = slices.list(&ListParams::default()).await.expect("slices");
        assert_eq!(
            left.items.iter().filter_map(|it| it.spec.node_name.as_deref()).collect::<Vec<_>>(),
            ["node2"]
        );
    });
}

#[test]
fn the_stock_scheduler_gives_parts_of_one_device_to_two_pods_of_a_job() {
    let spec = NodeSpec { gpus: 1, ..NodeSpec::dgx1(1).with_dra() };
    let options = Options { scheduler: true, nodes: vec![spec], ..Options::default() };
    let Some(cluster) = start("shared devices", options) else { return };
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "half"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": DRIVER,
            "capacity": {"requests": {"memory": "16255Mi", "share": (SHARE_WHOLE / 2).to_string()}},
        }}]}}},
    }))
    .expect("a template");
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "halves"},
        "spec": {"parallelism": 3, "completions": 3, "template": {
            "metadata": {"annotations": {"berth.dev/simulate-seconds": "2"}},
            "spec": {
                "restartPolicy": "Never",
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "half"}],
                "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            },
        }},
    }))
    .expect("a job");
    run(async {
        let client = connect(cluster.kubeconfig()).await;
        let templates = Api::<ResourceClaimTemplate>::default_namespaced(client.clone());
        templates.create(&PostParams::default(), &template).await.expect("is created");
        let jobs = Api::<Job>::default_namespaced(client.clone());
        jobs.create(&PostParams::default(), &job).await.expect("is created");

        let claims = Api::<ResourceClaim>::default_namespaced(client.clone());
        let consumed = async || {
            let list = claims.list(&ListParams::default()).await.expect("claims");
            let results =
                list.items.into_iter().filter_map(|claim| claim.status?.allocation?.devices?.results);
            let parts =
                results.flatten().filter_map(|part| Some(part.consumed_capacity?.get("share")?.0.clone()));
            parts.collect::<Vec<_>>()
        };
        until("two parts are given away", consumed, |parts| parts.len() == 2).await;
        let pods = Api::<Pod>::default_namespaced(client);
        let waiting = ListParams::default().fields("status.phase=Pending,spec.nodeName=");
        until(
            "the third waits",
            async || pods.list(&waiting).await.expect("pods").items.len(),
            |it| *it == 1,
        )
        .await;
        let succeeded =
            async || jobs.get("halves").await.expect("the job").status.and_then(|it| it.succeeded);
        until("all three have run", succeeded, |count| *count == Some(3)).await;
    });
}

#[test]
fn a_killed_server_and_a_killed_database_keep_their_data() {
    let options = Options { kwok: false, controller_manager: false, ..Options::default() };
    let Some(cluster) = start("restarts", options) else { return };
    let data: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "kept"}})).expect("a map");
    run(async {
        let maps = Api::<ConfigMap>::default_namespaced(connect(cluster.kubeconfig()).await);
        maps.create(&PostParams::default(), &data).await.expect("is written");
    });
    cluster.kill_apiserver().expect("it ran");
    cluster.kill_etcd().expect("it ran");
    assert_eq!(cluster.pids(), []);
    cluster.start_etcd().expect("it starts again");
    cluster.start_apiserver().expect("it starts again");
    cluster.stop_apiserver().expect("it ran");
    cluster.start_apiserver().expect("it starts again");
    run(async {
        let maps = Api::<ConfigMap>::default_namespaced(connect(cluster.kubeconfig()).await);
        maps.get("kept").await.expect("is still there");
    });
}

#[test]
fn a_service_account_may_do_nothing_unless_it_is_told() {
    let Some(cluster) = start("service accounts", Options { audit: true, ..Options::default() }) else {
        return;
    };
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "berth"}})).expect("an account");
    run(async {
        let accounts = Api::<ServiceAccount>::default_namespaced(connect(cluster.kubeconfig()).await);
        accounts.create(&PostParams::default(), &account).await.expect("is created");
        // Called from async code on purpose: whoever tests async code may ask the cluster too.
        let kubeconfig = cluster.kubeconfig_of("default", "berth").expect("a kubeconfig");
        let client = connect(&kubeconfig).await;
        let question = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
        let question: SelfSubjectAccessReview = serde_json::from_value(question).expect("a question");
        let answer = Api::<SelfSubjectAccessReview>::all(client.clone())
            .create(&PostParams::default(), &question)
            .await;
        assert!(!answer.expect("an answer").status.expect("a status").allowed);
        let refused =
            Api::<Pod>::default_namespaced(client).list(&ListParams::default()).await.expect_err("refused");
        assert!(refused.to_string().contains("system:serviceaccount:default:berth"), "{refused}");
    });
    let log = std::fs::read_to_string(cluster.audit_log()).expect("requests are written down");
    let asked = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut verbs = asked.filter(|it| it["user"]["username"] == "system:serviceaccount:default:berth");
    assert!(verbs.any(|it| it["verb"] == "list" && it["objectRef"]["resource"] == "pods"));
}

#[test]
fn a_cluster_that_is_there_already_gets_nodes_and_is_left_running() {
    let options = Options { kwok: false, ..Options::default() };
    let Some(theirs) = start("clusters of others", options) else { return };
    let nodes = vec![NodeSpec::dgx1(1)];
    let options = Options { kubeconfig: Some(theirs.kubeconfig().into()), nodes, ..Options::default() };
    let ours = Cluster::start(options).expect("it is used");
    assert_eq!(ours.pids().len(), 1);
    assert!(ours.stop_apiserver().is_err(), "what is not ours is not stopped");
    run(async {
        let pods = Api::<Pod>::default_namespaced(connect(ours.kubeconfig()).await);
        create_and_bind(&pods, pod("runs", json!({})), "node1").await;
        until("it runs", async || phase(&pods, "runs").await, |phase| phase.as_deref() == Some("Running"))
            .await;
    });
    drop(ours);
    theirs.check().expect("it runs on");
}

#[test]
fn a_component_that_cannot_start_is_an_error_with_its_log() {
    if let Err(reason) = Cluster::available() {
        return eprintln!("NOT TESTED: errors of components: {reason}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A file where etcd wants its folder.
    std::fs::write(folder.path().join("etcd"), "").expect("a file");
    let options = Options { folder: Some(folder.path().into()), ..Options::default() };
    let error = format!("{:#}", Cluster::start(options).expect_err("etcd has no place for its data"));
    assert!(error.contains("etcd has ended") && error.contains("etcd.log"), "{error}");
}
