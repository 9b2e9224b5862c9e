//! Pods that nobody pays for: others placed them, or nobody can be made to pay. They take what they take.

use super::{
    STRANGERS, World,
    groups::Wanted,
    rank::{Rank, run_of},
};
use crate::seen::pod::{PodGpus, PodSeen};
use berth_types::{
    AfterStop, GpuRequest, Kind, Outcome, Phase, Request, Selector, Span, Spread, Task, Tasks, Topology,
    Workload, WorkloadId, WorkloadSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl World {
    /// Pods that are on nodes although nobody can be made to pay for them, or nobody wants them any more: they take what they
    /// take, and those that nobody wants are to go.
    pub(super) fn unaccounted(&mut self, id: WorkloadId, unwanted: bool) -> Option<Wanted> {
        let pods: Vec<Arc<PodSeen>> = self.bound_pods(id).into_values().collect();
        let first = pods.first()?.clone();
        let request = self.request_of(&pods).ok()?;
        let mut places = Vec::new();
        for (rank, pod) in pods.iter().enumerate() {
            places.push(self.place_of(id, rank as u32, pod, &request, &places)?);
        }
        let mut spec = self.stranger_spec(&first, request, places.first()?.node);
        spec.tasks = Tasks::new(pods.len() as u32, pods.len() as u32)?;
        spec.grace = pods.iter().map(|pod| pod.grace).max().unwrap_or(Span::ZERO);
        let mut workload = Workload::submitted(id, spec, self.groups[&id].submitted);
        let run = pods.iter().filter_map(|pod| run_of(pod)).max();
        let group = self.groups.get_mut(&id)?;
        group.run = group.run.max(run.unwrap_or(1));
        let rank = |pod: &PodSeen| Rank::of(pod, unwanted && pod.leaving);
        group.ranks = (0..).zip(pods.iter().map(|pod| rank(pod))).collect();
        workload.phase = if unwanted {
            Phase::Stopping { leaving: places, then: AfterStop::Finish(Outcome::Cancelled) }
        } else {
            let since = pods.iter().map(|pod| pod.started.unwrap_or(pod.created)).min()?;
            let tasks = places.into_iter().map(|place| Task { place, extra: false }).collect();
            Phase::Running { tasks, leaving: Vec::new(), since, confirmed: true, passing: false }
        };
        Some(Wanted::There(Box::new(workload)))
    }

    /// A Pod that others placed: it takes what it takes, and is nobody's to move.
    pub(super) fn stranger(&mut self, id: WorkloadId, pod: &PodSeen) -> Wanted {
        let Some(node) = &pod.node else { return Wanted::Over };
        if self.node_id(node).is_none() {
            return Wanted::Waits(None);
        }
        let gpu = match &pod.gpus {
            PodGpus::Counted(count) => GpuRequest::Whole(*count),
            PodGpus::Claimed(key) => match self.claims.get(key) {
                Some(claim) if claim.taken.is_none() => return Wanted::Waits(None),
                Some(claim) => claim.asked.as_ref().map_or(GpuRequest::None, |asked| asked.gpu),
                // A claim of another driver's devices.
                None => GpuRequest::None,
            },
            PodGpus::None | PodGpus::Unmade => GpuRequest::None,
        };
        let request = Request { gpu, models: BTreeSet::new(), cpu: pod.cpu, memory: pod.memory };
        let place = match &pod.gpus {
            PodGpus::Claimed(key) if self.claims.contains_key(key) => {
                self.place_of(id, 0, pod, &request, &[])
            }
            PodGpus::Counted(_) => self.place_of(id, 0, pod, &request, &[]),
            _ => self.place_of(id, 0, &PodSeen { gpus: PodGpus::None, ..pod.clone() }, &request, &[]),
        };
        let Some(place) = place else { return Wanted::Waits(None) };
        let spec = self.stranger_spec(pod, request, place.node);
        let mut workload = Workload::submitted(id, spec, pod.created);
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        group.ranks = BTreeMap::from([(0, Rank::of(pod, false))]);
        let tasks = vec![Task { place, extra: false }];
        let since = pod.started.unwrap_or(pod.created);
        workload.phase =
            Phase::Running { tasks, leaving: Vec::new(), since, confirmed: true, passing: false };
        Wanted::There(Box::new(workload))
    }

    /// What the engine knows of Pods that nobody pays for.
    fn stranger_spec(&self, pod: &PodSeen, request: Request, node: berth_types::NodeId) -> WorkloadSpec {
        let pool = self.engine.nodes()[&node].pool();
        WorkloadSpec {
            name: pod.key.to_string(),
            project: STRANGERS,
            user: String::new(),
            kind: Kind::Inference,
            request,
            tasks: Tasks::ONE,
            pool,
            selector: Selector::default(),
            topology: Topology::default(),
            spread: Spread::Pack,
            priority: i32::MAX,
            preemptible: false,
            max_run: None,
            retry_limit: 0,
            grace: Span::ZERO,
        }
    }
}
