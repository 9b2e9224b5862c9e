//! Ledgers: one object per node says who has which part of its devices, and changes only from the version that was read.
//!
//! Two processes that both believe to lead cannot give away the same share: the second to write finds a newer version, or an
//! epoch above its own. Starts on one node share a write, as callers of a log share a sync.

use super::{Requests, WriteError};
use crate::{
    api::{DeviceAllocation, DeviceLedger, DeviceLedgerSpec},
    seen::{Key, Text},
};
use berth_types::{Bytes, Share};
use kube::ResourceExt;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

const PATH: &str = "/apis/berth.dev/v1alpha1/deviceledgers";

/// What a claim is to have.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) claim: Key,
    pub(crate) uid: Text,
    pub(crate) pod: Text,
    pub(crate) shares: Vec<(Text, Share, Bytes)>,
}

/// The ledgers of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    nodes: Mutex<HashMap<String, Arc<Ledger>>>,
    /// The nodes whose ledgers name a claim. A release is not written down at once, so after a while without a leader several may.
    claims: Mutex<HashMap<Key, BTreeSet<String>>>,
    /// The claim of a Pod.
    pods: Mutex<HashMap<Text, Key>>,
}

/// The ledger of a node.
#[derive(Debug, Default)]
struct Ledger {
    /// What is to be written.
    wanted: Mutex<Wanted>,
    /// The version that was last written or read, and how much of what is wanted is in it. Held while a write is under way.
    written: tokio::sync::Mutex<Written>,
}

#[derive(Debug, Default)]
struct Wanted {
    entries: BTreeMap<Key, Held>,
    changes: u64,
}

#[derive(Debug, Default)]
struct Written {
    version: Option<String>,
    changes: u64,
}

impl Ledgers {
    /// Ledgers as they were found.
    pub(crate) fn found(ledgers: Vec<DeviceLedger>) -> Self {
        let ours = Self::default();
        for ledger in ledgers {
            let mut entries: BTreeMap<Key, Held> = BTreeMap::new();
            for held in ledger.spec.allocations.iter().filter_map(held) {
                match entries.get_mut(&held.claim) {
                    // A claim may have several devices, each in a line of its own.
                    Some(known) if known.uid == held.uid => known.shares.extend(held.shares),
                    _ => drop(entries.insert(held.claim.clone(), held)),
                }
            }
            let name = ledger.name_any();
            for (claim, held) in &entries {
                lock(&ours.claims).entry(claim.clone()).or_default().insert(name.clone());
                lock(&ours.pods).insert(held.pod.clone(), claim.clone());
            }
            let written = Written { version: ledger.resource_version(), changes: 0 };
            let ledger = Ledger {
                wanted: Mutex::new(Wanted { entries, changes: 0 }),
                written: tokio::sync::Mutex::new(written),
            };
            lock(&ours.nodes).insert(name, Arc::new(ledger));
        }
        ours
    }

    /// Claims that have something by some ledger.
    pub(crate) fn claims(&self) -> Vec<(Key, Text)> {
        let nodes = lock(&self.nodes);
        let entries = nodes.values().flat_map(|ledger| {
            let wanted = lock(&ledger.wanted);
            wanted.entries.values().map(|held| (held.claim.clone(), held.uid.clone())).collect::<Vec<_>>()
        });
        entries.collect()
    }

    /// Writes down that a claim has shares of the devices of a node; returns when that is durable.
    pub(super) async fn hold(&self, requests: &Requests, node: &str, held: Held) -> Result<(), WriteError> {
        let ledger = Arc::clone(lock(&self.nodes).entry(node.to_owned()).or_default());
        self.released(&held.claim);
        lock(&self.claims).entry(held.claim.clone()).or_default().insert(node.to_owned());
        lock(&self.pods).insert(held.pod.clone(), held.claim.clone());
        let mine = {
            let mut wanted = lock(&ledger.wanted);
            wanted.has_room(&held)?;
            wanted.entries.insert(held.claim.clone(), held);
            wanted.changes += 1;
            wanted.changes
        };
        let mut written = ledger.written.lock().await;
        if written.changes >= mine {
            // Whoever wrote before took this along.
            return Ok(());
        }
        let (spec, changes) = {
            let wanted = lock(&ledger.wanted);
            let allocations = wanted.entries.values().flat_map(allocations).collect();
            let epoch = i64::try_from(requests.epoch()?).unwrap_or(i64::MAX);
            (DeviceLedgerSpec { epoch, allocations }, wanted.changes)
        };
        let mut body = json!({
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "DeviceLedger",
            "metadata": { "name": node },
            "spec": spec,
        });
        let sent = match &written.version {
            Some(version) => {
                body["metadata"]["resourceVersion"] = version.as_str().into();
                requests.put(&format!("{PATH}/{node}"), &body).await
            }
            None => requests.post(PATH, &body).await,
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(WriteError::Refused { code: 409, .. }) => {
                self.reread(requests, node, &mut written, &spec).await?
            }
            Err(error) => return Err(error),
        };
        let answer: DeviceLedger = serde_json::from_slice(&answer)
            .map_err(|error| WriteError::Unanswered(format!("a ledger cannot be read: {error}")))?;
        written.version = answer.resource_version();
        written.changes = changes;
        Ok(())
    }

    /// The ledger is not of the version that was known. If it says what was to be written, an earlier try wrote it and its
    /// answer was lost; if not, somebody else writes.
    async fn reread(
        &self,
        requests: &Requests,
        node: &str,
        written: &mut Written,
        wanted: &DeviceLedgerSpec,
    ) -> Result<Vec<u8>, WriteError> {
        let answer = requests.get(&format!("{PATH}/{node}")).await?;
        let found: DeviceLedger = serde_json::from_slice(&answer)
            .map_err(|error| WriteError::Unanswered(format!("a ledger cannot be read: {error}")))?;
        if found.spec == *wanted {
            return Ok(answer);
        }
        written.version = found.resource_version();
        Err(WriteError::Refused {
            code: 409,
            message: format!("another process (epoch {}) wrote the ledger of node {node}", found.spec.epoch),
        })
    }

    /// A Pod is over or gone, and its claims have nothing any more.
    pub(super) fn released_by(&self, pod: &str) {
        let Some(claim) = lock(&self.pods).remove(pod) else { return };
        self.strike(&claim, |_, held| *held.pod == *pod);
    }

    /// Pods that have something by some ledger.
    pub(crate) fn pods(&self) -> Vec<Text> {
        lock(&self.pods).keys().cloned().collect()
    }

    /// A claim has nothing any more. That is not written down at once: an entry without a claim holds nothing.
    pub(crate) fn released(&self, claim: &Key) {
        self.strike(claim, |_, _| true);
    }

    /// An earlier claim of this name has nothing any more.
    pub(crate) fn released_earlier(&self, claim: &Key, uid: &str) {
        self.strike(claim, |_, held| *held.uid == *uid);
    }

    /// A claim has what it has on these nodes; other ledgers name it from a start that came to nothing.
    pub(crate) fn is_only_on(&self, claim: &Key, nodes: &BTreeSet<&str>) {
        self.strike(claim, |node, _| !nodes.contains(node));
    }

    /// Removes entries of a claim.
    fn strike(&self, claim: &Key, goes: impl Fn(&str, &Held) -> bool) {
        let mut claims = lock(&self.claims);
        let Some(nodes) = claims.get_mut(claim) else { return };
        let mut owners = Vec::new();
        nodes.retain(|node| {
            let Some(ledger) = lock(&self.nodes).get(node).cloned() else { return false };
            let mut wanted = lock(&ledger.wanted);
            let stays = wanted.entries.get(claim).is_some_and(|held| !goes(node, held));
            if !stays {
                owners.extend(wanted.entries.remove(claim).map(|held| held.pod));
            }
            stays
        });
        if nodes.is_empty() {
            claims.remove(claim);
            owners.iter().for_each(|pod| drop(lock(&self.pods).remove(pod)));
        }
    }
}

impl Wanted {
    /// Whether devices have the shares that a claim is to have. They always do unless something is still there of which the
    /// engine does not know any more, such as a Pod that is about to be taken away.
    fn has_room(&self, held: &Held) -> Result<(), WriteError> {
        for (device, share, _) in &held.shares {
            let others = self.entries.values().filter(|other| other.claim != held.claim);
            let mut taken = others.flat_map(|other| other.shares.iter().map(move |share| (other, share)));
            let mut free = Share::WHOLE.millionths();
            let full = taken.find(|(_, (name, taken, _))| {
                let is_here = name == device;
                free = free.saturating_sub(if is_here { taken.millionths() } else { 0 });
                is_here && free < share.millionths()
            });
            if let Some((other, _)) = full {
                let message = format!("{device} is still held by claim {}", other.claim);
                return Err(WriteError::Refused { code: 409, message });
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocations(held: &Held) -> Vec<DeviceAllocation> {
    let one = |(device, share, memory): &(Text, Share, Bytes)| DeviceAllocation {
        claim: held.claim.to_string(),
        uid: held.uid.to_string(),
        device: device.to_string(),
        share: i64::from(share.millionths()),
        memory: i64::try_from(memory.0).unwrap_or(i64::MAX),
        owner: Some(held.pod.to_string()),
    };
    held.shares.iter().map(one).collect()
}

fn held(allocation: &DeviceAllocation) -> Option<Held> {
    let (namespace, name) = allocation.claim.split_once('/')?;
    let share = Share::from_millionths(u32::try_from(allocation.share).ok()?)?;
    let memory = Bytes(u64::try_from(allocation.memory).ok()?);
    Some(Held {
        claim: Key::new(namespace, name),
        uid: allocation.uid.as_str().into(),
        pod: allocation.owner.as_deref().unwrap_or_default().into(),
        shares: vec![(allocation.device.as_str().into(), share, memory)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(claim: &str, device: &str) -> DeviceAllocation {
        DeviceAllocation {
            claim: format!("team/{claim}"),
            uid: format!("{claim}-uid"),
            device: device.into(),
            share: 500_000,
            memory: 0,
            owner: Some(format!("{claim}-pod")),
        }
    }

    fn ledger(node: &str, allocations: Vec<DeviceAllocation>) -> DeviceLedger {
        DeviceLedger::new(node, DeviceLedgerSpec { epoch: 1, allocations })
    }

    fn has_room(ledgers: &Ledgers, node: &str, allocation: &DeviceAllocation) -> bool {
        let ledger = lock(&ledgers.nodes).get(node).cloned().expect("a ledger");
        lock(&ledger.wanted).has_room(&held(allocation).expect("an entry")).is_ok()
    }

    /// Killed while it started on one node, started on another, killed again: both ledgers name the claim.
    #[test]
    fn what_an_earlier_start_left_in_another_ledger_holds_nothing() {
        let found = || {
            Ledgers::found(vec![
                ledger("old", vec![half("a", "gpu-0"), half("b", "gpu-0")]),
                ledger("new", vec![half("a", "gpu-0")]),
            ])
        };
        let (a, other) = (Key::new("team", "a"), half("other", "gpu-0"));
        let ledgers = found();
        assert!(!has_room(&ledgers, "old", &other));
        ledgers.is_only_on(&a, &BTreeSet::from(["new"]));
        assert!(has_room(&ledgers, "old", &other), "the other half is free");
        assert_eq!(lock(&ledgers.nodes)["new"].wanted.lock().expect("is whole").entries.len(), 1);
        let ledgers = found();
        ledgers.released(&a);
        assert!(has_room(&ledgers, "old", &other));
        let ledgers = found();
        ledgers.released_by("a-pod");
        assert!(has_room(&ledgers, "old", &other));
        assert_eq!(ledgers.pods(), [Text::from("b-pod")]);
    }
}
