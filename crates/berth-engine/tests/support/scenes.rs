//! Small scenes for example tests: builders, and readers of what was decided.
#![allow(dead_code, unreachable_pub)]

use super::{World, node, project, train};
use berth_types::*;

/// A world of nodes with so many V100s each.
pub fn world(nodes: &[usize]) -> World {
    world_with(Policy::default(), nodes)
}

/// Shares are reclaimed and work is moved at once.
pub fn impatient() -> Policy {
    Policy { patience: Span::ZERO, ..Policy::default() }
}

pub fn world_with(policy: Policy, nodes: &[usize]) -> World {
    let mut world = World::new(policy);
    for (index, devices) in nodes.iter().enumerate() {
        world.apply(Change::NodeSet(node(index as u64 + 1, *devices)));
    }
    world
}

/// A project whose entitlement in the default pool is adjusted.
pub fn entitled(id: u64, quota: u64, adjust: impl FnOnce(&mut Entitlement)) -> Project {
    let mut project = project(id, quota);
    adjust(project.entitlements.get_mut(&default_pool()).expect("it was just given one"));
    project
}

pub fn weighted(id: u64, weight: u64) -> Project {
    entitled(id, 0, |entitlement| entitlement.weight = Some(Gpus::whole(weight)))
}

pub fn add(world: &mut World, projects: impl IntoIterator<Item = Project>) {
    for project in projects {
        world.apply(Change::ProjectSet(project));
    }
}

pub fn department(id: u64, quota: u64) -> Department {
    let entitlement = Entitlement { quota: Some(Gpus::whole(quota)), ..Entitlement::default() };
    Department {
        id: DepartmentId(id),
        name: format!("d{id}"),
        parent: None,
        entitlements: [(default_pool(), entitlement)].into(),
    }
}

pub fn inside(project: Project, department: u64) -> Project {
    Project { department: Some(DepartmentId(department)), ..project }
}

/// A person's session: not preemptible, with the priority of its kind.
pub fn interactive(project: u64, gpus: u8) -> WorkloadSpec {
    WorkloadSpec { kind: Kind::Interactive, priority: 100, preemptible: false, ..train(project, gpus) }
}

pub fn prioritised(priority: i32, spec: WorkloadSpec) -> WorkloadSpec {
    WorkloadSpec { priority, ..spec }
}

/// Workers with one GPU each: at least `min`, at most `max`.
pub fn gang(project: u64, min: u32, max: u32) -> WorkloadSpec {
    let tasks = Tasks::new(min, max).expect("a gang");
    WorkloadSpec { kind: Kind::Distributed, tasks, ..train(project, 1) }
}

pub fn submit_many(world: &mut World, count: usize, spec: WorkloadSpec) -> Vec<WorkloadId> {
    (0..count).map(|_| world.submit(spec.clone())).collect()
}

/// Submits and lets everything happen that follows.
pub fn run(world: &mut World, spec: WorkloadSpec) -> WorkloadId {
    let id = world.submit(spec);
    world.settle();
    id
}

pub fn runs(world: &World, id: WorkloadId) -> bool {
    world.state.workloads[&id].is_running()
}

pub fn end(world: &mut World, id: WorkloadId) {
    world.apply(Change::Cancelled { workload: id, at: world.now });
    world.confirm();
}

pub fn actions(world: &World) -> impl Iterator<Item = &Action> {
    world.plans.iter().flat_map(|plan| &plan.actions)
}

/// Everybody evicted so far, with the rule.
pub fn evictions(world: &World) -> Vec<(WorkloadId, EvictRule)> {
    actions(world)
        .filter_map(|action| match action {
            Action::Evict { workload, rule, .. } => Some((*workload, *rule)),
            _ => None,
        })
        .collect()
}

/// The basis on which a workload was first started, or held until others had left.
pub fn basis(world: &World, id: WorkloadId) -> StartBasis {
    *bases(world, id).first().expect("it was started")
}

/// The bases of all holds and starts of a workload.
pub fn bases(world: &World, id: WorkloadId) -> Vec<StartBasis> {
    let bases = actions(world).filter_map(|action| match action {
        Action::Start { workload, basis, .. } | Action::Hold { workload, basis, .. } if *workload == id => {
            Some(*basis)
        }
        _ => None,
    });
    bases.collect()
}

pub fn nodes_of(world: &World, id: WorkloadId) -> Vec<u64> {
    world.state.workloads[&id].places().map(|place| place.node.0).collect()
}

pub fn reason(world: &World, id: WorkloadId) -> WaitReason {
    world.engine.explain(id, world.now).expect("it waits").reason
}

pub fn label(world: &mut World, id: u64, key: &str, value: &str) {
    let mut node = world.state.nodes[&NodeId(id)].clone();
    node.labels.insert(key.into(), value.into());
    world.apply(Change::NodeSet(node));
}

pub fn on_rack(value: &str) -> Selector {
    Selector([(Name::from("rack"), [Name::from(value)].into())].into())
}

pub fn gpus(world: &World, projects: &[u64]) -> Vec<Gpus> {
    projects.iter().map(|project| world.used(*project)).collect()
}

pub fn whole(counts: &[u64]) -> Vec<Gpus> {
    counts.iter().copied().map(Gpus::whole).collect()
}
