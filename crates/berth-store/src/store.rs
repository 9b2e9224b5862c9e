//! The handle to an open store.

use crate::{
    Appended, Batch, Event, GivenAnswer, Manifest, Point, Receipt, Resolution, Settings, Snapshot,
    StoreError, answers, backup,
    error::integer,
    finished::{self, FinishedCursor, FinishedFilter, FinishedPage, FinishedWorkload},
    folder::Folder,
    history::{self, Limits},
    log,
    readers::Readers,
    receipt::{Promise, promise},
    schema, snapshot,
    tally::Tally,
    writer::{Entry, Request, Writer},
};
use berth_types::{Time, WorkloadId};
use rusqlite::{Connection, wal::CheckpointMode};
use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

/// Batches that may wait to be written.
const WAITING_MAX: usize = 8_192;

/// The most events in one answer.
pub const EVENTS_MAX: usize = 10_000;

/// An open store. It is shared by reference; dropping it writes what was accepted and closes it.
#[derive(Debug)]
pub struct Store {
    requests: SyncSender<Request>,
    writer: Option<JoinHandle<()>>,
    readers: Readers,
    read_only: Arc<OnceLock<Arc<str>>>,
    /// Given back last: until then nobody else may open the folder.
    folder: Folder,
}

/// Where a store stood when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The newest snapshot that is whole. The state is this, with the events after it.
    pub snapshot: Option<Snapshot>,
    /// The last event.
    pub last_seq: u64,
    /// Snapshots that were not what had been written, and were deleted.
    pub damaged_snapshots: Vec<u64>,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The first event that is still there; the one after the last when none is.
    pub first_seq: u64,
    /// The last event.
    pub last_seq: u64,
    /// Bytes of the events that a start could need.
    pub needed_bytes: u64,
    /// Bytes of history: other events, samples and roll-ups. This is what its limit holds.
    pub history_bytes: u64,
    /// Bytes of the database file.
    pub file_bytes: u64,
}

impl Store {
    /// Opens the store in a folder, which is created if need be, and which nobody else can open until this is dropped.
    pub fn open(folder: &Path, settings: &Settings) -> Result<(Self, Start), StoreError> {
        let folder = Folder::lock(folder)?;
        let database = folder.database();
        if folder.half_restored().exists() {
            return Err(StoreError::HalfRestored { folder: folder.path().to_owned() });
        }
        // What an earlier process could not sync may be readable and yet not on the disk. Appending behind it would build on
        // sand, so everything is written again, copied and synced before anything is promised.
        folder.rewrite_log()?;
        let connection = schema::open_writer(&database, settings.vfs.as_deref())?;
        if let Some(bytes_max) = settings.file_bytes_max {
            schema::limit_file(&connection, bytes_max)
                .map_err(StoreError::unreadable("limiting the database"))?;
        }
        folder.sync()?;
        connection
            .wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE)
            .map_err(StoreError::unreadable("copying the log into the database"))?;
        let start = load_start(&connection)?;
        let read_only = Arc::new(OnceLock::new());
        let writer = Writer::new(connection, Limits::of(settings), folder.log(), Arc::clone(&read_only))
            .map_err(StoreError::unreadable("preparing the database"))?;
        let (requests, queue) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("berth-store".into());
        let writer = thread
            .spawn(move || writer.run(queue))
            .map_err(StoreError::file("starting the thread that writes", &database))?;
        let readers = Readers::new(database, settings.vfs.clone(), settings.readers);
        Ok((Self { requests, writer: Some(writer), readers, read_only, folder }, start))
    }

    /// Appends a batch. The receipt is answered once the batch is durable. Batches are written in the order of the calls.
    pub fn append(&self, batch: Batch) -> Receipt<Appended> {
        if let Err(error) = batch.validate() {
            return Receipt::ready(Err(error));
        }
        self.ask(|promise| Request::Append(Entry { batch, promise }))
    }

    /// Writes the state at an event, so that the next start begins there, and lets events go that no start needs any more
    /// and that are too much for history. Appends go on meanwhile.
    pub fn snapshot(&self, snapshot: Snapshot) -> Receipt<()> {
        if let Err(error) = integer("time of a snapshot, in milliseconds", snapshot.at.0) {
            return Receipt::ready(Err(error));
        }
        // Hashed here, so that the writer does not stand still for it.
        let sha256 = snapshot.sha256();
        self.ask(|promise| Request::Snapshot(snapshot, sha256, promise))
    }

    /// Does everything now that would be done in between: drops what is above the limits, and empties the write-ahead log.
    pub fn compact(&self) -> Receipt<()> {
        self.ask(Request::Compact)
    }

    /// Why the store takes no more writes, if it does not.
    pub fn read_only(&self) -> Option<Arc<str>> {
        self.read_only.get().cloned()
    }

    /// Events after one, in order; at most [`EVENTS_MAX`]. History begins at [`Sizes::first_seq`].
    pub fn load_events(&self, after: u64, count_max: usize) -> Result<Vec<Event>, StoreError> {
        let count_max = count_max.min(EVENTS_MAX);
        let events =
            self.readers.read("reading events", |connection| log::load(connection, after, count_max))?;
        let gap = events.windows(2).find(|pair| pair[0].seq + 1 != pair[1].seq);
        match gap {
            Some(pair) => Err(StoreError::Damaged(format!("event {} is missing", pair[0].seq + 1))),
            None => Ok(events),
        }
    }

    /// The newest snapshot that is whole, for who reads the state again while the store is open.
    pub fn load_snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        self.readers.read("reading the snapshots", |connection| {
            for seq in snapshot::load_seqs(connection)? {
                if let Some(whole) = snapshot::load(connection, seq)? {
                    return Ok(Some(whole));
                }
            }
            Ok(None)
        })
    }

    /// The answer that was given to a request, if it came before. The same key with another request is an error.
    pub fn load_answer(
        &self,
        key: &str,
        request: &[u8],
        now: Time,
    ) -> Result<Option<GivenAnswer>, StoreError> {
        let given =
            self.readers.read("reading an answer", |connection| answers::load(connection, key, now))?;
        if let Some(given) = &given {
            given.check(key, request)?;
        }
        Ok(given)
    }

    /// A finished workload.
    pub fn load_finished(&self, id: WorkloadId) -> Result<Option<FinishedWorkload>, StoreError> {
        self.readers.read("reading a finished workload", |connection| finished::load(connection, id))
    }

    /// Finished workloads, the last to end first, after a cursor.
    pub fn load_finished_page(
        &self,
        filter: &FinishedFilter,
        after: Option<FinishedCursor>,
        count_max: usize,
    ) -> Result<FinishedPage, StoreError> {
        self.readers.read("listing finished workloads", |connection| {
            finished::load_page(connection, filter, after, count_max)
        })
    }

    /// The points of a series in `from <= at < to`, oldest first; an unknown series has none.
    pub fn load_series(
        &self,
        name: &str,
        resolution: Resolution,
        from: Time,
        to: Time,
    ) -> Result<Vec<Point>, StoreError> {
        self.readers
            .read("reading a series", |connection| history::load(connection, name, resolution, from, to))
    }

    /// The names of all series.
    pub fn load_series_names(&self) -> Result<Vec<String>, StoreError> {
        self.readers.read("reading the names of series", history::load_names)
    }

    /// How much is stored.
    pub fn load_sizes(&self) -> Result<Sizes, StoreError> {
        self.readers.read("measuring the store", load_sizes)
    }

    /// Writes a backup of the store as it is at this moment into one new file. Appends go on meanwhile.
    pub fn backup(&self, to: &Path) -> Result<Manifest, StoreError> {
        backup::write(&self.readers.open_another()?, to)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Never blocks: who cannot wait must not be made to.
    fn ask<T>(&self, request: impl FnOnce(Promise<T>) -> Request) -> Receipt<T> {
        let (promise, receipt) = promise();
        match self.requests.try_send(request(promise)) {
            Err(TrySendError::Full(_)) => {
                Receipt::ready(Err(StoreError::Overloaded { waiting_max: WAITING_MAX }))
            }
            // When the writer is gone, the promise is dropped with the request, and that is the answer.
            Ok(()) | Err(TrySendError::Disconnected(_)) => receipt,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It fails when the writer is gone already.
        let _ = self.requests.send(Request::Close);
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been printed by its thread, and everybody who waited was answered.
            let _ = writer.join();
        }
    }
}

fn load_start(connection: &Connection) -> Result<Start, StoreError> {
    let unreadable = || StoreError::unreadable("reading the snapshots");
    let mut damaged_snapshots = Vec::new();
    let mut snapshot = None;
    for seq in snapshot::load_seqs(connection).map_err(unreadable())? {
        snapshot = snapshot::load(connection, seq).map_err(unreadable())?;
        if snapshot.is_some() {
            break;
        }
        snapshot::delete(connection, seq).map_err(unreadable())?;
        damaged_snapshots.push(seq);
    }
    let last_seq = Tally::load(connection).map_err(unreadable())?.last_seq;
    let first_seq = log::load_first_seq(connection).map_err(unreadable())?.unwrap_or(last_seq + 1);
    let known = snapshot.as_ref().map_or(0, |snapshot: &Snapshot| snapshot.seq);
    if first_seq > known + 1 {
        let text = format!("events {} to {} are missing", known + 1, first_seq - 1);
        return Err(StoreError::Damaged(text));
    }
    Ok(Start { snapshot, last_seq, damaged_snapshots })
}

fn load_sizes(connection: &Connection) -> rusqlite::Result<Sizes> {
    let tally = Tally::load(connection)?;
    let floor_bytes = snapshot::load_floor(connection)?.map_or(0, |floor| floor.appended_bytes);
    let old_bytes = floor_bytes.saturating_sub(tally.dropped_bytes);
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page_bytes: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(Sizes {
        first_seq: log::load_first_seq(connection)?.unwrap_or(tally.last_seq + 1),
        last_seq: tally.last_seq,
        needed_bytes: tally.appended_bytes - tally.dropped_bytes - old_bytes,
        history_bytes: old_bytes + history::bytes(&tally),
        file_bytes: (pages * page_bytes) as u64,
    })
}
