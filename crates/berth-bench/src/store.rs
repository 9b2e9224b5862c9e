//! The store: durable appends against what the disk itself can do, and a start with a long history.

use crate::{
    measure::{self, millis},
    report::{self, Report, Row},
};
use anyhow::{Context, Result, bail, ensure};
use berth_store::{Batch, FinishedFilter, FinishedWorkload, Json, NewEvent, Settings, Snapshot, Store};
use berth_types::{ProjectId, Time, WorkloadId};
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub(crate) const NAME: &str = "store";
pub(crate) const ABOUT: &str =
    "durable appends by 1 and 64 callers; a start with 100,000 finished workloads and 110,000 events";

/// How long each rate is measured in one round, and how often.
const MEASURED: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const BODY_BYTES: usize = 400;
const FINISHED: u64 = 100_000;
const EVENTS: u64 = 110_000;
/// The state with ten thousand waiting workloads, about a kilobyte each.
const SNAPSHOT_BYTES: usize = 10 << 20;
const SNAPSHOT_SEQ: u64 = 100_000;
const PAGE: usize = 100;

// One append costs a sync and little else; many share one.
const ONE_CALLER_RATIO: f64 = 2.0;
const MANY_CALLERS_RATIO: f64 = 0.2;
const OPEN_MS: f64 = 1_000.0;
const PAGE_MS: f64 = 30.0;
const MEMORY_BYTES: f64 = (100 << 20) as f64;

/// Measures everything.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let folder = Scratch::new()?;
    let mut one = Appends::open(&folder.0.join("append-1"), 1)?;
    let mut many = Appends::open(&folder.0.join("append-64"), 64)?;
    // In turns, and the best of each: other work on the machine and on its disk only takes away.
    let (mut raw, mut rates) = (0f64, [0f64; 2]);
    for round in 0..ROUNDS {
        let syncs = raw_syncs_per_sec(&folder.0)?;
        let measured = [one.per_sec()?, many.per_sec()?];
        println!(
            "  round {round}: {syncs:.0} syncs/s, {:.0} appends/s by 1, {:.0} by 64",
            measured[0], measured[1]
        );
        raw = raw.max(syncs);
        rates = [rates[0].max(measured[0]), rates[1].max(measured[1])];
    }
    report.add(Row::new("store/raw_sync/rate", raw, "1/s", None));
    for (appends, rate, target) in [(one, rates[0], ONE_CALLER_RATIO), (many, rates[1], MANY_CALLERS_RATIO)] {
        let name = format!("store/append_{}", appends.callers);
        appends.check()?;
        report.add(Row::new(format!("{name}/rate"), rate, "1/s", None));
        report.add(Row::new(format!("{name}/raw_syncs_per_append"), raw / rate, "ratio", Some(target)));
    }
    let long = folder.0.join("long");
    fill(&long)?;
    let [open, events, page] = open_long(&long)?.map(millis);
    report.add(Row::new("store/start/open", open, "ms", Some(OPEN_MS)));
    report.add(Row::new("store/start/open_and_read_events", open + events, "ms", Some(OPEN_MS)));
    report.add(Row::new("store/start/first_page", page, "ms", Some(PAGE_MS)));
    let memory = memory_of_child(&long)?;
    report.add(Row::new("store/start/peak_memory", memory, "bytes", Some(MEMORY_BYTES)));
    Ok(())
}

/// Opens a filled store once and prints the peak memory of this process.
pub(crate) fn peak_memory_bytes(folder: &str) -> Result<u64> {
    open_long(Path::new(folder))?;
    measure::peak_memory_bytes()
}

/// What the disk can do at most: a small write and a sync, again and again, in a file that does not grow, as a growing file
/// costs more.
fn raw_syncs_per_sec(folder: &Path) -> Result<f64> {
    const FILE_BYTES: u64 = 4 << 20;
    let mut file = File::create(folder.join("raw")).context("a file to sync")?;
    file.write_all(&vec![b'x'; FILE_BYTES as usize])?;
    file.sync_all()?;
    let body = [b'y'; BODY_BYTES];
    let (begin, mut count) = (Instant::now(), 0u32);
    while begin.elapsed() < MEASURED {
        file.write_all_at(&body, u64::from(count) * BODY_BYTES as u64 % (FILE_BYTES - BODY_BYTES as u64))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}

/// A store that callers append to, each as soon as its last append is durable.
struct Appends {
    folder: PathBuf,
    store: Store,
    callers: usize,
    appended: u64,
}

impl Appends {
    fn open(folder: &Path, callers: usize) -> Result<Self> {
        let (store, _) = Store::open(folder, &Settings::default())?;
        Ok(Self { folder: folder.to_owned(), store, callers, appended: 0 })
    }

    fn per_sec(&mut self) -> Result<f64> {
        let count = AtomicU64::new(0);
        let begin = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            let append = || -> Result<()> {
                while begin.elapsed() < MEASURED {
                    self.store.append(batch(1)?).wait()?;
                    count.fetch_add(1, Relaxed);
                }
                Ok(())
            };
            let callers: Vec<_> = (0..self.callers).map(|_| scope.spawn(append)).collect();
            callers.into_iter().try_for_each(|caller| caller.join().expect("a caller does not panic"))
        })?;
        let (spent, appended) = (begin.elapsed(), count.into_inner());
        self.appended += appended;
        Ok(appended as f64 / spent.as_secs_f64())
    }

    /// What was acknowledged is there after a restart.
    fn check(self) -> Result<()> {
        let Self { folder, store, appended, .. } = self;
        drop(store);
        let (_, start) = Store::open(&folder, &Settings::default())?;
        ensure!(start.last_seq == appended, "{appended} acknowledged, {} there", start.last_seq);
        Ok(())
    }
}

fn batch(events: usize) -> Result<Batch> {
    let body = Json::of(&"x".repeat(BODY_BYTES))?;
    let event = NewEvent { kind: "submitted".into(), version: 1, inputs: None, body };
    Ok(Batch { at: Time(1), events: vec![event; events], ..Batch::default() })
}

fn fill(folder: &Path) -> Result<()> {
    const CHUNK: u64 = 10_000;
    let (store, _) = Store::open(folder, &Settings::default())?;
    for first in (0..EVENTS).step_by(CHUNK as usize) {
        let finished = (first..first + CHUNK).filter(|id| *id < FINISHED).map(finished);
        let finished = finished.collect::<Result<_>>()?;
        store.append(Batch { finished, ..batch(CHUNK as usize)? }).wait()?;
    }
    let body = vec![b'x'; SNAPSHOT_BYTES];
    store.snapshot(Snapshot { seq: SNAPSHOT_SEQ, at: Time(1), body }).wait()?;
    Ok(())
}

fn finished(id: u64) -> Result<FinishedWorkload> {
    Ok(FinishedWorkload {
        id: WorkloadId(id),
        name: format!("job-{id}"),
        project: ProjectId(id % 20),
        user: format!("user-{}", id % 50),
        kind: "train".into(),
        phase: "succeeded".into(),
        hidden: false,
        submitted: Time(id),
        started: Some(Time(id + 1)),
        ended: Time(id + 2),
        document: Json::of(&"x".repeat(BODY_BYTES))?,
    })
}

/// How long it takes to open a filled store, to read the events after its snapshot, and to list a page.
fn open_long(folder: &Path) -> Result<[Duration; 3]> {
    let begin = Instant::now();
    let (store, start) = Store::open(folder, &Settings::default())?;
    let open = begin.elapsed();
    let snapshot = start.snapshot.context("there is a snapshot")?;
    let begin = Instant::now();
    let (mut seq, mut count) = (snapshot.seq, 0);
    loop {
        let page = store.load_events(seq, 1_000)?;
        let Some(last) = page.last() else { break };
        (seq, count) = (last.seq, count + page.len() as u64);
    }
    let events = begin.elapsed();
    let begin = Instant::now();
    let filter = FinishedFilter { project: Some(ProjectId(3)), ..FinishedFilter::default() };
    let page = store.load_finished_page(&filter, None, PAGE)?;
    let listed = begin.elapsed();
    ensure!(count == EVENTS - SNAPSHOT_SEQ && page.workloads.len() == PAGE, "something is missing");
    Ok([open, events, listed])
}

fn memory_of_child(folder: &Path) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?).args([NAME, "--memory"]).arg(folder).output()?;
    if !output.status.success() {
        bail!("measuring memory: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// A folder on the disk of the repository, removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = report::folder().join(format!("store-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
