//! The command line of each component.

use crate::{Options, certificates as files};
use std::path::Path;

/// The name of etcd's socket. Both sides name it relative to the folder they run in, since the path of a socket may
/// not be long; and no port means that nobody else on the machine can write into the database.
pub(crate) const ETCD_SOCKET: &str = "etcd.sock";

/// Holders of simulated nodes renew four times within it. Long, because a thousand nodes would renew a hundred times
/// in a second otherwise; a node is lost in a test by removing it.
const LEASE_SECS: u32 = 400;

/// The native gang API and its controllers; off by default in this version.
const FEATURE_GATES: &str = "--feature-gates=GenericWorkload=true,GangScheduling=true";

pub(crate) fn etcd() -> Vec<String> {
    // The address is never listened at: a database of one member calls nobody.
    let nowhere = "http://localhost:1";
    vec![
        "--data-dir=etcd".into(),
        format!("--listen-client-urls=unix://{ETCD_SOCKET}"),
        "--listen-peer-urls=unix://etcd-peer.sock".into(),
        format!("--advertise-client-urls={nowhere}"),
        format!("--initial-advertise-peer-urls={nowhere}"),
        format!("--initial-cluster=default={nowhere}"),
        // Of a killed process nothing is lost; of a machine that loses power nothing is wanted.
        "--unsafe-no-fsync".into(),
        "--quota-backend-bytes=4294967296".into(),
        "--auto-compaction-retention=5m".into(),
        "--log-level=warn".into(),
    ]
}

pub(crate) fn api_server(port: u16, options: &Options) -> Vec<String> {
    // New nodes carry a taint until a controller has looked at them, which nobody does without one and which takes
    // a write per node with one; simulated nodes are ready from the start.
    let mut without = vec!["TaintNodesByCondition"];
    if !options.controller_manager {
        // Nobody makes the service account that every Pod would have to wait for.
        without.push("ServiceAccount");
    }
    let mut arguments = vec![
        format!("--etcd-servers=unix://{ETCD_SOCKET}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", files::SERVER),
        format!("--tls-private-key-file={}", files::SERVER_KEY),
        format!("--client-ca-file={}", files::AUTHORITY),
        format!("--token-auth-file={}", files::TOKENS),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", files::SERVICE_ACCOUNT_PUBLIC_KEY),
        format!("--service-account-signing-key-file={}", files::SERVICE_ACCOUNT_KEY),
        "--endpoint-reconciler-type=none".into(),
        "--allow-privileged=true".into(),
        "--kubelet-preferred-address-types=Hostname".into(),
        format!("--disable-admission-plugins={}", without.join(",")),
        FEATURE_GATES.into(),
        "--runtime-config=scheduling.k8s.io/v1alpha2=true".into(),
    ];
    if options.real_node {
        arguments.extend([
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            format!("--kubelet-certificate-authority={}", files::AUTHORITY),
            format!("--kubelet-client-certificate={}", files::SERVER_CLIENT),
            format!("--kubelet-client-key={}", files::SERVER_CLIENT_KEY),
        ]);
    } else {
        arguments.push("--authorization-mode=RBAC".into());
    }
    if options.audit {
        arguments.extend([
            format!("--audit-policy-file={AUDIT_POLICY}"),
            format!("--audit-log-path={AUDIT_LOG}"),
            "--audit-log-mode=blocking".into(),
        ]);
    }
    arguments
}

pub(crate) const AUDIT_POLICY: &str = "audit-policy.yaml";
pub(crate) const AUDIT_LOG: &str = "audit.log";

/// Who did what to which object, once per request, when it is done.
pub(crate) const AUDIT_RULES: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
";

pub(crate) fn controller_manager(kubeconfig: &Path) -> Vec<String> {
    let mut arguments = client_of(kubeconfig);
    arguments.extend([
        format!("--service-account-private-key-file={}", files::SERVICE_ACCOUNT_KEY),
        format!("--root-ca-file={}", files::AUTHORITY),
        "--flex-volume-plugin-dir=flex".into(),
        format!("--node-monitor-grace-period={}s", LEASE_SECS + 100),
        // The default of 20 requests a second would be the measure of everything that is tested.
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=2000".into(),
        "--concurrent-resourceclaim-syncs=50".into(),
    ]);
    arguments
}

pub(crate) fn scheduler(kubeconfig: &Path) -> Vec<String> {
    let mut arguments = client_of(kubeconfig);
    arguments.extend(["--kube-api-qps=5000".into(), "--kube-api-burst=5000".into()]);
    arguments
}

pub(crate) fn kwok(kubeconfig: &Path, config: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={config}"),
        format!("--node-lease-duration-seconds={LEASE_SECS}"),
    ]
}

fn client_of(kubeconfig: &Path) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        // Nobody asks them anything, and a port that is not there clashes with none.
        "--secure-port=0".into(),
        "--leader-elect=false".into(),
        FEATURE_GATES.into(),
    ]
}
