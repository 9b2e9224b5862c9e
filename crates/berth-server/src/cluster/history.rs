//! What is remembered in front of a cluster: what happened, numbers for charts, and answers that may be asked for again. All of
//! it could be lost and the cluster would be none the worse, so a store that fails stops nobody.

use crate::{
    controller::{BODY_VERSION, KEY_KEPT, Key, SNAPSHOT_EVERY, store_problem},
    feed::{Feed, Told},
    samples,
};
use berth_api::{Code, Problem};
use berth_store::{Answer, Batch, Json, NewEvent, Sample, Snapshot, Store, StoreError};
use berth_types::Time;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) struct History {
    store: Arc<Store>,
    feed: Arc<Feed>,
    /// Keys whose requests are under way, with the hash of the request.
    under_way: Mutex<HashMap<String, Vec<u8>>>,
    /// Events up to here may be dropped when room is short.
    floor: AtomicU64,
}

/// A request with a key is under way for as long as this lives.
pub(crate) struct Turn<'a> {
    history: &'a History,
    key: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.history.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl History {
    pub(crate) fn new(store: Arc<Store>, feed: Arc<Feed>) -> Self {
        let floor = AtomicU64::new(feed.last());
        Self { store, feed, under_way: Mutex::default(), floor }
    }

    /// Writes down what happened after an event, then tells it.
    pub(crate) fn note(&self, before: u64, at: Time, told: Vec<Told>) {
        if told.is_empty() {
            return;
        }
        let event = |told: &Told| NewEvent {
            kind: told.kind.clone(),
            version: BODY_VERSION,
            inputs: None,
            body: Json::of(told).expect("events are JSON"),
        };
        let events = told.iter().map(event).collect();
        self.write(Batch { at, expected: Some(before), events, ..Batch::default() });
        let last = before + told.len() as u64;
        self.feed.publish(before, at, told);
        // Nothing is ever read back from a snapshot here: it only says which events are history.
        if last.saturating_sub(self.floor.load(Ordering::Relaxed)) >= SNAPSHOT_EVERY {
            self.floor.store(last, Ordering::Relaxed);
            drop(self.store.snapshot(Snapshot { seq: last, at, body: b"{}".to_vec() }));
        }
    }

    pub(crate) fn sample(&self, at: Time, samples: Vec<Sample>) {
        self.feed.note(samples::told(at, &samples));
        self.write(Batch { at, samples, ..Batch::default() });
    }

    fn write(&self, batch: Batch) {
        if let Err(error) = self.store.append(batch).wait() {
            tracing::warn!(%error, "history was not written; charts and old events will miss it");
        }
    }

    /// The answer to a request that came before, if it did.
    pub(crate) fn answered(&self, key: &Key, now: Time) -> Result<Option<Json>, Problem> {
        match self.store.load_answer(&key.key, &key.request, now) {
            Ok(given) => Ok(given.map(|given| given.body)),
            Err(error @ StoreError::KeyReused { .. }) => Err(store_problem(&error)),
            Err(error) => {
                tracing::warn!(%error, "earlier answers cannot be read");
                Ok(None)
            }
        }
    }

    /// Lets one request with a key go on at a time.
    pub(crate) fn take_turn(&self, key: &Key) -> Result<Turn<'_>, Problem> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        match under_way.get(&key.key) {
            Some(request) if *request != key.request => {
                Err(store_problem(&StoreError::KeyReused { key: key.key.clone() }))
            }
            Some(_) => Err(Problem::new(
                Code::Overloaded,
                "the same request is being answered: try again in a moment",
            )),
            None => {
                under_way.insert(key.key.clone(), key.request.clone());
                Ok(Turn { history: self, key: key.key.clone() })
            }
        }
    }

    /// Remembers an answer.
    pub(crate) fn give(&self, key: Key, body: Json, now: Time) {
        let answer = Answer { key: key.key, request: key.request, body, expires: now + KEY_KEPT };
        // Whoever asks again before it is written finds what was made in the cluster.
        drop(self.store.append(Batch { at: now, answer: Some(answer), ..Batch::default() }));
    }
}
