//! What is due when only time passes: warnings before a limit ends a run, the end of a pause after a failure, and progress that
//! was not written down at once.
//!
//! The limits themselves are the engine's; here is only what people must know before.

use super::{
    Happened, Parked, Platform,
    facts::TaskReport,
    record::{Record, Warning},
};
use berth_types::{Kind, Span, StopReason, Time, WorkloadId};

/// A warning comes this long before the end, or at nine tenths of a shorter limit.
const WARN_BEFORE: Span = Span::secs(300);

impl Platform {
    /// Does what is due.
    pub(super) fn on_due(&mut self, now: Time) {
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            let Some(record) = self.records.get_mut(&id) else { continue };
            if Self::utilisation_due(record).is_some_and(|at| at <= now) {
                record.forget_utilisation();
            }
            let record = &self.records[&id];
            let happened = match record.parked {
                Some((Parked::BackOff { until }, _)) if until <= now => {
                    Some(Happened::Resumed { workload: id, by: None })
                }
                _ => unwritten(record, now).or_else(|| self.warning_due(record, now)),
            };
            if let Some(happened) = happened
                && let Err(problem) = self.happen(happened, now)
            {
                tracing::error!(%problem, workload = %id, "what was due was refused");
            }
            self.note_due(id);
        }
    }

    /// Notes when something will be due for a workload.
    pub(super) fn note_due(&mut self, id: WorkloadId) {
        let Some(record) = self.records.get(&id) else { return };
        let at = match record.parked {
            Some((Parked::BackOff { until }, _)) => Some(until),
            Some((Parked::Suspended { .. } | Parked::Refused, _)) => None,
            None => {
                let warnings = self.warnings(record).into_iter().map(|(_, at, _)| at);
                warnings.chain(Self::progress_due(record)).chain(Self::utilisation_due(record)).min()
            }
        };
        if let Some(at) = at {
            self.due.insert((at, id));
        }
    }

    fn warning_due(&self, record: &Record, now: Time) -> Option<Happened> {
        let (warning, _, end) = self.warnings(record).into_iter().find(|(_, at, _)| *at <= now)?;
        let left = end.since(now);
        let text = match warning {
            Warning::TimeLimit => format!("its time limit ends it in {left}"),
            Warning::IdleLimit => format!("its GPUs are idle; it is suspended in {left} unless that changes"),
        };
        Some(Happened::Warned { workload: record.id, warning, text, ends: Some(end) })
    }

    /// The limits that hold for a workload.
    pub(super) fn limits_of(&self, id: WorkloadId) -> Limits {
        let Some(workload) = self.engine.workload(id) else { return Limits::default() };
        let Some(project) = self.engine.projects().get(&workload.spec.project) else {
            return Limits { run: workload.spec.max_run, idle: None };
        };
        let interactive =
            (workload.spec.kind == Kind::Interactive).then_some(project.interactive_time_limit).flatten();
        let limits = [workload.spec.max_run, project.time_limit, interactive];
        Limits { run: limits.into_iter().flatten().min(), idle: project.idle_limit }
    }

    /// Warnings that were not given in this run: which, when it is due, when the limit ends the run.
    fn warnings(&self, record: &Record) -> Vec<(Warning, Time, Time)> {
        let Some(workload) = self.engine.workload(record.id).filter(|workload| workload.is_running()) else {
            return Vec::new();
        };
        let limits = self.limits_of(record.id);
        let run = limits.run.zip(record.must_end(limits.run.into_iter()));
        let idle = limits.idle.zip(workload.idle_since).map(|(limit, since)| (limit, since + limit));
        let due = |warning, ends: Option<(Span, Time)>| {
            let (limit, end) = ends?;
            let before = WARN_BEFORE.min(Span(limit.0 / 10));
            (!record.warned.contains(&warning)).then_some((warning, Time(end.0 - before.0), end))
        };
        [due(Warning::TimeLimit, run), due(Warning::IdleLimit, idle)].into_iter().flatten().collect()
    }
}

/// The limits of one workload: the shortest that ends its run, and how long its GPUs may be idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    run: Option<Span>,
    idle: Option<Span>,
}

impl Limits {
    /// What a limit did.
    pub(super) fn words(&self, reason: StopReason) -> String {
        match (reason, self.run, self.idle) {
            (StopReason::TimeLimit, Some(limit), _) => {
                format!("stopped: it reached its time limit of {limit}")
            }
            (StopReason::TimeLimit, None, _) => "stopped: it reached its time limit".into(),
            (StopReason::Idle, _, Some(limit)) => format!("suspended: its GPUs were idle for {limit}"),
            (StopReason::Idle, _, None) => "suspended: its GPUs were idle".into(),
        }
    }
}

/// A warning as it is shown while it holds: it names the moment, because whoever reads it may come late.
pub(super) fn notice(warning: Warning, ends: Option<Time>, text: &str) -> String {
    let Some(ends) = ends else { return text.to_owned() };
    let at = berth_api::Timestamp(ends).to_string();
    let (day, time) = (at.get(..10).unwrap_or_default(), at.get(11..19).unwrap_or_default());
    match warning {
        Warning::TimeLimit => format!("reaches its time limit at {day} {time} UTC"),
        Warning::IdleLimit => format!("its GPUs are idle; suspended at {day} {time} UTC unless that changes"),
    }
}

/// The newest progress, when it is time to write it down.
fn unwritten(record: &Record, now: Time) -> Option<Happened> {
    Platform::progress_due(record).filter(|at| *at <= now)?;
    let report = TaskReport { written: now, ..record.progress.clone()? };
    Some(Happened::Progressed { workload: record.id, report: Box::new(report) })
}
