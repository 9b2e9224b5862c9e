//! The accounts of this machine that work runs under.
//!
//! Each user has one: the one an admin named, or a number of the user's own beside all that the machine gives out. Who has no number
//! gets one with the first submission, and nobody ever gets it again.

use super::{Action, People, PeopleChange, Person, Place};
use crate::platform::{Happened, Platform};
use berth_api::{Code, Problem, User};
use berth_types::Time;

/// Users with a number of their own.
const NUMBERS_MAX: u32 = 60_000;

impl People {
    /// The user and group that a user's work runs as, as `UID:GID`; numbers of users' own begin at `first`. None before the first
    /// submission.
    pub(crate) fn account(&self, user: &str, first: u32) -> Option<String> {
        let named = self.users.get(user).and_then(|user| user.account.clone());
        named.or_else(|| self.numbers.get(user).map(|number| pair(first, *number)))
    }
}

fn pair(first: u32, number: u32) -> String {
    let id = first.saturating_add(number);
    format!("{id}:{id}")
}

impl Platform {
    /// From now on work runs under accounts of users; numbers of their own begin here.
    pub(crate) fn set_accounts(&mut self, first: u32) {
        self.accounts_from = Some(first);
    }

    /// Whether work runs under accounts of users.
    pub(crate) fn has_accounts(&self) -> bool {
        self.accounts_from.is_some()
    }

    /// What a user's work runs as, if it does not run as the server does, and if that is known yet.
    pub(crate) fn known_account(&self, user: &str) -> Option<String> {
        self.people.account(user, self.accounts_from?)
    }

    /// What work runs as that says nothing itself: of a user without an account it is nobody's.
    pub(crate) fn usual_account(&self, user: &str) -> Option<String> {
        self.known_account(user).or_else(|| Some(pair(self.accounts_from?, NUMBERS_MAX)))
    }

    /// What a user's work would run as if it were submitted now.
    pub(crate) fn next_account(&self, user: &str) -> Option<String> {
        self.known_account(user).or_else(|| Some(pair(self.accounts_from?, self.people.next_number)))
    }

    /// The same, for work that is submitted now.
    pub(crate) fn take_account(&mut self, user: &str, now: Time) -> Result<Option<String>, Problem> {
        let Some(first) = self.accounts_from else { return Ok(None) };
        if let Some(known) = self.people.account(user, first) {
            return Ok(Some(known));
        }
        let number = self.people.next_number;
        if number >= NUMBERS_MAX {
            let text = format!(
                "{NUMBERS_MAX} users have had an account of their own, which is the most there may be"
            );
            return Err(Problem::new(Code::Overloaded, text)
                .hint("`berth user set NAME --account ACCOUNT` gives a user one of the machine's"));
        }
        self.happen(Happened::People { change: PeopleChange::Number { user: user.into(), number } }, now)?;
        Ok(Some(pair(first, number)))
    }

    /// Names the account of a user, as `UID:GID`; none for one of the user's own.
    pub(crate) fn set_account(
        &mut self,
        person: &Person,
        name: &str,
        account: Option<String>,
        now: Time,
    ) -> Result<User, Problem> {
        self.may(person, Action::Rule, Place::Everywhere)?;
        self.known_user(name)?;
        let change = PeopleChange::Account { user: name.into(), account };
        self.happen(Happened::People { change }, now)?;
        self.user_view(person, name)
    }
}
