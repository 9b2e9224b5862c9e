//! Somebody who remembers what the store acknowledged, and looks afterwards whether it is there.

use super::{Mark, all_events, check_file, vfs::Vfs};
use berth_store::{Answer, Appended, Batch, FinishedWorkload, Settings, Snapshot, Start, Store, StoreError};
use berth_types::{Time, WorkloadId};
use std::{collections::BTreeMap, path::Path};

/// What is known of a store from its answers alone.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    acknowledged: Vec<Mark>,
    finished: BTreeMap<WorkloadId, FinishedWorkload>,
    /// Samples, by series and time.
    pub samples: BTreeMap<(String, u64), i64>,
    /// Answers, by key.
    pub answers: BTreeMap<String, Answer>,
    /// Batches of one write of which the store could not say whether it is kept; none comes after it.
    in_doubt: Vec<Batch>,
    /// Snapshots that were asked for, acknowledged or not.
    snapshots: BTreeMap<u64, Vec<u8>>,
    snapshot_acknowledged: u64,
    /// Whether anything was not acknowledged.
    pub is_refused: bool,
}

impl Witness {
    pub fn last_seq(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// Appends, and remembers the answer.
    pub fn append(&mut self, store: &Store, batch: Batch) -> Result<(), String> {
        let receipt = store.append(batch.clone());
        self.hear(batch, receipt.wait())
    }

    pub fn hear(&mut self, batch: Batch, answer: Result<Appended, StoreError>) -> Result<(), String> {
        self.is_refused |= answer.is_err();
        match answer {
            Ok(Appended::Written { after, last }) => {
                if after != self.last_seq() || last != after + batch.events.len() as u64 {
                    return Err(format!("written as {after}..{last}, but {} was last", self.last_seq()));
                }
                self.remember(batch);
                Ok(())
            }
            Err(StoreError::InDoubt { .. }) => {
                self.in_doubt.push(batch);
                Ok(())
            }
            Err(StoreError::DiskFull | StoreError::Failed { .. } | StoreError::ReadOnly { .. }) => Ok(()),
            other => Err(format!("unexpected answer {other:?}")),
        }
    }

    pub fn snapshot(&mut self, store: &Store, bytes: usize) -> Result<(), String> {
        let seq = self.last_seq();
        let body: Vec<u8> = (0..bytes).map(|index| (index as u64 * 31 + seq) as u8).collect();
        self.snapshots.insert(seq, body.clone());
        match store.snapshot(Snapshot { seq, at: Time(seq), body }).wait() {
            Ok(()) => self.snapshot_acknowledged = seq,
            Err(
                StoreError::DiskFull
                | StoreError::Failed { .. }
                | StoreError::InDoubt { .. }
                | StoreError::ReadOnly { .. },
            ) => {}
            Err(other) => return Err(format!("unexpected answer {other:?}")),
        }
        Ok(())
    }

    /// Opens what is left, on a disk without faults, and compares. The store takes writes again afterwards.
    pub fn check(&mut self, folder: &Path, settings: &Settings) -> Result<(), String> {
        let vfs = Vfs::new();
        let settings = Settings { vfs: Some(vfs.name()), ..settings.clone() };
        let (store, start) = Store::open(folder, &settings).map_err(|error| format!("open: {error:?}"))?;
        self.check_start(&store, &start)?;
        let number = 1_000_000 + start.last_seq;
        self.append(&store, super::batch(number, 2))?;
        if self.last_seq() != start.last_seq + 2 {
            return Err("the store took no write after its restart".into());
        }
        drop(store);
        check_file(folder)
    }

    /// Compares an open store with what is remembered, and remembers what has become certain.
    pub fn check_start(&mut self, store: &Store, start: &Start) -> Result<(), String> {
        let in_doubt = std::mem::take(&mut self.in_doubt);
        if start.last_seq != self.last_seq() {
            in_doubt.into_iter().for_each(|batch| self.remember(batch));
        }
        if start.last_seq != self.last_seq() {
            return Err(format!("the last event is {}, not {}", start.last_seq, self.last_seq()));
        }
        let events = all_events(store);
        let first = events.first().map_or(start.last_seq + 1, |event| event.seq);
        let found: Vec<Mark> = events
            .iter()
            .map(|event| event.body.read::<Mark>().map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        if found[..] != self.acknowledged[first as usize - 1..] {
            return Err(format!("from {first} on, found {found:?}, not {:?}", self.acknowledged));
        }
        let from = start.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
        if first > from + 1 || from < self.snapshot_acknowledged || !start.damaged_snapshots.is_empty() {
            return Err(format!("a start from {from} with events from {first}, {start:?}"));
        }
        if let Some(snapshot) = &start.snapshot
            && self.snapshots.get(&snapshot.seq) != Some(&snapshot.body)
        {
            return Err(format!("the snapshot at {from} is not what was written"));
        }
        self.check_finished(store)
    }

    fn check_finished(&self, store: &Store) -> Result<(), String> {
        let page =
            store.load_finished_page(&Default::default(), None, 1_000).map_err(|error| error.to_string())?;
        let found: BTreeMap<_, _> =
            page.workloads.into_iter().map(|workload| (workload.id, workload)).collect();
        if found != self.finished {
            return Err(format!("finished are {:?}, not {:?}", found.keys(), self.finished.keys()));
        }
        Ok(())
    }

    fn remember(&mut self, batch: Batch) {
        let marks = batch.events.iter().map(|event| event.body.read::<Mark>().expect("a mark"));
        self.acknowledged.extend(marks);
        self.finished.extend(batch.finished.into_iter().map(|workload| (workload.id, workload)));
        for id in batch.forgotten {
            self.finished.remove(&id);
        }
        for sample in batch.samples {
            self.samples.entry((sample.series, batch.at.0)).or_insert(sample.value);
        }
        self.answers.extend(batch.answer.map(|answer| (answer.key.clone(), answer)));
    }
}
