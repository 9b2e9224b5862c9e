//! A cluster behind the API: it keeps all state and decides; here it is shown, and told what people want.
//!
//! The platform of this process is then a picture of the cluster, drawn again whenever something changed. A command happens
//! to a copy of the picture first: what is wrong with it is found there, in the same words as on one machine, and what it
//! would change is what the cluster is asked for.
//!
//! ```text
//! cluster --image--> Platform <--read-- HTTP
//! HTTP --command--> copy of the Platform --Happened--> Wish --> cluster --image--> Platform --> answer
//! ```

use crate::{
    beside::{Duplex, Shell},
    controller::{Command, Shared},
    platform::{Happened, Logged, Parked, Platform, Record, Stop, TaskRecord},
};
use berth_api::{Code, LogQuery, Problem, ShellRequest, ShellSize, Submitted, WorkloadRequest};
use berth_store::Json;
use berth_types::{
    Department, NodeCondition, NodeId, Place, Policy, Project, State, Time, Workload, WorkloadId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// How long a cluster may take to show what it accepted.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time between two pictures.
const DRAW_EVERY: Duration = Duration::from_millis(20);

/// Something that will be there.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a cluster can be asked for.
pub trait Cluster: Send + Sync {
    /// What kind of cluster it is, in one word.
    fn mode(&self) -> &'static str;

    /// Everything that is there.
    fn image(&self) -> ClusterImage;

    /// Counts changes.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Makes wishes come true; answers when the cluster has accepted them.
    fn carry_out(&self, wishes: Vec<Wish>) -> Later<Result<(), Problem>>;

    /// Reads what a workload prints, piece by piece. With `follow` it goes on while it runs.
    fn log(
        &self,
        project: String,
        name: String,
        query: LogQuery,
    ) -> Later<Result<mpsc::Receiver<Vec<u8>>, Problem>>;

    /// Runs a command beside a worker.
    fn exec(
        &self,
        project: String,
        name: String,
        rank: u32,
        request: ShellRequest,
    ) -> Later<Result<Shell, Problem>> {
        let _ = (project, name, rank, request);
        not_there("commands beside workers")
    }

    /// Joins a worker's own terminal.
    fn attach(
        &self,
        project: String,
        name: String,
        rank: u32,
        size: Option<ShellSize>,
    ) -> Later<Result<Shell, Problem>> {
        let _ = (project, name, rank, size);
        not_there("terminals of workers")
    }

    /// Connects to a port of a worker.
    fn connect(
        &self,
        project: String,
        name: String,
        rank: u32,
        port: u16,
    ) -> Later<Result<Box<dyn Duplex>, Problem>> {
        let _ = (project, name, rank, port);
        not_there("ports of workers")
    }
}

fn not_there<T: Send + 'static>(what: &str) -> Later<Result<T, Problem>> {
    let problem = Problem::new(Code::WrongState, format!("{what} cannot be reached through this server"));
    Box::pin(std::future::ready(Err(problem)))
}

/// Everything that is in a cluster.
#[derive(Debug, Default)]
pub struct ClusterImage {
    /// Nodes, owners, and work where it is.
    pub state: State,
    /// Unfinished work, that which is suspended included.
    pub workloads: Vec<ClusterWorkload>,
    /// Finished work that is still there.
    pub over: Vec<berth_api::Workload>,
    /// Nodes that are being emptied.
    pub draining: BTreeSet<NodeId>,
}

/// What is known of a workload beyond what the engine needs.
#[derive(Debug, Clone)]
pub struct ClusterWorkload {
    /// Its identity here.
    pub id: WorkloadId,
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub request: WorkloadRequest,
    /// The workload itself, when the engine does not know it: it asks for nothing.
    pub parked: Option<(ParkedBecause, Box<Workload>)>,
    /// When it was first started.
    pub first_started: Option<Time>,
    /// When its present run began.
    pub run_started: Option<Time>,
    /// How often it was started.
    pub runs: u32,
    /// How often a run failed.
    pub failures: u32,
    /// How often it was stopped for others.
    pub preemptions: u32,
    /// Its tasks.
    pub tasks: Vec<ClusterTask>,
    /// It is being deleted.
    pub ends: bool,
    /// One sentence about where it stands.
    pub message: Option<String>,
    /// Who submitted it.
    pub user: String,
    /// Its project.
    pub project: berth_types::ProjectId,
    /// When.
    pub submitted: Time,
}

/// Why a workload asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkedBecause {
    /// Somebody suspended it, then.
    Suspended(Time),
    /// It is tried again then.
    BackOff(Time),
}

/// A task of a workload.
#[derive(Debug, Clone)]
pub struct ClusterTask {
    /// Where it is.
    pub place: Place,
    /// Which run it is of.
    pub run: u32,
    /// An elastic extra.
    pub extra: bool,
    /// Since when it has been running.
    pub started: Option<Time>,
    /// It was told to stop.
    pub stopping: bool,
}

/// Something that a person wants of the cluster.
#[derive(Debug, Clone)]
pub enum Wish {
    /// A department is to be there, as it is written here; with the name of the one it is part of.
    Department(Box<Department>, Option<String>),
    /// A department is to go.
    DepartmentGone(String),
    /// A project is to be there, as it is written here; with the name of its department.
    Project(Box<Project>, Option<String>),
    /// A project is to go.
    ProjectGone(String),
    /// A node is to take new work, or not; and to be emptied, or not.
    Node {
        /// Its name.
        name: String,
        /// It takes nothing new.
        cordoned: bool,
        /// What runs there is to go.
        draining: bool,
    },
    /// A workload is to be there.
    Submit {
        /// Its name.
        name: String,
        /// What is asked for, with every default filled in.
        request: Box<WorkloadRequest>,
        /// Who asks.
        user: String,
    },
    /// A workload is to go.
    Delete {
        /// Whose.
        project: String,
        /// Its name.
        name: String,
    },
    /// A workload is to stop until it is resumed, or to go on.
    Suspend {
        /// Whose.
        project: String,
        /// Its name.
        name: String,
        /// Whether it is to stop.
        suspended: bool,
    },
}

/// Shows a cluster and passes wishes on.
#[derive(Clone)]
pub(crate) struct Mirror {
    pub(crate) cluster: Arc<dyn Cluster>,
    /// Counts pictures.
    drawn: watch::Receiver<u64>,
}

impl Mirror {
    /// Draws the first picture, and every later one until nobody looks any more.
    pub(crate) fn start(cluster: Arc<dyn Cluster>, shared: Arc<Shared>, policy: Policy) -> Self {
        let (drawn, pictures) = watch::channel(0u64);
        let mut changes = cluster.changes();
        draw(&*cluster, &shared, &policy);
        let behind = Arc::clone(&cluster);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                changes.mark_unchanged();
                let began = Instant::now();
                let (cluster, shared, policy) = (Arc::clone(&behind), Arc::clone(&shared), policy.clone());
                let done = tokio::task::spawn_blocking(move || draw(&*cluster, &shared, &policy)).await;
                let rises = (*drawn.borrow()).wrapping_add(1);
                if done.is_err() || drawn.send(rises).is_err() {
                    return;
                }
                // A large cluster is drawn half of the time at most.
                tokio::time::sleep(began.elapsed().max(DRAW_EVERY)).await;
            }
        });
        Self { cluster, drawn: pictures }
    }

    /// Lets a command happen in the cluster.
    pub(crate) async fn command(&self, shared: &Shared, command: Command) -> Result<Json, Problem> {
        let (answer, wishes) = {
            let mut copy = shared.read().clone();
            let answer = command(&mut copy, shared.now())?;
            let happened = copy.take_news().logged;
            let wishes: Result<Vec<Wish>, Problem> =
                happened.iter().filter_map(|logged| wish(&shared.read(), &copy, logged)).collect();
            (answer, wishes?)
        };
        self.cluster.carry_out(wishes.clone()).await?;
        self.shown(shared, &wishes).await;
        shared.commands.fetch_add(1, Ordering::Relaxed);
        Ok(with_identity(&shared.read(), answer, &wishes))
    }

    /// Waits until the picture shows what the cluster accepted. It did accept it, so a late picture is no failure.
    async fn shown(&self, shared: &Shared, wishes: &[Wish]) {
        let mut pictures = self.drawn.clone();
        let shown = async {
            loop {
                pictures.mark_unchanged();
                if wishes.iter().all(|wish| is_shown(&shared.read(), wish))
                    || pictures.changed().await.is_err()
                {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(SHOWN_WITHIN, shown).await;
    }
}

fn draw(cluster: &dyn Cluster, shared: &Shared, policy: &Policy) {
    match Platform::of_cluster(policy.clone(), cluster.image()) {
        Ok(mut platform) => {
            let mut known = shared.platform.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            platform.set_address(known.address().to_owned());
            *known = platform;
        }
        Err(error) => tracing::error!(%error, "what the cluster shows cannot be"),
    }
}

/// What somebody wants of the cluster, from what happened to the copy of its picture.
fn wish(before: &Platform, after: &Platform, logged: &Logged) -> Option<Result<Wish, Problem>> {
    let department = |id: Option<berth_types::DepartmentId>| {
        id.and_then(|id| after.engine().departments().get(&id)).map(|department| department.name.clone())
    };
    let named = |id: WorkloadId| {
        let record = before.record(id).map(|record| (record.request.project.clone(), record.name.clone()));
        record.or_else(|| before.over(id).map(|over| (over.project.clone(), over.name.clone())))
    };
    Some(Ok(match &logged.happened {
        Happened::Department { department: one } => {
            Wish::Department(Box::new(one.clone()), department(one.parent))
        }
        Happened::DepartmentRemoved { name, .. } => Wish::DepartmentGone(name.clone()),
        Happened::Project { project } => {
            Wish::Project(Box::new(project.clone()), department(project.department))
        }
        Happened::ProjectRemoved { name, .. } => Wish::ProjectGone(name.clone()),
        Happened::Node { node, draining } => Wish::Node {
            name: node.name.clone(),
            cordoned: node.condition == NodeCondition::Cordoned,
            draining: *draining,
        },
        Happened::Submitted { workload, request } => Wish::Submit {
            name: workload.spec.name.clone(),
            request: request.clone(),
            user: workload.spec.user.clone(),
        },
        Happened::Stopped { workload, stop, .. } => {
            let (project, name) = named(*workload)?;
            match stop {
                Stop::Suspended | Stop::Idle => Wish::Suspend { project, name, suspended: true },
                // A node that is emptied is asked for as a whole.
                Stop::Drained => return None,
                Stop::Deleted | Stop::TimeLimit => Wish::Delete { project, name },
            }
        }
        Happened::Resumed { workload, .. } => {
            let (project, name) = named(*workload)?;
            Wish::Suspend { project, name, suspended: false }
        }
        Happened::Hidden { workload } => {
            let (project, name) = named(*workload)?;
            Wish::Delete { project, name }
        }
        Happened::Volume { .. } | Happened::VolumeRemoved { .. } => {
            let text = "volumes of a cluster are PersistentVolumeClaims; make them with kubectl";
            return Some(Err(Problem::new(Code::WrongState, text)));
        }
        _ => return None,
    }))
}

fn is_shown(platform: &Platform, wish: &Wish) -> bool {
    match wish {
        Wish::Department(department, _) => platform.find_department(&department.name).is_ok(),
        Wish::DepartmentGone(name) => platform.find_department(name).is_err(),
        Wish::Project(project, _) => {
            let id = platform.project_id(&project.name);
            let known = id.and_then(|id| platform.engine().projects().get(&id));
            known.is_some_and(|known| {
                Project { id: known.id, department: known.department, ..(**project).clone() } == *known
            })
        }
        Wish::ProjectGone(name) => platform.project_id(name).is_none(),
        Wish::Node { name, cordoned, .. } => platform.known_node(name).is_ok_and(|id| {
            let cordon = |node: &berth_types::Node| node.condition == NodeCondition::Cordoned;
            platform.engine().nodes().get(&id).is_none_or(|node| cordon(node) == *cordoned)
        }),
        Wish::Submit { name, request, .. } => platform.find(&request.project, name).is_some(),
        Wish::Delete { project, name } => {
            let ends =
                platform.find(project, name).and_then(|id| platform.record(id)).map(|record| record.stop);
            ends.is_none_or(|stop| stop == Some(Stop::Deleted))
        }
        Wish::Suspend { project, name, suspended } => {
            let record = platform.find(project, name).and_then(|id| platform.record(id));
            record.is_none_or(|record| {
                (record.parked.is_some() || record.stop == Some(Stop::Suspended)) == *suspended
            })
        }
    }
}

/// An answer to a submission speaks of the workload as the cluster knows it.
fn with_identity(platform: &Platform, answer: Json, wishes: &[Wish]) -> Json {
    let [Wish::Submit { name, request, .. }] = wishes else { return answer };
    let shown = platform.find(&request.project, name).and_then(|id| platform.workload_view(id, true));
    match (shown, answer.read::<Submitted>()) {
        (Some(workload), Ok(submitted)) => {
            Json::of(&Submitted { workload, ..submitted }).expect("answers are JSON")
        }
        _ => answer,
    }
}

impl Platform {
    /// The platform as a cluster shows it.
    pub(crate) fn of_cluster(policy: Policy, image: ClusterImage) -> Result<Self, berth_types::ChangeError> {
        let ClusterImage { state, workloads, over, draining } = image;
        let names: BTreeMap<_, _> =
            state.projects.values().map(|project| (project.id, project.name.clone())).collect();
        // What others placed has no name here, and takes its place all the same.
        let records =
            workloads.into_iter().filter(|one| names.contains_key(&one.project)).map(record).collect();
        let next_id = 1 + state.workloads.values().map(|workload| workload.id.0).max().unwrap_or(0);
        let mut platform = Self::of_parts(policy, state, records, over, draining, next_id)?;
        platform.forget_strangers();
        Ok(platform)
    }
}

fn record(known: ClusterWorkload) -> Record {
    let tasks = known.tasks.into_iter().map(|task| {
        let mut record = TaskRecord::ordered(task.run, task.place, task.extra);
        record.stopping = task.stopping;
        record.started = task.started;
        (record.place.rank, record)
    });
    let parked = known.parked.map(|(because, workload)| {
        let parked = match because {
            ParkedBecause::Suspended(since) => Parked::Suspended { since },
            ParkedBecause::BackOff(until) => Parked::BackOff { until },
        };
        (parked, workload)
    });
    Record {
        id: known.id,
        name: known.name,
        project: known.project,
        user: known.user,
        request: known.request,
        submitted: known.submitted,
        first_started: known.first_started,
        run_started: known.run_started,
        runs: known.runs,
        failures: known.failures,
        preemptions: known.preemptions,
        evictions: Default::default(),
        tasks: tasks.collect(),
        parked,
        stop: known.ends.then_some(Stop::Deleted),
        refused: false,
        progress: None,
        exit_code: None,
        signal: None,
        message: known.message,
        warned: BTreeSet::new(),
    }
}
