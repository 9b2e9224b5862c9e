//! What the workload prints: into the log, looked through for progress, and shown to whoever looks. And what is typed to it.

use super::shells::read_some;
use crate::{
    log::LogWriter,
    progress::{Parser, Scanner},
    shell::{TerminalSize, no_block, set_size},
    task_folder::{Order, TaskFolder},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

const BUFFER_BYTES: usize = 64 << 10;
/// Whoever joins a terminal sees this much of what is on it.
const RECENT_BYTES: usize = 4 << 10;

/// What a workload reads.
#[derive(Debug)]
pub(super) enum Keyboard {
    /// Nothing.
    None,
    /// A pipe, until its end.
    Pipe(OwnedFd),
    /// The terminal that it prints to as well.
    Terminal(OwnedFd),
}

#[derive(Debug)]
pub(super) struct Output {
    pipe: Option<File>,
    keyboard: Keyboard,
    /// What was typed and not yet taken.
    typed: Vec<u8>,
    recent: Vec<u8>,
    log: LogWriter,
    pub(super) scanner: Scanner,
    buffer: Vec<u8>,
    full: bool,
}

impl Output {
    pub(super) fn new(
        folder: &TaskFolder,
        order: &Order,
        pipe: OwnedFd,
        keyboard: Keyboard,
    ) -> io::Result<Self> {
        no_block(&pipe)?;
        if let Keyboard::Pipe(pipe) = &keyboard {
            no_block(pipe)?;
        }
        let log = LogWriter::open(folder.path(), order.log_file_bytes_max, order.log_files_max)?;
        // The agent has looked at the pattern already.
        let parser = Parser::new(order.spec.progress_pattern.as_deref()).unwrap_or_default();
        let scanner = Scanner::new(parser);
        Ok(Self {
            pipe: Some(File::from(pipe)),
            keyboard,
            typed: Vec::new(),
            recent: Vec::new(),
            log,
            scanner,
            buffer: Vec::new(),
            full: false,
        })
    }

    /// Whether the workload has a terminal of its own.
    pub(super) fn has_terminal(&self) -> bool {
        matches!(self.keyboard, Keyboard::Terminal(_))
    }

    /// Whether anybody reads what is typed.
    pub(super) fn takes_input(&self) -> bool {
        !matches!(self.keyboard, Keyboard::None)
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        if let Keyboard::Terminal(terminal) = &self.keyboard {
            set_size(terminal, size);
        }
    }

    /// What was printed last; a terminal that says nothing more would look dead otherwise.
    pub(super) fn recent(&self) -> Vec<u8> {
        self.recent.clone()
    }

    /// Hands on what is typed. Whether there may be more.
    pub(super) fn type_some(&mut self, keys: &mut File) -> bool {
        let mut buffer = [0; 4096];
        // What is not taken holds up who types, as a terminal does.
        let count = if self.typed.is_empty() { read_some(keys, &mut buffer) } else { Some(0) };
        self.typed.extend_from_slice(&buffer[..count.unwrap_or(0)]);
        let mut into = match &self.keyboard {
            Keyboard::None => return false,
            Keyboard::Pipe(to) | Keyboard::Terminal(to) => match to.try_clone() {
                Ok(copy) => File::from(copy),
                Err(_) => return true,
            },
        };
        if let Ok(written) = into.write(&self.typed) {
            self.typed.drain(..written);
        }
        if count.is_none() && matches!(self.keyboard, Keyboard::Pipe(_)) {
            self.keyboard = Keyboard::None;
        }
        count.is_some()
    }

    /// What to wait for, until everything was read.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there, at most one buffer, so that a flood of output cannot keep a stop waiting. Says whether there may be
    /// more.
    pub(super) fn copy_some(&mut self, now_ms: u64, show: impl FnOnce(&[u8])) -> bool {
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
                show(bytes);
                if matches!(self.keyboard, Keyboard::Terminal(_)) {
                    self.recent.extend_from_slice(bytes);
                    let old = self.recent.len().saturating_sub(RECENT_BYTES);
                    self.recent.drain(..old);
                }
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
