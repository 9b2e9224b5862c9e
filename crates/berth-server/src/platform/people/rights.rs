//! Who may do what, where: the one place that says so.

use super::{super::Platform, By, Person};
use berth_api::{Code, Grant, Problem, Role, Scope};
use berth_types::DepartmentId;
use std::collections::BTreeSet;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Look: lists, logs, events, numbers.
    See,
    /// Submit work.
    Submit,
    /// Stop, resume, delete or enter work of one's own.
    OwnWork,
    /// The same with everybody's.
    AnyWork,
    /// Say who may do what, and see what they did.
    People,
    /// Set quotas and limits; make and delete projects and departments below this one.
    Settings,
    /// Everything about the installation itself: nodes, users, volumes of everybody, backups, its end.
    Rule,
}

/// Where somebody wants to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    Everywhere,
    Department(&'a str),
    Project(&'a str),
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everywhere => f.write_str("the whole installation"),
            Self::Department(name) => write!(f, "department {}", crate::names::shown(name)),
            Self::Project(name) => write!(f, "project {}", crate::names::shown(name)),
        }
    }
}

/// The table of roles.
fn allows(role: Role, action: Action) -> bool {
    use Action::{AnyWork, OwnWork, People, See, Settings, Submit};
    match role {
        Role::Admin => true,
        Role::DepartmentLead => matches!(action, See | Submit | OwnWork | AnyWork | People | Settings),
        Role::ProjectLead => matches!(action, See | Submit | OwnWork | AnyWork | People),
        Role::Researcher => matches!(action, See | Submit | OwnWork),
        Role::Viewer => matches!(action, See),
    }
}

/// Where a role can count.
pub(super) fn fits(role: Role, scope: &Scope) -> bool {
    match role {
        Role::Admin => matches!(scope, Scope::All),
        Role::DepartmentLead => matches!(scope, Scope::Department(_)),
        Role::ProjectLead | Role::Researcher => matches!(scope, Scope::Project(_)),
        Role::Viewer => matches!(scope, Scope::All | Scope::Project(_)),
    }
}

/// Which projects somebody sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    All,
    Projects(BTreeSet<String>),
}

impl Sight {
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::All
    }

    pub(crate) fn project(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Projects(names) => names.contains(name),
        }
    }

    /// A workload as `project/name`.
    pub(crate) fn workload(&self, full: &str) -> bool {
        self.is_all() || full.split_once('/').is_some_and(|(project, _)| self.project(project))
    }
}

impl Platform {
    /// Whether somebody may do something somewhere. The refusal is the same whether or not there is such a place.
    pub(crate) fn may(&self, person: &Person, action: Action, place: Place<'_>) -> Result<(), Problem> {
        if self.is_allowed(person, action, place) {
            return Ok(());
        }
        let text = format!("{} may not {} in {place}", person.user, verb(action));
        let hint = match place {
            Place::Everywhere => "`berth whoami` shows your roles; an admin may".to_owned(),
            _ => "`berth whoami` shows your roles; whoever leads it grants others".to_owned(),
        };
        Err(Problem::new(Code::Forbidden, text).hint(hint))
    }

    pub(crate) fn is_allowed(&self, person: &Person, action: Action, place: Place<'_>) -> bool {
        person.by == By::Installation
            || self
                .grants_of(person)
                .any(|grant| allows(grant.role, action) && self.covers(&grant.scope, place))
    }

    /// Whether somebody may do something anywhere at all.
    pub(crate) fn is_allowed_somewhere(&self, person: &Person, action: Action) -> bool {
        person.by == By::Installation || self.grants_of(person).any(|grant| allows(grant.role, action))
    }

    /// Nobody gives or takes what is above their own role, or outside of their scope.
    pub(crate) fn may_grant(&self, person: &Person, grant: &Grant) -> Result<(), Problem> {
        let place = place_of(&grant.scope);
        self.may(person, Action::People, place)?;
        let is_above = person.by != By::Installation
            && !self.grants_of(person).any(|own| {
                allows(own.role, Action::People) && self.covers(&own.scope, place) && own.role <= grant.role
            });
        match is_above {
            false => Ok(()),
            true => {
                let text = format!("{} is above what {} may grant in {place}", grant.role, person.user);
                Err(Problem::new(Code::Forbidden, text).hint("nobody grants above their own role"))
            }
        }
    }

    /// Who may set what a department has: whoever may for the one it is part of, since nobody raises their own quota.
    pub(crate) fn may_set_department(&self, person: &Person, name: &str) -> Result<(), Problem> {
        let parent = self.departments.get(name).and_then(|id| self.engine.departments().get(id)?.parent);
        self.may_set_below(person, parent.and_then(|id| self.department_name(id)))
    }

    /// Who may make something in a department, or move it there; without one, in the whole installation.
    pub(crate) fn may_set_below(&self, person: &Person, department: Option<&str>) -> Result<(), Problem> {
        self.may(person, Action::Settings, department.map_or(Place::Everywhere, Place::Department))
    }

    /// Which projects somebody sees.
    pub(crate) fn sight(&self, person: &Person) -> Sight {
        if self.is_allowed(person, Action::See, Place::Everywhere) {
            return Sight::All;
        }
        let seen = |name: &&String| self.is_allowed(person, Action::See, Place::Project(name));
        Sight::Projects(self.projects.keys().filter(seen).cloned().collect())
    }

    /// The projects whose people somebody rules over.
    pub(crate) fn led_projects(&self, person: &Person) -> BTreeSet<String> {
        let led = |name: &&String| self.is_allowed(person, Action::People, Place::Project(name));
        self.projects.keys().filter(led).cloned().collect()
    }

    pub(super) fn grants_of(&self, person: &Person) -> impl Iterator<Item = &Grant> {
        self.people.grants.iter().filter(move |grant| self.people.is_of(grant, person))
    }

    fn covers(&self, scope: &Scope, place: Place<'_>) -> bool {
        match (scope, place) {
            (Scope::All, _) => true,
            (Scope::Project(own), Place::Project(name)) => own == name,
            (Scope::Department(own), Place::Department(name)) => {
                self.departments.get(name).is_some_and(|id| self.is_below(own, Some(*id)))
            }
            (Scope::Department(own), Place::Project(name)) => {
                let project = self.projects.get(name).and_then(|id| self.engine.projects().get(id));
                project.is_some_and(|project| self.is_below(own, project.department))
            }
            _ => false,
        }
    }

    /// Whether a department is the one of that name, or somewhere below it.
    fn is_below(&self, name: &str, mut department: Option<DepartmentId>) -> bool {
        while let Some(known) = department.and_then(|id| self.engine.departments().get(&id)) {
            if known.name == name {
                return true;
            }
            department = known.parent;
        }
        false
    }

    pub(crate) fn department_name(&self, id: DepartmentId) -> Option<&str> {
        self.engine.departments().get(&id).map(|department| department.name.as_str())
    }
}

/// The place that a scope is.
pub(super) fn place_of(scope: &Scope) -> Place<'_> {
    match scope {
        Scope::All => Place::Everywhere,
        Scope::Department(name) => Place::Department(name),
        Scope::Project(name) => Place::Project(name),
    }
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::See => "see anything",
        Action::Submit => "submit workloads",
        Action::OwnWork | Action::AnyWork => "change or enter this workload",
        Action::People => "manage roles",
        Action::Settings => "change settings",
        Action::Rule => "administer anything",
    }
}
