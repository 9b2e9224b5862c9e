//! The server in front of a cluster with nothing but the roles that are shipped: they are enough for what it does, and not more.

use berth_api::{LogQuery, WorkloadRequest};
use berth_gate::Gate;
use berth_kube::{api, manifest, run};
use berth_server::{Cluster as _, RequestKey, Wish};
use berth_testbed::{Asked, Cluster, Image, Options, Right, rights_of};
use berth_types::{Department, DepartmentId, Project, ProjectId};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shipped_roles_are_enough_and_not_too_much() {
    if let Err(reason) = Cluster::available().and(Cluster::real_node_available()) {
        eprintln!("NOT TESTED: the roles of the server: {reason}");
        return;
    }
    let options = Options { real_node: true, real_gpus: 1, kwok: false, audit: true, ..Options::default() };
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(options)).await.expect("no panic");
    let cluster = cluster.expect("it starts");
    install(&cluster);
    let client = connect(cluster.kubeconfig()).await;
    let workloads: Api<api::Workload> = Api::all(client.clone());
    until("our resources are served", async || workloads.list(&ListParams::default()).await.is_ok()).await;
    let image = Image::new("localhost/prints:1").shell().expect("busybox");
    tokio::task::block_in_place(|| cluster.import_image(&image)).expect("it is imported");
    let (stop, ended) = oneshot::channel::<()>();
    let operator = tokio::spawn(run::run(client.clone(), run::Options::new("berth-system"), async {
        let _ = ended.await;
    }));
    let account = tokio::task::block_in_place(|| cluster.kubeconfig_of("berth-system", "berth-server"));
    let gate = Gate::open(connect(&account.expect("it is part of the manifest")).await).await;
    let gate = gate.expect("it sees everything it needs");
    work(&gate, &client).await;
    // A watch is written down when it ends.
    drop(gate);
    let asked = || cluster.asked_by("berth-system", "berth-server").expect("it asks");
    let unused = |used: &BTreeSet<Right>| -> BTreeSet<Right> { &rights_of(&manifest::server_rules()) - used };
    let end = Instant::now() + Duration::from_secs(10);
    while !unused(&asked().used).is_empty() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let Asked { used, refused } = asked();
    assert!(refused.is_empty(), "the roles do not allow {refused:?}");
    assert!(unused(&used).is_empty(), "the roles allow what is never done: {:?}", unused(&used));
    eprintln!("roles of the server: {} rights, each used; none missing", used.len());
    let _ = stop.send(());
    operator.await.expect("no panic").expect("it stops well");
}

async fn connect(kubeconfig: &Path) -> Client {
    run::client(run::config(Some(kubeconfig)).await.expect("a kubeconfig")).expect("a client")
}

/// Applies the manifest without the Deployments, whose programs run here.
fn install(cluster: &Cluster) {
    let objects = manifest::manifest(&manifest::Settings::default()).into_iter();
    let items: Vec<Value> = objects.filter(|object| object["kind"] != "Deployment").collect();
    let file = cluster.folder().join("manifest.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    fs::write(&file, list.to_string()).expect("a file");
    let kubectl = berth_testbed::kubectl().expect("kubectl is there with the rest");
    let applied = Command::new(kubectl)
        .args(["apply", "--server-side", "-f"])
        .arg(&file)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("KUBECACHEDIR", cluster.folder())
        .output()
        .expect("kubectl starts");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !holds().await {
        assert!(Instant::now() < end, "{what}: it never came to that");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything that people ask a server for.
async fn work(gate: &Gate, client: &Client) {
    let wish = async |wish: Wish| gate.carry_out(vec![wish]).await.expect("it is accepted");
    let department =
        Department { id: DepartmentId(1), name: "lab".into(), parent: None, entitlements: BTreeMap::new() };
    let project = Project::named(ProjectId(1), "team");
    for _ in 0..2 {
        wish(Wish::Department(Box::new(department.clone()), None)).await;
        wish(Wish::Project(Box::new(project.clone()), Some("lab".into()))).await;
    }
    until("the project is there", async || {
        gate.image().state.projects.values().any(|project| project.name == "team")
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "berth-team");
    until("its namespace is there", async || {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(client.clone(), "berth-team");
        accounts.get_opt("berth-workload").await.is_ok_and(|found| found.is_some())
    })
    .await;
    let volume = || ("team".to_owned(), "data".to_owned());
    let (project, name) = volume();
    wish(Wish::Volume { project, name, size: None }).await;
    until("the volume is there", async || gate.image().volumes.iter().any(|one| one.name == "data")).await;
    let (project, name) = volume();
    wish(Wish::VolumeGone { project, name }).await;
    let prints = "echo 'epoch 1/2'; echo berth.checkpoint; sleep 600";
    let request = WorkloadRequest {
        project: "team".into(),
        image: "localhost/prints:1".into(),
        local_image: true,
        command: vec!["sh".into(), "-c".into(), prints.into()],
        ..WorkloadRequest::default()
    };
    let submit = |key: Option<RequestKey>| Wish::Submit {
        name: "prints".into(),
        request: Box::new(request.clone()),
        user: "ada".into(),
        key,
    };
    let key = RequestKey { key: "k".into(), request: "r".into() };
    wish(submit(Some(key.clone()))).await;
    until("it is known who made it", async || gate.made_by(&key).is_some()).await;
    gate.carry_out(vec![submit(None)]).await.expect_err("it is there already");
    until("its progress and its checkpoint are noted", async || {
        let image = gate.image();
        let one = image.workloads.iter().find(|one| one.name == "prints");
        let saved = pods.list(&ListParams::default()).await.is_ok_and(|pods| {
            pods.items.iter().any(|pod| {
                pod.metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|notes| notes.contains_key("berth.dev/checkpoint"))
            })
        });
        one.is_some_and(|one| one.progress.is_some()) && saved
    })
    .await;
    let mut log =
        gate.log("team".into(), "prints".into(), LogQuery::default()).await.expect("it printed something");
    assert!(log.recv().await.is_some_and(|piece| piece.starts_with(b"epoch")));
    let node = gate.image().state.nodes.values().next().expect("a node").name.clone();
    let cordon = |cordoned, draining| Wish::Node { name: node.clone(), cordoned, draining };
    wish(cordon(true, true)).await;
    wish(cordon(false, false)).await;
    let suspend = Wish::Suspend { project: "team".into(), name: "prints".into(), suspended: true };
    wish(suspend).await;
    wish(Wish::Delete { project: "team".into(), name: "prints".into() }).await;
    until("it is gone", async || gate.made_by(&key).is_none()).await;
    wish(Wish::ProjectGone("team".into())).await;
    wish(Wish::DepartmentGone("lab".into())).await;
}
