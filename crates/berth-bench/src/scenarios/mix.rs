//! The mixed work of a large installation: about sixty distinct shapes, spread over many projects.

use crate::{cluster, random::Random};
use berth_types::{
    Bytes, Change, Cpu, Department, DepartmentId, Entitlement, GpuRequest, Gpus, Kind, Name, Project,
    ProjectId, Request, Share, Tasks, Time, Topology, TopologyLevel, Workload, WorkloadId, WorkloadSpec,
    default_pool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
};

const NODES_PER_RACK: usize = 40;
const PROJECTS_PER_DEPARTMENT: usize = 20;
const RACK: &str = "rack";

/// Models, and of a hundred nodes how many have each.
const MODELS: [(u64, &str); 3] = [(50, "a100"), (30, "h100"), (20, "v100")];

/// The GPUs of one workload.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A part of one device, in quarters.
    Quarters(u32),
    /// Whole devices of one node.
    Whole(u8),
    /// Whole nodes.
    Gang,
}

/// Of a thousand workloads that are no gangs, how many have each shape.
const SHAPES: [(u64, Shape); 6] = [
    (300, Shape::Quarters(1)),
    (250, Shape::Quarters(2)),
    (304, Shape::Whole(1)),
    (90, Shape::Whole(2)),
    (36, Shape::Whole(4)),
    (20, Shape::Whole(8)),
];

/// What such a workload asks for on average, in thousandths of a GPU.
const SMALL_MEAN: u64 = 988;

/// Gangs have 2 to 16 whole nodes, 9 on average; in thousandths of a GPU.
const GANG_MEAN: u64 = 9 * cluster::GPUS_PER_NODE * 1_000;

/// Draws an installation and its work, the same for the same seed.
pub(crate) struct Mix {
    random: Random,
    nodes: usize,
    /// Of a hundred thousand workloads, how many are gangs.
    gangs: u64,
    projects: Vec<Part>,
    next_id: u64,
}

/// What a project is promised, and how much of the demand is its own.
struct Part {
    quota: u64,
    demand: u64,
    /// Millionths asked for by its non-preemptible work, which may never pass its quota.
    pinned: u64,
}

impl Mix {
    /// As many workloads as `running` use 88 of a hundred GPUs, whatever the number of nodes: the fewer workloads,
    /// the more of them are gangs.
    pub(crate) fn new(seed: u64, nodes: usize, projects: usize, running: usize) -> Self {
        let mean = nodes as u64 * cluster::GPUS_PER_NODE * 880 / running as u64;
        let gangs = mean.saturating_sub(SMALL_MEAN) * 100_000 / (GANG_MEAN - SMALL_MEAN);
        let mut random = Random::seeded(seed);
        let drawn: Vec<(u64, u64)> =
            (0..projects).map(|_| (1 + random.below(9), 1 + random.below(3))).collect();
        let parts: u64 = drawn.iter().map(|(part, _)| part).sum();
        // Nine tenths are promised, as an administrator does who wants something left to share.
        let promised = nodes as u64 * cluster::GPUS_PER_NODE * 9 / 10;
        let projects = drawn
            .into_iter()
            .map(|(part, appetite)| Part {
                quota: promised * part / parts,
                demand: part * appetite,
                pinned: 0,
            })
            .collect();
        Self { random, nodes, gangs, projects, next_id: 1 }
    }

    /// Everything but workloads: nodes in racks, departments, projects.
    pub(crate) fn installation(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for index in 0..self.nodes {
            let model = Name::from(self.random.pick(&MODELS));
            let rack = Name::from(format!("rack-{}", index / NODES_PER_RACK));
            let labels = BTreeMap::from([(Name::from(RACK), rack)]);
            changes.push(Change::NodeSet(cluster::node(index, &model, labels)));
        }
        for (index, projects) in self.projects.chunks(PROJECTS_PER_DEPARTMENT).enumerate() {
            // Every third department has a quota of its own, which is what its projects are promised.
            let quota = projects.iter().map(|project| project.quota).sum();
            let entitlement = Entitlement {
                quota: index.is_multiple_of(3).then_some(Gpus::whole(quota)),
                ..Entitlement::default()
            };
            changes.push(Change::DepartmentSet(Department {
                id: department_id(index),
                name: format!("department-{index}"),
                parent: None,
                entitlements: BTreeMap::from([(default_pool(), entitlement)]),
            }));
        }
        for (index, share) in self.projects.iter().enumerate() {
            let entitlement = Entitlement { quota: Some(Gpus::whole(share.quota)), ..Entitlement::default() };
            let mut project = Project::named(project_id(index), format!("project-{index}"));
            project.department = Some(department_id(index / PROJECTS_PER_DEPARTMENT));
            project.entitlements.insert(default_pool(), entitlement);
            changes.push(Change::ProjectSet(project));
        }
        changes
    }

    /// The next workload, submitted at this time.
    pub(crate) fn workload(&mut self, at: Time) -> Workload {
        let id = WorkloadId(self.next_id);
        self.next_id += 1;
        Workload::submitted(id, self.spec(), at)
    }

    /// At most so many workloads, which together leave a twelfth of the GPUs free, so that all of them find a place.
    pub(crate) fn that_fit(&mut self, count: usize, at: Time) -> impl Iterator<Item = Workload> {
        let mut room = Gpus::whole(self.nodes as u64 * cluster::GPUS_PER_NODE * 11 / 12);
        (0..count).map(move |_| self.workload(at)).filter(move |workload| {
            let asked = asked(&workload.spec);
            let fits = asked <= room;
            room = if fits { room - asked } else { room };
            fits
        })
    }

    /// A moment in the `span` milliseconds before `end`.
    pub(crate) fn moment_before(&mut self, end: Time, span: u64) -> Time {
        Time(end.0 - self.random.below(span))
    }

    /// One of the workloads drawn so far.
    pub(crate) fn any_workload(&mut self) -> WorkloadId {
        WorkloadId(1 + self.random.below(self.next_id - 1))
    }

    fn spec(&mut self) -> WorkloadSpec {
        let index = self.project();
        let shape =
            if self.random.below(100_000) < self.gangs { Shape::Gang } else { self.random.pick(&SHAPES) };
        let tasks = match shape {
            Shape::Gang => 2 + self.random.below(15) as u32,
            _ => 1,
        };
        let request = self.request(shape);
        let mut spec = cluster::train(project_id(index), 1, tasks);
        spec.name = format!("work-{}", self.next_id);
        spec.request = request;
        spec.tasks = Tasks::new(tasks, tasks).expect("a gang has tasks");
        if tasks > 1 && self.random.below(2) == 0 {
            spec.topology =
                Topology { required: None, preferred: Some(TopologyLevel::Label(Name::from(RACK))) };
        }
        // A tenth is interactive, as long as it takes at most half of its project's quota.
        let project = &mut self.projects[index];
        let room = project.quota * Gpus::SCALE / 2;
        let asked = asked(&spec).0;
        if tasks == 1 && self.random.below(10) == 0 && project.pinned + asked <= room {
            project.pinned += asked;
            spec.kind = Kind::Interactive;
            spec.preemptible = false;
            spec.priority = Kind::Interactive.priority(false);
        } else {
            spec.priority += self.random.pick(&[(8, 0), (1, 10), (1, -10)]);
        }
        spec
    }

    fn project(&mut self) -> usize {
        let total = self.projects.iter().map(|project| project.demand).sum();
        let mut left = self.random.below(total);
        for (index, project) in self.projects.iter().enumerate() {
            match left.checked_sub(project.demand) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        unreachable!("the number drawn is below the sum of the demands")
    }

    /// Seven shapes, three choices of model, three sizes of host: 63 requests.
    fn request(&mut self, shape: Shape) -> Request {
        let one = NonZeroU8::MIN;
        let (gpu, quarters) = match shape {
            Shape::Quarters(quarters) => {
                let share = Share::from_millionths(quarters * 250_000).expect("a quarter is a share");
                (GpuRequest::Fraction { share, devices: one }, u64::from(quarters))
            }
            Shape::Whole(count) => {
                let whole = NonZeroU8::new(count).expect("whole shapes have devices");
                (GpuRequest::Whole(whole), u64::from(count) * 4)
            }
            Shape::Gang => {
                let whole = NonZeroU8::new(cluster::GPUS_PER_NODE as u8).expect("nodes have devices");
                (GpuRequest::Whole(whole), cluster::GPUS_PER_NODE * 4)
            }
        };
        let named = self.random.pick(&[(70, None), (20, Some("a100")), (10, Some("h100"))]);
        let size = self.random.pick(&[(50, 1), (30, 2), (20, 3)]);
        Request {
            gpu,
            models: named.map(Name::from).into_iter().collect::<BTreeSet<_>>(),
            cpu: Cpu::cores(size).times(quarters),
            memory: Bytes::gib(8 * size).times(quarters),
        }
    }
}

/// The GPUs of all tasks of a workload.
fn asked(spec: &WorkloadSpec) -> Gpus {
    let charge = spec.request.gpu.charge_on(Bytes::gib(80));
    let charge = charge.expect("no shape asks for more memory than a device has");
    charge.times(u64::from(spec.tasks.min()))
}

fn department_id(index: usize) -> DepartmentId {
    DepartmentId(index as u64 + 1)
}

fn project_id(index: usize) -> ProjectId {
    ProjectId(index as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_about_sixty_shapes() {
        let mut mix = Mix::new(1, 100, 50, 600);
        let specs: Vec<WorkloadSpec> = (0..20_000).map(|_| mix.spec()).collect();
        let shapes: BTreeSet<&Request> = specs.iter().map(|spec| &spec.request).collect();
        assert!((50..=63).contains(&shapes.len()), "{}", shapes.len());
    }

    #[test]
    fn what_runs_nearly_fills_the_nodes_whatever_its_number() {
        for (nodes, running) in [(10_000, 60_000), (10_000, 15_000), (10_000, 7_500), (1_250, 7_500)] {
            let mut mix = Mix::new(1, nodes, 1_000, running);
            let asked: Gpus = (0..running).map(|_| super::asked(&mix.spec())).sum();
            let percent = asked.0 * 100 / Gpus::whole(nodes as u64 * cluster::GPUS_PER_NODE).0;
            assert!((82..94).contains(&percent), "{running} on {nodes}: {percent}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_work() {
        let (mut one, mut two) = (Mix::new(3, 10, 5, 60), Mix::new(3, 10, 5, 60));
        for _ in 0..100 {
            assert_eq!(one.spec(), two.spec());
        }
    }
}
