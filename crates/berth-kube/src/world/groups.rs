//! Groups of Pods: each is one workload of the engine, made of a Workload of ours or of Pods that anybody made.

use super::{
    Vacancy, World, makers, nodes,
    rank::{Rank, run_of},
    volumes,
};
use crate::{
    api, convert, guard,
    seen::{
        Key, Refusal, Text,
        claim::ClaimSeen,
        maker::MakerKey,
        nodes_for::NodesFor,
        pod::{Member, PodGpus, PodSeen, Stage},
    },
};
use berth_types::{
    AfterStop, Completed, DeviceShare, GpuRequest, Name, Phase, Place, Request, Selector, Span, Spread, Task,
    Tasks, Time, Workload, WorkloadId, WorkloadSpec, default_pool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

/// Numbers of groups stay below what every reader of JSON can tell apart, 53 bits: so many are for those that came in the same
/// second, the others for the seconds since the beginning of 2020.
const SAME_SECOND_BITS: u32 = 21;
const FIRST_SECOND: u64 = 1_577_836_800;

/// The reason of whoever names a pool that is not there.
pub(super) const UNKNOWN_POOL: &str = "UnknownPool";

/// What makes Pods one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum GroupKey {
    /// A Pod of its own.
    Pod(Text),
    /// A Workload, by its namespace and unique id: a Pod elsewhere that names it is none of its own.
    Workload(Key),
    /// A name that Pods of one namespace agree on.
    Named(Key),
    /// A native group.
    Native(Key),
    /// Whoever made its Pods, of whom it is not known yet which of them start together.
    Unread(MakerKey),
    /// Whoever made its Pods, which of several equal sets, and which part of the set.
    Made { maker: MakerKey, instance: Text, part: Text },
}

/// A group of Pods.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    pub(crate) namespace: Text,
    /// The Workload it is, if it is one.
    pub(crate) workload: Option<Arc<api::Workload>>,
    /// Its Pods, those that are over included.
    pub(crate) pods: BTreeSet<Text>,
    /// The tasks of its present run.
    pub(crate) ranks: BTreeMap<u32, Rank>,
    /// Completions that are done.
    pub(crate) done: Completed,
    /// Where its workers were last seen, so that whoever looks on knows their places between two turns.
    pub(crate) places: BTreeMap<u32, Place>,
    /// Its place in the queue, kept through evictions.
    pub(crate) submitted: Time,
    pub(crate) evicted: Option<Time>,
    pub(crate) evictions: u32,
    pub(crate) run: u32,
    pub(crate) failures: u32,
    pub(crate) started: Option<Time>,
    /// A start is under way; nothing is told to its Pods until it is known what became of it.
    pub(crate) starting: bool,
    /// Starts that came to nothing, one after the other.
    pub(crate) refused_starts: u32,
    /// It is not to be tried again before this.
    pub(crate) not_before: Option<Time>,
    /// It cannot be evicted before this, because something refused to let its Pods go.
    pub(crate) protected: Option<Time>,
    /// What was placed of a start that failed is leaving.
    pub(crate) undone: bool,
    /// Its Pods leave by an eviction, which others may refuse; not by its own end.
    pub(crate) leaves_politely: bool,
    /// The demand on nodes it holds a label of.
    pub(crate) demand: Option<Arc<NodesFor>>,
    /// Pods that were told to go because they are no part of the present run, and versions of claims that were told to be
    /// given back, so that nothing is told twice.
    pub(crate) cleared: BTreeSet<Text>,
    /// Claims of its Pods that are being given back; it does not start in between.
    pub(crate) releasing: usize,
    /// When its unseen Pods are next asked for.
    pub(crate) seek_at: Option<Time>,
    /// Why it is not in the queue.
    pub(crate) refusal: Option<Refusal>,
    /// What was last said about it.
    pub(crate) said: super::status::Said,
}

/// What a group is to be for the engine.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// In the queue, or where it already is.
    There(Box<Workload>),
    /// Not yet.
    Waits(Option<Refusal>),
    /// Not any more.
    Over,
}

/// When a Workload came to the queue: exactly, if that was written down, or by its age.
pub(super) fn queued_at(workload: &api::Workload) -> Time {
    let exact = workload.status.as_ref().and_then(|status| status.queued_at.as_ref()).map(|at| at.0);
    let created = workload.metadata.creation_timestamp.as_ref().map(|at| at.0);
    crate::seen::pod::time(exact.or(created))
}

impl World {
    pub(super) fn on_pod(&mut self, mut pod: PodSeen) {
        let uid = pod.uid.clone();
        // Labels can change; with whom a Pod starts cannot.
        match self.pods.get(&uid) {
            Some(before) => pod.member = before.member.clone(),
            None => self.resolve(&pod.key.namespace, &mut pod.member),
        }
        let before = self.pods.insert(uid.clone(), Arc::new(pod));
        let pod = Arc::clone(&self.pods[&uid]);
        let occupies = |pod: &PodSeen| pod.node.clone().filter(|_| !pod.is_over());
        let (was, is) = (before.as_deref().and_then(occupies), occupies(&pod));
        if was != is {
            was.iter().zip(&before).for_each(|(node, before)| self.count_pod(node, before, false));
            is.iter().for_each(|node| self.count_pod(node, &pod, true));
        }
        let known = before.as_ref().is_some_and(|before| self.by_key.contains_key(&group_key(before)));
        // What is over when it is first seen is of interest to the Workload it belongs to, and to nobody else.
        if known || !pod.is_over() || matches!(pod.member, Member::Workload { .. }) {
            self.join_group(&pod);
        }
    }

    /// Adds a Pod to the group it belongs to.
    pub(super) fn join_group(&mut self, pod: &PodSeen) {
        let (id, uid) = (self.group_of(pod), pod.uid.clone());
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.pods.insert(uid.clone());
        if let Member::Workload { rank, run, turn, index, .. } = pod.member {
            if run == group.run
                && let Some(rank) = group.ranks.get_mut(&rank)
                && rank.turn == turn
                // What a start made that failed is no part of it.
                && rank.next.is_none()
            {
                rank.pod = Some(uid);
            }
            if let Some(index) = index.filter(|_| pod.stage == Stage::Succeeded) {
                group.done.insert(index);
            }
        }
        if let PodGpus::Claimed(key) = &pod.gpus {
            self.claim_users.insert(key.clone(), id);
        }
        self.use_volumes(&pod.key.namespace, &pod.volumes, &pod.uid, id);
        self.dirty.insert(id);
    }

    pub(super) fn on_pod_gone(&mut self, uid: &Text) {
        let Some(pod) = self.pods.remove(uid) else { return };
        if let Some(node) = pod.node.as_ref().filter(|_| !pod.is_over()) {
            self.count_pod(node, &pod, false);
        }
        if let PodGpus::Claimed(key) = &pod.gpus {
            self.claim_users.remove(key);
        }
        self.leave_volumes(&pod.key.namespace, &pod.volumes, uid);
        let Some(id) = self.by_key.get(&group_key(&pod)).copied() else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.pods.remove(uid);
        group.cleared.remove(uid);
        for rank in group.ranks.values_mut().filter(|rank| rank.pod.as_ref() == Some(uid)) {
            rank.gone = true;
        }
        // Whatever the owner makes in its stead waits where this one would.
        if let Some(owner) =
            pod.owner.as_ref().filter(|_| group.leaves_politely && group.key == GroupKey::Pod(uid.clone()))
        {
            let vacancy = Vacancy { submitted: group.submitted, evicted: group.evicted };
            self.vacancies.entry(owner.clone()).or_default().push_back(vacancy);
        }
        self.dirty.insert(id);
    }

    pub(super) fn on_workload(&mut self, workload: Arc<api::Workload>) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let uid = workload.metadata.uid.as_deref().unwrap_or_default();
        let key = GroupKey::Workload(Key::new(namespace, uid));
        let id = match self.by_key.get(&key) {
            Some(id) => *id,
            None => self.new_group(key, namespace.into(), queued_at(&workload)),
        };
        let group = self.groups.get_mut(&id).expect("it is there now");
        if group.workload.is_none() {
            group.submitted = queued_at(&workload);
            group.remember(&workload);
        }
        // Pods that did it may be gone.
        if let Some(text) = workload.status.as_ref().and_then(|status| status.completed.as_deref()) {
            group.done.extend(&Completed::from_text(text));
        }
        group.workload = Some(Arc::clone(&workload));
        let claims = volumes::claims_of(&workload);
        self.use_volumes(&namespace.into(), &claims, &uid.into(), id);
        self.dirty.insert(id);
    }

    pub(super) fn on_workload_gone(&mut self, key: &Key) {
        let Some(id) = self.by_key.get(&GroupKey::Workload(key.clone())).copied() else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        self.dirty.insert(id);
        if let Some(workload) = group.workload.take() {
            self.leave_volumes(&key.namespace, &volumes::claims_of(&workload), &key.name);
        }
    }

    fn group_of(&mut self, pod: &PodSeen) -> WorkloadId {
        let key = group_key(pod);
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let is_alone = matches!(key, GroupKey::Pod(_));
        let id = self.new_group(key, pod.key.namespace.clone(), pod.created);
        let owner = pod.owner.as_ref().filter(|_| is_alone && pod.node.is_none());
        let vacancy = owner.and_then(|owner| self.vacancies.get_mut(owner)?.pop_front());
        if let Some(vacancy) = vacancy {
            let group = self.groups.get_mut(&id).expect("it is there now");
            group.submitted = vacancy.submitted;
            group.evicted = vacancy.evicted;
        }
        id
    }

    /// Whoever looks on numbers groups by the second in which they came, so that after a start they have the numbers that were
    /// told before. Whoever decides counts, so that of two that came together the first is first.
    fn next_number(&mut self, submitted: Time) -> WorkloadId {
        if !self.looks_on {
            return WorkloadId(self.draw());
        }
        let second = (submitted.0 / 1000).saturating_sub(FIRST_SECOND) << SAME_SECOND_BITS;
        let of_second = WorkloadId(second)..WorkloadId(second + (1 << SAME_SECOND_BITS));
        let last = self.groups.range(of_second).next_back();
        last.map_or(WorkloadId(second + 1), |(last, _)| WorkloadId(last.0 + 1))
    }

    fn new_group(&mut self, key: GroupKey, namespace: Text, submitted: Time) -> WorkloadId {
        let id = self.next_number(submitted);
        self.by_key.insert(key.clone(), id);
        self.join_maker(&key, id);
        let group = Group {
            key,
            namespace,
            workload: None,
            pods: BTreeSet::new(),
            ranks: BTreeMap::new(),
            done: Completed::default(),
            places: BTreeMap::new(),
            submitted,
            evicted: None,
            evictions: 0,
            run: 0,
            failures: 0,
            started: None,
            starting: false,
            refused_starts: 0,
            not_before: None,
            protected: None,
            undone: false,
            leaves_politely: false,
            demand: None,
            cleared: BTreeSet::new(),
            releasing: 0,
            seek_at: None,
            refusal: None,
            said: super::status::Said::default(),
        };
        self.groups.insert(id, group);
        id
    }

    /// What the engine is to be told of a group it does not know.
    pub(super) fn wanted(&mut self, id: WorkloadId) -> Wanted {
        let group = &self.groups[&id];
        let is_workload = matches!(group.key, GroupKey::Workload(_));
        let waits = group.not_before.is_some_and(|until| until > self.now);
        let made = match is_workload {
            // What is on nodes already is counted, however long the next start has to wait.
            _ if waits && self.bound_pods(id).is_empty() => {
                return Wanted::Waits(self.groups[&id].refusal.clone());
            }
            true => self.wanted_workload(id),
            false => self.wanted_pods(id),
        };
        match made.unwrap_or_else(|refusal| Wanted::Waits(Some(refusal))) {
            Wanted::Waits(refusal) => self.unaccounted(id, false).unwrap_or(Wanted::Waits(refusal)),
            Wanted::Over if is_workload => self.unaccounted(id, true).unwrap_or(Wanted::Over),
            made => made,
        }
    }

    fn wanted_workload(&mut self, id: WorkloadId) -> Result<Wanted, Refusal> {
        let group = &self.groups[&id];
        let Some(workload) = group.workload.clone() else { return Ok(Wanted::Over) };
        let written = workload.status.as_ref().and_then(|status| status.phase);
        let finished = group.said.is_over() || written.is_some_and(api::WorkloadPhase::is_final);
        if finished || workload.metadata.deletion_timestamp.is_some() || workload.spec.suspend {
            return Ok(Wanted::Over);
        }
        let (project, owner) = self.owners.project_of(&group.namespace)?;
        guard::permitted(&workload, &owner.spec)?;
        let mut spec =
            convert::workload_spec(&workload, project, workload.spec.user.as_deref().unwrap_or(""))?;
        // Failures are counted here, where they can be waited out.
        spec.retry_limit = 0;
        let bound = !self.bound_pods(id).is_empty();
        spec.pool = self.known_pool(spec.pool, bound)?;
        if matches!(spec.request.gpu, GpuRequest::Fraction { .. } | GpuRequest::Memory { .. }) {
            demand(&mut spec.selector, nodes::DEVICES_LABEL, nodes::PUBLISHED.into());
        }
        let nodes_for = self.nodes_for_workload(&workload, bound)?;
        if nodes_for.wants_ports() {
            spec.spread = Spread::Apart;
        }
        if !bound {
            self.some_node_has_ports(&nodes_for)?;
        }
        let label = self.hold_demand(id, &nodes_for);
        demand(&mut spec.selector, &label, nodes::yes());
        Ok(self.with_phase(id, spec))
    }

    fn wanted_pods(&mut self, id: WorkloadId) -> Result<Wanted, Refusal> {
        let group = &self.groups[&id];
        let mut pods: Vec<Arc<PodSeen>> =
            group.pods.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        pods.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        // A Pod on a node that is gone is gone with it, and one that leaves before it has a node never gets one.
        pods.retain(|pod| match &pod.node {
            _ if pod.is_over() => false,
            Some(node) => self.node_id(node).is_some(),
            None => !pod.leaving,
        });
        let bound = pods.iter().any(|pod| pod.node.is_some());
        let Some(first) = pods.first().cloned() else { return Ok(Wanted::Over) };
        if !first.ours {
            return Ok(self.stranger(id, &first));
        }
        if let Some(refusal) = pods.iter().find_map(|pod| pod.refusal.clone()) {
            return Err(refusal);
        }
        if group.releasing > 0 && !bound {
            return Err(Refusal::new(
                "ClaimLeft",
                "devices of a start that came to nothing are being given back",
            ));
        }
        let there = pods.iter().filter(|pod| !pod.gated).count() as u32;
        let min = match &group.key {
            GroupKey::Native(key) => self.native_size(key)?,
            GroupKey::Named(_) => pods.iter().map(|pod| group_min(pod)).max().unwrap_or(1),
            GroupKey::Unread(_) | GroupKey::Made { .. } => self.size_by_maker(id, there)?,
            _ => 1,
        };
        let group = &self.groups[&id];
        if there < min && !bound {
            let message = format!("{there} of {min} Pods that start together are there");
            return Err(Refusal::new("GroupIncomplete", message));
        }
        let (project, owner) = self.owners.project_of(&group.namespace)?;
        if !bound {
            let beyond = pods.iter().filter_map(|pod| pod.beyond.as_deref());
            if let Some(refusal) = beyond.filter_map(|beyond| beyond.refused_by(&owner.spec)).next() {
                return Err(refusal.clone());
            }
        }
        if let Some(named) = pods.iter().find_map(|pod| pod.project.clone())
            && self.owners.project_name(project) != Some(&named)
        {
            return Err(Refusal::new(
                "ForeignProject",
                format!("it names project {named}, and namespace {} belongs to another", group.namespace),
            ));
        }
        let request = self.request_of(&pods)?;
        let mut selector = Selector::default();
        match first.gpus {
            PodGpus::Counted(_) => demand(&mut selector, nodes::DEVICES_LABEL, nodes::COUNTED.into()),
            PodGpus::Claimed(_) | PodGpus::Unmade => {
                demand(&mut selector, nodes::DEVICES_LABEL, nodes::PUBLISHED.into())
            }
            PodGpus::None => {}
        }
        let nodes_for = self.nodes_for_pods(&pods, bound)?;
        if !bound {
            self.some_node_has_ports(&nodes_for)?;
        }
        let label = self.hold_demand(id, &nodes_for);
        demand(&mut selector, &label, nodes::yes());
        let pool = self.pool_asked(&pods, bound)?;
        let tasks = Tasks::new(min.max(1), there.max(min)).ok_or_else(|| {
            Refusal::new("GroupTooLarge", format!("{there} Pods in one group; at most {} can be", Tasks::MAX))
        })?;
        let layout = self.layout_of(&self.groups[&id].key, &pods);
        // What is on nodes already is where it is.
        let (topology, spread) =
            layout.or_else(|refusal| if bound { Ok(Default::default()) } else { Err(refusal) })?;
        let spec = WorkloadSpec {
            name: group_name(&self.groups[&id], &first),
            project,
            user: String::new(),
            kind: first.kind,
            request,
            tasks,
            pool,
            selector,
            topology,
            spread,
            priority: pods.iter().map(|pod| pod.priority).min().unwrap_or(0),
            preemptible: pods.iter().all(|pod| pod.preemptible),
            max_run: None,
            // Whoever made the Pods makes others when they fail.
            retry_limit: u32::MAX,
            grace: pods.iter().map(|pod| pod.grace).max().unwrap_or(Span::ZERO),
        };
        Ok(self.with_phase(id, spec))
    }

    /// The pool that Pods name, or the one everything else is in.
    fn pool_asked(&self, pods: &[Arc<PodSeen>], bound: bool) -> Result<Name, Refusal> {
        let mut named: BTreeSet<&Text> = pods.iter().filter_map(|pod| pod.pool.as_ref()).collect();
        let Some(pool) = named.pop_first() else { return Ok(default_pool()) };
        if !named.is_empty() && !bound {
            return Err(Refusal::new(
                "MixedGroup",
                "its Pods name different node pools; those that start together go to one",
            ));
        }
        self.known_pool(pool.clone(), bound)
    }

    /// A pool that is there; for Pods that are on nodes already it is wherever those are.
    fn known_pool(&self, pool: Name, bound: bool) -> Result<Name, Refusal> {
        if bound || pool == default_pool() || self.pools.contains_key(&pool) {
            return Ok(pool);
        }
        let text = format!("there is no node pool {pool}: `kubectl get nodepools` shows all");
        Err(Refusal::new(UNKNOWN_POOL, text))
    }

    /// What each task asks for. Pods of one group must ask for the same GPUs; of CPU and memory each gets what the largest asks for.
    pub(super) fn request_of(&self, pods: &[Arc<PodSeen>]) -> Result<Request, Refusal> {
        let mut request: Option<Request> = None;
        for pod in pods {
            let (gpu, models) = match &pod.gpus {
                PodGpus::None => (GpuRequest::None, BTreeSet::new()),
                PodGpus::Counted(count) => (GpuRequest::Whole(*count), BTreeSet::new()),
                PodGpus::Unmade => {
                    return Err(Refusal::new(
                        "ClaimMissing",
                        format!("the claim of Pod {} is yet to be made", pod.key.name),
                    ));
                }
                PodGpus::Claimed(key) => {
                    let claim = self.claims.get(key).ok_or_else(|| {
                        Refusal::new(
                            "ClaimMissing",
                            format!("there is no claim {} of class {}", key.name, crate::names::DEVICE_CLASS),
                        )
                    })?;
                    if pod.node.is_none() {
                        self.unused(claim, pod)?;
                    }
                    let asked = claim.asked.clone()?;
                    (asked.gpu, asked.models)
                }
            };
            let own = Request { gpu, models, cpu: pod.cpu, memory: pod.memory };
            request = Some(match request {
                None => own,
                Some(known) if known.gpu == own.gpu && known.models == own.models => {
                    Request { cpu: known.cpu.max(own.cpu), memory: known.memory.max(own.memory), ..known }
                }
                Some(_) => {
                    return Err(Refusal::new(
                        "MixedGroup",
                        "its Pods ask for different GPUs; those that start together must ask for the same",
                    ));
                }
            });
        }
        request.ok_or_else(|| Refusal::new("GroupIncomplete", "it has no Pod"))
    }

    /// Whether a claim of a Pod that waits is free for a start of that Pod.
    fn unused(&self, claim: &ClaimSeen, pod: &PodSeen) -> Result<(), Refusal> {
        let mut others =
            claim.users.iter().filter(|user| **user != pod.uid).filter_map(|user| self.pods.get(user));
        if let Some(other) = others.find(|other| !other.is_over()) {
            return Err(Refusal::new(
                "ClaimInUse",
                format!(
                    "claim {} is that of Pod {}; Berth gives each Pod its own",
                    claim.key.name, other.key.name
                ),
            ));
        }
        match claim.taken {
            Some(_) => Err(Refusal::new(
                "ClaimLeft",
                format!("claim {} still has devices of a start that came to nothing", claim.key.name),
            )),
            None => Ok(()),
        }
    }

    /// A group as the engine is to know it: in the queue, or where its Pods are already.
    fn with_phase(&mut self, id: WorkloadId, spec: WorkloadSpec) -> Wanted {
        let group = &self.groups[&id];
        let mut workload = Workload::submitted(id, spec, group.submitted);
        workload.evicted = group.evicted;
        let mut pods = self.bound_pods(id);
        let mut places = Vec::new();
        let mut since = self.now;
        let between = self.between_turns(id, &pods);
        if pods.is_empty() && between.is_empty() {
            return Wanted::There(Box::new(workload));
        }
        for (rank, pod) in &pods {
            since = since.min(pod.started.unwrap_or(pod.created));
            workload.checkpoint = workload.checkpoint.max(pod.checkpoint);
            match self.place_of(id, *rank, pod, &workload.spec.request, &places) {
                Some(place) => places.push(place),
                // Its node or its devices are not known yet.
                None => return Wanted::Waits(None),
            }
        }
        for (rank, pod) in between {
            let node = pod.node.as_ref().and_then(|node| self.node_id(node));
            let known = self.groups[&id].places.get(&rank).filter(|known| Some(known.node) == node).cloned();
            let place = known.or_else(|| match pod.gpus {
                PodGpus::Claimed(_) => self.place_left(rank, &pod, &workload.spec.request),
                _ => self.place_of(id, rank, &pod, &workload.spec.request, &places),
            });
            if let Some(place) = place {
                since = since.min(pod.started.unwrap_or(pod.created));
                places.push(place);
                pods.insert(rank, pod);
            }
        }
        if pods.is_empty() {
            return Wanted::There(Box::new(workload));
        }
        places.sort_by_key(|place| place.rank);
        // A pool may have got other nodes since; whoever is on one is in its pool.
        if let Some(node) = places.first().and_then(|place| self.engine.nodes().get(&place.node)) {
            workload.spec.pool = node.pool();
        }
        let (run, succeeded) = (pods.values().filter_map(|pod| run_of(pod)).max(), self.succeeded(id));
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.run = group.run.max(run.unwrap_or(1));
        group.ranks = pods.iter().map(|(rank, pod)| (*rank, Rank::of(pod, pod.leaving))).collect();
        let min = workload.spec.tasks.min();
        let base = places.iter().filter(|place| place.rank < min).count();
        let whole = base == min as usize
            || (base > 0 && base + succeeded >= min as usize)
            || self.was_whole(id, base, run.unwrap_or(1));
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        if group.completions().is_some() {
            group.places = places.iter().map(|place| (place.rank, place.clone())).collect();
        }
        workload.phase = if whole {
            let tasks = places.into_iter().map(|place| Task { extra: place.rank >= min, place }).collect();
            Phase::Running { tasks, leaving: Vec::new(), since, confirmed: true, passing: false }
        } else {
            // Half of a gang: it was interrupted while it started, and starts again as a whole.
            tracing::warn!(workload = %workload.spec.name, bound = base, of = min, "a gang was found half started");
            Phase::Stopping { leaving: places, then: AfterStop::Requeue }
        };
        Wanted::There(Box::new(workload))
    }

    /// Pods of a group that are on nodes and not over, by rank. Pods of earlier runs are left out.
    pub(super) fn bound_pods(&self, id: WorkloadId) -> BTreeMap<u32, Arc<PodSeen>> {
        let group = &self.groups[&id];
        let mut pods: Vec<&Arc<PodSeen>> = group
            .pods
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            // A Pod on a node that is gone is gone with it, whatever its object says.
            .filter(|pod| {
                pod.node.as_ref().is_some_and(|node| self.node_id(node).is_some()) && !pod.is_over()
            })
            .collect();
        pods.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        let last_run = pods.iter().filter_map(|pod| run_of(pod)).max();
        let mut ranked = BTreeMap::new();
        for pod in pods {
            match pod.member {
                Member::Workload { rank, run, .. } if Some(run) == last_run => {
                    ranked.insert(rank, Arc::clone(pod))
                }
                Member::Workload { .. } => continue,
                _ => ranked.insert(ranked.len() as u32, Arc::clone(pod)),
            };
        }
        ranked
    }

    fn succeeded(&self, id: WorkloadId) -> usize {
        let pods = self.groups[&id].pods.iter().filter_map(|uid| self.pods.get(uid));
        pods.filter(|pod| pod.stage == Stage::Succeeded).count()
    }

    /// The place of a Pod that is on a node already.
    pub(super) fn place_of(
        &mut self,
        of: WorkloadId,
        rank: u32,
        pod: &PodSeen,
        request: &Request,
        besides: &[Place],
    ) -> Option<Place> {
        let node = pod.node.as_ref()?;
        let id = self.node_id(node)?;
        let devices = match &pod.gpus {
            PodGpus::None => Vec::new(),
            PodGpus::Unmade => return None,
            PodGpus::Counted(count) => self.any_devices(node, count.get(), of, besides)?,
            PodGpus::Claimed(key) => {
                let taken = self.claims.get(key)?.taken.as_ref()?;
                let mut devices = Vec::new();
                for one in taken {
                    let device = self.device_position(node, &one.device)?;
                    devices.push(DeviceShare { device, share: one.share });
                }
                devices.sort_unstable();
                devices
            }
        };
        Some(Place { rank, node: id, devices, cpu: request.cpu, memory: request.memory })
    }

    fn hold_demand(&mut self, id: WorkloadId, demand: &Arc<NodesFor>) -> Name {
        let held = self.groups[&id].demand.clone();
        if held.as_ref() != Some(demand) {
            if let Some(held) = held {
                self.demand_dropped(&held);
            }
            self.groups.get_mut(&id).expect("a group that is looked at").demand = Some(Arc::clone(demand));
            return self.demand_label(demand);
        }
        self.known_demand_label(demand)
    }

    /// Nothing is left of a group: nobody asks for it any more.
    pub(super) fn drop_group(&mut self, id: WorkloadId) {
        let Some(group) = self.groups.remove(&id) else { return };
        self.promised_ports.forget(id);
        self.by_key.remove(&group.key);
        self.leave_maker(&group.key, id);
        if let Some(demand) = &group.demand {
            self.demand_dropped(demand);
        }
    }
}

impl Group {
    /// Whether its Pods start together because they, or somebody for them, say so.
    pub(super) fn is_gang(&self) -> bool {
        matches!(self.key, GroupKey::Named(_) | GroupKey::Native(_) | GroupKey::Made { .. })
    }

    /// How many times it is run, each time with another index, if it says so.
    pub(super) fn completions(&self) -> Option<u32> {
        self.workload.as_ref().and_then(|workload| workload.spec.completions())
    }

    /// Pods that have a part in the present run.
    pub(super) fn in_run(&self) -> HashSet<&Text> {
        self.ranks.values().filter(|rank| !rank.gone).filter_map(|rank| rank.pod.as_ref()).collect()
    }

    /// What was written down about a Workload before this process was there.
    fn remember(&mut self, workload: &api::Workload) {
        let Some(status) = &workload.status else { return };
        let time = |at: &Option<MicroTime>| at.as_ref().map(|at| crate::seen::pod::time(Some(at.0)));
        let number = |number: i64| u32::try_from(number).unwrap_or(0);
        self.evicted = time(&status.evicted_at);
        self.started = time(&status.started_at);
        self.not_before = time(&status.retry_at);
        self.evictions = number(status.evictions);
        self.run = self.run.max(number(status.runs));
        self.failures = number(status.failures);
    }
}

fn demand(selector: &mut Selector, key: &str, value: Name) {
    selector.0.insert(key.into(), BTreeSet::from([value]));
}

fn group_key(pod: &PodSeen) -> GroupKey {
    let named = |name: &Text| Key { namespace: pod.key.namespace.clone(), name: name.clone() };
    match &pod.member {
        _ if !pod.ours => GroupKey::Pod(pod.uid.clone()),
        Member::Alone => GroupKey::Pod(pod.uid.clone()),
        Member::Workload { uid, .. } => GroupKey::Workload(named(uid)),
        Member::Group { name, .. } => GroupKey::Named(named(name)),
        Member::Native { name } => GroupKey::Native(named(name)),
        Member::Made(made) => makers::group_key(made),
    }
}

fn group_min(pod: &PodSeen) -> u32 {
    match pod.member {
        Member::Group { min, .. } => min,
        _ => 1,
    }
}

fn group_name(group: &Group, first: &PodSeen) -> String {
    match &group.key {
        GroupKey::Named(key) | GroupKey::Native(key) => key.to_string(),
        GroupKey::Made { maker, instance, .. } => makers::group_name(maker, instance),
        _ => first.key.to_string(),
    }
}
