//! What is said about groups: the status of a Workload, and why a Pod waits.

use super::{
    Effect, World,
    groups::{Group, GroupKey},
};
use crate::{
    api::{LastEviction, Progress, WorkloadPhase, WorkloadStatus},
    quantity,
    seen::{
        Key, Refusal, Text,
        pod::{Member, PodSeen, Stage},
    },
};
use berth_types::{
    Account, Completed, EvictRule, Outcome, PassedQuota, Phase, Place, Time, Verdict, WaitReason, WorkloadId,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::BTreeSet;

/// What was last said about a group, so that nothing is said twice.
#[derive(Debug, Default)]
pub(crate) struct Said {
    status: Option<Box<WorkloadStatus>>,
    /// Why it waits, as the engine explained it, and in words.
    explained: Option<(WaitReason, Refusal)>,
    /// What was last written on its Pods.
    told_pods: Option<(Refusal, BTreeSet<Text>)>,
    /// For whom it was last stopped, and why that may be.
    evicted: Option<LastEviction>,
    over: Option<WorkloadPhase>,
}

impl Said {
    /// Whether it ended for good, also while that is not written down yet.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn evicted(&mut self, rule: EvictRule, winner: Option<String>, lost: u128) {
        let rule = match rule {
            EvictRule::QuotaReclaim => "quota-reclaim",
            EvictRule::ShareReclaim => "share-reclaim",
            EvictRule::Preemption => "preemption",
            EvictRule::Passing => "passing",
        };
        // Milliseconds of GPUs, as the engine counts.
        let lost_gpu_seconds = i64::try_from(lost / 1_000).unwrap_or(i64::MAX);
        self.evicted = Some(LastEviction { rule: rule.into(), winner, lost_gpu_seconds });
    }
}

impl World {
    /// Says what became of a group, if that is new.
    pub(super) fn say(&mut self, id: WorkloadId) {
        let is_workload = self.groups.get(&id).is_some_and(|group| group.workload.is_some());
        if is_workload {
            self.say_status(id);
        } else {
            self.say_to_pods(id);
        }
        let waits = self.engine.workload(id).is_some_and(|workload| workload.is_queued());
        if waits {
            self.unexplained.insert(id);
            return;
        }
        self.unexplained.remove(&id);
        if let Some(group) = self.groups.get_mut(&id) {
            // When it waits again it is for another reason, or with other numbers.
            group.said.explained = None;
        }
    }

    pub(super) fn say_over(&mut self, id: WorkloadId, outcome: Outcome) {
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.said.over = Some(match outcome {
            Outcome::Succeeded => WorkloadPhase::Succeeded,
            Outcome::TimedOut => WorkloadPhase::TimedOut,
            Outcome::Failed | Outcome::Cancelled => WorkloadPhase::Failed,
        });
    }

    /// Finds words for some of those who wait; the question costs the engine a copy, so it is asked when there is time.
    pub(crate) fn explain_some(&mut self, most: usize) -> Vec<Effect> {
        let ids: Vec<WorkloadId> = self.unexplained.iter().take(most).copied().collect();
        for id in &ids {
            self.unexplained.remove(id);
        }
        self.explain(&ids);
        std::mem::take(&mut self.effects)
    }

    /// Asks the engine why groups wait, and says it where it is another reason than they were told.
    pub(super) fn explain(&mut self, ids: &[WorkloadId]) {
        for (id, reason) in self.engine.wait_reasons(ids, self.now) {
            let words = self.words(&reason);
            let Some(group) = self.groups.get_mut(&id) else { continue };
            self.renewals.found(self.now, id);
            let known = group.said.explained.as_ref();
            if known.is_some_and(|(known, _)| !super::renew::matters(known, &reason)) {
                continue;
            }
            group.said.explained = Some((reason, words));
            let is_workload = group.workload.is_some();
            if is_workload { self.say_status(id) } else { self.say_to_pods(id) }
        }
    }

    pub(crate) fn has_unexplained(&self) -> bool {
        !self.unexplained.is_empty()
    }

    /// Why a group waits, if it does.
    fn reason(&self, id: WorkloadId) -> Option<Refusal> {
        let group = &self.groups[&id];
        match self.engine.workload(id).map(|workload| &workload.phase) {
            None => group.refusal.clone(),
            Some(Phase::Queued { .. }) => group
                .said
                .explained
                .as_ref()
                .map(|(_, words)| words.clone())
                .or_else(|| Some(Refusal::new("Queued", "it waits for its place"))),
            Some(Phase::Held { .. }) => {
                Some(Refusal::new("Held", "its place is decided; others are leaving it"))
            }
            Some(Phase::Running { .. }) if group.workload.is_none() => Some(Refusal::new(
                "Extra",
                "as many of its group run as must start together; it joins them when there is room",
            )),
            Some(Phase::Stopping { .. }) if group.workload.is_none() => {
                Some(Refusal::new("GroupLeaves", "Pods of its group are leaving; they start together"))
            }
            _ => None,
        }
    }

    /// Pods that wait are told why.
    fn say_to_pods(&mut self, id: WorkloadId) {
        let Some(group) = self.groups.get(&id) else { return };
        // Whoever is about to start waits for nothing, and of a large group every look costs.
        if group.starting {
            return;
        }
        let is_queued = self.engine.workload(id).is_some_and(|workload| workload.is_queued());
        let explained = group.said.explained.is_some() || !is_queued;
        let Some(reason) = self.reason(id).filter(|_| explained) else { return };
        let in_run = group.in_run();
        let pods: Vec<_> = group
            .pods
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .filter(|pod| pod.ours && pod.node.is_none() && !pod.leaving && !pod.is_over())
            .filter(|pod| !in_run.contains(&pod.uid))
            .cloned()
            .collect();
        let uids: BTreeSet<Text> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let told = group.said.told_pods.as_ref();
        let is_known = |uid: &Text| told.is_some_and(|(known, uids)| *known == reason && uids.contains(uid));
        for pod in pods.iter().filter(|pod| !is_known(&pod.uid)) {
            self.effects.push(Effect::Explain {
                pod: pod.key.clone(),
                uid: pod.uid.clone(),
                reason: reason.reason,
                message: reason.message.clone(),
            });
        }
        self.groups.get_mut(&id).expect("a group that is looked at").said.told_pods = Some((reason, uids));
    }

    fn say_status(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        let Some(object) = &group.workload else { return };
        let GroupKey::Workload(Key { name: uid, .. }) = &group.key else { return };
        let known = object.status.clone().unwrap_or_default();
        let workload = self.engine.workload(id);
        let phase = match workload.map(|workload| &workload.phase) {
            Some(Phase::Queued { .. }) => WorkloadPhase::Pending,
            Some(Phase::Held { .. }) => WorkloadPhase::Held,
            Some(Phase::Running { .. }) if self.all_run(id) => WorkloadPhase::Running,
            Some(Phase::Running { .. }) => WorkloadPhase::Starting,
            Some(Phase::Stopping { .. }) => WorkloadPhase::Stopping,
            Some(Phase::Finished { .. }) | None => match group.said.over {
                Some(phase) => phase,
                None if known.phase.is_some_and(WorkloadPhase::is_final) => return,
                None if object.spec.suspend => WorkloadPhase::Suspended,
                None => WorkloadPhase::Pending,
            },
        };
        let waits = matches!(phase, WorkloadPhase::Pending | WorkloadPhase::Held);
        let reason = if waits { self.reason(id) } else { None };
        let evicted = group.said.evicted.as_ref().filter(|_| phase == WorkloadPhase::Stopping);
        // How it ended does not change with what becomes of its Pods.
        let said = known.exit_code.filter(|_| known.phase.is_some_and(WorkloadPhase::is_final));
        let exit_code = match phase.is_final() {
            true => said.or_else(|| self.exit_code(group)),
            false => None,
        };
        // Of completions, what failed was tried again until it succeeded.
        let succeeded = phase == WorkloadPhase::Succeeded && object.spec.completions.is_some();
        let exit_code = if succeeded { Some(0) } else { exit_code };
        let ended = exit_code.filter(|_| phase == WorkloadPhase::Failed);
        let ended = ended.map(|code| format!("it exited with code {code}"));
        let mut nodes: Vec<String> = workload
            .into_iter()
            .flat_map(|workload| workload.places())
            .filter_map(|place| self.node_names.get(&place.node))
            .map(ToString::to_string)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let gpus = workload.map(|workload| workload.places().map(Place::gpus).sum());
        let ready =
            workload.map(|workload| workload.places().filter(|place| self.runs(id, place.rank)).count());
        let project = self.owners.project_of(&group.namespace).ok();
        let status = WorkloadStatus {
            phase: Some(phase),
            reason: reason.as_ref().map(|reason| reason.reason.to_owned()),
            message: reason.map(|reason| reason.message).or(evicted.map(ToString::to_string)).or(ended),
            project: project.and_then(|(id, _)| self.owners.project_name(id)).map(ToString::to_string),
            node: node_text(&nodes),
            nodes,
            gpus: workload.and_then(|workload| asked_text(workload, &self.engine)).or(known.gpus),
            gpus_allocated: gpus.map(quantity::gpus_text),
            queued_at: Some(micro(group.submitted)),
            started_at: group.started.map(micro),
            finished_at: phase.is_final().then(|| {
                let said = group.said.status.as_ref().and_then(|said| said.finished_at.clone());
                known.finished_at.or(said).unwrap_or_else(|| micro(self.now))
            }),
            evicted_at: group.evicted.map(micro),
            last_eviction: group.said.evicted.clone().or(known.last_eviction),
            evictions: i64::from(group.evictions),
            runs: i64::from(group.run),
            failures: i64::from(group.failures),
            checkpoint_at: workload
                .and_then(|workload| workload.checkpoint)
                .map(micro)
                .or(known.checkpoint_at),
            retry_at: group.not_before.filter(|_| waits).map(micro),
            workers_ready: ready.map(|ready| ready as i64),
            workers_wanted: workload
                .map(|workload| i64::from(workload.spec.tasks.min()))
                .or(known.workers_wanted),
            observed_generation: object.metadata.generation,
            exit_code,
            completed: (!group.done.is_empty()).then(|| group.done.to_string()),
            urls: known.urls,
            progress: object.spec.completions().map(|all| how_far(&group.done, all)).or(known.progress),
            conditions: known.conditions,
        };
        if group.said.status.as_deref() == Some(&status) || object.status.as_ref() == Some(&status) {
            return;
        }
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let key = Key::new(&group.namespace, name);
        let status = Box::new(status);
        self.effects.push(Effect::Status { workload: key, uid: uid.clone(), status: status.clone() });
        self.groups.get_mut(&id).expect("a group that is looked at").said.status = Some(status);
    }

    /// How the last run of a group ended, as far as its Pods are still there: the first bad code, if there is one, and first of
    /// those that nobody told to go, because their end is why the others had to.
    fn exit_code(&self, group: &Group) -> Option<i32> {
        let run = |pod: &PodSeen| match pod.member {
            Member::Workload { run, .. } => run,
            _ => 0,
        };
        let over = || group.pods.iter().filter_map(|uid| self.pods.get(uid)).filter(|pod| pod.is_over());
        let last = over().map(|pod| run(pod)).max()?;
        let codes =
            || over().filter(|pod| run(pod) == last).filter_map(|pod| Some((pod.leaving, pod.exit_code?)));
        let bad = codes().filter(|(_, code)| *code != 0).min_by_key(|(leaving, _)| *leaving);
        bad.or_else(|| codes().next()).map(|(_, code)| code)
    }

    fn runs(&self, id: WorkloadId, rank: u32) -> bool {
        let Some(rank) = self.groups[&id].ranks.get(&rank) else { return false };
        let pod = rank.pod.as_ref().and_then(|uid| self.pods.get(uid));
        // Between two turns a worker is at work.
        rank.turn > 1
            || rank.next.is_some()
            || pod.is_some_and(|pod| match pod.stage {
                Stage::Running => true,
                Stage::Succeeded | Stage::Failed => rank.index.is_some(),
                Stage::Pending => false,
            })
    }

    /// Whether every worker that must be there runs, and is not just bound to its node.
    pub(crate) fn all_run(&self, id: WorkloadId) -> bool {
        let Some(workload) = self.engine.workload(id) else { return false };
        let mut places = workload.base_places();
        places.all(|place| self.runs(id, place.rank))
    }

    fn account_name(&self, account: Account) -> String {
        match account {
            Account::Project(id) => {
                let project = self.engine.projects().get(&id);
                format!("project {}", project.map_or("?", |project| project.name.as_str()))
            }
            Account::Department(id) => {
                let department = self.engine.departments().get(&id);
                format!("department {}", department.map_or("?", |department| department.name.as_str()))
            }
        }
    }

    /// An explanation in one word and one sentence.
    pub(crate) fn words(&self, reason: &WaitReason) -> Refusal {
        let passed = |passed: &PassedQuota| match passed {
            PassedQuota::Gpus(one) => {
                format!("{} GPUs of {} are in use and {} are asked for", one.used, one.quota, one.asked)
            }
            PassedQuota::Model(model, one) => {
                format!(
                    "{} GPUs of {} of model {model} are in use and {} are asked for",
                    one.used, one.quota, one.asked
                )
            }
            PassedQuota::Cpu(one) => {
                format!("{} of {} CPU are in use and {} are asked for", one.used, one.quota, one.asked)
            }
            PassedQuota::Memory(one) => {
                format!("{} of {} memory are in use and {} are asked for", one.used, one.quota, one.asked)
            }
        };
        match reason {
            WaitReason::Never { most, needed } => Refusal::new(
                "NeverFits",
                format!("not even empty nodes have room: {most} of {needed} Pods would fit"),
            ),
            WaitReason::Limit { account, limit, used, asked } => Refusal::new(
                "OverLimit",
                format!(
                    "{} has a limit of {limit} GPUs: {used} are in use and {asked} are asked for",
                    self.account_name(*account)
                ),
            ),
            WaitReason::NonPreemptibleQuota { account, passed: over } => Refusal::new(
                "OverQuota",
                format!(
                    "what cannot be preempted stays within the quota of {}: {}",
                    self.account_name(*account),
                    passed(over)
                ),
            ),
            WaitReason::NoBorrowing { account, passed: over } => Refusal::new(
                "OverQuota",
                format!("{} does not borrow: {}", self.account_name(*account), passed(over)),
            ),
            WaitReason::NoCapacity { fits, needed, within_quota, verdict, .. } => {
                let share = if *within_quota { "within quota" } else { "beyond quota" };
                let why = match verdict {
                    Verdict::NotEntitled => "and it may take nothing from others".to_owned(),
                    Verdict::TooLittle { most, needed } => {
                        format!("and {most} of {needed} GPUs could be had")
                    }
                    Verdict::NoShape { most, needed } => {
                        format!("and room for {most} of {needed} Pods could be made")
                    }
                    Verdict::Exhausted => "and nobody may be stopped for it".to_owned(),
                    Verdict::NotFound => "and no way to make room was found yet".to_owned(),
                };
                Refusal::new(
                    "NoCapacity",
                    format!("{fits} of {needed} Pods fit into what is free ({share}), {why}"),
                )
            }
            WaitReason::MinimumRun { until } => Refusal::new(
                "MinimumRun",
                format!(
                    "what it needs can be taken when minimum run times end, not before {}",
                    super::settle::stamp(*until)
                ),
            ),
            WaitReason::Patience { until } => Refusal::new(
                "Patience",
                format!(
                    "a fairer share can be taken from others not before {}",
                    super::settle::stamp(*until)
                ),
            ),
            WaitReason::Leaving { workloads } => {
                Refusal::new("Held", format!("its place is decided; {} are leaving it", workloads.len()))
            }
            WaitReason::Ready => Refusal::new("Queued", "nothing holds it"),
        }
    }
}

fn asked_text(workload: &berth_types::Workload, engine: &berth_engine::Engine) -> Option<String> {
    let request = &workload.spec.request;
    let memory = engine.nodes().values().flat_map(|node| &node.devices).map(|device| device.memory).min()?;
    let one = request.gpu.charge_on(memory)?;
    Some(quantity::gpus_text(one.times(u64::from(workload.spec.tasks.min()))))
}

/// How far a workload with completions is.
fn how_far(done: &Completed, all: u32) -> Progress {
    let count = done.count();
    Progress {
        text: Some(format!("{count} of {all}")),
        percent: Some((u64::from(count.min(all)) * 100 / u64::from(all)) as i32),
        step: Some(i64::from(count)),
        steps: Some(i64::from(all)),
        ..Progress::default()
    }
}

fn node_text(nodes: &[String]) -> Option<String> {
    match nodes {
        [] => None,
        [one] => Some(one.clone()),
        [one, other] => Some(format!("{one},{other}")),
        [first, rest @ ..] => Some(format!("{first} and {} more", rest.len())),
    }
}

fn micro(at: Time) -> MicroTime {
    let at = i64::try_from(at.0).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    MicroTime(at.unwrap_or_default())
}
