//! Names in an explanation: of workloads that the caller may list. Of others only the project is named.

use super::{HOLDERS_MAX, Platform, Sight};
use berth_engine::Engine;
use berth_types::{Account, Gpus, NodeId, Place, ProjectId, WorkloadId};
use std::collections::BTreeMap;

/// Names things for somebody who sees some projects.
pub(super) struct Names<'a> {
    pub(super) platform: &'a Platform,
    pub(super) engine: &'a Engine,
    pub(super) sight: &'a Sight,
}

impl Names<'_> {
    /// A workload as `project/name`. One that is not submitted yet has no name here.
    pub(super) fn full(&self, id: WorkloadId) -> String {
        self.platform.full_name(id)
    }

    pub(super) fn project_of(&self, id: WorkloadId) -> String {
        match (self.platform.records.get(&id), self.engine.workload(id)) {
            (Some(record), _) => record.request.project.clone(),
            (None, Some(workload)) => self.account_name(Account::Project(workload.spec.project)),
            (None, None) => String::new(),
        }
    }

    /// A workload that is known by `project/name`, or its project if it may not be listed.
    pub(super) fn visible(&self, full: &str) -> String {
        match full.split_once('/') {
            Some((project, _)) if !self.sight.project(project) => project.to_owned(),
            _ => full.to_owned(),
        }
    }

    /// Names of workloads that may be listed, and how many others there are, by project.
    pub(super) fn apart(&self, ids: &[WorkloadId]) -> (Vec<String>, BTreeMap<String, u64>) {
        let (mut listed, mut others) = (Vec::new(), BTreeMap::new());
        for id in ids {
            let project = self.project_of(*id);
            match self.sight.project(&project) {
                true => listed.push(self.full(*id)),
                false => *others.entry(project).or_default() += 1,
            }
        }
        (listed, others)
    }

    /// Workloads in one phrase: `a/x, a/y and 2 workloads of b`.
    pub(super) fn phrase(&self, ids: &[WorkloadId]) -> String {
        let (mut named, others) = self.apart(ids);
        if let Some(more @ 1..) = named.len().checked_sub(HOLDERS_MAX) {
            named.truncate(HOLDERS_MAX);
            named.push(format!("{more} more"));
        }
        named.extend(others.into_iter().map(|(project, count)| match count {
            1 => format!("a workload of {project}"),
            count => format!("{count} workloads of {project}"),
        }));
        and(&named)
    }

    pub(super) fn account_name(&self, account: Account) -> String {
        let name = match account {
            Account::Project(id) => self.engine.projects().get(&id).map(|project| &project.name),
            Account::Department(id) => self.engine.departments().get(&id).map(|department| &department.name),
        };
        name.cloned().unwrap_or_else(|| "?".into())
    }

    /// An account as the subject of a sentence: a project by its name, a department as one.
    pub(super) fn account(&self, account: Account) -> String {
        match account {
            Account::Project(_) => self.account_name(account),
            Account::Department(_) => format!("department {}", self.account_name(account)),
        }
    }

    /// Whether a project uses no more than its quota in a pool.
    pub(super) fn is_within_quota(&self, id: ProjectId, pool: &str) -> bool {
        let entitlement = self.engine.projects().get(&id).and_then(|project| project.entitlements.get(pool));
        let quota = entitlement.and_then(|entitlement| entitlement.quota).unwrap_or(Gpus::ZERO);
        let own = self
            .engine
            .workloads()
            .filter(|workload| workload.spec.project == id && *workload.spec.pool == *pool);
        let used: Gpus = own.map(|workload| workload.base_places().map(Place::gpus).sum::<Gpus>()).sum();
        used <= quota
    }

    pub(super) fn nodes(&self, ids: &[NodeId]) -> Vec<String> {
        let names = ids.iter().filter_map(|id| self.engine.nodes().get(id));
        names.map(|node| node.name.clone()).collect()
    }
}

/// Parts of a sentence with commas and one `and`.
pub(super) fn and(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
