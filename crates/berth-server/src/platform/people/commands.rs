//! What people ask for about people.

use super::{
    Action, By, GROUP, PeopleChange, Person, Place, TOKENS_MAX, TokenRecord,
    rights::{fits, place_of},
};
use crate::platform::{Happened, Platform, owners::bounded};
use berth_api::{Code, Grant, GrantList, Problem, Role, Scope, Token, TokenList, User, UserList, WhoAmI};
use berth_types::{Span, Time};
use std::collections::BTreeSet;

/// Groups of one person that are looked at.
const GROUPS_MAX: usize = 500;

/// How long a token lasts unless it is said, and at most.
const TOKEN_USUAL: Span = Span::secs(90 * 86_400);
const TOKEN_LONGEST: Span = Span::secs(366 * 86_400);

impl Platform {
    pub(crate) fn create_user(
        &mut self,
        person: &Person,
        name: &str,
        account: Option<String>,
        now: Time,
    ) -> Result<User, Problem> {
        self.may(person, Action::Rule, Place::Everywhere)?;
        if !is_user(name) {
            let text = "the name of a user is of letters, digits and . _ - @ +, 128 at most";
            return Err(Problem::invalid("name", text));
        }
        if self.people.users.contains_key(name) {
            return Err(Problem::new(Code::Exists, format!("user {name} exists already")));
        }
        bounded("users", self.people.users.len())?;
        self.change_people(PeopleChange::User { name: name.into() }, now)?;
        if account.is_some() {
            self.change_people(PeopleChange::Account { user: name.into(), account }, now)?;
        }
        self.user_view(person, name)
    }

    pub(super) fn user_view(&self, person: &Person, name: &str) -> Result<User, Problem> {
        let found = self.user_list(person).items.into_iter().find(|user| user.name == name);
        found.ok_or_else(|| {
            Problem::new(Code::NotFound, format!("there is no user {}", crate::names::shown(name)))
        })
    }

    pub(crate) fn delete_user(&mut self, person: &Person, name: &str, now: Time) -> Result<(), Problem> {
        self.may(person, Action::Rule, Place::Everywhere)?;
        self.known_user(name)?;
        self.change_people(PeopleChange::UserRemoved { name: name.into() }, now)
    }

    /// Whoever rules over people sees all names, and roles where they may grant them; others see themselves.
    pub(crate) fn user_list(&self, person: &Person) -> UserList {
        let sees_all = self.is_allowed_somewhere(person, Action::People);
        let users = self.people.users.iter().filter(|(name, _)| sees_all || **name == person.user);
        let view = |(name, user): (&String, &super::UserRecord)| User {
            name: name.clone(),
            created_at: user.created.into(),
            account: self.known_account(name),
            roles: self.grant_list(person).items.into_iter().filter(|grant| grant.user == *name).collect(),
        };
        UserList { items: users.map(view).collect() }
    }

    pub(crate) fn grant(&mut self, person: &Person, grant: &Grant, now: Time) -> Result<(), Problem> {
        self.may_grant(person, grant)?;
        match grant.user.strip_prefix(GROUP) {
            // Who is in a group is known elsewhere, and so is whether there is such a group.
            Some(group) if is_group(group) => {}
            Some(_) => {
                return Err(Problem::invalid("user", "the name of a group is a text of 1 to 256 characters"));
            }
            None => self.known_user(&grant.user)?,
        }
        if !fits(grant.role, &grant.scope) {
            let wanted = match grant.role {
                Role::Admin => "all",
                Role::DepartmentLead => "department/NAME",
                Role::ProjectLead | Role::Researcher => "project/NAME",
                Role::Viewer => "all or project/NAME",
            };
            let text = format!("the scope of {} is {wanted}", grant.role);
            return Err(Problem::invalid("scope", text));
        }
        match &grant.scope {
            Scope::All => {}
            Scope::Department(name) => drop(self.find_department(name)?),
            Scope::Project(name) => drop(self.find_project(name)?),
        }
        if self.people.grants.contains(grant) {
            return Ok(());
        }
        bounded("roles", self.people.grants.len())?;
        self.change_people(PeopleChange::Granted { grant: grant.clone() }, now)
    }

    pub(crate) fn withdraw(&mut self, person: &Person, grant: &Grant, now: Time) -> Result<(), Problem> {
        self.may_grant(person, grant)?;
        if !self.people.grants.contains(grant) {
            let text = format!("{} has no role {} in {}", grant.user, grant.role, grant.scope);
            return Err(Problem::new(Code::NotFound, text).hint("`berth role list` shows who has which"));
        }
        self.change_people(PeopleChange::Withdrawn { grant: grant.clone() }, now)
    }

    pub(crate) fn grant_list(&self, person: &Person) -> GrantList {
        let shown = |grant: &&Grant| {
            self.people.is_of(grant, person)
                || self.is_allowed(person, Action::People, place_of(&grant.scope))
        };
        GrantList { items: self.people.grants.iter().filter(shown).cloned().collect() }
    }

    /// Makes a token of which only the hash is known here. Nobody makes one for somebody else but an admin, who may do
    /// everything anyway.
    pub(crate) fn create_token(
        &mut self,
        person: &Person,
        asked: &berth_api::TokenRequest,
        hash_of: impl FnOnce(u64) -> [u8; 32],
        now: Time,
    ) -> Result<Token, Problem> {
        let user = asked.user.as_deref().unwrap_or(&person.user);
        if user != person.user {
            self.may(person, Action::Rule, Place::Everywhere)?;
        }
        self.known_user(user)?;
        let name = asked.name.trim();
        if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
            return Err(Problem::invalid("name", "the name of a token is a text of 1 to 64 characters"));
        }
        let lasts = asked.expires_secs.map_or(TOKEN_USUAL, |secs| Span::secs(secs.min(u64::MAX / 1_000)));
        if lasts == Span::secs(0) || lasts > TOKEN_LONGEST {
            return Err(Problem::invalid("expires_secs", "a token lasts from a second to 366 days"));
        }
        let good = self.people.tokens_of(user).filter(|token| !token.revoked && token.expires > now);
        if good.count() >= TOKENS_MAX {
            let text = format!("{user} has {TOKENS_MAX} tokens already");
            return Err(Problem::new(Code::Overloaded, text).hint("`berth token revoke` ends one"));
        }
        let id = self.people.last_token + 1;
        let token = TokenRecord {
            id,
            user: user.into(),
            name: name.into(),
            hash: hash_of(id),
            created: now,
            expires: now + lasts,
            revoked: false,
            groups: BTreeSet::new(),
        };
        let view = token_view(&token);
        self.change_people(PeopleChange::Token { token }, now)?;
        Ok(view)
    }

    /// Lets in whom a provider of single sign-on knows, with a token that counts until then: a user who is known here, or
    /// somebody of whose groups one has a role, who is a user from then on.
    pub(crate) fn sign_in(
        &mut self,
        user: &str,
        groups: BTreeSet<String>,
        until: Time,
        hash_of: impl FnOnce(u64) -> [u8; 32],
        now: Time,
    ) -> Result<Token, Problem> {
        if !is_user(user) {
            let text = format!("{} cannot be the name of a user", crate::names::shown(user));
            return Err(Problem::new(Code::Forbidden, text)
                .hint("--oidc-user-claim of the server says which claim is the user's name"));
        }
        let groups: BTreeSet<String> =
            groups.into_iter().filter(|group| is_group(group)).take(GROUPS_MAX).collect();
        if !self.people.users.contains_key(user) {
            let has_role =
                |grant: &Grant| grant.user.strip_prefix(GROUP).is_some_and(|group| groups.contains(group));
            if !self.people.grants.iter().any(has_role) {
                let text = format!("{user} has signed in, and is no user here");
                let hint = format!(
                    "an admin makes them one with `berth user create {user}`, or gives one of their groups a role with `berth role \
                     grant group:NAME ROLE SCOPE`"
                );
                return Err(Problem::new(Code::Forbidden, text).hint(hint));
            }
            bounded("users", self.people.users.len())?;
            self.change_people(PeopleChange::User { name: user.into() }, now)?;
        }
        let good = self.people.tokens_of(user).filter(|token| !token.revoked && token.expires > now);
        if good.count() >= TOKENS_MAX {
            let text = format!("{user} has {TOKENS_MAX} tokens already");
            return Err(Problem::new(Code::Overloaded, text).hint("`berth token revoke` ends one"));
        }
        let id = self.people.last_token + 1;
        let token = TokenRecord {
            id,
            user: user.into(),
            name: "single sign-on".into(),
            hash: hash_of(id),
            created: now,
            expires: until.min(now + TOKEN_LONGEST),
            revoked: false,
            groups,
        };
        let view = token_view(&token);
        self.change_people(PeopleChange::Token { token }, now)?;
        Ok(view)
    }

    /// The tokens that are good: one's own, and everybody's for an admin.
    pub(crate) fn token_list(&self, person: &Person, now: Time) -> TokenList {
        let all = self.is_allowed(person, Action::Rule, Place::Everywhere);
        let good = |token: &&TokenRecord| {
            (all || token.user == person.user) && !token.revoked && token.expires > now
        };
        TokenList { items: self.people.tokens.values().filter(good).map(token_view).collect() }
    }

    pub(crate) fn revoke_token(&mut self, person: &Person, id: u64, now: Time) -> Result<(), Problem> {
        let all = self.is_allowed(person, Action::Rule, Place::Everywhere);
        let known = self.people.tokens.get(&id);
        // Whoever may not see it is not told that it is there.
        match known.filter(|token| (all || token.user == person.user) && !token.revoked) {
            Some(_) => self.change_people(PeopleChange::TokenRevoked { id }, now),
            None => Err(Problem::new(Code::NotFound, format!("there is no token {id}"))
                .hint("`berth token list` shows them")),
        }
    }

    pub(crate) fn who_am_i(&self, person: &Person) -> WhoAmI {
        let (token, roles) = match person.by {
            By::Installation => {
                let everything = Grant { user: person.user.clone(), role: Role::Admin, scope: Scope::All };
                (None, vec![everything])
            }
            By::Token(id) => (self.people.token(id), self.grants_of(person).cloned().collect()),
        };
        WhoAmI {
            user: person.user.clone(),
            token: token.map(|token| token.name.clone()),
            expires_at: token.map(|token| token.expires.into()),
            groups: token.map(|token| token.groups.iter().cloned().collect()).unwrap_or_default(),
            roles,
        }
    }

    pub(super) fn known_user(&self, name: &str) -> Result<(), Problem> {
        if self.people.users.contains_key(name) {
            return Ok(());
        }
        let text = format!("there is no user {}", crate::names::shown(name));
        Err(Problem::new(Code::NotFound, text).hint("`berth user create` makes one"))
    }

    fn change_people(&mut self, change: PeopleChange, now: Time) -> Result<(), Problem> {
        self.happen(Happened::People { change }, now)
    }
}

fn token_view(token: &TokenRecord) -> Token {
    Token {
        id: token.id,
        user: token.user.clone(),
        name: token.name.clone(),
        created_at: token.created.into(),
        expires_at: token.expires.into(),
    }
}

/// What a group can be called: what others call it, if it is one line.
fn is_group(group: &str) -> bool {
    !group.is_empty() && group.chars().count() <= 256 && !group.chars().any(char::is_control)
}

/// What a user can be called.
pub(crate) fn is_user(user: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-@+".contains(letter);
    !user.is_empty() && user.len() <= 128 && user.chars().all(fits)
}
