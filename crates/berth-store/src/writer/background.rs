//! What can wait, done in small steps between groups.

use crate::{
    Snapshot, StoreError, log,
    receipt::Promise,
    schema,
    snapshot::{self, Floor},
    writer::Writer,
};
use rusqlite::{ErrorCode, TransactionBehavior, wal::CheckpointMode};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// Pages in the write-ahead log from which on it is copied into the database: four megabytes.
pub(super) const CHECKPOINT_PAGES: u32 = 1_000;

/// A snapshot of which some parts are written.
pub(super) struct Unfinished {
    snapshot: Snapshot,
    sha256: [u8; 32],
    parts_written: usize,
    promise: Promise<()>,
}

impl Writer {
    pub(super) fn on_snapshot(&mut self, snapshot: Snapshot, sha256: [u8; 32], promise: Promise<()>) {
        let newest = snapshot::load_seqs(&self.connection).map(|seqs| seqs.first().copied());
        let refusal = match newest {
            _ if self.read_only.get().is_some() => self.read_only(),
            _ if self.snapshot.is_some() => Some(StoreError::Overloaded { waiting_max: 1 }),
            _ if snapshot.seq > self.tally.last_seq => Some(StoreError::TooLarge {
                what: "event of a snapshot",
                size: snapshot.seq,
                size_max: self.tally.last_seq,
            }),
            Err(error) => Some(StoreError::unreadable("reading the snapshots")(error)),
            // Another of the same event would say the same, and an older one would help nobody.
            Ok(Some(newest)) if newest >= snapshot.seq => return promise.keep(Ok(())),
            Ok(_) => None,
        };
        match refusal {
            Some(error) => promise.keep(Err(error)),
            None => self.snapshot = Some(Unfinished { snapshot, sha256, parts_written: 0, promise }),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        let is_asked = self.snapshot.is_some() || !self.compactions.is_empty();
        is_asked
            || self.read_only.get().is_none()
                && (self.excess_bytes() > 0 || self.is_checkpoint_due() || self.is_room_due())
    }

    /// Does one thing that waits, if there is one.
    pub(super) fn step(&mut self) {
        if let Some(unfinished) = self.snapshot.take() {
            self.write_part(unfinished);
        } else if let Some(error) = self.read_only() {
            self.answer_compactions(&Err(error));
        } else if self.excess_bytes() > 0 {
            if let Err(error) = self.drop_events() {
                // Not tried again before the next snapshot: it would fail the same way now.
                self.floor = None;
                self.answer_compactions(&Err(error));
            }
        } else if !self.compactions.is_empty() {
            let answer = self.checkpoint_all();
            self.answer_compactions(&answer);
        } else if self.is_checkpoint_due() {
            self.checkpoint();
        } else if self.is_room_due() {
            self.make_room();
        }
    }

    fn write_part(&mut self, mut unfinished: Unfinished) {
        if let Some(error) = self.read_only() {
            return unfinished.promise.keep(Err(error));
        }
        match self.try_write_part(&mut unfinished) {
            Ok(None) => self.snapshot = Some(unfinished),
            Ok(Some(floor)) => {
                self.floor = floor;
                unfinished.promise.keep(Ok(()));
            }
            Err(error) => {
                let error = self.on_failed_write("writing a snapshot", error);
                if self.read_only.get().is_none() {
                    // What cannot be deleted now is deleted by the next snapshot or start.
                    let _ = snapshot::delete_orphans(&self.connection);
                }
                unfinished.promise.keep(Err(error));
            }
        }
    }

    /// Writes the next part, or the closing row after the last; gives the floor then.
    fn try_write_part(&mut self, unfinished: &mut Unfinished) -> rusqlite::Result<Option<Option<Floor>>> {
        let Unfinished { snapshot, sha256, parts_written, .. } = unfinished;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if *parts_written == 0 {
            snapshot::delete_orphans(&transaction)?;
        }
        if let Some(part) = snapshot.body.chunks(self.limits.snapshot_part_bytes).nth(*parts_written) {
            snapshot::insert_part(&transaction, snapshot.seq, *parts_written, part)?;
            transaction.commit()?;
            *parts_written += 1;
            return Ok(None);
        }
        let bytes_after = log::load_bytes_after(&transaction, snapshot.seq)?;
        snapshot::complete(&transaction, snapshot, sha256, self.tally.appended_bytes - bytes_after)?;
        let floor = snapshot::load_floor(&transaction)?;
        transaction.commit()?;
        Ok(Some(floor))
    }

    /// Bytes of events that no start needs, above their limit.
    fn excess_bytes(&self) -> u64 {
        let Some(floor) = self.floor else { return 0 };
        let history = floor.appended_bytes.saturating_sub(self.tally.dropped_bytes);
        history.saturating_sub(self.limits.events_bytes)
    }

    fn drop_events(&mut self) -> Result<(), StoreError> {
        let Some(floor) = self.floor else { return Ok(()) };
        let (tally, bytes) = (self.tally, self.excess_bytes());
        self.try_drop_events(floor, bytes).map_err(|error| {
            self.tally = tally;
            self.on_failed_write("dropping old events", error)
        })
    }

    fn try_drop_events(&mut self, floor: Floor, bytes: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_dropped = log::drop_oldest(&transaction, &mut self.tally, floor.seq, bytes)?;
        self.tally.save(&transaction)?;
        transaction.commit()?;
        if !is_dropped {
            self.floor = None;
        }
        Ok(())
    }

    fn is_checkpoint_due(&self) -> bool {
        self.wal_pages.load(Relaxed) >= self.checkpoint_at_pages
    }

    /// Copies as much of the write-ahead log into the database as readers allow.
    fn checkpoint(&mut self) {
        let pages = self.wal_pages.load(Relaxed);
        match self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
            // The next write begins at the start of the log again.
            Ok((pages, copied)) if pages == copied => {
                self.wal_pages.store(0, Relaxed);
                self.checkpoint_at_pages = CHECKPOINT_PAGES;
            }
            Ok(_) => self.checkpoint_at_pages = pages.saturating_add(CHECKPOINT_PAGES),
            Err(error) => {
                self.checkpoint_at_pages = pages.saturating_add(CHECKPOINT_PAGES);
                self.on_failed_checkpoint(error);
            }
        }
    }

    /// Copies the whole write-ahead log into the database and empties it; less when a reader is in the way,
    /// because appends would wait for it too.
    pub(super) fn checkpoint_all(&mut self) -> Result<(), StoreError> {
        let copied = self
            .connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE));
        let patient = self.connection.busy_timeout(schema::BUSY_TIMEOUT);
        match copied.and_then(|copied| patient.map(|()| copied)) {
            Ok(_) => {
                self.wal_pages.store(0, Relaxed);
                self.checkpoint_at_pages = CHECKPOINT_PAGES;
                self.room.on_truncated();
                Ok(())
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            Err(error) => Err(self.on_failed_checkpoint(error)),
        }
    }

    fn answer_compactions(&mut self, answer: &Result<(), StoreError>) {
        self.compactions.drain(..).for_each(|promise| promise.keep(answer.clone()));
    }
}
