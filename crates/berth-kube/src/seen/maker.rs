//! Makers of Pods: kinds of objects of which it is known which of their Pods start together, so that nobody has to say it
//! again on each Pod.
//!
//! ```text
//! Pod --labels, owner--> MakerRef --read once--> MakerSeen --> parts, each with a size
//! ```

use super::{
    Key, Refusal, Text,
    objects::{Meta, Owner, PodSpec},
    pod,
};
use crate::names;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The part that all Pods of a maker are in when nothing sets some of them apart.
const WHOLE: &str = "all";

/// A kind whose Pods start together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MakerKind {
    /// Only where its Pods ask for it: most Jobs are many Pods that need not know each other.
    Job,
    JobSet,
    LeaderWorkerSet,
    PyTorchJob,
    TfJob,
    XgBoostJob,
    PaddleJob,
    JaxJob,
    MpiJob,
    /// The same kind of the operator that knows nothing else.
    MpiJobAlone,
    RayCluster,
}

/// Every kind with its group, version and resource.
const KINDS: [(MakerKind, &str, &str, &str, &str); 11] = [
    (MakerKind::Job, "batch", "v1", "jobs", "Job"),
    (MakerKind::JobSet, "jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    (MakerKind::LeaderWorkerSet, "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
    (MakerKind::PyTorchJob, "kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    (MakerKind::TfJob, "kubeflow.org", "v1", "tfjobs", "TFJob"),
    (MakerKind::XgBoostJob, "kubeflow.org", "v1", "xgboostjobs", "XGBoostJob"),
    (MakerKind::PaddleJob, "kubeflow.org", "v1", "paddlejobs", "PaddleJob"),
    (MakerKind::JaxJob, "kubeflow.org", "v1", "jaxjobs", "JAXJob"),
    (MakerKind::MpiJob, "kubeflow.org", "v1", "mpijobs", "MPIJob"),
    (MakerKind::MpiJobAlone, "kubeflow.org", "v2beta1", "mpijobs", "MPIJob"),
    (MakerKind::RayCluster, "ray.io", "v1", "rayclusters", "RayCluster"),
];

/// Labels of the kinds' own controllers.
mod label {
    pub(super) const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
    pub(super) const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    pub(super) const LEADER_SET: &str = "leaderworkerset.sigs.k8s.io/name";
    pub(super) const LEADER_GROUP: &str = "leaderworkerset.sigs.k8s.io/group-index";
    pub(super) const LEADER_WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    pub(super) const LEADER_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
    pub(super) const TRAINING_JOB: &str = "training.kubeflow.org/job-name";
    pub(super) const TRAINING_OPERATOR: &str = "training.kubeflow.org/operator-name";
    pub(super) const TRAINING_ROLE: &str = "training.kubeflow.org/replica-type";
    pub(super) const TRAINING_ROLE_ALONE: &str = "training.kubeflow.org/job-role";
    pub(super) const RAY_GROUP: &str = "ray.io/group";
}

const LEADER: &str = "leader";
const WORKER: &str = "worker";
/// The role of the one Pod of a Ray cluster that leads it.
const RAY_HEAD: &str = "headgroup";

/// Where a maker is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MakerKey {
    pub(crate) kind: MakerKind,
    pub(crate) key: Key,
}

impl MakerKey {
    fn facts(&self) -> (&'static str, &'static str, &'static str, &'static str) {
        let known = KINDS.into_iter().find(|(kind, ..)| *kind == self.kind);
        let (_, group, version, resource, name) = known.expect("every kind is in the table");
        (group, version, resource, name)
    }

    /// Where it is read.
    pub(crate) fn path(&self) -> String {
        let (group, version, resource, _) = self.facts();
        let Key { namespace, name } = &self.key;
        format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}")
    }

    /// Its resource, as people ask for it.
    pub(crate) fn resource(&self) -> String {
        let (group, _, resource, _) = self.facts();
        format!("{resource}.{group}")
    }
}

impl fmt::Display for MakerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (.., kind) = self.facts();
        write!(f, "{kind} {}", self.key.name)
    }
}

/// How a Pod says who made it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MakerRef {
    pub(crate) maker: MakerKey,
    /// Which of several equal sets of its Pods; empty when it makes one.
    pub(crate) instance: Text,
    pub(crate) role: Text,
    /// How many start together, where the Pod says that itself.
    pub(crate) size: Option<u32>,
    /// The part of the maker's Pods it starts with; none until that is known.
    pub(crate) part: Option<Text>,
}

impl MakerRef {
    /// Who made a Pod, if it is of a kind that is known.
    pub(crate) fn of(meta: &Meta) -> Option<Self> {
        let label = |name: &str| meta.labels.get(name).map(String::as_str);
        let owner = meta.owner_references.iter().find(|owner| owner.controller);
        let made = |kind, name: &str, instance: &str, role: &str| {
            let maker = MakerKey { kind, key: Key::new(&meta.namespace, name) };
            let role = role.to_ascii_lowercase().as_str().into();
            Some(Self { maker, instance: instance.into(), role, size: None, part: None })
        };
        if let Some(name) = label(label::JOB_SET) {
            return made(MakerKind::JobSet, name, "", label(label::REPLICATED_JOB)?);
        }
        if let Some(name) = label(label::LEADER_SET) {
            let role = if label(label::LEADER_WORKER) == Some("0") { LEADER } else { WORKER };
            let size = meta.annotations.get(label::LEADER_SIZE).and_then(|size| size.parse().ok());
            let set = made(MakerKind::LeaderWorkerSet, name, label(label::LEADER_GROUP)?, role)?;
            return Some(Self { size, ..set });
        }
        let role = label(label::TRAINING_ROLE).or(label(label::TRAINING_ROLE_ALONE));
        match owner.and_then(kind_of) {
            Some(MakerKind::Job) if label(label::TRAINING_OPERATOR) == Some("mpi-operator") => {
                made(MakerKind::MpiJobAlone, label(label::TRAINING_JOB)?, "", role?)
            }
            Some(MakerKind::Job) => made(MakerKind::Job, &owner?.name, "", WORKER),
            Some(MakerKind::RayCluster) => {
                made(MakerKind::RayCluster, &owner?.name, "", label(label::RAY_GROUP)?)
            }
            Some(MakerKind::JobSet | MakerKind::LeaderWorkerSet) | None => None,
            Some(kind) => made(kind, &owner?.name, "", role?),
        }
    }

    /// Whether its Pods start together without being asked to.
    pub(crate) fn is_gang(&self) -> bool {
        self.maker.kind != MakerKind::Job
    }
}

fn kind_of(owner: &Owner) -> Option<MakerKind> {
    let known = KINDS.into_iter().find(|(_, group, version, _, kind)| {
        let group_version = owner.api_version.split_once('/');
        group_version == Some((*group, *version)) && owner.kind == *kind
    });
    known.map(|(kind, ..)| kind)
}

/// What was read of a maker: which of its Pods start together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MakerSeen {
    uid: Text,
    generation: i64,
    /// The part that each role is in.
    parts: BTreeMap<Text, Text>,
    /// How many of a part start together.
    sizes: BTreeMap<Text, u32>,
}

/// A role, such as the master of a training job.
struct Role {
    name: String,
    /// So many start together.
    min: u32,
    /// Which GPUs each of its Pods asks for; empty when none.
    gpus: String,
    /// Roles of one stage are there at the same time.
    stage: usize,
}

impl MakerSeen {
    pub(crate) fn of(kind: MakerKind, object: MakerObject) -> Self {
        let MakerObject { metadata, spec } = object;
        let mut roles = spec.roles(kind);
        roles.iter_mut().for_each(|role| role.name.make_ascii_lowercase());
        // A Ray cluster begins to work with those that are there, so those that ask for different GPUs need not start together.
        let is_loose = kind == MakerKind::RayCluster;
        let stages: BTreeSet<usize> = roles.iter().map(|role| role.stage).collect();
        let gpus: BTreeSet<&str> =
            roles.iter().map(|role| role.gpus.as_str()).filter(|gpus| !gpus.is_empty()).collect();
        let (mut parts, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        for role in &roles {
            // The engine's gangs are of equal tasks. Whoever asks for no GPU holds none while it waits, so it starts apart.
            let asks = match role.gpus.as_str() {
                "" if gpus.is_empty() => WHOLE,
                "" => "no-gpus",
                gpus if is_loose => gpus,
                _ => WHOLE,
            };
            let part: Text = match stages.len() {
                0 | 1 => asks.into(),
                _ => format!("{}-{asks}", role.stage).as_str().into(),
            };
            *sizes.entry(part.clone()).or_insert(0) += role.min;
            parts.insert(role.name.as_str().into(), part);
        }
        if let Some(min) = spec.run_policy.scheduling_policy.min_available.filter(|min| *min > 0) {
            sizes.values_mut().for_each(|size| *size = min.min(*size));
        }
        Self { uid: metadata.uid.as_str().into(), generation: metadata.generation, parts, sizes }
    }

    /// The part that a role is in. A role the maker does not know is one that starts alone.
    pub(crate) fn part_of(&self, role: &str) -> Option<&Text> {
        self.parts.get(role)
    }

    /// How many of a part start together.
    pub(crate) fn size_of(&self, part: &str) -> Option<u32> {
        self.sizes.get(part).copied()
    }
}

/// The part that all Pods of a maker are in.
pub(crate) fn whole() -> Text {
    WHOLE.into()
}

/// Why a maker could not be read: what is missing, and what to do.
pub(crate) fn unread(maker: &MakerKey, why: Unread) -> Refusal {
    let instead = format!(
        "or name a group on its Pods with the label {} and the annotation {}",
        names::GROUP_NAME,
        names::GROUP_SIZE
    );
    match why {
        Unread::Yet => Refusal::new(
            "OwnerUnread",
            format!("{maker} is being read: it says how many of its Pods start together"),
        ),
        Unread::Missing => Refusal::new(
            "OwnerMissing",
            format!("there is no {maker}, which would say how many of its Pods start together"),
        ),
        Unread::NotServed => Refusal::new(
            "OwnerNotServed",
            format!(
                "{maker} says how many of its Pods start together, and the cluster does not serve {}: install its definition, {instead}",
                maker.resource()
            ),
        ),
        Unread::Forbidden => Refusal::new(
            "OwnerForbidden",
            format!(
                "{maker} says how many of its Pods start together, and Berth may not read {}: apply Berth's roles anew, {instead}",
                maker.resource()
            ),
        ),
        Unread::Failed(error) => Refusal::new(
            "OwnerUnread",
            format!("{maker} says how many of its Pods start together, and could not be read: {error}"),
        ),
    }
}

/// Why a maker is not known.
#[derive(Debug)]
pub(crate) enum Unread {
    Yet,
    Missing,
    NotServed,
    Forbidden,
    Failed(String),
}

/// A maker as it is read, of whatever kind: fields of different kinds have different names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MakerObject {
    metadata: MakerMeta,
    spec: MakerSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MakerMeta {
    uid: String,
    generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MakerSpec {
    // Jobs.
    parallelism: Option<u32>,
    completions: Option<u32>,
    // Sets of Jobs.
    replicated_jobs: Vec<ReplicatedJob>,
    /// A text for leaders with their workers, an object for sets of Jobs.
    startup_policy: serde_json::Value,
    // Leaders with their workers.
    leader_worker_template: LeaderWorkers,
    // Training jobs.
    #[serde(
        rename = "pytorchReplicaSpecs",
        alias = "tfReplicaSpecs",
        alias = "xgbReplicaSpecs",
        alias = "paddleReplicaSpecs",
        alias = "jaxReplicaSpecs",
        alias = "mpiReplicaSpecs"
    )]
    replica_specs: BTreeMap<String, Replicas>,
    run_policy: RunPolicy,
    elastic_policy: ElasticPolicy,
    launcher_creation_policy: String,
    wait_for_workers: bool,
    // Ray.
    head_group_spec: Replicas,
    worker_group_specs: Vec<RayGroup>,
    enable_in_tree_autoscaling: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReplicatedJob {
    name: String,
    replicas: Option<u32>,
    template: JobTemplate,
    depends_on: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    parallelism: Option<u32>,
    completions: Option<u32>,
    template: Template,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaderWorkers {
    leader_template: Option<Template>,
    worker_template: Template,
    size: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Replicas {
    replicas: Option<u32>,
    template: Template,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RunPolicy {
    scheduling_policy: SchedulingPolicy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchedulingPolicy {
    min_available: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ElasticPolicy {
    min_replicas: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RayGroup {
    group_name: String,
    replicas: Option<u32>,
    min_replicas: Option<u32>,
    num_of_hosts: Option<u32>,
    suspend: bool,
    template: Template,
}

impl Template {
    fn gpus(&self) -> String {
        pod::gpus_asked(&self.spec)
    }
}

/// Pods of a Job that are there at the same time.
fn at_once(parallelism: Option<u32>, completions: Option<u32>) -> u32 {
    let parallelism = parallelism.unwrap_or(1);
    completions.map_or(parallelism, |completions| completions.min(parallelism))
}

impl MakerSpec {
    fn roles(&self, kind: MakerKind) -> Vec<Role> {
        match kind {
            MakerKind::Job => {
                let min = at_once(self.parallelism, self.completions);
                vec![Role { name: WORKER.into(), min, gpus: String::new(), stage: 0 }]
            }
            MakerKind::JobSet => self.replicated_roles(),
            MakerKind::LeaderWorkerSet => self.leader_roles(),
            MakerKind::RayCluster => self.ray_roles(),
            _ => self.training_roles(kind),
        }
    }

    /// Jobs that wait for others of their set cannot start with them.
    fn replicated_roles(&self) -> Vec<Role> {
        let in_order = self.startup_policy["startupPolicyOrder"] == "InOrder"
            || self.replicated_jobs.iter().any(|job| !job.depends_on.is_empty());
        let role = |(at, job): (usize, &ReplicatedJob)| {
            let spec = &job.template.spec;
            Role {
                name: job.name.clone(),
                min: job.replicas.unwrap_or(1) * at_once(spec.parallelism, spec.completions),
                gpus: spec.template.gpus(),
                stage: if in_order { at } else { 0 },
            }
        };
        self.replicated_jobs.iter().enumerate().map(role).collect()
    }

    fn leader_roles(&self) -> Vec<Role> {
        let of = &self.leader_worker_template;
        let workers_later = self.startup_policy == "LeaderReady";
        let leader = of.leader_template.as_ref().unwrap_or(&of.worker_template);
        vec![
            Role { name: LEADER.into(), min: 1, gpus: leader.gpus(), stage: 0 },
            Role {
                name: WORKER.into(),
                min: of.size.unwrap_or(1).saturating_sub(1),
                gpus: of.worker_template.gpus(),
                stage: usize::from(workers_later),
            },
        ]
    }

    fn training_roles(&self, kind: MakerKind) -> Vec<Role> {
        let is_mpi = matches!(kind, MakerKind::MpiJob | MakerKind::MpiJobAlone);
        let launcher_later =
            is_mpi && (self.wait_for_workers || self.launcher_creation_policy == "WaitForWorkersReady");
        let role = |(name, of): (&String, &Replicas)| {
            let replicas = of.replicas.unwrap_or(1);
            let elastic = self.elastic_policy.min_replicas.filter(|_| name.eq_ignore_ascii_case(WORKER));
            Role {
                name: name.clone(),
                min: elastic.map_or(replicas, |min| min.min(replicas)),
                gpus: of.template.gpus(),
                stage: usize::from(launcher_later && name.eq_ignore_ascii_case("launcher")),
            }
        };
        self.replica_specs.iter().map(role).collect()
    }

    /// Workers beyond those that must be there are asked for by Ray itself, and join later.
    fn ray_roles(&self) -> Vec<Role> {
        let head =
            Role { name: RAY_HEAD.into(), min: 1, gpus: self.head_group_spec.template.gpus(), stage: 0 };
        let worker = |group: &RayGroup| {
            let asked = if self.enable_in_tree_autoscaling { group.min_replicas } else { group.replicas };
            let replicas = if group.suspend { 0 } else { asked.unwrap_or(0) };
            Role {
                name: group.group_name.clone(),
                min: replicas * group.num_of_hosts.unwrap_or(1).max(1),
                gpus: group.template.gpus(),
                stage: 0,
            }
        };
        [head].into_iter().chain(self.worker_group_specs.iter().map(worker)).collect()
    }
}

#[cfg(test)]
mod tests;
