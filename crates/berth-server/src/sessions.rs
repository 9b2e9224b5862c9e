//! People at the dashboard.
//!
//! A browser sends a cookie to every port of a machine, so also to whatever a workload listens on. A cookie alone
//! therefore opens nothing: the page that signed in has a key beside it, in storage that only its own address can read,
//! and sends it in a header, which nobody else can make the browser do. A script that stole the key would lack the cookie.
//!
//! Both follow from a secret, so that a restart signs nobody out; only codes of links, which are good for minutes, are
//! remembered.

use crate::{
    auth::{claim, claimed, hex, new_token, same},
    platform::Person,
};
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
    links: Mutex<BTreeMap<[u8; 32], (Person, Time)>>,
}

/// Somebody who has just signed in.
pub(crate) struct SignedIn {
    pub(crate) person: Person,
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
    pub(crate) fn link(&self, person: &Person, now: Time) -> io::Result<(String, Time)> {
        let code = new_token()?[..32].to_owned();
        let until = now + LINK;
        let mut links = self.lock();
        links.retain(|_, (_, until)| *until > now);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, (_, until))| *until).map(|(hash, _)| *hash);
            oldest.map(|hash| links.remove(&hash));
        }
        links.insert(Sha256::digest(&code).into(), (person.clone(), until));
        Ok((code, until))
    }

    /// For whom a link was made; it is used up by that.
    pub(crate) fn redeem(&self, code: &str, now: Time) -> Option<Person> {
        let hash: [u8; 32] = Sha256::digest(code).into();
        let (person, until) = self.lock().remove(&hash)?;
        (until > now).then_some(person)
    }

    /// Signs somebody in.
    pub(crate) fn sign_in(&self, person: &Person, now: Time) -> SignedIn {
        let until = now + SESSION;
        let claim = format!("{}.{}", until.0, claim(person));
        let cookie = format!("{claim}.{}", self.keyed("cookie", &claim));
        let key = self.keyed("page", &cookie);
        SignedIn { person: person.clone(), cookie, key, until }
    }

    /// Who has this cookie and its key, and until when.
    pub(crate) fn check(&self, cookie: &str, key: &str, now: Time) -> Option<(Person, Time)> {
        let (claim, mac) = cookie.rsplit_once('.')?;
        if !same(&self.keyed("cookie", claim), mac) || !same(&self.keyed("page", cookie), key) {
            return None;
        }
        let (until, person) = claim.split_once('.')?;
        let until = Time(until.parse().ok()?);
        (until > now).then_some((claimed(person)?, until))
    }

    /// Hashed twice, the secret first each time: nothing can be appended to what is hashed.
    fn keyed(&self, purpose: &str, text: &str) -> String {
        let inner = Sha256::new().chain_update(self.secret).chain_update(format!("{purpose}\n{text}"));
        let outer = Sha256::new().chain_update(self.secret).chain_update(inner.finalize());
        hex(&outer.finalize())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], (Person, Time)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::By;

    fn person(user: &str) -> Person {
        Person { user: user.into(), by: By::Token(7) }
    }

    #[test]
    fn a_cookie_opens_nothing_without_the_key_of_its_page() {
        let sessions = Sessions::new("secret");
        let SignedIn { cookie, key, until, .. } = sessions.sign_in(&person("ada@x"), Time(1_000));
        assert_eq!(sessions.check(&cookie, &key, Time(2_000)), Some((person("ada@x"), until)));
        assert_eq!(sessions.check(&cookie, "", Time(2_000)), None);
        assert_eq!(
            sessions.check(&cookie, &sessions.sign_in(&person("bob"), Time(1_000)).key, Time(2_000)),
            None
        );
        assert_eq!(sessions.check(&cookie, &key, until), None, "it ends");
        assert_eq!(Sessions::new("other").check(&cookie, &key, Time(2_000)), None);
    }

    #[test]
    fn nobody_makes_a_longer_or_another_session_of_theirs() {
        let sessions = Sessions::new("secret");
        let SignedIn { cookie, key, .. } = sessions.sign_in(&person("ada"), Time(1_000));
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
        let (code, until) = sessions.link(&person("ada"), Time(1_000)).expect("there is randomness");
        assert_eq!(sessions.redeem("wrong", Time(1_000)), None);
        assert_eq!(sessions.redeem(&code, Time(1_000)), Some(person("ada")));
        assert_eq!(sessions.redeem(&code, Time(1_000)), None, "once");
        let (code, _) = sessions.link(&person("ada"), Time(1_000)).expect("there is randomness");
        assert_eq!(sessions.redeem(&code, until), None, "for a while");
    }

    #[test]
    fn links_that_nobody_uses_do_not_pile_up() {
        let sessions = Sessions::new("secret");
        for second in 0..2 * LINKS_MAX as u64 {
            sessions.link(&person("ada"), Time(second)).expect("there is randomness");
        }
        assert_eq!(sessions.lock().len(), LINKS_MAX);
    }
}
