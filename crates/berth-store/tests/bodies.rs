//! Changes go through the store's JSON without loss, with the largest numbers there can be.
#![allow(missing_docs)]

use berth_store::Json;
use berth_types::{
    Action, AfterStop, Bytes, Change, Cpu, Department, DepartmentId, Device, DeviceShare, Entitlement,
    EvictRule, GpuRequest, Gpus, Kind, Name, Node, NodeCondition, NodeId, Outcome, Phase, Place, Plan,
    Project, ProjectId, Request, Reservation, Selector, Share, Span, Spread, StartBasis, State, StopReason,
    Task, TaskOutcome, Tasks, Time, Topology, TopologyLevel, Workload, WorkloadId, WorkloadSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    num::{NonZeroU8, NonZeroU64},
};

const MAX: u64 = u64::MAX;

fn same<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(value: &T) {
    let json = Json::of(value).expect("it can be said in JSON");
    assert_eq!(json.read::<T>().expect("it can be read again"), *value, "{}", json.as_str());
}

fn name() -> Name {
    Name::from("a \"name\"\n\u{0}\u{1f6a2}")
}

fn place() -> Place {
    let devices = vec![DeviceShare { device: u8::MAX, share: Share::WHOLE }];
    Place { rank: u32::MAX, node: NodeId(MAX), devices, cpu: Cpu(MAX), memory: Bytes(MAX) }
}

fn workload(gpu: GpuRequest, phase: Phase) -> Workload {
    let labels = BTreeMap::from([(name(), BTreeSet::from([name(), Name::from("")]))]);
    let topology =
        Topology { required: Some(TopologyLevel::Node), preferred: Some(TopologyLevel::Label(name())) };
    let spec = WorkloadSpec {
        name: name().to_string(),
        project: ProjectId(MAX),
        user: String::new(),
        kind: Kind::Distributed,
        request: Request { gpu, models: BTreeSet::from([name()]), cpu: Cpu(MAX), memory: Bytes(MAX) },
        tasks: Tasks::new(1, Tasks::MAX).expect("within bounds"),
        pool: name(),
        selector: Selector(labels),
        topology,
        spread: Spread::Spread,
        priority: i32::MIN,
        preemptible: true,
        max_run: Some(Span(MAX)),
        retry_limit: u32::MAX,
        grace: Span(MAX),
    };
    let mut workload = Workload::submitted(WorkloadId(MAX), spec, Time(MAX));
    workload.phase = phase;
    workload.checkpoint = Some(Time(MAX));
    workload.evicted = Some(Time(0));
    workload
}

fn phases() -> Vec<Phase> {
    let (places, leaving) = (vec![place()], vec![place(), place()]);
    let reservation = Reservation { places: places.clone(), since: Time(MAX) };
    let tasks = vec![Task { place: place(), extra: true }];
    let outcomes = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::TimedOut];
    let finished = outcomes.map(|outcome| Phase::Finished { outcome, at: Time(MAX) });
    let thens = outcomes.map(AfterStop::Finish).into_iter().chain([AfterStop::Requeue]);
    let stopping = thens.map(|then| Phase::Stopping { leaving: leaving.clone(), then });
    let mut phases = vec![
        Phase::Queued { reservation: None },
        Phase::Queued { reservation: Some(reservation) },
        Phase::Held { places, basis: Some(StartBasis::Reservation), leaving: leaving.clone() },
        Phase::Running { tasks, leaving: leaving.clone(), since: Time(1), confirmed: true, passing: true },
    ];
    phases.extend(finished);
    phases.extend(stopping);
    phases
}

fn actions() -> Vec<Action> {
    let (workload, winner, places) = (WorkloadId(MAX), WorkloadId(1), vec![place()]);
    let mut actions = vec![
        Action::Grow { workload, places: places.clone() },
        Action::Shrink { workload, ranks: vec![0, u32::MAX], winner },
        Action::Reserve { workload, places: places.clone() },
        Action::Unreserve { workload },
        Action::Move { workload, places: places.clone(), winner: Some(winner), lost: u128::MAX },
        Action::Move { workload, places: places.clone(), winner: None, lost: u128::from(MAX) + 1 },
    ];
    for basis in [
        StartBasis::Quota,
        StartBasis::FairShare,
        StartBasis::Idle,
        StartBasis::Priority,
        StartBasis::Reservation,
    ] {
        actions.push(Action::Start { workload, places: places.clone(), basis, passing: true });
        actions.push(Action::Hold { workload, places: places.clone(), basis });
    }
    for rule in [EvictRule::QuotaReclaim, EvictRule::ShareReclaim, EvictRule::Preemption, EvictRule::Passing]
    {
        actions.push(Action::Evict { workload, winner, rule, lost: u128::MAX });
    }
    for reason in [StopReason::TimeLimit, StopReason::Idle] {
        actions.push(Action::Stop { workload, reason });
    }
    actions
}

fn node(condition: NodeCondition) -> Node {
    let devices = vec![Device { model: name(), memory: Bytes(MAX) }];
    let labels = BTreeMap::from([(name(), name())]);
    let (cpu, memory) = (Cpu(MAX), Bytes(MAX));
    Node { id: NodeId(MAX), name: name().to_string(), devices, cpu, memory, labels, condition }
}

fn entitlements() -> BTreeMap<Name, Entitlement> {
    let full = Entitlement {
        quota: Some(Gpus(MAX)),
        model_quotas: BTreeMap::from([(name(), Gpus(MAX))]),
        cpu_quota: Some(Cpu(MAX)),
        memory_quota: Some(Bytes(0)),
        limit: Some(Gpus(1)),
        weight: None,
        rank: i32::MIN,
    };
    BTreeMap::from([(name(), full), (Name::from("default"), Entitlement::default())])
}

fn changes() -> Vec<Change> {
    let (workload, at, rank) = (WorkloadId(MAX), Time(MAX), u32::MAX);
    let department = Department {
        id: DepartmentId(MAX),
        name: name().to_string(),
        parent: Some(DepartmentId(0)),
        entitlements: entitlements(),
    };
    let project = Project {
        department: Some(DepartmentId(MAX)),
        entitlements: entitlements(),
        idle_limit: Some(Span(MAX)),
        ..Project::named(ProjectId(MAX), &*name())
    };
    let two = NonZeroU8::new(2).expect("two");
    let gpus = [
        GpuRequest::None,
        GpuRequest::Whole(NonZeroU8::MAX),
        GpuRequest::Fraction { share: Share::WHOLE, devices: two },
        GpuRequest::Memory { bytes: NonZeroU64::MAX, devices: two },
    ];
    let mut changes = vec![
        Change::NodeSet(node(NodeCondition::Ready)),
        Change::NodeSet(node(NodeCondition::Cordoned)),
        Change::NodeRemoved(NodeId(MAX)),
        Change::DepartmentSet(department),
        Change::DepartmentRemoved(DepartmentId(MAX)),
        Change::ProjectSet(project),
        Change::ProjectRemoved(ProjectId(MAX)),
        Change::Cancelled { workload, at },
        Change::Forgotten(workload),
        Change::Confirmed { workload },
        Change::Stopped { workload, rank, at },
        Change::Refused { workload, at },
        Change::Checkpointed { workload, at },
        Change::Idle { workload, since: Some(at) },
        Change::Idle { workload, since: None },
    ];
    for outcome in [TaskOutcome::Succeeded, TaskOutcome::Failed, TaskOutcome::Lost] {
        changes.push(Change::Ended { workload, rank, outcome, at });
    }
    let queued = Phase::Queued { reservation: None };
    changes.extend(gpus.map(|gpu| Change::Submitted(self::workload(gpu, queued.clone()))));
    changes
        .extend(phases().into_iter().map(|phase| Change::Submitted(self::workload(GpuRequest::None, phase))));
    changes.extend(actions().into_iter().map(|action| Change::Decided { action, at }));
    changes
}

#[test]
fn every_change_is_read_as_it_was_written() {
    changes().iter().for_each(same);
}

#[test]
fn plans_and_states_are_read_as_they_were_written() {
    same(&Plan { at: Time(MAX), actions: actions(), wake: Some(Time(MAX)) });
    let node = node(NodeCondition::Ready);
    let workloads = phases().into_iter().enumerate().map(|(id, phase)| {
        let mut workload = workload(GpuRequest::None, phase);
        workload.id = WorkloadId(MAX - id as u64);
        workload
    });
    let project = Project::named(ProjectId(MAX), "p");
    same(&State {
        nodes: BTreeMap::from([(node.id, node)]),
        departments: BTreeMap::new(),
        projects: BTreeMap::from([(project.id, project)]),
        workloads: workloads.collect(),
    });
}

#[test]
fn what_json_cannot_say_is_refused_and_not_bent() {
    let odd = BTreeMap::from([((1, 2), 3)]);
    Json::of(&odd).expect_err("a key that is no text");
}
