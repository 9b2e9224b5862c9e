//! Snapshots: the state at one event, so that a start need not read the whole log.
//!
//! They are written in parts, with appends in between, and count only with their last row. They are not compressed: a
//! snapshot is written once in thousands of events, and one that a person can read has its worth when something is wrong.

use crate::tally::{signed, unsigned};
use berth_types::Time;
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

/// Snapshots that are kept: the newest, and one to fall back to.
pub(crate) const KEPT: usize = 2;

/// The state at one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event that is in it.
    pub seq: u64,
    /// When it was made.
    pub at: Time,
    /// The state, which the store does not read.
    pub body: Vec<u8>,
}

impl Snapshot {
    pub(crate) fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.body).into()
    }
}

/// Before this, no start needs an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) seq: u64,
    /// Bytes of all events up to it.
    pub(crate) appended_bytes: u64,
}

pub(crate) fn insert_part(
    connection: &Connection,
    seq: u64,
    part: usize,
    body: &[u8],
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("INSERT INTO snapshot_part (seq, part, body) VALUES (?1, ?2, ?3)")?;
    statement.execute(params![signed(seq), part as i64, body])?;
    Ok(())
}

/// Lets a snapshot count whose parts are all there, and deletes those that are superseded by it.
pub(crate) fn complete(
    connection: &Connection,
    snapshot: &Snapshot,
    sha256: &[u8; 32],
    appended_bytes: u64,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO snapshot (seq, at, bytes, sha256, appended_bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            signed(snapshot.seq),
            signed(snapshot.at.0),
            snapshot.body.len() as i64,
            sha256,
            signed(appended_bytes)
        ],
    )?;
    connection.execute(
        "DELETE FROM snapshot WHERE seq NOT IN (SELECT seq FROM snapshot ORDER BY seq DESC LIMIT ?1)",
        [KEPT as i64],
    )?;
    delete_orphans(connection)
}

/// Deletes parts that belong to no snapshot: of superseded ones, and of those that were never completed.
pub(crate) fn delete_orphans(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM snapshot_part WHERE seq NOT IN (SELECT seq FROM snapshot)", [])?;
    Ok(())
}

pub(crate) fn delete(connection: &Connection, seq: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM snapshot WHERE seq = ?1", [signed(seq)])?;
    delete_orphans(connection)
}

/// The sequences of the snapshots, newest first.
pub(crate) fn load_seqs(connection: &Connection) -> rusqlite::Result<Vec<u64>> {
    let mut statement = connection.prepare_cached("SELECT seq FROM snapshot ORDER BY seq DESC")?;
    let rows = statement.query_map([], |row| unsigned(row, 0))?;
    rows.collect()
}

/// A snapshot, if it is what was written.
pub(crate) fn load(connection: &Connection, seq: u64) -> rusqlite::Result<Option<Snapshot>> {
    let sql = "SELECT at, bytes, sha256 FROM snapshot WHERE seq = ?1";
    let header = connection.query_row(sql, [signed(seq)], |row| {
        Ok((Time(unsigned(row, 0)?), unsigned(row, 1)? as usize, row.get::<_, Vec<u8>>(2)?))
    });
    let Some((at, bytes, sha256)) = header.optional()? else { return Ok(None) };
    let mut statement = connection.prepare("SELECT body FROM snapshot_part WHERE seq = ?1 ORDER BY part")?;
    let mut rows = statement.query([signed(seq)])?;
    let mut body = Vec::new();
    while let Some(row) = rows.next()? {
        body.extend_from_slice(row.get_ref(0)?.as_blob()?);
    }
    let snapshot = Snapshot { seq, at, body };
    let is_whole = snapshot.body.len() == bytes && snapshot.sha256()[..] == sha256[..];
    Ok(is_whole.then_some(snapshot))
}

/// Where the events begin that a start could need: after the oldest snapshot, once there is another one before which it
/// could fall back to it.
pub(crate) fn load_floor(connection: &Connection) -> rusqlite::Result<Option<Floor>> {
    let mut statement =
        connection.prepare("SELECT seq, appended_bytes FROM snapshot ORDER BY seq DESC LIMIT 1 OFFSET ?1")?;
    let floor = statement.query_row([KEPT as i64 - 1], |row| {
        Ok(Floor { seq: unsigned(row, 0)?, appended_bytes: unsigned(row, 1)? })
    });
    floor.optional()
}
