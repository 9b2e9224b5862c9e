//! The scenario of the report, straight on the engine.

mod support;

use berth_types::*;
use support::*;

#[test]
fn the_report_scenario_reaches_its_four_states() {
    let mut world = World::new(Policy::default());
    for id in 1..=2 {
        world.apply(Change::NodeSet(node(id, 8)));
    }
    for (id, quota) in [(1, 4), (2, 2), (3, 2), (4, 8)] {
        world.apply(Change::ProjectSet(project(id, quota)));
    }
    let interactive = |project: u64, gpu: GpuRequest| {
        let mut spec = train(project, 1);
        spec.kind = Kind::Interactive;
        spec.request.gpu = gpu;
        spec.priority = 100;
        spec.preemptible = false;
        spec
    };
    let one = GpuRequest::Whole(std::num::NonZeroU8::MIN);
    let mut ids = vec![];
    for spec in [
        interactive(1, one),
        train(1, 1),
        train(1, 2),
        interactive(2, fraction(600)),
        interactive(2, fraction(400)),
        train(2, 1),
        train(2, 2),
        interactive(3, fraction(500)),
        interactive(3, fraction(300)),
        interactive(3, fraction(200)),
        train(3, 2),
        train(3, 1),
        train(4, 4),
    ] {
        ids.push(world.submit(spec));
        world.settle();
    }
    let used = |world: &World| [1, 2, 3, 4].map(|project| world.used(project));
    assert_eq!(used(&world), [4, 4, 4, 4].map(Gpus::whole));
    let device = |world: &World, id: WorkloadId| {
        let place = world.state.workloads[&id].places().next().unwrap().clone();
        (place.node, place.devices[0].device)
    };
    assert_eq!(device(&world, ids[3]), device(&world, ids[4]));
    assert_eq!(device(&world, ids[7]), device(&world, ids[8]));
    assert_eq!(device(&world, ids[7]), device(&world, ids[9]));
    for _ in 0..2 {
        ids.push(world.submit(train(4, 2)));
        world.settle();
    }
    assert_eq!(used(&world), [4, 2, 2, 8].map(Gpus::whole));
    assert_eq!(world.queued(), vec![ids[6], ids[10]]);
    for project in [1, 1, 2, 3] {
        ids.push(world.submit(train(project, 2)));
        world.settle();
    }
    assert_eq!(used(&world), [4, 2, 2, 8].map(Gpus::whole));
    assert_eq!(world.queued().len(), 6);
    for id in [ids[12], ids[13], ids[14]] {
        world.apply(Change::Cancelled { workload: id, at: world.now });
    }
    world.confirm();
    world.settle();
    assert_eq!(used(&world), [8, 4, 4, 0].map(Gpus::whole));
    let waiting = |project: u64| {
        world
            .queued()
            .iter()
            .filter(|id| world.state.workloads[id].spec.project == ProjectId(project))
            .count()
    };
    assert_eq!([1, 2, 3].map(waiting), [0, 1, 1]);
}
