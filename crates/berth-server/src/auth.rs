//! Who calls.
//!
//! Everything but health needs a token. The token of the installation is for whoever may read its folder; a workload has
//! one of its own, with which it can report about itself and do nothing else.

use crate::sessions::Sessions;
use berth_types::{Span, Time, WorkloadId};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Who calls, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A person or program with the token of the installation, acting as this user.
    Person { user: String },
    /// A workload, about itself.
    Workload(WorkloadId),
    /// Who came by a link to a workload's port, and may use that and nothing else.
    Visitor { user: String, workload: WorkloadId },
}

/// How long who came by a link may stay, in seconds.
pub(crate) const SESSION_SECS: u64 = 24 * 3600;

/// Makes and knows the tokens of workloads: nothing is stored, because they follow from a secret.
#[derive(Clone)]
pub(crate) struct TaskTokens {
    secret: [u8; 32],
}

/// A hash of a text that only who knows the secret can make: hashed twice, the secret first each time, so that nothing can be
/// appended to what is hashed.
fn keyed(secret: &[u8; 32], text: &[u8]) -> String {
    let inner = Sha256::new().chain_update(secret).chain_update(text).finalize();
    hex(&Sha256::new().chain_update(secret).chain_update(inner).finalize())
}

impl TaskTokens {
    /// The token that a workload's notebook asks for. The workload knows it, and who is let in by the server needs not.
    pub(crate) fn notebook(&self, workload: WorkloadId) -> String {
        keyed(&self.secret, format!("notebook {workload}").as_bytes())
    }

    /// From the token of the installation, so that running workloads keep theirs over a restart.
    pub(crate) fn new(token: &str) -> Self {
        Self { secret: Sha256::digest(format!("berth workload tokens\n{token}")).into() }
    }

    /// The token of a workload.
    pub(crate) fn token(&self, workload: WorkloadId) -> String {
        format!("w{workload}.{}", keyed(&self.secret, &workload.0.to_be_bytes()))
    }

    fn check(&self, token: &str) -> Option<WorkloadId> {
        let (workload, _) = token.strip_prefix('w')?.split_once('.')?;
        let workload = WorkloadId(workload.parse().ok()?);
        same(&self.token(workload), token).then_some(workload)
    }
}

/// Knows who has which token.
#[derive(Clone)]
pub(crate) struct Door {
    token: String,
    tasks: TaskTokens,
    sessions: Arc<Sessions>,
    /// Makes the sessions of visitors.
    secret: [u8; 32],
    /// Who started the server: who a caller is that does not say.
    owner: String,
}

/// Nothing of what it keeps is printed.
impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Door")
    }
}

impl Door {
    pub(crate) fn new(token: String, owner: String) -> Self {
        let secret = Sha256::digest(format!("berth sessions of visitors\n{token}")).into();
        Self {
            tasks: TaskTokens::new(&token),
            sessions: Arc::new(Sessions::new(&token)),
            secret,
            token,
            owner,
        }
    }

    /// What a browser keeps of a link: for whom, to which workload, until when.
    pub(crate) fn session(&self, workload: WorkloadId, user: &str, now: Time) -> String {
        let until = now + Span::secs(SESSION_SECS);
        let text = format!("{workload}.{}.{}", until.0, hex(user.as_bytes()));
        format!("{text}.{}", keyed(&self.secret, text.as_bytes()))
    }

    /// Who has this session, if it is one and not over.
    pub(crate) fn visitor(&self, session: &str, now: Time) -> Option<Identity> {
        let (text, mac) = session.rsplit_once('.')?;
        if !same(&keyed(&self.secret, text.as_bytes()), mac) {
            return None;
        }
        let mut parts = text.split('.');
        let (workload, until, user) = (parts.next()?, parts.next()?, parts.next()?);
        let until = Time(until.parse().ok()?);
        let user = String::from_utf8(unhex(user)?).ok()?;
        (now < until).then_some(Identity::Visitor { user, workload: WorkloadId(workload.parse().ok()?) })
    }

    pub(crate) fn tasks(&self) -> TaskTokens {
        self.tasks.clone()
    }

    /// People at the dashboard.
    pub(crate) fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.sessions)
    }

    /// Who started the server.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Who has this token; `user` is who a trusted caller says it acts for.
    pub(crate) fn identify(&self, token: &str, user: Option<&str>) -> Option<Identity> {
        if same(&self.token, token) {
            let user = user.filter(|user| is_user(user)).unwrap_or(&self.owner);
            return Some(Identity::Person { user: user.into() });
        }
        self.tasks.check(token).map(Identity::Workload)
    }
}

fn is_user(user: &str) -> bool {
    let fits = |letter: char| letter.is_alphanumeric() || "._-@+".contains(letter);
    !user.is_empty() && user.len() <= 128 && user.chars().all(fits)
}

/// Compares without telling by its time how much is the same: hashes are compared, not texts.
pub(crate) fn same(known: &str, given: &str) -> bool {
    Sha256::digest(known) == Sha256::digest(given)
}

/// A new token.
pub(crate) fn new_token() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_known_by_its_own_token_only() {
        let door = Door::new("secret".into(), "ada".into());
        let token = door.tasks().token(WorkloadId(7));
        assert_eq!(door.identify(&token, Some("bob")), Some(Identity::Workload(WorkloadId(7))));
        assert_eq!(door.identify(&token.replace("w7.", "w8."), None), None);
        assert_eq!(door.identify("w7.", None), None);
        assert_eq!(door.identify("", None), None);
        assert_eq!(Door::new("other".into(), "ada".into()).identify(&token, None), None);
    }

    #[test]
    fn a_visitor_may_see_one_workload_for_a_day() {
        let door = Door::new("secret".into(), "ada".into());
        let session = door.session(WorkloadId(7), "bob.b@x", Time(1_000));
        let bob = Some(Identity::Visitor { user: "bob.b@x".into(), workload: WorkloadId(7) });
        assert_eq!(door.visitor(&session, Time(2_000)), bob);
        assert_eq!(door.visitor(&session, Time(1_000) + Span::secs(SESSION_SECS)), None);
        assert_eq!(door.visitor(&session.replacen('7', "8", 1), Time(2_000)), None);
        assert_eq!(door.identify(&session, None), None, "it is no token");
        assert_eq!(Door::new("other".into(), "ada".into()).visitor(&session, Time(2_000)), None);
        for text in ["", ".", "7", "7.9.", "7.9.zz.0"] {
            assert_eq!(door.visitor(text, Time(0)), None, "{text}");
        }
    }

    #[test]
    fn a_person_is_who_started_the_server_unless_it_says_otherwise() {
        let door = Door::new("secret".into(), "ada".into());
        let person = |user: &str| Some(Identity::Person { user: user.into() });
        assert_eq!(door.identify("secret", None), person("ada"));
        assert_eq!(door.identify("secret", Some("bob")), person("bob"));
        assert_eq!(door.identify("secret", Some("b\nob")), person("ada"));
        assert_eq!(door.identify("Secret", None), None);
    }
}
