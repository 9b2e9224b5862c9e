//! The operator with nothing but the roles that are shipped: they are enough for what it does, and not more.

mod faulty;
mod mirror;

use berth_kube::{
    api,
    manifest::{self, Settings},
};
use berth_testbed::{Asked, Cluster, NodeSpec, Right, rights_of};
use faulty::Operator;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    resource::v1::ResourceClaimTemplate,
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use mirror::{block_on, cluster, connect, until, until_there};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// Rights that the API server asks for inside of a request, so that no request shows them.
const UNSEEN: [(&str, &str, &str); 2] = [
    // Whoever writes what a claim gets.
    ("resource.k8s.io", "resourceclaims/binding", "patch"),
    // Whoever gives this role to members of a project.
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
];

#[test]
fn the_shipped_roles_are_enough_and_not_too_much() {
    let nodes = vec![
        NodeSpec { prefix: "counted".into(), ..NodeSpec::dgx1(1) },
        NodeSpec { prefix: "shared".into(), ..NodeSpec::dgx1(1).with_dra() },
    ];
    let options = berth_testbed::Options { nodes, audit: true, ..Default::default() };
    let Some(cluster) = cluster("the shipped roles", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let account =
            cluster.kubeconfig_of("berth-system", "berth-operator").expect("it is part of the manifest");
        let operator = Operator::start_as(&cluster, &account, "with-its-roles");
        work(&client, &cluster, operator, &account).await;
        let Asked { used, refused } = cluster.asked_by("berth-system", "berth-operator").expect("it asks");
        assert!(refused.is_empty(), "the roles do not allow {refused:?}");
        let allowed = rights_of(&[manifest::operator_rules(), manifest::own_rules()].concat());
        let unseen = UNSEEN.iter().map(|(group, resource, verb)| right(group, resource, verb)).collect();
        let unused: BTreeSet<Right> = &(&allowed - &used) - &unseen;
        assert!(unused.is_empty(), "the roles allow what is never done: {unused:?}");
        eprintln!("roles: {} rights, each used; none missing: {used:?}", used.len());
    });
}

fn right(group: &str, resource: &str, verb: &str) -> Right {
    (group.into(), resource.into(), verb.into())
}

/// Applies the manifest, without the operator itself, which runs here.
async fn install(client: &Client) {
    let objects = manifest::manifest(&Settings::default());
    for object in objects.into_iter().filter(|object| object["kind"] != "Deployment") {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("it says what it is");
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let all: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        let parameters = PatchParams::apply("test").force();
        all.patch(&object.name_any(), &parameters, &Patch::Apply(&object)).await.expect("it is accepted");
    }
    let ledgers: Api<api::DeviceLedger> = Api::all(client.clone());
    let workloads: Api<api::Workload> = Api::all(client.clone());
    until("our resources are served", async || {
        let all = ListParams::default();
        ledgers.list(&all).await.is_ok() && workloads.list(&all).await.is_ok()
    })
    .await;
}

async fn project(client: &Client, name: &str, spec: Value) {
    let projects: Api<api::Project> = Api::all(client.clone());
    let project = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name }, "spec": spec,
    });
    let project = serde_json::from_value(project).expect("a project");
    projects.create(&PostParams::default(), &project).await.expect("it is accepted");
}

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "schedulerName": "berth", "terminationGracePeriodSeconds": 1, "containers": [{ "name": "main", "image": "none" }] },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        match field.as_str() {
            "resources" => pod["spec"]["containers"][0]["resources"] = value.clone(),
            field => pod["spec"][field] = value.clone(),
        }
    }
    serde_json::from_value(pod).expect("a Pod")
}

/// Everything that an operator does, some of it because something else comes in between.
async fn work(client: &Client, cluster: &Cluster, operator: Operator, account: &std::path::Path) {
    project(client, "team", json!({ "quota": 0, "members": [{ "kind": "User", "name": "ada" }] })).await;
    // A namespace that is another's is asked for, refused, and asked for again.
    project(client, "thief", json!({ "quota": 0, "namespaces": ["berth-team"] })).await;
    project(client, "owner", json!({ "quota": 16 })).await;
    until_there(client, "berth-team").await;
    until_there(client, "berth-owner").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "berth-team");
    let workloads: Api<api::Workload> = Api::namespaced(client.clone(), "berth-team");
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), "berth-team");
    let ledgers: Api<api::DeviceLedger> = Api::all(client.clone());
    let half = json!({
        "metadata": { "name": "half" },
        "spec": { "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": {
            "deviceClassName": "gpu.berth.dev", "capacity": { "requests": { "share": "500000" } },
        } }] } } },
    });
    let half = serde_json::from_value(half).expect("a template");
    templates.create(&PostParams::default(), &half).await.expect("it is accepted");
    let bound = async |name: &str| {
        let found = pods.get_opt(name).await.ok().flatten();
        found.is_some_and(|pod| pod.spec.is_some_and(|spec| spec.node_name.is_some()))
    };
    let submit = async |name: &str, spec: Value| {
        let workload = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Workload", "metadata": { "name": name }, "spec": spec,
        });
        let workload = serde_json::from_value(workload).expect("a workload");
        workloads.create(&PostParams::default(), &workload).await.expect("it is accepted");
    };
    submit(
        "gang",
        json!({ "kind": "distributed", "image": "none", "workers": 2, "gpus": "0.5", "ports": [8888], "serviceType": "Ingress" }),
    )
    .await;
    until("the gang is bound", async || bound("gang-r1-1").await).await;
    // Somebody else wrote the ledger.
    let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "yes" } } }));
    ledgers.patch("shared1", &PatchParams::default(), &touch).await.expect("the node has a ledger");
    let claims = json!({
        "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "half" }],
        "resources": { "claims": [{ "name": "gpu" }] },
    });
    pods.create(&PostParams::default(), &pod("claims", &claims)).await.expect("it is accepted");
    until("a Pod with a claim is bound", async || bound("claims").await).await;
    // Pods that are touched while they are bound are looked at again.
    for round in 0..20 {
        let name = format!("counted-{round}");
        pods.create(&PostParams::default(), &pod(&name, &json!({}))).await.expect("it is accepted");
        for number in 0..5 {
            let touch =
                Patch::Merge(json!({ "metadata": { "annotations": { "touched": number.to_string() } } }));
            pods.patch(&name, &PatchParams::default(), &touch).await.expect("it is there");
        }
        until("it is bound", async || bound(&name).await).await;
        pods.delete(&name, &DeleteParams::default()).await.expect("it is there");
    }
    makers(client).await;
    volumes(client).await;
    // Something waits and is told why; something borrowed is taken back.
    let many = json!({ "resources": { "limits": { "nvidia.com/gpu": 8 } } });
    pods.create(&PostParams::default(), &pod("borrows", &many)).await.expect("it is accepted");
    until("it borrows", async || bound("borrows").await).await;
    let owners: Api<Pod> = Api::namespaced(client.clone(), "berth-owner");
    owners.create(&PostParams::default(), &pod("wants", &many)).await.expect("it is accepted");
    until("what was borrowed is given back", async || {
        owners.get("wants").await.is_ok_and(|pod| pod.spec.is_some_and(|spec| spec.node_name.is_some()))
    })
    .await;
    // Another process takes over, and looks at what ledgers name.
    operator.kill();
    let next = Operator::start_as(cluster, account, "takes-over");
    submit("later", json!({ "image": "none", "gpus": "0.5" })).await;
    until("the next one leads", async || bound("later-r1-0").await).await;
    workloads.delete("gang", &DeleteParams::default()).await.expect("it is there");
    let stop = Patch::Merge(json!({ "spec": { "suspend": true } }));
    workloads.patch("later", &PatchParams::default(), &stop).await.expect("it is there");
    until("it is suspended", async || !bound("later-r1-0").await).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    next.stop();
}

/// Makers of every kind are read. The cluster does not have most of them, which is found by asking.
async fn makers(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "berth-team");
    let owned = [
        ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v1", "TFJob"),
        ("kubeflow.org/v1", "XGBoostJob"),
        ("kubeflow.org/v1", "PaddleJob"),
        ("kubeflow.org/v1", "JAXJob"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("ray.io/v1", "RayCluster"),
    ];
    let owned = owned.map(|(version, kind)| {
        json!({
            "labels": { "training.kubeflow.org/replica-type": "worker", "ray.io/group": "workers" },
            "ownerReferences": [{ "apiVersion": version, "kind": kind, "name": "none", "uid": "none", "controller": true }],
        })
    });
    let labelled = [
        json!({ "jobset.sigs.k8s.io/jobset-name": "none", "jobset.sigs.k8s.io/replicatedjob-name": "workers" }),
        json!({ "leaderworkerset.sigs.k8s.io/name": "none", "leaderworkerset.sigs.k8s.io/group-index": "0" }),
    ];
    let labelled = labelled.map(|labels| json!({ "labels": labels }));
    for (number, mut meta) in owned.into_iter().chain(labelled).enumerate() {
        let name = format!("made-{number}");
        meta["name"] = name.as_str().into();
        let mut made = serde_json::to_value(pod(&name, &json!({}))).expect("a Pod");
        made["metadata"] = meta;
        let made = serde_json::from_value(made).expect("a Pod");
        pods.create(&PostParams::default(), &made).await.expect("it is accepted");
        until("it is told that its owner cannot be read", async || {
            let found = pods.get(&name).await.expect("it is there");
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions
                .iter()
                .any(|one| one.message.as_deref().is_some_and(|text| text.starts_with("OwnerNotServed")))
        })
        .await;
    }
    let jobs: Api<Job> = Api::namespaced(client.clone(), "berth-team");
    let mut template =
        serde_json::to_value(pod("gang", &json!({ "restartPolicy": "Never" }))).expect("a Pod");
    template["metadata"] = json!({ "labels": { "berth.dev/gang": "true" } });
    let job = json!({ "metadata": { "name": "gang" }, "spec": { "parallelism": 2, "completions": 2, "template": template } });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).expect("a Job"))
        .await
        .expect("it is accepted");
    until("it starts", async || {
        let found =
            pods.list(&ListParams::default().labels("job-name=gang")).await.expect("the API server answers");
        found
            .items
            .iter()
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
            .count()
            == 2
    })
    .await;
}

/// A volume is made for the node that was chosen.
async fn volumes(client: &Client) {
    let class = json!({
        "metadata": { "name": "late" }, "provisioner": "volumes.example", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("it is accepted");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "berth-team");
    let size = json!({ "storage": "1Gi" });
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteMany"], "storageClassName": "late", "resources": { "requests": size } },
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    claims.create(&PostParams::default(), &claim).await.expect("it is accepted");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "berth-team");
    let uses = json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] });
    pods.create(&PostParams::default(), &pod("uses", &uses)).await.expect("it is accepted");
    until("a node is chosen", async || {
        let claim = claims.get("data").await.expect("it is there");
        claim.annotations().contains_key("volume.kubernetes.io/selected-node")
    })
    .await;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = json!({
        "metadata": { "name": "data" },
        "spec": {
            "capacity": size, "accessModes": ["ReadWriteMany"], "storageClassName": "late",
            "claimRef": { "namespace": "berth-team", "name": "data" },
            "nfs": { "server": "storage.example", "path": "/data" },
        },
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    volumes.create(&PostParams::default(), &volume).await.expect("it is accepted");
    let is_bound = async |name: &str| {
        pods.get(name).await.is_ok_and(|pod| pod.spec.is_some_and(|spec| spec.node_name.is_some()))
    };
    until("it is bound", async || is_bound("uses").await).await;
    // And one that was made by hand is given.
    let class = json!({
        "metadata": { "name": "local" }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("it is accepted");
    let claim = json!({
        "metadata": { "name": "disk" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": { "requests": size } },
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    claims.create(&PostParams::default(), &claim).await.expect("it is accepted");
    let volume = json!({
        "metadata": { "name": "disk" },
        "spec": {
            "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "nfs": { "server": "storage.example", "path": "/disk" },
        },
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    volumes.create(&PostParams::default(), &volume).await.expect("it is accepted");
    let uses = json!({ "volumes": [{ "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } }] });
    pods.create(&PostParams::default(), &pod("local", &uses)).await.expect("it is accepted");
    until("it is bound", async || is_bound("local").await).await;
}
