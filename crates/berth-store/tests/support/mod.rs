//! What the tests of the store share.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod disk;
#[path = "../../../berth-engine/tests/support/random.rs"]
pub mod random;
#[path = "../../../berth-engine/tests/support/seeds.rs"]
pub mod seeds;
pub mod vfs;
pub mod witness;

use berth_store::{Batch, Event, FinishedWorkload, Json, NewEvent, Settings, Store};
use berth_types::{ProjectId, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A folder that is removed when it is dropped.
pub struct Temp(PathBuf);

impl Temp {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("berth-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The body of an event of a test: enough to find a batch that is half there, or there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub batch: u64,
    pub index: u64,
    pub of: u64,
}

pub fn event(mark: Mark) -> NewEvent {
    let body = Json::of(&mark).expect("a mark is JSON");
    NewEvent { kind: "noted".into(), version: 1, inputs: None, body }
}

/// A batch of some events.
pub fn batch(number: u64, events: u64) -> Batch {
    let marks = (0..events).map(|index| Mark { batch: number, index, of: events });
    Batch { at: Time(1_000 * number), events: marks.map(event).collect(), ..Batch::default() }
}

pub fn finished(id: u64, ended: u64) -> FinishedWorkload {
    FinishedWorkload {
        id: WorkloadId(id),
        name: format!("job-{id}"),
        project: ProjectId(id % 3),
        user: format!("user-{}", id % 5),
        kind: if id.is_multiple_of(2) { "train" } else { "interactive" }.into(),
        phase: if id.is_multiple_of(7) { "failed" } else { "succeeded" }.into(),
        hidden: id.is_multiple_of(11),
        submitted: Time(ended / 2),
        started: (!id.is_multiple_of(4)).then_some(Time(ended / 2 + 1)),
        ended: Time(ended),
        document: Json::of(&vec![id]).expect("numbers are JSON"),
    }
}

pub fn open(folder: &Path) -> Store {
    Store::open(folder, &Settings::default()).expect("the store opens").0
}

/// All events that are there.
pub fn all_events(store: &Store) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let page = store.load_events(all.last().map_or(0, |event| event.seq), 1_000).expect("events");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Looks at the file with plain SQLite: whether it is sound, and whether every sum that is kept equals the sum of the rows.
pub fn check_file(folder: &Path) -> Result<(), String> {
    let connection =
        rusqlite::Connection::open(folder.join("berth.db")).map_err(|error| error.to_string())?;
    let number = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| format!("{sql}: {error}"))
    };
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(|error| format!("integrity_check: {error}"))?;
    if check != "ok" {
        return Err(format!("integrity_check: {check}"));
    }
    for (kept, counted) in [
        ("raw_rows", "SELECT count(*) FROM sample"),
        ("five_minutes_rows", "SELECT count(*) FROM rollup WHERE width = 300000"),
        ("hours_rows", "SELECT count(*) FROM rollup WHERE width = 3600000"),
        ("appended_bytes - dropped_bytes", "SELECT ifnull(sum(bytes), 0) FROM event"),
        ("last_seq", "SELECT ifnull(max(seq), (SELECT last_seq FROM tally)) FROM event"),
        ("last_seq", "SELECT ifnull(min(seq) - 1, (SELECT last_seq FROM tally)) + count(*) FROM event"),
    ] {
        let (kept_value, counted_value) = (number(&format!("SELECT {kept} FROM tally"))?, number(counted)?);
        if kept_value != counted_value {
            return Err(format!("{kept} is {kept_value}, but {counted} is {counted_value}"));
        }
    }
    Ok(())
}
