//! Properties over random clusters, trees of quotas and event sequences, with `berth-check` as the oracle.
//!
//! `BERTH_CASES` sets how many cases run, `BERTH_SEED` replays one. Every failure prints its seed.

mod support;

use berth_engine::Engine;
use berth_types::*;
use support::{
    World,
    cases::{self, Size},
    random::Random,
};

fn cases(default: u64) -> u64 {
    std::env::var("BERTH_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a property over many seeds on both cores, or over the one that is to be replayed.
fn for_each_seed(name: &str, count: u64, property: impl Fn(u64) -> Result<(), String> + Sync) {
    if let Some(seed) = std::env::var("BERTH_SEED").ok().and_then(|text| text.parse().ok()) {
        if let Err(text) = property(seed) {
            panic!("{name}: seed {seed}\n{text}");
        }
        return;
    }
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (failures, property) = (&failures, &property);
            scope.spawn(move || {
                for seed in (worker..count).step_by(2) {
                    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(seed)));
                    let outcome = caught.unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        Err(format!("panic: {}", text.unwrap_or_else(|| "without a text".into())))
                    });
                    if let Err(text) = outcome {
                        let mut failures = failures.lock().expect("no panic holds it");
                        failures.push((seed, text));
                        if failures.len() >= 20 {
                            return;
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic holds it");
    failures.sort();
    if let Some((seed, text)) = failures.first() {
        let others: Vec<String> = failures
            .iter()
            .map(|(seed, text)| format!("  {seed}: {}", text.lines().next().unwrap_or_default()))
            .collect();
        panic!("{name}: replay with BERTH_SEED={seed}\n{}\n{text}", others.join("\n"));
    }
}

/// Plays a case; after every step the plan and the states around it are checked.
fn play(seed: u64, size: Size, check: impl Fn(&World, &State, &Plan) -> Vec<String>) -> Result<(), String> {
    let mut random = Random(seed);
    let mut world = cases::world(&mut random, size);
    let mut history = vec![];
    for _ in 0..size.steps {
        history.push(cases::step(&mut random, &mut world));
        let before = world.state.clone();
        let plan = world.plan();
        let findings = check(&world, &before, &plan);
        if !findings.is_empty() {
            let projects: Vec<_> = before.projects.values().collect();
            let departments: Vec<_> = before.departments.values().collect();
            let nodes: Vec<_> = before
                .nodes
                .values()
                .map(|node| {
                    (
                        node.id,
                        node.devices.len(),
                        node.devices.first().map(|d| d.model.clone()),
                        node.condition,
                        &node.labels,
                    )
                })
                .collect();
            let phases: Vec<_> = before
                .workloads
                .values()
                .filter(|workload| !workload.is_finished())
                .map(|workload| {
                    format!(
                        "{:?} p{} {:?} evicted {:?}",
                        workload.id, workload.spec.project, workload.phase, workload.evicted
                    )
                })
                .collect();
            return Err(format!(
                "{}\nat {:?}\nplan {:#?}\nnodes {nodes:?}\nprojects {projects:?}\ndepartments {departments:?}\n{}\n--\n{}",
                findings.join("\n"),
                world.now,
                plan,
                phases.join("\n"),
                history.join("\n")
            ));
        }
    }
    Ok(())
}

fn text(findings: Vec<berth_check::Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| format!("{:?}: {}", finding.rule, finding.text)).collect()
}

fn rules_hold(world: &World, before: &State, plan: &Plan, policy: &Policy) -> Vec<String> {
    let mut findings = text(berth_check::check_state(&world.state));
    findings.extend(text(berth_check::check_plan(policy, before, plan)));
    findings.extend(text(berth_check::check_settled(policy, &world.state, world.now)));
    findings
}

#[test]
fn every_plan_keeps_the_rules() {
    for_each_seed("rules", cases(16_000), |seed| {
        let policy = cases::policy(&mut Random(seed));
        play(seed, cases::SMALL, |world, before, plan| rules_hold(world, before, plan, &policy))
    });
}

#[test]
fn every_plan_of_wider_cases_keeps_the_rules() {
    for_each_seed("wide rules", cases(16_000) / 40, |seed| {
        let policy = cases::policy(&mut Random(seed));
        play(seed, cases::WIDE, |world, before, plan| rules_hold(world, before, plan, &policy))
    });
}

#[test]
fn the_next_five_plans_are_empty_before_and_after_confirmation() {
    for_each_seed("five empty plans", cases(4_000), |seed| {
        play(seed, cases::SMALL, |world, _, _| {
            let mut engine = world.engine.clone();
            let mut plans: Vec<Plan> = (0..5).map(|_| engine.plan(world.now)).collect();
            // Confirmations let held workloads start. What was leaving is then gone: extras may use what it left, and
            // a returned workload can be given a reservation. Nothing else changes.
            let mut confirmed = World {
                engine,
                state: world.state.clone(),
                now: world.now,
                next_id: world.next_id,
                plans: vec![],
            };
            confirmed.confirm();
            let starts = confirmed.plan();
            let unexpected = starts.actions.iter().filter(|action| {
                let phase = &world.state.workloads[&action.workload()].phase;
                match action {
                    Action::Start { .. } => !matches!(phase, Phase::Held { .. }),
                    Action::Reserve { .. } => !matches!(phase, Phase::Stopping { .. }),
                    Action::Grow { .. } => false,
                    _ => true,
                }
            });
            let mut findings: Vec<String> =
                unexpected.map(|action| format!("after confirmation: {action:?}")).collect();
            confirmed.confirm();
            plans.extend((0..5).map(|_| confirmed.engine.plan(world.now)));
            findings.extend(text(berth_check::check_empty(&plans)));
            findings
        })
    });
}

#[test]
fn input_in_any_order_gives_the_identical_plan() {
    for_each_seed("shuffled input", cases(4_000), |seed| {
        let policy = cases::policy(&mut Random(seed));
        play(seed, cases::SMALL, |world, before, plan| {
            let mut random = Random(seed ^ world.now.0);
            let mut changes = before.changes();
            // Workloads name nodes and projects, projects name departments, so order is free inside each kind.
            let kind = |change: &Change| match change {
                Change::NodeSet(_) => 0,
                Change::DepartmentSet(_) => 1,
                Change::ProjectSet(_) => 2,
                _ => 3,
            };
            let departments: Vec<Change> =
                changes.iter().filter(|change| kind(change) == 1).cloned().collect();
            random.shuffle(&mut changes);
            changes.sort_by_key(kind);
            let mut ordered = departments.into_iter();
            for change in changes.iter_mut().filter(|change| kind(change) == 1) {
                *change = ordered.next().expect("as many as there were");
            }
            let mut engine = Engine::new(policy.clone());
            for change in &changes {
                engine.apply(change).expect("a state can be told in any order");
            }
            let again = engine.plan(world.now);
            let mut findings = vec![];
            if again != *plan {
                findings.push(format!("from shuffled input: {again:#?}"));
            }
            if engine.state() != world.state || world.engine.state() != world.state {
                findings.push("the engine and the plain state disagree".into());
            }
            findings
        })
    });
}
