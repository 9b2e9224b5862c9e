//! Users, roles, tokens, and what they did.

use crate::output::{Look, Show, table::Table};
use berth_api::{AuditEntry, AuditList, Grant, GrantList, TokenList, TokenMade, User, UserList, WhoAmI};

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

impl Show for WhoAmI {
    fn text(&self, _: &Look) -> String {
        let by = match (&self.token, self.expires_at) {
            (Some(token), Some(at)) => format!("token {token}, until {at}"),
            _ => "the token of the installation".into(),
        };
        format!("user:   {}\nby:     {by}\nroles:  {}\n", self.user, roles(&self.roles))
    }

    fn names(&self) -> Vec<String> {
        vec![self.user.clone()]
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

/// One entry as a line.
pub(crate) fn audit_line(entry: &AuditEntry, _: &Look) -> String {
    let user = entry.user.as_deref().or(entry.by.as_deref()).unwrap_or("nobody");
    let problem = entry.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
    let verb = entry.action.split(' ').next().unwrap_or_default();
    format!("{} {user} from {} {verb} {} {}{problem}\n", entry.at, entry.from, entry.target, entry.status)
}
