//! How often something may be tried: each key has a bucket of tries that fills with time. The time comes from outside.

use berth_types::{Span, Time};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Keys that are remembered; the fullest bucket is forgotten first, since a forgotten one is full.
const KEYS_MAX: usize = 10_000;

/// Counts tries by key.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// As many at once.
    burst: u64,
    /// One more comes back each so long.
    each: Span,
    /// Since when each bucket fills: one that began long enough ago is full.
    empty_at: Mutex<BTreeMap<String, Time>>,
}

impl Attempts {
    /// So many at once, and so many in a minute after that.
    pub(crate) fn new(burst: u64, per_minute: u64) -> Self {
        Self { burst, each: Span(60_000 / per_minute.max(1)), empty_at: Mutex::default() }
    }

    /// How long to wait before the next try is allowed; nothing when it is.
    pub(crate) fn wait(&self, key: &str, now: Time) -> Option<Span> {
        let known = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        let free = known.get(key).map_or(self.burst, |empty| now.since(*empty).0 / self.each.0.max(1));
        if free > 0 {
            return None;
        }
        let next = known.get(key).map_or(now, |empty| *empty + self.each);
        Some(next.since(now).max(Span(1)))
    }

    /// Counts a try.
    pub(crate) fn count(&self, key: &str, now: Time) {
        let mut known = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Time(now.0.saturating_sub(self.burst * self.each.0));
        if known.len() >= KEYS_MAX && !known.contains_key(key) {
            known.retain(|_, empty| *empty > full);
            let fullest = known.iter().min_by_key(|(_, empty)| **empty).map(|(key, _)| key.clone());
            if known.len() >= KEYS_MAX {
                fullest.map(|key| known.remove(&key));
            }
        }
        let empty = known.get(key).copied().unwrap_or(full).max(full);
        known.insert(key.to_owned(), empty + self.each);
    }

    /// Counts a try if it is allowed; how long to wait if it is not.
    pub(crate) fn take(&self, key: &str, now: Time) -> Result<(), Span> {
        match self.wait(key, now) {
            Some(wait) => Err(wait),
            None => {
                self.count(key, now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_one_by_one() {
        let attempts = Attempts::new(3, 60);
        let start = Time(1_000_000);
        for _ in 0..3 {
            assert_eq!(attempts.take("a", start), Ok(()));
        }
        assert_eq!(attempts.take("a", start), Err(Span(1_000)));
        assert_eq!(attempts.take("b", start), Ok(()), "others are not held up");
        assert_eq!(attempts.take("a", start + Span(999)), Err(Span(1)));
        assert_eq!(attempts.take("a", start + Span(1_000)), Ok(()));
        assert_eq!(attempts.take("a", start + Span(1_000)), Err(Span(1_000)));
        for _ in 0..3 {
            assert_eq!(attempts.take("a", start + Span(60_000)), Ok(()));
        }
        assert!(attempts.take("a", start + Span(60_000)).is_err(), "it never holds more than a burst");
    }

    #[test]
    fn keys_do_not_pile_up() {
        let attempts = Attempts::new(3, 60);
        for key in 0..2 * KEYS_MAX as u64 {
            attempts.count(&key.to_string(), Time(1_000_000 + key));
        }
        assert!(attempts.empty_at.lock().expect("nobody panicked").len() <= KEYS_MAX);
    }
}
