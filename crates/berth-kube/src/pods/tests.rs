use super::*;
use berth_types::{Cpu, DeviceShare, NodeId};
use serde_json::{Value, json};

fn workload(spec: Value) -> Workload {
    let mut all = json!({ "image": "trainer" });
    all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    serde_json::from_value(json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Workload",
        "metadata": { "name": "train", "namespace": "berth-team-a", "uid": "6b1f1f3e" },
        "spec": all,
    }))
    .expect("is a workload")
}

fn place(rank: u32, devices: &[(u8, u32)]) -> Place {
    let share = |millionths| Share::from_millionths(millionths).expect("a share");
    let devices = devices.iter().map(|(device, part)| DeviceShare { device: *device, share: share(*part) });
    Place { rank, node: NodeId(1), devices: devices.collect(), cpu: Cpu::ZERO, memory: Bytes::ZERO }
}

fn dgx(name: &str) -> SeatNode {
    let device = |index: usize| ClaimedGpu { name: format!("gpu-{index}"), memory: Bytes::mib(32_510) };
    let gpus = NodeGpus::Claimed { pool: name.into(), devices: (0..8).map(device).collect() };
    SeatNode { name: name.into(), gpus }
}

fn counted(name: &str) -> SeatNode {
    SeatNode { name: name.into(), gpus: NodeGpus::Counted { memory: Bytes::gib(80) } }
}

fn made(workload: &Workload, seats: &[(Place, SeatNode)], rank: u32) -> Result<Value, Refusal> {
    let seats: Vec<Seat<'_>> =
        seats.iter().map(|(place, node)| Seat { place, node, turn: 1, index: None }).collect();
    let run = Run { workload, project: "team-a", number: 2, seats: &seats };
    pod(&run, rank).map(|pod| serde_json::to_value(pod).expect("is JSON"))
}

fn variable<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let all = pod["spec"]["containers"][0]["env"].as_array()?;
    assert!(all.iter().filter(|one| one["name"] == name).count() <= 1, "{name} twice");
    all.iter().find(|one| one["name"] == name)?["value"].as_str()
}

#[test]
fn a_worker_becomes_a_pod_of_ours() {
    let spec = json!({ "kind": "interactive", "gpus": "0.5", "cpu": 2, "memory": "8Gi", "user": "ada", "ports": [8888] });
    let pod = made(&workload(spec), &[(place(0, &[(3, 500_000)]), dgx("node1"))], 0).expect("is made");
    assert_eq!(pod["metadata"]["name"], "train-r2-0");
    assert_eq!(pod["metadata"]["namespace"], "berth-team-a");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "6b1f1f3e");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(pod["metadata"]["labels"][names::WORKLOAD], "train");
    assert_eq!(pod["metadata"]["labels"][names::RUN], "2");
    assert_eq!(pod["metadata"]["annotations"][names::USER], "ada");
    assert_eq!(pod["spec"]["schedulerName"], "berth");
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(pod["spec"]["nodeName"], Value::Null, "it is bound later");
    assert_eq!(pod["spec"]["resourceClaims"][0]["resourceClaimName"], "train-r2-0-gpu");
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(
        *resources,
        json!({ "claims": [{ "name": "gpu" }], "requests": { "cpu": "2", "memory": "8Gi" } })
    );
    assert_eq!(variable(&pod, "BERTH_GPU_MEMORY_MIB"), Some("16255"));
    assert_eq!(variable(&pod, "RUNAI_NUM_OF_GPUS"), Some("0.5"));
    assert_eq!(variable(&pod, "BERTH_PORT_8888"), Some("8888"));
    assert_eq!(variable(&pod, "MASTER_ADDR"), None);
}

#[test]
fn workers_of_a_gang_know_their_ranks_and_find_each_other() {
    let gang = workload(json!({ "kind": "distributed", "gpus": 1, "workers": 3 }));
    let seats = [
        (place(0, &[(0, 1_000_000)]), dgx("node1")),
        (place(1, &[(0, 1_000_000)]), dgx("node2")),
        (place(2, &[(1, 1_000_000)]), dgx("node1")),
    ];
    let pod = made(&gang, &seats, 2).expect("is made");
    let known = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_UUID"];
    let values = known.map(|name| variable(&pod, name).unwrap_or("none"));
    assert_eq!(values, ["2", "3", "1", "train-0.train", "29500", "6b1f1f3e"]);
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("train-2"), &json!("train")));
    let made = services(&gang, "team-a");
    assert_eq!(made.len(), 1);
    let service = serde_json::to_value(&made[0]).expect("is JSON");
    assert_eq!(service["metadata"]["name"], "train");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
}

#[test]
fn whole_gpus_are_counted_where_a_node_counts_them() {
    let whole = workload(json!({ "gpus": 2 }));
    let seats = [(place(0, &[(0, 1_000_000), (1, 1_000_000)]), counted("old"))];
    let pod = made(&whole, &seats, 0).expect("is made");
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(
        *resources,
        json!({ "limits": { "nvidia.com/gpu": "2" }, "requests": { "nvidia.com/gpu": "2" } })
    );
    assert_eq!(pod["spec"]["resourceClaims"], Value::Null);
    let part = made(&workload(json!({ "gpus": "0.5" })), &[(place(0, &[(0, 500_000)]), counted("old"))], 0);
    assert_eq!(part.expect_err("cannot be").reason, "NoFractionsHere");
}

#[test]
fn work_without_gpus_sees_none() {
    let pod = made(&workload(json!({})), &[(place(0, &[]), counted("old"))], 0).expect("is made");
    assert_eq!(variable(&pod, "NVIDIA_VISIBLE_DEVICES"), Some("void"));
    assert_eq!(pod["spec"]["tolerations"], Value::Null);
}

#[test]
fn a_terminal_can_be_typed_to_and_is_found_where_a_template_names_the_container() {
    let seat = [(place(0, &[]), dgx("node1"))];
    for (spec, stdin, tty) in [
        (json!({}), json!(null), json!(null)),
        (json!({ "stdin": true }), json!(true), json!(null)),
        (json!({ "tty": true }), json!(true), json!(true)),
    ] {
        let workload = workload(spec);
        let pod = made(&workload, &seat, 0).expect("is made");
        let main = &pod["spec"]["containers"][0];
        assert_eq!((&main["stdin"], &main["tty"]), (&stdin, &tty));
        let known = serde_json::to_value(main_container(&workload)).expect("is JSON");
        assert_eq!((&known["name"], &known["stdin"], &known["tty"]), (&json!("main"), &stdin, &tty));
    }
    let template = json!({ "podTemplate": { "spec": { "containers": [{ "name": "first", "tty": true }, { "name": "second" }] } } });
    let known = main_container(&workload(template));
    assert_eq!((known.name.as_str(), known.tty), ("first", Some(true)));
}

#[test]
fn who_starts_again_alone_does_so_in_its_place() {
    for (spec, policy) in [
        (json!({}), "Never"),
        (json!({ "restart": "gang", "kind": "inference" }), "Never"),
        (json!({ "kind": "inference" }), "Always"),
        (json!({ "restart": "worker", "kind": "inference" }), "Always"),
        (json!({ "restart": "worker", "kind": "distributed", "workers": 1 }), "OnFailure"),
    ] {
        let pod = made(&workload(spec), &[(place(0, &[]), dgx("node1"))], 0).expect("is made");
        assert_eq!(pod["spec"]["restartPolicy"], policy);
    }
}

#[test]
fn volumes_and_shared_memory_are_mounted() {
    let spec = json!({
        "volumes": [
            { "claim": "data", "path": "/data", "readOnly": true },
            { "hostPath": "/scratch", "path": "/scratch", "subPath": "mine" },
        ],
        "largeShm": true, "memory": "4Gi", "runAsUser": 1000, "privileged": true, "hostNetwork": true,
    });
    let pod = made(&workload(spec), &[(place(0, &[]), dgx("node1"))], 0).expect("is made");
    let volumes = &pod["spec"]["volumes"];
    assert_eq!(volumes[0]["persistentVolumeClaim"], json!({ "claimName": "data", "readOnly": true }));
    assert_eq!(volumes[1]["hostPath"]["path"], "/scratch");
    assert_eq!(volumes[2]["emptyDir"], json!({ "medium": "Memory", "sizeLimit": "4Gi" }));
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().expect("a list");
    let paths: Vec<&str> = mounts.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
    assert_eq!(paths, ["/data", "/scratch", "/dev/shm"]);
    let context = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(*context, json!({ "privileged": true, "runAsUser": 1000 }));
    assert_eq!(pod["spec"]["dnsPolicy"], "ClusterFirstWithHostNet");
}

#[test]
fn a_template_fills_what_the_workload_leaves_open_and_its_own_variables_win() {
    let spec = json!({
        "env": [{ "name": "RANK", "value": "mine" }, { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
        "podTemplate": {
            "metadata": { "labels": { "team": "vision", names::PROJECT: "another", names::GROUP_NAME: "theirs" } },
            "spec": {
                "tolerations": [{ "key": "spot", "operator": "Exists" }],
                "containers": [
                    { "name": "trainer", "image": "ignored", "workingDir": "/work", "env": [{ "name": "TOKEN", "value": "x" }] },
                    { "name": "sidecar", "image": "proxy" },
                ],
            },
        },
    });
    let pod = made(&workload(spec), &[(place(0, &[]), dgx("node1"))], 0).expect("is made");
    let main = &pod["spec"]["containers"][0];
    assert_eq!((&main["image"], &main["workingDir"]), (&json!("trainer"), &json!("/work")));
    assert_eq!(variable(&pod, "RANK"), Some("mine"));
    assert_eq!(variable(&pod, "TOKEN"), None, "it comes from a secret");
    assert_eq!(pod["spec"]["containers"][1]["name"], "sidecar");
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "spot");
    assert_eq!(pod["metadata"]["labels"]["team"], "vision");
    assert_eq!(
        pod["metadata"]["labels"][names::PROJECT],
        "team-a",
        "who pays is not for the template to say"
    );
}

fn claimed(spec: Value, node: &SeatNode, place: &Place) -> Option<Value> {
    let workload = workload(spec);
    let seats = [Seat { place, node, turn: 1, index: None }];
    let run = Run { workload: &workload, project: "team-a", number: 1, seats: &seats };
    let claim = claim(&run, 0, owner(&workload)).expect("can be asked for");
    claim.map(|claim| serde_json::to_value(claim).expect("is JSON")["spec"]["devices"]["requests"][0].clone())
}

#[test]
fn a_claim_says_how_much_of_how_many_devices() {
    let (node, here) = (dgx("node1"), place(0, &[(0, 500_000)]));
    let asked = |spec: Value| claimed(spec, &node, &here).expect("a claim")["exactly"].clone();
    let half = asked(json!({ "gpus": "0.5", "gpuDevices": 2 }));
    assert_eq!(half["count"], 2);
    assert_eq!(half["capacity"]["requests"], json!({ "share": "500k" }));
    assert_eq!(half["deviceClassName"], "gpu.berth.dev");
    let memory = asked(json!({ "gpuMemory": "16Gi", "gpuModels": ["V100", "A\"100"] }));
    assert_eq!(memory["capacity"]["requests"], json!({ "memory": "16Gi" }));
    let expression = "device.attributes[\"gpu.berth.dev\"].model in [\"V100\", \"A\\\"100\"]";
    assert_eq!(memory["selectors"][0]["cel"]["expression"], expression);
    assert_eq!(asked(json!({ "gpus": 3 }))["count"], 3);
    assert_eq!(claimed(json!({}), &node, &here), None);
    assert_eq!(claimed(json!({ "gpus": 1 }), &counted("old"), &here), None);
}

#[test]
fn an_allocation_names_devices_shares_node_and_pod() {
    let place = place(0, &[(1, 500_000), (4, 500_000)]);
    let ids = [
        "5a1c0000-0000-4000-8000-000000000001".to_owned(),
        "5a1c0000-0000-4000-8000-000000000002".to_owned(),
    ];
    let status = claim_status(&place, &dgx("node1"), &ids, ("train-r1-0", "pod-uid")).expect("can be");
    let one = |device: &str, id: &str| {
        json!({
            "request": "gpu", "driver": "gpu.berth.dev", "pool": "node1", "device": device, "shareID": id,
            "consumedCapacity": { "share": "500k", "memory": "16255Mi" },
        })
    };
    assert_eq!(
        serde_json::to_value(status).expect("is JSON"),
        json!({
            "allocation": {
                "devices": { "results": [one("gpu-1", &ids[0]), one("gpu-4", &ids[1])] },
                "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
                    { "key": "metadata.name", "operator": "In", "values": ["node1"] },
                ] }] },
            },
            "reservedFor": [{ "resource": "pods", "name": "train-r1-0", "uid": "pod-uid" }],
        })
    );
    assert!(claim_status(&place, &dgx("node1"), &ids[..1], ("p", "u")).is_err());
    assert!(claim_status(&place, &counted("old"), &ids, ("p", "u")).is_err());
}

#[test]
fn ports_are_reached_as_asked() {
    let kinds = |spec: Value| {
        let workload = workload(spec);
        let made = services(&workload, "team-a").into_iter();
        let made: Vec<(String, Option<String>)> =
            made.map(|service| (service.name_any(), service.spec.and_then(|spec| spec.type_))).collect();
        (made, ingress(&workload, "team-a").is_some())
    };
    assert_eq!(kinds(json!({})), (vec![], false));
    assert_eq!(kinds(json!({ "ports": [80] })), (vec![("train".into(), Some("ClusterIP".into()))], false));
    let node_port = json!({ "ports": [80], "serviceType": "NodePort", "kind": "distributed" });
    let expected = vec![("train".into(), None), ("train-ports".into(), Some("NodePort".into()))];
    assert_eq!(kinds(node_port), (expected, false));
    let (made, has_ingress) = kinds(json!({ "ports": [80], "serviceType": "Ingress" }));
    assert_eq!((made[0].1.as_deref(), has_ingress), (Some("ClusterIP"), true));
}
