//! Events as they become durable, for streams, and for readers who must not show what could still be lost.

use crate::platform::About;
use berth_api::{Event, Level, Samples, Timestamp};
use berth_types::Time;
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;

/// Events kept in memory; older ones are read from the store.
const RECENT_MAX: usize = 8_192;

/// What is told of an event, of everything that lies in the log with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Its name in the log; there it has a column of its own.
    #[serde(skip)]
    pub(crate) kind: String,
    pub(crate) about: About,
}

/// What is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durable {
    /// The last event.
    pub(crate) seq: u64,
    /// How often what was in memory had to be forgotten, because the store refused it.
    pub(crate) epoch: u64,
}

/// The newest events, and a bell.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<VecDeque<Arc<Event>>>,
    durable: watch::Sender<Durable>,
    closing: watch::Sender<bool>,
    samples: watch::Sender<Option<Arc<Samples>>>,
}

impl Feed {
    /// A feed that begins after an event.
    pub(crate) fn new(seq: u64) -> Self {
        Self {
            recent: Mutex::default(),
            durable: watch::Sender::new(Durable { seq, epoch: 0 }),
            closing: watch::Sender::new(false),
            samples: watch::Sender::new(None),
        }
    }

    /// Events that are durable now.
    pub(crate) fn publish(&self, before: u64, at: Time, told: Vec<Told>) {
        if told.is_empty() {
            return;
        }
        let last = before + told.len() as u64;
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            for (seq, told) in (before + 1..).zip(told) {
                recent.push_back(Arc::new(event(seq, at, &told.kind, told.about)));
            }
            let excess = recent.len().saturating_sub(RECENT_MAX);
            recent.drain(..excess);
        }
        self.durable.send_modify(|durable| durable.seq = last);
    }

    /// The last event that is durable.
    pub(crate) fn last(&self) -> u64 {
        self.durable.borrow().seq
    }

    /// What was in memory is forgotten; whoever has seen it must look again.
    pub(crate) fn start_over(&self, epoch: u64) {
        self.durable.send_modify(|durable| durable.epoch = epoch);
    }

    /// Waits until what was seen is durable; whether it is, or was forgotten instead. Ends also when the server does.
    pub(crate) async fn until(&self, seen: Durable) -> bool {
        let mut durable = self.durable.subscribe();
        let reached = durable.wait_for(|now| now.seq >= seen.seq || now.epoch != seen.epoch).await;
        reached.is_ok_and(|now| now.epoch == seen.epoch)
    }

    /// Lets every stream come to its end; whoever follows one connects again.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until streams are to end.
    pub(crate) async fn closed(&self) {
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// What was just noted for charts.
    pub(crate) fn note(&self, samples: Samples) {
        self.samples.send_replace(Some(Arc::new(samples)));
    }

    /// Hears of what is noted for charts.
    pub(crate) fn notes(&self) -> watch::Receiver<Option<Arc<Samples>>> {
        self.samples.subscribe()
    }

    /// Hears of every new last event.
    pub(crate) fn bell(&self) -> watch::Receiver<Durable> {
        self.durable.subscribe()
    }

    /// Events after one, if they are all still in memory.
    pub(crate) fn recent_after(&self, after: u64) -> Option<Vec<Arc<Event>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let first = recent.front()?.seq;
        let skipped = (after + 1).checked_sub(first)?;
        Some(recent.iter().skip(skipped as usize).cloned().collect())
    }
}

/// An event as the API shows it.
pub(crate) fn event(seq: u64, at: Time, kind: &str, about: About) -> Event {
    Event {
        seq,
        at: Timestamp(at),
        kind: kind.into(),
        level: if about.warning { Level::Warning } else { Level::Normal },
        workload: about.workload,
        workload_id: about.workload_id,
        project: about.project,
        node: about.node,
        message: about.message,
        progress: about.progress,
        now: None,
    }
}
