//! Answers that were given, by idempotency key.

use crate::{
    Json, StoreError,
    batch::Answer,
    tally::{signed, unsigned},
};
use berth_types::Time;
use rusqlite::{Connection, OptionalExtension, params};

/// Expired answers deleted with one write; more than a write adds, so that they never pile up.
const DELETED_MAX: i64 = 64;

/// An answer that was given before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenAnswer {
    /// What was answered.
    pub body: Json,
    /// The last event of that time.
    pub seq: u64,
    request: Vec<u8>,
}

impl GivenAnswer {
    /// Refuses a request that is not the one that was answered.
    pub(crate) fn check(&self, key: &str, request: &[u8]) -> Result<(), StoreError> {
        if self.request == request {
            return Ok(());
        }
        Err(StoreError::KeyReused { key: key.to_owned() })
    }
}

pub(crate) fn load(connection: &Connection, key: &str, now: Time) -> rusqlite::Result<Option<GivenAnswer>> {
    let mut statement =
        connection.prepare_cached("SELECT request, seq, body FROM answer WHERE key = ?1 AND expires > ?2")?;
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    let answer = statement.query_row(params![key, now], |row| {
        Ok(GivenAnswer { request: row.get(0)?, seq: unsigned(row, 1)?, body: Json::stored(row.get(2)?) })
    });
    answer.optional()
}

/// Notes an answer; it takes the place of an expired one with its key.
pub(crate) fn insert(connection: &Connection, answer: &Answer, seq: u64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO answer (key, request, seq, body, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let Answer { key, request, body, expires } = answer;
    statement.execute(params![key, request, signed(seq), body.as_str(), signed(expires.0)])?;
    Ok(())
}

pub(crate) fn delete_expired(connection: &Connection, now: Time) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM answer WHERE key IN (SELECT key FROM answer WHERE expires <= ?1 ORDER BY expires LIMIT ?2)",
    )?;
    statement.execute([signed(now.0), DELETED_MAX])?;
    Ok(())
}
