//! Changes of a world that change nothing for the work in it: the engine decides the same with and without them.
//!
//! A failure prints its seed, the shortest scenario whose decisions still differ, and the first decision that does.

mod random_scenario;

use berth_sim::scenario::{RunOptions, Scenario, run};
use berth_types::{Action, Change, Time};
use random_scenario::generate;

/// Failures reported of one test; the rest are counted.
const REPORTED: usize = 4;

/// One world told in two ways.
#[derive(Clone, Copy)]
struct Pair {
    /// What is asked of a random world so that it can be told in the other way.
    base: fn(&[String]) -> Vec<String>,
    /// The other way.
    vary: fn(&[String]) -> Vec<String>,
    /// What of a decision must be the same; nothing for one that may differ.
    told: fn(&Action) -> Option<String>,
    /// In how many of 1,000 worlds a decision may differ.
    rarely: u64,
}

/// A pair of which every decision is the same, places included.
fn pair(vary: fn(&[String]) -> Vec<String>) -> Pair {
    Pair { base: <[String]>::to_vec, vary, told: |action| Some(format!("{action:?}")), rarely: 0 }
}

fn decisions(
    lines: &[String],
    seed: u64,
    told: fn(&Action) -> Option<String>,
) -> Option<Vec<(Time, String)>> {
    let scenario = Scenario::parse("random.berth", &lines.join("\n")).ok()?;
    let options = RunOptions { seed, ..RunOptions::default() };
    let run = run(&scenario, &options);
    let decided = run.world.log().iter().filter_map(|entry| match &entry.change {
        Change::Decided { action, at } => Some((*at, told(action)?)),
        _ => None,
    });
    Some(decided.collect())
}

/// The first decision that differs between a world and its variant.
fn difference(lines: &[String], seed: u64, pair: Pair) -> Option<String> {
    let told = |lines: &[String]| decisions(lines, seed, pair.told);
    let lines = (pair.base)(lines);
    let (one, other) = (told(&lines)?, told(&(pair.vary)(&lines))?);
    let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at))?;
    Some(format!("{:?}\n  in the variant {:?}", one.get(at), other.get(at)))
}

fn check(pair: Pair) {
    let cases = std::env::var("BERTH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_000);
    let mut reports = Vec::new();
    let mut failures = 0;
    for seed in 0..cases {
        let mut lines = generate(seed);
        let base = (pair.base)(&lines);
        for told in [(pair.vary)(&base), base] {
            let told = told.join("\n");
            assert!(Scenario::parse("random.berth", &told).is_ok(), "seed {seed} is no scenario:\n{told}");
        }
        if difference(&lines, seed, pair).is_none() {
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
                    if difference(&fewer, seed, pair).is_some() {
                        lines = fewer;
                    }
                }
            }
            let seen = difference(&lines, seed, pair).expect("differs still");
            reports.push(format!("seed {seed}: {seen}\n{}\n", (pair.base)(&lines).join("\n")));
        }
    }
    assert!(
        failures * 1_000 <= pair.rarely * cases,
        "{failures} of {cases} seeds decide differently\n\n{}",
        reports.join("\n")
    );
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
    check(pair(|lines| {
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
    }));
}

#[test]
fn a_neutral_department_around_some_projects_changes_no_decision() {
    check(pair(|lines| {
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
    }));
}

#[test]
fn a_project_without_work_changes_no_decision() {
    check(pair(|lines| before(lines, "project idle quota=2 weight=2 rank=1", |_| false)));
}

#[test]
fn a_node_that_takes_no_work_changes_no_decision() {
    check(pair(|lines| before(lines, "node spare gpus=4 cordoned=on", |line| !line.starts_with("node "))));
}

#[test]
fn looking_again_at_the_same_time_changes_no_decision() {
    check(pair(|lines| {
        let twice = lines.iter().flat_map(|line| match is_setup(line) {
            true => vec![line.clone()],
            false => vec![line.clone(), "wait 0s".to_owned()],
        });
        twice.collect()
    }));
}

/// Changes every value of the settings of a line that `change` knows: `name=value`, or `name value` for a flag.
fn with_values(line: &str, change: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    for at in 0..words.len() {
        if let Some((name, value)) = words[at].split_once('=')
            && let Some(changed) = change(name, value)
        {
            words[at] = format!("{name}={changed}");
        } else if words[at].starts_with('-')
            && let Some(value) = words.get(at + 1)
            && let Some(changed) = change(&words[at], value)
        {
            words[at + 1] = changed;
        }
    }
    words.join(" ")
}

/// Projects and departments that no two are owed alike, so that nothing is decided by the smaller id alone.
fn without_ties(lines: &[String]) -> Vec<String> {
    let mut count = 0;
    let told = lines.iter().map(|line| {
        if !line.starts_with("project ") && !line.starts_with("department ") {
            return line.clone();
        }
        count += 1;
        let line = with_values(line, |name, value| {
            (name == "quota")
                .then(|| format!("{value}{}0{count}", if value.contains('.') { "" } else { "." }))
        });
        match line.contains(" weight=") {
            true => with_values(&line, |name, value| {
                (name == "weight" && value != "0").then(|| format!("{value}.0{count}"))
            }),
            false => format!("{line} weight=1.0{count}"),
        }
    });
    told.collect()
}

#[test]
fn other_names_change_no_decision() {
    check(pair(|lines| {
        let is_name = |word: &str| {
            let digits = word.trim_start_matches(['p', 'd', 'n', 'j']);
            digits.len() + 1 == word.len() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        let renamed = |word: &str| match word.split_once('=') {
            Some((setting @ ("department" | "parent"), name)) => format!("{setting}=z{name}"),
            None if is_name(word) => format!("z{word}"),
            _ => word.to_owned(),
        };
        lines.iter().map(|line| line.split_whitespace().map(renamed).collect::<Vec<_>>().join(" ")).collect()
    }));
}

#[test]
fn projects_with_other_ids_change_no_decision() {
    check(Pair {
        base: without_ties,
        vary: |lines| {
            // Ids are given in the order of the lines.
            let (mut projects, others): (Vec<String>, Vec<String>) =
                lines.iter().cloned().partition(|line| line.starts_with("project "));
            projects.reverse();
            let at = others.iter().position(|line| !is_setup(line)).unwrap_or(others.len());
            let (setup, rest) = others.split_at(at);
            [setup, &projects, rest].concat()
        },
        told: |action| Some(format!("{action:?}")),
        rarely: 0,
    });
}

/// Whole GPUs only: half of what is asked of a device has no double that is a share of two devices. And every weight is set,
/// because a project without a quota has the weight of one GPU.
fn of_whole_gpus(lines: &[String]) -> Vec<String> {
    let told = lines.iter().map(|line| {
        if line.starts_with("project ") || line.starts_with("department ") {
            let weight = if line.contains(" weight=") { "" } else { " weight=1" };
            return format!("{line}{weight}");
        }
        let line = line.replace("-g 0.5 --devices 2", "-g 2").replace("--gpu-memory 8Gi", "-g 1");
        line.replace("-g 0.5", "-g 1").replace("-g 0.3", "-g 1")
    });
    told.collect()
}

#[test]
fn twice_of_everything_changes_no_decision() {
    check(Pair {
        base: of_whole_gpus,
        vary: |lines| {
            let doubled = |line: &String| {
                with_values(line, |name, value| {
                    let amounts =
                        ["gpus", "cpu", "quota", "limit", "weight", "quota.A100", "cpu-quota", "-g", "--cpu"];
                    let value: f64 = amounts.contains(&name).then(|| value.parse().ok())??;
                    Some((value * 2.0).to_string())
                })
            };
            lines.iter().map(doubled).collect()
        },
        // Devices have other numbers, and what is lost is twice as much.
        told: |action| match action {
            Action::Start { workload, basis, .. } => Some(format!("start {workload} by {basis:?}")),
            Action::Hold { workload, basis, .. } => Some(format!("hold {workload} by {basis:?}")),
            Action::Evict { workload, winner, rule, .. } => {
                Some(format!("evict {workload} for {winner} by {rule:?}"))
            }
            Action::Move { workload, winner, .. } => Some(format!("move {workload} for {winner:?}")),
            other => Some(format!("{:?} {}", std::mem::discriminant(other), other.workload())),
        },
        // A share that is no whole number of millionths is rounded, and two that are nearly alike may change places by that.
        rarely: 3,
    });
}
