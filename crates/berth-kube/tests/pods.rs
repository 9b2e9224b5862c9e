//! Pods that anybody made, on a real API server with the real controllers: placed singly or together, within quota, and told
//! why when not.

mod mirror;
mod team;

use berth_testbed::NodeSpec;
use k8s_openapi::api::{
    apps::v1::Deployment, batch::v1::Job, core::v1::Pod, policy::v1::PodDisruptionBudget,
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use mirror::{Operator, block_on, cluster, connect, install, until};
use serde_json::{Value, json};
use team::{Team, clear, pod};

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
        pods_are_near_and_apart_as_they_say(&client).await;
        pods_at_one_port_have_a_node_each(&client).await;
        a_native_group_starts_together(&client).await;
        claims_of_templates_share_a_device(&client).await;
        whoever_cannot_be_placed_is_told_why(&client).await;
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

/// What Pods say of each other, as the API server gives it back.
async fn pods_are_near_and_apart_as_they_say(client: &Client) {
    let team = Team::new(client, "beside", 32).await;
    let member = |group: &str, kind: &str| {
        let own = json!({ "matchLabels": { "berth.dev/group": group } });
        json!({
            "metadata": { "labels": { "berth.dev/group": group }, "annotations": { "berth.dev/group-size": "3" } },
            "spec": { "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "kubernetes.io/hostname", "labelSelector": own },
            ] } } },
        })
    };
    for (group, kind, nodes) in [("apart", "podAntiAffinity", 3), ("near", "podAffinity", 1)] {
        for index in 0..3 {
            team.create::<Pod>(pod(&format!("{group}{index}"), 1, member(group, kind))).await;
        }
        let mut found = team.until_bound(&format!("berth.dev/group={group}"), 3).await;
        found.sort();
        found.dedup();
        assert_eq!(found.len(), nodes, "{group}: {found:?}");
    }
    clear(&team).await;
}

/// A port of a node is had by one Pod at a time, also by Pods that are decided at once.
async fn pods_at_one_port_have_a_node_each(client: &Client) {
    let team = Team::new(client, "ports", 32).await;
    let ports = json!([{ "containerPort": 80, "hostPort": 8088 }]);
    for index in 0..3 {
        let mut one = pod(&format!("port{index}"), 1, json!({ "metadata": { "labels": { "at": "port" } } }));
        one["spec"]["containers"][0]["ports"] = ports.clone();
        team.create::<Pod>(one).await;
    }
    let mut found = team.until_bound("at=port", 3).await;
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 3, "{found:?}");
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
