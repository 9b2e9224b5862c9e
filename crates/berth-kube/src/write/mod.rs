//! Effects: what was decided is written to the API server, many requests at a time, each only while this process leads.
//!
//! ```text
//! Effect::Start  --> its turn --> volumes, where they wait for a node --> ledgers of its nodes --> Pods and claims, all of them --> bind, all of them --> Started
//! Effect::Evict  --> an eviction, which may be refused --> NotEvicted
//! Effect::Read   --> what somebody's object says of its Pods --> Maker
//! Effect::Status --> the newest state of each Workload, one write at a time
//! ```

mod ledger;
mod maker;
mod queue;
mod request;
mod say;
mod start;
mod volumes;

pub(crate) use ledger::Ledgers;
pub use request::REQUESTS_AT_ONCE;
pub(crate) use request::{Requests, WriteError};

use crate::{
    seen::Text,
    watch::News,
    world::{Effect, EvictOrder, Seen, StartOrder},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::Duration,
};

/// Between tries of an eviction that only has to wait, because the server asks for it.
const LATER: Duration = Duration::from_secs(1);

/// Carries out effects.
#[derive(Clone)]
pub(crate) struct Writer(Arc<Inner>);

struct Inner {
    requests: Requests,
    ledgers: Ledgers,
    news: Sender<News>,
    /// What is being said about each object, and what is to be said after it.
    sayings: Mutex<HashMap<Text, Option<say::Saying>>>,
    /// Starts whose turn is still to come.
    starts: Mutex<queue::Queue<StartOrder>>,
}

impl Writer {
    pub(crate) fn new(requests: Requests, ledgers: Ledgers, news: Sender<News>) -> Self {
        Self(Arc::new(Inner { requests, ledgers, news, sayings: Mutex::default(), starts: Mutex::default() }))
    }

    /// Begins to carry out effects.
    pub(crate) fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            tracing::debug!(?effect, "ordered");
            let writer = self.clone();
            match effect {
                Effect::Start(order) => self.starts().add(order.tasks.len(), order),
                Effect::Evict(order) => {
                    tokio::spawn(async move { writer.evict(order).await });
                }
                Effect::Read(maker) => {
                    tokio::spawn(async move {
                        let found = writer.read_maker(&maker).await;
                        writer.tell(Seen::Maker { maker, found });
                    });
                }
                Effect::Explain { pod, uid, reason, message } => {
                    writer.say(uid, say::Saying::Waits { pod, reason, message })
                }
                Effect::Status { workload, uid, status } => {
                    writer.say(uid, say::Saying::State { workload, status })
                }
                Effect::Seek { workload, run, rank, pod } => {
                    tokio::spawn(async move {
                        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
                        if writer.0.requests.get(&path).await.is_err_and(|error| error.is_gone()) {
                            writer.tell(Seen::NoPod { workload, run, rank });
                        }
                    });
                }
                Effect::Release { workload, pod, uid, claim, claim_uid } => {
                    tokio::spawn(async move {
                        writer.release(&pod, &uid, &claim, &claim_uid).await;
                        writer.tell(Seen::Released { workload });
                    });
                }
                Effect::Tenancy(project) => {
                    tokio::spawn(async move { writer.make_tenancy(&project).await });
                }
            }
        }
        self.begin_starts();
    }

    /// Begins those starts whose turn has come.
    fn begin_starts(&self) {
        let lot = self.starts().next_lot();
        for (tasks, order) in lot {
            let writer = self.clone();
            tokio::spawn(async move {
                let (workload, run) = (order.workload, order.run);
                let result = writer.start(order).await;
                writer.tell(Seen::Started { workload, run, result });
                writer.starts().ended(tasks);
                writer.begin_starts();
            });
        }
    }

    /// A claim is gone, or has nothing any more: its part of a device is free.
    pub(crate) fn released(&self, claim: &crate::seen::Key) {
        self.0.ledgers.released(claim);
    }

    /// A Pod is over or gone: what it had is free.
    pub(crate) fn released_by(&self, pod: &str) {
        self.0.ledgers.released_by(pod);
    }

    /// Of Pods that have something by some ledger, those that are not there, or are over, have it no more.
    pub(crate) fn keep_only(&self, is_there: impl Fn(&str) -> bool) {
        for pod in self.0.ledgers.pods().iter().filter(|pod| !is_there(pod)) {
            self.0.ledgers.released_by(pod);
        }
    }

    fn tell(&self, seen: Seen) {
        // When nobody listens the process is ending.
        let _ = self.0.news.send(News::Seen(seen));
    }

    fn starts(&self) -> std::sync::MutexGuard<'_, queue::Queue<StartOrder>> {
        self.0.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sayings(&self) -> std::sync::MutexGuard<'_, HashMap<Text, Option<say::Saying>>> {
        self.0.sayings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn evict(&self, order: EvictOrder) {
        let EvictOrder { workload, pod, uid, grace, politely } = order;
        let options = serde_json::json!({
            "gracePeriodSeconds": grace.as_secs(),
            "preconditions": { "uid": &*uid },
        });
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        loop {
            let sent = if politely {
                let body = serde_json::json!({
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": { "name": &*pod.name, "namespace": &*pod.namespace },
                    "deleteOptions": options,
                });
                self.0.requests.post(&format!("{path}/eviction"), &body).await
            } else {
                self.0.requests.delete(&path, &options).await
            };
            match sent {
                Ok(_) => return,
                Err(error) if error.is_gone() => return,
                // Another of its name is there, or somebody wrote to it at the same time.
                Err(WriteError::Refused { code: 409, message }) => match self.0.requests.get(&path).await {
                    Ok(found) if start::is_staying(&found, &uid) => {
                        tracing::debug!(pod = %pod, message, "a Pod is told to go again");
                    }
                    _ => return,
                },
                // A disruption budget holds it, or several do, which the server takes for an error of its own.
                Err(WriteError::Refused { code, message }) if politely && code != 404 => {
                    return self.tell(Seen::NotEvicted { workload, pod: uid, message });
                }
                Err(WriteError::Fenced) => return,
                Err(error) => {
                    tracing::warn!(pod = %pod, %error, "a Pod cannot be told to go; it is told again");
                    tokio::time::sleep(LATER).await;
                }
            }
        }
    }
}
