use super::*;
use serde_json::{Value, json};

fn made(labels: Value, annotations: Value, owner: Value) -> Option<MakerRef> {
    let meta = json!({
        "name": "pod", "namespace": "team", "labels": labels, "annotations": annotations, "ownerReferences": [owner],
    });
    MakerRef::of(&serde_json::from_value(meta).expect("an object"))
}

fn owner(api_version: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true })
}

fn template(gpus: u32) -> Value {
    let limits = if gpus > 0 { json!({ "nvidia.com/gpu": gpus }) } else { json!({}) };
    json!({ "spec": { "containers": [{ "name": "main", "resources": { "limits": limits } }] } })
}

/// The sizes of the parts that roles are in.
fn sizes(kind: MakerKind, spec: Value, roles: &[&str]) -> Vec<(String, u32)> {
    let object = json!({ "metadata": { "uid": "u", "generation": 3 }, "spec": spec });
    let seen = MakerSeen::of(kind, serde_json::from_value(object).expect("an object"));
    let size = |role: &&str| {
        let part = seen.part_of(role).expect("a role of it");
        (part.to_string(), seen.size_of(part).expect("a part of it"))
    };
    roles.iter().map(size).collect()
}

fn all(size: u32) -> (String, u32) {
    (WHOLE.into(), size)
}

#[test]
fn pods_name_their_maker_by_the_labels_and_owners_of_its_kind() {
    let job = || owner("batch/v1", "Job", "child");
    let set = |name: &str| owner("apps/v1", "StatefulSet", name);
    let none = || json!({});
    let cases = [
        (
            made(json!({ label::JOB_SET: "train", label::REPLICATED_JOB: "Workers" }), none(), job()),
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train",
            "workers",
        ),
        (
            made(
                json!({ label::LEADER_SET: "serve", label::LEADER_GROUP: "2", label::LEADER_WORKER: "0" }),
                json!({ label::LEADER_SIZE: "4" }),
                set("serve"),
            ),
            "/apis/leaderworkerset.x-k8s.io/v1/namespaces/team/leaderworkersets/serve",
            "leader",
        ),
        (
            made(
                json!({ label::TRAINING_ROLE: "master" }),
                none(),
                owner("kubeflow.org/v1", "PyTorchJob", "bert"),
            ),
            "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/bert",
            "master",
        ),
        (
            made(json!({ label::TRAINING_ROLE: "ps" }), none(), owner("kubeflow.org/v1", "TFJob", "mnist")),
            "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mnist",
            "ps",
        ),
        (
            made(
                json!({
                    label::TRAINING_JOB: "pi", label::TRAINING_OPERATOR: "mpi-operator",
                    label::TRAINING_ROLE_ALONE: "launcher",
                }),
                none(),
                owner("batch/v1", "Job", "pi-launcher"),
            ),
            "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/pi",
            "launcher",
        ),
        (
            made(
                json!({ label::TRAINING_ROLE_ALONE: "worker" }),
                none(),
                owner("kubeflow.org/v2beta1", "MPIJob", "pi"),
            ),
            "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/pi",
            "worker",
        ),
        (
            made(json!({ label::RAY_GROUP: "headgroup" }), none(), owner("ray.io/v1", "RayCluster", "ray")),
            "/apis/ray.io/v1/namespaces/team/rayclusters/ray",
            "headgroup",
        ),
        (made(none(), none(), job()), "/apis/batch/v1/namespaces/team/jobs/child", "worker"),
    ];
    for (made, path, role) in cases {
        let made = made.expect(path);
        assert_eq!((made.maker.path().as_str(), &*made.role), (path, role));
        assert_eq!(made.is_gang(), made.maker.kind != MakerKind::Job, "{path}");
    }
    for other in
        [set("notebook"), owner("apps/v1", "ReplicaSet", "serves"), owner("kubeflow.org/v7", "TFJob", "new")]
    {
        assert_eq!(made(json!({ "notebook-name": "lab" }), none(), other), None);
    }
}

#[test]
fn jobs_count_what_runs_at_once() {
    let sizes = |spec| sizes(MakerKind::Job, spec, &["worker"]);
    assert_eq!(sizes(json!({ "parallelism": 4, "completions": 8 })), [all(4)]);
    assert_eq!(sizes(json!({ "parallelism": 8, "completions": 3, "completionMode": "Indexed" })), [all(3)]);
    assert_eq!(sizes(json!({})), [all(1)]);
}

#[test]
fn a_set_of_jobs_starts_as_a_whole_unless_it_has_an_order() {
    let job = |name: &str, replicas: u32, parallelism: u32, gpus: u32| {
        json!({
            "name": name, "replicas": replicas,
            "template": { "spec": { "parallelism": parallelism, "completions": parallelism, "template": template(gpus) } },
        })
    };
    let roles = ["leader", "workers"];
    let jobs = json!([job("leader", 1, 1, 8), job("workers", 2, 4, 8)]);
    assert_eq!(
        sizes(MakerKind::JobSet, json!({ "replicatedJobs": jobs }), &roles),
        [all(9), all(9)],
        "nine Pods of eight GPUs each"
    );
    let apart = [("0-all".to_owned(), 1), ("1-all".to_owned(), 8)];
    let ordered = json!({ "replicatedJobs": jobs, "startupPolicy": { "startupPolicyOrder": "InOrder" } });
    assert_eq!(sizes(MakerKind::JobSet, ordered, &roles), apart, "the second waits for the first");
    let mut jobs = jobs;
    jobs[1]["dependsOn"] = json!([{ "name": "leader", "status": "Complete" }]);
    assert_eq!(sizes(MakerKind::JobSet, json!({ "replicatedJobs": jobs }), &roles), apart);
    let jobs = json!([job("leader", 1, 1, 0), job("workers", 2, 4, 8)]);
    assert_eq!(
        sizes(MakerKind::JobSet, json!({ "replicatedJobs": jobs }), &roles),
        [("no-gpus".to_owned(), 1), all(8)],
        "whoever asks for no GPU holds none"
    );
}

#[test]
fn leaders_start_with_their_workers_unless_those_come_later() {
    let spec = json!({ "replicas": 3, "leaderWorkerTemplate": { "size": 4, "workerTemplate": template(8) } });
    let roles = ["leader", "worker"];
    assert_eq!(sizes(MakerKind::LeaderWorkerSet, spec.clone(), &roles), [all(4), all(4)]);
    let mut later = spec;
    later["startupPolicy"] = "LeaderReady".into();
    assert_eq!(
        sizes(MakerKind::LeaderWorkerSet, later, &roles),
        [("0-all".to_owned(), 1), ("1-all".to_owned(), 3)]
    );
}

#[test]
fn training_jobs_start_masters_with_workers() {
    let replicas = |count: u32, gpus: u32| json!({ "replicas": count, "template": template(gpus) });
    let specs = json!({ "Master": replicas(1, 8), "Worker": replicas(3, 8) });
    let roles = ["master", "worker"];
    assert_eq!(
        sizes(MakerKind::PyTorchJob, json!({ "pytorchReplicaSpecs": specs }), &roles),
        [all(4), all(4)]
    );
    let elastic = json!({
        "pytorchReplicaSpecs": { "Worker": replicas(8, 1) }, "elasticPolicy": { "minReplicas": 2, "maxReplicas": 8 },
    });
    assert_eq!(sizes(MakerKind::PyTorchJob, elastic, &["worker"]), [all(2)]);
    let some =
        json!({ "pytorchReplicaSpecs": specs, "runPolicy": { "schedulingPolicy": { "minAvailable": 2 } } });
    assert_eq!(sizes(MakerKind::PyTorchJob, some, &roles), [all(2), all(2)]);
    let servers = json!({ "tfReplicaSpecs": { "PS": replicas(2, 0), "Worker": replicas(4, 1) } });
    assert_eq!(
        sizes(MakerKind::TfJob, servers, &["ps", "worker"]),
        [("no-gpus".to_owned(), 2), all(4)],
        "servers without GPUs start by themselves"
    );
    let launched = json!({ "mpiReplicaSpecs": { "Launcher": replicas(1, 1), "Worker": replicas(2, 1) } });
    let roles = ["launcher", "worker"];
    assert_eq!(sizes(MakerKind::MpiJobAlone, launched.clone(), &roles), [all(3), all(3)]);
    let mut later = launched;
    later["launcherCreationPolicy"] = "WaitForWorkersReady".into();
    assert_eq!(
        sizes(MakerKind::MpiJobAlone, later, &roles),
        [("1-all".to_owned(), 1), ("0-all".to_owned(), 2)]
    );
}

#[test]
fn ray_clusters_start_with_as_many_as_they_must_have() {
    let group = |name: &str, more: Value, gpus: u32| {
        let mut group = json!({ "groupName": name, "template": template(gpus) });
        group.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        group
    };
    let head = json!({ "template": template(0) });
    let workers = json!([
        group("small", json!({ "replicas": 4, "minReplicas": 1, "maxReplicas": 8 }), 1),
        group("large", json!({ "replicas": 2, "minReplicas": 2, "numOfHosts": 2 }), 8),
    ]);
    let roles = ["headgroup", "small", "large"];
    let parts = |small: u32| vec![("no-gpus".to_owned(), 1), ("1".to_owned(), small), ("8".to_owned(), 4)];
    let spec = json!({ "headGroupSpec": head, "workerGroupSpecs": workers });
    assert_eq!(sizes(MakerKind::RayCluster, spec.clone(), &roles), parts(4));
    let mut growing = spec;
    growing["enableInTreeAutoscaling"] = true.into();
    assert_eq!(sizes(MakerKind::RayCluster, growing, &roles), parts(1));
}

#[test]
fn what_cannot_be_read_is_said_with_what_to_do() {
    let maker = MakerKey { kind: MakerKind::PyTorchJob, key: Key::new("team", "bert") };
    let said = |why| unread(&maker, why).message;
    assert!(
        said(Unread::Forbidden).contains("may not read pytorchjobs.kubeflow.org: apply Berth's roles anew")
    );
    assert!(said(Unread::NotServed).contains("install its definition, or name a group"));
    assert!(said(Unread::Missing).starts_with("there is no PyTorchJob bert"));
}
