//! From resources to the nouns of the engine. What the API server could not judge alone is refused here, with words for
//! whoever wrote it.

use crate::{
    api,
    guard::{self, Template},
    quantity::{self, QuantityError},
};
use berth_types::{
    Bytes, Cpu, Department, DepartmentId, Entitlement, GpuRequest, Gpus, Kind, Name, Node, Project,
    ProjectId, Request, Selector, Share, Span, Spread, Tasks, Time, Topology, TopologyLevel, WorkloadSpec,
    default_pool,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{self, Timestamp},
};
use kube::ResourceExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::{NonZeroU8, NonZeroU64},
};

/// Failed runs that are started again unless the workload says otherwise; interactive work has none.
pub const BACKOFF_LIMIT: u32 = 6;
/// Time between notice and the end unless the workload says otherwise.
pub const GRACE: Span = Span::secs(30);

/// Why something cannot be taken as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs, in one word.
    pub reason: &'static str,
    /// For people: what is wrong, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal for this reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// An amount that cannot be read.
    fn amount(field: &str) -> impl Fn(QuantityError) -> Self + '_ {
        move |error| Self::new("InvalidAmount", format!("{field}: {error}"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// A department. `find` knows the ids of departments by name.
pub fn department(
    department: &api::Department,
    id: DepartmentId,
    find: impl Fn(&str) -> Option<DepartmentId>,
) -> Result<Department, Refusal> {
    let spec = &department.spec;
    Ok(Department {
        id,
        name: department.name_any(),
        parent: known_department(spec.parent.as_deref(), find)?,
        entitlements: entitlements(&spec.entitlement, &spec.pools)?,
    })
}

/// A project. `find` knows the ids of departments by name.
pub fn project(
    project: &api::Project,
    id: ProjectId,
    find: impl Fn(&str) -> Option<DepartmentId>,
) -> Result<Project, Refusal> {
    let spec = &project.spec;
    let limit = |field: &str, text: &Option<String>| {
        let span = text.as_deref().map(quantity::span).transpose().map_err(Refusal::amount(field))?;
        Ok(span.filter(|span| !span.is_zero()))
    };
    Ok(Project {
        id,
        name: project.name_any(),
        department: known_department(spec.department.as_deref(), find)?,
        entitlements: entitlements(&spec.entitlement, &spec.pools)?,
        train_nodes: selector(&spec.train_nodes),
        interactive_nodes: selector(&spec.interactive_nodes),
        interactive_time_limit: limit("interactiveTimeLimit", &spec.interactive_time_limit)?,
        time_limit: limit("timeLimit", &spec.time_limit)?,
        idle_limit: limit("idleLimit", &spec.idle_limit)?,
        min_run: limit("minRunTime", &spec.min_run_time)?.unwrap_or(Span::ZERO),
        allow_host_network: spec.allow_host_network,
        allow_privileged: spec.allow_privileged,
    })
}

/// What the engine places of a workload. Whether its project allows it is for [`guard::permitted`].
pub fn workload_spec(
    workload: &api::Workload,
    project: ProjectId,
    user: &str,
) -> Result<WorkloadSpec, Refusal> {
    let spec = &workload.spec;
    let template = guard::template(workload)?;
    let kind = match (spec.kind, spec.workers.unwrap_or(1)) {
        (api::WorkloadKind::Train, 2..) | (api::WorkloadKind::Distributed, _) => Kind::Distributed,
        (api::WorkloadKind::Train, _) => Kind::Train,
        (api::WorkloadKind::Interactive, _) => Kind::Interactive,
        (api::WorkloadKind::Inference, _) => Kind::Inference,
    };
    let preemptible = spec.preemptible.unwrap_or_else(|| kind.preemptible());
    let priority = match &spec.priority {
        None => kind.priority(preemptible),
        Some(priority) => priority_number(&priority.text())?,
    };
    let max_run = spec.max_run_time.as_deref().map(quantity::span).transpose();
    let max_run = max_run.map_err(Refusal::amount("maxRunTime"))?;
    if max_run == Some(Span::ZERO) {
        return Err(Refusal::new("InvalidAmount", "maxRunTime: 0 ends it before it begins; leave it out"));
    }
    let level = |label: &String| match label.as_str() {
        "node" | "kubernetes.io/hostname" => TopologyLevel::Node,
        label => TopologyLevel::Label(label.into()),
    };
    let topology = spec.topology.clone().unwrap_or_default();
    let labels = spec.node_selector.iter();
    let labels = labels.map(|(key, value)| (key.as_str().into(), BTreeSet::from([value.as_str().into()])));
    Ok(WorkloadSpec {
        name: workload.name_any(),
        project,
        user: user.into(),
        kind,
        request: request(spec, template.as_ref())?,
        tasks: tasks(spec)?,
        pool: spec.node_pool.as_deref().map_or_else(default_pool, Name::from),
        selector: Selector(labels.collect()),
        topology: Topology {
            required: topology.required.as_ref().map(level),
            preferred: topology.preferred.as_ref().map(level),
        },
        spread: Spread::asked(spec.spread, spec.apart),
        priority,
        preemptible,
        max_run,
        retry_limit: backoff_limit(spec),
        grace: grace(spec)?,
    })
}

/// How often a failed run of a workload is started again.
pub fn backoff_limit(spec: &api::WorkloadSpec) -> u32 {
    let default = if spec.kind == api::WorkloadKind::Interactive { 0 } else { BACKOFF_LIMIT };
    spec.backoff_limit.map_or(default, |limit| u32::try_from(limit).unwrap_or(0))
}

/// Time between notice and the end when a workload is stopped.
pub fn grace(spec: &api::WorkloadSpec) -> Result<Span, Refusal> {
    spec.grace_period.as_deref().map_or(Ok(GRACE), quantity::span).map_err(Refusal::amount("gracePeriod"))
}

/// The pool of a node: the first by name whose labels it has.
pub fn pool_of<'a>(
    pools: impl IntoIterator<Item = &'a api::NodePool>,
    label: impl Fn(&str) -> Option<&'a str>,
) -> Name {
    let mine = pools.into_iter().filter(|pool| {
        // A pool without labels would swallow every node; the default pool has those that no other has.
        !pool.spec.node_selector.match_labels.is_empty() && pool.accepts(&label)
    });
    mine.map(kube::ResourceExt::name_any).min().map_or_else(default_pool, Name::from)
}

/// A priority by number or name.
pub fn priority_number(text: &str) -> Result<i32, Refusal> {
    const NAMES: [(&str, i32); 7] = [
        ("very-low", 10),
        ("low", 25),
        ("medium", 50),
        ("medium-high", 75),
        ("high", 100),
        ("very-high", 125),
        ("critical", 200),
    ];
    let known = NAMES.into_iter().find(|(name, _)| *name == text).map(|(_, number)| number);
    known.or_else(|| text.parse().ok()).ok_or_else(|| {
        let all = NAMES.map(|(name, _)| name).join(", ");
        Refusal::new("InvalidPriority", format!("priority: write a number, or one of {all}"))
    })
}

/// A point in time, in milliseconds since 1970.
pub fn time(time: &MicroTime) -> Time {
    Time(u64::try_from(time.0.as_millisecond()).unwrap_or(0))
}

/// A point in time as Kubernetes writes it.
pub fn micro_time(time: Time) -> MicroTime {
    let millis = i64::try_from(time.0).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    MicroTime(millis.unwrap_or(jiff::Timestamp::MAX))
}

fn known_department(
    name: Option<&str>,
    find: impl Fn(&str) -> Option<DepartmentId>,
) -> Result<Option<DepartmentId>, Refusal> {
    let Some(name) = name else { return Ok(None) };
    find(name).map(Some).ok_or_else(|| {
        let text = format!("there is no department {name}: `kubectl get departments` shows all");
        Refusal::new("UnknownDepartment", text)
    })
}

fn entitlements(
    default: &api::Entitlement,
    pools: &BTreeMap<String, api::Entitlement>,
) -> Result<BTreeMap<Name, Entitlement>, Refusal> {
    let others = pools.iter().map(|(pool, entitled)| (Name::from(pool.as_str()), entitled));
    let all = [(default_pool(), default)].into_iter().chain(others);
    all.filter(|(_, entitled)| **entitled != api::Entitlement::default())
        .map(|(pool, entitled)| Ok((pool, entitlement(entitled)?)))
        .collect()
}

fn entitlement(written: &api::Entitlement) -> Result<Entitlement, Refusal> {
    let gpus = |field: &str, amount: &Option<api::Amount>| {
        amount.as_ref().map(api::Amount::gpus).transpose().map_err(Refusal::amount(field))
    };
    let models = written.model_quotas.iter().map(|(model, amount)| {
        Ok((Name::from(model.as_str()), amount.gpus().map_err(Refusal::amount("modelQuotas"))?))
    });
    Ok(Entitlement {
        quota: gpus("quota", &written.quota)?,
        model_quotas: models.collect::<Result<_, Refusal>>()?,
        cpu_quota: written
            .cpu_quota
            .as_ref()
            .map(api::Amount::cpu)
            .transpose()
            .map_err(Refusal::amount("cpuQuota"))?,
        memory_quota: written
            .memory_quota
            .as_ref()
            .map(api::Amount::bytes)
            .transpose()
            .map_err(Refusal::amount("memoryQuota"))?,
        limit: gpus("limit", &written.limit)?,
        weight: gpus("weight", &written.weight)?,
        rank: written.rank.unwrap_or(0),
    })
}

fn selector(labels: &BTreeMap<String, Vec<String>>) -> Selector {
    let values = |values: &Vec<String>| values.iter().map(|value| Name::from(value.as_str())).collect();
    Selector(labels.iter().map(|(key, accepted)| (key.as_str().into(), values(accepted))).collect())
}

fn tasks(spec: &api::WorkloadSpec) -> Result<Tasks, Refusal> {
    let at_once = |completions: i32| spec.parallelism.unwrap_or(1).min(completions);
    let workers = spec.completions.map(at_once).or(spec.workers).unwrap_or(1);
    let min = spec.min_workers.unwrap_or(workers);
    let tasks = u32::try_from(min).ok().zip(u32::try_from(workers).ok());
    tasks.and_then(|(min, workers)| Tasks::new(min, workers)).ok_or_else(|| {
        let text = format!(
            "{min} of {workers} workers cannot start together: workers is between 1 and {}, minWorkers between 1 and workers",
            Tasks::MAX
        );
        Refusal::new("InvalidWorkers", text)
    })
}

/// What each worker asks for, with the sidecars of its template.
fn request(spec: &api::WorkloadSpec, template: Option<&Template>) -> Result<Request, Refusal> {
    let cpu = spec.cpu.as_ref().map(api::Amount::cpu).transpose().map_err(Refusal::amount("cpu"))?;
    let memory =
        spec.memory.as_ref().map(api::Amount::bytes).transpose().map_err(Refusal::amount("memory"))?;
    let (cpu, memory) = match template {
        None => (cpu.unwrap_or(Cpu::ZERO), memory.unwrap_or(Bytes::ZERO)),
        Some(template) => template.requests(cpu, memory)?,
    };
    let gpu = gpu_request(spec)?;
    if gpu == GpuRequest::None && !spec.gpu_models.is_empty() {
        return Err(Refusal::new("InvalidGpus", "gpuModels names models, but no GPU is asked for"));
    }
    Ok(Request {
        gpu,
        models: spec.gpu_models.iter().map(|model| model.as_str().into()).collect(),
        cpu,
        memory,
    })
}

/// The GPUs that each worker asks for.
pub fn gpu_request(spec: &api::WorkloadSpec) -> Result<GpuRequest, Refusal> {
    let refused = |text: String| Err(Refusal::new("InvalidGpus", text));
    let devices = u8::try_from(spec.gpu_devices.unwrap_or(1)).ok().and_then(NonZeroU8::new);
    let Some(devices) = devices.filter(|devices| usize::from(devices.get()) <= Node::DEVICES_MAX) else {
        return refused(format!("gpuDevices is between 1 and {}", Node::DEVICES_MAX));
    };
    let gpus = spec.gpus.as_ref().map(api::Amount::gpus).transpose().map_err(Refusal::amount("gpus"))?;
    let memory = spec.gpu_memory.as_ref().map(api::Amount::bytes).transpose();
    match (gpus.unwrap_or(Gpus::ZERO), memory.map_err(Refusal::amount("gpuMemory"))?) {
        (Gpus::ZERO, Some(memory)) if gpus.is_none() => match NonZeroU64::new(memory.0) {
            Some(bytes) => Ok(GpuRequest::Memory { bytes, devices }),
            None => refused("gpuMemory: 0 bytes hold nothing; leave it out".into()),
        },
        (_, Some(_)) => refused("ask for gpus or for gpuMemory, not for both".into()),
        (Gpus::ZERO, None) if spec.gpu_devices.is_some() => {
            refused("gpuDevices: say how much of each device with gpus or gpuMemory".into())
        }
        (Gpus::ZERO, None) => Ok(GpuRequest::None),
        (gpus, None) if gpus < Gpus::ONE => {
            let share = u32::try_from(gpus.0).ok().and_then(Share::from_millionths);
            let share = share.expect("is above nothing and below one");
            Ok(GpuRequest::Fraction { share, devices })
        }
        (gpus, None) if !gpus.0.is_multiple_of(Gpus::SCALE) => refused(format!(
            "{gpus} GPUs are neither whole GPUs nor a fraction of one: ask for 2, or take \"0.5\" of each of several with gpuDevices"
        )),
        (_, None) if spec.gpu_devices.is_some() => {
            refused("gpuDevices is for fractions and for gpuMemory".into())
        }
        (gpus, None) => {
            let count = u8::try_from(gpus.0 / Gpus::SCALE).ok().and_then(NonZeroU8::new);
            match count.filter(|count| usize::from(count.get()) <= Node::DEVICES_MAX) {
                Some(count) => Ok(GpuRequest::Whole(count)),
                None => refused(format!(
                    "one worker cannot have {gpus} GPUs; no node has more than {}: spread the work over several workers",
                    Node::DEVICES_MAX
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests;
