//! Health, for whoever watches over the process. It tells nothing else, so it asks for nothing.

use anyhow::{Context, Result};
use axum::{Router, http::StatusCode, routing::get};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One that leads decides at least this often, if only to find that there is nothing to decide.
const SILENCE: Duration = Duration::from_secs(180);

/// Whether the process is well.
#[derive(Debug, Clone)]
pub(crate) struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    /// When it last decided, in milliseconds since it began; nothing while it stands by.
    decided: AtomicU64,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner { began: Instant::now(), decided: AtomicU64::new(u64::MAX) }))
    }

    /// It has just decided.
    pub(crate) fn decided(&self) {
        self.0.decided.store(self.0.began.elapsed().as_millis() as u64, Ordering::Release);
    }

    /// Whoever stands by waits for its turn, and is well.
    fn is_well(&self) -> bool {
        match self.0.decided.load(Ordering::Acquire) {
            u64::MAX => true,
            at => self.0.began.elapsed().saturating_sub(Duration::from_millis(at)) < SILENCE,
        }
    }

    /// Answers at an address until the process ends.
    pub(crate) async fn serve(&self, address: SocketAddr) -> Result<()> {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
        let health = self.clone();
        let answer = move || {
            let health = health.clone();
            async move {
                if health.is_well() {
                    (StatusCode::OK, "ok")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "stuck")
                }
            }
        };
        let router = Router::new().route("/livez", get(answer.clone())).route("/readyz", get(answer));
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "health is not told any more");
            }
        });
        Ok(())
    }
}
