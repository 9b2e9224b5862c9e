//! The built-in trainer under the agent: it reports, checkpoints, yields and goes on.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, TaskId, TaskSpec};
use berth_types::{Span, WorkloadId};
use support::{Machine, Temp, spec};

fn run(run: u32) -> TaskId {
    TaskId { workload: WorkloadId(5), run, rank: 0 }
}

fn trainer(run_number: u32, args: &[&str]) -> TaskSpec {
    let mut spec = spec(run(run_number), &[]);
    spec.image = "gcr.io/run-ai-demo/quickstart".into();
    spec.args = args.iter().map(|word| (*word).to_owned()).collect();
    spec
}

#[test]
fn a_preempted_training_resumes_where_it_was() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    // Slow at first, so that it is not over before it is preempted.
    machine.host.ensure_started(trainer(1, &["--epochs=4", "--steps=5", "--step-time-ms=500"]));
    machine.wait("a checkpoint", |fact| matches!(fact, Fact::Checkpoint { .. }));
    machine.log_with(run(1), "Epoch 2/4");
    machine.host.ensure_stopped(run(1), Span::secs(60));
    let (exit, stopped) = machine.exited(run(1));
    assert!(stopped && matches!(exit, Exit::Code(0 | 143)), "{exit:?}");
    machine.host.ensure_started(trainer(2, &["--epochs=4", "--steps=5", "--step-time-ms=30"]));
    assert_eq!(machine.exited(run(2)), (Exit::Code(0), false));
    let (first, second) = (machine.log(run(1)), machine.log(run(2)));
    assert!(!first.contains("resumed"), "{first}");
    assert!(second.contains("resumed from epoch ") && !second.contains("Epoch 1/4"), "{second}");
    let fact = machine.wait("the last report", |fact| {
        matches!(fact, Fact::Progress { id, report, .. } if *id == run(2) && report.epoch.is_some() && report.epoch == report.epochs && report.step == report.steps)
    });
    let Fact::Progress { report, .. } = fact else { panic!("{fact:?}") };
    assert_eq!(
        (report.epoch, report.epochs, report.step, report.steps),
        (Some(4), Some(4), Some(5), Some(5))
    );
    assert!(report.loss.is_some() && report.accuracy.is_some() && report.eta.is_some(), "{report:?}");
}

#[test]
fn an_image_of_the_report_trains_and_prints_what_it_was_given() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    let mut spec = trainer(
        1,
        &["/netapp/scripts/run.py", "--batch_size=64", "--epochs=1", "--steps=2", "--step-time-ms=1"],
    );
    spec.image = "netapp/tensorflow-tf1-py3:20.01.0".into();
    spec.command = vec!["python".into()];
    machine.host.ensure_started(spec);
    assert_eq!(machine.exited(run(1)), (Exit::Code(0), false));
    let log = machine.log(run(1));
    assert!(log.contains("python /netapp/scripts/run.py --batch_size=64"), "{log}");
}
