//! Changes of a world that change nothing for the work in it: the engine decides the same with and without them.
//!
//! A failure prints its seed, the shortest scenario whose decisions still differ, and the first decision that does.

mod random_scenario;

use berth_sim::scenario::{RunOptions, Scenario, run};
use berth_types::{Change, Time};
use random_scenario::generate;

/// Failures reported of one test; the rest are counted.
const REPORTED: usize = 4;

fn decisions(lines: &[String], seed: u64) -> Option<Vec<(Time, String)>> {
    let scenario = Scenario::parse("random.berth", &lines.join("\n")).ok()?;
    let options = RunOptions { seed, ..RunOptions::default() };
    let run = run(&scenario, &options);
    let decided = run.world.log().iter().filter_map(|entry| match &entry.change {
        Change::Decided { action, at } => Some((*at, format!("{action:?}"))),
        _ => None,
    });
    Some(decided.collect())
}

/// The first decision that differs between a world and its variant.
fn difference(lines: &[String], seed: u64, vary: fn(&[String]) -> Vec<String>) -> Option<String> {
    let (one, other) = (decisions(lines, seed)?, decisions(&vary(lines), seed)?);
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    Some(format!("{:?}\n  in the variant {:?}", one.get(at), other.get(at)))
}

fn check(vary: fn(&[String]) -> Vec<String>) {
    let cases = std::env::var("BERTH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_000);
    let mut reports = Vec::new();
    let mut failures = 0;
    for seed in 0..cases {
        let mut lines = generate(seed);
        if difference(&lines, seed, vary).is_none() {
            continue;
        }
        failures += 1;
        if reports.len() < REPORTED {
            let mut before = usize::MAX;
            while lines.len() < before {
                before = lines.len();
                for at in (0..lines.len()).rev() {
                    let mut fewer = lines.clone();
                    fewer.remove(at);
                    if difference(&fewer, seed, vary).is_some() {
                        lines = fewer;
                    }
                }
            }
            let seen = difference(&lines, seed, vary).expect("differs still");
            reports.push(format!("seed {seed}: {seen}\n{}\n", lines.join("\n")));
        }
    }
    assert!(failures == 0, "{failures} of {cases} seeds decide differently\n\n{}", reports.join("\n"));
}

/// Whether a line sets up the world, and is not carried out in its time.
fn is_setup(line: &str) -> bool {
    ["node ", "policy ", "department ", "project "].iter().any(|verb| line.starts_with(verb))
}

/// Puts lines before the first one that matches, or before all that happens.
fn before(lines: &[String], added: &str, matches: impl Fn(&str) -> bool) -> Vec<String> {
    let at = lines.iter().position(|line| matches(line) || !is_setup(line)).unwrap_or(lines.len());
    let mut varied = lines.to_vec();
    varied.insert(at, added.to_owned());
    varied
}

#[test]
fn a_neutral_department_changes_no_decision() {
    check(|lines| {
        let wrapped: Vec<String> = lines
            .iter()
            .map(|line| match line.split_whitespace().next() {
                Some("project") if !line.contains(" department=") => format!("{line} department=around"),
                Some("department") if !line.contains(" parent=") => format!("{line} parent=around"),
                _ => line.clone(),
            })
            .collect();
        before(&wrapped, "department around", |line| {
            line.starts_with("department ") || line.starts_with("project ")
        })
    });
}

#[test]
fn a_neutral_department_around_some_projects_changes_no_decision() {
    check(|lines| {
        let is_inside =
            |line: &str| ["p0 ", "p2 "].iter().any(|name| line.starts_with(&format!("project {name}")));
        let wrapped: Vec<String> = lines
            .iter()
            .map(|line| match is_inside(line) && !line.contains(" department=") {
                true => format!("{line} department=around"),
                false => line.clone(),
            })
            .collect();
        before(&wrapped, "department around", |line| line.starts_with("project "))
    });
}

#[test]
fn a_project_without_work_changes_no_decision() {
    check(|lines| before(lines, "project idle quota=2 weight=2 rank=1", |_| false));
}

#[test]
fn a_node_that_takes_no_work_changes_no_decision() {
    check(|lines| before(lines, "node spare gpus=4 cordoned=on", |line| !line.starts_with("node ")));
}

#[test]
fn looking_again_at_the_same_time_changes_no_decision() {
    check(|lines| {
        let twice = lines.iter().flat_map(|line| match is_setup(line) {
            true => vec![line.clone()],
            false => vec![line.clone(), "wait 0s".to_owned()],
        });
        twice.collect()
    });
}
