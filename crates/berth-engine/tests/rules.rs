//! Rules 1 to 6 by example, who gets how much and who gives way: the smallest scene in which each can be seen, with
//! its exact outcome.

mod support;

use berth_types::*;
use std::num::{NonZeroU8, NonZeroU64};
use support::{scenes::*, *};

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
    let passed = Passed { quota: Gpus::whole(2), used: Gpus::whole(2), asked: Gpus::ONE };
    let passed = PassedQuota::Gpus(passed);
    assert_eq!(reason(&world, ids[2]), WaitReason::NoBorrowing { account, passed });
}

#[test]
fn idle_capacity_is_used_beyond_the_fair_share_and_is_then_reclaimable() {
    let mut world = world_with(impatient(), &[4]);
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
fn beyond_their_shares_the_smaller_part_borrowed_for_its_weight_goes_first() {
    let mut world = world(&[4]);
    add(&mut world, [weighted(1, 3), weighted(2, 1), weighted(3, 12)]);
    submit_many(&mut world, 2, train(1, 1));
    submit_many(&mut world, 1, train(2, 1));
    world.settle();
    // So much is due to the third that every other is beyond its share, and it does not fit.
    world.submit(train(3, 4));
    let lighter = world.submit(train(2, 1));
    let heavier = world.submit(train(1, 1));
    world.settle();
    assert!(runs(&world, heavier));
    assert!(!runs(&world, lighter));
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
    let passed = Passed { quota: Gpus::whole(2), used: Gpus::whole(2), asked: Gpus::ONE };
    let passed = PassedQuota::Gpus(passed);
    assert_eq!(reason(&world, third), WaitReason::NonPreemptibleQuota { account, passed });
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
    let mut world = world_with(impatient(), &[3]);
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
fn share_reclaim_waits_when_the_only_victim_would_fall_below_its_share() {
    let mut world = world_with(impatient(), &[4]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    run(&mut world, train(1, 3));
    submit_many(&mut world, 2, train(1, 1));
    world.settle();
    let claim = run(&mut world, train(2, 2));
    assert_eq!(evictions(&world), vec![]);
    assert!(!runs(&world, claim));
}

#[test]
fn a_share_is_reclaimed_when_the_claimant_has_waited_and_that_instant_is_the_wake() {
    let policy = Policy { reserve_after: Span::secs(100_000), ..Policy::default() };
    let mut world = world_with(policy.clone(), &[2]);
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    submit_many(&mut world, 2, train(1, 1));
    world.settle();
    let claim = world.submit(train(2, 1));
    let until = world.now + policy.patience;
    assert_eq!(world.plan(), Plan { at: world.now, actions: vec![], wake: Some(until) });
    assert_eq!(reason(&world, claim), WaitReason::Patience { until });
    world.now = Time(until.0 - 1);
    assert_eq!(world.plan().actions, vec![]);
    world.now = until;
    world.settle();
    assert_eq!(gpus(&world, &[1, 2]), whole(&[1, 1]));
    assert_eq!(evictions(&world)[0].1, EvictRule::ShareReclaim);
}

#[test]
fn a_share_is_not_reclaimed_from_work_that_started_a_moment_ago() {
    let mut world = world(&[2, 2]);
    let patience = Policy::default().patience;
    add(&mut world, [weighted(1, 1), weighted(2, 1)]);
    let ids = submit_many(&mut world, 4, train(1, 1));
    world.settle();
    let claim = world.submit(train(2, 2));
    let until = world.now + patience;
    world.now = Time(until.0 - 1);
    // By what it would lose, the young one would be the first to go, and its neighbour with it.
    end(&mut world, ids[0]);
    let young = run(&mut world, train(1, 1));
    assert!(runs(&world, young) && !runs(&world, claim));
    world.now = until;
    world.settle();
    assert!(runs(&world, young) && runs(&world, claim));
    assert_eq!(evictions(&world).len(), 2);
}

#[test]
fn quota_is_reclaimed_at_once_from_work_that_started_a_moment_ago() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let borrower = run(&mut world, train(1, 1));
    world.now = world.now + Span(1);
    let owner = run(&mut world, train(2, 1));
    assert_eq!(evictions(&world), vec![(borrower, EvictRule::QuotaReclaim)]);
    assert!(runs(&world, owner));
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

#[test]
fn inside_a_project_the_first_in_its_queue_goes_before_one_that_must_take_first() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 6)]);
    run(&mut world, prioritised(40, train(1, 1)));
    run(&mut world, interactive(1, 2));
    // Three fit on no node beside the two, whoever goes.
    let large = run(&mut world, train(1, 3));
    let taking = world.submit(train(1, 2));
    let fitting = world.submit(prioritised(54, train(1, 1)));
    let plan = world.plan();
    let started = plan.actions.iter().filter_map(|action| match action {
        Action::Start { workload, .. } | Action::Hold { workload, .. } => Some(*workload),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [fitting], "{taking} takes what is left, if anything is");
    assert!(!runs(&world, large));
}
