//! The database file: how it is opened, whose it is, and which form it has.

use crate::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig, ffi};
use std::{path::Path, time::Duration};

/// Marks a file as ours: "Brth".
const APPLICATION_ID: u32 = 0x4272_7468;

/// The forms the database went through, oldest first. A released one never changes; a new one is added at the end.
const MIGRATIONS: [&str; 2] =
    [include_str!("../migrations/0001_log.sql"), include_str!("../migrations/0002_windows.sql")];

/// Statements that stay compiled in a connection.
const STATEMENTS_KEPT: usize = 64;

/// How long a connection waits for somebody who looks at the database with another tool.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the one connection that writes, and brings the database to the current form.
pub(crate) fn open_writer(path: &Path, vfs: Option<&str>) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let opening = || StoreError::unreadable("opening the database");
    let connection = open(path, flags, vfs).map_err(opening())?;
    check_owner(&connection, path)?;
    // SQLite answers before it has switched, and goes on as if it had when that failed; a new connection believes the file.
    connection.execute_batch("PRAGMA journal_mode = WAL").map_err(opening())?;
    drop(connection);
    let mut connection = open(path, flags, vfs).map_err(opening())?;
    prepare(&connection).map_err(StoreError::unreadable("preparing the database"))?;
    migrate(&mut connection, &MIGRATIONS)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if journal != "wal" {
        let text = format!("its journal stays {journal} and must be wal: use a folder on a local disk");
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(text)));
    }
    // A checkpoint belongs between two answers and not before one: the writer says when.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 16777216;
         PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;",
    )
}

/// Holds the file to a size; what would pass it fails as on a full disk.
pub(crate) fn limit_file(connection: &Connection, bytes_max: u64) -> rusqlite::Result<()> {
    let page_bytes: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let pages = i64::try_from(bytes_max).unwrap_or(i64::MAX) / page_bytes.max(1);
    connection.query_row(
        &format!("PRAGMA max_page_count = {}", pages.clamp(1, 4_294_967_294)),
        [],
        |_| Ok(()),
    )
}

/// Opens a connection that cannot write.
pub(crate) fn open_reader(path: &Path, vfs: Option<&str>) -> Result<Connection, StoreError> {
    let opened = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, vfs).and_then(|connection| {
        connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -2048;")?;
        Ok(connection)
    });
    opened.map_err(StoreError::unreadable("opening the database to read"))
}

/// Judges a file that is about to become our database. Gives its schema and its last event.
pub(crate) fn check_whole(path: &Path) -> Result<(u32, u64), StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, None)
        .map_err(StoreError::unreadable("opening the database"))?;
    check_owner(&connection, path)?;
    let check: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(StoreError::unreadable("checking the database"))?;
    if check != "ok" {
        return Err(StoreError::Damaged(check));
    }
    let schema = pragma(&connection, "user_version")?;
    check_known(&connection, schema, MIGRATIONS.len() as u32)?;
    let last_seq = connection
        .query_row("SELECT last_seq FROM tally", [], |row| row.get::<_, i64>(0))
        .map_err(StoreError::unreadable("reading the last sequence"))?;
    Ok((schema, last_seq as u64))
}

fn open(path: &Path, flags: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // After a failed sync the last to close must not copy what may not be on the disk.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Refuses files that are not ours before anything is changed in them.
fn check_owner(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let foreign = |reason: String| StoreError::Foreign { path: path.to_owned(), reason };
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    let tables = match tables {
        Ok(tables) => tables,
        Err(rusqlite::Error::SqliteFailure(error, _)) if error.code == rusqlite::ErrorCode::NotADatabase => {
            return Err(foreign("it is not an SQLite file".into()));
        }
        Err(error) => return Err(StoreError::unreadable("reading the database")(error)),
    };
    let id = pragma(connection, "application_id")?;
    let is_new = tables == 0 && id == 0;
    if id == APPLICATION_ID || is_new {
        return Ok(());
    }
    Err(foreign(format!("its application id is {id:#x}, not {APPLICATION_ID:#x}")))
}

fn check_known(connection: &Connection, found: u32, known: u32) -> Result<(), StoreError> {
    if found <= known {
        return Ok(());
    }
    let needs = connection.query_row("SELECT value FROM meta WHERE key = 'berth'", [], |row| row.get(0));
    Err(StoreError::Newer { found, known, needs: needs.unwrap_or_else(|_| "of a later version".into()) })
}

/// Applies what is missing, each step in a transaction of its own.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let found = pragma(connection, "user_version")?;
    check_known(connection, found, migrations.len() as u32)?;
    for (version, sql) in (1..).zip(migrations).skip(found as usize) {
        migrate_to(connection, version, sql).map_err(StoreError::unreadable("migrating the database"))?;
    }
    Ok(())
}

fn migrate_to(connection: &mut Connection, version: u32, sql: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(sql)?;
    transaction.execute("INSERT OR REPLACE INTO meta VALUES ('berth', ?1)", [env!("CARGO_PKG_VERSION")])?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

fn pragma(connection: &Connection, name: &str) -> Result<u32, StoreError> {
    let value = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let value = value.map_err(StoreError::unreadable("reading the database's header"))?;
    Ok(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT); CREATE TABLE a (x);";

    fn version(connection: &Connection) -> u32 {
        pragma(connection, "user_version").expect("a version")
    }

    #[test]
    fn only_missing_migrations_are_applied_and_in_order() {
        let mut connection = Connection::open_in_memory().expect("memory");
        migrate(&mut connection, &[FIRST]).expect("the first");
        assert_eq!(version(&connection), 1);
        let second = "ALTER TABLE a ADD COLUMN y; INSERT INTO a VALUES (1, 2);";
        for _ in 0..2 {
            migrate(&mut connection, &[FIRST, second]).expect("the second, once");
        }
        let rows: i64 =
            connection.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).expect("a count");
        assert_eq!((version(&connection), rows), (2, 1));
    }

    #[test]
    fn a_migration_that_fails_leaves_the_form_before_it() {
        let mut connection = Connection::open_in_memory().expect("memory");
        let half = "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1);";
        migrate(&mut connection, &[FIRST, half]).expect_err("there is no such table");
        assert_eq!(version(&connection), 1);
        connection.prepare("SELECT x FROM b").expect_err("b is not there");
    }

    #[test]
    fn a_later_form_is_refused_with_the_version_that_knows_it() {
        let mut connection = Connection::open_in_memory().expect("memory");
        migrate(&mut connection, &[FIRST, "UPDATE meta SET value = value;"]).expect("both");
        connection.execute("UPDATE meta SET value = '9.1.0'", []).expect("a version");
        let error = migrate(&mut connection, &[FIRST]).expect_err("it is newer");
        let text = error.to_string();
        assert!(
            text.contains("schema 2 of berth 9.1.0") && text.ends_with("use berth 9.1.0 or later"),
            "{text}"
        );
    }
}
