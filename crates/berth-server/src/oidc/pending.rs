//! Sign-ins that have begun and are not over. A restart forgets them.

use crate::auth::new_token;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use berth_types::{Span, Time};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, PoisonError},
};

/// Whoever begins to sign in comes back within this time.
const SIGN_IN: Span = Span::secs(600);
/// Sign-ins that may be under way; the oldest goes first.
const WAITING_MAX: usize = 1_000;

/// Things that are waited for by a secret, each good once, each for a while.
#[derive(Debug)]
pub(crate) struct Waiting<T>(Mutex<BTreeMap<[u8; 32], (T, Time)>>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Waiting<T> {
    /// Keeps something under a secret.
    pub(crate) fn put(&self, secret: &str, what: T, now: Time) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (_, until)| *until > now);
        if waiting.len() >= WAITING_MAX {
            let oldest = waiting.iter().min_by_key(|(_, (_, until))| *until).map(|(hash, _)| *hash);
            oldest.and_then(|hash| waiting.remove(&hash));
        }
        waiting.insert(Sha256::digest(secret).into(), (what, now + SIGN_IN));
    }

    /// What is kept under a secret, once.
    pub(crate) fn take(&self, secret: &str, now: Time) -> Option<T> {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash);
        taken.filter(|(_, until)| *until > now).map(|(what, _)| what)
    }
}

/// A sign-in that has begun in a browser.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// What the provider gives back, so that nobody is made to finish another's sign-in.
    pub(crate) state: String,
    /// What has to be in the ID token.
    pub(crate) nonce: String,
    /// What proves that whoever brings the code is who began.
    pub(crate) verifier: String,
    /// What the browser keeps.
    pub(crate) cookie: String,
    /// Where a command line waits for it, and the hash of its own proof.
    pub(crate) command_line: Option<(u16, String)>,
}

impl Pending {
    pub(crate) fn new(command_line: Option<(u16, String)>) -> io::Result<Self> {
        Ok(Self {
            state: new_token()?,
            nonce: new_token()?,
            verifier: new_token()?,
            cookie: new_token()?,
            command_line,
        })
    }

    /// What is shown of the proof before it is given.
    pub(crate) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_ends_once_and_in_time() {
        let waiting = Waiting::default();
        waiting.put("one", 1, Time(0));
        waiting.put("two", 2, Time(0));
        assert_eq!((waiting.take("one", Time(1)), waiting.take("one", Time(1))), (Some(1), None));
        assert_eq!(waiting.take("two", Time(0) + SIGN_IN), None);
        for key in 0..2 * WAITING_MAX {
            waiting.put(&key.to_string(), 0, Time(key as u64));
        }
        assert!(waiting.0.lock().expect("nobody panicked").len() <= WAITING_MAX);
    }
}
