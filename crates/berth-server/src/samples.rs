//! What is written down every few seconds, for charts: who has how much, and how busy it is.
//!
//! GPUs and counts are in millionths, utilisation in millionths of a percent, memory in bytes.

use crate::platform::Platform;
use berth_api::Samples;
use berth_store::Sample;
use berth_types::{Bytes, NodeId, Place, Time};
use std::collections::BTreeMap;

const MILLION: u64 = 1_000_000;

/// What a GPU of this machine says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// How busy it is, in percent.
    pub(crate) utilisation: Option<u8>,
    pub(crate) memory_used: Bytes,
}

/// One point of every series. `measured` is by the position of the GPU on the one real machine; declared nodes have none.
pub(crate) fn of(platform: &Platform, measured: &[Measured]) -> Vec<Sample> {
    let mut values: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |series: String, value: u64| *values.entry(series).or_default() += value;
    let engine = platform.engine();
    let names: BTreeMap<_, _> =
        engine.projects().values().map(|project| (project.id, project.name.as_str())).collect();
    for name in names.values() {
        add(format!("gpus_allocated/{name}"), 0);
    }
    let (mut running, mut waiting) = (0, 0);
    let mut reports = Reports::default();
    for workload in engine.workloads() {
        let gpus: u64 = workload.places().map(|place: &Place| place.gpus().0).sum();
        match names.get(&workload.spec.project) {
            Some(name) if gpus > 0 => add(format!("gpus_allocated/{name}"), gpus),
            _ => {}
        }
        add("gpus_allocated".into(), gpus);
        if gpus > 0 {
            add(format!("gpus_by_user/{}", workload.spec.user), gpus);
        }
        running += u64::from(workload.is_running());
        waiting += u64::from(workload.is_queued());
        reports.take(workload, platform);
    }
    let mut all_known: Vec<u64> = Vec::new();
    let (mut held, mut held_known) = (0usize, 0usize);
    for (id, node) in engine.nodes() {
        add("gpus".into(), node.devices.len() as u64 * MILLION);
        let of_device = |device: usize| match measured.get(device) {
            Some(measured) => measured.utilisation.map(|percent| u64::from(percent) * MILLION),
            None => reports.utilisation(*id, device),
        };
        let known: Vec<u64> = (0..node.devices.len()).filter_map(of_device).collect();
        if !known.is_empty() {
            let mean = known.iter().sum::<u64>() / known.len() as u64;
            add(format!("gpu_utilisation/{}", node.name), mean);
        }
        all_known.extend(known);
        for device in 0..node.devices.len() {
            let is_held = reports.is_held(*id, device);
            held += usize::from(is_held);
            held_known += usize::from(is_held && of_device(device).is_some());
        }
        for (device, measured) in measured.iter().enumerate().take(node.devices.len()) {
            add(format!("gpu_memory_used/{}/{device}", node.name), measured.memory_used.0);
        }
    }
    // What nobody has is not busy; if nobody who has some tells, that is no number to go by.
    if !all_known.is_empty() && (held == 0 || held_known > 0) {
        add("gpu_utilisation".into(), all_known.iter().sum::<u64>() / all_known.len() as u64);
    }
    add("workloads_running".into(), running * MILLION);
    add("workloads_waiting".into(), waiting * MILLION);
    values.into_iter().map(|(series, value)| Sample { series, value: value as i64 }).collect()
}

/// Samples as a stream tells them.
pub(crate) fn told(at: Time, samples: &[Sample]) -> Samples {
    Samples {
        at: at.into(),
        values: samples.iter().map(|sample| (sample.series.clone(), sample.value)).collect(),
    }
}

/// What workloads say about the devices they are on.
#[derive(Default)]
struct Reports {
    /// The busy part of a device in millionths of a percent; none when somebody on it does not tell.
    busy: BTreeMap<(NodeId, u8), Option<u64>>,
}

impl Reports {
    fn take(&mut self, workload: &berth_types::Workload, platform: &Platform) {
        let record = platform.record(workload.id);
        let told = record.and_then(|record| record.progress.as_ref()?.utilisation);
        for place in workload.places() {
            for taken in &place.devices {
                let busy = self.busy.entry((place.node, taken.device)).or_insert(Some(0));
                let part = told.map(|percent| u64::from(percent) * u64::from(taken.share.millionths()));
                *busy = busy.zip(part).map(|(busy, part)| (busy + part).min(100 * MILLION));
            }
        }
    }

    fn is_held(&self, node: NodeId, device: usize) -> bool {
        self.busy.contains_key(&(node, device as u8))
    }

    /// A device that nobody has is not busy.
    fn utilisation(&self, node: NodeId, device: usize) -> Option<u64> {
        self.busy.get(&(node, device as u8)).copied().unwrap_or(Some(0))
    }
}
