//! What is known of a workload beyond what the engine needs.

use super::{facts::TaskReport, indices::IndexRecord};
use berth_api::WorkloadRequest;
use berth_types::{Bytes, Completed, Place, ProjectId, Span, Time, Workload, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Evictions of one workload that are remembered.
const EVICTIONS_MAX: usize = 10;

/// Why a workload is being ended, when the engine's outcome does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stop {
    Deleted,
    Suspended,
    TimeLimit,
    Idle,
    /// Its node is emptied, or the whole machine: it returns to the queue with its place.
    Drained,
}

/// A warning that is given once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Warning {
    TimeLimit,
    IdleLimit,
}

/// A workload that is not over and that the engine does not know: it asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Parked {
    /// Until somebody resumes it.
    Suspended { since: Time },
    /// It failed, and is started again then.
    BackOff { until: Time },
    /// As it is it cannot be queued. Only a cluster has such work, because there it may be written by hand.
    Refused,
}

/// One task that was ordered and is not known to be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) run: u32,
    pub(crate) place: Place,
    pub(crate) extra: bool,
    pub(crate) stopping: bool,
    pub(crate) started: Option<Time>,
    pub(crate) pid: Option<u32>,
    /// Ports asked for, and those it really has.
    pub(crate) ports: Vec<(u16, u16)>,
    /// Which completion it works at, of a workload that has many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u32>,
    /// How often it was started again in its place.
    #[serde(default)]
    pub(crate) restarts: u32,
    /// How long it waits before it begins.
    #[serde(default)]
    pub(crate) pause: Span,
}

impl TaskRecord {
    pub(crate) fn ordered(run: u32, place: Place, extra: bool) -> Self {
        Self {
            run,
            place,
            extra,
            stopping: false,
            started: None,
            pid: None,
            ports: Vec::new(),
            index: None,
            restarts: 0,
            pause: Span::ZERO,
        }
    }
}

/// An eviction, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EvictionRecord {
    pub(crate) at: Time,
    pub(crate) rule: String,
    pub(crate) winner: Option<String>,
    /// In GPU-milliseconds.
    pub(crate) lost: u64,
}

impl EvictionRecord {
    /// What was told of one.
    pub(crate) fn of(told: berth_api::Eviction) -> Self {
        Self {
            at: told.at.0,
            rule: told.rule,
            winner: told.winner,
            lost: told.lost_gpu_secs.saturating_mul(1_000),
        }
    }

    /// Why it was, in one sentence.
    pub(crate) fn words(&self) -> String {
        match &self.winner {
            Some(winner) => format!("stopped for {winner} ({}); it resumes by itself", self.rule),
            None => format!("stopped ({}); it resumes by itself", self.rule),
        }
    }
}

/// A named folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeRecord {
    pub(crate) name: String,
    pub(crate) project: Option<String>,
    pub(crate) created: Time,
    /// How much fits into it, where storage has a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Bytes>,
}

impl VolumeRecord {
    pub(crate) fn key(&self) -> VolumeKey {
        (self.name.clone(), self.project.clone())
    }
}

/// A volume by its name and whom it is for: in a cluster every project has names of its own.
pub(crate) type VolumeKey = (String, Option<String>);

/// A workload that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: WorkloadId,
    pub(crate) name: String,
    pub(crate) project: ProjectId,
    pub(crate) user: String,
    /// What was asked for, with every default filled in.
    pub(crate) request: WorkloadRequest,
    pub(crate) submitted: Time,
    pub(crate) first_started: Option<Time>,
    pub(crate) run_started: Option<Time>,
    /// When its last run began, also after that run is over.
    #[serde(default)]
    pub(crate) last_started: Option<Time>,
    /// Starts so far, extras counted too; each task knows in which it was started.
    pub(crate) runs: u32,
    pub(crate) failures: u32,
    pub(crate) preemptions: u32,
    pub(crate) evictions: VecDeque<EvictionRecord>,
    /// The start of its present gang; those who join it later have another run, and meet where the gang did.
    #[serde(default)]
    pub(crate) gang_run: u32,
    /// Completions that are done.
    #[serde(default, skip_serializing_if = "Completed::is_empty")]
    pub(crate) done: Completed,
    /// Its tasks by rank.
    pub(crate) tasks: BTreeMap<u32, TaskRecord>,
    pub(crate) parked: Option<(Parked, Box<Workload>)>,
    pub(crate) stop: Option<Stop>,
    /// It could not be started at all, so trying again is of no use.
    pub(crate) refused: bool,
    pub(crate) progress: Option<TaskReport>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) message: Option<String>,
    pub(crate) warned: BTreeSet<Warning>,
    /// The warning that its present run stands under, as it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notice: Option<(Warning, String)>,
    /// How long it ran, in runs that are over.
    #[serde(default)]
    pub(crate) ran: Span,
    /// What is known of each completion that was started.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) indices: BTreeMap<u32, IndexRecord>,
}

impl Record {
    pub(crate) fn new(workload: &Workload, request: WorkloadRequest) -> Self {
        Self {
            id: workload.id,
            name: workload.spec.name.clone(),
            project: workload.spec.project,
            user: workload.spec.user.clone(),
            request,
            submitted: workload.submitted,
            first_started: None,
            run_started: None,
            last_started: None,
            runs: 0,
            failures: 0,
            preemptions: 0,
            evictions: VecDeque::new(),
            gang_run: 0,
            done: Completed::default(),
            tasks: BTreeMap::new(),
            parked: None,
            stop: None,
            refused: false,
            progress: None,
            exit_code: None,
            signal: None,
            message: None,
            warned: BTreeSet::new(),
            notice: None,
            ran: Span::ZERO,
            indices: BTreeMap::new(),
        }
    }

    /// A run begins, and knows nothing of the one before.
    pub(crate) fn on_run_begins(&mut self) {
        self.notice = None;
        if let Some(progress) = &mut self.progress {
            progress.utilisation = None;
            progress.by_api.clear();
        }
    }

    /// Its places are not its own any more: what was said of the run that had them is over too.
    pub(crate) fn on_run_ends(&mut self, at: Time) {
        self.notice = None;
        self.forget_utilisation();
        if let Some(since) = self.run_started.take() {
            self.ran = Span(self.ran.0 + at.since(since).0);
        }
    }

    /// A limit is far again.
    pub(crate) fn withdraw_warning(&mut self, warning: Warning) {
        self.warned.remove(&warning);
        self.notice.take_if(|(known, _)| *known == warning);
    }

    /// The utilisation it reported in its present run, in percent, when that was not long ago.
    pub(crate) fn utilisation(&self) -> Option<u8> {
        self.progress.as_ref()?.utilisation
    }

    /// Utilisation is of the moment: it does not outlive a run, nor a silence.
    pub(crate) fn forget_utilisation(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.utilisation = None;
        }
    }

    pub(crate) fn on_evicted(&mut self, at: Time, rule: &str, winner: Option<String>, lost: u128) {
        self.preemptions += 1;
        let lost = u64::try_from(lost).unwrap_or(u64::MAX);
        let eviction = EvictionRecord { at, rule: rule.into(), winner, lost };
        self.message = Some(eviction.words());
        self.evictions.push_front(eviction);
        self.evictions.truncate(EVICTIONS_MAX);
    }

    /// When its current run must end, by its own maximum or by a limit of its project.
    pub(crate) fn must_end(&self, limits: impl Iterator<Item = Span>) -> Option<Time> {
        let limit = limits.min()?;
        self.run_started.map(|since| since + limit)
    }
}

/// The workload as it goes back into the queue: nothing of its places, everything of its past.
pub(crate) fn queued_again(workload: &Workload, at: Time) -> Workload {
    let mut queued = Workload::submitted(workload.id, workload.spec.clone(), at);
    queued.checkpoint = workload.checkpoint;
    queued.evicted = workload.evicted;
    queued
}
