//! Leadership: one process decides and writes at a time, and knows when it may not any more.
//!
//! Whoever renewed the lease may write until it runs out, less the time the slowest request may take; so no request is under
//! way when somebody else may begin. Each change of the holder is an epoch, which is written into what is written.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a lease holds.
const LEASE: Duration = Duration::from_secs(15);
/// Between two renewals.
const RENEW: Duration = Duration::from_secs(3);
/// The longest that a request may take.
pub(crate) const REQUEST: Duration = Duration::from_secs(5);

/// Whether this process may write.
#[derive(Debug, Clone)]
pub(crate) struct Fence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    /// Until when, in milliseconds since it began.
    until: AtomicU64,
    epoch: AtomicU64,
}

impl Fence {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Inner { began: Instant::now(), until: AtomicU64::new(0), epoch: AtomicU64::new(0) }))
    }

    /// The epoch in which a request that begins now may write, if it may.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let now = self.0.began.elapsed() + REQUEST;
        let until = Duration::from_millis(self.0.until.load(Ordering::Acquire));
        (now < until).then(|| self.0.epoch.load(Ordering::Acquire))
    }

    fn open(&self, from: Instant, epoch: u64) {
        let until = from.saturating_duration_since(self.0.began) + LEASE;
        self.0.epoch.store(epoch, Ordering::Release);
        self.0.until.store(until.as_millis() as u64, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.0.until.store(0, Ordering::Release);
    }
}

/// Somebody's claim to lead.
pub(crate) struct Leadership {
    leases: Api<Lease>,
    name: String,
    identity: String,
    fence: Fence,
}

/// The lease as it was last seen, and since when it has been so.
struct Observed {
    lease: Option<Lease>,
    since: Instant,
}

impl Leadership {
    pub(crate) fn new(client: Client, namespace: &str, name: &str, identity: &str, fence: Fence) -> Self {
        let leases = Api::namespaced(client, namespace);
        Self { leases, name: name.into(), identity: identity.into(), fence }
    }

    /// Waits until this process leads.
    pub(crate) async fn acquire(&self) -> Result<Lease, kube::Error> {
        let mut observed = Observed { lease: None, since: Instant::now() };
        loop {
            let began = Instant::now();
            let tried = tokio::time::timeout(REQUEST, self.try_acquire(&mut observed)).await;
            match tried.unwrap_or_else(|_| Err(too_late())) {
                Ok(Some(lease)) => {
                    self.fence.open(began, epoch(&lease));
                    return Ok(lease);
                }
                Ok(None) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                // Whoever may not is told so, and whoever cannot tries again.
                Err(kube::Error::Api(status)) if status.code == 403 => return Err(kube::Error::Api(status)),
                Err(error) => tracing::warn!(%error, "the lease cannot be had"),
            }
            tokio::time::sleep(RENEW / 3).await;
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> Result<Option<Lease>, kube::Error> {
        let found = self.leases.get_opt(&self.name).await?;
        let Some(found) = found else {
            let lease = self.mine(Lease::default(), 1);
            return self.leases.create(&PostParams::default(), &lease).await.map(Some);
        };
        let spec = found.spec.clone().unwrap_or_default();
        let changed = observed.lease.as_ref().and_then(|lease| lease.spec.as_ref()) != found.spec.as_ref();
        if changed {
            *observed = Observed { lease: Some(found.clone()), since: Instant::now() };
        }
        // Clocks differ, so what counts is how long it has not changed here. Who held it itself was somebody else by then.
        let length = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(15).max(1) as u64);
        let free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
        if !free && observed.since.elapsed() < length {
            return Ok(None);
        }
        let next = spec.lease_transitions.unwrap_or(0) + 1;
        let lease = self.mine(found, next);
        self.leases.replace(&self.name, &PostParams::default(), &lease).await.map(Some)
    }

    fn mine(&self, lease: Lease, transitions: i32) -> Lease {
        let now = MicroTime(jiff::Timestamp::now());
        let acquired = match lease.spec {
            Some(LeaseSpec { holder_identity: Some(holder), acquire_time, .. })
                if holder == self.identity =>
            {
                acquire_time
            }
            _ => Some(now.clone()),
        };
        Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..lease.metadata },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(LEASE.as_secs() as i32),
                acquire_time: acquired,
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Renews the lease for as long as that is possible; gives why it is not any more.
    pub(crate) async fn keep(&self, mut lease: Lease) -> String {
        loop {
            tokio::time::sleep(RENEW).await;
            let began = Instant::now();
            let transitions = epoch(&lease) as i32;
            let renewed = self.mine(lease.clone(), transitions);
            let parameters = PostParams::default();
            let sent = self.leases.replace(&self.name, &parameters, &renewed);
            match tokio::time::timeout(REQUEST, sent).await {
                // Whoever was told meanwhile that it may not write has given up what it was to write.
                Ok(Ok(_)) if self.fence.epoch().is_none() => {}
                Ok(Ok(renewed)) => {
                    self.fence.open(began, epoch(&renewed));
                    lease = renewed;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    let found = tokio::time::timeout(REQUEST, self.leases.get(&self.name)).await;
                    match found.unwrap_or_else(|_| Err(too_late())) {
                        Ok(found) if holder(&found) == Some(&self.identity) => lease = found,
                        Ok(found) => {
                            self.fence.close();
                            return format!("{} leads now", holder(&found).unwrap_or("nobody"));
                        }
                        Err(error) => tracing::warn!(%error, "the lease cannot be read"),
                    }
                }
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be renewed"),
                Err(_) => tracing::warn!("the lease is not renewed in time"),
            }
            if self.fence.epoch().is_none() {
                self.fence.close();
                return "the lease ran out".into();
            }
        }
    }

    /// Gives the lease back, so that the next one need not wait for its end.
    pub(crate) async fn release(&self) {
        self.fence.close();
        if tokio::time::timeout(REQUEST, self.try_release()).await.is_err() {
            tracing::debug!("the lease was not given back in time; it runs out");
        }
    }

    async fn try_release(&self) {
        let Ok(found) = self.leases.get(&self.name).await else { return };
        if holder(&found) != Some(&self.identity) {
            return;
        }
        let mut spec = found.spec.clone().unwrap_or_default();
        spec.holder_identity = None;
        let lease = Lease { spec: Some(spec), ..found };
        if let Err(error) = self.leases.replace(&self.name, &PostParams::default(), &lease).await {
            tracing::debug!(%error, "the lease was not given back; it runs out");
        }
    }
}

fn too_late() -> kube::Error {
    kube::Error::Service("the API server did not answer in time".into())
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn epoch(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    transitions.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}
