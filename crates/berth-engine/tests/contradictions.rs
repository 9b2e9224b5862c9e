//! Trees whose settings contradict each other: the engine accepts each, keeps every rule, and evicts nothing without a start.

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

/// Plans every minute for an hour, checks each plan, and returns every eviction.
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
fn quotas_of_children_above_the_parents_reclaim_no_more_than_the_parents() {
    let mut world = World::new(Policy::default());
    world.apply(Change::NodeSet(node(1, 8)));
    let quota = Entitlement { quota: Some(Gpus::whole(4)), ..Entitlement::default() };
    world.apply(Change::DepartmentSet(department(1, quota)));
    world.apply(Change::ProjectSet(member(1, 8, |_| {})));
    world.apply(Change::ProjectSet(member(2, 8, |_| {})));
    world.apply(Change::ProjectSet(project(3, 0)));
    world.submit(train(3, 4));
    world.submit(train(3, 4));
    evictions(&mut world);
    for id in [1, 2] {
        world.submit(train(id, 4));
    }
    // Both are within their own quotas; one more brings the department above its own, and takes nothing.
    assert_eq!(evictions(&mut world).len(), 1);
    let used = [1, 2, 3].map(|id| world.used(id).0 / Gpus::SCALE);
    assert_eq!((used[0] + used[1], used[2]), (4, 4));
}

#[test]
fn a_child_within_its_own_quota_loses_nothing_to_other_departments() {
    let mut world = World::new(Policy::default());
    world.apply(Change::NodeSet(node(1, 8)));
    let quota = Entitlement { quota: Some(Gpus::whole(4)), ..Entitlement::default() };
    world.apply(Change::DepartmentSet(department(1, quota)));
    world.apply(Change::ProjectSet(member(1, 8, |_| {})));
    world.apply(Change::ProjectSet(project(3, 4)));
    world.submit(train(1, 4));
    world.submit(train(1, 4));
    evictions(&mut world);
    world.submit(train(3, 4));
    assert_eq!(evictions(&mut world), []);
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
        for _ in 0..4 {
            world.submit(train(id, 1));
        }
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
    for _ in 0..6 {
        world.submit(train(1, 1));
    }
    // Two fit beside the borrower. The others are within quota and past the limit: nobody is evicted for them.
    assert_eq!(evictions(&mut world), []);
    assert_eq!([world.used(1), world.used(2)], [Gpus::whole(2), Gpus::whole(6)]);
}
