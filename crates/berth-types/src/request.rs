//! What a workload asks for, per task and in all.

use crate::{Bytes, Cpu, Gpus, Name, Share};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    num::{NonZeroU8, NonZeroU32, NonZeroU64},
};

/// The GPUs one task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GpuRequest {
    /// None at all.
    None,
    /// Whole devices.
    Whole(NonZeroU8),
    /// The same share of so many distinct devices.
    Fraction {
        /// Of each device.
        share: Share,
        /// How many devices.
        devices: NonZeroU8,
    },
    /// So many bytes of memory on each of so many distinct devices.
    Memory {
        /// On each device.
        bytes: NonZeroU64,
        /// How many devices.
        devices: NonZeroU8,
    },
}

impl GpuRequest {
    /// How many distinct devices one task touches.
    pub fn devices(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Whole(count) => count.get(),
            Self::Fraction { devices, .. } | Self::Memory { devices, .. } => devices.get(),
        }
    }

    /// The share taken of a device with `memory` bytes, or none if such a device can never serve the request.
    pub fn share_on(self, memory: Bytes) -> Option<Share> {
        match self {
            Self::None => None,
            Self::Whole(_) => Some(Share::WHOLE),
            Self::Fraction { share, .. } => Some(share),
            Self::Memory { bytes, .. } => Share::of_memory(Bytes(bytes.get()), memory),
        }
    }

    /// The GPUs charged to one task on devices with `memory` bytes.
    pub fn charge_on(self, memory: Bytes) -> Option<Gpus> {
        match self {
            Self::None => Some(Gpus::ZERO),
            _ => self.share_on(memory).map(|share| share.gpus().times(u64::from(self.devices()))),
        }
    }
}

/// What one task asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// GPUs.
    pub gpu: GpuRequest,
    /// Accepted models; empty accepts every model.
    pub models: BTreeSet<Name>,
    /// CPU.
    pub cpu: Cpu,
    /// Memory of the host.
    pub memory: Bytes,
}

impl Request {
    /// The one model this request names, if it names exactly one; a quota of that model must then have room.
    pub fn named_model(&self) -> Option<&Name> {
        if self.models.len() == 1 { self.models.first() } else { None }
    }

    /// Whether a device of this model is accepted.
    pub fn accepts_model(&self, model: &Name) -> bool {
        self.models.is_empty() || self.models.contains(model)
    }
}

/// How many tasks: all of the minimum or none, and elastic extras up to the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "(NonZeroU32, NonZeroU32)", into = "(NonZeroU32, NonZeroU32)")]
pub struct Tasks {
    min: NonZeroU32,
    max: NonZeroU32,
}

impl Tasks {
    /// One task, the common case of a gang.
    pub const ONE: Self = Self { min: NonZeroU32::MIN, max: NonZeroU32::MIN };
    /// The largest gang.
    pub const MAX: u32 = 100_000;

    /// A gang of at least `min` and at most `max` tasks.
    pub fn new(min: u32, max: u32) -> Option<Self> {
        let (min, max) = (NonZeroU32::new(min)?, NonZeroU32::new(max)?);
        (min <= max && max.get() <= Self::MAX).then_some(Self { min, max })
    }

    /// Tasks that start together or not at all.
    pub fn min(self) -> u32 {
        self.min.get()
    }

    /// Elastic extras there may be.
    pub fn extras(self) -> u32 {
        self.max.get() - self.min.get()
    }

    /// Tasks with all extras.
    pub fn max(self) -> u32 {
        self.max.get()
    }
}

impl TryFrom<(NonZeroU32, NonZeroU32)> for Tasks {
    type Error = String;
    fn try_from((min, max): (NonZeroU32, NonZeroU32)) -> Result<Self, String> {
        Self::new(min.get(), max.get()).ok_or_else(|| format!("a gang of {min} to {max} tasks cannot be"))
    }
}

impl From<Tasks> for (NonZeroU32, NonZeroU32) {
    fn from(tasks: Tasks) -> Self {
        (tasks.min, tasks.max)
    }
}

/// A level at which tasks can be kept together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TopologyLevel {
    /// One node.
    Node,
    /// All nodes with one value of this label: a rack, a block.
    Label(Name),
}

/// How close together the tasks of a gang must and should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// All tasks in one domain of this level, or the gang waits.
    pub required: Option<TopologyLevel>,
    /// All tasks in one domain of this level if one has room.
    pub preferred: Option<TopologyLevel>,
}
