//! Every scenario of the repository holds, with every rule checked on the way.

use berth_sim::scenario::{RunOptions, Scenario, run};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn problems_of(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join(file)).expect("the scenario is there");
    let scenario = Scenario::parse(file, &text).expect("the scenario can be read");
    let options = RunOptions { verify: true, ..RunOptions::default() };
    let run = run(&scenario, &options);
    let unmet = run.unmet.iter().map(|problem| format!("{file}:{}: {}", problem.line, problem.text));
    let findings = run.findings().iter();
    unmet
        .chain(findings.map(|found| format!("{file}: {} at {:?}: {}", found.rule, found.at, found.text)))
        .collect()
}

#[test]
fn the_report_s_own_scenario_holds() {
    assert_eq!(problems_of("tr4858.berth"), Vec::<String>::new());
}

#[test]
fn every_scenario_holds() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".berth"))
        .collect();
    files.sort();
    assert!(files.len() > 12, "found only {files:?}");
    let problems: Vec<String> = files.iter().flat_map(|file| problems_of(file)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn an_expectation_that_does_not_hold_is_reported_with_what_was_found() {
    let text = "node host gpus=1\nproject a quota=1\nsubmit j -p a -g 1\nexpect a 0/1\nexpect j queued\nexpect free 1\n\
                expect evicted j\nexpect share j j\n";
    let scenario = Scenario::parse("x.berth", text).expect("readable");
    let run = run(&scenario, &RunOptions::default());
    assert_eq!(run.met, 1, "{:?}", run.unmet);
    let texts: Vec<&str> = run.unmet.iter().map(|problem| problem.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "at 1s: expected a 0/1, found 1/1",
            "at 1s: expected j queued, found running",
            "at 1s: expected free 1, found free 0",
            "at 1s: expected evicted j, found evicted none",
        ]
    );
}
