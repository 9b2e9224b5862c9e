//! The world by itself, with a cluster that does as it is told, or does not.

mod beside;
mod desk;
mod makers;
mod turns;
mod volumes;

use super::{Effect, Seen, StartOrder};
use crate::names;
use desk::{
    Desk, claim_seen, claims, member, node_seen, owned, project_seen, slice_seen, text, workload_gone,
    workload_seen,
};
use serde_json::{Value, json};

/// The start that was ordered last, taken out of what is to be done.
fn start_of(desk: &mut Desk) -> StartOrder {
    let at = desk.ordered.iter().position(|effect| matches!(effect, Effect::Start(_)));
    let at = at.unwrap_or_else(|| panic!("no start was ordered: {:?}", desk.log));
    match desk.ordered.remove(at) {
        Effect::Start(order) => order,
        _ => unreachable!("it was found a moment ago"),
    }
}

#[test]
fn a_gang_starts_when_all_of_it_is_there_and_fits() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.pod("filler", 4, json!({}));
    desk.obey();
    for name in ["one", "two"] {
        desk.pod(name, 6, member("gang", 2));
        assert!(desk.ordered.is_empty(), "{name}: {:?}", desk.log);
    }
    assert_eq!(desk.said["two"], "NoCapacity");
    desk.gone("filler");
    desk.obey();
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.log);
    assert_eq!(desk.log.last().map(String::as_str), Some("start 2 of run 1"));
    desk.sound();
}

#[test]
fn a_refused_start_is_tried_again_later_and_keeps_its_place() {
    let mut desk = Desk::new(&["node1"]);
    desk.refused_starts = 2;
    desk.pod("first", 8, json!({}));
    desk.obey();
    assert!(desk.bound().is_empty());
    assert_eq!(desk.said["first"], "StartRefused");
    desk.now += 10;
    desk.pod("second", 8, json!({}));
    let order = start_of(&mut desk);
    let at = desk.now;
    desk.gone("second");
    desk.fail(&order, Vec::new());
    desk.pass(2);
    assert!(
        desk.now - at > 1000 && desk.bound().is_empty(),
        "the second try was refused too: {:?}",
        desk.log
    );
    desk.pod("third", 8, json!({}));
    let order = start_of(&mut desk);
    desk.fail(&order, Vec::new());
    desk.pass(8);
    assert_eq!(desk.bound().keys().collect::<Vec<_>>(), [&"first"], "{:?}", desk.log);
    desk.gone("first");
    desk.pass(30);
    assert_eq!(desk.bound().keys().collect::<Vec<_>>(), [&"third"], "{:?}", desk.log);
}

#[test]
fn a_half_bound_gang_is_undone_and_starts_again_as_a_whole() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.workload("train", json!({ "kind": "distributed", "workers": 2, "gpus": 8 }));
    let order = start_of(&mut desk);
    desk.place(&order, 0);
    desk.make(&order, 1);
    desk.fail(&order, vec![0]);
    assert_eq!(desk.said["train"], "Stopping");
    desk.obey();
    assert!(desk.bound().is_empty(), "the one that was bound is gone: {:?}", desk.log);
    assert!(desk.pods.is_empty(), "and so is the one that was only made: {:?}", desk.log);
    desk.pass(5);
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.log);
    desk.sound();
}

#[test]
fn half_a_gang_that_is_found_goes_and_starts_again() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.workload("train", json!({ "kind": "distributed", "workers": 2, "gpus": 8 }));
    let order = start_of(&mut desk);
    desk.place(&order, 0);
    desk.make(&order, 1);
    let objects = || {
        let workload =
            workload_seen("train", json!({ "kind": "distributed", "workers": 2, "gpus": 8 }), Value::Null);
        vec![
            project_seen("team", json!({ "quota": 64 })),
            node_seen("node1", 8),
            node_seen("node2", 8),
            workload,
        ]
    };
    desk.log.clear();
    desk.restart(objects());
    assert_eq!(desk.log, ["delete train-r1-0", "delete train-r1-1"]);
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["train-r2-0", "train-r2-1"], "{:?}", desk.log);
    // A whole one is left alone, whoever finds it.
    desk.log.clear();
    desk.restart(objects());
    desk.obey();
    assert!(desk.log.is_empty(), "{:?}", desk.log);
    assert_eq!(desk.used(), 16);
}

#[test]
fn pods_that_were_made_and_never_bound_make_room_for_others_of_their_name() {
    let mut desk = Desk::new(&["node1"]);
    let spec = json!({ "gpus": 8 });
    desk.workload("train", spec.clone());
    let order = start_of(&mut desk);
    desk.make(&order, 0);
    let objects = vec![
        project_seen("team", json!({ "quota": 64 })),
        node_seen("node1", 8),
        workload_seen("train", spec, Value::Null),
    ];
    desk.restart(objects);
    let order = start_of(&mut desk);
    assert_eq!(order.run, 2, "a name is used once");
    assert!(desk.log.contains(&"delete train-r1-0".to_owned()), "{:?}", desk.log);
}

#[test]
fn an_eviction_that_is_refused_sends_reclaim_elsewhere_until_it_may_ask_again() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.project("lender", json!({ "quota": 8, "namespaces": ["lender"] }));
    desk.project("team", json!({ "quota": 0 }));
    desk.pod("one", 8, json!({}));
    desk.pod("two", 8, json!({}));
    desk.obey();
    desk.kept = ["one".to_owned(), "two".to_owned()].into();
    let lenders = json!({ "metadata": { "namespace": "lender" } });
    desk.pod("wants", 8, lenders.clone());
    desk.obey();
    let evictions = |desk: &Desk| desk.log.iter().filter(|words| words.starts_with("evict")).count();
    assert_eq!(evictions(&desk), 2, "both were asked: {:?}", desk.log);
    assert_eq!(desk.bound().len(), 2, "and both stay: {:?}", desk.log);
    assert!(desk.said.contains_key("wants"), "who waits is told why");
    desk.pass(30);
    assert_eq!(evictions(&desk), 2, "nobody asks again so soon: {:?}", desk.log);
    desk.kept.clear();
    desk.pass(40);
    assert_eq!(evictions(&desk), 3, "later somebody does: {:?}", desk.log);
    assert!(desk.bound().contains_key("wants"), "{:?}", desk.log);
    desk.sound();
}

#[test]
fn a_budget_that_lets_one_of_a_gang_go_does_not_keep_the_other() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.project("lender", json!({ "quota": 16, "namespaces": ["lender"] }));
    desk.project("team", json!({ "quota": 0 }));
    desk.workload("train", json!({ "kind": "distributed", "workers": 2, "gpus": 8 }));
    desk.obey();
    assert_eq!(desk.bound().len(), 2);
    desk.kept = ["train-r1-1".to_owned()].into();
    desk.pod("wants", 8, json!({ "metadata": { "namespace": "lender" } }));
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["wants"], "{:?}", desk.log);
    assert!(desk.log.contains(&"delete train-r1-1".to_owned()), "{:?}", desk.log);
}

#[test]
fn what_ran_on_a_lost_node_starts_again_elsewhere_or_when_it_is_back() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.workload("train", json!({ "kind": "distributed", "workers": 2, "gpus": 8 }));
    desk.obey();
    desk.see(vec![Seen::NodeGone(text("node2"))]);
    desk.obey();
    assert!(desk.bound().is_empty(), "a gang is lost as a whole: {:?}", desk.log);
    desk.node("node2", 8);
    desk.obey();
    assert_eq!(desk.bound().len(), 2, "{:?}", desk.log);
    desk.sound();
}

#[test]
fn a_suspended_workload_leaves_and_a_resumed_one_starts() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("train", json!({ "gpus": 8 }));
    desk.obey();
    desk.workload("train", json!({ "gpus": 8, "suspend": true }));
    desk.obey();
    assert!(desk.bound().is_empty());
    assert_eq!(desk.said["train"], "Suspended");
    desk.workload("train", json!({ "gpus": 8, "suspend": false }));
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["train-r2-0"]);
}

#[test]
fn what_was_suspended_while_nobody_led_leaves_too() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("train", json!({ "gpus": 8 }));
    desk.obey();
    let suspended = workload_seen("train", json!({ "gpus": 8, "suspend": true }), Value::Null);
    desk.restart(vec![project_seen("team", json!({ "quota": 64 })), node_seen("node1", 8), suspended]);
    assert_eq!(desk.used(), 8, "until it is gone its GPUs are taken");
    desk.obey();
    assert!(desk.bound().is_empty(), "{:?}", desk.log);
    assert_eq!((desk.used(), desk.said["train"].as_str()), (0, "Suspended"));
}

#[test]
fn a_workload_that_fails_is_started_again_as_often_as_it_says() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("train", json!({ "gpus": 1, "backoffLimit": 1 }));
    desk.obey();
    let failed = json!({ "status": { "phase": "Failed" } });
    desk.change("train-r1-0", &failed);
    desk.obey();
    assert_eq!(desk.said["train"], "Pending BackOff");
    desk.pass(3);
    desk.change("train-r2-0", &failed);
    desk.pass(5);
    assert_eq!(desk.said["train"], "Failed");
    assert!(!desk.pods.contains_key("train-r3-0"), "{:?}", desk.log);
}

#[test]
fn whatever_takes_the_place_of_an_evicted_pod_takes_its_place_in_the_queue() {
    let mut desk = Desk::new(&["node1"]);
    desk.project("lender", json!({ "quota": 8, "namespaces": ["lender"] }));
    desk.project("team", json!({ "quota": 0 }));
    desk.pod("job-a", 8, owned("job"));
    desk.obey();
    desk.now += 1000;
    desk.pod("later", 8, json!({}));
    desk.pod("wants", 8, json!({ "metadata": { "namespace": "lender" } }));
    desk.obey();
    assert!(desk.bound().contains_key("wants"), "{:?}", desk.log);
    desk.now += 1000;
    desk.pod("job-b", 8, owned("job"));
    desk.gone("wants");
    desk.obey();
    assert!(
        desk.bound().contains_key("job-b"),
        "it is older than what came after its predecessor: {:?}",
        desk.log
    );
}

#[test]
fn pods_of_others_take_what_they_take() {
    let mut desk = Desk::new(&["node1"]);
    let theirs = json!({ "spec": { "schedulerName": "default-scheduler", "nodeName": "node1" } });
    desk.pod("theirs", 4, theirs.clone());
    desk.pod("ours", 8, json!({}));
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
    desk.gone("theirs");
    desk.obey();
    assert!(desk.bound().contains_key("ours"));
    // Devices of claims too.
    let mut desk = Desk::new(&["node1"]);
    desk.see(vec![slice_seen("node1"), claim_seen("theirs", 1, Some(("node1", "gpu-3", "theirs")))]);
    let mut pod = claims("theirs");
    pod["spec"]["schedulerName"] = "default-scheduler".into();
    pod["spec"]["nodeName"] = "node1".into();
    desk.pod("theirs", 0, pod);
    assert_eq!(desk.used(), 1);
    desk.see(vec![claim_seen("ours", 1, None)]);
    desk.pod("ours", 0, claims("ours"));
    let order = start_of(&mut desk);
    assert_ne!(order.tasks[0].place.devices[0].device, 3);
}

#[test]
fn a_workload_that_is_deleted_while_it_starts_leaves_nothing() {
    for started in [true, false] {
        let mut desk = Desk::new(&["node1"]);
        desk.workload("train", json!({ "gpus": 8 }));
        let order = start_of(&mut desk);
        desk.see(vec![workload_gone("train")]);
        if started {
            desk.start(&order);
        } else {
            desk.make(&order, 0);
            desk.fail(&order, Vec::new());
        }
        desk.obey();
        assert!(desk.pods.is_empty(), "{:?}", desk.log);
        assert_eq!(desk.used(), 0);
        assert!(desk.world.groups.is_empty(), "{:?}", desk.world.groups);
    }
}

#[test]
fn a_pod_that_came_and_went_unseen_is_missed() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("train", json!({ "gpus": 8 }));
    let order = start_of(&mut desk);
    desk.see(vec![Seen::Started { workload: order.workload, run: 1, result: Ok(()) }]);
    desk.now += 21_000;
    desk.see(Vec::new());
    assert_eq!(desk.log.last().map(String::as_str), Some("seek train-r1-0"));
    desk.see(vec![Seen::NoPod { workload: order.workload, run: 1, rank: 0 }]);
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["train-r2-0"], "{:?}", desk.log);
}

#[test]
fn devices_that_a_start_left_in_a_claim_are_given_back_before_the_next() {
    let mut desk = Desk::new(&["node1"]);
    let objects = |taken| {
        let claim =
            claim_seen("claim", if taken { 1 } else { 2 }, taken.then_some(("node1", "gpu-3", "waits")));
        vec![project_seen("team", json!({ "quota": 64 })), node_seen("node1", 8), slice_seen("node1"), claim]
    };
    desk.see(objects(false));
    desk.pod("waits", 0, claims("claim"));
    desk.log.clear();
    desk.restart(objects(true));
    assert_eq!(desk.log, ["release claim"]);
    assert_eq!(desk.said["waits"], "ClaimLeft");
    desk.see(vec![claim_seen("claim", 3, None)]);
    desk.obey();
    assert!(desk.bound().contains_key("waits"), "{:?}", desk.log);
    // What it gets now is its own.
    desk.see(vec![claim_seen("claim", 4, Some(("node1", "gpu-0", "waits")))]);
    assert_eq!(desk.log, ["release claim", "start 1 of run 1"]);
}

#[test]
fn a_claim_that_another_pod_uses_is_not_given_twice() {
    let mut desk = Desk::new(&["node1"]);
    desk.see(vec![slice_seen("node1"), claim_seen("claim", 1, None)]);
    desk.pod("one", 0, claims("claim"));
    desk.obey();
    desk.see(vec![claim_seen("claim", 2, Some(("node1", "gpu-0", "one")))]);
    desk.pod("two", 0, claims("claim"));
    assert_eq!((desk.said["two"].as_str(), desk.ordered.len()), ("ClaimInUse", 0), "{:?}", desk.log);
}

#[test]
fn work_of_a_project_that_is_gone_still_takes_what_it_takes() {
    let mut desk = Desk::new(&["node1"]);
    desk.project("other", json!({ "quota": 8, "namespaces": ["other"] }));
    desk.workload("train", json!({ "gpus": 8 }));
    desk.obey();
    desk.see(vec![Seen::ProjectGone(text("team"))]);
    assert_eq!(desk.used(), 8);
    desk.pod("wants", 8, json!({ "metadata": { "namespace": "other" } }));
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["train-r1-0"], "{:?}", desk.log);
    assert!(desk.said.contains_key("wants"));
    // When the project is back, it borrows, and gives it back.
    desk.project("team", json!({ "quota": 0 }));
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["wants"], "{:?}", desk.log);
    desk.sound();
}

#[test]
fn a_node_that_shrinks_under_its_pods_takes_none_until_they_are_gone() {
    let mut desk = Desk::new(&["node1"]);
    desk.pod("one", 8, json!({}));
    desk.obey();
    desk.node("node1", 4);
    desk.pod("two", 2, json!({}));
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
    desk.gone("one");
    desk.obey();
    assert!(desk.bound().contains_key("two"), "{:?}", desk.log);
    desk.pod("three", 4, json!({}));
    assert!(desk.ordered.is_empty(), "it has two left: {:?}", desk.log);
}

#[test]
fn who_joins_a_group_that_runs_waits_with_a_reason_and_joins_when_there_is_room() {
    let mut desk = Desk::new(&["node1"]);
    desk.pod("one", 3, member("gang", 2));
    desk.pod("two", 3, member("gang", 2));
    desk.obey();
    desk.pod("three", 3, member("gang", 2));
    desk.obey();
    assert_eq!(desk.said["three"], "Extra");
    desk.node("node2", 8);
    desk.obey();
    assert_eq!(desk.bound().len(), 3, "{:?}", desk.log);
    desk.sound();
}

#[test]
fn a_pod_elsewhere_is_no_part_of_a_workload_it_names() {
    let mut desk = Desk::new(&["node1"]);
    desk.project("other", json!({ "quota": 8, "namespaces": ["other"] }));
    desk.workload("train", json!({ "gpus": 4 }));
    desk.obey();
    let forged = json!({ "metadata": {
        "namespace": "other",
        "labels": { names::WORKLOAD: "train", names::RANK: "0", names::RUN: "1" },
        "ownerReferences": [{
            "apiVersion": "berth.dev/v1alpha1", "kind": "Workload", "name": "train", "uid": "uid-train", "controller": true,
        }],
    } });
    desk.pod("forged", 1, forged);
    desk.gone("forged");
    desk.obey();
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["train-r1-0"], "{:?}", desk.log);
}

#[test]
fn a_group_of_the_same_name_elsewhere_is_another_group() {
    let mut desk = Desk::new(&["node1"]);
    desk.project("other", json!({ "quota": 8, "namespaces": ["other"] }));
    desk.pod("one", 1, member("gang", 2));
    let mut elsewhere = member("gang", 2);
    elsewhere["metadata"]["namespace"] = "other".into();
    desk.pod("two", 1, elsewhere);
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
    assert_eq!(desk.said["two"], "GroupIncomplete");
}

#[test]
fn a_pod_that_wants_more_of_its_node_than_its_project_may_waits() {
    let mut desk = Desk::new(&["node1"]);
    let wants = [
        ("network", json!({ "spec": { "hostNetwork": true } }), "HostNetworkNotAllowed"),
        ("pid", json!({ "spec": { "hostPID": true } }), "PrivilegedNotAllowed"),
        (
            "path",
            json!({ "spec": { "volumes": [{ "name": "root", "hostPath": { "path": "/" } }] } }),
            "PrivilegedNotAllowed",
        ),
        (
            "root",
            json!({ "spec": { "containers": [{ "name": "main", "securityContext": { "privileged": true } }] } }),
            "PrivilegedNotAllowed",
        ),
    ];
    for (name, more, reason) in &wants {
        desk.pod(name, 0, more.clone());
        assert_eq!(desk.said[*name], *reason);
    }
    assert!(desk.ordered.is_empty(), "{:?}", desk.log);
    desk.project("team", json!({ "quota": 64, "allowPrivileged": true, "allowHostNetwork": true }));
    desk.obey();
    assert_eq!(desk.bound().len(), wants.len(), "{:?}", desk.log);
}

#[test]
fn a_label_that_changes_does_not_put_a_pod_into_two_groups() {
    let mut desk = Desk::new(&["node1"]);
    desk.pod("one", 4, member("first", 1));
    desk.obey();
    for group in ["second", "third"] {
        desk.change("one", &member(group, 1));
    }
    desk.obey();
    assert_eq!((desk.used(), desk.world.groups.len()), (4, 1));
    desk.gone("one");
    assert_eq!((desk.used(), desk.world.groups.len()), (0, 0));
}

#[test]
fn a_group_whose_pod_is_on_a_node_that_is_gone_waits_for_another() {
    let mut desk = Desk::new(&["node1", "node2"]);
    desk.pod("one", 8, member("gang", 2));
    desk.pod("two", 8, member("gang", 2));
    desk.obey();
    let lost = desk.bound()["two"].to_owned();
    desk.see(vec![Seen::NodeGone(text(&lost))]);
    // Nobody is there to say that the Pod on it is gone; the other one goes.
    desk.ordered.retain(|effect| matches!(effect, Effect::Evict(order) if &*order.pod.name == "one"));
    desk.obey();
    desk.pod("three", 8, member("gang", 2));
    desk.node(&lost, 8);
    desk.gone("two");
    desk.pod("four", 8, member("gang", 2));
    desk.pass(3);
    assert_eq!(desk.bound().into_keys().collect::<Vec<_>>(), ["four", "three"], "{:?}", desk.log);
    desk.sound();
}

#[test]
fn an_extra_that_goes_while_it_waits_is_not_waited_for() {
    let mut desk = Desk::new(&["node1"]);
    for name in ["one", "two", "three"] {
        desk.pod(name, 4, member("gang", 2));
    }
    desk.obey();
    let waits = ["one", "two", "three"].into_iter().find(|name| !desk.bound().contains_key(name));
    desk.gone(waits.expect("there is room for two"));
    desk.node("node2", 8);
    desk.pass(3);
    assert_eq!((desk.bound().len(), desk.log.len()), (2, 1), "{:?}", desk.log);
}

#[test]
fn who_waits_is_told_again_when_the_numbers_change() {
    let mut desk = Desk::new(&["node1", "node2"]);
    for name in ["left", "right"] {
        desk.pod(name, 8, json!({}));
    }
    desk.obey();
    desk.pod("one", 8, member("gang", 2));
    desk.pod("two", 8, member("gang", 2));
    assert!(desk.words["one"].starts_with("0 of 2 Pods fit"), "{}", desk.words["one"]);
    desk.gone("left");
    desk.pass(20);
    assert!(desk.words["one"].starts_with("0 of 2 Pods fit"), "what is said stands for a while");
    desk.pass(20);
    assert!(desk.words["one"].starts_with("1 of 2 Pods fit"), "{}", desk.words["one"]);
    assert_eq!(
        desk.world.next_instant().filter(|at| at.0 < desk.now + 30_000),
        None,
        "nothing happens any more"
    );
}

#[test]
fn a_namespace_of_a_project_that_is_gone_is_made_again() {
    let mut desk = Desk::new(&[]);
    let gone = |name: &str| vec![Seen::NamespaceGone(text(name))];
    let made = desk.tenancies;
    desk.see(gone("anybodys"));
    assert_eq!(desk.tenancies, made);
    desk.see(gone(desk::HOME));
    assert_eq!(desk.tenancies, made + 1);
    let mut both = vec![Seen::ProjectGone(text("team"))];
    both.extend(gone(desk::HOME));
    desk.see(both);
    assert_eq!(desk.tenancies, made + 1, "nobody wants it any more");
}

#[test]
fn a_project_that_changes_concerns_its_own_work_only() {
    let mut desk = Desk::new(&["node1"]);
    desk.project("other", json!({ "quota": 1 }));
    for name in ["one", "two", "three"] {
        desk.pod(name, 1, json!({}));
    }
    desk.pod("foreign", 1, json!({ "metadata": { "namespace": "berth-other" } }));
    desk.obey();
    let concerned = |desk: &mut Desk, spec| {
        desk.world.take(project_seen("other", spec));
        desk.world.tell_owners();
        let found = desk.world.dirty.iter().map(|id| desk.world.groups[id].namespace.to_string()).collect();
        desk.see(Vec::new());
        found
    };
    let found: Vec<String> = concerned(&mut desk, json!({ "quota": 2 }));
    assert_eq!(found, ["berth-other"]);
    let found = concerned(&mut desk, json!({ "quota": 2 }));
    assert!(found.is_empty(), "nothing changed: {found:?}");
    let found = concerned(&mut desk, json!({ "quota": 2, "namespaces": ["elsewhere"] }));
    assert_eq!(found, ["berth-other"], "nobody pays for it any more");
}
