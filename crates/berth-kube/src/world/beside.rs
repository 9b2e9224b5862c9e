//! How the Pods of a group are placed beside each other: by what they say, by their native group, and by ports of the node that
//! two of them cannot have.

use super::{World, groups::GroupKey, start::StartTask};
use crate::{
    api, guard,
    seen::{
        Key, Refusal, Text,
        beside::{Beside, HostPort, Protocol},
        native::NativeGroupSeen,
        nodes_for::NodesFor,
        pod::{Member, PodSeen},
    },
};
use berth_types::{Spread, Topology, WorkloadId};
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
    /// How the Pods of a group are laid out.
    pub(super) fn layout_of(
        &self,
        key: &GroupKey,
        pods: &[Arc<PodSeen>],
    ) -> Result<(Topology, Spread), Refusal> {
        let nothing = Beside::default();
        let wishes = |pod: &Arc<PodSeen>| pod.beside.clone();
        let said = pods.first().and_then(wishes);
        if pods.iter().any(|pod| pod.beside != said) {
            let text = "its Pods differ in how they want to be placed beside each other; those that start together must say the same";
            return Err(Refusal::new("MixedGroup", text));
        }
        let said = said.as_deref().unwrap_or(&nothing);
        let mut topology = Topology { required: said.required.clone(), preferred: said.preferred.clone() };
        if let GroupKey::Native(key) = key
            && let Some(native) = self.native.get(key)
        {
            if let Some(refusal) = &native.refusal {
                return Err(refusal.clone());
            }
            let level = native.level.clone();
            if level.is_some() && topology.required.is_some() && topology.required != level {
                let text = format!("its Pods and PodGroup {} name different topologies", key.name);
                return Err(Refusal::new("UnsupportedConstraint", text));
            }
            topology.required = topology.required.or(level);
        }
        Ok((topology, if has_common_port(pods) { Spread::Apart } else { said.spread }))
    }

    pub(super) fn on_native_group(&mut self, group: NativeGroupSeen) {
        let key = group.key.clone();
        self.touch_native(&key);
        self.native.insert(key.clone(), group);
        // Pods that came before their group waited together; nothing of them is under way.
        let waiting = self.by_key.get(&GroupKey::Native(key.clone())).copied();
        if self.is_each_alone(&key)
            && let Some(id) = waiting
        {
            self.part_pods(id);
        }
    }

    /// How many Pods of a native group start together.
    pub(super) fn native_size(&self, key: &Key) -> Result<u32, Refusal> {
        let text = || format!("there is no PodGroup {} that says how many Pods start together", key.name);
        let group = self.native.get(key).ok_or_else(|| Refusal::new("NoGroup", text()))?;
        Ok(group.min.unwrap_or(1))
    }

    fn is_each_alone(&self, key: &Key) -> bool {
        self.native.get(key).is_some_and(|native| native.min.is_none() && native.refusal.is_none())
    }

    /// With whom a Pod of a native group starts: with nobody, where the group says so.
    pub(super) fn resolve_native(&self, namespace: &Text, member: &mut Member) {
        let Member::Native { name } = member else { return };
        let key = Key { namespace: namespace.clone(), name: name.clone() };
        if self.is_each_alone(&key) {
            *member = Member::Alone;
        }
    }

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
}

impl World {
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
fn has_common_port(pods: &[Arc<PodSeen>]) -> bool {
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
