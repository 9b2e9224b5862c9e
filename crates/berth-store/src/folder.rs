//! The folder of one installation, and who may use it.

use crate::StoreError;
use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

const DATABASE: &str = "berth.db";
const DATABASE_LOG: &str = "berth.db-wal";
const HALF_RESTORED: &str = "berth.db.restoring";
const LOCK: &str = "lock";

/// A folder that this process alone uses, until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The system's lock lives as long as this handle.
    _lock: File,
}

impl Folder {
    /// Creates the folder if need be, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, StoreError> {
        create(path)?;
        let lock_path = path.join(LOCK);
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(StoreError::file("opening", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = lock.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let holder = if known { holder.trim().to_owned() } else { "of another user".to_owned() };
                return Err(StoreError::Locked { folder: path.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::file("locking", &lock_path)(source)),
        }
        let noted = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        noted.map_err(StoreError::file("writing", &lock_path))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// The write-ahead log of the database.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(DATABASE_LOG)
    }

    /// Where a restore puts the database until it is known to be whole.
    pub(crate) fn half_restored(&self) -> PathBuf {
        self.path.join(HALF_RESTORED)
    }

    /// Whether there is nothing in it that somebody could miss.
    pub(crate) fn is_empty(&self) -> Result<bool, StoreError> {
        let entries = fs::read_dir(&self.path).map_err(StoreError::file("reading", &self.path))?;
        for entry in entries {
            let name = entry.map_err(StoreError::file("reading", &self.path))?.file_name();
            let name = name.to_string_lossy();
            if name != LOCK && !name.starts_with(HALF_RESTORED) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the write-ahead log over itself. When a sync of an earlier process failed, the system may show what it never wrote,
    /// and would call it written when asked again; only bytes that are written again are sure to reach the disk.
    pub(crate) fn rewrite_log(&self) -> Result<(), StoreError> {
        let path = self.log();
        let rewritten = File::options().read(true).write(true).open(&path).and_then(|mut log| {
            let mut content = Vec::new();
            log.read_to_end(&mut content)?;
            log.rewind()?;
            log.write_all(&content)?;
            log.sync_all()
        });
        match rewritten {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            rewritten => rewritten.map_err(StoreError::file("rewriting", &path)),
        }
    }

    /// Makes the names in the folder durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        sync_folder(&self.path)
    }
}

pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(StoreError::file("syncing", path))
}

/// Secrets may pass through the log, so the folder is for its owner only.
fn create(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(StoreError::file("creating", path))
}
