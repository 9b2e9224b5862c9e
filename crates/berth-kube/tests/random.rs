//! Random stories, played in the simulator and on a real API server: after each step both stand the same, device by device.
//!
//! `BERTH_STORIES` says how many; `BERTH_SEED` plays one again.

mod mirror;

use berth_sim::{Work, random::SplitMix64};
use berth_testbed::{Cluster, NodeSpec};
use berth_types::{
    Entitlement, GpuRequest, Gpus, Kind, Project, ProjectId, Request, Selector, Share, Span, Spread, Tasks,
    Topology, WorkloadId, WorkloadSpec, default_pool,
};
use mirror::{Mirror, Operator, block_on, cluster, connect, install};
use std::{collections::BTreeMap, num::NonZeroU8};

/// How many stories there are unless somebody says otherwise.
const STORIES: u64 = 20;
const NODES: u32 = 3;
const STEPS: u64 = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_stories_stand_the_same_in_the_simulator_and_on_kubernetes() {
    let options =
        berth_testbed::Options { nodes: vec![NodeSpec::dgx1(NODES).with_dra()], ..Default::default() };
    let Some(cluster) = cluster("random stories on Kubernetes", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let operator = Operator::start(&client);
        let seeds = match number("BERTH_SEED") {
            Some(seed) => seed..seed + 1,
            None => 0..number("BERTH_STORIES").unwrap_or(STORIES),
        };
        let (count, mut steps) = (seeds.end - seeds.start, 0);
        for seed in seeds {
            eprintln!("story BERTH_SEED={seed}");
            steps += story(&cluster, &client, seed).await;
        }
        eprintln!("{count} stories, {steps} steps: the same after each");
        operator.stop().await;
    });
}

async fn story(cluster: &Cluster, client: &kube::Client, seed: u64) -> u64 {
    let mut random = SplitMix64::new(seed);
    let mut both = Mirror::new(client, berth_sim::World::new(berth_sim::Options::default()));
    for node in mirror::sim_nodes(NODES) {
        both.sim.apply(berth_types::Change::NodeSet(node)).expect("a node");
    }
    let projects = 2 + random.below(3);
    for id in 1..=projects {
        let mut project = Project::named(ProjectId(id), format!("p{seed}-{id}"));
        let weight = if random.percent(20) { Some(Gpus::whole(random.below(4))) } else { None };
        let limit = if random.percent(15) { Some(Gpus::whole(8 + random.below(8))) } else { None };
        let quota = Some(Gpus::whole(random.below(13)));
        let entitlement =
            Entitlement { quota, weight, limit, rank: random.below(2) as i32, ..Default::default() };
        project.entitlements.insert(default_pool(), entitlement);
        both.project(&project).await;
    }
    let mut lost: Option<String> = None;
    for step in 0..STEPS {
        let unfinished = both.unfinished();
        let what = match random.below(10) {
            0..=5 => {
                let id = WorkloadId(100 + step);
                let spec = any_spec(&mut random, projects, &format!("w{step}"));
                let what = format!("{} asks for {:?} x {:?}", spec.name, spec.request.gpu, spec.tasks);
                both.submit(id, &spec, Work::default()).await;
                what
            }
            6 if !unfinished.is_empty() => {
                let id = unfinished[random.below(unfinished.len() as u64) as usize];
                both.delete(&[id]).await;
                format!("{id} is deleted")
            }
            7 | 8 => match both.running().as_slice() {
                [] => continue,
                running => {
                    let id = running[random.below(running.len() as u64) as usize];
                    both.finish(id, &format!("BERTH_SEED={seed}, step {step}")).await;
                    format!("{id} ends")
                }
            },
            _ => match lost.take() {
                Some(name) => {
                    both.restore(cluster, &name);
                    format!("{name} is back")
                }
                None => {
                    let name = format!("node{}", 1 + random.below(u64::from(NODES)));
                    both.lose(cluster, &name);
                    let what = format!("{name} is lost");
                    lost = Some(name);
                    what
                }
            },
        };
        both.agree(&format!("BERTH_SEED={seed}, step {step}: {what}")).await;
    }
    if let Some(name) = lost {
        both.restore(cluster, &name);
    }
    both.clear().await;
    STEPS
}

fn any_spec(random: &mut SplitMix64, projects: u64, name: &str) -> WorkloadSpec {
    let one = NonZeroU8::MIN;
    let gpu = match random.below(10) {
        0..=2 => GpuRequest::Whole(one),
        3 | 4 => GpuRequest::Whole(NonZeroU8::new(2).expect("two")),
        5 => GpuRequest::Whole(NonZeroU8::new(4).expect("four")),
        6 => GpuRequest::Whole(NonZeroU8::new(8).expect("eight")),
        _ => {
            let share = Share::from_millionths(100_000 * (1 + random.below(9) as u32)).expect("a share");
            GpuRequest::Fraction { share, devices: one }
        }
    };
    let kind = match random.below(10) {
        0..=5 => Kind::Train,
        6 | 7 => Kind::Interactive,
        _ => Kind::Distributed,
    };
    let tasks = match kind {
        Kind::Distributed => {
            // Without extras: those start on whatever is free, and of a gang that leaves, one goes before the other.
            let workers = 2 + random.below(3) as u32;
            Tasks::new(workers, workers).expect("a gang")
        }
        _ => Tasks::ONE,
    };
    let preemptible = kind.preemptible() || random.percent(20);
    WorkloadSpec {
        name: name.into(),
        project: ProjectId(1 + random.below(projects)),
        user: String::new(),
        kind,
        request: Request {
            gpu,
            models: Default::default(),
            cpu: berth_types::Cpu::ZERO,
            memory: berth_types::Bytes::ZERO,
        },
        tasks,
        pool: default_pool(),
        selector: Selector(BTreeMap::new()),
        topology: Topology::default(),
        spread: match random.below(20) {
            0 | 1 => Spread::Spread,
            2 | 3 => Spread::Apart,
            _ => Spread::Pack,
        },
        priority: kind.priority(preemptible) + if random.percent(20) { 5 } else { 0 },
        preemptible,
        max_run: None,
        retry_limit: 0,
        grace: Span::secs(1),
    }
}
