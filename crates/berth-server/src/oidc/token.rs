//! ID tokens: who signed them, for whom, and until when.

use super::OidcError;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use berth_tls::PublicKey;
use serde_json::Value;

/// Clocks may differ by this much.
const LEEWAY_SECS: u64 = 60;
/// The longest token that is looked at.
const BYTES_MAX: usize = 16 << 10;

/// A token as it came; nothing of it is believed yet.
pub(super) struct Unverified<'a> {
    header: Value,
    claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

/// A key as the provider publishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    id: Option<String>,
    key: PublicKey,
}

/// What has to be in a token.
pub(super) struct Wanted<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: Option<&'a str>,
    pub(super) now_secs: u64,
}

/// Whether a bearer shows something of this form.
pub(crate) fn looks_like_one(token: &str) -> bool {
    token.starts_with("eyJ") && token.split('.').count() == 3
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

impl<'a> Unverified<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, OidcError> {
        if token.len() > BYTES_MAX {
            return Err(OidcError::Malformed("it is too long"));
        }
        let three = || OidcError::Malformed("it has not three parts");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(three)?;
        let (header, claims) = signed.split_once('.').ok_or_else(three)?;
        let object = |text: &str| {
            let value = bytes(text).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            value.filter(Value::is_object).ok_or(OidcError::Malformed("a part of it cannot be read"))
        };
        let signature = bytes(signature).ok_or(OidcError::Malformed("its signature cannot be read"))?;
        Ok(Self { header: object(header)?, claims: object(claims)?, signed, signature })
    }

    /// Whether one of these keys is the one it names.
    pub(super) fn knows_key(&self, keys: &[Key]) -> bool {
        match self.header["kid"].as_str() {
            Some(id) => keys.iter().any(|key| key.id.as_deref() == Some(id)),
            None => !keys.is_empty(),
        }
    }

    /// What it says, if everything about it is right.
    pub(super) fn verified(self, keys: &[Key], wanted: &Wanted<'_>) -> Result<Value, OidcError> {
        let is_rsa = match self.header["alg"].as_str() {
            Some("RS256") => true,
            Some("ES256") => false,
            _ => {
                return Err(OidcError::Malformed(
                    "it is signed in a way that is not accepted; RS256 and ES256 are",
                ));
            }
        };
        let named = self.header["kid"].as_str();
        let fits = |key: &&Key| {
            matches!(key.key, PublicKey::Rsa { .. }) == is_rsa
                && (named.is_none() || key.id.as_deref() == named)
        };
        let is_signed =
            keys.iter().filter(fits).any(|key| key.key.has_signed(self.signed.as_bytes(), &self.signature));
        if !is_signed {
            return Err(OidcError::Signature { issuer: wanted.issuer.into() });
        }
        let claims = self.claims;
        if claims["iss"] != wanted.issuer {
            let found = claims["iss"].as_str().unwrap_or("nobody").to_owned();
            return Err(OidcError::Issuer { found, wanted: wanted.issuer.into() });
        }
        let audience: Vec<&str> = match &claims["aud"] {
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let is_party = claims["azp"].is_null() || claims["azp"] == wanted.client_id;
        if !audience.contains(&wanted.client_id) || !is_party {
            let found = if audience.is_empty() { "nobody".into() } else { audience.join(", ") };
            return Err(OidcError::Audience { found, wanted: wanted.client_id.into() });
        }
        let (now, time) = (wanted.now_secs, |name: &str| claims[name].as_u64());
        let until = time("exp").ok_or(OidcError::Malformed("it does not say until when it counts"))?;
        if until.saturating_add(LEEWAY_SECS) <= now {
            return Err(OidcError::Expired { ago_secs: now - until });
        }
        let since = time("nbf").max(time("iat")).unwrap_or(0);
        if since > now + LEEWAY_SECS {
            return Err(OidcError::Early { in_secs: since - now });
        }
        match wanted.nonce {
            Some(nonce) if claims["nonce"] != nonce => Err(OidcError::Nonce),
            _ => Ok(claims),
        }
    }
}

/// Keys of a provider's list that signatures can be checked with; others are left out.
pub(super) fn keys(list: &Value) -> Vec<Key> {
    let read = |key: &Value| {
        let part = |name: &str| key[name].as_str().and_then(bytes);
        if key["use"].as_str().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let public = match (key["kty"].as_str()?, key["crv"].as_str()) {
            ("RSA", _) => {
                let trimmed = |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect();
                PublicKey::Rsa { n: trimmed(part("n")?), e: trimmed(part("e")?) }
            }
            ("EC", Some("P-256")) => PublicKey::P256 { x: part("x")?, y: part("y")? },
            _ => return None,
        };
        Some(Key { id: key["kid"].as_str().map(str::to_owned), key: public })
    };
    list["keys"].as_array().into_iter().flatten().filter_map(read).collect()
}
