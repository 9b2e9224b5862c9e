//! Ports of nodes: one Pod at a time has one, and whoever finds none waits for it.

use super::{World, start::StartTask};
use crate::{
    api, guard,
    seen::{
        Refusal, Text,
        nodes_for::NodesFor,
        pod::PodSeen,
        ports::{HostPort, Protocol},
    },
};
use berth_types::WorkloadId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The reason of whoever waits for a port.
const PORT_IN_USE: &str = "PortInUse";

/// Ports of nodes that were promised to groups whose Pods are not there yet.
#[derive(Debug, Default)]
pub(crate) struct PromisedPorts(BTreeMap<(Text, HostPort), WorkloadId>);

impl PromisedPorts {
    /// A Pod has its ports, or has left them.
    pub(super) fn settle(&mut self, node: &Text, ports: &[HostPort]) {
        for port in ports {
            self.0.remove(&(node.clone(), *port));
        }
    }

    pub(super) fn forget(&mut self, id: WorkloadId) {
        self.0.retain(|_, of| *of != id);
    }
}

impl World {
    /// Promises ports of nodes to a group that is to start there; or says which is promised to another.
    pub(super) fn promise_ports(&mut self, id: WorkloadId, tasks: &[StartTask]) -> Result<(), Refusal> {
        let of_workload = self.groups[&id].workload.as_deref().map(ports_of).unwrap_or_default();
        let mut wanted: BTreeSet<(Text, HostPort)> = BTreeSet::new();
        for task in tasks {
            let pod = task.waiting.as_ref().and_then(|waiting| self.pods.get(&waiting.uid));
            let ports = pod.map_or(&*of_workload, |pod| &pod.ports);
            wanted.extend(ports.iter().map(|port| (task.node.name.as_str().into(), *port)));
        }
        let other = |at: &&(Text, HostPort)| self.promised_ports.0.get(*at).is_some_and(|of| *of != id);
        if let Some((node, port)) = wanted.iter().find(other) {
            let text = format!("port {port} of node {node} is promised to another Pod");
            return Err(Refusal::new(PORT_IN_USE, text));
        }
        self.promised_ports.0.extend(wanted.into_iter().map(|at| (at, id)));
        Ok(())
    }

    /// Whether some node that could be used has the ports that are wanted; where none can be used at all, ports are not why.
    pub(super) fn some_node_has_ports(&self, demand: &NodesFor) -> Result<(), Refusal> {
        if !demand.wants_ports() {
            return Ok(());
        }
        let mut usable = self.nodes.values().filter(|node| node.is_accepted_by(demand)).peekable();
        if usable.peek().is_none() || usable.any(|node| node.has_ports_for(demand)) {
            return Ok(());
        }
        let text = "every node it may use has another Pod at a port that it wants of its node";
        Err(Refusal::new(PORT_IN_USE, text))
    }

    /// A port is free again: whoever waits for one is looked at.
    pub(super) fn touch_ports(&mut self) {
        let waits = |refusal: &Refusal| refusal.reason == PORT_IN_USE;
        let groups = self.groups.iter().filter(|(_, group)| group.refusal.as_ref().is_some_and(waits));
        self.dirty.extend(groups.map(|(id, _)| *id));
    }
}

/// Whether two of these Pods want the same port of a node.
pub(super) fn have_common_port(pods: &[Arc<PodSeen>]) -> bool {
    let mut ports = BTreeSet::new();
    pods.iter().flat_map(|pod| pod.ports.iter()).any(|port| !ports.insert(*port))
}

/// Ports of its node that every Pod of a Workload wants.
pub(super) fn ports_of(workload: &api::Workload) -> Vec<HostPort> {
    let template = guard::template(workload).ok().flatten().and_then(|template| template.0.spec);
    let template = template.unwrap_or_default();
    let on_host = workload.spec.host_network || template.host_network == Some(true);
    let mut ports: BTreeSet<HostPort> = BTreeSet::new();
    let mut want = |port: i64, protocol: &str| {
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        ports.extend(port.map(|port| HostPort { port, protocol: Protocol::of(protocol) }));
    };
    let containers = template.containers.iter().chain(template.init_containers.iter().flatten());
    for port in containers.flat_map(|container| container.ports.iter().flatten()) {
        let protocol = port.protocol.as_deref().unwrap_or_default();
        want(i64::from(port.host_port.unwrap_or(0)), protocol);
        // On the network of the host, a port of a container is one of the node.
        want(i64::from(if on_host { port.container_port } else { 0 }), protocol);
    }
    if on_host {
        workload.spec.ports.iter().for_each(|port| want(i64::from(*port), ""));
    }
    ports.into_iter().collect()
}
