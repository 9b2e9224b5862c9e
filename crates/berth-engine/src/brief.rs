//! What a search for victims asks of every running workload, kept side by side: a search looks at many and takes few.

use berth_types::{Gpus, Place, Span, Time, Workload, WorkloadId};

/// What a search needs to know of one running preemptible workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub(crate) id: WorkloadId,
    pub(crate) started: Time,
    /// Its last checkpoint, or its start.
    saved: Time,
    /// GPUs of its base, and with elastic extras.
    pub(crate) base_gpus: u64,
    all_gpus: u64,
    pub(crate) project: u32,
    pub(crate) priority: i32,
    checkpoints: bool,
}

impl Brief {
    pub(crate) fn of(workload: &Workload, project: u32, started: Time) -> Self {
        let gpus = |gpus: Gpus| gpus.0;
        Self {
            id: workload.id,
            started,
            saved: workload.checkpoint.map_or(started, |checkpoint| checkpoint.max(started)),
            base_gpus: gpus(workload.base_places().map(Place::gpus).sum()),
            all_gpus: gpus(workload.places().map(Place::gpus).sum()),
            project,
            priority: workload.spec.priority,
            checkpoints: workload.checkpoint.is_some(),
        }
    }

    /// The work an eviction destroys, as [`Workload::work_lost`] has it.
    pub(crate) fn work_lost(&self, now: Time, cap: Span) -> u128 {
        let span = now.since(self.saved);
        let span = if self.checkpoints { span } else { span.min(cap) };
        u128::from(self.all_gpus) * u128::from(span.0) / u128::from(Gpus::SCALE)
    }
}
