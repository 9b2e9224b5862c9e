//! Connections that read, so that a list never waits for the writer.

use crate::{StoreError, schema};
use rusqlite::Connection;
use std::{
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// A few connections, opened when they are first needed.
#[derive(Debug)]
pub(crate) struct Readers {
    database: PathBuf,
    vfs: Option<String>,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug)]
struct Pool {
    idle: Vec<Connection>,
    may_open: usize,
}

impl Readers {
    pub(crate) fn new(database: PathBuf, vfs: Option<String>, connections_max: usize) -> Self {
        let pool = Mutex::new(Pool { idle: Vec::new(), may_open: connections_max.max(1) });
        Self { database, vfs, pool, returned: Condvar::new() }
    }

    /// Reads one consistent view of the database. Waits while every connection is in use.
    pub(crate) fn read<T>(
        &self,
        doing: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut connection = self.take()?;
        let answer = connection
            .transaction()
            .and_then(|transaction| query(&transaction))
            .map_err(StoreError::unreadable(doing));
        self.give_back(connection);
        answer
    }

    /// A connection besides the pool, for what takes long.
    pub(crate) fn open_another(&self) -> Result<Connection, StoreError> {
        schema::open_reader(&self.database, self.vfs.as_deref())
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let mut pool = self.lock();
        loop {
            if let Some(connection) = pool.idle.pop() {
                return Ok(connection);
            }
            if pool.may_open > 0 {
                pool.may_open -= 1;
                break;
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pool);
        self.open_another().inspect_err(|_| {
            self.lock().may_open += 1;
            self.returned.notify_one();
        })
    }

    fn give_back(&self, connection: Connection) {
        self.lock().idle.push(connection);
        self.returned.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
