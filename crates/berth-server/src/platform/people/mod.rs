//! People: users, the roles they have where, and their tokens. Who may do what is in `rights.rs`.

mod accounts;
mod commands;
mod rights;

pub(crate) use commands::is_user;
pub(crate) use rights::{Action, Place, Sight};

use berth_api::{Grant, Scope};
use berth_types::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens of one user, those that ended included; the oldest of those give way.
const TOKENS_MAX: usize = 100;

/// What a role of a group is granted to, before its name. No user has a colon in their name.
const GROUP: &str = "group:";

/// A person who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) user: String,
    pub(crate) by: By,
}

/// By what a person is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The token of the installation: whoever has that has its folder, and may do everything.
    Installation,
    /// A token of their own, by its number.
    Token(u64),
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Malformed,
    Expired,
    Revoked,
}

/// What is known of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserRecord {
    pub(crate) created: Time,
    /// The account of this machine that an admin named, as `UID:GID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
}

/// What is known of a token: its hash, and nothing it could be made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) name: String,
    pub(crate) hash: [u8; 32],
    pub(crate) created: Time,
    pub(crate) expires: Time,
    /// Kept for a while, so that whoever still shows it is told why it is good for nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
    /// Groups of whoever signed in at a provider; what they may do counts while this token does.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) groups: BTreeSet<String>,
}

/// Everybody who is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct People {
    users: BTreeMap<String, UserRecord>,
    grants: BTreeSet<Grant>,
    tokens: BTreeMap<u64, TokenRecord>,
    /// The last number of a token; none is given twice.
    last_token: u64,
    /// Accounts of users' own, counted from the first of them.
    #[serde(default)]
    numbers: BTreeMap<String, u32>,
    /// The next of those; none is given twice, because files may be left of whoever had it.
    #[serde(default)]
    next_number: u32,
}

/// Something that happened to people, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeopleChange {
    User { name: String },
    UserRemoved { name: String },
    Account { user: String, account: Option<String> },
    Number { user: String, number: u32 },
    Granted { grant: Grant },
    Withdrawn { grant: Grant },
    Token { token: TokenRecord },
    TokenRevoked { id: u64 },
}

impl PeopleChange {
    /// Its name in the log.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::UserRemoved { .. } => "user-removed",
            Self::Account { .. } | Self::Number { .. } => "user-account",
            Self::Granted { .. } => "role-granted",
            Self::Withdrawn { .. } => "role-revoked",
            Self::Token { .. } => "token",
            Self::TokenRevoked { .. } => "token-revoked",
        }
    }

    /// Whether an event of this kind is about people, and so for those who rule over them.
    pub(crate) fn is_kind(kind: &str) -> bool {
        ["user", "user-removed", "user-account", "role-granted", "role-revoked", "token", "token-revoked"]
            .contains(&kind)
    }

    /// In words.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::User { name } => format!("user {name} was made"),
            Self::UserRemoved { name } => format!("user {name} was deleted"),
            Self::Account { user, account: Some(account) } => format!("work of {user} runs as {account}"),
            Self::Account { user, account: None } => {
                format!("work of {user} runs under an account of its own")
            }
            Self::Number { user, .. } => format!("user {user} has an account of its own now"),
            Self::Granted { grant } => {
                format!("{} has the role {} in {}", grant.user, grant.role, grant.scope)
            }
            Self::Withdrawn { grant } => {
                format!("{} has the role {} in {} no more", grant.user, grant.role, grant.scope)
            }
            Self::Token { token } => {
                format!("token {} of {} was made, for {}", token.id, token.user, token.name)
            }
            Self::TokenRevoked { id } => format!("token {id} was revoked"),
        }
    }
}

impl People {
    /// Lets a change happen. What was checked before it was written happens again in the same way.
    pub(crate) fn apply(&mut self, change: &PeopleChange, at: Time) {
        match change {
            PeopleChange::User { name } => {
                self.users.insert(name.clone(), UserRecord { created: at, account: None });
            }
            PeopleChange::UserRemoved { name } => {
                self.users.remove(name);
                // A later user of the same name is somebody else.
                self.numbers.remove(name);
                self.grants.retain(|grant| grant.user != *name);
                self.tokens.retain(|_, token| token.user != *name);
            }
            PeopleChange::Account { user, account } => {
                if let Some(user) = self.users.get_mut(user) {
                    user.account = account.clone();
                }
            }
            PeopleChange::Number { user, number } => {
                self.numbers.insert(user.clone(), *number);
                self.next_number = self.next_number.max(number + 1);
            }
            PeopleChange::Granted { grant } => {
                self.grants.insert(grant.clone());
            }
            PeopleChange::Withdrawn { grant } => {
                self.grants.remove(grant);
            }
            PeopleChange::Token { token } => {
                self.last_token = self.last_token.max(token.id);
                self.tokens.insert(token.id, token.clone());
                let ended =
                    |known: &&TokenRecord| known.user == token.user && (known.revoked || known.expires <= at);
                if self.tokens_of(&token.user).count() > TOKENS_MAX
                    && let Some(oldest) = self.tokens.values().find(ended).map(|token| token.id)
                {
                    self.tokens.remove(&oldest);
                }
            }
            PeopleChange::TokenRevoked { id } => {
                if let Some(token) = self.tokens.get_mut(id) {
                    token.revoked = true;
                }
            }
        }
    }

    /// What is gone is nobody's: a later project of the same name has people of its own.
    pub(crate) fn forget_scope(&mut self, scope: &Scope) {
        self.grants.retain(|grant| grant.scope != *scope);
    }

    fn tokens_of(&self, user: &str) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values().filter(move |token| token.user == user)
    }

    /// Whose token has this number and hash, and whether it still counts.
    pub(crate) fn holder(&self, id: u64, hash: &[u8; 32], now: Time) -> Result<Person, Refused> {
        let token = self.tokens.get(&id).filter(|token| is_same(&token.hash, hash));
        let token = token.ok_or(Refused::Unknown)?;
        let person = Person { user: token.user.clone(), by: By::Token(id) };
        self.standing(&person, now).map(|()| person)
    }

    /// Whether what a person was let in by still counts.
    pub(crate) fn standing(&self, person: &Person, now: Time) -> Result<(), Refused> {
        let By::Token(id) = person.by else { return Ok(()) };
        let token = self.tokens.get(&id).filter(|token| token.user == person.user);
        match token {
            None => Err(Refused::Unknown),
            Some(token) if token.revoked => Err(Refused::Revoked),
            Some(token) if token.expires <= now => Err(Refused::Expired),
            Some(_) => Ok(()),
        }
    }

    /// Whose token has this hash, whatever its number; nothing when none has.
    pub(crate) fn holder_of(&self, hash: &[u8; 32], now: Time) -> Option<Result<Person, Refused>> {
        let token = self.tokens.values().find(|token| is_same(&token.hash, hash))?;
        Some(self.holder(token.id, hash, now))
    }

    /// Whether a role is somebody's: by their name, or by a group that they signed in with.
    fn is_of(&self, grant: &Grant, person: &Person) -> bool {
        match (grant.user.strip_prefix(GROUP), person.by) {
            (None, _) => grant.user == person.user,
            (Some(group), By::Token(id)) => {
                self.tokens.get(&id).is_some_and(|token| token.groups.contains(group))
            }
            (Some(_), By::Installation) => false,
        }
    }

    pub(crate) fn token(&self, id: u64) -> Option<&TokenRecord> {
        self.tokens.get(&id)
    }
}

/// Compares all of it, whatever the first difference is, so that the time tells nothing.
pub(crate) fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference = one.iter().zip(other).fold(0u8, |sum, (one, other)| sum | (one ^ other));
    std::hint::black_box(difference) == 0
}
