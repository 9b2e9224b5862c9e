//! What is written together.

use crate::{Json, StoreError, error::integer, finished::FinishedWorkload};
use berth_types::{Time, WorkloadId};

/// Everything one command writes: kept as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// When it happens. The store has no clock: this is also what expiry and age are measured by.
    pub at: Time,
    /// The last event the command was decided on, if it must be refused when others came since.
    pub expected: Option<u64>,
    /// Events, in order.
    pub events: Vec<NewEvent>,
    /// Workloads that are over; one with a known id replaces it.
    pub finished: Vec<FinishedWorkload>,
    /// Finished workloads to be deleted.
    pub forgotten: Vec<WorkloadId>,
    /// Samples of this time, for charts.
    pub samples: Vec<Sample>,
    /// What the caller will be answered, if the same request may come again.
    pub answer: Option<Answer>,
}

/// An event that has no place in the log yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What happened, as a short name.
    pub kind: String,
    /// The version of the body's form.
    pub version: u32,
    /// For a decision: the last event it was decided on.
    pub inputs: Option<u64>,
    /// The rest, which the store does not read.
    pub body: Json,
}

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its place in the log, from one, without gaps.
    pub seq: u64,
    /// When it happened.
    pub at: Time,
    /// What happened, as a short name.
    pub kind: String,
    /// The version of the body's form.
    pub version: u32,
    /// For a decision: the last event it was decided on.
    pub inputs: Option<u64>,
    /// The rest.
    pub body: Json,
}

/// An answer that is given again when the same request comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The idempotency key; whose key it is, is part of it.
    pub key: String,
    /// A hash of the request.
    pub request: Vec<u8>,
    /// What was answered.
    pub body: Json,
    /// From when on the key is free again.
    pub expires: Time,
}

/// A value at the time of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What is measured, as `gpus_used/team-a`.
    pub series: String,
    /// How much, in the fixed-point unit of the series.
    pub value: i64,
    /// What was since the sample before, when that is known; otherwise the value stands for all of it.
    pub window: Option<Window>,
}

/// What a number was between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The mean over time.
    pub mean: i64,
    /// The smallest.
    pub min: i64,
    /// The largest.
    pub max: i64,
}

impl Sample {
    /// A value of which nothing more is known.
    pub fn new(series: impl Into<String>, value: i64) -> Self {
        Self { series: series.into(), value, window: None }
    }

    pub(crate) fn window(&self) -> Window {
        self.window.unwrap_or(Window { mean: self.value, min: self.value, max: self.value })
    }
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It is durable. Its events are those after `after`, up to and with `last`.
    Written {
        /// The last event before it.
        after: u64,
        /// The last event with it.
        last: u64,
    },
    /// The same request was answered before; nothing was written.
    Repeated {
        /// What was answered.
        body: Json,
        /// The last event of that time.
        seq: u64,
    },
}

/// The largest body of one event, document or answer.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// The longest kind, key, name of a series, or other text that is not a body.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The most rows in one batch.
pub const BATCH_ROWS_MAX: usize = 100_000;

impl Batch {
    /// Rows it writes.
    pub(crate) fn rows(&self) -> usize {
        self.events.len() + self.finished.len() + self.forgotten.len() + self.samples.len()
    }

    /// Refuses what cannot be stored, before it waits in a queue with others.
    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        bound("rows in one batch", self.rows(), BATCH_ROWS_MAX)?;
        integer("time of a batch, in milliseconds", self.at.0)?;
        for event in &self.events {
            bound("bytes in the kind of an event", event.kind.len(), TEXT_BYTES_MAX)?;
            bound("bytes in the body of an event", event.body.as_str().len(), BODY_BYTES_MAX)?;
            integer("inputs of a decision", event.inputs.unwrap_or(0))?;
        }
        for workload in &self.finished {
            workload.validate()?;
        }
        for id in &self.forgotten {
            integer("id of a workload", id.0)?;
        }
        for sample in &self.samples {
            bound("bytes in the name of a series", sample.series.len(), TEXT_BYTES_MAX)?;
        }
        if let Some(answer) = &self.answer {
            bound("bytes in an idempotency key", answer.key.len(), TEXT_BYTES_MAX)?;
            bound("bytes in the hash of a request", answer.request.len(), TEXT_BYTES_MAX)?;
            bound("bytes in an answer", answer.body.as_str().len(), BODY_BYTES_MAX)?;
            integer("expiry of an answer", answer.expires.0)?;
        }
        Ok(())
    }
}

pub(crate) fn bound(what: &'static str, size: usize, size_max: usize) -> Result<(), StoreError> {
    if size <= size_max {
        return Ok(());
    }
    Err(StoreError::TooLarge { what, size: size as u64, size_max: size_max as u64 })
}
