//! What is written down every few seconds, for charts: who has how much, and how busy it is.
//!
//! GPUs and counts are in millionths, utilisation in millionths of a percent, memory in bytes.

use crate::platform::{Platform, mean_utilisation};
use berth_api::Samples;
use berth_store::Sample;
use berth_types::{Bytes, Place, Time};
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
    }
    add("gpus_allocated".into(), 0);
    let figures = platform.device_figures(measured);
    for (id, node) in engine.nodes() {
        add("gpus".into(), node.devices.len() as u64 * MILLION);
        if let (Some(mean), _) = mean_utilisation(figures[id].iter()) {
            add(format!("gpu_utilisation/{}", node.name), mean);
        }
        for (device, measured) in measured.iter().enumerate().take(node.devices.len()) {
            add(format!("gpu_memory_used/{}/{device}", node.name), measured.memory_used.0);
        }
    }
    if let (Some(mean), _) = mean_utilisation(figures.values().flatten()) {
        add("gpu_utilisation".into(), mean);
    }
    let (running, pending) = platform.counts();
    add("workloads_running".into(), running * MILLION);
    add("workloads_waiting".into(), pending * MILLION);
    values.into_iter().map(|(series, value)| Sample::new(series, value as i64)).collect()
}

/// The same, with what was since it was last asked: no job is too short to count.
pub(crate) fn of_window(platform: &mut Platform, measured: &[Measured], now: Time) -> Vec<Sample> {
    let mut samples = of(platform, measured);
    let mut windows = platform.take_window(now);
    for sample in &mut samples {
        if let Some((value, window)) = windows.remove(&sample.series) {
            debug_assert_eq!(value, sample.value, "{} is followed as it is", sample.series);
            sample.window = Some(window);
        }
    }
    // What fell to nothing since the last sample.
    let ended = windows.into_iter();
    samples.extend(ended.map(|(series, (value, window))| Sample { series, value, window: Some(window) }));
    samples
}

/// What the values of a series are, and by what they are to be divided.
pub(crate) fn unit(series: &str) -> (&'static str, u64) {
    match series.split('/').next().unwrap_or_default() {
        "gpus" | "gpus_allocated" | "gpus_by_user" => ("gpus", MILLION),
        "gpu_utilisation" => ("percent", MILLION),
        "workloads_running" | "workloads_waiting" => ("workloads", MILLION),
        "gpu_memory_used" => ("bytes", 1),
        _ => ("", 1),
    }
}

/// Samples as a stream tells them.
pub(crate) fn told(at: Time, samples: &[Sample]) -> Samples {
    Samples {
        at: at.into(),
        values: samples.iter().map(|sample| (sample.series.clone(), sample.value)).collect(),
    }
}
