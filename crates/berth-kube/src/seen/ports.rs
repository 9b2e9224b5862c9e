//! Ports of nodes that Pods want for themselves.

use super::objects::{Container, PodSpec};
use std::collections::BTreeSet;

/// A port of the node that a Pod wants for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostPort {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "UDP" => Self::Udp,
            "SCTP" => Self::Sctp,
            _ => Self::Tcp,
        }
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{:?}", self.port, self.protocol)
    }
}

/// The ports of its node that a Pod wants, whichever of the node's addresses they are at.
pub(crate) fn host_ports(spec: &PodSpec) -> Box<[HostPort]> {
    let wanted = |container: &Container| {
        let ports = container.ports.iter().filter(|port| port.host_port != 0);
        let ports =
            ports.map(|port| HostPort { port: port.host_port, protocol: Protocol::of(&port.protocol) });
        ports.collect::<Vec<_>>()
    };
    // Of what runs before the others, only what stays keeps its ports.
    let stays = spec.init_containers.iter().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports: BTreeSet<HostPort> = stays.chain(&spec.containers).flat_map(wanted).collect();
    ports.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_of_the_node_are_those_that_stay_in_use() {
        let ports = |port: u16, protocol: &str| json!([{ "containerPort": 1, "hostPort": port, "protocol": protocol }]);
        let spec = json!({
            "initContainers": [
                { "name": "before", "ports": ports(1, "TCP") },
                { "name": "beside", "restartPolicy": "Always", "ports": ports(2, "UDP") },
            ],
            "containers": [{ "name": "main", "ports": ports(3, "TCP") }, { "name": "inside", "ports": [{ "containerPort": 4 }] }],
        });
        let spec: PodSpec = serde_json::from_value(spec).expect("what a Pod is to be");
        let found: Vec<String> = host_ports(&spec).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["2/Udp", "3/Tcp"]);
    }
}
