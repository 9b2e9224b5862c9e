//! Numbers for Prometheus, computed when asked.

use crate::{controller::Shared, platform::Platform};
use berth_types::{Gpus, Phase, Place, default_pool};
use std::{collections::BTreeMap, fmt::Write, sync::atomic::Ordering};

/// The text of all metrics that the platform knows.
pub(crate) fn render(platform: &Platform, shared: &Shared) -> String {
    let mut text = String::new();
    let engine = platform.engine();
    let nodes = engine.nodes();
    family(&mut text, "berth_node_gpus", "gauge", "GPUs of a node");
    for node in nodes.values() {
        line(&mut text, "berth_node_gpus", &[("node", &node.name)], Gpus::whole(node.devices.len() as u64).0);
    }
    let mut by_node: BTreeMap<_, u64> = nodes.keys().map(|id| (*id, 0)).collect();
    for place in engine.workloads().flat_map(|workload| workload.places()) {
        *by_node.entry(place.node).or_default() += place.gpus().0;
    }
    family(&mut text, "berth_node_gpus_allocated", "gauge", "GPUs of a node that are given");
    for (id, gpus) in by_node {
        let name = nodes.get(&id).map_or("", |node| &node.name);
        line(&mut text, "berth_node_gpus_allocated", &[("node", name)], gpus);
    }
    let projects = platform.project_views(&default_pool());
    type Value = fn(&berth_api::Project) -> u64;
    let families: [(&str, &str, Value); 6] = [
        ("berth_project_gpus_quota", "GPUs a project is guaranteed", |project| {
            project.settings.quota.map_or(0, |quota| quota.0.0)
        }),
        ("berth_project_gpus_allocated", "GPUs a project has", |project| project.allocated.0.0),
        ("berth_project_gpus_fair_share", "GPUs that are a project's fair share now", |project| {
            project.fair_share.0.0
        }),
        ("berth_project_gpus_waiting", "GPUs that a project's waiting work asks for", |project| {
            project.waiting.0.0
        }),
        ("berth_project_workloads_running", "workloads of a project that run", |project| {
            project.running_count * Gpus::SCALE
        }),
        ("berth_project_workloads_waiting", "workloads of a project that wait", |project| {
            project.waiting_count * Gpus::SCALE
        }),
    ];
    for (name, help, value) in families {
        family(&mut text, name, "gauge", help);
        for project in &projects {
            line(&mut text, name, &[("project", &project.name)], value(project));
        }
    }
    let mut phases: BTreeMap<&str, u64> = BTreeMap::new();
    for workload in engine.workloads() {
        let phase = match workload.phase {
            Phase::Queued { .. } => "waiting",
            Phase::Held { .. } => "held",
            Phase::Running { .. } => "running",
            Phase::Stopping { .. } => "stopping",
            Phase::Finished { .. } => "finished",
        };
        *phases.entry(phase).or_default() += Gpus::SCALE;
    }
    family(&mut text, "berth_workloads", "gauge", "unfinished workloads by phase");
    for (phase, count) in phases {
        line(&mut text, "berth_workloads", &[("phase", phase)], count);
    }
    let allocated: Gpus = engine.workloads().flat_map(|workload| workload.places()).map(Place::gpus).sum();
    family(&mut text, "berth_gpus_allocated", "gauge", "GPUs that are given");
    line(&mut text, "berth_gpus_allocated", &[], allocated.0);
    for (name, help, counter) in [
        ("berth_commands_total", "commands taken", &shared.commands),
        ("berth_plans_total", "plans made", &shared.plans),
    ] {
        family(&mut text, name, "counter", help);
        line(&mut text, name, &[], counter.load(Ordering::Relaxed) * Gpus::SCALE);
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a text takes everything");
}

/// A line; the value is in millionths, as all amounts are.
fn line(text: &mut String, name: &str, labels: &[(&str, &str)], millionths: u64) {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    writeln!(text, "{name}{labels} {}", Gpus(millionths)).expect("a text takes everything");
}
