//! The one shape of errors.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What went wrong, as a program tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// A field is wrong; `field` names it.
    Invalid,
    /// The body is no JSON of the right form.
    Malformed,
    /// The body is above its limit.
    TooLarge,
    /// No token, or an unknown one.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The path exists, and not with this method.
    MethodNotAllowed,
    /// The name is taken.
    Exists,
    /// Others still depend on it.
    InUse,
    /// It is in no state in which this can happen.
    WrongState,
    /// The idempotency key belongs to another request.
    KeyReused,
    /// The cursor is older than what is kept.
    Gone,
    /// Too much at once: try again in a moment.
    Overloaded,
    /// The disk is full.
    DiskFull,
    /// The store takes no writes any more.
    ReadOnly,
    /// Client and server are of releases that do not understand each other.
    VersionMismatch,
    /// The workload behind a port does not answer.
    Unreachable,
    /// A mistake of the server.
    Internal,
}

impl Code {
    /// Its HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 422,
            Self::Malformed => 400,
            Self::TooLarge => 413,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Exists | Self::InUse | Self::WrongState | Self::KeyReused => 409,
            Self::Gone => 410,
            Self::Overloaded => 429,
            Self::VersionMismatch => 426,
            Self::Unreachable => 502,
            Self::Internal => 500,
            Self::DiskFull => 507,
            Self::ReadOnly => 503,
        }
    }
}

/// An error, in the manner of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What went wrong, for programs.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, for people: one sentence.
    pub detail: String,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without field and hint.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, status: code.status(), detail: detail.into(), field: None, hint: None }
    }

    /// A field that is wrong.
    pub fn invalid(field: &str, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::Invalid, detail) }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
