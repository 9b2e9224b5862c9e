//! Why a workload waits, as data and in words; and what a submission would do.

use super::{Parked, Platform};
use berth_api::{GpuAmount, Held, Preview, Problem, Remedies, Timestamp, Why, WorkloadRequest};
use berth_types::{
    Account, Action, Change, Explanation, Gpus, Passed, PassedQuota, Remedy, Time, Verdict, WaitReason,
    WorkloadId,
};
use std::{collections::BTreeMap, fmt::Display};

/// Workloads that are named at most in one explanation.
const HOLDERS_MAX: usize = 20;

impl Platform {
    /// Why an unfinished workload waits, or that it does not.
    pub(crate) fn why(&self, id: WorkloadId, now: Time) -> Option<Why> {
        let record = self.records.get(&id)?;
        let plain = |rule: &str, text: String, waits: bool, until: Option<Time>| Why {
            workload: self.full_name(id),
            waits,
            rule: rule.into(),
            text,
            numbers: BTreeMap::new(),
            until: until.map(Timestamp),
            held_by: Vec::new(),
            remedy: None,
        };
        match record.parked {
            Some((Parked::Suspended { .. }, _)) => {
                let text = format!("it is suspended; `berth resume {}` brings it back", record.name);
                return Some(plain("suspended", text, true, None));
            }
            Some((Parked::BackOff { until }, _)) => {
                let text =
                    format!("it failed {} times and is tried again in {}", record.failures, until.since(now));
                return Some(plain("back-off", text, true, Some(until)));
            }
            Some((Parked::Refused, _)) => {
                let text =
                    record.message.clone().unwrap_or_else(|| "the operator has not queued it yet".into());
                return Some(plain("refused", text, true, None));
            }
            None => {}
        }
        let Some(explanation) = self.engine.explain(id, now) else {
            let status = self.workload_view(id, false)?.status;
            return Some(plain(
                &status.to_string().to_lowercase(),
                format!("it does not wait: it is {status}"),
                false,
                None,
            ));
        };
        Some(self.explained(&explanation, now))
    }

    /// What a submission would do, without doing it.
    pub(crate) fn preview(
        &self,
        request: WorkloadRequest,
        unfit: Option<Problem>,
        user: &str,
        now: Time,
    ) -> Result<Preview, Problem> {
        let (workload, _, warnings) = self.lower(request, user, now)?;
        if let Some(problem) = unfit {
            return Err(problem);
        }
        let id = workload.id;
        let mut engine = self.engine.clone();
        engine.apply(&Change::Submitted(workload)).map_err(super::engine_problem)?;
        let plan = engine.plan(now);
        let mut preview = Preview {
            starts: false,
            nodes: Vec::new(),
            evicts: Vec::new(),
            waits: None,
            wakes_at: None,
            warnings,
        };
        for action in &plan.actions {
            match action {
                Action::Start { workload, places, .. } | Action::Hold { workload, places, .. }
                    if *workload == id =>
                {
                    preview.starts = true;
                    let nodes = places.iter().filter_map(|place| self.engine.nodes().get(&place.node));
                    preview.nodes = nodes.map(|node| node.name.clone()).collect();
                    preview.nodes.dedup();
                }
                Action::Evict { workload, winner, .. }
                | Action::Move { workload, winner: Some(winner), .. }
                    if *winner == id =>
                {
                    preview.evicts.push(self.full_name(*workload));
                }
                _ => {}
            }
        }
        if !preview.starts
            && let Some(explanation) = engine.explain(id, now)
        {
            let why = self.explained(&explanation, now);
            preview.waits = Some(why.text);
            preview.wakes_at = why.until;
        }
        Ok(preview)
    }

    fn explained(&self, explanation: &Explanation, now: Time) -> Why {
        let (rule, text, numbers, until) = self.reason(&explanation.reason, now);
        let holders = explanation.holders.iter().take(HOLDERS_MAX);
        Why {
            workload: self.full_name(explanation.workload),
            waits: true,
            rule: rule.into(),
            text,
            numbers: numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            until: until.map(Timestamp),
            held_by: holders
                .map(|holder| Held {
                    workload: self.full_name(holder.workload),
                    gpus: GpuAmount(holder.gpus),
                })
                .collect(),
            remedy: Some(self.remedy(&explanation.remedy)),
        }
    }

    fn account(&self, account: Account) -> String {
        match account {
            Account::Project(id) => {
                let name = self.engine.projects().get(&id).map_or("?", |project| &project.name);
                format!("project {name}")
            }
            Account::Department(id) => {
                let name = self.engine.departments().get(&id).map_or("?", |department| &department.name);
                format!("department {name}")
            }
        }
    }

    fn reason(
        &self,
        reason: &WaitReason,
        now: Time,
    ) -> (&'static str, String, Vec<(&'static str, String)>, Option<Time>) {
        match reason {
            WaitReason::Never { most, needed } => (
                "never",
                format!(
                    "even with every other workload gone, its nodes have room for {most} of its {needed} workers"
                ),
                vec![("most", most.to_string()), ("needed", needed.to_string())],
                None,
            ),
            WaitReason::Limit { account, limit, used, asked } => (
                "limit",
                format!(
                    "{} may have {limit} GPUs at most; it has {used}, and this asks for {asked}",
                    self.account(*account)
                ),
                numbers(limit, used, asked, "limit"),
                None,
            ),
            WaitReason::NonPreemptibleQuota { account, passed } => {
                let (of, numbers) = quota_numbers(passed);
                let text = format!(
                    "work that cannot be preempted stays within the quota of {}, {} {of}; such work has {}, and this asks for {}",
                    self.account(*account),
                    numbers[0].1,
                    numbers[1].1,
                    numbers[2].1
                );
                ("non-preemptible-quota", text, numbers, None)
            }
            WaitReason::NoBorrowing { account, passed } => {
                let (of, numbers) = quota_numbers(passed);
                let text = format!(
                    "{} does not borrow: its weight is 0; it has {} of its {} {of}, and this asks for {}",
                    self.account(*account),
                    numbers[1].1,
                    numbers[0].1,
                    numbers[2].1
                );
                ("no-borrowing", text, numbers, None)
            }
            WaitReason::NoCapacity { fits, needed, within_quota, within_share, verdict } => {
                let room = match needed {
                    1 => "nothing that is free fits it".to_owned(),
                    needed => format!("{fits} of its {needed} workers fit into what is free"),
                };
                let entitled = match (within_quota, within_share) {
                    (true, _) => "it is within quota",
                    (false, true) => "it is above quota and within its fair share",
                    (false, false) => "it is above quota and above its fair share",
                };
                let numbers = vec![
                    ("fits", fits.to_string()),
                    ("needed", needed.to_string()),
                    ("within_quota", within_quota.to_string()),
                    ("within_share", within_share.to_string()),
                ];
                ("no-capacity", format!("{room}; {entitled}; {}", verdict_text(*verdict)), numbers, None)
            }
            WaitReason::MinimumRun { until } => {
                let text = format!(
                    "what it needs may be taken when minimum run times end, first in {}",
                    until.since(now)
                );
                ("minimum-run", text, Vec::new(), Some(*until))
            }
            WaitReason::Patience { until } => {
                let text = format!(
                    "a fairer share is taken once it has waited, and others have run, long enough: in {}",
                    until.since(now)
                );
                ("patience", text, Vec::new(), Some(*until))
            }
            WaitReason::Leaving { workloads } => {
                let text = format!("its place is decided; {} must leave it first", self.all_names(workloads));
                ("leaving", text, Vec::new(), None)
            }
            WaitReason::Ready => {
                ("ready", "nothing holds it: it starts with the next plan".into(), Vec::new(), None)
            }
        }
    }

    fn remedy(&self, remedy: &Remedy) -> Remedies {
        let (lift, raise, end): (&[Account], &[(Account, Gpus)], &[WorkloadId]) = match remedy {
            Remedy::End(end) => (&[], &[], end),
            Remedy::LiftLimits(lift, end) => (lift, &[], end),
            Remedy::RaiseQuota(raise, end) => (&[], raise, end),
            Remedy::LiftAndRaise(lift, raise, end) => (lift, raise, end),
            Remedy::ChangeRequest => return in_words("ask for less, or for another pool"),
            Remedy::Wait => return in_words("nothing but a moment"),
            Remedy::NotFound => return in_words("no single change was found"),
        };
        let lift_limits: Vec<String> = lift.iter().map(|account| self.account(*account)).collect();
        let raise_quotas: BTreeMap<String, GpuAmount> =
            raise.iter().map(|(account, quota)| (self.account(*account), GpuAmount(*quota))).collect();
        let mut parts = Vec::new();
        if !lift_limits.is_empty() {
            parts.push(format!("lift the limit of {}", lift_limits.join(", ")));
        }
        if !raise_quotas.is_empty() {
            let raised = raise_quotas.iter().map(|(account, quota)| format!("{account} to {quota}"));
            parts.push(format!("raise the quota of {}", raised.collect::<Vec<_>>().join(", ")));
        }
        if !end.is_empty() {
            parts.push(format!("end {}", self.all_names(end)));
        }
        let end = end.iter().map(|id| self.full_name(*id)).collect();
        Remedies { text: parts.join(", and "), end, lift_limits, raise_quotas }
    }

    fn all_names(&self, ids: &[WorkloadId]) -> String {
        let named = ids.iter().take(HOLDERS_MAX).map(|id| self.full_name(*id));
        let mut named: Vec<String> = named.collect();
        if let Some(more @ 1..) = ids.len().checked_sub(HOLDERS_MAX) {
            named.push(format!("{more} more"));
        }
        named.join(", ")
    }
}

fn in_words(text: &str) -> Remedies {
    Remedies { text: text.into(), ..Remedies::default() }
}

fn numbers<T: Display>(quota: &T, used: &T, asked: &T, of: &'static str) -> Vec<(&'static str, String)> {
    vec![(of, quota.to_string()), ("used", used.to_string()), ("asked", asked.to_string())]
}

/// What a quota is set in, then the quota, what is in use and what is asked for.
fn quota_numbers(passed: &PassedQuota) -> (String, Vec<(&'static str, String)>) {
    fn of<T: Display>(passed: &Passed<T>) -> Vec<(&'static str, String)> {
        numbers(&passed.quota, &passed.used, &passed.asked, "quota")
    }
    match passed {
        PassedQuota::Gpus(passed) => ("GPUs".into(), of(passed)),
        PassedQuota::Model(model, passed) => (format!("GPUs of model {model}"), of(passed)),
        PassedQuota::Cpu(passed) => ("CPU cores".into(), of(passed)),
        PassedQuota::Memory(passed) => ("of memory".into(), of(passed)),
    }
}

fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::NotEntitled => "it may take nothing from others".into(),
        Verdict::TooLittle { most, needed } => {
            format!("free and takeable are {most} of the {needed} GPUs it needs")
        }
        Verdict::NoShape { most, needed } => {
            format!("all that may be taken makes room for {most} of its {needed} workers")
        }
        Verdict::Exhausted => "no allowed set of others makes room".into(),
        Verdict::NotFound => {
            "no set of others to make room was found within the search budget; there may be one".into()
        }
    }
}
