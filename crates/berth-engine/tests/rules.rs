//! The rules by example: the smallest scene in which each can be seen, with its exact outcome.

mod support;

use berth_types::*;
use std::num::{NonZeroU8, NonZeroU64};
use support::*;

/// A world of nodes with so many V100s each.
fn world(nodes: &[usize]) -> World {
    world_with(Policy::default(), nodes)
}

fn world_with(policy: Policy, nodes: &[usize]) -> World {
    let mut world = World::new(policy);
    for (index, devices) in nodes.iter().enumerate() {
        world.apply(Change::NodeSet(node(index as u64 + 1, *devices)));
    }
    world
}

/// A project whose entitlement in the default pool is adjusted.
fn entitled(id: u64, quota: u64, adjust: impl FnOnce(&mut Entitlement)) -> Project {
    let mut project = project(id, quota);
    adjust(project.entitlements.get_mut(&default_pool()).expect("it was just given one"));
    project
}

fn weighted(id: u64, weight: u64) -> Project {
    entitled(id, 0, |entitlement| entitlement.weight = Some(Gpus::whole(weight)))
}

fn add(world: &mut World, projects: impl IntoIterator<Item = Project>) {
    for project in projects {
        world.apply(Change::ProjectSet(project));
    }
}

fn department(id: u64, quota: u64) -> Department {
    let entitlement = Entitlement { quota: Some(Gpus::whole(quota)), ..Entitlement::default() };
    Department {
        id: DepartmentId(id),
        name: format!("d{id}"),
        parent: None,
        entitlements: [(default_pool(), entitlement)].into(),
    }
}

fn inside(project: Project, department: u64) -> Project {
    Project { department: Some(DepartmentId(department)), ..project }
}

/// A person's session: not preemptible, with the priority of its kind.
fn interactive(project: u64, gpus: u8) -> WorkloadSpec {
    WorkloadSpec { kind: Kind::Interactive, priority: 100, preemptible: false, ..train(project, gpus) }
}

fn prioritised(priority: i32, spec: WorkloadSpec) -> WorkloadSpec {
    WorkloadSpec { priority, ..spec }
}

/// Workers with one GPU each: at least `min`, at most `max`.
fn gang(project: u64, min: u32, max: u32) -> WorkloadSpec {
    let tasks = Tasks::new(min, max).expect("a gang");
    WorkloadSpec { kind: Kind::Distributed, tasks, ..train(project, 1) }
}

fn submit_many(world: &mut World, count: usize, spec: WorkloadSpec) -> Vec<WorkloadId> {
    (0..count).map(|_| world.submit(spec.clone())).collect()
}

/// Submits and lets everything happen that follows.
fn run(world: &mut World, spec: WorkloadSpec) -> WorkloadId {
    let id = world.submit(spec);
    world.settle();
    id
}

fn runs(world: &World, id: WorkloadId) -> bool {
    world.state.workloads[&id].is_running()
}

fn end(world: &mut World, id: WorkloadId) {
    world.apply(Change::Cancelled { workload: id, at: world.now });
    world.confirm();
}

fn actions(world: &World) -> impl Iterator<Item = &Action> {
    world.plans.iter().flat_map(|plan| &plan.actions)
}

/// Everybody evicted so far, with the rule.
fn evictions(world: &World) -> Vec<(WorkloadId, EvictRule)> {
    actions(world)
        .filter_map(|action| match action {
            Action::Evict { workload, rule, .. } => Some((*workload, *rule)),
            _ => None,
        })
        .collect()
}

/// The basis of the latest start or hold of a workload.
fn basis(world: &World, id: WorkloadId) -> StartBasis {
    let bases = actions(world).filter_map(|action| match action {
        Action::Start { workload, basis, .. } | Action::Hold { workload, basis, .. } if *workload == id => {
            Some(*basis)
        }
        _ => None,
    });
    bases.last().expect("it was started")
}

fn nodes_of(world: &World, id: WorkloadId) -> Vec<u64> {
    world.state.workloads[&id].places().map(|place| place.node.0).collect()
}

fn reason(world: &World, id: WorkloadId) -> WaitReason {
    world.engine.explain(id, world.now).expect("it waits").reason
}

fn label(world: &mut World, id: u64, key: &str, value: &str) {
    let mut node = world.state.nodes[&NodeId(id)].clone();
    node.labels.insert(key.into(), value.into());
    world.apply(Change::NodeSet(node));
}

fn on_rack(value: &str) -> Selector {
    Selector([(Name::from("rack"), [Name::from(value)].into())].into())
}

fn gpus(world: &World, projects: &[u64]) -> Vec<Gpus> {
    projects.iter().map(|project| world.used(*project)).collect()
}

fn whole(counts: &[u64]) -> Vec<Gpus> {
    counts.iter().copied().map(Gpus::whole).collect()
}

// Rule 1: amounts are fixed-point integers.

#[test]
fn three_thirds_share_a_device_and_a_millionth_more_does_not() {
    for (millionths, devices_used) in [(333_333, 1), (333_334, 2)] {
        let mut world = world(&[2]);
        add(&mut world, [project(1, 2)]);
        let mut spec = train(1, 1);
        let share = Share::from_millionths(millionths).expect("a share");
        spec.request.gpu = GpuRequest::Fraction { share, devices: NonZeroU8::MIN };
        submit_many(&mut world, 3, spec);
        world.settle();
        let devices: std::collections::BTreeSet<u8> = world
            .state
            .workloads
            .values()
            .flat_map(|workload| workload.places().map(|place| place.devices[0].device).collect::<Vec<_>>())
            .collect();
        assert_eq!(devices.len(), devices_used, "{millionths}");
        assert_eq!(world.used(1), Gpus(3 * u64::from(millionths)));
    }
}

#[test]
fn gpu_memory_is_charged_as_the_rounded_up_share_of_the_device_it_gets() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 1)]);
    let mut spec = train(1, 1);
    let bytes = NonZeroU64::new(Bytes::gib(20).0).expect("some");
    spec.request.gpu = GpuRequest::Memory { bytes, devices: NonZeroU8::MIN };
    let ids = submit_many(&mut world, 2, spec);
    world.settle();
    // 20,480 MiB of 32,510 MiB is 0.62996001..., and two of them do not fit on one device.
    assert_eq!(world.used(1), Gpus(629_961));
    assert_eq!(world.queued(), vec![ids[1]]);
}

// Rule 2: quota is a guarantee.

#[test]
fn work_within_quota_takes_back_exactly_what_it_needs() {
    let mut world = world(&[8]);
    add(&mut world, [project(1, 4), project(2, 4)]);
    submit_many(&mut world, 8, train(1, 1));
    world.settle();
    assert_eq!(world.used(1), Gpus::whole(8));
    let claim = run(&mut world, train(2, 4));
    assert_eq!(gpus(&world, &[1, 2]), whole(&[4, 4]));
    assert_eq!(basis(&world, claim), StartBasis::Quota);
    assert_eq!(evictions(&world).len(), 4);
    assert!(evictions(&world).iter().all(|(_, rule)| *rule == EvictRule::QuotaReclaim));
}

#[test]
fn capacity_on_nodes_a_workload_may_not_use_is_not_reclaimed_for_it() {
    let mut world = world(&[1, 1]);
    label(&mut world, 1, "rack", "r1");
    label(&mut world, 2, "rack", "r2");
    add(&mut world, [project(1, 0), project(2, 1)]);
    let first = run(&mut world, WorkloadSpec { selector: on_rack("r1"), ..train(1, 1) });
    let second = run(&mut world, WorkloadSpec { selector: on_rack("r2"), ..train(1, 1) });
    run(&mut world, WorkloadSpec { selector: on_rack("r2"), ..train(2, 1) });
    assert_eq!(evictions(&world), vec![(second, EvictRule::QuotaReclaim)]);
    assert!(runs(&world, first));
}

// Rule 3: borrowing and fair share.

#[test]
fn idle_gpus_are_borrowed_two_to_one_by_weights_of_two_and_one() {
    let mut world = world(&[6]);
    add(&mut world, [weighted(1, 2), weighted(2, 1)]);
    submit_many(&mut world, 6, train(2, 1));
    submit_many(&mut world, 6, train(1, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[4, 2]));
}

#[test]
fn fair_shares_are_exact_to_the_millionth_and_not_rounded_to_gpus() {
    let mut world = world(&[8]);
    add(&mut world, (1..=3).map(|id| weighted(id, 1)));
    for id in 1..=3 {
        submit_many(&mut world, 8, train(id, 1));
    }
    let shares: Vec<u64> =
        world.engine.fair_shares("default").into_iter().map(|(_, share)| share.0).collect();
    assert_eq!(shares, vec![2_666_667, 2_666_667, 2_666_666]);
}

#[test]
fn the_higher_rank_borrows_first_whatever_the_weights() {
    let mut world = world(&[6]);
    let ranked = entitled(1, 0, |entitlement| entitlement.rank = 1);
    add(&mut world, [ranked, weighted(2, 9)]);
    submit_many(&mut world, 6, train(2, 1));
    submit_many(&mut world, 4, train(1, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[4, 2]));
}

#[test]
fn rank_never_touches_quota() {
    let mut world = world(&[4]);
    let ranked = entitled(1, 0, |entitlement| entitlement.rank = 9);
    add(&mut world, [ranked, project(2, 2)]);
    submit_many(&mut world, 4, train(1, 1));
    world.settle();
    run(&mut world, train(2, 2));
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 2]));
}

#[test]
fn a_limit_is_never_passed_even_when_gpus_are_idle() {
    let mut world = world(&[8]);
    add(&mut world, [entitled(1, 1, |entitlement| entitlement.limit = Some(Gpus::whole(3)))]);
    let ids = submit_many(&mut world, 5, train(1, 1));
    world.settle();
    assert_eq!(world.used(1), Gpus::whole(3));
    let account = Account::Project(ProjectId(1));
    let (limit, used, asked) = (Gpus::whole(3), Gpus::whole(3), Gpus::ONE);
    assert_eq!(reason(&world, ids[3]), WaitReason::Limit { account, limit, used, asked });
}

#[test]
fn weight_zero_does_not_borrow_even_when_gpus_are_idle() {
    let mut world = world(&[8]);
    add(&mut world, [entitled(1, 2, |entitlement| entitlement.weight = Some(Gpus::ZERO))]);
    let ids = submit_many(&mut world, 3, train(1, 1));
    world.settle();
    assert_eq!(world.used(1), Gpus::whole(2));
    let account = Account::Project(ProjectId(1));
    let (quota, used, asked) = (Gpus::whole(2), Gpus::whole(2), Gpus::ONE);
    assert_eq!(reason(&world, ids[2]), WaitReason::NoBorrowing { account, quota, used, asked });
}

#[test]
fn idle_capacity_is_used_beyond_the_fair_share_and_is_then_reclaimable() {
    let mut world = world(&[4]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    let ids = submit_many(&mut world, 4, train(1, 1));
    // It cannot fit beside its rival's share, so the rest would stay idle for fairness.
    let large = world.submit(train(2, 3));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[4, 0]));
    assert_eq!(basis(&world, ids[1]), StartBasis::FairShare);
    assert_eq!(basis(&world, ids[2]), StartBasis::Idle);
    end(&mut world, large);
    run(&mut world, train(2, 2));
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 2]));
    assert!(evictions(&world).iter().all(|(_, rule)| *rule == EvictRule::ShareReclaim));
}

#[test]
fn work_that_could_never_run_earns_no_fair_share() {
    let mut world = world(&[4]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    world.submit(train(2, 64));
    submit_many(&mut world, 4, train(1, 1));
    let shares = world.engine.fair_shares("default");
    assert_eq!(shares[0], (Account::Project(ProjectId(1)), Gpus::whole(4)));
    assert_eq!(shares[1], (Account::Project(ProjectId(2)), Gpus::ZERO));
}

#[test]
fn of_equal_borrowers_the_older_submission_starts_first() {
    let mut world = world(&[1]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    let older = world.submit(train(2, 1));
    world.now = world.now + Span(1);
    let newer = world.submit(train(1, 1));
    world.settle();
    assert!(runs(&world, older));
    assert!(!runs(&world, newer));
}

// Rule 4: non-preemptible work stays within quota.

#[test]
fn non_preemptible_work_is_counted_against_non_preemptible_work_only() {
    let mut world = world(&[8]);
    add(&mut world, [project(1, 2)]);
    run(&mut world, train(1, 2));
    let session = run(&mut world, interactive(1, 2));
    let third = run(&mut world, interactive(1, 1));
    assert!(runs(&world, session));
    assert_eq!(world.used(1), Gpus::whole(4));
    let account = Account::Project(ProjectId(1));
    let (quota, used, asked) = (Gpus::whole(2), Gpus::whole(2), Gpus::ONE);
    assert_eq!(reason(&world, third), WaitReason::NonPreemptibleQuota { account, quota, used, asked });
}

#[test]
fn a_session_preempts_its_own_projects_training_when_nothing_is_free() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 2)]);
    let job = run(&mut world, train(1, 2));
    let session = run(&mut world, interactive(1, 1));
    assert!(runs(&world, session));
    assert_eq!(evictions(&world), vec![(job, EvictRule::Preemption)]);
    assert_eq!(world.queued(), vec![job]);
}

#[test]
fn a_session_makes_its_own_projects_training_the_borrowed_part() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 2), project(2, 2)]);
    let job = run(&mut world, train(1, 2));
    let session = run(&mut world, interactive(1, 2));
    run(&mut world, train(2, 2));
    assert_eq!(evictions(&world), vec![(job, EvictRule::QuotaReclaim)]);
    assert!(runs(&world, session));
}

#[test]
fn default_priorities_put_serving_before_people_before_training() {
    assert_eq!(Kind::Inference.priority(false), 125);
    assert_eq!(Kind::Interactive.priority(false), 100);
    assert_eq!(Kind::Interactive.priority(true), 75);
    assert_eq!(Kind::Train.priority(true), 50);
    assert_eq!(Kind::Distributed.priority(true), 50);
    let preemptible = [Kind::Train, Kind::Distributed, Kind::Interactive, Kind::Inference];
    assert_eq!(preemptible.map(Kind::preemptible), [true, true, false, false]);
}

#[test]
fn lowering_a_quota_evicts_no_non_preemptible_work() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 4), project(2, 0)]);
    submit_many(&mut world, 4, interactive(1, 1));
    world.settle();
    add(&mut world, [project(1, 0), project(2, 4)]);
    let claim = run(&mut world, train(2, 1));
    assert_eq!(world.used(1), Gpus::whole(4));
    assert_eq!(world.queued(), vec![claim]);
    assert_eq!(evictions(&world), vec![]);
}

// Rule 5: what is borrowed, and who may take it back.

#[test]
fn a_project_at_its_quota_loses_nothing_to_others() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 2), project(2, 4)]);
    submit_many(&mut world, 2, train(1, 1));
    world.settle();
    let ids = submit_many(&mut world, 4, prioritised(99, train(2, 1)));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 2]));
    assert_eq!(evictions(&world), vec![]);
    assert!(matches!(reason(&world, ids[2]), WaitReason::NoCapacity { within_quota: true, .. }));
}

#[test]
fn share_reclaim_stops_before_it_takes_a_project_below_its_share() {
    let mut world = world(&[3]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    submit_many(&mut world, 3, train(1, 1));
    world.settle();
    submit_many(&mut world, 3, train(2, 1));
    world.settle();
    // Shares are one and a half each: one more would leave the first project at one.
    assert_eq!(gpus(&world, &[1, 2]), whole(&[2, 1]));
    assert_eq!(evictions(&world).len(), 1);
    assert_eq!(evictions(&world)[0].1, EvictRule::ShareReclaim);
}

#[test]
fn preemption_stays_inside_one_project_and_takes_strictly_lower_priority() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 1), project(2, 1)]);
    let other = run(&mut world, prioritised(1, train(2, 1)));
    let low = run(&mut world, prioritised(50, train(1, 1)));
    let equal = run(&mut world, prioritised(50, train(1, 1)));
    assert_eq!(world.queued(), vec![equal]);
    let high = run(&mut world, prioritised(51, train(1, 1)));
    assert_eq!(evictions(&world), vec![(low, EvictRule::Preemption)]);
    assert!(runs(&world, high) && runs(&world, other));
    assert_eq!(basis(&world, high), StartBasis::Priority);
}

#[test]
fn a_victim_that_straddles_the_quota_is_taken_only_when_no_other_set_suffices() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 3), project(2, 1)]);
    // By priority the large one would be the first to go, but it would leave its project below quota.
    let large = world.submit(prioritised(10, train(1, 2)));
    let small = submit_many(&mut world, 2, train(1, 1));
    world.settle();
    run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(small[0], EvictRule::QuotaReclaim)]);
    assert!(runs(&world, large));
}

#[test]
fn a_victim_straddles_the_quota_when_nothing_else_is_there() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 1), project(2, 1)]);
    let large = run(&mut world, train(1, 2));
    run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(large, EvictRule::QuotaReclaim)]);
    assert_eq!(gpus(&world, &[1, 2]), whole(&[0, 1]));
}

// Rule 6: victims.

#[test]
fn the_project_furthest_above_its_share_for_its_weight_gives_first() {
    let mut world = world(&[8]);
    add(&mut world, [weighted(1, 1), weighted(2, 3), project(3, 2)]);
    submit_many(&mut world, 4, train(1, 1));
    submit_many(&mut world, 4, train(2, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[4, 4]));
    submit_many(&mut world, 2, train(3, 1));
    world.settle();
    assert_eq!(gpus(&world, &[1, 2, 3]), whole(&[2, 4, 2]));
}

#[test]
fn no_victim_is_taken_that_can_be_left_out() {
    let mut world = world(&[3]);
    add(&mut world, [project(1, 0), project(2, 2)]);
    // The small one is first in order, and useless once the large one is gone.
    let small = run(&mut world, prioritised(10, train(1, 1)));
    let large = run(&mut world, train(1, 2));
    run(&mut world, train(2, 2));
    assert_eq!(evictions(&world), vec![(large, EvictRule::QuotaReclaim)]);
    assert!(runs(&world, small));
}

#[test]
fn inside_a_project_the_lower_priority_goes_before_the_smaller_loss() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let low = run(&mut world, prioritised(10, train(1, 1)));
    world.now = world.now + Span::secs(100);
    run(&mut world, prioritised(20, train(1, 1)));
    run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(low, EvictRule::QuotaReclaim)]);
}

#[test]
fn the_victim_is_whoever_loses_least_work_and_the_loss_is_named() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    run(&mut world, train(1, 1));
    world.now = world.now + Span::secs(100);
    let newer = run(&mut world, train(1, 1));
    let claim = run(&mut world, train(2, 1));
    let evicted = actions(&world).find(|action| matches!(action, Action::Evict { .. })).cloned();
    let expected =
        Action::Evict { workload: newer, winner: claim, rule: EvictRule::QuotaReclaim, lost: 1000 };
    assert_eq!(evicted, Some(expected));
}

#[test]
fn a_checkpoint_lowers_what_an_eviction_destroys() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let older = run(&mut world, train(1, 1));
    world.now = world.now + Span::secs(100);
    run(&mut world, train(1, 1));
    world.apply(Change::Checkpointed { workload: older, at: world.now });
    run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(older, EvictRule::QuotaReclaim)]);
}

#[test]
fn without_checkpoints_a_loss_counts_at_most_an_hour_for_each_gpu() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let saving = run(&mut world, train(1, 1));
    let never_saving = run(&mut world, train(1, 1));
    world.now = world.now + Span::secs(36_000);
    world.apply(Change::Checkpointed { workload: saving, at: world.now });
    world.now = world.now + Span::secs(3_601);
    run(&mut world, train(2, 1));
    // The one saved an hour and a second ago; the other lost ten hours, which count as one.
    assert_eq!(evictions(&world), vec![(never_saving, EvictRule::QuotaReclaim)]);
}

#[test]
fn a_gang_is_evicted_whole() {
    let mut world = world(&[1, 1]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let gang = run(&mut world, gang(1, 2, 2));
    assert_eq!(nodes_of(&world, gang).len(), 2);
    run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(gang, EvictRule::QuotaReclaim)]);
    assert_eq!(world.used(1), Gpus::ZERO);
}

#[test]
fn nothing_is_evicted_inside_its_minimum_run_time_and_the_end_of_it_is_the_wake() {
    let mut world = world(&[1]);
    add(&mut world, [Project { min_run: Span::secs(60), ..project(1, 0) }, project(2, 1)]);
    let start = world.now;
    let job = run(&mut world, train(1, 1));
    let claim = world.submit(train(2, 1));
    let until = start + Span::secs(60);
    assert_eq!(world.plan(), Plan { at: world.now, actions: vec![], wake: Some(until) });
    assert_eq!(reason(&world, claim), WaitReason::MinimumRun { until });
    world.now = Time(until.0 - 1);
    assert_eq!(world.plan().actions, vec![]);
    world.now = until;
    world.settle();
    assert_eq!(evictions(&world), vec![(job, EvictRule::QuotaReclaim)]);
}

#[test]
fn a_victim_returns_to_its_place_in_the_queue_and_resumes_by_itself() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let victim = run(&mut world, train(1, 1));
    let claim = run(&mut world, train(2, 1));
    let later = run(&mut world, train(1, 1));
    assert_eq!(world.queued(), vec![victim, later]);
    end(&mut world, claim);
    world.settle();
    assert!(runs(&world, victim));
    assert_eq!(world.queued(), vec![later]);
}

#[test]
fn a_claimant_is_held_until_the_victim_is_gone() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let victim = run(&mut world, train(1, 1));
    let claim = world.submit(train(2, 1));
    world.plan();
    assert!(matches!(world.state.workloads[&claim].phase, Phase::Held { .. }));
    assert_eq!(reason(&world, claim), WaitReason::Leaving { workloads: vec![victim] });
    world.confirm();
    world.plan();
    assert!(runs(&world, claim));
}

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
    assert_eq!(basis(&world, large), StartBasis::Reservation);
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
fn a_project_has_one_reservation_at_a_time() {
    let (mut world, _, large) = reserved_scene();
    world.submit(train(2, 4));
    world.now = world.now + Span::secs(100);
    world.settle();
    let reserved: Vec<WorkloadId> = world
        .state
        .workloads
        .values()
        .filter(|workload| !workload.reserved_places().is_empty())
        .map(|workload| workload.id)
        .collect();
    assert_eq!(reserved, vec![large]);
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
    assert!(matches!(reason(&world, ids[1]), WaitReason::NonPreemptibleQuota { .. }));
}

#[test]
fn a_quota_larger_than_the_nodes_a_project_may_use_is_explained_as_never() {
    let mut world = world(&[2, 8]);
    label(&mut world, 1, "rack", "r1");
    add(&mut world, [Project { train_nodes: on_rack("r1"), ..project(1, 8) }]);
    let id = run(&mut world, gang(1, 4, 4));
    assert_eq!(reason(&world, id), WaitReason::Never { most: 2, needed: 4 });
}
