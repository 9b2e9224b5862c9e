//! Random clusters, trees of quotas and event sequences.
#![allow(dead_code, unreachable_pub)]

use super::{World, fraction, node, random::Random, train};
use berth_types::*;
use std::num::{NonZeroU8, NonZeroU64};

/// What a random case may contain.
#[derive(Clone, Copy)]
pub struct Size {
    pub nodes: u64,
    pub projects: u64,
    pub steps: u64,
}

pub const SMALL: Size = Size { nodes: 4, projects: 4, steps: 18 };
pub const WIDE: Size = Size { nodes: 12, projects: 7, steps: 60 };

pub fn policy(random: &mut Random) -> Policy {
    Policy {
        reserve_after: Span::secs(*random.pick(&[1, 5, 600, 1_000_000])),
        moves: random.chance(60),
        patience: Span::secs(*random.pick(&[0, 20, 3600])),
        ..Policy::default()
    }
}

/// A world with nodes, departments and projects, nothing submitted.
pub fn world(random: &mut Random, size: Size) -> World {
    let policy = policy(random);
    // Only where all work must end is it known when a reservation is filled, so some worlds with many have that too.
    let all_limited = policy.reserve_after <= Span::secs(1);
    let mut world = World::new(policy);
    for id in 1..=1 + random.below(size.nodes) {
        let change = Change::NodeSet(random_node(random, id));
        world.apply(change);
    }
    let departments = if random.chance(40) { 1 + random.below(3) } else { 0 };
    for id in 1..=departments {
        let parent = (id > 1 && random.chance(30)).then(|| DepartmentId(1 + random.below(id - 1)));
        let mut department = Department {
            id: DepartmentId(id),
            name: format!("d{id}"),
            parent,
            entitlements: Default::default(),
        };
        if random.chance(70) {
            let entitlement = random_entitlement(random, 16);
            department.entitlements.insert(default_pool(), entitlement);
        }
        world.apply(Change::DepartmentSet(department));
    }
    for id in 1..=1 + random.below(size.projects) {
        let mut project = random_project(random, id, departments);
        if all_limited {
            project.time_limit = Some(Span::secs(20 + random.below(100)));
        }
        world.apply(Change::ProjectSet(project));
    }
    world
}

fn random_node(random: &mut Random, id: u64) -> Node {
    let mut node = node(id, *random.pick(&[1, 2, 4, 4, 8]));
    if random.chance(30) {
        for device in &mut node.devices {
            *device = Device { model: "A100".into(), memory: Bytes::gib(80) };
        }
    }
    node.cpu = Cpu::cores(*random.pick(&[4, 16, 64]));
    let rack = format!("r{}", random.below(3));
    if random.chance(80) {
        node.labels.insert("rack".into(), rack.as_str().into());
    }
    node
}

fn random_entitlement(random: &mut Random, most: u64) -> Entitlement {
    let mut entitlement =
        Entitlement { quota: Some(Gpus::whole(random.below(most))), ..Entitlement::default() };
    if random.chance(10) {
        entitlement.quota = None;
    }
    if random.chance(20) {
        entitlement.limit = Some(Gpus::whole(1 + random.below(2 * most)));
    }
    if random.chance(25) {
        entitlement.weight = Some(Gpus::whole(random.below(4)));
    }
    if random.chance(20) {
        entitlement.rank = random.below(3) as i32 - 1;
    }
    if random.chance(10) {
        entitlement.cpu_quota = Some(Cpu::cores(4 + random.below(40)));
    }
    if random.chance(10) {
        entitlement.model_quotas.insert("A100".into(), Gpus::whole(random.below(6)));
    }
    entitlement
}

fn random_project(random: &mut Random, id: u64, departments: u64) -> Project {
    let mut project = Project::named(ProjectId(id), format!("p{id}"));
    project.department =
        (departments > 0 && random.chance(80)).then(|| DepartmentId(1 + random.below(departments)));
    let entitlement = random_entitlement(random, 8);
    project.entitlements.insert(default_pool(), entitlement);
    if random.chance(15) {
        project.min_run = Span::secs(random.below(20));
    }
    if random.chance(10) {
        project.train_nodes = selector(random);
    }
    if random.chance(10) {
        project.time_limit = Some(Span::secs(10 + random.below(100)));
    }
    project
}

fn selector(random: &mut Random) -> Selector {
    let values =
        (0..1 + random.below(2)).map(|_| Name::from(format!("r{}", random.below(3)).as_str())).collect();
    Selector([(Name::from("rack"), values)].into())
}

/// A random workload.
pub fn spec(random: &mut Random, projects: u64) -> WorkloadSpec {
    let mut spec = train(1 + random.below(projects), *random.pick(&[1, 1, 1, 2, 2, 4, 8]));
    match random.below(10) {
        0 | 1 => spec.request.gpu = fraction(*random.pick(&[250, 300, 500, 600])),
        2 => {
            spec.request.gpu = GpuRequest::Memory {
                bytes: NonZeroU64::new(Bytes::gib(*random.pick(&[4, 20, 40])).0).expect("some"),
                devices: NonZeroU8::new(1 + random.below(2) as u8).expect("some"),
            };
        }
        3 if random.chance(30) => {
            let share = Share::from_millionths(500_000).expect("a half");
            spec.request.gpu = GpuRequest::Fraction { share, devices: NonZeroU8::new(2).expect("two") };
        }
        4 if random.chance(20) => spec.request.gpu = GpuRequest::None,
        _ => {}
    }
    if random.chance(30) {
        let min = 1 + random.below(4) as u32;
        let extra = if random.chance(40) { random.below(3) as u32 } else { 0 };
        spec.tasks = Tasks::new(min, min + extra).expect("a gang");
        spec.kind = Kind::Distributed;
    }
    if random.chance(20) {
        spec.kind = Kind::Interactive;
        spec.preemptible = random.chance(20);
        spec.priority = spec.kind.priority(spec.preemptible);
    }
    if random.chance(15) {
        spec.priority = 40 + random.below(40) as i32;
    }
    spec.request.cpu = Cpu::cores(random.below(4));
    if random.chance(8) && spec.request.gpu != GpuRequest::None {
        spec.request.models.insert((*random.pick(&["A100", "V100"])).into());
    }
    if random.chance(8) {
        spec.selector = selector(random);
    }
    if random.chance(10) {
        let level = if random.chance(50) { TopologyLevel::Node } else { TopologyLevel::Label("rack".into()) };
        if random.chance(50) {
            spec.topology.required = Some(level);
        } else {
            spec.topology.preferred = Some(level);
        }
    }
    if random.chance(10) {
        spec.spread = if random.chance(50) { Spread::Spread } else { Spread::Apart };
    }
    if random.chance(10) {
        spec.max_run = Some(Span::secs(5 + random.below(60)));
    }
    spec.retry_limit = random.below(2) as u32;
    spec
}

/// One random thing that happens; returns what it was, for people.
pub fn step(random: &mut Random, world: &mut World) -> String {
    world.now = world.now + Span(*random.pick(&[0, 1, 1000, 10_000]));
    let projects = world.state.projects.len() as u64;
    let running: Vec<WorkloadId> = world
        .state
        .workloads
        .values()
        .filter(|workload| workload.is_running())
        .map(|workload| workload.id)
        .collect();
    let open: Vec<WorkloadId> = world
        .state
        .workloads
        .values()
        .filter(|workload| !workload.is_finished())
        .map(|workload| workload.id)
        .collect();
    match random.below(20) {
        0..9 => {
            let mut spec = spec(random, projects);
            let all_limited = world.state.projects.values().all(|project| project.time_limit.is_some());
            if all_limited && random.chance(40) {
                // Small, soon over, and of no higher priority than others: this is what passes reservations.
                (spec.preemptible, spec.priority) = (false, 50);
                spec.tasks = Tasks::ONE;
                spec.request.gpu = fraction(*random.pick(&[250, 500, 1000]));
                spec.max_run = Some(Span::secs(1 + random.below(10)));
            }
            let text = format!("submit {spec:?}");
            let id = world.submit(spec);
            format!("{id:?} {text}")
        }
        9 | 10 if !running.is_empty() => {
            let id = *random.pick(&running);
            let outcome = *random.pick(&[
                TaskOutcome::Succeeded,
                TaskOutcome::Succeeded,
                TaskOutcome::Failed,
                TaskOutcome::Lost,
            ]);
            let ranks: Vec<u32> = world.state.workloads[&id].places().map(|place| place.rank).collect();
            let rank = *random.pick(&ranks);
            world.apply(Change::Ended { workload: id, rank, outcome, at: world.now });
            format!("end {id:?}/{rank} {outcome:?}")
        }
        11 if !open.is_empty() => {
            let id = *random.pick(&open);
            world.apply(Change::Cancelled { workload: id, at: world.now });
            format!("cancel {id:?}")
        }
        12 if !running.is_empty() => {
            let id = *random.pick(&running);
            world.apply(Change::Checkpointed { workload: id, at: world.now });
            format!("checkpoint {id:?}")
        }
        13 => {
            let id = 1 + random.below(projects);
            let known = &world.state.projects[&ProjectId(id)];
            let mut project = random_project(random, id, 0);
            (project.department, project.time_limit) = (known.department, known.time_limit);
            world.apply(Change::ProjectSet(project.clone()));
            format!("set {project:?}")
        }
        14 => {
            let ids: Vec<NodeId> = world.state.nodes.keys().copied().collect();
            let mut node = world.state.nodes[random.pick(&ids)].clone();
            node.condition = match node.condition {
                NodeCondition::Ready if random.chance(50) => NodeCondition::Cordoned,
                _ => NodeCondition::Ready,
            };
            world.apply(Change::NodeSet(node.clone()));
            format!("set {:?} {:?}", node.id, node.condition)
        }
        15 | 16 => {
            confirm_some(random, world);
            "confirm some".into()
        }
        _ => {
            world.confirm();
            "confirm all".into()
        }
    }
}

fn confirm_some(random: &mut Random, world: &mut World) {
    let workloads: Vec<Workload> = world.state.workloads.values().cloned().collect();
    for workload in workloads {
        for place in workload.leaving() {
            if random.chance(50) {
                world.apply(Change::Stopped { workload: workload.id, rank: place.rank, at: world.now });
            }
        }
        match world.state.workloads[&workload.id].phase {
            Phase::Running { confirmed: false, .. } if random.chance(50) => {
                world.apply(Change::Confirmed { workload: workload.id });
            }
            // A start can fail, and the node of a held place can be lost before it is left.
            Phase::Running { confirmed: false, .. } | Phase::Held { .. } if random.chance(10) => {
                world.apply(Change::Refused { workload: workload.id, at: world.now });
            }
            _ => {}
        }
    }
}
