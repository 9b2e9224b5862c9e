//! Workloads with completions.

use super::desk::*;
use crate::{names, world::Seen};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn sweep() -> Value {
    json!({ "completions": 5, "parallelism": 2, "gpus": 4, "backoffLimit": 1 })
}

/// Pods that are on a node and not over, by the completion they are for.
fn running(desk: &Desk) -> BTreeMap<String, String> {
    let is_running = |pod: &&Value| pod["status"]["phase"] == "Running";
    let index = |pod: &Value| pod["metadata"]["labels"][names::INDEX].as_str().map(ToOwned::to_owned);
    let name = |pod: &Value| pod["metadata"]["name"].as_str().expect("a name").to_owned();
    desk.pods.values().filter(is_running).map(|pod| (index(pod).expect("an index"), name(pod))).collect()
}

/// The Pod of a completion ends.
fn ends(desk: &mut Desk, index: &str, phase: &str) {
    let pod = running(desk).remove(index).expect("it runs");
    desk.change(&pod, &json!({ "status": { "phase": phase } }));
}

fn indices(desk: &Desk) -> Vec<String> {
    running(desk).into_keys().collect()
}

/// Everything there is but Pods, as another process would read it.
fn objects(desk: &Desk, spec: Value) -> Vec<Seen> {
    let status = desk.statuses.get("sweep").map_or(Value::Null, |status| json!(status));
    vec![
        project_seen("team", json!({ "quota": 64 })),
        node_seen("node1", 8),
        workload_seen("sweep", spec, status),
    ]
}

#[test]
fn whoever_is_done_takes_the_next_in_its_place_until_all_are() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    desk.obey();
    assert_eq!(indices(&desk), ["0", "1"], "{:?}", desk.log);
    for (done, then) in [("1", vec!["0", "2"]), ("0", vec!["2", "3"]), ("3", vec!["2", "4"])] {
        ends(&mut desk, done, "Succeeded");
        assert_eq!(desk.used(), 8, "the place is kept");
        desk.obey();
        assert_eq!(indices(&desk), then, "{:?}", desk.log);
        assert_eq!(desk.said["sweep"], "Running");
        desk.sound();
    }
    ends(&mut desk, "4", "Succeeded");
    desk.obey();
    assert_eq!((indices(&desk), desk.used()), (vec!["2".to_owned()], 4), "nothing is left for the other");
    ends(&mut desk, "2", "Succeeded");
    desk.obey();
    let status = &desk.statuses["sweep"];
    assert_eq!((desk.said["sweep"].as_str(), desk.used()), ("Succeeded", 0));
    assert_eq!((status.completed.as_deref(), status.exit_code), (Some("0-4"), Some(0)));
    let progress = status.progress.clone().expect("it is known");
    assert_eq!((progress.text.as_deref(), progress.percent), (Some("5 of 5"), Some(100)));
    assert_eq!((status.runs, status.failures), (1, 0));
}

#[test]
fn a_completion_that_failed_is_tried_again_after_a_pause_and_as_often_as_it_says() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    desk.obey();
    ends(&mut desk, "0", "Failed");
    desk.obey();
    assert_eq!((indices(&desk), desk.used()), (vec!["1".to_owned()], 8), "it pauses in its place");
    desk.pass(2);
    assert_eq!(indices(&desk), ["0", "1"], "{:?}", desk.log);
    assert_eq!((desk.statuses["sweep"].failures, desk.said["sweep"].as_str()), (1, "Running"));
    ends(&mut desk, "1", "Failed");
    desk.pass(2);
    assert_eq!((desk.said["sweep"].as_str(), desk.used()), ("Failed", 0), "{:?}", desk.log);
    assert!(running(&desk).is_empty(), "the others go too: {:?}", desk.log);
}

#[test]
fn what_is_done_stays_done_while_it_is_suspended_and_nobody_is_started_for_nothing() {
    let mut desk = Desk::new(&["node1"]);
    let spec = json!({ "completions": 3, "parallelism": 2, "gpus": 4 });
    desk.workload("sweep", spec.clone());
    desk.obey();
    ends(&mut desk, "0", "Succeeded");
    desk.obey();
    ends(&mut desk, "2", "Succeeded");
    desk.obey();
    let mut suspended = spec.clone();
    suspended["suspend"] = true.into();
    desk.workload("sweep", suspended);
    desk.obey();
    assert_eq!((desk.said["sweep"].as_str(), running(&desk).len()), ("Suspended", 0));
    desk.workload("sweep", spec);
    desk.obey();
    assert_eq!(running(&desk).into_iter().collect::<Vec<_>>(), [("1".to_owned(), "sweep-r2-0".to_owned())]);
    assert_eq!(desk.used(), 4, "the place of the other is free");
    ends(&mut desk, "1", "Succeeded");
    desk.obey();
    assert_eq!((desk.said["sweep"].as_str(), desk.used()), ("Succeeded", 0), "{:?}", desk.log);
}

#[test]
fn a_turn_that_is_refused_is_tried_again_in_its_place() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    desk.obey();
    desk.refused_starts = 2;
    ends(&mut desk, "0", "Succeeded");
    desk.obey();
    assert_eq!((indices(&desk), desk.used()), (vec!["1".to_owned()], 8));
    desk.pass(5);
    assert_eq!(indices(&desk), ["1", "2"], "{:?}", desk.log);
    assert_eq!((desk.statuses["sweep"].runs, desk.statuses["sweep"].failures), (1, 0));
    desk.sound();
}

#[test]
fn who_waits_for_a_turn_leaves_when_it_is_suspended() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    desk.obey();
    desk.refused_starts = 1;
    ends(&mut desk, "0", "Succeeded");
    desk.obey();
    let mut suspended = sweep();
    suspended["suspend"] = true.into();
    desk.workload("sweep", suspended);
    desk.obey();
    assert_eq!((desk.said["sweep"].as_str(), desk.used()), ("Suspended", 0), "{:?}", desk.log);
}

/// Whenever another process takes over, each completion is done once, and never more than two are worked at.
#[test]
fn another_process_goes_on_where_the_last_one_stopped() {
    for interrupted_at in 0..12 {
        let mut desk = Desk::new(&["node1"]);
        desk.workload("sweep", sweep());
        let (mut done, mut steps) = (Vec::new(), 0);
        while desk.said.get("sweep").map(String::as_str) != Some("Succeeded") {
            assert!(steps < 40, "interrupted at {interrupted_at}: {:?}", desk.log);
            // Before what was ordered is done, and after it.
            if steps == interrupted_at {
                desk.restart(objects(&desk, sweep()));
            }
            steps += 1;
            if steps % 2 == 1 {
                desk.pass(1);
                let now = indices(&desk);
                assert!(now.len() <= 2, "interrupted at {interrupted_at}: {now:?}");
                assert!(desk.used() <= 8);
                desk.sound();
            } else if let Some(first) = indices(&desk).first().cloned() {
                ends(&mut desk, &first, "Succeeded");
                done.push(first);
            }
        }
        done.sort();
        assert_eq!(done, ["0", "1", "2", "3", "4"], "interrupted at {interrupted_at}: {:?}", desk.log);
        assert_eq!(desk.used(), 0);
    }
}

#[test]
fn places_between_two_turns_are_found_by_another_process() {
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    desk.obey();
    ends(&mut desk, "0", "Succeeded");
    // It is ordered, and nobody lives to do it.
    desk.restart(objects(&desk, sweep()));
    assert_eq!(desk.used(), 8, "{:?}", desk.log);
    desk.obey();
    assert_eq!(indices(&desk), ["1", "2"], "{:?}", desk.log);
    // Half of a first start is undone, as of every gang.
    let mut desk = Desk::new(&["node1"]);
    desk.workload("sweep", sweep());
    let order = super::start_of(&mut desk);
    desk.place(&order, 0);
    desk.restart(objects(&desk, sweep()));
    desk.obey();
    let pods: Vec<String> = running(&desk).into_values().collect();
    assert_eq!(pods, ["sweep-r2-0", "sweep-r2-1"], "{:?}", desk.log);
}
