//! The platform: everything that is known, and what may happen to it. No clock, no socket, no disk.
//!
//! ```text
//! command or fact --> Happened (one or more) --> apply --> engine, records
//!                                                  |
//!                            engine.plan --> Happened::Decided --> orders for the agent
//! ```
//!
//! The same [`Platform::apply`] runs live and when the log is read again, so that a restart arrives where it was.

mod addresses;
mod again;
mod event;
mod facts;
mod figures;
mod indices;
mod labels;
mod limits;
mod lowered;
mod meter;
mod owners;
mod people;
mod record;
mod snapshot;
mod submit;
mod texts;
mod view;
mod why;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use addresses::{Routed, Target};
pub(crate) use event::{About, Happened, Logged, Orders, TaskExit, TaskKey};
pub(crate) use facts::{Seen, TaskReport};
pub(crate) use figures::mean as mean_utilisation;
pub(crate) use people::{
    Action as Act, By, People, PeopleChange, Person, Place, Refused, Sight, is_same, is_user,
};
use record::VolumeKey;
use record::Warning;
pub(crate) use record::{EvictionRecord, Parked, Record, Stop, TaskRecord, VolumeRecord};
pub(crate) use submit::{NOTEBOOK_TOKEN, complete, user_ids};
pub use view::completions_shown;
pub(crate) use view::kind_text;

use berth_api::{Code, Problem};
use berth_engine::Engine;
use berth_store::{FinishedWorkload, Json};
use berth_types::{
    Action, Change, ChangeError, DepartmentId, Name, NodeId, Outcome, Phase, Policy, ProjectId, Span,
    StopReason, Time, WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is known.
#[derive(Debug, Clone)]
pub(crate) struct Platform {
    engine: Engine,
    /// Unfinished workloads, parked ones included.
    records: BTreeMap<WorkloadId, Record>,
    /// Unfinished workloads by project and name.
    names: BTreeMap<(ProjectId, String), WorkloadId>,
    nodes: BTreeMap<String, NodeId>,
    draining: BTreeSet<NodeId>,
    /// Labels that were set by hand, or removed (without a value), by the name of the node; they outlive the node.
    node_labels: BTreeMap<String, BTreeMap<Name, Option<Name>>>,
    /// Nodes that the last start did not name and that still have work; they are open again when a start names them.
    missing: BTreeSet<NodeId>,
    /// Nodes that this start did not name, whoever cordoned them; known anew at every start.
    unnamed: BTreeSet<NodeId>,
    projects: BTreeMap<String, ProjectId>,
    departments: BTreeMap<String, DepartmentId>,
    /// When each project was created; a log from before this was kept has no time for some.
    project_created: BTreeMap<ProjectId, Time>,
    volumes: BTreeMap<VolumeKey, VolumeRecord>,
    /// Volumes belong to projects, each with names of its own.
    project_volumes: bool,
    /// Finished work that a cluster still shows; on one machine that is in the store.
    over: BTreeMap<WorkloadId, berth_api::Workload>,
    people: People,
    /// The first account of users' own, when work runs under accounts of users; not part of what is written down.
    accounts_from: Option<u32>,
    /// Where people reach the server; not part of what is written down.
    address: String,
    /// The next number nobody has yet; ids of all kinds are drawn from it.
    next_id: u64,
    /// What is due when only time passes, by when.
    due: BTreeSet<(Time, WorkloadId)>,
    /// When the engine's plan can change by time alone.
    wake: Option<Time>,
    /// Nothing is decided any more: what stops now is for a later start.
    closing: bool,
    /// What is allocated, between one sample and the next.
    meter: meter::Meter,
    /// What happened since somebody took it.
    news: News,
}

/// What a stretch of happenings leads to.
#[derive(Debug, Clone, Default)]
pub(crate) struct News {
    /// What happened, to be written down.
    pub(crate) logged: Vec<Logged>,
    /// Workloads that are over.
    pub(crate) finished: Vec<FinishedWorkload>,
    /// What the agent is told once that is durable.
    pub(crate) orders: Orders,
}

impl Platform {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            engine: Engine::new(policy),
            records: BTreeMap::new(),
            names: BTreeMap::new(),
            nodes: BTreeMap::new(),
            draining: BTreeSet::new(),
            node_labels: BTreeMap::new(),
            missing: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            projects: BTreeMap::new(),
            departments: BTreeMap::new(),
            project_created: BTreeMap::new(),
            volumes: BTreeMap::new(),
            project_volumes: false,
            over: BTreeMap::new(),
            people: People::default(),
            accounts_from: None,
            address: String::new(),
            next_id: 1,
            due: BTreeSet::new(),
            wake: None,
            closing: false,
            meter: meter::Meter::default(),
            news: News::default(),
        }
    }

    /// Takes what happened since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Everybody who is known.
    pub(crate) fn people(&self) -> &People {
        &self.people
    }

    /// Everybody, when they are kept apart from everything else.
    pub(crate) fn set_people(&mut self, people: People) {
        self.people = people;
    }

    /// What happened to people, when that is kept apart from everything else.
    pub(crate) fn on_people(&mut self, change: &PeopleChange, at: Time) {
        self.people.apply(change, at);
    }

    /// Workloads that are not over.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// A number nobody has had.
    fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The next instant at which time alone changes something.
    pub(crate) fn next_instant(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.wake).min()
    }

    /// Lets the engine decide, and notes its decisions. Repeats until nothing is left to decide, because what ends at once
    /// gives its place to others.
    pub(crate) fn plan(&mut self, now: Time) {
        if self.closing {
            return;
        }
        self.on_due(now);
        loop {
            let plan = self.engine.plan(now);
            self.wake = plan.wake;
            if plan.actions.is_empty() {
                return;
            }
            for action in plan.actions {
                // The engine has let it happen already; it is written down, and the records follow.
                let happened = Happened::Decided { action: action.clone() };
                let about = self.about(&happened);
                self.news.logged.push(Logged { happened, about });
                self.on_decided(&action, now);
                self.meter_one(action.workload(), now);
            }
        }
    }

    /// Stops everything that runs, so that a later start resumes it; from here on nothing is started.
    pub(crate) fn close(&mut self, now: Time) {
        self.closing = true;
        let up: Vec<_> =
            self.records.values().filter(|record| !record.tasks.is_empty()).map(|record| record.id).collect();
        for id in up {
            self.drain(id, "the server", now);
        }
    }

    /// Stops a workload that returns to the queue with its place.
    fn drain(&mut self, id: WorkloadId, by: &str, now: Time) {
        let is_ending = self.records.get(&id).is_none_or(|record| record.stop.is_some());
        if is_ending {
            return;
        }
        let stopped = Happened::Stopped { workload: id, stop: Stop::Drained, by: by.into() };
        if let Err(problem) = self.happen(stopped, now) {
            tracing::error!(%problem, workload = %id, "could not be drained");
        }
    }

    /// Whether any task was ordered and is not known to be gone.
    pub(crate) fn has_tasks(&self) -> bool {
        self.records.values().any(|record| !record.tasks.is_empty())
    }

    /// Lets something happen, live: it is checked, takes effect, and is noted down.
    fn happen(&mut self, happened: Happened, now: Time) -> Result<(), Problem> {
        // Words about it are found before, because afterwards whom it is about may be gone.
        let about = self.about(&happened);
        self.apply(&happened, now)?;
        self.meter_happened(&happened, now);
        self.news.logged.push(Logged { happened, about });
        Ok(())
    }

    /// Lets something happen that was written down.
    pub(crate) fn replay(&mut self, happened: &Happened, at: Time) -> Result<(), Problem> {
        self.apply(happened, at)?;
        if let Happened::Decided { action } = happened {
            let change = Change::Decided { action: action.clone(), at };
            self.engine.apply(&change).map_err(engine_problem)?;
            self.on_decided(action, at);
        }
        self.meter_happened(happened, at);
        Ok(())
    }

    /// What happens, whether live or again. Fails only before anything has changed.
    fn apply(&mut self, happened: &Happened, at: Time) -> Result<(), Problem> {
        match happened {
            Happened::Node { node, draining, missing } => {
                self.engine.apply(&Change::NodeSet(node.clone())).map_err(engine_problem)?;
                self.nodes.insert(node.name.clone(), node.id);
                match draining {
                    true => self.draining.insert(node.id),
                    false => self.draining.remove(&node.id),
                };
                match missing {
                    true => self.missing.insert(node.id),
                    false => self.missing.remove(&node.id),
                };
                self.drawn(node.id.0);
            }
            Happened::NodeLabels { node, labels } => {
                self.engine.apply(&Change::NodeSet(node.clone())).map_err(engine_problem)?;
                self.node_labels.insert(node.name.clone(), labels.clone());
            }
            Happened::NodeRemoved { id, name } => {
                self.engine.apply(&Change::NodeRemoved(*id)).map_err(engine_problem)?;
                self.nodes.remove(name);
                self.draining.remove(id);
                self.missing.remove(id);
            }
            Happened::Department { department } => {
                self.engine.apply(&Change::DepartmentSet(department.clone())).map_err(engine_problem)?;
                self.departments.insert(department.name.clone(), department.id);
                self.drawn(department.id.0);
            }
            Happened::DepartmentRemoved { id, name } => {
                self.engine.apply(&Change::DepartmentRemoved(*id)).map_err(engine_problem)?;
                self.departments.remove(name);
                self.people.forget_scope(&berth_api::Scope::Department(name.clone()));
            }
            Happened::Project { project } => {
                self.engine.apply(&Change::ProjectSet(project.clone())).map_err(engine_problem)?;
                if self.projects.insert(project.name.clone(), project.id).is_none() {
                    self.project_created.insert(project.id, at);
                }
                self.drawn(project.id.0);
            }
            Happened::ProjectRemoved { id, name } => {
                self.engine.apply(&Change::ProjectRemoved(*id)).map_err(engine_problem)?;
                self.projects.remove(name);
                self.project_created.remove(id);
                self.people.forget_scope(&berth_api::Scope::Project(name.clone()));
            }
            Happened::Volume { volume } => {
                self.volumes.insert(volume.key(), volume.clone());
            }
            Happened::VolumeRemoved { name, project } => {
                let is_other = |owner: &Option<String>| self.project_volumes && owner != project;
                self.volumes.retain(|(known, owner), _| known != name || is_other(owner));
            }
            Happened::Submitted { workload, request } => {
                self.engine.apply(&Change::Submitted((**workload).clone())).map_err(engine_problem)?;
                self.drawn(workload.id.0);
                self.names.insert((workload.spec.project, workload.spec.name.clone()), workload.id);
                self.records.insert(workload.id, Record::new(workload, (**request).clone()));
            }
            Happened::Stopped { workload, stop, by } => self.on_stop_asked(*workload, *stop, by, at)?,
            Happened::Resumed { workload, .. } => self.on_resumed(*workload, at)?,
            Happened::TaskStarted { task, pid, ports } => self.on_task_started(*task, *pid, ports, at),
            Happened::Confirmed { workload } => {
                let change = Change::Confirmed { workload: *workload };
                self.engine.apply(&change).map_err(engine_problem)?;
            }
            Happened::TaskExited { task, exit } => self.on_task_exited(*task, exit, at)?,
            Happened::Checkpointed { workload } => {
                let change = Change::Checkpointed { workload: *workload, at };
                self.engine.apply(&change).map_err(engine_problem)?;
            }
            Happened::Idle { workload, since } => {
                let change = Change::Idle { workload: *workload, since: *since };
                self.engine.apply(&change).map_err(engine_problem)?;
                if let (None, Some(record)) = (since, self.records.get_mut(workload)) {
                    record.withdraw_warning(Warning::IdleLimit);
                }
            }
            Happened::Progressed { workload, report } => {
                if let Some(record) = self.records.get_mut(workload) {
                    record.progress = Some((**report).clone());
                }
                self.note_due(*workload);
            }
            Happened::Warned { workload, warning, text, ends } => {
                if let Some(record) = self.records.get_mut(workload) {
                    record.warned.insert(*warning);
                    record.notice = Some((*warning, limits::notice(*warning, *ends, text)));
                }
                self.note_due(*workload);
            }
            Happened::People { change } => self.people.apply(change, at),
            // What is over is in the store alone.
            Happened::Hidden { .. } => {}
            // The engine decided it, and records follow in `on_decided`.
            Happened::Decided { .. } => {}
        }
        Ok(())
    }

    /// Lets the records follow a decision of the engine.
    fn on_decided(&mut self, action: &Action, at: Time) {
        let id = action.workload();
        let winner = match action {
            Action::Evict { winner, .. } => Some(*winner),
            Action::Move { winner, .. } => *winner,
            _ => None,
        };
        let winner = winner.map(|winner| self.full_name(winner));
        let limits = self.limits_of(id);
        let Some(record) = self.records.get_mut(&id) else { return };
        match action {
            Action::Start { places, .. } => {
                record.runs += 1;
                record.first_started.get_or_insert(at);
                (record.run_started, record.last_started) = (Some(at), Some(at));
                record.message = None;
                record.warned.clear();
                record.on_run_begins();
                let run = record.runs;
                record.gang_run = run;
                for place in places {
                    let mut task = TaskRecord::ordered(run, place.clone(), false);
                    task.index = record.free_index();
                    record.tasks.insert(place.rank, task);
                    self.news.orders.start.push(TaskKey { workload: id, run, rank: place.rank });
                }
            }
            Action::Grow { places, .. } => {
                record.runs += 1;
                let run = record.runs;
                for place in places {
                    record.tasks.insert(place.rank, TaskRecord::ordered(run, place.clone(), true));
                    self.news.orders.start.push(TaskKey { workload: id, run, rank: place.rank });
                }
            }
            Action::Evict { rule, lost, .. } => record.on_evicted(at, texts::rule(*rule), winner, *lost),
            Action::Move { lost, .. } if winner.is_some() => record.on_evicted(at, "move", winner, *lost),
            Action::Stop { reason, .. } => {
                record.stop = Some(match reason {
                    StopReason::TimeLimit => Stop::TimeLimit,
                    StopReason::Idle => Stop::Idle,
                });
                record.message = Some(limits.words(*reason));
            }
            _ => {}
        }
        self.follow(id, at);
    }

    /// Brings the record of a workload in line with what the engine knows of it: those who leave are told so, and one that is
    /// over is parked, or put away for good.
    fn follow(&mut self, id: WorkloadId, at: Time) {
        let Some(workload) = self.engine.workload(id) else { return };
        let Some(record) = self.records.get_mut(&id) else { return };
        if !workload.is_running() {
            record.on_run_ends(at);
        }
        for place in workload.leaving() {
            if let Some(task) = record.tasks.get_mut(&place.rank).filter(|task| !task.stopping) {
                task.stopping = true;
                let key = TaskKey { workload: id, run: task.run, rank: place.rank };
                self.news.orders.stop.push((key, workload.spec.grace));
            }
        }
        if let Phase::Finished { outcome, .. } = workload.phase {
            self.on_over(id, outcome, at);
        }
        self.note_due(id);
    }

    /// A workload has no task left and the engine is done with it.
    fn on_over(&mut self, id: WorkloadId, outcome: Outcome, at: Time) {
        if let Some(record) = self.records.get_mut(&id) {
            record.on_run_ends(at);
        }
        let mut view = self.workload_view(id, false);
        if let (Some(view), Some(record)) = (&mut view, self.records.get(&id)) {
            view.indices = record.index_views();
        }
        let workload = self.engine.workload(id).expect("the engine has just said it is over").clone();
        let record = self.records.get_mut(&id).expect("an unfinished workload has a record");
        record.tasks.clear();
        record.run_started = None;
        let parked = match (record.stop.take(), outcome) {
            (Some(Stop::Suspended | Stop::Idle), _) => Some(Parked::Suspended { since: at }),
            (Some(Stop::Drained), _) => Some(Parked::BackOff { until: at }),
            (None, Outcome::Failed)
                if !record.refused && record.failures <= record.request.backoff_limit.unwrap_or(0) =>
            {
                Some(Parked::BackOff { until: at + back_off(record.failures) })
            }
            (stop, _) => {
                record.stop = stop;
                None
            }
        };
        self.engine.apply(&Change::Forgotten(id)).expect("what is finished can be forgotten");
        match parked {
            Some(parked) => {
                record.parked = Some((parked, Box::new(workload)));
            }
            None => {
                let record = self.records.remove(&id).expect("it was there a moment ago");
                self.names.remove(&(record.project, record.name.clone()));
                self.due.retain(|(_, other)| *other != id);
                if let Some(view) = view {
                    self.news.finished.push(view::finished(&record, view, outcome, at));
                }
                self.news.orders.forget.push(id);
            }
        }
    }

    /// Somebody asked for the end of a workload, or for a pause.
    fn on_stop_asked(&mut self, id: WorkloadId, stop: Stop, by: &str, at: Time) -> Result<(), Problem> {
        let record = self.records.get_mut(&id).ok_or_else(|| gone(id))?;
        let message = match stop {
            Stop::Deleted => Some(format!("deleted by {by}")),
            Stop::Suspended => Some(format!("suspended by {by}")),
            Stop::TimeLimit | Stop::Idle | Stop::Drained => None,
        };
        let before = std::mem::replace(&mut record.message, message);
        let stopped = self.stop_asked(id, stop, at);
        if stopped.is_err()
            && let Some(record) = self.records.get_mut(&id)
        {
            record.message = before;
        }
        stopped
    }

    fn stop_asked(&mut self, id: WorkloadId, stop: Stop, at: Time) -> Result<(), Problem> {
        let record = self.records.get_mut(&id).ok_or_else(|| gone(id))?;
        match record.parked.take() {
            Some((_, workload)) if stop == Stop::Suspended => {
                record.parked = Some((Parked::Suspended { since: at }, workload));
                self.note_due(id);
            }
            Some((_, workload)) => {
                // The engine has forgotten it; it comes back for the moment in which it ends.
                record.stop = Some(stop);
                let queued = record::queued_again(&workload, at);
                self.engine.apply(&Change::Submitted(queued)).map_err(engine_problem)?;
                self.engine.apply(&Change::Cancelled { workload: id, at }).map_err(engine_problem)?;
                self.follow(id, at);
            }
            None => {
                self.engine.apply(&Change::Cancelled { workload: id, at }).map_err(engine_problem)?;
                let record = self.records.get_mut(&id).expect("it was there a moment ago");
                record.stop = Some(stop);
                self.follow(id, at);
            }
        }
        Ok(())
    }

    /// A parked workload returns to the queue.
    fn on_resumed(&mut self, id: WorkloadId, at: Time) -> Result<(), Problem> {
        let record = self.records.get_mut(&id).ok_or_else(|| gone(id))?;
        let Some((parked, workload)) = record.parked.take() else { return Ok(()) };
        let mut queued = record::queued_again(&workload, at);
        if let Parked::BackOff { .. } = parked {
            // A failure is no reason to lose one's place.
            queued.submitted = workload.submitted;
        }
        record.message = None;
        self.engine.apply(&Change::Submitted(queued)).map_err(engine_problem)?;
        self.note_due(id);
        Ok(())
    }

    fn drawn(&mut self, id: u64) {
        self.next_id = self.next_id.max(id + 1);
    }

    /// As `project/name`.
    pub(crate) fn full_name(&self, id: WorkloadId) -> String {
        match self.records.get(&id) {
            Some(record) => format!("{}/{}", record.request.project, record.name),
            None => format!("workload {id}"),
        }
    }

    /// The unfinished workload of a project whose name is nearest.
    pub(crate) fn near_name(&self, project: &str, name: &str) -> Option<String> {
        let project = self.projects.get(project)?;
        let known = self.names.keys().filter(|(owner, _)| owner == project).map(|(_, name)| name);
        crate::names::nearest(name, known.map(String::as_str)).map(Into::into)
    }

    /// A finished workload is listed in the history only.
    pub(crate) fn hide(&mut self, mut finished: FinishedWorkload, document: &berth_api::Workload) {
        finished.phase = document.status.to_string();
        finished.hidden = true;
        finished.document = Json::of(document).expect("an answer of the API is JSON");
        self.news.logged.push(Logged {
            happened: Happened::Hidden { workload: finished.id },
            about: About {
                workload: Some(format!("{}/{}", document.project, document.name)),
                workload_id: Some(document.id),
                project: Some(document.project.clone()),
                message: "is listed no more".into(),
                ..About::default()
            },
        });
        self.news.finished.push(finished);
    }

    /// An unfinished workload by project and name.
    pub(crate) fn find(&self, project: &str, name: &str) -> Option<WorkloadId> {
        let project = self.projects.get(project)?;
        self.names.get(&(*project, name.to_owned())).copied()
    }

    pub(crate) fn record(&self, id: WorkloadId) -> Option<&Record> {
        self.records.get(&id)
    }

    /// What others placed in a cluster takes its room, and is nobody's project.
    pub(crate) fn forget_strangers(&mut self) {
        self.projects.retain(|name, _| !name.starts_with('('));
    }

    /// How many projects there are.
    pub(crate) fn project_count(&self) -> usize {
        self.projects.len()
    }

    /// A finished workload that a cluster still shows.
    pub(crate) fn over(&self, id: WorkloadId) -> Option<&berth_api::Workload> {
        self.over.get(&id)
    }

    /// Finished work that a cluster still shows, the last to end first.
    pub(crate) fn all_over(&self) -> Vec<&berth_api::Workload> {
        let mut over: Vec<_> = self.over.values().collect();
        over.sort_by_key(|workload| {
            std::cmp::Reverse((workload.ended.as_ref().map(|ended| ended.at), workload.id))
        });
        over
    }

    pub(crate) fn project_id(&self, name: &str) -> Option<ProjectId> {
        self.projects.get(name).copied()
    }
}

/// How long a failed workload waits: ten seconds, doubled with each failure, ten minutes at most.
fn back_off(failures: u32) -> Span {
    Span::secs((10u64 << failures.saturating_sub(1).min(6)).min(600))
}

fn gone(id: WorkloadId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no unfinished workload {id}"))
}

/// What the engine refuses is the caller's mistake, and the engine's words say which.
pub(crate) fn engine_problem(error: ChangeError) -> Problem {
    let code = match error {
        ChangeError::UnknownWorkload(_)
        | ChangeError::UnknownProject(_)
        | ChangeError::UnknownDepartment(_)
        | ChangeError::UnknownNode(_) => Code::NotFound,
        ChangeError::DuplicateWorkload(_) => Code::Exists,
        ChangeError::InUse(_) => Code::InUse,
        ChangeError::WrongPhase { .. } => Code::WrongState,
        ChangeError::CyclicDepartment(_) | ChangeError::Invalid(_) => Code::Invalid,
    };
    Problem::new(code, error.to_string())
}
