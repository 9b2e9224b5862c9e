//! A provider: where it is asked for what, which keys it has now, and whom it knows.

use super::{
    OidcError, Settings, SignedIn,
    fetch::{self, Ask},
    token::{Key, Unverified, Wanted, keys},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What a provider says about itself is asked again after this time.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// A provider that does not answer is asked again after this time.
const FAILED_FOR: Duration = Duration::from_secs(2);
/// A key that is not known is looked for at most this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A provider of single sign-on.
pub(crate) struct Provider {
    pub(crate) settings: Settings,
    seen: Mutex<Seen>,
}

/// What was seen of it last.
#[derive(Debug, Default)]
struct Seen {
    known: Option<Known>,
    /// Many may ask at once, and each would wait for an answer that does not come.
    failed: Option<(Instant, OidcError)>,
}

/// What it said about itself.
#[derive(Debug, Clone)]
struct Known {
    at: Instant,
    document: Value,
    keys: Vec<Key>,
}

impl Known {
    fn endpoint(&self, name: &str, issuer: &str) -> Result<String, OidcError> {
        let text = self.document[name].as_str().filter(|text| fetch::Url::parse(text).is_ok());
        text.map(str::to_owned).ok_or_else(|| OidcError::Away {
            issuer: issuer.into(),
            reason: format!("it has no {name} that can be asked"),
        })
    }
}

/// What is given back for the code of a sign-in.
pub(crate) struct Proof<'a> {
    pub(crate) code: &'a str,
    pub(crate) verifier: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) redirect: &'a str,
}

impl Provider {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, seen: Mutex::default() }
    }

    fn away(&self, reason: impl Into<String>) -> OidcError {
        OidcError::Away { issuer: self.settings.issuer.clone(), reason: reason.into() }
    }

    async fn get(&self, url: &str, authorization: Option<String>) -> Result<Value, OidcError> {
        let asked = fetch::ask(url, &self.settings.trust, Ask { authorization, ..Ask::default() }).await;
        match asked {
            Ok((status, value)) if status.is_success() => Ok(value),
            Ok((status, _)) => Err(self.away(format!("{url} answers {status}"))),
            Err(reason) => Err(self.away(format!("{url}: {reason}"))),
        }
    }

    /// What it says about itself; not older than this.
    async fn known(&self, not_older: Duration) -> Result<Known, OidcError> {
        let mut seen = self.seen.lock().await;
        if let Some(known) = seen.known.as_ref().filter(|known| known.at.elapsed() < not_older) {
            return Ok(known.clone());
        }
        if let Some((_, error)) = seen.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILED_FOR) {
            return Err(error.clone());
        }
        match self.look().await {
            Ok(fresh) => {
                *seen = Seen { known: Some(fresh.clone()), failed: None };
                Ok(fresh)
            }
            Err(error) => {
                seen.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Asks it what it is.
    async fn look(&self) -> Result<Known, OidcError> {
        let issuer = &self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let document = self.get(&url, None).await?;
        if document["issuer"] != issuer.as_str() {
            let own = document["issuer"].as_str().unwrap_or("nobody");
            return Err(self.away(format!("it says that it is {own}; --oidc-issuer must be the same")));
        }
        let mut fresh = Known { at: Instant::now(), document, keys: Vec::new() };
        fresh.keys = keys(&self.get(&fresh.endpoint("jwks_uri", issuer)?, None).await?);
        Ok(fresh)
    }

    /// Where a browser is sent to sign in.
    pub(crate) async fn sign_in_url(
        &self,
        redirect: &str,
        state: &str,
        nonce: &str,
        challenge: &str,
    ) -> Result<String, OidcError> {
        let known = self.known(KEPT_FOR).await?;
        let endpoint = known.endpoint("authorization_endpoint", &self.settings.issuer)?;
        let offered = known.document["scopes_supported"].as_array().cloned().unwrap_or_default();
        let mut scope = "openid email profile".to_owned();
        if offered.iter().any(|scope| scope == "groups") {
            scope.push_str(" groups");
        }
        let pairs = [
            ("response_type", "code".to_owned()),
            ("client_id", self.settings.client_id.clone()),
            ("redirect_uri", redirect.into()),
            ("scope", scope),
            ("state", state.into()),
            ("nonce", nonce.into()),
            ("code_challenge", challenge.into()),
            ("code_challenge_method", "S256".into()),
        ];
        let mark = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{mark}{}", fetch::query(&pairs)))
    }

    /// Who signed in, for the code that a browser brought back.
    pub(crate) async fn redeem(&self, proof: &Proof<'_>, now_secs: u64) -> Result<SignedIn, OidcError> {
        let known = self.known(KEPT_FOR).await?;
        let endpoint = known.endpoint("token_endpoint", &self.settings.issuer)?;
        let mut form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", proof.code.into()),
            ("redirect_uri", proof.redirect.into()),
            ("client_id", self.settings.client_id.clone()),
            ("code_verifier", proof.verifier.into()),
        ];
        let mut authorization = None;
        if let Some(secret) = &self.settings.client_secret {
            let ways = known.document["token_endpoint_auth_methods_supported"].as_array();
            let by_header = ways.is_none_or(|ways| ways.iter().any(|way| way == "client_secret_basic"));
            match by_header {
                true => {
                    let id = fetch::escaped(&self.settings.client_id);
                    let pair = format!("{id}:{}", fetch::escaped(secret));
                    authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(pair)));
                }
                false => form.push(("client_secret", secret.clone())),
            }
        }
        let asked =
            fetch::ask(&endpoint, &self.settings.trust, Ask { form: Some(form), authorization }).await;
        let (status, answer) = asked.map_err(|reason| self.away(format!("{endpoint}: {reason}")))?;
        if !status.is_success() {
            let text = answer["error_description"].as_str().or(answer["error"].as_str());
            return Err(OidcError::Refused(text.map_or_else(|| status.to_string(), str::to_owned)));
        }
        let token = answer["id_token"].as_str().ok_or(OidcError::Malformed("the provider gave none"))?;
        let mut claims = self.verified(token, Some(proof.nonce), now_secs).await?;
        if !self.settings.is_told(&claims) {
            self.ask_more(&known, &answer, &mut claims).await?;
        }
        self.settings.person(&claims)
    }

    /// Who shows this token.
    pub(crate) async fn verify(&self, token: &str, now_secs: u64) -> Result<SignedIn, OidcError> {
        let claims = self.verified(token, None, now_secs).await?;
        self.settings.person(&claims)
    }

    async fn verified(&self, token: &str, nonce: Option<&str>, now_secs: u64) -> Result<Value, OidcError> {
        let unverified = Unverified::parse(token)?;
        let mut known = self.known(KEPT_FOR).await?;
        if !unverified.knows_key(&known.keys) {
            // The provider may have begun to sign with another one.
            known = self.known(LOOK_EVERY).await?;
        }
        let Settings { issuer, client_id, .. } = &self.settings;
        unverified.verified(&known.keys, &Wanted { issuer, client_id, nonce, now_secs })
    }

    /// Some providers say little in the token, and more to whoever asks.
    async fn ask_more(&self, known: &Known, answer: &Value, claims: &mut Value) -> Result<(), OidcError> {
        let (Some(access), Ok(endpoint)) =
            (answer["access_token"].as_str(), known.endpoint("userinfo_endpoint", &self.settings.issuer))
        else {
            return Ok(());
        };
        let more = self.get(&endpoint, Some(format!("Bearer {access}"))).await?;
        // What is said of somebody else is not said of who signed in.
        if more["sub"] != claims["sub"] {
            return Err(OidcError::Refused("it speaks of somebody else than who signed in".into()));
        }
        if let (Some(claims), Some(more)) = (claims.as_object_mut(), more.as_object()) {
            for (name, value) in more {
                claims.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        Ok(())
    }
}
