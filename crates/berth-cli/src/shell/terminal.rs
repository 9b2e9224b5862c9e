//! The person's terminal: its size, and every key as it is.

use berth_api::ShellSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, stdin, stdout};

/// The size of a terminal that does not tell.
const USUAL: ShellSize = ShellSize { columns: 80, rows: 24 };

/// A terminal for a worker's command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminal {
    /// Whether a person sits at ours.
    has_person: bool,
}

impl Terminal {
    /// The one that this command is run from, if both what is typed and what is printed go there.
    pub(super) fn of_person() -> Option<Self> {
        (stdin().is_terminal() && stdout().is_terminal()).then_some(Self { has_person: true })
    }

    /// One that nobody sits at.
    pub(super) fn without_person() -> Self {
        Self { has_person: false }
    }

    /// Whether a person sits at it.
    pub(super) fn has_person(&self) -> bool {
        self.has_person
    }

    pub(super) fn size(&self) -> ShellSize {
        let known = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        known.map_or(USUAL, |size| ShellSize { columns: size.ws_col, rows: size.ws_row })
    }

    /// Takes every key as it is, until what this returns is dropped.
    pub(super) fn make_raw(&self) -> anyhow::Result<Raw> {
        if !self.has_person {
            return Ok(Raw(None));
        }
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw(Some(before)))
    }
}

/// A terminal that does nothing by itself; as it was before when this is dropped.
#[derive(Debug)]
pub(super) struct Raw(Option<Termios>);

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, before);
        }
    }
}
