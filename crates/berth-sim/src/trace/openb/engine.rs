//! The FGD experiment on the real engine: one project whose quota is never reached, so that only placement decides.

use super::{
    Hosts, PodList, Shape, WHOLE,
    replay::{Curve, set_up},
};
use crate::random::SplitMix64;
use anyhow::Context;
use berth_engine::Engine;
use berth_types::{
    Action, Bytes, Change, Cpu, Device, Entitlement, GpuRequest, Gpus, Kind, MixEntry, Name, Node,
    NodeCondition, NodeId, Policy, Project, ProjectId, Request, Selector, Share, Span, Spread, Tasks, Time,
    Topology, Workload, WorkloadId, WorkloadSpec, default_pool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
};

const PROJECT: ProjectId = ProjectId(1);

/// What a pod asks the engine for.
pub fn request(shape: &Shape, models: &[Name]) -> Request {
    let gpu = match (NonZeroU8::new(shape.gpus), shape.share_milli) {
        (None, _) => GpuRequest::None,
        (Some(count), WHOLE) => GpuRequest::Whole(count),
        (Some(devices), milli) => GpuRequest::Fraction {
            share: Share::from_millionths(milli * 1000).expect("pod lists hold shares of 1 to 1000"),
            devices,
        },
    };
    let named = (0..models.len()).filter(|model| shape.models & (1 << model) != 0);
    Request {
        gpu,
        models: named.map(|model| models[model].clone()).collect::<BTreeSet<_>>(),
        cpu: Cpu(u64::from(shape.cpu_milli)),
        memory: Bytes::mib(u64::from(shape.memory_mib)),
    }
}

/// The mix of a whole pod list, as the engine's policy spells it.
pub fn mix(list: &PodList, models: &[Name]) -> Vec<MixEntry> {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for &pod in &list.pods {
        *counts.entry(pod).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(shape, count)| MixEntry { request: request(&list.shapes[shape], models), count })
        .collect()
}

/// Runs one seed on the engine. Pods that are not started at once are dropped, as in the experiment.
pub fn run(hosts: &Hosts, list: &PodList, seed: u64, mix: Vec<MixEntry>) -> anyhow::Result<Curve> {
    let mut random = SplitMix64::new(seed);
    let (nodes, arrivals) = set_up(hosts, list, &mut random);
    let models: Vec<Name> = hosts.models.iter().map(|model| Name::from(model.as_str())).collect();
    let requests: Vec<Request> = list.shapes.iter().map(|shape| request(shape, &models)).collect();
    let mut engine =
        Engine::new(Policy { moves: false, reserve_after: Span(u64::MAX / 4), mix, ..Policy::default() });
    for (index, node) in nodes.iter().enumerate() {
        let device = Device { model: models[usize::from(node.model)].clone(), memory: Bytes::gib(16) };
        engine.apply(&Change::NodeSet(Node {
            id: NodeId(index as u64),
            name: format!("node-{index:04}"),
            devices: vec![device; usize::from(node.gpus)],
            cpu: Cpu(u64::from(node.cpu)),
            memory: Bytes::mib(u64::from(node.memory)),
            labels: BTreeMap::new(),
            condition: NodeCondition::Ready,
        }))?;
    }
    let mut project = Project::named(PROJECT, "openb");
    let entitlement = Entitlement { quota: Some(Gpus(Gpus::MAX.0 / 2)), ..Entitlement::default() };
    project.entitlements.insert(default_pool(), entitlement);
    engine.apply(&Change::ProjectSet(project))?;

    let total = hosts.gpu_milli();
    let (mut arrived, mut allocated) = (0, 0);
    let mut curve = Curve::new();
    for (index, shape) in arrivals.into_iter().enumerate() {
        let (id, at) = (WorkloadId(index as u64), Time(index as u64 * 1000));
        let asked = list.shapes[shape].gpu_milli();
        arrived += asked;
        engine.apply(&Change::Submitted(Workload::submitted(id, spec(&requests[shape]), at)))?;
        let plan = engine.plan(at);
        let started = plan
            .actions
            .iter()
            .any(|action| matches!(action, Action::Start { workload, .. } if *workload == id));
        if started {
            allocated += asked;
            engine.apply(&Change::Confirmed { workload: id })?;
        } else {
            engine
                .apply(&Change::Cancelled { workload: id, at })
                .with_context(|| format!("dropping pod {index} that was not started"))?;
            engine.apply(&Change::Forgotten(id))?;
        }
        curve.record(arrived, allocated, total);
    }
    Ok(curve)
}

fn spec(request: &Request) -> WorkloadSpec {
    WorkloadSpec {
        name: "pod".into(),
        project: PROJECT,
        user: "openb".into(),
        kind: Kind::Train,
        request: request.clone(),
        tasks: Tasks::ONE,
        pool: default_pool(),
        selector: Selector::default(),
        topology: Topology::default(),
        spread: Spread::Pack,
        priority: Kind::Train.priority(true),
        preemptible: true,
        max_run: None,
        retry_limit: 0,
        grace: Span::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_becomes_the_request_it_describes() {
        let models = [Name::from("T4"), Name::from("G2")];
        let shape =
            |gpus, share_milli, models| Shape { cpu_milli: 1500, memory_mib: 2, gpus, share_milli, models };
        let none = request(&shape(0, 0, 0), &models);
        assert_eq!((none.gpu, none.cpu, none.memory), (GpuRequest::None, Cpu(1500), Bytes::mib(2)));
        let part = request(&shape(1, 250, 0b10), &models);
        let share = Share::from_millionths(250_000).unwrap();
        let one = NonZeroU8::MIN;
        assert_eq!(part.gpu, GpuRequest::Fraction { share, devices: one });
        assert_eq!(part.models, BTreeSet::from([Name::from("G2")]));
        assert_eq!(request(&shape(1, 1000, 0), &models).gpu, GpuRequest::Whole(one));
    }
}
