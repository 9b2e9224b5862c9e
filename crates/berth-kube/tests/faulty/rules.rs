//! What must hold when all is quiet, read from the API server alone.

use anyhow::Result;
use berth_kube::{api, run};
use berth_types::{Policy, Time};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{Api, Client, ResourceExt, api::ListParams};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

const WHOLE: u64 = 1_000_000;

/// Pods that start together.
#[derive(Debug, Default)]
pub(crate) struct Gang {
    pub(crate) min: u64,
    pub(crate) bound: u64,
}

pub(crate) fn gangs(pods: &[Pod], workloads: &[api::Workload]) -> Vec<Gang> {
    let mut gangs: BTreeMap<String, Gang> = BTreeMap::new();
    for workload in workloads {
        let min = workload.spec.workers.unwrap_or(1) as u64;
        gangs.insert(workload.name_any(), Gang { min, bound: 0 });
    }
    for pod in pods {
        let name = pod.labels().get("berth.dev/group").or_else(|| pod.labels().get("berth.dev/workload"));
        let Some(name) = name else { continue };
        let size = pod.annotations().get("berth.dev/group-size").and_then(|size| size.parse().ok());
        let gang = gangs.entry(name.clone()).or_default();
        gang.min = gang.min.max(size.unwrap_or(1));
        gang.bound += u64::from(is_bound(pod));
    }
    gangs.into_values().collect()
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("nothing")
}

/// Why a Pod waits, as it was told.
pub(crate) fn reason(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == "PodScheduled")?.message.as_deref()
}

/// What does not hold, in words; nothing when all is well.
pub(crate) async fn broken(client: &Client, namespace: &str) -> Result<String> {
    let all = ListParams::default();
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&all).await?.items;
    let workloads = Api::<api::Workload>::namespaced(client.clone(), namespace).list(&all).await?.items;
    let claims = Api::<ResourceClaim>::all(client.clone()).list(&all).await?.items;
    let ledgers = Api::<api::DeviceLedger>::all(client.clone()).list(&all).await?.items;
    let mut broken = Vec::new();
    for pod in &pods {
        if pod.metadata.deletion_timestamp.is_some() {
            broken.push(format!("{} is leaving", pod.name_any()));
        } else if !is_bound(pod) && pod.labels().contains_key("berth.dev/rank") {
            broken.push(format!("{} was made and is not bound", pod.name_any()));
        } else if !is_bound(pod) && reason(pod).is_none_or(str::is_empty) {
            broken.push(format!("{} waits and was not told why", pod.name_any()));
        } else if is_bound(pod) && phase(pod) != "Running" {
            broken.push(format!("{} is on its node and {}", pod.name_any(), phase(pod)));
        }
    }
    for workload in &workloads {
        let status = workload.status.clone().unwrap_or_default();
        let told = status.reason.is_some() && status.message.is_some();
        match status.phase {
            Some(api::WorkloadPhase::Running) => {}
            Some(api::WorkloadPhase::Pending) if told => {}
            phase => broken.push(format!("{} is {phase:?}, told {:?}", workload.name_any(), status.reason)),
        }
    }
    for gang in gangs(&pods, &workloads).iter().filter(|gang| gang.bound > 0 && gang.bound < gang.min) {
        broken.push(format!("half a gang: {gang:?}"));
    }
    broken.extend(shares(&pods, &claims, &ledgers));
    if broken.is_empty() {
        let state = run::look(client.clone()).await?;
        if state
            .workloads
            .values()
            .any(|one| !one.leaving().is_empty() || !(one.is_running() || one.is_queued()))
        {
            broken.push("something is under way".into());
        }
        let now = Time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64);
        broken.extend(berth_check::check_state(&state).iter().map(|finding| format!("{finding:?}")));
        let settled = berth_check::check_settled(&Policy::default(), &state, now);
        broken.extend(settled.iter().map(|finding| format!("{finding:?}")));
    }
    Ok(broken.join("; "))
}

/// Devices of which Pods on nodes have more than there is.
pub(crate) fn given_twice(pods: &[Pod], claims: &[ResourceClaim]) -> Vec<String> {
    let bound: BTreeSet<String> =
        pods.iter().filter(|pod| is_bound(pod)).filter_map(ResourceExt::uid).collect();
    let in_use = claims.iter().filter(|claim| {
        let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
        users.is_some_and(|users| users.iter().any(|user| bound.contains(&user.uid)))
    });
    let mut taken: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (node, device, share) in in_use.flat_map(parts) {
        *taken.entry((node, device)).or_default() += share;
    }
    let above = taken.into_iter().filter(|(_, share)| *share > WHOLE);
    above.map(|((node, device), share)| format!("{node} {device} is claimed {share} of {WHOLE}")).collect()
}

/// Node, device and share of everything that a claim has.
fn parts(claim: &ResourceClaim) -> Vec<(String, String, u64)> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.clone());
    let results = allocation.and_then(|allocation| allocation.devices).and_then(|all| all.results);
    let part = |result: k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| {
        let share = result.consumed_capacity.as_ref().and_then(|all| all.get("share"));
        (result.pool, result.device, share.map_or(WHOLE, |share| millionths(&share.0)))
    };
    results.unwrap_or_default().into_iter().map(part).collect()
}

/// Shares of devices: by claims, by ledgers, and both against each other.
fn shares(pods: &[Pod], claims: &[ResourceClaim], ledgers: &[api::DeviceLedger]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut by_claim: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut allocated = BTreeSet::new();
    let there: BTreeSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
    for claim in claims {
        // One that nobody uses any more waits for the garbage collector, which those who write to it all the time hold up.
        let in_use = claim
            .status
            .as_ref()
            .is_some_and(|status| status.reserved_for.as_ref().is_some_and(|all| !all.is_empty()));
        if !in_use {
            continue;
        }
        for (node, device, share) in parts(claim) {
            *by_claim.entry((node.clone(), device.clone())).or_default() += share;
            allocated.insert((claim.uid().unwrap_or_default(), node, device));
        }
        let status = claim.status.clone().unwrap_or_default();
        let users = status.reserved_for.unwrap_or_default();
        if let Some(gone) = users.iter().find(|user| !there.contains(&user.uid)) {
            let ours = claim
                .namespace()
                .is_some_and(|namespace| pods.iter().any(|pod| pod.namespace() == Some(namespace.clone())));
            if ours {
                broken.push(format!(
                    "claim {} is reserved for {}, which is gone",
                    claim.name_any(),
                    gone.name
                ));
            }
        }
    }
    for ((node, device), share) in by_claim.iter().filter(|(_, share)| **share > WHOLE) {
        broken.push(format!("{node} {device} is claimed {share} of {WHOLE}"));
    }
    // An entry of a claim that is gone, or was never allocated, holds nothing.
    let mut by_ledger: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut entered = BTreeSet::new();
    for ledger in ledgers {
        for one in &ledger.spec.allocations {
            let entry = (one.uid.clone(), ledger.name_any(), one.device.clone());
            if allocated.contains(&entry) {
                *by_ledger.entry((ledger.name_any(), one.device.clone())).or_default() += one.share as u64;
            }
            entered.insert(entry);
        }
    }
    for ((node, device), share) in by_ledger.iter().filter(|(_, share)| **share > WHOLE) {
        broken.push(format!("{node} {device} is entered {share} of {WHOLE}"));
    }
    for (uid, node, device) in allocated.difference(&entered) {
        let claim = claims.iter().find(|claim| claim.uid().as_ref() == Some(uid)).expect("it was listed");
        let users = claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
        let users: Vec<_> = users.iter().map(|user| (user.name.clone(), there.contains(&user.uid))).collect();
        let name = claim.name_any();
        broken.push(format!("claim {name} of {users:?} has {node} {device} and no ledger says so"));
    }
    broken
}

/// A share as the API server writes it.
fn millionths(text: &str) -> u64 {
    match text
        .strip_suffix('k')
        .map(|thousands| (thousands, 1000))
        .or(text.strip_suffix('M').map(|all| (all, WHOLE)))
    {
        Some((number, unit)) => number.parse::<u64>().unwrap_or(WHOLE) * unit,
        None => text.parse().unwrap_or(WHOLE),
    }
}
