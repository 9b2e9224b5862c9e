//! Small worlds, in which an oracle tries every set of victims and moves: whatever the rules allow is found, and nothing is
//! taken although the rules prefer another set. And worlds without outside events come to rest.
//!
//! `BERTH_CASES` sets how many worlds there are, `BERTH_SEED` replays one. Every failure prints its seed.

mod support;

use berth_types::*;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};
use support::{
    World,
    random::Random,
    seeds::{cases, for_each_seed},
    small,
};

/// Steps of one world.
const STEPS: u64 = 14;

#[test]
fn whatever_the_rules_allow_in_a_small_world_is_found() {
    for_each_seed("small worlds", cases(2_000), |seed| {
        let mut random = Random(seed);
        let mut world = small::world(&mut random);
        let policy = small::policy(&mut Random(seed));
        let mut history = vec![];
        for _ in 0..STEPS {
            let happened = small::step(&mut random, &mut world);
            history.push(format!("{} {happened}", world.now.0));
            let before = world.state.clone();
            let plan = world.plan();
            let findings = berth_check::check_exhaustively(&policy, &before, &plan);
            if let Some(first) = findings.first() {
                return Err(format!(
                    "{first}\nat {} with patience {} and moves {}\n{}\nbefore it\n{}\n--\n{}",
                    world.now.0,
                    policy.patience,
                    policy.moves,
                    small::plan_told(&plan),
                    small::described(&before),
                    history.join("\n")
                ));
            }
            if random.chance(80) {
                world.confirm();
            }
        }
        Ok(())
    });
}

/// What was decided since the last outside event, by workload.
#[derive(Default)]
struct Since {
    started: BTreeMap<WorkloadId, Time>,
    /// When it was evicted, for whom, and whether the winner had been evicted itself, so that nothing outside caused it.
    evicted: BTreeMap<WorkloadId, (Time, WorkloadId, bool)>,
}

impl Since {
    /// Notes what a plan does, and returns how many it evicts within a second of their start. Finds work that is evicted at the
    /// instant of its start, that is evicted twice, and that is started again though nothing outside caused its eviction: its
    /// winner had been evicted itself. Share reclaim may come after patience. What was held when the plan was made has been
    /// decided before.
    fn note(&mut self, held: &[WorkloadId], plan: &Plan) -> Result<u64, String> {
        let mut soon = 0;
        for action in &plan.actions {
            let id = action.workload();
            match action {
                Action::Start { .. } if held.contains(&id) => {}
                Action::Start { .. } | Action::Hold { .. } => {
                    if let Some((at, winner, true)) = self.evicted.get(&id) {
                        return Err(format!("{id} starts again, which {winner} evicted at {}", at.0));
                    }
                    self.started.insert(id, plan.at);
                }
                Action::Evict { rule: EvictRule::ShareReclaim, .. } => {}
                Action::Evict { winner, .. } => {
                    let ran = self.started.get(&id).map(|at| plan.at.since(*at));
                    if ran == Some(Span::ZERO) {
                        return Err(format!("{id} is started and evicted for {winner} at the same instant"));
                    }
                    soon += u64::from(ran.is_some_and(|ran| ran < Span::secs(1)));
                    let chained = self.evicted.contains_key(winner);
                    if let Some((at, before, _)) = self.evicted.insert(id, (plan.at, *winner, chained)) {
                        return Err(format!(
                            "{id} is evicted for {winner}, and was for {before} at {}",
                            at.0
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(soon)
    }
}

/// Work that is evicted within a second of its start is rare. It happens where quotas add up to more than there is, and a
/// start on idle capacity makes its project one that borrows, from which waiting work within quota may reclaim then.
const WORLDS_PER_SOON: u64 = 1_000;

#[test]
fn a_world_without_outside_events_comes_to_rest() {
    let worlds = cases(2_000).min(20_000);
    let soon = AtomicU64::new(0);
    for_each_seed("rest", worlds, |seed| {
        let mut random = Random(seed);
        let mut world = small::world(&mut random);
        let mut history = vec![];
        for _ in 0..4 + random.below(8) {
            let happened = small::submit(&mut random, &mut world);
            history.push(format!("{} {happened}", world.now.0));
            if random.chance(60) {
                world.plan();
                world.confirm();
            }
            world.now = world.now + Span::secs(*random.pick(&[0, 0, 1, 10, 60]));
        }
        let rested = rest(&mut world).map_err(|text| {
            let plans: Vec<String> = world.plans.iter().map(small::plan_told).collect();
            let (world, history) = (small::described(&world.state), history.join("\n"));
            format!("{text}\n{world}\n{history}\n--\n{}", plans.join("\n"))
        });
        soon.fetch_add(rested?, Ordering::Relaxed);
        Ok(())
    });
    let soon = soon.into_inner();
    println!(
        "{worlds} worlds without outside events: {soon} workloads evicted within a second of their start"
    );
    assert!(soon * WORLDS_PER_SOON <= worlds.max(WORLDS_PER_SOON), "{soon} of {worlds} are evicted at once");
}

/// Plans, confirms and lets time pass, and nothing else, until nothing is decided any more. Returns how many workloads are
/// evicted within a second of their start.
fn rest(world: &mut World) -> Result<u64, String> {
    let mut since = Since::default();
    let mut soon = 0;
    for _ in 0..200 {
        let held = world.state.workloads.values().filter(|own| matches!(own.phase, Phase::Held { .. }));
        let held: Vec<WorkloadId> = held.map(|own| own.id).collect();
        let plan = world.plan();
        soon += since.note(&held, &plan)?;
        world.confirm();
        match plan.wake {
            _ if !plan.actions.is_empty() => {}
            Some(wake) => world.now = wake,
            None => return Ok(soon),
        }
    }
    Err(format!("there is no rest after 200 plans, at {}", world.now.0))
}
