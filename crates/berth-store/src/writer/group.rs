//! Group commit: everything that waits is written in one transaction, with one sync.

use crate::{
    Appended, Batch, StoreError, answers, finished,
    history::{self, SERIES_MAX, SeriesIndex},
    log,
    receipt::Promise,
    writer::Writer,
};
use rusqlite::{Connection, TransactionBehavior};

/// A batch, and who waits for it.
pub(crate) struct Entry {
    pub(crate) batch: Batch,
    pub(crate) promise: Promise<Appended>,
}

type Answers = Vec<Result<Appended, StoreError>>;

impl Writer {
    /// Writes a group and answers everybody in it.
    pub(super) fn commit(&mut self, group: Vec<Entry>) {
        if let Some(error) = self.read_only() {
            return group.into_iter().for_each(|entry| entry.promise.keep(Err(error.clone())));
        }
        let tally = self.tally;
        let answers = match self.write_group(&group) {
            Ok(answers) => answers,
            Err(error) => {
                self.tally = tally;
                // Series that were new are gone with the transaction.
                self.series = None;
                vec![Err(self.on_failed_write("appending", error)); group.len()]
            }
        };
        for (entry, answer) in group.into_iter().zip(answers) {
            entry.promise.keep(answer);
        }
    }

    fn write_group(&mut self, group: &[Entry]) -> rusqlite::Result<Answers> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let series = match &mut self.series {
            Some(series) => series,
            none => none.insert(SeriesIndex::load(&transaction)?),
        };
        let (mut answers, mut is_written) = (Answers::new(), false);
        for Entry { batch, .. } in group {
            let refused_or_repeated = judge(&transaction, batch, self.tally.last_seq, series)?;
            if let Some(answer) = refused_or_repeated {
                answers.push(answer);
                continue;
            }
            let after = self.tally.last_seq;
            for event in &batch.events {
                log::insert(&transaction, &mut self.tally, batch.at, event)?;
            }
            for workload in &batch.finished {
                finished::upsert(&transaction, workload)?;
            }
            for id in &batch.forgotten {
                finished::delete(&transaction, *id)?;
            }
            for sample in &batch.samples {
                history::insert(&transaction, series, &mut self.tally, batch.at, sample)?;
            }
            if !batch.samples.is_empty() {
                history::trim(&transaction, &mut self.tally, &self.limits, batch.at)?;
            }
            if let Some(answer) = &batch.answer {
                answers::delete_expired(&transaction, batch.at)?;
                answers::insert(&transaction, answer, self.tally.last_seq)?;
            }
            is_written = true;
            answers.push(Ok(Appended::Written { after, last: self.tally.last_seq }));
        }
        if is_written {
            self.tally.save(&transaction)?;
        }
        transaction.commit()?;
        Ok(answers)
    }
}

/// The answer to a batch that is not to be written.
fn judge(
    connection: &Connection,
    batch: &Batch,
    last_seq: u64,
    series: &SeriesIndex,
) -> rusqlite::Result<Option<Result<Appended, StoreError>>> {
    // A repeated request comes first: the log has moved on since, by this very request.
    if let Some(answer) = &batch.answer
        && let Some(given) = answers::load(connection, &answer.key, batch.at)?
    {
        let repeated = given.check(&answer.key, &answer.request);
        return Ok(Some(repeated.map(|()| Appended::Repeated { body: given.body, seq: given.seq })));
    }
    if let Some(expected) = batch.expected.filter(|expected| *expected != last_seq) {
        return Ok(Some(Err(StoreError::Moved { expected, actual: last_seq })));
    }
    if !batch.samples.is_empty() {
        let size = series.len_with(batch.samples.iter().map(|sample| sample.series.as_str()));
        if size > SERIES_MAX {
            let (what, size_max) = ("number of series", SERIES_MAX as u64);
            return Ok(Some(Err(StoreError::TooLarge { what, size: size as u64, size_max })));
        }
    }
    Ok(None)
}
