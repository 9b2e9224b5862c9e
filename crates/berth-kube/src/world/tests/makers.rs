//! Pods that start together because whoever made them is of a kind that is known.

use super::desk::{Desk, node_seen, project_seen};
use crate::names;
use serde_json::{Value, json};

/// A Pod of a training job.
fn trains(role: &str) -> Value {
    json!({ "metadata": {
        "labels": { "training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": role },
        "ownerReferences": [
            { "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "bert", "controller": true },
        ],
    } })
}

fn path() -> String {
    "/apis/kubeflow.org/v1/namespaces/berth-team/pytorchjobs/bert".into()
}

/// A training job with a master and workers of eight GPUs each.
fn job(workers: u32, generation: i64) -> Value {
    let template = json!({ "spec": { "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": "8" } } }] } });
    json!({
        "metadata": { "uid": "bert", "generation": generation },
        "spec": { "pytorchReplicaSpecs": {
            "Master": { "replicas": 1, "template": template }, "Worker": { "replicas": workers, "template": template },
        } },
    })
}

/// Pods of a set of Jobs.
fn member_of_set(job: &str) -> Value {
    json!({ "metadata": { "labels": {
        "jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": job,
    } } })
}

#[test]
fn a_training_job_starts_when_all_of_it_is_there() {
    let mut desk = Desk::new(&["node1", "node2", "node3"]);
    desk.makers.insert(path(), job(2, 1));
    desk.pod("master", 8, trains("master"));
    assert_eq!(desk.said["master"], "OwnerUnread");
    desk.obey();
    assert_eq!(desk.said["master"], "GroupIncomplete");
    desk.pod("worker-0", 8, trains("worker"));
    desk.obey();
    assert!(desk.bound().is_empty(), "two of three do not start: {:?}", desk.log);
    desk.pod("worker-1", 8, trains("worker"));
    desk.obey();
    assert_eq!(desk.bound().len(), 3);
    assert_eq!(desk.log, ["read PyTorchJob bert", "start 3 of run 1"], "its owner is read once");
    desk.sound();
}

#[test]
fn a_maker_that_is_missing_keeps_its_pods_waiting_and_is_looked_for_again() {
    let mut desk = Desk::new(&["node1"]);
    desk.pod("master", 8, trains("master"));
    desk.obey();
    assert_eq!(desk.said["master"], "OwnerMissing");
    desk.pass(29);
    assert_eq!(desk.log.len(), 1, "not so soon: {:?}", desk.log);
    desk.makers.insert(path(), job(0, 1));
    desk.pass(2);
    assert_eq!(desk.bound().len(), 1, "{:?}", desk.log);
}

#[test]
fn a_maker_that_was_made_smaller_is_noticed_by_what_waits_for_more() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.makers.insert(path(), job(2, 1));
    for (name, role) in [("master", "master"), ("worker-0", "worker")] {
        desk.pod(name, 8, trains(role));
        desk.obey();
    }
    assert_eq!(desk.said["worker-0"], "GroupIncomplete");
    desk.makers.insert(path(), job(1, 2));
    desk.pass(31);
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.log);
    let reads = desk.log.iter().filter(|words| words.starts_with("read")).count();
    desk.pass(90);
    assert_eq!(
        desk.log.iter().filter(|words| words.starts_with("read")).count(),
        reads,
        "who runs is not looked at"
    );
}

#[test]
fn what_runs_is_its_projects_from_the_first_look_of_another_process() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.makers.insert(path(), job(1, 1));
    for (name, role) in [("master", "master"), ("worker-0", "worker")] {
        desk.pod(name, 8, trains(role));
        desk.obey();
    }
    assert_eq!(desk.bound().len(), 2);
    desk.log.clear();
    let project = project_seen("team", json!({ "quota": 64 }));
    desk.restart(vec![project, node_seen("node1", 8), node_seen("node2", 8)]);
    desk.obey();
    assert!(desk.log.is_empty(), "{:?}", desk.log);
    let state = desk.world.engine().state();
    let [workload] = state.workloads.values().collect::<Vec<_>>()[..] else { panic!("{state:?}") };
    assert_eq!((workload.spec.tasks.min(), workload.spec.name.as_str()), (2, "berth-team/bert"));
}

#[test]
fn jobs_of_a_set_that_come_one_after_the_other_start_so() {
    let mut desk = Desk::new(&["node1", "node2", "node3"]);
    let part = |name: &str, replicas: u32| json!({ "name": name, "replicas": replicas, "template": { "spec": { "template": {} } } });
    let spec = |order: &str| {
        json!({
            "metadata": { "uid": "set", "generation": 1 },
            "spec": {
                "replicatedJobs": [part("first", 1), part("second", 2)],
                "startupPolicy": { "startupPolicyOrder": order },
            },
        })
    };
    let path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/berth-team/jobsets/set";
    desk.makers.insert(path.into(), spec("InOrder"));
    desk.pod("first-0", 8, member_of_set("first"));
    desk.obey();
    assert_eq!(desk.bound().len(), 1, "the second would never come: {:?}", desk.log);
    desk.pod("second-0", 8, member_of_set("second"));
    desk.obey();
    assert_eq!(desk.said["second-0"], "GroupIncomplete");
    desk.pod("second-1", 8, member_of_set("second"));
    desk.obey();
    assert_eq!(desk.bound().len(), 3, "{:?}", desk.log);
    // Without an order they are one.
    let mut desk = Desk::new(&["node1", "node2", "node3"]);
    desk.makers.insert(path.into(), spec("AnyOrder"));
    desk.pod("first-0", 8, member_of_set("first"));
    desk.obey();
    assert!(desk.bound().is_empty(), "{:?}", desk.log);
    // Everything about it is forgotten with its last Pod.
    desk.gone("first-0");
    assert!(desk.world.groups.is_empty());
    assert_eq!(format!("{:?}", desk.world.makers), "Makers({})");
}

#[test]
fn leaders_and_workers_start_by_what_their_pods_say_when_their_set_cannot_be_read() {
    let mut desk = Desk::new(&["node1", "node2"]);
    let member = |index: &str| {
        json!({ "metadata": {
            "labels": {
                "leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": index,
            },
            "annotations": { "leaderworkerset.sigs.k8s.io/size": "2" },
        } })
    };
    desk.pod("serve-0", 8, member("0"));
    desk.obey();
    assert_eq!(desk.said["serve-0"], "GroupIncomplete");
    desk.pod("serve-0-1", 8, member("1"));
    desk.obey();
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.log);
}

#[test]
fn pods_of_a_job_start_together_only_if_they_ask_for_it() {
    let of_job = |gang: Option<&str>| {
        let mut pod = super::desk::owned("job");
        if let Some(gang) = gang {
            pod["metadata"]["labels"] = json!({ names::GANG: gang });
        }
        pod
    };
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.pod("alone", 4, of_job(None));
    desk.obey();
    assert_eq!(desk.bound().len(), 1);
    let spec = json!({ "metadata": { "uid": "job", "generation": 1 }, "spec": { "parallelism": 2, "completions": 2 } });
    desk.makers.insert("/apis/batch/v1/namespaces/berth-team/jobs/job".into(), spec);
    desk.pod("one", 4, of_job(Some("true")));
    desk.obey();
    assert_eq!(desk.said["one"], "GroupIncomplete");
    desk.pod("two", 4, of_job(Some("true")));
    desk.obey();
    assert_eq!(desk.bound().len(), 3, "{:?}", desk.log);
    // A training job whose Pods need not wait for each other.
    let mut master = trains("master");
    master["metadata"]["labels"][names::GANG] = "false".into();
    desk.pod("master", 1, master);
    desk.obey();
    assert!(desk.bound().contains_key("master"), "{:?}", desk.log);
    desk.pod("nobodys", 1, json!({ "metadata": { "labels": { names::GANG: "true" } } }));
    assert_eq!(desk.said["nobodys"], "UnsizedGroup");
}
