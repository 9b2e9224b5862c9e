//! Commands about nodes, departments, projects and volumes.

use super::{
    Happened, Platform,
    record::{VolumeKey, VolumeRecord},
};
use crate::names;
use berth_api::{Code, DepartmentSettings, Problem, ProjectSettings};
use berth_types::{
    Bytes, Department, DepartmentId, Entitlement, Gpus, Name, Node, NodeCondition, NodeId, Project,
    ProjectId, Selector, Span, Time, default_pool,
};
use std::collections::BTreeMap;

/// The most projects, departments or volumes there can be.
const OWNERS_MAX: usize = 100_000;

impl Platform {
    /// Sets the nodes of a start. A node that the start does not name is removed when no work is on it; otherwise it stays,
    /// cordoned, and is open again when a later start names it. A cordon by an administrator lasts over both.
    pub(crate) fn set_nodes(&mut self, nodes: Vec<Node>, now: Time) -> Result<(), Problem> {
        for mut node in nodes.clone() {
            let known = self.nodes.get(&node.name).and_then(|id| self.engine.nodes().get(id));
            node.id = known.map_or_else(|| NodeId(self.next_id()), |known| known.id);
            self.label_by_hand(&mut node);
            if let Some(known) = known {
                let is_back = self.missing.contains(&known.id);
                node.condition = if is_back { NodeCondition::Ready } else { known.condition };
                if *known == node {
                    continue;
                }
            }
            let draining = self.draining.contains(&node.id);
            self.happen(Happened::Node { node, draining, missing: false }, now)?;
        }
        let gone: Vec<_> =
            self.nodes.iter().filter(|(name, _)| !nodes.iter().any(|node| node.name == **name)).collect();
        let gone: Vec<(String, NodeId)> = gone.into_iter().map(|(name, id)| (name.clone(), *id)).collect();
        self.unnamed = gone.iter().map(|(_, id)| *id).collect();
        for (name, id) in gone {
            let in_use = self
                .engine
                .workloads()
                .any(|workload| workload.places().chain(workload.leaving()).any(|place| place.node == id));
            let known = &self.engine.nodes()[&id];
            if in_use && known.condition == NodeCondition::Ready {
                let node = Node { condition: NodeCondition::Cordoned, ..known.clone() };
                self.happen(Happened::Node { node, draining: false, missing: true }, now)?;
            } else if !in_use {
                self.happen(Happened::NodeRemoved { id, name }, now)?;
            }
        }
        Ok(())
    }

    /// Cordons a node or takes it back in.
    pub(crate) fn set_condition(
        &mut self,
        name: &str,
        condition: NodeCondition,
        draining: bool,
        now: Time,
    ) -> Result<(), Problem> {
        let id = self.known_node(name)?;
        let known = &self.engine.nodes()[&id];
        let is_missing = self.missing.contains(&id);
        if self.unnamed.contains(&id) && condition == NodeCondition::Ready {
            let text = format!("node {name} is not among the nodes that this server was started with");
            return Err(Problem::new(Code::WrongState, text).hint(
                "the first start after its last workload has ended removes it; `berth up --change --nodes NODES` adds nodes",
            ));
        }
        if known.condition == condition && self.draining.contains(&id) == draining && !is_missing {
            return Ok(());
        }
        let node = Node { condition, ..known.clone() };
        self.happen(Happened::Node { node, draining, missing: false }, now)
    }

    /// Cordons a node and stops what is on it; it returns to the queue with its place.
    pub(crate) fn drain_node(&mut self, name: &str, now: Time) -> Result<(), Problem> {
        let id = self.known_node(name)?;
        self.set_condition(name, NodeCondition::Cordoned, true, now)?;
        let here = self.engine.workloads().filter(|workload| workload.places().any(|place| place.node == id));
        let here: Vec<_> = here.map(|workload| workload.id).collect();
        for workload in here {
            self.drain(workload, &format!("draining of {name}"), now);
        }
        Ok(())
    }

    /// Nodes that are to be emptied.
    pub(crate) fn is_draining(&self, id: NodeId) -> bool {
        self.draining.contains(&id)
    }

    pub(crate) fn known_node(&self, name: &str) -> Result<NodeId, Problem> {
        self.nodes
            .get(name)
            .copied()
            .ok_or_else(|| unknown("node", name, self.nodes.keys(), "`berth node list` shows all"))
    }

    /// Makes a project.
    pub(crate) fn create_project(
        &mut self,
        settings: &ProjectSettings,
        now: Time,
    ) -> Result<(ProjectId, Vec<String>), Problem> {
        let name = required_name(settings.name.as_ref())?;
        if self.projects.contains_key(name) {
            return Err(exists("project", name, "berth project update"));
        }
        bounded("projects", self.projects.len())?;
        let id = ProjectId(self.next_id());
        let project = self.with_settings(Project::named(id, name.clone()), settings)?;
        let warnings = self.quota_warnings(&project);
        self.happen(Happened::Project { project }, now)?;
        Ok((id, warnings))
    }

    /// Changes a project.
    pub(crate) fn update_project(
        &mut self,
        name: &str,
        settings: &ProjectSettings,
        now: Time,
    ) -> Result<(ProjectId, Vec<String>), Problem> {
        if settings.name.as_ref().is_some_and(|other| other != name) {
            return Err(Problem::invalid("name", "a project keeps its name"));
        }
        let id = self.find_project(name)?;
        let project = self.with_settings(self.engine.projects()[&id].clone(), settings)?;
        let mut warnings = self.quota_warnings(&project);
        warnings.extend(self.project_lowered(&project, now));
        self.happen(Happened::Project { project }, now)?;
        Ok((id, warnings))
    }

    /// Deletes a project that has no unfinished work.
    pub(crate) fn delete_project(&mut self, name: &str, now: Time) -> Result<(), Problem> {
        let id = self.find_project(name)?;
        let count = self.records.values().filter(|record| record.project == id).count();
        if count > 0 {
            let text = format!("project {name} has {count} unfinished workloads");
            return Err(Problem::new(Code::InUse, text)
                .hint(format!("`berth list -p {name}` shows them; delete them first")));
        }
        self.happen(Happened::ProjectRemoved { id, name: name.into() }, now)
    }

    pub(crate) fn find_project(&self, name: &str) -> Result<ProjectId, Problem> {
        self.projects.get(name).copied().ok_or_else(|| {
            unknown(
                "project",
                name,
                self.projects.keys(),
                "`berth project list` shows all, `berth project create NAME` makes one",
            )
        })
    }

    pub(crate) fn find_department(&self, name: &str) -> Result<DepartmentId, Problem> {
        self.departments.get(name).copied().ok_or_else(|| {
            unknown("department", name, self.departments.keys(), "`berth department list` shows all")
        })
    }

    fn with_settings(&self, mut project: Project, settings: &ProjectSettings) -> Result<Project, Problem> {
        if let Some(department) = &settings.department {
            project.department =
                if department.is_empty() { None } else { Some(self.find_department(department)?) };
        }
        let pool = self.pool_name(settings.node_pool.as_ref())?;
        let entitlement = project.entitlements.entry(pool).or_default();
        set(&mut entitlement.quota, settings.quota.map(|amount| amount.0));
        set(&mut entitlement.limit, settings.limit.map(|amount| amount.0));
        set(&mut entitlement.weight, settings.weight.map(|amount| amount.0));
        set(&mut entitlement.cpu_quota, settings.cpu_quota.map(|amount| amount.0));
        set(&mut entitlement.memory_quota, settings.memory_quota.map(|amount| amount.0));
        entitlement.rank = settings.rank.unwrap_or(entitlement.rank);
        if let Some(quotas) = &settings.model_quotas {
            entitlement.model_quotas =
                quotas.iter().map(|(model, quota)| (model.as_str().into(), quota.0)).collect();
        }
        for (target, wanted) in [
            (&mut project.train_nodes, &settings.train_nodes),
            (&mut project.interactive_nodes, &settings.interactive_nodes),
        ] {
            if let Some(wanted) = wanted {
                *target = selector(wanted);
            }
        }
        let span = |secs: u64| (secs > 0).then(|| Span::secs(secs.min(u64::MAX / 1_000)));
        for (target, secs) in [
            (&mut project.interactive_time_limit, settings.interactive_limit_secs),
            (&mut project.time_limit, settings.time_limit_secs),
            (&mut project.idle_limit, settings.idle_limit_secs),
        ] {
            if let Some(secs) = secs {
                *target = span(secs);
            }
        }
        if let Some(secs) = settings.min_run_secs {
            project.min_run = Span::secs(secs.min(u64::MAX / 1_000));
        }
        project.allow_host_network = settings.allow_host_network.unwrap_or(project.allow_host_network);
        project.allow_privileged = settings.allow_privileged.unwrap_or(project.allow_privileged);
        for name in &settings.unset {
            match name.as_str() {
                "department" => project.department = None,
                "interactive_limit_secs" => project.interactive_time_limit = None,
                "time_limit_secs" => project.time_limit = None,
                "idle_limit_secs" => project.idle_limit = None,
                "min_run_secs" => project.min_run = Span::ZERO,
                "allow_host_network" => project.allow_host_network = false,
                "allow_privileged" => project.allow_privileged = false,
                "train_nodes" => project.train_nodes = Selector::default(),
                "interactive_nodes" => project.interactive_nodes = Selector::default(),
                other => {
                    let pool = self.pool_name(settings.node_pool.as_ref())?;
                    unset(project.entitlements.entry(pool).or_default(), other)?;
                }
            }
        }
        Ok(project)
    }

    /// A pool by name; `default` is always there.
    pub(crate) fn pool_name(&self, name: Option<&String>) -> Result<Name, Problem> {
        match name {
            None => Ok(default_pool()),
            Some(name) if **name == *default_pool() => Ok(default_pool()),
            Some(name) if self.engine.nodes().values().any(|node| *node.pool() == **name) => {
                Ok(name.as_str().into())
            }
            Some(name) => {
                Err(Problem::invalid("node_pool", format!("no node is in the pool {}", names::shown(name)))
                    .hint("`berth node list` shows the pools"))
            }
        }
    }

    /// What a person should know about the quotas there would be.
    fn quota_warnings(&self, project: &Project) -> Vec<String> {
        let mut warnings = Vec::new();
        for (pool, entitlement) in &project.entitlements {
            let quota = entitlement.quota.unwrap_or(Gpus::ZERO);
            let nodes = self.engine.nodes().values().filter(|node| node.pool() == *pool);
            let (mut all, mut usable) = (Gpus::ZERO, Gpus::ZERO);
            for node in nodes {
                let gpus = Gpus::whole(node.devices.len() as u64);
                all += gpus;
                if project.train_nodes.accepts(&node.labels) {
                    usable += gpus;
                }
            }
            let others = self.engine.projects().values().filter(|other| other.id != project.id);
            let others: Gpus = others
                .filter_map(|other| other.entitlements.get(pool)?.quota)
                .fold(Gpus::ZERO, Gpus::saturating_add);
            if quota > usable {
                warnings.push(format!(
                    "the quota of {quota} GPUs is more than the {usable} on nodes the project may use: not all of it can ever be had"
                ));
            } else if quota.saturating_add(others) > all {
                let sum = quota.saturating_add(others);
                warnings.push(format!(
                    "the quotas of all projects are {sum} GPUs now, and pool {pool} has {all}: not all can be honoured at once"
                ));
            }
            warnings.extend(self.department_warning(project, pool, quota));
            if entitlement.limit.is_some_and(|limit| limit < quota) {
                warnings.push("the limit is below the quota, so the limit is what it can have".into());
            }
        }
        warnings
    }

    /// Says that the projects of a department are promised more than the department is.
    fn department_warning(&self, project: &Project, pool: &Name, quota: Gpus) -> Option<String> {
        let department = self.engine.departments().get(&project.department?)?;
        let own = department.entitlements.get(pool)?.quota?;
        let others = self.engine.projects().values().filter(|other| other.id != project.id);
        let others = others.filter(|other| other.department == project.department);
        let sum =
            others.filter_map(|other| other.entitlements.get(pool)?.quota).fold(quota, Gpus::saturating_add);
        (sum > own).then(|| {
            let name = &department.name;
            format!(
                "the quotas of the projects of department {name} are {sum} GPUs, and the quota of {name} is {own}: the department's \
                 quota holds"
            )
        })
    }

    /// Makes a department.
    pub(crate) fn create_department(
        &mut self,
        settings: &DepartmentSettings,
        now: Time,
    ) -> Result<(DepartmentId, Vec<String>), Problem> {
        let name = required_name(settings.name.as_ref())?;
        if self.departments.contains_key(name) {
            return Err(exists("department", name, "berth department update"));
        }
        bounded("departments", self.departments.len())?;
        let id = DepartmentId(self.next_id());
        let department = Department { id, name: name.clone(), parent: None, entitlements: BTreeMap::new() };
        self.set_department(department, settings, now)
    }

    /// Changes a department.
    pub(crate) fn update_department(
        &mut self,
        name: &str,
        settings: &DepartmentSettings,
        now: Time,
    ) -> Result<(DepartmentId, Vec<String>), Problem> {
        if settings.name.as_ref().is_some_and(|other| other != name) {
            return Err(Problem::invalid("name", "a department keeps its name"));
        }
        let id = self.find_department(name)?;
        self.set_department(self.engine.departments()[&id].clone(), settings, now)
    }

    fn set_department(
        &mut self,
        mut department: Department,
        settings: &DepartmentSettings,
        now: Time,
    ) -> Result<(DepartmentId, Vec<String>), Problem> {
        if let Some(parent) = &settings.parent {
            department.parent = if parent.is_empty() { None } else { Some(self.find_department(parent)?) };
        }
        let pool = self.pool_name(settings.node_pool.as_ref())?;
        let entitlement = department.entitlements.entry(pool.clone()).or_default();
        set(&mut entitlement.quota, settings.quota.map(|amount| amount.0));
        set(&mut entitlement.limit, settings.limit.map(|amount| amount.0));
        set(&mut entitlement.weight, settings.weight.map(|amount| amount.0));
        entitlement.rank = settings.rank.unwrap_or(entitlement.rank);
        for name in &settings.unset {
            match name.as_str() {
                "parent" => department.parent = None,
                other => unset(department.entitlements.entry(pool.clone()).or_default(), other)?,
            }
        }
        let id = department.id;
        let quota = department.entitlements[&pool].quota;
        let children = self.engine.projects().values().filter(|project| project.department == Some(id));
        let children: Gpus = children
            .filter_map(|project| project.entitlements.get(&pool)?.quota)
            .fold(Gpus::ZERO, Gpus::saturating_add);
        let mut warnings = match quota {
            Some(quota) if children > quota => vec![format!(
                "the quotas of its projects are {children} GPUs, and its own is {quota}: the department's quota holds"
            )],
            _ => Vec::new(),
        };
        warnings.extend(self.department_lowered(&department));
        self.happen(Happened::Department { department }, now)?;
        Ok((id, warnings))
    }

    /// Deletes a department that has no projects and no departments in it.
    pub(crate) fn delete_department(&mut self, name: &str, now: Time) -> Result<(), Problem> {
        let id = self.find_department(name)?;
        let holds_others = self.engine.departments().values().any(|department| department.parent == Some(id))
            || self.engine.projects().values().any(|project| project.department == Some(id));
        if holds_others {
            let text = format!("department {name} still has projects or departments in it");
            return Err(Problem::new(Code::InUse, text)
                .hint(format!("`berth department describe {name}` shows them")));
        }
        self.happen(Happened::DepartmentRemoved { id, name: name.into() }, now)
    }

    /// Makes a volume.
    pub(crate) fn create_volume(
        &mut self,
        name: &str,
        project: Option<&String>,
        size: Option<Bytes>,
        now: Time,
    ) -> Result<(), Problem> {
        names::check("name", name)?;
        if self.project_volumes && project.is_none() {
            let text = "a volume of a cluster belongs to a project";
            return Err(Problem::invalid("project", text).hint("name it with -p"));
        }
        if !self.project_volumes && size.is_some() {
            let text = "a volume of this machine has no size: it grows with what is in it";
            return Err(Problem::invalid("size", text));
        }
        if size == Some(Bytes(0)) {
            return Err(Problem::invalid("size", "nothing would fit into it"));
        }
        let is_same = |(known, owner): &VolumeKey| {
            known == name && (!self.project_volumes || owner.as_ref() == project)
        };
        if self.volumes.keys().any(is_same) {
            return Err(Problem::new(Code::Exists, format!("volume {name} exists already")));
        }
        bounded("volumes", self.volumes.len())?;
        if let Some(project) = project {
            self.find_project(project)?;
        }
        let volume = VolumeRecord { name: name.into(), project: project.cloned(), created: now, size };
        self.happen(Happened::Volume { volume }, now)
    }

    /// Deletes a volume that nothing uses.
    pub(crate) fn delete_volume(
        &mut self,
        name: &str,
        project: Option<&String>,
        now: Time,
    ) -> Result<(), Problem> {
        let meant: Vec<&VolumeRecord> = self
            .volumes
            .values()
            .filter(|volume| volume.name == name && (project.is_none() || volume.project.as_ref() == project))
            .collect();
        let volume = match meant[..] {
            [] => {
                let names = self.volumes.keys().map(|(name, _)| name);
                return Err(unknown("volume", name, names, "`berth volume list` shows all"));
            }
            [volume] => volume,
            _ => {
                let text = format!("several projects have a volume {name}");
                return Err(Problem::invalid("project", text).hint("name the project with -p"));
            }
        };
        let users = self.volume_users(volume);
        if !users.is_empty() {
            let text = format!("volume {name} is used by {}", users.join(", "));
            return Err(Problem::new(Code::InUse, text));
        }
        let project = volume.project.clone();
        self.happen(Happened::VolumeRemoved { name: name.into(), project }, now)
    }

    pub(crate) fn volume_users(&self, volume: &VolumeRecord) -> Vec<String> {
        let may = |record: &super::Record| {
            volume.project.as_ref().is_none_or(|owner| *owner == record.request.project)
        };
        let uses = |record: &&super::Record| {
            may(record) && record.request.volumes.iter().any(|mount| mount.name == volume.name)
        };
        self.records.values().filter(uses).map(|record| self.full_name(record.id)).collect()
    }

    /// A volume by its name, for a project; also one that is for another.
    pub(crate) fn find_volume(&self, name: &str, project: &str) -> Option<&VolumeRecord> {
        let own = self.volumes.get(&(name.to_owned(), Some(project.to_owned())));
        let shared = || self.volumes.get(&(name.to_owned(), None));
        own.or_else(shared).or_else(|| self.volumes.values().find(|volume| volume.name == name))
    }

    /// Whether a project has a volume of its own by this name.
    pub(crate) fn has_volume(&self, name: &str, project: &str) -> bool {
        self.volumes.contains_key(&(name.to_owned(), Some(project.to_owned())))
    }

    /// Volumes of a cluster, where every project has names of its own.
    pub(crate) fn take_volumes(&mut self, volumes: impl Iterator<Item = VolumeRecord>) {
        self.project_volumes = true;
        self.volumes = volumes.map(|volume| (volume.key(), volume)).collect();
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.values()
    }
}

fn set<T>(target: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *target = value;
    }
}

fn unset(entitlement: &mut Entitlement, name: &str) -> Result<(), Problem> {
    match name {
        "quota" => entitlement.quota = None,
        "limit" => entitlement.limit = None,
        "weight" => entitlement.weight = None,
        "rank" => entitlement.rank = 0,
        "cpu_quota" => entitlement.cpu_quota = None,
        "memory_quota" => entitlement.memory_quota = None,
        "model_quotas" => entitlement.model_quotas.clear(),
        other => {
            return Err(Problem::invalid(
                "unset",
                format!("{} is no setting that can be unset", names::shown(other)),
            ));
        }
    }
    Ok(())
}

fn selector(labels: &BTreeMap<String, Vec<String>>) -> Selector {
    let accepted = labels.iter().map(|(key, values)| {
        (Name::from(key.as_str()), values.iter().map(|value| Name::from(value.as_str())).collect())
    });
    Selector(accepted.collect())
}

fn required_name(name: Option<&String>) -> Result<&String, Problem> {
    let name = name.ok_or_else(|| Problem::invalid("name", "a name is needed"))?;
    names::check("name", name)?;
    Ok(name)
}

pub(super) fn bounded(what: &str, count: usize) -> Result<(), Problem> {
    match count < OWNERS_MAX {
        true => Ok(()),
        false => Err(Problem::new(
            Code::Overloaded,
            format!("there are {OWNERS_MAX} {what} already, the most there can be"),
        )),
    }
}

fn exists(what: &str, name: &str, update: &str) -> Problem {
    Problem::new(Code::Exists, format!("{what} {name} exists already"))
        .hint(format!("change it with `{update} {name}`"))
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a String>, otherwise: &str) -> Problem {
    let problem = Problem::new(Code::NotFound, format!("there is no {what} {}", names::shown(name)));
    problem.hint(match names::nearest(name, known.map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => otherwise.to_owned(),
    })
}
