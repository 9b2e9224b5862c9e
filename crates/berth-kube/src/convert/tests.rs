use super::*;
use serde_json::{Value, json};

fn workload(spec: Value) -> api::Workload {
    let mut all = json!({ "image": "trainer" });
    all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    api::Workload::new("train", serde_json::from_value(all).expect("is a specification"))
}

fn lowered(spec: Value) -> Result<WorkloadSpec, Refusal> {
    workload_spec(&workload(spec), ProjectId(1), "ada")
}

fn refused(spec: Value) -> &'static str {
    lowered(spec.clone()).expect_err(&spec.to_string()).reason
}

#[test]
fn what_is_left_out_has_the_defaults_of_its_kind() {
    let train = lowered(json!({ "gpus": 2 })).expect("is accepted");
    assert_eq!((train.kind, train.priority, train.preemptible), (Kind::Train, 50, true));
    assert_eq!((train.retry_limit, train.grace, train.tasks), (6, Span::secs(30), Tasks::ONE));
    assert_eq!(train.request.gpu, GpuRequest::Whole(NonZeroU8::new(2).expect("two")));
    assert_eq!(*train.pool, *"default");
    let notebook = lowered(json!({ "kind": "interactive" })).expect("is accepted");
    assert_eq!((notebook.priority, notebook.preemptible, notebook.retry_limit), (100, false, 0));
    let spot = lowered(json!({ "kind": "interactive", "preemptible": true })).expect("is accepted");
    assert_eq!(spot.priority, 75);
    assert_eq!(lowered(json!({ "workers": 4 })).expect("is accepted").kind, Kind::Distributed);
}

#[test]
fn what_is_written_is_what_the_engine_places() {
    let spec = lowered(json!({
        "kind": "distributed", "gpus": "500m", "gpuDevices": 2, "gpuModels": ["V100"], "cpu": "1500m", "memory": "1.5Gi",
        "workers": 4, "minWorkers": 2, "priority": "high", "nodePool": "big", "nodeSelector": { "zone": "a" },
        "topology": { "required": "rack", "preferred": "kubernetes.io/hostname" }, "spread": true,
        "maxRunTime": "1h30m", "gracePeriod": "2m", "backoffLimit": 1,
    }))
    .expect("is accepted");
    let share = Share::from_millionths(500_000).expect("half");
    assert_eq!(spec.request.gpu, GpuRequest::Fraction { share, devices: NonZeroU8::new(2).expect("two") });
    assert_eq!((spec.request.cpu, spec.request.memory), (Cpu(1500), Bytes::mib(1536)));
    assert_eq!((spec.tasks.min(), spec.tasks.max(), spec.priority), (2, 4, 100));
    assert_eq!(spec.topology.required, Some(TopologyLevel::Label("rack".into())));
    assert_eq!(spec.topology.preferred, Some(TopologyLevel::Node));
    assert_eq!((spec.max_run, spec.grace), (Some(Span::secs(5400)), Span::secs(120)));
    assert_eq!((spec.spread, spec.retry_limit, &*spec.pool), (Spread::Spread, 1, "big"));
}

#[test]
fn what_cannot_be_is_refused_also_when_the_rules_were_not_asked() {
    assert_eq!(refused(json!({ "gpus": "1.5" })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpus": 65 })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpus": 1, "gpuMemory": "1Gi" })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpus": 0, "gpuMemory": "1Gi" })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpuMemory": "0" })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpuDevices": 2 })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpuDevices": 2, "gpus": 1 })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpuModels": ["V100"] })), "InvalidGpus");
    assert_eq!(refused(json!({ "gpus": "many" })), "InvalidAmount");
    assert_eq!(refused(json!({ "cpu": "-1" })), "InvalidAmount");
    assert_eq!(refused(json!({ "maxRunTime": "0s" })), "InvalidAmount");
    assert_eq!(refused(json!({ "gracePeriod": "soon" })), "InvalidAmount");
    assert_eq!(refused(json!({ "workers": 0 })), "InvalidWorkers");
    assert_eq!(refused(json!({ "workers": 2, "minWorkers": 3 })), "InvalidWorkers");
    assert_eq!(refused(json!({ "priority": "urgent" })), "InvalidPriority");
}

#[test]
fn a_template_is_counted_and_may_not_decide_what_berth_decides() {
    let with = |spec: Value| lowered(json!({ "cpu": 2, "podTemplate": { "spec": spec } }));
    let sidecar = with(json!({ "containers": [
        { "name": "main", "resources": { "requests": { "cpu": "9" } } },
        { "name": "proxy", "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } },
    ], "initContainers": [{ "name": "fetch", "resources": { "limits": { "memory": "3Gi" } } }] }));
    let request = sidecar.expect("is accepted").request;
    assert_eq!((request.cpu, request.memory), (Cpu(2500), Bytes::gib(3)));
    for spec in [
        json!({ "nodeName": "node1" }),
        json!({ "schedulerName": "default-scheduler" }),
        json!({ "affinity": {} }),
        json!({ "nodeSelector": { "a": "b" } }),
        json!({ "resourceClaims": [{ "name": "gpu" }] }),
        json!({ "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] }),
        json!({ "containers": 5 }),
    ] {
        assert_eq!(with(spec.clone()).expect_err(&spec.to_string()).reason, "InvalidTemplate");
    }
    assert_eq!(refused(json!({ "podTemplate": { "spec": 5 } })), "InvalidTemplate");
}

#[test]
fn a_node_is_used_only_as_its_project_allows() {
    let none = api::ProjectSpec::default();
    let network = api::ProjectSpec { allow_host_network: true, ..none.clone() };
    let all = api::ProjectSpec { allow_privileged: true, ..network.clone() };
    let verdict = |spec: &Value, project: &api::ProjectSpec| {
        guard::permitted(&workload(spec.clone()), project).map_err(|refusal| refusal.reason)
    };
    let container = |context: Value| json!({ "podTemplate": { "spec": { "containers": [{ "name": "main", "securityContext": context }] } } });
    for spec in [
        json!({ "privileged": true }),
        json!({ "volumes": [{ "hostPath": "/", "path": "/host" }] }),
        json!({ "podTemplate": { "spec": { "hostPID": true } } }),
        json!({ "podTemplate": { "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] } } }),
        container(json!({ "privileged": true })),
        container(json!({ "capabilities": { "add": ["CHOWN", "SYS_ADMIN"] } })),
        container(json!({ "seccompProfile": { "type": "Unconfined" } })),
        json!({ "podTemplate": { "spec": { "securityContext": { "sysctls": [{ "name": "kernel.shmmax", "value": "1" }] } } } }),
    ] {
        assert_eq!(verdict(&spec, &network), Err("PrivilegedNotAllowed"), "{spec}");
        assert_eq!(verdict(&spec, &all), Ok(()), "{spec}");
    }
    for spec in
        [json!({ "hostNetwork": true }), json!({ "podTemplate": { "spec": { "hostNetwork": true } } })]
    {
        assert_eq!(verdict(&spec, &none), Err("HostNetworkNotAllowed"), "{spec}");
        assert_eq!(verdict(&spec, &network), Ok(()), "{spec}");
    }
    assert_eq!(verdict(&json!({ "gpus": 1 }), &none), Ok(()));
    assert_eq!(verdict(&container(json!({ "capabilities": { "add": ["CHOWN"] } })), &none), Ok(()));
}

#[test]
fn projects_and_departments_keep_their_entitlements_by_pool() {
    let spec: api::ProjectSpec = serde_json::from_value(json!({
        "department": "vision", "quota": 4, "limit": "6.5", "memoryQuota": "1Ti", "rank": 2,
        "pools": { "big": { "quota": "500m", "modelQuotas": { "H100": 1 } } },
        "trainNodes": { "type": ["a", "b"] }, "idleLimit": "1h", "minRunTime": "10m",
    }))
    .expect("is a project");
    let written = api::Project::new("team-a", spec);
    let find = |name: &str| (name == "vision").then_some(DepartmentId(7));
    let project = project(&written, ProjectId(3), find).expect("is accepted");
    assert_eq!((project.department, project.name.as_str()), (Some(DepartmentId(7)), "team-a"));
    let default = &project.entitlements["default"];
    assert_eq!(
        (default.quota, default.limit, default.rank),
        (Some(Gpus::whole(4)), Some(Gpus(6_500_000)), 2)
    );
    assert_eq!(default.memory_quota, Some(Bytes::gib(1024)));
    assert_eq!(project.entitlements["big"].model_quotas["H100"], Gpus::ONE);
    assert_eq!((project.idle_limit, project.min_run), (Some(Span::secs(3600)), Span::secs(600)));
    assert!(project.train_nodes.accepts(&BTreeMap::from([("type".into(), "b".into())])));
    let unknown = super::project(&written, ProjectId(3), |_| None).expect_err("is unknown");
    assert_eq!(unknown.reason, "UnknownDepartment");
    let top = api::Department::new("all", api::DepartmentSpec::default());
    assert_eq!(department(&top, DepartmentId(1), find).expect("is accepted").entitlements, BTreeMap::new());
}

#[test]
fn a_node_is_in_the_first_pool_whose_labels_it_has() {
    let pool = |name: &str, labels: Value| {
        let spec = json!({ "nodeSelector": { "matchLabels": labels } });
        api::NodePool::new(name, serde_json::from_value(spec).expect("is a pool"))
    };
    let pools = [
        pool("z", json!({ "a": "1" })),
        pool("b", json!({ "a": "1", "c": "2" })),
        pool("default", json!({})),
    ];
    let of = |labels: &'static [(&str, &str)]| {
        pool_of(&pools, |key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
            .to_string()
    };
    assert_eq!(of(&[("a", "1"), ("c", "2")]), "b");
    assert_eq!(of(&[("a", "1")]), "z");
    assert_eq!(of(&[("a", "2")]), "default");
}

#[test]
fn times_are_kept_to_the_millisecond() {
    let at = Time(1_794_902_400_123);
    assert_eq!(time(&micro_time(at)), at);
}
