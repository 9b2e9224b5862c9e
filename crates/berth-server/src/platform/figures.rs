//! The sums that pages, `top`, metrics and series show. They are computed here and nowhere else, so that all of them agree.

use super::{Parked, Platform, Record, record::Stop, view::status};
use crate::samples::Measured;
use berth_api::{
    ClusterTotals, DeviceTotals, GpuAmount, NodeState, NodeTotals, Percent, UtilisationSource as Source,
};
use berth_types::{AfterStop, Gpus, NodeCondition, NodeId, Phase, Place, Workload, WorkloadId};
use std::collections::BTreeMap;

/// A whole device that is fully busy, in millionths of a percent.
const BUSY_MAX: u64 = 100 * Gpus::SCALE;

/// Whether a workload counts as running or as pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has its places, or they are held for it.
    Running,
    /// It wants GPUs and has none.
    Pending,
    Suspended,
    /// It was stopped, and its last tasks have not ended.
    Ending,
}

/// The utilisation of a device, in millionths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    /// No workload has a share of it.
    Free,
    Measured(u64),
    Reported(u64),
    Unknown,
}

/// One device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceFigures {
    pub(crate) allocated: Gpus,
    pub(crate) workloads: u64,
    /// A task on it was stopped and has not ended.
    leaves: bool,
    /// The sum of what its workloads reported; none when one of them did not.
    reported: Option<u64>,
    measured: Option<u64>,
    /// It is a device of this machine: what nobody measures there is unknown, and not free of use.
    is_real: bool,
}

impl DeviceFigures {
    const FREE: Self = Self {
        allocated: Gpus::ZERO,
        workloads: 0,
        leaves: false,
        reported: Some(0),
        measured: None,
        is_real: false,
    };

    fn busy(&self) -> Busy {
        match (self.measured, self.reported) {
            (Some(measured), _) => Busy::Measured(measured),
            (None, _) if self.leaves => Busy::Unknown,
            (None, _) if self.workloads == 0 && self.is_real => Busy::Unknown,
            (None, _) if self.workloads == 0 => Busy::Free,
            (None, Some(reported)) => Busy::Reported(reported.min(BUSY_MAX)),
            (None, None) => Busy::Unknown,
        }
    }

    /// What is known of it, in millionths of a percent, and from where. A free device that nobody measures has none.
    pub(crate) fn utilisation(&self) -> (Option<u64>, Source) {
        match self.busy() {
            Busy::Free => (None, Source::Free),
            Busy::Measured(busy) => (Some(busy), Source::Measured),
            Busy::Reported(busy) => (Some(busy), Source::Reported),
            Busy::Unknown => (None, Source::Unknown),
        }
    }
}

/// The mean over some devices: free ones count as not busy, unknown ones do not count. None when nothing is known of those that
/// are in use.
pub(crate) fn mean<'a>(devices: impl Iterator<Item = &'a DeviceFigures>) -> (Option<u64>, Source) {
    let (mut sum, mut known, mut measured, mut reported, mut unknown) = (0, 0, 0u64, 0u64, 0u64);
    for device in devices {
        match device.busy() {
            Busy::Free => {}
            Busy::Measured(busy) => (sum, measured) = (sum + busy, measured + 1),
            Busy::Reported(busy) => (sum, reported) = (sum + busy, reported + 1),
            Busy::Unknown => {
                unknown += 1;
                continue;
            }
        }
        known += 1;
    }
    let source = match (measured, reported, unknown) {
        (0, 0, 0) => Source::Free,
        (0, 0, _) => Source::Unknown,
        (_, 0, _) => Source::Measured,
        (0, _, _) => Source::Reported,
        _ => Source::Mixed,
    };
    let is_known = known > 0 && source != Source::Unknown;
    (is_known.then(|| sum / known), source)
}

impl Platform {
    /// Every device, by node.
    pub(crate) fn device_figures(&self, measured: &[Measured]) -> BTreeMap<NodeId, Vec<DeviceFigures>> {
        let measured_of = |device: usize| {
            measured
                .get(device)
                .and_then(|gpu| gpu.utilisation)
                .map(|percent| u64::from(percent) * Gpus::SCALE)
        };
        let mut nodes: BTreeMap<NodeId, Vec<DeviceFigures>> = BTreeMap::new();
        for (id, node) in self.engine.nodes() {
            let device = |index| DeviceFigures {
                measured: measured_of(index),
                is_real: index < measured.len(),
                ..DeviceFigures::FREE
            };
            nodes.insert(*id, (0..node.devices.len()).map(device).collect());
        }
        for workload in self.engine.workloads() {
            let reported = self.records.get(&workload.id).and_then(|record| record.utilisation());
            for place in workload.places() {
                let Some(devices) = nodes.get_mut(&place.node) else { continue };
                for taken in &place.devices {
                    let Some(device) = devices.get_mut(usize::from(taken.device)) else { continue };
                    device.allocated += taken.share.gpus();
                    device.workloads += 1;
                    let part =
                        reported.map(|percent| u64::from(percent) * u64::from(taken.share.millionths()));
                    device.reported = device.reported.zip(part).map(|(sum, part)| sum + part);
                }
            }
            for place in workload.leaving() {
                let Some(devices) = nodes.get_mut(&place.node) else { continue };
                for taken in &place.devices {
                    if let Some(device) = devices.get_mut(usize::from(taken.device)) {
                        device.leaves = true;
                    }
                }
            }
        }
        nodes
    }

    /// Sums over everything, the same for whoever asks.
    pub(crate) fn totals(&self, measured: &[Measured]) -> ClusterTotals {
        let figures = self.device_figures(measured);
        let percent = |(busy, source): (Option<u64>, Source)| (busy.map(|busy| Percent(Gpus(busy))), source);
        let mut totals = ClusterTotals::default();
        for (name, id) in &self.nodes {
            let Some(devices) = figures.get(id) else { continue };
            let state = self.node_state(*id);
            let allocated: Gpus = devices.iter().map(|device| device.allocated).sum();
            let gpus = Gpus::whole(devices.len() as u64);
            totals.nodes += 1;
            totals.gpus.0 += gpus;
            if state == NodeState::Ready {
                totals.nodes_ready += 1;
                totals.gpus_free.0 += gpus.saturating_sub(allocated);
            }
            let unknown = |device: &&DeviceFigures| device.workloads > 0 && device.busy() == Busy::Unknown;
            totals.gpus_unknown += devices.iter().filter(unknown).count() as u64;
            let (utilisation, utilisation_source) = percent(mean(devices.iter()));
            let device = |(index, device): (usize, &DeviceFigures)| {
                let (utilisation, utilisation_source) = percent(device.utilisation());
                let allocated = GpuAmount(device.allocated);
                let (index, workloads) = (index as u8, device.workloads);
                DeviceTotals { index, allocated, workloads, utilisation, utilisation_source }
            };
            totals.by_node.push(NodeTotals {
                name: name.clone(),
                state,
                gpus: GpuAmount(gpus),
                gpus_allocated: GpuAmount(allocated),
                utilisation,
                utilisation_source,
                devices: devices.iter().enumerate().map(device).collect(),
            });
        }
        (totals.utilisation, totals.utilisation_source) = percent(mean(figures.values().flatten()));
        for workload in self.engine.workloads() {
            let gpus: Gpus = workload.places().map(Place::gpus).sum();
            totals.gpus_allocated.0 += gpus;
            if workload.idle_since.is_some() {
                totals.gpus_idle.0 += gpus;
            }
        }
        for (record, workload) in self.standing_workloads() {
            let status = record.map(|record| status(record, workload).to_string());
            *totals.statuses.entry(status.unwrap_or_else(|| "Running".into())).or_default() += 1;
            match standing(record, workload) {
                Standing::Running => totals.running_count += 1,
                Standing::Pending => {
                    totals.pending_count += 1;
                    totals.pending_gpus.0 += self.asked(workload);
                }
                Standing::Suspended => totals.suspended_count += 1,
                Standing::Ending => {}
            }
        }
        totals
    }

    /// How many workloads run, and how many are pending.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.standing_workloads().fold((0, 0), |(running, pending), (record, workload)| {
            match standing(record, workload) {
                Standing::Running => (running + 1, pending),
                Standing::Pending => (running, pending + 1),
                Standing::Suspended | Standing::Ending => (running, pending),
            }
        })
    }

    /// Unfinished workloads: those that the engine knows, and those that are parked.
    pub(super) fn standing_workloads(&self) -> impl Iterator<Item = (Option<&Record>, &Workload)> {
        let known = self.engine.workloads().map(|workload| (self.records.get(&workload.id), workload));
        let parked = self.records.values().filter_map(|record| {
            let (_, workload) = record.parked.as_ref()?;
            Some((Some(record), &**workload))
        });
        known.chain(parked)
    }

    /// How a workload counts; none when it is over.
    pub(super) fn standing_of(&self, id: WorkloadId) -> Option<Standing> {
        let record = self.records.get(&id);
        let workload = match record.and_then(|record| record.parked.as_ref()) {
            Some((_, workload)) => workload,
            None => self.engine.workload(id)?,
        };
        Some(standing(record, workload))
    }

    pub(super) fn node_state(&self, id: NodeId) -> NodeState {
        let condition = self.engine.nodes().get(&id).map(|node| node.condition);
        match (condition, self.is_draining(id)) {
            (Some(NodeCondition::Ready), _) => NodeState::Ready,
            (_, false) => NodeState::Cordoned,
            (_, true) => NodeState::Draining,
        }
    }
}

/// How a workload counts.
pub(super) fn standing(record: Option<&Record>, workload: &Workload) -> Standing {
    match record.and_then(|record| record.parked.as_ref()) {
        Some((Parked::Suspended { .. }, _)) => return Standing::Suspended,
        Some((Parked::BackOff { .. } | Parked::Refused, _)) => return Standing::Pending,
        None => {}
    }
    match workload.phase {
        Phase::Queued { .. } | Phase::Stopping { then: AfterStop::Requeue, .. } => Standing::Pending,
        Phase::Held { .. } | Phase::Running { .. } => Standing::Running,
        Phase::Stopping { .. } if record.is_some_and(|record| record.stop == Some(Stop::Drained)) => {
            Standing::Pending
        }
        Phase::Stopping { .. } | Phase::Finished { .. } => Standing::Ending,
    }
}
