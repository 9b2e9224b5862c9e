//! The virtual cluster: its clock, its state, the engine, and what is about to happen.

use crate::{
    faults::{Fault, Faults, LostNode},
    random::SplitMix64,
    verify::{self, Broken, Found, one},
    work::{Progress, Work},
};
use berth_engine::Engine;
use berth_types::{
    Change, ChangeError, Explanation, Gpus, NodeId, Phase, Plan, Policy, ProjectId, Span, State, Time,
    Workload, WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Settings of a world.
#[derive(Debug, Clone)]
pub struct Options {
    /// Settings of the engine.
    pub policy: Policy,
    /// Where randomness starts; only faults use it.
    pub seed: u64,
    /// From a decision to start until all tasks run.
    pub start_delay: Span,
    /// From notice until a task is gone, if its grace is not shorter.
    pub stop_delay: Span,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether every state and plan is checked against the rules.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            seed: 0,
            start_delay: Span::secs(1),
            stop_delay: Span::secs(1),
            faults: Faults::default(),
            verify: false,
        }
    }
}

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Time,
    /// What.
    pub change: Change,
}

/// Something that is about to happen. Events of an earlier run of a workload are recognised by `run` and dropped.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Whatever was scheduled from outside.
    Outside(Box<Change>),
    /// All tasks of a start or growth run.
    Begun { workload: WorkloadId, token: u64 },
    /// The news of that arrives.
    Confirm { workload: WorkloadId, token: u64 },
    /// A start fails.
    Refuse { workload: WorkloadId, run: u64 },
    /// A leaving task is gone.
    Stopped { workload: WorkloadId, rank: u32, run: u64 },
    /// The work is done.
    Done { workload: WorkloadId, token: u64 },
    /// A regular checkpoint is due.
    Checkpoint { workload: WorkloadId, run: u64 },
    /// A task was started on a node that is gone.
    StartedOnLost { workload: WorkloadId, rank: u32 },
    /// A lost node comes back.
    NodeBack(NodeId),
}

/// Owns everything of one simulated cluster. Same options and same calls give the same log.
#[derive(Debug)]
pub struct World {
    pub(crate) options: Options,
    pub(crate) now: Time,
    pub(crate) state: State,
    pub(crate) engine: Engine,
    pub(crate) queue: BTreeMap<(Time, u64), Event>,
    pub(crate) faults: BTreeMap<(Time, u64), Fault>,
    pub(crate) wake: Option<Time>,
    pub(crate) progress: BTreeMap<WorkloadId, Progress>,
    pub(crate) log: Vec<Entry>,
    pub(crate) random: SplitMix64,
    pub(crate) lost: BTreeMap<NodeId, LostNode>,
    sequence: u64,
    allocated: BTreeMap<ProjectId, Gpus>,
    touched: BTreeSet<ProjectId>,
    usage: BTreeMap<ProjectId, Vec<(Time, Gpus)>>,
    findings: Vec<Found>,
}

impl World {
    /// No run goes on for more steps than this without being told to; a cluster that never comes to rest is a defect.
    pub const STEPS_MAX: u64 = 2_000_000;
    /// Enough findings to see what is wrong; later ones mostly follow from the first.
    const FINDINGS_MAX: usize = 100;

    /// An empty cluster at time zero.
    pub fn new(options: Options) -> Self {
        let mut world = Self {
            engine: Engine::new(options.policy.clone()),
            random: SplitMix64::new(options.seed),
            now: Time(0),
            state: State::default(),
            queue: BTreeMap::new(),
            faults: BTreeMap::new(),
            wake: None,
            progress: BTreeMap::new(),
            log: Vec::new(),
            lost: BTreeMap::new(),
            sequence: 0,
            allocated: BTreeMap::new(),
            touched: BTreeSet::new(),
            usage: BTreeMap::new(),
            findings: Vec::new(),
            options,
        };
        world.schedule_faults();
        world
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The engine, for questions.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Everything that happened, in order.
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Broken rules that were seen.
    pub fn findings(&self) -> &[Found] {
        &self.findings
    }

    /// GPUs of each project over time: each amount holds until the next.
    pub fn usage(&self) -> &BTreeMap<ProjectId, Vec<(Time, Gpus)>> {
        &self.usage
    }

    /// Work a workload lost to interruptions, in task-milliseconds.
    pub fn wasted(&self, workload: WorkloadId) -> u128 {
        self.progress.get(&workload).map_or(0, |progress| progress.wasted)
    }

    /// Why a workload waits.
    pub fn explain(&self, workload: WorkloadId) -> Option<Explanation> {
        self.engine.explain(workload, self.now)
    }

    /// Lets something happen now, and lets the engine answer.
    pub fn apply(&mut self, change: Change) -> Result<(), ChangeError> {
        self.take(change)?;
        self.settle();
        Ok(())
    }

    /// Submits a workload that brings this work along.
    pub fn submit(&mut self, workload: Workload, work: Work) -> Result<(), ChangeError> {
        let (id, minimum) = (workload.id, workload.spec.tasks.min());
        if self.state.workloads.contains_key(&id) {
            return Err(ChangeError::DuplicateWorkload(id));
        }
        self.progress.insert(id, Progress::new(work, minimum));
        self.apply(Change::Submitted(workload))
    }

    /// Saves the state of a running workload.
    pub fn checkpoint(&mut self, workload: WorkloadId) -> Result<(), ChangeError> {
        let at = self.now;
        self.take(Change::Checkpointed { workload, at })?;
        if let Some(progress) = self.progress.get_mut(&workload) {
            progress.save(at);
        }
        self.settle();
        Ok(())
    }

    /// Lets something happen later.
    pub fn schedule(&mut self, at: Time, change: Change) {
        self.push(at, Event::Outside(Box::new(change)));
    }

    /// Lets time pass, with everything that happens meanwhile.
    pub fn advance(&mut self, to: Time) {
        while let Some(due) = self.next_due().filter(|due| *due <= to) {
            self.step(due);
        }
        self.check_quiet(to);
        self.now = self.now.max(to);
    }

    /// Lets time pass until nothing is due any more, or until `limit`. Says whether it came to rest.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        self.run_until(limit, |world| world.queue.is_empty() && world.wake.is_none())
    }

    /// Lets time pass until every decision is carried out, or until `limit`. Says whether it came to that.
    pub fn run_until_settled(&mut self, limit: Time) -> bool {
        self.run_until(limit, |world| {
            world.state.workloads.values().all(|workload| {
                workload.leaving().is_empty()
                    && match workload.phase {
                        Phase::Running { confirmed, .. } => confirmed,
                        Phase::Held { .. } => false,
                        _ => true,
                    }
            })
        })
    }

    fn run_until(&mut self, limit: Time, reached: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..Self::STEPS_MAX {
            if reached(self) {
                return true;
            }
            match self.next_due() {
                Some(due) if due <= limit => self.step(due),
                _ => return false,
            }
        }
        false
    }

    /// The next instant at which anything happens.
    pub fn next_due(&self) -> Option<Time> {
        let queue = self.queue.keys().next().map(|(at, _)| *at);
        let faults = self.faults.keys().next().map(|(at, _)| *at);
        [queue, faults, self.wake].into_iter().flatten().min()
    }

    /// All that is due at one instant happens before the engine answers once, as in a control loop that drains its inbox.
    fn step(&mut self, due: Time) {
        self.check_quiet(Time(due.0.saturating_sub(1)));
        self.now = self.now.max(due);
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let event = entry.remove();
            self.on_event(event);
        }
        while let Some(entry) = self.faults.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let fault = entry.remove();
            self.on_fault(fault);
        }
        self.settle();
    }

    /// Plans, and removes lost nodes as soon as nothing names them any more.
    pub(crate) fn settle(&mut self) {
        self.plan();
        while self.remove_lost_nodes() {
            self.plan();
        }
    }

    fn plan(&mut self) {
        let before = self.options.verify.then(|| self.state.clone());
        let plan = self.engine.plan(self.now);
        if let Some(before) = before {
            self.find(verify::on_plan(&self.options.policy, &before, &plan));
        }
        let Plan { actions, wake, .. } = plan;
        for action in actions {
            let at = self.now;
            let change = Change::Decided { action, at };
            if let Err(error) = self.state.apply(&change) {
                self.find(vec![one("decision-applies", format!("{change:?}: {error}"))]);
                continue;
            }
            self.log.push(Entry { at, change: change.clone() });
            self.on_decided(&change);
        }
        if let Some(wake) = wake.filter(|wake| *wake <= self.now) {
            self.find(vec![one("wake-is-ahead", format!("woken at {wake:?}, which has passed"))]);
        }
        self.wake = wake.filter(|wake| *wake > self.now);
        for project in std::mem::take(&mut self.touched) {
            let gpus = self.allocated.get(&project).copied().unwrap_or_default();
            self.usage.entry(project).or_default().push((self.now, gpus));
        }
        if self.options.verify {
            let found = verify::on_rest(&self.options.policy, &self.engine, &self.state, self.now);
            self.find(found);
        }
    }

    /// While only time passes, and no wake was named, the plan must stay as it is.
    fn check_quiet(&mut self, until: Time) {
        if self.options.verify && until > self.now {
            let found = verify::on_quiet(&self.engine, self.now, until);
            self.find(found);
        }
    }

    /// Lets a change happen to the state and the engine, without an answer yet.
    pub(crate) fn take(&mut self, change: Change) -> Result<(), ChangeError> {
        self.state.apply(&change)?;
        if let Err(error) = self.engine.apply(&change) {
            self.find(vec![one("engine-takes-change", format!("{change:?}: {error}"))]);
        }
        let workload = change.workload();
        self.log.push(Entry { at: self.now, change });
        if let Some(workload) = workload {
            self.follow(workload);
        }
        Ok(())
    }

    /// Like [`World::take`], for what the world itself brought about and which therefore must be possible.
    pub(crate) fn must_take(&mut self, change: Change) {
        if let Err(error) = self.take(change.clone()) {
            self.find(vec![one("world-is-consistent", format!("{change:?}: {error}"))]);
        }
    }

    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    pub(crate) fn push_fault(&mut self, at: Time, fault: Fault) {
        self.sequence += 1;
        self.faults.insert((at, self.sequence), fault);
    }

    pub(crate) fn count_gpus(&mut self, project: ProjectId, before: Gpus, after: Gpus) {
        if before != after {
            let sum = self.allocated.entry(project).or_default();
            *sum = sum.saturating_sub(before).saturating_add(after);
            self.touched.insert(project);
        }
    }

    pub(crate) fn find(&mut self, found: Vec<Broken>) {
        for (rule, text) in found {
            if self.findings.len() < Self::FINDINGS_MAX {
                let at = self.now;
                self.findings.push(Found { at, rule, text });
            }
        }
    }
}
