//! Explanations are claims, so each is put to the test: the remedy is applied, the numbers are counted again, and what
//! is said to be impossible is tried on an empty pool.

mod support;

use berth_engine::Engine;
use berth_types::*;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use support::{
    cases::{self, SMALL},
    random::Random,
    scenes::*,
    seeds, *,
};

/// How often each kind of reason and remedy was given.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    fn count(&self, kind: impl std::fmt::Debug) {
        let text = format!("{kind:?}");
        let name = text.split([' ', '(', '{']).next().unwrap_or_default().to_string();
        *self.0.lock().expect("no panic holds it").entry(name).or_default() += 1;
    }
}

/// The amounts of one account, counted from the plain state.
struct Books<'a> {
    state: &'a State,
    pool: Name,
}

impl Books<'_> {
    fn accounts_of(&self, workload: &Workload) -> Vec<Account> {
        let project = workload.spec.project;
        let departments = self.state.ancestors(self.state.projects[&project].department);
        let departments = departments.map(|department| Account::Department(department.id));
        std::iter::once(Account::Project(project)).chain(departments).collect()
    }

    fn used(&self, account: Account, counts: impl Fn(&Workload) -> bool) -> Gpus {
        self.places(account, counts).map(Place::gpus).sum()
    }

    fn places(&self, account: Account, counts: impl Fn(&Workload) -> bool) -> impl Iterator<Item = &Place> {
        let below = self.state.workloads.values().filter(move |workload| {
            workload.spec.pool == self.pool
                && self.accounts_of(workload).contains(&account)
                && counts(workload)
        });
        below.flat_map(Workload::base_places)
    }

    /// Whether the numbers of a quota are those that are set and used, and together pass it.
    fn is_passed(&self, account: Account, passed: &PassedQuota, counts: impl Fn(&Workload) -> bool) -> bool {
        let (entitlement, places) = (self.entitlement(account), self.places(account, counts));
        match passed {
            // The quota of a department that has none is what its children have.
            PassedQuota::Gpus(gpus) => {
                entitlement.quota.unwrap_or(gpus.quota) == gpus.quota
                    && gpus.used == places.map(Place::gpus).sum()
                    && gpus.used + gpus.asked > gpus.quota
            }
            PassedQuota::Model(model, gpus) => {
                let devices = places.flat_map(|place| place.devices.iter().map(|taken| (place.node, *taken)));
                let of_model = devices.filter(|(node, taken)| {
                    self.state.nodes[node].devices[usize::from(taken.device)].model == *model
                });
                entitlement.model_quotas.get(model) == Some(&gpus.quota)
                    && gpus.used == of_model.map(|(_, taken)| taken.share.gpus()).sum()
                    && gpus.used + gpus.asked > gpus.quota
            }
            PassedQuota::Cpu(cpu) => {
                entitlement.cpu_quota == Some(cpu.quota)
                    && cpu.used == places.map(|place| place.cpu).sum()
                    && cpu.used + cpu.asked > cpu.quota
            }
            PassedQuota::Memory(memory) => {
                entitlement.memory_quota == Some(memory.quota)
                    && memory.used == places.map(|place| place.memory).sum()
                    && memory.used + memory.asked > memory.quota
            }
        }
    }

    fn entitlement(&self, account: Account) -> Entitlement {
        let entitlements = match account {
            Account::Project(id) => &self.state.projects[&id].entitlements,
            Account::Department(id) => &self.state.departments[&id].entitlements,
        };
        entitlements.get(&self.pool).cloned().unwrap_or_default()
    }
}

/// Whether the workload has places once these have ended and are gone.
fn starts_after(world: &World, id: WorkloadId, ended: &[WorkloadId]) -> bool {
    let mut world = world.clone();
    for victim in ended {
        world.apply(Change::Cancelled { workload: *victim, at: world.now });
        for place in world.state.workloads[victim].leaving().to_vec() {
            world.apply(Change::Stopped { workload: *victim, rank: place.rank, at: world.now });
        }
    }
    world.plan();
    world.state.workloads[&id].places().next().is_some()
}

fn with_entitlement(world: &mut World, account: Account, pool: &Name, change: impl FnOnce(&mut Entitlement)) {
    match account {
        Account::Project(id) => {
            let mut project = world.state.projects[&id].clone();
            change(project.entitlements.entry(pool.clone()).or_default());
            world.apply(Change::ProjectSet(project));
        }
        Account::Department(id) => {
            let mut department = world.state.departments[&id].clone();
            change(department.entitlements.entry(pool.clone()).or_default());
            world.apply(Change::DepartmentSet(department));
        }
    }
}

/// Whether the workload starts when it is alone, and nothing but nodes can stop it.
fn fits_an_empty_pool(world: &World, workload: &Workload) -> bool {
    let mut alone = State { nodes: world.state.nodes.clone(), ..State::default() };
    let mut project = world.state.projects[&workload.spec.project].clone();
    project.department = None;
    let entitlement = Entitlement { quota: Some(Gpus::MAX), ..Entitlement::default() };
    project.entitlements = [(workload.spec.pool.clone(), entitlement)].into();
    alone.projects.insert(project.id, project);
    let fresh = Workload::submitted(workload.id, workload.spec.clone(), workload.submitted);
    alone.workloads.insert(fresh);
    let mut engine = Engine::with_state(Policy::default(), &alone).expect("a state that can be");
    engine.plan(world.now);
    engine.workload(workload.id).expect("was submitted").places().next().is_some()
}

/// What is wrong with an explanation, if anything.
fn problems(world: &World, explanation: &Explanation) -> Vec<String> {
    let mut problems = check_reason(world, explanation);
    problems.extend(check_remedy(world, explanation));
    problems.extend(check_holders(world, explanation));
    problems
}

fn check_reason(world: &World, explanation: &Explanation) -> Vec<String> {
    let workload = &world.state.workloads[&explanation.workload];
    let books = Books { state: &world.state, pool: workload.spec.pool.clone() };
    let mut problems = Vec::new();
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            problems.push(text.to_string());
        }
    };
    match &explanation.reason {
        WaitReason::Never { most, needed } => {
            demand(most < needed, "never, though as many fit as are needed");
            demand(*needed == u64::from(workload.spec.tasks.min()), "needed is not the minimum");
            demand(!fits_an_empty_pool(world, workload), "never, though an empty pool has room");
        }
        WaitReason::Limit { account, limit, used, asked } => {
            demand(books.accounts_of(workload).contains(account), "the limit is of another's account");
            demand(books.entitlement(*account).limit == Some(*limit), "the limit is not the one that is set");
            demand(books.used(*account, |_| true) == *used, "what is used is not what is used");
            demand(*used + *asked > *limit, "the limit would not be passed");
        }
        WaitReason::NonPreemptibleQuota { account, passed } => {
            demand(!workload.spec.preemptible, "it is preemptible");
            demand(books.accounts_of(workload).contains(account), "the quota is of another's account");
            let passes = books.is_passed(*account, passed, |other| !other.spec.preemptible);
            demand(passes, "non-preemptible work would not pass the quota by these numbers");
        }
        WaitReason::NoBorrowing { account, passed } => {
            let entitlement = books.entitlement(*account);
            demand(entitlement.weight == Some(Gpus::ZERO), "the weight is not zero");
            demand(
                books.is_passed(*account, passed, |_| true),
                "borrowing would not pass the quota by these numbers",
            );
        }
        WaitReason::NoCapacity { fits, needed, within_share, verdict, .. } => {
            demand(fits < needed, "no capacity, though as many fit as are needed");
            let shares: BTreeMap<Account, Gpus> =
                world.engine.fair_shares(&workload.spec.pool).into_iter().collect();
            let beyond = books.accounts_of(workload).iter().any(|account| {
                // What it asks is at least nothing, so an account above its share already cannot be within it.
                books.used(*account, |_| true) > shares[account]
            });
            demand(!(*within_share && beyond), "within share, though an account is above its share already");
            match verdict {
                Verdict::TooLittle { most, needed } => demand(most < needed, "enough is not too little"),
                Verdict::NoShape { most, needed } => demand(most < needed, "a shape for all is a shape"),
                _ => {}
            }
        }
        WaitReason::MinimumRun { until } | WaitReason::Patience { until } => {
            demand(*until > world.now, "what it waits for has come already");
            let mut later = world.clone();
            later.confirm();
            later.now = *until;
            later.plan();
            later.confirm();
            later.plan();
            let waits = later.engine.explain(workload.id, later.now);
            let still = waits.is_some_and(|waits| waits.reason == explanation.reason);
            demand(!still, "it still waits for the same instant");
        }
        WaitReason::Leaving { workloads } => {
            demand(!workloads.is_empty(), "nobody is named as leaving");
            let leaves = |id: &WorkloadId| !world.state.workloads[id].leaving().is_empty();
            demand(workloads.iter().all(leaves), "somebody is named who is not leaving");
        }
        WaitReason::Ready => {}
    }
    problems
}

fn check_remedy(world: &World, explanation: &Explanation) -> Vec<String> {
    let id = explanation.workload;
    let pool = world.state.workloads[&id].spec.pool.clone();
    let mut problems = Vec::new();
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            problems.push(text.to_string());
        }
    };
    let (limits, quotas, ended): (&[Account], &[(Account, Gpus)], &[WorkloadId]) = match &explanation.remedy {
        Remedy::End(ended) => (&[], &[], ended),
        Remedy::LiftLimits(limits, ended) => (limits, &[], ended),
        Remedy::RaiseQuota(quotas, ended) => (&[], quotas, ended),
        Remedy::LiftAndRaise(limits, quotas, ended) => (limits, quotas, ended),
        Remedy::ChangeRequest | Remedy::NotFound => return problems,
        Remedy::Wait => {
            let mut later = world.clone();
            later.confirm();
            // What was evicted at an instant does not start at it.
            later.now = later.now + Span(1);
            later.plan();
            let placed = later.state.workloads[&id].places().next().is_some();
            demand(placed, "it does not start when those leaving are gone");
            return problems;
        }
    };
    let mut granted = world.clone();
    for account in limits {
        with_entitlement(&mut granted, *account, &pool, |entitlement| entitlement.limit = None);
    }
    for (account, quota) in quotas {
        with_entitlement(&mut granted, *account, &pool, |entitlement| entitlement.quota = Some(*quota));
    }
    demand(!(limits.is_empty() && quotas.is_empty() && ended.is_empty()), "nothing is needed, and it waits");
    demand(starts_after(&granted, id, ended), "that does not start it");
    // Only of few is it tried whether each is needed.
    for one in ended.iter().filter(|_| ended.len() <= 8) {
        let others: Vec<WorkloadId> = ended.iter().copied().filter(|other| other != one).collect();
        demand(!starts_after(&granted, id, &others), "somebody would end who need not");
    }
    problems
}

fn check_holders(world: &World, explanation: &Explanation) -> Vec<String> {
    let mut problems = Vec::new();
    let sizes: Vec<Gpus> = explanation.holders.iter().map(|holder| holder.gpus).collect();
    if !sizes.is_sorted_by(|one, other| one >= other) {
        problems.push("holders are not in order of what they hold".into());
    }
    for holder in &explanation.holders {
        let workload = &world.state.workloads[&holder.workload];
        let has: Gpus = workload.places().map(Place::gpus).sum();
        if workload.spec.project != holder.project || holder.gpus > has {
            problems.push(format!("{:?} does not hold {:?}", holder.workload, holder.gpus));
        }
    }
    problems
}

/// Checks the explanations of everybody who waits; returns how many there were.
fn check_everybody(world: &World, tally: &Tally) -> Result<u64, String> {
    let mut explained = 0;
    let everybody: Vec<WorkloadId> = world.state.workloads.keys().copied().collect();
    let together: BTreeMap<_, _> = world.engine.wait_reasons(&everybody, world.now).into_iter().collect();
    for workload in world.state.workloads.values() {
        let explanation = world.engine.explain(workload.id, world.now);
        let waits = matches!(workload.phase, Phase::Queued { .. } | Phase::Held { .. });
        let Some(explanation) = explanation.filter(|_| waits) else {
            if waits {
                return Err(format!("{:?} waits without a reason", workload.id));
            }
            continue;
        };
        explained += 1;
        let alone = Some(&explanation.reason).filter(|_| workload.is_queued());
        if together.get(&workload.id) != alone {
            let together = together.get(&workload.id);
            return Err(format!("{:?}: asked together {together:?}, alone {alone:?}", workload.id));
        }
        tally.count(&explanation.reason);
        tally.count(&explanation.remedy);
        if let WaitReason::NoCapacity { verdict, .. } = &explanation.reason {
            tally.count(verdict);
        }
        let found = problems(world, &explanation);
        if !found.is_empty() {
            let phases: Vec<String> = world
                .state
                .workloads
                .values()
                .filter(|workload| !workload.is_finished())
                .map(|workload| format!("{workload:?}"))
                .collect();
            return Err(format!(
                "{} ({:?}): {}\nat {:?} {explanation:#?}\nnodes {:?}\nprojects {:?}\ndepartments {:?}\n{}",
                workload.id,
                explanation.reason,
                found.join("; "),
                world.now,
                world.state.nodes.values().collect::<Vec<_>>(),
                world.state.projects.values().collect::<Vec<_>>(),
                world.state.departments.values().collect::<Vec<_>>(),
                phases.join("\n")
            ));
        }
    }
    Ok(explained)
}

#[test]
fn every_reason_is_true_and_every_remedy_works() {
    let (tally, all) = (Tally::default(), AtomicU64::new(0));
    seeds::for_each_seed("explanations", seeds::cases(2_000), |seed| {
        let mut random = Random(seed);
        let mut world = cases::world(&mut random, SMALL);
        let mut history = vec![];
        for step in 0..SMALL.steps {
            history.push(cases::step(&mut random, &mut world));
            world.plan();
            // Explanations are dear, and those of neighbouring steps alike.
            if step % 3 == 2 {
                let explained = check_everybody(&world, &tally)
                    .map_err(|text| format!("{text}\n--\n{}", history.join("\n")))?;
                all.fetch_add(explained, Ordering::Relaxed);
            }
        }
        Ok(())
    });
    let (tally, all) = (tally.0.into_inner().expect("no panic holds it"), all.into_inner());
    println!("{all} explanations: {tally:#?}");
    let not_found = tally.get("NotFound").copied().unwrap_or(0);
    assert!(not_found * 100 <= all * 2, "{not_found} of {all} remedies were not found");
}

/// Explains one workload of a hand-made scene, after checking every claim that is made in it.
fn explained(world: &World, id: WorkloadId) -> Explanation {
    if let Err(text) = check_everybody(world, &Tally::default()) {
        panic!("{text}");
    }
    world.engine.explain(id, world.now).expect("it waits")
}

#[test]
fn a_full_node_names_who_must_end() {
    let mut world = world(&[2]);
    add(&mut world, [project(1, 1), project(2, 1)]);
    let other = run(&mut world, train(1, 1));
    let own = run(&mut world, train(2, 1));
    let waiting = run(&mut world, train(2, 1));
    let explanation = explained(&world, waiting);
    let (fits, needed, within_quota, within_share) = (0, 1, false, false);
    let verdict = Verdict::NotEntitled;
    let reason = WaitReason::NoCapacity { fits, needed, within_quota, within_share, verdict };
    assert_eq!(explanation.reason, reason);
    assert_eq!(explanation.remedy, Remedy::End(vec![other]));
    let holder = |workload, project| Holder { workload, project: ProjectId(project), gpus: Gpus::ONE };
    assert_eq!(explanation.holders, vec![holder(other, 1), holder(own, 2)]);
}

#[test]
fn a_limit_of_a_project_and_of_its_department_are_lifted_together() {
    let mut world = world(&[4]);
    let mut bounded = department(1, 4);
    bounded.entitlements.get_mut(&default_pool()).expect("it has one").limit = Some(Gpus::ONE);
    world.apply(Change::DepartmentSet(bounded));
    let limited = entitled(1, 4, |entitlement| entitlement.limit = Some(Gpus::ONE));
    add(&mut world, [inside(limited, 1)]);
    run(&mut world, train(1, 1));
    let waiting = run(&mut world, train(1, 1));
    let accounts = vec![Account::Project(ProjectId(1)), Account::Department(DepartmentId(1))];
    assert_eq!(explained(&world, waiting).remedy, Remedy::LiftLimits(accounts, vec![]));
}

#[test]
fn behind_a_limit_the_quota_is_named_too() {
    let mut world = world(&[4]);
    add(&mut world, [entitled(1, 1, |entitlement| entitlement.limit = Some(Gpus::ONE))]);
    run(&mut world, interactive(1, 1));
    let waiting = run(&mut world, interactive(1, 1));
    let account = Account::Project(ProjectId(1));
    let remedy = Remedy::LiftAndRaise(vec![account], vec![(account, Gpus::whole(2))], vec![]);
    assert_eq!(explained(&world, waiting).remedy, remedy);
}

#[test]
fn a_session_past_its_quota_is_told_the_quota_that_would_start_it() {
    let mut world = world(&[4]);
    add(&mut world, [project(1, 1)]);
    run(&mut world, interactive(1, 1));
    let waiting = run(&mut world, interactive(1, 2));
    let quotas = vec![(Account::Project(ProjectId(1)), Gpus::whole(3))];
    assert_eq!(explained(&world, waiting).remedy, Remedy::RaiseQuota(quotas, vec![]));
}

#[test]
fn what_no_node_can_hold_is_told_to_ask_for_something_else() {
    let mut world = world(&[2, 2]);
    add(&mut world, [project(1, 4)]);
    let waiting = run(&mut world, train(1, 3));
    let explanation = explained(&world, waiting);
    assert_eq!(explanation.reason, WaitReason::Never { most: 0, needed: 1 });
    assert_eq!(explanation.remedy, Remedy::ChangeRequest);
}

#[test]
fn a_claimant_of_protected_work_is_told_until_when_and_starts_then() {
    let mut world = world(&[1]);
    add(&mut world, [Project { min_run: Span::secs(60), ..project(1, 0) }, project(2, 1)]);
    let until = world.now + Span::secs(60);
    let protected = run(&mut world, train(1, 1));
    let waiting = run(&mut world, train(2, 1));
    let explanation = explained(&world, waiting);
    assert_eq!(explanation.reason, WaitReason::MinimumRun { until });
    assert_eq!(explanation.remedy, Remedy::End(vec![protected]));
    world.now = until;
    world.settle();
    assert!(runs(&world, waiting));
}

#[test]
fn what_runs_leaves_or_is_over_is_not_explained() {
    let mut world = world(&[1]);
    add(&mut world, [project(1, 0), project(2, 1)]);
    let victim = run(&mut world, train(1, 1));
    assert_eq!(world.engine.explain(victim, world.now), None);
    let claim = world.submit(train(2, 1));
    world.plan();
    assert_eq!(world.engine.explain(victim, world.now), None);
    assert_eq!(explained(&world, claim).remedy, Remedy::Wait);
    end(&mut world, claim);
    assert_eq!(world.engine.explain(claim, world.now), None);
    assert_eq!(world.engine.explain(WorkloadId(99), world.now), None);
}
