//! What the size limits are measured by.

use rusqlite::{Connection, Row};

/// Sums that would take a walk over the tables to find again; changed in the transactions that change what they count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The last event.
    pub(crate) last_seq: u64,
    /// Bytes of all events that ever were.
    pub(crate) appended_bytes: u64,
    /// Bytes of the events that are gone.
    pub(crate) dropped_bytes: u64,
    /// Samples as they came.
    pub(crate) raw_rows: u64,
    /// Roll-ups to five minutes.
    pub(crate) five_minutes_rows: u64,
    /// Roll-ups to hours.
    pub(crate) hours_rows: u64,
}

impl Tally {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT last_seq, appended_bytes, dropped_bytes, raw_rows, five_minutes_rows, hours_rows FROM tally";
        connection.query_row(sql, [], |row| {
            Ok(Self {
                last_seq: unsigned(row, 0)?,
                appended_bytes: unsigned(row, 1)?,
                dropped_bytes: unsigned(row, 2)?,
                raw_rows: unsigned(row, 3)?,
                five_minutes_rows: unsigned(row, 4)?,
                hours_rows: unsigned(row, 5)?,
            })
        })
    }

    pub(crate) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "UPDATE tally SET last_seq = ?1, appended_bytes = ?2, dropped_bytes = ?3, raw_rows = ?4,
             five_minutes_rows = ?5, hours_rows = ?6",
        )?;
        let counts = [
            self.last_seq,
            self.appended_bytes,
            self.dropped_bytes,
            self.raw_rows,
            self.five_minutes_rows,
            self.hours_rows,
        ];
        statement.execute(counts.map(signed))?;
        Ok(())
    }
}

/// Counts of rows and bytes stay far below the sign bit, and ids and times are checked before they come here.
pub(crate) fn signed(value: u64) -> i64 {
    debug_assert!(i64::try_from(value).is_ok(), "{value} was to be checked before");
    value as i64
}

pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(crate) fn unsigned_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let value: Option<i64> = row.get(column)?;
    let value = value.map(|value| {
        u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
    });
    value.transpose()
}
