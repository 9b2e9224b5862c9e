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
    seeds::{cases, for_each_seed},
};

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

/// Whether non-preemptible work whose end is known starts in these places on a node that another has reserved.
fn passes(state: &State, id: WorkloadId, places: &[Place]) -> bool {
    let spec = &state.workloads[&id].spec;
    let project = &state.projects[&spec.project];
    let interactive = (spec.kind == Kind::Interactive).then_some(project.interactive_time_limit).flatten();
    let ends = spec.max_run.or(project.time_limit).or(interactive).is_some();
    let mut others = state.workloads.values().filter(|other| other.id != id);
    let reserved = others.any(|other| places.iter().any(|place| other.reserved_on(place.node)));
    !spec.preemptible && ends && reserved
}

#[test]
fn the_next_five_plans_are_empty_before_and_after_confirmation() {
    for_each_seed("five empty plans", cases(4_000), |seed| {
        play(seed, cases::SMALL, |world, _, _| {
            let mut engine = world.engine.clone();
            let mut plans: Vec<Plan> = (0..5).map(|_| engine.plan(world.now)).collect();
            // Confirmations let held workloads start. What was leaving is then gone: extras, and work that ends before
            // a reservation is filled, may use what it left, and a returned workload can be given a reservation.
            // Nothing else changes.
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
                    Action::Start { workload, places, .. } => {
                        !matches!(phase, Phase::Held { .. }) && !passes(&world.state, *workload, places)
                    }
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
