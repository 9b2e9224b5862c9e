//! Signing in to the dashboard.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a person signs in with: one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionRequest {
    /// The code of a link, good for once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Single sign-on, if there is any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SingleSignOn {
    /// What people know the provider by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path where a browser begins to sign in. A command line adds `port`, on which it waits on loopback, and
    /// `challenge`, the SHA-256 of its proof in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

/// What a command line gets its token for, after a browser has signed in for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignInProof {
    /// What the browser brought, good for once.
    pub code: String,
    /// What the challenge is the hash of.
    pub verifier: String,
}

/// Both are secrets.
impl std::fmt::Debug for SignInProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignInProof")
    }
}

/// A person who is signed in. The browser keeps the other half, a cookie, where no script can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Who.
    pub user: String,
    /// What the page sends in the header `berth-page` with each request; only when somebody has just signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Until when; absent for whoever calls with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A link that signs in once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInLink {
    /// What follows the address of the server, as `/#code=...`: behind the `#`, so that it is in no log.
    pub path: String,
    /// Until when it can be used.
    pub until: Timestamp,
}
