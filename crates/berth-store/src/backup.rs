//! Backup and restore: one file that says itself whether it is whole.
//!
//! A backup is the database, which any SQLite tool can open, followed by one line of JSON: `tail -n 1` shows it.

use crate::{
    StoreError,
    folder::{Folder, sync_folder},
    schema,
};
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
    ffi,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The form of the last line.
const FORM: u32 = 1;
/// More than the last line ever has.
const MANIFEST_BYTES_MAX: u64 = 4096;

/// What a backup says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of this manifest.
    pub berth_backup: u32,
    /// The version that wrote it.
    pub berth: String,
    /// The schema of its database.
    pub schema: u32,
    /// The last event in it.
    pub last_seq: u64,
    /// The bytes of its database, which is the file without its last line.
    pub bytes: u64,
    /// Their checksum, in hexadecimal digits.
    pub sha256: String,
}

/// Copies what a connection sees into a new file.
pub(crate) fn write(source: &Connection, to: &Path) -> Result<Manifest, StoreError> {
    // Its name is taken before anything is written, so that two backups at once do not overwrite each other.
    // It holds everything that the server knows, so it is for its owner alone.
    File::options().write(true).create_new(true).mode(0o600).open(to).map_err(|error| {
        match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::InTheWay { path: to.to_owned() },
            _ => StoreError::file("creating", to)(error),
        }
    })?;
    write_into(source, to).inspect_err(|_| {
        // It is empty. If it stays, it is refused when it is restored.
        let _ = fs::remove_file(to);
    })
}

fn write_into(source: &Connection, to: &Path) -> Result<Manifest, StoreError> {
    let partial = Partial::new(with_ending(to, ".partial"))?;
    copy_database(source, &partial.path).map_err(StoreError::unreadable("copying the database"))?;
    let (schema, last_seq) = schema::check_whole(&partial.path)?;
    let file = || StoreError::file("writing", &partial.path);
    let (bytes, sha256) = checksum(&partial.path).map_err(file())?;
    let berth = env!("CARGO_PKG_VERSION").to_owned();
    let manifest = Manifest { berth_backup: FORM, berth, schema, last_seq, bytes, sha256 };
    append_manifest(&partial.path, &manifest).map_err(file())?;
    fs::rename(&partial.path, to).map_err(StoreError::file("writing", to))?;
    sync_folder(parent(to))?;
    Ok(manifest)
}

/// Makes the store of a backup in an empty folder. Nothing counts there before it was found to be whole.
pub fn restore(backup: &Path, folder: &Path) -> Result<Manifest, StoreError> {
    let manifest = read_manifest(backup)?;
    let is_new = !folder.exists();
    let locked = Folder::lock(folder)?;
    if !locked.is_empty()? {
        return Err(StoreError::InTheWay { path: folder.to_owned() });
    }
    let restored = restore_into(backup, &manifest, &locked);
    drop(locked);
    if restored.is_err() && is_new {
        // It was not there before; what cannot be removed is empty but for its lock.
        let _ = fs::remove_dir_all(folder);
    }
    restored.map(|()| manifest)
}

fn restore_into(backup: &Path, manifest: &Manifest, folder: &Folder) -> Result<(), StoreError> {
    let bad = |reason: String| StoreError::BadBackup { path: backup.to_owned(), reason };
    let partial = Partial::new(folder.half_restored())?;
    copy_bytes(backup, &partial.path, manifest.bytes).map_err(StoreError::file("restoring", backup))?;
    let (bytes, sha256) = checksum(&partial.path).map_err(StoreError::file("reading", &partial.path))?;
    if bytes != manifest.bytes || sha256 != manifest.sha256 {
        return Err(bad("its checksum is not that of its content".into()));
    }
    let (_, last_seq) = schema::check_whole(&partial.path).map_err(|error| match error {
        StoreError::Newer { .. } => error,
        error => bad(error.to_string()),
    })?;
    if last_seq != manifest.last_seq {
        return Err(bad(format!("its last event is {last_seq} and should be {}", manifest.last_seq)));
    }
    let database = folder.database();
    fs::rename(&partial.path, &database).map_err(StoreError::file("writing", &database))?;
    folder.sync()
}

/// The last line of a backup.
pub fn read_manifest(backup: &Path) -> Result<Manifest, StoreError> {
    let unreadable = || StoreError::file("reading", backup);
    let bad = |reason: &str| StoreError::BadBackup { path: backup.to_owned(), reason: reason.to_owned() };
    let mut file = File::open(backup).map_err(unreadable())?;
    let size = file.metadata().map_err(unreadable())?.len();
    let tail_start = size.saturating_sub(MANIFEST_BYTES_MAX);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(tail_start)).and_then(|_| file.read_to_end(&mut tail)).map_err(unreadable())?;
    let line = tail.strip_suffix(b"\n").ok_or_else(|| bad("it does not end with its manifest"))?;
    let line_start = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
    let manifest: Manifest = serde_json::from_slice(&line[line_start..])
        .map_err(|_| bad("its last line is not a manifest; it may be cut off"))?;
    if manifest.berth_backup != FORM {
        return Err(bad("its manifest has a form of a later berth"));
    }
    // The line begins with a line break of its own, which is no part of the database.
    if manifest.bytes + 1 != tail_start + line_start as u64 {
        return Err(bad("it has another size than its manifest says"));
    }
    Ok(manifest)
}

fn copy_database(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open(to)?;
    let backup = Backup::new(source, &mut target)?;
    // In one step: it reads one view of the database, which in a write-ahead log nobody waits for. In several steps every
    // append in between would make it begin again.
    match backup.step(-1)? {
        StepResult::Done => {}
        _ => return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)),
    }
    drop(backup);
    // The copy is one file, without a write-ahead log beside it.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    target.close().map_err(|(_, error)| error)
}

fn append_manifest(path: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut file = File::options().append(true).open(path)?;
    writeln!(file, "\n{}", serde_json::to_string(manifest)?)?;
    file.sync_all()
}

fn checksum(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
    }
    let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, digits))
}

fn copy_bytes(from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
    let mut target = File::create(to)?;
    io::copy(&mut File::open(from)?.take(bytes), &mut target)?;
    target.sync_all()
}

/// A file that is removed unless it was given its name.
struct Partial {
    path: PathBuf,
}

impl Partial {
    /// What an earlier attempt left there is removed.
    fn new(path: PathBuf) -> Result<Self, StoreError> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::file("removing", &path)(error));
            }
            _ => {}
        }
        // It is made for its owner alone before anything is in it; whoever writes it finds it empty.
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        made.map(|_| Self { path: path.clone() }).map_err(StoreError::file("creating", &path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is gone when it was renamed.
        let _ = fs::remove_file(&self.path);
        for ending in ["-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(with_ending(&self.path, ending));
        }
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
