//! The numbers behind a wait are counted again from the plain state, causes are tried by removing them, and every change
//! that is suggested is made: it must start the workload in the next plan.

mod support;

use berth_types::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    sync::atomic::{AtomicU64, Ordering},
};
use support::{
    cases::{self, SMALL},
    random::Random,
    scenes::*,
    seeds, *,
};

fn details(world: &World, id: WorkloadId) -> WaitDetails {
    let reason = world.engine.explain(id, world.now).expect("it waits").reason;
    world.engine.wait_details(id, &reason).expect("it waits")
}

/// The request with a change. Values that were defaults of what changed follow it.
fn respecified(change: &RequestChange, spec: &WorkloadSpec) -> WorkloadSpec {
    let mut changed = spec.clone();
    match change {
        RequestChange::Model(model) => changed.request.models = [model.clone()].into(),
        RequestChange::Pool(pool) => changed.pool = pool.clone(),
        RequestChange::AnyNode => changed.selector = Selector::default(),
        RequestChange::Cpu(cpu) => changed.request.cpu = *cpu,
        RequestChange::Memory(memory) => changed.request.memory = *memory,
        RequestChange::Preemptible => {
            changed.preemptible = true;
            if spec.priority == spec.kind.priority(spec.preemptible) {
                changed.priority = spec.kind.priority(true);
            }
        }
        RequestChange::MinTasks(min) => {
            changed.tasks = Tasks::new(*min, spec.tasks.max()).unwrap_or(spec.tasks);
        }
        RequestChange::Split { tasks, gpus } => {
            changed.tasks = Tasks::new(*tasks, *tasks).unwrap_or(spec.tasks);
            changed.request.gpu = GpuRequest::Whole(*gpus);
            if spec.kind == Kind::Train {
                changed.kind = Kind::Distributed;
            }
        }
        RequestChange::Gpus(gpu) => changed.request.gpu = *gpu,
    }
    changed
}

fn suggestions(world: &World, id: WorkloadId) -> Vec<Suggestion> {
    let spec = world.state.workloads[&id].spec.clone();
    world.engine.suggest(id, &details(world, id), world.now, |change| Some(respecified(change, &spec)))
}

fn changes(world: &World, id: WorkloadId) -> Vec<RequestChange> {
    suggestions(world, id).into_iter().map(|suggestion| suggestion.change).collect()
}

fn whole_gpus(count: u8) -> RequestChange {
    RequestChange::Gpus(GpuRequest::Whole(NonZeroU8::new(count).expect("some")))
}

fn cordon(world: &mut World, id: u64) {
    let mut node = world.state.nodes[&NodeId(id)].clone();
    node.condition = NodeCondition::Cordoned;
    world.apply(Change::NodeSet(node));
}

#[test]
fn a_full_cluster_is_told_in_numbers() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 1), project(2, 1)]);
    run(&mut world, train(1, 1));
    run(&mut world, train(2, 1));
    let waiting = run(&mut world, train(2, 1));
    let found = details(&world, waiting);
    assert_eq!((found.asked, found.free, found.capacity), (Gpus::ONE, Gpus::ZERO, Gpus::whole(2)));
    assert_eq!((found.tasks, found.nodes), (1, 1));
    let project = AccountUse {
        account: Account::Project(ProjectId(2)),
        quota: Some(Gpus::ONE),
        used: Gpus::ONE,
        non_preemptible: Gpus::ZERO,
        fair_share: Gpus::ONE,
        limit: None,
    };
    assert_eq!(found.accounts, [project]);
    assert_eq!(found.blockers, [Blocker::GpusInUse { asked: 1, largest: Gpus::ZERO }]);
    assert_eq!(suggestions(&world, waiting), [], "nothing smaller would start either");
}

#[test]
fn departments_with_a_quota_or_a_limit_are_listed_and_others_are_not() {
    let mut world = world(&[1]);
    world.apply(Change::DepartmentSet(department(1, 4)));
    let neutral =
        Department { parent: Some(DepartmentId(1)), entitlements: Default::default(), ..department(2, 0) };
    world.apply(Change::DepartmentSet(neutral));
    add(&mut world, [inside(project(1, 1), 2)]);
    run(&mut world, train(1, 1));
    let waiting = run(&mut world, train(1, 1));
    let accounts: Vec<Account> = details(&world, waiting).accounts.iter().map(|one| one.account).collect();
    assert_eq!(accounts, [Account::Project(ProjectId(1)), Account::Department(DepartmentId(1))]);
}

#[test]
fn a_job_larger_than_every_node_is_told_the_largest_and_to_split() {
    let mut world = world(&[8, 8, 8]);
    add(&mut world, [project(1, 24)]);
    let waiting = run(&mut world, train(1, 24));
    assert_eq!(details(&world, waiting).blockers, [Blocker::NodeGpus { asked: 24, largest: 8 }]);
    let gpus = NonZeroU8::new(8).expect("some");
    assert_eq!(changes(&world, waiting), [RequestChange::Split { tasks: 3, gpus }, whole_gpus(8)]);
}

#[test]
fn too_much_memory_and_cpu_are_named_with_the_largest_node() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 2)]);
    let mut spec = train(1, 1);
    spec.request.memory = Bytes::gib(4000);
    let waiting = run(&mut world, spec);
    let blocker = Blocker::NodeMemory { asked: Bytes::gib(4000), largest: Bytes::gib(512) };
    assert_eq!(details(&world, waiting).blockers, [blocker]);
    assert_eq!(changes(&world, waiting), [RequestChange::Memory(Bytes::gib(512))]);
    let mut spec = train(1, 1);
    spec.request.cpu = Cpu::cores(100);
    let waiting = run(&mut world, spec);
    let blocker = Blocker::NodeCpu { asked: Cpu::cores(100), largest: Cpu::cores(64) };
    assert_eq!(details(&world, waiting).blockers, [blocker]);
    assert_eq!(changes(&world, waiting), [RequestChange::Cpu(Cpu::cores(64))]);
}

#[test]
fn a_model_that_no_node_has_is_named_with_those_there() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 2)]);
    let mut spec = train(1, 1);
    spec.request.models.insert("H100".into());
    let waiting = run(&mut world, spec);
    assert_eq!(details(&world, waiting).blockers, [Blocker::Model { there: vec!["V100".into()] }]);
    assert_eq!(changes(&world, waiting), [RequestChange::Model("V100".into())]);
}

#[test]
fn cordoned_nodes_are_named_whether_all_are_or_only_those_with_room() {
    let mut world = world(&[2, 2]);
    add(&mut world, [project(1, 4)]);
    cordon(&mut world, 1);
    run(&mut world, train(1, 2));
    let waiting = run(&mut world, train(1, 2));
    let cordoned = |nodes: &[u64], free| Blocker::Cordoned {
        nodes: nodes.iter().copied().map(NodeId).collect(),
        free: Gpus::whole(free),
    };
    let in_use = Blocker::GpusInUse { asked: 2, largest: Gpus::ZERO };
    assert_eq!(details(&world, waiting).blockers, [in_use, cordoned(&[1], 2)]);
    cordon(&mut world, 2);
    world.settle();
    assert_eq!(details(&world, waiting).blockers, [cordoned(&[1, 2], 2)]);
}

#[test]
fn labels_of_the_request_and_of_the_project_are_told_apart() {
    let mut world = world(&[2, 2]);
    label(&mut world, 1, "rack", "a");
    add(&mut world, [project(1, 2), Project { train_nodes: on_rack("b"), ..project(2, 2) }]);
    let waiting = run(&mut world, WorkloadSpec { selector: on_rack("b"), ..train(1, 1) });
    assert_eq!(details(&world, waiting).blockers, [Blocker::Selector { free: Gpus::whole(4) }]);
    assert_eq!(changes(&world, waiting), [RequestChange::AnyNode]);
    let bound = run(&mut world, train(2, 1));
    assert_eq!(details(&world, bound).blockers, [Blocker::Affinity { free: Gpus::whole(4) }]);
    assert_eq!(changes(&world, bound), []);
}

#[test]
fn a_pool_without_nodes_is_named_and_another_is_offered() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 2)]);
    let waiting = run(&mut world, WorkloadSpec { pool: "empty".into(), ..train(1, 1) });
    assert_eq!(details(&world, waiting).blockers, [Blocker::NoNodes]);
    assert_eq!(changes(&world, waiting), [RequestChange::Pool(default_pool())]);
}

#[test]
fn free_gpus_beside_too_little_free_cpu_are_blocked_by_cpu() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 4)]);
    let with_cpu = |cores| {
        let mut spec = train(1, 1);
        spec.request.cpu = Cpu::cores(cores);
        spec
    };
    run(&mut world, with_cpu(60));
    let waiting = run(&mut world, with_cpu(8));
    let found = details(&world, waiting);
    assert_eq!(found.free, Gpus::whole(3));
    assert_eq!(found.blockers, [Blocker::CpuInUse { asked: Cpu::cores(8), largest: Cpu::cores(4) }]);
    assert_eq!(changes(&world, waiting), [RequestChange::Cpu(Cpu::cores(4))]);
}

#[test]
fn free_gpus_that_are_scattered_are_counted_on_one_node_too() {
    let mut world = world(&[2, 2]);
    add(&mut world, [project(1, 4)]);
    let spread = run(&mut world, WorkloadSpec { spread: Spread::Apart, ..gang(1, 2, 2) });
    assert!(runs(&world, spread));
    let waiting = run(&mut world, train(1, 2));
    let found = details(&world, waiting);
    assert_eq!(found.free, Gpus::whole(2));
    assert_eq!(found.blockers, [Blocker::GpusInUse { asked: 2, largest: Gpus::ONE }]);
    let split = RequestChange::Split { tasks: 2, gpus: NonZeroU8::MIN };
    assert_eq!(changes(&world, waiting), [split, whole_gpus(1)]);
}

#[test]
fn a_gang_too_large_for_all_nodes_is_told_how_many_fit() {
    let mut world = world(&[8, 8]);
    add(&mut world, [project(1, 16)]);
    let waiting = run(&mut world, WorkloadSpec { tasks: Tasks::new(50, 50).expect("a gang"), ..train(1, 8) });
    assert_eq!(details(&world, waiting).blockers, [Blocker::PoolSize { tasks: 50, most: 2 }]);
    assert_eq!(changes(&world, waiting)[0], RequestChange::MinTasks(2));
}

#[test]
fn a_gang_that_must_be_together_or_apart_is_told_so() {
    let mut world = world(&[2, 2]);
    add(&mut world, [project(1, 4)]);
    let topology = Topology { required: Some(TopologyLevel::Node), preferred: None };
    let together = run(&mut world, WorkloadSpec { topology, ..gang(1, 4, 4) });
    assert_eq!(
        details(&world, together).blockers,
        [Blocker::PoolSize { tasks: 4, most: 2 }, Blocker::Topology { tasks: 4, most: 2 }]
    );
    let apart = run(&mut world, WorkloadSpec { spread: Spread::Apart, ..gang(1, 3, 3) });
    assert_eq!(details(&world, apart).blockers, [Blocker::Apart { tasks: 3, most: 2 }]);
}

#[test]
fn nodes_without_gpus_are_told_as_such() {
    let mut world = world(&[0]);
    add(&mut world, [project(1, 1)]);
    let waiting = run(&mut world, train(1, 1));
    assert_eq!(details(&world, waiting).blockers, [Blocker::NodeGpus { asked: 1, largest: 0 }]);
}

#[test]
fn a_gang_of_which_only_a_part_fits_is_told_how_many() {
    let mut world = world(&[4, 4, 4]);
    add(&mut world, [project(1, 10)]);
    run(&mut world, train(1, 3));
    let waiting = run(&mut world, WorkloadSpec { request: train(1, 3).request, ..gang(1, 3, 3) });
    let found = details(&world, waiting);
    assert_eq!((found.asked, found.free), (Gpus::whole(9), Gpus::whole(9)));
    assert_eq!(found.blockers, [Blocker::TooFewFit { tasks: 3, most: 2 }]);
}

#[test]
fn the_node_with_most_free_gpus_is_the_one_that_counts() {
    let mut world = world(&[4, 4]);
    add(&mut world, [project(1, 8)]);
    run(&mut world, train(1, 3));
    run(&mut world, train(1, 2));
    let waiting = run(&mut world, train(1, 3));
    assert_eq!(details(&world, waiting).blockers, [Blocker::GpusInUse { asked: 3, largest: Gpus::whole(2) }]);
}

#[test]
fn cpu_that_suffices_for_each_worker_is_not_suggested_as_less() {
    let mut world = world(&[8]);
    add(&mut world, [project(1, 8)]);
    let request = Request { cpu: Cpu::cores(30), ..gang(1, 1, 1).request };
    let waiting = run(&mut world, WorkloadSpec { request: request.clone(), ..gang(1, 3, 3) });
    let found = details(&world, waiting);
    let said =
        |blocker: &Blocker| matches!(blocker, Blocker::CpuInUse { asked, largest } if largest >= asked);
    assert!(!found.blockers.iter().any(said), "{found:?}");
    let more = |change: &RequestChange| matches!(change, RequestChange::Cpu(cpu) if *cpu >= request.cpu);
    assert!(!changes(&world, waiting).iter().any(more), "{:?}", changes(&world, waiting));
}

#[test]
fn a_reservation_is_named_with_its_owner() {
    let policy = Policy { reserve_after: Span::ZERO, ..Policy::default() };
    let mut world = world_with(policy, &[3]);
    add(&mut world, [project(1, 3), project(2, 1)]);
    run(&mut world, WorkloadSpec { max_run: Some(Span::secs(1000)), ..interactive(1, 1) });
    // It uses its project's quota, and is not below the priority of a session.
    run(&mut world, prioritised(100, train(2, 1)));
    let large = run(&mut world, train(1, 2));
    assert!(!world.state.workloads[&large].reserved_places().is_empty(), "it has a reservation");
    let waiting = run(&mut world, interactive(2, 1));
    let found = details(&world, waiting);
    assert_eq!(found.free, Gpus::ONE);
    let in_use = Blocker::GpusInUse { asked: 1, largest: Gpus::ONE };
    assert_eq!(found.blockers, [in_use, Blocker::Reserved { owners: vec![large] }]);
}

#[test]
fn a_session_past_its_quota_may_become_preemptible() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 1)]);
    run(&mut world, interactive(1, 1));
    let waiting = run(&mut world, interactive(1, 2));
    let found = details(&world, waiting);
    assert_eq!((found.free, found.blockers.as_slice()), (Gpus::whole(3), [].as_slice()));
    assert_eq!(changes(&world, waiting), [RequestChange::Preemptible]);
}

#[test]
fn a_limit_leaves_fewer_gpus() {
    let mut world = world(&[8]);
    add(&mut world, [entitled(1, 2, |entitlement| entitlement.limit = Some(Gpus::whole(3)))]);
    run(&mut world, train(1, 1));
    let waiting = run(&mut world, train(1, 4));
    let found = details(&world, waiting);
    assert_eq!(found.accounts[0].limit, Some(Gpus::whole(3)));
    assert_eq!(found.blockers, [], "nodes have room");
    assert_eq!(changes(&world, waiting), [whole_gpus(2)]);
}

#[test]
fn what_is_left_of_a_device_is_offered_as_a_fraction() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 1)]);
    let mut half = interactive(1, 1);
    half.request.gpu = fraction(400);
    run(&mut world, half);
    let waiting = run(&mut world, interactive(1, 1));
    let share = Share::from_millionths(600_000).expect("a share");
    let fraction = GpuRequest::Fraction { share, devices: NonZeroU8::MIN };
    assert_eq!(changes(&world, waiting), [RequestChange::Gpus(fraction)]);
}

#[test]
fn a_suggestion_names_who_would_leave_for_it() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 0), project(2, 2)]);
    let borrower = run(&mut world, train(1, 4));
    let waiting = run(&mut world, interactive(2, 4));
    let found = suggestions(&world, waiting);
    let fewer = found.iter().find(|found| found.change == whole_gpus(2)).expect("two are in its quota");
    assert_eq!(fewer.evicts, [borrower]);
}

#[test]
fn the_position_counts_the_own_project_and_names_heads_of_others() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 0), project(2, 1), project(3, 0)]);
    run(&mut world, interactive(2, 1));
    let older = run(&mut world, train(1, 1));
    let urgent = run(&mut world, prioritised(60, train(1, 1)));
    let other = run(&mut world, train(3, 1));
    run(&mut world, train(3, 1));
    run(&mut world, train(1, 8));
    let last = run(&mut world, train(1, 1));
    let found = details(&world, last).queue;
    assert_eq!((found.position, found.waiting), (3, 3), "what never starts is not counted");
    assert_eq!(found.ahead, [urgent, older]);
    assert_eq!((found.heads_ahead, found.heads_ahead_count), (vec![other], 1));
    let first = details(&world, urgent).queue;
    assert_eq!((first.position, first.heads_ahead.len()), (1, 0), "it is older than the head of the other");
}

#[test]
fn what_does_not_wait_has_no_numbers() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 1)]);
    let running = run(&mut world, train(1, 1));
    assert_eq!(world.engine.wait_details(running, &WaitReason::Ready), None);
    assert_eq!(world.engine.wait_details(WorkloadId(99), &WaitReason::Ready), None);
}

/// Free GPUs of a node and of those devices of it that can serve a request, in millionths, counted from the plain state.
fn free_on(world: &World, node: &Node, request: &Request) -> Gpus {
    let mut free = vec![Gpus::SCALE; node.devices.len()];
    let places = world.state.workloads.values().flat_map(|workload| workload.places().collect::<Vec<_>>());
    for taken in places.filter(|place| place.node == node.id).flat_map(|place| &place.devices) {
        free[usize::from(taken.device)] -= taken.share.gpus().0;
    }
    let serves = |device: &Device| {
        request.accepts_model(&device.model) && request.gpu.share_on(device.memory).is_some()
    };
    node.devices.iter().zip(free).filter(|(device, _)| serves(device)).map(|(_, free)| Gpus(free)).sum()
}

/// What is wrong with the numbers, if anything.
fn check_numbers(world: &World, workload: &Workload, found: &WaitDetails) -> Vec<String> {
    let mut problems = Vec::new();
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            problems.push(text.to_string());
        }
    };
    let (spec, project) = (&workload.spec, &world.state.projects[&workload.spec.project]);
    let affinity =
        if spec.kind == Kind::Interactive { &project.interactive_nodes } else { &project.train_nodes };
    let serves = |node: &&Node| {
        let may_use = spec.selector.accepts(&node.labels) && affinity.accepts(&node.labels);
        let devices = spec.request.gpu == GpuRequest::None
            || node.devices.iter().any(|device| {
                spec.request.accepts_model(&device.model)
                    && spec.request.gpu.share_on(device.memory).is_some()
            });
        may_use && devices && node.condition == NodeCondition::Ready && node.pool() == spec.pool
    };
    let nodes: Vec<&Node> = world.state.nodes.values().filter(serves).collect();
    demand(found.nodes == nodes.len() as u64, "nodes that it may use are counted otherwise");
    let free: Gpus = nodes.iter().map(|node| free_on(world, node, &spec.request)).sum();
    demand(found.free == free, "free GPUs are counted otherwise");
    demand(found.tasks == spec.tasks.min(), "tasks are not its minimum");
    let shares: BTreeMap<Account, Gpus> = world.engine.fair_shares(&spec.pool).into_iter().collect();
    for one in &found.accounts {
        demand(shares[&one.account] == one.fair_share, "the fair share is another");
        if let Account::Project(id) = one.account {
            let own = world.state.workloads.values().filter(|other| other.spec.project == id);
            let used = own.flat_map(|other| other.base_places().map(Place::gpus).collect::<Vec<_>>()).sum();
            demand(one.used == used, "used GPUs are counted otherwise");
        }
    }
    problems
}

/// Whether a workload would fit nodes that are empty, once the named causes are gone.
fn fits_without(world: &World, workload: &Workload, blockers: &[Blocker]) -> bool {
    let mut alone = State { nodes: world.state.nodes.clone(), ..State::default() };
    let mut project = world.state.projects[&workload.spec.project].clone();
    project.department = None;
    let entitlement = Entitlement { quota: Some(Gpus::MAX), ..Entitlement::default() };
    project.entitlements = [(workload.spec.pool.clone(), entitlement)].into();
    let mut spec = workload.spec.clone();
    for blocker in blockers {
        match blocker {
            Blocker::Selector { .. } => spec.selector = Selector::default(),
            Blocker::Affinity { .. } => {
                project.train_nodes = Selector::default();
                project.interactive_nodes = Selector::default();
            }
            Blocker::Model { .. } => spec.request.models.clear(),
            Blocker::NodeCpu { .. } => spec.request.cpu = Cpu::ZERO,
            Blocker::NodeMemory { .. } => spec.request.memory = Bytes::ZERO,
            Blocker::Topology { .. } => spec.topology.required = None,
            Blocker::Apart { .. } => spec.spread = Spread::Pack,
            Blocker::Cordoned { nodes, .. } => {
                for node in alone.nodes.values_mut().filter(|node| nodes.contains(&node.id)) {
                    node.condition = NodeCondition::Ready;
                }
            }
            // Their inverse is more GPUs, which no request can ask for.
            _ => return true,
        }
    }
    alone.projects.insert(project.id, project);
    alone.workloads.insert(Workload::submitted(workload.id, spec, workload.submitted));
    let mut engine =
        berth_engine::Engine::with_state(Policy::default(), &alone).expect("a state that can be");
    engine.plan(world.now);
    engine.workload(workload.id).expect("was submitted").places().next().is_some()
}

/// Makes a suggested change as its owner would, and asks the checker about the plan that follows.
fn make_change(world: &World, policy: &Policy, id: WorkloadId, suggestion: &Suggestion) -> Vec<String> {
    let mut world = world.clone();
    let spec = respecified(&suggestion.change, &world.state.workloads[&id].spec);
    world.apply(Change::Cancelled { workload: id, at: world.now });
    let made = world.submit(spec);
    let before = world.state.clone();
    let plan = world.plan();
    let findings = berth_check::check_plan(policy, &before, &plan);
    let mut problems: Vec<String> =
        findings.into_iter().map(|finding| format!("{:?}: {}", finding.rule, finding.text)).collect();
    if world.state.workloads[&made].places().next().is_none() {
        problems.push("that does not start it".into());
    }
    let left: BTreeSet<WorkloadId> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Evict { workload, winner, .. }
            | Action::Shrink { workload, winner, .. }
            | Action::Move { workload, winner: Some(winner), .. }
                if *winner == made =>
            {
                Some(*workload)
            }
            _ => None,
        })
        .collect();
    if left != suggestion.evicts.iter().copied().collect() {
        problems.push(format!("{left:?} leave for it, and {:?} were named", suggestion.evicts));
    }
    problems
}

#[test]
fn every_suggested_change_starts_the_workload_and_every_number_is_right() {
    let (waits, made) = (AtomicU64::new(0), AtomicU64::new(0));
    seeds::for_each_seed("suggestions", seeds::cases(1_000), |seed| {
        let policy = cases::policy(&mut Random(seed));
        let mut random = Random(seed);
        let mut world = cases::world(&mut random, SMALL);
        let mut history = vec![];
        for step in 0..SMALL.steps {
            history.push(cases::step(&mut random, &mut world));
            world.plan();
            if step % 4 != 3 {
                continue;
            }
            for id in world.queued() {
                let workload = &world.state.workloads[&id];
                let reason = world.engine.explain(id, world.now).expect("it waits").reason;
                let found = world.engine.wait_details(id, &reason).expect("it waits");
                let mut problems = check_numbers(&world, workload, &found);
                waits.fetch_add(1, Ordering::Relaxed);
                if let WaitReason::Never { .. } = reason {
                    if found.blockers.is_empty() {
                        problems.push("it can never start, and nothing blocks it".into());
                    }
                    // A cause that blocks alone is tried alone.
                    let together = found.blockers.as_slice();
                    let alone: Vec<&[Blocker]> = together.chunks(1).collect();
                    let any = |set: &&[Blocker]| fits_without(&world, workload, set);
                    if !fits_without(&world, workload, together) && !alone.iter().any(any) {
                        problems.push("it does not fit without what blocks it".into());
                    }
                }
                let what_ifs = AtomicU64::new(0);
                let suggested = world.engine.suggest(id, &found, world.now, |change| {
                    what_ifs.fetch_add(1, Ordering::Relaxed);
                    Some(respecified(change, &workload.spec))
                });
                if what_ifs.into_inner() > berth_engine::Engine::WHAT_IFS_MAX as u64 {
                    problems.push("too many changes are planned".into());
                }
                made.fetch_add(suggested.len() as u64, Ordering::Relaxed);
                if suggested.len() > 3 {
                    problems.push("too many are suggested".into());
                }
                for suggestion in &suggested {
                    let wrong = make_change(&world, &policy, id, suggestion);
                    problems.extend(wrong.iter().map(|text| format!("{suggestion:?}: {text}")));
                }
                if !problems.is_empty() {
                    let text = problems.join("\n");
                    return Err(format!("{id:?} {reason:?}\n{text}\n{found:#?}\n--\n{}", history.join("\n")));
                }
            }
        }
        Ok(())
    });
    let (waits, made) = (waits.into_inner(), made.into_inner());
    println!("{made} changes suggested for {waits} waits");
    assert!(made * 10 > waits || waits == 0, "changes are found for a fair part");
}
