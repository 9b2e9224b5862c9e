//! Why a workload waits, as data and in words; and what a submission would do.

mod changes;
mod names;
mod words;

use super::{Parked, Platform, Sight, record::EvictionRecord};
use berth_api::{
    AccountNumbers, CoresAmount, Eviction, GpuAmount, Held, HeldByProject, MemoryAmount, Preview, Problem,
    QueueNumbers, Requested, Timestamp, UsableNodes, Why, WorkloadRequest,
};
use berth_engine::Engine;
use berth_types::{
    Account, Action, Bytes, Change, Cpu, Explanation, Time, WaitDetails, WaitReason, WorkloadId, WorkloadSpec,
};
use names::Names;
use std::collections::BTreeMap;

/// Workloads that are named at most in one explanation.
const HOLDERS_MAX: usize = 20;

impl Platform {
    /// Why an unfinished workload waits, or that it does not. Workloads that `sight` does not include are not named.
    pub(crate) fn why(&self, id: WorkloadId, sight: &Sight, now: Time) -> Option<Why> {
        let record = self.records.get(&id)?;
        let full = self.full_name(id);
        let plain = |rule: &str, text: String, waits: bool, until: Option<Time>| Why {
            workload: full.clone(),
            waits,
            rule: rule.into(),
            text,
            until: until.map(Timestamp),
            ..Why::default()
        };
        match record.parked {
            Some((Parked::Suspended { .. }, _)) => {
                let text = format!("Suspended. `berth resume {full}` returns it to the queue.");
                return Some(plain("suspended", text, true, None));
            }
            Some((Parked::BackOff { until }, _)) => {
                let times = if record.failures == 1 { "once" } else { &format!("{} times", record.failures) };
                let cause = record.message.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
                let text = format!(
                    "Failed {times}{cause}. It starts again in {}. `berth logs {full}` shows what it printed.",
                    until.since(now)
                );
                return Some(plain("back-off", text, true, Some(until)));
            }
            Some((Parked::Refused, _)) => {
                let text =
                    record.message.clone().unwrap_or_else(|| "The operator has not queued it yet.".into());
                return Some(plain("refused", text, true, None));
            }
            None => {}
        }
        let Some(explanation) = self.engine.explain(id, now) else {
            let status = self.workload_view(id, false)?.status;
            let text = format!("Not waiting: it is {status}.");
            return Some(plain(&status.to_string().to_lowercase(), text, false, None));
        };
        // An eviction that came before the last start is not why it waits.
        let preempted = record.evictions.front();
        let preempted = preempted.filter(|last| record.last_started.is_none_or(|started| last.at >= started));
        let asked = Asked { engine: &self.engine, request: &record.request, user: &record.user };
        Some(self.explained(&asked, &explanation, preempted, sight, now))
    }

    /// What a submission would do, without doing it.
    pub(crate) fn preview(
        &self,
        request: WorkloadRequest,
        unfit: Option<Problem>,
        user: &str,
        sight: &Sight,
        now: Time,
    ) -> Result<Preview, Problem> {
        let (workload, request, warnings) = self.lower(request, user, now)?;
        if let Some(problem) = unfit {
            return Err(problem);
        }
        let id = workload.id;
        let mut engine = self.engine.clone();
        engine.apply(&Change::Submitted(workload)).map_err(super::engine_problem)?;
        let plan = engine.plan(now);
        let mut preview = Preview { warnings, ..Preview::default() };
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
                _ => {}
            }
        }
        let names = Names { platform: self, engine: &engine, sight };
        let displaced: Vec<WorkloadId> = plan.displaced_by(id).into_iter().collect();
        (preview.evicts, preview.evicts_others) = names.apart(&displaced);
        if !preview.starts
            && let Some(explanation) = engine.explain(id, now)
        {
            let asked = Asked { engine: &engine, request: &request, user };
            let why = self.explained(&asked, &explanation, None, sight, now);
            preview.waits = Some(why.text);
            preview.wakes_at = why.until;
            preview.changes = why.changes;
        }
        Ok(preview)
    }

    fn explained(
        &self,
        asked: &Asked<'_>,
        explanation: &Explanation,
        preempted: Option<&EvictionRecord>,
        sight: &Sight,
        now: Time,
    ) -> Why {
        let id = explanation.workload;
        let names = Names { platform: self, engine: asked.engine, sight };
        let (rule, numbers, until) = words::rule(&explanation.reason);
        let mut why = Why {
            workload: names.full(id),
            waits: true,
            rule: rule.into(),
            numbers: numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            until: until.map(Timestamp),
            ..Why::default()
        };
        let own = asked.engine.workload(id).map(|workload| &workload.spec);
        let details = asked.engine.wait_details(id, &explanation.reason);
        let (Some(spec), Some(details)) = (own, details) else { return why };
        let preempted = preempted.map(|last| Eviction {
            at: last.at.into(),
            rule: last.rule.clone(),
            winner: last.winner.as_deref().map(|winner| names.visible(winner)),
            lost_gpu_secs: last.lost / 1_000,
        });
        let case = words::Case { names: &names, spec, details: &details, reason: &explanation.reason, now };
        why.text = case.text(preempted.as_ref());
        why.remedy = Some(case.remedy(&explanation.remedy));
        why.requested = Some(requested(spec, &details));
        why.usable = Some(UsableNodes {
            nodes: details.nodes,
            gpus: GpuAmount(details.capacity),
            free: GpuAmount(details.free),
        });
        why.accounts = details.accounts.iter().map(|one| account_numbers(&names, one)).collect();
        why.blocked_by = details.blockers.iter().map(|blocker| case.blocked(blocker)).collect();
        // What can never start is in nobody's way, and has no turn.
        if !matches!(explanation.reason, WaitReason::Never { .. }) {
            why.queue = queue(&names, &details);
        }
        (why.held_by, why.held_by_projects) = holders(&names, explanation);
        why.preempted = preempted;
        if !matches!(explanation.reason, WaitReason::Leaving { .. } | WaitReason::Ready) {
            why.changes = self.changes(asked, &details, &names, now);
        }
        why
    }
}

/// What was asked for, and the engine in which it waits.
struct Asked<'a> {
    engine: &'a Engine,
    request: &'a WorkloadRequest,
    user: &'a str,
}

fn requested(spec: &WorkloadSpec, details: &WaitDetails) -> Requested {
    Requested {
        gpus: GpuAmount(details.asked),
        workers: details.tasks,
        cpu: (spec.request.cpu > Cpu::ZERO).then_some(CoresAmount(spec.request.cpu)),
        memory: (spec.request.memory > Bytes::ZERO).then_some(MemoryAmount(spec.request.memory)),
        gpu_models: spec.request.models.iter().map(ToString::to_string).collect(),
    }
}

fn account_numbers(names: &Names<'_>, one: &berth_types::AccountUse) -> AccountNumbers {
    let kind = match one.account {
        Account::Project(_) => "project",
        Account::Department(_) => "department",
    };
    AccountNumbers {
        kind: kind.into(),
        name: names.account_name(one.account),
        quota: one.quota.map(GpuAmount),
        used: GpuAmount(one.used),
        used_non_preemptible: GpuAmount(one.non_preemptible),
        fair_share: GpuAmount(one.fair_share),
        limit: one.limit.map(GpuAmount),
    }
}

/// The position in the queue; none for a workload whose places are decided.
fn queue(names: &Names<'_>, details: &WaitDetails) -> Option<QueueNumbers> {
    let queue = &details.queue;
    let (heads_ahead, projects_ahead) = names.apart(&queue.heads_ahead);
    (queue.position > 0).then(|| QueueNumbers {
        position: queue.position,
        waiting: queue.waiting,
        ahead: queue.ahead.iter().map(|id| names.full(*id)).collect(),
        heads_ahead_count: queue.heads_ahead_count,
        heads_ahead,
        projects_ahead: projects_ahead.into_keys().collect(),
    })
}

/// Who holds what it needs: workloads that may be listed, and what others hold by project.
fn holders(names: &Names<'_>, explanation: &Explanation) -> (Vec<Held>, Vec<HeldByProject>) {
    let mut listed = Vec::new();
    let mut others: BTreeMap<String, HeldByProject> = BTreeMap::new();
    for holder in &explanation.holders {
        let project = names.project_of(holder.workload);
        if names.sight.project(&project) {
            if listed.len() < HOLDERS_MAX {
                let workload = names.full(holder.workload);
                listed.push(Held { workload, gpus: GpuAmount(holder.gpus) });
            }
            continue;
        }
        let held = others.entry(project.clone()).or_insert_with(|| HeldByProject {
            project,
            workloads: 0,
            gpus: GpuAmount::default(),
        });
        held.workloads += 1;
        held.gpus.0 += holder.gpus;
    }
    let mut others: Vec<HeldByProject> = others.into_values().collect();
    others.sort_by(|one, other| other.gpus.0.cmp(&one.gpus.0).then_with(|| one.project.cmp(&other.project)));
    others.truncate(HOLDERS_MAX);
    (listed, others)
}
