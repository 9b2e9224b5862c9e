//! What a waiting workload is entitled to.

use crate::{
    ledger::Dimensions,
    pool::{Class, Pool},
    tree::{Amounts, CPU, GPU, MEMORY, Node, Usage},
};
use berth_types::{Bytes, Cpu, Gpus, Passed, PassedQuota, StartBasis, Time, WaitReason};

/// What one waiting workload asks of its accounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) project: u32,
    pub(crate) amounts: Amounts,
    pub(crate) model: Option<usize>,
    pub(crate) preemptible: bool,
}

impl Pool {
    /// What a workload of a class asks of a project and the accounts above it.
    pub(crate) fn ask(&self, project: u32, class: &Class) -> Ask {
        let shape = &self.shapes[class.shape as usize].0;
        let tasks = u64::from(class.min);
        Ask {
            project,
            amounts: [class.asked, shape.request.cpu.0 * tasks, shape.request.memory.0 * tasks],
            model: class.model,
            preemptible: shape.preemptible,
        }
    }

    /// The rule that forbids a start even on free capacity, if one does. `given` GPUs of the project's own work would
    /// be taken first.
    pub(crate) fn barrier(&self, ask: &Ask, given: u64) -> Option<WaitReason> {
        let asked = Gpus(ask.amounts[GPU]);
        for (_, node) in self.tree.path(ask.project) {
            let used = node.used.amounts[GPU].saturating_sub(given);
            if let Some(limit) = node.limit.filter(|limit| used + asked.0 > *limit) {
                let (account, used) = (node.account, Gpus(used));
                return Some(WaitReason::Limit { account, limit: Gpus(limit), used, asked });
            }
        }
        for (_, node) in self.tree.path(ask.project) {
            let account = node.account;
            if !ask.preemptible {
                if !node.within(&node.non_preemptible, &ask.amounts, ask.model) {
                    let passed = self.passed_quota(node, &node.non_preemptible, ask);
                    return Some(WaitReason::NonPreemptibleQuota { account, passed });
                }
            } else if node.weight == 0 && !self.within_after(node, ask, given) {
                let passed = self.passed_quota(node, &used_after(node, given), ask);
                return Some(WaitReason::NoBorrowing { account, passed });
            }
        }
        None
    }

    fn within_after(&self, node: &Node, ask: &Ask, given: u64) -> bool {
        if given == 0 {
            return node.within(&node.used, &ask.amounts, ask.model);
        }
        node.within(&used_after(node, given), &ask.amounts, ask.model)
    }

    /// The first quota of an account that `used` and the ask together pass.
    fn passed_quota(&self, node: &Node, used: &Usage, ask: &Ask) -> PassedQuota {
        let passed = |dimension: usize| {
            let (used, asked) = (used.amounts[dimension], ask.amounts[dimension]);
            node.quota_in(dimension).filter(|quota| used + asked > *quota).map(|quota| Passed {
                quota,
                used,
                asked,
            })
        };
        let gpus = |Passed { quota, used, asked }| Passed {
            quota: Gpus(quota),
            used: Gpus(used),
            asked: Gpus(asked),
        };
        if let Some(passed) = passed(GPU) {
            return PassedQuota::Gpus(gpus(passed));
        }
        if let Some(Passed { quota, used, asked }) = passed(CPU) {
            return PassedQuota::Cpu(Passed { quota: Cpu(quota), used: Cpu(used), asked: Cpu(asked) });
        }
        if let Some(Passed { quota, used, asked }) = passed(MEMORY) {
            return PassedQuota::Memory(Passed {
                quota: Bytes(quota),
                used: Bytes(used),
                asked: Bytes(asked),
            });
        }
        let model = ask.model.expect("a quota that is passed in nothing else is of a model");
        let quota = node.model_quotas.iter().find(|(of, _)| *of == model).map_or(0, |(_, quota)| *quota);
        let passed = Passed { quota, used: used.model(model), asked: ask.amounts[GPU] };
        PassedQuota::Model(self.models[model].clone(), gpus(passed))
    }

    /// GPUs of the project's own work that must be taken before a start is allowed at all.
    pub(crate) fn must_give(&self, ask: &Ask) -> u64 {
        let path = self.tree.path(ask.project);
        path.map(|(_, node)| {
            let with = node.used.amounts[GPU] + ask.amounts[GPU];
            let above_limit = node.limit.map_or(0, |limit| with.saturating_sub(limit));
            let borrows = ask.preemptible && node.weight == 0 && node.has_quota;
            let above_quota = if borrows { with.saturating_sub(node.quota) } else { 0 };
            above_limit.max(above_quota)
        })
        .max()
        .unwrap_or(0)
    }

    /// Whether the ask keeps this account within quota.
    pub(crate) fn within_quota_at(&self, position: u32, ask: &Ask) -> bool {
        let node = self.tree.at(position);
        node.within(&node.used, &ask.amounts, ask.model)
    }

    /// For every account from the project up, whether the ask keeps it within quota. A level without a quota promises
    /// nothing of its own, so it is as good as the level below it.
    pub(crate) fn within_quota_by_level(&self, ask: &Ask) -> Vec<(u32, bool)> {
        let mut below = false;
        let path = self.tree.path(ask.project);
        path.map(|(position, node)| {
            below = if node.has_quota { node.within(&node.used, &ask.amounts, ask.model) } else { below };
            (position, below)
        })
        .collect()
    }

    /// Whether the top level of the ask's path is within quota, so that other departments can be taken from.
    pub(crate) fn within_quota_at_top(&self, ask: &Ask) -> bool {
        self.tree.path(ask.project).fold(false, |below, (_, node)| {
            if node.has_quota { node.within(&node.used, &ask.amounts, ask.model) } else { below }
        })
    }

    /// Whether the ask keeps every account within quota.
    pub(crate) fn within_quota(&self, ask: &Ask) -> bool {
        self.tree.path(ask.project).all(|(_, node)| node.within(&node.used, &ask.amounts, ask.model))
    }

    /// Whether the ask keeps every account within quota once this much of its own project's work is gone.
    pub(crate) fn within_quota_after(&self, ask: &Ask, given: &Dimensions) -> bool {
        self.tree.path(ask.project).all(|(_, node)| {
            let mut used = node.used.clone();
            used.amounts.iter_mut().zip(given).for_each(|(used, given)| *used -= given);
            if let Some(of_model) = ask.model.and_then(|model| used.models.get_mut(model)) {
                *of_model -= given[3];
            }
            node.within(&used, &ask.amounts, ask.model)
        })
    }

    /// Whether the ask keeps every account within its fair share.
    pub(crate) fn within_share(&self, ask: &Ask) -> bool {
        self.tree.path(ask.project).all(|(_, node)| node.used.amounts[GPU] + ask.amounts[GPU] <= node.share)
    }

    /// Whether quota could be reclaimed from other projects: the project or the top level is within it.
    pub(crate) fn may_reclaim_quota(&self, ask: &Ask) -> bool {
        self.within_quota_at_top(ask) || self.within_quota_at(ask.project, ask)
    }

    /// Whether something could be taken from other projects: by quota, or because all levels are within share.
    pub(crate) fn may_take_from_others(&self, ask: &Ask) -> bool {
        self.may_reclaim_quota(ask) || (ask.preemptible && self.within_share(ask))
    }

    /// From when on others are disturbed for a waiting workload that is not owed what it asks for.
    pub(crate) fn patient_from(&self, slot: u32) -> Time {
        self.entry(slot).workload.waits_since() + self.policy.patience
    }

    /// Why a start on free capacity is allowed.
    pub(crate) fn basis(&self, ask: &Ask) -> StartBasis {
        if self.within_quota(ask) {
            StartBasis::Quota
        } else if self.within_share(ask) {
            StartBasis::FairShare
        } else {
            StartBasis::Idle
        }
    }
}

/// What an account uses once so many GPUs are given.
fn used_after(node: &Node, given: u64) -> Usage {
    let mut used = node.used.clone();
    used.amounts[GPU] = used.amounts[GPU].saturating_sub(given);
    used
}
