//! Pods: what they ask for, where they are, and with whom they belong.

use super::{
    Key, Refusal, Text,
    beside::Beside,
    maker::MakerRef,
    nodes_for::NodesFor,
    objects::{Container, PodObject, PodSpec, Resources},
    ports::{HostPort, host_ports},
};
use crate::{guard, names, quantity};
use berth_types::{Bytes, Cpu, DeviceShare, Kind, Share, Span, Time};
use k8s_openapi::api::core::v1 as core;
use std::{num::NonZeroU8, sync::Arc};

/// Labels or annotations by which Pods name a group, and how many of it must start together: ours, and those of the older
/// scheduler plugins.
const GROUPS: [(&str, &str); 2] = [
    (names::GROUP_NAME, names::GROUP_SIZE),
    ("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
];

/// Kinds whose Pods are made again whenever one ends.
const ENDLESS: [&str; 3] = ["ReplicaSet", "ReplicationController", "StatefulSet"];

/// How the reasons begin with which a node refuses a Pod that was bound to it.
const TURNED_AWAY: [&str; 6] = [
    "OutOf",
    "UnexpectedAdmissionError",
    "NodeAffinity",
    "NodePorts",
    "NodeShutdown",
    "TopologyAffinityError",
];

/// A Pod, as far as it matters where something runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) uid: Text,
    pub(crate) key: Key,
    pub(crate) version: Text,
    pub(crate) created: Time,
    /// When its node took it.
    pub(crate) started: Option<Time>,
    /// It is ours to place.
    pub(crate) ours: bool,
    pub(crate) node: Option<Text>,
    pub(crate) stage: Stage,
    /// How its containers ended, of one that is over: the first bad code, if there is one.
    pub(crate) exit_code: Option<i32>,
    /// Somebody has asked for its end.
    pub(crate) leaving: bool,
    /// It is not to be placed yet.
    pub(crate) gated: bool,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Bytes,
    pub(crate) gpus: PodGpus,
    pub(crate) nodes_for: Arc<NodesFor>,
    pub(crate) member: Member,
    /// What it wishes of those it starts with.
    pub(crate) beside: Option<Box<Beside>>,
    /// Ports of its node that it has for itself.
    pub(crate) ports: Box<[HostPort]>,
    /// The pool of nodes it names.
    pub(crate) pool: Option<Text>,
    /// The project it names, which must be that of its namespace.
    pub(crate) project: Option<Text>,
    pub(crate) kind: Kind,
    pub(crate) preemptible: bool,
    pub(crate) priority: i32,
    pub(crate) grace: Span,
    pub(crate) max_run: Option<Span>,
    /// The devices of its place, if it says so itself.
    pub(crate) devices: Option<Vec<DeviceShare>>,
    /// When it last saved its state.
    pub(crate) checkpoint: Option<Time>,
    /// Whoever makes another in its stead when it is gone.
    pub(crate) owner: Option<Text>,
    /// Its owner wants it to run for ever.
    pub(crate) endless: bool,
    /// Its node would not have it; what it should do was never tried.
    pub(crate) turned_away: bool,
    /// Volumes it mounts, by the name of their claim.
    pub(crate) volumes: Vec<Text>,
    /// What it wants of its node beyond what every Pod may have.
    pub(crate) beyond: Option<Box<Beyond>>,
    /// What it asks for that cannot be honoured.
    pub(crate) refusal: Option<Refusal>,
}

/// What a Pod wants of its node that a project must allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beyond {
    host_network: Option<Refusal>,
    privileged: Option<Refusal>,
}

impl Beyond {
    /// Why a project does not allow it, if it does not.
    pub(crate) fn refused_by(&self, project: &crate::api::ProjectSpec) -> Option<&Refusal> {
        let network = self.host_network.as_ref().filter(|_| !project.allow_host_network);
        network.or(self.privileged.as_ref().filter(|_| !project.allow_privileged))
    }

    /// Judged once for a project that allows nothing, because most Pods want nothing of the kind.
    fn of(spec: &PodSpec) -> Option<Box<Self>> {
        let wanted = guarded(spec);
        if wanted == core::PodSpec::default() {
            return None;
        }
        let nothing = crate::api::ProjectSpec::default();
        let alone = core::PodSpec { host_network: wanted.host_network, ..core::PodSpec::default() };
        let rest = core::PodSpec { host_network: None, ..wanted };
        let beyond = Self {
            host_network: guard::pod_permitted(&alone, &nothing).err(),
            privileged: guard::pod_permitted(&rest, &nothing).err(),
        };
        (beyond.host_network.is_some() || beyond.privileged.is_some()).then(|| Box::new(beyond))
    }
}

/// Of a Pod, what touches its node.
fn guarded(spec: &PodSpec) -> core::PodSpec {
    let containers = |all: &[Container]| -> Vec<core::Container> {
        let touching = all.iter().filter(|one| one.security_context.is_some());
        let container = |one: &Container| core::Container {
            name: one.name.clone(),
            security_context: one.security_context.clone(),
            ..core::Container::default()
        };
        touching.map(container).collect()
    };
    let on_host = spec.volumes.iter().any(|volume| volume.host_path.is_some());
    let volume =
        || core::Volume { host_path: Some(core::HostPathVolumeSource::default()), ..Default::default() };
    let before = containers(&spec.init_containers);
    core::PodSpec {
        host_network: spec.host_network.then_some(true),
        host_pid: spec.host_pid.then_some(true),
        host_ipc: spec.host_ipc.then_some(true),
        volumes: on_host.then(|| vec![volume()]),
        security_context: spec.security_context.clone(),
        init_containers: (!before.is_empty()).then_some(before),
        containers: containers(&spec.containers),
        ..core::PodSpec::default()
    }
}

/// How far a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// How a Pod asks for devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodGpus {
    None,
    /// So many, by number.
    Counted(NonZeroU8),
    /// By a claim.
    Claimed(Key),
    /// By a claim that is yet to be made for it.
    Unmade,
}

/// With whom a Pod starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Member {
    /// With nobody.
    Alone,
    /// It is a task of a workload of ours.
    Workload { uid: Text, rank: u32, run: u32, turn: u32, index: Option<u32> },
    /// With a number of others that name the same group.
    Group { name: Text, min: u32 },
    /// With those of a native group, which says how many.
    Native { name: Text },
    /// With others of whoever made it, which says how many.
    Made(Box<MakerRef>),
}

impl PodSeen {
    pub(crate) fn of(pod: PodObject) -> Self {
        let PodObject { metadata: meta, spec, status } = pod;
        let annotation = |name: &str| meta.annotations.get(name).or_else(|| meta.labels.get(name));
        let mut refusal = None;
        let mut refuse = |reason: &'static str, message: String| {
            refusal.get_or_insert_with(|| Refusal::new(reason, message));
        };
        let asked = match asked(&spec) {
            Ok(asked) => asked,
            Err(message) => {
                refuse("UnsupportedResource", message);
                Asked::default()
            }
        };
        let member = member(&meta, &spec, &mut refuse);
        let beside = Beside::of(&meta, &spec, &member).unwrap_or_else(|message| {
            refuse("UnsupportedConstraint", message);
            None
        });
        let ports = host_ports(&spec);
        let affinity = spec.affinity.as_ref();
        let gpus = match claims(&spec, &status.resource_claim_statuses, &meta.namespace) {
            Ok(None) => asked.gpus.map_or(PodGpus::None, PodGpus::Counted),
            Ok(Some(_)) if asked.gpus.is_some() => {
                refuse(
                    "UnsupportedClaim",
                    format!("it asks for {} and by a claim; one of them is enough", names::COUNTED_GPU),
                );
                PodGpus::None
            }
            Ok(Some(gpus)) => gpus,
            Err(message) => {
                refuse("UnsupportedClaim", message);
                PodGpus::None
            }
        };
        let kind = match annotation(names::KIND).map(String::as_str) {
            None if meta.labels.contains_key("notebook-name") => Kind::Interactive,
            None | Some("train") => Kind::Train,
            Some("interactive") => Kind::Interactive,
            Some("distributed") => Kind::Distributed,
            Some("inference") => Kind::Inference,
            Some(other) => {
                refuse(
                    "UnknownKind",
                    format!("{} is {other}; it is train, interactive, distributed or inference", names::KIND),
                );
                Kind::Train
            }
        };
        let preemptible = match annotation(names::PREEMPTIBLE).map(String::as_str) {
            Some("true") => true,
            Some("false") => false,
            _ => kind.preemptible(),
        };
        let priority = annotation(names::PRIORITY).and_then(|text| text.parse().ok());
        let terms = affinity
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(|affinity| affinity.required.clone());
        let stage = match status.phase.as_str() {
            "Running" => Stage::Running,
            "Succeeded" => Stage::Succeeded,
            "Failed" => Stage::Failed,
            _ => Stage::Pending,
        };
        let ended = status.container_statuses.iter().filter_map(|one| one.state.terminated.as_ref());
        let codes: Vec<i32> = ended.map(|ended| ended.exit_code).collect();
        let exit_code = codes.iter().find(|code| **code != 0).or(codes.first()).copied();
        let owner = meta.owner_references.iter().find(|owner| owner.controller);
        let volumes = spec.volumes.iter().filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.as_str().into()),
            // Kubernetes makes this claim for the Pod, under this name.
            None => {
                volume.ephemeral.as_ref().map(|_| format!("{}-{}", meta.name, volume.name).as_str().into())
            }
        });
        let volumes: Vec<Text> = volumes.collect();
        let nodes_for = NodesFor::new(&spec.node_selector, terms, &spec.tolerations, asked.disk);
        let nodes_for = nodes_for.with_ports(&ports);
        Self {
            beyond: Beyond::of(&spec),
            member,
            beside,
            ports,
            volumes,
            uid: meta.uid.as_str().into(),
            key: Key::new(&meta.namespace, &meta.name),
            version: meta.resource_version.as_str().into(),
            created: time(meta.creation_timestamp),
            started: status.start_time.map(|at| time(Some(at))),
            owner: owner.map(|owner| owner.uid.as_str().into()),
            endless: owner.is_some_and(|owner| ENDLESS.contains(&owner.kind.as_str())),
            turned_away: TURNED_AWAY.iter().any(|reason| status.reason.starts_with(reason)),
            ours: spec.scheduler_name == names::SCHEDULER,
            node: spec.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
            stage,
            exit_code: exit_code.filter(|_| matches!(stage, Stage::Succeeded | Stage::Failed)),
            leaving: meta.deletion_timestamp.is_some(),
            gated: !spec.scheduling_gates.is_empty(),
            cpu: asked.cpu,
            memory: asked.memory,
            gpus,
            nodes_for: Arc::new(nodes_for),
            pool: annotation(names::NODE_POOL).map(|text| text.as_str().into()),
            project: annotation(names::PROJECT).map(|text| text.as_str().into()),
            kind,
            preemptible,
            priority: priority
                .or(spec.priority.filter(|priority| *priority != 0))
                .unwrap_or_else(|| kind.priority(preemptible)),
            grace: Span::secs(spec.termination_grace_period_seconds.unwrap_or(30)),
            max_run: spec.active_deadline_seconds.map(Span::secs),
            devices: meta.annotations.get(names::DEVICES).and_then(|text| devices(text)),
            checkpoint: annotation(names::CHECKPOINT)
                .and_then(|text| text.parse().ok())
                .map(|at: jiff::Timestamp| time(Some(at))),
            refusal,
        }
    }

    /// Whether it is over, whatever became of it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Succeeded | Stage::Failed)
    }
}

/// Milliseconds since 1970; what is before is then.
pub(crate) fn time(at: Option<jiff::Timestamp>) -> Time {
    Time(at.map_or(0, |at| u64::try_from(at.as_millisecond()).unwrap_or(0)))
}

/// Devices and shares, such as `0=500000,1=500000`.
fn devices(text: &str) -> Option<Vec<DeviceShare>> {
    let one = |part: &str| {
        let (device, share) = part.split_once('=')?;
        Some(DeviceShare {
            device: device.parse().ok()?,
            share: Share::from_millionths(share.parse().ok()?)?,
        })
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

fn member(
    meta: &super::objects::Meta,
    spec: &PodSpec,
    refuse: &mut impl FnMut(&'static str, String),
) -> Member {
    let text = |name: &str| meta.labels.get(name).or_else(|| meta.annotations.get(name));
    let number = |name: &str| text(name).and_then(|text| text.parse::<u32>().ok());
    let owner = meta.owner_references.iter().find(|owner| owner.controller);
    if let Some(owner) = owner.filter(|owner| is_workload(owner) && meta.labels.contains_key(names::WORKLOAD))
    {
        let (rank, run) = (number(names::RANK).unwrap_or(0), number(names::RUN).unwrap_or(0));
        let (turn, index) = (number(names::TURN).unwrap_or(1), number(names::INDEX));
        return Member::Workload { uid: owner.uid.as_str().into(), rank, run, turn, index };
    }
    if let Some(name) = spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_deref()) {
        return Member::Native { name: name.into() };
    }
    for (group, size) in GROUPS {
        let Some(name) = text(group) else { continue };
        match number(size).filter(|size| *size > 0) {
            Some(min) => return Member::Group { name: name.as_str().into(), min },
            None => {
                refuse(
                    "UnsizedGroup",
                    format!("it names a group by {group}; {size} must say how many Pods start together"),
                );
                return Member::Alone;
            }
        }
    }
    let maker = MakerRef::of(meta);
    match text(names::GANG).map(String::as_str) {
        Some("false") => Member::Alone,
        Some("true") if maker.is_none() => {
            refuse(
                "UnsizedGroup",
                format!(
                    "{} is for Pods of a Job; {} and {} say which others start together",
                    names::GANG,
                    names::GROUP_NAME,
                    names::GROUP_SIZE
                ),
            );
            Member::Alone
        }
        asked => maker
            .filter(|maker| maker.is_gang() || asked == Some("true"))
            .map_or(Member::Alone, |maker| Member::Made(Box::new(maker))),
    }
}

/// Kubernetes has a kind of this name too.
fn is_workload(owner: &super::objects::Owner) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == "Workload" && group == Some(names::GROUP)
}

/// What the containers of a Pod ask for together.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    cpu: Cpu,
    memory: Bytes,
    disk: u64,
    gpus: Option<NonZeroU8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    cpu: u64,
    memory: u64,
    disk: u64,
    gpus: u64,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            disk: self.disk.saturating_add(other.disk),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// The same, where nothing is said of the Pod as a whole; what is said of it comes before what containers ask for.
    fn or_as_a_whole(self, said: &Resources) -> Result<Self, String> {
        let whole = amounts(&said.requests)?;
        let said = |name: &str| said.requests.contains_key(name);
        Ok(Self {
            cpu: if said("cpu") { whole.cpu } else { self.cpu },
            memory: if said("memory") { whole.memory } else { self.memory },
            ..self
        })
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            disk: self.disk.max(other.disk),
            gpus: self.gpus.max(other.gpus),
        }
    }
}

/// As Kubernetes counts: containers together with those that run beside them from the start, or one that runs before,
/// whichever is more; or what is said of the Pod as a whole.
fn asked(spec: &PodSpec) -> Result<Asked, String> {
    let mut before = Sum::default();
    let mut beside = Sum::default();
    for container in &spec.init_containers {
        let own = sum(container)?;
        match container.restart_policy.as_deref() {
            Some("Always") => {
                beside = beside.plus(own);
                before = before.max(beside);
            }
            _ => before = before.max(beside.plus(own)),
        }
    }
    let mut together = beside;
    for container in &spec.containers {
        together = together.plus(sum(container)?);
    }
    let overhead = amounts(&spec.overhead)?;
    let sum = together.max(before).or_as_a_whole(&spec.resources)?.plus(overhead);
    let gpus =
        u8::try_from(sum.gpus).map_err(|_| format!("{} of {} on one node", sum.gpus, names::COUNTED_GPU))?;
    Ok(Asked {
        cpu: Cpu(sum.cpu.min(Cpu::MAX.0)),
        memory: Bytes(sum.memory.min(Bytes::MAX.0)),
        disk: sum.disk,
        gpus: NonZeroU8::new(gpus),
    })
}

/// Which GPUs Pods of a template ask for, as one text for equal ones; empty when none.
pub(super) fn gpus_asked(spec: &PodSpec) -> String {
    let claims: Vec<&str> =
        spec.resource_claims.iter().filter_map(|one| one.resource_claim_template_name.as_deref()).collect();
    let counted = asked(spec).ok().and_then(|asked| asked.gpus).map(|gpus| gpus.to_string());
    counted.unwrap_or_else(|| claims.join("+"))
}

fn sum(container: &Container) -> Result<Sum, String> {
    let mut sum = amounts(&container.resources.requests)?;
    // Kubernetes copies limits to requests when a Pod is made, so this is for what nobody copied.
    if let Some(limit) = container.resources.limits.get(names::COUNTED_GPU) {
        sum.gpus = sum.gpus.max(quantity::count(limit).map_err(|error| error.to_string())?);
    }
    Ok(sum)
}

fn amounts(amounts: &super::objects::Texts) -> Result<Sum, String> {
    let mut sum = Sum::default();
    for (name, amount) in amounts {
        let wrong = |error: quantity::QuantityError| format!("{name}: {error}");
        match name.as_str() {
            "cpu" => sum.cpu = quantity::cpu(amount).map_err(wrong)?.0,
            "memory" => sum.memory = quantity::bytes(amount).map_err(wrong)?.0,
            "ephemeral-storage" => sum.disk = quantity::bytes(amount).map_err(wrong)?.0,
            names::COUNTED_GPU => sum.gpus = quantity::count(amount).map_err(wrong)?,
            _ if quantity::gpus(amount).is_ok_and(|amount| amount.is_zero()) => {}
            _ => return Err(format!("Berth does not know how to share {name}")),
        }
    }
    Ok(sum)
}

/// The one claim by which a Pod asks for devices, if it does.
fn claims(
    spec: &PodSpec,
    made: &[super::objects::PodClaimStatus],
    namespace: &str,
) -> Result<Option<PodGpus>, String> {
    let claim = match spec.resource_claims.as_slice() {
        [] => return Ok(None),
        [claim] => claim,
        _ => return Err("it has several claims; Berth allocates one for each Pod".into()),
    };
    let made = || {
        made.iter().find(|made| made.name == claim.name).and_then(|made| made.resource_claim_name.as_deref())
    };
    let name = match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
        (Some(name), _) => Some(name.as_str()),
        _ => made(),
    };
    Ok(Some(name.map_or(PodGpus::Unmade, |name| PodGpus::Claimed(Key::new(namespace, name)))))
}
