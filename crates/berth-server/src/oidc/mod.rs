//! Single sign-on: a provider of OpenID Connect says who somebody is, and in which groups.
//!
//! What it says is looked at once, when somebody signs in, and becomes a token of ours that ends within hours: everything that
//! holds for tokens, such as lists and revocation, holds for these too.
//!
//! ```text
//! browser --start--> provider --code--> callback: code and proof --> provider --ID token--> verified --> Platform::sign_in
//! program --ID token as bearer----------------------------------------------------------> verified --> Platform::sign_in
//! ```

mod fetch;
mod pending;
mod provider;
mod token;

pub(crate) use pending::{Pending, Waiting};
pub(crate) use provider::{Proof, Provider};
pub(crate) use token::looks_like_one as is_id_token;

use crate::{Access, ServerError};
use berth_api::{Code, Problem};
use berth_tls::Trust;
use serde_json::Value;
use std::{collections::BTreeSet, fs};

/// How a provider is used.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    client_secret: Option<String>,
    user_claim: String,
    groups_claim: String,
    /// What people know it by.
    pub(crate) name: String,
    trust: Trust,
}

impl Settings {
    /// From the options; nothing when none are given.
    pub(crate) fn of(access: &Access) -> Result<Option<Self>, ServerError> {
        let (Some(issuer), Some(client_id)) = (&access.oidc_issuer, &access.oidc_client_id) else {
            return Ok(None);
        };
        let url = fetch::Url::parse(issuer).map_err(|reason| {
            ServerError::Declared(format!("the issuer {issuer} cannot be asked: {reason}"))
        })?;
        let secret = access.oidc_client_secret_file.as_ref().map(|path| {
            let text = fs::read_to_string(path).map_err(ServerError::file("reading", path))?;
            match text.trim() {
                "" => Err(ServerError::Declared(format!("{} holds no secret", path.display()))),
                secret => Ok(secret.to_owned()),
            }
        });
        let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or_else(|| usual.into());
        Ok(Some(Self {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: secret.transpose()?,
            user_claim: or(&access.oidc_user_claim, "email"),
            groups_claim: or(&access.oidc_groups_claim, "groups"),
            name: or(&access.oidc_name, url.host()),
            trust: access.oidc_ca_file.as_deref().map(Trust::of_file).transpose()?.unwrap_or_default(),
        }))
    }

    /// Who somebody is, from what the provider says of them.
    fn person(&self, claims: &Value) -> Result<SignedIn, OidcError> {
        let claim = &self.user_claim;
        let Some(user) = claims[claim].as_str().filter(|user| !user.is_empty()) else {
            return Err(OidcError::NoUser { claim: claim.clone() });
        };
        if claim == "email" && claims["email_verified"] == Value::Bool(false) {
            return Err(OidcError::Unverified { user: user.into() });
        }
        let groups = match &claims[&self.groups_claim] {
            Value::String(group) => BTreeSet::from([group.clone()]),
            Value::Array(groups) => groups.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        Ok(SignedIn { user: user.into(), groups, until_secs: claims["exp"].as_u64() })
    }

    /// Whether what is wanted is in there.
    fn is_told(&self, claims: &Value) -> bool {
        claims[&self.user_claim].is_string() && !claims[&self.groups_claim].is_null()
    }
}

/// Somebody whom the provider knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedIn {
    pub(crate) user: String,
    pub(crate) groups: BTreeSet<String>,
    /// When what the provider said counts no more, in seconds since 1970.
    pub(crate) until_secs: Option<u64>,
}

/// Why the provider's word does not let somebody in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OidcError {
    #[error("the provider of single sign-on at {issuer} does not answer: {reason}")]
    Away { issuer: String, reason: String },
    #[error("the provider of single sign-on refused: {0}")]
    Refused(String),
    #[error("this is no ID token: {0}")]
    Malformed(&'static str),
    #[error("the ID token is not signed by a key of {issuer}")]
    Signature { issuer: String },
    #[error("the ID token is of {found}, and the provider here is {wanted}")]
    Issuer { found: String, wanted: String },
    #[error("the ID token is for {found}, and this server is {wanted}")]
    Audience { found: String, wanted: String },
    #[error("the ID token has expired {ago_secs} s ago by the clock of this server")]
    Expired { ago_secs: u64 },
    #[error("the ID token counts only in {in_secs} s by the clock of this server")]
    Early { in_secs: u64 },
    #[error("the ID token answers another sign-in than this one")]
    Nonce,
    #[error("the provider of single sign-on says no {claim} of whoever signed in")]
    NoUser { claim: String },
    #[error("the provider of single sign-on has not verified the address {user}")]
    Unverified { user: String },
}

impl From<OidcError> for Problem {
    fn from(error: OidcError) -> Self {
        let (code, hint) = match &error {
            OidcError::Away { .. } => {
                (Code::Unreachable, "try again in a moment; a token of yours lets you in meanwhile")
            }
            OidcError::Refused(_) => (Code::Unauthenticated, "try again, or ask whoever runs the provider"),
            OidcError::Expired { .. } => (
                Code::Unauthenticated,
                "get another; if it is new, the clocks of the provider and of this server differ",
            ),
            OidcError::Early { .. } => {
                (Code::Unauthenticated, "the clocks of the provider and of this server differ")
            }
            OidcError::Audience { .. } | OidcError::Issuer { .. } => {
                (Code::Unauthenticated, "get one for this server, with its client id")
            }
            OidcError::NoUser { .. } => {
                (Code::Forbidden, "--oidc-user-claim of the server says which claim is the user's name")
            }
            OidcError::Unverified { .. } => (Code::Forbidden, "confirm the address with the provider first"),
            OidcError::Malformed(_) | OidcError::Signature { .. } | OidcError::Nonce => {
                (Code::Unauthenticated, "sign in again, with `berth login --oidc` or at the dashboard")
            }
        };
        Self::new(code, error.to_string()).hint(hint)
    }
}
