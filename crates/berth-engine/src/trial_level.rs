//! The accounts of a claimant, as they would be once the victims of a trial are gone.

use crate::{
    claim::Ask,
    ledger::Dimensions,
    tree::{GPU, Node},
};

/// One account of the claimant, and what is taken below it.
pub(crate) struct TrialLevel<'a> {
    pub(crate) position: u32,
    pub(crate) node: &'a Node,
    /// GPUs that must go below it before a start is allowed.
    pub(crate) must_go: u64,
    pub(crate) taken: Dimensions,
    /// Victims on the other side of this account, which stand below the account above it.
    pub(crate) victims_beside: u32,
}

impl TrialLevel<'_> {
    pub(crate) fn is_within_quota(&self, ask: &Ask) -> bool {
        let mut used = self.node.used.clone();
        used.amounts.iter_mut().zip(self.taken).for_each(|(used, taken)| *used -= taken);
        if let Some(of_model) = ask.model.and_then(|model| used.models.get_mut(model)) {
            *of_model -= self.taken[3];
        }
        self.node.within(&used, &ask.amounts, ask.model)
    }

    /// Whether the account is no fuller than it was, in every dimension in which the ask passes its quota.
    pub(crate) fn grows_nowhere(&self, ask: &Ask) -> bool {
        let over = |dimension: usize| {
            let with = self.node.used.amounts[dimension] - self.taken[dimension] + ask.amounts[dimension];
            self.node.quota_in(dimension).is_some_and(|quota| with > quota)
        };
        let of_model = ask.model.and_then(|model| self.node.over_model_quota(model, ask.amounts[GPU]));
        (0..3).all(|dimension| !over(dimension) || self.taken[dimension] >= ask.amounts[dimension])
            && of_model.is_none_or(|over| self.taken[3] >= over.min(ask.amounts[GPU]))
    }

    pub(crate) fn is_within_share(&self, ask: &Ask) -> bool {
        self.node.used.amounts[GPU] - self.taken[GPU] + ask.amounts[GPU] <= self.node.share
    }
}

/// Whether the account beside each victim is within quota, and each above it within its own or no fuller than before.
pub(crate) fn may_reclaim_quota(levels: &[TrialLevel<'_>], ask: &Ask) -> bool {
    let (mut within, mut beside) = (false, false);
    levels.iter().all(|level| {
        let has_quota = level.node.has_quota;
        let holds = !beside || !has_quota || level.is_within_quota(ask) || level.grows_nowhere(ask);
        // A level without a quota promises nothing of its own, so it is as good as the level below it.
        within = if has_quota { level.is_within_quota(ask) } else { within };
        beside |= level.victims_beside > 0;
        holds && (level.victims_beside == 0 || within)
    })
}
