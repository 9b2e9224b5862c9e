//! A waiting workload in numbers: what it asks for, what is there, what its accounts use, and its position in the queue.

use crate::{Engine, node::NodeSlot, order::Head, pool::Pool, queue::QueueKey, shape::Shape, tree::GPU};
use berth_types::{AccountUse, Gpus, Phase, QueuePosition, WaitDetails, WaitReason, WorkloadId};

/// Numbers of a workload that waits or whose places are decided; nothing for any other. `reason` is why it waits.
pub(crate) fn wait_details(engine: &Engine, id: WorkloadId, reason: &WaitReason) -> Option<WaitDetails> {
    let mut pool = engine.pools.get(engine.workload_pools.get(&id)?)?.clone();
    pool.refresh_shares();
    let slot = pool.slot(id)?;
    if !matches!(pool.entry(slot).workload.phase, Phase::Queued { .. } | Phase::Held { .. }) {
        return None;
    }
    let class = pool.class_of(slot);
    let shape = &pool.shapes[class.shape as usize].0;
    let usable = pool.usable_nodes(shape);
    let free = usable.iter().map(|node| free_gpus(shape, node)).sum();
    let capacity = usable.iter().map(|node| Gpus::whole(served_devices(shape, node).count() as u64)).sum();
    let blockers = match reason {
        WaitReason::Leaving { .. } | WaitReason::Ready => Vec::new(),
        reason => pool.blockers(slot, matches!(reason, WaitReason::Never { .. })),
    };
    Some(WaitDetails {
        workload: id,
        asked: Gpus(class.asked),
        tasks: class.min,
        free,
        capacity,
        nodes: usable.len() as u64,
        accounts: pool.account_uses(slot),
        blockers,
        queue: pool.queue_position(slot),
    })
}

/// Devices of a node that can serve a shape.
pub(crate) fn served_devices<'a>(shape: &'a Shape, node: &'a NodeSlot) -> impl Iterator<Item = usize> + 'a {
    let devices = node.devices.iter().enumerate();
    devices.filter(|(_, device)| shape.share_on(device).is_some()).map(|(at, _)| at)
}

/// Free GPUs of a node on devices that can serve a shape.
pub(crate) fn free_gpus(shape: &Shape, node: &NodeSlot) -> Gpus {
    let free = node.decided.devices();
    served_devices(shape, node).map(|at| Gpus(u64::from(free[at]))).sum()
}

impl Pool {
    /// Ready nodes that a shape may use.
    fn usable_nodes(&self, shape: &Shape) -> Vec<&NodeSlot> {
        let nodes = self.nodes.iter().flatten();
        nodes
            .filter(|node| node.ready && shape.selects(&node.labels) && node.has_devices_for(shape))
            .collect()
    }

    fn account_uses(&self, slot: u32) -> Vec<AccountUse> {
        let path = self.tree.path(self.entry(slot).project);
        let entitled = path.filter(|(_, node)| node.has_quota || node.limit.is_some());
        entitled
            .map(|(_, node)| AccountUse {
                account: node.account,
                quota: node.has_quota.then_some(Gpus(node.quota)),
                used: Gpus(node.used.amounts[GPU]),
                non_preemptible: Gpus(node.non_preemptible.amounts[GPU]),
                fair_share: Gpus(node.share),
                limit: node.limit.map(Gpus),
            })
            .collect()
    }

    /// Whether nothing but capacity keeps waiting work of a class from starting.
    fn competes(&self, project: u32, class: u32) -> bool {
        let class = &self.classes[class as usize];
        class.possible && self.barrier(&self.ask(project, class)).is_none()
    }

    /// Waiting work of a project that competes for capacity, in queue order.
    fn competing(&self, project: u32) -> Vec<QueueKey> {
        let queue = &self.queues[project as usize];
        let classes = queue.counts().map(|(class, _)| class).filter(|class| self.competes(project, *class));
        let groups = classes.filter_map(|class| queue.group(class));
        let mut keys: Vec<QueueKey> = groups.flat_map(|group| group.all()).collect();
        keys.sort_unstable();
        keys
    }

    fn queue_position(&self, slot: u32) -> QueuePosition {
        let (entry, own) = (self.entry(slot), Head::of(self, slot));
        if !entry.workload.is_queued() {
            return QueuePosition::default();
        }
        let id = |key: &QueueKey| key.2;
        let mut mine = self.competing(entry.project);
        mine.retain(|key| id(key) != entry.workload.id);
        let ahead = mine.partition_point(|key| (key.0, key.1, key.2) < own.in_queue());
        let mut heads: Vec<Head> = (0..self.queues.len() as u32)
            .filter(|project| *project != entry.project && !self.queues[*project as usize].nobody_waits())
            .filter_map(|project| self.first_competing(project))
            .map(|key| Head::of(self, key.3))
            .filter(|head| self.goes_before(head, &own))
            .collect();
        heads.sort_by_key(Head::in_queue);
        QueuePosition {
            position: ahead as u64 + 1,
            waiting: mine.len() as u64 + 1,
            ahead: mine[..ahead].iter().take(QueuePosition::NAMED_MAX).map(id).collect(),
            heads_ahead_count: heads.len() as u64,
            heads_ahead: heads.iter().take(QueuePosition::NAMED_MAX).map(Head::workload).collect(),
        }
    }

    /// The first in the queue of a project that competes for capacity.
    fn first_competing(&self, project: u32) -> Option<QueueKey> {
        let queue = &self.queues[project as usize];
        let classes = queue.counts().map(|(class, _)| class).filter(|class| self.competes(project, *class));
        classes.filter_map(|class| queue.group(class)?.all().min()).min()
    }
}
