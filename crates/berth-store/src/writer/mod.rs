//! The thread that writes. It alone has a connection that can.
//!
//! ```text
//! queue --all that waits--> one transaction, one sync --> answers
//!   ^                                                        |
//!   +--- one step of what can wait: a part of a snapshot, <--+
//!        some events dropped, a checkpoint
//! ```

mod background;
mod failure;
mod group;
mod room;

pub(crate) use group::Entry;

use crate::{
    Snapshot, StoreError,
    history::{self, Limits, SeriesIndex},
    receipt::Promise,
    snapshot::{self, Floor},
    tally::Tally,
};
use background::Unfinished;
use room::Room;
use rusqlite::{Connection, TransactionBehavior};
use std::path::PathBuf;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed},
    mpsc::{Receiver, TryRecvError},
};

/// Batches and rows in one transaction: enough that the sync is shared well, few enough that the first does not wait for
/// the last.
const GROUP_BATCHES_MAX: usize = 1_024;
const GROUP_ROWS_MAX: usize = 8_192;

/// What the writer is asked for.
pub(crate) enum Request {
    /// Write a batch.
    Append(Entry),
    /// Write a snapshot with its checksum.
    Snapshot(Snapshot, [u8; 32], Promise<()>),
    /// Do everything that can wait.
    Compact(Promise<()>),
    /// End.
    Close,
}

pub(crate) struct Writer {
    connection: Connection,
    tally: Tally,
    limits: Limits,
    /// Nothing after a failed write, until it is read again.
    series: Option<SeriesIndex>,
    floor: Option<Floor>,
    snapshot: Option<Unfinished>,
    compactions: Vec<Promise<()>>,
    /// Pages in the write-ahead log, as SQLite says after each commit.
    wal_pages: Arc<AtomicU32>,
    checkpoint_at_pages: u32,
    room: Room,
    /// Why nothing is written any more; shared with the store's handle.
    read_only: Arc<OnceLock<Arc<str>>>,
}

impl Writer {
    /// Takes the connection over. Cleans up what a crash left behind, and drops what a lower limit no longer allows.
    pub(crate) fn new(
        mut connection: Connection,
        limits: Limits,
        log: PathBuf,
        read_only: Arc<OnceLock<Arc<str>>>,
    ) -> rusqlite::Result<Self> {
        let wal_pages = Arc::new(AtomicU32::new(0));
        let noted = Arc::clone(&wal_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            noted.store(u32::try_from(pages).unwrap_or(0), Relaxed);
            Ok(())
        }))?;
        let mut tally = Tally::load(&connection)?;
        let known = tally;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        snapshot::delete_orphans(&transaction)?;
        history::trim(&transaction, &mut tally, &limits, berth_types::Time(0))?;
        if tally != known {
            tally.save(&transaction)?;
        }
        transaction.commit()?;
        Ok(Self {
            series: Some(SeriesIndex::load(&connection)?),
            floor: snapshot::load_floor(&connection)?,
            connection,
            tally,
            limits,
            snapshot: None,
            compactions: Vec::new(),
            wal_pages,
            checkpoint_at_pages: background::CHECKPOINT_PAGES,
            room: Room::new(log),
            read_only,
        })
    }

    /// Works until it is told to end, or until nobody can ask any more.
    pub(crate) fn run(mut self, requests: Receiver<Request>) {
        let mut is_open = true;
        while is_open {
            let first = if self.has_work() {
                match requests.try_recv() {
                    Ok(request) => Some(request),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => break,
                }
            } else {
                match requests.recv() {
                    Ok(request) => Some(request),
                    Err(_) => break,
                }
            };
            let mut group = Vec::new();
            let mut rows = 0;
            let mut next = first;
            while let Some(request) = next.take() {
                match request {
                    Request::Append(entry) => {
                        rows += entry.batch.rows();
                        group.push(entry);
                    }
                    Request::Snapshot(snapshot, sha256, promise) => {
                        self.on_snapshot(snapshot, sha256, promise)
                    }
                    Request::Compact(promise) => self.compactions.push(promise),
                    Request::Close => {
                        is_open = false;
                        break;
                    }
                }
                if group.len() < GROUP_BATCHES_MAX && rows < GROUP_ROWS_MAX {
                    next = requests.try_recv().ok();
                }
            }
            if !group.is_empty() {
                self.commit(group);
            }
            self.step();
        }
        self.close();
    }

    fn read_only(&self) -> Option<StoreError> {
        self.read_only.get().map(|reason| StoreError::ReadOnly { reason: Arc::clone(reason) })
    }

    /// Leaves one file behind. After a failed sync nothing is touched: the next start reads what is there.
    fn close(mut self) {
        if self.read_only.get().is_none() {
            // What cannot be copied now is copied by the next start.
            let _ = self.checkpoint_all();
        }
    }
}
