//! The durable base of the embedded control plane.
//!
//! One SQLite database in one folder holds the log of events, the projections that lists are answered from, snapshots of
//! the state, and history for charts and replay. What was acknowledged is on the disk; what is written together is kept
//! together. This crate does not read the bodies it stores: it knows no scheduling rule, no socket, no clock and no
//! executor.
//!
//! ```text
//! Batch --append--> queue --> writer thread: one transaction, one sync --> Receipt
//!                                  |
//!                                  v
//!   load_* <-- read connections <-- berth.db --backup--> one file --restore--> another folder
//! ```
//!
//! A start reads the newest whole [`Snapshot`] and the events after it:
//!
//! ```
//! # use berth_store::{Batch, Json, NewEvent, Settings, Store, StoreError};
//! # use berth_types::Time;
//! # fn main() -> Result<(), StoreError> {
//! # let folder = std::env::temp_dir().join(format!("berth-store-doc-{}", std::process::id()));
//! let (store, start) = Store::open(&folder, &Settings::default())?;
//! assert_eq!(start.last_seq, 0);
//! let body = Json::of("the first")?;
//! let event = NewEvent { kind: "noted".into(), version: 1, inputs: None, body };
//! let batch = Batch { at: Time(1_000), events: vec![event], ..Batch::default() };
//! store.append(batch).wait()?;
//! assert_eq!(store.load_events(0, 10)?[0].body.read::<String>()?, "the first");
//! # drop(store);
//! # std::fs::remove_dir_all(&folder).expect("it was there");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod answers;
mod backup;
mod batch;
mod error;
mod finished;
mod folder;
mod history;
mod json;
mod log;
mod readers;
mod receipt;
mod schema;
mod settings;
mod snapshot;
mod store;
mod tally;
mod writer;

pub use answers::GivenAnswer;
pub use backup::{Manifest, read_manifest, restore};
pub use batch::{
    Answer, Appended, BATCH_ROWS_MAX, BODY_BYTES_MAX, Batch, Event, NewEvent, Sample, TEXT_BYTES_MAX, Window,
};
pub use error::StoreError;
pub use finished::{FinishedCursor, FinishedFilter, FinishedPage, FinishedWorkload, PAGE_MAX};
pub use history::{POINTS_MAX, Point, Resolution, SERIES_MAX};
pub use json::Json;
pub use receipt::Receipt;
pub use settings::Settings;
pub use snapshot::Snapshot;
pub use store::{EVENTS_MAX, Sizes, Start, Store};
