//! Events in the log.

use crate::{
    Event, Json,
    batch::NewEvent,
    tally::{Tally, signed, unsigned, unsigned_or_none},
};
use berth_types::Time;
use rusqlite::{Connection, Row, params};

/// What a row takes beyond its texts, and its part of the pages above.
const ROW_BYTES: u64 = 40;
const PAGE_BYTES: u64 = 4096;
/// What fits on a page; a longer row goes on in pages of its own.
const PAGE_ROW_BYTES_MAX: u64 = 4061;

/// Events dropped in one transaction, so that appends do not wait long behind it.
const DROPPED_MAX: u64 = 2_000;

pub(crate) fn insert(
    connection: &Connection,
    tally: &mut Tally,
    at: Time,
    event: &NewEvent,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO event (seq, at, kind, version, inputs, bytes, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let seq = tally.last_seq + 1;
    let inputs = event.inputs.map(signed);
    let bytes = stored_bytes((event.kind.len() + event.body.as_str().len()) as u64);
    statement.execute(params![
        signed(seq),
        signed(at.0),
        event.kind,
        event.version,
        inputs,
        signed(bytes),
        event.body.as_str()
    ])?;
    tally.last_seq = seq;
    tally.appended_bytes += bytes;
    Ok(())
}

/// Events after one, in order.
pub(crate) fn load(connection: &Connection, after: u64, count_max: usize) -> rusqlite::Result<Vec<Event>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at, kind, version, inputs, body FROM event WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![after, count_max as i64], read)?;
    rows.collect()
}

/// The first event that is still there.
pub(crate) fn load_first_seq(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    connection.query_row("SELECT min(seq) FROM event", [], |row| unsigned_or_none(row, 0))
}

/// Bytes of the events after one.
pub(crate) fn load_bytes_after(connection: &Connection, after: u64) -> rusqlite::Result<u64> {
    let sql = "SELECT ifnull(sum(bytes), 0) FROM event WHERE seq > ?1";
    connection.query_row(sql, [signed(after)], |row| unsigned(row, 0))
}

/// Drops the oldest events up to and with `last`, until so many bytes are dropped or enough for one transaction. Says
/// whether there was one to drop.
pub(crate) fn drop_oldest(
    connection: &Connection,
    tally: &mut Tally,
    last: u64,
    bytes: u64,
) -> rusqlite::Result<bool> {
    let mut statement =
        connection.prepare_cached("SELECT seq, bytes FROM event WHERE seq <= ?1 ORDER BY seq LIMIT ?2")?;
    let (mut dropped, mut until) = (0, None);
    let mut rows = statement.query([signed(last), signed(DROPPED_MAX)])?;
    while dropped < bytes
        && let Some(row) = rows.next()?
    {
        until = Some(unsigned(row, 0)?);
        dropped += unsigned(row, 1)?;
    }
    let Some(until) = until else { return Ok(false) };
    connection.prepare_cached("DELETE FROM event WHERE seq <= ?1")?.execute([signed(until)])?;
    tally.dropped_bytes += dropped;
    Ok(true)
}

/// What an event with so many bytes of text takes in the file: its part of a page that holds only whole rows, or whole pages.
fn stored_bytes(text_bytes: u64) -> u64 {
    let row_bytes = ROW_BYTES + text_bytes;
    match PAGE_ROW_BYTES_MAX / row_bytes {
        0 => PAGE_BYTES * (1 + row_bytes.div_ceil(PAGE_BYTES - 4)),
        rows => PAGE_BYTES.div_ceil(rows),
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event {
        seq: unsigned(row, 0)?,
        at: Time(unsigned(row, 1)?),
        kind: row.get(2)?,
        version: row.get(3)?,
        inputs: unsigned_or_none(row, 4)?,
        body: Json::stored(row.get(5)?),
    })
}
