//! What a worker finds in its environment. The names are those of the embedded product.

use super::{Run, Seat, gpus_text, host_name, is_gang};
use k8s_openapi::api::core::v1::EnvVar;
use kube::ResourceExt;

/// The port at which workers of a gang find the first of them, unless they say otherwise.
pub(super) const MASTER_PORT: i32 = 29_500;

/// The variables of a worker: ours, then its own, which win.
pub(super) fn with_ours(own: Vec<EnvVar>, run: &Run<'_>, seat: Seat<'_>) -> Vec<EnvVar> {
    let workload = run.workload;
    let (name, spec, place) = (workload.name_any(), &workload.spec, seat.place);
    // Completions do not know of each other.
    let workers = if spec.completions.is_some() { 1 } else { run.seats.len() };
    let (rank, workers, gpus) = (place.rank.to_string(), workers.to_string(), gpus_text(place));
    let local_rank =
        run.seats.iter().filter(|other| other.place.rank < place.rank && other.node.name == seat.node.name);
    // One number: shares of one worker are of one size.
    let shares =
        place.devices.iter().filter_map(|taken| Some(taken.share.memory(seat.node.memory(taken.device)?)));
    let memory_mib = shares.map(|memory| memory.0 >> 20).min().unwrap_or(0).to_string();
    let mut ours: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: &str| ours.push((name.to_owned(), value.to_owned()));
    put("BERTH_WORKLOAD", &name);
    put("BERTH_PROJECT", run.project);
    put("BERTH_USER", spec.user.as_deref().unwrap_or_default());
    put("BERTH_KIND", spec.kind.text());
    put("BERTH_NODE", &seat.node.name);
    put("BERTH_RANK", &rank);
    put("BERTH_WORKERS", &workers);
    put("BERTH_RUN", &run.number.to_string());
    if let (Some(index), Some(completions)) = (seat.index, spec.completions()) {
        put("BERTH_INDEX", &index.to_string());
        put("JOB_COMPLETION_INDEX", &index.to_string());
        put("BERTH_COMPLETIONS", &completions.to_string());
    }
    put("BERTH_GPU_SHARE", &gpus);
    put("BERTH_GPU_MEMORY_MIB", &memory_mib);
    put("RUNAI_PROJECT", run.project);
    put("RUNAI_JOB_NAME", &name);
    put("RUNAI_NUM_OF_GPUS", &gpus);
    put("RUNAI_MPI_NUM_WORKERS", &workers);
    put("NODE_NAME", &seat.node.name);
    put("JOB_NAME", &name);
    // The same over every run: results of a job that was preempted belong together.
    put("JOB_UUID", &workload.uid().unwrap_or_default());
    put("RANK", &rank);
    put("WORLD_SIZE", &workers);
    put("LOCAL_RANK", &local_rank.count().to_string());
    if is_gang(workload) {
        // Names inside of the namespace: the Service of the gang is called as the workload.
        put("MASTER_ADDR", &format!("{}.{name}", host_name(&name, 0)));
        put("MASTER_PORT", &MASTER_PORT.to_string());
    }
    if place.devices.is_empty() {
        // Many images ask for all GPUs of the node unless they are told that there is none.
        put("NVIDIA_VISIBLE_DEVICES", "void");
    }
    if let Some(port) = spec.ports.first() {
        put("BERTH_PORT", &port.to_string());
        put("PORT", &port.to_string());
    }
    for port in &spec.ports {
        put(&format!("BERTH_PORT_{port}"), &port.to_string());
    }
    // A trainer's lines must reach the log while they are news.
    put("PYTHONUNBUFFERED", "1");
    let ours = ours.into_iter().filter(|(name, _)| own.iter().all(|theirs| theirs.name != *name));
    let ours = ours.map(|(name, value)| EnvVar { name, value: Some(value), value_from: None });
    ours.chain(own.iter().cloned()).collect()
}
