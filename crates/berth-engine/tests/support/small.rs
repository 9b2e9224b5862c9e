//! Random small worlds, in which everything that the rules allow can be tried: trees of two levels of departments with
//! quotas above and below the sum of their children, limits, weights of 0, ranks; fractions, gangs, extras and moves.
#![allow(dead_code, unreachable_pub)]

use super::{World, fraction, node, project, random::Random, train};
use berth_types::*;

/// Waiting work at one time.
const WAITING_MAX: usize = 4;
/// Running work at one time.
const RUNNING_MAX: usize = 8;

/// Devices by node; never more than six.
const LAYOUTS: [&[usize]; 10] =
    [&[2], &[4], &[6], &[1, 1], &[2, 1], &[2, 2], &[3, 3], &[4, 2], &[2, 2, 2], &[1, 2, 3]];

/// A policy without reservations: what they hide depends on who asks.
pub fn policy(random: &mut Random) -> Policy {
    Policy {
        reserve_after: Span::secs(1_000_000_000),
        moves: random.chance(60),
        patience: Span::secs(*random.pick(&[0, 20, 3600])),
        ..Policy::default()
    }
}

fn entitlement(random: &mut Random, unset: u64) -> Entitlement {
    let mut entitlement = Entitlement::default();
    if !random.chance(unset) {
        entitlement.quota = Some(Gpus(random.below(9) * Gpus::SCALE / 2));
    }
    if random.chance(15) {
        entitlement.limit = Some(Gpus::whole(1 + random.below(6)));
    }
    if random.chance(25) {
        entitlement.weight = Some(Gpus::whole(random.below(3)));
    }
    if random.chance(20) {
        entitlement.rank = random.below(2) as i32;
    }
    if random.chance(5) {
        entitlement.cpu_quota = Some(Cpu::cores(4 + random.below(20)));
    }
    entitlement
}

/// A world with nodes, departments and projects, nothing submitted.
pub fn world(random: &mut Random) -> World {
    let mut world = World::new(policy(random));
    for (at, devices) in (1..).zip(*random.pick(&LAYOUTS)) {
        let mut node = node(at, *devices);
        node.cpu = Cpu::cores(16);
        world.apply(Change::NodeSet(node));
    }
    let departments = if random.chance(60) { 1 + random.below(4) } else { 0 };
    for id in 1..=departments {
        // The first two are on the upper level, the others below one of them.
        let parent = (id > 2 && random.chance(80)).then(|| DepartmentId(1 + random.below(2)));
        let mut department = Department {
            id: DepartmentId(id),
            name: format!("d{id}"),
            parent,
            entitlements: Default::default(),
        };
        if random.chance(80) {
            department.entitlements.insert(default_pool(), entitlement(random, 30));
        }
        world.apply(Change::DepartmentSet(department));
    }
    for id in 1..=2 + random.below(3) {
        let mut project = project(id, 0);
        project.entitlements.insert(default_pool(), entitlement(random, 5));
        project.department =
            (departments > 0 && random.chance(80)).then(|| DepartmentId(1 + random.below(departments)));
        if random.chance(15) {
            project.min_run = Span::secs(*random.pick(&[5, 20]));
        }
        world.apply(Change::ProjectSet(project));
    }
    world
}

/// A random workload.
pub fn spec(random: &mut Random, projects: u64) -> WorkloadSpec {
    let mut spec = train(1 + random.below(projects), *random.pick(&[1, 1, 1, 2, 2, 3, 4]));
    if random.chance(25) {
        spec.request.gpu = fraction(*random.pick(&[250, 300, 500, 600]));
    } else if random.chance(20) {
        spec.request.gpu = GpuRequest::Whole(std::num::NonZeroU8::MIN);
        let min = 1 + random.below(3) as u32;
        let extras = if random.chance(40) { 1 + random.below(2) as u32 } else { 0 };
        spec.tasks = Tasks::new(min, min + extras).expect("a gang");
        spec.kind = Kind::Distributed;
        if random.chance(10) {
            spec.topology.required = Some(TopologyLevel::Node);
        }
        if random.chance(10) {
            spec.spread = Spread::Apart;
        }
    }
    if random.chance(15) {
        spec.kind = Kind::Interactive;
        spec.preemptible = random.chance(20);
        spec.priority = spec.kind.priority(spec.preemptible);
    }
    if random.chance(25) {
        spec.priority = 40 + random.below(4) as i32 * 10;
    }
    if random.chance(15) {
        spec.request.cpu = Cpu::cores(2 + random.below(9));
    }
    spec
}

fn ids(world: &World, is: impl Fn(&Workload) -> bool) -> Vec<WorkloadId> {
    world.state.workloads.values().filter(|own| is(own)).map(|own| own.id).collect()
}

/// Submits a random workload, unless the world is full already.
pub fn submit(random: &mut Random, world: &mut World) -> String {
    let waiting = ids(world, |own| own.is_queued() || matches!(own.phase, Phase::Stopping { .. }));
    let placed = ids(world, |own| own.places().next().is_some());
    let spec = spec(random, world.state.projects.len() as u64);
    if waiting.len() >= WAITING_MAX || placed.len() >= RUNNING_MAX {
        return "full".into();
    }
    let text = told(&spec);
    let id = world.submit(spec);
    format!("submit {id} {text}")
}

/// One random thing that happens; returns what it was, for people.
pub fn step(random: &mut Random, world: &mut World) -> String {
    world.now = world.now + Span::secs(*random.pick(&[0, 1, 1, 10, 60, 4000]));
    let running = ids(world, Workload::is_running);
    let now = world.now;
    match random.below(20) {
        0 | 1 if !running.is_empty() => {
            let workload = *random.pick(&running);
            let ranks: Vec<u32> = world.state.workloads[&workload].places().map(|place| place.rank).collect();
            for rank in ranks {
                let outcome = TaskOutcome::Succeeded;
                world.apply(Change::Ended { workload, rank, outcome, at: now });
            }
            format!("end {workload}")
        }
        2 | 3 if !running.is_empty() => {
            let workload = *random.pick(&running);
            world.apply(Change::Checkpointed { workload, at: now });
            format!("checkpoint {workload}")
        }
        4 => {
            let waiting = world.queued();
            if waiting.is_empty() {
                return "nothing".into();
            }
            let workload = *random.pick(&waiting);
            world.apply(Change::Cancelled { workload, at: now });
            format!("cancel {workload}")
        }
        5 => {
            let id = ProjectId(1 + random.below(world.state.projects.len() as u64));
            let mut project = world.state.projects[&id].clone();
            let quota = Gpus(random.below(9) * Gpus::SCALE / 2);
            project.entitlements.entry(default_pool()).or_default().quota = Some(quota);
            world.apply(Change::ProjectSet(project));
            format!("quota of {id}: {quota}")
        }
        6 => "wait".into(),
        _ => submit(random, world),
    }
}

/// A request as people write it.
fn told(spec: &WorkloadSpec) -> String {
    let WorkloadSpec { project, request, tasks, priority, preemptible, kind, .. } = spec;
    let gang =
        if *tasks == Tasks::ONE { String::new() } else { format!(" tasks {}..{}", tasks.min(), tasks.max()) };
    let fixed = if *preemptible { "" } else { " non-preemptible" };
    let cpu = if request.cpu == Cpu::ZERO { String::new() } else { format!(" {:?}", request.cpu) };
    let gpus = request.gpu.charge_on(Bytes::MAX).unwrap_or_default();
    format!("p{project} {gpus} GPUs{gang} {kind:?} priority {priority}{fixed}{cpu}")
}

fn places_told<'a>(places: impl Iterator<Item = &'a Place>) -> String {
    let told = |place: &Place| {
        let devices: Vec<u8> = place.devices.iter().map(|taken| taken.device).collect();
        format!("{}:{devices:?}", place.node)
    };
    places.map(told).collect::<Vec<_>>().join(" ")
}

/// The decisions of a plan, for people.
pub fn plan_told(plan: &Plan) -> String {
    let actions = plan.actions.iter().map(|action| match action {
        Action::Start { workload, places, basis, .. } => {
            format!("start {workload} at {} by {basis:?}", places_told(places.iter()))
        }
        Action::Hold { workload, places, basis } => {
            format!("hold {workload} at {} by {basis:?}", places_told(places.iter()))
        }
        Action::Evict { workload, winner, rule, lost } => {
            format!("evict {workload} for {winner} by {rule:?}, {lost} lost")
        }
        Action::Move { workload, places, winner, .. } => {
            format!("move {workload} to {} for {winner:?}", places_told(places.iter()))
        }
        Action::Grow { workload, places } => format!("grow {workload} by {}", places_told(places.iter())),
        Action::Shrink { workload, ranks, winner } => format!("shrink {workload} by {ranks:?} for {winner}"),
        other => format!("{other:?}"),
    });
    let actions: Vec<String> = actions.collect();
    format!("plan at {}: {}; wake {:?}", plan.at.0, actions.join(", "), plan.wake.map(|at| at.0))
}

/// What is in a world, for people.
pub fn described(state: &State) -> String {
    let nodes = state.nodes.values().map(|node| format!("node {}: {} devices", node.id, node.devices.len()));
    let set = |entitlements: &std::collections::BTreeMap<Name, Entitlement>| {
        let Some(own) = entitlements.get(&default_pool()) else { return "nothing set".to_owned() };
        let mut text = vec![];
        text.extend(own.quota.map(|quota| format!("quota {quota}")));
        text.extend(own.limit.map(|limit| format!("limit {limit}")));
        text.extend(own.weight.map(|weight| format!("weight {weight}")));
        text.extend((own.rank != 0).then(|| format!("rank {}", own.rank)));
        text.extend(own.cpu_quota.map(|cpu| format!("cpu {cpu:?}")));
        text.join(", ")
    };
    let departments = state.departments.values().map(|own| {
        format!("department {} in {:?}: {}", own.id, own.parent.map(|id| id.0), set(&own.entitlements))
    });
    let projects = state.projects.values().map(|own| {
        let department = own.department.map(|id| id.0);
        format!("project {} in {department:?}: {}, min run {}", own.id, set(&own.entitlements), own.min_run)
    });
    let workloads = state.workloads.values().filter(|own| !own.is_finished()).map(|own| {
        let since = own.running_since().map(|since| since.0);
        let phase = match own.phase {
            Phase::Queued { .. } => "queued",
            Phase::Held { .. } => "held",
            Phase::Running { .. } => "running",
            Phase::Stopping { .. } => "stopping",
            Phase::Finished { .. } => "finished",
        };
        format!(
            "{} {}: {phase} at {} since {since:?}, submitted {}, evicted {:?}, checkpoint {:?}",
            own.id,
            told(&own.spec),
            places_told(own.places()),
            own.submitted.0,
            own.evicted.map(|at| at.0),
            own.checkpoint.map(|at| at.0)
        )
    });
    nodes.chain(departments).chain(projects).chain(workloads).collect::<Vec<_>>().join("\n")
}
