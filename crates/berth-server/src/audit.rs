//! The audit log: a line for everything that somebody changed or tried to, in a file of its own that only grows.
//!
//! It is apart from the log of events because it also holds what did not happen. A change is noted before it is made, and its
//! outcome, on a line of its own, before the answer is sent: what cannot be noted is not done. A full file is put aside under a
//! number, and the oldest of those goes when there are too many.

use berth_api::{AuditEntry, AuditQuery};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
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
    /// What has begun, and whose outcome is still to come.
    begun: BTreeSet<u64>,
}

/// What became of something that was noted before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The number under which it was noted.
    #[serde(rename = "outcome_of")]
    pub(crate) seq: u64,
    pub(crate) status: u16,
    /// What it was about, when that was known only afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// A line of a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(Box<AuditEntry>),
    Outcome(Outcome),
}

impl Audit {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::with_size(folder, FILE_BYTES_MAX)
    }

    fn with_size(folder: &Path, file_bytes_max: u64) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut last = 0;
        for path in files(folder)? {
            each(&path, |line| match line {
                Line::Entry(entry) => last = last.max(entry.seq),
                Line::Outcome(outcome) => last = last.max(outcome.seq),
            })?;
        }
        let (mut file, mut bytes) = open(folder)?;
        if !ends_whole(folder, bytes)? {
            // A crash cut the last line; what follows begins on a line of its own.
            file.write_all(b"\n")?;
            bytes += 1;
        }
        let open = Mutex::new(Open { file, bytes, last, begun: BTreeSet::new() });
        Ok(Self { folder: folder.to_owned(), file_bytes_max, open })
    }

    /// Writes an entry under the next number.
    pub(crate) fn note(&self, entry: AuditEntry) -> io::Result<()> {
        let mut open = self.lock();
        let seq = open.last + 1;
        self.write(&mut open, &AuditEntry { seq, ..entry })?;
        open.last = seq;
        Ok(())
    }

    /// Writes down that something is about to be done; gives its number, for the outcome.
    pub(crate) fn begin(&self, entry: AuditEntry) -> io::Result<u64> {
        let mut open = self.lock();
        let seq = open.last + 1;
        self.write(&mut open, &AuditEntry { seq, status: 0, ..entry })?;
        open.last = seq;
        open.begun.insert(seq);
        Ok(seq)
    }

    /// Writes down what became of it.
    pub(crate) fn end(&self, outcome: &Outcome) -> io::Result<()> {
        let mut open = self.lock();
        let written = self.write(&mut open, outcome);
        open.begun.remove(&outcome.seq);
        written
    }

    /// Nobody will say what became of it.
    pub(crate) fn abandon(&self, seq: u64) {
        self.lock().begun.remove(&seq);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, open: &mut Open, line: &impl Serialize) -> io::Result<()> {
        if open.bytes >= self.file_bytes_max {
            open.file.sync_data()?;
            fs::rename(self.folder.join(OPEN), self.folder.join(format!("audit-{:020}.jsonl", open.last)))?;
            (open.file, open.bytes) = self::open(&self.folder)?;
            let files = files(&self.folder)?;
            for old in files.iter().take(files.len().saturating_sub(FILES_MAX as usize + 1)) {
                fs::remove_file(old)?;
            }
        }
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        let written = open.file.write_all(&line);
        if written.is_err() {
            // Half of a line would take the next one with it.
            let _ = open.file.set_len(open.bytes);
        } else {
            open.bytes += line.len() as u64;
        }
        written
    }

    /// Entries that fit a query, the oldest first: those after a number, or the newest, of all or before a number. What comes
    /// after something whose outcome is still to come is shown with it, so that whoever goes on from the last has missed nothing.
    pub(crate) fn read(
        &self,
        query: &AuditQuery,
        limit: usize,
        shown: impl Fn(&AuditEntry) -> bool,
    ) -> io::Result<Vec<AuditEntry>> {
        let end = {
            let open = self.lock();
            open.begun.first().copied().unwrap_or(open.last + 1)
        };
        let after = query.after.unwrap_or(0);
        let (mut begun, mut found) = (BTreeMap::new(), BTreeMap::new());
        let keep = |found: &mut BTreeMap<u64, AuditEntry>, entry: AuditEntry| {
            let fits = (after + 1..end).contains(&entry.seq)
                && query.before.is_none_or(|before| entry.seq < before)
                && query.user.as_ref().is_none_or(|user| entry.user.as_ref() == Some(user))
                && query.project.as_ref().is_none_or(|project| entry.project.as_ref() == Some(project))
                && shown(&entry);
            if fits {
                found.insert(entry.seq, entry);
            }
            if found.len() > limit {
                if query.after.is_some() {
                    found.pop_last()
                } else {
                    found.pop_first()
                };
            }
        };
        for path in files(&self.folder)? {
            each(&path, |line| match line {
                Line::Entry(entry) if entry.status == 0 => drop(begun.insert(entry.seq, *entry)),
                Line::Entry(entry) => keep(&mut found, *entry),
                Line::Outcome(outcome) => {
                    let Some(entry) = begun.remove(&outcome.seq) else { return };
                    let (status, problem) = (outcome.status, outcome.problem);
                    let target = outcome.target.unwrap_or(entry.target);
                    let project = outcome.project.or(entry.project);
                    keep(&mut found, AuditEntry { status, problem, target, project, ..entry });
                }
            })?;
        }
        // What became of these nobody knows.
        begun.into_values().for_each(|entry| keep(&mut found, entry));
        Ok(found.into_values().collect())
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
fn each(path: &Path, mut with: impl FnMut(Line)) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        if let Ok(line) = serde_json::from_slice(&line?) {
            with(line);
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
        assert_eq!(seqs(&audit, &AuditQuery { before: Some(8), ..AuditQuery::default() }, 2), [6, 7]);
        assert_eq!(seqs(&audit, &AuditQuery { before: Some(1), ..AuditQuery::default() }, 2), [0; 0]);
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

    #[test]
    fn what_has_begun_is_shown_with_its_outcome_or_as_unknown() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(folder.path()).expect("opens");
        let shown = |audit: &Audit, query: AuditQuery| {
            let read = audit.read(&query, 100, |_| true).expect("is read");
            read.iter().map(|entry| (entry.seq, entry.status)).collect::<Vec<_>>()
        };
        audit.note(entry("ada")).expect("is written");
        let slow = audit.begin(entry("ada")).expect("is written");
        let quick = audit.begin(AuditEntry { project: None, ..entry("bob") }).expect("is written");
        let project = Some("b".to_owned());
        let outcome = Outcome { seq: quick, status: 409, project, ..Outcome::default() };
        audit.end(&outcome).expect("is written");
        assert_eq!(
            shown(&audit, AuditQuery::default()),
            [(1, 201)],
            "nothing is shown before what is still open"
        );
        audit.end(&Outcome { seq: slow, status: 204, ..Outcome::default() }).expect("is written");
        assert_eq!(shown(&audit, AuditQuery::default()), [(1, 201), (2, 204), (3, 409)]);
        let of_b = AuditQuery { project: Some("b".into()), ..AuditQuery::default() };
        assert_eq!(shown(&audit, of_b), [(3, 409)], "what was known afterwards counts");
        let lost = audit.begin(entry("ada")).expect("is written");
        audit.abandon(lost);
        let audit = Audit::open(folder.path()).expect("opens");
        audit.note(entry("ada")).expect("is written");
        assert_eq!(shown(&audit, AuditQuery { after: Some(3), ..AuditQuery::default() }), [(4, 0), (5, 201)]);
    }
}
