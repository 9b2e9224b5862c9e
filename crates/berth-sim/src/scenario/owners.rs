//! Lines about departments and projects, and warnings about what they promise.

use super::{
    parse::Parser,
    words::{self, Settings},
};
use berth_types::{
    Bytes, Cpu, Department, DepartmentId, Entitlement, Gpus, Name, Project, ProjectId, Selector, default_pool,
};
use std::collections::BTreeMap;

const ENTITLEMENT_KEYS: [&str; 8] =
    ["quota", "quota.MODEL", "limit", "weight", "rank", "cpu-quota", "memory-quota", "pool"];
/// Enough for any organisation; bounds the cost of looking for cycles.
const DEPARTMENTS_MAX: usize = 1000;
const DEPARTMENT_KEYS: [&str; 1] = ["parent"];
const PROJECT_KEYS: [&str; 7] =
    ["department", "train-on", "interactive-on", "min-run", "time-limit", "interactive-limit", "idle-limit"];

impl Parser {
    /// Reads a new department, or the change of a known one.
    pub(super) fn read_department(&mut self, rest: &[String], change: bool) -> Option<Department> {
        let (name, rest) = self.owner_name("department", rest)?;
        if self.departments.len() >= DEPARTMENTS_MAX {
            self.problem(format!("too many departments; expected at most {DEPARTMENTS_MAX}"));
            return None;
        }
        let known = self.departments.get(name).cloned();
        let mut department = match (known, change) {
            (Some(known), true) => known,
            (None, false) => Department {
                id: DepartmentId(self.departments.len() as u64 + 1),
                name: name.to_string(),
                parent: None,
                entitlements: BTreeMap::new(),
            },
            (Some(_), false) => {
                self.problem(format!(
                    "there is a department `{name}` already; write `set department {name}` to change it"
                ));
                return None;
            }
            (None, true) => {
                self.unknown_department(name);
                return None;
            }
        };
        let mut problems = Vec::new();
        let mut settings = Settings::read(rest, &mut problems);
        read_entitlement(&mut settings, &mut department.entitlements, &mut problems);
        let parent = settings.take("parent", &mut problems, |_, text| Ok(text.to_string()));
        settings.finish(&[&ENTITLEMENT_KEYS[..], &DEPARTMENT_KEYS[..]].concat(), &mut problems);
        self.problems_found(problems);
        if let Some(parent) = parent {
            department.parent = self.department_id(&parent, Some(&department));
        }
        self.departments.insert(name.to_string(), department.clone());
        Some(department)
    }

    /// Reads a new project, or the change of a known one.
    pub(super) fn read_project(&mut self, rest: &[String], change: bool) -> Option<Project> {
        let (name, rest) = self.owner_name("project", rest)?;
        let known = self.projects.get(name).cloned();
        let mut project = match (known, change) {
            (Some(known), true) => known,
            (None, false) => Project::named(ProjectId(self.projects.len() as u64 + 1), name),
            (Some(_), false) => {
                self.problem(format!(
                    "there is a project `{name}` already; write `set project {name}` to change it"
                ));
                return None;
            }
            (None, true) => {
                self.unknown_project(name);
                return None;
            }
        };
        let mut problems = Vec::new();
        let mut settings = Settings::read(rest, &mut problems);
        read_entitlement(&mut settings, &mut project.entitlements, &mut problems);
        for (key, nodes) in
            [("train-on", &mut project.train_nodes), ("interactive-on", &mut project.interactive_nodes)]
        {
            let values = settings.take_all(key);
            if !values.is_empty() {
                *nodes = Selector::default();
            }
            for value in values {
                if let Err(text) = words::select(key, value, nodes) {
                    problems.push(text);
                }
            }
        }
        if let Some(span) = settings.take("min-run", &mut problems, words::span) {
            project.min_run = span;
        }
        for (key, limit) in [
            ("time-limit", &mut project.time_limit),
            ("interactive-limit", &mut project.interactive_time_limit),
            ("idle-limit", &mut project.idle_limit),
        ] {
            if let Some(span) = settings.take(key, &mut problems, words::positive_span) {
                *limit = Some(span);
            }
        }
        let department = settings.take("department", &mut problems, |_, text| Ok(text.to_string()));
        settings.finish(&[&ENTITLEMENT_KEYS[..], &PROJECT_KEYS[..]].concat(), &mut problems);
        self.problems_found(problems);
        if let Some(department) = department {
            project.department = self.department_id(&department, None);
        }
        self.projects.insert(name.to_string(), project.clone());
        Some(project)
    }

    fn owner_name<'a>(&mut self, what: &str, rest: &'a [String]) -> Option<(&'a str, &'a [String])> {
        let Some((name, rest)) = rest.split_first() else {
            self.problem(format!("expected the name of the {what}, as in `{what} research quota=8`"));
            return None;
        };
        self.noted(words::check_name(what, name, super::parse::RESERVED))?;
        Some((name, rest))
    }

    /// The department of this name; not one that is, or is part of, `inside`.
    fn department_id(&mut self, name: &str, inside: Option<&Department>) -> Option<DepartmentId> {
        if let Some(inside) = inside.filter(|inside| inside.name == name) {
            self.problem(format!("department `{}` would be part of itself", inside.name));
            return None;
        }
        let Some(found) = self.departments.get(name) else {
            self.unknown_department(name);
            return None;
        };
        let id = found.id;
        if let Some(inside) = inside {
            let mut above = found.parent;
            while let Some(parent) = above {
                if parent == inside.id {
                    self.problem(format!(
                        "department `{}` would be part of itself, because `{name}` is part of it",
                        inside.name
                    ));
                    return None;
                }
                above = self
                    .departments
                    .values()
                    .find(|department| department.id == parent)
                    .and_then(|department| department.parent);
            }
        }
        Some(id)
    }

    /// Promises that cannot all be kept are allowed, and probably not meant.
    pub(super) fn warn_of_promises(&mut self) {
        let mut capacity = BTreeMap::<Name, Gpus>::new();
        for node in self.nodes.values() {
            *capacity.entry(node.pool()).or_default() += Gpus::whole(node.devices.len() as u64);
        }
        let mut promised = BTreeMap::<Name, Gpus>::new();
        let mut below = BTreeMap::<(DepartmentId, Name), Gpus>::new();
        let mut warnings = Vec::new();
        for project in self.projects.values() {
            for (pool, entitlement) in &project.entitlements {
                let quota = entitlement.quota.unwrap_or_default();
                let sum = promised.entry(pool.clone()).or_default();
                *sum = sum.saturating_add(quota);
                if let Some(department) = project.department {
                    let sum = below.entry((department, pool.clone())).or_default();
                    *sum = sum.saturating_add(quota);
                }
                let usable: Gpus = self
                    .nodes
                    .values()
                    .filter(|node| node.pool() == *pool && project.train_nodes.accepts(&node.labels))
                    .map(|node| Gpus::whole(node.devices.len() as u64))
                    .sum();
                let all = capacity.get(pool).copied().unwrap_or_default();
                if quota > usable && usable < all {
                    warnings.push(format!(
                        "project {} has a quota of {quota} GPUs; the nodes its training may use have {usable}",
                        project.name
                    ));
                }
            }
        }
        for (pool, promised) in promised {
            let all = capacity.get(&pool).copied().unwrap_or_default();
            if promised > all {
                warnings.push(format!(
                    "the quotas in pool {pool} add up to {promised} GPUs; its nodes have {all}"
                ));
            }
        }
        for department in self.departments.values() {
            for (pool, entitlement) in &department.entitlements {
                let below = below.get(&(department.id, pool.clone())).copied();
                if let (Some(quota), Some(below)) = (entitlement.quota, below)
                    && below > quota
                {
                    warnings.push(format!(
                        "the projects of department {} have quotas of {below} GPUs; its own is {quota}, and holds",
                        department.name
                    ));
                }
            }
        }
        for text in warnings {
            self.warn(text);
        }
    }
}

fn read_entitlement(
    settings: &mut Settings<'_>,
    entitlements: &mut BTreeMap<Name, Entitlement>,
    problems: &mut Vec<String>,
) {
    let pool = settings.take("pool", problems, |_, text| Ok(Name::from(text))).unwrap_or_else(default_pool);
    let mut entitlement = entitlements.get(&pool).cloned().unwrap_or_default();
    let Entitlement { quota, model_quotas, cpu_quota, memory_quota, limit, weight, rank } = &mut entitlement;
    for (key, amount) in [("quota", quota), ("limit", limit), ("weight", weight)] {
        if let Some(value) = settings.take(key, problems, words::amount::<Gpus>) {
            *amount = Some(value);
        }
    }
    if let Some(value) = settings.take("cpu-quota", problems, words::amount::<Cpu>) {
        *cpu_quota = Some(value);
    }
    if let Some(value) = settings.take("memory-quota", problems, words::amount::<Bytes>) {
        *memory_quota = Some(value);
    }
    if let Some(value) = settings.take("rank", problems, |what, text| words::number(what, text, -1000, 1000))
    {
        *rank = value as i32;
    }
    for (model, text) in settings.take_prefixed("quota.") {
        match words::amount::<Gpus>(&format!("quota.{model}"), text) {
            Ok(value) => {
                model_quotas.insert(Name::from(model), value);
            }
            Err(text) => problems.push(text),
        }
    }
    entitlements.insert(pool, entitlement);
}
