//! How many sockets are open at once, and when the last of them is closed.

use berth_api::{Code, Problem};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Sockets that are open at once. Each shell has a process, a terminal and some descriptors.
const SOCKETS_MAX: u32 = 2_000;

/// Counts what is open.
#[derive(Debug, Clone)]
pub(crate) struct Sockets(Arc<Semaphore>);

/// A place among them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _place: OwnedSemaphorePermit,
}

impl Sockets {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(SOCKETS_MAX as usize)))
    }

    /// A place for one more.
    pub(crate) fn enter(&self) -> Result<Permit, Problem> {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        permit.map(|place| Permit { _place: place }).map_err(|_| {
            let text =
                format!("{SOCKETS_MAX} shells and connections are open, which is the most there may be");
            Problem::new(Code::Overloaded, text).hint("close one, and try again")
        })
    }

    /// Waits until none is open.
    pub(crate) async fn all_closed(&self) {
        let _ = self.0.acquire_many(SOCKETS_MAX).await;
    }
}
