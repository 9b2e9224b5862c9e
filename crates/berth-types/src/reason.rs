//! Reasons, as data. Text is rendered from them, never the other way round.

use crate::{Bytes, Cpu, DepartmentId, Gpus, Name, ProjectId, Time, WorkloadId};
use serde::{Deserialize, Serialize};

/// A level of the tree that owns quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Account {
    /// A department.
    Department(DepartmentId),
    /// A project.
    Project(ProjectId),
}

/// How sure the engine is that nothing could be taken for a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is not entitled to take anything from anybody.
    NotEntitled,
    /// Even all that may be taken is too little: `most` of `needed` GPUs.
    TooLittle {
        /// Free and takeable GPUs.
        most: Gpus,
        /// GPUs asked for.
        needed: Gpus,
    },
    /// Even with all that may be taken, places for `most` of `needed` tasks can be made.
    NoShape {
        /// Tasks that could be placed.
        most: u64,
        /// Tasks of the minimum.
        needed: u64,
    },
    /// Every set of victims was tried; none is allowed and sufficient.
    Exhausted,
    /// The search ended at its budget; there may be a way.
    NotFound,
}

/// Who holds what a waiting workload needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The workload that holds it.
    pub workload: WorkloadId,
    /// Its project.
    pub project: ProjectId,
    /// GPUs it holds on nodes the waiting workload may use.
    pub gpus: Gpus,
}

/// The numbers of a quota that would be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed<T> {
    /// The quota.
    pub quota: T,
    /// In use.
    pub used: T,
    /// Asked for.
    pub asked: T,
}

/// A quota that would be passed, in what it is set in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassedQuota {
    /// GPUs of any model.
    Gpus(Passed<Gpus>),
    /// GPUs of the model that is named.
    Model(Name, Passed<Gpus>),
    /// CPU.
    Cpu(Passed<Cpu>),
    /// Memory of the host.
    Memory(Passed<Bytes>),
}

/// The rule that keeps a workload waiting, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitReason {
    /// Not even an empty pool has room: `most` of `needed` tasks fit.
    Never {
        /// Tasks an empty pool holds.
        most: u64,
        /// Tasks of the minimum.
        needed: u64,
    },
    /// A limit would be passed.
    Limit {
        /// Whose.
        account: Account,
        /// The limit.
        limit: Gpus,
        /// In use.
        used: Gpus,
        /// Asked for.
        asked: Gpus,
    },
    /// Non-preemptible work would pass a quota.
    NonPreemptibleQuota {
        /// Whose.
        account: Account,
        /// The quota; what is in use is what non-preemptible work uses.
        passed: PassedQuota,
    },
    /// It would borrow, and its weight is zero.
    NoBorrowing {
        /// Whose weight.
        account: Account,
        /// The quota.
        passed: PassedQuota,
    },
    /// Nothing free fits and nothing may be taken.
    NoCapacity {
        /// Tasks that fit into what is free.
        fits: u64,
        /// Tasks of the minimum.
        needed: u64,
        /// Whether it would keep every level within quota.
        within_quota: bool,
        /// Whether its project would stay within its fair share.
        within_share: bool,
        /// Why nothing is taken from others.
        verdict: Verdict,
    },
    /// What it needs can be taken when minimum run times end.
    MinimumRun {
        /// The first instant at which that may change.
        until: Time,
    },
    /// What it needs can be taken once it has waited, or others have run, long enough for a fairer share.
    Patience {
        /// The first instant at which that may change.
        until: Time,
    },
    /// Its places are decided; it waits for others to leave them.
    Leaving {
        /// Who.
        workloads: Vec<WorkloadId>,
    },
    /// Nothing holds it: the next plan starts it.
    Ready,
}

/// The change that would start a workload now; each was tried before it was named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// These workloads end.
    End(Vec<WorkloadId>),
    /// The limit of every account on the way up that is too small is lifted, and these workloads end.
    LiftLimits(Vec<Account>, Vec<WorkloadId>),
    /// The quota of these accounts grows to this much, and these workloads end.
    RaiseQuota(Vec<(Account, Gpus)>, Vec<WorkloadId>),
    /// The limits of these accounts are lifted, the quotas of those grow to this much, and these workloads end.
    LiftAndRaise(Vec<Account>, Vec<(Account, Gpus)>, Vec<WorkloadId>),
    /// Nothing short of another pool or another request.
    ChangeRequest,
    /// Nothing is needed but that those leaving are gone.
    Wait,
    /// None was found within the search budget.
    NotFound,
}

/// Why a workload waits, and what would start it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The waiting workload.
    pub workload: WorkloadId,
    /// The rule that holds it.
    pub reason: WaitReason,
    /// Who holds what it needs, largest first.
    pub holders: Vec<Holder>,
    /// What would start it now.
    pub remedy: Remedy,
}
