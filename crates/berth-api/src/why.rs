//! Why a workload waits.

use crate::{GpuAmount, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Who holds what a waiting workload needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Held {
    /// As `project/name`.
    pub workload: String,
    /// GPUs it holds on nodes the waiting workload may use.
    pub gpus: GpuAmount,
}

/// What would start it now; each was tried before it was named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remedies {
    /// One sentence for people.
    pub text: String,
    /// These workloads end, as `project/name`.
    pub end: Vec<String>,
    /// Limits of these accounts are lifted, as `project NAME` or `department NAME`.
    pub lift_limits: Vec<String>,
    /// Quotas of these accounts grow to this much.
    pub raise_quotas: BTreeMap<String, GpuAmount>,
}

/// Why a workload waits, or that it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// As `project/name`.
    pub workload: String,
    /// Whether it waits at all.
    pub waits: bool,
    /// The rule that holds it: `never`, `limit`, `non-preemptible-quota`, `no-borrowing`, `no-capacity`, `minimum-run`,
    /// `patience`, `leaving`, `ready`; `suspended`, `back-off`; or how it stands when it does not wait.
    pub rule: String,
    /// One sentence for people, with the numbers.
    pub text: String,
    /// The numbers, by name.
    pub numbers: BTreeMap<String, String>,
    /// The first instant at which time alone may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who holds what it needs, largest first.
    pub held_by: Vec<Held>,
    /// What would start it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedies>,
}
