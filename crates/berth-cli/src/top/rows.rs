//! What `berth top` shows, and in which order.

use super::Seen;
use crate::{
    output::{
        Look,
        table::{Cell, Paint, Table},
    },
    show,
};
use berth_api::{GpuAmount, Node, Percent, UtilisationSource, Workload};
use berth_types::Gpus;
use clap::ValueEnum;
use std::cmp::Reverse;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Nodes,
    Workloads,
}

/// The order of rows; ties by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    #[default]
    Name,
    /// Most GPUs given first
    Gpus,
    /// Most busy first
    Busy,
    /// By project
    Project,
    /// Oldest first
    Age,
    /// By status
    Status,
}

impl Sort {
    /// The order that a key asks for.
    pub(super) fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'n' => Self::Name,
            'g' => Self::Gpus,
            'b' => Self::Busy,
            'p' => Self::Project,
            'a' => Self::Age,
            's' => Self::Status,
            _ => return None,
        })
    }
}

pub(super) fn table(subject: Subject, seen: &Seen, sort: Sort, look: &Look) -> Table {
    match subject {
        Subject::Nodes => node_table(seen, sort),
        Subject::Workloads => workload_table(seen, sort, look),
    }
}

/// One line about all of it.
pub(super) fn totals(seen: &Seen) -> String {
    let cluster = &seen.cluster;
    let busy = cluster.totals.as_ref().and_then(|totals| {
        let (busy, source) = busy_of(totals.utilisation, Some(totals.utilisation_source))?;
        Some(format!(", {busy}% busy{source}"))
    });
    let busy = busy.unwrap_or_default();
    format!(
        "Cluster: {} of {} GPUs allocated{busy}, {} running, {} waiting, {} of {} nodes ready",
        cluster.gpus_allocated,
        cluster.gpus,
        cluster.running_count,
        cluster.waiting_count,
        cluster.nodes_ready,
        cluster.nodes
    )
}

fn node_table(seen: &Seen, sort: Sort) -> Table {
    let mut nodes: Vec<&Node> = seen.nodes.items.iter().collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    match sort {
        Sort::Gpus => nodes.sort_by_key(|node| Reverse(node.gpus_allocated)),
        Sort::Busy => nodes.sort_by_key(|node| Reverse(node_busy(node))),
        Sort::Status => nodes.sort_by_key(|node| format!("{:?}", node.state)),
        Sort::Name | Sort::Project | Sort::Age => {}
    }
    let mut table = Table::new(&["NAME", "STATE", "GPUS", "ALLOCATED", "BUSY", "CPU", "MEMORY", "WORKLOADS"]);
    for node in nodes {
        table.row(vec![
            node.name.clone().into(),
            show::node_state(node.state),
            node.devices.len().to_string().into(),
            node.gpus_allocated.to_string().into(),
            node_cell(node),
            format!("{}/{}", node.cpu_allocated, node.cpu).into(),
            format!("{}/{}", show::size(node.memory_allocated.0), show::size(node.memory.0)).into(),
            node.workloads.len().to_string().into(),
        ]);
    }
    table
}

fn workload_table(seen: &Seen, sort: Sort, look: &Look) -> Table {
    let busy = |workload: &Workload| workload_busy(seen, workload);
    let mut workloads: Vec<&Workload> = seen.workloads.items.iter().collect();
    workloads.sort_by(|a, b| (&a.name, &a.project).cmp(&(&b.name, &b.project)));
    match sort {
        Sort::Name => {}
        Sort::Gpus => workloads.sort_by_key(|workload| Reverse(workload.gpus_allocated)),
        Sort::Busy => workloads.sort_by_key(|workload| Reverse(busy(workload))),
        Sort::Project => workloads.sort_by_key(|workload| workload.project.clone()),
        Sort::Age => workloads.sort_by_key(|workload| workload.submitted_at),
        Sort::Status => workloads.sort_by_key(|workload| workload.status),
    }
    let mut table =
        Table::new(&["NAME", "PROJECT", "STATUS", "GPUS", "ALLOCATED", "BUSY", "NODE", "AGE", "PROGRESS"]);
    for workload in workloads {
        let (gpus, nodes, progress) = show::workload_cells(workload);
        table.row(vec![
            workload.name.clone().into(),
            workload.project.clone().into(),
            Cell::painted(workload.status.to_string(), show::paint(workload.status)),
            gpus.into(),
            workload.gpus_allocated.to_string().into(),
            percent(busy(workload)),
            nodes.into(),
            look.clock.age(workload.submitted_at).into(),
            progress.into(),
        ]);
    }
    table
}

/// Whole percent, and what they are based on when nobody measured it.
fn busy_of(utilisation: Option<Percent>, source: Option<UtilisationSource>) -> Option<(u64, &'static str)> {
    let busy = (utilisation?.0.0 + Gpus::SCALE / 2) / Gpus::SCALE;
    Some(match source {
        Some(UtilisationSource::Reported) => (busy, " (reported)"),
        Some(UtilisationSource::Mixed) => (busy, " (partly reported)"),
        _ => (busy, ""),
    })
}

fn node_cell(node: &Node) -> Cell {
    match (node.utilisation_source, busy_of(node.utilisation, node.utilisation_source)) {
        (Some(UtilisationSource::Unknown), _) => "unknown".into(),
        (Some(_), Some((busy, source))) => {
            let paint = if busy < 10 { Paint::Busy } else { Paint::Good };
            Cell::painted(format!("{busy}%{source}"), paint)
        }
        _ => percent(node_busy(node)),
    }
}

/// How busy the devices of a node are on average: as the server says, or as far as its devices show.
fn node_busy(node: &Node) -> Option<u64> {
    if node.utilisation_source.is_some() {
        return busy_of(node.utilisation, node.utilisation_source).map(|(busy, _)| busy);
    }
    mean(node.devices.iter().filter_map(|device| device.usage.as_ref()).map(|usage| usage.utilisation))
}

/// How busy the devices are on which a workload has a share. What it does alone on a shared device nobody measures.
fn workload_busy(seen: &Seen, workload: &Workload) -> Option<u64> {
    let name = format!("{}/{}", workload.project, workload.name);
    let devices = seen.nodes.items.iter().flat_map(|node| &node.devices);
    let its = devices.filter(|device| device.workloads.iter().any(|on| on.workload == name));
    mean(its.filter_map(|device| device.usage.as_ref()).map(|usage| usage.utilisation))
}

fn mean(values: impl Iterator<Item = u8>) -> Option<u64> {
    let (sum, count) = values.fold((0, 0), |(sum, count), value| (sum + u64::from(value), count + 1));
    (count > 0).then(|| sum / count)
}

fn percent(busy: Option<u64>) -> Cell {
    match busy {
        None => "".into(),
        Some(busy @ 0..10) => Cell::painted(format!("{busy}%"), Paint::Busy),
        Some(busy) => Cell::painted(format!("{busy}%"), Paint::Good),
    }
}

/// The part of all GPUs that is given, in percent.
pub(super) fn given_percent(seen: &Seen) -> u16 {
    let GpuAmount(all) = seen.cluster.gpus;
    let GpuAmount(given) = seen.cluster.gpus_allocated;
    given.0.saturating_mul(100).checked_div(all.0).map_or(0, |percent| percent.min(100) as u16)
}
