//! The state of a whole installation, as plain data.

use crate::{
    Bytes, Change, ChangeError, Cpu, Department, DepartmentId, Entitlement, GpuRequest, Gpus, Node, NodeId,
    Phase, Place, Project, ProjectId, Workload, WorkloadSpec, Workloads,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that is. Grows only by [`State::apply`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Departments.
    pub departments: BTreeMap<DepartmentId, Department>,
    /// Projects.
    pub projects: BTreeMap<ProjectId, Project>,
    /// Workloads, finished ones until they are forgotten.
    pub workloads: Workloads,
}

impl State {
    /// Lets a change happen, or says why it cannot; nothing has changed then.
    pub fn apply(&mut self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::NodeSet(node) => {
                validate_node(node)?;
                self.validate_shrink(node)?;
                if self.nodes.get(&node.id).is_some_and(|known| !known.same_capacity(node)) {
                    self.drop_reservations_on(node.id);
                }
                self.nodes.insert(node.id, node.clone());
            }
            Change::NodeRemoved(id) => {
                if self.workloads.on_node(*id).next().is_some() {
                    return Err(ChangeError::InUse(format!("node {id}")));
                }
                self.nodes.remove(id).ok_or(ChangeError::UnknownNode(*id))?;
                self.drop_reservations_on(*id);
            }
            Change::DepartmentSet(department) => {
                self.validate_department(department)?;
                self.departments.insert(department.id, department.clone());
            }
            Change::DepartmentRemoved(id) => {
                let children = self.departments.values().any(|department| department.parent == Some(*id));
                if children || self.projects.values().any(|project| project.department == Some(*id)) {
                    return Err(ChangeError::InUse(format!("department {id}")));
                }
                self.departments.remove(id).ok_or(ChangeError::UnknownDepartment(*id))?;
            }
            Change::ProjectSet(project) => {
                if let Some(department) = project.department.filter(|id| !self.departments.contains_key(id)) {
                    return Err(ChangeError::UnknownDepartment(department));
                }
                project.entitlements.values().try_for_each(validate_entitlement)?;
                self.projects.insert(project.id, project.clone());
            }
            Change::ProjectRemoved(id) => {
                if self.workloads.values().any(|workload| workload.spec.project == *id) {
                    return Err(ChangeError::InUse(format!("project {id}")));
                }
                self.projects.remove(id).ok_or(ChangeError::UnknownProject(*id))?;
            }
            Change::Submitted(workload) => {
                if self.workloads.contains_key(&workload.id) {
                    return Err(ChangeError::DuplicateWorkload(workload.id));
                }
                if !self.projects.contains_key(&workload.spec.project) {
                    return Err(ChangeError::UnknownProject(workload.spec.project));
                }
                validate_submission(workload)?;
                self.validate_phase(workload)?;
                self.workloads.insert(workload.clone());
            }
            Change::Forgotten(id) => {
                let workload = self.workloads.get(id).ok_or(ChangeError::UnknownWorkload(*id))?;
                if !workload.is_finished() {
                    return Err(ChangeError::InUse(format!("workload {id}")));
                }
                self.workloads.remove(id);
            }
            _ => {
                let id = change.workload().expect("every other change is about a workload");
                let unknown = ChangeError::UnknownWorkload(id);
                // Only decisions give places.
                if let Change::Decided { .. } = change {
                    let mut changed = self.workloads.get(&id).ok_or(unknown)?.clone();
                    changed.apply(change)?;
                    self.validate_phase(&changed)?;
                    self.workloads.insert(changed);
                } else {
                    self.workloads.get_mut(&id).ok_or(unknown)?.apply(change)?;
                }
            }
        }
        Ok(())
    }

    /// Everything that must be applied to nothing to arrive at this state's nodes, departments, projects and
    /// workloads, parents before children.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes: Vec<_> = self.nodes.values().cloned().map(Change::NodeSet).collect();
        let mut departments: Vec<_> = self.departments.values().collect();
        departments.sort_by_key(|department| (self.ancestors(department.parent).count(), department.id));
        changes.extend(departments.into_iter().cloned().map(Change::DepartmentSet));
        changes.extend(self.projects.values().cloned().map(Change::ProjectSet));
        changes.extend(self.workloads.values().cloned().map(Change::Submitted));
        changes
    }

    /// A department and those above it, nearest first.
    pub fn ancestors(&self, from: Option<DepartmentId>) -> impl Iterator<Item = &Department> {
        std::iter::successors(from.and_then(|id| self.departments.get(&id)), |department| {
            department.parent.and_then(|id| self.departments.get(&id))
        })
    }

    /// Reservations that name a node which goes or changes size are gone with it.
    fn drop_reservations_on(&mut self, node: NodeId) {
        let reserved = self.workloads.values().filter(|workload| workload.reserved_on(node));
        let reserved: Vec<Workload> = reserved.cloned().collect();
        for workload in reserved {
            self.workloads.insert(Workload { phase: Phase::Queued { reservation: None }, ..workload });
        }
    }

    fn validate_shrink(&self, node: &Node) -> Result<(), ChangeError> {
        match self.nodes.get(&node.id) {
            Some(known) if !known.same_capacity(node) => match self.workloads.on_node(node.id).next() {
                Some(_) => Err(ChangeError::InUse(format!("node {}", node.name))),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Whether the places of a workload can be, and are free of all others.
    fn validate_phase(&self, workload: &Workload) -> Result<(), ChangeError> {
        validate_places(workload, |id| self.nodes.get(&id))?;
        let named: std::collections::BTreeSet<NodeId> =
            workload.places().chain(workload.leaving()).map(|place| place.node).collect();
        for id in named {
            let node = &self.nodes[&id];
            let others = || self.workloads.on_node(id).filter(|other| other.id != workload.id);
            let here = |place: &&Place| place.node == id;
            let decided = others().flat_map(Workload::places).chain(workload.places()).filter(here);
            let occupied = others().flat_map(Workload::occupied).chain(workload.occupied()).filter(here);
            if !holds_all(node, decided) || !holds_all(node, occupied) {
                return Err(no_room(workload));
            }
        }
        Ok(())
    }

    /// Levels of departments from this one down, itself included.
    fn levels_from(&self, id: DepartmentId) -> usize {
        if !self.departments.contains_key(&id) {
            return 1;
        }
        let depths = self
            .departments
            .values()
            .filter_map(|department| self.ancestors(Some(department.id)).position(|above| above.id == id));
        1 + depths.max().unwrap_or(0)
    }

    fn validate_department(&self, department: &Department) -> Result<(), ChangeError> {
        if let Some(parent) = department.parent {
            if !self.departments.contains_key(&parent) && parent != department.id {
                return Err(ChangeError::UnknownDepartment(parent));
            }
            if parent == department.id || self.ancestors(Some(parent)).any(|above| above.id == department.id)
            {
                return Err(ChangeError::CyclicDepartment(department.id));
            }
        }
        let levels = self.ancestors(department.parent).count() + self.levels_from(department.id);
        if levels > Department::LEVELS_MAX {
            return Err(ChangeError::Invalid(format!(
                "department {}: {levels} levels of departments; at most {} are supported",
                department.name,
                Department::LEVELS_MAX
            )));
        }
        department.entitlements.values().try_for_each(validate_entitlement)
    }
}

/// Whether a node is one that Berth can hold.
pub fn validate_node(node: &Node) -> Result<(), ChangeError> {
    let invalid = |text: String| Err(ChangeError::Invalid(format!("node {}: {text}", node.name)));
    if node.devices.len() > Node::DEVICES_MAX {
        return invalid(format!(
            "{} devices; at most {} are supported",
            node.devices.len(),
            Node::DEVICES_MAX
        ));
    }
    if node.devices.iter().any(|device| device.memory.is_zero() || device.memory > Bytes::MAX) {
        return invalid("a device needs memory".into());
    }
    if node.cpu > Node::CPU_MAX || node.memory > Node::MEMORY_MAX {
        return invalid("CPU or memory is too large".into());
    }
    Ok(())
}

/// Whether the phase of a workload names places that can be: on nodes of its pool and devices they have, one for each
/// task it asked for. What others use is not looked at.
pub fn validate_places<'a>(
    workload: &Workload,
    node: impl Fn(NodeId) -> Option<&'a Node>,
) -> Result<(), ChangeError> {
    let invalid = |text: &str| Err(ChangeError::Invalid(format!("workload {}: {text}", workload.id)));
    let (min, max) = (workload.spec.tasks.min(), workload.spec.tasks.max());
    let (base, extras) = (workload.base_places().count(), workload.extra_places().count());
    let reserved = workload.reserved_places();
    let counted = match &workload.phase {
        Phase::Queued { reservation } => reservation.is_none() || reserved.len() == min as usize,
        Phase::Held { .. } => base == min as usize,
        // A task of the minimum that did its work is gone before the others.
        Phase::Running { .. } => (1..=min as usize).contains(&base) && extras <= (max - min) as usize,
        Phase::Stopping { leaving, .. } => !leaving.is_empty(),
        Phase::Finished { .. } => true,
    };
    if !counted {
        return invalid("has more or fewer places than tasks");
    }
    if workload.base_places().chain(reserved).any(|place| place.rank >= min)
        || workload.extra_places().any(|place| place.rank < min)
    {
        return invalid("has a task of its minimum among its extras, or an extra in its minimum");
    }
    // One that is moved leaves with the ranks it comes back with.
    let returns = matches!(workload.phase, Phase::Held { .. });
    let named: [Vec<&Place>; 3] = match returns {
        true => [workload.places().collect(), workload.leaving().iter().collect(), Vec::new()],
        false => {
            [workload.places().chain(workload.leaving()).collect(), Vec::new(), reserved.iter().collect()]
        }
    };
    for places in named {
        let mut ranks: Vec<u32> = places.iter().map(|place| place.rank).collect();
        ranks.sort_unstable();
        if ranks.windows(2).any(|pair| pair[0] == pair[1]) || ranks.last().is_some_and(|rank| *rank >= max) {
            return invalid("names a task twice, or one it does not have");
        }
        for place in places {
            let node = node(place.node).ok_or(ChangeError::UnknownNode(place.node))?;
            if node.pool() != workload.spec.pool {
                return invalid("has a place in another pool");
            }
            let rising = place.devices.windows(2).all(|pair| pair[0].device < pair[1].device);
            let devices = place.devices.last().map_or(0, |taken| usize::from(taken.device) + 1);
            if !rising || devices > node.devices.len() || place.cpu > node.cpu || place.memory > node.memory {
                return invalid("has a place that its node does not have");
            }
        }
    }
    Ok(())
}

/// The error of a workload whose places others use.
pub fn no_room(workload: &Workload) -> ChangeError {
    ChangeError::Invalid(format!("workload {}: its places are not free", workload.id))
}

/// Whether a node holds all of these places at once.
fn holds_all<'a>(node: &Node, places: impl Iterator<Item = &'a Place>) -> bool {
    let mut devices = vec![Gpus::ZERO; node.devices.len()];
    let (mut cpu, mut memory) = (Cpu::ZERO, Bytes::ZERO);
    for place in places {
        for taken in &place.devices {
            devices[usize::from(taken.device)] += taken.share.gpus();
        }
        cpu = cpu.saturating_add(place.cpu);
        memory = memory.saturating_add(place.memory);
    }
    devices.iter().all(|used| *used <= Gpus::ONE) && cpu <= node.cpu && memory <= node.memory
}

/// Whether an entitlement is within its bounds.
pub fn validate_entitlement(entitlement: &Entitlement) -> Result<(), ChangeError> {
    let gpus = [entitlement.quota, entitlement.limit, entitlement.weight];
    let models = entitlement.model_quotas.values().copied().map(Some);
    if gpus.into_iter().chain(models).flatten().any(|amount| amount > Gpus::MAX) {
        return Err(ChangeError::Invalid(format!("a quota, limit or weight is above {}", Gpus::MAX)));
    }
    Ok(())
}

/// Whether a submitted workload is within its bounds.
pub fn validate_submission(workload: &Workload) -> Result<(), ChangeError> {
    let WorkloadSpec { request, tasks, .. } = &workload.spec;
    let invalid = |text: &str| Err(ChangeError::Invalid(format!("workload {}: {text}", workload.spec.name)));
    let tasks = u64::from(tasks.max());
    if request.cpu.times(tasks) > Cpu::MAX || request.memory.times(tasks) > Bytes::MAX {
        return invalid("CPU or memory is too large");
    }
    if let GpuRequest::Memory { bytes, .. } = request.gpu
        && Bytes(bytes.get()) > Bytes::MAX
    {
        return invalid("GPU memory is too large");
    }
    if request.gpu == GpuRequest::None && !request.models.is_empty() {
        return invalid("names a GPU model but asks for no GPU");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Time, WorkloadId};

    fn department(id: u64, parent: Option<u64>) -> Change {
        Change::DepartmentSet(Department {
            id: DepartmentId(id),
            name: format!("d{id}"),
            parent: parent.map(DepartmentId),
            entitlements: BTreeMap::new(),
        })
    }

    fn running(id: u64, node: u64) -> Workload {
        let request = crate::Request {
            gpu: GpuRequest::None,
            models: Default::default(),
            cpu: Cpu::cores(3),
            memory: Bytes::ZERO,
        };
        let place =
            Place { rank: 0, node: NodeId(node), devices: vec![], cpu: request.cpu, memory: request.memory };
        let spec = WorkloadSpec {
            name: format!("w{id}"),
            project: ProjectId(1),
            user: "u".into(),
            kind: crate::Kind::Train,
            request,
            tasks: crate::Tasks::ONE,
            pool: crate::default_pool(),
            selector: Default::default(),
            topology: Default::default(),
            spread: Default::default(),
            priority: 50,
            preemptible: true,
            max_run: None,
            retry_limit: 0,
            grace: crate::Span::ZERO,
        };
        let mut workload = Workload::submitted(WorkloadId(id), spec, Time(0));
        let tasks = vec![crate::Task { place, extra: false }];
        let since = Time(0);
        workload.phase = Phase::Running { tasks, leaving: vec![], since, confirmed: true, passing: false };
        workload
    }

    #[test]
    fn who_is_on_a_node_is_known_after_every_change() {
        let mut state = State::default();
        for id in [1, 2] {
            let condition = crate::NodeCondition::Ready;
            let (cpu, memory) = (Cpu::cores(4), Bytes::ZERO);
            let (name, devices, labels) = (format!("n{id}"), vec![], BTreeMap::new());
            let node = Node { id: NodeId(id), name, devices, cpu, memory, labels, condition };
            state.apply(&Change::NodeSet(node)).expect("a node");
        }
        state.apply(&Change::ProjectSet(Project::named(ProjectId(1), "p"))).expect("a project");
        state.apply(&Change::Submitted(running(1, 1))).expect("there is room");
        assert!(state.apply(&Change::Submitted(running(2, 1))).is_err(), "there is room for one");
        let workload = WorkloadId(1);
        let moved: Vec<Place> = running(1, 2).places().cloned().collect();
        let action = Action::Move { workload, places: moved, winner: None, lost: 0 };
        state.apply(&Change::Decided { action, at: Time(1) }).expect("there is room");
        let on = |state: &State, node: u64| state.workloads.on_node(NodeId(node)).count();
        assert_eq!((on(&state, 1), on(&state, 2)), (1, 1), "it leaves one and is held on the other");
        assert!(state.apply(&Change::NodeRemoved(NodeId(1))).is_err());
        state.apply(&Change::Stopped { workload, rank: 0, at: Time(2) }).expect("it was leaving");
        assert_eq!((on(&state, 1), on(&state, 2)), (0, 1));
        assert_eq!(state.apply(&Change::NodeRemoved(NodeId(1))), Ok(()));
        assert!(state.apply(&Change::Submitted(running(2, 2))).is_err(), "what is held counts");
    }

    fn too_deep(name: &str) -> Result<(), ChangeError> {
        let text = format!("department {name}: 17 levels of departments; at most 16 are supported");
        Err(ChangeError::Invalid(text))
    }

    #[test]
    fn departments_are_nested_to_a_bounded_depth() {
        let mut state = State::default();
        for id in 1..=16 {
            state.apply(&department(id, (id > 1).then(|| id - 1))).expect("within the bound");
        }
        assert_eq!(state.apply(&department(17, Some(16))), too_deep("d17"));
        assert_eq!(state.apply(&department(17, Some(15))), Ok(()));
        // A chain cannot become longer at its upper end either.
        state.apply(&department(18, None)).expect("a chain of its own");
        assert_eq!(state.apply(&department(1, Some(18))), too_deep("d1"));
        assert_eq!(state.apply(&department(2, Some(18))), Ok(()));
    }
}
