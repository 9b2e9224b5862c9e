//! A claim: what a workload asks for, held against every account on its path.

use crate::{
    finding::{Finding, Rule},
    ledger::{Amounts, Ledger},
    share::asked,
    tree::{Dimension, named},
};
use berth_types::{Account, AfterStop, Gpus, Name, Phase, Place, State, Workload, WorkloadId};
use std::collections::BTreeMap;

/// What one workload asks of the accounts on its path.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) workload: WorkloadId,
    pub(crate) path: Vec<Account>,
    amounts: Amounts,
    model: Option<Name>,
    pub(crate) preemptible: bool,
}

impl Claim {
    /// The claim of a workload that has no places: charged on the smallest device it may use.
    pub(crate) fn waiting(ledger: &Ledger<'_>, workload: &Workload) -> Self {
        let tasks = u64::from(workload.spec.tasks.min());
        let amounts = Amounts {
            gpus: asked(ledger.state, workload),
            cpu: workload.spec.request.cpu.times(tasks),
            memory: workload.spec.request.memory.times(tasks),
            models: BTreeMap::new(),
        };
        Self::new(ledger, workload, amounts)
    }

    /// The claim of a workload on the places it would have.
    pub(crate) fn placed(ledger: &Ledger<'_>, workload: &Workload, places: &[Place]) -> Self {
        Self::new(ledger, workload, Amounts::of(ledger.state, places))
    }

    fn new(ledger: &Ledger<'_>, workload: &Workload, amounts: Amounts) -> Self {
        Self {
            workload: workload.id,
            path: ledger.tree.path(workload.spec.project),
            amounts,
            model: workload.spec.request.named_model().cloned(),
            preemptible: workload.spec.preemptible,
        }
    }

    pub(crate) fn gpus(&self) -> u64 {
        self.amounts.gpus.0
    }

    /// How much is asked of one resource. Everything that names a model is asked of that model.
    pub(crate) fn get(&self, dimension: &Dimension) -> u64 {
        match dimension {
            Dimension::Model(_) => self.amounts.gpus.0,
            other => self.amounts.get(other),
        }
    }

    /// Every resource in which a quota is compared.
    pub(crate) fn dimensions(&self) -> Vec<Dimension> {
        let model = self.model.clone().map(Dimension::Model);
        [Dimension::Gpus, Dimension::Cpu, Dimension::Memory].into_iter().chain(model).collect()
    }

    pub(crate) fn within_quota_at(&self, ledger: &Ledger<'_>, account: Account) -> bool {
        self.dimensions().iter().all(|dimension| {
            let quota = ledger.tree.quota_in(account, dimension);
            quota.is_none_or(|quota| ledger.used(account, dimension) + self.get(dimension) <= quota)
        })
    }

    pub(crate) fn within_quota(&self, ledger: &Ledger<'_>) -> bool {
        self.path.iter().all(|account| self.within_quota_at(ledger, *account))
    }

    pub(crate) fn within_share(&self, ledger: &Ledger<'_>, shares: &BTreeMap<Account, Gpus>) -> bool {
        self.path.iter().all(|account| {
            let share = shares.get(account).map_or(0, |share| share.0);
            ledger.used_gpus(*account) + self.gpus() <= share
        })
    }

    /// Whether it is entitled to start once there is room. Extras do not count, because they make way.
    pub(crate) fn may_start(&self, ledger: &Ledger<'_>) -> bool {
        self.limit_findings(ledger, false).is_empty()
            && self.fixed_findings(ledger).is_empty()
            && self.borrowing_findings(ledger).is_empty()
    }

    /// Whether it is entitled to start and no extras stand between it and a limit.
    pub(crate) fn may_start_beside_extras(&self, ledger: &Ledger<'_>) -> bool {
        self.may_start(ledger) && self.limit_findings(ledger, true).is_empty()
    }

    /// Limits that would be passed.
    pub(crate) fn limit_findings(&self, ledger: &Ledger<'_>, with_extras: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        for &account in &self.path {
            let extras = if with_extras { ledger.extras(account) } else { 0 };
            let used = ledger.used_gpus(account);
            let sum = used + extras + self.gpus();
            if let Some(limit) = ledger.tree.limit(account).filter(|limit| sum > limit.0) {
                findings.push(Finding::new(
                    Rule::Limit,
                    format!(
                        "workload {} takes {} to {} GPUs ({} used, {} extras, {} asked), past the limit {limit}",
                        self.workload,
                        named(account),
                        Gpus(sum),
                        Gpus(used),
                        Gpus(extras),
                        Gpus(self.gpus()),
                    ),
                ));
            }
        }
        findings
    }

    /// Quotas that non-preemptible work would pass.
    pub(crate) fn fixed_findings(&self, ledger: &Ledger<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.preemptible {
            return findings;
        }
        for &account in &self.path {
            for dimension in self.dimensions() {
                let fixed = ledger.fixed(account, &dimension);
                let asked = self.get(&dimension);
                if let Some(quota) = ledger.tree.quota_in(account, &dimension)
                    && fixed + asked > quota
                {
                    findings.push(Finding::new(
                        Rule::NonPreemptibleQuota,
                        format!(
                            "non-preemptible workload {} asks {asked} of {dimension:?} on top of {fixed} that \
                             non-preemptible work uses in {}, past the quota {quota}",
                            self.workload,
                            named(account),
                        ),
                    ));
                }
            }
        }
        findings
    }

    /// Levels at which it would borrow though their weight is zero.
    pub(crate) fn borrowing_findings(&self, ledger: &Ledger<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for &account in &self.path {
            if self.preemptible
                && ledger.tree.weight(account).is_zero()
                && !self.within_quota_at(ledger, account)
            {
                findings.push(Finding::new(
                    Rule::Borrowing,
                    format!(
                        "workload {} asks {} GPUs on top of {} in {}, which has quota {} and weight 0",
                        self.workload,
                        Gpus(self.gpus()),
                        Gpus(ledger.used_gpus(account)),
                        named(account),
                        ledger.tree.quota(account),
                    ),
                ));
            }
        }
        findings
    }
}

/// The workloads of the ledger's pool that wait and may be started at this instant if there is room, each with its
/// claim: those in the queue, and those on their way back to it, which may go elsewhere instead. What was evicted at
/// this very instant does not start from the queue.
pub(crate) fn claimants<'a>(
    ledger: &Ledger<'a>,
    state: &'a State,
    now: berth_types::Time,
) -> Vec<(&'a Workload, Claim)> {
    state
        .workloads
        .values()
        .filter(|workload| workload.spec.pool == ledger.pool)
        .filter(|workload| match workload.phase {
            Phase::Queued { .. } => workload.evicted != Some(now),
            Phase::Stopping { then: AfterStop::Requeue, .. } => true,
            _ => false,
        })
        .map(|workload| (workload, Claim::waiting(ledger, workload)))
        .filter(|(_, claim)| claim.may_start(ledger))
        .collect()
}
