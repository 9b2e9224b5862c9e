//! Nodes and their devices.

use super::Page;
use crate::output::{
    Look, Show,
    table::{Cell, Paint, Table},
};
use berth_api::{DeviceView, Node, NodeList, NodeState};
use berth_types::Bytes;
use serde::Serialize;

impl Show for NodeList {
    fn text(&self, look: &Look) -> String {
        listed(self, look, look.wide)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|node| node.name.clone()).collect()
    }
}

/// Nodes with their labels, whatever the form of the list.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct WithLabels(pub(crate) NodeList);

impl Show for WithLabels {
    fn text(&self, look: &Look) -> String {
        listed(&self.0, look, true)
    }

    fn names(&self) -> Vec<String> {
        self.0.names()
    }
}

fn listed(nodes: &NodeList, look: &Look, with_labels: bool) -> String {
    let mut columns = vec!["NAME", "STATE", "POOL", "GPUS", "ALLOCATED", "MODEL", "WORKLOADS"];
    if look.wide {
        columns.extend(["CPU", "CPU ALLOCATED", "MEMORY", "MEMORY ALLOCATED"]);
    }
    if with_labels {
        columns.push("LABELS");
    }
    let mut table = Table::new(&columns);
    for node in &nodes.items {
        let mut row = vec![
            node.name.clone().into(),
            node_state(node.state),
            node.pool.clone().into(),
            node.devices.len().to_string().into(),
            node.gpus_allocated.to_string().into(),
            models(node).join(",").into(),
            node.workloads.len().to_string().into(),
        ];
        if look.wide {
            row.extend([
                node.cpu.to_string().into(),
                node.cpu_allocated.to_string().into(),
                size(node.memory.0).into(),
                size(node.memory_allocated.0).into(),
            ]);
        }
        if with_labels {
            row.push(labels(node).into());
        }
        table.row(row);
    }
    look.table(&table)
}

impl Show for Node {
    fn text(&self, look: &Look) -> String {
        let mut page = Page::default();
        page.line("Name", &self.name);
        page.line("State", format!("{:?}", self.state));
        page.line("Pool", &self.pool);
        page.line("Labels", labels(self));
        page.line("GPUs", format!("{} of {} allocated", self.gpus_allocated, self.devices.len()));
        page.line("CPU", format!("{} of {} allocated", self.cpu_allocated, self.cpu));
        page.line(
            "Memory",
            format!("{} of {} allocated", size(self.memory_allocated.0), size(self.memory.0)),
        );
        page.table("Devices", &device_table(&self.devices), look);
        page.render()
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

fn device_table(devices: &[DeviceView]) -> Table {
    let mut table = Table::new(&["GPU", "MODEL", "MEMORY", "ALLOCATED", "BUSY", "MEMORY USED", "WORKLOADS"]);
    for device in devices {
        let workloads = device.workloads.iter().map(|on| format!("{} ({})", on.workload, on.share));
        let usage = device.usage.as_ref();
        table.row(vec![
            device.index.to_string().into(),
            device.model.clone().into(),
            device.memory.to_string().into(),
            device.allocated.to_string().into(),
            usage.map(|usage| format!("{}%", usage.utilisation)).unwrap_or_default().into(),
            usage.and_then(|usage| usage.memory_used).map(|used| size(used.0)).unwrap_or_default().into(),
            workloads.collect::<Vec<_>>().join(", ").into(),
        ]);
    }
    table
}

pub(crate) fn node_state(state: NodeState) -> Cell {
    let paint = match state {
        NodeState::Ready => Paint::Good,
        NodeState::Cordoned | NodeState::Draining => Paint::Busy,
    };
    Cell::painted(format!("{state:?}"), paint)
}

fn models(node: &Node) -> Vec<&str> {
    let mut models: Vec<&str> = node.devices.iter().map(|device| device.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    models
}

fn labels(node: &Node) -> String {
    node.labels.iter().map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(",")
}

/// Bytes of something measured, rounded to a tenth of the largest unit it fills: nobody wants to read all of its digits.
pub(crate) fn size(bytes: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes.0 >> shift > 0) {
        None => bytes.to_string(),
        Some((unit, shift)) => {
            let tenths = (u128::from(bytes.0) * 10) >> shift;
            match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                tenth => format!("{}.{tenth} {unit}", tenths / 10),
            }
        }
    }
}
