//! Pods with volumes: they go where those can be reached, and wait for those that are not there.

use super::{
    desk::{Desk, HOME, labelled, project_seen},
    start_of,
};
use crate::{
    names,
    seen::{
        Key,
        volume::{SELECTED_NODE, StorageClassSeen, VolumeClaimSeen, VolumeSeen},
    },
    world::Seen,
};
use serde_json::{Value, json};

/// A Pod that uses claims.
fn uses(claims: &[&str]) -> Value {
    let volume = |name: &&str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    json!({ "spec": { "volumes": claims.iter().map(volume).collect::<Vec<_>>() } })
}

fn claim(name: &str, spec: Value, annotations: Value) -> Seen {
    let bound = spec["volumeName"].is_string();
    let claim = json!({
        "metadata": { "name": name, "namespace": HOME, "uid": name, "annotations": annotations },
        "spec": spec, "status": { "phase": if bound { "Bound" } else { "Pending" } },
    });
    Seen::VolumeClaim(Box::new(VolumeClaimSeen::of(serde_json::from_value(claim).expect("a claim"))))
}

fn bound(name: &str) -> Seen {
    claim(name, json!({ "volumeName": format!("pv-{name}") }), json!({}))
}

/// The volume of a claim, which the nodes of some zones reach.
fn volume(of: &str, zones: &[&str]) -> Seen {
    let affinity = json!({ "required": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "zone", "operator": "In", "values": zones }] },
    ] } });
    let volume = json!({
        "metadata": { "name": format!("pv-{of}") },
        "spec": {
            "claimRef": { "namespace": HOME, "name": of },
            "nodeAffinity": if zones.is_empty() { Value::Null } else { affinity },
        },
    });
    Seen::Volume(Box::new(VolumeSeen::of(serde_json::from_value(volume).expect("a volume"))))
}

fn class(mode: &str, provisioner: &str, zones: &[&str]) -> Seen {
    let topology = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": zones }] }]);
    let class = json!({
        "metadata": { "name": "disk" }, "provisioner": provisioner, "volumeBindingMode": mode,
        "allowedTopologies": if zones.is_empty() { json!([]) } else { topology },
    });
    Seen::StorageClass(StorageClassSeen::of(serde_json::from_value(class).expect("a class")))
}

/// A node of a zone.
fn node(name: &str, zone: &str) -> Seen {
    labelled(name, 8, json!({ "zone": zone }))
}

/// Two nodes of different zones.
fn desk() -> Desk {
    let mut desk = Desk::new(&[]);
    desk.see(vec![node("near", "a"), node("far", "b")]);
    desk
}

#[test]
fn a_pod_goes_where_its_volumes_can_be_reached() {
    let mut desk = desk();
    desk.see(vec![volume("data", &["b"]), bound("data"), volume("shared", &[]), bound("shared")]);
    for name in ["one", "two"] {
        desk.pod(name, 2, uses(&["data", "shared"]));
    }
    desk.workload("train", json!({ "gpus": 1, "volumes": [{ "claim": "data", "path": "/data" }] }));
    desk.obey();
    assert_eq!(desk.bound().into_values().collect::<Vec<_>>(), ["far", "far", "far"], "{:?}", desk.log);
    // Volumes in two zones can be reached from neither.
    desk.see(vec![volume("other", &["a"]), bound("other")]);
    desk.pod("torn", 1, uses(&["data", "other"]));
    assert_eq!(desk.said["torn"], "NeverFits");
}

#[test]
fn older_volumes_say_by_labels_where_they_are() {
    let labels = json!({ "topology.kubernetes.io/zone": "a__b" });
    let volume = json!({ "metadata": { "name": "pv", "labels": labels } });
    let seen = VolumeSeen::of(serde_json::from_value(volume).expect("a volume"));
    let [terms] = &seen.nodes[..] else { panic!("{seen:?}") };
    assert_eq!(terms.node_selector_terms[0].match_expressions[0].values, ["a", "b"]);
}

#[test]
fn a_volume_that_is_not_there_is_waited_for_and_named() {
    let mut desk = desk();
    desk.pod("waits", 1, uses(&["data"]));
    assert_eq!(desk.said["waits"], "VolumeClaimMissing");
    let disk = json!({ "storageClassName": "disk" });
    desk.see(vec![claim("data", disk.clone(), json!({}))]);
    assert_eq!(desk.said["waits"], "VolumeUnbound", "its class is not known");
    desk.see(vec![class("Immediate", "csi.example", &[])]);
    assert_eq!(desk.said["waits"], "VolumeUnbound", "somebody makes it without a Pod");
    desk.see(vec![class("WaitForFirstConsumer", "kubernetes.io/no-provisioner", &[])]);
    assert_eq!(desk.said["waits"], "NoVolume", "nobody has made one by hand");
    desk.see(vec![bound("data")]);
    assert_eq!(desk.said["waits"], "VolumeMissing");
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
    desk.see(vec![volume("data", &["a"])]);
    desk.obey();
    assert_eq!(desk.bound()["waits"], "near", "{:?}", desk.log);
    // What runs stays, whatever becomes of its claim.
    desk.see(vec![Seen::VolumeClaimGone(Key::new(HOME, "data")), Seen::VolumeGone("pv-data".into())]);
    desk.obey();
    assert_eq!((desk.bound().len(), desk.used()), (1, 1));
    desk.pod("late", 1, uses(&["data"]));
    assert_eq!(desk.said["late"], "VolumeClaimMissing");
    desk.workload("train", json!({ "gpus": 1, "volumes": [{ "claim": "data", "path": "/data" }] }));
    assert_eq!(desk.said["train"], "Pending VolumeClaimMissing");
}

/// A volume that somebody made by hand, in a zone.
fn free(name: &str, size: &str, zone: &str, more: Value) -> Seen {
    let mut spec = json!({
        "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
        "nodeAffinity": { "required": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] },
        ] } },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let volume = json!({
        "metadata": { "name": name, "resourceVersion": "7", "labels": { "speed": "fast" } },
        "spec": spec, "status": { "phase": "Available" },
    });
    Seen::Volume(Box::new(VolumeSeen::of(serde_json::from_value(volume).expect("a volume"))))
}

#[test]
fn of_volumes_made_by_hand_the_smallest_that_suits_is_given_where_it_can_be_reached() {
    let by_hand = || class("WaitForFirstConsumer", "kubernetes.io/no-provisioner", &[]);
    let wants = |more: Value| {
        let mut spec = json!({
            "storageClassName": "disk", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "10Gi" } },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        claim("data", spec, json!({}))
    };
    // None of these is what the claim asks for.
    let unsuited = || {
        vec![
            free("small", "9Gi", "a", json!({})),
            free("other", "10Gi", "a", json!({ "storageClassName": "tape" })),
            free("raw", "10Gi", "a", json!({ "volumeMode": "Block" })),
            free("shared", "10Gi", "a", json!({ "accessModes": ["ReadOnlyMany"] })),
            free("taken", "10Gi", "a", json!({ "claimRef": { "namespace": HOME, "name": "else" } })),
        ]
    };
    let mut desk = desk();
    desk.see(vec![by_hand(), wants(json!({}))]);
    desk.see(unsuited());
    desk.pod("uses", 1, uses(&["data"]));
    assert_eq!(desk.said["uses"], "NoVolume");
    desk.see(vec![free("large", "30Gi", "b", json!({})), free("fits", "20Gi", "b", json!({}))]);
    let order = start_of(&mut desk);
    assert_eq!(order.tasks[0].node.name, "far", "where one is");
    let [volume] = &order.tasks[0].volumes[..] else { panic!("{order:?}") };
    let names: Vec<&str> = volume.choice.iter().flatten().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["fits", "large"]);

    let mut desk =
        desk_with_selector(by_hand(), wants(json!({ "selector": { "matchLabels": { "speed": "slow" } } })));
    assert_eq!(desk.said["uses"], "NoVolume");
    desk.see(vec![wants(json!({ "selector": { "matchLabels": { "speed": "fast" } } }))]);
    assert_eq!(start_of(&mut desk).tasks[0].node.name, "near");
}

fn desk_with_selector(class: Seen, claim: Seen) -> Desk {
    let mut desk = desk();
    desk.see(vec![class, claim, free("fits", "20Gi", "a", json!({}))]);
    desk.pod("uses", 1, uses(&["data"]));
    desk
}

#[test]
fn a_volume_is_made_for_the_node_that_was_chosen() {
    let mut desk = desk();
    let disk = json!({ "storageClassName": "disk" });
    desk.see(vec![
        class("WaitForFirstConsumer", "csi.example", &["b"]),
        claim("data", disk.clone(), json!({})),
    ]);
    desk.pod("first", 1, uses(&["data"]));
    let order = start_of(&mut desk);
    assert_eq!(order.tasks[0].node.name, "far", "its class allows no other");
    assert_eq!(&*order.tasks[0].volumes[0].claim.name, "data");
    // Another process finds that it is being made, and for whom.
    let seen = vec![
        project_seen("team", json!({ "quota": 64 })),
        node("near", "a"),
        node("far", "b"),
        class("WaitForFirstConsumer", "csi.example", &[]),
        claim("data", disk.clone(), json!({ SELECTED_NODE: "far" })),
    ];
    desk.restart(seen);
    assert_eq!(start_of(&mut desk).tasks[0].node.name, "far");
    // A node that is gone gets none.
    let seen = vec![
        project_seen("team", json!({ "quota": 64 })),
        node("near", "a"),
        class("WaitForFirstConsumer", "csi.example", &[]),
        claim("data", disk, json!({ SELECTED_NODE: "far" })),
    ];
    desk.restart(seen);
    assert_eq!(start_of(&mut desk).tasks[0].node.name, "near");
}

#[test]
fn pods_that_start_together_must_reach_their_volumes_from_the_same_nodes() {
    let mut desk = desk();
    desk.see(vec![volume("left", &["a"]), bound("left"), volume("right", &["b"]), bound("right")]);
    for name in ["left", "right"] {
        let mut pod = uses(&[name]);
        pod["metadata"] = super::desk::member("gang", 2)["metadata"].clone();
        desk.pod(name, 1, pod);
    }
    assert_eq!(desk.said["right"], "MixedGroup");
}

#[test]
fn a_volume_for_one_pod_at_a_time_is_passed_on() {
    let mut desk = desk();
    let alone = json!({ "volumeName": "pv-data", "accessModes": ["ReadWriteOncePod"] });
    desk.see(vec![volume("data", &[]), claim("data", alone, json!({}))]);
    desk.pod("first", 1, uses(&["data"]));
    desk.obey();
    desk.pod("second", 1, uses(&["data"]));
    assert_eq!(desk.said["second"], "VolumeInUse");
    desk.gone("first");
    desk.obey();
    assert!(desk.bound().contains_key("second"), "{:?}", desk.log);
}

#[test]
fn a_volume_that_kubernetes_makes_for_a_pod_is_waited_for() {
    let mut desk = desk();
    let scratch =
        json!({ "spec": { "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": {} } }] } });
    desk.pod("train", 1, scratch);
    assert_eq!(desk.said["train"], "VolumeClaimMissing");
    desk.see(vec![volume("train-scratch", &["a"]), bound("train-scratch")]);
    desk.obey();
    assert_eq!(desk.bound()["train"], "near", "{:?}", desk.log);
}

#[test]
fn pods_go_to_the_pool_they_name() {
    let mut desk = desk();
    let named = |pool: &str| json!({ "metadata": { "labels": { names::NODE_POOL: pool } } });
    desk.pod("first", 1, named("b"));
    assert_eq!(desk.said["first"], "UnknownPool");
    desk.workload("train", json!({ "gpus": 1, "nodePool": "b" }));
    assert_eq!(desk.said["train"], "Pending UnknownPool");
    let pool = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "b" },
        "spec": { "nodeSelector": { "matchLabels": { "zone": "b" } } },
    });
    let pool = std::sync::Arc::new(serde_json::from_value(pool).expect("a pool"));
    desk.see(vec![Seen::Pool(std::sync::Arc::clone(&pool))]);
    desk.obey();
    assert_eq!(desk.bound().into_iter().collect::<Vec<_>>(), [("first", "far"), ("train-r1-0", "far")]);
    desk.pod("elsewhere", 1, named("default"));
    desk.obey();
    assert_eq!(desk.bound()["elsewhere"], "near", "{:?}", desk.log);
    // Those that start together name one.
    let mut mixed = super::desk::member("gang", 2);
    desk.pod("one", 1, mixed.clone());
    mixed["metadata"]["labels"][names::NODE_POOL] = "b".into();
    desk.pod("two", 1, mixed.clone());
    desk.obey();
    assert_eq!(desk.bound().len(), 5, "who names none goes along: {:?}", desk.log);
    // What is queued for a pool that goes waits for it.
    desk.pod("large", 8, named("b"));
    desk.see(vec![Seen::PoolGone("b".into())]);
    assert_eq!(desk.said["large"], "UnknownPool");
    desk.sound();
}
