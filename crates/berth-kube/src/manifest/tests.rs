use super::*;
use std::collections::BTreeSet;

#[test]
fn the_committed_manifest_is_that_of_the_code() {
    fresh("deploy/manifest.yaml", &manifest(&Settings::default()));
}

/// The chart has no words of its own for rights: these files are included by it.
#[test]
fn the_rights_in_the_chart_are_those_of_the_code() {
    fresh("deploy/helm/berth/files/operator-rules.yaml", &[json!({ "rules": operator_rules() })]);
    fresh("deploy/helm/berth/files/own-rules.yaml", &[json!({ "rules": own_rules() })]);
    fresh("deploy/helm/berth/files/server-rules.yaml", &[json!({ "rules": server_rules() })]);
    fresh("deploy/helm/berth/files/researcher-rules.yaml", &[json!({ "rules": researcher_rules() })]);
    for crd in api::crds() {
        let name = format!("deploy/helm/berth/crds/{}.yaml", crd.spec.names.plural);
        fresh(&name, &[serde_json::to_value(crd).expect("is JSON")]);
    }
}

#[test]
fn every_object_has_its_own_name() {
    let objects = manifest(&Settings::default());
    let names =
        objects.iter().map(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()));
    assert_eq!(names.collect::<BTreeSet<_>>().len(), objects.len());
    assert_eq!(objects[0]["kind"], "Namespace", "what lives in it comes after it");
}

#[test]
fn settings_reach_every_object_they_are_about() {
    let settings = Settings {
        cluster: "big".into(),
        namespace: "gpu".into(),
        image: "registry/berth:1".into(),
        replicas: 3,
    };
    let objects = manifest(&settings);
    let text = serde_json::to_string(&objects).expect("is JSON");
    assert!(!text.contains("berth-system"), "a namespace was forgotten");
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("is there");
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "registry/berth:1");
}

#[test]
fn the_operator_may_do_no_more_than_is_listed() {
    for rule in operator_rules().iter().chain(&own_rules()).chain(&server_rules()).chain(&researcher_rules())
    {
        for field in ["apiGroups", "resources", "verbs"] {
            let all = rule[field].as_array().expect("a list");
            assert!(!all.is_empty() && all.iter().all(|one| one != "*"), "{rule}");
        }
        let resources = rule["resources"].to_string();
        assert!(!resources.contains("secrets") && !resources.contains("\"roles\""), "{rule}");
    }
}
