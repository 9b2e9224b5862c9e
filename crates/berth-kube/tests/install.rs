//! The chart on a real API server: it is installed, upgraded and taken away by Helm, with Pods that run under the rules of
//! restricted namespaces; and what it prints at the end can be typed. Without the programs it says what is not tested, and passes.

mod helm;
mod mirror;

use berth_testbed::{Cluster, NodeSpec, kubectl};
use helm::{Helm, chart, settings_of};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{Discovery, verbs},
};
use mirror::{Operator, block_on, cluster, connect, until};
use serde_json::json;
use std::{cell::RefCell, collections::BTreeSet, process::Command};

const NAMESPACE: &str = "berth-system";
const OPERATOR: &str = "app.kubernetes.io/component=operator";
const SERVER: &str = "app.kubernetes.io/component=server";
/// The label that makes the API server refuse Pods which could do harm; the manifest gives it to its namespace.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce";

/// Everything that can be switched on, and something for everything that can be chosen.
const EVERYTHING: &[&str] = &[
    "cluster='lab'",
    "image={'repository': 'registry.lab/berth', 'tag': '2', 'pullPolicy': 'Always', 'pullSecrets': ['registry']}",
    "log='info,berth_kube=debug'",
    "server.historyClaim='history'",
    "server.tokenSecret='chosen'",
    "server.tls={'secret': 'cert', 'publicName': 'berth.example'}",
    "server.service.type='NodePort'",
    "server.oidc={'issuer': 'https://id.example:8443', 'clientId': 'berth', 'clientSecret': 'client', 'userClaim': 'sub', \
     'groupsClaim': 'teams', 'name': 'Lab', 'caSecret': 'authority'}",
    "priorityClass={'create': true, 'name': 'first', 'value': 1000000}",
    "networkPolicy.apiServerPorts=[6443]",
    "nodeSelector={'kubernetes.io/os': 'linux'}",
    "tolerations=[{'key': 'system', 'operator': 'Exists', 'effect': 'NoSchedule'}]",
    "affinity={'nodeAffinity': {'requiredDuringSchedulingIgnoredDuringExecution': {'nodeSelectorTerms': [{'matchExpressions': \
     [{'key': 'kubernetes.io/arch', 'operator': 'In', 'values': ['amd64']}]}]}}}",
    "podAnnotations={'team': 'lab'}",
    "podLabels={'team': 'lab'}",
];

#[test]
fn the_chart_is_installed_upgraded_and_taken_away() {
    let Some(helm) = Helm::find("the chart on a cluster") else { return };
    let options =
        berth_testbed::Options { scheduler: true, nodes: vec![NodeSpec::dgx1(2)], ..Default::default() };
    let Some(cluster) = cluster("the chart on a cluster", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        let call = |line: &[&str], settings: &[&str]| call(&helm, &cluster, line, settings);
        let before = everything(&client).await;

        call(&["install", "berth", &chart(), "--create-namespace"], &[]);
        until_running(&client, OPERATOR, 2).await;
        until_running(&client, SERVER, 1).await;
        call(&["upgrade", "berth", &chart()], &["replicas=3"]);
        until_running(&client, OPERATOR, 3).await;
        until_running(&client, SERVER, 1).await;
        call(&["uninstall", "berth"], &[]);
        until_gone(&client, &before).await;

        // What was left is no hindrance to another, in a namespace as the manifest makes it.
        restrict(&client).await;
        keep_history(&client).await;
        call(&["install", "berth", &chart()], EVERYTHING);
        until_running(&client, OPERATOR, 2).await;
        until_running(&client, SERVER, 1).await;
        what_was_chosen_is_there(&client).await;
        notes_can_be_typed(&client, &cluster, &call(&["get", "notes", "berth"], &[])).await;
        // What was chosen before is not kept, the server neither.
        call(&["upgrade", "berth", &chart(), "--reset-values"], &["server.create=false"]);
        until_running(&client, OPERATOR, 2).await;
        until_running(&client, SERVER, 0).await;
    });
}

/// What Helm prints. It must do what it is told.
fn call(helm: &Helm, cluster: &Cluster, line: &[&str], settings: &[&str]) -> String {
    let kubeconfig = cluster.kubeconfig().to_str().expect("a path in letters");
    let mut arguments: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend(["--namespace", NAMESPACE, "--kubeconfig", kubeconfig].map(str::to_owned));
    arguments.extend(settings_of(settings));
    helm.run(&arguments).unwrap_or_else(|refused| panic!("{line:?}: {refused}"))
}

/// Waits until a Deployment has so many Pods that all run, and no other.
async fn until_running(client: &Client, labels: &str, count: usize) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(&format!("{count} Pods of {labels}"), async || {
        let labels = ListParams::default().labels(labels);
        let found = pods.list(&labels).await.expect("the API server answers").items;
        let runs = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        let deployments = deployments.list(&labels).await.expect("the API server answers").items;
        let is_whole = |deployment: &Deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            let is_seen = status.observed_generation == deployment.metadata.generation;
            is_seen
                && status.updated_replicas == status.available_replicas
                && status.replicas == status.updated_replicas
        };
        found.len() == count && found.iter().all(runs) && deployments.iter().all(is_whole)
    })
    .await;
}

/// Kind, namespace and name of everything in the cluster, but for news, leases, and what the cluster keeps for itself.
async fn list_everything(client: &Client) -> kube::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let discovery = Discovery::new(client.clone()).run().await?;
    for group in discovery.groups() {
        for (kind, abilities) in group.recommended_resources() {
            if !abilities.supports_operation(verbs::LIST) || ["Event", "Lease"].contains(&&*kind.kind) {
                continue;
            }
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            for object in objects.list(&ListParams::default()).await? {
                let namespace = object.namespace().unwrap_or_default();
                if !namespace.starts_with("kube-") {
                    all.insert(format!("{} {namespace}/{}", kind.kind, object.name_any()));
                }
            }
        }
    }
    Ok(all)
}

/// The same; asked until there is an answer, because a new API server has none for a moment, nor for new kinds.
async fn everything(client: &Client) -> BTreeSet<String> {
    let found = RefCell::new(None);
    until("everything is listed", async || {
        *found.borrow_mut() = list_everything(client).await.ok();
        found.borrow().is_some()
    })
    .await;
    found.into_inner().expect("it was listed")
}

/// Waits until nothing is left but the definitions, whose going would take everybody's work along, and the namespace.
async fn until_gone(client: &Client, before: &BTreeSet<String>) {
    let mut expected = BTreeSet::from([
        "APIService /v1alpha1.berth.dev".to_owned(),
        format!("ConfigMap {NAMESPACE}/kube-root-ca.crt"),
        format!("Namespace /{NAMESPACE}"),
        format!("ServiceAccount {NAMESPACE}/default"),
    ]);
    let definitions = berth_kube::api::crds().into_iter().map(|crd| crd.name_any());
    expected.extend(definitions.map(|name| format!("CustomResourceDefinition /{name}")));
    until("what was installed is gone", async || {
        let now = everything(client).await;
        let left: BTreeSet<String> = now.difference(before).cloned().collect();
        eprintln!("left: {:?}", left.difference(&expected).collect::<Vec<_>>());
        left == expected && now.is_superset(before)
    })
    .await;
}

/// From now on the API server refuses Pods that could do harm.
async fn restrict(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { ENFORCED: "restricted" } } }));
    namespaces.patch(NAMESPACE, &PatchParams::default(), &label).await.expect("it is there");
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let careless = json!({ "metadata": { "name": "careless" }, "spec": { "containers": [{ "name": "main", "image": "none" }] } });
    let careless = serde_json::from_value(careless).expect("a Pod");
    let answer = pods.create(&PostParams { dry_run: true, ..Default::default() }, &careless).await;
    assert!(
        answer.expect_err("is refused").to_string().contains("violates PodSecurity"),
        "the label is in force"
    );
}

/// A volume for the server's folder.
async fn keep_history(client: &Client) {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let (size, modes) = (json!({ "storage": "1Gi" }), json!(["ReadWriteOnce"]));
    let volume = json!({
        "metadata": { "name": "history" },
        "spec": {
            "capacity": size, "accessModes": modes, "storageClassName": "",
            "claimRef": { "namespace": NAMESPACE, "name": "history" },
            "nfs": { "server": "storage.example", "path": "/history" },
        },
    });
    let claim = json!({
        "metadata": { "name": "history" },
        "spec": { "accessModes": modes, "storageClassName": "", "resources": { "requests": size }, "volumeName": "history" },
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    volumes.create(&PostParams::default(), &volume).await.expect("it is accepted");
    let claim = serde_json::from_value(claim).expect("a claim");
    claims.create(&PostParams::default(), &claim).await.expect("it is accepted");
}

/// The API server kept what was asked for, and made of it what it should.
async fn what_was_chosen_is_there(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for (labels, priority) in [(OPERATOR, 1_000_000), (SERVER, 0)] {
        let found =
            pods.list(&ListParams::default().labels(labels)).await.expect("the API server answers").items;
        for pod in found {
            let name = pod.name_any();
            assert_eq!(pod.labels().get("team").map(String::as_str), Some("lab"), "{name}");
            assert_eq!(pod.annotations().get("team").map(String::as_str), Some("lab"), "{name}");
            let spec = pod.spec.expect("a Pod has one");
            assert_eq!(spec.priority, Some(priority), "{name}");
            assert_eq!(spec.containers[0].image.as_deref(), Some("registry.lab/berth:2"), "{name}");
        }
    }
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = services.get("berth-server").await.expect("TLS makes one").spec.unwrap_or_default();
    let ports: Vec<_> =
        service.ports.into_iter().flatten().map(|port| (port.port, port.node_port.is_some())).collect();
    assert_eq!(ports, [(7370, true), (7371, true)]);
}

/// Runs every indented line of what the chart says at the end, while an operator is there to hear of it.
async fn notes_can_be_typed(client: &Client, cluster: &Cluster, notes: &str) {
    assert!(notes.contains("in cluster lab") && notes.contains("https://berth.example:7370"), "{notes}");
    let Some(kubectl) = kubectl() else {
        eprintln!("NOT TESTED: what the chart says at the end: there is no kubectl");
        return;
    };
    let lines: Vec<&str> = notes.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let script = lines.join("\n").replace("kubectl ", &format!("{} ", kubectl.display()));
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script]).env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.folder());
    shell.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let typed = tokio::task::spawn_blocking(move || shell.output());
    // The operator comes after the project, so that its namespace is not there at once.
    let projects: Api<berth_kube::api::Project> = Api::all(client.clone());
    until("the first project is there", async || {
        typed.is_finished() || projects.get_opt("team-a").await.expect("the API server answers").is_some()
    })
    .await;
    let operator = Operator::start(client);
    let output = typed.await.expect("it does not panic");
    let output = output.expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().any(|line| line.starts_with("first ")), "the work is listed: {said}");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "berth-team-a");
    until("the first work runs", async || {
        let pod = pods.get_opt("first-r1-0").await.expect("the API server answers");
        pod.and_then(|pod| pod.status?.phase).as_deref() == Some("Running")
    })
    .await;
    operator.stop().await;
}
