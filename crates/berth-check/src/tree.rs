//! The tree of accounts of one pool, and what each account is entitled to.

use berth_types::{Account, DepartmentId, Entitlement, Gpus, Name, ProjectId, State};

/// One resource in which a quota can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dimension {
    Gpus,
    Cpu,
    Memory,
    Model(Name),
}

/// Reads entitlements of one pool.
#[derive(Clone)]
pub(crate) struct Tree<'a> {
    state: &'a State,
    pool: Name,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(state: &'a State, pool: &Name) -> Self {
        Self { state, pool: pool.clone() }
    }

    /// The project and every department above it that is an account, nearest first.
    pub(crate) fn path(&self, project: ProjectId) -> Vec<Account> {
        let department = self.state.projects.get(&project).and_then(|own| own.department);
        let above = self.state.ancestors(department).map(|department| Account::Department(department.id));
        std::iter::once(Account::Project(project))
            .chain(above.filter(|department| !self.is_neutral(*department)))
            .collect()
    }

    /// The accounts directly below a department, or below the root; in place of a neutral department its own.
    pub(crate) fn children(&self, of: Option<DepartmentId>) -> Vec<Account> {
        let departments = self.state.departments.values().filter(|own| own.parent == of);
        let projects = self.state.projects.values().filter(|own| own.department == of);
        let of_department = |id: DepartmentId| match self.is_neutral(Account::Department(id)) {
            true => self.children(Some(id)),
            false => vec![Account::Department(id)],
        };
        departments
            .flat_map(|own| of_department(own.id))
            .chain(projects.map(|own| Account::Project(own.id)))
            .collect()
    }

    /// Whether an account is a department that only groups: nothing is set for it.
    pub(crate) fn is_neutral(&self, account: Account) -> bool {
        let is_set = |own: &Entitlement| *own != Entitlement::default();
        matches!(account, Account::Department(_)) && !self.entitlement(account).is_some_and(is_set)
    }

    pub(crate) fn quota(&self, account: Account) -> Gpus {
        match (self.entitlement(account).and_then(|own| own.quota), account) {
            (Some(quota), _) => quota,
            (None, Account::Project(_)) => Gpus::ZERO,
            (None, Account::Department(id)) => {
                self.children(Some(id)).into_iter().map(|child| self.quota(child)).sum()
            }
        }
    }

    /// Whether this level has a quota of its own: it is a project, or its quota is set.
    pub(crate) fn has_quota(&self, account: Account) -> bool {
        matches!(account, Account::Project(_))
            || self.entitlement(account).is_some_and(|own| own.quota.is_some())
    }

    /// The quota of one resource, or none where nothing is set or the level has no quota at all.
    pub(crate) fn quota_in(&self, account: Account, dimension: &Dimension) -> Option<u64> {
        if !self.has_quota(account) {
            return None;
        }
        let own = self.entitlement(account);
        match dimension {
            Dimension::Gpus => Some(self.quota(account).0),
            Dimension::Cpu => own?.cpu_quota.map(|quota| quota.0),
            Dimension::Memory => own?.memory_quota.map(|quota| quota.0),
            Dimension::Model(model) => own?.model_quotas.get(model).map(|quota| quota.0),
        }
    }

    pub(crate) fn weight(&self, account: Account) -> Gpus {
        let set = self.entitlement(account).and_then(|own| own.weight);
        set.unwrap_or_else(|| match self.quota(account) {
            Gpus::ZERO => Gpus::ONE,
            quota => quota,
        })
    }

    pub(crate) fn limit(&self, account: Account) -> Option<Gpus> {
        self.entitlement(account).and_then(|own| own.limit)
    }

    pub(crate) fn rank(&self, account: Account) -> i32 {
        self.entitlement(account).map_or(0, |own| own.rank)
    }

    fn entitlement(&self, account: Account) -> Option<&'a Entitlement> {
        let all = match account {
            Account::Department(id) => &self.state.departments.get(&id)?.entitlements,
            Account::Project(id) => &self.state.projects.get(&id)?.entitlements,
        };
        all.get(&self.pool)
    }
}

/// Splits two paths at their lowest common ancestor: the claimant's accounts from just below it up to the top, and
/// the victim's accounts from its project up to just below it. The second is empty inside one project.
pub(crate) fn split(claimant: &[Account], victim: &[Account]) -> (Vec<Account>, Vec<Account>) {
    let shared =
        claimant.iter().rev().zip(victim.iter().rev()).take_while(|(ours, theirs)| ours == theirs).count();
    let below = claimant.len() - shared;
    let upper = claimant[below.saturating_sub(1)..].to_vec();
    let chain = victim[..victim.len() - shared].to_vec();
    (upper, chain)
}

/// An account as people write it.
pub(crate) fn named(account: Account) -> String {
    match account {
        Account::Department(id) => format!("department {id}"),
        Account::Project(id) => format!("project {id}"),
    }
}
