//! Trees whose settings contradict each other: each is accepted, every rule holds, and nothing is evicted that helps nobody.

mod support;

use berth_types::*;
use support::{World, node, project, train};

fn department(id: u64, entitlement: Entitlement) -> Department {
    let entitlements = [(default_pool(), entitlement)].into();
    Department { id: DepartmentId(id), name: format!("d{id}"), parent: None, entitlements }
}

/// A project of department 1.
fn member(id: u64, quota: u64, change: impl FnOnce(&mut Entitlement)) -> Project {
    let mut member = project(id, quota);
    member.department = Some(DepartmentId(1));
    change(member.entitlements.get_mut(&default_pool()).expect("was just set"));
    member
}

/// Plans until nothing is decided, an hour long, and returns every eviction.
fn evictions(world: &mut World) -> Vec<Action> {
    let mut evicted = Vec::new();
    for _ in 0..60 {
        let before = world.state.clone();
        let plan = world.plan();
        assert_eq!(berth_check::check_plan(&Policy::default(), &before, &plan), []);
        assert_eq!(berth_check::check_settled(&Policy::default(), &world.state, world.now), []);
        evicted.extend(plan.actions.into_iter().filter(|action| matches!(action, Action::Evict { .. })));
        world.confirm();
        world.now = world.now + Span::secs(60);
    }
    evicted
}

#[test]
fn quotas_of_children_above_the_parents_end_at_the_parents() {
    let mut world = World::new(Policy::default());
    world.apply(Change::NodeSet(node(1, 8)));
    let quota = Entitlement { quota: Some(Gpus::whole(4)), ..Entitlement::default() };
    world.apply(Change::DepartmentSet(department(1, quota)));
    world.apply(Change::ProjectSet(member(1, 8, |_| {})));
    world.apply(Change::ProjectSet(member(2, 8, |_| {})));
    world.apply(Change::ProjectSet(project(3, 4)));
    let first = world.submit(train(1, 4));
    let second = world.submit(train(2, 4));
    evictions(&mut world);
    // The second borrows of what the third project is owed, and gives it back.
    let owed = world.submit(train(3, 4));
    let evicted = evictions(&mut world);
    assert_eq!(evicted.len(), 1, "{evicted:?}");
    assert!(world.state.workloads[&owed].is_running());
    let running = [first, second].into_iter().filter(|id| world.state.workloads[id].is_running());
    assert_eq!(
        running.count(),
        1,
        "the department keeps its quota of 4, and no child takes it from the other"
    );
}

#[test]
fn weight_zero_everywhere_leaves_idle_what_no_quota_covers() {
    let mut world = World::new(Policy::default());
    world.apply(Change::NodeSet(node(1, 8)));
    let never = |entitlement: &mut Entitlement| entitlement.weight = Some(Gpus::ZERO);
    let mut top = Entitlement::default();
    never(&mut top);
    world.apply(Change::DepartmentSet(department(1, top)));
    world.apply(Change::ProjectSet(member(1, 2, never)));
    world.apply(Change::ProjectSet(member(2, 2, never)));
    for id in 1..=2 {
        (0..4).for_each(|_| drop(world.submit(train(id, 1))));
    }
    assert_eq!(evictions(&mut world), []);
    assert_eq!([world.used(1), world.used(2)], [Gpus::whole(2); 2]);
}

#[test]
fn a_limit_below_the_quota_bounds_what_is_guaranteed() {
    let mut world = World::new(Policy::default());
    world.apply(Change::NodeSet(node(1, 8)));
    world.apply(Change::DepartmentSet(department(1, Entitlement::default())));
    world.apply(Change::ProjectSet(member(1, 6, |own| own.limit = Some(Gpus::whole(2)))));
    world.apply(Change::ProjectSet(project(2, 0)));
    world.submit(train(2, 6));
    evictions(&mut world);
    (0..6).for_each(|_| drop(world.submit(train(1, 1))));
    // Two fit beside the borrower. The others are within quota and past the limit: nobody is evicted for them.
    assert_eq!(evictions(&mut world), []);
    assert_eq!([world.used(1), world.used(2)], [Gpus::whole(2), Gpus::whole(6)]);
}
