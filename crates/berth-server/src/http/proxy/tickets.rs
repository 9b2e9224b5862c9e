//! Links that are good once: what a person opens in a browser, which has no token.

use crate::platform::Person;
use berth_types::WorkloadId;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a link waits to be opened.
pub(crate) const OPENED_WITHIN: Duration = Duration::from_secs(300);
/// Links that wait to be opened; older ones give way.
const TICKETS_MAX: usize = 10_000;

/// For whom a link was made, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) workload: WorkloadId,
    pub(crate) person: Person,
}

/// Links that were made and not opened. A restart voids them.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<BTreeMap<String, (Ticket, Instant)>>);

impl Tickets {
    /// Keeps a ticket under its secret.
    pub(crate) fn put(&self, secret: String, ticket: Ticket, now: Instant) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|_, (_, made)| now.saturating_duration_since(*made) < OPENED_WITHIN);
        if tickets.len() >= TICKETS_MAX {
            let oldest = tickets.iter().min_by_key(|(_, (_, made))| *made).map(|(secret, _)| secret.clone());
            oldest.and_then(|secret| tickets.remove(&secret));
        }
        tickets.insert(secret, (ticket, now));
    }

    /// The ticket of a secret, once.
    pub(crate) fn take(&self, secret: &str, now: Instant) -> Option<Ticket> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(secret);
        taken
            .filter(|(_, made)| now.saturating_duration_since(*made) < OPENED_WITHIN)
            .map(|(ticket, _)| ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_once_and_not_for_ever() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let ticket = Ticket {
            workload: WorkloadId(7),
            person: Person { user: "ada".into(), by: crate::platform::By::Installation },
        };
        tickets.put("one".into(), ticket.clone(), now);
        tickets.put("two".into(), ticket.clone(), now);
        assert_eq!(tickets.take("three", now), None);
        assert_eq!(tickets.take("one", now), Some(ticket));
        assert_eq!(tickets.take("one", now), None);
        assert_eq!(tickets.take("two", now + OPENED_WITHIN), None);
    }
}
