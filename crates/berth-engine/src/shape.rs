//! Shapes: everything about a task that decides where it fits, interned so that equal tasks share one index.

use berth_types::{Device, GpuRequest, Name, Request, Selector, Share, Tasks, TopologyLevel};

/// What a task asks of a node, without whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShapeKey {
    pub(crate) request: Request,
    pub(crate) selector: Selector,
    pub(crate) project_selector: Selector,
    /// Preemptible work may use reserved capacity.
    pub(crate) preemptible: bool,
    /// The level inside which all tasks of a gang must be.
    pub(crate) level: Option<TopologyLevel>,
    /// No node has two tasks of a gang.
    pub(crate) apart: bool,
}

/// An interned shape with what is often asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) request: Request,
    pub(crate) selector: Selector,
    pub(crate) project_selector: Selector,
    pub(crate) preemptible: bool,
    pub(crate) level: Option<TopologyLevel>,
    /// Takes whole devices only.
    pub(crate) whole: bool,
    /// The most tasks of one gang on a node, however much is free there.
    most: u32,
}

impl Shape {
    pub(crate) fn new(key: &ShapeKey) -> Self {
        Self {
            request: key.request.clone(),
            selector: key.selector.clone(),
            project_selector: key.project_selector.clone(),
            preemptible: key.preemptible,
            level: key.level.clone(),
            whole: matches!(key.request.gpu, GpuRequest::Whole(_)),
            most: if key.apart { 1 } else { Tasks::MAX },
        }
    }

    /// Whether no node has two tasks of a gang.
    pub(crate) fn apart(&self) -> bool {
        self.most == 1
    }

    /// How many tasks CPU, memory and the wish to be apart allow.
    pub(crate) fn bound(&self, cpu: u64, memory: u64) -> u32 {
        let by_cpu = cpu.checked_div(self.request.cpu.0).unwrap_or(u64::MAX);
        let by_memory = memory.checked_div(self.request.memory.0).unwrap_or(u64::MAX);
        by_cpu.min(by_memory).min(u64::from(self.most)) as u32
    }

    pub(crate) fn accepts(&self, device: &Device) -> bool {
        self.request.accepts_model(&device.model)
    }

    /// The share of a device one task takes, if the device can serve it at all.
    pub(crate) fn share_on(&self, device: &Device) -> Option<Share> {
        if self.accepts(device) { self.request.gpu.share_on(device.memory) } else { None }
    }

    /// Whether the labels of a node are accepted.
    pub(crate) fn selects(&self, labels: &std::collections::BTreeMap<Name, Name>) -> bool {
        self.selector.accepts(labels) && self.project_selector.accepts(labels)
    }
}
