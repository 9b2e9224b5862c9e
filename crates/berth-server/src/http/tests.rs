//! Random histories: every number that the API shows, to every role, is the one that a plain model has.

use super::*;
use crate::{
    Folder,
    auth::Door,
    controller::Shared,
    feed::Feed,
    platform::{
        By, Person, Platform,
        tests::{World, history as random_history, ledger::Stands, train},
    },
    samples,
};
use axum::extract::{Path, State};
use berth_api::{
    Cluster, ClusterTotals, DepartmentSettings, Grant, NodeList, ProjectList, ProjectSettings, Role, Scope,
    Series, SeriesList, SeriesQuery, Workload, WorkloadList, WorkloadQuery, WorkloadRequest,
};
use berth_store::{Batch, Settings, Store};
use berth_types::{Gpus, Time, WorkloadId};
use state::{Caller, Query};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock, atomic::AtomicU64, mpsc},
    time::Duration,
};

/// The roles, and the projects that each sees.
const ROLES: [(&str, Role, &str, &[&str]); 5] = [
    ("root", Role::Admin, "all", &["team-a", "team-b", "team-c", "team-d"]),
    ("dora", Role::DepartmentLead, "department/research", &["team-a", "team-b"]),
    ("lena", Role::ProjectLead, "project/team-b", &["team-b"]),
    ("rita", Role::Researcher, "project/team-c", &["team-c"]),
    ("vera", Role::Viewer, "project/team-d", &["team-d"]),
];

/// What the handlers need, without a thread, a socket or an agent behind them.
struct Front {
    world: World,
    state: AppState,
    _folder: tempfile::TempDir,
    _messages: mpsc::Receiver<crate::controller::Message>,
    /// When the last sample was taken, and all of them.
    sampled: Time,
    samples: Vec<(Time, Time)>,
}

fn installation() -> Person {
    Person { user: "root".into(), by: By::Installation }
}

fn person(user: &str) -> Person {
    Person { user: user.into(), by: By::Token(0) }
}

impl Front {
    fn new() -> Self {
        let mut world = World::of_the_report();
        let department =
            DepartmentSettings { name: Some("research".into()), ..DepartmentSettings::default() };
        world.act(|platform, now| platform.create_department(&department, now)).expect("is made");
        let inside = ProjectSettings { department: Some("research".into()), ..ProjectSettings::default() };
        for project in ["team-a", "team-b"] {
            world.act(|platform, now| platform.update_project(project, &inside, now)).expect("is set");
        }
        for (user, role, scope, _) in ROLES {
            let scope: Scope = scope.parse().expect("a scope");
            let grant = Grant { user: user.into(), role, scope };
            world
                .act(|platform, now| platform.create_user(&installation(), user, None, now))
                .expect("is made");
            world.act(|platform, now| platform.grant(&installation(), &grant, now)).expect("is granted");
        }
        world.platform.begin_window(world.now);
        let sampled = world.now;
        let folder = tempfile::tempdir().expect("a folder");
        let at = Folder::at(folder.path());
        at.prepare().expect("is prepared");
        let (store, _) = Store::open(&at.store(), &Settings::default()).expect("opens");
        let audit = crate::audit::Audit::open(&at.audit()).expect("opens");
        let (messages, inbox) = mpsc::channel();
        let state = AppState::new(Parts {
            shared: Arc::new(Shared {
                platform: RwLock::new(Platform::new(Default::default())),
                seq: AtomicU64::new(0),
                epoch: AtomicU64::new(0),
                commands: AtomicU64::new(0),
                plans: AtomicU64::new(0),
                measured: RwLock::default(),
                clock: crate::now,
            }),
            store: Arc::new(store),
            feed: Arc::new(Feed::new(0)),
            tasks: None,
            mirror: None,
            messages,
            door: Door::new("token".into(), "root".into()),
            audit,
            folder: at,
            declared: true,
            started: Time(0),
            ping_every: Duration::from_secs(10),
            speaks_tls: false,
            public_url: String::new(),
            oidc: None,
            patience: Duration::from_secs(10),
            sockets: Sockets::new(),
            stop: oneshot::channel().0,
        });
        Self { world, state, _folder: folder, _messages: inbox, sampled, samples: Vec::new() }
    }

    /// Lets the handlers see what is now.
    fn publish(&mut self) {
        *self.state.shared.platform.write().expect("a lock") = self.world.platform.clone();
        let finished = std::mem::take(&mut self.world.kept);
        if !finished.is_empty() {
            self.append(Batch { at: self.world.now, finished, ..Batch::default() });
        }
    }

    fn append(&self, batch: Batch) {
        self.state.store.append(batch).wait().expect("is written");
    }

    /// Takes a sample as the server does every ten seconds, and compares it with the model.
    fn sample(&mut self) {
        let (from, now) = (self.sampled, self.world.now);
        if from >= now {
            return;
        }
        let samples = samples::of_window(&mut self.world.platform, &[], now);
        for sample in &samples {
            let project = match sample.series.split_once('/') {
                Some(("gpus_allocated", project)) => project,
                None if sample.series == "gpus_allocated" => "",
                _ => continue,
            };
            let expected = self.world.ledger.window(project, from, now);
            let window = sample.window.map(|window| (window.mean, window.min, window.max));
            let window = window.unwrap_or((sample.value, sample.value, sample.value));
            assert_eq!(window, expected, "{} from {from:?} to {now:?}", sample.series);
        }
        self.append(Batch { at: now, samples, ..Batch::default() });
        self.samples.push((from, now));
        self.sampled = now;
    }

    fn restart(&mut self) {
        self.world.restart();
        self.sampled = self.world.now;
    }
}

async fn read<T: serde::de::DeserializeOwned>(response: impl IntoResponse) -> T {
    let response = response.into_response();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 64 << 20).await.expect("a body");
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&body)))
}

fn check_totals(world: &World, totals: &ClusterTotals) {
    let (ledger, engine) = (&world.ledger, world.platform.engine());
    let devices = ledger.devices(world.now);
    let stands = |wanted| ledger.workloads.values().filter(|one| one.stands() == wanted).count() as u64;
    assert_eq!(totals.running_count, stands(Stands::Running), "running");
    assert_eq!(totals.pending_count, stands(Stands::Pending), "pending");
    assert_eq!(totals.suspended_count, stands(Stands::Suspended), "suspended");
    assert_eq!(totals.statuses.values().sum::<u64>(), ledger.workloads.len() as u64);
    let allocated: u64 = ledger.workloads.values().map(|one| one.gpus()).sum();
    assert_eq!(totals.gpus_allocated.0.0, allocated);
    assert_eq!(totals.gpus.to_string(), "16");
    let (mut sum, mut known, mut told, mut held) = (0, 0, 0, 0);
    for node in &totals.by_node {
        let id = engine.nodes().values().find(|one| one.name == node.name).expect("is there").id;
        let (mut node_sum, mut node_known, mut node_told, mut node_held, mut node_gpus) =
            (0, 0, 0, 0, Gpus::ZERO);
        for device in &node.devices {
            let free = (Gpus::ZERO, 0, None);
            let of = devices.get(&(id, device.index));
            let (gpus, workloads, busy) = of.copied().unwrap_or(free);
            assert_eq!(
                (device.allocated.0, device.workloads),
                (gpus, workloads),
                "{} {}",
                node.name,
                device.index
            );
            let busy = busy.filter(|_| workloads > 0);
            assert_eq!(device.utilisation.map(|percent| percent.0.0), busy, "{} {}", node.name, device.index);
            node_gpus += gpus;
            node_held += u64::from(of.is_some());
            node_known += u64::from(of.is_none() || busy.is_some());
            node_told += u64::from(busy.is_some());
            node_sum += busy.unwrap_or(0);
        }
        let mean = (node_held == 0 || node_told > 0).then(|| node_sum / node_known);
        assert_eq!(node.utilisation.map(|percent| percent.0.0), mean, "{}", node.name);
        assert_eq!(node.gpus_allocated.0, node_gpus, "{}", node.name);
        (sum, known, told, held) = (sum + node_sum, known + node_known, told + node_told, held + node_held);
    }
    let mean = (held == 0 || told > 0).then(|| sum / known);
    assert_eq!(totals.utilisation.map(|percent| percent.0.0), mean, "the whole");
}

/// Every answer to every role.
async fn check(front: &mut Front) {
    front.publish();
    let (world, state) = (&front.world, &front.state);
    let ledger = &world.ledger;
    let cluster: Cluster = read(cluster::show(State(state.clone())).await).await;
    let totals = cluster.totals.expect("has totals");
    check_totals(world, &totals);
    assert_eq!(cluster.gpus_allocated, totals.gpus_allocated);
    assert_eq!((cluster.running_count, cluster.waiting_count), (totals.running_count, totals.pending_count));
    for (user, _, _, seen) in ROLES {
        let caller = || Caller(person(user));
        let list: WorkloadList = read(
            workloads::list(State(state.clone()), caller(), query(Some(false))).await.expect("is shown"),
        )
        .await;
        let expected: BTreeMap<u64, u64> = ledger
            .workloads
            .iter()
            .filter(|(_, one)| seen.contains(&one.project.as_str()))
            .map(|(id, one)| (id.0, one.gpus()))
            .collect();
        let shown: BTreeMap<u64, u64> =
            list.items.iter().map(|one| (one.id, one.gpus_allocated.0.0)).collect();
        assert_eq!(shown, expected, "list for {user}");
        let projects: ProjectList = read(
            owners::list_projects(State(state.clone()), caller(), Query(Default::default()))
                .await
                .expect("is shown"),
        )
        .await;
        assert_eq!(projects.items.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), seen, "{user}");
        for project in &projects.items {
            let of = || ledger.workloads.values().filter(|one| one.project == project.name);
            let count = |wanted| of().filter(|one| one.stands() == wanted).count() as u64;
            let figures = (project.allocated.0.0, project.running_count, project.waiting_count);
            let expected = (of().map(|one| one.gpus()).sum(), count(Stands::Running), count(Stands::Pending));
            assert_eq!(figures, expected, "{} for {user}", project.name);
        }
        let nodes: NodeList = read(nodes::list(State(state.clone()), caller()).await).await;
        for (node, totals) in nodes.items.iter().zip(&totals.by_node) {
            assert_eq!(node.utilisation, totals.utilisation, "top node and the page agree");
            assert_eq!(node.gpus_allocated, totals.gpus_allocated);
            for (device, totals) in node.devices.iter().zip(&totals.devices) {
                assert_eq!(device.allocated, totals.allocated);
                let busy = device.usage.as_ref().map(|usage| u64::from(usage.utilisation));
                assert_eq!(busy, totals.utilisation.map(|percent| percent.0.0 / Gpus::SCALE));
                let others = device
                    .workloads
                    .iter()
                    .filter(|on| !seen.contains(&on.workload.split('/').next().unwrap_or_default()));
                assert_eq!(others.count(), 0, "{user} sees no names of others");
            }
        }
        let history = WorkloadQuery { deleted: true, ..query(Some(true)).0 };
        let history: WorkloadList =
            read(workloads::list(State(state.clone()), caller(), Query(history)).await.expect("is shown"))
                .await;
        let shown: BTreeMap<u64, Option<u64>> =
            history.items.iter().map(|one| (one.id, one.ran_secs)).collect();
        let expected: BTreeMap<u64, Option<u64>> = ledger
            .over
            .iter()
            .filter(|(_, (project, _))| seen.contains(&project.as_str()))
            .map(|(id, (_, ran))| (id.0, Some(ran.as_secs())))
            .collect();
        assert_eq!(shown, expected, "history for {user}");
        let left = history
            .items
            .iter()
            .filter(|one| one.progress.as_ref().is_some_and(|said| said.utilisation.is_some()));
        assert_eq!(left.count(), 0, "what is over is not busy");
    }
    check_metrics(front).await;
}

fn query(finished: Option<bool>) -> Query<WorkloadQuery> {
    Query(WorkloadQuery { finished, limit: Some(berth_api::PAGE_MAX), ..WorkloadQuery::default() })
}

async fn check_metrics(front: &Front) {
    let body = cluster::metrics(State(front.state.clone())).await.into_body();
    let text = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| -> String {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
    };
    let ledger = &front.world.ledger;
    let all: u64 = ledger.workloads.values().map(|one| one.gpus()).sum();
    assert_eq!(value("berth_gpus_allocated"), Gpus(all).to_string());
    for project in ["team-a", "team-b", "team-c", "team-d"] {
        let of = || ledger.workloads.values().filter(|one| one.project == project);
        let count = |wanted| of().filter(|one| one.stands() == wanted).count().to_string();
        let label = |name: &str| format!("berth_project_{name}{{project=\"{project}\"}}");
        assert_eq!(value(&label("gpus_allocated")), Gpus(of().map(|one| one.gpus()).sum()).to_string());
        assert_eq!(value(&label("workloads_running")), count(Stands::Running));
        assert_eq!(value(&label("workloads_waiting")), count(Stands::Pending));
    }
}

/// What was sampled, as charts get it.
async fn check_series(front: &Front) {
    let (Some((first, _)), Some((_, last))) = (front.samples.first(), front.samples.last()) else { return };
    for (user, _, _, seen) in ROLES {
        let caller = || Caller(person(user));
        let names: SeriesList =
            read(events::series_names(State(front.state.clone()), caller()).await.expect("is shown")).await;
        let of_projects: BTreeSet<&str> =
            names.items.iter().filter_map(|name| name.strip_prefix("gpus_allocated/")).collect();
        assert_eq!(of_projects, seen.iter().copied().collect(), "series for {user}");
        for project in of_projects.into_iter().chain([""]) {
            let name = if project.is_empty() {
                "gpus_allocated".into()
            } else {
                format!("gpus_allocated/{project}")
            };
            let points = |from: Time, to: Time| {
                let query = SeriesQuery { name: name.clone(), from: Some(from.into()), to: Some(to.into()) };
                events::series_points(State(front.state.clone()), caller(), Query(query))
            };
            let close: Series = read(points(*first, Time(last.0 + 1)).await.expect("is shown")).await;
            assert_eq!((close.unit.as_str(), close.scale), ("gpus", Some(1_000_000)));
            assert_eq!(close.points.len(), front.samples.len(), "{name}");
            for (point, (from, to)) in close.points.iter().zip(&front.samples) {
                let (_, min, max) = front.world.ledger.window(project, *from, *to);
                assert_eq!((point.at.0, point.min, point.max), (*to, min, max), "{name}");
            }
            // Far away, hours are shown; what they hold is exact too.
            let far: Series =
                read(points(Time(0), Time(first.0 + 40 * 86_400_000)).await.expect("is shown")).await;
            let truth = front.samples.iter().map(|(from, to)| front.world.ledger.window(project, *from, *to));
            let (min, max) =
                truth.fold((i64::MAX, 0), |(min, max), (_, low, high)| (min.min(low), max.max(high)));
            assert_eq!(far.points.iter().map(|point| point.max).max(), Some(max), "{name}");
            assert_eq!(far.points.iter().map(|point| point.min).min(), Some(min), "{name}");
        }
    }
}

async fn play(seed: u64) {
    let mut random = random_history::Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut front = Front::new();
    for step in 0..100 {
        front.world.now = front.world.now + berth_types::Span(random.below(20_000));
        front.world.act(|_, _| Ok(())).expect("time passes");
        random_history::act(&mut front.world, &mut random, step);
        if random.chance(2) {
            front.restart();
        }
        check_totals(&front.world, &front.world.platform.totals(&[]));
        if random.chance(40) {
            front.sample();
        }
        if random.chance(5) {
            check(&mut front).await;
        }
    }
    front.world.now = front.world.now + berth_types::Span(1);
    front.sample();
    check(&mut front).await;
    check_series(&front).await;
}

#[test]
fn every_figure_is_true_for_every_role() {
    let cases = std::env::var("BERTH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40);
    let seeds = match std::env::var("BERTH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..cases,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for seed in seeds {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(play(seed))));
        if let Err(cause) = played {
            eprintln!("replay this with BERTH_SEED={seed} cargo test -p berth-server every_figure");
            std::panic::resume_unwind(cause);
        }
    }
}

/// A folder with the world of the report, and something that ran in team-c.
async fn with_history() -> (Front, WorkloadId) {
    let mut front = Front::new();
    let request = WorkloadRequest { project: "team-c".into(), ..train("old", "1") };
    let id = front.world.submit(request).expect("is accepted");
    front.world.act(|platform, now| platform.delete(id, "rita", now)).expect("is deleted");
    front.world.settle();
    front.publish();
    (front, id)
}

async fn found(front: &Front, user: &str, query: WorkloadQuery) -> Vec<Workload> {
    let list = workloads::list(State(front.state.clone()), Caller(person(user)), Query(query)).await;
    read::<WorkloadList>(list.expect("is shown")).await.items
}

#[tokio::test]
async fn deleted_work_stays_in_the_history_with_its_reason() {
    let (front, id) = with_history().await;
    assert!(found(&front, "rita", WorkloadQuery::default()).await.is_empty(), "a list is of what is there");
    let history = WorkloadQuery { finished: Some(true), deleted: true, ..WorkloadQuery::default() };
    let found = found(&front, "rita", history).await;
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [id.0]);
    assert_eq!(found[0].message.as_deref(), Some("deleted by rita"));
}

#[tokio::test]
async fn what_ran_in_a_project_that_is_gone_is_for_those_who_see_everything() {
    let (mut front, id) = with_history().await;
    front.world.act(|platform, now| platform.delete_project("team-c", now)).expect("is deleted");
    front.publish();
    let history = || WorkloadQuery { finished: Some(true), deleted: true, ..WorkloadQuery::default() };
    let of_project = || WorkloadQuery { project: Some("team-c".into()), ..history() };
    for query in [history(), of_project()] {
        let seen = found(&front, "root", query).await;
        assert_eq!(seen.iter().map(|one| one.id).collect::<Vec<_>>(), [id.0]);
    }
    let shown = workloads::show(State(front.state.clone()), Path(("team-c".into(), "old".into()))).await;
    assert_eq!(read::<Workload>(shown.expect("is shown")).await.id, id.0);
    assert!(found(&front, "rita", history()).await.is_empty());
    // A new project of that name does not have the history of the old one.
    front.world.project("team-c", "2");
    let scope: Scope = "project/team-c".parse().expect("a scope");
    let grant = Grant { user: "rita".into(), role: Role::Researcher, scope };
    front.world.act(|platform, now| platform.grant(&installation(), &grant, now)).expect("is granted");
    front.publish();
    assert!(found(&front, "rita", history()).await.is_empty());
    assert_eq!(found(&front, "root", history()).await.len(), 1);
}
