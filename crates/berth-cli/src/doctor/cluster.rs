//! What a Kubernetes cluster needs for the operator. The cluster is asked by kubectl, so that this command knows no client.

use super::{on_path, verdict::Check};
use crate::operator::{self, Rule};
use serde_json::{Value, json};
use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The oldest minor version of Kubernetes 1 that the operator runs on.
const MINOR_MIN: u64 = 34;
/// The first minor version in which shares of a device are on by default.
const MINOR_SHARES: u64 = 36;
/// The resource of NVIDIA's device plugin.
const GPU: &str = "nvidia.com/gpu";
const SNAPSHOT_CRDS: [&str; 3] = [
    "volumesnapshotclasses.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
    "volumesnapshots.snapshot.storage.k8s.io",
];
const REQUEST_TIMEOUT: &str = "--request-timeout=15s";

/// How a cluster is asked.
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
}

/// What is known of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) kubectl: bool,
    /// The minor version of the API server, or why it did not answer.
    pub(super) minor: Result<u64, String>,
    pub(super) gpus: Result<u64, String>,
    pub(super) slices: Result<u64, String>,
    pub(super) default_classes: Result<Vec<String>, String>,
    pub(super) missing_snapshot_crds: Result<Vec<String>, String>,
    pub(super) namespace: String,
    pub(super) rights: Result<Rights, String>,
}

/// Rights of the operator, or of the person who would install it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rights {
    /// The operator's account is there; these rights of the manifest it does not have.
    Operator { asked: usize, missing: Vec<String> },
    /// It is not installed; these rights the caller lacks to install it.
    Installer { missing: Vec<String> },
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(file) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(file);
        }
        if let Some(context) = &self.context {
            command.arg("--context").arg(context);
        }
        command.arg(REQUEST_TIMEOUT).args(arguments).stdin(Stdio::null());
        command
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let output =
            self.command(arguments).args(["-o", "json"]).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(last_line(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("kubectl did not print JSON: {error}"))
    }

    /// Creates reviews, which the API server answers and does not keep.
    fn review(&self, reviews: &[Value]) -> Result<Vec<Value>, String> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": reviews });
        let mut child = self
            .command(&["create", "--validate=false", "-f", "-", "-o", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().expect("it was asked for");
        let writer = std::thread::spawn(move || input.write_all(list.to_string().as_bytes()));
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let _ = writer.join();
        if !output.status.success() {
            return Err(last_line(&output.stderr));
        }
        // One document each, or a list of all, by the version of kubectl.
        let mut answers = Vec::new();
        for document in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
            let document = document.map_err(|error| format!("kubectl did not print JSON: {error}"))?;
            match document["items"].as_array() {
                Some(items) => answers.extend(items.iter().cloned()),
                None => answers.push(document),
            }
        }
        match answers.len() == reviews.len() {
            true => Ok(answers),
            false => Err(format!("{} of {} reviews were answered", answers.len(), reviews.len())),
        }
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("kubectl failed").to_owned()
}

pub(super) fn gather(kubectl: &Kubectl, namespace: &str) -> Facts {
    let is_there = kubectl.program.is_absolute() || on_path(&kubectl.program.to_string_lossy()).is_some();
    let minor = match is_there {
        true => kubectl.json(&["version"]).and_then(|answer| minor_of(&answer)),
        false => Err("kubectl is not installed".into()),
    };
    if let Err(reason) = &minor {
        // Nobody answers; each further question would only say the same again, later.
        return Facts {
            kubectl: is_there,
            gpus: Err(reason.clone()),
            slices: Err(reason.clone()),
            default_classes: Err(reason.clone()),
            missing_snapshot_crds: Err(reason.clone()),
            namespace: namespace.to_owned(),
            rights: Err(reason.clone()),
            minor,
        };
    }
    Facts {
        kubectl: is_there,
        minor,
        gpus: kubectl.json(&["get", "nodes"]).map(|nodes| gpus_of(&nodes)),
        slices: kubectl.json(&["get", "resourceslices.resource.k8s.io"]).map(|slices| devices_of(&slices)),
        default_classes: kubectl.json(&["get", "storageclasses"]).map(|classes| defaults_of(&classes)),
        missing_snapshot_crds: kubectl
            .json(&["get", "customresourcedefinitions"])
            .map(|crds| missing_crds(&crds)),
        namespace: namespace.to_owned(),
        rights: rights(kubectl, namespace),
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn minor_of(version: &Value) -> Result<u64, String> {
    let server = &version["serverVersion"];
    let digits: String =
        server["minor"].as_str().unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
    match (server["major"].as_str(), digits.parse()) {
        (Some("1"), Ok(minor)) => Ok(minor),
        _ => Err(format!("the API server did not say its version: {server}")),
    }
}

fn gpus_of(nodes: &Value) -> u64 {
    let gpus =
        |node: &Value| node["status"]["allocatable"][GPU].as_str().and_then(|text| text.parse::<u64>().ok());
    items(nodes).filter_map(gpus).sum()
}

fn devices_of(slices: &Value) -> u64 {
    items(slices).map(|slice| slice["spec"]["devices"].as_array().map_or(0, Vec::len) as u64).sum()
}

fn defaults_of(classes: &Value) -> Vec<String> {
    let is_default = |class: &&Value| {
        class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    };
    let name = |class: &Value| class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items(classes).filter(is_default).map(name).collect()
}

fn missing_crds(crds: &Value) -> Vec<String> {
    let there = |name: &&str| items(crds).any(|crd| crd["metadata"]["name"] == **name);
    SNAPSHOT_CRDS.into_iter().filter(|name| !there(name)).map(str::to_owned).collect()
}

fn rights(kubectl: &Kubectl, namespace: &str) -> Result<Rights, String> {
    let account = kubectl.json(&["get", "serviceaccount", operator::ACCOUNT, "-n", namespace]);
    let refused = |answers: &[Value], words: Vec<String>| {
        let allowed = answers.iter().map(|answer| answer["status"]["allowed"] == true);
        words
            .into_iter()
            .zip(allowed)
            .filter(|(_, allowed)| !allowed)
            .map(|(word, _)| word)
            .collect::<Vec<_>>()
    };
    let rules = match account {
        Ok(_) => operator::rules(namespace).map_err(|error| error.to_string())?,
        Err(error) if error.contains("NotFound") => {
            let answers = kubectl.review(&reviews(&installer_rules(namespace), None))?;
            let missing = refused(&answers, installer_rules(namespace).iter().map(Rule::to_string).collect());
            return Ok(Rights::Installer { missing });
        }
        Err(error) => return Err(error),
    };
    let user = format!("system:serviceaccount:{namespace}:{}", operator::ACCOUNT);
    let answers = kubectl.review(&reviews(&rules, Some(&user)))?;
    let missing = refused(&answers, rules.iter().map(Rule::to_string).collect());
    Ok(Rights::Operator { asked: rules.len(), missing })
}

/// What a person needs to apply the manifest.
fn installer_rules(namespace: &str) -> Vec<Rule> {
    let all = [
        ("apiextensions.k8s.io", "customresourcedefinitions", None),
        ("rbac.authorization.k8s.io", "clusterroles", None),
        ("rbac.authorization.k8s.io", "clusterrolebindings", None),
        ("", "namespaces", None),
        ("", "serviceaccounts", Some(namespace)),
        ("apps", "deployments", Some(namespace)),
    ];
    let rule = |(group, resource, namespace): (&str, &str, Option<&str>)| Rule {
        group: group.into(),
        resource: resource.into(),
        verb: "create".into(),
        name: None,
        namespace: namespace.map(str::to_owned),
    };
    all.into_iter().map(rule).collect()
}

fn reviews(rules: &[Rule], user: Option<&str>) -> Vec<Value> {
    let review = |rule: &Rule| {
        let (resource, subresource) = rule.resource.split_once('/').unwrap_or((&rule.resource, ""));
        let attributes = json!({
            "group": rule.group, "resource": resource, "subresource": subresource, "verb": rule.verb,
            "name": rule.name.clone().unwrap_or_default(), "namespace": rule.namespace.clone().unwrap_or_default(),
        });
        match user {
            Some(user) => json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": { "user": user, "resourceAttributes": attributes } }),
            None => json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": attributes } }),
        }
    };
    rules.iter().map(review).collect()
}

/// The verdict on each of the facts. Without an answer of the cluster there is one.
pub(super) fn check(facts: &Facts) -> Vec<Check> {
    if !facts.kubectl {
        let fix =
            "install kubectl (https://kubernetes.io/docs/tasks/tools/); this command asks the cluster by it";
        return vec![Check::failure("kubectl", "not found on the PATH", fix)];
    }
    let minor = match &facts.minor {
        Ok(minor) => *minor,
        Err(reason) => {
            let fix = "name a kubeconfig with --kubeconfig FILE and a context with --kube-context NAME; `kubectl version` must answer";
            return vec![Check::failure("API server", format!("it does not answer: {reason}"), fix)];
        }
    };
    vec![
        check_version(minor),
        check_gpus(facts),
        check_class(facts),
        check_snapshots(facts),
        check_rights(facts),
    ]
}

fn check_version(minor: u64) -> Check {
    const NAME: &str = "API server";
    match minor {
        ..MINOR_MIN => Check::failure(
            NAME,
            format!("Kubernetes 1.{minor}; Berth needs 1.{MINOR_MIN} or newer"),
            "upgrade the cluster",
        ),
        MINOR_MIN..MINOR_SHARES => Check::warning(
            NAME,
            format!("Kubernetes 1.{minor}; shares of a GPU are off by default before 1.{MINOR_SHARES}"),
            "upgrade the cluster, or switch the feature gate DRAConsumableCapacity on",
        ),
        _ => Check::ok(NAME, format!("Kubernetes 1.{minor}")),
    }
}

fn check_gpus(facts: &Facts) -> Check {
    const NAME: &str = "GPUs";
    let slices = facts.slices.as_ref().copied().unwrap_or(0);
    let no_slices = match &facts.slices {
        Ok(_) => "no ResourceSlice has a device".to_owned(),
        Err(reason) => format!("ResourceSlices cannot be listed ({reason})"),
    };
    match &facts.gpus {
        Err(reason) => unknown(NAME, reason, "list nodes"),
        Ok(0) if slices == 0 => Check::failure(
            NAME,
            format!("no node offers {GPU}, and {no_slices}"),
            "install NVIDIA's GPU operator, its device plugin, or a DRA driver, and wait until `kubectl get resourceslices` lists devices",
        ),
        Ok(gpus) if slices == 0 => Check::warning(
            NAME,
            format!("{gpus} x {GPU}, and {no_slices}: shares of a GPU need ResourceSlices"),
            "install a DRA driver to share GPUs; whole GPUs work without",
        ),
        Ok(gpus) => Check::ok(NAME, format!("{slices} devices in ResourceSlices, {gpus} x {GPU}")),
    }
}

fn check_class(facts: &Facts) -> Check {
    const NAME: &str = "Storage class";
    let fix =
        "mark one: `kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true`";
    match facts.default_classes.as_deref() {
        Err(reason) => unknown(NAME, reason, "list storage classes"),
        Ok([]) => {
            Check::warning(NAME, "there is no default: volumes must name a class, or wait forever", fix)
        }
        Ok([one]) => Check::ok(NAME, format!("{one} is the default")),
        Ok(many) => Check::warning(
            NAME,
            format!("{} are all the default: the newest is used", many.join(", ")),
            "remove the annotation from all but one",
        ),
    }
}

fn check_snapshots(facts: &Facts) -> Check {
    const NAME: &str = "Snapshots";
    match facts.missing_snapshot_crds.as_deref() {
        Err(reason) => unknown(NAME, reason, "list custom resource definitions"),
        Ok([]) => Check::ok(NAME, "the snapshot CRDs are installed"),
        Ok(missing) => Check::warning(
            NAME,
            format!("missing: {}", missing.join(", ")),
            "install the CRDs and the controller of kubernetes-csi/external-snapshotter",
        ),
    }
}

fn check_rights(facts: &Facts) -> Check {
    const NAME: &str = "Operator's rights";
    let namespace = &facts.namespace;
    match &facts.rights {
        Err(reason) => unknown(NAME, reason, "create subject access reviews"),
        Ok(Rights::Operator { asked, missing }) if missing.is_empty() => {
            Check::ok(NAME, format!("all {asked} rights of the manifest are granted in {namespace}"))
        }
        Ok(Rights::Operator { asked, missing }) => Check::failure(
            NAME,
            format!("{} of {asked} rights are missing: {}", missing.len(), some(missing)),
            format!(
                "apply the manifest again: `berth operator manifest --cluster NAME --namespace {namespace} | kubectl apply --server-side -f -`"
            ),
        ),
        Ok(Rights::Installer { missing }) if missing.is_empty() => Check::ok(
            NAME,
            format!(
                "the operator is not installed in {namespace}; you may install it (`berth operator manifest`)"
            ),
        ),
        Ok(Rights::Installer { missing }) => Check::failure(
            NAME,
            format!("the operator is not installed in {namespace}, and you may not {}", some(missing)),
            "ask a cluster administrator to apply `berth operator manifest --cluster NAME`",
        ),
    }
}

fn unknown(name: &'static str, reason: &str, right: &str) -> Check {
    Check::warning(name, format!("not known: {reason}"), format!("use a kubeconfig that may {right}"))
}

/// The first few, and how many more.
fn some(words: &[String]) -> String {
    const SHOWN: usize = 5;
    let more =
        if words.len() > SHOWN { format!(", and {} more", words.len() - SHOWN) } else { String::new() };
    words.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::{super::verdict::Verdict, *};

    fn sound() -> Facts {
        Facts {
            kubectl: true,
            minor: Ok(36),
            gpus: Ok(8),
            slices: Ok(8),
            default_classes: Ok(vec!["fast".into()]),
            missing_snapshot_crds: Ok(Vec::new()),
            namespace: "berth-system".into(),
            rights: Ok(Rights::Operator { asked: 90, missing: Vec::new() }),
        }
    }

    #[test]
    fn a_sound_cluster_passes_every_check() {
        for check in check(&sound()) {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn each_fault_is_found_alone_and_has_a_fix() {
        type Break = fn(&mut Facts);
        let faults: [(&str, Verdict, &str, Break); 12] = [
            ("kubectl", Verdict::Failure, "install kubectl", |facts| facts.kubectl = false),
            ("API server", Verdict::Failure, "--kubeconfig", |facts| facts.minor = Err("refused".into())),
            ("API server", Verdict::Failure, "upgrade", |facts| facts.minor = Ok(33)),
            ("API server", Verdict::Warning, "DRAConsumableCapacity", |facts| facts.minor = Ok(35)),
            ("GPUs", Verdict::Failure, "DRA driver", |facts| (facts.gpus, facts.slices) = (Ok(0), Ok(0))),
            ("GPUs", Verdict::Warning, "DRA driver", |facts| facts.slices = Err("no such resource".into())),
            ("Storage class", Verdict::Warning, "annotate", |facts| facts.default_classes = Ok(Vec::new())),
            ("Storage class", Verdict::Warning, "all but one", |facts| {
                facts.default_classes = Ok(vec!["a".into(), "b".into()]);
            }),
            ("Storage class", Verdict::Warning, "may list", |facts| {
                facts.default_classes = Err("Forbidden".into())
            }),
            ("Snapshots", Verdict::Warning, "external-snapshotter", |facts| {
                facts.missing_snapshot_crds = Ok(vec!["x".into()]);
            }),
            ("Operator's rights", Verdict::Failure, "berth operator manifest", |facts| {
                facts.rights = Ok(Rights::Operator { asked: 9, missing: vec!["list pods".into()] });
            }),
            ("Operator's rights", Verdict::Failure, "administrator", |facts| {
                facts.rights = Ok(Rights::Installer { missing: vec!["create namespaces".into()] });
            }),
        ];
        for (name, verdict, fix, fault) in faults {
            let mut facts = sound();
            fault(&mut facts);
            let found: Vec<Check> =
                check(&facts).into_iter().filter(|check| check.verdict != Verdict::Ok).collect();
            let [one] = &found[..] else { panic!("{name}: {found:?}") };
            assert_eq!((one.name, one.verdict), (name, verdict), "{one:?}");
            assert!(one.fix.as_deref().is_some_and(|text| text.contains(fix)), "{one:?}");
        }
    }

    #[test]
    fn answers_of_kubectl_are_understood() {
        assert_eq!(minor_of(&json!({"serverVersion": {"major": "1", "minor": "36+"}})), Ok(36));
        assert!(minor_of(&json!({"clientVersion": {"major": "1", "minor": "36"}})).is_err());
        let nodes = json!({"items": [{"status": {"allocatable": {GPU: "8", "cpu": "4"}}}, {"status": {}}]});
        assert_eq!(gpus_of(&nodes), 8);
        let slices = json!({"items": [{"spec": {"devices": [{}, {}]}}, {"spec": {}}]});
        assert_eq!(devices_of(&slices), 2);
        let yes = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let classes =
            json!({"items": [{"metadata": {"name": "a", "annotations": yes}}, {"metadata": {"name": "b"}}]});
        assert_eq!(defaults_of(&classes), ["a"]);
        let crds = json!({"items": [{"metadata": {"name": SNAPSHOT_CRDS[0]}}]});
        assert_eq!(missing_crds(&crds), SNAPSHOT_CRDS[1..]);
    }

    #[test]
    fn rights_of_the_manifest_become_reviews() {
        let rules = operator::rules("gpus").expect("the manifest is ours");
        let reviews = reviews(&rules, Some("system:serviceaccount:gpus:berth-operator"));
        let attributes = |review: &Value| review["spec"]["resourceAttributes"].clone();
        assert!(
            reviews
                .iter()
                .map(attributes)
                .any(|asked| asked["resource"] == "nodes" && asked["verb"] == "watch")
        );
        let leases: Vec<Value> =
            reviews.iter().map(attributes).filter(|asked| asked["resource"] == "leases").collect();
        assert!(!leases.is_empty() && leases.iter().all(|asked| asked["namespace"] == "gpus"), "{leases:?}");
        assert!(
            reviews
                .iter()
                .map(attributes)
                .any(|asked| asked["resource"] == "pods" && asked["subresource"] == "binding"),
            "a subresource stands apart"
        );
    }
}
