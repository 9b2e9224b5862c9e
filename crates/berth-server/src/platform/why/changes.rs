//! Changes of a request that would start it now, as options of `berth submit`.

use super::{Asked, Names, Platform};
use berth_api::{CoresAmount, GpuAmount, MemoryAmount, SuggestedChange, WorkloadRequest};
use berth_types::{Bytes, GpuRequest, Gpus, RequestChange, Suggestion, Time, WaitDetails, WorkloadSpec};

impl Platform {
    /// Changes with which the workload would start now. Each is made to the request and lowered like any submission before
    /// the engine plans it.
    pub(super) fn changes(
        &self,
        asked: &Asked<'_>,
        details: &WaitDetails,
        names: &Names<'_>,
        now: Time,
    ) -> Vec<SuggestedChange> {
        let respecify = |change: &RequestChange| -> Option<WorkloadSpec> {
            let request = changed(asked.request, change)?;
            self.lower(request, asked.user, now).ok().map(|(workload, _, _)| workload.spec)
        };
        let found = asked.engine.suggest(details.workload, details, now, respecify);
        found.iter().map(|suggestion| suggested(suggestion, asked.request, names)).collect()
    }
}

/// The request with a change; none where the change says nothing.
fn changed(request: &WorkloadRequest, change: &RequestChange) -> Option<WorkloadRequest> {
    // Its name is taken until it is deleted.
    let mut request = WorkloadRequest { name: None, name_prefix: None, ..request.clone() };
    match change {
        RequestChange::Model(model) => request.gpu_models = vec![model.to_string()],
        RequestChange::Pool(pool) => request.node_pool = Some(pool.to_string()),
        RequestChange::AnyNode => request.node_selector.clear(),
        RequestChange::Cpu(cpu) => request.cpu = Some(CoresAmount(*cpu)),
        RequestChange::Memory(memory) => request.memory = Some(MemoryAmount(*memory)),
        RequestChange::Preemptible => request.preemptible = Some(true),
        RequestChange::MinTasks(min) => request.min_workers = Some(*min),
        RequestChange::Split { tasks, gpus } => {
            request.workers = Some(*tasks);
            request.min_workers = None;
            request.gpus = Some(GpuAmount(Gpus::whole(u64::from(gpus.get()))));
        }
        RequestChange::Gpus(GpuRequest::Memory { bytes, .. }) => {
            request.gpu_memory = Some(MemoryAmount(Bytes(bytes.get())));
        }
        RequestChange::Gpus(gpu) => request.gpus = Some(GpuAmount(gpu.charge_on(Bytes(1))?)),
    }
    Some(request)
}

fn suggested(suggestion: &Suggestion, request: &WorkloadRequest, names: &Names<'_>) -> SuggestedChange {
    let (kind, options) = options(&suggestion.change);
    let change = match &suggestion.change {
        RequestChange::AnyNode => "Without --node-selector it".to_owned(),
        _ => format!("`{options}`"),
    };
    let mut text = format!("{change} would start now");
    if let RequestChange::MinTasks(_) = suggestion.change {
        let all = request.workers.unwrap_or(1);
        text.push_str(&format!("; the rest of its {all} workers would join when there is room"));
    }
    let (stops, stops_others) = names.apart(&suggestion.evicts);
    if !suggestion.evicts.is_empty() {
        text.push_str(&format!(", after {} stopped for it", names.phrase(&suggestion.evicts)));
    }
    SuggestedChange { kind: kind.into(), options, text, stops, stops_others }
}

/// What a change is about, and how it is typed.
fn options(change: &RequestChange) -> (&'static str, String) {
    let gib = |bytes: Bytes| format!("{}Gi", bytes.0 >> 30);
    match change {
        RequestChange::Model(model) => ("gpu-model", format!("--gpu-models {model}")),
        RequestChange::Pool(pool) => ("node-pool", format!("--node-pool {pool}")),
        RequestChange::AnyNode => ("node-selector", String::new()),
        RequestChange::Cpu(cpu) => ("cpu", format!("--cpu {cpu}")),
        RequestChange::Memory(memory) => ("memory", format!("--memory {}", gib(*memory))),
        RequestChange::Preemptible => ("preemptible", "--preemptible".into()),
        RequestChange::MinTasks(min) => ("min-workers", format!("--min-workers {min}")),
        RequestChange::Split { tasks, gpus } => ("workers", format!("--workers {tasks} -g {gpus}")),
        RequestChange::Gpus(GpuRequest::Memory { bytes, .. }) => {
            ("gpus", format!("--gpu-memory {}", gib(Bytes(bytes.get()))))
        }
        RequestChange::Gpus(gpu) => ("gpus", format!("-g {}", gpu.charge_on(Bytes(1)).unwrap_or(Gpus::ZERO))),
    }
}
