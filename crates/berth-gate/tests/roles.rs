//! The server in front of a cluster with nothing but the roles that are shipped: they are enough for what it does, and not more.

use berth_api::{LogQuery, ShellRequest, WorkloadRequest};
use berth_gate::Gate;
use berth_kube::{api, manifest, run};
use berth_server::{Cluster as _, RequestKey, Shell, ShellOutput, Wish};
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
    let gate = connect(&account.expect("it is part of the manifest")).await;
    let gate = Gate::open(gate, Duration::from_secs(5)).await;
    let gate = gate.expect("it sees everything it needs");
    work(&gate, &client).await;
    let opening = needed_to_open_sockets(&cluster, &client).await;
    // A watch is written down when it ends.
    drop(gate);
    let asked = || cluster.asked_by("berth-system", "berth-server").expect("it asks");
    let unused = |used: &BTreeSet<Right>| -> BTreeSet<Right> {
        &(&rights_of(&manifest::server_rules()) - used) - &opening
    };
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
    apply(cluster, &items);
}

fn apply(cluster: &Cluster, items: &[Value]) {
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

/// What a command prints, and its end.
async fn printed(gate: &Gate, script: &str) -> (String, ShellOutput) {
    let mut shell = begun(gate, script).await;
    let mut printed = Vec::new();
    loop {
        match shell.output.recv().await.expect("it ends with a word") {
            ShellOutput::Printed(bytes) => printed.extend(bytes),
            ShellOutput::Errors(bytes) => panic!("{}", String::from_utf8_lossy(&bytes)),
            end => return (String::from_utf8_lossy(&printed).into_owned(), end),
        }
    }
}

async fn begun(gate: &Gate, script: &str) -> Shell {
    let command = ["sh", "-c", script].map(str::to_owned).into();
    let request = ShellRequest { command, ..ShellRequest::default() };
    gate.exec("team".into(), "prints".into(), 0, request).await.expect("it runs")
}

/// Whoever hangs up is told to the command before the server may end, and the command ends.
async fn what_is_abandoned_ends(gate: &Gate) {
    let shell = begun(gate, "sleep 5151; true").await;
    let runs = async || printed(gate, "ps -o args").await.0.contains("5151");
    assert!(runs().await);
    drop(shell);
    let begin = Instant::now();
    gate.finish(Duration::from_secs(30)).await;
    assert!(begin.elapsed() < Duration::from_secs(30), "it was never told");
    until("it is ended", async || !runs().await).await;
}

/// A command, the worker's own output, and a port.
async fn beside(gate: &Gate) {
    let place = || ("team".to_owned(), "prints".to_owned());
    let (printed, end) = printed(gate, "echo from beside; exit 7").await;
    assert_eq!(printed, "from beside\n");
    assert!(matches!(end, ShellOutput::Ended { code: Some(7), signal: None, with_worker: false }), "{end:?}");
    what_is_abandoned_ends(gate).await;
    let (project, name) = place();
    let mut joined = gate.attach(project, name, 0, None).await.expect("it runs");
    assert!(
        matches!(joined.output.recv().await, Some(ShellOutput::Printed(bytes)) if bytes.starts_with(b"epoch"))
    );
    let (project, name) = place();
    let problem = gate.connect(project, name, 0, 80).await.err().expect("nobody listens");
    assert!(problem.detail.contains("nobody listens on port 80"), "{problem:?}");
}

/// Rights that are asked for when a socket is opened and that no request shows, each missed by an account that has all others.
async fn needed_to_open_sockets(cluster: &Cluster, client: &Client) -> BTreeSet<Right> {
    let parts = ["pods/attach", "pods/exec", "pods/portforward"];
    let name = "berth-narrow";
    let rules = json!([{ "apiGroups": [""], "resources": parts, "verbs": ["get"] }]);
    let rbac = "rbac.authorization.k8s.io";
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": "berth-system" } }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "berth-system" }],
        }),
    ];
    apply(cluster, &objects);
    let account = tokio::task::block_in_place(|| cluster.kubeconfig_of("berth-system", name));
    let narrow = connect(&account.expect("it was made")).await;
    let answer = async |client: &Client, part: &str| {
        let part = part.trim_start_matches("pods/");
        let path =
            format!("/api/v1/namespaces/berth-system/pods/none/{part}?command=true&stdout=true&ports=80");
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        match client.request_text(request).await {
            Err(kube::Error::Api(status)) => (status.code, status.message),
            other => panic!("{part}: {other:?}"),
        }
    };
    let mut needed = BTreeSet::new();
    for part in parts {
        until("the verb `get` is enough to come so far", async || {
            let (code, message) = answer(&narrow, part).await;
            code == 403 && !message.contains("cannot get")
        })
        .await;
        assert_eq!(answer(client, part).await.0, 404, "with all rights it is the Pod that is missing");
        needed.insert((String::new(), part.to_owned(), "create".to_owned()));
    }
    needed
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
    beside(gate).await;
    let node = gate.image().state.nodes.values().next().expect("a node").name.clone();
    let cordon = |cordoned, draining| Wish::Node { name: node.clone(), cordoned, draining };
    wish(cordon(true, true)).await;
    wish(cordon(false, false)).await;
    let labels = |value: Option<&str>| Wish::NodeLabels {
        name: node.clone(),
        labels: [("rack".to_owned(), value.map(str::to_owned))].into(),
    };
    let rack = || {
        gate.image()
            .state
            .nodes
            .values()
            .find(|one| one.name == node)
            .and_then(|one| one.labels.get("rack").cloned())
    };
    wish(labels(Some("r1"))).await;
    until("the node has its label", async || rack().as_deref() == Some("r1")).await;
    wish(labels(None)).await;
    until("the label is gone", async || rack().is_none()).await;
    let suspend = Wish::Suspend { project: "team".into(), name: "prints".into(), suspended: true };
    wish(suspend).await;
    wish(Wish::Delete { project: "team".into(), name: "prints".into() }).await;
    until("it is gone", async || gate.made_by(&key).is_none()).await;
    wish(Wish::ProjectGone("team".into())).await;
    wish(Wish::DepartmentGone("lab".into())).await;
}
