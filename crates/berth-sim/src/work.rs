//! How far the work of a workload has come: what the cluster itself would know, and the engine does not.

use berth_types::{Gpus, Span, Time};
use std::collections::BTreeSet;

/// What an interrupted run leaves behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checkpoints {
    /// Everything done so far; the workload saves itself when it is told to stop.
    #[default]
    Perfect,
    /// What was done at the last of its regular checkpoints, which the engine is told of.
    Every(Span),
    /// Nothing but what somebody saved by hand; it starts again.
    Never,
}

/// The work a workload brings along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// How long it takes with its minimum of tasks; extras shorten it. Without one it runs until it is stopped.
    pub runs: Option<Span>,
    /// What an interruption costs.
    pub checkpoints: Checkpoints,
}

/// Holds the progress of one workload. Work is counted in task-milliseconds, so that elastic extras count.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) work: Work,
    /// All of the work; none when it has no end.
    total: Option<u128>,
    done: u128,
    saved: u128,
    /// Tasks at work since `updated`.
    rate: u64,
    updated: Time,
    /// Counts starts, so that what was scheduled for an earlier run is known to be stale.
    pub(crate) run: u64,
    /// Counts changes of the expected end and of the tasks to be confirmed, for the same reason.
    pub(crate) token: u64,
    pub(crate) confirm_token: u64,
    /// The token for which an end was last scheduled.
    pub(crate) scheduled: u64,
    /// Leaving ranks whose end is already scheduled.
    pub(crate) stopping: BTreeSet<u32>,
    /// GPUs of its places as last counted for its project.
    pub(crate) gpus: Gpus,
    /// Work thrown away by interruptions, in task-milliseconds.
    pub(crate) wasted: u128,
}

impl Progress {
    pub(crate) fn new(work: Work, minimum: u32) -> Self {
        Self {
            work,
            total: work.runs.map(|span| u128::from(span.0) * u128::from(minimum)),
            done: 0,
            saved: 0,
            rate: 0,
            updated: Time(0),
            run: 0,
            token: 0,
            confirm_token: 0,
            scheduled: 0,
            stopping: BTreeSet::new(),
            gpus: Gpus::ZERO,
            wasted: 0,
        }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Counts what was done until now, and goes on with so many tasks.
    pub(crate) fn set_rate(&mut self, now: Time, tasks: u64) {
        self.done += u128::from(self.rate) * u128::from(now.since(self.updated).0);
        if let Some(total) = self.total {
            self.done = self.done.min(total);
        }
        self.updated = now;
        self.rate = tasks;
        self.token += 1;
    }

    /// The run is over before the work is, and the workload will run again.
    pub(crate) fn interrupt(&mut self, now: Time) {
        self.set_rate(now, 0);
        let kept = match self.work.checkpoints {
            Checkpoints::Perfect => self.done,
            Checkpoints::Every(_) | Checkpoints::Never => self.saved,
        };
        self.wasted += self.done - kept;
        self.done = kept;
        self.saved = kept;
    }

    /// Keeps what was done until now.
    pub(crate) fn save(&mut self, now: Time) {
        let rate = self.rate;
        let token = self.token;
        self.set_rate(now, rate);
        // The expected end has not moved, so the event that carries it stays valid.
        self.token = token;
        self.saved = self.done;
    }

    /// When the work will be done if nothing changes.
    pub(crate) fn end(&self) -> Option<Time> {
        let left = self.total?.saturating_sub(self.done);
        if self.rate == 0 {
            return None;
        }
        let millis = left.div_ceil(u128::from(self.rate));
        Some(self.updated + Span(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(checkpoints: Checkpoints) -> Progress {
        Progress::new(Work { runs: Some(Span::secs(100)), checkpoints }, 2)
    }

    #[test]
    fn extras_shorten_the_work() {
        let mut progress = progress(Checkpoints::Perfect);
        progress.set_rate(Time(0), 2);
        assert_eq!(progress.end(), Some(Time(100_000)));
        progress.set_rate(Time(50_000), 4);
        assert_eq!(progress.end(), Some(Time(75_000)));
    }

    #[test]
    fn an_interruption_keeps_what_the_checkpoints_kept() {
        for (checkpoints, left) in
            [(Checkpoints::Perfect, 40), (Checkpoints::Every(Span::secs(50)), 50), (Checkpoints::Never, 100)]
        {
            let mut progress = progress(checkpoints);
            progress.set_rate(Time(0), 2);
            if matches!(checkpoints, Checkpoints::Every(_)) {
                progress.save(Time(50_000));
            }
            progress.interrupt(Time(60_000));
            progress.set_rate(Time(70_000), 2);
            assert_eq!(progress.end(), Some(Time(70_000) + Span::secs(left)), "{checkpoints:?}");
        }
    }
}
