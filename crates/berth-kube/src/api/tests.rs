use super::*;
use crate::manifest::fresh;
use serde_json::{Value, json};

#[test]
fn the_committed_definitions_are_those_of_the_code() {
    for crd in crds() {
        let name = format!("deploy/crds/{}.yaml", crd.spec.names.plural);
        fresh(&name, &[serde_json::to_value(crd).expect("is JSON")]);
    }
}

/// Everything below a schema that has one of these keys.
fn schemas<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.push(value);
            fields.values().for_each(|inner| schemas(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| schemas(inner, found)),
        _ => {}
    }
}

#[test]
fn every_rule_of_ours_says_what_to_do() {
    let mut rules = 0;
    for crd in crds() {
        let value = serde_json::to_value(crd).expect("is JSON");
        let mut found = Vec::new();
        schemas(&value, &mut found);
        for rule in found.iter().filter_map(|schema| schema["x-kubernetes-validations"].as_array()).flatten()
        {
            rules += 1;
            assert!(rule["message"].as_str().is_some_and(|text| text.len() > 20), "{rule}");
            assert!(rule["rule"].as_str().is_some_and(|text| !text.contains('\n')), "{rule}");
        }
    }
    assert!(rules > 30, "{rules} rules");
}

#[test]
fn no_format_is_unknown_to_the_api_server() {
    for crd in crds() {
        let value = serde_json::to_value(crd).expect("is JSON");
        let mut found = Vec::new();
        schemas(&value, &mut found);
        for format in found.iter().filter_map(|schema| schema["format"].as_str()) {
            assert!(["int32", "int64", "date-time", "double"].contains(&format), "{format}");
        }
    }
}

#[test]
fn a_workload_is_written_back_as_it_was_read() {
    let written = json!({
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "Workload",
        "metadata": { "name": "train", "namespace": "berth-team-a" },
        "spec": {
            "kind": "distributed", "image": "trainer", "gpus": 2, "memory": "34359738368", "workers": 4,
            "cpu": "500m", "gracePeriod": "2h", "priority": "high", "ports": [8888],
            "podTemplate": { "spec": { "tolerations": [{ "operator": "Exists" }], "unknown": { "kept": true } } },
        },
        "status": { "phase": "Running", "queuedAt": "2026-11-17T08:00:00.000123Z", "runs": 2 },
    });
    let workload: Workload = serde_json::from_value(written.clone()).expect("is a workload");
    assert_eq!(serde_json::to_value(&workload).expect("is JSON"), written);
}

#[test]
fn an_amount_is_a_number_or_a_text_of_any_size() {
    for text in ["2", "\"0.5\"", "34359738368", "-1", "18446744073709551615"] {
        assert!(serde_json::from_str::<Amount>(text).is_ok(), "{text}");
    }
    for text in ["0.5", "null", "true", "[]"] {
        assert!(serde_json::from_str::<Amount>(text).is_err(), "{text}");
    }
}
