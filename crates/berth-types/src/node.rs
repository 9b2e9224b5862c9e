//! Nodes, devices, and places on them.

use crate::{Bytes, Cpu, Gpus, Name, NodeId, Share};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The label whose value names the pool of a node; a node without it is in [`default_pool`].
pub const POOL_LABEL: &str = "berth/pool";

/// The pool of every node and workload that names none.
pub fn default_pool() -> Name {
    Name::from("default")
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The model, as nodes and requests spell it.
    pub model: Name,
    /// All of its memory.
    pub memory: Bytes,
}

/// Whether a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeCondition {
    /// Takes new work.
    Ready,
    /// Keeps what runs on it and takes nothing new.
    Cordoned,
}

/// A host with devices, CPU, memory, labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its identity.
    pub id: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Its GPUs; a device is known by its position here.
    pub devices: Vec<Device>,
    /// All of its CPU.
    pub cpu: Cpu,
    /// All of its memory.
    pub memory: Bytes,
    /// Its labels; topology levels and pools are labels.
    pub labels: BTreeMap<Name, Name>,
    /// Whether it takes new work.
    pub condition: NodeCondition,
}

impl Node {
    /// More devices than any machine has; bounds the cost of looking at one node.
    pub const DEVICES_MAX: usize = 64;
    /// More CPU than any machine has, a million cores, so that no sum over nodes overflows.
    pub const CPU_MAX: Cpu = Cpu::cores(1_000_000);
    /// More memory than any machine has, 64 TiB, so that no sum over a hundred thousand nodes overflows.
    pub const MEMORY_MAX: Bytes = Bytes::gib(64 << 10);

    /// The pool this node belongs to.
    pub fn pool(&self) -> Name {
        self.labels.get(POOL_LABEL).cloned().unwrap_or_else(default_pool)
    }

    /// Whether everything that places depend on is the same: pool, devices, CPU and memory.
    pub fn same_capacity(&self, other: &Self) -> bool {
        self.devices == other.devices
            && self.cpu == other.cpu
            && self.memory == other.memory
            && self.pool() == other.pool()
    }
}

/// Which nodes may be used: for each label key, the accepted values. The empty selector accepts every node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Selector(pub BTreeMap<Name, BTreeSet<Name>>);

impl Selector {
    /// Whether the labels of a node satisfy every requirement.
    pub fn accepts(&self, labels: &BTreeMap<Name, Name>) -> bool {
        self.0.iter().all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
    }
}

/// A share of one device of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceShare {
    /// Position of the device in its node.
    pub device: u8,
    /// How much of it.
    pub share: Share,
}

/// Where one task is: the allocation of a task to a node and shares of its devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Which worker of the workload, from zero.
    pub rank: u32,
    /// The node.
    pub node: NodeId,
    /// Shares of distinct devices, by rising position.
    pub devices: Vec<DeviceShare>,
    /// CPU taken.
    pub cpu: Cpu,
    /// Memory taken.
    pub memory: Bytes,
}

impl Place {
    /// The GPUs this place is charged for.
    pub fn gpus(&self) -> Gpus {
        self.devices.iter().map(|taken| taken.share.gpus()).sum()
    }
}
