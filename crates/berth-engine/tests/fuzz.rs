//! Hostile input: whatever is sent in whatever order, the engine never panics, a refused change changes nothing, and the
//! engine knows exactly what a plain state knows that was fed the same.

mod support;

use berth_check::Rule;
use berth_engine::Engine;
use berth_types::*;
use std::num::{NonZeroU8, NonZeroU32, NonZeroU64};
use support::{cases, node, random::Random, seeds, train};

/// Ids are few, so that most changes are about something that is there, and some about nothing.
const IDS: u64 = 6;

fn id(random: &mut Random) -> u64 {
    if random.chance(3) { u64::MAX - random.below(2) } else { random.below(IDS) }
}

/// Amounts at and around every bound that a type allows.
fn amount(random: &mut Random) -> u64 {
    let edges = [0, 1, 999_999, 1_000_000, 1 << 40, 1 << 59, 1 << 60, (1 << 60) + 1, u64::MAX - 1, u64::MAX];
    if random.chance(70) { random.below(8) * 1_000_000 } else { *random.pick(&edges) }
}

fn time(random: &mut Random) -> Time {
    if random.chance(10) { Time(amount(random)) } else { Time(random.below(100_000)) }
}

fn span(random: &mut Random) -> Option<Span> {
    random.chance(30).then(|| Span(amount(random) / 1000))
}

fn pool(random: &mut Random) -> Name {
    if random.chance(85) { default_pool() } else { "other".into() }
}

fn hostile_node(random: &mut Random) -> Node {
    let mut node = node(id(random), *random.pick(&[0, 1, 2, 4, 8]));
    if random.chance(10) {
        node.devices = vec![Device { model: "V100".into(), memory: Bytes(amount(random)) }; 65];
    }
    if random.chance(20) {
        for device in &mut node.devices {
            device.memory = Bytes(amount(random));
        }
    }
    if random.chance(20) {
        (node.cpu, node.memory) = (Cpu(amount(random)), Bytes(amount(random)));
    }
    if random.chance(10) {
        node.labels.insert(POOL_LABEL.into(), "other".into());
    }
    if random.chance(50) {
        node.labels.insert("rack".into(), format!("r{}", random.below(2)).as_str().into());
    }
    if random.chance(20) {
        node.condition = NodeCondition::Cordoned;
    }
    node
}

fn hostile_entitlement(random: &mut Random) -> Entitlement {
    let mut gpus = |percent| random.chance(percent).then(|| Gpus(amount(random)));
    let (quota, limit, weight) = (gpus(70), gpus(20), gpus(30));
    let mut entitlement = Entitlement { quota, limit, weight, ..Entitlement::default() };
    if random.chance(20) {
        entitlement.cpu_quota = Some(Cpu(amount(random)));
        entitlement.memory_quota = Some(Bytes(amount(random)));
        entitlement.model_quotas.insert("V100".into(), Gpus(amount(random)));
    }
    entitlement.rank = *random.pick(&[0, 0, 1, i32::MAX, i32::MIN]);
    entitlement
}

fn hostile_project(random: &mut Random) -> Project {
    let mut project = Project::named(ProjectId(id(random)), "p");
    if random.chance(40) {
        project.department = Some(DepartmentId(id(random)));
    }
    for _ in 0..random.below(3) {
        let (pool, entitlement) = (pool(random), hostile_entitlement(random));
        project.entitlements.insert(pool, entitlement);
    }
    (project.time_limit, project.idle_limit) = (span(random), span(random));
    project.interactive_time_limit = span(random);
    project.min_run = span(random).unwrap_or(Span::ZERO);
    project
}

fn hostile_department(random: &mut Random) -> Department {
    let mut department = Department {
        id: DepartmentId(id(random)),
        name: "d".into(),
        parent: random.chance(60).then(|| DepartmentId(id(random))),
        entitlements: Default::default(),
    };
    if random.chance(60) {
        let (pool, entitlement) = (pool(random), hostile_entitlement(random));
        department.entitlements.insert(pool, entitlement);
    }
    department
}

fn hostile_spec(random: &mut Random) -> WorkloadSpec {
    let mut spec = if random.chance(60) { cases::spec(random, IDS) } else { train(id(random), 1) };
    spec.project = ProjectId(id(random));
    spec.pool = pool(random);
    if random.chance(15) {
        let (bytes, devices) = (NonZeroU64::new(amount(random)), NonZeroU8::new(random.below(256) as u8));
        let (bytes, devices) = (bytes.unwrap_or(NonZeroU64::MIN), devices.unwrap_or(NonZeroU8::MAX));
        let share = Share::from_millionths(1 + random.below(1_000_000) as u32).expect("a share");
        spec.request.gpu = *random.pick(&[
            GpuRequest::None,
            GpuRequest::Whole(devices),
            GpuRequest::Fraction { share, devices },
            GpuRequest::Memory { bytes, devices },
        ]);
    }
    if random.chance(10) {
        (spec.request.cpu, spec.request.memory) = (Cpu(amount(random)), Bytes(amount(random)));
    }
    if random.chance(5) {
        spec.tasks = Tasks::new(1 + random.below(3) as u32, 200).expect("a gang");
    }
    if random.chance(10) {
        spec.priority = *random.pick(&[i32::MIN, i32::MAX, 0]);
    }
    if random.chance(10) {
        (spec.max_run, spec.retry_limit) = (span(random), u32::MAX);
    }
    spec
}

/// A place that may be anywhere, of anything, twice.
fn hostile_place(random: &mut Random) -> Place {
    let mut devices: Vec<DeviceShare> = (0..random.below(3))
        .map(|_| {
            let device = if random.chance(85) { random.below(4) as u8 } else { u8::MAX - 1 };
            let share = if random.chance(50) { 1_000_000 } else { 1 + random.below(1_000_000) as u32 };
            DeviceShare { device, share: Share::from_millionths(share).expect("a share") }
        })
        .collect();
    if random.chance(80) {
        devices.sort();
    }
    let (cpu, memory) = if random.chance(85) { (0, 0) } else { (amount(random), amount(random)) };
    let rank = if random.chance(80) { random.below(3) as u32 } else { u32::MAX };
    Place { rank, node: NodeId(id(random)), devices, cpu: Cpu(cpu), memory: Bytes(memory) }
}

/// The place a well-meaning sender would name: the first device of a node that is there.
fn plausible_place(random: &mut Random, state: &State, spec: &WorkloadSpec, rank: u32) -> Place {
    let nodes: Vec<&Node> = state.nodes.values().filter(|node| !node.devices.is_empty()).collect();
    if nodes.is_empty() {
        return hostile_place(random);
    }
    let node = *random.pick(&nodes);
    let device = random.below(node.devices.len() as u64) as u8;
    let devices = match spec.request.gpu.share_on(node.devices[usize::from(device)].memory) {
        Some(share) if spec.request.gpu.devices() == 1 => vec![DeviceShare { device, share }],
        _ => vec![],
    };
    Place { rank, node: node.id, devices, cpu: spec.request.cpu, memory: spec.request.memory }
}

fn places(random: &mut Random, state: &State, spec: &WorkloadSpec) -> Vec<Place> {
    if random.chance(70) {
        (0..spec.tasks.min().min(4)).map(|rank| plausible_place(random, state, spec, rank)).collect()
    } else {
        (0..random.below(4)).map(|_| hostile_place(random)).collect()
    }
}

/// A submission that is new, or claims to have a past.
fn hostile_submission(random: &mut Random, state: &State) -> Workload {
    let mut workload = Workload::submitted(WorkloadId(id(random)), hostile_spec(random), time(random));
    let spec = workload.spec.clone();
    let (held, leaving) = (places(random, state, &spec), places(random, state, &spec));
    let leaving = if random.chance(70) { vec![] } else { leaving };
    workload.phase = match random.below(10) {
        0 => {
            let basis = random.chance(50).then_some(StartBasis::Idle);
            Phase::Held { places: held, basis, leaving }
        }
        1 | 2 => {
            let extras = random.chance(30);
            let tasks = held.into_iter().map(|place| Task { place, extra: extras }).collect();
            let (since, confirmed, passing) = (time(random), random.chance(50), random.chance(20));
            Phase::Running { tasks, leaving, since, confirmed, passing }
        }
        3 => {
            let then =
                if random.chance(50) { AfterStop::Requeue } else { AfterStop::Finish(Outcome::Cancelled) };
            Phase::Stopping { leaving: held, then }
        }
        4 => Phase::Queued { reservation: Some(Reservation { places: held, since: time(random) }) },
        5 if random.chance(30) => Phase::Finished { outcome: Outcome::Failed, at: time(random) },
        _ => Phase::Queued { reservation: None },
    };
    if random.chance(20) {
        workload.checkpoint = Some(time(random));
        workload.evicted = Some(time(random));
        workload.idle_since = Some(time(random));
        workload.failures = *random.pick(&[0, 1, u32::MAX]);
    }
    workload
}

fn hostile_action(random: &mut Random, state: &State) -> Action {
    let workload = WorkloadId(id(random));
    let spec = state.workloads.get(&workload).map_or_else(|| train(1, 1), |known| known.spec.clone());
    let places = places(random, state, &spec);
    let (winner, basis) = (WorkloadId(id(random)), StartBasis::Quota);
    match random.below(9) {
        0 => Action::Start { workload, places, basis, passing: random.chance(50) },
        1 => Action::Hold { workload, places, basis },
        2 => Action::Evict { workload, winner, rule: EvictRule::Preemption, lost: u128::MAX },
        3 => Action::Move { workload, places, winner: None, lost: 0 },
        4 => Action::Grow { workload, places },
        5 => Action::Shrink { workload, ranks: vec![0, 1, u32::MAX], winner },
        6 => Action::Stop { workload, reason: StopReason::Idle },
        7 => Action::Reserve { workload, places },
        _ => Action::Unreserve { workload },
    }
}

fn hostile_change(random: &mut Random, state: &State) -> Change {
    let (workload, at) = (WorkloadId(id(random)), time(random));
    let rank = if random.chance(80) { random.below(3) as u32 } else { NonZeroU32::MAX.get() };
    match random.below(24) {
        0..3 => Change::NodeSet(hostile_node(random)),
        3 => Change::NodeRemoved(NodeId(id(random))),
        4 => Change::DepartmentSet(hostile_department(random)),
        5 => Change::DepartmentRemoved(DepartmentId(id(random))),
        6..8 => Change::ProjectSet(hostile_project(random)),
        8 => Change::ProjectRemoved(ProjectId(id(random))),
        9..14 => Change::Submitted(hostile_submission(random, state)),
        14 => Change::Cancelled { workload, at },
        15 => Change::Forgotten(workload),
        16 => Change::Confirmed { workload },
        17 => Change::Stopped { workload, rank, at },
        18 => {
            let outcomes = [TaskOutcome::Succeeded, TaskOutcome::Failed, TaskOutcome::Lost];
            Change::Ended { workload, rank, outcome: *random.pick(&outcomes), at }
        }
        19 => Change::Refused { workload, at },
        20 => Change::Checkpointed { workload, at },
        21 => Change::Idle { workload, since: random.chance(50).then_some(at) },
        _ => Change::Decided { action: hostile_action(random, state), at },
    }
}

/// Sends one change to both; they must agree, and a refusal must leave both as they were.
fn send(engine: &mut Engine, state: &mut State, change: &Change) -> Result<(), String> {
    let before = state.clone();
    let (theirs, ours) = (state.apply(change), engine.apply(change));
    if theirs.is_ok() != ours.is_ok() {
        return Err(format!("the state says {theirs:?}, the engine {ours:?} to {change:?}"));
    }
    if theirs.is_err() && *state != before {
        return Err(format!("a refused change changed the state: {change:?}"));
    }
    if engine.state() != *state {
        return Err(format!("engine and state differ after {change:?}, which gave {ours:?}"));
    }
    Ok(())
}

/// What is physically impossible in a state, whoever said that it is so.
fn impossible(state: &State) -> Vec<String> {
    let findings = berth_check::check_state(state).into_iter();
    findings
        .filter(|finding| matches!(finding.rule, Rule::DeviceCapacity | Rule::NodeCapacity))
        .map(|finding| finding.to_string())
        .collect()
}

fn play(seed: u64, history: &mut Vec<String>) -> Result<(), String> {
    let mut random = Random(seed);
    let policy = cases::policy(&mut random);
    let mut engine = Engine::new(policy);
    let mut state = State::default();
    let mut now = Time(1000);
    for start in [
        Change::NodeSet(node(1, 4)),
        Change::NodeSet(node(2, 2)),
        Change::ProjectSet(support::project(1, 2)),
        Change::ProjectSet(support::project(2, 2)),
    ] {
        send(&mut engine, &mut state, &start)?;
    }
    for _ in 0..30 {
        let change = hostile_change(&mut random, &state);
        history.push(format!("{change:?}"));
        send(&mut engine, &mut state, &change)?;
        if random.chance(40) {
            now = if random.chance(2) { Time(u64::MAX) } else { now + Span(random.below(20_000)) };
            history.push(format!("plan at {now:?}"));
            for action in engine.plan(now).actions {
                let change = Change::Decided { action, at: now };
                state.apply(&change).map_err(|error| format!("{change:?} cannot be: {error}"))?;
            }
            if engine.state() != state {
                return Err("engine and state differ after a plan".into());
            }
            for workload in state.workloads.keys() {
                engine.explain(*workload, now);
            }
        }
        let impossible = impossible(&state);
        if !impossible.is_empty() {
            return Err(format!("was taken, and cannot be: {}", impossible.join("; ")));
        }
    }
    Ok(())
}

#[test]
fn no_sequence_of_changes_makes_the_engine_panic_or_differ_from_the_plain_state() {
    seeds::for_each_seed("fuzz", seeds::cases(5_000), |seed| {
        let mut history = vec![];
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(seed, &mut history)));
        let outcome = caught.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        });
        outcome.map_err(|text| format!("{text}\n--\n{}", history.join("\n")))
    });
}

/// An engine and a state with one node of two GPUs and two projects.
fn pair() -> (Engine, State) {
    let (mut engine, mut state) = (Engine::new(Policy::default()), State::default());
    for change in [
        Change::NodeSet(node(1, 2)),
        Change::ProjectSet(support::project(1, 2)),
        Change::ProjectSet(support::project(2, 2)),
    ] {
        send(&mut engine, &mut state, &change).expect("a change that can be");
    }
    (engine, state)
}

fn place(node: u64, device: u8) -> Place {
    let devices = vec![DeviceShare { device, share: Share::WHOLE }];
    Place { rank: 0, node: NodeId(node), devices, cpu: Cpu::ZERO, memory: Bytes::ZERO }
}

fn running(id: u64, places: Vec<Place>) -> Workload {
    let mut workload = Workload::submitted(WorkloadId(id), train(1, 1), Time(0));
    let tasks = places.into_iter().map(|place| Task { place, extra: false }).collect();
    workload.phase =
        Phase::Running { tasks, leaving: vec![], since: Time(0), confirmed: true, passing: false };
    workload
}

#[test]
fn planning_goes_on_after_a_project_was_removed() {
    let (mut engine, mut state) = pair();
    let change = Change::Submitted(Workload::submitted(WorkloadId(1), train(2, 1), Time(0)));
    send(&mut engine, &mut state, &change).expect("both agree");
    // The project that goes is before the other in the tree, and nothing was planned since the other changed.
    send(&mut engine, &mut state, &Change::ProjectRemoved(ProjectId(1))).expect("both agree");
    assert_eq!(engine.plan(Time(1)).actions.len(), 1);
}

#[test]
fn a_node_is_in_use_while_a_task_leaves_it_that_takes_nothing() {
    let (mut engine, mut state) = pair();
    let submitted = Workload::submitted(WorkloadId(1), train(1, 0), Time(0));
    send(&mut engine, &mut state, &Change::Submitted(submitted)).expect("both agree");
    for action in engine.plan(Time(1)).actions {
        state.apply(&Change::Decided { action, at: Time(1) }).expect("the engine decides what can be");
    }
    for change in [
        Change::Cancelled { workload: WorkloadId(1), at: Time(2) },
        Change::NodeRemoved(NodeId(1)),
        Change::Stopped { workload: WorkloadId(1), rank: 0, at: Time(3) },
    ] {
        send(&mut engine, &mut state, &change).expect("both agree");
    }
    assert!(state.workloads[&WorkloadId(1)].is_finished());
    assert!(state.nodes.contains_key(&NodeId(1)));
}

#[test]
fn a_node_in_use_changes_neither_its_size_nor_its_pool() {
    let (mut engine, mut state) = pair();
    send(&mut engine, &mut state, &Change::Submitted(running(1, vec![place(1, 0)]))).expect("both agree");
    let mut elsewhere = node(1, 2);
    elsewhere.labels.insert(POOL_LABEL.into(), "other".into());
    for changed in [elsewhere, node(1, 4)] {
        send(&mut engine, &mut state, &Change::NodeSet(changed)).expect("both agree");
        assert_eq!(state.nodes[&NodeId(1)], node(1, 2));
    }
}

#[test]
fn work_that_claims_to_run_where_it_cannot_is_refused() {
    let (mut engine, mut state) = pair();
    send(&mut engine, &mut state, &Change::Submitted(running(1, vec![place(1, 0)]))).expect("both agree");
    let twice = Place { devices: [place(1, 1).devices, place(1, 1).devices].concat(), ..place(1, 1) };
    let too_much_memory = Place { memory: Bytes::gib(513), ..place(1, 1) };
    for (why, places) in [
        ("an unknown node", vec![place(9, 0)]),
        ("a device that is not there", vec![place(1, 2)]),
        ("a device that is taken", vec![place(1, 0)]),
        ("one device twice", vec![twice]),
        ("more memory than there is", vec![too_much_memory]),
        ("more tasks than asked for", vec![place(1, 1), Place { rank: 1, ..place(1, 1) }]),
        ("no task at all", vec![]),
    ] {
        let before = state.clone();
        send(&mut engine, &mut state, &Change::Submitted(running(2, places.clone()))).expect("both agree");
        assert_eq!(state, before, "submitted on {why}");
        let queued = Workload::submitted(WorkloadId(2), train(1, 1), Time(0));
        send(&mut engine, &mut state, &Change::Submitted(queued)).expect("both agree");
        let before = state.clone();
        let (workload, basis) = (WorkloadId(2), StartBasis::Quota);
        let action = Action::Start { workload, places, basis, passing: false };
        send(&mut engine, &mut state, &Change::Decided { action, at: Time(1) }).expect("both agree");
        assert_eq!(state, before, "started on {why}");
        for change in [Change::Cancelled { workload, at: Time(1) }, Change::Forgotten(workload)] {
            send(&mut engine, &mut state, &change).expect("both agree");
        }
    }
}

#[test]
fn amounts_at_their_bounds_overflow_no_sum() {
    let (mut engine, mut state) = pair();
    for id in 2..40 {
        for memory in [Bytes::gib(64 << 10), Bytes::MAX] {
            let node = Node { memory, ..node(id, 1) };
            send(&mut engine, &mut state, &Change::NodeSet(node)).expect("both agree");
        }
    }
    for id in 2..40 {
        let mut spec = train(1, 0);
        spec.request.memory = state.nodes[&NodeId(id)].memory;
        let workload = Workload::submitted(WorkloadId(id), spec, Time(0));
        send(&mut engine, &mut state, &Change::Submitted(workload)).expect("both agree");
    }
    assert_eq!(engine.plan(Time(1)).actions.len(), 38);
}

#[test]
fn a_count_of_failures_at_its_bound_stays_there() {
    let (mut engine, mut state) = pair();
    let mut workload = running(1, vec![place(1, 0)]);
    workload.failures = u32::MAX;
    let outcome = TaskOutcome::Failed;
    send(&mut engine, &mut state, &Change::Submitted(workload)).expect("both agree");
    let ended = Change::Ended { workload: WorkloadId(1), rank: 0, outcome, at: Time(1) };
    send(&mut engine, &mut state, &ended).expect("both agree");
    assert_eq!(state.workloads[&WorkloadId(1)].failures, u32::MAX);
}
