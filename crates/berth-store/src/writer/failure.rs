//! What a failed write means for the writes after it.

use crate::{StoreError, writer::Writer};
use rusqlite::{Error, ErrorCode, ffi};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// A write was cut short for want of room, so that no commit can be on the disk.
    Full,
    /// The system could not say that what was written is on the disk. It may have dropped it, and asking again would be
    /// answered with yes.
    Sync,
    /// Anything else: a commit may or may not be on the disk.
    Other,
}

fn classify(error: &Error) -> Failure {
    match error {
        Error::SqliteFailure(failure, _) if failure.code == ErrorCode::DiskFull => Failure::Full,
        Error::SqliteFailure(failure, _)
            if [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC].contains(&failure.extended_code) =>
        {
            Failure::Sync
        }
        _ => Failure::Other,
    }
}

impl Writer {
    /// Finds out where a failed write leaves the store, and gives the answer to who asked for it.
    pub(super) fn on_failed_write(&mut self, doing: &'static str, error: Error) -> StoreError {
        let failure = classify(&error);
        let source = Arc::new(error);
        let is_certain = match failure {
            _ if !self.connection.is_autocommit() => false,
            Failure::Full => true,
            Failure::Sync => false,
            // What is left of the failed commit lies where the next one goes. Once that is durable, nothing is left.
            Failure::Other => self.overwrite().is_ok(),
        };
        match (is_certain, failure) {
            (true, Failure::Full) => StoreError::DiskFull,
            (true, _) => StoreError::Failed { doing, source },
            (false, _) => {
                self.stop_writing(&format!("{doing} failed ({source})"));
                StoreError::InDoubt { doing, source }
            }
        }
    }

    /// A checkpoint that fails loses nothing, as the log it copies from is still there, unless a sync failed.
    pub(super) fn on_failed_checkpoint(&mut self, error: Error) -> StoreError {
        let doing = "copying the log into the database";
        let failure = classify(&error);
        let source = Arc::new(error);
        match failure {
            Failure::Full => StoreError::DiskFull,
            Failure::Sync => {
                self.stop_writing(&format!("{doing} failed ({source})"));
                StoreError::InDoubt { doing, source }
            }
            Failure::Other => StoreError::Failed { doing, source },
        }
    }

    fn overwrite(&self) -> rusqlite::Result<usize> {
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'failed_writes'", [])
    }

    pub(super) fn stop_writing(&mut self, reason: &str) {
        // The first reason is the one to look into.
        let _ = self.read_only.set(reason.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> Failure {
        classify(&Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn a_failed_sync_is_told_from_a_full_disk_and_from_the_rest() {
        assert_eq!(failure(ffi::SQLITE_FULL), Failure::Full);
        assert_eq!(failure(ffi::SQLITE_IOERR_FSYNC), Failure::Sync);
        assert_eq!(failure(ffi::SQLITE_IOERR_DIR_FSYNC), Failure::Sync);
        assert_eq!(failure(ffi::SQLITE_IOERR_WRITE), Failure::Other);
        assert_eq!(failure(ffi::SQLITE_CORRUPT), Failure::Other);
    }
}
