//! Explanations as text. The data comes from the engine; nothing is decided here.

use crate::report::{account_name, clock, names, project_name, workload_name};
use berth_types::{
    Account, Explanation, Gpus, Passed, PassedQuota, Remedy, State, Verdict, WaitReason, WorkloadId,
};
use std::fmt::Display;

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
        WaitReason::NonPreemptibleQuota { account, passed } => {
            let (owner, [quota, used, asked]) = (account_name(state, *account), numbers(passed));
            format!(
                "work that cannot be evicted stays within the quota of {owner}, {quota}; {used} are in use by such work, \
                 and this asks for {asked}"
            )
        }
        WaitReason::NoBorrowing { account, passed } => {
            let (owner, [quota, used, asked]) = (account_name(state, *account), numbers(passed));
            format!(
                "{owner} does not borrow (its weight is 0); it has {used} of its {quota}, and this asks for {asked}"
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

/// A quota with the name of what it is set in, then what is in use and what is asked for.
fn numbers(passed: &PassedQuota) -> [String; 3] {
    fn texts<T: Display>(passed: &Passed<T>, of: &str) -> [String; 3] {
        [format!("{} {of}", passed.quota), passed.used.to_string(), passed.asked.to_string()]
    }
    match passed {
        PassedQuota::Gpus(passed) => texts(passed, "GPUs"),
        PassedQuota::Model(model, passed) => texts(passed, &format!("GPUs of model {model}")),
        PassedQuota::Cpu(passed) => texts(passed, "CPU cores"),
        PassedQuota::Memory(passed) => texts(passed, "of memory"),
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
    let lift = |accounts: &[Account]| {
        let owners: Vec<_> = accounts.iter().map(|account| account_name(state, *account)).collect();
        format!("lift the limit of {}", owners.join(", "))
    };
    let raise = |quotas: &[(Account, Gpus)]| {
        let raised =
            quotas.iter().map(|(account, quota)| format!("{} to {quota}", account_name(state, *account)));
        format!("raise the quota of {}", raised.collect::<Vec<_>>().join(", "))
    };
    match remedy {
        Remedy::End(ids) => format!("end {}", names(state, ids.iter().copied())),
        Remedy::LiftLimits(accounts, ids) => lift(accounts) + &and_end(ids),
        Remedy::RaiseQuota(quotas, ids) => raise(quotas) + &and_end(ids),
        Remedy::LiftAndRaise(accounts, quotas, ids) => {
            format!("{}, {}{}", lift(accounts), raise(quotas), and_end(ids))
        }
        Remedy::ChangeRequest => "ask for less, or for another pool".into(),
        Remedy::Wait => "nothing is needed but a moment".into(),
        Remedy::NotFound => "no single change was found".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_types::{Bytes, Cpu, ProjectId};

    #[test]
    fn a_quota_is_named_by_what_it_is_set_in() {
        let account = Account::Project(ProjectId(1));
        let text = |passed| reason(&State::default(), &WaitReason::NoBorrowing { account, passed });
        let (quota, asked) = (Gpus::whole(2), Gpus::ONE);
        let gpus = Passed { quota, used: quota, asked };
        for (passed, expected) in [
            (PassedQuota::Gpus(gpus), "it has 2 of its 2 GPUs, and this asks for 1"),
            (
                PassedQuota::Model("A100".into(), gpus),
                "it has 2 of its 2 GPUs of model A100, and this asks for 1",
            ),
            (
                PassedQuota::Cpu(Passed { quota: Cpu(4000), used: Cpu(1500), asked: Cpu(3000) }),
                "it has 1.5 of its 4 CPU cores, and this asks for 3",
            ),
            (
                PassedQuota::Memory(Passed {
                    quota: Bytes::gib(4),
                    used: Bytes::gib(3),
                    asked: Bytes::gib(2),
                }),
                "it has 3 GiB of its 4 GiB of memory, and this asks for 2 GiB",
            ),
        ] {
            let text = text(passed);
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
