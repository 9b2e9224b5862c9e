use super::*;
use crate::seen::{objects::PodObject, pod::PodSeen};
use serde_json::{Value, json};

/// A Pod of group `ring`, made by Job `ring`, with this in its specification.
fn pod(spec: Value) -> PodSeen {
    let mut pod = json!({
        "metadata": {
            "name": "one", "namespace": "home", "uid": "one",
            "labels": { names::GROUP_NAME: "ring", "job-name": "ring", "app": "trainer", names::GROUP_SIZE: "2" },
        },
        "spec": spec,
    });
    pod["spec"]["schedulerName"] = "berth".into();
    PodSeen::of(serde_json::from_value::<PodObject>(pod).expect("a Pod"))
}

fn term(key: &str, labels: Value) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": labels } })
}

fn near(terms: Value) -> Value {
    json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
}

fn far(terms: Value) -> Value {
    json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
}

/// What a Pod wishes; it is refused nothing.
fn wishes(spec: Value) -> Beside {
    let pod = pod(spec);
    assert_eq!(pod.refusal, None);
    pod.beside.map(|beside| *beside).unwrap_or_default()
}

fn refusal(spec: Value) -> String {
    let pod = pod(spec);
    let refusal = pod.refusal.expect("it cannot be honoured");
    assert_eq!(refusal.reason, "UnsupportedConstraint");
    refusal.message
}

#[test]
fn nearness_to_its_own_group_is_a_topology() {
    let rack = |labels: Value| wishes(near(json!([term("rack", labels)]))).required;
    let wanted = Some(TopologyLevel::Label("rack".into()));
    assert_eq!(rack(json!({ names::GROUP_NAME: "ring" })), wanted);
    assert_eq!(rack(json!({ "job-name": "ring", "app": "trainer" })), wanted);
    let node = near(json!([term(HOSTNAME, json!({ names::GROUP_NAME: "ring" }))]));
    assert_eq!(wishes(node).required, Some(TopologyLevel::Node));
    let expression = json!({ "topologyKey": "rack", "namespaces": ["home"], "labelSelector": { "matchExpressions": [
        { "key": "job-name", "operator": "In", "values": ["ring"] },
    ] } });
    assert_eq!(wishes(near(json!([expression]))).required, wanted);
}

#[test]
fn distance_from_its_own_group_is_a_node_each() {
    let own = || json!({ names::GROUP_NAME: "ring" });
    assert_eq!(wishes(far(json!([term(HOSTNAME, own())]))).spread, Spread::Apart);
    assert!(refusal(far(json!([term("zone", own())]))).contains("not by zone"));
}

#[test]
fn what_may_speak_of_others_is_refused() {
    for labels in [json!({ "app": "trainer" }), json!({ names::GROUP_NAME: "other" }), json!({})] {
        assert!(refusal(near(json!([term("rack", labels.clone())]))).contains("start together"), "{labels}");
        assert!(refusal(far(json!([term(HOSTNAME, labels.clone())]))).contains("start together"), "{labels}");
    }
    let mut elsewhere = term("rack", json!({ names::GROUP_NAME: "ring" }));
    elsewhere["namespaces"] = json!(["home", "away"]);
    refusal(near(json!([elsewhere])));
    let mut everywhere = term("rack", json!({ names::GROUP_NAME: "ring" }));
    everywhere["namespaceSelector"] = json!({});
    refusal(near(json!([everywhere])));
    let unless = json!({ "topologyKey": "rack", "labelSelector": {
        "matchLabels": { names::GROUP_NAME: "ring" },
        "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["trainer"] }],
    } });
    refusal(near(json!([unless])));
    let two = json!([
        term("rack", json!({ names::GROUP_NAME: "ring" })),
        term("zone", json!({ names::GROUP_NAME: "ring" })),
    ]);
    assert!(refusal(near(two)).contains("two ways"));
    let must = json!({ "topologySpreadConstraints": [{ "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule" }] });
    assert!(refusal(must).contains("ScheduleAnyway"));
}

#[test]
fn a_pod_that_starts_with_nobody_is_near_nobody() {
    let mut alone = json!({
        "metadata": { "name": "one", "namespace": "home", "labels": { "job-name": "ring" } },
        "spec": near(json!([term("rack", json!({ "job-name": "ring" }))])),
    });
    alone["spec"]["schedulerName"] = "berth".into();
    let pod = PodSeen::of(serde_json::from_value(alone).expect("a Pod"));
    assert_eq!(pod.refusal.map(|refusal| refusal.reason), Some("UnsupportedConstraint"));
}

#[test]
fn preferences_are_followed_where_they_are_of_its_own_group_and_left_alone_elsewhere() {
    let weighted = |weight: i32, term: Value| json!({ "weight": weight, "podAffinityTerm": term });
    let own = || json!({ names::GROUP_NAME: "ring" });
    let preferred = json!({ "affinity": { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        weighted(10, term("zone", own())), weighted(50, term("rack", own())), weighted(50, term("row", own())),
        weighted(90, term("building", json!({ "app": "trainer" }))),
    ] } } });
    let found = wishes(preferred);
    assert_eq!(found.preferred, Some(TopologyLevel::Label("rack".into())));
    assert_eq!(found.required, None);
    let apart = json!({ "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        weighted(1, term(HOSTNAME, own())),
    ] } } });
    assert_eq!(wishes(apart).spread, Spread::Spread);
    let constraint = |key: &str, labels: Value| {
        json!({ "topologySpreadConstraints": [{
            "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": labels },
        }] })
    };
    assert_eq!(wishes(constraint(HOSTNAME, own())).spread, Spread::Spread);
    assert_eq!(wishes(constraint("zone", own())), Beside::default());
    assert_eq!(wishes(constraint(HOSTNAME, json!({ "app": "trainer" }))), Beside::default());
}
