//! Random scripts with random faults, against what a witness remembers.
//!
//! `BERTH_CASES` sets how many; `BERTH_SEED` replays one.
#![allow(missing_docs)]

mod support;

use berth_store::{Answer, Appended, Batch, Json, Resolution, Sample, Settings, Store, StoreError};
use berth_types::{Time, WorkloadId};
use std::collections::BTreeMap;
use support::{
    Temp, batch,
    disk::{Fault, Remains},
    finished,
    random::Random,
    seeds::{cases, for_each_seed},
    vfs::Vfs,
    witness::Witness,
};

const LIVES_MAX: u64 = 5;
const SERIES: [&str; 3] = ["a", "b", "c"];

struct Script {
    random: Random,
    witness: Witness,
    next_batch: u64,
}

impl Script {
    fn play_life(&mut self, store: &Store) -> Result<(), String> {
        for _ in 0..self.random.below(25) {
            match self.random.below(20) {
                0..=1 => {
                    let bytes = if self.witness.last_seq().is_multiple_of(2) { 1 } else { 7_000 };
                    self.witness.snapshot(store, bytes)?;
                }
                // It may fail like everything else; what matters is what is there afterwards.
                2 => drop(store.compact().wait()),
                3..=4 => self.repeat_request(store)?,
                5 => self.append_stale(store)?,
                _ => self.append_some(store)?,
            }
        }
        Ok(())
    }

    /// Several batches in flight at once, so that some share a write.
    fn append_some(&mut self, store: &Store) -> Result<(), String> {
        let batches: Vec<Batch> = (0..1 + self.random.below(4)).map(|_| self.draw_batch()).collect();
        let receipts: Vec<_> = batches.iter().map(|batch| store.append(batch.clone())).collect();
        for (batch, receipt) in batches.into_iter().zip(receipts) {
            self.witness.hear(batch, receipt.wait())?;
        }
        Ok(())
    }

    fn draw_batch(&mut self) -> Batch {
        let random = &mut self.random;
        let number = self.next_batch;
        self.next_batch += 1;
        let mut batch = batch(number, 1 + random.below(5));
        batch.at = Time(number * (1 + random.below(200_000)));
        batch.finished =
            (0..random.below(3)).map(|_| finished(random.below(30), random.below(1_000))).collect();
        // One id twice in a batch would be read as its last, which the witness does as well.
        if random.chance(20) {
            batch.forgotten = vec![WorkloadId(random.below(30))];
        }
        if random.chance(40) {
            let value = |series: &&str| Sample::new(*series, random.below(1_000) as i64);
            batch.samples = SERIES.iter().map(value).collect();
        }
        if random.chance(30) {
            let (key, request) = (format!("key-{number}"), number.to_le_bytes().to_vec());
            let body = Json::of(&number).expect("JSON");
            batch.answer = Some(Answer { key, request, body, expires: Time(1 << 60) });
        }
        batch
    }

    fn repeat_request(&mut self, store: &Store) -> Result<(), String> {
        let known: Vec<Answer> = self.witness.answers.values().cloned().collect();
        if known.is_empty() {
            return Ok(());
        }
        let mut answer = self.random.pick(&known).clone();
        let is_other = self.random.chance(30);
        if is_other {
            answer.request.push(1);
        }
        let body = answer.body.clone();
        let repeated = store.append(Batch { answer: Some(answer), ..batch(0, 3) }).wait();
        match repeated {
            Ok(Appended::Repeated { body: given, .. }) if !is_other && given == body => Ok(()),
            Err(StoreError::KeyReused { .. }) if is_other => Ok(()),
            Err(error) if is_broken(&error) => Ok(()),
            other => Err(format!("a repeated request was answered with {other:?}")),
        }
    }

    fn append_stale(&mut self, store: &Store) -> Result<(), String> {
        let expected = Some(self.witness.last_seq() + 1);
        match store.append(Batch { expected, ..batch(0, 3) }).wait() {
            Err(StoreError::Moved { .. }) => Ok(()),
            Err(error) if is_broken(&error) => Ok(()),
            other => Err(format!("a stale batch was answered with {other:?}")),
        }
    }

    fn check_more(&self, store: &Store) -> Result<(), String> {
        for answer in self.witness.answers.values() {
            let given = store
                .load_answer(&answer.key, &answer.request, Time(0))
                .map_err(|error| error.to_string())?;
            if given.as_ref().map(|given| &given.body) != Some(&answer.body) {
                return Err(format!("{answer:?} is remembered as {given:?}"));
            }
        }
        for series in SERIES {
            let mut expected: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
            for ((_, at), value) in self.witness.samples.iter().filter(|((name, _), _)| name == series) {
                let (count, sum) = expected.entry(at / 3_600_000 * 3_600_000).or_default();
                (*count, *sum) = (*count + 1, *sum + value);
            }
            let points = store.load_series(series, Resolution::Hours, Time(0), Time(1 << 32));
            let points = points.map_err(|error| error.to_string())?;
            let found: BTreeMap<u64, (u64, i64)> =
                points.iter().map(|point| (point.at.0, (point.count, point.sum))).collect();
            if found != expected {
                return Err(format!("{series}: {found:?}, not {expected:?}"));
            }
        }
        Ok(())
    }

    fn draw_fault(&mut self) -> Option<(u64, Fault)> {
        let at = self.random.below(400);
        let fault = match self.random.below(7) {
            0 => return None,
            1 => Fault::Fails,
            2 => Fault::Full,
            3 => Fault::Crash(Remains::Nothing),
            4 => Fault::Crash(Remains::AllAndHalf),
            _ => Fault::Crash(Remains::AnySectors(self.random.next())),
        };
        Some((at, fault))
    }
}

fn is_broken(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::DiskFull
            | StoreError::Failed { .. }
            | StoreError::InDoubt { .. }
            | StoreError::ReadOnly { .. }
    )
}

fn check(seed: u64) -> Result<(), String> {
    let temp = Temp::new();
    let mut script = Script { random: Random(seed), witness: Witness::default(), next_batch: 1 };
    let mut folder = temp.join("life-0");
    let history_bytes_max = *script.random.pick(&[1 << 30, 600_000]);
    let settings = Settings { history_bytes_max, snapshot_part_bytes: 3_000, ..Settings::default() };
    for life in 1..=1 + script.random.below(LIVES_MAX) {
        let vfs = Vfs::new();
        if let Some((at, fault)) = script.draw_fault() {
            vfs.disk().inject(at, fault);
        }
        let opened = Store::open(&folder, &Settings { vfs: Some(vfs.name()), ..settings.clone() });
        match opened {
            Ok((store, start)) => {
                script.witness.check_start(&store, &start).map_err(|text| format!("life {life}: {text}"))?;
                script.check_more(&store).map_err(|text| format!("life {life}: {text}"))?;
                script.play_life(&store).map_err(|text| format!("life {life}: {text}"))?;
            }
            Err(StoreError::Unreadable { .. }) => {}
            Err(error) => return Err(format!("life {life}: open: {error:?}")),
        }
        if vfs.disk().is_crashed() {
            folder = temp.join(&format!("life-{life}"));
            vfs.disk().write_remains(&folder);
        }
    }
    script.witness.check(&folder, &settings)
}

#[test]
fn what_was_acknowledged_is_there_after_any_history_of_faults() {
    for_each_seed("any history of faults", cases(200), check);
}
