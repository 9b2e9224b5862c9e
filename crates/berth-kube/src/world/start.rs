//! Orders: what is to be written so that a decision comes true.

use super::{
    Effect, UnboundVolume, World,
    groups::GroupKey,
    rank::{Rank, run_of},
    volumes,
};
use crate::{
    api,
    pods::{Seat, SeatNode},
    seen::{
        Key, Refusal, Text,
        pod::{PodGpus, PodSeen},
    },
};
use berth_types::{Change, Place, Span, TaskOutcome, WorkloadId};
use std::sync::Arc;

/// Tasks that start together.
#[derive(Debug, Clone)]
pub(crate) struct StartOrder {
    pub(crate) workload: WorkloadId,
    pub(crate) run: u32,
    /// The Workload whose Pods are to be made, and the project that pays; else the Pods are there and wait.
    pub(crate) make: Option<(Arc<api::Workload>, Text)>,
    pub(crate) tasks: Vec<StartTask>,
}

/// A task to be started.
#[derive(Debug, Clone)]
pub(crate) struct StartTask {
    pub(crate) place: Place,
    pub(crate) node: Arc<SeatNode>,
    /// The Pod that waits; none if it is to be made.
    pub(crate) waiting: Option<WaitingPod>,
    /// Claims whose volumes are to be made for the node first.
    pub(crate) volumes: Vec<UnboundVolume>,
    /// Which Pod in its place it is during the run, from one.
    pub(crate) turn: u32,
    /// The completion it is for.
    pub(crate) index: Option<u32>,
}

impl StartTask {
    /// The same, for whoever makes its Pod.
    pub(crate) fn seat(&self) -> Seat<'_> {
        Seat { place: &self.place, node: &self.node, turn: self.turn, index: self.index }
    }
}

/// A Pod that waits for its place.
#[derive(Debug, Clone)]
pub(crate) struct WaitingPod {
    pub(crate) key: Key,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) claim: Option<WaitingClaim>,
}

/// The claim of a Pod that waits.
#[derive(Debug, Clone)]
pub(crate) struct WaitingClaim {
    pub(crate) key: Key,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) request: Text,
}

/// A Pod that is to go.
#[derive(Debug, Clone)]
pub(crate) struct EvictOrder {
    pub(crate) workload: WorkloadId,
    pub(crate) pod: Key,
    pub(crate) uid: Text,
    pub(crate) grace: Span,
    /// By an eviction, which may be refused; else by its deletion.
    pub(crate) politely: bool,
}

impl World {
    /// Orders what the engine decided to start.
    pub(super) fn order_start(&mut self, id: WorkloadId, places: &[Place], more: bool) {
        self.note_tenant(id, places);
        let now = self.now;
        let Some(group) = self.groups.get_mut(&id) else { return };
        if !more {
            // An earlier process may have made Pods of a run that it did not live to write down.
            let known = group.pods.iter().filter_map(|uid| run_of(self.pods.get(uid)?)).max();
            group.ranks.clear();
            group.run = group.run.max(known.unwrap_or(0)) + 1;
            group.started = Some(now);
        }
        group.leaves_politely = false;
        let tasks = match &group.key {
            GroupKey::Workload(_) => {
                let first_turns = self.first_turns(id, places);
                self.new_pods(id, &first_turns)
            }
            _ => self.waiting_pods(id, places),
        };
        let tasks = tasks.ok_or_else(|| Refusal::new("GroupIncomplete", "Pods went while it was to start"));
        let tasks = tasks.and_then(|tasks| self.promise_ports(id, &tasks).map(|()| tasks));
        let make = self.to_make(id);
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        match tasks {
            Ok(tasks) => {
                for task in &tasks {
                    let pod = task.waiting.as_ref().map(|pod| pod.uid.clone());
                    let rank = Rank { pod, ordered: true, index: task.index, ..Rank::default() };
                    group.ranks.insert(task.place.rank, rank);
                }
                group.starting = true;
                self.effects.push(Effect::Start(StartOrder { workload: id, run: group.run, make, tasks }));
            }
            // Some time passes before the next try, or the same would be decided for ever.
            Err(_) if more => {
                for place in places {
                    let (rank, outcome) = (place.rank, TaskOutcome::Lost);
                    self.must(&Change::Ended { workload: id, rank, outcome, at: now });
                }
            }
            Err(refusal) => {
                group.refusal = Some(refusal);
                group.not_before = Some(now + Span::secs(1));
                self.due.insert((now + Span::secs(1), id));
                self.must(&Change::Refused { workload: id, at: now });
            }
        }
    }

    pub(super) fn to_make(&self, id: WorkloadId) -> Option<(Arc<api::Workload>, Text)> {
        let group = &self.groups[&id];
        let workload = group.workload.as_ref()?;
        let (project, _) = self.owners.project_of(&group.namespace).ok()?;
        Some((Arc::clone(workload), self.owners.project_name(project)?.clone()))
    }

    /// Tasks whose Pods are to be made, each with its turn and its completion.
    pub(super) fn new_pods(
        &self,
        id: WorkloadId,
        places: &[(Place, u32, Option<u32>)],
    ) -> Option<Vec<StartTask>> {
        let group = &self.groups[&id];
        let claims = group.workload.as_deref().map(volumes::claims_of).unwrap_or_default();
        let task = |(place, turn, index): &(Place, u32, Option<u32>)| {
            let (place, node) = (place.clone(), self.seat_node(place)?);
            let volumes = self.unbound_volumes(&group.namespace, &claims, &node.name);
            Some(StartTask { place, node, waiting: None, volumes, turn: *turn, index: *index })
        };
        places.iter().map(task).collect()
    }

    fn waiting_pods(&self, id: WorkloadId, places: &[Place]) -> Option<Vec<StartTask>> {
        let group = &self.groups[&id];
        let taken = |pod: &PodSeen| group.ranks.values().any(|rank| rank.pod.as_ref() == Some(&pod.uid));
        let mut pods: Vec<&Arc<PodSeen>> = group
            .pods
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .filter(|pod| pod.node.is_none() && !pod.leaving && !pod.gated && !pod.is_over() && !taken(pod))
            .collect();
        if pods.len() < places.len() {
            return None;
        }
        pods.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        let task = |(place, pod): (&Place, &Arc<PodSeen>)| {
            let claim = match &pod.gpus {
                PodGpus::Claimed(key) => {
                    let claim = self.claims.get(key)?;
                    Some(WaitingClaim {
                        key: key.clone(),
                        uid: claim.uid.clone(),
                        version: claim.version.clone(),
                        request: claim.request.clone(),
                    })
                }
                _ => None,
            };
            let waiting = WaitingPod {
                key: pod.key.clone(),
                uid: pod.uid.clone(),
                version: pod.version.clone(),
                claim,
            };
            let node = self.seat_node(place)?;
            let volumes = self.unbound_volumes(&pod.key.namespace, &pod.volumes, &node.name);
            let waiting = Some(waiting);
            Some(StartTask { place: place.clone(), node, waiting, volumes, turn: 1, index: None })
        };
        places.iter().zip(pods).map(task).collect()
    }

    /// Where a place is, in the words of the cluster.
    fn seat_node(&self, place: &Place) -> Option<Arc<SeatNode>> {
        let name = self.node_names.get(&place.node)?;
        self.nodes.get(name)?.seat.clone()
    }
}
