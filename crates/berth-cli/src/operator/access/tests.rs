use super::{super::BETWEEN, *};
use berth_api::MANIFEST;
use clap::{Args, FromArgMatches};
use std::collections::BTreeSet;

/// The chart says the same in its own language.
const CHART: &str = concat!(
    include_str!("../../../../../deploy/helm/berth/templates/server.yaml"),
    include_str!("../../../../../deploy/helm/berth/templates/_names.tpl"),
);

fn access(line: &str) -> Result<ServerAccess, clap::Error> {
    let command = ServerAccess::augment_args(clap::Command::new("manifest").no_binary_name(true));
    ServerAccess::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
}

fn everything() -> ServerAccess {
    access(
        "--tls-secret cert --public-name berth.example --oidc-issuer https://id.example:8443/realms/lab --oidc-client-id berth \
         --oidc-client-secret client --oidc-user-claim sub --oidc-groups-claim teams --oidc-name Lab --oidc-ca-secret authority",
    )
    .expect("is understood")
}

/// The objects of the server alone: the definitions of resources are long.
fn plain() -> Vec<Value> {
    let texts = MANIFEST.split(BETWEEN).filter(|text| text.contains(OF_SERVER));
    texts.map(|text| serde_saphyr::from_str(text).expect("is YAML")).collect()
}

fn installed(access: &ServerAccess) -> Vec<Value> {
    access.check().expect("is right");
    let mut objects = plain();
    let more: Vec<Value> = objects.iter_mut().filter_map(|object| access.add_to(object)).collect();
    objects.extend(more);
    objects
}

fn of_server<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).expect("is there")
}

fn container(objects: &[Value]) -> &Value {
    &of_server(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
}

fn variable<'a>(objects: &'a [Value], name: &str) -> Option<&'a str> {
    let all = container(objects)["env"].as_array().expect("a list");
    all.iter().find(|variable| variable["name"] == name).and_then(|variable| variable["value"].as_str())
}

#[test]
fn without_options_everything_stays_as_it_is() {
    assert!(!ServerAccess::default().is_any());
    assert_eq!(installed(&ServerAccess::default()), plain());
    let kinds: Vec<_> = plain().iter().map(|object| object["kind"].to_string().replace('"', "")).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy"]);
}

#[test]
fn a_certificate_opens_the_server_and_its_probes_speak_tls() {
    let objects = installed(&access("--tls-secret cert --public-name berth.example").expect("is understood"));
    assert_eq!(variable(&objects, "BERTH_LISTEN"), Some("0.0.0.0:7370"));
    assert_eq!(variable(&objects, "BERTH_TLS_CERT"), Some("/etc/berth/tls/tls.crt"));
    assert_eq!(variable(&objects, "BERTH_TLS_KEY"), Some("/etc/berth/tls/tls.key"));
    assert_eq!(variable(&objects, "BERTH_PUBLIC_NAME"), Some("berth.example"));
    assert_eq!(variable(&objects, "BERTH_OIDC_ISSUER"), None);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container(&objects)[probe];
        assert_eq!(probe["httpGet"], json!({ "path": "/healthz", "port": "api", "scheme": "HTTPS" }));
        assert!(probe["exec"].is_null() && probe["periodSeconds"].is_u64(), "{probe}");
    }
    let service = of_server(&objects, "Service");
    let labels = &of_server(&objects, "Deployment")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (&service["spec"]["selector"], service["spec"]["ports"][0]["port"].as_u64()),
        (labels, Some(7370))
    );
    let ports = json!([{ "ports": [tcp(7370), tcp(7371)] }]);
    assert_eq!(of_server(&objects, "NetworkPolicy")["spec"]["ingress"], ports);
}

#[test]
fn single_sign_on_takes_its_secrets_by_reference() {
    let objects =
        installed(&access("--oidc-issuer https://id.example --oidc-client-id berth").expect("is understood"));
    assert_eq!(variable(&objects, "BERTH_OIDC_ISSUER"), Some("https://id.example"));
    assert_eq!(variable(&objects, "BERTH_OIDC_CLIENT_ID"), Some("berth"));
    assert_eq!(variable(&objects, "BERTH_LISTEN"), Some("127.0.0.1:7370"), "it opens nothing");
    let policy = |objects: &[Value]| of_server(objects, "NetworkPolicy")["spec"]["egress"].clone();
    let before = policy(&installed(&ServerAccess::default()));
    assert_eq!(policy(&objects), before, "its port is open already");

    let objects = installed(&everything());
    assert_eq!(variable(&objects, "BERTH_OIDC_CLIENT_SECRET_FILE"), Some("/etc/berth/oidc/client-secret"));
    assert_eq!(variable(&objects, "BERTH_OIDC_CA_FILE"), Some("/etc/berth/oidc-ca/ca.crt"));
    assert!(policy(&objects).as_array().expect("a list").contains(&json!({ "ports": [tcp(8443)] })));
    let volumes = of_server(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"].to_string();
    for secret in ["cert", "client", "authority"] {
        assert!(volumes.contains(&json!({ "secretName": secret }).to_string()), "{secret}: {volumes}");
    }
}

/// What the manifest says, the server understands, and the chart says too.
#[test]
fn the_server_and_the_chart_know_every_word() {
    let objects = installed(&everything());
    let known = berth_server::Access::augment_args(clap::Command::new("server"));
    let known = known.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let known: BTreeSet<&str> =
        known.chain(["BERTH_HOME", "BERTH_LISTEN", "BERTH_TOKEN_FILE", "RUST_LOG"]).collect();
    for variable in container(&objects)["env"].as_array().expect("a list") {
        let name = variable["name"].as_str().expect("a name");
        assert!(known.contains(name), "the server does not know {name}");
        assert!(CHART.contains(&format!("name: {name}\n")), "the chart does not set {name}");
    }
    for mount in container(&objects)["volumeMounts"].as_array().expect("a list") {
        let folder = mount["mountPath"].as_str().expect("a path");
        assert!(CHART.contains(&format!("mountPath: {folder}")), "the chart does not mount {folder}");
    }
    assert!(CHART.contains("scheme: HTTPS") && CHART.contains("kind: Service\n"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "--tls-secret cert",
        "--public-name berth.example",
        "--oidc-issuer https://id.example",
        "--oidc-client-id berth",
        "--oidc-client-secret client",
    ] {
        assert!(access(line).is_err(), "{line}");
    }
    for line in [
        "--tls-secret a/b --public-name berth.example",
        "--tls-secret cert --public-name https://berth.example",
        "--oidc-issuer http://id.example --oidc-client-id berth",
        "--oidc-issuer https:// --oidc-client-id berth",
        "--oidc-issuer https://id.example:port --oidc-client-id berth",
        "--oidc-issuer https://me@id.example --oidc-client-id berth",
    ] {
        assert!(access(line).expect("is understood").check().is_err(), "{line}");
    }
}
