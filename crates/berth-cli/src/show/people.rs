//! Users, roles, tokens, and what they did.

use crate::output::{
    Look, Show,
    table::{Table, one_line},
};
use berth_api::{AuditEntry, AuditList, Grant, GrantList, TokenList, TokenMade, User, UserList, WhoAmI};
use serde::Serialize;

fn roles(grants: &[Grant]) -> String {
    let words: Vec<String> =
        grants.iter().map(|grant| format!("{} in {}", grant.role, grant.scope)).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

impl Show for UserList {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["NAME", "AGE", "ACCOUNT", "ROLES"]);
        for user in &self.items {
            table.row(vec![
                user.name.clone().into(),
                look.clock.age(user.created_at).into(),
                user.account.clone().unwrap_or_default().into(),
                roles(&user.roles).into(),
            ]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|user| user.name.clone()).collect()
    }
}

impl Show for User {
    fn text(&self, look: &Look) -> String {
        UserList { items: vec![self.clone()] }.text(look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

impl Show for GrantList {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["USER", "ROLE", "SCOPE"]);
        for Grant { user, role, scope } in &self.items {
            table.row(vec![user.clone().into(), role.to_string().into(), scope.to_string().into()]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(ToString::to_string).collect()
    }
}

impl Show for TokenList {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["NUMBER", "USER", "NAME", "AGE", "EXPIRES"]);
        for token in &self.items {
            table.row(vec![
                token.id.to_string().into(),
                token.user.clone().into(),
                token.name.clone().into(),
                look.clock.age(token.created_at).into(),
                token.expires_at.to_string().into(),
            ]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|token| token.id.to_string()).collect()
    }
}

impl Show for TokenMade {
    /// The secret alone, so that it can go into a file.
    fn text(&self, _: &Look) -> String {
        format!("{}\n", self.secret)
    }

    fn names(&self) -> Vec<String> {
        vec![self.token.id.to_string()]
    }
}

/// The caller, as a server knows them.
#[derive(Debug, Serialize)]
pub(crate) struct Me {
    #[serde(flatten)]
    pub(crate) who: WhoAmI,
    pub(crate) server: String,
}

impl Show for Me {
    fn text(&self, _: &Look) -> String {
        let by = match (&self.who.token, self.who.expires_at) {
            (Some(token), Some(at)) => format!("token {token}, until {at}"),
            _ => "the token of the installation".into(),
        };
        let (user, roles) = (&self.who.user, roles(&self.who.roles));
        format!("user:    {user}\nserver:  {}\nby:      {by}\nroles:   {roles}\n", self.server)
    }

    fn names(&self) -> Vec<String> {
        vec![self.who.user.clone()]
    }
}

impl Show for AuditList {
    fn text(&self, look: &Look) -> String {
        self.items.iter().map(|entry| audit_line(entry, look)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|entry| entry.seq.to_string()).collect()
    }
}

/// One entry as a line: when, who, from where, did what, and how it ended.
pub(crate) fn audit_line(entry: &AuditEntry, look: &Look) -> String {
    let user = entry.user.as_deref().or(entry.by.as_deref()).unwrap_or("(unknown)");
    let outcome = match (entry.status, &entry.problem) {
        (200..=399, _) | (101, _) => String::new(),
        (0, _) => ": outcome unknown".into(),
        (_, Some(problem)) => format!(": refused: {problem}"),
        (status, None) => format!(": refused ({status})"),
    };
    let line = format!("{user} from {} {}{outcome}", entry.from, audit_words(entry));
    format!("{}  {}\n", look.clock.local(entry.at), one_line(&line))
}

/// What was done or tried, in words; a route that has none is shown as it was called.
fn audit_words(entry: &AuditEntry) -> String {
    let (method, route) = entry.action.split_once(' ').unwrap_or((&entry.action, ""));
    let is_done = matches!(entry.status, 101 | 200..=399);
    let path: Vec<&str> = entry.target.split('/').filter(|part| !part.is_empty()).skip(2).collect();
    let one = |index: usize| path.get(index).copied().unwrap_or("?");
    let work = || format!("{}/{}", one(1), one(2));
    // A create has no name in its path; where the server knew it, the target is the name itself.
    let made = || if entry.target.starts_with('/') { String::new() } else { format!(" {}", entry.target) };
    let (present, past, what) = match (method, route.strip_prefix("/api/v1/").unwrap_or(route)) {
        ("POST", "projects") => ("create", "created", format!("project{}", made())),
        ("PATCH", "projects/{name}") => ("change", "changed", format!("project {}", one(1))),
        ("DELETE", "projects/{name}") => ("delete", "deleted", format!("project {}", one(1))),
        ("POST", "departments") => ("create", "created", format!("department{}", made())),
        ("PATCH", "departments/{name}") => ("change", "changed", format!("department {}", one(1))),
        ("DELETE", "departments/{name}") => ("delete", "deleted", format!("department {}", one(1))),
        ("POST", "nodes/{name}/{action}") => {
            let (present, past) = match one(2) {
                "cordon" => ("cordon", "cordoned"),
                "uncordon" => ("uncordon", "uncordoned"),
                "drain" => ("drain", "drained"),
                _ => ("change", "changed"),
            };
            (present, past, format!("node {}", one(1)))
        }
        ("PATCH", "nodes/{name}") => ("change", "changed", format!("node {}", one(1))),
        ("POST", "workloads") => ("submit", "submitted", format!("workload{}", made())),
        ("DELETE", "workloads/{project}/{name}") => ("delete", "deleted", format!("workload {}", work())),
        (_, "workloads/{project}/{name}/suspend") => ("suspend", "suspended", format!("workload {}", work())),
        (_, "workloads/{project}/{name}/resume") => ("resume", "resumed", format!("workload {}", work())),
        (_, "workloads/{project}/{name}/link") => {
            ("make a link to", "made a link to", format!("a port of {}", work()))
        }
        (_, "workloads/{project}/{name}/exec") => ("run a command in", "ran a command in", work()),
        (_, "workloads/{project}/{name}/attach") => ("attach to", "attached to", work()),
        (_, "workloads/{project}/{name}/connect") => {
            ("connect to", "connected to", format!("a port of {}", work()))
        }
        ("POST", "volumes") => ("create", "created", format!("volume{}", made())),
        ("DELETE", "volumes/{name}") => ("delete", "deleted", format!("volume {}", one(1))),
        ("POST", "users") => ("create", "created", format!("user{}", made())),
        ("PATCH", "users/{name}") => ("change", "changed", format!("user {}", one(1))),
        ("DELETE", "users/{name}") => ("delete", "deleted", format!("user {}", one(1))),
        ("POST", "roles") => ("grant", "granted", format!("role{}", made())),
        ("POST", "roles/revoke") => ("revoke", "revoked", format!("role{}", made())),
        ("POST", "tokens") => ("create", "created", format!("token{}", made())),
        ("DELETE", "tokens/{id}") => ("revoke", "revoked", format!("token {}", one(1))),
        ("POST", "backup") => ("write", "wrote", "a backup".into()),
        ("POST", "shutdown") => ("stop", "stopped", "the server".into()),
        ("POST", "session/links") => ("make", "made", "a sign-in link".into()),
        ("DELETE", "session") => ("sign out of", "signed out of", "the dashboard".into()),
        ("POST", "session") => ("sign in to", "signed in to", "the dashboard".into()),
        (_, "oidc/callback") => ("sign in", "signed in", "by single sign-on".into()),
        ("GET", "audit") => ("read", "read", "the audit log".into()),
        _ => {
            return format!("{} {method} {}", if is_done { "called" } else { "tried to call" }, entry.target);
        }
    };
    if is_done { format!("{past} {what}") } else { format!("tried to {present} {what}") }
}
