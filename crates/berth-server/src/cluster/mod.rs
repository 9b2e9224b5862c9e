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

mod differences;
mod history;
mod mirror;

pub(crate) use history::History;
pub(crate) use mirror::Mirror;

use crate::{
    beside::{Duplex, Shell},
    controller::Key,
    platform::{EvictionRecord, Parked, Platform, Record, Stop, TaskRecord, TaskReport, VolumeRecord},
};
use berth_agent::Report;
use berth_api::{Code, Eviction, LogQuery, Problem, ShellRequest, ShellSize, WorkloadRequest};
use berth_types::{
    Bytes, Completed, Department, NodeId, Place, Policy, Project, ProjectId, State, Time, Workload,
    WorkloadId,
};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
};
use tokio::sync::{mpsc, watch};

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

    /// Whose request made a workload, of those that are there.
    fn made_by(&self, key: &RequestKey) -> Option<Made>;

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
    /// Volumes.
    pub volumes: Vec<ClusterVolume>,
    /// When each project was created.
    pub project_created: BTreeMap<ProjectId, Time>,
}

/// A volume of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterVolume {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub project: String,
    /// When it was made.
    pub created: Time,
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
    /// When and why that was, the last time.
    pub last_eviction: Option<Eviction>,
    /// Completions that are done.
    pub done: Completed,
    /// Its tasks.
    pub tasks: Vec<ClusterTask>,
    /// It is being deleted.
    pub ends: bool,
    /// One sentence about where it stands.
    pub message: Option<String>,
    /// How far it is, and when it said so.
    pub progress: Option<(Time, Report)>,
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
    /// It cannot be queued as it is; its message says why.
    Refused,
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

/// A request that may be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// A hash of its idempotency key, in hexadecimal digits.
    pub key: String,
    /// A hash of what is asked for.
    pub request: String,
}

impl RequestKey {
    fn of(key: &Key) -> Self {
        Self { key: digits(&Sha256::digest(&key.key)), request: digits(&key.request) }
    }
}

/// As many digits as nobody hits by chance.
fn digits(hash: &[u8]) -> String {
    crate::auth::hex(&hash[..hash.len().min(16)])
}

/// A workload that a request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Whose it is.
    pub project: String,
    /// Its name.
    pub name: String,
    /// The request that made it.
    pub by: RequestKey,
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
    /// A node is to have other labels.
    NodeLabels {
        /// Its name.
        name: String,
        /// What each label is to be; none for one that is to go.
        labels: BTreeMap<String, Option<String>>,
    },
    /// A volume is to be there.
    Volume {
        /// Whose.
        project: String,
        /// Its name.
        name: String,
        /// How much is to fit into it.
        size: Option<Bytes>,
    },
    /// A volume is to go.
    VolumeGone {
        /// Whose.
        project: String,
        /// Its name.
        name: String,
    },
    /// A workload is to be there.
    Submit {
        /// Its name.
        name: String,
        /// What is asked for, with every default filled in.
        request: Box<WorkloadRequest>,
        /// Who asks.
        user: String,
        /// The request, if it may be sent again: kept with the workload, so that no crash makes two of one.
        key: Option<RequestKey>,
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

impl Platform {
    /// The platform as a cluster shows it.
    pub(crate) fn of_cluster(policy: Policy, image: ClusterImage) -> Result<Self, berth_types::ChangeError> {
        let ClusterImage { state, workloads, over, draining, volumes, project_created } = image;
        let names: BTreeMap<_, _> =
            state.projects.values().map(|project| (project.id, project.name.clone())).collect();
        // What others placed has no name here, and takes its place all the same.
        let records =
            workloads.into_iter().filter(|one| names.contains_key(&one.project)).map(record).collect();
        let next_id = 1 + state.workloads.values().map(|workload| workload.id.0).max().unwrap_or(0);
        let mut platform = Self::of_parts(policy, state, records, over, draining, next_id)?;
        platform.forget_strangers();
        platform.set_project_created(project_created);
        platform.take_volumes(volumes.into_iter().map(|volume| VolumeRecord {
            name: volume.name,
            project: Some(volume.project),
            created: volume.created,
            size: None,
        }));
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
            ParkedBecause::Refused => Parked::Refused,
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
        last_started: known.run_started,
        runs: known.runs,
        failures: known.failures,
        preemptions: known.preemptions,
        evictions: known.last_eviction.map(EvictionRecord::of).into_iter().collect(),
        gang_run: 0,
        done: known.done,
        tasks: tasks.collect(),
        parked,
        stop: known.ends.then_some(Stop::Deleted),
        refused: false,
        progress: known.progress.map(|(at, report)| TaskReport::of(at, report)),
        exit_code: None,
        signal: None,
        message: known.message,
        warned: BTreeSet::new(),
        notice: None,
        ran: berth_types::Span::ZERO,
        indices: BTreeMap::new(),
    }
}
