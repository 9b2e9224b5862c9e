//! The ledger of one pool: what every account uses.

use crate::tree::{Dimension, Tree};
use berth_types::{Account, Bytes, Cpu, Gpus, Name, Place, State, Workload};
use std::collections::BTreeMap;

/// Amounts of everything a quota can be set in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Amounts {
    pub(crate) gpus: Gpus,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Bytes,
    /// GPUs by the model of the device they are on.
    pub(crate) models: BTreeMap<Name, Gpus>,
}

impl Amounts {
    pub(crate) fn of<'p>(state: &State, places: impl IntoIterator<Item = &'p Place>) -> Self {
        let mut amounts = Self::default();
        for place in places {
            amounts.gpus += place.gpus();
            amounts.cpu += place.cpu;
            amounts.memory += place.memory;
            for taken in &place.devices {
                let node = state.nodes.get(&place.node);
                let device = node.and_then(|node| node.devices.get(usize::from(taken.device)));
                if let Some(device) = device {
                    *amounts.models.entry(device.model.clone()).or_default() += taken.share.gpus();
                }
            }
        }
        amounts
    }

    pub(crate) fn get(&self, dimension: &Dimension) -> u64 {
        match dimension {
            Dimension::Gpus => self.gpus.0,
            Dimension::Cpu => self.cpu.0,
            Dimension::Memory => self.memory.0,
            Dimension::Model(model) => self.models.get(model).map_or(0, |gpus| gpus.0),
        }
    }

    fn add(&mut self, other: &Self) {
        self.gpus += other.gpus;
        self.cpu += other.cpu;
        self.memory += other.memory;
        for (model, gpus) in &other.models {
            *self.models.entry(model.clone()).or_default() += *gpus;
        }
    }
}

/// What the accounts of one pool use.
pub(crate) struct Ledger<'a> {
    pub(crate) state: &'a State,
    pub(crate) tree: Tree<'a>,
    pub(crate) pool: Name,
    used: BTreeMap<Account, Amounts>,
    fixed: BTreeMap<Account, Amounts>,
    extras: BTreeMap<Account, Gpus>,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(state: &'a State, pool: &Name) -> Self {
        let mut ledger = Self {
            state,
            tree: Tree::new(state, pool),
            pool: pool.clone(),
            used: BTreeMap::new(),
            fixed: BTreeMap::new(),
            extras: BTreeMap::new(),
        };
        for workload in workloads_of(state, pool) {
            let base = Amounts::of(state, workload.base_places());
            let extras: Gpus = workload.extra_places().map(Place::gpus).sum();
            for account in ledger.tree.path(workload.spec.project) {
                ledger.used.entry(account).or_default().add(&base);
                *ledger.extras.entry(account).or_default() += extras;
                if !workload.spec.preemptible {
                    ledger.fixed.entry(account).or_default().add(&base);
                }
            }
        }
        ledger
    }

    /// Base places of everything below the account.
    pub(crate) fn used(&self, account: Account, dimension: &Dimension) -> u64 {
        self.used.get(&account).map_or(0, |used| used.get(dimension))
    }

    /// Base places of non-preemptible work below the account.
    pub(crate) fn fixed(&self, account: Account, dimension: &Dimension) -> u64 {
        self.fixed.get(&account).map_or(0, |fixed| fixed.get(dimension))
    }

    /// GPUs of elastic extras below the account.
    pub(crate) fn extras(&self, account: Account) -> u64 {
        self.extras.get(&account).map_or(0, |extras| extras.0)
    }

    pub(crate) fn used_gpus(&self, account: Account) -> u64 {
        self.used(account, &Dimension::Gpus)
    }
}

/// The workloads of one pool that are not over.
pub(crate) fn workloads_of<'a>(state: &'a State, pool: &'a Name) -> impl Iterator<Item = &'a Workload> {
    state.workloads.values().filter(move |workload| workload.spec.pool == *pool && !workload.is_finished())
}

/// Whether a workload other than this one has a reservation in the pool.
pub(crate) fn reserved_by_others(state: &State, pool: &Name, but: &Workload) -> bool {
    workloads_of(state, pool).any(|other| other.id != but.id && reservation(other).is_some())
}

/// The places reserved for a workload.
pub(crate) fn reservation(workload: &Workload) -> Option<&[Place]> {
    match &workload.phase {
        berth_types::Phase::Queued { reservation: Some(own) } => Some(&own.places),
        _ => None,
    }
}
