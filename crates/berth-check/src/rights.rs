//! Rights: the conditions under which each rule lets a victim be evicted.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Ledger, reservation},
    search::{Bench, Reading},
    share::fair_shares,
    taking::{Group, Winning},
    tree::{Dimension, named, split},
};
use berth_types::{Account, Action, EvictRule, Gpus, Phase, StartBasis, Workload, WorkloadId};
use std::collections::BTreeMap;

/// Whether every eviction has the right its rule names.
pub(crate) fn check_rights(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let mut findings = check_quota_reclaim(group, winning);
    findings.extend(check_share_reclaim(group, winning));
    findings.extend(check_quota_untouched(group, winning));
    findings.extend(check_preemption(group, winning));
    findings.extend(check_passing(group, winning));
    findings
}

/// The victims evicted by one rule, as they were before the group.
pub(crate) fn evicted_by(group: &Group, rule: EvictRule) -> Vec<&Workload> {
    group
        .taken
        .iter()
        .filter_map(|action| match action {
            Action::Evict { workload, rule: own, .. } if *own == rule => group.before.workloads.get(workload),
            _ => None,
        })
        .collect()
}

fn check_quota_reclaim(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let victims = evicted_by(group, EvictRule::QuotaReclaim);
    if victims.is_empty() {
        return Vec::new();
    }
    let winner = winning.workload;
    let pool = &winner.spec.pool;
    let (before, after) = (Ledger::new(&group.before, pool), Ledger::new(winning.after, pool));
    let claim = Claim::placed(&after, winner, winning.places);
    let mut findings = Vec::new();
    for victim in &victims {
        let (upper, chain) = split(&claim.path, &after.tree.path(victim.spec.project));
        if chain.is_empty() {
            findings.push(Finding::new(
                Rule::QuotaReclaim,
                format!("workload {} reclaims quota from {} of its own project", winner.id, victim.id),
            ));
        }
        // A victim below the common ancestor makes room there, so the claimant is looked at after the taking: just below the
        // ancestor it is within quota, or, where that level has none, at the next below that has. A level above may stay as
        // full as it was in what it has too much of.
        let beside = claim.path.len() - upper.len();
        let judged = claim.path[..=beside].iter().rev().copied().find(|own| after.tree.has_quota(*own));
        let is_full = |own: &Account, may_stay: bool| {
            claim.dimensions().iter().any(|dimension| {
                let with = after.used(*own, dimension) + claim.get(dimension);
                let full = after.tree.quota_in(*own, dimension).is_some_and(|quota| with > quota);
                full && !(may_stay && with <= before.used(*own, dimension))
            })
        };
        let above = upper.into_iter().skip(1).filter(|own| is_full(own, true));
        let full = judged.into_iter().filter(|own| is_full(own, false)).chain(above);
        for account in full {
            findings.push(Finding::new(
                Rule::QuotaReclaim,
                format!(
                    "workload {} takes {} by quota reclaim, but with {} GPUs on top of {} it is not within the quota \
                     {} of {}",
                    winner.id,
                    victim.id,
                    Gpus(claim.gpus()),
                    Gpus(after.used_gpus(account)),
                    after.tree.quota(account),
                    named(account)
                ),
            ));
        }
    }
    let ids: Vec<WorkloadId> = victims.iter().map(|victim| victim.id).collect();
    let bench = Bench::new(&before, &claim, victims, Reading::Possible);
    if let Some(account) = bench.refusal() {
        findings.push(Finding::new(
            Rule::QuotaReclaim,
            format!(
                "in no order can workload {} take {ids:?}: {} uses {} GPUs with quota {} and is not above it before each",
                winner.id,
                named(account),
                Gpus(before.used_gpus(account)),
                before.tree.quota(account)
            ),
        ));
    }
    findings
}

fn check_share_reclaim(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let victims = evicted_by(group, EvictRule::ShareReclaim);
    if victims.is_empty() {
        return Vec::new();
    }
    let winner = winning.workload;
    let pool = &winner.spec.pool;
    // Demand changes a little when work charged by GPU memory loses its device, so either moment is accepted.
    let with_before = share_problems(group, winning, &victims, &fair_shares(&group.before, pool));
    if with_before.is_empty() {
        return Vec::new();
    }
    let with_after = share_problems(group, winning, &victims, &fair_shares(winning.after, pool));
    if with_after.is_empty() {
        return Vec::new();
    }
    with_before.into_iter().map(|text| Finding::new(Rule::ShareReclaim, text)).collect()
}

fn share_problems(
    group: &Group,
    winning: &Winning<'_>,
    victims: &[&Workload],
    shares: &BTreeMap<Account, Gpus>,
) -> Vec<String> {
    let winner = winning.workload;
    let before = Ledger::new(&group.before, &winner.spec.pool);
    let after = Ledger::new(winning.after, &winner.spec.pool);
    let claim = Claim::placed(&after, winner, winning.places);
    let mut problems = Vec::new();
    if !claim.preemptible {
        problems.push(format!("non-preemptible workload {} reclaims a share", winner.id));
    }
    // A request for GPU memory is judged as it waited, on the smallest device.
    if Claim::waiting(&before, winner).within_quota(&before) && claim.within_quota(&after) {
        problems.push(format!("workload {} is within quota and reclaims a share", winner.id));
    }
    if !claim.within_share(&after, shares) {
        problems.push(format!(
            "workload {} reclaims a share, but with {} GPUs an account of {:?} is above its fair share",
            winner.id,
            Gpus(claim.gpus()),
            claim.path
        ));
    }
    for victim in victims {
        let (_, chain) = split(&claim.path, &before.tree.path(victim.spec.project));
        if chain.is_empty() {
            problems.push(format!("workload {} reclaims a share from its own project", winner.id));
        }
        for account in chain {
            let share = shares.get(&account).copied().unwrap_or_default();
            let (was, is) = (before.used_gpus(account), after.used_gpus(account));
            // A limit can put the share below the quota; the higher of both is kept.
            let quota = before.tree.quota_in(account, &Dimension::Gpus).unwrap_or(0);
            let line = share.0.max(quota);
            if was <= line || is < line {
                problems.push(format!(
                    "workload {} takes {} by share reclaim: {} uses {} before and {} after, its fair share is {share}",
                    winner.id,
                    victim.id,
                    named(account),
                    Gpus(was),
                    Gpus(is)
                ));
            }
        }
    }
    problems
}

/// Nothing is taken from a project of others that is at or below quota.
fn check_quota_untouched(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let ledger = Ledger::new(&group.before, &winning.workload.spec.pool);
    let claim = Claim::waiting(&ledger, winning.workload);
    let victims = [EvictRule::QuotaReclaim, EvictRule::ShareReclaim, EvictRule::Passing]
        .into_iter()
        .flat_map(|rule| evicted_by(group, rule));
    let mut findings = Vec::new();
    for victim in victims.filter(|victim| victim.spec.project != winning.workload.spec.project) {
        let account = Account::Project(victim.spec.project);
        let above = claim.dimensions().iter().any(|dimension| {
            let quota = ledger.tree.quota_in(account, dimension);
            quota.is_some_and(|quota| ledger.used(account, dimension) > quota)
        });
        if !above {
            findings.push(Finding::new(
                Rule::QuotaUntouched,
                format!(
                    "workload {} loses its place to {}, but {} uses {} GPUs of its quota {}",
                    victim.id,
                    winning.workload.id,
                    named(account),
                    Gpus(ledger.used_gpus(account)),
                    ledger.tree.quota(account)
                ),
            ));
        }
    }
    findings
}

fn check_preemption(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let mut findings = check_growth(group, winning);
    let winner = winning.workload;
    let strangers = evicted_by(group, EvictRule::Preemption)
        .into_iter()
        .filter(|victim| {
            victim.spec.project != winner.spec.project || victim.spec.priority >= winner.spec.priority
        })
        .map(|victim| {
            Finding::new(
                Rule::Preemption,
                format!(
                    "workload {} of project {} and priority {} preempts {} of project {} and priority {}",
                    winner.id,
                    winner.spec.project,
                    winner.spec.priority,
                    victim.id,
                    victim.spec.project,
                    victim.spec.priority
                ),
            )
        });
    findings.extend(strangers);
    findings
}

/// A project whose preemptible work preempts its own, and takes nothing from others, uses no more than before, unless it is
/// within quota or within its fair share with it.
fn check_growth(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let winner = winning.workload;
    let of_others = [EvictRule::QuotaReclaim, EvictRule::ShareReclaim, EvictRule::Passing];
    let takes_from_others = of_others.into_iter().any(|rule| !evicted_by(group, rule).is_empty());
    if evicted_by(group, EvictRule::Preemption).is_empty() || takes_from_others || !winner.spec.preemptible {
        return Vec::new();
    }
    let pool = &winner.spec.pool;
    let (before, after) = (Ledger::new(&group.before, pool), Ledger::new(winning.after, pool));
    // A request for GPU memory is judged as it waited, on the smallest device.
    let claim = Claim::waiting(&before, winner);
    let account = Account::Project(winner.spec.project);
    let (was, is) = (before.used_gpus(account), after.used_gpus(account) + claim.gpus());
    let is_owed = claim.within_quota(&after)
        || [&group.before, winning.after]
            .into_iter()
            .any(|state| claim.within_share(&after, &fair_shares(state, pool)));
    if is <= was || is_owed {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Preemption,
        format!(
            "workload {} preempts work of its own project, which grows from {} to {} GPUs by it, past its quota {} and its \
             fair share",
            winner.id,
            Gpus(was),
            Gpus(is),
            before.tree.quota(account)
        ),
    )]
}

fn check_passing(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let reserved = group.before.workloads.get(&winning.workload.id).and_then(reservation);
    let fills = winning.basis == StartBasis::Reservation && reserved.is_some();
    evicted_by(group, EvictRule::Passing)
        .into_iter()
        .filter(|victim| !fills || !matches!(victim.phase, Phase::Running { passing: true, .. }))
        .map(|victim| {
            Finding::new(
                Rule::PassingEviction,
                format!(
                    "workload {} is evicted as passing, but it is not passing or {} fills no reservation",
                    victim.id, winning.workload.id
                ),
            )
        })
        .collect()
}
