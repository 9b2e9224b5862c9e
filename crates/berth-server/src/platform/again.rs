//! Workers that are started again in their place, without a word to the engine: what they hold, they keep.
//!
//! A replica that ended serves again; a worker of a gang that asked for it takes part again; of a workload with many
//! completions, whoever is done takes the next.

use super::{Platform, Record, TaskExit, TaskKey};
use berth_api::{KindName, Restart, World};
use berth_types::{Span, Turn, WorkloadId, restart_pause};
use std::collections::BTreeSet;

impl Platform {
    /// Starts a worker again that has just ended, if that is how it was submitted. Whether it did.
    pub(super) fn starts_again(&mut self, task: TaskKey, exit: &TaskExit) -> bool {
        let is_running = self.engine.workload(task.workload).is_some_and(|workload| {
            let leaves = workload.leaving().iter().any(|place| place.rank == task.rank);
            workload.is_running() && !leaves
        });
        let record = self.records.get_mut(&task.workload);
        let Some(record) = record.filter(|_| is_running) else { return false };
        if record.request.restart != Some(Restart::Worker) || record.stop.is_some() {
            return false;
        }
        let failed = match exit {
            TaskExit::Code(0) => false,
            TaskExit::Code(_) | TaskExit::Signal(_) => true,
            // It never ran and never will, or its node is gone with its place.
            TaskExit::Refused(_) | TaskExit::Lost => return false,
        };
        let index = record.tasks.get(&task.rank).and_then(|known| known.index);
        let may_fail = record.failures < record.request.backoff_limit.unwrap_or(0);
        let next = match record.request.completions {
            Some(all) => {
                let taken = record.taken();
                match record.done.turn(all, (index, !failed), may_fail, &taken) {
                    Turn::Next(next) => Some(next),
                    Turn::Again => index,
                    Turn::Nothing | Turn::Failed => return false,
                }
            }
            None if failed && !may_fail => return false,
            None if !failed && record.request.kind != KindName::Inference => return false,
            None => None,
        };
        record.failures += u32::from(failed);
        record.on_exit(task.rank, index, exit);
        record.message = record.message.take().map(|message| format!("{message}; it is started again"));
        record.runs += 1;
        let run = record.runs;
        let Some(known) = record.tasks.get_mut(&task.rank) else { return false };
        let paused = failed || record.request.completions.is_none();
        known.restarts = if paused { known.restarts + 1 } else { 0 };
        known.pause = if paused { restart_pause(known.restarts) } else { Span::ZERO };
        (known.run, known.started, known.pid, known.index) = (run, None, None, next);
        known.ports.clear();
        self.news.orders.start.push(TaskKey { run, ..task });
        self.note_due(task.workload);
        true
    }
}

impl Platform {
    /// The workers of a workload that are there, and are not about to leave.
    pub(crate) fn world(&self, id: WorkloadId) -> Option<World> {
        let record = self.records.get(&id)?;
        let tasks = self.engine.workload(id).map(|workload| &workload.spec.tasks)?;
        let stays = record.tasks.iter().filter(|(_, task)| task.started.is_some() && !task.stopping);
        let ranks: Vec<u32> = stays.map(|(rank, _)| *rank).collect();
        Some(World { size: ranks.len() as u32, ranks, min: tasks.min(), max: tasks.max() })
    }
}

impl Record {
    /// The first completion that nobody has and nobody has done.
    pub(super) fn free_index(&self) -> Option<u32> {
        self.done.first_free(self.request.completions?, &self.taken())
    }

    /// Completions that some worker has, or had last.
    fn taken(&self) -> BTreeSet<u32> {
        self.tasks.values().filter_map(|task| task.index).collect()
    }
}
