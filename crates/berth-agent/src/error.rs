//! What can go wrong before anything runs, by what a caller may do about it.

use std::{io, path::PathBuf};

/// Why the agent could not start, or could not answer.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file or folder could not be used.
    #[error("{doing} {path}", path = path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another agent uses the folder.
    #[error("{folder} is in use by another agent: stop it, or choose another folder", folder = folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// The table of images does not read.
    #[error("{path}: {message}", path = path.display())]
    Images {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// The system refused something that every agent needs.
    #[error("{doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// What it says.
        source: io::Error,
    },
    /// There is no log of that task.
    #[error("there is no log of {0}")]
    NoLog(String),
    /// Nothing can be run beside the task, or it cannot be joined.
    #[error("{0}")]
    NoShell(String),
}

impl AgentError {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }

    pub(crate) fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::System { doing, source: source.into() }
    }
}
