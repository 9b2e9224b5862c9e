//! Who calls.
//!
//! Everything but health needs a token. The token of the installation is for whoever may read its folder; a workload has
//! one of its own, with which it can report about itself and do nothing else.

use crate::sessions::Sessions;
use berth_types::WorkloadId;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Who calls, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A person or program with the token of the installation, acting as this user.
    Person { user: String },
    /// A workload, about itself.
    Workload(WorkloadId),
}

/// Makes and knows the tokens of workloads: nothing is stored, because they follow from a secret.
#[derive(Clone)]
pub(crate) struct TaskTokens {
    secret: [u8; 32],
}

impl TaskTokens {
    /// From the token of the installation, so that running workloads keep theirs over a restart.
    pub(crate) fn new(token: &str) -> Self {
        Self { secret: Sha256::digest(format!("berth workload tokens\n{token}")).into() }
    }

    /// The token of a workload.
    pub(crate) fn token(&self, workload: WorkloadId) -> String {
        // Hashed twice, the secret first each time: nothing can be appended to what is hashed.
        let inner = Sha256::new().chain_update(self.secret).chain_update(workload.0.to_be_bytes()).finalize();
        let outer = Sha256::new().chain_update(self.secret).chain_update(inner).finalize();
        format!("w{workload}.{}", hex(&outer))
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
        Self { tasks: TaskTokens::new(&token), sessions: Arc::new(Sessions::new(&token)), token, owner }
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
    fn a_person_is_who_started_the_server_unless_it_says_otherwise() {
        let door = Door::new("secret".into(), "ada".into());
        let person = |user: &str| Some(Identity::Person { user: user.into() });
        assert_eq!(door.identify("secret", None), person("ada"));
        assert_eq!(door.identify("secret", Some("bob")), person("bob"));
        assert_eq!(door.identify("secret", Some("b\nob")), person("ada"));
        assert_eq!(door.identify("Secret", None), None);
    }
}
