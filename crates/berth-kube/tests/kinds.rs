//! Pods of kinds that are known, with volumes and pools, on a real API server: who starts with whom is read of their makers, and
//! the report's own manifests start and end as one gang.

mod mirror;
mod team;

use berth_kube::api::{NodePool, Workload};
use berth_testbed::NodeSpec;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use mirror::{Operator, block_on, cluster, connect, install, until};
use serde_json::{Value, json};
use team::{Team, clear, merge, pod};

#[test]
fn pods_of_known_kinds_are_placed_as_their_makers_say() {
    let nodes = vec![NodeSpec { prefix: "node".into(), ..NodeSpec::dgx1(4) }];
    let options = berth_testbed::Options { nodes, ..Default::default() };
    let Some(cluster) = cluster("Pods of known kinds", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let operator = Operator::start(&client);
        a_training_job_starts_as_a_whole(&client).await;
        a_set_of_jobs_starts_as_a_whole(&client).await;
        a_job_whose_pods_ask_for_it_starts_as_a_whole(&client).await;
        pods_go_to_the_pool_they_name(&client).await;
        volumes_are_waited_for_reached_and_made(&client).await;
        the_reports_manifests_are_one_gang_that_ends_with_its_master(&client).await;
        a_namespace_that_was_deleted_is_made_again(&client).await;
        operator.stop().await;
    });
}

/// Makes a kind known to the cluster as its own project would, with any content.
async fn define(client: &Client, group: &str, version: &str, kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd: CustomResourceDefinition = serde_json::from_value(crd).expect("a definition");
    let name = crd.name_any();
    crds.create(&PostParams::default(), &crd).await.expect("it is accepted");
    until(&name, async || {
        let found = crds.get(&name).await.expect("it was made");
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Established" && one.status == "True")
    })
    .await;
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural)
}

/// Makes an object of such a kind, and gives the reference by which its Pods name it.
async fn own(team: &Team, kind: &ApiResource, name: &str, spec: Value) -> Value {
    let all: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, kind);
    let object = json!({
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": name }, "spec": spec,
    });
    let object = serde_json::from_value(object).expect("an object");
    // A definition is served a moment after it says so.
    until("its kind is served", async || all.list(&ListParams::default()).await.is_ok()).await;
    let made = all.create(&PostParams::default(), &object).await.expect("it is accepted");
    let uid = made.uid().expect("an id");
    json!([{ "apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid, "controller": true }])
}

fn template(gpus: u32) -> Value {
    json!({ "spec": { "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": gpus } } }] } })
}

async fn a_training_job_starts_as_a_whole(client: &Client) {
    let team = Team::new(client, "training", 32).await;
    let member = |role: &str, owner: &Value| {
        json!({ "metadata": {
            "labels": { "training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": role },
            "ownerReferences": owner,
        } })
    };
    // Before the cluster knows its kind, its Pods say what is missing.
    let nobody = json!([{ "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "none", "uid": "0", "controller": true }]);
    team.create::<Pod>(pod("early", 8, member("master", &nobody))).await;
    team.until_told("early", "OwnerNotServed").await;
    clear(&team).await;
    let kind = define(client, "kubeflow.org", "v1", "PyTorchJob").await;
    let spec = json!({ "pytorchReplicaSpecs": {
        "Master": { "replicas": 1, "template": template(8) }, "Worker": { "replicas": 2, "template": template(8) },
    } });
    let owner = own(&team, &kind, "bert", spec).await;
    team.create::<Pod>(pod("master", 8, member("master", &owner))).await;
    team.create::<Pod>(pod("worker-0", 8, member("worker", &owner))).await;
    team.until_told("worker-0", "GroupIncomplete").await;
    assert!(team.nodes("app").await.is_empty(), "two of three do not start");
    team.create::<Pod>(pod("worker-1", 8, member("worker", &owner))).await;
    team.until_bound("app", 3).await;
    clear(&team).await;
}

async fn a_set_of_jobs_starts_as_a_whole(client: &Client) {
    let team = Team::new(client, "sets", 32).await;
    let kind = define(client, "jobset.x-k8s.io", "v1alpha2", "JobSet").await;
    let job = |name: &str, replicas: u32, parallelism: u32| {
        json!({
            "name": name, "replicas": replicas,
            "template": { "spec": { "parallelism": parallelism, "completions": parallelism, "template": template(8) } },
        })
    };
    own(&team, &kind, "train", json!({ "replicatedJobs": [job("driver", 1, 1), job("workers", 1, 2)] }))
        .await;
    let member = |job: &str| {
        json!({ "metadata": { "labels": {
            "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": job,
        } } })
    };
    for name in ["workers-0", "workers-1"] {
        team.create::<Pod>(pod(name, 8, member("workers"))).await;
    }
    team.until_told("workers-1", "GroupIncomplete").await;
    team.create::<Pod>(pod("driver-0", 8, member("driver"))).await;
    team.until_bound("app", 3).await;
    clear(&team).await;
}

async fn a_job_whose_pods_ask_for_it_starts_as_a_whole(client: &Client) {
    let team = Team::new(client, "indexed", 32).await;
    // One node is left for two Pods that each need all of it.
    for number in 0..3 {
        team.create::<Pod>(pod(&format!("fills-{number}"), 8, json!({}))).await;
    }
    team.until_bound("app", 3).await;
    let mut pods = template(8);
    merge(
        &mut pods,
        json!({
            "metadata": { "labels": { "job": "gang", "berth.dev/gang": "true" } },
            "spec": { "schedulerName": "berth", "restartPolicy": "Never" },
        }),
    );
    team.create::<Job>(json!({
        "metadata": { "name": "gang" },
        "spec": { "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pods },
    }))
    .await;
    until("its Pods are made", async || team.pods("job=gang").await.len() == 2).await;
    let first = team.pods("job=gang").await[0].name_any();
    team.until_told(&first, "NoCapacity").await;
    assert!(team.nodes("job=gang").await.is_empty(), "one of two does not start");
    let all: Api<Pod> = team.api();
    all.delete("fills-0", &DeleteParams::default()).await.expect("it is there");
    team.until_bound("job=gang", 2).await;
    let jobs: Api<Job> = team.api();
    jobs.delete("gang", &DeleteParams::background()).await.expect("it is there");
    clear(&team).await;
}

async fn pods_go_to_the_pool_they_name(client: &Client) {
    let team = Team::new(client, "pools", 32).await;
    let named = json!({ "metadata": { "labels": { "berth.dev/node-pool": "fast" } } });
    team.create::<Pod>(pod("pooled", 1, named)).await;
    team.until_told("pooled", "UnknownPool").await;
    let nodes: Api<Node> = Api::all(client.clone());
    let fast = Patch::Merge(json!({ "metadata": { "labels": { "speed": "fast" } } }));
    nodes.patch("node4", &PatchParams::default(), &fast).await.expect("it is there");
    let pools: Api<NodePool> = Api::all(client.clone());
    let pool = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "fast" },
        "spec": { "nodeSelector": { "matchLabels": { "speed": "fast" } } },
    });
    pools
        .create(&PostParams::default(), &serde_json::from_value(pool).expect("a pool"))
        .await
        .expect("it is accepted");
    assert_eq!(team.until_bound("app=pooled", 1).await, ["node4"]);
    clear(&team).await;
    pools.delete("fast", &DeleteParams::default()).await.expect("it is there");
}

/// A volume that only some nodes reach, for a claim.
fn volume(name: &str, class: &str, claim: (&Team, &str), node: Option<&str>) -> PersistentVolume {
    let affinity = node.map(|node| {
        json!({ "required": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] },
        ] } })
    });
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"], "storageClassName": class,
            "claimRef": { "namespace": claim.0.namespace, "name": claim.1 },
            "nfs": { "server": "storage.example", "path": format!("/{name}") }, "nodeAffinity": affinity,
        },
    });
    serde_json::from_value(volume).expect("a volume")
}

fn claim(name: &str, class: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

async fn volumes_are_waited_for_reached_and_made(client: &Client) {
    let team = Team::new(client, "volumes", 32).await;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = team.api();
    let uses = |claim: &str| json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } });
    team.create::<Pod>(pod("reaches", 1, uses("fixed"))).await;
    team.until_told("reaches", "VolumeClaimMissing").await;
    team.create::<PersistentVolumeClaim>(claim("fixed", "")).await;
    team.until_told("reaches", "VolumeUnbound").await;
    let fixed = volume("fixed", "", (&team, "fixed"), Some("node3"));
    volumes.create(&PostParams::default(), &fixed).await.expect("it is accepted");
    assert_eq!(team.until_bound("app=reaches", 1).await, ["node3"]);
    // A volume that is made for the node of the first Pod that uses it.
    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = json!({
        "metadata": { "name": "late" }, "provisioner": "volumes.example", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("it is accepted");
    team.create::<PersistentVolumeClaim>(claim("made", "late")).await;
    team.create::<Pod>(pod("makes", 1, uses("made"))).await;
    let selected = async |claim: &str| {
        let claim = claims.get(claim).await.expect("it is there");
        claim.annotations().get("volume.kubernetes.io/selected-node").cloned()
    };
    until("a node is chosen", async || selected("made").await.is_some()).await;
    assert!(team.nodes("app=makes").await.is_empty(), "the Pod waits for its volume");
    let node = selected("made").await.expect("it was there a moment ago");
    let made = volume("made", "late", (&team, "made"), Some(&node));
    volumes.create(&PostParams::default(), &made).await.expect("it is accepted");
    assert_eq!(team.until_bound("app=makes", 1).await, [node]);
    // One that Pods on two nodes share is made for one of them, and reached from both.
    team.create::<PersistentVolumeClaim>(claim("both", "late")).await;
    for name in ["left", "right"] {
        let mut member = uses("both");
        merge(
            &mut member,
            json!({ "metadata": { "labels": { "berth.dev/group": "both", "berth.dev/group-size": "2" } } }),
        );
        team.create::<Pod>(pod(name, 8, member)).await;
    }
    until("a node is chosen for one", async || selected("both").await.is_some()).await;
    let both = volume("both", "late", (&team, "both"), None);
    volumes.create(&PostParams::default(), &both).await.expect("it is accepted");
    team.until_bound("berth.dev/group=both", 2).await;
    // And so for Pods that Berth makes.
    team.create::<PersistentVolumeClaim>(claim("own", "late")).await;
    team.create::<Workload>(json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Workload", "metadata": { "name": "own" },
        "spec": { "image": "none", "gpus": 1, "volumes": [{ "claim": "own", "path": "/data" }] },
    }))
    .await;
    until("a node is chosen for ours", async || selected("own").await.is_some()).await;
    let own = volume("own", "late", (&team, "own"), None);
    volumes.create(&PostParams::default(), &own).await.expect("it is accepted");
    team.until_bound("berth.dev/workload=own", 1).await;
    let workloads: Api<Workload> = team.api();
    workloads.delete("own", &DeleteParams::default()).await.expect("it is there");
    clear(&team).await;
    volumes_made_by_hand_are_chosen(client).await;
}

/// Disks of nodes, as administrators make them: each claim gets one where its Pod goes, and nobody gets another's.
async fn volumes_made_by_hand_are_chosen(client: &Client) {
    let team = Team::new(client, "disks", 32).await;
    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = json!({
        "metadata": { "name": "local" }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("it is accepted");
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = team.api();
    let gang =
        json!({ "metadata": { "labels": { "berth.dev/group": "disks", "berth.dev/group-size": "2" } } });
    for name in ["disk1", "disk2"] {
        team.create::<PersistentVolumeClaim>(claim(name, "local")).await;
        let mut member = json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }] } });
        merge(&mut member, gang.clone());
        team.create::<Pod>(pod(&format!("on-{name}"), 1, member)).await;
    }
    team.until_told("on-disk1", "NoVolume").await;
    for (name, size) in [("large", "9Gi"), ("first", "2Gi"), ("second", "2Gi")] {
        let volume = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": { "storage": size }, "accessModes": ["ReadWriteMany"], "storageClassName": "local",
                "local": { "path": "/disk" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["node2"] }] },
                ] } },
            },
        });
        let volume = serde_json::from_value(volume).expect("a volume");
        volumes.create(&PostParams::default(), &volume).await.expect("it is accepted");
    }
    assert_eq!(team.until_bound("berth.dev/group=disks", 2).await, ["node2", "node2"]);
    let mut given = Vec::new();
    for name in ["disk1", "disk2"] {
        let claim = claims.get(name).await.expect("it is there");
        given
            .push(claim.spec.and_then(|spec| spec.volume_name).expect("a Pod that is bound has its volumes"));
    }
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 2, "a volume each: {given:?}");
    clear(&team).await;
}

/// The report's claims: one dataset by two interfaces, and a place for results. Somebody has made their volumes.
async fn the_reports_claims(client: &Client, team: &Team) {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for name in ["pb-fg-all-iface1", "pb-fg-all-iface2", "tensorflow-results"] {
        team.create::<PersistentVolumeClaim>(claim(name, "")).await;
        volumes
            .create(&PostParams::default(), &volume(name, "", (team, name), None))
            .await
            .expect("it is accepted");
    }
}

fn manifest(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("a manifest")
}

async fn the_reports_manifests_are_one_gang_that_ends_with_its_master(client: &Client) {
    let team = Team::new(client, "report", 16).await;
    the_reports_claims(client, &team).await;
    let pods: Api<Pod> = team.api();
    let jobs: Api<Job> = team.api();
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    // On one node.
    team.create::<Job>(manifest(include_str!("report/single.yaml"))).await;
    let single = "job-name=netapp-tensorflow-single-imagenet";
    team.until_bound(single, 1).await;
    let pod = team.pods(single).await[0].clone();
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &done).await.expect("it is there");
    until("the Job is done", async || {
        let job = jobs.get("netapp-tensorflow-single-imagenet").await.expect("it is there");
        job.status.and_then(|status| status.succeeded) == Some(1)
    })
    .await;
    // On two: a Deployment that never ends, and a Job that does.
    let workers = "app=netapp-tensorflow-multi-imagenet-worker";
    team.create::<Deployment>(manifest(include_str!("report/worker.yaml"))).await;
    until("the worker is made", async || team.pods(workers).await.len() == 1).await;
    let worker = team.pods(workers).await[0].name_any();
    team.until_told(&worker, "GroupIncomplete").await;
    assert!(team.nodes(workers).await.is_empty(), "the worker waits for its master");
    team.create::<Job>(manifest(include_str!("report/master.yaml"))).await;
    let mut nodes = team.until_bound("berth.dev/group=imagenet", 2).await;
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 2, "eight GPUs each, so a node each");
    let master = team.pods("job-name=netapp-tensorflow-multi-imagenet-master").await[0].name_any();
    pods.patch_status(&master, &PatchParams::default(), &done).await.expect("it is there");
    until("the worker is released", async || {
        let all = team.pods(workers).await;
        all.iter().all(|pod| pod.name_any() != worker) && team.nodes(workers).await.is_empty()
    })
    .await;
    let job = jobs.get("netapp-tensorflow-multi-imagenet-master").await.expect("it is there");
    assert_eq!(job.status.and_then(|status| status.failed).unwrap_or(0), 0, "the master was left alone");
    // What the Deployment makes again waits for a master, and says so.
    until("another worker is made", async || team.pods(workers).await.len() == 1).await;
    let again = team.pods(workers).await[0].name_any();
    team.until_told(&again, "GroupIncomplete").await;
    let deployments: Api<Deployment> = team.api();
    deployments
        .delete("netapp-tensorflow-multi-imagenet-worker", &Default::default())
        .await
        .expect("it is there");
    for job in jobs.list(&ListParams::default()).await.expect("the API server answers").items {
        jobs.delete(&job.name_any(), &DeleteParams::background()).await.expect("it is there");
    }
    clear(&team).await;
}

async fn a_namespace_that_was_deleted_is_made_again(client: &Client) {
    let team = Team::new(client, "again", 8).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let before = namespaces.get("berth-again").await.expect("it is there").uid();
    namespaces.delete("berth-again", &DeleteParams::default()).await.expect("it is there");
    let accounts: Api<ServiceAccount> = team.api();
    until("another is there with its account", async || {
        let now = namespaces.get_opt("berth-again").await.expect("the API server answers");
        let is_new = now.is_some_and(|now| now.uid() != before);
        is_new && accounts.get_opt("berth-workload").await.is_ok_and(|found| found.is_some())
    })
    .await;
}
