//! One pool: nodes, accounts and workloads, and the indexes over them.
//!
//! Every index is a projection of the workloads. A workload that changes is taken out of all indexes, changed, and put
//! back, so that an index cannot drift from what it indexes.

use crate::{
    brief::Brief,
    fit::Fit,
    hash::IdMap,
    log::ChangeLog,
    mix::Mix,
    node::{NodeSlot, TAKING, View},
    order::Heads,
    queue::{ProjectQueue, QueueKey, VictimEntry, VictimGroup},
    ranking::Emptiest,
    retry::Retries,
    shape::{Shape, ShapeKey},
    tree::{Charge, GPU, Sign, Tree},
    units::Precedence,
};
use berth_types::{
    Action, AfterStop, Change, ChangeError, Department, DepartmentId, GpuRequest, Gpus, Kind, Name, NodeId,
    Phase, Place, Policy, Project, ProjectId, Span, Spread, Time, TopologyLevel, Workload, WorkloadId,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

/// Departments and projects, as they were set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Organisation {
    pub(crate) departments: BTreeMap<DepartmentId, Department>,
    pub(crate) projects: BTreeMap<ProjectId, Project>,
}

/// A workload and the interned things it refers to.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) workload: Workload,
    /// Position of its project in the tree.
    pub(crate) project: u32,
    pub(crate) class: u32,
}

/// Workloads that ask for the same tasks and the same number of them: they fit or do not fit together.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) shape: u32,
    pub(crate) min: u32,
    /// How many projects have waiting workloads of this class.
    waiting: u32,
    /// The first workload of each that is ready, in queue order.
    pub(crate) firsts: BTreeSet<(QueueKey, u32)>,
    /// GPUs one workload of this class is charged while it waits.
    pub(crate) asked: u64,
    /// Whether an empty pool has room.
    pub(crate) possible: bool,
    /// Whether it fitted when it was looked at last, and in which round that was.
    pub(crate) fits: bool,
    pub(crate) round: u64,
    /// The model it names, if exactly one.
    pub(crate) model: Option<usize>,
}

impl Class {
    /// Another workload of a project is the first of this class.
    pub(crate) fn change_first(&mut self, project: u32, before: Option<QueueKey>, after: Option<QueueKey>) {
        if before != after {
            if let Some(before) = before {
                self.firsts.remove(&(before, project));
            }
            self.firsts.extend(after.map(|after| (after, project)));
        }
    }
}

/// One pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: Name,
    pub(crate) policy: Policy,
    pub(crate) nodes: Vec<Option<NodeSlot>>,
    pub(crate) node_slots: IdMap<NodeId, u32>,
    /// Nodes on which what is free changed.
    pub(crate) log: ChangeLog,
    /// Nodes on which what could be taken changed.
    pub(crate) takeable_log: ChangeLog,
    /// Nodes by what is free of them; up to date when a claim is made.
    pub(crate) emptiest: Emptiest,
    pub(crate) tree: Tree,
    /// By position in the tree; departments have an empty one.
    pub(crate) queues: Vec<ProjectQueue>,
    /// Boxed, because entries are large and are taken out and put back whenever one changes.
    pub(crate) entries: Vec<Option<Box<Entry>>>,
    /// By entry, what a search asks of it if it is running and preemptible.
    briefs: Vec<Option<Brief>>,
    free_entries: Vec<u32>,
    entry_slots: IdMap<WorkloadId, u32>,
    pub(crate) shapes: Vec<(Shape, Fit)>,
    /// For each shape, where it would fit if something were taken; made when it is first asked for.
    pub(crate) taking_fits: Vec<[Option<Box<Fit>>; 3]>,
    /// For each shape, the one whose indexes those are: where others are taken, reservations do not matter, and with them
    /// not whether a task is preemptible.
    pub(crate) taking_shapes: Vec<u32>,
    shape_ids: HashMap<ShapeKey, u32>,
    pub(crate) classes: Vec<Class>,
    class_ids: BTreeMap<(u32, u32), u32>,
    /// Classes that somebody waits with.
    pub(crate) waiting_classes: BTreeSet<u32>,
    pub(crate) models: Vec<Name>,
    pub(crate) mix: Mix,
    /// Running workloads with elastic extras.
    pub(crate) extras: BTreeSet<(WorkloadId, u32)>,
    /// Running workloads that could have more extras.
    pub(crate) elastic: BTreeSet<(Time, WorkloadId, u32)>,
    /// When running workloads must end.
    pub(crate) deadlines: BTreeSet<(Time, WorkloadId, u32)>,
    /// Waiting workloads with a reservation.
    pub(crate) reservations: BTreeSet<(Time, WorkloadId, u32)>,
    /// Held workloads whose places may have become free.
    pub(crate) held_to_check: BTreeSet<(WorkloadId, u32)>,
    /// GPUs that count as capacity, and those free of decisions on ready nodes.
    pub(crate) capacity: u64,
    pub(crate) free_gpus: u64,
    /// Whether what waiting work is charged, or which of it could ever run, may have changed.
    pub(crate) demand_stale: bool,
    /// Whether demand or capacity changed since shares were divided.
    pub(crate) shares_stale: bool,
    pub(crate) heads: Heads,
    pub(crate) retries: Retries,
    /// Departments that use less than when the heads below them were last looked at.
    pub(crate) freed_departments: BTreeSet<u32>,
    /// Projects above their quota or share, from which something might be taken; the last gives first.
    pub(crate) borrowers: BTreeSet<Precedence>,
    /// Those whose work is not counted as takeable the way it should be.
    pub(crate) above_stale: BTreeSet<u32>,
    /// Whether any request ever was for GPU memory.
    pub(crate) asks_by_memory: bool,
    /// Whether some task of a gang ever ended before the others: such a gang asks for more when it waits than it has.
    pub(crate) gangs_end_in_parts: bool,
    /// When passing work can be evicted so that a reservation is filled.
    pub(crate) next_fill: Option<Time>,
    /// When extras that were just shrunk may come back.
    pub(crate) next_grow: Option<Time>,
    /// When a move will have become worth its cost.
    pub(crate) next_move: Option<Time>,
    /// Grows with every change; what failed at this version need not be tried again.
    pub(crate) version: u64,
}

impl Pool {
    pub(crate) fn new(name: Name, policy: Policy, organisation: &Organisation) -> Self {
        let mut models = Vec::new();
        let tree = Tree::new(&name, &organisation.departments, &organisation.projects, |model| {
            intern_model(&mut models, model)
        });
        let mut pool = Self {
            name,
            mix: Mix::new(&policy),
            policy,
            nodes: Vec::new(),
            node_slots: IdMap::default(),
            log: ChangeLog::default(),
            takeable_log: ChangeLog::default(),
            emptiest: Emptiest::default(),
            queues: vec![ProjectQueue::default(); tree.nodes.len()],
            tree,
            entries: Vec::new(),
            briefs: Vec::new(),
            free_entries: Vec::new(),
            entry_slots: IdMap::default(),
            shapes: Vec::new(),
            taking_fits: Vec::new(),
            taking_shapes: Vec::new(),
            shape_ids: HashMap::new(),
            classes: Vec::new(),
            class_ids: BTreeMap::new(),
            waiting_classes: BTreeSet::new(),
            models,
            extras: BTreeSet::new(),
            elastic: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            reservations: BTreeSet::new(),
            held_to_check: BTreeSet::new(),
            capacity: 0,
            free_gpus: 0,
            demand_stale: false,
            shares_stale: true,
            heads: Heads::default(),
            retries: Retries::default(),
            freed_departments: BTreeSet::new(),
            borrowers: BTreeSet::new(),
            above_stale: BTreeSet::new(),
            asks_by_memory: false,
            gangs_end_in_parts: false,
            next_fill: None,
            next_grow: None,
            next_move: None,
            version: 0,
        };
        pool.load_project_settings(organisation);
        pool
    }

    pub(crate) fn slot(&self, id: WorkloadId) -> Option<u32> {
        self.entry_slots.get(&id).copied()
    }

    pub(crate) fn node_slot(&self, id: NodeId) -> Option<u32> {
        self.node_slots.get(&id).copied()
    }

    pub(crate) fn entry(&self, slot: u32) -> &Entry {
        self.entries[slot as usize].as_ref().expect("a slot in an index is in use")
    }

    /// What a search asks of an entry, if it is running and preemptible.
    pub(crate) fn brief(&self, slot: u32) -> Option<Brief> {
        self.briefs.get(slot as usize).copied().flatten()
    }

    pub(crate) fn node(&self, slot: u32) -> &NodeSlot {
        self.nodes[slot as usize].as_ref().expect("a node with places on it is there")
    }

    pub(crate) fn class_of(&self, slot: u32) -> &Class {
        &self.classes[self.entry(slot).class as usize]
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.entries.iter().flatten().map(|entry| &entry.workload)
    }

    /// Whether any place, decided or occupied, is on the node.
    pub(crate) fn in_use(&self, id: NodeId) -> bool {
        self.node_slot(id).is_some_and(|slot| {
            let node = self.node(slot);
            !node.tasks.is_empty() || node.occupants > 0
        })
    }

    /// A workload came.
    pub(crate) fn insert(&mut self, workload: Workload, project: &Project) {
        let class = self.intern_class(&workload.spec, project);
        let position = self.tree.project(workload.spec.project);
        let id = workload.id;
        let entry = Box::new(Entry { workload, project: position, class });
        let slot = match self.free_entries.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        self.entry_slots.insert(id, slot);
        self.index(slot);
    }

    /// A finished workload is forgotten.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.unindex(slot);
        if let Some(entry) = self.entries[slot as usize].take() {
            self.entry_slots.remove(&entry.workload.id);
            self.free_entries.push(slot);
        }
    }

    /// Lets a change happen to a workload.
    pub(crate) fn change(&mut self, slot: u32, change: &Change) -> Result<(), ChangeError> {
        // A reservation changes nothing about why its owner could not take.
        let entry = self.entry(slot);
        let owner = (entry.project, entry.class);
        let keeps = matches!(
            change,
            Change::Decided { action: Action::Reserve { .. } | Action::Unreserve { .. }, .. }
        );
        let closed = if keeps { self.closed(owner.0, owner.1) } else { None };
        self.log.begin_batch();
        self.takeable_log.begin_batch();
        self.unindex(slot);
        let entry = self.entries[slot as usize].as_mut().expect("a slot in use");
        let result = entry.workload.apply(change);
        self.index(slot);
        self.log.end_batch();
        self.takeable_log.end_batch();
        if let Some(closed) = closed {
            self.close_again(owner.0, owner.1, closed);
        }
        result
    }

    pub(crate) fn intern_class(&mut self, spec: &berth_types::WorkloadSpec, project: &Project) -> u32 {
        let project_selector = match spec.kind {
            Kind::Interactive => project.interactive_nodes.clone(),
            _ => project.train_nodes.clone(),
        };
        let key = ShapeKey {
            request: spec.request.clone(),
            selector: spec.selector.clone(),
            project_selector,
            preemptible: spec.preemptible,
            level: spec.topology.required.clone(),
            // One task is always apart.
            apart: spec.spread == Spread::Apart && spec.tasks.max() > 1,
        };
        let shape = match self.shape_ids.get(&key) {
            Some(shape) => *shape,
            None => {
                let shape = Shape::new(&key);
                self.asks_by_memory |= matches!(shape.request.gpu, GpuRequest::Memory { .. });
                let fit = Fit::new(&shape, &self.nodes);
                self.shapes.push((shape, fit));
                self.taking_fits.push(Default::default());
                let id = self.shapes.len() as u32 - 1;
                let twin = ShapeKey { preemptible: !key.preemptible, ..key.clone() };
                // Domains have numbers in the order in which they were seen, which twins need not share.
                let twin =
                    self.shape_ids.get(&twin).filter(|_| !matches!(key.level, Some(TopologyLevel::Label(_))));
                self.taking_shapes.push(twin.copied().unwrap_or(id));
                self.shape_ids.insert(key, id);
                id
            }
        };
        let min = spec.tasks.min();
        if let Some(class) = self.class_ids.get(&(shape, min)) {
            return *class;
        }
        let model = spec.request.named_model().map(|model| intern_model(&mut self.models, model));
        let fit = &self.shapes[shape as usize].1;
        self.classes.push(Class {
            shape,
            min,
            waiting: 0,
            firsts: BTreeSet::new(),
            asked: fit.charge * u64::from(min),
            possible: fit.most_when_empty() >= u64::from(min),
            fits: false,
            round: 0,
            model,
        });
        let id = self.classes.len() as u32 - 1;
        self.class_ids.insert((shape, min), id);
        id
    }

    /// Takes a workload out of every index.
    pub(crate) fn unindex(&mut self, slot: u32) {
        self.project_into_indexes(slot, Sign::Minus);
    }

    /// Puts a workload into every index.
    pub(crate) fn index(&mut self, slot: u32) {
        self.project_into_indexes(slot, Sign::Plus);
    }

    fn project_into_indexes(&mut self, slot: u32, sign: Sign) {
        let entry = self.entries[slot as usize].take().expect("a slot in use");
        let workload = &entry.workload;
        // A workload that only waits gives nobody anything to take.
        if workload.places().next().is_some() || !workload.leaving().is_empty() {
            self.version += 1;
        }
        let held = matches!(workload.phase, Phase::Held { .. });
        for place in workload.places() {
            self.project_place(place, slot, entry.project, held, sign);
        }
        for place in workload.occupied() {
            self.project_occupied(place, sign);
        }
        let non_preemptible = !workload.spec.preemptible;
        let base = self.charge_of(workload.base_places());
        self.tree.charge(entry.project, &base, non_preemptible, sign);
        if workload.extra_places().next().is_some() {
            let extras = workload.extra_places().map(|place| place.gpus().0).sum();
            self.tree.charge_extras(entry.project, extras, sign);
            let none_before = self.extras.is_empty();
            change_set(&mut self.extras, (workload.id, slot), sign);
            if none_before {
                // From now on anybody who may start could take them.
                self.mark_all_heads();
            }
        }
        if let Some(at) = workload.evicted {
            self.queues[entry.project as usize].count_eviction(at, sign);
        }
        self.project_phase(&entry, slot, sign);
        let (project, uses) = (entry.project, workload.places().next().is_some());
        self.entries[slot as usize] = Some(entry);
        self.mark_head(project);
        if uses {
            self.retries.to_reconsider.insert(project);
            self.retries.rooms_moved = true;
            self.mark_siblings(project, non_preemptible, sign);
        }
        self.refresh_above(project);
    }

    /// What a project uses counts for every account above it, so a bound there can bar or free the heads of its
    /// siblings. When it uses less, siblings may also take more, and when it borrows, they may take that in a full department;
    /// both can wait until nobody else is to be served.
    fn mark_siblings(&mut self, project: u32, non_preemptible: bool, sign: Sign) {
        let bounds = |node: &crate::tree::Node| {
            node.limit.is_some() || node.weight == 0 || (non_preemptible && node.has_quota)
        };
        let bounding = self.tree.path(project).skip(1).filter(|(_, node)| bounds(node)).last();
        if let Some((position, _)) = bounding {
            self.mark_below(position);
        }
        if (matches!(sign, Sign::Minus) || self.is_above(project)[0])
            && let Some((top, _)) = self.tree.path(project).skip(1).last()
        {
            self.freed_departments.insert(top);
        }
    }

    /// Looks again at the heads below departments that use less than before, or lend more. Whether there were any.
    pub(crate) fn mark_freed_departments(&mut self) -> bool {
        let freed = std::mem::take(&mut self.freed_departments);
        for position in &freed {
            self.mark_below(*position);
        }
        !freed.is_empty()
    }

    fn project_phase(&mut self, entry: &Entry, slot: u32, sign: Sign) {
        let workload = &entry.workload;
        let waits = match &workload.phase {
            Phase::Queued { .. } | Phase::Stopping { then: AfterStop::Requeue, .. } => true,
            Phase::Held { .. } => {
                change_set(&mut self.held_to_check, (workload.id, slot), sign);
                false
            }
            _ => false,
        };
        if waits {
            let key: QueueKey = (Reverse(workload.spec.priority), workload.submitted, workload.id, slot);
            let standing = self.standing(workload);
            let class = &mut self.classes[entry.class as usize];
            let queue = &mut self.queues[entry.project as usize];
            let before = queue.first_ready(entry.class);
            match sign {
                Sign::Plus => {
                    if queue.add_waiting(entry.class, key, standing) {
                        class.waiting += 1;
                        self.waiting_classes.insert(entry.class);
                    }
                }
                Sign::Minus => {
                    if queue.remove_waiting(entry.class, &key) {
                        class.waiting -= 1;
                        if class.waiting == 0 {
                            self.waiting_classes.remove(&entry.class);
                        }
                    }
                }
            }
            class.change_first(entry.project, before, queue.first_ready(entry.class));
            if class.possible && !self.demand_stale {
                queue.demand = sign.apply(queue.demand, class.asked);
            }
            self.open_claim(entry.project, entry.class);
        }
        if waits || matches!(workload.phase, Phase::Held { .. } | Phase::Running { .. }) {
            self.shares_stale = true;
            self.mix.count(&workload.spec, sign);
        }
        if let Phase::Queued { reservation: Some(reservation) } = &workload.phase {
            change_set(&mut self.reservations, (reservation.since, workload.id, slot), sign);
            self.queues[entry.project as usize].reservation = match sign {
                Sign::Plus => Some(slot),
                Sign::Minus => None,
            };
            for place in &reservation.places {
                self.project_reserved(place, slot, sign);
            }
        }
        if let Phase::Running { since, tasks, .. } = &workload.phase {
            let extras = tasks.iter().filter(|task| task.extra).count() as u32;
            self.project_running(entry, slot, *since, extras, sign);
        }
    }

    fn project_running(&mut self, entry: &Entry, slot: u32, since: Time, extras: u32, sign: Sign) {
        let workload = &entry.workload;
        self.gangs_end_in_parts |= workload.base_places().count() < workload.spec.tasks.min() as usize;
        if let Some(deadline) = self.deadline(entry, since) {
            change_set(&mut self.deadlines, (deadline, workload.id, slot), sign);
        }
        if extras < workload.spec.tasks.extras() {
            change_set(&mut self.elastic, (workload.submitted, workload.id, slot), sign);
        }
        let above = self.queues[entry.project as usize].above;
        for place in workload.extra_places() {
            self.project_takeable(place, &TAKING, sign);
        }
        if workload.spec.preemptible {
            let views = above_views(above);
            for place in workload.base_places() {
                self.project_takeable(place, views, sign);
            }
            let gpus: Gpus = workload.base_places().map(Place::gpus).sum();
            let mut nodes = workload.places().map(|place| place.node);
            let node = nodes.next().filter(|first| nodes.all(|node| node == *first));
            let victim = VictimEntry {
                group: VictimGroup {
                    priority: workload.spec.priority,
                    gpus: gpus.0,
                    checkpoints: workload.checkpoint.is_some(),
                },
                saved: workload.checkpoint.map_or(since, |checkpoint| checkpoint.max(since)),
                started: since,
                id: workload.id,
                slot,
                node: node.and_then(|node| self.node_slot(node)),
            };
            // Most entries wait, and the list grows only when one that is not in it runs.
            if self.briefs.len() <= slot as usize {
                self.briefs.resize(slot as usize + 1, None);
            }
            let brief = matches!(sign, Sign::Plus).then(|| Brief::of(workload, entry.project, since));
            self.briefs[slot as usize] = brief;
            if let Some(node) = victim.node.and_then(|node| self.nodes[node as usize].as_mut()) {
                match brief {
                    Some(brief) => node.victims.push((slot, brief)),
                    None => node.victims.retain(|(of, _)| *of != slot),
                }
            }
            let victims = &mut self.queues[entry.project as usize].victims;
            match sign {
                Sign::Plus => victims.insert(victim),
                Sign::Minus => victims.remove(victim),
            }
        }
    }

    /// Counts a place as one that can be taken in some views. It is decided already, so the node is known to change.
    fn project_takeable(&mut self, place: &Place, views: &[View], sign: Sign) {
        let slot = self.node_slots[&place.node];
        let node = self.nodes[slot as usize].as_mut().expect("a node in the map is there");
        for view in views {
            let free = node.takeable_mut(*view);
            match sign {
                Sign::Plus => free.give(place),
                Sign::Minus => free.take(place),
            }
        }
    }

    /// Notices that a project came above its quota or share, or is no longer. What it runs is counted as takeable, or
    /// not, when somebody next asks what could be taken.
    pub(crate) fn refresh_above(&mut self, project: u32) {
        let above = self.is_above(project);
        let precedence = (above != [false, false]).then(|| Precedence::of(self, project));
        let known = &mut self.queues[project as usize].precedence;
        if *known != precedence {
            if let Some(known) = known {
                self.borrowers.remove(known);
            }
            self.borrowers.extend(precedence);
            *known = precedence;
        }
        if above == self.queues[project as usize].above {
            self.above_stale.remove(&project);
        } else {
            self.above_stale.insert(project);
        }
    }

    fn is_above(&self, project: u32) -> [bool; 2] {
        let node = self.tree.at(project);
        let used = node.used.amounts[GPU];
        let other_dimensions = node.other_quotas != [None; 2] || !node.model_quotas.is_empty();
        [used > node.quota || other_dimensions, used > node.share]
    }

    /// Counts anew what can be taken of projects that came above the line or went below it.
    pub(crate) fn settle_takeable(&mut self) {
        self.takeable_log.begin_batch();
        for project in std::mem::take(&mut self.above_stale) {
            let above = self.is_above(project);
            let before = std::mem::replace(&mut self.queues[project as usize].above, above);
            let slots: Vec<u32> = self.queues[project as usize].victims.slots().collect();
            for slot in slots {
                let entry = self.entries[slot as usize].take().expect("a victim is known");
                for place in entry.workload.base_places() {
                    self.touch_takeable(place.node);
                    self.project_takeable(place, above_views(before), Sign::Minus);
                    self.project_takeable(place, above_views(above), Sign::Plus);
                }
                self.entries[slot as usize] = Some(entry);
            }
        }
        self.takeable_log.end_batch();
    }

    /// When a run that began at `since` must end.
    pub(crate) fn deadline(&self, entry: &Entry, since: Time) -> Option<Time> {
        let workload = &entry.workload;
        let queue = &self.queues[entry.project as usize];
        let by_limit = self.run_limit(entry).map(|limit| since + limit);
        let by_idle = workload.idle_since.zip(queue.idle_limit).map(|(idle, limit)| idle.max(since) + limit);
        by_limit.into_iter().chain(by_idle).min()
    }

    /// How long a run may last: its own maximum, or a limit of its project.
    pub(crate) fn run_limit(&self, entry: &Entry) -> Option<Span> {
        let spec = &entry.workload.spec;
        let queue = &self.queues[entry.project as usize];
        let interactive = (spec.kind == Kind::Interactive).then_some(queue.interactive_time_limit).flatten();
        [spec.max_run, queue.time_limit, interactive].into_iter().flatten().min()
    }

    fn project_place(&mut self, place: &Place, slot: u32, project: u32, held: bool, sign: Sign) {
        let at = self.touch(place.node);
        let node = self.nodes[at as usize].as_mut().expect("was just touched");
        let before = node.capacity();
        match sign {
            Sign::Plus => {
                node.decide(place, sign);
                node.tasks.push(slot);
                node.projects.push(project);
            }
            Sign::Minus => {
                node.decide(place, sign);
                let position =
                    node.tasks.iter().position(|task| *task == slot).expect("a place is in its node");
                node.tasks.swap_remove(position);
                node.projects.swap_remove(position);
            }
        }
        node.held = sign.apply(u64::from(node.held), u64::from(held)) as u32;
        let after = node.capacity();
        if node.ready {
            let gpus = place.gpus().0;
            self.free_gpus = match sign {
                Sign::Plus => self.free_gpus - gpus,
                Sign::Minus => self.free_gpus + gpus,
            };
        }
        self.recount(before, after);
    }

    fn project_occupied(&mut self, place: &Place, sign: Sign) {
        let at = self.touch(place.node);
        let node = self.nodes[at as usize].as_mut().expect("was just touched");
        let before = node.capacity();
        match sign {
            Sign::Plus => {
                node.occupied.take(place);
                node.occupants += 1;
            }
            Sign::Minus => {
                node.occupied.give(place);
                node.occupants -= 1;
                // Most nodes hold nothing for anybody, and that is seen without looking at who is there.
                for task in node.tasks.iter().filter(|_| node.held > 0) {
                    if let Some(entry) = &self.entries[*task as usize]
                        && matches!(entry.workload.phase, Phase::Held { .. })
                    {
                        self.held_to_check.insert((entry.workload.id, *task));
                    }
                }
            }
        }
        let after = node.capacity();
        self.recount(before, after);
    }

    fn recount(&mut self, before: u64, after: u64) {
        if before != after {
            self.capacity = self.capacity - before + after;
            self.shares_stale = true;
        }
    }

    fn project_reserved(&mut self, place: &Place, slot: u32, sign: Sign) {
        let Some(at) = self.node_slot(place.node) else { return };
        self.version += 1;
        // Who keeps off reservations sees another pool now.
        self.mark_all_heads();
        self.touch(place.node);
        let node = self.nodes[at as usize].as_mut().expect("was just touched");
        match sign {
            Sign::Plus => node.reserved.push((slot, place.clone())),
            Sign::Minus => {
                if let Some(position) =
                    node.reserved.iter().position(|(owner, of)| *owner == slot && of == place)
                {
                    node.reserved.remove(position);
                }
            }
        }
    }

    /// Notes that what is free on a node changes.
    fn touch(&mut self, id: NodeId) -> u32 {
        let slot = self.touch_takeable(id);
        self.log.push(slot, self.nodes.len());
        self.nodes[slot as usize].as_mut().expect("was just touched").version += 1;
        slot
    }

    /// Notes that what could be taken on a node changes.
    fn touch_takeable(&mut self, id: NodeId) -> u32 {
        let slot = self.node_slots[&id];
        self.takeable_log.push(slot, self.nodes.len());
        let node = self.nodes[slot as usize].as_mut().expect("a node in the map is there");
        node.takeable_version += 1;
        slot
    }

    /// What places cost: GPUs in all and by model, CPU, memory.
    pub(crate) fn charge_of<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Charge {
        let mut charge = Charge::default();
        for place in places {
            let node = self.node(self.node_slots[&place.node]);
            charge.amounts[1] += place.cpu.0;
            charge.amounts[2] += place.memory.0;
            for taken in &place.devices {
                let gpus = u64::from(taken.share.millionths());
                charge.amounts[0] += gpus;
                let name = &node.devices[taken.device as usize].model;
                let Some(model) = self.models.iter().position(|known| known == name) else { continue };
                match charge.models.iter_mut().find(|(of, _)| *of == model) {
                    Some((_, sum)) => *sum += gpus,
                    None => charge.models.push((model, gpus)),
                }
            }
        }
        charge
    }

    /// Divides fair shares anew if anything they depend on changed.
    pub(crate) fn refresh_shares(&mut self) {
        if !self.shares_stale {
            return;
        }
        self.shares_stale = false;
        if std::mem::take(&mut self.demand_stale) {
            for queue in &mut self.queues {
                let waiting = queue.counts().map(|(class, count)| (&self.classes[class as usize], count));
                let possible = waiting.filter(|(class, _)| class.possible);
                queue.demand = possible.map(|(class, count)| class.asked * count).sum();
            }
        }
        let queues = &self.queues;
        let changed = self.tree.divide(self.capacity, |project| queues[project as usize].demand);
        if !changed.is_empty() {
            self.version += 1;
        }
        for position in changed {
            // Who is first below an account does not depend on its share, but who is first beside it does.
            self.mark_head(self.tree.at(position).parent);
            self.refresh_above(position);
            self.retries.shares_moved = true;
        }
    }

    fn mark_below(&mut self, position: u32) {
        if !self.queues[position as usize].nobody_waits() {
            self.mark_head(position);
            self.retries.to_reconsider.insert(position);
        }
        for child in self.tree.at(position).children.clone() {
            self.mark_below(child);
        }
    }
}

/// The views in which work of a project is taken, by whether it is above its quota and its share.
fn above_views(above: [bool; 2]) -> &'static [View] {
    match above {
        [false, false] => &[],
        [true, false] => &[View::Quota],
        [false, true] => &[View::Share],
        [true, true] => &[View::Quota, View::Share],
    }
}

fn change_set<T: Ord>(set: &mut BTreeSet<T>, item: T, sign: Sign) {
    match sign {
        Sign::Plus => set.insert(item),
        Sign::Minus => set.remove(&item),
    };
}

pub(crate) fn intern_model(models: &mut Vec<Name>, model: &Name) -> usize {
    match models.iter().position(|known| known == model) {
        Some(position) => position,
        None => {
            models.push(model.clone());
            models.len() - 1
        }
    }
}
