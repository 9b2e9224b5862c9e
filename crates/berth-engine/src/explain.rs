//! Why a workload waits, and what would start it now.
//!
//! The reason is read off the index. The remedy is not guessed: each is tried on a copy of the engine, together with
//! whoever would take the place first, until the workload starts.

use crate::{Engine, node::Free, pool::Pool, tree::GPU};
use berth_types::{
    Account, Change, Entitlement, Explanation, Gpus, Holder, Name, NodeId, Phase, Place, Remedy, Span, Time,
    WaitReason, WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Room for one more task on a node: GPUs that must end first, the node, and whose they are.
type Step = (u64, NodeId, u32, Vec<u32>);

/// Rounds in which more is added to a remedy before it is given up.
const REMEDY_ROUNDS: usize = 64;

/// Explains a workload that waits or whose places are decided; nothing for any other.
pub(crate) fn explain(engine: &Engine, id: WorkloadId, now: Time) -> Option<Explanation> {
    let mut engine = engine.clone();
    let pool_name = engine.workload_pools.get(&id)?.clone();
    let pool = engine.pools.get_mut(&pool_name)?;
    pool.mix.refresh(&pool.nodes);
    pool.refresh_shares();
    let slot = pool.slot(id)?;
    let holders = pool.holders(slot);
    let reason = match &pool.entry(slot).workload.phase {
        Phase::Queued { .. } => pool.wait_reason(slot, now),
        Phase::Held { places, leaving, .. } => {
            let mine: Vec<Place> = places.clone();
            let workloads = if leaving.is_empty() { pool.leaving_from(&mine) } else { vec![id] };
            WaitReason::Leaving { workloads }
        }
        _ => return None,
    };
    let remedy = match &reason {
        WaitReason::Leaving { .. } | WaitReason::Ready => Remedy::Wait,
        WaitReason::Never { .. } => Remedy::ChangeRequest,
        reason => find_remedy(&engine, id, reason, now),
    };
    Some(Explanation { workload: id, reason, holders, remedy })
}

/// Why workloads wait that are queued, on one copy of the engine for all of them. Those of a project that ask the same
/// wait for the same, so it is found once for all of these.
pub(crate) fn wait_reasons(engine: &Engine, ids: &[WorkloadId], now: Time) -> Vec<(WorkloadId, WaitReason)> {
    let mut pools: BTreeMap<&Name, Pool> = BTreeMap::new();
    let mut known: BTreeMap<(&Name, u32, u32, Option<Span>), WaitReason> = BTreeMap::new();
    let mut reasons = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(name) = engine.workload_pools.get(id) else { continue };
        let Some(original) = engine.pools.get(name) else { continue };
        let pool = pools.entry(name).or_insert_with(|| {
            let mut pool = original.clone();
            pool.mix.refresh(&pool.nodes);
            pool.refresh_shares();
            pool
        });
        let Some(slot) = pool.slot(*id) else { continue };
        let entry = pool.entry(slot);
        if !entry.workload.is_queued() {
            continue;
        }
        let asked = (name, entry.project, entry.class, entry.workload.spec.max_run);
        let reason = known.entry(asked).or_insert_with(|| pool.wait_reason(slot, now));
        reasons.push((*id, reason.clone()));
    }
    reasons
}

impl Pool {
    fn wait_reason(&mut self, slot: u32, now: Time) -> WaitReason {
        let class_id = self.entry(slot).class;
        let fits_now = self.class_fits(class_id);
        self.order_nodes_for(class_id);
        let class = &self.classes[class_id as usize];
        let fit = &self.shapes[class.shape as usize].1;
        let (needed, fits) = (u64::from(class.min), fit.most());
        if !class.possible {
            return WaitReason::Never { most: fit.most_when_empty(), needed };
        }
        let ask = self.ask(self.entry(slot).project, class);
        let (within_quota, within_share) = (self.within_quota(&ask), self.within_share(&ask));
        if let Some(barrier) = self.barrier(&ask) {
            return barrier;
        }
        if fits_now {
            return WaitReason::Ready;
        }
        // Of those in its project that ask the same, the first one takes.
        let mut firsts = self.queues[ask.project as usize].firsts().iter();
        let first = firsts.find(|first| first.is_ready_of(class_id)).map_or(slot, |first| first.key.3);
        match self.find_taking(first, now) {
            Ok(_) => WaitReason::Ready,
            Err(_) if self.may_pass(slot, now) => WaitReason::Ready,
            Err(verdict) => match self.retries.attempt {
                Some(until) if self.may_reclaim_quota(&self.reach(&ask, None)) => {
                    WaitReason::MinimumRun { until }
                }
                Some(until) if within_share => WaitReason::Patience { until },
                _ => WaitReason::NoCapacity { fits, needed, within_quota, within_share, verdict },
            },
        }
    }

    /// Who holds GPUs on nodes the workload may use, largest first.
    fn holders(&self, slot: u32) -> Vec<Holder> {
        let fit = &self.shapes[self.class_of(slot).shape as usize].1;
        let mut held: BTreeMap<u32, Gpus> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|_| fit.domain_of(at as u32).is_some()) else { continue };
            for task in node.tasks.iter().collect::<BTreeSet<_>>() {
                let places = self.entry(*task).workload.places().filter(|place| place.node == node.id);
                *held.entry(*task).or_default() += places.map(Place::gpus).sum();
            }
        }
        let mut holders: Vec<Holder> = held
            .into_iter()
            .map(|(task, gpus)| {
                let workload = &self.entry(task).workload;
                Holder { workload: workload.id, project: workload.spec.project, gpus }
            })
            .collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.gpus), holder.workload));
        holders
    }

    fn leaving_from(&self, places: &[Place]) -> Vec<WorkloadId> {
        let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
        let leaving = self
            .workloads()
            .filter(|workload| workload.leaving().iter().any(|left| nodes.contains(&left.node)));
        let mut ids: Vec<WorkloadId> = leaving.map(|workload| workload.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Workloads whose end makes room for all tasks: on the nodes with the least to end, smallest first.
    fn in_the_way(&self, slot: u32) -> Vec<WorkloadId> {
        let class = self.class_of(slot);
        let (shape, fit) = &self.shapes[class.shape as usize];
        let mut domains: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let (Some(node), Some(domain)) = (node, fit.domain_of(at as u32)) else { continue };
            if !node.ready || node.copies(shape, &node.empty()) == 0 {
                continue;
            }
            let mut free: Free = if shape.preemptible { node.decided.clone() } else { node.unreserved() };
            let mut tasks: Vec<u32> = node.tasks.clone();
            tasks.sort_unstable_by_key(|task| {
                let workload = &self.entry(*task).workload;
                (workload.places().map(Place::gpus).sum::<Gpus>(), workload.id)
            });
            tasks.dedup();
            // Each further copy on the node is a step of its own.
            let mut ended = Vec::new();
            let mut copies = node.copies(shape, &free);
            for _ in 0..copies {
                domains.entry(domain).or_default().push((0, node.id, at as u32, Vec::new()));
            }
            if class.min == 1 && copies == 0 {
                // One that ends alone is easier to ask for than several small ones of the same size.
                let alone = tasks.iter().filter(|task| {
                    let mut free = free.clone();
                    let here = self.entry(**task).workload.places().filter(|place| place.node == node.id);
                    here.for_each(|place| free.restore(place));
                    node.copies(shape, &free) > 0
                });
                let steps = alone.map(|task| (self.gpus_of(*task), node.id, at as u32, vec![*task]));
                domains.entry(domain).or_default().extend(steps);
            }
            for task in tasks {
                for place in self.entry(task).workload.places().filter(|place| place.node == node.id) {
                    free.restore(place);
                }
                ended.push(task);
                let now = node.copies(shape, &free);
                while copies < now {
                    let cost = ended.iter().map(|task| self.gpus_of(*task)).sum();
                    domains.entry(domain).or_default().push((cost, node.id, at as u32, ended.clone()));
                    copies += 1;
                }
            }
        }
        let enough = domains.into_values().filter_map(|mut steps| {
            steps.sort_by_key(|(cost, node, _, ended)| (*cost, ended.len(), *node));
            (steps.len() >= class.min as usize).then(|| {
                let chosen = &steps[..class.min as usize];
                let ended: BTreeSet<u32> = chosen.iter().flat_map(|step| step.3.iter().copied()).collect();
                (ended.iter().map(|task| self.gpus_of(*task)).sum::<u64>(), ended)
            })
        });
        let Some((_, ended)) = enough.min_by_key(|(cost, ended)| (*cost, ended.len())) else {
            return Vec::new();
        };
        ended.into_iter().map(|task| self.entry(task).workload.id).collect()
    }

    fn gpus_of(&self, slot: u32) -> u64 {
        self.entry(slot).workload.places().map(|place| place.gpus().0).sum()
    }

    /// Accounts on the way up whose limit or quota is too small for the workload, with what each must become.
    fn too_small(&self, slot: u32, reason: &WaitReason) -> Vec<(Account, Gpus)> {
        let ask = self.ask(self.entry(slot).project, self.class_of(slot));
        let path = self.tree.path(ask.project);
        path.filter_map(|(_, node)| {
            let needed = match reason {
                WaitReason::Limit { .. } => {
                    let needed = node.used.amounts[GPU] + node.extras + ask.amounts[GPU];
                    return node.limit.filter(|limit| needed > *limit).map(|_| (node.account, Gpus(needed)));
                }
                WaitReason::NonPreemptibleQuota { .. } => {
                    node.non_preemptible.amounts[GPU] + ask.amounts[GPU]
                }
                _ => node.used.amounts[GPU] + ask.amounts[GPU],
            };
            (node.has_quota && needed > node.quota).then_some((node.account, Gpus(needed)))
        })
        .collect()
    }
}

/// Tries ever larger remedies on copies of the engine until the workload starts.
fn find_remedy(engine: &Engine, id: WorkloadId, reason: &WaitReason, now: Time) -> Remedy {
    let mut changed = engine.clone();
    let Some((limits, quotas)) = changed.grant(id, reason.clone(), now) else { return Remedy::NotFound };
    let mut ended: BTreeSet<WorkloadId> = BTreeSet::new();
    for _ in 0..REMEDY_ROUNDS {
        let Some(outcome) = try_remedy(&changed, id, &ended, now) else { return Remedy::NotFound };
        if outcome.started {
            let ended = leave_out_unneeded(&changed, id, ended, now);
            let limits = limits.into_iter().map(|(account, _)| account).collect::<Vec<_>>();
            return match (limits.is_empty(), quotas.is_empty()) {
                (true, true) => Remedy::End(ended),
                (false, true) => Remedy::LiftLimits(limits, ended),
                (true, false) => Remedy::RaiseQuota(quotas, ended),
                (false, false) => Remedy::LiftAndRaise(limits, quotas, ended),
            };
        }
        let before = ended.len();
        ended.extend(outcome.next);
        if ended.len() == before {
            return Remedy::NotFound;
        }
    }
    Remedy::NotFound
}

/// Ends nobody whose end is not needed. Who was needed beside another may not be without it, so after each that is left
/// out all are asked again, within bounds; those who came last are the likeliest.
fn leave_out_unneeded(
    engine: &Engine,
    id: WorkloadId,
    mut ended: BTreeSet<WorkloadId>,
    now: Time,
) -> Vec<WorkloadId> {
    let mut rounds = 0..REMEDY_ROUNDS;
    let starts_without = |ended: &BTreeSet<WorkloadId>, one: WorkloadId| {
        let others = ended.iter().copied().filter(|other| *other != one).collect();
        try_remedy(engine, id, &others, now).is_some_and(|outcome| outcome.started)
    };
    while let Some(one) =
        ended.iter().rev().copied().find(|one| rounds.next().is_some() && starts_without(&ended, *one))
    {
        ended.remove(&one);
    }
    ended.into_iter().collect()
}

/// Accounts and what each must become.
type Grants = Vec<(Account, Gpus)>;

impl Engine {
    /// Lifts every limit and raises every quota of GPUs that bars a workload, if that can be; behind a limit there can be
    /// a quota. What still bars it then can only be used less.
    fn grant(&mut self, id: WorkloadId, mut reason: WaitReason, now: Time) -> Option<(Grants, Grants)> {
        let name = self.workload_pools[&id].clone();
        let (mut limits, mut quotas) = (Grants::new(), Grants::new());
        loop {
            let lifts = matches!(reason, WaitReason::Limit { .. });
            let granted = match &reason {
                WaitReason::Limit { .. } => &mut limits,
                WaitReason::NonPreemptibleQuota { .. } | WaitReason::NoBorrowing { .. } => &mut quotas,
                _ => return Some((limits, quotas)),
            };
            let pool = &self.pools[&name];
            let slot = pool.slot(id).expect("was looked up before");
            let too_small = pool.too_small(slot, &reason);
            if too_small.is_empty() || !granted.is_empty() {
                return Some((limits, quotas));
            }
            granted.clone_from(&too_small);
            for (account, amount) in too_small {
                let change = self.entitlement_change(account, &name, |entitlement| {
                    if lifts { entitlement.limit = None } else { entitlement.quota = Some(amount) }
                });
                self.apply(&change).ok()?;
            }
            let pool = self.pools.get_mut(&name).expect("a workload's pool is there");
            pool.refresh_shares();
            reason = pool.wait_reason(slot, now);
        }
    }
}

struct Outcome {
    started: bool,
    /// Who stood in the way: those who got there first, or who still hold what is needed.
    next: Vec<WorkloadId>,
}

fn try_remedy(engine: &Engine, id: WorkloadId, ended: &BTreeSet<WorkloadId>, now: Time) -> Option<Outcome> {
    let mut trial = engine.clone();
    for victim in ended {
        let leaving: Vec<u32> = {
            trial.apply(&Change::Cancelled { workload: *victim, at: now }).ok()?;
            trial.workload(*victim)?.leaving().iter().map(|place| place.rank).collect()
        };
        for rank in leaving {
            trial.apply(&Change::Stopped { workload: *victim, rank, at: now }).ok()?;
        }
    }
    let plan = trial.plan(now);
    if trial.workload(id)?.places().next().is_some() {
        return Some(Outcome { started: true, next: Vec::new() });
    }
    // Whoever started instead was first in order; with them gone too, the workload comes nearer.
    let mut next: Vec<WorkloadId> = plan
        .actions
        .iter()
        .map(berth_types::Action::workload)
        .filter(|other| {
            *other != id && trial.workload(*other).is_some_and(|other| other.places().next().is_some())
        })
        .filter(|other| !ended.contains(other))
        .collect();
    if next.is_empty() {
        let pool = trial.pools.get(trial.workload_pools.get(&id)?)?;
        next = pool.in_the_way(pool.slot(id)?);
    }
    Some(Outcome { started: false, next })
}

impl Engine {
    fn entitlement_change(
        &self,
        account: Account,
        pool: &str,
        change: impl FnOnce(&mut Entitlement),
    ) -> Change {
        match account {
            Account::Project(id) => {
                let mut project = self.organisation.projects[&id].clone();
                change(project.entitlements.entry(pool.into()).or_default());
                Change::ProjectSet(project)
            }
            Account::Department(id) => {
                let mut department = self.organisation.departments[&id].clone();
                change(department.entitlements.entry(pool.into()).or_default());
                Change::DepartmentSet(department)
            }
        }
    }
}
