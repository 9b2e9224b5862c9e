//! What is due when only time passes: warnings before a limit ends a run, the end of a pause after a failure, and progress that
//! was not written down at once.
//!
//! The limits themselves are the engine's; here is only what people must know before.

use super::{
    Happened, Parked, Platform,
    facts::TaskReport,
    record::{Record, Warning},
};
use berth_types::{Kind, Span, Time, WorkloadId};

/// A warning comes this long before the end, or at nine tenths of a shorter limit.
const WARN_BEFORE: Span = Span::secs(300);

impl Platform {
    /// Does what is due.
    pub(super) fn on_due(&mut self, now: Time) {
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            let Some(record) = self.records.get(&id) else { continue };
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
                warnings.chain(Self::progress_due(record)).min()
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
        Some(Happened::Warned { workload: record.id, warning, text })
    }

    /// Warnings that were not given in this run: which, when it is due, when the limit ends the run.
    fn warnings(&self, record: &Record) -> Vec<(Warning, Time, Time)> {
        let Some(workload) = self.engine.workload(record.id).filter(|workload| workload.is_running()) else {
            return Vec::new();
        };
        let Some(project) = self.engine.projects().get(&record.project) else { return Vec::new() };
        let interactive =
            (workload.spec.kind == Kind::Interactive).then_some(project.interactive_time_limit).flatten();
        let limits = [workload.spec.max_run, project.time_limit, interactive];
        let run = limits.into_iter().flatten().min();
        let run = run.zip(record.must_end(limits.into_iter().flatten()));
        let idle = project.idle_limit.zip(workload.idle_since).map(|(limit, since)| (limit, since + limit));
        let due = |warning, ends: Option<(Span, Time)>| {
            let (limit, end) = ends?;
            let before = WARN_BEFORE.min(Span(limit.0 / 10));
            (!record.warned.contains(&warning)).then_some((warning, Time(end.0 - before.0), end))
        };
        [due(Warning::TimeLimit, run), due(Warning::IdleLimit, idle)].into_iter().flatten().collect()
    }
}

/// The newest progress, when it is time to write it down.
fn unwritten(record: &Record, now: Time) -> Option<Happened> {
    Platform::progress_due(record).filter(|at| *at <= now)?;
    let report = TaskReport { written: now, ..record.progress.clone()? };
    Some(Happened::Progressed { workload: record.id, report: Box::new(report) })
}
