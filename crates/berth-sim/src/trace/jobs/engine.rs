//! The real engine as a scheduler of jobs: projects with quotas, gangs of whole GPUs, no grace.

use super::{
    Jobs,
    drive::{Decision, Scheduler},
};
use anyhow::{Context, bail};
use berth_engine::Engine;
use berth_types::{
    Action, Bytes, Change, Cpu, Device, Entitlement, GpuRequest, Gpus, Kind, Name, Node, NodeCondition,
    NodeId, Plan, Policy, Project, ProjectId, Request, Selector, Span, Spread, TaskOutcome, Tasks, Time,
    Topology, Workload, WorkloadId, WorkloadSpec, default_pool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
};

/// More plans at one instant than any chain of evictions and starts needs; an engine that passes this never settles.
const PLANS_MAX: usize = 10_000;

/// The engine, and what it decided so far.
#[derive(Debug)]
pub struct Berth<'a> {
    jobs: &'a Jobs,
    node_gpus: u8,
    engine: Engine,
    wake: Option<u64>,
    /// Evictions that let the job start elsewhere at once.
    pub moves: u64,
}

impl<'a> Berth<'a> {
    /// Nodes and projects are there, no job.
    pub fn new(jobs: &'a Jobs, nodes: (usize, u8), policy: Policy) -> anyhow::Result<Self> {
        let mut engine = Engine::new(policy);
        let device = Device { model: Name::from("gpu"), memory: Bytes::gib(16) };
        for index in 0..nodes.0 {
            engine.apply(&Change::NodeSet(Node {
                id: NodeId(index as u64),
                name: format!("node-{index:04}"),
                devices: vec![device.clone(); usize::from(nodes.1)],
                cpu: Cpu::cores(64),
                memory: Bytes::gib(512),
                labels: BTreeMap::new(),
                condition: NodeCondition::Ready,
            }))?;
        }
        for (index, (name, quota)) in jobs.projects.iter().enumerate() {
            let mut project = Project::named(ProjectId(index as u64), name.as_str());
            let entitlement =
                Entitlement { quota: Some(Gpus::whole(u64::from(*quota))), ..Entitlement::default() };
            project.entitlements.insert(default_pool(), entitlement);
            engine.apply(&Change::ProjectSet(project))?;
        }
        Ok(Self { jobs, node_gpus: nodes.1, engine, wake: None, moves: 0 })
    }

    fn spec(&self, job: usize) -> anyhow::Result<WorkloadSpec> {
        let (tasks, gpus) = self.jobs.jobs[job].tasks(self.node_gpus);
        let kind = if tasks > 1 { Kind::Distributed } else { Kind::Train };
        Ok(WorkloadSpec {
            name: format!("job-{job}"),
            project: ProjectId(self.jobs.jobs[job].project as u64),
            user: String::new(),
            kind,
            request: Request {
                gpu: GpuRequest::Whole(NonZeroU8::new(gpus).context("a job has GPUs")?),
                models: BTreeSet::new(),
                cpu: Cpu::ZERO,
                memory: Bytes::ZERO,
            },
            tasks: Tasks::new(tasks, tasks).with_context(|| format!("{tasks} tasks are too many"))?,
            pool: default_pool(),
            selector: Selector::default(),
            topology: Topology::default(),
            spread: Spread::Pack,
            priority: kind.priority(true),
            preemptible: true,
            max_run: None,
            retry_limit: 0,
            grace: Span::ZERO,
        })
    }

    /// Carries out one plan: who is told to leave is gone at once, who is told to start runs at once.
    fn carry_out(&mut self, plan: Plan, decisions: &mut Vec<Decision>) -> anyhow::Result<()> {
        let at = plan.at;
        for action in plan.actions {
            let workload = action.workload();
            let job = workload.0 as usize;
            match action {
                Action::Start { places, .. } => {
                    self.engine.apply(&Change::Confirmed { workload })?;
                    let places = places
                        .iter()
                        .map(|place| (place.node.0 as usize, place.devices.len() as u8))
                        .collect();
                    decisions.push(Decision::Start { job, places });
                }
                Action::Evict { .. } | Action::Move { .. } => {
                    // A job that was leaving already and finds another place was counted when it was evicted.
                    self.moves += u64::from(matches!(action, Action::Move { winner: Some(_), .. }));
                    let leaving = self.engine.workload(workload).map(|workload| workload.leaving().to_vec());
                    let leaving = leaving.context("the engine evicted a job it does not know")?;
                    // A job that was only held had not started, so nothing of it runs or is lost.
                    if !leaving.is_empty() {
                        decisions.push(Decision::Evict { job });
                    }
                    for place in leaving {
                        let rank = place.rank;
                        self.engine.apply(&Change::Stopped { workload, rank, at })?;
                    }
                }
                Action::Hold { .. } | Action::Reserve { .. } | Action::Unreserve { .. } => {}
                Action::Grow { .. } | Action::Shrink { .. } | Action::Stop { .. } => {
                    bail!(
                        "the engine decided {action:?} for a job that is neither elastic nor limited in time"
                    )
                }
            }
        }
        Ok(())
    }
}

impl Scheduler for Berth<'_> {
    fn on_submit(&mut self, job: usize, now: u64) -> anyhow::Result<()> {
        let workload = Workload::submitted(WorkloadId(job as u64), self.spec(job)?, Time(now * 1000));
        Ok(self.engine.apply(&Change::Submitted(workload))?)
    }

    fn on_end(&mut self, job: usize, now: u64) -> anyhow::Result<()> {
        let (workload, at) = (WorkloadId(job as u64), Time(now * 1000));
        let (tasks, _) = self.jobs.jobs[job].tasks(self.node_gpus);
        for rank in 0..tasks {
            self.engine.apply(&Change::Ended { workload, rank, outcome: TaskOutcome::Succeeded, at })?;
        }
        Ok(self.engine.apply(&Change::Forgotten(workload))?)
    }

    fn on_checkpoint(&mut self, job: usize, at: u64) -> anyhow::Result<()> {
        Ok(self
            .engine
            .apply(&Change::Checkpointed { workload: WorkloadId(job as u64), at: Time(at * 1000) })?)
    }

    fn plan(&mut self, now: u64) -> anyhow::Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        let (mut at, next_second) = (Time(now * 1000), Time((now + 1) * 1000));
        for _ in 0..PLANS_MAX {
            let plan = self.engine.plan(at);
            if !plan.actions.is_empty() {
                self.carry_out(plan, &mut decisions)?;
                continue;
            }
            // The trace knows seconds and the engine instants: what it wants to decide before the next second belongs
            // to this one.
            match plan.wake.filter(|wake| *wake < next_second) {
                Some(wake) => at = wake,
                None => {
                    self.wake = plan.wake.map(|wake| wake.0.div_ceil(1000));
                    return Ok(decisions);
                }
            }
        }
        bail!("the engine still decides after {PLANS_MAX} plans at second {now}")
    }

    fn wake(&self) -> Option<u64> {
        self.wake
    }
}
