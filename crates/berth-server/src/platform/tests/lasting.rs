//! What lasts over a start, and what settings below what runs mean.

use super::*;
use berth_api::{Code, DepartmentSettings};
use berth_types::NodeCondition;

fn conditions(world: &World) -> Vec<(String, NodeCondition)> {
    world.platform.engine().nodes().values().map(|node| (node.name.clone(), node.condition)).collect()
}

fn start(world: &mut World, nodes: &str) {
    let nodes = crate::declared_nodes(nodes).expect("is understood");
    world.act(|platform, now| platform.set_nodes(nodes, now)).expect("nodes can be set");
}

/// Two nodes with a workload each.
fn busy() -> World {
    let mut world = World::of_the_report();
    world.submit(train("one", "8")).expect("is accepted");
    world.submit(WorkloadRequest { project: "team-d".into(), ..train("two", "8") }).expect("is accepted");
    world
}

#[test]
fn a_node_that_comes_back_is_open_again() {
    use NodeCondition::{Cordoned, Ready};
    let mut world = busy();
    start(&mut world, "1xdgx1");
    assert_eq!(conditions(&world), [("node1".into(), Ready), ("node2".into(), Cordoned)]);
    let open = |platform: &mut Platform, now| platform.set_condition("node2", Ready, false, now);
    let refused = world.act(open).expect_err("it is not there");
    assert_eq!(refused.code, Code::WrongState);
    world.assert_replay();
    start(&mut world, "2xdgx1");
    assert_eq!(conditions(&world), [("node1".into(), Ready), ("node2".into(), Ready)]);
    world.assert_replay();
}

#[test]
fn a_cordon_by_an_administrator_lasts_over_every_start() {
    use NodeCondition::{Cordoned, Ready};
    let cordon = |platform: &mut Platform, now| platform.set_condition("node2", Cordoned, false, now);
    let mut before = busy();
    before.act(cordon).expect("is cordoned");
    start(&mut before, "1xdgx1");
    start(&mut before, "2xdgx1");
    assert_eq!(conditions(&before)[1].1, Cordoned);
    // Also when it was cordoned while it was not among the nodes.
    let mut meanwhile = busy();
    start(&mut meanwhile, "1xdgx1");
    meanwhile.act(cordon).expect("is cordoned");
    let opened = meanwhile.act(|platform, now| platform.set_condition("node2", Ready, false, now));
    assert!(opened.is_err(), "nothing starts on a node that this server was not started with");
    start(&mut meanwhile, "2xdgx1");
    assert_eq!(conditions(&meanwhile)[1].1, Cordoned);
    meanwhile.assert_replay();
    meanwhile.act(|platform, now| platform.set_condition("node2", Ready, false, now)).expect("is opened");
    assert_eq!(conditions(&meanwhile)[1].1, Ready);
}

#[test]
fn the_log_of_an_earlier_release_says_of_no_node_that_it_is_missing() {
    let node = &crate::declared_nodes("dgx1").expect("is understood")[0];
    let happened = Happened::Node { node: node.clone(), draining: false, missing: true };
    let mut text = serde_json::to_value(&happened).expect("is JSON");
    text["node"].as_object_mut().expect("an event").remove("missing").expect("it is written");
    let read: Happened = serde_json::from_value(text).expect("is understood");
    assert_eq!(read, Happened::Node { node: node.clone(), draining: false, missing: false });
}

fn update(world: &mut World, settings: ProjectSettings) -> Vec<String> {
    world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("is accepted").1
}

#[test]
fn settings_below_what_runs_are_accepted_with_what_they_mean() {
    let mut world = busy();
    let amount = |text: &str| Some(text.parse().expect("an amount"));
    let warnings = update(&mut world, ProjectSettings { limit: amount("2"), ..ProjectSettings::default() });
    assert!(
        warnings.iter().any(|text| text.contains("8 GPUs are allocated, above the new limit of 2")),
        "{warnings:?}"
    );
    assert_eq!(world.status("one"), berth_api::Status::Running, "nothing is stopped");
    // What does not change is not told again.
    let warnings = update(&mut world, ProjectSettings { rank: Some(1), ..ProjectSettings::default() });
    assert!(!warnings.iter().any(|text| text.contains("allocated")), "{warnings:?}");
    let warnings = update(&mut world, ProjectSettings { quota: amount("1"), ..ProjectSettings::default() });
    assert!(warnings.iter().any(|text| text.contains("7 are borrowed now")), "{warnings:?}");
    world.wait(100);
    let warnings =
        update(&mut world, ProjectSettings { time_limit_secs: Some(10), ..ProjectSettings::default() });
    assert!(warnings.iter().any(|text| text.contains("1 running workload has run longer")), "{warnings:?}");
    world.assert_replay();
}

#[test]
fn quotas_of_projects_above_their_departments_are_warned_of() {
    let mut world = World::with_nodes("2xdgx1");
    let department = DepartmentSettings {
        name: Some("vision".into()),
        quota: "4".parse().ok(),
        ..DepartmentSettings::default()
    };
    world.act(|platform, now| platform.create_department(&department, now)).expect("is made");
    let mut create = |name: &str, quota: &str| {
        let settings = ProjectSettings {
            name: Some(name.into()),
            quota: quota.parse().ok(),
            department: Some("vision".into()),
            ..ProjectSettings::default()
        };
        world.act(|platform, now| platform.create_project(&settings, now)).expect("is made").1
    };
    assert_eq!(create("a", "3"), [""; 0]);
    let warnings = create("b", "2");
    assert!(
        warnings.iter().any(|text| text.contains("vision are 5 GPUs, and the quota of vision is 4")),
        "{warnings:?}"
    );
}
