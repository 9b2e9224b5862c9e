//! What a waiting workload is entitled to.

use crate::{
    ledger::Rule,
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

/// What a claim could be entitled to at best, with everything gone that it might take; found by counts alone.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Its accounts, from the project up.
    pub(crate) levels: Vec<Level>,
    /// Whether every level could be within its fair share.
    pub(crate) share: bool,
}

/// One account of a claimant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    pub(crate) position: u32,
    /// Whether victims on the other side of this account could be taken by quota: it could be within its quota, and every
    /// level above it within its own or no fuller than it is.
    pub(crate) within: bool,
    /// The most GPUs below it that could go.
    gone: u64,
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

    /// The rule that forbids a start on free capacity, if one does.
    pub(crate) fn barrier(&self, ask: &Ask) -> Option<WaitReason> {
        self.barrier_after(ask, |_| 0)
    }

    /// The rule that forbids a start once so many GPUs below each account on the path are gone, if one does.
    fn barrier_after(&self, ask: &Ask, gone: impl Fn(usize) -> u64) -> Option<WaitReason> {
        let asked = Gpus(ask.amounts[GPU]);
        for (level, (_, node)) in self.tree.path(ask.project).enumerate() {
            let used = node.used.amounts[GPU].saturating_sub(gone(level));
            if let Some(limit) = node.limit.filter(|limit| used + asked.0 > *limit) {
                let (account, used) = (node.account, Gpus(used));
                return Some(WaitReason::Limit { account, limit: Gpus(limit), used, asked });
            }
        }
        for (level, (_, node)) in self.tree.path(ask.project).enumerate() {
            let account = node.account;
            if !ask.preemptible {
                if !node.within(&node.non_preemptible, &ask.amounts, ask.model) {
                    let passed = self.passed_quota(node, &node.non_preemptible, ask);
                    return Some(WaitReason::NonPreemptibleQuota { account, passed });
                }
            } else if node.weight == 0 {
                let used = used_after(node, gone(level));
                if !node.within(&used, &ask.amounts, ask.model) {
                    let passed = self.passed_quota(node, &used, ask);
                    return Some(WaitReason::NoBorrowing { account, passed });
                }
            }
        }
        None
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

    /// By level of the path, GPUs that must go below the account before a start is allowed: what passes its limit, or the
    /// quota of an account that does not borrow.
    pub(crate) fn must_go(&self, ask: &Ask) -> impl Iterator<Item = u64> {
        self.tree.path(ask.project).map(|(_, node)| {
            let with = node.used.amounts[GPU] + ask.amounts[GPU];
            let above_limit = node.limit.map_or(0, |limit| with.saturating_sub(limit));
            let borrows = ask.preemptible && node.weight == 0 && node.has_quota;
            let above_quota = if borrows { with.saturating_sub(node.quota) } else { 0 };
            above_limit.max(above_quota)
        })
    }

    /// Whether a start is allowed only once something is gone.
    pub(crate) fn must_take(&self, ask: &Ask) -> bool {
        self.must_go(ask).any(|gpus| gpus > 0)
    }

    /// What a claim of this priority could be entitled to once others are gone. `own` is whether work of its own project of
    /// lower priority may be among them.
    pub(crate) fn reach(&self, ask: &Ask, own: Option<i32>) -> Reach {
        let path: Vec<(u32, &Node)> = self.tree.path(ask.project).collect();
        let within = |node: &Node| node.within(&node.used, &ask.amounts, ask.model);
        let within_share = |node: &Node| node.used.amounts[GPU] + ask.amounts[GPU] <= node.share;
        let mut reach = Reach { levels: Vec::with_capacity(path.len()), share: true };
        let all_given =
            !self.must_take(ask) && path.iter().all(|(_, node)| within(node) && within_share(node));
        let gone = if all_given { vec![0; path.len()] } else { self.could_go(ask, &path, own) };
        let mut below = false;
        for (level, (position, node)) in path.iter().enumerate() {
            let (used, asked) = (node.used.amounts[GPU], ask.amounts[GPU]);
            let after = (used - gone[level].min(used)) + asked;
            below = match node.has_quota {
                true => within(node) || gone[level] > 0 && after <= node.quota,
                false => below,
            };
            reach.share &= after <= node.share;
            reach.levels.push(Level { position: *position, within: below, gone: gone[level] });
        }
        // A level above may stay as full as it is, but not grow.
        let mut above_hold = true;
        for (level, (_, node)) in path.iter().enumerate().rev() {
            reach.levels[level].within &= above_hold;
            let over = (node.used.amounts[GPU] + ask.amounts[GPU]).saturating_sub(node.quota);
            let holds = !node.has_quota
                || within(node)
                || gone[level] > 0 && gone[level] >= over.min(ask.amounts[GPU]);
            above_hold &= holds;
        }
        reach
    }

    /// By level of the path, the most GPUs below the account that a claim could take.
    fn could_go(&self, ask: &Ask, path: &[(u32, &Node)], own: Option<i32>) -> Vec<u64> {
        let victims = &self.queues[ask.project as usize].victims;
        let own = own.map_or(0, |priority| victims.gpus_below(priority));
        let mut gone = vec![own; path.len()];
        if path.len() == 1 {
            return gone;
        }
        for borrower in self.borrowers.iter().map(|borrower| borrower.project) {
            if borrower == ask.project || self.queues[borrower as usize].victims.is_empty() {
                continue;
            }
            let (mine, _) = self.tree.below_common(ask.project, borrower);
            let node = self.tree.at(borrower);
            let preemptible = node.used.amounts[GPU].saturating_sub(node.non_preemptible.amounts[GPU]);
            let below =
                path.iter().position(|(position, _)| *position == mine).map_or(path.len(), |at| at + 1);
            gone[below..].iter_mut().for_each(|gone| *gone += preemptible);
        }
        gone
    }

    /// Whether the rules might let a claim start once what it could take is gone.
    pub(crate) fn is_barred(&self, ask: &Ask, reach: &Reach) -> bool {
        self.barrier_after(ask, |level| reach.levels[level].gone).is_some()
    }

    /// Whether the ask keeps every account within quota.
    pub(crate) fn within_quota(&self, ask: &Ask) -> bool {
        self.tree.path(ask.project).all(|(_, node)| node.within(&node.used, &ask.amounts, ask.model))
    }

    /// Whether the ask keeps every account within its fair share.
    pub(crate) fn within_share(&self, ask: &Ask) -> bool {
        self.tree.path(ask.project).all(|(_, node)| node.used.amounts[GPU] + ask.amounts[GPU] <= node.share)
    }

    /// Whether the rules allow a start, and to take by a rule, before anything is gone.
    pub(crate) fn is_entitled_by(&self, ask: &Ask, rule: Rule) -> bool {
        let allows = match rule {
            Rule::Quota => self.within_quota(ask),
            Rule::Share => self.within_share(ask),
            Rule::None => !ask.preemptible || self.within_share(ask) || self.within_quota(ask),
        };
        allows && !self.must_take(ask)
    }

    /// Whether something might be taken from other projects by quota.
    pub(crate) fn may_reclaim_quota(&self, reach: &Reach) -> bool {
        reach.levels.iter().any(|level| level.within)
    }

    /// Whether something might be taken from other projects: by quota, or because all levels are within share then.
    pub(crate) fn may_take_from_others(&self, ask: &Ask, reach: &Reach) -> bool {
        self.may_reclaim_quota(reach) || (ask.preemptible && reach.share)
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
