//! Words about a wait, rendered from the engine's reasons and numbers.

use super::names::{Names, and};
use berth_api::{Blocked, Eviction, GpuAmount, Remedies};
use berth_types::{
    Account, AccountUse, Blocker, Cpu, Gpus, Kind, Passed, PassedQuota, Remedy, Selector, Time,
    TopologyLevel, Verdict, WaitDetails, WaitReason, WorkloadId, WorkloadSpec,
};
use std::{collections::BTreeMap, fmt::Display};

/// The numbers of a rule, by name.
type Numbers = Vec<(&'static str, String)>;

/// A rule by its short name, its numbers, and the first instant at which time alone may change it.
pub(super) fn rule(reason: &WaitReason) -> (&'static str, Numbers, Option<Time>) {
    match reason {
        WaitReason::Never { most, needed } => {
            ("never", vec![("most", most.to_string()), ("needed", needed.to_string())], None)
        }
        WaitReason::Limit { limit, used, asked, .. } => ("limit", numbers(limit, used, asked, "limit"), None),
        WaitReason::NonPreemptibleQuota { passed, .. } => {
            ("non-preemptible-quota", quota_numbers(passed).1, None)
        }
        WaitReason::NoBorrowing { passed, .. } => ("no-borrowing", quota_numbers(passed).1, None),
        WaitReason::NoCapacity { fits, needed, within_quota, within_share, .. } => {
            let numbers = vec![
                ("fits", fits.to_string()),
                ("needed", needed.to_string()),
                ("within_quota", within_quota.to_string()),
                ("within_share", within_share.to_string()),
            ];
            ("no-capacity", numbers, None)
        }
        WaitReason::MinimumRun { until } => ("minimum-run", Vec::new(), Some(*until)),
        WaitReason::Patience { until } => ("patience", Vec::new(), Some(*until)),
        WaitReason::Leaving { .. } => ("leaving", Vec::new(), None),
        WaitReason::Ready => ("ready", Vec::new(), None),
    }
}

fn numbers<T: Display>(quota: &T, used: &T, asked: &T, of: &'static str) -> Numbers {
    vec![(of, quota.to_string()), ("used", used.to_string()), ("asked", asked.to_string())]
}

/// What a quota is set in, then the quota, what is in use and what is asked for.
fn quota_numbers(passed: &PassedQuota) -> (String, Numbers) {
    fn of<T: Display>(passed: &Passed<T>) -> Numbers {
        numbers(&passed.quota, &passed.used, &passed.asked, "quota")
    }
    match passed {
        PassedQuota::Gpus(passed) => ("GPUs".into(), of(passed)),
        PassedQuota::Model(model, passed) => (format!("GPUs of model {model}"), of(passed)),
        PassedQuota::Cpu(passed) => ("CPU cores".into(), of(passed)),
        PassedQuota::Memory(passed) => ("memory".into(), of(passed)),
    }
}

/// An amount of GPUs with its unit.
fn gpus(amount: Gpus) -> String {
    if amount == Gpus::ONE { "1 GPU".into() } else { format!("{amount} GPUs") }
}

fn cores(amount: Cpu) -> String {
    if amount == Cpu::cores(1) { "1 CPU core".into() } else { format!("{amount} CPU cores") }
}

/// Says that an account uses some of something, and what more would pass it.
fn uses(account: &str, used: &impl Display, of: &str, bound: &impl Display, passes: Option<&str>) -> String {
    let more = passes.map(|asked| format!(", and {asked} more would pass it")).unwrap_or_default();
    format!("{account} uses {used} of its {of} of {bound}{more}")
}

/// One wait, and for whom it is put into words.
pub(super) struct Case<'a> {
    pub(super) names: &'a Names<'a>,
    pub(super) spec: &'a WorkloadSpec,
    pub(super) details: &'a WaitDetails,
    pub(super) reason: &'a WaitReason,
    pub(super) now: Time,
}

impl Case<'_> {
    /// Why it waits, in a few sentences.
    pub(super) fn text(&self, preempted: Option<&Eviction>) -> String {
        let mut sentences = match self.reason {
            WaitReason::Leaving { workloads } if workloads == &[self.details.workload] => {
                return "Starts in its new place when it has left the old one.".into();
            }
            WaitReason::Leaving { workloads } => {
                return format!(
                    "Starts when {} stopped.",
                    has(&self.names.phrase(workloads), workloads.len())
                );
            }
            WaitReason::Ready => return "Starts with the next plan.".into(),
            WaitReason::Never { .. } => {
                let blocked: Vec<String> =
                    self.details.blockers.iter().map(|blocker| self.blocked(blocker).text).collect();
                let blocked =
                    if blocked.is_empty() { "its nodes have no room".into() } else { and(&blocked) };
                vec![format!("Cannot start: {blocked}")]
            }
            _ => vec![self.opening()],
        };
        if self.can_be_split() {
            sentences.push("Use --workers to spread it over nodes".into());
        }
        if !matches!(self.reason, WaitReason::Never { .. }) {
            let told = |blocker: &&Blocker| !self.is_told_by_opening(blocker);
            let blocked = self.details.blockers.iter().filter(told);
            sentences.extend(blocked.map(|blocker| first_upper(&self.blocked(blocker).text)));
        }
        sentences.extend(self.entitlement());
        if let Some(last) = preempted {
            let ago = self.now.since(last.at.0).as_secs();
            let ago = berth_types::Span::secs(ago);
            let winner = last.winner.as_ref().map(|winner| format!(" by {winner}")).unwrap_or_default();
            let moved = if last.rule == "move" { "Moved" } else { "Preempted" };
            sentences.push(format!("{moved} {ago} ago{winner}"));
        }
        sentences.iter().map(|sentence| format!("{sentence}.")).collect::<Vec<_>>().join(" ")
    }

    /// What it waits for, and how much of it is free.
    fn opening(&self) -> String {
        let details = self.details;
        if details.asked == Gpus::ZERO {
            let asked = match self.spec.request.cpu {
                Cpu::ZERO => format!("{} of memory", self.spec.request.memory),
                cpu => cores(cpu),
            };
            return format!("Waiting for {asked}");
        }
        let asked = match details.tasks {
            1 => gpus(details.asked),
            tasks => format!("{} for {tasks} workers", gpus(details.asked)),
        };
        format!("Waiting for {asked}; {} free", details.free)
    }

    /// Whether the opening says all about a cause: fewer GPUs are free than are asked for, or enough are.
    fn is_told_by_opening(&self, blocker: &Blocker) -> bool {
        match blocker {
            Blocker::GpusInUse { asked, largest } => {
                self.details.free < self.details.asked || *largest >= Gpus::whole(u64::from(*asked))
            }
            _ => false,
        }
    }

    /// Whether its GPUs are on the nodes, but on none of them alone.
    fn can_be_split(&self) -> bool {
        let too_large = |blocker: &Blocker| matches!(blocker, Blocker::NodeGpus { .. });
        matches!(self.spec.kind, Kind::Train | Kind::Distributed)
            && self.details.blockers.iter().any(too_large)
            && self.details.asked <= self.details.capacity
    }

    /// What its accounts let it have.
    fn entitlement(&self) -> Option<String> {
        Some(match self.reason {
            WaitReason::Limit { account, limit, used, asked } => {
                let more = (used < limit).then(|| asked.to_string());
                uses(&self.names.account(*account), used, "limit", limit, more.as_deref())
            }
            WaitReason::NonPreemptibleQuota { account, passed } => {
                let (account, (of, numbers)) = (self.names.account(*account), quota_numbers(passed));
                format!(
                    "Non-preemptible work must stay within quota: that of {account} uses {} of {} {of}, and this asks for {}",
                    numbers[1].1, numbers[0].1, numbers[2].1
                )
            }
            WaitReason::NoBorrowing { account, passed } => {
                let (account, (of, numbers)) = (self.names.account(*account), quota_numbers(passed));
                format!(
                    "{account} uses {} of its quota of {} {of}, this asks for {}, and it does not borrow (its weight is 0)",
                    numbers[1].1, numbers[0].1, numbers[2].1
                )
            }
            WaitReason::NoCapacity { within_quota: true, verdict, .. } => {
                format!("{}, so it may reclaim, but {}", self.project()?, reclaims(*verdict))
            }
            WaitReason::NoCapacity { within_share: true, verdict, .. } => {
                let share = self.details.accounts.first()?.fair_share;
                let reclaims = reclaims(*verdict);
                format!(
                    "{}. Its fair share is {share}, so it may reclaim, but {reclaims}",
                    self.above_quota()?
                )
            }
            WaitReason::NoCapacity { .. } => format!("{}, so it cannot reclaim", self.above_quota()?),
            WaitReason::MinimumRun { until } => {
                let until = until.since(self.now);
                format!("{}, so it may reclaim when minimum run times end, first in {until}", self.project()?)
            }
            WaitReason::Patience { until } => {
                let (share, until) = (self.details.accounts.first()?.fair_share, until.since(self.now));
                format!("{}. It may reclaim its fair share of {share} in {until}", self.above_quota()?)
            }
            WaitReason::Never { .. } | WaitReason::Leaving { .. } | WaitReason::Ready => return None,
        })
    }

    /// What its project uses of its quota.
    fn project(&self) -> Option<String> {
        let own = self.details.accounts.first()?;
        Some(uses(&self.names.account(own.account), &own.used, "quota", &own.quota?, None))
    }

    /// The nearest account whose quota it would pass.
    fn above_quota(&self) -> Option<String> {
        let asked = self.details.asked;
        let passes = |one: &&AccountUse| one.quota.is_some_and(|quota| one.used + asked > quota);
        let Some(one) = self.details.accounts.iter().find(passes) else {
            // It is the quota of CPU, of memory or of a model that it would pass.
            return Some(format!("{} is above its quota with it", self.names.account(self.own_account()?)));
        };
        let quota = one.quota?;
        let more = (one.used < quota).then(|| asked.to_string());
        Some(uses(&self.names.account(one.account), &one.used, "quota", &quota, more.as_deref()))
    }

    fn own_account(&self) -> Option<Account> {
        self.details.accounts.first().map(|one| one.account)
    }

    /// A cause, with its short name and its numbers.
    pub(super) fn blocked(&self, blocker: &Blocker) -> Blocked {
        let never = matches!(self.reason, WaitReason::Never { .. });
        let free = |free: Gpus| match (never, free) {
            (true, _) | (_, Gpus::ZERO) => String::new(),
            (false, free) => format!("; {} {} free there", gpus(free), is(free)),
        };
        let mut nodes = Vec::new();
        let mut amounts: Option<(String, String)> = None;
        let mut of = |asked: &dyn Display, most: &dyn Display| {
            amounts = Some((asked.to_string(), most.to_string()));
        };
        let (cause, text) = match blocker {
            Blocker::NoNodes => ("node-pool", format!("node pool {} has no nodes", self.spec.pool)),
            Blocker::Selector { free: amount } => {
                let mut nodes = self.names.engine.nodes().values();
                let exists = nodes.any(|node| self.spec.selector.accepts(&node.labels));
                let with_room = if exists { " with room" } else { "" };
                let labels = labels(&self.spec.selector);
                ("node-selector", format!("no node{with_room} has the label {labels}{}", free(*amount)))
            }
            Blocker::Affinity { free: amount } => {
                let project =
                    self.own_account().map(|account| self.names.account(account)).unwrap_or_default();
                let may_use = format!("{project} may only use nodes with the label {}", self.affinity());
                ("node-affinity", format!("{may_use}, and none has room{}", free(*amount)))
            }
            Blocker::Model { there } => {
                let asked = self.spec.request.models.iter().map(ToString::to_string).collect::<Vec<_>>();
                let there = there.iter().map(ToString::to_string).collect::<Vec<_>>();
                of(&asked.join(", "), &there.join(", "));
                let text = match never {
                    true => {
                        format!("no node has GPU model {}; nodes have {}", asked.join(" or "), and(&there))
                    }
                    false => format!("nodes with GPU model {} have room", and(&there)),
                };
                ("gpu-model", text)
            }
            Blocker::DeviceMemory { asked, largest } => {
                of(asked, largest);
                ("gpu-memory", format!("needs {asked} of memory on one GPU; the largest GPU has {largest}"))
            }
            Blocker::Cordoned { nodes: cordoned, free: amount } => {
                nodes = self.names.nodes(cordoned);
                let verb = if nodes.len() == 1 { "is" } else { "are" };
                ("cordoned", format!("{} {verb} cordoned{}", and(&nodes), free(*amount)))
            }
            Blocker::NodeGpus { asked, largest } => {
                of(asked, largest);
                let asked = gpus(Gpus::whole(u64::from(*asked)));
                let text = match largest {
                    0 => format!("needs {asked}, and no node has a GPU"),
                    largest => format!("needs {asked} on one node; the largest node has {largest}"),
                };
                ("node-size", text)
            }
            Blocker::NodeCpu { asked, largest } => {
                of(asked, largest);
                ("node-cpu", format!("needs {} on one node; the largest node has {largest}", cores(*asked)))
            }
            Blocker::NodeMemory { asked, largest } => {
                of(asked, largest);
                let text = format!("needs {asked} of memory on one node; the largest node has {largest}");
                ("node-memory", text)
            }
            Blocker::PoolSize { tasks, most } => {
                of(tasks, most);
                ("pool-size", format!("its nodes hold {most} of its {tasks} workers, even when empty"))
            }
            Blocker::TooFewFit { tasks, most } => {
                of(tasks, most);
                ("workers", format!("what is free holds {most} of its {tasks} workers"))
            }
            Blocker::Topology { tasks, most } => {
                of(tasks, most);
                let level = match &self.spec.topology.required {
                    Some(TopologyLevel::Label(key)) => format!("one value of the label {key}"),
                    _ => "one node".into(),
                };
                ("topology", format!("needs {tasks} workers inside {level}; at most {most} fit"))
            }
            Blocker::Apart { tasks, most } => {
                of(tasks, most);
                ("apart", format!("needs {tasks} nodes, one for each worker; {most} have room"))
            }
            Blocker::GpusInUse { asked, largest } => {
                of(asked, largest);
                ("gpus", format!("at most {} {} free on one node", gpus(*largest), is(*largest)))
            }
            Blocker::CpuInUse { asked, largest } => {
                of(asked, largest);
                let text = format!(
                    "needs {} beside its GPUs; at most {largest} are free on one node",
                    cores(*asked)
                );
                ("cpu", text)
            }
            Blocker::MemoryInUse { asked, largest } => {
                of(asked, largest);
                let text =
                    format!("needs {asked} of memory beside its GPUs; at most {largest} is free on one node");
                ("memory", text)
            }
            Blocker::Reserved { owners } => {
                ("reservation", format!("free GPUs are reserved for {}", self.names.phrase(owners)))
            }
        };
        let (asked, most) = amounts.unzip();
        Blocked { cause: cause.into(), text, asked, most, nodes }
    }

    fn affinity(&self) -> String {
        let project = self.names.engine.projects().get(&self.spec.project);
        let selector = project.map(|project| match self.spec.kind {
            Kind::Interactive => &project.interactive_nodes,
            _ => &project.train_nodes,
        });
        selector.map(labels).unwrap_or_default()
    }

    /// What others could do.
    pub(super) fn remedy(&self, remedy: &Remedy) -> Remedies {
        let (lift, raise, end): (&[Account], &[(Account, Gpus)], &[WorkloadId]) = match remedy {
            Remedy::End(end) => (&[], &[], end),
            Remedy::LiftLimits(lift, end) => (lift, &[], end),
            Remedy::RaiseQuota(raise, end) => (&[], raise, end),
            Remedy::LiftAndRaise(lift, raise, end) => (lift, raise, end),
            Remedy::ChangeRequest => return in_words(self.help_of_admins()),
            Remedy::Wait => return in_words("nothing; it starts by itself".into()),
            Remedy::NotFound => return in_words("nothing that would start it now was found".into()),
        };
        let full = |account: Account| match account {
            Account::Project(_) => format!("project {}", self.names.account_name(account)),
            Account::Department(_) => self.names.account(account),
        };
        let lift_limits: Vec<String> = lift.iter().map(|account| full(*account)).collect();
        let raise_quotas: BTreeMap<String, GpuAmount> =
            raise.iter().map(|(account, quota)| (full(*account), GpuAmount(*quota))).collect();
        let mut parts = Vec::new();
        if !lift_limits.is_empty() {
            parts.push(format!("lift the limit of {}", lift_limits.join(", ")));
        }
        if !raise_quotas.is_empty() {
            let raised = raise_quotas.iter().map(|(account, quota)| format!("{account} to {quota}"));
            parts.push(format!("raise the quota of {}", raised.collect::<Vec<_>>().join(", ")));
        }
        if !end.is_empty() {
            parts.push(format!("end {}{}", self.names.phrase(end), self.within_quota(end)));
        }
        let (end, end_others) = self.names.apart(end);
        Remedies { text: parts.join(", and "), end, lift_limits, raise_quotas, end_others }
    }

    /// Projects of workloads, other than its own, that are within their quota.
    fn within_quota(&self, ids: &[WorkloadId]) -> String {
        let workloads = ids.iter().filter_map(|id| self.names.engine.workload(*id));
        let projects = workloads.map(|workload| workload.spec.project);
        let mut projects: Vec<_> = projects.filter(|project| *project != self.spec.project).collect();
        projects.sort_unstable();
        projects.dedup();
        let within: Vec<String> = projects
            .into_iter()
            .filter(|id| self.names.is_within_quota(*id, &self.spec.pool))
            .map(|id| self.names.account_name(Account::Project(id)))
            .collect();
        match within.len() {
            0 => String::new(),
            1 => format!(" ({} is within its quota)", within[0]),
            _ => format!(" ({} are within their quotas)", and(&within)),
        }
    }

    /// What an administrator could do where only another request, or other nodes, help.
    fn help_of_admins(&self) -> String {
        let cordoned = self.details.blockers.iter().find_map(|blocker| match blocker {
            Blocker::Cordoned { nodes, .. } => Some(and(&self.names.nodes(nodes))),
            _ => None,
        });
        match cordoned {
            Some(nodes) => format!("uncordon {nodes} (`berth node uncordon NODE`)"),
            None => "nothing; only another request can start".into(),
        }
    }
}

fn in_words(text: String) -> Remedies {
    Remedies { text, ..Remedies::default() }
}

fn is(amount: Gpus) -> &'static str {
    if amount == Gpus::ONE { "is" } else { "are" }
}

fn has(phrase: &str, count: usize) -> String {
    format!("{phrase} {}", if count == 1 { "has" } else { "have" })
}

fn first_upper(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        // A name that begins a sentence stays as it is.
        Some(first)
            if text.starts_with(|letter: char| letter.is_ascii_lowercase()) && is_plain_word(text) =>
        {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text.into(),
    }
}

/// Whether a sentence begins with a word of ours, and not with a name.
fn is_plain_word(text: &str) -> bool {
    let first = text.split(' ').next().unwrap_or_default();
    ["needs", "no", "nodes", "at", "free", "its", "node"].contains(&first)
}

/// Labels as they are typed.
fn labels(selector: &Selector) -> String {
    let of_key = selector.0.iter().map(|(key, values)| {
        let values: Vec<String> = values.iter().map(|value| format!("{key}={value}")).collect();
        values.join(" or ")
    });
    of_key.collect::<Vec<_>>().join(" and ")
}

/// How far what may be reclaimed goes.
fn reclaims(verdict: Verdict) -> String {
    match verdict {
        Verdict::NotEntitled => "not from the work that is there".into(),
        Verdict::TooLittle { most, needed } => {
            format!("only {most} of the {needed} GPUs it needs are free or can be reclaimed")
        }
        Verdict::NoShape { needed: 1, .. } => "no node has room for it even then".into(),
        Verdict::NoShape { most, needed } => {
            format!("that makes room for {most} of its {needed} workers only")
        }
        Verdict::Exhausted => "no allowed set of workloads to stop makes room".into(),
        Verdict::NotFound => "no set of workloads to stop was found within the search limit".into(),
    }
}
