//! Clusters and workloads for scenarios.

use berth_engine::Engine;
use berth_types::{
    Bytes, Change, Cpu, Device, DeviceShare, Entitlement, GpuRequest, Gpus, Kind, Name, Node, NodeCondition,
    NodeId, Phase, Place, Policy, Project, ProjectId, Request, Selector, Share, Span, Spread, State, Task,
    Tasks, Time, Topology, Workload, WorkloadId, WorkloadSpec, default_pool,
};
use std::{collections::BTreeMap, num::NonZeroU8};

/// GPUs of every node here.
pub(crate) const GPUS_PER_NODE: u64 = 8;

/// When the work that is there was started.
pub(crate) const STARTED: Time = Time(1_000_000);

/// When the engine last planned before it is measured.
pub(crate) const SETTLED: Time = Time(STARTED.0 + 1_000);

/// When the measured change comes: what runs has run for an hour.
pub(crate) const MEASURED: Time = Time(STARTED.0 + 3_600_000);

/// A cluster of like nodes whose running work is put exactly where a scenario needs it.
pub(crate) struct Cluster {
    state: State,
    /// Devices in use, by node.
    used: Vec<u8>,
}

impl Cluster {
    /// So many empty nodes with eight GPUs each.
    pub(crate) fn of_nodes(count: usize) -> Self {
        let mut cluster = Self { state: State::default(), used: vec![0; count] };
        let model = Name::from("a100");
        for index in 0..count {
            cluster.add(Change::NodeSet(node(index, &model, BTreeMap::new())));
        }
        cluster
    }

    /// A project with this quota in whole GPUs, and the weight that follows from it.
    pub(crate) fn project(&mut self, quota: u64) -> ProjectId {
        let id = ProjectId(self.state.projects.len() as u64 + 1);
        let mut project = Project::named(id, format!("project-{id}"));
        project.entitlements.insert(
            default_pool(),
            Entitlement { quota: Some(Gpus::whole(quota)), ..Entitlement::default() },
        );
        self.add(Change::ProjectSet(project));
        id
    }

    /// So many one-GPU jobs of a project on every node, running since [`STARTED`].
    pub(crate) fn run_on_every_node(&mut self, project: ProjectId, jobs: u8) {
        for index in 0..self.used.len() {
            for _ in 0..jobs {
                self.run_on(project, index);
            }
        }
    }

    fn run_on(&mut self, project: ProjectId, index: usize) {
        let spec = train(project, 1, 1);
        let place = Place {
            rank: 0,
            node: node_id(index),
            devices: vec![DeviceShare { device: self.used[index], share: Share::WHOLE }],
            cpu: spec.request.cpu,
            memory: spec.request.memory,
        };
        self.used[index] += 1;
        let mut workload = Workload::submitted(self.next_id(), spec, Time(0));
        workload.phase = Phase::Running {
            tasks: vec![Task { place, extra: false }],
            leaving: Vec::new(),
            since: STARTED,
            confirmed: true,
            passing: false,
        };
        self.add(Change::Submitted(workload));
    }

    /// An engine that knows this cluster and has nothing left to decide.
    pub(crate) fn settled(&self) -> Engine {
        let mut engine = Engine::with_state(Policy::default(), &self.state)
            .expect("the scenario's state is one Berth can hold");
        let plan = engine.plan(SETTLED);
        assert!(
            plan.actions.is_empty(),
            "a full cluster without waiting work has nothing to decide: {:?}",
            plan.actions
        );
        engine
    }

    /// The next free id, for a workload that is submitted when the measuring starts.
    pub(crate) fn next_id(&self) -> WorkloadId {
        WorkloadId(self.state.workloads.len() as u64 + 1)
    }

    fn add(&mut self, change: Change) {
        self.state.apply(&change).expect("the scenario's changes are ones Berth can take");
    }
}

/// A node with eight devices of one model.
pub(crate) fn node(index: usize, model: &Name, labels: BTreeMap<Name, Name>) -> Node {
    let device = Device { model: model.clone(), memory: Bytes::gib(80) };
    Node {
        id: node_id(index),
        name: format!("node-{index:05}"),
        devices: vec![device; GPUS_PER_NODE as usize],
        cpu: Cpu::cores(16 * GPUS_PER_NODE),
        memory: Bytes::gib(128 * GPUS_PER_NODE),
        labels,
        condition: NodeCondition::Ready,
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(index as u64 + 1)
}

/// A preemptible training job or gang of whole GPUs.
pub(crate) fn train(project: ProjectId, gpus_per_task: u8, tasks: u32) -> WorkloadSpec {
    let gpus = NonZeroU8::new(gpus_per_task).expect("a training job here asks for GPUs");
    let kind = if tasks == 1 { Kind::Train } else { Kind::Distributed };
    WorkloadSpec {
        name: "train".into(),
        project,
        user: "bench".into(),
        kind,
        request: Request {
            gpu: GpuRequest::Whole(gpus),
            models: Default::default(),
            cpu: Cpu::cores(8).times(u64::from(gpus_per_task)),
            memory: Bytes::gib(64).times(u64::from(gpus_per_task)),
        },
        tasks: Tasks::new(tasks, tasks).expect("a gang has tasks"),
        pool: default_pool(),
        selector: Selector::default(),
        topology: Topology::default(),
        spread: Spread::Pack,
        priority: kind.priority(true),
        preemptible: true,
        max_run: None,
        retry_limit: 0,
        grace: Span::secs(30),
    }
}
