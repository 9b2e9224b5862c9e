//! Nodes, and the devices that drivers publish for them.

use super::{
    Text,
    nodes_for::NodeTraits,
    objects::{NodeObject, SliceObject},
};
use crate::{names, quantity};
use berth_types::{Bytes, Cpu, Device, Name, Node};

/// A node, as far as it matters where something runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeSeen {
    pub(crate) traits: NodeTraits,
    /// It is ready and takes new Pods.
    pub(crate) open: bool,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Bytes,
    /// Pods it holds at most.
    pub(crate) pods: u64,
    /// Devices that it hands out by number; which ones a Pod gets is up to the node.
    pub(crate) counted: Vec<Device>,
}

/// The memory of a device whose node does not say: enough for whole devices, which are all that is counted.
const UNTOLD_MEMORY: Bytes = Bytes::gib(16);

impl NodeSeen {
    /// A node that says nonsense of itself has none of what it says that of.
    pub(crate) fn of(node: NodeObject) -> Self {
        let amount = |name: &str| node.status.allocatable.get(name).map(String::as_str).unwrap_or("0");
        let count = quantity::count(amount(names::COUNTED_GPU)).unwrap_or(0).min(Node::DEVICES_MAX as u64);
        let label = |name: &str| node.metadata.labels.get(name);
        let model: Name = label(names::COUNTED_MODEL).map_or("GPU", String::as_str).into();
        let memory = label(names::COUNTED_MEMORY)
            .and_then(|mib| mib.parse().ok())
            .map_or(UNTOLD_MEMORY, |mib: u32| Bytes::mib(u64::from(mib)));
        let memory = if memory.is_zero() { UNTOLD_MEMORY } else { memory };
        let ready = node.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        Self {
            open: ready && !node.spec.unschedulable && node.metadata.deletion_timestamp.is_none(),
            cpu: quantity::cpu(amount("cpu")).unwrap_or(Cpu::ZERO).min(Node::CPU_MAX),
            memory: quantity::bytes(amount("memory")).unwrap_or(Bytes::ZERO).min(Node::MEMORY_MAX),
            pods: quantity::count(amount("pods")).unwrap_or(0),
            counted: (0..count).map(|_| Device { model: model.clone(), memory }).collect(),
            traits: NodeTraits {
                disk: quantity::bytes(amount("ephemeral-storage")).map_or(0, |bytes| bytes.0),
                name: node.metadata.name,
                labels: node.metadata.labels,
                taints: node.spec.taints,
            },
        }
    }
}

/// One object with devices of a node; a driver may need several for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceSeen {
    pub(crate) name: Text,
    pub(crate) node: Text,
    pub(crate) generation: i64,
    /// How many objects of this generation there are.
    pub(crate) of: i64,
    pub(crate) devices: Vec<PublishedDevice>,
}

/// A device with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublishedDevice {
    pub(crate) name: Text,
    pub(crate) device: Device,
    /// Its driver says that it is not to be used.
    pub(crate) tainted: bool,
}

impl SliceSeen {
    /// None for what another driver publishes, and for devices that belong to no one node.
    pub(crate) fn of(slice: SliceObject) -> Option<Self> {
        if slice.spec.driver != names::DRIVER {
            return None;
        }
        let devices = slice.spec.devices.iter().filter_map(|device| {
            let text = |name: &str| device.attributes.get(name)?.string.as_deref();
            let memory = quantity::bytes(&device.capacity.get(names::CAPACITY_MEMORY)?.value).ok()?;
            let model = text(names::ATTRIBUTE_MODEL).unwrap_or("GPU").into();
            // A device that cannot be shared is not ours to hand out in parts.
            device.allow_multiple_allocations.then(|| PublishedDevice {
                name: device.name.as_str().into(),
                device: Device { model, memory },
                tainted: !device.taints.is_empty(),
            })
        });
        Some(Self {
            name: slice.metadata.name.as_str().into(),
            node: slice.spec.node_name.as_deref()?.into(),
            generation: slice.spec.pool.generation,
            of: slice.spec.pool.resource_slice_count,
            devices: devices.collect(),
        })
    }
}
