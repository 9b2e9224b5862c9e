//! What can go wrong, by what a caller may do about it.

use std::{io, path::PathBuf, sync::Arc};

/// Why the store could not do what it was asked. One failed write can be the answer to many callers, so errors can be
/// cloned.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Others appended since the caller looked. Nothing was written.
    #[error("the log is at event {actual}, not at {expected}: read what came since and decide again")]
    Moved {
        /// The last event the caller knew.
        expected: u64,
        /// The last event there is.
        actual: u64,
    },
    /// The idempotency key belongs to another request. Nothing was written.
    #[error("idempotency key {key:?} was used for another request: use a new key")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// Something is above its bound. Nothing was written.
    #[error("{what}: {size} is above the bound of {size_max}")]
    TooLarge {
        /// What, with its unit.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        size_max: u64,
    },
    /// Too much waits to be written. Nothing was written.
    #[error("too many writes are waiting ({waiting_max}): try again in a moment")]
    Overloaded {
        /// How many may wait.
        waiting_max: usize,
    },
    /// A text is not the JSON it should be.
    #[error("not the expected JSON: {0}")]
    NotJson(String),
    /// There is no room on the disk. Nothing was written, and the store goes on when there is room.
    #[error("the disk is full and nothing was written: free some space and try again")]
    DiskFull,
    /// A write failed. Nothing of it was kept, and the store goes on.
    #[error("{doing} failed and nothing of it was kept")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// What SQLite says.
        source: Arc<rusqlite::Error>,
    },
    /// A write failed at a point where nobody can say what is on the disk. The store takes no more writes.
    #[error("{doing} failed, and only the next start can tell whether it was kept")]
    InDoubt {
        /// What was being done.
        doing: &'static str,
        /// What SQLite says.
        source: Arc<rusqlite::Error>,
    },
    /// An earlier write failed for good. Reading goes on.
    #[error("the store only reads since {reason}: check the disk, then restart")]
    ReadOnly {
        /// What happened.
        reason: Arc<str>,
    },
    /// The store was closed before it came to this.
    #[error("the store was closed")]
    Closed,
    /// A read failed.
    #[error("{doing} failed")]
    Unreadable {
        /// What was being done.
        doing: &'static str,
        /// What SQLite says.
        source: Arc<rusqlite::Error>,
    },
    /// A file or folder could not be used.
    #[error("{doing} {path}", path = path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// Another process has the folder open.
    #[error("{folder} is in use by the process {holder}: stop it, or choose another folder", folder = folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// Its process id, as far as it is known.
        holder: String,
    },
    /// The database was written by a later version.
    #[error(
        "the database has schema {found} of berth {needs}, and this berth {own} knows schemas up to {known}: use berth \
         {needs} or later",
        own = env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The schema it has.
        found: u32,
        /// The schema this version knows.
        known: u32,
        /// The version that wrote it.
        needs: String,
    },
    /// The file is no database of ours.
    #[error("{path} is not a database of berth ({reason}): choose another folder", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// How one can tell.
        reason: String,
    },
    /// Stored data contradict themselves.
    #[error("the database is damaged: {0}; restore a backup into an empty folder")]
    Damaged(String),
    /// A restore into the folder did not come to its end.
    #[error("a restore into {folder} was not finished: restore into it again", folder = folder.display())]
    HalfRestored {
        /// The folder.
        folder: PathBuf,
    },
    /// Something is there already that would be overwritten.
    #[error("{path} is not empty: choose another place, nothing was overwritten", path = path.display())]
    InTheWay {
        /// What is there.
        path: PathBuf,
    },
    /// The file is no whole backup.
    #[error("{path} is not a whole backup of berth: {reason}; nothing was restored", path = path.display())]
    BadBackup {
        /// The file.
        path: PathBuf,
        /// How one can tell.
        reason: String,
    },
}

impl StoreError {
    /// Wraps what SQLite says about a read.
    pub(crate) fn unreadable(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Unreadable { doing, source: Arc::new(source) }
    }

    /// Wraps what the system says about a file.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source: Arc::new(source) }
    }
}

/// SQLite's integers have a sign, ours do not.
pub(crate) fn integer(what: &'static str, value: u64) -> Result<i64, StoreError> {
    let too_large = StoreError::TooLarge { what, size: value, size_max: i64::MAX as u64 };
    i64::try_from(value).map_err(|_| too_large)
}
