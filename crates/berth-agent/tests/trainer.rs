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

#[test]
fn it_reports_its_own_duty_cycle_and_takes_three_percent_of_a_core_at_most() {
    let temp = Temp::new();
    let mut machine = Machine::new(&temp);
    machine.host.ensure_started(trainer(1, &["--epochs=1000", "--steps=20", "--step-time-ms=100"]));
    let started = machine.wait("its start", |fact| matches!(fact, Fact::Started { .. }));
    let Fact::Started { pid: Some(pid), .. } = started else { panic!("{started:?}") };
    // A machine that is busy with other things gives it less for a while.
    machine.wait("a duty cycle of 90 to 94 %", |fact| {
        matches!(fact, Fact::Progress { report, .. } if report.utilisation.is_some_and(|busy| (90..=94).contains(&busy)))
    });
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // Ticks of 10 ms: its own, and since when it runs.
    let uptime = std::fs::read_to_string("/proc/uptime").expect("a clock");
    let uptime: f64 = uptime.split(' ').next().and_then(|secs| secs.parse().ok()).expect("seconds");
    let (used, began) = ((fields[11] + fields[12]) as f64 / 100.0, fields[19] as f64 / 100.0);
    // One tick more than 3 % can be counted.
    assert!(used <= 0.03 * (uptime - began) + 0.02, "{used} s of CPU time in {} s", uptime - began);
    machine.host.ensure_stopped(run(1), Span::secs(10));
    machine.exited(run(1));
}
