//! Small builders for states and plans.

use crate::{Finding, Rule};
use berth_types::*;
use std::{collections::BTreeMap, num::NonZeroU8};

/// The instant at which the tests plan.
pub(crate) const NOW: Time = Time(1_000_000);
/// Long before that.
pub(crate) const EARLIER: Time = Time(1_000);

/// A ready node of the default pool with so many devices, 100 cores and 1000 GiB.
pub(crate) fn node(id: u64, gpus: usize) -> Node {
    let device = Device { model: "v100".into(), memory: Bytes::gib(32) };
    Node {
        id: NodeId(id),
        name: format!("node-{id}"),
        devices: vec![device; gpus],
        cpu: Cpu::cores(100),
        memory: Bytes::gib(1000),
        labels: BTreeMap::new(),
        condition: NodeCondition::Ready,
    }
}

pub(crate) fn quota(gpus: u64) -> Entitlement {
    Entitlement { quota: Some(Gpus::whole(gpus)), ..Entitlement::default() }
}

pub(crate) fn project(id: u64, entitlement: Entitlement) -> Project {
    let mut project = Project::named(ProjectId(id), format!("project-{id}"));
    project.entitlements.insert(default_pool(), entitlement);
    project
}

pub(crate) fn department(id: u64, entitlement: Entitlement) -> Department {
    Department {
        id: DepartmentId(id),
        name: format!("department-{id}"),
        parent: None,
        entitlements: BTreeMap::from([(default_pool(), entitlement)]),
    }
}

/// A queued training workload of one task, submitted in the order of ids.
pub(crate) fn train(id: u64, project: u64, gpus: u8) -> Workload {
    let spec = WorkloadSpec {
        name: format!("train-{id}"),
        project: ProjectId(project),
        user: "user".into(),
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
        grace: Span::secs(30),
    };
    Workload::submitted(WorkloadId(id), spec, Time(id))
}

/// Changes a workload and gives it back, so that states can be written as one expression.
pub(crate) fn with(mut workload: Workload, change: impl FnOnce(&mut Workload)) -> Workload {
    change(&mut workload);
    workload
}

pub(crate) fn fixed(workload: Workload) -> Workload {
    with(workload, |own| {
        own.spec.preemptible = false;
        own.spec.priority = 100;
    })
}

/// The place of one task that takes these devices whole.
pub(crate) fn place(rank: u32, node: u64, devices: impl IntoIterator<Item = u8>) -> Place {
    let whole = |device| DeviceShare { device, share: Share::WHOLE };
    Place {
        rank,
        node: NodeId(node),
        devices: devices.into_iter().map(whole).collect(),
        cpu: Cpu::ZERO,
        memory: Bytes::ZERO,
    }
}

/// The workload, running in these places since long ago; places past the minimum are extras.
pub(crate) fn run(workload: Workload, places: impl IntoIterator<Item = Place>) -> Workload {
    with(workload, |own| {
        let min = own.spec.tasks.min() as usize;
        let task = |(position, place)| Task { place, extra: position >= min };
        own.phase = Phase::Running {
            tasks: places.into_iter().enumerate().map(task).collect(),
            leaving: Vec::new(),
            since: EARLIER,
            confirmed: true,
            passing: false,
        };
    })
}

pub(crate) fn elastic(workload: Workload, min: u32, max: u32) -> Workload {
    with(workload, |own| own.spec.tasks = Tasks::new(min, max).unwrap())
}

/// The workload, told to leave these places and to come back to the queue.
pub(crate) fn leaving(workload: Workload, places: impl IntoIterator<Item = Place>) -> Workload {
    with(workload, |own| {
        own.phase = Phase::Stopping { leaving: places.into_iter().collect(), then: AfterStop::Requeue };
    })
}

/// The workload, told to leave these places for good.
pub(crate) fn ending(workload: Workload, places: impl IntoIterator<Item = Place>) -> Workload {
    with(workload, |own| {
        let then = AfterStop::Finish(Outcome::Cancelled);
        own.phase = Phase::Stopping { leaving: places.into_iter().collect(), then };
    })
}

pub(crate) fn reserved(workload: Workload, places: impl IntoIterator<Item = Place>) -> Workload {
    with(workload, |own| {
        own.phase = Phase::Queued {
            reservation: Some(Reservation { places: places.into_iter().collect(), since: EARLIER }),
        };
    })
}

pub(crate) fn state<const N: usize, const P: usize, const W: usize>(
    nodes: [Node; N],
    projects: [Project; P],
    workloads: [Workload; W],
) -> State {
    State {
        nodes: nodes.into_iter().map(|own| (own.id, own)).collect(),
        departments: BTreeMap::new(),
        projects: projects.into_iter().map(|own| (own.id, own)).collect(),
        workloads: workloads.into_iter().collect(),
    }
}

pub(crate) fn start(workload: u64, places: impl IntoIterator<Item = Place>, basis: StartBasis) -> Action {
    Action::Start {
        workload: WorkloadId(workload),
        places: places.into_iter().collect(),
        basis,
        passing: false,
    }
}

pub(crate) fn hold(workload: u64, places: impl IntoIterator<Item = Place>, basis: StartBasis) -> Action {
    Action::Hold { workload: WorkloadId(workload), places: places.into_iter().collect(), basis }
}

/// A move of a workload that is leaving already: it loses nothing and is for nobody.
pub(crate) fn relocate(workload: u64, places: impl IntoIterator<Item = Place>) -> Action {
    Action::Move {
        workload: WorkloadId(workload),
        places: places.into_iter().collect(),
        winner: None,
        lost: 0,
    }
}

/// An eviction whose loss is right for a workload that runs so many GPUs since [`EARLIER`].
pub(crate) fn evict(workload: u64, winner: u64, rule: EvictRule, gpus: u128) -> Action {
    Action::Evict {
        workload: WorkloadId(workload),
        winner: WorkloadId(winner),
        rule,
        lost: gpus * u128::from(NOW.since(EARLIER).0),
    }
}

pub(crate) fn shrink(workload: u64, ranks: &[u32], winner: u64) -> Action {
    Action::Shrink { workload: WorkloadId(workload), ranks: ranks.to_vec(), winner: WorkloadId(winner) }
}

pub(crate) fn plan<const N: usize>(actions: [Action; N]) -> Plan {
    Plan { at: NOW, actions: actions.into(), wake: None }
}

/// A patience that everybody has had who came or started [`EARLIER`].
pub(crate) const PATIENCE: Span = Span::secs(60);

/// The rules a plan breaks, each once.
pub(crate) fn broken<const N: usize>(state: &State, actions: [Action; N]) -> Vec<Rule> {
    let policy = Policy { patience: PATIENCE, ..Policy::default() };
    rules(crate::check_plan(&policy, state, &plan(actions)))
}

/// The rules a settled state breaks, each once.
pub(crate) fn unsettled(state: &State) -> Vec<Rule> {
    rules(crate::check_settled(&Policy::default(), state, NOW))
}

pub(crate) fn rules(findings: Vec<Finding>) -> Vec<Rule> {
    for finding in &findings {
        // Shown only when the test fails.
        println!("{finding}");
    }
    let mut rules: Vec<Rule> = findings.into_iter().map(|finding| finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}
