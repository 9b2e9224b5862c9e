//! Departments and projects, and the namespaces that belong to them.

use super::{Effect, World};
use crate::{
    api, convert,
    seen::{Refusal, Text},
    tenancy,
};
use berth_types::{Change, DepartmentId, ProjectId};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Who owns quota.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    departments: BTreeMap<Text, Owner<DepartmentId, api::Department>>,
    projects: BTreeMap<Text, Owner<ProjectId, api::Project>>,
    /// Who pays for what lives in a namespace.
    namespaces: HashMap<Text, Payer>,
    /// Something changed of which the engine was not told.
    stale: bool,
}

/// A project as a namespace that it lists sees it.
#[derive(Debug)]
struct Payer {
    id: ProjectId,
    object: Arc<api::Project>,
    /// Why it pays for nothing, if it does not.
    refused: Option<String>,
}

impl Payer {
    /// Whether nothing changed for what lives in the namespace.
    fn is_same(&self, other: &Self) -> bool {
        let (object, others) = (&self.object, &other.object);
        self.id == other.id
            && self.refused == other.refused
            && (Arc::ptr_eq(object, others) || object.spec == others.spec)
    }
}

/// An owner, and whether the engine took it as it is.
#[derive(Debug)]
struct Owner<Id, Object> {
    id: Id,
    object: Arc<Object>,
    refused: Option<String>,
    told: bool,
}

impl Owners {
    /// The project that pays for what lives in a namespace.
    pub(crate) fn project_of(&self, namespace: &str) -> Result<(ProjectId, &Arc<api::Project>), Refusal> {
        let none = || {
            Refusal::new(
                "NoProject",
                format!("namespace {namespace} belongs to no project; list it in the namespaces of one"),
            )
        };
        let payer = self.namespaces.get(namespace).ok_or_else(none)?;
        match &payer.refused {
            None => Ok((payer.id, &payer.object)),
            Some(text) => {
                let name = payer.object.metadata.name.as_deref().unwrap_or_default();
                Err(Refusal::new("ProjectRefused", format!("project {name} cannot be used: {text}")))
            }
        }
    }

    pub(crate) fn projects(&self) -> impl Iterator<Item = &Arc<api::Project>> {
        self.projects.values().map(|owner| &owner.object)
    }

    pub(crate) fn departments(&self) -> impl Iterator<Item = &Arc<api::Department>> {
        self.departments.values().map(|owner| &owner.object)
    }

    pub(crate) fn project_name(&self, id: ProjectId) -> Option<&Text> {
        self.projects.iter().find(|(_, owner)| owner.id == id).map(|(name, _)| name)
    }
}

/// Parents before children, as far as one object tells.
pub(super) fn depth_hint(department: &api::Department) -> u64 {
    u64::from(department.spec.parent.is_some())
}

impl World {
    pub(super) fn on_department(&mut self, department: Arc<api::Department>) {
        let name: Text = department.metadata.name.as_deref().unwrap_or_default().into();
        let id = match self.owners.departments.get(&name) {
            Some(owner) => owner.id,
            None => DepartmentId(self.draw()),
        };
        let told = self.owners.departments.get(&name).is_some_and(|owner| owner.told);
        let owner = Owner { id, object: department, refused: None, told };
        self.owners.departments.insert(name, owner);
        self.owners.stale = true;
    }

    pub(super) fn on_department_gone(&mut self, name: &Text) {
        let Some(owner) = self.owners.departments.remove(name) else { return };
        // Those inside of it are told first that it is no longer above them.
        self.owners.stale = true;
        self.tell_owners();
        if owner.told {
            self.must(&Change::DepartmentRemoved(owner.id));
        }
    }

    pub(super) fn on_project(&mut self, project: Arc<api::Project>) {
        let name: Text = project.metadata.name.as_deref().unwrap_or_default().into();
        let id = match self.owners.projects.get(&name) {
            Some(owner) => owner.id,
            None => ProjectId(self.draw()),
        };
        let known = self.owners.projects.get(&name);
        let told = known.is_some_and(|owner| owner.told);
        if known.is_none_or(|owner| owner.object.spec != project.spec) {
            self.effects.push(Effect::Tenancy(Arc::clone(&project)));
        }
        self.owners.projects.insert(name, Owner { id, object: project, refused: None, told });
        self.owners.stale = true;
    }

    /// A project whose namespace is gone gets another.
    pub(super) fn on_namespace_gone(&mut self, name: &Text) {
        let payer = self.owners.namespaces.get(name).map(|payer| payer.id);
        // As it is now: it may have gone with its namespace.
        if let Some(owner) = self.owners.projects.values().find(|owner| Some(owner.id) == payer) {
            self.effects.push(Effect::Tenancy(Arc::clone(&owner.object)));
        }
    }

    /// What still runs for a project that is gone is counted for nobody, so it is lost to the engine first.
    pub(super) fn on_project_gone(&mut self, name: &Text) {
        let Some(owner) = self.owners.projects.remove(name) else { return };
        self.owners.stale = true;
        let work: Vec<_> = self
            .engine
            .workloads()
            .filter(|workload| workload.spec.project == owner.id)
            .map(|one| one.id)
            .collect();
        for id in work {
            self.forget_in_engine(id);
            self.dirty.insert(id);
        }
        if owner.told {
            self.must(&Change::ProjectRemoved(owner.id));
        }
    }

    fn map_namespaces(&mut self) {
        let owners = &mut self.owners;
        let before = std::mem::take(&mut owners.namespaces);
        // Of two projects that list the same namespace, the first by name has it.
        for owner in owners.projects.values().rev() {
            for namespace in tenancy::namespaces(&owner.object) {
                let refused = owner.refused.clone().filter(|_| !owner.told);
                let payer = Payer { id: owner.id, object: Arc::clone(&owner.object), refused };
                owners.namespaces.insert(namespace.as_str().into(), payer);
            }
        }
        // Whoever waited for a project may have one now, and whoever had one may not.
        let is_same = |name: &Text| match (before.get(name), owners.namespaces.get(name)) {
            (Some(old), Some(new)) => old.is_same(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let concerned =
            self.groups.iter().filter(|(_, group)| group.refusal.is_some() || !is_same(&group.namespace));
        self.dirty.extend(concerned.map(|(id, _)| *id));
    }

    /// Tells the engine every owner that it does not know as it is. What cannot be yet, because a parent is missing, is tried
    /// again whenever an owner changes.
    pub(super) fn tell_owners(&mut self) {
        if !std::mem::take(&mut self.owners.stale) {
            return;
        }
        let ids: BTreeMap<Text, DepartmentId> =
            self.owners.departments.iter().map(|(name, owner)| (name.clone(), owner.id)).collect();
        let lookup = |name: &str| ids.get(name).copied();
        // A chain of parents is at most as long as there are departments.
        let mut left: Vec<Text> = ids.keys().cloned().collect();
        loop {
            let before = left.len();
            left.retain(|name| {
                let owner = self.owners.departments.get_mut(name).expect("a known department");
                let told = convert::department(&owner.object, owner.id, lookup)
                    .map_err(|refusal| refusal.message)
                    .and_then(|department| {
                        if self.engine.departments().get(&owner.id) == Some(&department) {
                            return Ok(());
                        }
                        self.engine
                            .apply(&Change::DepartmentSet(department))
                            .map_err(|error| error.to_string())
                    });
                owner.told |= told.is_ok();
                owner.refused = told.err();
                owner.refused.is_some()
            });
            if left.len() == before || left.is_empty() {
                break;
            }
        }
        for owner in self.owners.projects.values_mut() {
            let told = convert::project(&owner.object, owner.id, lookup)
                .map_err(|refusal| refusal.message)
                .and_then(|project| {
                    if self.engine.projects().get(&owner.id) == Some(&project) {
                        return Ok(());
                    }
                    self.engine.apply(&Change::ProjectSet(project)).map_err(|error| error.to_string())
                });
            owner.told |= told.is_ok();
            owner.refused = told.err();
        }
        self.map_namespaces();
    }
}
