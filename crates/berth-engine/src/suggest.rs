//! Changes of a request with which it would start now.
//!
//! Candidates are read off the nodes and accounts; then each is planned on a copy of the engine, as a new submission in place
//! of the waiting one. Only what started is named. Changes that keep what the work can do come before those that give it
//! less.

use crate::{
    Engine,
    blockers::{Given, Room},
    node::View,
    pool::Pool,
    shape::Shape,
    tree::{GPU, Node},
};
use berth_types::{
    Blocker, Bytes, Change, Cpu, GpuRequest, Gpus, Kind, Name, RequestChange, Share, Suggestion, Tasks, Time,
    WaitDetails, Workload, WorkloadId, WorkloadSpec,
};
use std::{
    collections::BTreeSet,
    num::{NonZeroU8, NonZeroU64},
};

/// Changes that are named.
const SUGGESTIONS_MAX: usize = 3;
/// Candidates of one kind that are tried; the first that starts is named.
const TRIES_MAX: usize = 4;
/// What is free in one of these views, some rule might give.
const VIEWS: [View; 4] = [View::Free, View::Extras, View::Quota, View::Share];
/// The submission that is tried. A real one would have a larger id than all others too.
const TRIED: WorkloadId = WorkloadId(u64::MAX);
/// Fractions of a GPU are suggested in steps of a hundredth.
const FRACTION_STEP: u64 = Gpus::SCALE / 100;

/// Changes that would start a queued workload now, cheapest first.
pub(crate) fn suggest(
    engine: &Engine,
    id: WorkloadId,
    details: &WaitDetails,
    now: Time,
    respecify: &impl Fn(&RequestChange) -> Option<WorkloadSpec>,
) -> Vec<Suggestion> {
    let Some(workload) = engine.workload(id).filter(|workload| workload.is_queued()) else {
        return Vec::new();
    };
    let kinds = candidates(engine, workload, details);
    let mut without = engine.clone();
    let gone = [Change::Cancelled { workload: id, at: now }, Change::Forgotten(id)];
    if gone.iter().any(|change| without.apply(change).is_err()) {
        return Vec::new();
    }
    let mut what_ifs_left = Engine::WHAT_IFS_MAX;
    let mut found = Vec::new();
    for kind in kinds {
        for change in kind.into_iter().take(TRIES_MAX) {
            if what_ifs_left == 0 || found.len() == SUGGESTIONS_MAX {
                return found;
            }
            let Some(spec) = respecify(&change) else { continue };
            what_ifs_left -= 1;
            if let Some(evicts) = evictions_to_start(&without, spec, now) {
                found.push(Suggestion { change, evicts });
                break;
            }
        }
    }
    found
}

/// Submits a request on a copy of the engine. The workloads that would leave for it, if it gets its places in the next plan.
fn evictions_to_start(engine: &Engine, spec: WorkloadSpec, now: Time) -> Option<Vec<WorkloadId>> {
    let mut trial = engine.clone();
    trial.apply(&Change::Submitted(Workload::submitted(TRIED, spec, now))).ok()?;
    let plan = trial.plan(now);
    trial.workload(TRIED)?.places().next()?;
    Some(plan.displaced_by(TRIED).into_iter().collect())
}

/// Candidates by kind, cheapest kind first; inside a kind the smallest change first.
fn candidates(engine: &Engine, workload: &Workload, details: &WaitDetails) -> Vec<Vec<RequestChange>> {
    let spec = &workload.spec;
    let mut pool = engine.pools[&spec.pool].clone();
    pool.refresh_shares();
    let slot = pool.slot(workload.id).expect("a queued workload is in its pool");
    let class = pool.class_of(slot);
    let ((shape, fit), project) = (&pool.shapes[class.shape as usize], pool.entry(slot).project);
    let any_node = (!spec.selector.0.is_empty()).then_some(RequestChange::AnyNode);
    let preemptible = (!spec.preemptible).then_some(RequestChange::Preemptible);
    vec![
        pool.other_models(shape),
        other_pools(engine, spec),
        any_node.into_iter().collect(),
        less_beside_gpus(details),
        preemptible.into_iter().collect(),
        pool.fewer_tasks(shape, spec, project, fit.charge),
        pool.split(shape, spec),
        pool.fewer_gpus(shape, spec, project),
        pool.smaller_fractions(shape, spec, project),
    ]
}

/// Pools that are not the workload's, those with most free GPUs first.
fn other_pools(engine: &Engine, spec: &WorkloadSpec) -> Vec<RequestChange> {
    let others = engine
        .pools
        .values()
        .filter(|pool| pool.name != spec.pool && pool.nodes.iter().flatten().next().is_some());
    let mut others: Vec<&Pool> = others.collect();
    others.sort_by_key(|pool| (std::cmp::Reverse(pool.free_gpus), pool.name.clone()));
    others.into_iter().map(|pool| RequestChange::Pool(pool.name.clone())).collect()
}

/// Less CPU or memory, where that is what blocks: as much as there is, in whole cores and GiB.
fn less_beside_gpus(details: &WaitDetails) -> Vec<RequestChange> {
    let change = |blocker: &Blocker| match blocker {
        Blocker::NodeCpu { asked, largest } | Blocker::CpuInUse { asked, largest } => {
            let whole = Cpu(largest.0 / 1000 * 1000);
            (whole > Cpu::ZERO && whole < *asked).then_some(RequestChange::Cpu(whole))
        }
        Blocker::NodeMemory { asked, largest } | Blocker::MemoryInUse { asked, largest } => {
            let whole = Bytes(largest.0 >> 30 << 30);
            (whole > Bytes::ZERO && whole < *asked).then_some(RequestChange::Memory(whole))
        }
        _ => None,
    };
    details.blockers.iter().filter_map(change).collect()
}

impl Pool {
    /// Models that the request does not accept, those with most free GPUs first.
    fn other_models(&self, shape: &Shape) -> Vec<RequestChange> {
        if shape.request.models.is_empty() {
            return Vec::new();
        }
        let mut free: std::collections::BTreeMap<&Name, u64> = Default::default();
        let nodes = self.nodes.iter().flatten().filter(|node| node.ready && shape.selects(&node.labels));
        for node in nodes {
            for (device, free_of_it) in node.devices.iter().zip(node.decided.devices()) {
                *free.entry(&device.model).or_default() += u64::from(*free_of_it);
            }
        }
        let mut models: Vec<(&Name, u64)> =
            free.into_iter().filter(|(model, _)| !shape.request.accepts_model(model)).collect();
        models.sort_by_key(|(model, free)| (std::cmp::Reverse(*free), *model));
        models.into_iter().map(|(model, _)| RequestChange::Model(model.clone())).collect()
    }

    /// Whether so many tasks that each ask for these GPUs fit one of the views.
    fn fits_a_view(&self, shape: &Shape, gpu: GpuRequest, tasks: u64) -> bool {
        VIEWS.into_iter().any(|view| self.fits_view(shape, gpu, tasks, view))
    }

    fn fits_view(&self, shape: &Shape, gpu: GpuRequest, tasks: u64, view: View) -> bool {
        let mut asked = shape.clone();
        asked.request.gpu = gpu;
        Room::new(self, &asked, Given::View(view), &[]).most(tasks) >= tasks
    }

    /// GPUs that the accounts of a project leave by their quotas, shares and limits: how much more each amount could be.
    fn rooms(&self, project: u32) -> Vec<u64> {
        let of_node = |node: &Node| {
            let used = node.used.amounts[GPU];
            let limit = node.limit.map(|limit| limit.saturating_sub(used));
            let quotas = node.has_quota.then(|| {
                [
                    node.quota.saturating_sub(used),
                    node.quota.saturating_sub(node.non_preemptible.amounts[GPU]),
                ]
            });
            let share = node.share.saturating_sub(used);
            limit.into_iter().chain(quotas.into_iter().flatten()).chain([share])
        };
        self.tree.path(project).flat_map(|(_, node)| of_node(node)).collect()
    }

    /// Fewer tasks at the start of a gang, most first.
    fn fewer_tasks(
        &self,
        shape: &Shape,
        spec: &WorkloadSpec,
        project: u32,
        charge: u64,
    ) -> Vec<RequestChange> {
        let min = spec.tasks.min();
        if min == 1 {
            return Vec::new();
        }
        let fitting =
            VIEWS.into_iter().map(|view| Room::new(self, shape, Given::View(view), &[]).most(u64::from(min)));
        let rooms = self.rooms(project).into_iter().filter_map(|room| room.checked_div(charge));
        let counts: BTreeSet<u32> = fitting
            .chain(rooms)
            .filter_map(|count| u32::try_from(count).ok())
            .filter(|count| (1..min).contains(count))
            .collect();
        counts.into_iter().rev().map(RequestChange::MinTasks).collect()
    }

    /// The same GPUs in more tasks, fewest tasks first.
    fn split(&self, shape: &Shape, spec: &WorkloadSpec) -> Vec<RequestChange> {
        let GpuRequest::Whole(gpus) = spec.request.gpu else { return Vec::new() };
        if !matches!(spec.kind, Kind::Train | Kind::Distributed) || spec.tasks.extras() > 0 {
            return Vec::new();
        }
        let parts = (1..gpus.get()).rev().filter(|part| gpus.get().is_multiple_of(*part));
        let changes = parts.filter_map(|part| {
            let tasks = spec
                .tasks
                .min()
                .checked_mul(u32::from(gpus.get() / part))
                .filter(|tasks| *tasks <= Tasks::MAX)?;
            let gpus = NonZeroU8::new(part)?;
            let fits = self.fits_a_view(shape, GpuRequest::Whole(gpus), u64::from(tasks));
            fits.then_some(RequestChange::Split { tasks, gpus })
        });
        changes.collect()
    }

    /// Fewer whole GPUs in each task, most first.
    fn fewer_gpus(&self, shape: &Shape, spec: &WorkloadSpec, project: u32) -> Vec<RequestChange> {
        let GpuRequest::Whole(gpus) = spec.request.gpu else { return Vec::new() };
        let tasks = u64::from(spec.tasks.min());
        let fits = |count: u8, view: View| {
            NonZeroU8::new(count)
                .is_some_and(|count| self.fits_view(shape, GpuRequest::Whole(count), tasks, view))
        };
        // The more GPUs a task asks for, the fewer fit.
        let fitting = VIEWS.into_iter().map(|view| {
            let (mut low, mut high) = (0, gpus.get() - 1);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if fits(middle, view) { low = middle } else { high = middle - 1 }
            }
            u64::from(low)
        });
        let rooms = self.rooms(project).into_iter().map(|room| room / tasks / Gpus::SCALE);
        let counts: BTreeSet<u8> = fitting
            .chain(rooms)
            .filter_map(|count| u8::try_from(count).ok())
            .filter(|count| (1..gpus.get()).contains(count))
            .collect();
        let counts = counts.into_iter().rev().filter_map(NonZeroU8::new);
        counts.map(|count| RequestChange::Gpus(GpuRequest::Whole(count))).collect()
    }

    /// A smaller part of one GPU, largest first.
    fn smaller_fractions(&self, shape: &Shape, spec: &WorkloadSpec, project: u32) -> Vec<RequestChange> {
        if spec.request.gpu.devices() != 1 || spec.tasks.min() != 1 {
            return Vec::new();
        }
        let nodes = self.nodes.iter().flatten().filter(|node| node.ready && shape.selects(&node.labels));
        let devices = nodes.flat_map(|node| node.devices.iter().zip(node.decided.devices()));
        let largest = devices
            .filter(|(device, _)| shape.accepts(device))
            .max_by_key(|(device, free)| (**free, device.memory));
        let Some((device, free)) = largest else { return Vec::new() };
        if let GpuRequest::Memory { bytes, devices } = spec.request.gpu {
            let free = Bytes(
                (u128::from(device.memory.0) * u128::from(*free) / u128::from(Gpus::SCALE)) as u64 >> 30
                    << 30,
            );
            let fewer = NonZeroU64::new(free.0).filter(|free| *free < bytes);
            return fewer
                .map(|bytes| RequestChange::Gpus(GpuRequest::Memory { bytes, devices }))
                .into_iter()
                .collect();
        }
        let asked = spec.request.gpu.charge_on(Bytes(1)).unwrap_or(Gpus::ONE).0;
        let rooms = self.rooms(project).into_iter().chain([u64::from(*free), Gpus::SCALE / 2]);
        let shares: BTreeSet<u64> = rooms
            .map(|room| room / FRACTION_STEP * FRACTION_STEP)
            .filter(|share| (FRACTION_STEP..asked.min(Gpus::SCALE)).contains(share))
            .collect();
        let shares = shares.into_iter().rev().filter_map(|share| Share::from_millionths(share as u32));
        shares
            .map(|share| RequestChange::Gpus(GpuRequest::Fraction { share, devices: NonZeroU8::MIN }))
            .collect()
    }
}
