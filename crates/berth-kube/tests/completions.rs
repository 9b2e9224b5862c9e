//! Workloads with completions, on a real control plane: each is done once, a few at a time, whoever leads meanwhile.

mod mirror;
mod team;

use berth_kube::{api::Workload, names};
use berth_testbed::NodeSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use mirror::{Operator, block_on, cluster, connect, install, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use team::Team;

const ALL: &str = "berth.dev/workload=sweep";

fn sweep(more: Value) -> Value {
    let mut workload = json!({
        "metadata": { "name": "sweep" },
        "spec": { "image": "none", "gpus": "0.5", "completions": 6, "parallelism": 2, "backoffLimit": 1 },
    });
    team::merge(&mut workload, more);
    workload
}

/// Pods that run, by the completion they are for.
async fn running(team: &Team) -> BTreeMap<String, Pod> {
    let runs = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    let pods: Vec<Pod> = team.pods(ALL).await.into_iter().filter(runs).collect();
    let count = pods.len();
    let by_index: BTreeMap<_, _> =
        pods.into_iter().map(|pod| (pod.labels()[names::INDEX].clone(), pod)).collect();
    assert_eq!(by_index.len(), count, "two work at the same completion");
    assert!(count <= 2, "{:?}", by_index.keys());
    by_index
}

/// Lets a Pod end now, well or not.
async fn end(team: &Team, pod: &Pod, code: u32) {
    let annotations =
        json!({ "berth.dev/simulate-exit": code.to_string(), "berth.dev/simulate-seconds": "0" });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let pods: Api<Pod> = team.api();
    pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await.expect("it is there");
    until("it ended", async || {
        let found = pods.get(&pod.name_any()).await.expect("what ended stays");
        found.status.and_then(|status| status.phase).is_some_and(|phase| phase != "Running")
    })
    .await;
}

async fn status(team: &Team) -> berth_kube::api::WorkloadStatus {
    let workloads: Api<Workload> = team.api();
    workloads.get("sweep").await.expect("it is there").status.unwrap_or_default()
}

fn variable(pod: &Pod, name: &str) -> Option<String> {
    let main = &pod.spec.as_ref().expect("a spec").containers[0];
    main.env.as_ref()?.iter().find(|one| one.name == name)?.value.clone()
}

#[test]
fn completions_are_done_once_each_a_few_at_a_time_whoever_leads() {
    let options = berth_testbed::Options { nodes: vec![NodeSpec::dgx1(1).with_dra()], ..Default::default() };
    let Some(cluster) = cluster("completions on Kubernetes", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let mut operator = Operator::start(&client);
        let team = Team::new(&client, "lab", 8).await;
        what_cannot_be_is_refused(&team).await;
        team.create::<Workload>(sweep(json!({}))).await;
        let mut failed = BTreeSet::new();
        loop {
            until("somebody works, or all is done", async || {
                let phase = status(&team).await.phase;
                phase.is_some_and(|phase| phase.is_final()) || running(&team).await.len() == 2 || {
                    // The last one is alone.
                    status(&team).await.completed.as_deref() == Some("0-4") && running(&team).await.len() == 1
                }
            })
            .await;
            let Some((index, pod)) = running(&team).await.pop_first() else { break };
            assert_eq!(variable(&pod, "BERTH_INDEX").as_deref(), Some(index.as_str()));
            assert_eq!(variable(&pod, "JOB_COMPLETION_INDEX").as_deref(), Some(index.as_str()));
            assert_eq!(variable(&pod, "BERTH_COMPLETIONS").as_deref(), Some("6"));
            assert_eq!(variable(&pod, "WORLD_SIZE").as_deref(), Some("1"));
            assert_eq!(pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()), Some("Never"));
            // Nobody leads while the second ends, and another goes on.
            let interrupted = index == "1";
            if interrupted {
                operator.stop().await;
                end(&team, &pod, 0).await;
                operator = Operator::start(&client);
                continue;
            }
            // The fourth fails at its first try.
            let fails = index == "3" && failed.insert(index);
            end(&team, &pod, u32::from(fails)).await;
        }
        let status = status(&team).await;
        assert_eq!(status.phase, Some(berth_kube::api::WorkloadPhase::Succeeded), "{status:?}");
        assert_eq!((status.completed.as_deref(), status.failures, status.runs), (Some("0-5"), 1, 1));
        assert_eq!(status.progress.and_then(|progress| progress.text).as_deref(), Some("6 of 6"));
        let mut ended: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in team.pods(ALL).await {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            ended.entry(pod.labels()[names::INDEX].clone()).or_default().push(phase);
        }
        ended.values_mut().for_each(|phases| phases.sort());
        let once = |index: &str| (index.to_owned(), vec!["Succeeded".to_owned()]);
        let mut expected: BTreeMap<String, Vec<String>> = ["0", "1", "2", "4", "5"].map(once).into();
        expected.insert("3".into(), vec!["Failed".into(), "Succeeded".into()]);
        assert_eq!(ended, expected);
        operator.stop().await;
    });
}

async fn what_cannot_be_is_refused(team: &Team) {
    let workloads: Api<Workload> = team.api();
    for (spec, words) in [
        (json!({ "completions": null }), "parallelism is of completions"),
        (json!({ "kind": "interactive" }), "has no completions"),
        (json!({ "kind": "distributed", "workers": 2 }), "as many workers as parallelism says"),
        (json!({ "completions": 10_001 }), "less than or equal to 10000"),
    ] {
        let object = serde_json::from_value(sweep(json!({ "spec": spec }))).expect("an object");
        let error = workloads.create(&PostParams::default(), &object).await.expect_err("it is refused");
        assert!(error.to_string().contains(words), "{error}");
    }
}
