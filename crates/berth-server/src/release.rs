//! What is said and done once it is durable, in order.

use crate::{
    controller::{Keys, Message, store_problem},
    feed::{Feed, Told},
    platform::Logged,
    tasks::{Orders, Tasks},
};
use berth_api::Problem;
use berth_store::{Appended, Json, Receipt};
use berth_types::Time;
use std::sync::{
    Arc, PoisonError,
    mpsc::{Receiver, Sender},
};
use tokio::sync::oneshot;

/// Who waits for an answer.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) oneshot::Sender<Result<Json, Problem>>);

impl Reply {
    pub(crate) fn give(self, answer: Result<Json, Problem>) {
        // Whoever went away has no use for it.
        let _ = self.0.send(answer);
    }
}

/// What waits for the store.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) epoch: u64,
    pub(crate) at: Time,
    /// The last event before it.
    pub(crate) before: u64,
    pub(crate) logged: Vec<Logged>,
    /// None when nothing happened, as with a command that was refused.
    pub(crate) receipt: Option<Receipt<Appended>>,
    pub(crate) orders: Orders,
    pub(crate) reply: Option<(Reply, Result<Json, Problem>)>,
    pub(crate) key: Option<String>,
}

/// Releases until nobody appends any more.
pub(crate) fn run(
    pending: Receiver<Pending>,
    feed: Arc<Feed>,
    tasks: Tasks,
    keys: Keys,
    controller: Sender<Message>,
) {
    for pending in pending {
        let Pending { epoch, at, before, logged, receipt, orders, reply, key } = pending;
        let written = receipt.map_or(Ok(None), |receipt| receipt.wait().map(Some));
        if let Some(key) = key {
            // From here on the store knows it.
            keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        match written {
            Ok(appended) => {
                if let Some((reply, answer)) = reply {
                    reply.give(match appended {
                        Some(Appended::Repeated { body, .. }) => Ok(body),
                        _ => answer,
                    });
                }
                tasks.give(orders);
                let told = |one: Logged| Told { kind: one.happened.kind().into(), about: one.about };
                feed.publish(before, at, logged.into_iter().map(told).collect());
            }
            Err(error) => {
                tracing::error!(%error, "a batch was not written");
                if let Some((reply, _)) = reply {
                    reply.give(Err(store_problem(&error)));
                }
                let _ = controller.send(Message::Refused { epoch });
            }
        }
    }
}
