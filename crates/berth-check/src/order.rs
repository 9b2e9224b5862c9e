//! The order of starts: which head comes next.

use crate::{
    claim::{Claim, claimants},
    finding::{Finding, Rule},
    ledger::Ledger,
    room::{Room, View},
    share::fair_shares,
    tree::named,
};
use berth_types::{Account, Gpus, ProjectId, State, Time, Workload};
use std::{cmp::Ordering, collections::BTreeMap};

/// A workload that may start and fits, with its claim.
type Head<'a> = (&'a Workload, Claim);

/// Whether `started` is the head that comes next in `state`, in which it is still queued.
pub(crate) fn check_order(state: &State, started: &Workload, now: Time) -> Vec<Finding> {
    let ledger = Ledger::new(state, &started.spec.pool);
    let room = Room::of(state, View::Decided);
    let mut heads: BTreeMap<ProjectId, Head<'_>> = BTreeMap::new();
    for (workload, claim) in claimants(&ledger, state, now) {
        // One whose limit is in the way of its own extras starts by taking, not on free capacity.
        if !claim.may_start_beside_extras(&ledger) || !room.fits(workload) {
            continue;
        }
        let first =
            heads.get(&workload.spec.project).is_none_or(|(head, _)| queue_key(workload) < queue_key(head));
        if first {
            heads.insert(workload.spec.project, (workload, claim));
        }
    }
    let own = started.spec.project;
    if let Some((head, _)) = heads.get(&own)
        && queue_key(head) < queue_key(started)
    {
        return vec![Finding::new(
            Rule::StartOrder,
            format!(
                "workload {} is started before workload {} of the same project {own}, which is ahead of it in the \
                 queue, may start and fits",
                started.id, head.id
            ),
        )];
    }
    let shares = fair_shares(state, &started.spec.pool);
    let contest = Contest { ledger: &ledger, shares: &shares, heads: &heads };
    contest.findings((started, Claim::waiting(&ledger, started)))
}

/// A project's queue: priority, then submission, then id.
fn queue_key(workload: &Workload) -> impl Ord {
    (std::cmp::Reverse(workload.spec.priority), workload.submitted, workload.id)
}

/// The heads of all projects, compared level by level.
struct Contest<'a> {
    ledger: &'a Ledger<'a>,
    shares: &'a BTreeMap<Account, Gpus>,
    heads: &'a BTreeMap<ProjectId, Head<'a>>,
}

impl<'a> Contest<'a> {
    /// Where a sibling of an account on the way up has a head that comes before `started`.
    fn findings(&self, started: Head<'a>) -> Vec<Finding> {
        let path = self.ledger.tree.path(started.0.spec.project);
        let mut findings = Vec::new();
        for (position, &child) in path.iter().enumerate() {
            let above = match path.get(position + 1) {
                Some(Account::Department(id)) => Some(*id),
                _ => None,
            };
            let siblings = self.ledger.tree.children(above);
            for sibling in siblings.into_iter().filter(|sibling| *sibling != child) {
                if let Some(head) = self.head(sibling)
                    && self.compare((sibling, &head), (child, &started)) == Ordering::Less
                {
                    findings.push(Finding::new(
                        Rule::StartOrder,
                        format!(
                            "workload {} is started, but workload {} comes first: {} against {}",
                            started.0.id,
                            head.0.id,
                            self.numbers(sibling, &head),
                            self.numbers(child, &started)
                        ),
                    ));
                }
            }
        }
        findings
    }

    /// The head of an account: its project's, or the first among its children's.
    fn head(&self, account: Account) -> Option<Head<'a>> {
        match account {
            Account::Project(id) => self.heads.get(&id).cloned(),
            Account::Department(id) => self
                .ledger
                .tree
                .children(Some(id))
                .into_iter()
                .filter_map(|child| Some((child, self.head(child)?)))
                .min_by(|(one, one_head), (other, other_head)| {
                    self.compare((*one, one_head), (*other, other_head))
                })
                .map(|(_, head)| head),
        }
    }

    fn compare(&self, one: (Account, &Head<'a>), other: (Account, &Head<'a>)) -> Ordering {
        let (share_one, share_other) = (self.within_share(one), self.within_share(other));
        // Compared without dividing; borrowing on weight zero is then above everything else.
        let ((above_one, below_one), (above_other, below_other)) = (self.borrowed(one), self.borrowed(other));
        let (ratio_one, ratio_other) = (above_one * below_other, above_other * below_one);
        let by_age = |(head, _): &Head<'_>| (head.submitted, head.id);
        share_other
            .cmp(&share_one)
            .then(ratio_one.cmp(&ratio_other))
            .then_with(|| by_age(one.1).cmp(&by_age(other.1)))
    }

    fn with_head(&self, (account, (_, claim)): (Account, &Head<'a>)) -> u64 {
        self.ledger.used_gpus(account) + claim.gpus()
    }

    fn within_share(&self, child: (Account, &Head<'a>)) -> bool {
        let share = self.shares.get(&child.0).map_or(0, |share| share.0);
        self.with_head(child) <= share
    }

    /// What the child would borrow over its weight, as a fraction.
    fn borrowed(&self, child: (Account, &Head<'a>)) -> (u128, u128) {
        let quota = self.ledger.tree.quota(child.0).0;
        match self.with_head(child).saturating_sub(quota) {
            0 => (0, 1),
            borrowed => (borrowed.into(), self.ledger.tree.weight(child.0).0.into()),
        }
    }

    fn numbers(&self, account: Account, head: &Head<'a>) -> String {
        format!(
            "{} would use {} (fair share {}, quota {}, weight {}, submitted {:?})",
            named(account),
            Gpus(self.with_head((account, head))),
            self.shares.get(&account).copied().unwrap_or_default(),
            self.ledger.tree.quota(account),
            self.ledger.tree.weight(account),
            head.0.submitted,
        )
    }
}
