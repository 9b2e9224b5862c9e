//! What is shown of a workload, a device and the whole is true at the moment it is shown.

use super::*;
use crate::samples;
use berth_api::{Status, UtilisationSource};

fn busy(percent: u8) -> TaskReport {
    TaskReport { utilisation: Some(percent), ..TaskReport::default() }
}

fn utilisation(world: &World) -> Option<String> {
    world.platform.totals(&[]).utilisation.map(|percent| percent.to_string())
}

#[test]
fn utilisation_ends_with_the_run_that_reported_it() {
    let mut world = World::with_nodes("1xdgx1");
    world.project("team-a", "8");
    let id = world.run("a", "1");
    world.see(Seen::Progress { workload: id, report: busy(93) });
    assert_eq!(utilisation(&world).as_deref(), Some("11.625"));
    let node = &world.platform.node_views(&[])[0];
    assert_eq!(node.devices[0].usage.as_ref().map(|usage| usage.utilisation), Some(93));
    assert_eq!(node.utilisation, world.platform.totals(&[]).utilisation, "one node is the whole");
    world.exit("a", TaskExit::Code(0));
    let totals = world.platform.totals(&[]);
    assert_eq!(
        (utilisation(&world).as_deref(), totals.utilisation_source),
        (Some("0"), UtilisationSource::Free)
    );
    assert_eq!(world.platform.node_views(&[])[0].devices[0].usage, None);
    let finished = world.finished.last().and_then(|workload| workload.progress.clone()).expect("had some");
    assert_eq!(finished.utilisation, None, "what is over has none");
}

#[test]
fn utilisation_is_unknown_after_a_minute_without_a_report() {
    let mut world = World::with_nodes("1xdgx1");
    world.project("team-a", "8");
    let id = world.run("a", "2");
    world.see(Seen::Progress { workload: id, report: busy(50) });
    world.wait(59);
    assert_eq!(world.view("a").progress.and_then(|progress| progress.utilisation), Some(50));
    // Whatever else it says, it does not say this again.
    let epoch = TaskReport { epoch: Some(2), ..TaskReport::default() };
    world.see(Seen::Progress { workload: id, report: epoch });
    world.wait(1);
    assert_eq!(world.view("a").progress.and_then(|progress| progress.utilisation), None);
    let totals = world.platform.totals(&[]);
    assert_eq!((totals.utilisation, totals.gpus_unknown), (None, 2));
    assert_eq!(totals.utilisation_source, UtilisationSource::Unknown);
    let names: Vec<String> =
        samples::of(&world.platform, &[]).into_iter().map(|sample| sample.series).collect();
    assert!(!names.iter().any(|name| name.starts_with("gpu_utilisation")), "{names:?}");
}

#[test]
fn a_preempted_run_takes_its_utilisation_with_it() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    world.see(Seen::Progress { workload: id, report: busy(93) });
    world.act(|platform, now| platform.suspend(id, "ada", now)).expect("is suspended");
    world.settle();
    assert_eq!(world.view("a").progress.and_then(|progress| progress.utilisation), None);
    world.act(|platform, now| platform.resume(id, "ada", now)).expect("is resumed");
    world.settle();
    assert_eq!(world.status("a"), Status::Running);
    assert_eq!(
        world.view("a").progress.and_then(|progress| progress.utilisation),
        None,
        "not said in this run"
    );
}

#[test]
fn what_the_report_submits_is_as_busy_as_its_trainers_are() {
    // The trainer plans to be busy for 92 % of what it may compute. A notebook reports nothing.
    let mut world = World::of_the_report();
    let mut trainers = vec![world.run("a-1-g", "1"), world.run("a-2-gg", "2")];
    let notebook = WorkloadRequest { kind: berth_api::KindName::Interactive, ..train("a-1-1-jupyter", "1") };
    world.submit(notebook).expect("is accepted");
    let tell = |world: &mut World, trainers: &[WorkloadId]| {
        for id in trainers {
            world.see(Seen::Progress { workload: *id, report: busy(92) });
        }
    };
    tell(&mut world, &trainers);
    assert_eq!(utilisation(&world).as_deref(), Some("18.4"), "3 of 15 GPUs that are known of");
    for (project, name, gpus) in [
        ("team-b", "b-1-g06", "0.6"),
        ("team-b", "b-2-g04", "0.4"),
        ("team-b", "b-3-g", "1"),
        ("team-b", "b-4-gg", "2"),
        ("team-c", "c-1-g05", "0.5"),
        ("team-c", "c-2-g03", "0.3"),
        ("team-c", "c-3-g02", "0.2"),
        ("team-c", "c-4-gg", "2"),
        ("team-c", "c-5-g", "1"),
        ("team-d", "d-1-gggg", "4"),
    ] {
        trainers.push(
            world
                .submit(WorkloadRequest { project: project.into(), ..train(name, gpus) })
                .expect("is accepted"),
        );
    }
    tell(&mut world, &trainers);
    let totals = world.platform.totals(&[]);
    assert_eq!(totals.gpus_allocated.to_string(), "16");
    assert_eq!(totals.utilisation.map(|percent| percent.to_string()).as_deref(), Some("92"));
    assert_eq!(totals.gpus_unknown, 1, "the notebook's");
}

#[test]
fn what_the_log_shows_does_not_replace_what_the_workload_reported() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    let metrics = |value: &str| [("f1".to_owned(), value.to_owned())].into();
    let told = TaskReport {
        epoch: Some(1201),
        accuracy: Some("0.99".into()),
        metrics: metrics("0.9"),
        ..TaskReport::default()
    };
    world.see(Seen::Progress { workload: id, report: told.of_api() });
    let scraped = TaskReport {
        epoch: Some(43),
        accuracy: Some("0.43".into()),
        loss: Some("0.2".into()),
        metrics: metrics("0.1"),
        ..TaskReport::default()
    };
    world.see(Seen::Progress { workload: id, report: scraped });
    let shown = world.view("a").progress.expect("has said something");
    assert_eq!((shown.epoch, shown.accuracy.as_deref()), (Some(1201), Some("0.99")));
    assert_eq!(shown.metrics["f1"], "0.9");
    assert_eq!(shown.loss.as_deref(), Some("0.2"), "of which only the log speaks");
    let next = TaskReport { accuracy: Some("0.995".into()), ..TaskReport::default() };
    world.see(Seen::Progress { workload: id, report: next.of_api() });
    assert_eq!(world.view("a").progress.and_then(|shown| shown.accuracy).as_deref(), Some("0.995"));
}

#[test]
fn a_warning_ends_with_the_run_it_was_about() {
    let mut world = World::of_the_report();
    world.submit(WorkloadRequest { max_run_secs: Some(100), ..train("a", "1") }).expect("is accepted");
    world.wait(91);
    let message = world.view("a").message.expect("it was warned");
    assert!(message.starts_with("reaches its time limit at 1970-01-01 00:18:20"), "{message}");
    world.wait(10);
    assert_eq!(world.status("a"), Status::TimedOut);
    let message = world.finished.last().and_then(|workload| workload.message.clone());
    assert_eq!(message.as_deref(), Some("stopped: it reached its time limit of 1m40s"));
    world.assert_replay();
}

#[test]
fn a_warning_of_idle_gpus_ends_when_they_are_busy_and_a_suspension_says_why() {
    let mut world = World::of_the_report();
    let settings = ProjectSettings { idle_limit_secs: Some(600), ..ProjectSettings::default() };
    world.act(|platform, now| platform.update_project("team-a", &settings, now)).expect("is set");
    let id = world.run("a", "1");
    world.see(Seen::Progress { workload: id, report: busy(0) });
    world.wait(570);
    assert!(world.view("a").message.is_some_and(|text| text.contains("idle; suspended at")));
    world.see(Seen::Progress { workload: id, report: busy(90) });
    assert_eq!(world.view("a").message, None);
    world.see(Seen::Progress { workload: id, report: busy(0) });
    world.wait(570);
    assert!(world.view("a").message.is_some(), "it is warned again");
    world.wait(40);
    assert_eq!(world.status("a"), Status::Suspended);
    assert_eq!(world.view("a").message.as_deref(), Some("suspended: its GPUs were idle for 10m"));
    world.assert_replay();
}

#[test]
fn deleted_work_says_who_deleted_it() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    world.act(|platform, now| platform.delete(id, "bob", now)).expect("is deleted");
    world.settle();
    let finished = world.finished.last().expect("it is over");
    assert_eq!((finished.status, finished.message.as_deref()), (Status::Deleted, Some("deleted by bob")));
}

#[test]
fn time_in_the_queue_is_no_time_that_it_ran() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    world.wait(100);
    world.act(|platform, now| platform.suspend(id, "ada", now)).expect("is suspended");
    world.settle();
    assert_eq!(world.view("a").ran_secs, Some(100));
    world.wait(1_000);
    world.act(|platform, now| platform.resume(id, "ada", now)).expect("is resumed");
    world.settle();
    world.wait(20);
    world.exit("a", TaskExit::Code(0));
    assert_eq!(world.finished.last().and_then(|workload| workload.ran_secs), Some(120));
    world.assert_replay();
}

#[test]
fn a_sweep_shows_each_index_and_says_which_failed() {
    let mut world = World::of_the_report();
    let sweep = WorkloadRequest {
        completions: Some(4),
        parallelism: Some(2),
        backoff_limit: Some(0),
        ..train("sweep", "1")
    };
    let id = world.submit(sweep).expect("is accepted");
    let row = |world: &World, index: usize| world.view("sweep").indices[index].clone();
    assert_eq!((row(&world, 0).status, row(&world, 1).status), (Status::Running, Status::Running));
    assert_eq!((row(&world, 2).status, row(&world, 2).worker), (Status::Pending, None));
    world.now = world.now + Span::secs(5);
    let first = *world.up.iter().find(|task| task.workload == id && task.rank == 0).expect("it runs");
    world.up.remove(&first);
    world.see(Seen::Exited { task: first, exit: TaskExit::Code(0) });
    world.settle();
    let done = row(&world, 0);
    assert_eq!((done.status, done.exit_code, done.worker), (Status::Succeeded, Some(0), Some(0)));
    assert!(done.started_at < done.ended_at);
    let next = row(&world, 2);
    assert_eq!((next.status, next.worker, next.attempts), (Status::Running, Some(0), 1));
    assert_ne!(next.run, done.run, "each has a log of its own");
    let second = *world.up.iter().find(|task| task.workload == id && task.rank == 1).expect("it runs");
    world.up.remove(&second);
    world.see(Seen::Exited { task: second, exit: TaskExit::Code(3) });
    world.settle();
    let finished = world.finished.last().expect("it is over");
    assert_eq!(finished.status, Status::Failed);
    assert_eq!(finished.message.as_deref(), Some("index 1 (worker 1) exited with code 3"));
    let statuses: Vec<Status> = finished.indices.iter().map(|row| row.status).collect();
    assert_eq!(statuses, [Status::Succeeded, Status::Failed, Status::Pending, Status::Pending]);
    assert!(world.platform.workload_view(id, false).is_none());
    world.assert_replay();
}

#[test]
fn no_job_is_too_short_for_the_largest_value_of_a_sample() {
    let mut world = World::of_the_report();
    world.platform.begin_window(world.now);
    world.wait(4);
    world.run("a", "8");
    world.wait(2);
    world.exit("a", TaskExit::Code(0));
    world.wait(4);
    let samples = samples::of_window(&mut world.platform, &[], world.now);
    let of = |name: &str| samples.iter().find(|sample| sample.series == name).cloned().expect(name);
    for name in ["gpus_allocated", "gpus_allocated/team-a", "gpus_by_user/ada"] {
        let sample = of(name);
        let window = sample.window.expect("was followed");
        assert_eq!((sample.value, window.min, window.max), (0, 0, 8_000_000), "{name}");
        assert_eq!(window.mean, 8_000_000 * 2_000 / 10_001, "two of ten seconds and a millisecond");
    }
    let samples = samples::of_window(&mut world.platform, &[], world.now + Span::secs(10));
    assert!(samples.iter().all(|sample| sample.series != "gpus_by_user/ada"), "the next one is without");
}
