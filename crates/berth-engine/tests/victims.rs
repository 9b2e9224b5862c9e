//! How many victims the engine takes for work within quota, held against the fewest that any set could be.
//!
//! The rules order victims and ask for a set in which none can be left out; they do not ask for the smallest. The
//! distance to the smallest is what users feel, so it is measured, printed and bounded.

mod support;

use berth_types::*;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{
    cases::{self, SMALL},
    random::Random,
    seeds, *,
};

/// Victims of in-quota claims: ours, the fewest there could be, and how many claims that is about.
#[derive(Default)]
struct Sums {
    ours: AtomicU64,
    fewest: AtomicU64,
    claims: AtomicU64,
    larger: AtomicU64,
}

fn winner_of(action: &Action) -> Option<WorkloadId> {
    match action {
        Action::Evict { winner, .. } | Action::Shrink { winner, .. } => Some(*winner),
        Action::Move { winner, .. } => *winner,
        _ => None,
    }
}

/// Counts the victims of every claim of a plan against the state just before the first of them was taken.
fn count(policy: &Policy, before: &State, plan: &Plan, sums: &Sums) -> Result<(), String> {
    let mut state = before.clone();
    let mut current: Option<(WorkloadId, Option<usize>, usize)> = None;
    for action in &plan.actions {
        let winner = winner_of(action);
        if let Some(winner) = winner
            && current.is_none_or(|(of, _, _)| of != winner)
        {
            current = Some((winner, berth_check::fewest_victims(policy, &state, winner, plan.at), 0));
        }
        match (action, &mut current) {
            (Action::Evict { rule: EvictRule::QuotaReclaim | EvictRule::Preemption, .. }, Some(claim)) => {
                claim.2 += 1;
            }
            (Action::Start { workload, .. } | Action::Hold { workload, .. }, Some((of, fewest, ours)))
                if workload == of =>
            {
                // A claim that takes extras alone, or is no claim within quota, has nothing to compare.
                if let (Some(fewest), true) = (*fewest, *ours > 0) {
                    if *ours < fewest {
                        return Err(format!("{of:?} takes {ours} where {fewest} is the fewest: {plan:#?}"));
                    }
                    sums.claims.fetch_add(1, Ordering::Relaxed);
                    sums.ours.fetch_add(*ours as u64, Ordering::Relaxed);
                    sums.fewest.fetch_add(fewest as u64, Ordering::Relaxed);
                    sums.larger.fetch_add(u64::from(*ours > fewest), Ordering::Relaxed);
                }
                current = None;
            }
            _ => {}
        }
        let change = Change::Decided { action: action.clone(), at: plan.at };
        state.apply(&change).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A full cluster: two projects without quota borrow everything in pieces, and a third is promised most of it. Small
/// enough for every set of victims to be tried.
fn crowded(random: &mut Random, policy: &Policy) -> World {
    let mut world = World::new(policy.clone());
    for id in 1..=1 + random.below(3) {
        world.apply(Change::NodeSet(node(id, *random.pick(&[2, 4, 8]))));
    }
    for id in 1..=2 {
        let quota = random.below(3);
        world.apply(Change::ProjectSet(project(id, quota)));
    }
    world.apply(Change::ProjectSet(project(3, 24)));
    for _ in 0..10 {
        let mut spec = train(1 + random.below(2), *random.pick(&[1, 1, 1, 2, 2, 3, 4]));
        if random.chance(20) {
            spec.request.gpu = fraction(*random.pick(&[250, 500, 750]));
        }
        if random.chance(15) {
            spec.tasks = Tasks::new(2, 2).expect("a gang");
        }
        spec.priority = *random.pick(&[50, 50, 50, 60]);
        world.submit(spec);
        world.plan();
        world.confirm();
        world.now = world.now + Span::secs(random.below(100));
    }
    // Only what runs is of interest, and what waits counts against the size that can be tried.
    for id in world.queued() {
        world.apply(Change::Cancelled { workload: id, at: world.now });
    }
    world
}

/// Prints the sums and bounds the ratio, in hundredths.
fn conclude(name: &str, sums: &Sums, most: u64) {
    let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    let (ours, fewest) = (read(&sums.ours), read(&sums.fewest));
    println!(
        "{name}: {} claims within quota, {ours} victims, {fewest} at the fewest, ratio {}.{:03}; {} claims took more",
        read(&sums.claims),
        ours / fewest.max(1),
        ours * 1000 / fewest.max(1) % 1000,
        read(&sums.larger)
    );
    assert!(fewest > 0, "no claim took anything");
    assert!(ours * 100 <= fewest * most, "{ours} victims where {fewest} would do");
}

#[test]
fn claims_of_random_cases_take_few_more_victims_than_the_fewest_possible() {
    let sums = Sums::default();
    seeds::for_each_seed("victims", seeds::cases(4_000).max(400), |seed| {
        let mut random = Random(seed);
        let policy = cases::policy(&mut Random(seed));
        let mut world = cases::world(&mut random, SMALL);
        for _ in 0..SMALL.steps {
            cases::step(&mut random, &mut world);
            let before = world.state.clone();
            let plan = world.plan();
            count(&policy, &before, &plan, &sums)?;
        }
        Ok(())
    });
    conclude("random cases", &sums, 105);
}

#[test]
fn claims_on_a_crowded_cluster_take_few_more_victims_than_the_fewest_possible() {
    let sums = Sums::default();
    seeds::for_each_seed("crowded", seeds::cases(3_000).max(300), |seed| {
        let mut random = Random(seed);
        let policy = Policy { moves: false, ..Policy::default() };
        let mut world = crowded(&mut random, &policy);
        let mut spec = train(3, *random.pick(&[1, 2, 3, 4, 6, 8]));
        if random.chance(30) {
            spec = train(3, *random.pick(&[1, 2]));
            spec.tasks = Tasks::new(2 + random.below(3) as u32, 5).expect("a gang");
        }
        world.submit(spec);
        let before = world.state.clone();
        let plan = world.plan();
        count(&policy, &before, &plan, &sums)
    });
    // Rule 6 takes from the largest excess first and counts it anew after each victim, so two projects that borrow alike give
    // small pieces in turn where one larger job of either would do.
    conclude("crowded cluster", &sums, 140);
}
