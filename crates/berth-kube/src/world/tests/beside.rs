//! Pods that want to be placed near each other, apart from each other, or at a port of their node.

use super::desk::{Desk, HOME, labelled, member, project_seen};
use crate::{
    names,
    seen::{Key, native::NativeGroupSeen},
    world::Seen,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn merged(one: Value, other: Value) -> Value {
    let (mut one, other) = (one, other);
    let fields = other.as_object().expect("an object").clone();
    for (key, value) in fields {
        one[key] = value;
    }
    one
}

/// Two racks of two nodes.
fn racks() -> Desk {
    let mut desk = Desk::new(&[]);
    let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")];
    desk.see(nodes.map(|(name, rack)| labelled(name, 8, json!({ "rack": rack }))).into());
    desk
}

fn terms(kind: &str, key: &str) -> Value {
    json!({ "spec": { "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": key, "labelSelector": { "matchLabels": { names::GROUP_NAME: "ring" } },
    }] } } } })
}

fn racks_of(desk: &Desk) -> BTreeSet<String> {
    desk.bound().values().map(|node| node[..1].to_owned()).collect()
}

fn native(name: &str, spec: Value) -> Seen {
    let group = json!({ "metadata": { "name": name, "namespace": HOME }, "spec": spec });
    Seen::NativeGroup(Box::new(NativeGroupSeen::of(serde_json::from_value(group).expect("a group"))))
}

fn of_native(name: &str) -> Value {
    json!({ "spec": { "schedulingGroup": { "podGroupName": name } } })
}

#[test]
fn a_group_that_must_be_near_itself_goes_to_one_rack() {
    let mut desk = racks();
    desk.pod("note", 1, json!({}));
    desk.obey();
    let near = merged(member("ring", 4), terms("podAffinity", "rack"));
    for name in ["r1", "r2", "r3", "r4"] {
        desk.pod(name, 4, near.clone());
    }
    desk.obey();
    assert_eq!(desk.bound()["note"], "a1");
    let ring: BTreeSet<_> = desk.bound().into_iter().filter(|(name, _)| *name != "note").collect();
    assert!(ring.len() == 4 && ring.iter().all(|(_, node)| node.starts_with('b')), "{ring:?}");
    desk.sound();
}

#[test]
fn a_group_whose_pods_say_different_things_waits() {
    let mut desk = racks();
    desk.pod("one", 1, merged(member("ring", 2), terms("podAffinity", "rack")));
    desk.pod("two", 1, member("ring", 2));
    assert_eq!(desk.said["one"], "MixedGroup");
    assert!(desk.ordered.is_empty());
}

#[test]
fn a_group_that_must_be_apart_has_a_node_for_each_and_waits_without() {
    let mut desk = Desk::new(&["node1", "node2"]);
    let apart = |size: u32| merged(member("ring", size), terms("podAntiAffinity", "kubernetes.io/hostname"));
    for name in ["one", "two", "three"] {
        desk.pod(name, 1, apart(3));
    }
    desk.obey();
    assert!(desk.bound().is_empty(), "{:?}", desk.bound());
    assert_eq!(desk.said["one"], "NeverFits");
    desk.node("node3", 8);
    desk.obey();
    let nodes: BTreeSet<_> = desk.bound().into_values().collect();
    assert_eq!(nodes.len(), 3);
    desk.sound();
}

#[test]
fn a_native_group_is_kept_in_the_domain_it_names() {
    let mut desk = racks();
    desk.pod("note", 1, json!({}));
    desk.obey();
    let gang = json!({ "gang": { "minCount": 4 } });
    let topology = json!({ "topology": [{ "key": "rack" }] });
    desk.see(vec![native("ring", json!({ "schedulingPolicy": gang, "schedulingConstraints": topology }))]);
    for name in ["r1", "r2", "r3", "r4"] {
        desk.pod(name, 4, of_native("ring"));
    }
    desk.gone("note");
    desk.obey();
    assert_eq!((desk.bound().len(), racks_of(&desk).len()), (4, 1), "{:?}", desk.bound());
}

#[test]
fn a_native_group_without_a_gang_lets_each_pod_start_by_itself() {
    let basic = || native("loose", json!({ "schedulingPolicy": { "basic": {} } }));
    let mut desk = Desk::new(&["node1"]);
    desk.project("team", json!({ "quota": 2 }));
    // The first comes before its group is known.
    desk.pod("one", 1, of_native("loose"));
    assert_eq!(desk.said["one"], "NoGroup");
    desk.see(vec![basic()]);
    desk.pod("two", 1, of_native("loose"));
    desk.obey();
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.said);
    let state = desk.world.engine().state();
    let extras = state.workloads.values().flat_map(|one| one.extra_places().cloned().collect::<Vec<_>>());
    assert_eq!(extras.count(), 0, "what is within quota is nobody's extra");
    let key = Key::new(HOME, "loose");
    desk.see(vec![Seen::NativeGroupGone(key)]);
    desk.sound();

    let mut desk = racks();
    let constraints = json!({ "topology": [{ "key": "rack" }] });
    desk.see(vec![native(
        "loose",
        json!({ "schedulingPolicy": { "basic": {} }, "schedulingConstraints": constraints }),
    )]);
    desk.pod("one", 1, of_native("loose"));
    assert_eq!(desk.said["one"], "UnsupportedConstraint");
}

fn at_port(port: u16) -> Value {
    json!({ "spec": { "hostNetwork": true, "containers": [{
        "name": "main", "ports": [{ "containerPort": port, "hostPort": port }],
        "resources": { "requests": { "nvidia.com/gpu": "1" } },
    }] } })
}

#[test]
fn a_port_of_a_node_is_had_by_one_pod_at_a_time() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.see(vec![project_seen("team", json!({ "quota": 64, "allowHostNetwork": true }))]);
    // Both are decided before either is there: the second is told to wait, and goes elsewhere.
    desk.pod("one", 1, at_port(4000));
    desk.pod("two", 1, at_port(4000));
    desk.obey();
    desk.pass(3);
    let nodes: BTreeSet<_> = desk.bound().into_values().collect();
    assert_eq!(nodes.len(), 2, "{:?} {:?}", desk.bound(), desk.said);
    desk.pod("three", 1, at_port(4000));
    desk.obey();
    assert_eq!(desk.bound().len(), 2, "no node has the port for a third");
    assert_eq!(desk.said["three"], "PortInUse");
    desk.pod("other", 1, at_port(4001));
    desk.obey();
    assert_eq!(desk.bound().len(), 3);
    desk.gone("one");
    desk.pass(3);
    assert_eq!(desk.bound().len(), 3);
    assert!(desk.bound().contains_key("three"), "{:?}", desk.said);
    desk.sound();
}

#[test]
fn a_gang_at_one_port_has_a_node_for_each() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.see(vec![project_seen("team", json!({ "quota": 64, "allowHostNetwork": true }))]);
    for name in ["one", "two"] {
        desk.pod(name, 1, merged(member("ring", 2), at_port(23456)));
    }
    desk.obey();
    let nodes: BTreeSet<_> = desk.bound().into_values().collect();
    assert_eq!(nodes.len(), 2, "{:?}", desk.bound());

    let mut desk = Desk::new(&["node1", "node2"]);
    desk.see(vec![project_seen("team", json!({ "quota": 64, "allowHostNetwork": true }))]);
    let spec =
        json!({ "kind": "distributed", "workers": 2, "gpus": 1, "hostNetwork": true, "ports": [8080] });
    desk.workload("train", spec.clone());
    desk.obey();
    let nodes: BTreeSet<_> = desk.bound().into_values().collect();
    assert_eq!(nodes.len(), 2, "{:?}", desk.bound());
    // Those Pods do not say so themselves here; a Pod that does keeps the next Workload waiting.
    for name in ["one", "two"] {
        desk.pod(name, 1, at_port(8080));
    }
    desk.pass(3);
    desk.workload("late", spec);
    assert_eq!(desk.said["late"], "Pending PortInUse");
}

#[test]
fn pods_that_start_each_by_itself_are_apart_from_nobody() {
    let mut desk = Desk::new(&["node1"]);
    desk.see(vec![native("loose", json!({ "schedulingPolicy": { "basic": {} } }))]);
    let mut pod = terms("podAntiAffinity", "kubernetes.io/hostname");
    pod["metadata"] = json!({ "labels": { names::GROUP_NAME: "ring" } });
    pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "loose" });
    desk.pod("one", 1, pod);
    assert_eq!(desk.said["one"], "UnsupportedConstraint");
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
}
