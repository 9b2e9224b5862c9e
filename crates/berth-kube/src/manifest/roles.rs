//! What the operator may do, verb by verb, and what people may do who submit work.

use super::{OPERATOR, RESEARCHER, Settings, labels};
use crate::names;
use serde_json::{Value, json};

/// Group, resources, verbs.
type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);

const READ: &[&str] = &["get", "list", "watch"];
const SEE: &[&str] = &["list", "watch"];

/// What the operator may do in the whole cluster.
const OPERATOR_RULES: [Rule; 26] = [
    // What is there.
    ("", &["nodes"], SEE),
    ("resource.k8s.io", &["resourceslices"], SEE),
    ("scheduling.k8s.io", &["podgroups"], SEE),
    (names::GROUP, &["departments", "nodepools", "workloads"], SEE),
    (names::GROUP, &["projects"], READ),
    // Whoever made Pods that wait says how many of them start together.
    ("batch", &["jobs"], &["get"]),
    ("jobset.x-k8s.io", &["jobsets"], &["get"]),
    ("leaderworkerset.x-k8s.io", &["leaderworkersets"], &["get"]),
    ("kubeflow.org", &["jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"], &["get"]),
    ("ray.io", &["rayclusters"], &["get"]),
    // Pods of workloads are made and taken away; those of others are bound and evicted.
    ("", &["pods"], &["create", "delete", "get", "list", "watch"]),
    ("", &["pods/binding", "pods/eviction"], &["create"]),
    ("", &["pods/status"], &["patch"]),
    // Volumes: where they can be reached, and for which node one is to be made.
    ("", &["persistentvolumes"], &["list", "patch", "watch"]),
    ("storage.k8s.io", &["storageclasses"], SEE),
    ("", &["persistentvolumeclaims"], &["get", "list", "patch", "watch"]),
    // Devices: the ledger of the node, then the claim.
    (names::GROUP, &["deviceledgers"], &["create", "get", "list", "update"]),
    ("resource.k8s.io", &["resourceclaims"], &["create", "get", "list", "patch", "watch"]),
    ("resource.k8s.io", &["resourceclaims/binding", "resourceclaims/status"], &["patch"]),
    // What is said about it.
    (names::GROUP, &["workloads/status"], &["patch"]),
    ("events.k8s.io", &["events"], &["create"]),
    // How workloads are reached.
    ("", &["services"], &["create", "patch"]),
    ("networking.k8s.io", &["ingresses"], &["create", "patch"]),
    // What projects get.
    ("", &["namespaces"], &["create", "get", "list", "patch", "watch"]),
    ("", &["serviceaccounts"], &["create", "patch"]),
    ("rbac.authorization.k8s.io", &["rolebindings"], &["create", "patch"]),
];

/// What the operator may do in its own namespace.
const OWN_RULES: [Rule; 1] = [("coordination.k8s.io", &["leases"], &["create", "get", "update"])];

/// What the server in front of the cluster may do: see what the operator sees, and change what people ask it to.
const SERVER_RULES: [Rule; 12] = [
    ("", &["nodes"], &["list", "patch", "watch"]),
    ("resource.k8s.io", &["resourceclaims", "resourceslices"], SEE),
    ("scheduling.k8s.io", &["podgroups"], SEE),
    (names::GROUP, &["nodepools"], SEE),
    (names::GROUP, &["departments", "projects"], &["create", "delete", "get", "list", "update", "watch"]),
    (names::GROUP, &["workloads"], &["create", "delete", "get", "list", "patch", "watch"]),
    // How far workloads are, and when they saved their state.
    (names::GROUP, &["workloads/status"], &["patch"]),
    ("", &["pods"], &["list", "patch", "watch"]),
    ("", &["pods/log"], &["get"]),
    // Shells, terminals and ports. A socket is opened by a GET, for which the API server asks for both verbs.
    ("", &["pods/attach", "pods/exec", "pods/portforward"], &["create", "get"]),
    ("", &["persistentvolumeclaims"], &["create", "delete", "list", "watch"]),
    // A node that is being emptied.
    ("", &["pods/eviction"], &["create"]),
];

/// What people may do who submit work, where they are members.
const RESEARCHER_RULES: [Rule; 4] = [
    (names::GROUP, &["workloads"], &["create", "delete", "get", "list", "patch", "update", "watch"]),
    ("", &["pods", "pods/log", "services", "persistentvolumeclaims", "events"], READ),
    ("events.k8s.io", &["events"], READ),
    ("resource.k8s.io", &["resourceclaims"], READ),
];

fn rules(rules: &[Rule]) -> Vec<Value> {
    let one = |(group, resources, verbs): &Rule| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    rules.iter().map(one).collect()
}

/// What the operator may do in the whole cluster, as rules of a cluster role.
pub fn operator_rules() -> Vec<Value> {
    let mut all = rules(&OPERATOR_RULES);
    // It may bind this one role to members of projects, and no other.
    all.push(json!({
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": [RESEARCHER],
        "verbs": ["bind"],
    }));
    all
}

/// What the operator may do in its own namespace, as rules of a role.
pub fn own_rules() -> Vec<Value> {
    rules(&OWN_RULES)
}

/// What the server in front of the cluster may do, as rules of a cluster role.
pub fn server_rules() -> Vec<Value> {
    rules(&SERVER_RULES)
}

/// What members of a project may do in its namespaces, as rules of a cluster role.
pub fn researcher_rules() -> Vec<Value> {
    rules(&RESEARCHER_RULES)
}

pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let namespace = &settings.namespace;
    let subject = json!([{ "kind": "ServiceAccount", "name": OPERATOR, "namespace": namespace }]);
    let reference =
        |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": OPERATOR });
    let rbac = "rbac.authorization.k8s.io/v1";
    let inside = json!({ "name": OPERATOR, "namespace": namespace, "labels": labels() });
    let everywhere = json!({ "name": OPERATOR, "labels": labels() });
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside,
            // The one Pod that needs a token asks for it.
            "automountServiceAccountToken": false,
        }),
        json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": everywhere, "rules": operator_rules() }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": everywhere,
            "roleRef": reference("ClusterRole"), "subjects": subject,
        }),
        json!({ "apiVersion": rbac, "kind": "Role", "metadata": inside, "rules": own_rules() }),
        json!({
            "apiVersion": rbac, "kind": "RoleBinding", "metadata": inside,
            "roleRef": reference("Role"), "subjects": subject,
        }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRole",
            "metadata": { "name": RESEARCHER, "labels": { "app.kubernetes.io/name": "berth" } },
            "rules": researcher_rules(),
        }),
    ]
}
