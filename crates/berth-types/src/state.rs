//! The state of a whole installation, as plain data.

use crate::{
    Bytes, Change, ChangeError, Cpu, Department, DepartmentId, Entitlement, GpuRequest, Gpus, Node, NodeId,
    Project, ProjectId, Workload, WorkloadId, WorkloadSpec,
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
    pub workloads: BTreeMap<WorkloadId, Workload>,
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
                if self.places_on(*id).next().is_some() {
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
                self.workloads.insert(workload.id, workload.clone());
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
                self.workloads.get_mut(&id).ok_or(ChangeError::UnknownWorkload(id))?.apply(change)?;
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

    /// Whose places are on a node: decided, running or leaving.
    fn places_on(&self, node: NodeId) -> impl Iterator<Item = &crate::Place> {
        self.workloads
            .values()
            .flat_map(|workload| workload.places().chain(workload.leaving()))
            .filter(move |place| place.node == node)
    }

    /// Reservations that name a node which goes or changes size are gone with it.
    fn drop_reservations_on(&mut self, node: NodeId) {
        for workload in self.workloads.values_mut().filter(|workload| workload.reserved_on(node)) {
            workload.phase = crate::Phase::Queued { reservation: None };
        }
    }

    fn validate_shrink(&self, node: &Node) -> Result<(), ChangeError> {
        match self.nodes.get(&node.id) {
            Some(known)
                if known.devices != node.devices || known.cpu != node.cpu || known.memory != node.memory =>
            {
                match self.places_on(node.id).next() {
                    Some(_) => Err(ChangeError::InUse(format!("node {}", node.name))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
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
    if node.cpu > Cpu::MAX || node.memory > Bytes::MAX {
        return invalid("CPU or memory is too large".into());
    }
    Ok(())
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
