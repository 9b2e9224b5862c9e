//! Events in the log.

use crate::{
    Event, Json,
    batch::NewEvent,
    tally::{Tally, signed, unsigned, unsigned_or_none},
};
use berth_types::Time;
use rusqlite::{Connection, Row, params};

/// What an event costs beyond its texts: its row, its part of the pages above, and room that is not filled.
const ROW_BYTES: u64 = 48;

/// Events dropped in one transaction, so that appends do not wait long behind it.
const DROPPED_MAX: u64 = 2_000;

pub(crate) fn insert(
    connection: &Connection,
    tally: &mut Tally,
    at: Time,
    event: &NewEvent,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO event (seq, at, kind, version, inputs, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let seq = tally.last_seq + 1;
    let inputs = event.inputs.map(signed);
    statement.execute(params![
        signed(seq),
        signed(at.0),
        event.kind,
        event.version,
        inputs,
        event.body.as_str()
    ])?;
    tally.last_seq = seq;
    tally.appended_bytes += ROW_BYTES + (event.kind.len() + event.body.as_str().len()) as u64;
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
    let sql = "SELECT ifnull(sum(?2 + octet_length(kind) + octet_length(body)), 0) FROM event WHERE seq > ?1";
    connection.query_row(sql, params![signed(after), signed(ROW_BYTES)], |row| unsigned(row, 0))
}

/// Drops the oldest events up to and with `last`, until so many bytes are dropped or enough for one transaction. Says
/// whether there was one to drop.
pub(crate) fn drop_oldest(
    connection: &Connection,
    tally: &mut Tally,
    last: u64,
    bytes: u64,
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, ?2 + octet_length(kind) + octet_length(body) FROM event WHERE seq <= ?1 ORDER BY seq LIMIT ?3",
    )?;
    let (mut dropped, mut until) = (0, None);
    let mut rows = statement.query(params![signed(last), signed(ROW_BYTES), signed(DROPPED_MAX)])?;
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
