//! How a workload is reached, and how the workers of a gang find each other.

use super::{environment::MASTER_PORT, is_gang, labels, owner};
use crate::{
    api::{ServiceType, Workload, WorkloadKind},
    names,
};
use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort, ServiceSpec},
        networking::v1::{
            HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule,
            IngressServiceBackend, IngressSpec, ServiceBackendPort,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{ResourceExt, api::ObjectMeta};
use std::collections::BTreeMap;

/// The Services of a workload: one without an address by which the workers of a gang find each other, and one for its
/// ports.
pub fn services(workload: &Workload, project: &str) -> Vec<Service> {
    let mut services = Vec::new();
    if is_gang(workload) {
        let mut ports = vec![port("master", MASTER_PORT)];
        ports.extend(named_ports(workload).filter(|port| port.port != MASTER_PORT));
        services.push(Service {
            metadata: metadata(workload, project, workload.name_any()),
            spec: Some(ServiceSpec {
                cluster_ip: Some("None".into()),
                // Workers look for each other before any of them is ready.
                publish_not_ready_addresses: Some(true),
                selector: Some(selector(workload)),
                ports: Some(ports),
                ..ServiceSpec::default()
            }),
            status: None,
        });
    }
    if let Some(name) = ports_service(workload) {
        let mut selector = selector(workload);
        if is_gang(workload) && workload.spec.kind != WorkloadKind::Inference {
            // Of a gang in training, the first worker serves; all of those that serve do.
            selector.insert(names::RANK.into(), "0".into());
        }
        let kind = match workload.spec.service_type.unwrap_or_default() {
            ServiceType::ClusterIP | ServiceType::Ingress => "ClusterIP",
            ServiceType::NodePort => "NodePort",
            ServiceType::LoadBalancer => "LoadBalancer",
        };
        services.push(Service {
            metadata: metadata(workload, project, name),
            spec: Some(ServiceSpec {
                type_: Some(kind.into()),
                selector: Some(selector),
                ports: Some(named_ports(workload).collect()),
                ..ServiceSpec::default()
            }),
            status: None,
        });
    }
    services
}

/// The Ingress of a workload that asks for one: its first port, below a path of its own.
pub fn ingress(workload: &Workload, project: &str) -> Option<Ingress> {
    if workload.spec.service_type != Some(ServiceType::Ingress) {
        return None;
    }
    let service = IngressServiceBackend {
        name: ports_service(workload)?,
        port: Some(ServiceBackendPort { number: workload.spec.ports.first().copied(), name: None }),
    };
    // With a host of its own, all of the host is its own.
    let path = match &workload.spec.ingress_host {
        Some(_) => "/".into(),
        None => format!("/{}/{}", workload.namespace().unwrap_or_default(), workload.name_any()),
    };
    let path = HTTPIngressPath {
        path: Some(path),
        path_type: "Prefix".into(),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    let rule = IngressRule {
        host: workload.spec.ingress_host.clone(),
        http: Some(HTTPIngressRuleValue { paths: vec![path] }),
    };
    Some(Ingress {
        metadata: metadata(workload, project, workload.name_any()),
        spec: Some(IngressSpec { rules: Some(vec![rule]), ..IngressSpec::default() }),
        status: None,
    })
}

/// The name of the Service of its ports, if it has any.
fn ports_service(workload: &Workload) -> Option<String> {
    let name = workload.name_any();
    match (workload.spec.ports.is_empty(), is_gang(workload)) {
        (true, _) => None,
        (false, false) => Some(name),
        // The name itself is that of the gang.
        (false, true) => Some(format!("{name}-ports")),
    }
}

fn metadata(workload: &Workload, project: &str, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: workload.namespace(),
        labels: Some(labels(workload, project)),
        owner_references: owner(workload).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn selector(workload: &Workload) -> BTreeMap<String, String> {
    let mut selector = BTreeMap::from([(names::WORKLOAD.to_owned(), workload.name_any())]);
    selector.extend(workload.uid().map(|uid| (names::WORKLOAD_UID.to_owned(), uid)));
    selector
}

fn named_ports(workload: &Workload) -> impl Iterator<Item = ServicePort> {
    workload.spec.ports.iter().map(|number| port(&format!("port-{number}"), *number))
}

fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.into()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}
