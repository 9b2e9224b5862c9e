//! What a scenario expects, and whether it holds.

mod read;

use crate::{
    World,
    report::{self, Standing},
};
use berth_types::{Action, Change, Gpus, NodeId, Place, ProjectId, TopologyLevel, WaitReason, WorkloadId};
use std::collections::BTreeSet;

/// Which workloads, or how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// So many, whichever.
    Count(usize),
    /// Exactly these.
    These(BTreeSet<WorkloadId>),
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// What a project has.
    Project {
        /// Which project.
        project: ProjectId,
        /// Its GPUs and its quota.
        gpus: Option<(Gpus, Option<Gpus>)>,
        /// Its fair share.
        fair: Option<Gpus>,
        /// Its workloads by standing.
        standings: Vec<(Standing, Which)>,
    },
    /// Where a workload stands.
    Workload {
        /// Which workload.
        workload: WorkloadId,
        /// Its standing.
        standing: Option<Standing>,
        /// Exactly the nodes its tasks are on.
        nodes: Option<BTreeSet<NodeId>>,
        /// How many tasks it has.
        workers: Option<usize>,
        /// All of its tasks are in one domain of this level.
        within: Option<TopologyLevel>,
        /// The rule that holds it, as [`reason_word`] spells it.
        because: Option<&'static str>,
    },
    /// GPUs nobody has.
    Free(Gpus),
    /// Workloads of all projects by standing.
    All(Standing, Which),
    /// Exactly these workloads met this decision since the last title.
    Met(Decision, BTreeSet<WorkloadId>),
    /// These workloads are on one device together.
    Share(Vec<WorkloadId>),
}

/// A decision that somebody would rather not meet, or would like to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Stopped and returned to the queue.
    Evicted,
    /// Stopped and started elsewhere.
    Moved,
    /// Elastic extras stopped.
    Shrunk,
    /// Elastic extras started.
    Grown,
}

const REASONS: [&str; 9] = [
    "never",
    "limit",
    "non-preemptible-quota",
    "no-borrowing",
    "no-capacity",
    "minimum-run",
    "patience",
    "leaving",
    "ready",
];

/// The word for the rule that holds a workload.
fn reason_word(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::Never { .. } => REASONS[0],
        WaitReason::Limit { .. } => REASONS[1],
        WaitReason::NonPreemptibleQuota { .. } => REASONS[2],
        WaitReason::NoBorrowing { .. } => REASONS[3],
        WaitReason::NoCapacity { .. } => REASONS[4],
        WaitReason::MinimumRun { .. } => REASONS[5],
        WaitReason::Patience { .. } => REASONS[6],
        WaitReason::Leaving { .. } => REASONS[7],
        WaitReason::Ready => REASONS[8],
    }
}

impl Expectation {
    /// Whether this holds; if not, what was found instead. Decisions count from the log entry `since` on.
    pub fn check(&self, world: &World, since: usize) -> Result<(), String> {
        let state = world.state();
        let names = |ids: &BTreeSet<WorkloadId>| report::names(state, ids.iter().copied());
        match self {
            Self::Project { project, gpus, fair, standings } => {
                if let Some((expected, quota)) = gpus {
                    let found = report::project_gpus(state, *project);
                    let found_quota = report::project_quota(state, *project);
                    if found != *expected || quota.is_some_and(|quota| quota != found_quota) {
                        return Err(format!("{found}/{found_quota}"));
                    }
                }
                if let Some(fair) = fair {
                    let found = report::fair_share(world, *project);
                    if found != Some(*fair) {
                        let found = found.map_or("no fair share".into(), |found| found.to_string());
                        return Err(format!("fair={found}"));
                    }
                }
                standings.iter().try_for_each(|(standing, which)| {
                    let found = report::standing_of(state, Some(*project), *standing);
                    which.check(&found).map_err(|()| format!("{standing}={}", names(&found)))
                })
            }
            Self::Workload { .. } => self.check_workload(world),
            Self::Free(expected) => match report::free_gpus(state) {
                found if found == *expected => Ok(()),
                found => Err(format!("free {found}")),
            },
            Self::All(standing, which) => {
                let found = report::standing_of(state, None, *standing);
                which.check(&found).map_err(|()| format!("{standing} {}: {}", found.len(), names(&found)))
            }
            Self::Met(decision, expected) => {
                let found: BTreeSet<_> = world.log()[since..]
                    .iter()
                    .filter_map(|entry| match &entry.change {
                        Change::Decided { action, .. } if decision.is(action) => Some(action.workload()),
                        _ => None,
                    })
                    .collect();
                if found == *expected {
                    Ok(())
                } else {
                    Err(format!("{decision:?} {}", names(&found)).to_lowercase())
                }
            }
            Self::Share(ids) => {
                let devices = |id: &WorkloadId| -> BTreeSet<(NodeId, u8)> {
                    let places = state.workloads.get(id).into_iter().flat_map(|workload| workload.places());
                    places
                        .flat_map(|place| place.devices.iter().map(|taken| (place.node, taken.device)))
                        .collect()
                };
                let all: Vec<_> = ids.iter().map(devices).collect();
                let one = all.first().is_some_and(|first| first.len() == 1);
                if one && all.windows(2).all(|pair| pair[0] == pair[1]) {
                    return Ok(());
                }
                let found: Vec<_> = ids.iter().map(|id| report::placed(state, *id)).collect();
                Err(found.join("; "))
            }
        }
    }

    fn check_workload(&self, world: &World) -> Result<(), String> {
        let Self::Workload { workload: id, standing, nodes, workers, within, because } = self else {
            return Ok(());
        };
        let state = world.state();
        let Some(workload) = state.workloads.get(id) else {
            return Err("it was never submitted".into());
        };
        if let Some(standing) = standing
            && !report::stands(workload, *standing)
        {
            return Err(report::standing_text(workload));
        }
        let places: Vec<&Place> = workload.places().collect();
        if let Some(expected) = nodes
            && places.iter().map(|place| place.node).collect::<BTreeSet<_>>() != *expected
        {
            return Err(report::placed(state, *id));
        }
        if workers.is_some_and(|workers| workers != places.len()) {
            return Err(format!("workers={}", places.len()));
        }
        if let Some(level) = within {
            let domain = |place: &&Place| match level {
                TopologyLevel::Node => Some(place.node.to_string()),
                TopologyLevel::Label(key) => {
                    let node = state.nodes.get(&place.node)?;
                    node.labels.get(key).map(ToString::to_string)
                }
            };
            let domains: BTreeSet<_> = places.iter().map(domain).collect();
            if domains.len() != 1 || domains.contains(&None) {
                return Err(report::placed(state, *id));
            }
        }
        if let Some(expected) = because {
            let found = world.explain(*id).map(|explanation| reason_word(&explanation.reason));
            if found != Some(*expected) {
                return Err(format!("because {}", found.unwrap_or("of nothing")));
            }
        }
        Ok(())
    }
}

impl Which {
    fn check(&self, found: &BTreeSet<WorkloadId>) -> Result<(), ()> {
        let holds = match self {
            Self::Count(count) => found.len() == *count,
            Self::These(expected) => found == expected,
        };
        if holds { Ok(()) } else { Err(()) }
    }
}

impl Decision {
    fn is(self, action: &Action) -> bool {
        match self {
            Self::Evicted => matches!(action, Action::Evict { .. }),
            Self::Moved => matches!(action, Action::Move { .. }),
            Self::Shrunk => matches!(action, Action::Shrink { .. }),
            Self::Grown => matches!(action, Action::Grow { .. }),
        }
    }
}
