//! Random clusters, projects and work: whatever comes together, no rule is broken.
//!
//! A failure prints its seed and the shortest scenario that still breaks the rule; save it and run
//! `berth sim run FILE --verify --seed SEED`, with `--faults all` if faults were on.

mod random_scenario;

use berth_sim::{
    Faults,
    scenario::{RunOptions, Scenario, run},
};
use random_scenario::generate;

/// Failures reported of one test; the rest are counted.
const REPORTED: usize = 8;

/// The broken rules, with what was seen; none when the lines are not a scenario.
fn broken(lines: &[String], seed: u64, faults: &Faults) -> Vec<(String, String)> {
    let Ok(scenario) = Scenario::parse("random.berth", &lines.join("\n")) else {
        return Vec::new();
    };
    let options = RunOptions { seed, verify: true, faults: faults.clone(), explain: false };
    let run = run(&scenario, &options);
    run.findings().iter().map(|found| (found.rule.clone(), found.text.clone())).collect()
}

/// Leaves out lines as long as the same rule is still broken.
fn shrink(mut lines: Vec<String>, rule: &str, seed: u64, faults: &Faults) -> Vec<String> {
    let still = |lines: &[String]| broken(lines, seed, faults).iter().any(|(other, _)| other == rule);
    loop {
        let before = lines.len();
        for at in (0..lines.len()).rev() {
            let mut fewer = lines.clone();
            fewer.remove(at);
            if still(&fewer) {
                lines = fewer;
            }
        }
        if lines.len() == before {
            return lines;
        }
    }
}

fn check(seeds: std::ops::Range<u64>, faults: &Faults) {
    let mut reports = Vec::new();
    let mut failures = 0;
    for seed in seeds {
        let lines = generate(seed);
        let Some((rule, _)) = broken(&lines, seed, faults).into_iter().next() else {
            continue;
        };
        failures += 1;
        if reports.len() < REPORTED {
            let lines = shrink(lines, &rule, seed, faults);
            let seen = broken(&lines, seed, faults);
            let text = seen.into_iter().find(|(other, _)| *other == rule).map(|(_, text)| text);
            reports.push(format!(
                "seed {seed} breaks {rule}: {}\n{}\n",
                text.unwrap_or_default(),
                lines.join("\n")
            ));
        }
    }
    assert!(failures == 0, "{failures} seeds break a rule\n\n{}", reports.join("\n"));
}

#[test]
fn generated_scenarios_can_be_read_and_do_something() {
    for seed in 0..200 {
        let lines = generate(seed);
        let scenario = Scenario::parse("random.berth", &lines.join("\n")).expect("readable");
        let run = run(&scenario, &RunOptions::default());
        assert_eq!(run.unmet, [], "seed {seed}");
        assert!(run.world.log().len() > lines.len() / 2, "seed {seed}");
    }
}

#[test]
fn no_rule_is_broken_in_random_worlds() {
    check(0..1000, &Faults::default());
}

#[test]
fn no_rule_is_broken_in_random_worlds_with_faults() {
    check(0..500, &Faults::all());
}
