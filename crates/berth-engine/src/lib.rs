//! The scheduling engine: state and time in, plan and explanations out.
//!
//! The engine owns an index over nodes, accounts and workloads. Changes update it, a plan is made from it, and a plan's
//! decisions are part of it at once. It has no clock, no randomness and no input or output of its own; whatever it is
//! told in whatever order, the same state gives the same plan.
//!
//! ```text
//! Change -> Pool (nodes, tree, queues, shapes) -> heads in order -> start | take | reserve | pass | move | grow -> Plan
//! ```

mod admit;
mod blockers;
mod brief;
mod claim;
mod clear_node;
mod cycle;
mod details;
mod elastic;
mod evict_and_move;
mod explain;
mod fit;
mod hash;
mod installation;
mod least_loss;
mod ledger;
mod log;
mod mix;
mod moves;
mod node;
mod order;
mod pass;
mod place;
mod pool;
mod positions;
mod queue;
mod ranking;
mod reserve;
mod retry;
mod rooms;
mod score;
mod shape;
mod share;
mod suggest;
mod take;
mod tree;
mod trial;
mod trial_level;
mod units;
mod victim_places;

use berth_types::{
    Account, Change, ChangeError, Department, DepartmentId, Explanation, Gpus, Name, NodeId, Plan, Policy,
    Project, ProjectId, RequestChange, State, Suggestion, Time, WaitDetails, WaitReason, Workload,
    WorkloadId, WorkloadSpec, validate_node, validate_places, validate_submission,
};
use hash::IdMap;
use pool::{Organisation, Pool};
use std::collections::{BTreeMap, BTreeSet};

/// The engine. Cloning it gives an independent one, for questions.
#[derive(Clone, Debug)]
pub struct Engine {
    policy: Policy,
    organisation: Organisation,
    pools: BTreeMap<Name, Pool>,
    node_pools: IdMap<NodeId, Name>,
    nodes: BTreeMap<NodeId, berth_types::Node>,
    workload_pools: IdMap<WorkloadId, Name>,
}

impl Engine {
    /// Plans that are made to find the changes of one request.
    pub const WHAT_IFS_MAX: usize = 16;

    /// An engine that knows of nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            organisation: Organisation::default(),
            pools: BTreeMap::new(),
            node_pools: IdMap::default(),
            nodes: BTreeMap::new(),
            workload_pools: IdMap::default(),
        }
    }

    /// An engine that knows a state.
    pub fn with_state(policy: Policy, state: &State) -> Result<Self, ChangeError> {
        let mut engine = Self::new(policy);
        for change in state.changes() {
            engine.apply(&change)?;
        }
        Ok(engine)
    }

    /// Lets a change happen, or says why it cannot; nothing has changed then. The engine's own decisions have
    /// happened already and are not applied again.
    pub fn apply(&mut self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::NodeSet(node) => self.set_node(node),
            Change::NodeRemoved(id) => self.remove_node(*id),
            Change::DepartmentSet(_)
            | Change::DepartmentRemoved(_)
            | Change::ProjectSet(_)
            | Change::ProjectRemoved(_) => self.change_organisation(change),
            Change::Submitted(workload) => self.submit(workload),
            Change::Forgotten(id) => {
                let pool = self.pool_of(*id)?;
                let slot = pool.slot(*id).ok_or(ChangeError::UnknownWorkload(*id))?;
                if !pool.entry(slot).workload.is_finished() {
                    return Err(ChangeError::InUse(format!("workload {id}")));
                }
                pool.forget(slot);
                self.workload_pools.remove(id);
                Ok(())
            }
            _ => {
                let id = change.workload().expect("every other change is about a workload");
                let Self { pools, workload_pools, nodes, .. } = self;
                let pool = workload_pools.get(&id).ok_or(ChangeError::UnknownWorkload(id))?;
                let pool = pools.get_mut(pool).expect("a workload's pool is there");
                let slot = pool.slot(id).ok_or(ChangeError::UnknownWorkload(id))?;
                match change {
                    Change::Decided { .. } => pool.admit(slot, change, nodes),
                    _ => pool.change(slot, change),
                }
            }
        }
    }

    /// Decides everything there is to decide at `now`. The decisions have happened when this returns.
    pub fn plan(&mut self, now: Time) -> Plan {
        let mut plan = Plan { at: now, ..Plan::default() };
        for pool in self.pools.values_mut() {
            let wake = pool.plan(now, &mut plan.actions);
            plan.wake = plan.wake.into_iter().chain(wake).min();
        }
        plan
    }

    /// What the plan would be if these changes happened; the engine stays as it is.
    pub fn ask(&self, changes: &[Change], now: Time) -> Result<Plan, ChangeError> {
        let mut engine = self.clone();
        for change in changes {
            engine.apply(change)?;
        }
        Ok(engine.plan(now))
    }

    /// Why a workload waits and what would start it now; nothing for one that does not wait.
    pub fn explain(&self, workload: WorkloadId, now: Time) -> Option<Explanation> {
        explain::explain(self, workload, now)
    }

    /// Why workloads wait that are queued, without what would help them; for many at once.
    pub fn wait_reasons(&self, workloads: &[WorkloadId], now: Time) -> Vec<(WorkloadId, WaitReason)> {
        explain::wait_reasons(self, workloads, now)
    }

    /// The numbers behind a reason that [`Engine::explain`] gave: what is asked for, what is there, what its accounts use,
    /// what blocks it, and its position in the queue.
    pub fn wait_details(&self, workload: WorkloadId, reason: &WaitReason) -> Option<WaitDetails> {
        details::wait_details(self, workload, reason)
    }

    /// Changes of its request with which a queued workload would start now, cheapest first; each was planned on a copy of the
    /// engine, as a new submission in place of the old one. `respecify` turns a change into the request that would be
    /// submitted, or refuses it. At most [`Engine::WHAT_IFS_MAX`] plans are made.
    pub fn suggest(
        &self,
        workload: WorkloadId,
        details: &WaitDetails,
        now: Time,
        respecify: impl Fn(&RequestChange) -> Option<WorkloadSpec>,
    ) -> Vec<Suggestion> {
        suggest::suggest(self, workload, details, now, &respecify)
    }

    /// A workload as the engine knows it.
    pub fn workload(&self, id: WorkloadId) -> Option<&Workload> {
        let pool = self.pools.get(self.workload_pools.get(&id)?)?;
        Some(&pool.entry(pool.slot(id)?).workload)
    }

    /// Workloads as the engine knows them, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.pools.values().flat_map(Pool::workloads)
    }

    /// Nodes, by id.
    pub fn nodes(&self) -> &BTreeMap<NodeId, berth_types::Node> {
        &self.nodes
    }

    /// Projects, by id.
    pub fn projects(&self) -> &BTreeMap<ProjectId, Project> {
        &self.organisation.projects
    }

    /// Departments, by id.
    pub fn departments(&self) -> &BTreeMap<DepartmentId, Department> {
        &self.organisation.departments
    }

    /// The fair share of every account of a pool.
    pub fn fair_shares(&self, pool: &str) -> Vec<(Account, Gpus)> {
        let Some(pool) = self.pools.get(pool) else { return Vec::new() };
        let mut pool = pool.clone();
        pool.refresh_shares();
        let accounts = pool.tree.nodes.iter().skip(1).map(|node| (node.account, Gpus(node.share)));
        let mut shares: Vec<(Account, Gpus)> = accounts.collect();
        shares.extend(self.shares_of_neutral_departments(&shares));
        shares
    }

    /// Departments that are no accounts of a pool have what their children have.
    fn shares_of_neutral_departments(&self, shares: &[(Account, Gpus)]) -> BTreeMap<Account, Gpus> {
        let Organisation { departments, projects } = &self.organisation;
        let known: BTreeSet<Account> = shares.iter().map(|(account, _)| *account).collect();
        let neutral = |id: &DepartmentId| !known.contains(&Account::Department(*id));
        let mut found: BTreeMap<Account, Gpus> = departments
            .keys()
            .filter(|id| neutral(id))
            .map(|id| (Account::Department(*id), Gpus::ZERO))
            .collect();
        for (account, share) in shares {
            let mut above = match account {
                Account::Project(id) => projects.get(id).and_then(|project| project.department),
                Account::Department(id) => departments.get(id).and_then(|department| department.parent),
            };
            while let Some(id) = above.filter(|id| neutral(id)) {
                *found.entry(Account::Department(id)).or_default() += *share;
                above = departments.get(&id).and_then(|department| department.parent);
            }
        }
        found
    }

    /// Everything the engine knows, as plain data.
    pub fn state(&self) -> State {
        State {
            nodes: self.nodes.clone(),
            departments: self.organisation.departments.clone(),
            projects: self.organisation.projects.clone(),
            workloads: self.pools.values().flat_map(Pool::workloads).cloned().collect(),
        }
    }

    fn pool_of(&mut self, id: WorkloadId) -> Result<&mut Pool, ChangeError> {
        let pool = self.workload_pools.get(&id).ok_or(ChangeError::UnknownWorkload(id))?;
        Ok(self.pools.get_mut(pool).expect("a workload's pool is there"))
    }

    fn pool_named(&mut self, name: &Name) -> &mut Pool {
        self.pools
            .entry(name.clone())
            .or_insert_with(|| Pool::new(name.clone(), self.policy.clone(), &self.organisation))
    }

    fn set_node(&mut self, node: &berth_types::Node) -> Result<(), ChangeError> {
        validate_node(node)?;
        let pool = node.pool();
        if let Some(known) = self.nodes.get(&node.id).filter(|known| !known.same_capacity(node)) {
            let home = self.pools.get_mut(&self.node_pools[&node.id]).expect("a node's pool is there");
            if home.in_use(node.id) {
                return Err(ChangeError::InUse(format!("node {}", node.name)));
            }
            home.drop_reservations_on(node.id);
            if known.pool() != pool {
                home.remove_node(node.id);
            }
        }
        self.pool_named(&pool).set_node(node);
        self.node_pools.insert(node.id, pool);
        self.nodes.insert(node.id, node.clone());
        Ok(())
    }

    fn remove_node(&mut self, id: NodeId) -> Result<(), ChangeError> {
        let pool = self.node_pools.get(&id).ok_or(ChangeError::UnknownNode(id))?;
        let pool = self.pools.get_mut(pool).expect("a node's pool is there");
        if pool.in_use(id) {
            return Err(ChangeError::InUse(format!("node {id}")));
        }
        pool.drop_reservations_on(id);
        pool.remove_node(id);
        self.node_pools.remove(&id);
        self.nodes.remove(&id);
        Ok(())
    }

    fn change_organisation(&mut self, change: &Change) -> Result<(), ChangeError> {
        // The rules of what may be set are those of the plain state.
        let mut shell = State {
            departments: std::mem::take(&mut self.organisation.departments),
            projects: std::mem::take(&mut self.organisation.projects),
            ..State::default()
        };
        let busy = match change {
            Change::ProjectRemoved(id) => {
                self.pools.values().flat_map(Pool::workloads).any(|workload| workload.spec.project == *id)
            }
            _ => false,
        };
        let result = match (busy, change) {
            (true, Change::ProjectRemoved(id)) => Err(ChangeError::InUse(format!("project {id}"))),
            _ => shell.apply(change),
        };
        self.organisation.departments = shell.departments;
        self.organisation.projects = shell.projects;
        result?;
        for pool in self.pools.values_mut() {
            pool.set_organisation(&self.organisation);
        }
        Ok(())
    }

    fn submit(&mut self, workload: &Workload) -> Result<(), ChangeError> {
        if self.workload_pools.contains_key(&workload.id) {
            return Err(ChangeError::DuplicateWorkload(workload.id));
        }
        let project = workload.spec.project;
        let Some(project) = self.organisation.projects.get(&project).cloned() else {
            return Err(ChangeError::UnknownProject(project));
        };
        validate_submission(workload)?;
        validate_places(workload, |id| self.nodes.get(&id))?;
        if let Some(pool) = self.pools.get(&workload.spec.pool) {
            pool.validate_room(workload)?;
        }
        let pool = workload.spec.pool.clone();
        self.pool_named(&pool).insert(workload.clone(), &project);
        self.workload_pools.insert(workload.id, pool);
        Ok(())
    }
}
