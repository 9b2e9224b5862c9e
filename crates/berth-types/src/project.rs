//! Departments and projects: who owns quota.

use crate::{Bytes, Cpu, DepartmentId, Gpus, Name, ProjectId, Selector, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a department or project is entitled to in one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entitlement {
    /// Guaranteed GPUs. A project without one is guaranteed none; a department without one, what its children are.
    pub quota: Option<Gpus>,
    /// Guaranteed GPUs of a model; part of the total, not on top.
    pub model_quotas: BTreeMap<Name, Gpus>,
    /// Guaranteed CPU; unset is unlimited.
    pub cpu_quota: Option<Cpu>,
    /// Guaranteed memory; unset is unlimited.
    pub memory_quota: Option<Bytes>,
    /// GPUs never passed; unset is unlimited.
    pub limit: Option<Gpus>,
    /// Weight when idle GPUs are shared; unset is the quota, or one when the quota is zero. Zero does not borrow.
    pub weight: Option<Gpus>,
    /// Higher ranks are served first when idle GPUs are shared; never touches quota.
    pub rank: i32,
}

impl Entitlement {
    /// Whether nothing is set: a department with it groups projects and changes no decision.
    pub fn is_neutral(&self) -> bool {
        *self == Self::default()
    }
}

/// A group of projects, possibly inside another department.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Department {
    /// Its identity.
    pub id: DepartmentId,
    /// Its name, for people.
    pub name: String,
    /// The department it is part of.
    pub parent: Option<DepartmentId>,
    /// What it is entitled to, by pool.
    pub entitlements: BTreeMap<Name, Entitlement>,
}

impl Department {
    /// Departments inside departments, counted from the top; more than any organisation has, and bounds every walk up
    /// or down the tree.
    pub const LEVELS_MAX: usize = 16;
}

/// What users submit work to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Its identity.
    pub id: ProjectId,
    /// Its name, for people.
    pub name: String,
    /// The department it is part of.
    pub department: Option<DepartmentId>,
    /// What it is entitled to, by pool.
    pub entitlements: BTreeMap<Name, Entitlement>,
    /// Nodes its training, distributed and inference work may use.
    pub train_nodes: Selector,
    /// Nodes its interactive work may use.
    pub interactive_nodes: Selector,
    /// Interactive work is ended after this long.
    pub interactive_time_limit: Option<Span>,
    /// Any work is ended after this long.
    pub time_limit: Option<Span>,
    /// Work whose GPUs have been idle this long is ended.
    pub idle_limit: Option<Span>,
    /// Nothing of this project is evicted before it ran this long.
    pub min_run: Span,
    /// Whether its work may use the network of the node. No decision depends on it.
    #[serde(default)]
    pub allow_host_network: bool,
    /// Whether its work may be privileged. No decision depends on it.
    #[serde(default)]
    pub allow_privileged: bool,
}

impl Project {
    /// A project with nothing but a name; every optional setting unset.
    pub fn named(id: ProjectId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            department: None,
            entitlements: BTreeMap::new(),
            train_nodes: Selector::default(),
            interactive_nodes: Selector::default(),
            interactive_time_limit: None,
            time_limit: None,
            idle_limit: None,
            min_run: Span::ZERO,
            allow_host_network: false,
            allow_privileged: false,
        }
    }
}
