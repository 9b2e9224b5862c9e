//! People at the dashboard.
//!
//! A browser sends a cookie to every port of a machine, so also to whatever a workload listens on. A cookie alone
//! therefore opens nothing: the page that signed in has a key beside it, in storage that only its own address can read,
//! and sends it in a header, which nobody else can make the browser do. A script that stole the key would lack the cookie.
//!
//! Both follow from a secret, so that a restart signs nobody out; only codes of links, which are good for minutes, are
//! remembered.

use crate::auth::{hex, new_token, same};
use berth_types::{Span, Time};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How long somebody stays signed in.
const SESSION: Span = Span::secs(7 * 86_400);
/// How long a link is good.
const LINK: Span = Span::secs(3_600);
/// Links that may wait to be used; the oldest goes first.
const LINKS_MAX: usize = 256;

/// Makes and knows sessions.
pub(crate) struct Sessions {
    secret: [u8; 32],
    /// Of each link, the hash of its code: for whom, and until when.
    links: Mutex<BTreeMap<[u8; 32], (String, Time)>>,
}

/// Somebody who has just signed in.
pub(crate) struct SignedIn {
    pub(crate) user: String,
    pub(crate) cookie: String,
    pub(crate) key: String,
    pub(crate) until: Time,
}

impl Sessions {
    /// From the token of the installation: whoever replaces that ends all sessions.
    pub(crate) fn new(token: &str) -> Self {
        let secret = Sha256::digest(format!("berth sessions\n{token}")).into();
        Self { secret, links: Mutex::default() }
    }

    /// The name of the cookie: that of another installation on this machine has another name.
    pub(crate) fn cookie_name(&self) -> String {
        format!("berth-{}", &self.keyed("name", "")[..12])
    }

    /// How long a cookie is kept, in seconds.
    pub(crate) fn kept_secs(&self) -> u64 {
        SESSION.as_secs()
    }

    /// The code of a new link.
    pub(crate) fn link(&self, user: &str, now: Time) -> io::Result<(String, Time)> {
        let code = new_token()?[..32].to_owned();
        let until = now + LINK;
        let mut links = self.lock();
        links.retain(|_, (_, until)| *until > now);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, (_, until))| *until).map(|(hash, _)| *hash);
            oldest.map(|hash| links.remove(&hash));
        }
        links.insert(Sha256::digest(&code).into(), (user.to_owned(), until));
        Ok((code, until))
    }

    /// For whom a link was made; it is used up by that.
    pub(crate) fn redeem(&self, code: &str, now: Time) -> Option<String> {
        let hash: [u8; 32] = Sha256::digest(code).into();
        let (user, until) = self.lock().remove(&hash)?;
        (until > now).then_some(user)
    }

    /// Signs somebody in.
    pub(crate) fn sign_in(&self, user: &str, now: Time) -> SignedIn {
        let until = now + SESSION;
        let claim = format!("{}.{}", until.0, hex(user.as_bytes()));
        let cookie = format!("{claim}.{}", self.keyed("cookie", &claim));
        let key = self.keyed("page", &cookie);
        SignedIn { user: user.to_owned(), cookie, key, until }
    }

    /// Who has this cookie and its key, and until when.
    pub(crate) fn check(&self, cookie: &str, key: &str, now: Time) -> Option<(String, Time)> {
        let (claim, mac) = cookie.rsplit_once('.')?;
        if !same(&self.keyed("cookie", claim), mac) || !same(&self.keyed("page", cookie), key) {
            return None;
        }
        let (until, user) = claim.split_once('.')?;
        let until = Time(until.parse().ok()?);
        (until > now).then_some((unhex(user)?, until))
    }

    /// Hashed twice, the secret first each time: nothing can be appended to what is hashed.
    fn keyed(&self, purpose: &str, text: &str) -> String {
        let inner = Sha256::new().chain_update(self.secret).chain_update(format!("{purpose}\n{text}"));
        let outer = Sha256::new().chain_update(self.secret).chain_update(inner.finalize());
        hex(&outer.finalize())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], (String, Time)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unhex(text: &str) -> Option<String> {
    let digits: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect();
    String::from_utf8(digits?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_opens_nothing_without_the_key_of_its_page() {
        let sessions = Sessions::new("secret");
        let SignedIn { cookie, key, until, .. } = sessions.sign_in("ada@x", Time(1_000));
        assert_eq!(sessions.check(&cookie, &key, Time(2_000)), Some(("ada@x".into(), until)));
        assert_eq!(sessions.check(&cookie, "", Time(2_000)), None);
        assert_eq!(sessions.check(&cookie, &sessions.sign_in("bob", Time(1_000)).key, Time(2_000)), None);
        assert_eq!(sessions.check(&cookie, &key, until), None, "it ends");
        assert_eq!(Sessions::new("other").check(&cookie, &key, Time(2_000)), None);
    }

    #[test]
    fn nobody_makes_a_longer_or_another_session_of_theirs() {
        let sessions = Sessions::new("secret");
        let SignedIn { cookie, key, .. } = sessions.sign_in("ada", Time(1_000));
        let (until, rest) = cookie.split_once('.').expect("has parts");
        for forged in [
            format!("{}.{rest}", until.to_owned() + "0"),
            cookie.replace(&hex(b"ada"), &hex(b"eve")),
            "..".into(),
            String::new(),
        ] {
            assert_eq!(sessions.check(&forged, &key, Time(2_000)), None, "{forged}");
        }
    }

    #[test]
    fn a_link_is_good_once_and_for_a_while() {
        let sessions = Sessions::new("secret");
        let (code, until) = sessions.link("ada", Time(1_000)).expect("there is randomness");
        assert_eq!(sessions.redeem("wrong", Time(1_000)), None);
        assert_eq!(sessions.redeem(&code, Time(1_000)), Some("ada".into()));
        assert_eq!(sessions.redeem(&code, Time(1_000)), None, "once");
        let (code, _) = sessions.link("ada", Time(1_000)).expect("there is randomness");
        assert_eq!(sessions.redeem(&code, until), None, "for a while");
    }

    #[test]
    fn links_that_nobody_uses_do_not_pile_up() {
        let sessions = Sessions::new("secret");
        for second in 0..2 * LINKS_MAX as u64 {
            sessions.link("ada", Time(second)).expect("there is randomness");
        }
        assert_eq!(sessions.lock().len(), LINKS_MAX);
    }
}
