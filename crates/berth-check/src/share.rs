//! Fair shares, computed from their definition.

use crate::{
    ledger::workloads_of,
    room::{Room, View, accepts},
    tree::Tree,
};
use berth_types::{
    Account, AfterStop, DepartmentId, Gpus, Name, NodeCondition, Phase, Place, State, Workload,
};
use std::collections::BTreeMap;

/// The fair share of every account of one pool.
pub(crate) fn fair_shares(state: &State, pool: &Name) -> BTreeMap<Account, Gpus> {
    let tree = Tree::new(state, pool);
    let demands = demands(state, pool, &tree);
    let mut shares = BTreeMap::new();
    divide(&tree, &demands, None, pool_gpus(state, pool), &mut shares);
    for id in state.departments.keys().filter(|id| tree.is_neutral(Account::Department(**id))) {
        let below = tree.children(Some(*id)).into_iter().map(|child| shares[&child]).sum();
        shares.insert(Account::Department(*id), below);
    }
    shares
}

/// What is guaranteed of an account's demand: up to its quota, or, without one, what is guaranteed below it.
fn owed(tree: &Tree<'_>, demands: &BTreeMap<Account, Gpus>, account: Account) -> Gpus {
    let owed = match account {
        Account::Department(id) if !tree.has_quota(account) => {
            tree.children(Some(id)).into_iter().map(|child| owed(tree, demands, child)).sum()
        }
        _ => tree.quota(account),
    };
    owed.min(demands[&account])
}

/// GPUs of the minimum. What waits is charged on the smallest device it may use, what is placed on the devices it
/// has.
pub(crate) fn asked(state: &State, workload: &Workload) -> Gpus {
    match workload.phase {
        Phase::Held { .. } | Phase::Running { .. } => workload.base_places().map(Place::gpus).sum(),
        _ => task_charge(state, workload).times(u64::from(workload.spec.tasks.min())),
    }
}

/// The GPUs one waiting task is charged for.
fn task_charge(state: &State, workload: &Workload) -> Gpus {
    let request = &workload.spec.request;
    let whole = Gpus::whole(u64::from(request.gpu.devices()));
    if !matches!(request.gpu, berth_types::GpuRequest::Memory { .. }) {
        return request.gpu.charge_on(berth_types::Bytes::MAX).unwrap_or(whole);
    }
    let nodes = state.nodes.values().filter(|node| accepts(state, workload, node));
    nodes
        .flat_map(|node| &node.devices)
        .filter(|device| request.accepts_model(&device.model))
        .filter_map(|device| request.gpu.charge_on(device.memory))
        // The smallest device gives the largest charge.
        .max()
        .unwrap_or(whole)
}

/// Devices of ready nodes, and what is decided on the devices of others.
fn pool_gpus(state: &State, pool: &Name) -> Gpus {
    let room = Room::of(state, View::Decided);
    let mut total = 0;
    for node in state.nodes.values().filter(|node| node.pool() == *pool) {
        for device in 0..node.devices.len() {
            let in_use = Gpus::SCALE as i64 - room.nodes[&node.id].devices[device];
            total += match node.condition {
                NodeCondition::Ready => Gpus::SCALE,
                NodeCondition::Cordoned => in_use.max(0) as u64,
            };
        }
    }
    Gpus(total)
}

fn demands(state: &State, pool: &Name, tree: &Tree<'_>) -> BTreeMap<Account, Gpus> {
    let empty = Room::empty(state);
    let mut projects: BTreeMap<Account, Gpus> = BTreeMap::new();
    for workload in workloads_of(state, pool) {
        let counts = match workload.phase {
            // What has a place fits by having it, even when its node takes nothing new any more.
            Phase::Held { .. } | Phase::Running { .. } => true,
            Phase::Queued { .. } | Phase::Stopping { then: AfterStop::Requeue, .. } => empty.fits(workload),
            Phase::Stopping { .. } | Phase::Finished { .. } => false,
        };
        if counts {
            let project = Account::Project(workload.spec.project);
            *projects.entry(project).or_default() += asked(state, workload);
        }
    }
    let mut demands = BTreeMap::new();
    for child in tree.children(None) {
        demand(tree, child, &projects, &mut demands);
    }
    demands
}

/// Fills in the demand of an account and of all below it.
fn demand(
    tree: &Tree<'_>,
    account: Account,
    projects: &BTreeMap<Account, Gpus>,
    demands: &mut BTreeMap<Account, Gpus>,
) -> Gpus {
    let sum = match account {
        Account::Project(_) => projects.get(&account).copied().unwrap_or_default(),
        Account::Department(id) => {
            tree.children(Some(id)).into_iter().map(|child| demand(tree, child, projects, demands)).sum()
        }
    };
    let capped = tree.limit(account).map_or(sum, |limit| sum.min(limit));
    demands.insert(account, capped);
    capped
}

fn divide(
    tree: &Tree<'_>,
    demands: &BTreeMap<Account, Gpus>,
    of: Option<DepartmentId>,
    total: Gpus,
    shares: &mut BTreeMap<Account, Gpus>,
) {
    let children = tree.children(of);
    let mut rest = total;
    for &child in &children {
        let guaranteed = owed(tree, demands, child);
        shares.insert(child, guaranteed);
        rest = rest.saturating_sub(guaranteed);
    }
    let mut ranks: Vec<i32> = children.iter().map(|child| tree.rank(*child)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks.into_iter().rev() {
        let takers = children
            .iter()
            .filter(|child| tree.rank(**child) == rank)
            .map(|child| Taker {
                account: *child,
                weight: u128::from(tree.weight(*child).0),
                cap: u128::from((demands[child].saturating_sub(shares[child])).0),
            })
            .collect();
        for (account, more) in fill(takers, u128::from(rest.0)) {
            let more = Gpus(more as u64);
            *shares.entry(account).or_default() += more;
            rest -= more;
        }
    }
    for child in children {
        if let Account::Department(id) = child {
            divide(tree, demands, Some(id), shares[&child], shares);
        }
    }
}

/// A child that takes part of what is left over in its rank.
struct Taker {
    account: Account,
    weight: u128,
    cap: u128,
}

/// Exact water filling: everybody gets the same multiple of the weight, or the cap when that is less.
fn fill(takers: Vec<Taker>, mut rest: u128) -> Vec<(Account, u128)> {
    let mut given = Vec::new();
    let mut open: Vec<Taker> = takers.into_iter().filter(|taker| taker.weight > 0 && taker.cap > 0).collect();
    // Closing one taker at its cap raises the level for the others, so this is repeated until nobody else closes.
    loop {
        let weights: u128 = open.iter().map(|taker| taker.weight).sum();
        let full = |taker: &Taker| taker.cap * weights <= rest * taker.weight;
        let Some(position) = open.iter().position(full) else {
            break;
        };
        let taker = open.remove(position);
        rest -= taker.cap;
        given.push((taker.account, taker.cap));
    }
    let weights: u128 = open.iter().map(|taker| taker.weight).sum();
    if weights == 0 {
        return given;
    }
    let mut parts: Vec<(u128, Account, u128)> = open
        .iter()
        .map(|taker| {
            let exact = rest * taker.weight;
            (exact % weights, taker.account, exact / weights)
        })
        .collect();
    let mut left = rest - parts.iter().map(|(_, _, whole)| whole).sum::<u128>();
    parts.sort_by_key(|(remainder, account, _)| (std::cmp::Reverse(*remainder), *account));
    for (_, account, whole) in parts {
        let more = left.min(1);
        left -= more;
        given.push((account, whole + more));
    }
    given
}
