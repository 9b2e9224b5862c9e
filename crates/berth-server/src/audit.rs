//! The audit log: a line for everything that somebody changed or tried to, in a file of its own that only grows.
//!
//! It is apart from the log of events because it also holds what did not happen. A line is in the file before the answer is
//! sent; a full file is put aside under a number, and the oldest of those goes when there are too many.

use berth_api::{AuditEntry, AuditQuery};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A file is put aside when it is as large as this.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Files that are kept beside the one that grows.
const FILES_MAX: u64 = 31;
const OPEN: &str = "audit.jsonl";

/// Writes the audit log, and reads it.
#[derive(Debug)]
pub(crate) struct Audit {
    folder: PathBuf,
    file_bytes_max: u64,
    open: Mutex<Open>,
}

/// The file that grows.
#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    last: u64,
}

impl Audit {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::with_size(folder, FILE_BYTES_MAX)
    }

    fn with_size(folder: &Path, file_bytes_max: u64) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut last = 0;
        for path in files(folder)? {
            each(&path, |entry| last = last.max(entry.seq))?;
        }
        let (mut file, mut bytes) = open(folder)?;
        if !ends_whole(folder, bytes)? {
            // A crash cut the last line; what follows begins on a line of its own.
            file.write_all(b"\n")?;
            bytes += 1;
        }
        let open = Mutex::new(Open { file, bytes, last });
        Ok(Self { folder: folder.to_owned(), file_bytes_max, open })
    }

    /// Writes an entry under the next number.
    pub(crate) fn note(&self, entry: AuditEntry) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.bytes >= self.file_bytes_max {
            open.file.sync_data()?;
            fs::rename(self.folder.join(OPEN), self.folder.join(format!("audit-{:020}.jsonl", open.last)))?;
            (open.file, open.bytes) = self::open(&self.folder)?;
            let files = files(&self.folder)?;
            for old in files.iter().take(files.len().saturating_sub(FILES_MAX as usize + 1)) {
                fs::remove_file(old)?;
            }
        }
        let mut line = serde_json::to_vec(&AuditEntry { seq: open.last + 1, ..entry })?;
        line.push(b'\n');
        open.file.write_all(&line)?;
        open.bytes += line.len() as u64;
        open.last += 1;
        Ok(())
    }

    /// Entries that fit a query, the oldest first: those after a number, or the newest.
    pub(crate) fn read(
        &self,
        query: &AuditQuery,
        limit: usize,
        shown: impl Fn(&AuditEntry) -> bool,
    ) -> io::Result<Vec<AuditEntry>> {
        let mut found = std::collections::VecDeque::new();
        let after = query.after.unwrap_or(0);
        for path in files(&self.folder)? {
            each(&path, |entry| {
                let fits = entry.seq > after
                    && query.user.as_ref().is_none_or(|user| entry.user.as_ref() == Some(user))
                    && query.project.as_ref().is_none_or(|project| entry.project.as_ref() == Some(project))
                    && shown(&entry);
                if !fits || (query.after.is_some() && found.len() == limit) {
                    return;
                }
                if found.len() == limit {
                    found.pop_front();
                }
                found.push_back(entry);
            })?;
        }
        Ok(found.into())
    }
}

fn open(folder: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(OPEN))?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

fn ends_whole(folder: &Path, bytes: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut last = [0];
    if bytes == 0 {
        return Ok(true);
    }
    File::open(folder.join(OPEN))?.read_exact_at(&mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

/// All files, the oldest first.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let mut aside: Vec<PathBuf> = names
        .into_iter()
        .filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("audit-"))
        })
        .collect();
    aside.sort();
    let open = folder.join(OPEN);
    aside.extend(open.exists().then_some(open));
    Ok(aside)
}

/// Lines that a crash cut are left out.
fn each(path: &Path, mut with: impl FnMut(AuditEntry)) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        if let Ok(entry) = serde_json::from_slice(&line?) {
            with(entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Timestamp;
    use berth_types::Time;

    fn entry(user: &str) -> AuditEntry {
        AuditEntry {
            seq: 0,
            at: Timestamp(Time(1_000)),
            user: Some(user.into()),
            by: None,
            from: "127.0.0.1".into(),
            action: "POST /api/v1/workloads".into(),
            target: "a/b".into(),
            project: Some("a".into()),
            status: 201,
            problem: None,
        }
    }

    fn seqs(audit: &Audit, query: &AuditQuery, limit: usize) -> Vec<u64> {
        let read = audit.read(query, limit, |_| true).expect("is read");
        read.iter().map(|entry| entry.seq).collect()
    }

    #[test]
    fn it_goes_on_after_a_restart_and_over_files() {
        let folder = tempfile::tempdir().expect("a folder");
        for _ in 0..2 {
            let audit = Audit::with_size(folder.path(), 500).expect("opens");
            (0..5).for_each(|_| audit.note(entry("ada")).expect("is written"));
        }
        let audit = Audit::with_size(folder.path(), 500).expect("opens");
        assert!(files(folder.path()).expect("is read").len() > 2);
        assert_eq!(seqs(&audit, &AuditQuery::default(), 100), (1..=10).collect::<Vec<_>>());
        assert_eq!(seqs(&audit, &AuditQuery::default(), 3), [8, 9, 10], "the newest");
        assert_eq!(seqs(&audit, &AuditQuery { after: Some(4), ..AuditQuery::default() }, 2), [5, 6]);
        let of_bob = AuditQuery { user: Some("bob".into()), ..AuditQuery::default() };
        assert!(seqs(&audit, &of_bob, 10).is_empty());
    }

    #[test]
    fn a_line_that_a_crash_cut_spoils_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(folder.path()).expect("opens");
        audit.note(entry("ada")).expect("is written");
        fs::OpenOptions::new()
            .append(true)
            .open(folder.path().join(OPEN))
            .and_then(|mut file| file.write_all(b"{\"seq\":2,\"at"))
            .expect("is written");
        let audit = Audit::open(folder.path()).expect("opens");
        audit.note(entry("ada")).expect("is written");
        assert_eq!(seqs(&audit, &AuditQuery::default(), 10), [1, 2]);
    }
}
