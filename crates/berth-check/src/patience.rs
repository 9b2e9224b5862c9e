//! Patience: for what is not owed, others are disturbed only after a wait, and only when they have run for as long.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::Ledger,
    taking::{Group, Winning},
};
use berth_types::{Action, EvictRule, Policy, WorkloadId};

/// Whether the winner waited, and everybody taken for a share or moved ran, for as long as the policy asks. What is owed
/// within quota waits for nobody.
pub(crate) fn check_patience(policy: &Policy, group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let winner = winning.workload;
    let disturbed = disturbed(group, winning);
    let mut findings = Vec::new();
    let waited = winning.now.since(winner.waits_since());
    if !disturbed.is_empty() && waited < policy.patience {
        findings.push(Finding::new(
            Rule::Patience,
            format!(
                "{disturbed:?} are disturbed for {}, which waited {waited} of {}",
                winner.id, policy.patience
            ),
        ));
    }
    for id in disturbed {
        // Taking what does not run is another finding.
        let since = group.before.workloads.get(&id).and_then(|victim| victim.running_since());
        let ran = since.map(|since| winning.now.since(since));
        if let Some(ran) = ran.filter(|ran| *ran < policy.patience) {
            findings.push(Finding::new(
                Rule::Patience,
                format!("workload {id} is disturbed for {} after {ran} of {}", winner.id, policy.patience),
            ));
        }
    }
    findings
}

/// Who is taken for a share, or moved for a winner that is not within quota.
fn disturbed(group: &Group, winning: &Winning<'_>) -> Vec<WorkloadId> {
    let ledger = Ledger::new(&group.before, &winning.workload.spec.pool);
    let owed = Claim::waiting(&ledger, winning.workload).within_quota(&ledger);
    let counts = |action: &&Action| match action {
        Action::Evict { rule, .. } => *rule == EvictRule::ShareReclaim,
        Action::Move { .. } => !owed,
        _ => false,
    };
    group.taken.iter().filter(counts).map(Action::workload).collect()
}
