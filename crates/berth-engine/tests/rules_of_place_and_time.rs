//! Rules 7 to 11 by example, gangs, places, reservations, moves and time, and how quota counts: the smallest scene in
//! which each can be seen, with its exact outcome.

mod support;

use berth_types::*;
use support::{scenes::*, *};

// Rule 7: gangs are all or nothing, and extras are extra.

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut world = world(&[2, 1]);
    add(&mut world, [project(1, 4)]);
    let blocker = run(&mut world, train(1, 1));
    let gang = run(&mut world, gang(1, 3, 3));
    assert_eq!(nodes_of(&world, gang).len(), 0);
    end(&mut world, blocker);
    world.settle();
    assert_eq!(nodes_of(&world, gang).len(), 3);
}

#[test]
fn extras_grow_on_idle_capacity_and_shrink_before_anybody_is_evicted() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 0), project(2, 0)]);
    let elastic = run(&mut world, gang(1, 1, 8));
    assert_eq!(world.used(1), Gpus::whole(4));
    run(&mut world, train(2, 2));
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 2]));
    let shrinks: Vec<_> = actions(&world)
        .filter_map(|action| match action {
            Action::Shrink { workload, ranks, .. } => Some((*workload, ranks.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(shrinks, vec![(elastic, vec![2, 3])]);
    assert_eq!(evictions(&world), vec![]);
}

#[test]
fn work_within_quota_takes_extras_before_it_evicts_a_borrower() {
    let mut world = world(&[3]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let borrower = run(&mut world, train(1, 1));
    run(&mut world, gang(1, 1, 2));
    assert_eq!(world.used(1), Gpus::whole(3));
    run(&mut world, train(2, 1));
    assert!(runs(&world, borrower));
    assert_eq!(evictions(&world), vec![]);
}

#[test]
fn extras_leave_capacity_to_a_minimum_that_waits_and_evict_nobody() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 4), project(2, 0)]);
    let borrowers = submit_many(&mut world, 2, train(2, 1));
    world.submit(gang(1, 1, 4));
    let waiting = world.submit(train(2, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[1, 3]));
    assert!(borrowers.iter().all(|id| runs(&world, *id)) && runs(&world, waiting));
}

#[test]
fn extras_keep_within_the_limit_and_the_maximum() {
    let mut world = world(&[8]);
    let limited = entitled(1, 1, |entitlement| entitlement.limit = Some(Gpus::whole(3)));
    add(&mut world, [limited, project(2, 1)]);
    let bounded_by_limit = run(&mut world, gang(1, 1, 8));
    let bounded_by_maximum = run(&mut world, gang(2, 1, 4));
    assert_eq!(nodes_of(&world, bounded_by_limit).len(), 3);
    assert_eq!(nodes_of(&world, bounded_by_maximum).len(), 4);
}

// Rule 8: placement.

#[test]
fn fractions_share_a_device_before_a_new_one_is_opened() {
    let mut world = world(&[2, 2]);
    add(&mut world, [project(1, 4)]);
    let mut spec = train(1, 1);
    spec.request.gpu = fraction(500);
    submit_many(&mut world, 2, spec);
    world.settle();
    let places: Vec<(NodeId, u8)> = world
        .state
        .workloads
        .values()
        .flat_map(|workload| workload.places().map(|place| (place.node, place.devices[0].device)).last())
        .collect();
    assert_eq!(places[0], places[1]);
}

#[test]
fn small_jobs_pack_so_that_a_whole_node_still_fits() {
    let mut world = world(&[4, 4]);
    add(&mut world, [project(1, 8)]);
    for _ in 0..3 {
        run(&mut world, train(1, 1));
    }
    let large = run(&mut world, train(1, 4));
    assert!(runs(&world, large));
}

#[test]
fn a_gang_packs_or_spreads_as_it_chose() {
    for (spread, expected) in [(Spread::Pack, vec![1, 1]), (Spread::Spread, vec![1, 2])] {
        let mut world = world(&[2, 2]);
        add(&mut world, [project(1, 4)]);
        let id = run(&mut world, WorkloadSpec { spread, ..gang(1, 2, 2) });
        let mut nodes = nodes_of(&world, id);
        nodes.sort_unstable();
        assert_eq!(nodes, expected, "{spread:?}");
    }
}

#[test]
fn a_gang_that_must_be_apart_waits_for_nodes_and_its_extras_go_elsewhere() {
    let apart = |min: u32, max: u32| WorkloadSpec { spread: Spread::Apart, ..gang(1, min, max) };
    let mut world = world(&[4, 4, 4]);
    add(&mut world, [project(1, 12)]);
    let four = run(&mut world, apart(4, 4));
    assert!(!runs(&world, four), "twelve GPUs are free on three nodes");
    let elastic = run(&mut world, apart(2, 5));
    let mut nodes = nodes_of(&world, elastic);
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3], "two together, and one more where none of them is");
}

#[test]
fn a_gang_that_must_be_apart_takes_back_one_place_on_each_node() {
    let mut world = world(&[4, 4]);
    add(&mut world, [project(1, 2), project(2, 0)]);
    let borrowed: Vec<_> = (0..8).map(|_| run(&mut world, train(2, 1))).collect();
    let spec = WorkloadSpec { spread: Spread::Apart, ..gang(1, 2, 2) };
    let owner = run(&mut world, spec);
    let mut nodes = nodes_of(&world, owner);
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2]);
    assert_eq!(borrowed.iter().filter(|id| runs(&world, **id)).count(), 6);
}

#[test]
fn a_required_rack_is_waited_for_and_a_preferred_one_is_not() {
    let rack = TopologyLevel::Label("rack".into());
    let required = Topology { required: Some(rack.clone()), preferred: None };
    let preferred = Topology { required: None, preferred: Some(rack) };
    let scene = |busy: bool, topology: &Topology| {
        let mut world = world(&[2, 2, 2]);
        for (node, rack) in [(1, "r1"), (2, "r2"), (3, "r2")] {
            label(&mut world, node, "rack", rack);
        }
        add(&mut world, [project(1, 8)]);
        if busy {
            run(&mut world, WorkloadSpec { selector: on_rack("r2"), ..train(1, 1) });
        }
        let id = run(&mut world, WorkloadSpec { topology: topology.clone(), ..gang(1, 4, 4) });
        let mut nodes = nodes_of(&world, id);
        nodes.sort_unstable();
        nodes
    };
    assert_eq!(scene(false, &required), vec![2, 2, 3, 3]);
    assert_eq!(scene(false, &preferred), vec![2, 2, 3, 3]);
    assert_eq!(scene(true, &required), Vec::<u64>::new());
    assert_eq!(scene(true, &preferred).len(), 4);
}

#[test]
fn training_and_sessions_of_a_project_keep_to_their_own_nodes() {
    let mut world = world(&[2, 2]);
    label(&mut world, 1, "rack", "r1");
    label(&mut world, 2, "rack", "r2");
    let split = Project { train_nodes: on_rack("r1"), interactive_nodes: on_rack("r2"), ..project(1, 8) };
    add(&mut world, [split]);
    let job = run(&mut world, train(1, 2));
    let session = run(&mut world, interactive(1, 1));
    let second = run(&mut world, train(1, 1));
    assert_eq!(nodes_of(&world, job), vec![1]);
    assert_eq!(nodes_of(&world, session), vec![2]);
    // A GPU of the other node is free, and not for training.
    assert_eq!(world.queued(), vec![second]);
}

#[test]
fn pools_share_neither_nodes_nor_quota() {
    let mut world = world(&[2, 2]);
    label(&mut world, 2, POOL_LABEL, "other");
    let mut both = entitled(1, 2, |entitlement| entitlement.weight = Some(Gpus::ZERO));
    both.entitlements.insert("other".into(), both.entitlements[&default_pool()].clone());
    add(&mut world, [both]);
    let elsewhere = WorkloadSpec { pool: "other".into(), ..train(1, 1) };
    let here = submit_many(&mut world, 3, train(1, 1));
    let there = submit_many(&mut world, 2, elsewhere);
    world.settle();
    assert_eq!(world.queued(), vec![here[2]]);
    assert!(there.iter().all(|id| nodes_of(&world, *id) == vec![2]));
}

// Rule 9: large work does not starve.

/// One node of four GPUs, two of them in use by a session, and a borrower of all four that has a reservation.
fn reserved_scene() -> (World, WorkloadId, WorkloadId) {
    let policy = Policy { reserve_after: Span::secs(10), ..Policy::default() };
    let mut world = world_with(policy, &[4]);
    add(&mut world, [project(1, 2), project(2, 0), project(3, 0)]);
    let session = run(&mut world, interactive(1, 2));
    let submitted = world.now;
    let large = world.submit(train(2, 4));
    let plan = world.plan();
    assert_eq!(plan.wake, Some(submitted + Span::secs(10)));
    world.now = submitted + Span::secs(10);
    let plan = world.plan();
    assert!(matches!(&plan.actions[..], [Action::Reserve { workload, .. }] if *workload == large));
    world.settle();
    (world, session, large)
}

#[test]
fn a_large_job_gets_a_reservation_and_passing_work_makes_way_for_it() {
    let (mut world, session, large) = reserved_scene();
    let passing = run(&mut world, train(3, 1));
    assert!(matches!(world.state.workloads[&passing].phase, Phase::Running { passing: true, .. }));
    end(&mut world, session);
    world.settle();
    assert_eq!(evictions(&world), vec![(passing, EvictRule::Passing)]);
    // It is held until the one that passed has left, and started by what it was held by.
    assert_eq!(bases(&world, large), vec![StartBasis::Reservation; 2]);
    assert_eq!(nodes_of(&world, large), vec![1]);
}

#[test]
fn without_its_reservation_the_large_job_would_starve() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 2), project(2, 0), project(3, 0)]);
    let session = run(&mut world, interactive(1, 2));
    let large = run(&mut world, train(2, 4));
    submit_many(&mut world, 3, train(3, 1));
    world.settle();
    end(&mut world, session);
    world.settle();
    assert_eq!(world.queued(), vec![large]);
}

#[test]
fn a_reservation_never_holds_against_quota_reclaim() {
    let (mut world, _, large) = reserved_scene();
    add(&mut world, [project(3, 2)]);
    let claim = run(&mut world, interactive(3, 2));
    assert!(runs(&world, claim));
    assert!(!world.state.workloads[&large].reserved_places().is_empty());
}

#[test]
fn a_reservation_does_not_hold_against_a_claim_that_its_own_project_brings_within_quota() {
    let policy = Policy { reserve_after: Span::secs(10), ..Policy::default() };
    let mut world = world_with(policy, &[4]);
    add(&mut world, [project(1, 2), project(2, 0), project(3, 2)]);
    let own = run(&mut world, train(1, 2));
    run(&mut world, interactive(3, 2));
    let large = run(&mut world, train(2, 4));
    world.now = world.now + Span::secs(10);
    world.settle();
    assert!(!world.state.workloads[&large].reserved_places().is_empty());
    let claim = run(&mut world, interactive(1, 2));
    assert!(runs(&world, claim));
    assert_eq!(evictions(&world), vec![(own, EvictRule::Preemption)]);
}

/// Two nodes, of four GPUs and of one. On the first are two GPUs of a session that must end after `session_secs`, and
/// a borrower of all four has a reservation; on the second a project is at its quota. The waiting session of that
/// project can have no places but reserved ones.
fn passing_scene(session_secs: Option<u64>, waiting_secs: Option<u64>) -> (World, WorkloadId, WorkloadId) {
    let policy = Policy { reserve_after: Span::secs(10), ..Policy::default() };
    let mut world = world_with(policy, &[4, 1]);
    label(&mut world, 2, "rack", "r2");
    add(&mut world, [project(1, 2), project(2, 0), project(3, 1)]);
    let max_run = session_secs.map(Span::secs);
    world.submit(WorkloadSpec { max_run, ..interactive(1, 2) });
    world.submit(WorkloadSpec { selector: on_rack("r2"), ..train(3, 1) });
    let large = world.submit(train(2, 4));
    world.settle();
    world.now = world.now + Span::secs(10);
    world.settle();
    assert!(!world.state.workloads[&large].reserved_places().is_empty());
    let max_run = waiting_secs.map(Span::secs);
    let waiting = run(&mut world, WorkloadSpec { max_run, ..prioritised(50, interactive(3, 1)) });
    (world, waiting, large)
}

#[test]
fn work_that_ends_before_those_in_the_way_of_a_reservation_passes_it() {
    let (mut world, waiting, large) = passing_scene(Some(60), Some(40));
    assert!(matches!(world.state.workloads[&waiting].phase, Phase::Running { passing: false, .. }));
    assert_eq!(nodes_of(&world, waiting), vec![1]);
    let passed_at = world.plan().wake.expect("the end of the session that passes");
    world.now = passed_at;
    world.settle();
    assert!(!runs(&world, waiting) && !runs(&world, large));
    let filled_at = world.plan().wake.expect("the end of the session in the way");
    world.now = filled_at;
    world.settle();
    assert_eq!(world.state.workloads[&large].running_since(), Some(filled_at));
    assert_eq!(evictions(&world), vec![]);
}

#[test]
fn non_preemptible_work_waits_beside_a_reservation_that_it_could_delay() {
    for (session_secs, waiting_secs) in [(Some(60), Some(60)), (Some(60), None), (None, Some(1))] {
        let (world, waiting, _) = passing_scene(session_secs, waiting_secs);
        assert!(!runs(&world, waiting), "{session_secs:?} {waiting_secs:?}");
    }
}

fn with_reservation(world: &World) -> Vec<WorkloadId> {
    let workloads = world.state.workloads.values();
    workloads.filter(|workload| !workload.reserved_places().is_empty()).map(|workload| workload.id).collect()
}

#[test]
fn a_project_has_one_reservation_at_a_time() {
    let (mut world, _, large) = reserved_scene();
    world.submit(train(2, 4));
    world.now = world.now + Span::secs(100);
    world.settle();
    assert_eq!(with_reservation(&world), vec![large]);
}

#[test]
fn one_for_whom_no_places_are_left_to_reserve_keeps_nobody_from_a_reservation() {
    let policy = Policy { reserve_after: Span::secs(10), ..Policy::default() };
    let mut world = world_with(policy, &[4, 1]);
    add(&mut world, [project(1, 5), project(2, 0), project(3, 0), project(4, 0)]);
    run(&mut world, interactive(1, 4));
    run(&mut world, interactive(1, 1));
    // The only node for either of the large ones is named by the first.
    let large = run(&mut world, train(2, 4));
    run(&mut world, train(3, 4));
    let small = run(&mut world, train(4, 1));
    world.now = world.now + Span::secs(10);
    world.settle();
    assert_eq!(with_reservation(&world), vec![large, small]);
}

// Rule 10: moves.

/// Two nodes of two GPUs with one job of the first project on each, and a job of two GPUs that waits.
fn split_scene(policy: Policy) -> (World, WorkloadId, WorkloadId) {
    let mut world = world_with(policy, &[2, 2]);
    add(&mut world, [project(1, 2), project(2, 2)]);
    let ids = submit_many(&mut world, 3, train(1, 1));
    world.settle();
    let gone = *ids[..2].last().expect("two");
    end(&mut world, gone);
    let claim = run(&mut world, train(2, 2));
    assert_eq!(world.queued(), vec![claim]);
    (world, ids[2], claim)
}

#[test]
fn a_move_makes_room_once_the_wait_outweighs_it_and_evicts_nobody() {
    let (mut world, _, claim) = split_scene(Policy::default());
    for _ in 0..64 {
        let wake = world.plan().wake;
        if !world.state.workloads[&claim].is_queued() {
            break;
        }
        world.now = wake.expect("the move will be worth it at some instant");
    }
    assert_eq!(actions(&world).filter(|action| matches!(action, Action::Move { .. })).count(), 1);
    world.confirm();
    world.settle();
    assert!(runs(&world, claim));
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 2]));
    assert_eq!(evictions(&world), vec![]);
}

#[test]
fn a_borrower_is_moved_for_only_after_its_patience_and_a_guarantee_before() {
    // A reservation would name the very node that a move clears.
    let policy = Policy { reserve_after: Span::secs(100_000), ..Policy::default() };
    for (quota, patient) in [(2, false), (0, true)] {
        let (mut world, _, claim) = split_scene(policy.clone());
        let came = world.state.workloads[&claim].submitted;
        add(&mut world, [project(1, quota), project(2, quota)]);
        for _ in 0..64 {
            let wake = world.plan().wake;
            if !world.state.workloads[&claim].is_queued() {
                break;
            }
            world.now = wake.expect("the move will be made at some instant");
        }
        assert_eq!(actions(&world).filter(|action| matches!(action, Action::Move { .. })).count(), 1);
        assert_eq!(world.now >= came + policy.patience, patient);
    }
}

#[test]
fn nothing_is_moved_when_moves_are_off() {
    let (mut world, _, claim) = split_scene(Policy { moves: false, ..Policy::default() });
    world.now = world.now + Span::secs(500);
    world.settle();
    assert_eq!(world.queued(), vec![claim]);
}

// Rule 11: deterministic, stable, and time is named.

#[test]
fn a_time_limit_ends_work_at_the_very_instant_the_plan_named() {
    let limits = [
        (Project { time_limit: Some(Span::secs(60)), ..project(1, 1) }, train(1, 1), true),
        (Project { interactive_time_limit: Some(Span::secs(60)), ..project(1, 1) }, interactive(1, 1), true),
        (Project { interactive_time_limit: Some(Span::secs(60)), ..project(1, 1) }, train(1, 1), false),
        (project(1, 1), WorkloadSpec { max_run: Some(Span::secs(60)), ..train(1, 1) }, true),
    ];
    for (project, spec, ends) in limits {
        let mut world = world(&[1]);
        add(&mut world, [project]);
        let workload = world.submit(spec);
        let deadline = world.now + Span::secs(60);
        let plan = world.plan();
        assert_eq!(plan.wake, ends.then_some(deadline));
        world.confirm();
        world.now = Time(deadline.0 - 1);
        assert_eq!(world.plan().actions, vec![]);
        world.now = deadline;
        let stop = Action::Stop { workload, reason: StopReason::TimeLimit };
        assert_eq!(world.plan().actions, if ends { vec![stop] } else { vec![] });
    }
}

#[test]
fn an_idle_limit_ends_work_whose_gpus_are_idle_and_spares_it_once_they_are_busy() {
    let mut world = world(&[2]);
    add(&mut world, [Project { idle_limit: Some(Span::secs(30)), ..project(1, 2) }]);
    let idle = run(&mut world, train(1, 1));
    let busy = run(&mut world, train(1, 1));
    for workload in [idle, busy] {
        world.apply(Change::Idle { workload, since: Some(world.now) });
    }
    world.apply(Change::Idle { workload: busy, since: None });
    let deadline = world.now + Span::secs(30);
    assert_eq!(world.plan().wake, Some(deadline));
    world.now = deadline;
    let stop = Action::Stop { workload: idle, reason: StopReason::Idle };
    assert_eq!(world.plan().actions, vec![stop]);
}

#[test]
fn five_plans_after_a_plan_are_empty_while_its_effects_are_under_way() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 0), project(2, 4)]);
    submit_many(&mut world, 4, train(1, 1));
    world.settle();
    world.submit(train(2, 3));
    assert_eq!(world.plan().actions.len(), 4);
    for _ in 0..5 {
        assert_eq!(world.plan().actions, vec![]);
    }
}

// How quota counts.

#[test]
fn a_quota_of_a_model_bounds_what_naming_the_model_guarantees() {
    let mut world = world(&[2]);
    let mut large = node(2, 2);
    large.devices.fill(Device { model: "A100".into(), memory: Bytes::gib(80) });
    world.apply(Change::NodeSet(large));
    let model_quota = |entitlement: &mut Entitlement| {
        entitlement.model_quotas.insert("A100".into(), Gpus::ONE);
    };
    add(&mut world, [entitled(1, 4, model_quota), project(2, 0)]);
    let naming = |project: u64| {
        let mut spec = train(project, 1);
        spec.request.models.insert("A100".into());
        spec
    };
    submit_many(&mut world, 2, naming(2));
    world.settle();
    let ids = submit_many(&mut world, 2, naming(1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[1, 1]));
    assert!(matches!(reason(&world, ids[1]), WaitReason::NoCapacity { within_quota: false, .. }));
}

#[test]
fn what_siblings_borrow_does_not_take_a_department_further_past_its_quota_of_a_model() {
    let naming = |gpus: u8| {
        let mut spec = train(1, gpus);
        spec.request.models.insert("V100".into());
        spec
    };
    // Of what the sibling borrows, two are enough for two more; a third would be one more than the department had.
    for (asked, starts) in [(2, true), (3, false)] {
        let mut world = world(&[4]);
        let mut full = department(1, 8);
        let entitlement = full.entitlements.get_mut(&default_pool()).expect("it was just given one");
        entitlement.model_quotas.insert("V100".into(), Gpus::whole(2));
        world.apply(Change::DepartmentSet(full));
        add(&mut world, [inside(project(1, 4), 1), inside(project(2, 0), 1), project(3, 1)]);
        run(&mut world, interactive(3, 1));
        submit_many(&mut world, 2, train(2, 1));
        world.settle();
        let claim = run(&mut world, naming(asked));
        assert_eq!(runs(&world, claim), starts, "{asked}");
        assert_eq!(evictions(&world).is_empty(), !starts, "{asked}: {:?}", evictions(&world));
    }
}

#[test]
fn a_department_within_quota_reclaims_from_other_departments_and_not_from_a_sibling_in_quota() {
    let mut world = world(&[8]);
    for id in [1, 2] {
        world.apply(Change::DepartmentSet(department(id, 4)));
    }
    add(&mut world, [inside(project(1, 0), 1), inside(project(2, 3), 1), inside(project(3, 0), 2)]);
    submit_many(&mut world, 3, train(2, 1));
    submit_many(&mut world, 5, train(3, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2, 3]), whole(&[0, 3, 5]));
    submit_many(&mut world, 2, train(1, 1));
    world.settle();
    // The first is within its department's quota though above its project's; the second is within neither.
    assert_eq!(gpus(&world, &[1, 2, 3]), whole(&[1, 3, 4]));
    assert_eq!(evictions(&world).len(), 1);
    assert_eq!(evictions(&world)[0].1, EvictRule::QuotaReclaim);
}

#[test]
fn the_quota_of_a_department_holds_when_its_projects_are_promised_more() {
    let mut world = world(&[4]);
    world.apply(Change::DepartmentSet(department(1, 2)));
    add(&mut world, [inside(project(1, 2), 1), inside(project(2, 2), 1), project(3, 0)]);
    submit_many(&mut world, 4, train(3, 1));
    world.settle();
    run(&mut world, train(1, 2));
    run(&mut world, train(2, 2));
    assert_eq!(gpus(&world, &[1, 2, 3]), whole(&[2, 0, 2]));
}

#[test]
fn a_cpu_quota_bounds_non_preemptible_work_where_it_is_set() {
    let mut world = world(&[2]);
    add(&mut world, [entitled(1, 2, |entitlement| entitlement.cpu_quota = Some(Cpu::cores(4)))]);
    let mut spec = interactive(1, 1);
    spec.request.cpu = Cpu::cores(3);
    let ids = submit_many(&mut world, 2, spec);
    world.settle();
    assert_eq!(world.queued(), vec![ids[1]]);
    let (account, cores) = (Account::Project(ProjectId(1)), Cpu::cores);
    let passed = PassedQuota::Cpu(Passed { quota: cores(4), used: cores(3), asked: cores(3) });
    assert_eq!(reason(&world, ids[1]), WaitReason::NonPreemptibleQuota { account, passed });
}

#[test]
fn what_bounds_non_preemptible_work_is_named() {
    let waits_for = |adjust: fn(&mut Entitlement)| {
        let mut world = world(&[2]);
        add(&mut world, [entitled(1, 2, adjust)]);
        let mut spec = interactive(1, 1);
        spec.request.memory = Bytes::gib(3);
        spec.request.models.insert("V100".into());
        run(&mut world, spec.clone());
        let waiting = run(&mut world, spec);
        match reason(&world, waiting) {
            WaitReason::NonPreemptibleQuota { passed, .. } => passed,
            other => panic!("{other:?}"),
        }
    };
    let (quota, asked) = (Bytes::gib(4), Bytes::gib(3));
    assert_eq!(
        waits_for(|entitlement| entitlement.memory_quota = Some(Bytes::gib(4))),
        PassedQuota::Memory(Passed { quota, used: asked, asked })
    );
    let one = Gpus::ONE;
    assert_eq!(
        waits_for(|entitlement| entitlement.model_quotas = [("V100".into(), Gpus::ONE)].into()),
        PassedQuota::Model("V100".into(), Passed { quota: one, used: one, asked: one })
    );
}

#[test]
fn a_quota_larger_than_the_nodes_a_project_may_use_is_explained_as_never() {
    let mut world = world(&[2, 8]);
    label(&mut world, 1, "rack", "r1");
    add(&mut world, [Project { train_nodes: on_rack("r1"), ..project(1, 8) }]);
    let id = run(&mut world, gang(1, 4, 4));
    assert_eq!(reason(&world, id), WaitReason::Never { most: 2, needed: 4 });
}
