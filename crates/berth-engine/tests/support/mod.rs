//! Builders and a driver shared by the engine's tests.
#![allow(dead_code, unreachable_pub)]

pub mod cases;
pub mod random;
pub mod scenes;
pub mod seeds;
pub mod small;

use berth_engine::Engine;
use berth_types::*;
use std::num::NonZeroU8;

/// A node of V100s with room for everything else.
pub fn node(id: u64, devices: usize) -> Node {
    Node {
        id: NodeId(id),
        name: format!("node{id}"),
        devices: vec![Device { model: "V100".into(), memory: Bytes::mib(32_510) }; devices],
        cpu: Cpu::cores(64),
        memory: Bytes::gib(512),
        labels: Default::default(),
        condition: NodeCondition::Ready,
    }
}

/// A project with a quota in the default pool.
pub fn project(id: u64, quota: u64) -> Project {
    let mut project = Project::named(ProjectId(id), format!("p{id}"));
    let entitlement = Entitlement { quota: Some(Gpus::whole(quota)), ..Entitlement::default() };
    project.entitlements.insert(default_pool(), entitlement);
    project
}

/// A training job of one task with whole GPUs.
pub fn train(project: u64, gpus: u8) -> WorkloadSpec {
    WorkloadSpec {
        name: String::new(),
        project: ProjectId(project),
        user: "u".into(),
        kind: Kind::Train,
        request: Request {
            gpu: NonZeroU8::new(gpus).map_or(GpuRequest::None, GpuRequest::Whole),
            models: Default::default(),
            cpu: Cpu::ZERO,
            memory: Bytes::ZERO,
        },
        tasks: Tasks::ONE,
        pool: default_pool(),
        selector: Selector::default(),
        topology: Topology::default(),
        spread: Spread::Pack,
        priority: 50,
        preemptible: true,
        max_run: None,
        retry_limit: 0,
        grace: Span::secs(1),
    }
}

/// A share of one device, in thousandths.
pub fn fraction(thousandths: u32) -> GpuRequest {
    let share = Share::from_millionths(thousandths * 1000).expect("a share");
    GpuRequest::Fraction { share, devices: NonZeroU8::MIN }
}

/// An engine beside the plain state it must agree with.
#[derive(Clone)]
pub struct World {
    pub engine: Engine,
    pub state: State,
    pub now: Time,
    pub next_id: u64,
    pub plans: Vec<Plan>,
}

impl World {
    pub fn new(policy: Policy) -> Self {
        Self {
            engine: Engine::new(policy),
            state: State::default(),
            now: Time(1000),
            next_id: 1,
            plans: vec![],
        }
    }

    pub fn apply(&mut self, change: Change) {
        self.state.apply(&change).expect("a valid change");
        self.engine.apply(&change).expect("what the state takes the engine takes");
    }

    pub fn submit(&mut self, spec: WorkloadSpec) -> WorkloadId {
        let id = WorkloadId(self.next_id);
        self.next_id += 1;
        self.apply(Change::Submitted(Workload::submitted(id, spec, self.now)));
        id
    }

    /// Plans and records the decisions.
    pub fn plan(&mut self) -> Plan {
        let plan = self.engine.plan(self.now);
        for action in &plan.actions {
            self.state
                .apply(&Change::Decided { action: action.clone(), at: self.now })
                .expect("a decision that can be");
        }
        self.plans.push(plan.clone());
        plan
    }

    /// Confirms everything that is under way.
    pub fn confirm(&mut self) {
        let workloads: Vec<Workload> = self.state.workloads.values().cloned().collect();
        for workload in workloads {
            for place in workload.leaving() {
                self.apply(Change::Stopped { workload: workload.id, rank: place.rank, at: self.now });
            }
            if matches!(workload.phase, Phase::Running { confirmed: false, .. }) {
                self.apply(Change::Confirmed { workload: workload.id });
            }
        }
    }

    /// Plans and confirms until nothing is under way.
    pub fn settle(&mut self) {
        loop {
            let plan = self.plan();
            self.confirm();
            if plan.actions.is_empty() {
                break;
            }
        }
        self.now = self.now + Span::secs(1);
    }

    pub fn used(&self, project: u64) -> Gpus {
        let mine =
            self.state.workloads.values().filter(|workload| workload.spec.project == ProjectId(project));
        mine.flat_map(|workload| workload.places().map(Place::gpus).collect::<Vec<_>>()).sum()
    }

    pub fn queued(&self) -> Vec<WorkloadId> {
        self.state
            .workloads
            .values()
            .filter(|workload| workload.is_queued())
            .map(|workload| workload.id)
            .collect()
    }
}
