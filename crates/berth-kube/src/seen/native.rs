//! Native groups of Pods: how many start together, and how close.

use super::{Key, Refusal, beside, objects::PodGroupObject};
use berth_types::TopologyLevel;

/// A native group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NativeGroupSeen {
    pub(crate) key: Key,
    /// How many start together; none when each Pod starts by itself.
    pub(crate) min: Option<u32>,
    /// All of them in one domain of this level.
    pub(crate) level: Option<TopologyLevel>,
    /// What it asks for that cannot be honoured.
    pub(crate) refusal: Option<Refusal>,
}

impl NativeGroupSeen {
    pub(crate) fn of(group: PodGroupObject) -> Self {
        let key = Key::new(&group.metadata.namespace, &group.metadata.name);
        let min = group.spec.scheduling_policy.gang.map(|gang| gang.min_count.max(1));
        let topology = group.spec.scheduling_constraints.topology;
        let refusal = match (topology.as_slice(), min) {
            ([], _) | ([_], Some(_)) => None,
            ([_], None) => {
                Some("keeps Pods in one domain that do not start together; give it the policy gang")
            }
            _ => Some("has several constraints of topology; Berth knows one for each group"),
        };
        let refusal = refusal
            .map(|text| Refusal::new("UnsupportedConstraint", format!("PodGroup {} {text}", key.name)));
        let level = topology.first().map(|topology| beside::level(&topology.key));
        Self { key, min, level, refusal }
    }
}
