//! The operator itself, and what keeps it running and fenced in.

use super::{LOG, OPERATOR, Settings, labels};
use serde_json::{Value, json};

/// Health is served here.
const HTTP_PORT: u16 = 8080;

pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let metadata = json!({ "name": OPERATOR, "namespace": settings.namespace, "labels": labels() });
    vec![
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": OPERATOR, "labels": labels() },
            "description": "The operator of Berth: without it, nothing that waits for a GPU starts.",
            "value": 1_000_000_000, "globalDefault": false,
        }),
        deployment(settings, &metadata),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels() } },
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata,
            "spec": {
                "podSelector": { "matchLabels": labels() },
                "policyTypes": ["Ingress", "Egress"],
                // Whoever may reach it finds whether it is well, and nothing that changes anything.
                "ingress": [{ "ports": [{ "protocol": "TCP", "port": HTTP_PORT }] }],
                // The API server's address differs from cluster to cluster; names are asked for on port 53.
                "egress": [
                    { "ports": [{ "protocol": "TCP", "port": 443 }, { "protocol": "TCP", "port": 6443 }] },
                    { "ports": [{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }] },
                ],
            },
        }),
    ]
}

fn deployment(settings: &Settings, metadata: &Value) -> Value {
    let probe = |path: &str, seconds: u32, failures: u32| {
        json!({
            "httpGet": { "path": path, "port": "http" },
            "periodSeconds": seconds,
            "failureThreshold": failures,
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": settings.replicas,
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "serviceAccountName": OPERATOR,
                    "automountServiceAccountToken": true,
                    "priorityClassName": OPERATOR,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    // Two operators on one node would be lost with it together.
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": { "matchLabels": labels() },
                    }],
                    "containers": [{
                        "name": "operator",
                        "image": settings.image,
                        "command": ["/usr/local/bin/berth-operator"],
                        "env": [
                            { "name": "BERTH_CLUSTER", "value": settings.cluster },
                            { "name": "BERTH_HTTP", "value": format!("0.0.0.0:{HTTP_PORT}") },
                            { "name": "BERTH_NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
                            { "name": "RUST_LOG", "value": LOG },
                        ],
                        "ports": [{ "name": "http", "containerPort": HTTP_PORT }],
                        "startupProbe": probe("/livez", 2, 60),
                        "livenessProbe": probe("/livez", 10, 3),
                        "readinessProbe": probe("/readyz", 5, 2),
                        "resources": {
                            "requests": { "cpu": "250m", "memory": "128Mi" },
                            "limits": { "memory": "1Gi" },
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}
