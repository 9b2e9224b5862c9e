//! Who calls.
//!
//! Everything but health needs a token. The token of the installation is for whoever may read its folder; a user has tokens
//! of their own, of which only hashes are kept; a workload has one with which it can report about itself and do nothing else.

use crate::{
    platform::{By, People, Person, Refused, is_same, is_user},
    sessions::Sessions,
};
use berth_types::{Span, Time, WorkloadId};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Who calls, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A person, or a program that acts for one.
    Person(Person),
    /// A workload, about itself.
    Workload(WorkloadId),
    /// Who came by a link to a workload's port, and may use that and nothing else.
    Visitor { person: Person, workload: WorkloadId },
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

/// What the token of a user begins with.
const USER_TOKEN: &str = "berth-";

/// The token of a user, from its number and a secret.
pub(crate) fn user_token(id: u64, secret: &str) -> String {
    format!("{USER_TOKEN}{id}-{secret}")
}

/// What is kept of a token. It has 256 random bits, so that a slow hash would make guessing no harder.
pub(crate) fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The number of a user's token.
fn token_id(token: &str) -> Result<u64, Refused> {
    let (id, secret) = token[USER_TOKEN.len()..].split_once('-').ok_or(Refused::Malformed)?;
    let is_secret = secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then(|| id.parse().ok()).flatten().ok_or(Refused::Malformed)
}

/// A person within a text that only the server can make.
pub(crate) fn claim(person: &Person) -> String {
    let by = match person.by {
        By::Installation => "i".to_owned(),
        By::Token(id) => id.to_string(),
    };
    format!("{by}.{}", hex(person.user.as_bytes()))
}

/// The person of such a text.
pub(crate) fn claimed(text: &str) -> Option<Person> {
    let (by, user) = text.split_once('.')?;
    let by = if by == "i" { By::Installation } else { By::Token(by.parse().ok()?) };
    Some(Person { user: String::from_utf8(unhex(user)?).ok()?, by })
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
        let sessions = Arc::new(Sessions::new(&token));
        Self { tasks: TaskTokens::new(&token), sessions, secret, token, owner }
    }

    /// What a browser keeps of a link: for whom, to which workload, until when.
    pub(crate) fn session(&self, workload: WorkloadId, person: &Person, now: Time) -> String {
        let until = now + Span::secs(SESSION_SECS);
        let text = format!("{workload}.{}.{}", until.0, claim(person));
        format!("{text}.{}", keyed(&self.secret, text.as_bytes()))
    }

    /// Who has this session, if it is one and not over.
    pub(crate) fn visitor(&self, session: &str, now: Time) -> Option<Identity> {
        let (text, mac) = session.rsplit_once('.')?;
        if !same(&keyed(&self.secret, text.as_bytes()), mac) {
            return None;
        }
        let mut parts = text.splitn(3, '.');
        let (workload, until, person) = (parts.next()?, parts.next()?, claimed(parts.next()?)?);
        let until = Time(until.parse().ok()?);
        (now < until).then_some(Identity::Visitor { person, workload: WorkloadId(workload.parse().ok()?) })
    }

    pub(crate) fn tasks(&self) -> TaskTokens {
        self.tasks.clone()
    }

    /// People at the dashboard.
    pub(crate) fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.sessions)
    }

    /// Who started the server.
    pub(crate) fn owner(&self) -> Person {
        Person { user: self.owner.clone(), by: By::Installation }
    }

    /// Who has this token; `user` is who a caller with the token of the installation says it acts for.
    pub(crate) fn identify(
        &self,
        token: &str,
        user: Option<&str>,
        people: &People,
        now: Time,
    ) -> Result<Identity, Refused> {
        if same(&self.token, token) {
            let user = user.filter(|user| is_user(user)).unwrap_or(&self.owner);
            return Ok(Identity::Person(Person { user: user.into(), by: By::Installation }));
        }
        if token.starts_with(USER_TOKEN) {
            return people.holder(token_id(token)?, &token_hash(token), now).map(Identity::Person);
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refused::Malformed);
        }
        self.tasks.check(token).map(Identity::Workload).ok_or(Refused::Unknown)
    }
}

/// Compares without telling by its time how much is the same: hashes are compared, not texts.
pub(crate) fn same(known: &str, given: &str) -> bool {
    is_same(&token_hash(known), &token_hash(given))
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

    fn person(user: &str) -> Person {
        Person { user: user.into(), by: By::Installation }
    }

    impl Door {
        fn knows(&self, token: &str, user: Option<&str>) -> Option<Identity> {
            self.identify(token, user, &People::default(), Time(0)).ok()
        }
    }

    #[test]
    fn a_workload_is_known_by_its_own_token_only() {
        let door = Door::new("secret".into(), "ada".into());
        let token = door.tasks().token(WorkloadId(7));
        assert_eq!(door.knows(&token, Some("bob")), Some(Identity::Workload(WorkloadId(7))));
        assert_eq!(door.knows(&token.replace("w7.", "w8."), None), None);
        assert_eq!(door.knows("w7.", None), None);
        assert_eq!(door.knows("", None), None);
        assert_eq!(Door::new("other".into(), "ada".into()).knows(&token, None), None);
    }

    #[test]
    fn a_visitor_may_see_one_workload_for_a_day() {
        let door = Door::new("secret".into(), "ada".into());
        let session = door.session(WorkloadId(7), &person("bob.b@x"), Time(1_000));
        let bob = Some(Identity::Visitor { person: person("bob.b@x"), workload: WorkloadId(7) });
        assert_eq!(door.visitor(&session, Time(2_000)), bob);
        assert_eq!(door.visitor(&session, Time(1_000) + Span::secs(SESSION_SECS)), None);
        assert_eq!(door.visitor(&session.replacen('7', "8", 1), Time(2_000)), None);
        assert_eq!(door.knows(&session, None), None, "it is no token");
        assert_eq!(Door::new("other".into(), "ada".into()).visitor(&session, Time(2_000)), None);
        for text in ["", ".", "7", "7.9.", "7.9.zz.0", "7.9.i.zz.0"] {
            assert_eq!(door.visitor(text, Time(0)), None, "{text}");
        }
    }

    #[test]
    fn a_person_is_who_started_the_server_unless_it_says_otherwise() {
        let door = Door::new("secret".into(), "ada".into());
        let person = |user: &str| Some(Identity::Person(person(user)));
        assert_eq!(door.knows("secret", None), person("ada"));
        assert_eq!(door.knows("secret", Some("bob")), person("bob"));
        assert_eq!(door.knows("secret", Some("b\nob")), person("ada"));
        assert_eq!(door.knows("Secret", None), None);
    }
}
