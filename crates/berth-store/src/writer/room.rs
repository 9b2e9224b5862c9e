//! Room in the write-ahead log, made before an append needs it.
//!
//! A sync of a file that grew also writes its new length and its new blocks into the journal of the file system, which costs
//! as much again as the sync of what was written. So the log gets zeros behind its last frame, in steps between two groups.
//! Zeros are no frame: a start after a crash reads the log up to them, as it reads up to the end of a file.

use crate::writer::{Writer, background::CHECKPOINT_PAGES};
use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::atomic::Ordering::Relaxed};

/// A page and the header of its frame.
const FRAME_BYTES: u64 = 4_096 + 24;
/// Appends wait for one such step at most.
const STEP_BYTES: u64 = 512 << 10;
/// A step is made when less than this is left.
const LEFT_BYTES: u64 = 128 << 10;
/// A store that writes less than this between two starts needs no room.
const FIRST_PAGES: u32 = 32;
/// What the log holds when it is copied into the database, and one large group more.
const ROOM_BYTES: u64 = CHECKPOINT_PAGES as u64 * FRAME_BYTES + STEP_BYTES;

/// The log's file, and how long it is known to be.
pub(super) struct Room {
    log: PathBuf,
    bytes: u64,
    /// There was no room on the disk. An append grows the file itself then, or reports the full disk.
    is_refused: bool,
}

impl Room {
    pub(super) fn new(log: PathBuf) -> Self {
        Self { log, bytes: 0, is_refused: false }
    }

    /// The log was cut to nothing.
    pub(super) fn on_truncated(&mut self) {
        (self.bytes, self.is_refused) = (0, false);
    }

    fn is_due(&self, pages: u32) -> bool {
        let used = u64::from(pages) * FRAME_BYTES;
        pages >= FIRST_PAGES && !self.is_refused && self.bytes < ROOM_BYTES && used + LEFT_BYTES > self.bytes
    }

    /// Lengthens the file by one step. Only the thread that writes frames may call this.
    fn lengthen(&mut self) -> io::Result<File> {
        let file = File::options().write(true).open(&self.log)?;
        let length = file.metadata()?.len();
        self.bytes = length;
        if length < ROOM_BYTES {
            let zeros = vec![0; STEP_BYTES as usize];
            if let Err(error) = file.write_all_at(&zeros, length) {
                // Half a step would only take what others need on a full disk.
                file.set_len(length)?;
                return Err(error);
            }
            self.bytes = length + STEP_BYTES;
        }
        Ok(file)
    }
}

impl Writer {
    pub(super) fn is_room_due(&self) -> bool {
        self.room.is_due(self.wal_pages.load(Relaxed))
    }

    /// Makes room for the next appends.
    pub(super) fn make_room(&mut self) {
        match self.room.lengthen() {
            Ok(file) => {
                if let Err(error) = file.sync_data() {
                    // The system no longer knows what of the log is on the disk.
                    self.stop_writing(&format!("syncing the log failed ({error})"));
                }
            }
            Err(_) => self.room.is_refused = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_for_busy_logs_until_the_next_checkpoint_fits() {
        let mut room = Room::new("log".into());
        assert!(!room.is_due(FIRST_PAGES - 1), "a quiet store writes no zeros");
        assert!(room.is_due(FIRST_PAGES));
        room.bytes = FIRST_PAGES as u64 * FRAME_BYTES + LEFT_BYTES;
        assert!(!room.is_due(FIRST_PAGES), "there is enough");
        room.bytes = ROOM_BYTES;
        assert!(!room.is_due(CHECKPOINT_PAGES + 100), "the log begins again at its start before that");
    }

    #[test]
    fn a_log_that_cannot_grow_is_left_as_it_is_and_not_asked_again() {
        let mut room = Room::new("/nowhere/log".into());
        room.lengthen().expect_err("there is no such folder");
        room.is_refused = true;
        assert!(!room.is_due(FIRST_PAGES));
        room.on_truncated();
        assert!(room.is_due(FIRST_PAGES));
    }
}
