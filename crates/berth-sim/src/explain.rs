//! Explanations as text. The data comes from the engine; nothing is decided here.

use crate::report::{account_name, clock, names, project_name, workload_name};
use berth_types::{Account, Explanation, Gpus, Remedy, State, Verdict, WaitReason, WorkloadId};

/// Holders shown; the largest come first.
const HOLDERS_SHOWN: usize = 8;

/// Why a workload waits, who holds what it needs, and what would start it: a few lines.
pub fn explain(state: &State, explanation: &Explanation) -> String {
    let name = workload_name(state, explanation.workload);
    let mut lines = vec![format!("{name} waits: {}", reason(state, &explanation.reason))];
    if !explanation.holders.is_empty() {
        let shown = explanation.holders.iter().take(HOLDERS_SHOWN).map(|holder| {
            let (workload, project) =
                (workload_name(state, holder.workload), project_name(state, holder.project));
            format!("{workload} ({project}) {}", holder.gpus)
        });
        let mut held: Vec<String> = shown.collect();
        if let Some(more @ 1..) = explanation.holders.len().checked_sub(HOLDERS_SHOWN) {
            held.push(format!("and {more} more"));
        }
        lines.push(format!("  GPUs it could use are held by: {}", held.join(", ")));
    }
    lines.push(format!("  to start it now: {}", remedy(state, &explanation.remedy)));
    lines.join("\n")
}

fn reason(state: &State, reason: &WaitReason) -> String {
    match reason {
        WaitReason::Never { most, needed } => {
            format!("even an empty pool has room for {most} of its {needed} tasks only")
        }
        WaitReason::Limit { account, limit, used, asked } => {
            let owner = account_name(state, *account);
            format!("{owner} may have {limit} GPUs at most; it has {used}, and this asks for {asked}")
        }
        WaitReason::NonPreemptibleQuota { account, quota, used, asked } => {
            let owner = account_name(state, *account);
            format!(
                "work that cannot be evicted stays within the quota of {owner}, {quota} GPUs; {used} are in use by such \
                 work, and this asks for {asked}"
            )
        }
        WaitReason::NoBorrowing { account, quota, used, asked } => {
            let owner = account_name(state, *account);
            format!(
                "{owner} does not borrow (its weight is 0); it has {used} of its {quota} GPUs, and this asks for {asked}"
            )
        }
        WaitReason::NoCapacity { fits, needed, within_quota, within_share, verdict } => {
            let entitled = match (within_quota, within_share) {
                (true, _) => "it is within quota",
                (false, true) => "it is above quota and within its fair share",
                (false, false) => "it is above quota and above its fair share",
            };
            let room = match needed {
                1 => "nothing free fits".to_string(),
                needed => format!("{fits} of its {needed} tasks fit into what is free"),
            };
            format!("{room}; {entitled}; {}", verdict_text(*verdict))
        }
        WaitReason::MinimumRun { until } => {
            format!("what it needs may be taken when minimum run times end, first at {}", clock(*until))
        }
        WaitReason::Patience { until } => {
            let until = clock(*until);
            format!(
                "a fairer share may be taken when it has waited, and others have run, long enough: at {until}"
            )
        }
        WaitReason::Leaving { workloads } => {
            let who = names(state, workloads.iter().copied());
            format!("its places are decided; these have yet to leave them: {who}")
        }
        WaitReason::Ready => "nothing holds it; the next plan starts it".into(),
    }
}

fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::NotEntitled => "it may take nothing from anybody".into(),
        Verdict::TooLittle { most, needed } => {
            format!("free and takeable are {most} of the {needed} GPUs it needs")
        }
        Verdict::NoShape { most, needed } => {
            format!("all that may be taken makes room for {most} of its {needed} tasks")
        }
        Verdict::Exhausted => "no allowed set of victims makes room".into(),
        Verdict::NotFound => "no set of victims was found within the search budget; there may be one".into(),
    }
}

fn remedy(state: &State, remedy: &Remedy) -> String {
    let and_end = |ids: &[WorkloadId]| match ids {
        [] => String::new(),
        ids => format!(" and end {}", names(state, ids.iter().copied())),
    };
    match remedy {
        Remedy::End(ids) => format!("end {}", names(state, ids.iter().copied())),
        Remedy::LiftLimits(accounts, ids) => {
            let owners: Vec<_> = accounts.iter().map(|account| account_name(state, *account)).collect();
            format!("lift the limit of {}{}", owners.join(", "), and_end(ids))
        }
        Remedy::RaiseQuota(accounts, ids) => {
            let raise =
                |(account, quota): &(Account, Gpus)| format!("{} to {quota}", account_name(state, *account));
            let owners: Vec<_> = accounts.iter().map(raise).collect();
            format!("raise the quota of {}{}", owners.join(", "), and_end(ids))
        }
        Remedy::ChangeRequest => "ask for less, or for another pool".into(),
        Remedy::Wait => "nothing is needed but a moment".into(),
        Remedy::NotFound => "no single change was found".into(),
    }
}
