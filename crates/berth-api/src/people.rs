//! People: who they are, what they may do and where, the tokens they show, and what they did.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::{IntoParams, ToSchema};

/// What somebody may do within a scope. Later ones may less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything, everywhere.
    Admin,
    /// Everything about the projects of a department and those below it.
    DepartmentLead,
    /// Everything about the work and the people of a project.
    ProjectLead,
    /// Submits work, and does as they please with their own.
    Researcher,
    /// Looks.
    Viewer,
}

impl Role {
    /// Every role, the mightiest first.
    pub const ALL: [Self; 5] =
        [Self::Admin, Self::DepartmentLead, Self::ProjectLead, Self::Researcher, Self::Viewer];

    /// Its name, and what it may do.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Admin => ("admin", "everything"),
            Self::DepartmentLead => {
                ("department-lead", "the projects of a department and below: settings, people, work")
            }
            Self::ProjectLead => ("project-lead", "the people and all work of a project"),
            Self::Researcher => ("researcher", "submits to a project; changes and enters own work"),
            Self::Viewer => ("viewer", "sees a project, or everything"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words().0)
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.words().0 == text);
        found.ok_or_else(|| "a role is admin, department-lead, project-lead, researcher or viewer".into())
    }
}

/// Where a role counts; written `all`, `department/NAME` or `project/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Everywhere.
    All,
    /// In a department, and in those below it.
    Department(String),
    /// In a project.
    Project(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Department(name) => write!(f, "department/{name}"),
            Self::Project(name) => write!(f, "project/{name}"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            None if text == "all" => Ok(Self::All),
            Some(("department", name)) if !name.is_empty() => Ok(Self::Department(name.into())),
            Some(("project", name)) if !name.is_empty() => Ok(Self::Project(name.into())),
            _ => Err("a scope is `all`, `department/NAME` or `project/NAME`".into()),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// A user to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRequest {
    /// The name.
    pub name: String,
    /// The account of the machine that the user's work runs as, by name or as `UID:GID`; one of the user's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// What is to change about a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// The account of the machine that the user's work runs as, by name or as `UID:GID`; empty for one of the user's own.
    pub account: String,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// The name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The account of the machine that the user's work runs as, as `UID:GID`; absent until there was work, and where work runs as the
    /// server does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What the user may do, where.
    pub roles: Vec<Grant>,
}

/// Users, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    /// The users.
    pub items: Vec<User>,
}

/// A role that somebody has in a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Who has it: a user, or `group:NAME`, everybody of whom single sign-on says that they are in it.
    pub user: String,
    /// Which role.
    pub role: Role,
    /// Where: `all`, `department/NAME` or `project/NAME`.
    #[schema(value_type = String)]
    pub scope: Scope,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} in {}", self.role, self.user, self.scope)
    }
}

/// Roles that people have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantList {
    /// The roles, by user.
    pub items: Vec<Grant>,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// For whom; the caller when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it is for, in a word.
    pub name: String,
    /// After how many seconds it is good for nothing; 90 days when absent, a year at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<u64>,
}

/// A token as it is listed: never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its number.
    pub id: u64,
    /// Whose it is.
    pub user: String,
    /// What it is for.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A token that was just made; the secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// The token.
    pub token: Token,
    /// What to show the server.
    pub secret: String,
}

/// A secret is left out of whatever is printed for debugging.
impl fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenMade").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Tokens, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// The tokens.
    pub items: Vec<Token>,
}

/// Who calls, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The user.
    pub user: String,
    /// The name of the token that was shown; none for the token of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When that token ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Groups that single sign-on told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What the user may do, where.
    pub roles: Vec<Grant>,
}

/// Something that somebody did, or tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its number, rising.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who; none when nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// By what: `installation`, `token NAME`, `workload`, `link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// From which address.
    pub from: String,
    /// What: the method and the route.
    pub action: String,
    /// To what.
    pub target: String,
    /// The project it was about, if it was about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The status of the answer; 0 when it is not known, because the caller went, the server ended, or the disk was full, before
    /// it could be noted.
    pub status: u16,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Which entries of the audit log are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// After this entry; the newest when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Before this entry, the newest of those: one page further back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// At most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// About this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// Entries of the audit log, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The entries.
    pub items: Vec<AuditEntry>,
    /// Go on after this entry.
    pub cursor: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_written_as_it_is_read() {
        for text in ["all", "department/a", "project/b"] {
            assert_eq!(text.parse::<Scope>().expect("is a scope").to_string(), text);
        }
        for text in ["", "ALL", "project/", "project", "node/x", "/"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}
