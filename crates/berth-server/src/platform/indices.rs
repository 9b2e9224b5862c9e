//! The indices of a sweep: which worker ran each, and how that went.

use super::{Record, TaskExit, TaskKey};
use berth_api::{IndexView, Status};
use berth_types::Time;
use serde::{Deserialize, Serialize};

/// The most rows of an answer.
const ROWS_MAX: usize = 1_000;

/// The last attempt of one index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexRecord {
    pub(crate) rank: u32,
    pub(crate) run: u32,
    attempts: u32,
    started: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// It was stopped for others, and runs again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
}

impl IndexRecord {
    fn status(&self) -> Status {
        match (self.ended, self.exit_code) {
            (Some(_), _) if self.stopped => Status::Pending,
            (Some(_), Some(0)) => Status::Succeeded,
            (Some(_), _) => Status::Failed,
            (None, _) => Status::Pending,
        }
    }

    fn view(&self, index: u32) -> IndexView {
        IndexView {
            index,
            status: self.status(),
            worker: Some(self.rank),
            run: Some(self.run),
            attempts: self.attempts,
            exit_code: self.exit_code,
            signal: self.signal,
            started_at: self.started.map(Into::into),
            ended_at: self.ended.map(Into::into),
        }
    }
}

impl Record {
    /// A worker began with its index.
    pub(super) fn on_index_started(&mut self, task: TaskKey, at: Time) {
        let Some(index) = self.tasks.get(&task.rank).and_then(|known| known.index) else { return };
        let attempts = self.indices.get(&index).map_or(0, |known| known.attempts) + 1;
        let begun = IndexRecord {
            rank: task.rank,
            run: task.run,
            attempts,
            started: Some(at),
            ended: None,
            exit_code: None,
            signal: None,
            stopped: false,
        };
        self.indices.insert(index, begun);
    }

    /// A worker ended with its index.
    pub(super) fn on_index_ended(&mut self, task: TaskKey, exit: &TaskExit, at: Time) {
        let Some(known) = self.tasks.get(&task.rank) else { return };
        let Some(index) = known.index else { return };
        let stopping = known.stopping;
        let ended = self.indices.entry(index).or_insert(IndexRecord {
            rank: task.rank,
            run: task.run,
            attempts: 1,
            started: None,
            ended: None,
            exit_code: None,
            signal: None,
            stopped: false,
        });
        (ended.rank, ended.run, ended.ended) = (task.rank, task.run, Some(at));
        ended.stopped = stopping || *exit == TaskExit::Lost;
        (ended.exit_code, ended.signal) = match exit {
            TaskExit::Code(code) => (Some(*code), None),
            TaskExit::Signal(signal) => (None, Some(*signal)),
            TaskExit::Lost | TaskExit::Refused(_) => (None, None),
        };
    }

    /// The indices of a sweep, by number. Of very many, those that run or failed come first.
    pub(crate) fn index_views(&self) -> Vec<IndexView> {
        let Some(all) = self.request.completions else { return Vec::new() };
        let pending = |index| IndexView {
            index,
            status: Status::Pending,
            worker: None,
            run: None,
            attempts: 0,
            exit_code: None,
            signal: None,
            started_at: None,
            ended_at: None,
        };
        let mut rows: Vec<IndexView> = (0..all)
            .map(|index| self.indices.get(&index).map_or_else(|| pending(index), |known| known.view(index)))
            .collect();
        for (rank, task) in &self.tasks {
            let Some(row) = task.index.and_then(|index| rows.get_mut(index as usize)) else { continue };
            row.worker = Some(*rank);
            row.status = match (task.stopping, task.started) {
                (true, _) => Status::Stopping,
                (false, Some(_)) => Status::Running,
                (false, None) => Status::Starting,
            };
        }
        if rows.len() > ROWS_MAX {
            rows.sort_by_key(|row| {
                let last = match row.status {
                    Status::Pending => 2,
                    Status::Succeeded => 1,
                    _ => 0,
                };
                (last, std::cmp::Reverse(row.ended_at), row.index)
            });
            rows.truncate(ROWS_MAX);
            rows.sort_by_key(|row| row.index);
        }
        rows
    }
}
