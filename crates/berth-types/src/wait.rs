//! The numbers behind a wait, and the changes of a request that would end it.

use crate::{Account, Bytes, Cpu, GpuRequest, Gpus, Name, NodeId, WorkloadId};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU8;

/// A waiting workload in numbers: what it asks for, what is there, what its accounts use, and what blocks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitDetails {
    /// The waiting workload.
    pub workload: WorkloadId,
    /// GPUs of its minimum, as they are charged while it waits.
    pub asked: Gpus,
    /// Tasks of its minimum.
    pub tasks: u32,
    /// Free GPUs of accepted models on the nodes it may use. GPUs of work that was told to stop count as free.
    pub free: Gpus,
    /// All GPUs of accepted models on the nodes it may use.
    pub capacity: Gpus,
    /// Nodes it may use: in its pool, ready, with its labels and an accepted model.
    pub nodes: u64,
    /// Its project and every department above it that has a quota or a limit, nearest first.
    pub accounts: Vec<AccountUse>,
    /// What keeps it from the nodes. When one cause alone does, all such causes; otherwise causes that do together.
    pub blockers: Vec<Blocker>,
    /// Its position in the queue.
    pub queue: QueuePosition,
}

/// What one account is entitled to and uses, in the pool of a waiting workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUse {
    /// The account.
    pub account: Account,
    /// Guaranteed GPUs; none for a department without a quota.
    pub quota: Option<Gpus>,
    /// GPUs in use, without elastic extras.
    pub used: Gpus,
    /// The part of `used` that cannot be preempted.
    pub non_preemptible: Gpus,
    /// Its fair share.
    pub fair_share: Gpus,
    /// GPUs never passed.
    pub limit: Option<Gpus>,
}

/// The position of a waiting workload in the order of starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// From 1: waiting work of its project that comes first, and itself. Work that can never start, or that a limit or a
    /// quota bars, is not counted.
    pub position: u64,
    /// Waiting work of its project, counted in the same way.
    pub waiting: u64,
    /// The first of its project's work before it, in order; at most [`QueuePosition::NAMED_MAX`].
    pub ahead: Vec<WorkloadId>,
    /// The heads of other projects that the order of starts puts before it; at most [`QueuePosition::NAMED_MAX`].
    pub heads_ahead: Vec<WorkloadId>,
    /// How many heads of other projects come before it.
    pub heads_ahead_count: u64,
}

impl QueuePosition {
    /// Workloads that are named in each list.
    pub const NAMED_MAX: usize = 10;
}

/// One cause that keeps a workload from the nodes. Amounts that are asked for are those of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blocker {
    /// Its pool has no node.
    NoNodes,
    /// Nodes with room lack the labels that the workload asks for.
    Selector {
        /// Free GPUs on those nodes.
        free: Gpus,
    },
    /// Nodes with room lack the labels that its project is bound to.
    Affinity {
        /// Free GPUs on those nodes.
        free: Gpus,
    },
    /// Nodes with room have other GPU models.
    Model {
        /// Models of the nodes it may use otherwise.
        there: Vec<Name>,
    },
    /// No device has enough memory.
    DeviceMemory {
        /// Asked for on each device.
        asked: Bytes,
        /// The largest device.
        largest: Bytes,
    },
    /// Nodes with room are cordoned.
    Cordoned {
        /// The cordoned nodes it could use otherwise, by id.
        nodes: Vec<NodeId>,
        /// Free GPUs on them.
        free: Gpus,
    },
    /// No node has enough GPUs, even when it is empty.
    NodeGpus {
        /// Devices one task needs.
        asked: u32,
        /// Devices of the largest node.
        largest: u32,
    },
    /// No node has enough CPU, even when it is empty.
    NodeCpu {
        /// CPU one task needs.
        asked: Cpu,
        /// CPU of the largest node that has everything else.
        largest: Cpu,
    },
    /// No node has enough memory, even when it is empty.
    NodeMemory {
        /// Memory one task needs.
        asked: Bytes,
        /// Memory of the largest node that has everything else.
        largest: Bytes,
    },
    /// Each task fits a node, but all nodes together do not hold so many.
    PoolSize {
        /// Tasks of the minimum.
        tasks: u64,
        /// Tasks the empty nodes hold.
        most: u64,
    },
    /// Each task fits what is free of a node, but all nodes together have room for fewer.
    TooFewFit {
        /// Tasks of the minimum.
        tasks: u64,
        /// Tasks that what is free holds.
        most: u64,
    },
    /// No one domain of the required topology has room for all tasks.
    Topology {
        /// Tasks of the minimum.
        tasks: u64,
        /// Tasks that fit one domain.
        most: u64,
    },
    /// Too few nodes, as no two tasks may share one.
    Apart {
        /// Tasks of the minimum.
        tasks: u64,
        /// Nodes with room.
        most: u64,
    },
    /// Too few GPUs are free.
    GpusInUse {
        /// Devices one task needs.
        asked: u32,
        /// Free GPUs on the node that has most of them.
        largest: Gpus,
    },
    /// Too little CPU is free beside the GPUs.
    CpuInUse {
        /// CPU one task needs.
        asked: Cpu,
        /// The most free CPU on a node that has everything else.
        largest: Cpu,
    },
    /// Too little memory is free beside the GPUs.
    MemoryInUse {
        /// Memory one task needs.
        asked: Bytes,
        /// The most free memory on a node that has everything else.
        largest: Bytes,
    },
    /// What is free is reserved for others, and work that cannot be preempted may not use it.
    Reserved {
        /// Who has the reservations, by id.
        owners: Vec<WorkloadId>,
    },
}

/// A change that the owner of a waiting workload can make to the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestChange {
    /// Accept this GPU model instead.
    Model(Name),
    /// Use this pool instead.
    Pool(Name),
    /// Ask for no labels.
    AnyNode,
    /// Ask for this much CPU in each task.
    Cpu(Cpu),
    /// Ask for this much memory in each task.
    Memory(Bytes),
    /// Let it be preempted.
    Preemptible,
    /// Start with so many tasks; the others are elastic extras.
    MinTasks(u32),
    /// Spread the same GPUs over more tasks.
    Split {
        /// Tasks in all.
        tasks: u32,
        /// Whole GPUs of each.
        gpus: NonZeroU8,
    },
    /// Ask for fewer GPUs in each task.
    Gpus(GpuRequest),
}

/// A change of the request with which the workload would start now. The engine planned it before it was named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The change.
    pub change: RequestChange,
    /// Workloads that would be stopped or moved for it, by the rules.
    pub evicts: Vec<WorkloadId>,
}
