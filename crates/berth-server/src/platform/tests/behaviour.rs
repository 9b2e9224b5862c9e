use super::*;
use crate::samples::{self, Measured};
use berth_api::{Code, KindName, Status};
use berth_types::Bytes;

fn of(project: &str, name: &str, gpus: &str, kind: KindName) -> WorkloadRequest {
    WorkloadRequest { project: project.into(), kind, ..train(name, gpus) }
}

#[test]
fn the_report_reaches_its_four_states() {
    use KindName::{Interactive, Train};
    let mut world = World::of_the_report();
    for (project, name, gpus, kind) in [
        ("team-a", "a-1-1-jupyter", "1", Interactive),
        ("team-a", "a-1-g", "1", Train),
        ("team-a", "a-2-gg", "2", Train),
        ("team-b", "b-1-g06", "0.6", Interactive),
        ("team-b", "b-2-g04", "0.4", Interactive),
        ("team-b", "b-3-g", "1", Train),
        ("team-b", "b-4-gg", "2", Train),
        ("team-c", "c-1-g05", "0.5", Interactive),
        ("team-c", "c-2-g03", "0.3", Interactive),
        ("team-c", "c-3-g02", "0.2", Interactive),
        ("team-c", "c-4-gg", "2", Train),
        ("team-c", "c-5-g", "1", Train),
        ("team-d", "d-1-gggg", "4", Train),
    ] {
        world.submit(of(project, name, gpus, kind)).expect("is accepted");
    }
    assert_eq!(world.standing(), "team-a 4/4 []\nteam-b 4/2 []\nteam-c 4/2 []\nteam-d 4/8 []");
    for name in ["d-2-gg", "d-3-gg"] {
        world.submit(of("team-d", name, "2", Train)).expect("is accepted");
    }
    assert_eq!(world.standing(), "team-a 4/4 []\nteam-b 2/2 [b-4-gg]\nteam-c 2/2 [c-4-gg]\nteam-d 8/8 []");
    for (project, name) in
        [("team-a", "a-3-gg"), ("team-a", "a-4-gg"), ("team-b", "b-5-gg"), ("team-c", "c-6-gg")]
    {
        world.submit(of(project, name, "2", Train)).expect("is accepted");
    }
    assert_eq!(
        world.standing(),
        "team-a 4/4 [a-3-gg a-4-gg]\nteam-b 2/2 [b-4-gg b-5-gg]\nteam-c 2/2 [c-4-gg c-6-gg]\nteam-d 8/8 []"
    );
    let ids = ["d-1-gggg", "d-2-gg", "d-3-gg"].map(|name| world.id(name));
    world
        .act(|platform, now| ids.iter().try_for_each(|id| platform.delete(*id, "ada", now)))
        .expect("are deleted");
    world.settle();
    assert_eq!(world.standing(), "team-a 8/4 []\nteam-b 4/2 [b-5-gg]\nteam-c 4/2 [c-6-gg]\nteam-d 0/8 []");
    assert_eq!(world.view("b-4-gg").preemptions, 1);
    assert_eq!(world.view("b-4-gg").runs, 2);
    world.assert_replay();
}

#[test]
fn a_failed_run_is_tried_again_after_a_pause_in_which_others_have_its_gpus() {
    let mut world = World::of_the_report();
    world.submit(WorkloadRequest { backoff_limit: Some(1), ..train("a", "8") }).expect("is accepted");
    world.submit(of("team-b", "b", "8", KindName::Train)).expect("is accepted");
    world.submit(of("team-c", "c", "8", KindName::Train)).expect("is accepted");
    assert_eq!(world.status("c"), Status::Pending);
    world.exit("a", TaskExit::Code(3));
    assert_eq!(world.status("a"), Status::BackOff);
    assert_eq!(world.view("a").message.as_deref(), Some("it exited with code 3"));
    assert_eq!(world.status("c"), Status::Running);
    world.wait(9);
    assert_eq!(world.status("a"), Status::BackOff);
    world.exit("c", TaskExit::Code(0));
    world.wait(2);
    assert_eq!(world.status("a"), Status::Running);
    world.exit("a", TaskExit::Signal(9));
    assert_eq!(world.status("a"), Status::Failed);
    let over = world.finished.last().expect("it is over");
    assert_eq!((over.failures, over.runs), (2, 2));
    assert_eq!(over.ended.as_ref().and_then(|ended| ended.signal), Some(9));
    world.assert_replay();
}

#[test]
fn what_could_not_be_started_is_not_tried_again() {
    let mut world = World::of_the_report();
    world.run("a", "1");
    world.exit("a", TaskExit::Refused("no such image".into()));
    assert_eq!(world.status("a"), Status::Failed);
    assert_eq!(world.finished[0].message.as_deref(), Some("no such image"));
    assert_eq!(world.forgotten.len(), 1);
}

#[test]
fn a_suspended_workload_gives_its_gpus_back_and_resumes_when_asked() {
    let mut world = World::of_the_report();
    world.run("a", "4");
    let id = world.id("a");
    world.act(|platform, now| platform.suspend(id, "ada", now)).expect("can be suspended");
    assert_eq!(world.status("a"), Status::Stopping);
    let early = world.act(|platform, now| platform.resume(id, "ada", now)).expect_err("it is still there");
    assert_eq!(early.code, Code::WrongState);
    world.settle();
    assert_eq!(world.status("a"), Status::Suspended);
    assert_eq!(world.standing().lines().next(), Some("team-a 0/4 []"));
    world.wait(100_000);
    assert_eq!(world.status("a"), Status::Suspended);
    world.act(|platform, now| platform.resume(id, "ada", now)).expect("can be resumed");
    world.settle();
    assert_eq!(world.status("a"), Status::Running);
    assert_eq!(world.view("a").runs, 2);
    world.assert_replay();
}

#[test]
fn a_suspended_workload_can_be_deleted_and_its_name_is_free_again() {
    let mut world = World::of_the_report();
    let id = world.run("a", "4");
    let taken = world.submit(train("a", "1")).expect_err("the name is taken");
    assert_eq!(taken.code, Code::Exists);
    world.act(|platform, now| platform.suspend(id, "ada", now)).expect("can be suspended");
    world.settle();
    world.act(|platform, now| platform.delete(id, "ada", now)).expect("can be deleted");
    assert_eq!(world.status("a"), Status::Deleted);
    world.run("a", "1");
    assert_eq!(world.status("a"), Status::Running);
    world.assert_replay();
}

#[test]
fn a_time_limit_warns_once_and_then_ends() {
    let mut world = World::of_the_report();
    world.submit(WorkloadRequest { max_run_secs: Some(1_000), ..train("a", "1") }).expect("is accepted");
    world.wait(899);
    assert_eq!(world.view("a").message, None);
    world.wait(1);
    assert_eq!(world.view("a").message.as_deref(), Some("reaches its time limit at 1970-01-01 00:33:20 UTC"));
    world.wait(50);
    let warnings = world.log.iter().filter(|(_, logged)| logged.happened.kind() == "warned").count();
    assert_eq!(warnings, 1);
    world.wait(50);
    assert_eq!(world.status("a"), Status::TimedOut);
    world.assert_replay();
}

#[test]
fn idle_gpus_are_warned_of_and_then_taken_back() {
    let mut world = World::of_the_report();
    let settings = ProjectSettings { idle_limit_secs: Some(600), ..ProjectSettings::default() };
    world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("can be set");
    let id = world.run("a", "1");
    let report = |busy| TaskReport { utilisation: Some(busy), ..TaskReport::default() };
    world.see(Seen::Progress { workload: id, report: report(0) });
    world.wait(300);
    world.see(Seen::Progress { workload: id, report: report(80) });
    world.wait(400);
    assert_eq!(world.status("a"), Status::Running);
    world.see(Seen::Progress { workload: id, report: report(1) });
    world.wait(541);
    assert!(world.view("a").message.is_some_and(|text| text.contains("GPUs are idle")));
    world.wait(60);
    assert_eq!(world.status("a"), Status::Suspended);
    world.assert_replay();
}

#[test]
fn a_workload_is_as_busy_as_the_busiest_of_its_devices() {
    let mut world = World::with_nodes("1xdgx1");
    world.project("team-a", "8");
    let (two, one) = (world.run("two", "2"), world.run("one", "1"));
    let idle = |world: &World, id| {
        world.platform.engine.workload(id).is_some_and(|known| known.idle_since.is_some())
    };
    world.see(Seen::Busy { devices: vec![Some(0), Some(90), Some(0), Some(0)] });
    assert_eq!((idle(&world, two), idle(&world, one)), (false, true));
    world.see(Seen::Busy { devices: vec![Some(0), Some(1), Some(50)] });
    assert_eq!((idle(&world, two), idle(&world, one)), (true, false));
    world.see(Seen::Busy { devices: vec![None; 8] });
    assert_eq!((idle(&world, two), idle(&world, one)), (true, false), "what is not known changes nothing");
    world.assert_replay();
}

fn sample(world: &World, measured: &[Measured], series: &str) -> Option<i64> {
    let samples = samples::of(&world.platform, measured);
    samples.into_iter().find(|sample| sample.series == series).map(|sample| sample.value)
}

#[test]
fn a_node_is_as_busy_as_its_gpus_are_on_average() {
    let mut world = World::with_nodes("1xdgx1");
    world.project("team-a", "8");
    let node = "gpu_utilisation/node1";
    assert_eq!(sample(&world, &[], node), Some(0), "what nobody has is not busy");
    let (two, half) = (world.run("two", "2"), world.run("half", "0.5"));
    assert_eq!(sample(&world, &[], node), None, "nobody who has some tells");
    let report = |busy| TaskReport { utilisation: Some(busy), ..TaskReport::default() };
    world.see(Seen::Progress { workload: two, report: report(80) });
    assert_eq!(sample(&world, &[], node), Some(160_000_000 / 7));
    world.see(Seen::Progress { workload: half, report: report(100) });
    assert_eq!(sample(&world, &[], node), Some(210_000_000 / 8));
    assert_eq!(sample(&world, &[], "gpu_memory_used/node1/0"), None, "declared memory is not used");
}

#[test]
fn what_the_hardware_says_wins_over_reports() {
    let mut world = World::with_nodes("1xdgx1");
    world.project("team-a", "8");
    let id = world.run("a", "1");
    let report = TaskReport { utilisation: Some(100), ..TaskReport::default() };
    world.see(Seen::Progress { workload: id, report });
    let gpu = |utilisation| Measured { utilisation, memory_used: Bytes::gib(3) };
    let mut measured = vec![gpu(Some(50)); 8];
    assert_eq!(sample(&world, &measured, "gpu_utilisation/node1"), Some(50_000_000));
    assert_eq!(sample(&world, &measured, "gpu_memory_used/node1/7"), Some(3 << 30));
    measured[7] = gpu(None);
    measured[6] = gpu(Some(1));
    assert_eq!(sample(&world, &measured, "gpu_utilisation/node1"), Some(301_000_000 / 7));
}

#[test]
fn a_gang_confirms_when_all_run_and_fails_as_a_whole() {
    let mut world = World::of_the_report();
    let request = WorkloadRequest { workers: Some(4), backoff_limit: Some(0), ..train("gang", "1") };
    let id = world.act(|platform, now| platform.submit(request, None, "ada", now)).expect("is accepted").0;
    assert_eq!(world.view("gang").kind, KindName::Distributed);
    for rank in 0..4 {
        assert_eq!(world.status("gang"), Status::Starting);
        let task = TaskKey { workload: id, run: 1, rank };
        world.ordered.remove(&task);
        world.up.insert(task);
        world.see(Seen::Started { task, pid: None, ports: Vec::new() });
    }
    assert_eq!(world.status("gang"), Status::Running);
    let task = TaskKey { workload: id, run: 1, rank: 2 };
    world.see(Seen::Exited { task, exit: TaskExit::Code(1) });
    assert_eq!(world.told_to_stop.len(), 3);
    assert_eq!(world.view("gang").message.as_deref(), Some("worker 2 exited with code 1"));
    world.settle();
    assert_eq!(world.status("gang"), Status::Failed);
    world.assert_replay();
}

#[test]
fn old_news_changes_nothing() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    let before = world.log.len();
    world.see(Seen::Started {
        task: TaskKey { workload: id, run: 1, rank: 0 },
        pid: Some(1),
        ports: Vec::new(),
    });
    world.see(Seen::Exited { task: TaskKey { workload: id, run: 7, rank: 0 }, exit: TaskExit::Code(0) });
    world.see(Seen::Exited {
        task: TaskKey { workload: WorkloadId(999), run: 1, rank: 0 },
        exit: TaskExit::Lost,
    });
    world.see(Seen::Checkpoint { workload: WorkloadId(999) });
    assert_eq!(world.log.len(), before);
    assert_eq!(world.status("a"), Status::Running);
}

#[test]
fn a_drained_node_is_left_and_what_ran_there_goes_on_elsewhere() {
    let mut world = World::of_the_report();
    world.run("a", "4");
    assert_eq!(world.view("a").nodes(), ["node1"]);
    world.act(|platform, now| platform.drain_node("node1", now)).expect("can be drained");
    world.settle();
    world.wait(0);
    assert_eq!((world.status("a"), world.view("a").nodes()), (Status::Running, vec!["node2"]));
    assert_eq!(world.view("a").failures, 0);
    let unknown = world.act(|platform, now| platform.drain_node("nodel", now)).expect_err("is unknown");
    assert_eq!(unknown.hint.as_deref(), Some("did you mean node1?"));
    world.assert_replay();
}

#[test]
fn what_runs_when_the_server_closes_is_resumed_by_the_next_start() {
    let mut world = World::of_the_report();
    world.run("a", "4");
    world.run("b", "8");
    world.run("c", "8");
    let waits = world.status("c");
    let now = world.now;
    world.platform.close(now);
    world.take_news();
    world.settle();
    assert!(world.up.is_empty() && !world.platform.has_tasks());
    let image = serde_json::to_vec(&world.platform.image()).expect("is JSON");
    let image = serde_json::from_slice(&image).expect("is an image");
    world.platform = Platform::from_image(Policy::default(), image).expect("is a state");
    world.wait(1);
    assert_eq!(world.status("a"), Status::Running);
    assert_eq!(world.status("b"), Status::Running);
    assert_eq!(world.status("c"), waits);
    world.assert_replay();
}

#[test]
fn progress_is_the_newest_and_is_written_seldom() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    for epoch in 1..=50 {
        let report = TaskReport { epoch: Some(epoch), epochs: Some(100), ..TaskReport::default() };
        world.now = world.now + Span(500);
        world.see(Seen::Progress { workload: id, report });
    }
    assert_eq!(world.view("a").progress.and_then(|progress| progress.percent), Some(50));
    let written = world.log.iter().filter(|(_, logged)| logged.happened.kind() == "progressed").count();
    assert_eq!(written, 3);
    let drawn = world.log.iter().filter_map(|(_, logged)| logged.about.progress.as_ref()?.percent);
    assert_eq!(drawn.collect::<Vec<_>>(), [1, 21, 41], "what is written can be drawn over time");
    // Nothing comes any more: the last one is told when its time has come, once.
    world.wait(60);
    let drawn = world.log.iter().filter_map(|(_, logged)| logged.about.progress.as_ref()?.percent);
    assert_eq!(drawn.collect::<Vec<_>>(), [1, 21, 41, 50]);
    world.assert_replay();
}

#[test]
fn requests_that_cannot_be_are_refused_with_their_field() {
    let mut world = World::of_the_report();
    let gpus = |text: &str| text.parse().ok();
    let base = || train("x", "1");
    for (field, request) in [
        ("name", WorkloadRequest { name: Some("../x".into()), ..base() }),
        ("name", WorkloadRequest { name: Some("x".repeat(10_000)), ..base() }),
        ("project", WorkloadRequest { project: "taem-a".into(), ..base() }),
        ("project", WorkloadRequest { project: String::new(), ..base() }),
        ("image", WorkloadRequest { image: String::new(), ..base() }),
        ("gpus", WorkloadRequest { gpus: gpus("1.5"), ..base() }),
        ("gpus", WorkloadRequest { gpus: gpus("65"), ..base() }),
        ("gpus", WorkloadRequest { gpus: gpus("100000"), ..base() }),
        ("gpu_memory", WorkloadRequest { gpu_memory: "1Gi".parse().ok(), ..base() }),
        ("gpu_memory", WorkloadRequest { gpus: None, gpu_memory: "0".parse().ok(), ..base() }),
        ("gpu_devices", WorkloadRequest { gpus: gpus("0.5"), gpu_devices: Some(0), ..base() }),
        ("workers", WorkloadRequest { workers: Some(0), ..base() }),
        ("min_workers", WorkloadRequest { workers: Some(2), min_workers: Some(3), ..base() }),
        ("workers", WorkloadRequest { workers: Some(u32::MAX), ..base() }),
        ("max_run_secs", WorkloadRequest { max_run_secs: Some(0), ..base() }),
        ("max_run_secs", WorkloadRequest { max_run_secs: Some(u64::MAX), ..base() }),
        ("grace_secs", WorkloadRequest { grace_secs: Some(u64::MAX), ..base() }),
        ("node_pool", WorkloadRequest { node_pool: Some("moon".into()), ..base() }),
        (
            "priority",
            WorkloadRequest { priority: Some(berth_api::PriorityName::Name("urgent".into())), ..base() },
        ),
        ("ports", WorkloadRequest { ports: vec![0], ..base() }),
        ("host_network", WorkloadRequest { host_network: true, ..base() }),
        ("privileged", WorkloadRequest { privileged: true, ..base() }),
        ("environment", WorkloadRequest { environment: [("A=B".into(), "x".into())].into(), ..base() }),
        ("command or args", WorkloadRequest { args: vec!["a\0b".into()], ..base() }),
        (
            "volumes",
            WorkloadRequest {
                volumes: vec![berth_api::VolumeMount {
                    name: "v".into(),
                    target: "/v".into(),
                    read_only: false,
                }],
                ..base()
            },
        ),
        (
            "mounts",
            WorkloadRequest {
                mounts: vec![berth_api::MountRequest {
                    source: "/a/../b".into(),
                    target: "/b".into(),
                    read_only: false,
                }],
                ..base()
            },
        ),
    ] {
        let before = world.log.len();
        let problem = world.submit(request).expect_err(field);
        assert_eq!(problem.field.as_deref(), Some(field), "{problem}");
        assert_eq!(world.log.len(), before, "nothing happened");
    }
}

#[test]
fn work_touches_its_node_only_where_its_project_allows_it() {
    let mut world = World::of_the_report();
    let wants = |name: &str| WorkloadRequest { host_network: true, ..train(name, "1") };
    let problem = world.submit(wants("first")).expect_err("nothing is allowed");
    assert!(problem.to_string().contains("--host-network is not allowed in project team-a"), "{problem}");
    assert!(
        problem.hint.is_some_and(|hint| hint.contains("berth project update team-a --allow-host-network"))
    );
    let set = |world: &mut World, settings: ProjectSettings| {
        world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("it is set");
    };
    set(&mut world, ProjectSettings { allow_host_network: Some(true), ..ProjectSettings::default() });
    world.submit(wants("second")).expect("it is allowed");
    let privileged = WorkloadRequest { privileged: true, ..wants("third") };
    assert_eq!(world.submit(privileged).expect_err("another right").field.as_deref(), Some("privileged"));
    set(&mut world, ProjectSettings { quota: "2".parse().ok(), ..ProjectSettings::default() });
    world.submit(wants("fourth")).expect("what is not named stays");
    let unset = vec!["allow_host_network".to_owned()];
    set(&mut world, ProjectSettings { unset, ..ProjectSettings::default() });
    world.submit(wants("fifth")).expect_err("it was taken back");
    world.assert_replay();
}

#[test]
fn a_quota_above_what_there_is_is_allowed_and_warned_of() {
    let mut world = World::of_the_report();
    let settings = ProjectSettings { quota: "20".parse().ok(), ..ProjectSettings::default() };
    let (_, warnings) =
        world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("is allowed");
    assert!(warnings[0].contains("more than the 16"), "{warnings:?}");
    let settings = ProjectSettings { quota: "5".parse().ok(), ..ProjectSettings::default() };
    let (_, warnings) =
        world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("is allowed");
    assert!(warnings[0].contains("17 GPUs now"), "{warnings:?}");
}
