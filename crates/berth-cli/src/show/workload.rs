//! A page about one workload.

use super::{
    Page,
    events::event_table,
    workloads::{gpus, image, kind, paint, progress, rounded},
};
use crate::output::{
    Look, Show, Spelling,
    table::{Cell, Table},
    time,
};
use berth_api::{Event, Workload, WorkloadRequest};
use berth_types::Span;
use serde::Serialize;

/// A workload, and what happened to it last. Programs that want events ask for them.
#[derive(Debug, Serialize)]
pub(crate) struct Described {
    #[serde(flatten)]
    pub(crate) workload: Workload,
    #[serde(skip)]
    pub(crate) events: Vec<Event>,
}

impl Show for Described {
    fn text(&self, look: &Look) -> String {
        if look.spelling == Spelling::Runai {
            return super::runai::workload_page(self, look);
        }
        let workload = &self.workload;
        let mut page = Page::default();
        page.line("Name", &workload.name);
        page.line("Project", &workload.project);
        page.line("User", &workload.user);
        page.line("Kind", kind(workload.kind));
        page.line("Status", workload.status.to_string());
        page.line("Message", workload.message.clone().unwrap_or_default());
        describe_times(workload, look, &mut page);
        describe_amounts(workload, &mut page);
        describe_request(&workload.request, &mut page);
        page.line("Address", workload.urls.join(", "));
        page.table("Workers", &task_table(workload, look), look);
        page.table("Indices", &super::indices::table(&workload.indices, look), look);
        page.table("Evictions", &eviction_table(workload, look), look);
        page.table("Events", &event_table(&self.events, look), look);
        page.render()
    }

    fn names(&self) -> Vec<String> {
        vec![format!("{}/{}", self.workload.project, self.workload.name)]
    }
}

fn describe_times(workload: &Workload, look: &Look, page: &mut Page) {
    let since = |at| format!("{} ({} ago)", look.clock.local(at), look.clock.age(at));
    page.line("Submitted", since(workload.submitted_at));
    page.line("Started", workload.started_at.map(since).unwrap_or_default());
    if workload.started_at != workload.running_since {
        page.line("Running since", workload.running_since.map(since).unwrap_or_default());
    }
    if let Some(ran) = workload.ran_secs.filter(|ran| *ran > 0) {
        page.line("Ran", time::long(Span::secs(ran)));
    }
    page.line("Checkpoint", workload.checkpoint_at.map(since).unwrap_or_default());
    if let Some(ended) = &workload.ended {
        let how = match (ended.exit_code, ended.signal) {
            (_, Some(signal)) => format!(", by signal {signal}"),
            (Some(code), None) => format!(", with exit code {code}"),
            (None, None) => String::new(),
        };
        page.line("Ended", since(ended.at) + &how);
    }
    if workload.runs > 1 || workload.failures > 0 || workload.preemptions > 0 {
        page.line(
            "Runs",
            format!("{} ({} failed, {} preempted)", workload.runs, workload.failures, workload.preemptions),
        );
    }
    if let Some(reported) = &workload.progress {
        page.line("Progress", progress(reported));
        let throughput = reported.throughput.as_ref().map(|rate| format!("{rate} samples/sec"));
        page.line("Throughput", throughput.unwrap_or_default());
        let numbers = [("loss", &reported.loss), ("accuracy", &reported.accuracy)];
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let all = numbers.chain(reported.metrics.iter().map(|(name, value)| (name.as_str(), value)));
        let all: Vec<String> = all.map(|(name, value)| format!("{name} {}", rounded(value))).collect();
        page.line("Metrics", all.join(", "));
    }
}

fn describe_amounts(workload: &Workload, page: &mut Page) {
    page.line("GPUs", format!("{} requested, {} allocated", gpus(workload), workload.gpus_allocated));
    if workload.workers_max > 1 {
        let range = match workload.workers_min == workload.workers_max {
            true => workload.workers_max.to_string(),
            false => format!("{} to {}", workload.workers_min, workload.workers_max),
        };
        page.line("Workers", range);
    }
    let preemptible = if workload.preemptible { "preemptible" } else { "not preemptible" };
    page.line("Priority", format!("{}, {preemptible}", workload.priority));
}

fn describe_request(request: &WorkloadRequest, page: &mut Page) {
    page.line("Image", image(request));
    let command: Vec<&str> = request.command.iter().chain(&request.args).map(String::as_str).collect();
    page.line("Command", command.join(" "));
    page.line("Runs as", request.run_as.clone().unwrap_or_default());
    page.line("CPU", request.cpu.map(|cpu| cpu.to_string()).unwrap_or_default());
    page.line("Memory", request.memory.map(|memory| memory.to_string()).unwrap_or_default());
    let read_only = |is: bool| if is { " (read only)" } else { "" };
    for mount in &request.mounts {
        page.line("Mount", format!("{} at {}{}", mount.source, mount.target, read_only(mount.read_only)));
    }
    for volume in &request.volumes {
        page.line("Volume", format!("{} at {}{}", volume.name, volume.target, read_only(volume.read_only)));
    }
    let ports: Vec<String> = request.ports.iter().map(u16::to_string).collect();
    page.line("Ports", ports.join(", "));
    let limit = request.max_run_secs.map(|secs| time::long(Span::secs(secs)));
    page.line("Ends after", limit.unwrap_or_default());
    page.line("Submitted as", request.command_line.clone().unwrap_or_default());
}

fn task_table(workload: &Workload, look: &Look) -> Table {
    let mut table = Table::new(&["RANK", "STATUS", "NODE", "DEVICES", "GPUS", "GPU MEMORY", "PID", "AGE"]);
    for task in &workload.tasks {
        let devices: Vec<String> = task.devices.iter().map(u8::to_string).collect();
        table.row(vec![
            format!("{}{}", task.rank, if task.extra { " (extra)" } else { "" }).into(),
            Cell::painted(task.status.to_string(), paint(task.status)),
            task.node.clone().into(),
            devices.join(",").into(),
            task.gpus.to_string().into(),
            task.gpu_memory.map(|memory| memory.to_string()).unwrap_or_default().into(),
            task.pid.map(|pid| pid.to_string()).unwrap_or_default().into(),
            task.started_at.map(|at| look.clock.age(at)).unwrap_or_default().into(),
        ]);
    }
    table
}

fn eviction_table(workload: &Workload, look: &Look) -> Table {
    let mut table = Table::new(&["AGE", "RULE", "FOR", "SINCE CHECKPOINT"]);
    for eviction in &workload.evictions {
        table.row(vec![
            look.clock.age(eviction.at).into(),
            eviction.rule.clone().into(),
            eviction.winner.clone().unwrap_or_default().into(),
            format!("{} GPU-seconds", eviction.lost_gpu_secs).into(),
        ]);
    }
    table
}
