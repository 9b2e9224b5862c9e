//! What the agent saw, and what workloads say of themselves.

use super::{Happened, Platform, TaskExit, TaskKey, engine_problem, record::Record};
use berth_agent::Report;
use berth_api::Problem;
use berth_types::{Change, Phase, Span, TaskOutcome, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Progress is written down at most this often for each workload; what is shown is always the newest.
const PROGRESS_EVERY: Span = Span::secs(10);
/// A utilisation that was not reported again for this long is unknown.
const UTILISATION_KEPT: Span = Span::secs(60);
/// GPUs that are less busy than this are idle, in percent.
const IDLE_BELOW: u8 = 5;

/// How far a workload is, as it says itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskReport {
    pub(crate) at: Time,
    /// When this was last written down.
    pub(crate) written: Time,
    pub(crate) epoch: Option<u64>,
    pub(crate) epochs: Option<u64>,
    pub(crate) step: Option<u64>,
    pub(crate) steps: Option<u64>,
    pub(crate) percent: Option<u8>,
    pub(crate) loss: Option<String>,
    pub(crate) accuracy: Option<String>,
    /// Samples per second.
    pub(crate) throughput: Option<String>,
    pub(crate) left: Option<Span>,
    pub(crate) utilisation: Option<u8>,
    /// When the utilisation was reported.
    pub(crate) utilisation_at: Time,
    pub(crate) metrics: BTreeMap<String, String>,
    /// What it said through the API in this run. What is found in its log about the same is not taken: it is a guess.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) by_api: BTreeSet<String>,
}

/// Where it is: these belong together, and come from the API or from the log.
const POSITION: &str = "position";

/// Something the agent saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Started {
        task: TaskKey,
        pid: Option<u32>,
        ports: Vec<(u16, u16)>,
    },
    Exited {
        task: TaskKey,
        exit: TaskExit,
    },
    Progress {
        workload: WorkloadId,
        report: TaskReport,
    },
    Checkpoint {
        workload: WorkloadId,
    },
    /// How busy each GPU of the one real machine is, in percent, by its position.
    Busy {
        devices: Vec<Option<u8>>,
    },
}

impl Platform {
    /// Takes note of what was seen. What is not about a task that is there is old news, and no mistake.
    pub(crate) fn on_seen(&mut self, seen: Seen, now: Time) {
        let result = match seen {
            Seen::Started { task, pid, ports } if self.is_unconfirmed(task) => {
                self.on_started(task, pid, ports, now)
            }
            Seen::Exited { task, exit } if self.has_task(task) => {
                self.happen(Happened::TaskExited { task, exit }, now)
            }
            Seen::Progress { workload, report } => self.on_progress(workload, report, now),
            Seen::Busy { devices } => self.on_busy(&devices, now),
            Seen::Checkpoint { workload } if self.is_up(workload) => {
                self.happen(Happened::Checkpointed { workload }, now)
            }
            _ => Ok(()),
        };
        if let Err(problem) = result {
            tracing::error!(%problem, "a fact of the agent was refused");
        }
    }

    fn has_task(&self, task: TaskKey) -> bool {
        let record = self.records.get(&task.workload);
        record.and_then(|record| record.tasks.get(&task.rank)).is_some_and(|known| known.run == task.run)
    }

    /// A task that is there and of which it is not known yet that it runs. After a restart it is told again.
    fn is_unconfirmed(&self, task: TaskKey) -> bool {
        self.has_task(task) && self.records[&task.workload].tasks[&task.rank].started.is_none()
    }

    fn is_up(&self, id: WorkloadId) -> bool {
        let workload = self.engine.workload(id);
        workload
            .is_some_and(|workload| matches!(workload.phase, Phase::Running { .. } | Phase::Stopping { .. }))
    }

    fn on_started(
        &mut self,
        task: TaskKey,
        pid: Option<u32>,
        ports: Vec<(u16, u16)>,
        now: Time,
    ) -> Result<(), Problem> {
        self.happen(Happened::TaskStarted { task, pid, ports }, now)?;
        let all_run = self.records[&task.workload].tasks.values().all(|task| task.started.is_some());
        let workload = self.engine.workload(task.workload);
        let unconfirmed = workload
            .is_some_and(|workload| matches!(workload.phase, Phase::Running { confirmed: false, .. }));
        match all_run && unconfirmed {
            true => self.happen(Happened::Confirmed { workload: task.workload }, now),
            false => Ok(()),
        }
    }

    pub(super) fn on_task_started(
        &mut self,
        task: TaskKey,
        pid: Option<u32>,
        ports: &[(u16, u16)],
        at: Time,
    ) {
        let is_known = self.has_task(task);
        let record = self.records.get_mut(&task.workload);
        if let Some(known) = record.and_then(|record| record.tasks.get_mut(&task.rank)) {
            known.started = Some(at);
            known.pid = pid;
            known.ports = ports.to_vec();
        }
        if let Some(record) = self.records.get_mut(&task.workload).filter(|_| is_known) {
            record.on_index_started(task, at);
        }
    }

    pub(super) fn on_task_exited(&mut self, task: TaskKey, exit: &TaskExit, at: Time) -> Result<(), Problem> {
        let outcome = match exit {
            TaskExit::Code(0) => TaskOutcome::Succeeded,
            TaskExit::Lost => TaskOutcome::Lost,
            TaskExit::Code(_) | TaskExit::Signal(_) | TaskExit::Refused(_) => TaskOutcome::Failed,
        };
        let index = self.records.get_mut(&task.workload).and_then(|record| {
            record.on_index_ended(task, exit, at);
            record.tasks.get(&task.rank)?.index
        });
        if self.starts_again(task, exit) {
            return Ok(());
        }
        let (workload, rank) = (task.workload, task.rank);
        // The engine tells one that leaves from one that ended by itself. Whoever was told to stop and exits has stopped,
        // whatever its code: one that had done its work finds that out when it is started again.
        let failures = |platform: &Self| platform.engine.workload(workload).map(|workload| workload.failures);
        let before = failures(self);
        self.engine.apply(&Change::Ended { workload, rank, outcome, at }).map_err(engine_problem)?;
        // The failure of an elastic extra is not one of the workload.
        let run_failed = outcome == TaskOutcome::Failed && failures(self) != before;
        if let Some(record) = self.records.get_mut(&workload) {
            let left = record.tasks.remove(&rank).is_some_and(|task| task.stopping);
            if !left {
                record.on_exit(rank, index, exit);
                record.failures += u32::from(run_failed);
            }
        }
        self.follow(workload, at);
        Ok(())
    }

    fn on_progress(&mut self, workload: WorkloadId, report: TaskReport, now: Time) -> Result<(), Problem> {
        let is_running = self.engine.workload(workload).is_some_and(berth_types::Workload::is_running);
        let Some(record) = self.records.get_mut(&workload) else { return Ok(()) };
        let mut report = report;
        // Without a time of its own it is of this moment; an agent that was asked again tells what was printed long ago.
        report.utilisation_at = match report.utilisation_at {
            Time(0) => now,
            at => at.min(now),
        };
        if !is_running || now.since(report.utilisation_at) >= UTILISATION_KEPT {
            // The last words of a run that is being stopped.
            report.utilisation = None;
        }
        let said = report.utilisation;
        let written = record.progress.as_ref().map_or(Time(0), |progress| progress.written);
        let mut newest = record.progress.take().unwrap_or_default().with(report);
        newest.at = now;
        let utilisation = said;
        let due = now.since(written) >= PROGRESS_EVERY;
        if due {
            newest.written = now;
            self.happen(Happened::Progressed { workload, report: Box::new(newest) }, now)?;
        } else {
            record.progress = Some(newest);
            self.note_due(workload);
        }
        self.on_utilisation(workload, utilisation, now)
    }

    /// When the newest progress of a workload is written down, if nothing comes after it.
    pub(super) fn progress_due(record: &Record) -> Option<Time> {
        let newest = record.progress.as_ref().filter(|progress| progress.at > progress.written)?;
        Some(newest.written + PROGRESS_EVERY)
    }

    /// When the utilisation of a workload becomes unknown, if it is not reported again.
    pub(super) fn utilisation_due(record: &Record) -> Option<Time> {
        let progress = record.progress.as_ref()?;
        progress.utilisation.map(|_| progress.utilisation_at + UTILISATION_KEPT)
    }

    /// Forgets utilisation that was not reported again in time.
    pub(crate) fn forget_old_utilisation(&mut self, now: Time) {
        let is_old = |record: &&mut Record| Self::utilisation_due(record).is_some_and(|at| at <= now);
        self.records.values_mut().filter(is_old).for_each(Record::forget_utilisation);
    }

    /// A workload is as busy as the busiest of its devices. Those who share a device are told apart by nobody, so they are idle
    /// together.
    fn on_busy(&mut self, devices: &[Option<u8>], now: Time) -> Result<(), Problem> {
        let busiest = |workload: &berth_types::Workload| {
            let taken = workload.places().flat_map(|place| &place.devices);
            taken.filter_map(|taken| devices.get(usize::from(taken.device)).copied().flatten()).max()
        };
        let running = self.engine.workloads().filter(|workload| workload.is_running());
        let mut measured: Vec<_> = running.map(|workload| (workload.id, busiest(workload))).collect();
        measured.sort_unstable();
        measured.into_iter().try_for_each(|(id, utilisation)| self.on_utilisation(id, utilisation, now))
    }

    /// Notes when the GPUs of a workload become idle, or busy again.
    pub(crate) fn on_utilisation(
        &mut self,
        workload: WorkloadId,
        utilisation: Option<u8>,
        now: Time,
    ) -> Result<(), Problem> {
        let (Some(utilisation), true) = (utilisation, self.is_up(workload)) else { return Ok(()) };
        let idle_since = self.engine.workload(workload).and_then(|workload| workload.idle_since);
        match (utilisation < IDLE_BELOW, idle_since) {
            (true, None) => self.happen(Happened::Idle { workload, since: Some(now) }, now)?,
            (false, Some(_)) => self.happen(Happened::Idle { workload, since: None }, now)?,
            _ => {}
        }
        self.note_due(workload);
        Ok(())
    }
}

impl super::Record {
    pub(super) fn on_exit(&mut self, rank: u32, index: Option<u32>, exit: &TaskExit) {
        (self.exit_code, self.signal) = match exit {
            TaskExit::Code(code) => (Some(*code), None),
            TaskExit::Signal(signal) => (None, Some(*signal)),
            TaskExit::Lost | TaskExit::Refused(_) => (None, None),
        };
        let who = match index {
            Some(index) => format!("index {index} (worker {rank})"),
            None if self.request.workers.unwrap_or(1) > 1 => format!("worker {rank}"),
            None => "it".into(),
        };
        self.message = match exit {
            TaskExit::Code(0) => None,
            TaskExit::Code(code) => Some(format!("{who} exited with code {code}")),
            TaskExit::Signal(signal) => Some(format!("{who} was ended by signal {signal}")),
            TaskExit::Lost => Some(format!("{who} was lost with its machine; it starts again")),
            TaskExit::Refused(reason) => Some(reason.clone()),
        };
        self.refused |= matches!(exit, TaskExit::Refused(_));
    }
}

impl TaskReport {
    /// What it said at a time.
    pub(crate) fn of(at: Time, report: Report) -> Self {
        let Report {
            epoch,
            epochs,
            step,
            steps,
            loss,
            accuracy,
            throughput,
            eta,
            percent,
            metrics,
            utilisation,
        } = report;
        Self {
            at,
            written: Time(0),
            epoch,
            epochs,
            step,
            steps,
            percent,
            loss,
            accuracy,
            throughput,
            left: eta,
            utilisation,
            utilisation_at: at,
            metrics,
            by_api: BTreeSet::new(),
        }
    }

    /// Notes what of it was said, by name, as said through the API.
    pub(crate) fn of_api(mut self) -> Self {
        let position = self.epoch.is_some() || self.step.is_some() || self.percent.is_some();
        let said = [
            (POSITION, position || self.epochs.is_some() || self.steps.is_some()),
            ("loss", self.loss.is_some()),
            ("accuracy", self.accuracy.is_some()),
            ("throughput", self.throughput.is_some()),
            ("left", self.left.is_some()),
            ("utilisation", self.utilisation.is_some()),
        ];
        let fields = said.into_iter().filter(|(_, said)| *said).map(|(name, _)| name.to_owned());
        self.by_api = fields.chain(self.metrics.keys().map(|name| format!("metric {name}"))).collect();
        self
    }

    /// Leaves out what is known better from the API.
    fn without(mut self, by_api: &BTreeSet<String>) -> Self {
        let is_known = |name: &str| by_api.contains(name);
        if is_known(POSITION) {
            (self.epoch, self.epochs, self.step, self.steps, self.percent) = (None, None, None, None, None);
        }
        for (name, field) in
            [("loss", &mut self.loss), ("accuracy", &mut self.accuracy), ("throughput", &mut self.throughput)]
        {
            field.take_if(|_| is_known(name));
        }
        self.left.take_if(|_| is_known("left"));
        self.utilisation.take_if(|_| is_known("utilisation"));
        self.metrics.retain(|name, _| !is_known(&format!("metric {name}")));
        self
    }

    /// What is newly said, with what was said before and not again.
    fn with(self, newer: Self) -> Self {
        let newer = if newer.by_api.is_empty() { newer.without(&self.by_api) } else { newer };
        let keeps_left = newer.by_api.is_empty() && self.by_api.contains("left");
        let mut by_api = self.by_api;
        by_api.extend(newer.by_api);
        let mut metrics = self.metrics;
        metrics.extend(newer.metrics);
        let just_began = self.step == Some(0) && self.steps.is_none();
        let is_same_epoch = newer.epoch.is_none() || newer.epoch == self.epoch;
        Self {
            at: newer.at,
            written: self.written,
            epoch: newer.epoch.or(self.epoch),
            epochs: newer.epochs.or(self.epochs),
            step: newer.step.or(self.step.filter(|_| is_same_epoch && !just_began)),
            steps: newer.steps.or(self.steps),
            percent: newer.percent.or_else(|| newer.epoch.is_none().then_some(self.percent).flatten()),
            loss: newer.loss.or(self.loss),
            accuracy: newer.accuracy.or(self.accuracy),
            throughput: newer.throughput.or(self.throughput),
            // Time left is of the moment; an old one is wrong.
            left: if keeps_left { self.left } else { newer.left },
            utilisation: newer.utilisation.or(self.utilisation),
            utilisation_at: if newer.utilisation.is_some() {
                newer.utilisation_at
            } else {
                self.utilisation_at
            },
            metrics,
            by_api,
        }
    }

    /// Done, in percent.
    pub(crate) fn percent(&self) -> Option<u8> {
        let Self { percent, epoch, epochs, step, steps, .. } = *self;
        Report { percent, epoch, epochs, step, steps, ..Report::default() }.percent_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_began_is_done_when_its_last_line_says_so() {
        let line = |epoch, step| Report { epoch: Some(epoch), epochs: Some(4), step, ..Report::default() };
        let mut known = TaskReport::default();
        let mut done = Vec::new();
        for report in [line(1, Some(0)), line(1, None), line(2, Some(0)), line(2, None)] {
            known = known.with(TaskReport::of(Time(1), report));
            done.push(known.percent());
        }
        assert_eq!(done, [Some(0), Some(25), Some(25), Some(50)]);
    }
}
