//! Pods that anybody made, on a real API server with the real controllers: placed singly or together, within quota, and told
//! why when not.

mod mirror;

use berth_testbed::NodeSpec;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Event, Pod},
    policy::v1::PodDisruptionBudget,
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use mirror::{Operator, block_on, cluster, connect, install, until};
use serde_json::{Value, json};

/// A project with a quota, and a client for its namespace.
struct Team {
    client: Client,
    namespace: String,
}

impl Team {
    async fn new(client: &Client, name: &str, quota: u32) -> Self {
        let projects: Api<berth_kube::api::Project> = Api::all(client.clone());
        let project = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name },
            "spec": { "quota": quota, "allowHostNetwork": true, "allowPrivileged": true },
        });
        let project = serde_json::from_value(project).expect("a project");
        projects.create(&PostParams::default(), &project).await.expect("the project is accepted");
        let team = Self { client: client.clone(), namespace: format!("berth-{name}") };
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = team.api();
        until("the namespace of a project", async || {
            let default = accounts.get_opt("default").await.is_ok_and(|found| found.is_some());
            default && accounts.get_opt("berth-workload").await.is_ok_and(|found| found.is_some())
        })
        .await;
        team
    }

    fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).expect("an object");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("it is accepted");
    }

    async fn pods(&self, labels: &str) -> Vec<Pod> {
        let pods: Api<Pod> = self.api();
        pods.list(&ListParams::default().labels(labels)).await.expect("the API server answers").items
    }

    /// The nodes of Pods that are on one and not leaving it.
    async fn nodes(&self, labels: &str) -> Vec<String> {
        let pods = self.pods(labels).await;
        let there = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        there.filter_map(|pod| pod.spec?.node_name).collect()
    }

    async fn until_bound(&self, labels: &str, count: usize) -> Vec<String> {
        until(&format!("{count} Pods of {labels} are bound"), async || {
            self.nodes(labels).await.len() == count
        })
        .await;
        self.nodes(labels).await
    }

    /// Waits until a Pod is told that it waits for this reason.
    async fn until_told(&self, pod: &str, reason: &str) {
        let pods: Api<Pod> = self.api();
        let events: Api<Event> = self.api();
        until(&format!("{pod} is told {reason}"), async || {
            let found = pods.get(pod).await.expect("it is there");
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            let told = conditions.iter().any(|one| {
                one.type_ == "PodScheduled"
                    && one.message.as_deref().is_some_and(|text| text.starts_with(reason))
            });
            let events = events.list(&ListParams::default()).await.expect("the API server answers");
            let noted = events.items.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason)
            });
            told && noted
        })
        .await;
    }
}

/// A Pod that asks for counted GPUs.
fn pod(name: &str, gpus: u32, more: Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "schedulerName": "berth",
            "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": gpus } } }],
        },
    });
    merge(&mut pod, more);
    pod
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

#[test]
fn pods_of_anybody_are_placed_as_they_should_be() {
    let nodes = vec![
        NodeSpec { prefix: "counted".into(), ..NodeSpec::dgx1(4) },
        NodeSpec { prefix: "shared".into(), ..NodeSpec::dgx1(1).with_dra() },
    ];
    let options = berth_testbed::Options { nodes, ..Default::default() };
    let Some(cluster) = cluster("Pods of anybody", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let operator = Operator::start(&client);
        jobs_and_deployments_are_placed_pod_by_pod(&client).await;
        a_group_by_labels_starts_together(&client).await;
        a_native_group_starts_together(&client).await;
        claims_of_templates_share_a_device(&client).await;
        whoever_cannot_be_placed_is_told_why(&client).await;
        a_master_and_its_workers_are_one_gang(&client).await;
        a_disruption_budget_sends_reclaim_elsewhere(&client).await;
        operator.stop().await;
    });
}

async fn jobs_and_deployments_are_placed_pod_by_pod(client: &Client) {
    let team = Team::new(client, "plain", 8).await;
    let template = |annotations: Value, restart: &str| {
        json!({
            "metadata": { "labels": { "app": "plain" }, "annotations": annotations },
            "spec": {
                "schedulerName": "berth", "restartPolicy": restart,
                "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": 2 } } }],
            },
        })
    };
    let ends = json!({ "berth.dev/simulate-seconds": "1" });
    team.create::<Job>(json!({
        "metadata": { "name": "job" },
        "spec": { "template": template(ends, "Never"), "parallelism": 2, "completions": 2 },
    }))
    .await;
    let jobs: Api<Job> = team.api();
    until("the Job is done", async || {
        let job = jobs.get("job").await.expect("it is there");
        job.status.and_then(|status| status.succeeded) == Some(2)
    })
    .await;
    team.create::<Deployment>(json!({
        "metadata": { "name": "serves" },
        "spec": {
            "replicas": 3, "selector": { "matchLabels": { "app": "plain" } },
            "template": template(json!({}), "Always"),
        },
    }))
    .await;
    let nodes = team.until_bound("pod-template-hash", 3).await;
    assert!(nodes.iter().all(|node| node == &nodes[0]), "they are packed: {nodes:?}");
    let deployments: Api<Deployment> = team.api();
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch("serves", &PatchParams::default(), &none).await.expect("it is there");
    until("its Pods are gone", async || team.pods("pod-template-hash").await.is_empty()).await;
}

async fn a_group_by_labels_starts_together(client: &Client) {
    let team = Team::new(client, "group", 32).await;
    let member = json!({
        "metadata": { "labels": { "berth.dev/group": "gang" }, "annotations": { "berth.dev/group-size": "3" } },
    });
    for name in ["one", "two"] {
        team.create::<Pod>(pod(name, 8, member.clone())).await;
    }
    team.until_told("two", "GroupIncomplete").await;
    assert!(team.nodes("berth.dev/group=gang").await.is_empty(), "two of three do not start");
    team.create::<Pod>(pod("three", 8, member)).await;
    let mut nodes = team.until_bound("berth.dev/group=gang", 3).await;
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "eight GPUs each, so a node each: {nodes:?}");
    clear(&team).await;
}

async fn a_native_group_starts_together(client: &Client) {
    let team = Team::new(client, "native", 32).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("scheduling.k8s.io", "v1alpha2", "PodGroup"));
    let groups: Api<DynamicObject> = Api::namespaced_with(client.clone(), &team.namespace, &kind);
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": { "name": "gang" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 2 } } },
    });
    let group = serde_json::from_value(group).expect("a group");
    groups.create(&PostParams::default(), &group).await.expect("the cluster knows native groups");
    let member = json!({ "spec": { "schedulingGroup": { "podGroupName": "gang" } } });
    let raw = |name: &str| {
        let mut pod = pod(name, 4, member.clone());
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        serde_json::from_value::<DynamicObject>(pod).expect("a Pod")
    };
    let pods: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &team.namespace, &ApiResource::erase::<Pod>(&()));
    pods.create(&PostParams::default(), &raw("first")).await.expect("it is accepted");
    team.until_told("first", "GroupIncomplete").await;
    pods.create(&PostParams::default(), &raw("second")).await.expect("it is accepted");
    team.until_bound("app in (first,second)", 2).await;
    clear(&team).await;
}

async fn claims_of_templates_share_a_device(client: &Client) {
    let team = Team::new(client, "claims", 2).await;
    team.create::<ResourceClaimTemplate>(json!({
        "metadata": { "name": "half" },
        "spec": { "spec": { "devices": { "requests": [{ "name": "part", "exactly": {
            "deviceClassName": "gpu.berth.dev", "capacity": { "requests": { "share": "500000" } },
        } }] } } },
    }))
    .await;
    for name in ["left", "right"] {
        let claims = json!({ "spec": {
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "half" }],
            "containers": [{ "name": "main", "image": "none", "resources": { "claims": [{ "name": "gpu" }] } }],
        } });
        team.create::<Pod>(pod(name, 0, claims)).await;
    }
    team.until_bound("app in (left,right)", 2).await;
    let claims: Api<k8s_openapi::api::resource::v1::ResourceClaim> = team.api();
    let claims = claims.list(&ListParams::default()).await.expect("the API server answers").items;
    let results: Vec<_> = claims
        .iter()
        .filter_map(|claim| claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?.results.clone())
        .flatten()
        .collect();
    assert_eq!(results.len(), 2);
    assert_eq!(results[0].device, results[1].device, "fractions share a device before another is opened");
    assert!(results.iter().all(|result| result.request == "part" && result.pool == "shared1"));
    let ledgers: Api<berth_kube::api::DeviceLedger> = Api::all(client.clone());
    let ledger = ledgers.get("shared1").await.expect("the node has a ledger");
    assert_eq!(ledger.spec.allocations.iter().map(|one| one.share).sum::<i64>(), 1_000_000);
    clear(&team).await;
}

async fn whoever_cannot_be_placed_is_told_why(client: &Client) {
    mirror::namespace(client, "nobodys").await;
    let stray = Team { client: client.clone(), namespace: "nobodys".into() };
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = stray.api();
    until("the account", async || accounts.get_opt("default").await.is_ok_and(|found| found.is_some())).await;
    stray.create::<Pod>(pod("stray", 1, json!({}))).await;
    stray.until_told("stray", "NoProject").await;
    let team = Team::new(client, "told", 1).await;
    team.create::<Pod>(pod(
        "foreign",
        1,
        json!({ "metadata": { "labels": { "berth.dev/project": "plain" } } }),
    ))
    .await;
    team.until_told("foreign", "ForeignProject").await;
    let apart = json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "apart" } } },
    ] } } } });
    team.create::<Pod>(pod("apart", 1, apart)).await;
    team.until_told("apart", "UnsupportedConstraint").await;
    team.create::<Pod>(pod("huge", 9, json!({}))).await;
    team.until_told("huge", "NeverFits").await;
    let kept = json!({ "metadata": { "labels": { "berth.dev/kind": "interactive" } } });
    team.create::<Pod>(pod("kept", 2, kept)).await;
    team.until_told("kept", "OverQuota").await;
    let elsewhere = json!({ "spec": { "nodeSelector": { "kubernetes.io/hostname": "no-such-node" } } });
    team.create::<Pod>(pod("elsewhere", 1, elsewhere)).await;
    team.until_told("elsewhere", "NeverFits").await;
    let there = json!({ "spec": { "nodeSelector": { "kubernetes.io/hostname": "counted3" } } });
    team.create::<Pod>(pod("there", 1, there)).await;
    assert_eq!(team.until_bound("app=there", 1).await, ["counted3"]);
    clear(&team).await;
    clear(&stray).await;
}

/// The report's manifests for training on two nodes: a Job that ends and a Deployment that never does.
async fn a_master_and_its_workers_are_one_gang(client: &Client) {
    let team = Team::new(client, "multi", 16).await;
    let template = |role: &str, restart: &str| {
        json!({
            "metadata": {
                "labels": { "app": role, "berth.dev/group": "imagenet" },
                "annotations": { "berth.dev/group-size": "2" },
            },
            "spec": {
                "schedulerName": "berth", "restartPolicy": restart, "hostNetwork": true,
                "volumes": [{ "name": "dshm", "emptyDir": { "medium": "Memory" } }],
                "containers": [{
                    "name": role, "image": "none", "securityContext": { "privileged": true },
                    "resources": { "limits": { "nvidia.com/gpu": 8 } },
                    "volumeMounts": [{ "name": "dshm", "mountPath": "/dev/shm" }],
                }],
            },
        })
    };
    team.create::<Deployment>(json!({
        "metadata": { "name": "worker" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "worker" } }, "template": template("worker", "Always") },
    }))
    .await;
    until("the worker is made", async || team.pods("app=worker").await.len() == 1).await;
    assert!(team.nodes("app=worker").await.is_empty(), "the worker waits for its master");
    team.create::<Job>(json!({
        "metadata": { "name": "master" },
        "spec": { "backoffLimit": 5, "template": template("master", "Never") },
    }))
    .await;
    let mut nodes = team.until_bound("berth.dev/group=imagenet", 2).await;
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 2);
    let first = team.pods("app=worker").await[0].name_any();
    let pods: Api<Pod> = team.api();
    let master = team.pods("app=master").await[0].name_any();
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status(&master, &PatchParams::default(), &done).await.expect("it is there");
    until("the worker is released", async || {
        let workers = team.pods("app=worker").await;
        workers.iter().all(|pod| pod.name_any() != first) && team.nodes("app=worker").await.is_empty()
    })
    .await;
    let deployments: Api<Deployment> = team.api();
    deployments.delete("worker", &Default::default()).await.expect("it is there");
    clear(&team).await;
}

async fn a_disruption_budget_sends_reclaim_elsewhere(client: &Client) {
    let borrower = Team::new(client, "borrower", 0).await;
    for name in ["held", "free1", "free2", "free3"] {
        borrower.create::<Pod>(pod(name, 8, json!({ "metadata": { "labels": { "budget": name } } }))).await;
    }
    borrower.until_bound("budget", 4).await;
    // The one that would be taken first is kept by its budget: all have the same age, so any may be first.
    for name in ["held", "free1", "free2"] {
        borrower
            .create::<PodDisruptionBudget>(json!({
                "metadata": { "name": name },
                "spec": { "minAvailable": 1, "selector": { "matchLabels": { "budget": name } } },
            }))
            .await;
    }
    let budgets: Api<PodDisruptionBudget> = borrower.api();
    until("the budgets are counted", async || {
        let found = budgets.list(&ListParams::default()).await.expect("the API server answers").items;
        found.iter().all(|one| one.status.as_ref().is_some_and(|status| status.expected_pods == Some(1)))
    })
    .await;
    let owner = Team::new(client, "owner", 8).await;
    owner.create::<Pod>(pod("wants", 8, json!({}))).await;
    owner.until_bound("app=wants", 1).await;
    let left: Vec<String> = borrower.pods("budget").await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["free1", "free2", "held"], "the one without a budget went");
    clear(&owner).await;
    clear(&borrower).await;
}

async fn clear(team: &Team) {
    let pods: Api<Pod> = team.api();
    let all = ListParams::default();
    pods.delete_collection(&Default::default(), &all).await.expect("Pods go");
    until("no Pod is left", async || pods.list(&all).await.expect("the API server answers").items.is_empty())
        .await;
}
