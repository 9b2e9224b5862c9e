//! The world itself: it is deterministic, does what is decided, and survives what goes wrong.

use berth_sim::{
    Faults, Found,
    random::SplitMix64,
    scenario::{Run, RunOptions, Scenario, run},
};
use std::fmt::Write;

/// A busy day in text: thirty workloads of all shapes, and time in between.
fn busy(seed: u64) -> String {
    let mut random = SplitMix64::new(seed);
    let mut text = String::from(
        "nodes 3 x dgx1 gpus=4 label.rack=r1\nproject a quota=6\nproject b quota=4 min-run=30s\nproject c quota=0 weight=2\n",
    );
    for number in 0..30 {
        let shape = [
            "-g 1",
            "-g 2",
            "-g 0.5",
            "-g 0.3 --interactive",
            "-g 1 --interactive",
            "-g 1 --workers 4 --min-workers 2",
            "-g 2 --workers 3",
            "--gpu-memory 8Gi",
        ][random.below(8) as usize];
        // Work that cannot be evicted never borrows, so it would wait for ever in a project without quota.
        let projects = if shape.contains("interactive") { 2 } else { 3 };
        let project = ["a", "b", "c"][random.below(projects) as usize];
        let checkpoints = ["perfect", "never", "1m"][random.below(3) as usize];
        let runs = 30 + random.below(600);
        let wait = random.below(90);
        let _ = writeln!(
            text,
            "submit j{number} -p {project} {shape} --runs {runs}s --checkpoints {checkpoints}\nwait {wait}s"
        );
    }
    text.push_str("wait 2h\n");
    text
}

fn run_busy(seed: u64, faults: Faults) -> Run {
    let scenario = Scenario::parse("busy.berth", &busy(seed)).expect("readable");
    let options = RunOptions { seed, verify: true, faults, explain: false };
    run(&scenario, &options)
}

fn texts(found: &[Found]) -> Vec<String> {
    found.iter().take(3).map(|found| format!("{} at {:?}: {}", found.rule, found.at, found.text)).collect()
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let (one, two) = (run_busy(7, Faults::all()), run_busy(7, Faults::all()));
    assert!(one.world.log().len() > 100);
    assert_eq!(one.world.log(), two.world.log());
    let other = run_busy(8, Faults::all());
    assert_ne!(one.world.log(), other.world.log());
}

#[test]
fn all_work_is_done_and_no_rule_is_broken_without_faults() {
    for seed in 0..10 {
        let run = run_busy(seed, Faults::default());
        assert_eq!(texts(run.findings()), Vec::<String>::new(), "seed {seed}");
        let left: Vec<_> =
            run.world.state().workloads.values().filter(|found| !found.is_finished()).collect();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
}

#[test]
fn no_rule_is_broken_while_things_go_wrong() {
    for seed in 0..20 {
        let run = run_busy(seed, Faults::all());
        assert_eq!(texts(run.findings()), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn an_interrupted_workload_takes_up_its_work_where_the_checkpoint_left_it() {
    let text = "node host gpus=1\nproject a quota=0\nproject b quota=1\n\
                submit slow -p a -g 1 --runs 10m --checkpoints 4m\nwait 5m\nsubmit quick -p b -g 1 --runs 1m\n\
                wait 7m\nexpect slow running\nwait 2m\nexpect slow succeeded\n";
    let scenario = Scenario::parse("resume.berth", text).expect("readable");
    let run = run(&scenario, &RunOptions::default());
    assert_eq!(run.unmet, []);
    let slow = *run.world.state().workloads.keys().next().expect("it was submitted");
    assert_eq!(run.world.wasted(slow) / 1000, 60, "one minute since the checkpoint at four");
}

#[test]
fn a_lost_node_comes_back_and_its_work_with_it() {
    let text = "nodes 2 x dgx1 gpus=1\nproject a quota=2\nsubmit one -p a -g 1\nsubmit two -p a -g 1\nwait until settled\n\
                lose node1\nwait 5s\nexpect running 1\nexpect queued 1\nrestart\nrestore node1\nwait 5s\nexpect running 2\n\
                fail one\nwait 5s\nexpect one failed\n";
    let scenario = Scenario::parse("lost.berth", text).expect("readable");
    let options = RunOptions { verify: true, ..RunOptions::default() };
    let run = run(&scenario, &options);
    assert_eq!(run.unmet, []);
    assert_eq!(texts(run.findings()), Vec::<String>::new());
}
