//! What the workload prints: into the log, and looked through for progress.

use crate::{
    log::LogWriter,
    progress::{Parser, Scanner},
    task_folder::{Order, TaskFolder},
};
use rustix::fs::OFlags;
use std::{
    io::{self, PipeReader, Read},
    os::fd::{AsFd, BorrowedFd},
};

const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Output {
    pipe: Option<PipeReader>,
    log: LogWriter,
    pub(super) scanner: Scanner,
    buffer: Vec<u8>,
    full: bool,
}

impl Output {
    pub(super) fn new(folder: &TaskFolder, order: &Order, pipe: PipeReader) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        let log = LogWriter::open(folder.path(), order.log_file_bytes_max, order.log_files_max)?;
        // The agent has looked at the pattern already.
        let parser = Parser::new(order.spec.progress_pattern.as_deref()).unwrap_or_default();
        let scanner = Scanner::new(parser);
        Ok(Self { pipe: Some(pipe), log, scanner, buffer: Vec::new(), full: false })
    }

    /// What to wait for, until everything was read.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there, at most one buffer, so that a flood of output cannot keep a stop waiting. Says whether there may be
    /// more.
    pub(super) fn copy_some(&mut self, now_ms: u64) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        // Most tasks print little: the buffer comes with the first output, and is not part of what every shim costs.
        self.buffer.resize(BUFFER_BYTES, 0);
        match pipe.read(&mut self.buffer) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(count) => {
                let bytes = &self.buffer[..count];
                // A full disk must not end the task, nor block it.
                let failed = self.log.write(bytes).is_err();
                if failed && !self.full {
                    eprintln!("berth: the log could not be written");
                }
                self.full = failed;
                self.scanner.feed(bytes, now_ms);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(_) => {
                self.pipe = None;
                false
            }
        }
    }
}
