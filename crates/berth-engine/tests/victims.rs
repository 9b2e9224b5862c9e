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
    seeds,
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

#[test]
fn claims_within_quota_take_few_more_victims_than_the_fewest_possible() {
    let sums = Sums::default();
    let cases = seeds::cases(4_000);
    seeds::for_each_seed("victims", cases, |seed| {
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
    let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
    let (ours, fewest) = (read(&sums.ours), read(&sums.fewest));
    println!(
        "{} claims within quota: {ours} victims, {fewest} at the fewest, ratio {}.{:03}; {} claims took more",
        read(&sums.claims),
        ours / fewest.max(1),
        ours * 1000 / fewest.max(1) % 1000,
        read(&sums.larger)
    );
    assert!(fewest > 0 || cases < 100, "no claim took anything");
    // A tenth more than the fewest is what the order of victims may cost.
    assert!(ours * 10 <= fewest * 11, "{ours} victims where {fewest} would do");
}
