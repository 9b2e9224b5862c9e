//! The output of a container, into the task's log and looked through for progress.

use super::Worker;
use crate::{
    TaskId,
    clock::{boot_ms, unix_ms},
    log::{LogWriter, length},
    progress::{Parser, Scanner},
    task_folder::{Checkpoint, Order, Progress, TaskFolder, Told},
};
use bollard::{Docker, query_parameters::LogsOptionsBuilder};
use futures_util::StreamExt;
use std::{
    io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

const TICK: Duration = Duration::from_millis(500);
/// How often the file is looked at that means a checkpoint when it is touched.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Follower {
    id: TaskId,
    worker: Worker,
    task: TaskFolder,
    log: LogWriter,
    scanner: Scanner,
    /// How much of the engine's output is in the log.
    written: u64,
    checkpoint_file: PathBuf,
    checkpoint_modified: Option<SystemTime>,
}

impl Follower {
    pub(super) fn new(worker: &Worker, order: &Order, task: &TaskFolder) -> io::Result<Self> {
        let log = LogWriter::open(task.path(), order.log_file_bytes_max, order.log_files_max)?;
        let parser = Parser::new(order.spec.progress_pattern.as_deref()).unwrap_or_default();
        let checkpoint_file = order.checkpoint_file.clone();
        Ok(Self {
            id: order.spec.id,
            worker: worker.clone(),
            task: task.clone(),
            log,
            scanner: Scanner::new(parser),
            written: length(task.path()),
            checkpoint_modified: None,
            checkpoint_file,
        })
    }

    /// Copies until the engine has no more. It is asked from the beginning each time, and what is in the log already is skipped:
    /// so nothing is missing and nothing is there twice after a restart of the agent or of the engine.
    pub(super) async fn follow(&mut self, docker: &Docker, name: &str, wait: bool) {
        let options = LogsOptionsBuilder::new().follow(wait).stdout(true).stderr(true).build();
        let mut output = docker.logs(name, Some(options));
        let mut skip = self.written;
        self.look_for_checkpoint();
        let mut looks = tokio::time::interval(CHECKPOINT_EVERY);
        loop {
            let pending = self.scanner.has_report() || self.scanner.has_put_off();
            tokio::select! {
                part = output.next() => {
                    let Some(Ok(part)) = part else { break };
                    let bytes = part.into_bytes();
                    let from = (skip.min(bytes.len() as u64)) as usize;
                    skip -= from as u64;
                    self.take(&bytes[from..]);
                }
                _ = looks.tick() => self.look_for_checkpoint(),
                () = tokio::time::sleep(TICK), if pending => self.scanner.tick(boot_ms()),
            }
            self.report();
        }
        self.scanner.settle();
        self.report();
        self.look_for_checkpoint();
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.log.write(bytes).is_err() {
            eprintln!("berth: the log of {} could not be written", self.id);
        }
        self.written += bytes.len() as u64;
        self.scanner.feed(bytes, boot_ms());
    }

    fn report(&mut self) {
        if self.scanner.take_checkpoint() {
            self.checkpoint();
        }
        if let Some(report) = self.scanner.take_report() {
            let progress = Progress { report, unix_ms: unix_ms() };
            if let Err(error) = self.task.write_progress(&progress) {
                eprintln!("berth: {error}");
            }
            self.worker.tell(Told::Progress(self.id, progress));
        }
    }

    fn look_for_checkpoint(&mut self) {
        let modified = std::fs::metadata(&self.checkpoint_file).and_then(|file| file.modified()).ok();
        if modified.is_some() && modified != self.checkpoint_modified {
            self.checkpoint_modified = modified;
            self.checkpoint();
        }
    }

    fn checkpoint(&self) {
        let checkpoint = Checkpoint { unix_ms: unix_ms() };
        if let Err(error) = self.task.write_checkpoint(checkpoint) {
            eprintln!("berth: {error}");
        }
        self.worker.tell(Told::Checkpoint(self.id, checkpoint));
    }
}
