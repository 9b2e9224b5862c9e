//! What is known, as the API shows it.

use super::{
    NOTEBOOK_TOKEN, Parked, Platform, Record,
    facts::TaskReport,
    figures::{DeviceFigures, Standing, standing},
    record::Stop,
};
use crate::samples::Measured;
use berth_api::{
    CALLER_VARIABLES, CoresAmount, DeviceUse, DeviceView, Ended, Eviction, GpuAmount, KindName, MemoryAmount,
    Percent, ProgressView, RunningOn, Status, TaskView, UtilisationSource, WorkloadRequest,
};
use berth_store::{FinishedWorkload, Json};
use berth_types::{
    Account, AfterStop, Bytes, Cpu, Gpus, Name, NodeId, Outcome, Phase, Place, Selector, Share, Span, Time,
    Workload, WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Time left is told from the pace of at least so long.
const PACE_SECS_MIN: u64 = 30;

impl Platform {
    /// An unfinished workload. Values of its environment are left out of lists.
    pub(crate) fn workload_view(&self, id: WorkloadId, whole: bool) -> Option<berth_api::Workload> {
        let record = self.records.get(&id)?;
        let workload = match &record.parked {
            Some((_, workload)) => workload,
            None => self.engine.workload(id)?,
        };
        let mut request = record.request.clone();
        if request.notebook {
            // Whoever may open it gets in without, and nobody else should.
            request.environment.remove(NOTEBOOK_TOKEN);
        }
        if !whole {
            hide_environment(&mut request);
        }
        let allocated: Gpus = workload.places().map(Place::gpus).sum();
        let tasks = record.tasks.iter().map(|(rank, task)| self.task_view(*rank, task));
        let held = match &workload.phase {
            Phase::Held { places, .. } => places.as_slice(),
            _ => &[],
        };
        let held = held.iter().filter(|place| !record.tasks.contains_key(&place.rank));
        let tasks = tasks.chain(held.map(|place| self.held_view(place)));
        Some(berth_api::Workload {
            id: id.0,
            name: record.name.clone(),
            project: record.request.project.clone(),
            user: record.user.clone(),
            kind: record.request.kind,
            status: status(record, workload),
            message: record.message.clone().or_else(|| Some(record.notice.as_ref()?.1.clone())),
            priority: workload.spec.priority,
            preemptible: workload.spec.preemptible,
            submitted_at: record.submitted.into(),
            started_at: record.first_started.map(Into::into),
            running_since: record.run_started.filter(|_| workload.is_running()).map(Into::into),
            ended: None,
            // A cluster does not tell how long earlier runs were.
            ran_secs: (!self.project_volumes).then(|| record.ran.as_secs()),
            indices: if whole { record.index_views() } else { Vec::new() },
            gpus_requested: GpuAmount(self.asked(workload)),
            gpus_allocated: GpuAmount(allocated),
            workers_min: workload.spec.tasks.min(),
            workers_max: workload.spec.tasks.max(),
            tasks: tasks.collect(),
            runs: record.runs,
            failures: record.failures,
            preemptions: record.preemptions,
            evictions: record.evictions.iter().map(eviction).collect(),
            progress: completions(record)
                .or_else(|| record.progress.as_ref().map(|report| progress(report, record.run_started))),
            checkpoint_at: workload.checkpoint.map(Into::into),
            idle_since: workload.idle_since.map(Into::into),
            urls: self.urls(record),
            request,
        })
    }

    /// GPUs of the minimum. Memory is counted on the smallest device it may use, as the engine does while it waits.
    pub(super) fn asked(&self, workload: &Workload) -> Gpus {
        let request = &workload.spec.request;
        let devices = self.engine.nodes().values().filter(|node| node.pool() == workload.spec.pool);
        let devices =
            devices.flat_map(|node| &node.devices).filter(|device| request.accepts_model(&device.model));
        let charge = match request.gpu {
            berth_types::GpuRequest::Memory { .. } => {
                devices.filter_map(|device| request.gpu.charge_on(device.memory)).max().unwrap_or(Gpus::ZERO)
            }
            other => other.charge_on(Bytes(1)).unwrap_or(Gpus::ZERO),
        };
        charge.times(u64::from(workload.spec.tasks.min()))
    }

    fn task_view(&self, rank: u32, task: &super::TaskRecord) -> TaskView {
        let status = match (task.stopping, task.started) {
            (true, _) => Status::Stopping,
            (false, Some(_)) => Status::Running,
            (false, None) => Status::Starting,
        };
        TaskView {
            status,
            extra: task.extra,
            pid: task.pid,
            started_at: task.started.map(Into::into),
            ..TaskView { rank, ..self.held_view(&task.place) }
        }
    }

    fn held_view(&self, place: &Place) -> TaskView {
        let node = self.engine.nodes().get(&place.node);
        let fraction = place.devices.first().filter(|taken| taken.share != Share::WHOLE);
        let gpu_memory = fraction.zip(node).and_then(|(taken, node)| {
            let device = node.devices.get(usize::from(taken.device))?;
            Some(MemoryAmount(taken.share.memory(device.memory)))
        });
        TaskView {
            rank: place.rank,
            node: node.map_or_else(String::new, |node| node.name.clone()),
            devices: place.devices.iter().map(|taken| taken.device).collect(),
            gpus: GpuAmount(place.gpus()),
            gpu_memory,
            status: Status::Starting,
            extra: false,
            pid: None,
            started_at: None,
        }
    }

    /// Projects with what they have in a pool, by name.
    pub(crate) fn project_views(&self, pool: &Name) -> Vec<berth_api::Project> {
        let shares: BTreeMap<Account, Gpus> = self.engine.fair_shares(pool).into_iter().collect();
        let mut views: BTreeMap<_, _> = BTreeMap::new();
        for (name, id) in &self.projects {
            let project = &self.engine.projects()[id];
            let view = berth_api::Project {
                name: name.clone(),
                created_at: self.project_created.get(id).map(|at| (*at).into()),
                settings: self.project_settings(project, pool),
                allocated: GpuAmount::default(),
                allocated_non_preemptible: GpuAmount::default(),
                fair_share: GpuAmount(shares.get(&Account::Project(*id)).copied().unwrap_or(Gpus::ZERO)),
                waiting: GpuAmount::default(),
                running_count: 0,
                waiting_count: 0,
            };
            views.insert(*id, view);
        }
        for (record, workload) in self.standing_workloads() {
            if workload.spec.pool != *pool {
                continue;
            }
            let Some(view) = views.get_mut(&workload.spec.project) else { continue };
            // What is parked has nothing, whatever it had when it was.
            let is_parked = record.is_some_and(|record| record.parked.is_some());
            let gpus: Gpus = workload.places().map(Place::gpus).filter(|_| !is_parked).sum();
            view.allocated.0 += gpus;
            match standing(record, workload) {
                Standing::Pending => {
                    view.waiting_count += 1;
                    view.waiting.0 += self.asked(workload);
                }
                Standing::Running => view.running_count += 1,
                Standing::Suspended | Standing::Ending => {}
            }
            if !workload.spec.preemptible {
                view.allocated_non_preemptible.0 += gpus;
            }
        }
        let mut views: Vec<_> = views.into_values().collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    fn project_settings(&self, project: &berth_types::Project, pool: &Name) -> berth_api::ProjectSettings {
        let entitlement = project.entitlements.get(pool).cloned().unwrap_or_default();
        let department = project.department.and_then(|id| self.engine.departments().get(&id));
        let secs = |span: Option<Span>| span.map(Span::as_secs);
        let models =
            entitlement.model_quotas.iter().map(|(model, quota)| (model.to_string(), GpuAmount(*quota)));
        berth_api::ProjectSettings {
            name: Some(project.name.clone()),
            department: department.map(|department| department.name.clone()),
            node_pool: Some(pool.to_string()),
            quota: Some(GpuAmount(entitlement.quota.unwrap_or(Gpus::ZERO))),
            model_quotas: (!entitlement.model_quotas.is_empty()).then(|| models.collect()),
            cpu_quota: entitlement.cpu_quota.map(CoresAmount),
            memory_quota: entitlement.memory_quota.map(MemoryAmount),
            limit: entitlement.limit.map(GpuAmount),
            weight: entitlement.weight.map(GpuAmount),
            rank: (entitlement.rank != 0).then_some(entitlement.rank),
            train_nodes: labels(&project.train_nodes),
            interactive_nodes: labels(&project.interactive_nodes),
            interactive_limit_secs: secs(project.interactive_time_limit),
            time_limit_secs: secs(project.time_limit),
            idle_limit_secs: secs(project.idle_limit),
            min_run_secs: (!project.min_run.is_zero()).then(|| project.min_run.as_secs()),
            allow_host_network: project.allow_host_network.then_some(true),
            allow_privileged: project.allow_privileged.then_some(true),
            unset: Vec::new(),
        }
    }

    /// Departments with what they have in a pool, by name.
    pub(crate) fn department_views(&self, pool: &Name) -> Vec<berth_api::Department> {
        let shares: BTreeMap<Account, Gpus> = self.engine.fair_shares(pool).into_iter().collect();
        let projects = self.project_views(pool);
        let is_below = |project: &berth_api::Project, id| {
            let project = self.projects.get(&project.name).map(|id| &self.engine.projects()[id]);
            let mut above = project.and_then(|project| project.department);
            std::iter::from_fn(|| {
                let at = above?;
                above = self.engine.departments().get(&at).and_then(|department| department.parent);
                Some(at)
            })
            .any(|at| at == id)
        };
        let view = |(name, id): (&String, &berth_types::DepartmentId)| {
            let department = &self.engine.departments()[id];
            let entitlement = department.entitlements.get(pool).cloned().unwrap_or_default();
            let parent = department.parent.and_then(|parent| self.engine.departments().get(&parent));
            let below: Vec<_> = projects.iter().filter(|project| is_below(project, *id)).collect();
            berth_api::Department {
                name: name.clone(),
                settings: berth_api::DepartmentSettings {
                    name: Some(name.clone()),
                    parent: parent.map(|parent| parent.name.clone()),
                    node_pool: Some(pool.to_string()),
                    quota: entitlement.quota.map(GpuAmount),
                    limit: entitlement.limit.map(GpuAmount),
                    weight: entitlement.weight.map(GpuAmount),
                    rank: (entitlement.rank != 0).then_some(entitlement.rank),
                    unset: Vec::new(),
                },
                projects: below.iter().map(|project| project.name.clone()).collect(),
                allocated: GpuAmount(below.iter().map(|project| project.allocated.0).sum()),
                projects_quota: GpuAmount(
                    below.iter().filter_map(|project| project.settings.quota).map(|quota| quota.0).sum(),
                ),
                fair_share: GpuAmount(shares.get(&Account::Department(*id)).copied().unwrap_or(Gpus::ZERO)),
            }
        };
        self.departments.iter().map(view).collect()
    }

    /// Nodes, by name, with what was measured of their devices.
    pub(crate) fn node_views(&self, measured: &[Measured]) -> Vec<berth_api::Node> {
        let mut on: BTreeMap<NodeId, Vec<&Workload>> = BTreeMap::new();
        for workload in self.engine.workloads() {
            let nodes = workload.places().chain(workload.leaving()).map(|place| place.node);
            for node in nodes.collect::<BTreeSet<_>>() {
                on.entry(node).or_default().push(workload);
            }
        }
        let figures = self.device_figures(measured);
        let view = |id: &NodeId| {
            self.node_view_of(*id, on.get(id).into_iter().flatten().copied(), figures.get(id)?, measured)
        };
        self.nodes.values().filter_map(view).collect()
    }

    /// A node, with what is on it.
    pub(crate) fn node_view(&self, id: NodeId, measured: &[Measured]) -> Option<berth_api::Node> {
        let figures = self.device_figures(measured);
        self.node_view_of(id, self.engine.workloads(), figures.get(&id)?, measured)
    }

    /// A node, with what is on it of these workloads.
    fn node_view_of<'a>(
        &self,
        id: NodeId,
        candidates: impl Iterator<Item = &'a Workload>,
        figures: &[DeviceFigures],
        measured: &[Measured],
    ) -> Option<berth_api::Node> {
        let node = self.engine.nodes().get(&id)?;
        let mut devices: Vec<DeviceView> = Vec::new();
        for (index, (device, figures)) in node.devices.iter().zip(figures).enumerate() {
            let memory_used = measured.get(index).map(|gpu| MemoryAmount(gpu.memory_used));
            let usage = match figures.utilisation() {
                (Some(busy), source) => Some(DeviceUse {
                    utilisation: (busy / Gpus::SCALE) as u8,
                    memory_used,
                    source: if source == UtilisationSource::Measured { "nvml" } else { "reported" }.into(),
                }),
                (None, _) => None,
            };
            devices.push(DeviceView {
                index: index as u8,
                model: device.model.to_string(),
                memory: MemoryAmount(device.memory),
                allocated: GpuAmount(figures.allocated),
                workloads: Vec::new(),
                usage,
            });
        }
        let (mut cpu, mut memory, mut gpus) = (Cpu::ZERO, Bytes::ZERO, Gpus::ZERO);
        let mut workloads = Vec::new();
        for workload in candidates {
            let mut here = workload.places().filter(|place| place.node == id).peekable();
            if here.peek().is_none() && !workload.leaving().iter().any(|place| place.node == id) {
                continue;
            }
            let name = self.full_name(workload.id);
            for place in here {
                cpu += place.cpu;
                memory += place.memory;
                gpus += place.gpus();
                for taken in &place.devices {
                    let Some(device) = devices.get_mut(usize::from(taken.device)) else { continue };
                    let share = GpuAmount(taken.share.gpus());
                    device.workloads.push(RunningOn { workload: name.clone(), share });
                }
            }
            workloads.push(name);
        }
        workloads.sort();
        let (utilisation, source) = super::figures::mean(figures.iter());
        Some(berth_api::Node {
            name: node.name.clone(),
            state: self.node_state(id),
            pool: node.pool().to_string(),
            labels: node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            devices,
            gpus_allocated: GpuAmount(gpus),
            cpu: CoresAmount(node.cpu),
            cpu_allocated: CoresAmount(cpu),
            memory: MemoryAmount(node.memory),
            memory_allocated: MemoryAmount(memory),
            workloads,
            utilisation: utilisation.map(|busy| Percent(Gpus(busy))),
            utilisation_source: Some(source),
        })
    }
}

fn labels(selector: &Selector) -> Option<BTreeMap<String, Vec<String>>> {
    let accepted = selector
        .0
        .iter()
        .map(|(key, values)| (key.to_string(), values.iter().map(|value| value.to_string()).collect()));
    (!selector.0.is_empty()).then(|| accepted.collect())
}

/// Secrets are often in the environment; whoever lists workloads need not see them. What leads to programs is none, and a clone
/// needs it.
fn hide_environment(request: &mut WorkloadRequest) {
    let hidden =
        request.environment.iter_mut().filter(|(name, _)| !CALLER_VARIABLES.contains(&name.as_str()));
    hidden.for_each(|(_, value)| value.clear());
}

pub(super) fn status(record: &Record, workload: &Workload) -> Status {
    match record.parked {
        Some((Parked::Suspended { .. }, _)) => return Status::Suspended,
        Some((Parked::BackOff { .. }, _)) if record.failures > 0 => return Status::BackOff,
        Some((Parked::BackOff { .. } | Parked::Refused, _)) => return Status::Pending,
        None => {}
    }
    match workload.phase {
        Phase::Queued { .. } => Status::Pending,
        Phase::Held { ref leaving, .. } if !leaving.is_empty() => Status::Stopping,
        Phase::Held { .. } | Phase::Running { confirmed: false, .. } => Status::Starting,
        Phase::Running { .. } => Status::Running,
        Phase::Stopping { then: AfterStop::Requeue, .. } => Status::Stopping,
        Phase::Stopping { .. }
            if matches!(record.stop, Some(Stop::Suspended | Stop::Idle | Stop::Drained)) =>
        {
            Status::Stopping
        }
        Phase::Stopping { .. } => Status::Terminating,
        Phase::Finished { outcome, .. } => final_status(record, outcome),
    }
}

fn final_status(record: &Record, outcome: Outcome) -> Status {
    match (record.stop, outcome) {
        (Some(Stop::Deleted), _) | (_, Outcome::Cancelled) => Status::Deleted,
        (_, Outcome::Succeeded) => Status::Succeeded,
        (_, Outcome::Failed) => Status::Failed,
        (_, Outcome::TimedOut) => Status::TimedOut,
    }
}

fn eviction(record: &super::record::EvictionRecord) -> Eviction {
    Eviction {
        at: record.at.into(),
        rule: record.rule.clone(),
        winner: record.winner.clone(),
        lost_gpu_secs: record.lost / 1_000,
    }
}

pub(super) fn progress(report: &TaskReport, started: Option<Time>) -> ProgressView {
    let percent = report.percent();
    // Without its own word, time left follows from the pace since this run began.
    let left = report.left.map(Span::as_secs).or_else(|| {
        let (percent, ran) = (u64::from(percent?), report.at.since(started?).as_secs());
        // The pace of a moment says nothing.
        (percent > 0 && ran >= PACE_SECS_MIN).then(|| ran * (100 - percent) / percent)
    });
    ProgressView {
        percent,
        epoch: report.epoch,
        epochs: report.epochs,
        step: report.step,
        steps: report.steps,
        loss: report.loss.clone(),
        accuracy: report.accuracy.clone(),
        throughput: report.throughput.clone(),
        left_secs: left,
        metrics: report.metrics.clone(),
        utilisation: report.utilisation,
        at: Some(report.at.into()),
    }
}

/// How many of its completions are done, of a workload that has them.
fn completions(record: &Record) -> Option<ProgressView> {
    Some(completions_shown(record.done.count(), record.request.completions?))
}

/// How far a workload is of whose completions so many are done.
pub fn completions_shown(done: u32, all: u32) -> ProgressView {
    ProgressView {
        percent: Some((u64::from(done.min(all)) * 100 / u64::from(all.max(1))) as u8),
        step: Some(u64::from(done)),
        steps: Some(u64::from(all)),
        ..ProgressView::default()
    }
}

/// A workload that is over, as it is kept.
pub(super) fn finished(
    record: &Record,
    mut view: berth_api::Workload,
    outcome: Outcome,
    at: Time,
) -> FinishedWorkload {
    view.status = final_status(record, outcome);
    view.ended = Some(Ended { at: at.into(), exit_code: record.exit_code, signal: record.signal });
    view.gpus_allocated = GpuAmount::default();
    view.idle_since = None;
    view.urls.clear();
    // What was last heard of it may be old; nothing is left to do in any case.
    if let Some(progress) = &mut view.progress {
        progress.left_secs = None;
        progress.utilisation = None;
    }
    let phase = view.status.to_string();
    FinishedWorkload {
        id: record.id,
        name: record.name.clone(),
        project: record.project,
        user: record.user.clone(),
        kind: kind_text(record.request.kind).into(),
        phase,
        hidden: view.status == Status::Deleted,
        submitted: record.submitted,
        started: record.first_started,
        ended: at,
        document: Json::of(&view).expect("an answer of the API is JSON"),
    }
}

pub(crate) fn kind_text(kind: KindName) -> &'static str {
    match kind {
        KindName::Train => "train",
        KindName::Interactive => "interactive",
        KindName::Distributed => "distributed",
        KindName::Inference => "inference",
    }
}
