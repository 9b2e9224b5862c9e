//! The mix of requests that placement keeps room for.

use crate::tree::Sign;
use berth_types::{Policy, WorkloadSpec};

/// The expected mix of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    version: u64,
}

impl Mix {
    pub(crate) fn new(_policy: &Policy) -> Self {
        Self { version: 1 }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A workload came or went.
    pub(crate) fn count(&mut self, _spec: &WorkloadSpec, _sign: Sign) {}
}
