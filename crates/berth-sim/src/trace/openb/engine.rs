//! The FGD experiment on the real engine: one project whose quota is never reached, so that only placement decides.

use super::{
    Hosts, PodList, Shape, WHOLE,
    replay::{Curve, NodeState, Ties, set_up},
    shuffle,
};
use crate::random::SplitMix64;
use anyhow::Context;
use berth_engine::Engine;
use berth_types::{
    Action, Bytes, Change, Cpu, Device, Entitlement, GpuRequest, Gpus, Kind, MixEntry, Name, Node,
    NodeCondition, NodeId, Phase, Policy, Project, ProjectId, Request, Selector, Share, Span, Spread, Tasks,
    Time, Topology, Workload, WorkloadId, WorkloadSpec, default_pool,
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
pub fn run(
    hosts: &Hosts,
    list: &PodList,
    seed: u64,
    mix: Vec<MixEntry>,
    ties: Ties,
) -> anyhow::Result<Curve> {
    let mut random = SplitMix64::new(seed);
    let (hosts_in_order, arrivals) = set_up(hosts, list, &mut random);
    let models: Vec<Name> = hosts.models.iter().map(|model| Name::from(model.as_str())).collect();
    let requests: Vec<Request> = list.shapes.iter().map(|shape| request(shape, &models)).collect();
    let nodes: Vec<Node> =
        hosts_in_order.iter().enumerate().map(|(index, host)| node(index, host, &models)).collect();
    let policy = Policy { moves: false, reserve_after: Span(u64::MAX / 4), mix, ..Policy::default() };
    let mut engine = engine_with(&policy, &nodes, &[])?;
    let mut labels: Vec<u64> = (0..nodes.len() as u64).collect();

    let total = hosts.gpu_milli();
    let (mut arrived, mut allocated) = (0, 0);
    let mut curve = Curve::new();
    for (index, shape) in arrivals.into_iter().enumerate() {
        let (id, at) = (WorkloadId(index as u64), Time(index as u64 * 1000));
        if ties == Ties::Shuffled {
            engine = relabelled(&policy, &engine, &mut labels, &mut random)?;
        }
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

fn node(index: usize, host: &NodeState, models: &[Name]) -> Node {
    let device = Device { model: models[usize::from(host.model)].clone(), memory: Bytes::gib(16) };
    Node {
        id: NodeId(index as u64),
        name: format!("node-{index:04}"),
        devices: vec![device; usize::from(host.gpus)],
        cpu: Cpu(u64::from(host.cpu)),
        memory: Bytes::mib(u64::from(host.memory)),
        labels: BTreeMap::new(),
        condition: NodeCondition::Ready,
    }
}

/// An engine that knows these nodes, these workloads and one project that may use everything.
fn engine_with(policy: &Policy, nodes: &[Node], workloads: &[Workload]) -> anyhow::Result<Engine> {
    let mut engine = Engine::new(policy.clone());
    for node in nodes {
        engine.apply(&Change::NodeSet(node.clone()))?;
    }
    let mut project = Project::named(PROJECT, "openb");
    let entitlement = Entitlement { quota: Some(Gpus(Gpus::MAX.0 / 2)), ..Entitlement::default() };
    project.entitlements.insert(default_pool(), entitlement);
    engine.apply(&Change::ProjectSet(project))?;
    for workload in workloads {
        engine.apply(&Change::Submitted(workload.clone()))?;
    }
    Ok(engine)
}

/// The same engine with other ids for all nodes. Ids decide only between nodes that are equally good, so this is the
/// node order reshuffled for the next decision.
fn relabelled(
    policy: &Policy,
    engine: &Engine,
    labels: &mut [u64],
    random: &mut SplitMix64,
) -> anyhow::Result<Engine> {
    shuffle(labels, random);
    let state = engine.state();
    let renamed = |id: NodeId| NodeId(labels[id.0 as usize]);
    let nodes: Vec<Node> =
        state.nodes.values().map(|node| Node { id: renamed(node.id), ..node.clone() }).collect();
    let mut workloads: Vec<Workload> = state.workloads.values().cloned().collect();
    for workload in &mut workloads {
        if let Phase::Running { tasks, .. } = &mut workload.phase {
            tasks.iter_mut().for_each(|task| task.place.node = renamed(task.place.node));
        }
    }
    engine_with(policy, &nodes, &workloads)
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
