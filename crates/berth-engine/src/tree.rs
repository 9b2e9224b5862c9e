//! The tree of accounts of one pool: what each is entitled to and what it uses.

use berth_types::{Account, Department, DepartmentId, Entitlement, Name, Project, ProjectId};
use std::collections::BTreeMap;

/// GPUs, CPU and memory, in their fixed-point units.
pub(crate) type Amounts = [u64; 3];
/// Position of GPUs in [`Amounts`].
pub(crate) const GPU: usize = 0;
/// Position of CPU in [`Amounts`].
pub(crate) const CPU: usize = 1;
/// Position of memory in [`Amounts`].
pub(crate) const MEMORY: usize = 2;

/// What is used by one account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) amounts: Amounts,
    /// GPUs by interned model.
    pub(crate) models: Vec<u64>,
}

impl Usage {
    pub(crate) fn model(&self, model: usize) -> u64 {
        self.models.get(model).copied().unwrap_or(0)
    }

    fn add(&mut self, charge: &Charge, sign: Sign) {
        for (mine, other) in self.amounts.iter_mut().zip(charge.amounts) {
            *mine = sign.apply(*mine, other);
        }
        for (model, gpus) in &charge.models {
            if self.models.len() <= *model {
                self.models.resize(*model + 1, 0);
            }
            self.models[*model] = sign.apply(self.models[*model], *gpus);
        }
    }
}

/// Whether a charge comes or goes.
#[derive(Clone, Copy)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

impl Sign {
    pub(crate) fn apply(self, value: u64, change: u64) -> u64 {
        match self {
            Self::Plus => value + change,
            Self::Minus => value - change,
        }
    }
}

/// What a workload costs its accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) amounts: Amounts,
    /// GPUs by interned model, where they are placed; empty while waiting.
    pub(crate) models: Vec<(usize, u64)>,
}

/// One account. Heads are compared by what stands first, and that lies together.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) used: Usage,
    pub(crate) quota: u64,
    pub(crate) share: u64,
    pub(crate) weight: u64,
    pub(crate) parent: u32,
    pub(crate) depth: u32,
    pub(crate) limit: Option<u64>,
    pub(crate) children: Vec<u32>,
    /// Whether a quota holds at this level.
    pub(crate) has_quota: bool,
    pub(crate) rank: i32,
    pub(crate) non_preemptible: Usage,
    /// Quotas of CPU and memory, where set.
    pub(crate) other_quotas: [Option<u64>; 2],
    pub(crate) model_quotas: Vec<(usize, u64)>,
    pub(crate) extras: u64,
    pub(crate) demand: u64,
    /// What of its demand is guaranteed: up to its quota, or, without one, what is guaranteed to its children.
    pub(crate) owed: u64,
    pub(crate) account: Account,
}

impl Node {
    /// The quota in one dimension: GPUs, CPU, memory; none where it is unlimited.
    pub(crate) fn quota_in(&self, dimension: usize) -> Option<u64> {
        match dimension {
            GPU => Some(self.quota),
            other => self.other_quotas[other - 1],
        }
    }

    /// Whether `used` and `asked` together stay within the quota of this level, in every dimension that has one.
    pub(crate) fn within(&self, used: &Usage, asked: &Amounts, model: Option<usize>) -> bool {
        if !self.has_quota {
            return true;
        }
        let amounts = (0..3).all(|dimension| {
            self.quota_in(dimension).is_none_or(|quota| used.amounts[dimension] + asked[dimension] <= quota)
        });
        amounts
            && model.is_none_or(|model| {
                self.model_quota(model).is_none_or(|quota| used.model(model) + asked[GPU] <= quota)
            })
    }

    fn model_quota(&self, model: usize) -> Option<u64> {
        self.model_quotas.iter().find(|(of, _)| *of == model).map(|(_, quota)| *quota)
    }

    /// GPUs of a model above its quota once `asked` more are used, where the model has one.
    pub(crate) fn over_model_quota(&self, model: usize, asked: u64) -> Option<u64> {
        let quota = self.model_quota(model).filter(|_| self.has_quota)?;
        Some((self.used.model(model) + asked).saturating_sub(quota))
    }

    /// GPUs above quota once `asked` more are used.
    pub(crate) fn borrowed_with(&self, asked: u64) -> u64 {
        (self.used.amounts[GPU] + asked).saturating_sub(self.quota)
    }
}

/// All accounts of one pool; the root is at position 0.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    projects: BTreeMap<ProjectId, u32>,
}

/// Position of the root.
pub(crate) const ROOT: u32 = 0;

impl Tree {
    /// The tree of a pool, with nothing used.
    pub(crate) fn new(
        pool: &Name,
        departments: &BTreeMap<DepartmentId, Department>,
        projects: &BTreeMap<ProjectId, Project>,
        mut model: impl FnMut(&Name) -> usize,
    ) -> Self {
        let root = empty_node(Account::Department(DepartmentId(u64::MAX)), ROOT, 0);
        let mut tree = Self { nodes: vec![root], projects: BTreeMap::new() };
        let mut positions = BTreeMap::new();
        for id in departments.keys() {
            tree.add_department(*id, pool, departments, &mut positions, &mut model);
        }
        for (id, project) in projects {
            let parent = project.department.map_or(ROOT, |department| positions[&department]);
            let entitlement = project.entitlements.get(pool);
            let position = tree.add(Account::Project(*id), parent, entitlement, &mut model);
            tree.nodes[position as usize].has_quota = true;
            tree.projects.insert(*id, position);
        }
        tree.settle_quotas();
        tree
    }

    pub(crate) fn project(&self, id: ProjectId) -> u32 {
        self.projects[&id]
    }

    pub(crate) fn at(&self, position: u32) -> &Node {
        &self.nodes[position as usize]
    }

    /// A project and all accounts above it, without the root, nearest first.
    pub(crate) fn path(&self, project: u32) -> Path<'_> {
        Path { tree: self, next: project }
    }

    /// Adds or takes back a charge on the whole path of a project.
    pub(crate) fn charge(&mut self, project: u32, charge: &Charge, non_preemptible: bool, sign: Sign) {
        let mut position = project;
        loop {
            let node = &mut self.nodes[position as usize];
            node.used.add(charge, sign);
            if non_preemptible {
                node.non_preemptible.add(charge, sign);
            }
            if position == ROOT {
                break;
            }
            position = node.parent;
        }
    }

    /// Adds or takes back elastic extras on the whole path of a project.
    pub(crate) fn charge_extras(&mut self, project: u32, gpus: u64, sign: Sign) {
        let mut position = project;
        loop {
            let node = &mut self.nodes[position as usize];
            node.extras = sign.apply(node.extras, gpus);
            if position == ROOT {
                break;
            }
            position = node.parent;
        }
    }

    /// The accounts just below the lowest common ancestor of two projects, on either side; equal for one project.
    pub(crate) fn below_common(&self, one: u32, other: u32) -> (u32, u32) {
        let (mut one, mut other) = (one, other);
        let (mut below_one, mut below_other) = (one, other);
        while one != other {
            let (depth_one, depth_other) = (self.at(one).depth, self.at(other).depth);
            if depth_one >= depth_other {
                below_one = one;
                one = self.at(one).parent;
            }
            if depth_other >= depth_one {
                below_other = other;
                other = self.at(other).parent;
            }
        }
        (below_one, below_other)
    }

    fn add_department(
        &mut self,
        id: DepartmentId,
        pool: &Name,
        departments: &BTreeMap<DepartmentId, Department>,
        positions: &mut BTreeMap<DepartmentId, u32>,
        model: &mut impl FnMut(&Name) -> usize,
    ) -> u32 {
        if let Some(position) = positions.get(&id) {
            return *position;
        }
        let department = &departments[&id];
        let parent = match department.parent {
            Some(parent) => self.add_department(parent, pool, departments, positions, model),
            None => ROOT,
        };
        let entitlement = department.entitlements.get(pool);
        // A department that promises and forbids nothing is no account: its children stand beside its siblings.
        let position = match entitlement.is_none_or(Entitlement::is_neutral) {
            true => parent,
            false => self.add(Account::Department(id), parent, entitlement, model),
        };
        positions.insert(id, position);
        position
    }

    fn add(
        &mut self,
        account: Account,
        parent: u32,
        entitlement: Option<&Entitlement>,
        model: &mut impl FnMut(&Name) -> usize,
    ) -> u32 {
        let position = self.nodes.len() as u32;
        let mut node = empty_node(account, parent, self.at(parent).depth + 1);
        if let Some(entitlement) = entitlement {
            node.has_quota = entitlement.quota.is_some();
            node.quota = entitlement.quota.map_or(0, |quota| quota.0);
            node.other_quotas =
                [entitlement.cpu_quota.map(|cpu| cpu.0), entitlement.memory_quota.map(|bytes| bytes.0)];
            node.model_quotas =
                entitlement.model_quotas.iter().map(|(name, gpus)| (model(name), gpus.0)).collect();
            node.limit = entitlement.limit.map(|limit| limit.0);
            // Marks "unset" until quotas are settled.
            node.weight = entitlement.weight.map_or(u64::MAX, |weight| weight.0);
            node.rank = entitlement.rank;
        }
        self.nodes.push(node);
        self.nodes[parent as usize].children.push(position);
        position
    }

    /// Fills in what follows from the children: quotas of departments without one, and default weights.
    fn settle_quotas(&mut self) {
        // Children have higher positions than their parents.
        for position in (0..self.nodes.len()).rev() {
            if !self.nodes[position].has_quota {
                let children = self.nodes[position].children.clone();
                self.nodes[position].quota = children.iter().map(|child| self.at(*child).quota).sum();
            }
            let node = &mut self.nodes[position];
            if node.weight == u64::MAX {
                node.weight = if node.quota == 0 { berth_types::Gpus::SCALE } else { node.quota };
            }
        }
    }
}

fn empty_node(account: Account, parent: u32, depth: u32) -> Node {
    Node {
        account,
        parent,
        children: Vec::new(),
        depth,
        has_quota: false,
        quota: 0,
        other_quotas: [None; 2],
        model_quotas: Vec::new(),
        limit: None,
        weight: u64::MAX,
        rank: 0,
        used: Usage::default(),
        non_preemptible: Usage::default(),
        extras: 0,
        demand: 0,
        owed: 0,
        share: 0,
    }
}

/// Walks from a project up to, not including, the root.
pub(crate) struct Path<'a> {
    tree: &'a Tree,
    next: u32,
}

impl<'a> Iterator for Path<'a> {
    type Item = (u32, &'a Node);
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == ROOT {
            return None;
        }
        let position = self.next;
        let node = self.tree.at(position);
        self.next = node.parent;
        Some((position, node))
    }
}
