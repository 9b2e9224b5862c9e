//! The platform's API in front of the cluster: what it may do, and what keeps it running and fenced in.

use super::{LOG, Settings, roles};
use serde_json::{Value, json};

/// The name of everything of it.
const SERVER: &str = "berth-server";
/// Where its API is; ports of workloads are beside it, at the next.
const API_PORT: u16 = 7370;
/// Where it keeps its token, and history for charts.
const FOLDER: &str = "/var/lib/berth";
/// Where a token of the administrator's choice is found.
const TOKEN_FOLDER: &str = "/etc/berth/token";

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "berth", "app.kubernetes.io/component": "server" })
}

pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let namespace = &settings.namespace;
    let rbac = "rbac.authorization.k8s.io/v1";
    let inside = json!({ "name": SERVER, "namespace": namespace, "labels": labels() });
    let everywhere = json!({ "name": SERVER, "labels": labels() });
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside,
            "automountServiceAccountToken": false,
        }),
        json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": everywhere, "rules": roles::server_rules() }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": everywhere,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SERVER },
            "subjects": [{ "kind": "ServiceAccount", "name": SERVER, "namespace": namespace }],
        }),
        deployment(settings, &inside),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": inside,
            "spec": {
                "podSelector": { "matchLabels": labels() },
                "policyTypes": ["Ingress", "Egress"],
                // It listens inside of its Pod only; `kubectl port-forward` reaches it there.
                "ingress": [],
                "egress": [
                    { "ports": [{ "protocol": "TCP", "port": 443 }, { "protocol": "TCP", "port": 6443 }] },
                    { "ports": [{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }] },
                ],
            },
        }),
    ]
}

fn deployment(settings: &Settings, metadata: &Value) -> Value {
    let probe = |seconds: u32, failures: u32| {
        json!({
            "exec": { "command": ["/usr/local/bin/berth-gate", "check"] },
            "periodSeconds": seconds,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 1,
            // History is written by one process.
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "serviceAccountName": SERVER,
                    "automountServiceAccountToken": true,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "server",
                        "image": settings.image,
                        "command": ["/usr/local/bin/berth-gate"],
                        "env": [
                            { "name": "BERTH_HOME", "value": FOLDER },
                            { "name": "BERTH_LISTEN", "value": format!("127.0.0.1:{API_PORT}") },
                            { "name": "BERTH_TOKEN_FILE", "value": format!("{TOKEN_FOLDER}/token") },
                            { "name": "RUST_LOG", "value": LOG },
                        ],
                        // Inside of the Pod only; `kubectl port-forward` reaches both.
                        "ports": [
                            { "name": "api", "containerPort": API_PORT },
                            { "name": "workloads", "containerPort": API_PORT + 1 },
                        ],
                        "startupProbe": probe(2, 60),
                        "livenessProbe": probe(20, 3),
                        "readinessProbe": probe(10, 2),
                        "resources": {
                            "requests": { "cpu": "100m", "memory": "128Mi" },
                            "limits": { "memory": "1Gi" },
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                        "volumeMounts": [
                            { "name": "folder", "mountPath": FOLDER },
                            { "name": "token", "mountPath": TOKEN_FOLDER, "readOnly": true },
                        ],
                    }],
                    "volumes": [
                        // Losing it loses charts, old events, and users with their tokens: a claim keeps them. Nothing of the
                        // cluster is in it.
                        { "name": "folder", "emptyDir": {} },
                        { "name": "token", "secret": { "secretName": "berth-server-token", "optional": true } },
                    ],
                },
            },
        },
    })
}
