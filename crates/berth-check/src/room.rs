//! Room: what is free on nodes, and how much of a gang it holds.

use berth_types::{
    Kind, Name, Node, NodeCondition, NodeId, Place, Request, Spread, State, Tasks, TopologyLevel, Workload,
};
use std::collections::BTreeMap;

/// Which tasks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Held or running, not leaving.
    Decided,
    /// Started and not known to be gone.
    Occupied,
}

/// What is free on one node. Signed, because a wrong state may have given away more than there is.
#[derive(Debug, Clone)]
pub(crate) struct NodeRoom {
    /// Millionths of each device.
    pub(crate) devices: Vec<i64>,
    pub(crate) cpu: i128,
    pub(crate) memory: i128,
}

/// What is free on every node of a state.
#[derive(Clone)]
pub(crate) struct Room<'a> {
    state: &'a State,
    pub(crate) nodes: BTreeMap<NodeId, NodeRoom>,
}

impl<'a> Room<'a> {
    /// The room of nodes on which nothing is.
    pub(crate) fn empty(state: &'a State) -> Self {
        let whole = |node: &Node| NodeRoom {
            devices: vec![i64::from(berth_types::Share::WHOLE.millionths()); node.devices.len()],
            cpu: i128::from(node.cpu.0),
            memory: i128::from(node.memory.0),
        };
        Self { state, nodes: state.nodes.iter().map(|(id, node)| (*id, whole(node))).collect() }
    }

    /// The room that one view leaves.
    pub(crate) fn of(state: &'a State, view: View) -> Self {
        let mut room = Self::empty(state);
        for workload in state.workloads.values() {
            match view {
                View::Decided => workload.places().for_each(|place| room.take(place)),
                View::Occupied => workload.occupied().for_each(|place| room.take(place)),
            }
        }
        room
    }

    pub(crate) fn take(&mut self, place: &Place) {
        self.change(place, -1);
    }

    pub(crate) fn give(&mut self, place: &Place) {
        self.change(place, 1);
    }

    fn change(&mut self, place: &Place, sign: i64) {
        let Some(node) = self.nodes.get_mut(&place.node) else {
            return;
        };
        for taken in &place.devices {
            if let Some(free) = node.devices.get_mut(usize::from(taken.device)) {
                *free += sign * i64::from(taken.share.millionths());
            }
        }
        node.cpu += i128::from(sign) * i128::from(place.cpu.0);
        node.memory += i128::from(sign) * i128::from(place.memory.0);
    }

    /// Whether all of these places are free together.
    pub(crate) fn holds(&self, places: &[Place]) -> bool {
        let mut rest = self.clone();
        places.iter().for_each(|place| rest.take(place));
        places.iter().all(|place| {
            rest.nodes.get(&place.node).is_some_and(|node| {
                let devices = place.devices.iter().all(|taken| {
                    let free = node.devices.get(usize::from(taken.device));
                    free.is_some_and(|free| *free >= 0)
                });
                devices && node.cpu >= 0 && node.memory >= 0
            })
        })
    }

    /// Whether no node has given away more than it has.
    pub(crate) fn is_sound(&self) -> bool {
        self.nodes
            .values()
            .all(|node| node.devices.iter().all(|free| *free >= 0) && node.cpu >= 0 && node.memory >= 0)
    }

    /// How many tasks of this shape the node holds at once.
    pub(crate) fn copies(&self, node: &Node, request: &Request) -> u64 {
        let Some(free) = self.nodes.get(&node.id) else {
            return 0;
        };
        let by_cpu = times(free.cpu, request.cpu.0);
        let by_memory = times(free.memory, request.memory.0);
        by_cpu.min(by_memory).min(gpu_copies(node, free, request))
    }

    /// How many tasks of the workload fit at once where its topology lets them be together.
    pub(crate) fn tasks(&self, workload: &Workload) -> u64 {
        let mut domains: BTreeMap<Option<Domain>, u64> = BTreeMap::new();
        for node in self.state.nodes.values() {
            if !accepts(self.state, workload, node) {
                continue;
            }
            if let Some(domain) = domain(workload, node) {
                let copies = self.copies(node, &workload.spec.request);
                *domains.entry(domain).or_default() +=
                    if is_apart(workload) { copies.min(1) } else { copies };
            }
        }
        domains.into_values().max().unwrap_or(0)
    }

    /// Whether all of the minimum fits.
    pub(crate) fn fits(&self, workload: &Workload) -> bool {
        self.tasks(workload) >= u64::from(workload.spec.tasks.min())
    }
}

/// A part of the pool in which a gang must stay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    Node(NodeId),
    Value(Name),
}

/// Whether no node may have two tasks of a workload.
pub(crate) fn is_apart(workload: &Workload) -> bool {
    workload.spec.spread == Spread::Apart
}

/// The domain of a node: `Some(None)` when all nodes are one, nothing when the node is in none.
pub(crate) fn domain(workload: &Workload, node: &Node) -> Option<Option<Domain>> {
    match &workload.spec.topology.required {
        None => Some(None),
        Some(TopologyLevel::Node) => Some(Some(Domain::Node(node.id))),
        Some(TopologyLevel::Label(label)) => {
            let value = node.labels.get(label)?;
            Some(Some(Domain::Value(value.clone())))
        }
    }
}

/// Whether the workload may be placed on the node: ready, of its pool, accepted by it and by its project.
pub(crate) fn accepts(state: &State, workload: &Workload, node: &Node) -> bool {
    node.condition == NodeCondition::Ready
        && node.pool() == workload.spec.pool
        && workload.spec.selector.accepts(&node.labels)
        && state.projects.get(&workload.spec.project).is_some_and(|project| {
            let selector = match workload.spec.kind {
                Kind::Interactive => &project.interactive_nodes,
                Kind::Train | Kind::Distributed | Kind::Inference => &project.train_nodes,
            };
            selector.accepts(&node.labels)
        })
}

/// How often `amount` goes into `free`; nothing asked for goes in as often as the largest gang needs.
fn times(free: i128, amount: u64) -> u64 {
    let most = i128::from(Tasks::MAX);
    match amount {
        0 => most as u64,
        amount => (free / i128::from(amount)).clamp(0, most) as u64,
    }
}

/// The largest number of tasks, each on `d` distinct devices, that the devices hold: the largest `c` for which the
/// devices, each serving at most `c` tasks, serve `d * c`.
fn gpu_copies(node: &Node, free: &NodeRoom, request: &Request) -> u64 {
    let most = u64::from(Tasks::MAX);
    let devices = u64::from(request.gpu.devices());
    if devices == 0 {
        return most;
    }
    let served: Vec<u64> = node
        .devices
        .iter()
        .zip(&free.devices)
        .filter(|(device, _)| request.accepts_model(&device.model))
        .filter_map(|(device, free)| {
            let share = request.gpu.share_on(device.memory)?;
            Some((*free).max(0) as u64 / u64::from(share.millionths()))
        })
        .collect();
    let enough = |copies: u64| {
        let total: u64 = served.iter().map(|served| (*served).min(copies)).sum();
        total >= devices * copies
    };
    // `enough` holds up to some number and never after it, so halving finds that number.
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if enough(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
