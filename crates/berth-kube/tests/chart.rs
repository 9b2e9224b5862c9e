//! The chart, as Helm renders it: it installs what the manifest does, and every setting does what it says. Without Helm it
//! says what is not tested, and passes.

mod helm;

use berth_kube::manifest::{Settings, manifest};
use helm::{Helm, OF_RELEASE, Objects, by_name, chart, difference, settings_of, without_release};
use serde_json::Value;
use std::{collections::BTreeSet, fs, process::Command};

const NAMESPACE: &str = "berth-system";
/// The server is reached by others.
const TLS: &[&str] = &["server.tls={'secret': 'cert', 'publicName': 'berth.example'}"];
/// A provider says who somebody is.
const PROVIDER: &[&str] = &["server.oidc.issuer='https://id.example'", "server.oidc.clientId='berth'"];

/// A setting, another value, what is set besides, and what is different then. `operator` and `server` are the
/// Deployments, and `VERSION` is ours.
type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const SETTINGS: &[Row] = &[
    ("cluster", "'lab'", &[], &["operator env[BERTH_CLUSTER].value = 'lab'"]),
    (
        "image.repository",
        "'registry.lab/berth'",
        &[],
        &["operator image = 'registry.lab/berth:VERSION'", "server image = 'registry.lab/berth:VERSION'"],
    ),
    (
        "image.tag",
        "'2'",
        &[],
        &["operator image = 'ghcr.io/berth/berth:2'", "server image = 'ghcr.io/berth/berth:2'"],
    ),
    (
        "image.pullPolicy",
        "'Always'",
        &[],
        &["operator imagePullPolicy = 'Always'", "server imagePullPolicy = 'Always'"],
    ),
    (
        "image.pullSecrets",
        "['registry', '2']",
        &[],
        &[
            "operator imagePullSecrets[2].name = '2'",
            "operator imagePullSecrets[registry].name = 'registry'",
            "server imagePullSecrets[2].name = '2'",
            "server imagePullSecrets[registry].name = 'registry'",
        ],
    ),
    ("replicas", "3", &[], &["operator spec.replicas = 3"]),
    (
        "log",
        "'info,berth_kube=debug'",
        &[],
        &[
            "operator env[RUST_LOG].value = 'info,berth_kube=debug'",
            "server env[RUST_LOG].value = 'info,berth_kube=debug'",
        ],
    ),
    ("resources.requests.cpu", "2", &[], &["operator resources.requests.cpu = 2"]),
    ("resources.requests.memory", "'1Gi'", &[], &["operator resources.requests.memory = '1Gi'"]),
    ("resources.limits.memory", "'4Gi'", &[], &["operator resources.limits.memory = '4Gi'"]),
    (
        "server.create",
        "false",
        &[],
        &[
            "ClusterRole/berth-server gone",
            "ClusterRoleBinding/berth-server gone",
            "server gone",
            "NetworkPolicy/berth-server gone",
            "ServiceAccount/berth-server gone",
        ],
    ),
    ("server.tokenSecret", "'chosen'", &[], &["server volumes[token].secret.secretName = 'chosen'"]),
    (
        "server.tokenSecret",
        "''",
        &[],
        &[
            "server env[BERTH_TOKEN_FILE].name gone",
            "server env[BERTH_TOKEN_FILE].value gone",
            "server volumeMounts[token].mountPath gone",
            "server volumeMounts[token].name gone",
            "server volumeMounts[token].readOnly gone",
            "server volumes[token].name gone",
            "server volumes[token].secret.optional gone",
            "server volumes[token].secret.secretName gone",
        ],
    ),
    (
        "server.historyClaim",
        "'kept'",
        &[],
        &[
            "server volumes[folder].emptyDir gone",
            "server volumes[folder].persistentVolumeClaim.claimName = 'kept'",
        ],
    ),
    ("server.tls.secret", "'other'", TLS, &["server volumes[tls].secret.secretName = 'other'"]),
    (
        "server.tls.publicName",
        "'other.example'",
        TLS,
        &["server env[BERTH_PUBLIC_NAME].value = 'other.example'"],
    ),
    ("server.service.type", "'NodePort'", TLS, &["Service/berth-server spec.type = 'NodePort'"]),
    (
        "server.oidc.issuer",
        "'https://id.example:8443/realms/lab'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_ISSUER].value = 'https://id.example:8443/realms/lab'",
            "NetworkPolicy/berth-server spec.egress {'ports':[{'port':8443,'protocol':'TCP'}]} = 'open'",
        ],
    ),
    ("server.oidc.clientId", "'2'", PROVIDER, &["server env[BERTH_OIDC_CLIENT_ID].value = '2'"]),
    (
        "server.oidc.clientSecret",
        "'client'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_CLIENT_SECRET_FILE].name = 'BERTH_OIDC_CLIENT_SECRET_FILE'",
            "server env[BERTH_OIDC_CLIENT_SECRET_FILE].value = '/etc/berth/oidc/client-secret'",
            "server volumeMounts[oidc].mountPath = '/etc/berth/oidc'",
            "server volumeMounts[oidc].name = 'oidc'",
            "server volumeMounts[oidc].readOnly = true",
            "server volumes[oidc].name = 'oidc'",
            "server volumes[oidc].secret.secretName = 'client'",
        ],
    ),
    (
        "server.oidc.userClaim",
        "'sub'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_USER_CLAIM].name = 'BERTH_OIDC_USER_CLAIM'",
            "server env[BERTH_OIDC_USER_CLAIM].value = 'sub'",
        ],
    ),
    (
        "server.oidc.groupsClaim",
        "'teams'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_GROUPS_CLAIM].name = 'BERTH_OIDC_GROUPS_CLAIM'",
            "server env[BERTH_OIDC_GROUPS_CLAIM].value = 'teams'",
        ],
    ),
    (
        "server.oidc.name",
        "'Lab'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_NAME].name = 'BERTH_OIDC_NAME'",
            "server env[BERTH_OIDC_NAME].value = 'Lab'",
        ],
    ),
    (
        "server.oidc.caSecret",
        "'authority'",
        PROVIDER,
        &[
            "server env[BERTH_OIDC_CA_FILE].name = 'BERTH_OIDC_CA_FILE'",
            "server env[BERTH_OIDC_CA_FILE].value = '/etc/berth/oidc-ca/ca.crt'",
            "server volumeMounts[oidc-ca].mountPath = '/etc/berth/oidc-ca'",
            "server volumeMounts[oidc-ca].name = 'oidc-ca'",
            "server volumeMounts[oidc-ca].readOnly = true",
            "server volumes[oidc-ca].name = 'oidc-ca'",
            "server volumes[oidc-ca].secret.secretName = 'authority'",
        ],
    ),
    ("server.resources.requests.cpu", "2", &[], &["server resources.requests.cpu = 2"]),
    ("server.resources.requests.memory", "'1Gi'", &[], &["server resources.requests.memory = '1Gi'"]),
    ("server.resources.limits.memory", "'4Gi'", &[], &["server resources.limits.memory = '4Gi'"]),
    ("priorityClass.create", "false", &[], &["PriorityClass/berth-operator gone"]),
    (
        "priorityClass.name",
        "'first'",
        &[],
        &[
            "operator priorityClassName = 'first'",
            "PriorityClass/berth-operator gone",
            "PriorityClass/first new",
        ],
    ),
    ("priorityClass.value", "1000000", &[], &["PriorityClass/berth-operator value = 1000000"]),
    (
        "networkPolicy.create",
        "false",
        &[],
        &["NetworkPolicy/berth-operator gone", "NetworkPolicy/berth-server gone"],
    ),
    // The provider is reached at a port that was open for the API server only.
    (
        "networkPolicy.apiServerPorts",
        "[16443]",
        PROVIDER,
        &[
            "NetworkPolicy/berth-operator spec.egress {'ports':[{'port':16443,'protocol':'TCP'}]} = 'open'",
            "NetworkPolicy/berth-operator spec.egress {'ports':[{'port':443,'protocol':'TCP'},{'port':6443,'protocol':'TCP'}]} gone",
            "NetworkPolicy/berth-server spec.egress {'ports':[{'port':16443,'protocol':'TCP'}]} = 'open'",
            "NetworkPolicy/berth-server spec.egress {'ports':[{'port':443,'protocol':'TCP'},{'port':6443,'protocol':'TCP'}]} gone",
            "NetworkPolicy/berth-server spec.egress {'ports':[{'port':443,'protocol':'TCP'}]} = 'open'",
        ],
    ),
    ("podDisruptionBudget.create", "false", &[], &["PodDisruptionBudget/berth-operator gone"]),
    ("deviceClass.create", "false", &[], &["DeviceClass/gpu.berth.dev gone"]),
    (
        "nodeSelector",
        "{'role': 'system'}",
        &[],
        &["operator nodeSelector.role = 'system'", "server nodeSelector.role = 'system'"],
    ),
    (
        "tolerations",
        "[{'operator': 'Exists'}]",
        &[],
        &["operator tolerations[0].operator = 'Exists'", "server tolerations[0].operator = 'Exists'"],
    ),
    (
        "affinity",
        "{'nodeAffinity': {}}",
        &[],
        &["operator affinity.nodeAffinity = {}", "server affinity.nodeAffinity = {}"],
    ),
    (
        "podAnnotations",
        "{'team': 'lab'}",
        &[],
        &[
            "operator spec.template.metadata.annotations.team = 'lab'",
            "server spec.template.metadata.annotations.team = 'lab'",
        ],
    ),
    (
        "podLabels",
        "{'team': 'lab'}",
        &[],
        &[
            "operator spec.template.metadata.labels.team = 'lab'",
            "server spec.template.metadata.labels.team = 'lab'",
        ],
    ),
];

/// Settings that are refused, and words of the refusal.
const REFUSED: &[(&[&str], &str)] = &[
    (&["replica=3"], "additional properties 'replica' not allowed"),
    (&["server.oidc.issuers='https://id.example'"], "additional properties 'issuers' not allowed"),
    (&["replicas='two'"], "got string, want integer"),
    (&["image.pullPolicy='Sometimes'"], "image/pullPolicy"),
    (&["server.tls.secret='cert'"], "server.tls.publicName is the name that the certificate is for"),
    (&["server.tls.publicName='berth.example'"], "server.tls.publicName needs server.tls.secret"),
    (&["server.service.type='LoadBalancer'"], "server.service.type needs server.tls.secret"),
    (
        &["server.oidc.issuer='https://id.example'"],
        "server.oidc.clientId is what the provider knows the server by",
    ),
    (&["server.oidc.clientId='berth'"], "server.oidc.clientId needs server.oidc.issuer"),
    (&["server.oidc.caSecret='authority'"], "server.oidc.caSecret needs server.oidc.issuer"),
    (&["server.oidc={'issuer': 'http://id.example', 'clientId': 'berth'}"], "write it as https://id.example"),
    (&["server.oidc={'issuer': 'https://', 'clientId': 'berth'}"], "write it as https://id.example"),
    (
        &["server.oidc={'issuer': 'https://me@id.example', 'clientId': 'berth'}"],
        "write it as https://id.example",
    ),
    (&["networkPolicy.apiServerPorts=[]"], "networkPolicy.apiServerPorts names no port"),
    (&["priorityClass.name=''"], "priorityClass.name is the name of the class that is made"),
    (&["image.tag=1.10"], "image.tag is read as a number"),
];

fn expected(settings: &Settings) -> Objects {
    // Helm makes the namespace itself, when it is asked to.
    by_name(manifest(settings).into_iter().filter(|object| object["kind"] != "Namespace").collect())
}

/// Every setting of a chart by its path; what is empty is one too.
fn settings_in(path: &str, value: &Value, all: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() => fields.iter().for_each(|(name, field)| {
            let dot = if path.is_empty() { "" } else { "." };
            settings_in(&format!("{path}{dot}{name}"), field, all);
        }),
        _ => assert!(all.insert(path.to_owned())),
    }
}

#[test]
fn helm_has_nothing_to_say_against_the_chart() {
    let Some(helm) = Helm::find("the chart, by Helm's own rules") else { return };
    for settings in [&[][..], &[TLS, PROVIDER].concat(), &["server.create=false"]] {
        let mut arguments = vec!["lint".into(), "--strict".into(), chart()];
        arguments.extend(settings_of(settings));
        let said = helm.run(&arguments).unwrap_or_else(|refused| panic!("{settings:?}: {refused}"));
        assert!(said.contains("0 chart(s) failed") && !said.contains("[WARNING]"), "{said}");
    }
}

#[test]
fn the_chart_installs_what_the_manifest_does() {
    let Some(helm) = Helm::find("whether chart and manifest install the same") else { return };
    let rendered = helm.render(NAMESPACE, &[]).expect("the defaults are right");
    for (name, object) in rendered.iter().filter(|(name, _)| !name.starts_with("CustomResource")) {
        let labels = &object["metadata"]["labels"];
        let is_there = |label: &&str| labels[label].is_string();
        assert!(OF_RELEASE.iter().all(is_there), "{name} does not say which release it is of: {labels}");
        assert_eq!(labels["app.kubernetes.io/version"], env!("CARGO_PKG_VERSION"), "{name}");
    }
    let wanted = expected(&Settings::default());
    assert_eq!(difference(&wanted, &without_release(rendered)), [""; 0]);

    let settings = Settings {
        cluster: "lab".into(),
        namespace: "gpus".into(),
        image: "registry.lab:5000/berth:2".into(),
        replicas: 3,
    };
    let chosen =
        ["cluster='lab'", "image={'repository': 'registry.lab:5000/berth', 'tag': '2'}", "replicas=3"];
    let rendered = helm.render("gpus", &chosen).expect("they are right");
    assert_eq!(difference(&expected(&settings), &without_release(rendered)), [""; 0]);
}

#[test]
fn every_setting_does_what_it_says_and_nothing_else() {
    let Some(helm) = Helm::find("the settings of the chart") else { return };
    let text = fs::read_to_string(format!("{}/values.yaml", chart())).expect("the chart has settings");
    let mut all = BTreeSet::new();
    settings_in("", &serde_saphyr::from_str(&text).expect("is YAML"), &mut all);
    let tried: BTreeSet<String> = SETTINGS.iter().map(|(setting, ..)| (*setting).to_owned()).collect();
    let short = |line: String| {
        let line = line.replace("Deployment/berth-operator ", "operator ");
        let line = line.replace("Deployment/berth-server ", "server ").replace("spec.template.spec.", "");
        let line = line.replace("containers[operator].", "").replace("containers[server].", "");
        line.replace(concat!(":", env!("CARGO_PKG_VERSION")), ":VERSION")
    };
    for (setting, value, with, changes) in SETTINGS {
        let before = helm.render(NAMESPACE, with).unwrap_or_else(|refused| panic!("{with:?}: {refused}"));
        let changed = format!("{setting}={value}");
        let after = helm.render(NAMESPACE, &[with, &[&*changed][..]].concat());
        let after = after.unwrap_or_else(|refused| panic!("{changed}: {refused}"));
        let found: Vec<String> = difference(&before, &after).into_iter().map(short).collect();
        assert!(!found.is_empty(), "{changed} has no effect");
        assert_eq!(found, *changes, "{changed}");
    }
    assert_eq!(all, tried, "every setting is tried");
}

#[test]
fn what_would_not_work_is_refused_with_what_to_do() {
    let Some(helm) = Helm::find("what the chart refuses") else { return };
    for (settings, words) in REFUSED {
        let refused = helm.render(NAMESPACE, settings).expect_err(&settings.join(" "));
        assert!(refused.contains(words), "{settings:?}: {refused}");
    }
}

/// The server's are held against it where its command line is.
#[test]
fn every_variable_that_is_set_is_one_that_the_operator_reads() {
    let help = Command::new(env!("CARGO_BIN_EXE_berth-operator")).arg("--help").output().expect("it starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let objects = expected(&Settings::default());
    let container = &objects["Deployment/berth-operator"]["spec"]["template"]["spec"]["containers"][0];
    for variable in container["env"].as_array().expect("a list") {
        let name = variable["name"].as_str().expect("a name");
        assert!(
            name == "RUST_LOG" || help.contains(&format!("[env: {name}=")),
            "{name} is read by nobody: {help}"
        );
    }
}
