//! The world as Berth sees it: what the watches brought, held against what the engine knows, and what follows.
//!
//! Pure: no clock, no socket. The same code takes the first look after a start and every later change, because each group of
//! Pods is settled by comparing what is with what was decided, however it came about.
//!
//! ```text
//! Seen --take--> nodes, owners, groups --settle--> Change --> engine --plan--> Action --> Effect
//! ```

mod beside;
mod clear;
mod groups;
mod makers;
mod nodes;
mod owners;
mod ports;
mod rank;
mod renew;
mod settle;
mod start;
mod status;
mod strangers;
mod turns;
mod volumes;

pub(crate) use makers::makers_of;
pub(crate) use start::{EvictOrder, StartOrder, StartTask, WaitingClaim, WaitingPod};
pub(crate) use volumes::UnboundVolume;

use crate::seen::{
    Key, Refusal, Text,
    claim::ClaimSeen,
    maker::{MakerKey, MakerSeen},
    native::NativeGroupSeen,
    node::{NodeSeen, SliceSeen},
    pod::PodSeen,
    volume::{StorageClassSeen, VolumeClaimSeen, VolumeSeen},
};
use berth_engine::Engine;
use berth_types::{Action, Change, Policy, ProjectId, Span, State, Time, WorkloadId};
use groups::{Group, GroupKey};
use ports::PromisedPorts;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// Plans for one set of news. Each that decides something is followed by another, and a few are usual.
const ROUNDS_MAX: u32 = 1000;

/// Something that is to be known: from a watch, or what became of something that was ordered.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Node(Box<NodeSeen>),
    NodeGone(Text),
    Slice(SliceSeen),
    SliceGone(Text),
    Pod(Box<PodSeen>),
    PodGone(Text),
    Claim(Box<ClaimSeen>),
    ClaimGone(Key),
    NativeGroup(Box<NativeGroupSeen>),
    NativeGroupGone(Key),
    Namespace,
    NamespaceGone(Text),
    VolumeClaim(Box<VolumeClaimSeen>),
    VolumeClaimGone(Key),
    Volume(Box<VolumeSeen>),
    VolumeGone(Text),
    StorageClass(StorageClassSeen),
    StorageClassGone(Text),
    /// Whoever made Pods was read, or why it could not be.
    Maker {
        maker: MakerKey,
        found: Result<MakerSeen, Refusal>,
    },
    Department(Arc<crate::api::Department>),
    DepartmentGone(Text),
    Project(Arc<crate::api::Project>),
    ProjectGone(Text),
    Pool(Arc<crate::api::NodePool>),
    PoolGone(Text),
    Workload(Arc<crate::api::Workload>),
    /// By namespace and unique id.
    WorkloadGone(Key),
    /// A start was carried out, or was not.
    Started {
        workload: WorkloadId,
        run: u32,
        result: Result<(), StartFailure>,
    },
    /// A Pod that a start made and that no watch ever told of is not there.
    NoPod {
        workload: WorkloadId,
        run: u32,
        rank: u32,
    },
    /// What a claim of a waiting Pod still had was given back, or its Pod does not wait any more.
    Released {
        workload: WorkloadId,
    },
    /// An eviction was refused; the Pod goes on.
    NotEvicted {
        workload: WorkloadId,
        pod: Text,
        message: String,
    },
}

/// Why a start was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFailure {
    pub(crate) message: String,
    /// Tasks that were placed all the same, by their position in the order.
    pub(crate) placed: Vec<usize>,
}

/// Something to be done about it.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Start(StartOrder),
    Evict(EvictOrder),
    /// Whoever made Pods that wait is read, because it says how many of them start together.
    Read(MakerKey),
    /// A start made this Pod, and no watch has told of it: it is asked for.
    Seek {
        workload: WorkloadId,
        run: u32,
        rank: u32,
        pod: Key,
    },
    /// The claim of a Pod that waits has devices of a start that came to nothing: they are given back.
    Release {
        workload: WorkloadId,
        pod: Key,
        uid: Text,
        claim: Key,
        claim_uid: Text,
    },
    /// What a project needs in the cluster.
    Tenancy(Arc<crate::api::Project>),
    /// Words about a Pod that waits.
    Explain {
        pod: Key,
        uid: Text,
        reason: &'static str,
        message: String,
    },
    /// The state of a Workload.
    Status {
        workload: Key,
        uid: Text,
        status: Box<crate::api::WorkloadStatus>,
    },
}

/// Settings that are not the engine's.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
}

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct World {
    engine: Engine,
    now: Time,
    next_id: u64,
    nodes: BTreeMap<Text, nodes::NodeEntry>,
    node_names: HashMap<berth_types::NodeId, Text>,
    /// Numbers of nodes by name, those that went included.
    node_ids: HashMap<Text, berth_types::NodeId>,
    demands: nodes::Demands,
    pools: BTreeMap<Text, Arc<crate::api::NodePool>>,
    pub(crate) owners: owners::Owners,
    claims: HashMap<Key, ClaimSeen>,
    native: HashMap<Key, NativeGroupSeen>,
    promised_ports: PromisedPorts,
    makers: makers::Makers,
    pub(crate) volumes: volumes::Volumes,
    pub(crate) pods: HashMap<Text, Arc<PodSeen>>,
    pub(crate) groups: BTreeMap<WorkloadId, Group>,
    by_key: HashMap<GroupKey, WorkloadId>,
    /// Claims, by the group whose Pod waits for them.
    claim_users: HashMap<Key, WorkloadId>,
    /// Places in the queue that evicted Pods left to whatever their owner makes in their stead.
    vacancies: HashMap<Text, VecDeque<Vacancy>>,
    /// Nodes that are not what the engine was told of them.
    outdated: BTreeSet<Text>,
    /// Groups that wait, and have not been told why since something changed about them.
    unexplained: BTreeSet<WorkloadId>,
    renewals: renew::Renewals,
    /// Groups to settle.
    dirty: BTreeSet<WorkloadId>,
    /// When a group is to be looked at again.
    due: BTreeSet<(Time, WorkloadId)>,
    wake: Option<Time>,
    effects: Vec<Effect>,
    /// Another process decides; what is there is what was decided.
    looks_on: bool,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vacancy {
    submitted: Time,
    evicted: Option<Time>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut world = Self {
            engine: Engine::new(settings.policy),
            now: Time(0),
            next_id: 1,
            nodes: BTreeMap::new(),
            node_names: HashMap::new(),
            node_ids: HashMap::new(),
            demands: nodes::Demands::default(),
            pools: BTreeMap::new(),
            owners: owners::Owners::default(),
            claims: HashMap::new(),
            native: HashMap::new(),
            promised_ports: PromisedPorts::default(),
            makers: makers::Makers::default(),
            volumes: volumes::Volumes::default(),
            pods: HashMap::new(),
            groups: BTreeMap::new(),
            by_key: HashMap::new(),
            claim_users: HashMap::new(),
            vacancies: HashMap::new(),
            outdated: BTreeSet::new(),
            unexplained: BTreeSet::new(),
            renewals: renew::Renewals::default(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            wake: None,
            effects: Vec::new(),
            looks_on: false,
        };
        world.meet_strangers();
        world
    }

    /// The engine, for questions.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes the first look: everything there is, in an order that does not depend on how it came.
    pub(crate) fn first_look(&mut self, now: Time, mut seen: Vec<Seen>) -> Vec<Effect> {
        seen.sort_by_cached_key(first_look_order);
        self.step(now, seen)
    }

    /// Takes everything there is, and decides nothing.
    pub(crate) fn see(&mut self, now: Time, mut seen: Vec<Seen>) -> State {
        seen.sort_by_cached_key(first_look_order);
        self.observe(now, seen);
        self.engine.state()
    }

    /// Takes what was seen, and decides nothing: for whoever looks on while another process decides.
    pub(crate) fn observe(&mut self, now: Time, seen: impl IntoIterator<Item = Seen>) {
        self.looks_on = true;
        self.now = now;
        for one in seen {
            self.take(one);
        }
        self.tell_owners();
        self.settle();
        // What another process should do is its own business.
        self.effects.clear();
    }

    /// Takes what was seen, decides, and says what is to be done.
    pub(crate) fn step(&mut self, now: Time, seen: impl IntoIterator<Item = Seen>) -> Vec<Effect> {
        self.now = now;
        for one in seen {
            self.renewals.changed(now);
            self.take(one);
        }
        self.tell_owners();
        while let Some((_, group)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(self.due.first().expect("it was there a moment ago").0, group));
            self.dirty.insert(group);
        }
        for round in 1.. {
            self.settle();
            self.tell_outdated();
            let plan = self.engine.plan(now);
            self.wake = plan.wake;
            for action in &plan.actions {
                self.renewals.changed(now);
                self.on_decided(action);
            }
            if plan.actions.is_empty() && self.dirty.is_empty() {
                break;
            }
            if round == ROUNDS_MAX {
                tracing::error!(actions = ?plan.actions, "decisions go in a circle; they are interrupted");
                self.wake = Some(now + Span::secs(1));
                break;
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// The next instant at which time alone changes something.
    pub(crate) fn next_instant(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.wake).chain(self.renewals.next).min()
    }

    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Node(node) => self.on_node(*node),
            Seen::NodeGone(name) => self.on_node_gone(&name),
            Seen::Slice(slice) => self.on_slice(slice),
            Seen::SliceGone(name) => self.on_slice_gone(&name),
            Seen::Pod(pod) => self.on_pod(*pod),
            Seen::PodGone(uid) => self.on_pod_gone(&uid),
            Seen::Claim(claim) => {
                self.touch_claim(&claim.key);
                self.claims.insert(claim.key.clone(), *claim);
            }
            Seen::ClaimGone(key) => {
                self.touch_claim(&key);
                self.claims.remove(&key);
            }
            Seen::NativeGroup(group) => self.on_native_group(*group),
            Seen::NativeGroupGone(key) => {
                self.touch_native(&key);
                self.native.remove(&key);
            }
            // What matters of a namespace is that it is gone.
            Seen::Namespace => {}
            Seen::NamespaceGone(name) => self.on_namespace_gone(&name),
            Seen::VolumeClaim(claim) => self.on_volume_claim(*claim),
            Seen::VolumeClaimGone(key) => self.on_volume_claim_gone(&key),
            Seen::Volume(volume) => self.on_volume(*volume),
            Seen::VolumeGone(name) => self.on_volume_gone(&name),
            Seen::StorageClass(class) => self.on_storage_class(class),
            Seen::StorageClassGone(name) => self.on_storage_class_gone(&name),
            Seen::Maker { maker, found } => self.on_maker(maker, found),
            Seen::Department(department) => self.on_department(department),
            Seen::DepartmentGone(name) => self.on_department_gone(&name),
            Seen::Project(project) => self.on_project(project),
            Seen::ProjectGone(name) => self.on_project_gone(&name),
            Seen::Pool(pool) => self.on_pool(pool),
            Seen::PoolGone(name) => self.on_pool_gone(&name),
            Seen::Workload(workload) => self.on_workload(workload),
            Seen::WorkloadGone(uid) => self.on_workload_gone(&uid),
            Seen::Started { workload, run, result } => self.on_started(workload, run, result),
            Seen::NoPod { workload, run, rank } => self.on_no_pod(workload, run, rank),
            Seen::Released { workload } => self.on_released(workload),
            Seen::NotEvicted { workload, pod, message } => self.on_not_evicted(workload, &pod, &message),
        }
    }

    /// A number nobody has.
    fn draw(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn touch_claim(&mut self, key: &Key) {
        if let Some(group) = self.claim_users.get(key) {
            self.dirty.insert(*group);
        }
    }

    fn touch_native(&mut self, key: &Key) {
        if let Some(group) = self.by_key.get(&GroupKey::Native(key.clone())) {
            self.dirty.insert(*group);
        }
    }

    /// Lets something happen that must be possible. If it is not, the engine and the world have parted, which is said and
    /// survived: the group is looked at again.
    fn must(&mut self, change: &Change) -> bool {
        match self.engine.apply(change) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, ?change, "the engine refuses what happened");
                false
            }
        }
    }

    fn on_decided(&mut self, action: &Action) {
        let id = action.workload();
        self.dirty.insert(id);
        match action {
            Action::Start { places, .. } => self.order_start(id, places, false),
            Action::Grow { places, .. } => self.order_start(id, places, true),
            Action::Hold { places, .. } | Action::Move { places, .. } => self.note_tenant(id, places),
            Action::Evict { winner, rule, lost, .. } => self.on_evicted(id, Some(*winner), *rule, *lost),
            Action::Shrink { .. }
            | Action::Stop { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. } => {}
        }
        if let Action::Move { winner: Some(winner), lost, .. } = action {
            self.on_evicted(id, Some(*winner), berth_types::EvictRule::Preemption, *lost);
        }
    }
}

/// Owners and nodes before work, and work that runs before work that waits, each by age.
fn first_look_order(seen: &Seen) -> (u8, u64, String) {
    match seen {
        Seen::Department(department) => (0, owners::depth_hint(department), name_of(department.as_ref())),
        Seen::Pool(pool) => (1, 0, name_of(pool.as_ref())),
        Seen::Project(project) => (2, 0, name_of(project.as_ref())),
        Seen::Slice(slice) => (3, 0, slice.name.to_string()),
        // As people count: node2 before node10.
        Seen::Node(node) => (4, node.traits.name.len() as u64, node.traits.name.clone()),
        Seen::Claim(claim) => (5, 0, claim.key.to_string()),
        Seen::NativeGroup(group) => (6, 0, group.key.to_string()),
        Seen::Maker { maker, .. } => (6, 1, maker.to_string()),
        Seen::StorageClass(class) => (6, 2, class.name.to_string()),
        Seen::Volume(volume) => (6, 3, volume.name.to_string()),
        Seen::VolumeClaim(claim) => (6, 4, claim.key.to_string()),
        Seen::Pod(pod) if pod.node.is_some() => (7, pod.created.0, pod.key.to_string()),
        Seen::Workload(workload) => (8, groups::queued_at(workload).0, name_of(workload.as_ref())),
        Seen::Pod(pod) => (9, pod.created.0, pod.key.to_string()),
        _ => (10, 0, String::new()),
    }
}

fn name_of<K: kube::Resource>(object: &K) -> String {
    let meta = object.meta();
    format!("{}/{}", meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""))
}

#[cfg(test)]
mod tests;

/// The project of everything that others placed.
const STRANGERS: ProjectId = ProjectId(0);
