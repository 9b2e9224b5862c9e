//! The columns and words of the 2020 report, for those who call the command `runai`.

use super::{
    Described,
    owners::{affinity, marked},
    workloads::{gpus, image, paint},
};
use crate::output::{
    Look,
    table::{Cell, Table},
    time,
};
use berth_api::{KindName, Level, Project, Status, Workload};
use berth_types::Span;

/// The status in the words of the report.
fn status(workload: &Workload) -> &'static str {
    match workload.status {
        Status::Pending => "Pending",
        Status::Starting => "ContainerCreating",
        Status::Running => "Running",
        Status::Stopping | Status::Terminating => "Terminating",
        Status::Suspended => "Suspended",
        Status::BackOff if workload.kind == KindName::Interactive => "CrashLoopBackOff",
        Status::BackOff => "Error",
        Status::Succeeded => "Succeeded",
        Status::Failed => "Fail",
        Status::TimedOut => "TimedOut",
        Status::Deleted => "Deleted",
    }
}

fn kind(kind: KindName) -> &'static str {
    match kind {
        KindName::Train => "Train",
        KindName::Interactive => "Interactive",
        KindName::Distributed => "MPI",
        KindName::Inference => "Inference",
    }
}

fn node(workload: &Workload) -> String {
    match workload.nodes()[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        _ => "<multiple>".into(),
    }
}

pub(super) fn workload_table(workloads: &[Workload], look: &Look) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "STATUS",
        "AGE",
        "NODE",
        "IMAGE",
        "TYPE",
        "PROJECT",
        "USER",
        "GPUs",
        "CREATED BY CLI",
        "SERVICE URL(S)",
    ]);
    for workload in workloads {
        table.row(vec![
            workload.name.clone().into(),
            Cell::painted(status(workload), paint(workload.status)),
            look.clock.age(workload.submitted_at).into(),
            node(workload).into(),
            image(&workload.request).into(),
            kind(workload.kind).into(),
            workload.project.clone().into(),
            workload.user.clone().into(),
            gpus(workload).into(),
            workload.request.command_line.is_some().to_string().into(),
            workload.urls.join(",").into(),
        ]);
    }
    table
}

pub(super) fn workload_page(described: &Described, look: &Look) -> String {
    let workload = &described.workload;
    let ended = workload.ended.as_ref().map_or(look.clock.now, |ended| ended.at.0);
    let duration = workload.started_at.map_or(Span::ZERO, |at| ended.since(at.0));
    let mut head = Table::new(&["NAME", "TYPE", "STATUS", "NAMESPACE", "PRIORITY", "TRAINING DURATION"]);
    head.row(vec![
        workload.name.clone().into(),
        kind(workload.kind).into(),
        Cell::painted(status(workload), paint(workload.status)),
        format!("runai-{}", workload.project).into(),
        workload.priority.to_string().into(),
        time::long(duration).into(),
    ]);
    let mut pods = Table::new(&["POD", "STATUS", "TRAINER", "AGE", "NODE"]);
    for task in &workload.tasks {
        pods.row(vec![
            format!("{}-{}", workload.name, task.rank).into(),
            Cell::painted(status(workload), paint(workload.status)),
            kind(workload.kind).into(),
            look.clock.age(task.started_at.unwrap_or(workload.submitted_at)).into(),
            task.node.clone().into(),
        ]);
    }
    let mut volumes = Table::new(&["VOLUME", "MOUNTED AT"]);
    for volume in &workload.request.volumes {
        volumes.row(vec![volume.name.clone().into(), volume.target.clone().into()]);
    }
    for mount in &workload.request.mounts {
        volumes.row(vec![mount.source.clone().into(), mount.target.clone().into()]);
    }
    let mut events = Table::new(&["SOURCE", "TYPE", "AGE", "MESSAGE"]);
    for event in &described.events {
        let level = match event.level {
            Level::Normal => "Normal",
            Level::Warning => "Warning",
        };
        events.row(vec![
            format!("job/{}", workload.name).into(),
            level.into(),
            look.clock.age(event.at).into(),
            format!("[{}] {}", event.kind, event.message).into(),
        ]);
    }
    let mut text = head.render(true, look.colour);
    for (title, table) in [("Pods", pods), ("Volumes", volumes), ("Events", events)] {
        if !table.is_empty() {
            text.push_str(&format!("\n{title}:\n{}", table.render(true, look.colour)));
        }
    }
    text
}

pub(super) fn project_table(projects: &[Project], look: &Look) -> String {
    let mut table = Table::new(&["NAME", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY"]);
    for project in projects {
        let settings = &project.settings;
        let limit = settings.interactive_limit_secs.filter(|secs| *secs > 0);
        table.row(vec![
            marked(&project.name, look).into(),
            settings.quota.unwrap_or_default().to_string().into(),
            limit.map_or("-".into(), |secs| time::long(Span::secs(secs))).into(),
            affinity(settings.interactive_nodes.as_ref()).into(),
            affinity(settings.train_nodes.as_ref()).into(),
        ]);
    }
    look.table(&table)
}
