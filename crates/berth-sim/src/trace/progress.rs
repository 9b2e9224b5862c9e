//! How far a long run is, on stderr.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicU64, Ordering},
};

/// Counts steps that are done. On a terminal one line is kept up to date; elsewhere a line is written per tenth.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: u64,
    done: AtomicU64,
    terminal: bool,
}

impl Progress {
    /// So many steps are ahead.
    pub fn new(label: impl Into<String>, total: u64) -> Self {
        Self {
            label: label.into(),
            total: total.max(1),
            done: AtomicU64::new(0),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// So many more steps are done.
    pub fn advance(&self, steps: u64) {
        let before = self.done.fetch_add(steps, Ordering::Relaxed);
        let percent = |done: u64| done * 100 / self.total;
        let (old, new) = (percent(before), percent(before + steps));
        let mut stderr = std::io::stderr().lock();
        // A closed stderr is no reason to stop a measurement.
        let _ = if self.terminal && new > old {
            write!(stderr, "\r{} {new:3}%{}", self.label, if new >= 100 { "\n" } else { "" })
        } else if !self.terminal && new / 10 > old / 10 {
            writeln!(stderr, "{} {}%", self.label, new / 10 * 10)
        } else {
            Ok(())
        };
    }
}
