//! Why a workload waits, and what would start it now.
use crate::Engine;
use berth_types::{Explanation, Time, WorkloadId};
pub(crate) fn explain(_engine: &Engine, _workload: WorkloadId, _now: Time) -> Option<Explanation> {
    None
}
