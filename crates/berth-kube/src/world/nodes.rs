//! Nodes: what the engine knows of them, made from Nodes, the devices that drivers publish, and pools.

use super::{
    Effect, EvictOrder, STRANGERS, World,
    groups::{Group, UNKNOWN_POOL},
};
use crate::{
    pods::{ClaimedGpu, NodeGpus, SeatNode},
    seen::{
        Text,
        node::{NodeSeen, PublishedDevice, SliceSeen},
        nodes_for::{NodeTraits, NodesFor},
        pod::PodSeen,
        ports::HostPort,
    },
};
use berth_types::{
    Bytes, Change, Device, DeviceShare, Name, Node, NodeCondition, NodeId, POOL_LABEL, Phase, Place, Project,
    Share, Span, TaskOutcome, WorkloadId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Label of a node inside of the engine: how its devices are handed out.
pub(crate) const DEVICES_LABEL: &str = "berth.dev/devices";
/// They have names, and can be shared.
pub(crate) const PUBLISHED: &str = "published";
/// They have a number.
pub(crate) const COUNTED: &str = "counted";

/// Demands that nobody makes any more are kept up to this many, in case they are made again.
const UNUSED_DEMANDS: usize = 64;

/// A node.
#[derive(Debug)]
pub(crate) struct NodeEntry {
    pub(crate) id: NodeId,
    seen: Option<NodeSeen>,
    slices: BTreeMap<Text, SliceSeen>,
    /// The node as its Pods must know it.
    pub(crate) seat: Option<Arc<SeatNode>>,
    /// What the engine was told; none while it does not know the node.
    told: Option<Node>,
    /// Groups that may have a place here.
    tenants: BTreeSet<WorkloadId>,
    /// Pods that are here and not over.
    pub(crate) pods: u64,
    /// Ports of the node that they have, and how many of them each.
    ports: BTreeMap<HostPort, u32>,
}

impl NodeEntry {
    fn new(id: NodeId) -> Self {
        Self {
            id,
            seen: None,
            slices: BTreeMap::new(),
            seat: None,
            told: None,
            tenants: BTreeSet::new(),
            pods: 0,
            ports: BTreeMap::new(),
        }
    }

    pub(super) fn is_accepted_by(&self, demand: &NodesFor) -> bool {
        self.seen.as_ref().is_some_and(|seen| demand.accept(&seen.traits))
    }

    pub(super) fn has_ports_for(&self, demand: &NodesFor) -> bool {
        demand.has_ports(&self.ports)
    }

    fn count_ports(&mut self, ports: &[HostPort], came: bool) {
        for port in ports {
            let users = self.ports.entry(*port).or_default();
            *users = if came { *users + 1 } else { users.saturating_sub(1) };
            if *users == 0 {
                self.ports.remove(port);
            }
        }
    }

    /// Devices that a driver published, once every part of the newest publication is there.
    fn published(&self) -> Option<Vec<&PublishedDevice>> {
        let newest = self.slices.values().map(|slice| slice.generation).max()?;
        let parts: Vec<_> = self.slices.values().filter(|slice| slice.generation == newest).collect();
        if (parts.len() as i64) < parts.first()?.of {
            return None;
        }
        let mut devices: Vec<_> = parts.into_iter().flat_map(|slice| &slice.devices).collect();
        // By number, as people count them: gpu-2 before gpu-10.
        devices.sort_by(|one, other| (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name)));
        devices.truncate(Node::DEVICES_MAX);
        Some(devices)
    }
}

/// Demands on nodes, each with the label that nodes which meet it have inside of the engine.
#[derive(Debug, Default)]
pub(crate) struct Demands {
    known: BTreeMap<Arc<NodesFor>, Demand>,
    drawn: u32,
}

#[derive(Debug)]
struct Demand {
    label: Name,
    users: usize,
}

impl World {
    pub(super) fn on_node(&mut self, node: NodeSeen) {
        let name: Text = node.traits.name.as_str().into();
        let entry = self.entry_of(&name);
        if entry.seen.as_ref() == Some(&node) {
            return;
        }
        let is_new = entry.seen.replace(node).is_none();
        if is_new {
            // Pods may be known before their node is.
            let here = |pod: &&Arc<PodSeen>| pod.node.as_ref() == Some(&name) && !pod.is_over();
            let here: Vec<Arc<PodSeen>> = self.pods.values().filter(here).cloned().collect();
            let entry = self.entry_of(&name);
            entry.pods = here.len() as u64;
            entry.ports.clear();
            here.iter().for_each(|pod| entry.count_ports(&pod.ports, true));
        }
        self.tell_node(&name);
        self.touch_ports();
        if is_new && self.nodes[&name].pods > 0 {
            let here = |group: &&Group| group.pods.iter().any(|uid| self.is_on(uid, &name));
            let tenants = self.groups.iter().filter(|(_, group)| here(group)).map(|(id, _)| *id);
            self.dirty.extend(tenants.collect::<Vec<_>>());
        }
    }

    pub(super) fn on_slice(&mut self, slice: SliceSeen) {
        let node = slice.node.clone();
        self.entry_of(&node).slices.insert(slice.name.clone(), slice);
        self.tell_node(&node);
    }

    pub(super) fn on_slice_gone(&mut self, name: &Text) {
        let node = self.nodes.iter().find(|(_, entry)| entry.slices.contains_key(name));
        let Some(node) = node.map(|(node, _)| node.clone()) else { return };
        self.entry_of(&node).slices.remove(name);
        self.tell_node(&node);
    }

    /// A node is gone, and what ran there with it.
    pub(super) fn on_node_gone(&mut self, name: &Text) {
        let Some(entry) = self.nodes.get(name) else { return };
        let id = entry.id;
        for group in entry.tenants.clone() {
            self.lose_tasks(group, id);
            self.clear_away(group, name);
        }
        if self.nodes[name].told.is_some() {
            self.must(&Change::NodeRemoved(id));
        }
        self.node_names.remove(&id);
        self.outdated.remove(name);
        let entry = self.nodes.remove(name).expect("it was there a moment ago");
        if !entry.slices.is_empty() {
            // Drivers may publish before a node is there, and after it is gone.
            self.entry_of(name).slices = entry.slices;
        }
    }

    /// Nobody is left on a node that is gone to say that its Pods are, and if it came back they would be there again.
    fn clear_away(&mut self, group: WorkloadId, node: &Text) {
        let Some(of) = self.groups.get(&group) else { return };
        let pods = of.pods.iter().filter_map(|uid| self.pods.get(uid));
        for pod in pods.filter(|pod| pod.ours && pod.node.as_ref() == Some(node) && !pod.is_over()) {
            let (key, uid) = (pod.key.clone(), pod.uid.clone());
            let order = EvictOrder { workload: group, pod: key, uid, grace: Span::ZERO, politely: false };
            self.effects.push(Effect::Evict(order));
        }
    }

    /// Everything a group has on a node is lost.
    fn lose_tasks(&mut self, group: WorkloadId, node: NodeId) {
        let at = self.now;
        while let Some(workload) = self.engine.workload(group) {
            let here = |place: &&Place| place.node == node;
            let change = if let Some(place) = workload.leaving().iter().find(here) {
                Change::Stopped { workload: group, rank: place.rank, at }
            } else if let Some(place) = workload.places().find(here) {
                match workload.phase {
                    Phase::Held { .. } => Change::Refused { workload: group, at },
                    _ => Change::Ended { workload: group, rank: place.rank, outcome: TaskOutcome::Lost, at },
                }
            } else {
                break;
            };
            if !self.must(&change) {
                break;
            }
        }
        self.dirty.insert(group);
    }

    pub(super) fn on_pool(&mut self, pool: Arc<crate::api::NodePool>) {
        let name = pool.metadata.name.as_deref().unwrap_or_default().into();
        self.pools.insert(name, pool);
        self.tell_all_nodes();
        let waits =
            |group: &Group| group.refusal.as_ref().is_some_and(|refusal| refusal.reason == UNKNOWN_POOL);
        self.dirty.extend(self.groups.iter().filter(|(_, group)| waits(group)).map(|(id, _)| *id));
    }

    pub(super) fn on_pool_gone(&mut self, name: &Text) {
        self.pools.remove(name);
        self.tell_all_nodes();
        // Whoever waits for a place there waits for the pool now.
        let waits = self.engine.workloads().filter(|one| one.is_queued() && one.spec.pool == *name);
        self.dirty.extend(waits.map(|one| one.id));
    }

    fn entry_of(&mut self, name: &Text) -> &mut NodeEntry {
        if !self.nodes.contains_key(name) {
            // A node that comes back is the one it was.
            let known = self.node_ids.get(name).copied();
            let id = known.unwrap_or_else(|| NodeId(self.draw()));
            self.node_ids.insert(name.clone(), id);
            self.nodes.insert(name.clone(), NodeEntry::new(id));
            self.node_names.insert(id, name.clone());
        }
        self.nodes.get_mut(name).expect("it is there now")
    }

    fn tell_all_nodes(&mut self) {
        let names: Vec<Text> = self.nodes.keys().cloned().collect();
        for name in names {
            self.tell_node(&name);
        }
    }

    /// Tells the engine what a node is now.
    fn tell_node(&mut self, name: &Text) {
        let Some(entry) = self.nodes.get(name) else { return };
        let Some((node, seat)) = self.as_node(entry) else { return };
        let told = entry.told.as_ref();
        let was_outdated = self.outdated.contains(name);
        if told == Some(&node) && !was_outdated {
            return;
        }
        let changed = match self.engine.apply(&Change::NodeSet(node.clone())) {
            Ok(()) => Ok((node, seat)),
            // What is placed there fits what was told; until it is gone, nothing new comes.
            Err(error) => {
                Err((error, told.map(|told| Node { condition: NodeCondition::Cordoned, ..told.clone() })))
            }
        };
        match changed {
            Ok((node, seat)) => {
                let entry = self.nodes.get_mut(name).expect("it was there a moment ago");
                entry.told = Some(node);
                entry.seat = Some(Arc::new(seat));
                self.outdated.remove(name);
            }
            Err(_) if was_outdated => {}
            Err((error, kept)) => {
                tracing::warn!(node = %name, %error, "a node changed under what runs there; it takes nothing new until that ends");
                if let Some(kept) = kept {
                    self.must(&Change::NodeSet(kept.clone()));
                    let entry = self.nodes.get_mut(name).expect("it was there a moment ago");
                    entry.told = Some(kept);
                    self.outdated.insert(name.clone());
                }
            }
        }
    }

    /// Tries again what a node could not become while something was placed there.
    pub(super) fn tell_outdated(&mut self) {
        for name in self.outdated.clone() {
            self.tell_node(&name);
        }
    }

    fn is_on(&self, pod: &Text, node: &Text) -> bool {
        self.pods.get(pod).is_some_and(|pod| pod.node.as_ref() == Some(node))
    }

    fn as_node(&self, entry: &NodeEntry) -> Option<(Node, SeatNode)> {
        let seen = entry.seen.as_ref()?;
        let published = entry.published();
        let way = if published.is_some() { PUBLISHED } else { COUNTED };
        let mut labels: BTreeMap<Name, Name> = seen
            .traits
            .labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect();
        labels.remove(POOL_LABEL);
        labels.insert(DEVICES_LABEL.into(), way.into());
        if let Some(pool) = self.pool_of(&seen.traits) {
            labels.insert(POOL_LABEL.into(), pool);
        }
        for (demand, known) in &self.demands.known {
            if demand.accept(&seen.traits) && demand.has_ports(&entry.ports) {
                labels.insert(known.label.clone(), yes());
            }
        }
        let devices: Vec<Device> = match &published {
            Some(published) => published.iter().map(|one| one.device.clone()).collect(),
            None => seen.counted.clone(),
        };
        let gpus = match &published {
            Some(published) => NodeGpus::Claimed {
                pool: seen.traits.name.clone(),
                devices: published
                    .iter()
                    .map(|one| ClaimedGpu { name: one.name.to_string(), memory: one.device.memory })
                    .collect(),
            },
            None => NodeGpus::Counted { memory: devices.first().map_or(Bytes::ZERO, |device| device.memory) },
        };
        let tainted = published.is_some_and(|devices| devices.iter().any(|device| device.tainted));
        let open = seen.open && !tainted && entry.pods < seen.pods;
        let condition = if open { NodeCondition::Ready } else { NodeCondition::Cordoned };
        let name = seen.traits.name.clone();
        let seat = SeatNode { name: name.clone(), gpus };
        let node =
            Node { id: entry.id, name, devices, cpu: seen.cpu, memory: seen.memory, labels, condition };
        Some((node, seat))
    }

    /// The first pool, by name, that wants a node.
    fn pool_of(&self, node: &NodeTraits) -> Option<Name> {
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        self.pools.iter().find(|(_, pool)| pool.accepts(label)).map(|(name, _)| name.clone())
    }

    /// The label that nodes which meet a demand have.
    pub(super) fn demand_label(&mut self, demand: &Arc<NodesFor>) -> Name {
        if let Some(known) = self.demands.known.get_mut(demand) {
            known.users += 1;
            return known.label.clone();
        }
        self.demands.drawn += 1;
        let label: Name = format!("berth.dev/demand-{}", self.demands.drawn).into();
        let unused = self.demands.known.values().filter(|demand| demand.users == 0).count();
        if unused > UNUSED_DEMANDS {
            self.demands.known.retain(|_, demand| demand.users > 0);
        }
        self.demands.known.insert(Arc::clone(demand), Demand { label: label.clone(), users: 1 });
        self.tell_all_nodes();
        label
    }

    pub(super) fn known_demand_label(&self, demand: &NodesFor) -> Name {
        self.demands.known[demand].label.clone()
    }

    pub(super) fn demand_dropped(&mut self, demand: &NodesFor) {
        if let Some(known) = self.demands.known.get_mut(demand) {
            known.users -= 1;
        }
    }

    /// A Pod came to a node, or is over there.
    pub(super) fn count_pod(&mut self, node: &Text, pod: &PodSeen, came: bool) {
        let Some(entry) = self.nodes.get_mut(node) else { return };
        entry.count_ports(&pod.ports, came);
        // What was promised is had, or is not wanted any more.
        self.promised_ports.settle(node, &pod.ports);
        entry.pods = if came { entry.pods + 1 } else { entry.pods.saturating_sub(1) };
        let full = entry.seen.as_ref().is_some_and(|seen| entry.pods >= seen.pods);
        let told_open = entry.told.as_ref().is_some_and(|told| told.condition == NodeCondition::Ready);
        if full == told_open || !pod.ports.is_empty() {
            self.tell_node(node);
        }
        if !came && !pod.ports.is_empty() {
            self.touch_ports();
        }
    }

    pub(super) fn note_tenant(&mut self, group: WorkloadId, places: &[Place]) {
        for place in places {
            let Some(name) = self.node_names.get(&place.node) else { continue };
            if let Some(entry) = self.nodes.get_mut(name) {
                entry.tenants.insert(group);
            }
        }
    }

    /// Shares of the devices of a node that others than one group have, by device; and who has none there is no tenant any more.
    fn taken_on(&mut self, name: &Text, besides: WorkloadId) -> Vec<u64> {
        let Some(entry) = self.nodes.get_mut(name) else { return Vec::new() };
        let devices = entry.told.as_ref().map_or(0, |node| node.devices.len());
        let (id, mut taken) = (entry.id, vec![0; devices]);
        let engine = &self.engine;
        entry.tenants.retain(|group| {
            let Some(workload) = engine.workload(*group) else { return false };
            let mut here = false;
            for place in workload.places().chain(workload.leaving()).filter(|place| place.node == id) {
                here = true;
                for share in place.devices.iter().filter(|_| *group != besides) {
                    taken[usize::from(share.device)] += u64::from(share.share.millionths());
                }
            }
            here
        });
        taken
    }

    /// The first free devices of a node; which ones a Pod really has is known to the node alone.
    /// They are for one group, so what the engine takes it to have does not count; `besides` are places that it does not know yet.
    pub(super) fn any_devices(
        &mut self,
        node: &Text,
        count: u8,
        of: WorkloadId,
        besides: &[Place],
    ) -> Option<Vec<DeviceShare>> {
        let mut taken = self.taken_on(node, of);
        let id = self.nodes.get(node)?.id;
        for share in besides.iter().filter(|place| place.node == id).flat_map(|place| &place.devices) {
            taken[usize::from(share.device)] += u64::from(share.share.millionths());
        }
        let free = taken.iter().enumerate().filter(|(_, taken)| **taken == 0);
        let shares: Vec<_> = free
            .map(|(device, _)| DeviceShare { device: device as u8, share: Share::WHOLE })
            .take(usize::from(count))
            .collect();
        (shares.len() == usize::from(count)).then_some(shares)
    }

    /// Where a device of a node is in the engine's order.
    pub(super) fn device_position(&self, node: &Text, device: &str) -> Option<u8> {
        match &self.nodes.get(node)?.seat.as_ref()?.gpus {
            NodeGpus::Claimed { devices, .. } => {
                devices.iter().position(|known| known.name == device).map(|at| at as u8)
            }
            NodeGpus::Counted { .. } => None,
        }
    }

    pub(super) fn traits_of(&self, name: &str) -> Option<&NodeTraits> {
        self.nodes.get(name)?.seen.as_ref().map(|seen| &seen.traits)
    }

    pub(super) fn node_id(&self, name: &Text) -> Option<NodeId> {
        let entry = self.nodes.get(name)?;
        entry.told.as_ref().map(|_| entry.id)
    }

    /// The engine knows whatever others placed as the work of one project that never borrows and asks for nothing more.
    pub(super) fn meet_strangers(&mut self) {
        let project = Project::named(STRANGERS, "(others)");
        self.must(&Change::ProjectSet(project));
    }
}

pub(crate) fn yes() -> Name {
    "yes".into()
}
