//! A view of the cluster for whoever answers questions about it: everything that is seen, and nothing that is decided.

use crate::{
    api,
    convert::Refusal,
    run,
    seen::pod::{PodSeen, Stage},
    watch::News,
    world::{Settings, World},
};
use anyhow::{Context, Result};
use berth_engine::Engine;
use berth_types::{Explanation, Policy, Time, WorkloadId};
use kube::Client;
use std::{
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};

/// News that are taken at once.
const AT_ONCE: usize = 5_000;
/// The longest sleep.
const SLEEP: Duration = Duration::from_secs(5);

/// Everything that is seen of a cluster, kept up to date.
#[derive(Clone)]
pub struct View {
    world: Arc<RwLock<World>>,
    /// Counts changes, so that somebody can wait for the next.
    changes: watch::Receiver<u64>,
    /// End with the last view.
    _watches: Arc<JoinSet<()>>,
}

/// What is seen at one moment.
pub struct Reading<'a>(RwLockReadGuard<'a, World>);

/// A Pod of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Which worker it is.
    pub rank: u32,
    /// Which run it belongs to.
    pub run: u32,
    /// Which of the Pods of this worker in this run, of a workload with completions.
    pub turn: u32,
    /// Which completion it is for.
    pub index: Option<u32>,
    /// Where it is.
    pub node: Option<String>,
    /// It runs.
    pub running: bool,
    /// It is over.
    pub over: bool,
    /// With which code, of one that is over.
    pub exit_code: Option<i32>,
    /// Somebody has asked for its end.
    pub leaving: bool,
}

impl View {
    /// Begins to look; returns when everything has been seen once.
    pub async fn start(client: Client) -> Result<Self> {
        let (news, heard) = channel();
        let (mut unlisted, mut watches) = run::watch_all(&client, &news);
        run::watch_volume_claims(&client, &news, &mut unlisted, &mut watches);
        let world = Arc::new(RwLock::new(World::new(Settings { policy: Policy::default() })));
        let (changed, mut changes) = watch::channel(0);
        let ours = Arc::clone(&world);
        let looking = move || {
            let Some(first) = run::first_news(&heard, unlisted) else { return };
            write(&ours).see(run::now(), first);
            follow(&ours, &heard, &changed);
        };
        std::thread::Builder::new()
            .name("view".into())
            .spawn(looking)
            .context("a thread cannot be started")?;
        let first = tokio::time::timeout(Duration::from_secs(60), changes.changed()).await;
        first.context("the API server does not answer")?.context("the view ended")?;
        Ok(Self { world, changes, _watches: Arc::new(watches) })
    }

    /// What is seen now.
    pub fn read(&self) -> Reading<'_> {
        Reading(self.world.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something holds, and gives it; nothing when it takes too long.
    pub async fn until<T>(&self, limit: Duration, look: impl Fn(&Reading<'_>) -> Option<T>) -> Option<T> {
        let mut changes = self.changes.clone();
        let found = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = look(&self.read()) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        tokio::time::timeout(limit, found).await.ok().flatten()
    }

    /// Hears of every change, by a number that rises.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

fn write(world: &RwLock<World>) -> std::sync::RwLockWriteGuard<'_, World> {
    world.write().unwrap_or_else(PoisonError::into_inner)
}

fn follow(world: &RwLock<World>, heard: &Receiver<News>, changed: &watch::Sender<u64>) {
    let mut seen = Vec::new();
    loop {
        // When the last view is gone, so is the reason to look.
        if changed.is_closed() {
            return;
        }
        changed.send_modify(|count| *count = count.wrapping_add(1));
        let mut next = heard.recv_timeout(SLEEP);
        loop {
            match next {
                Ok(News::Seen(one)) => seen.push(one),
                Ok(News::Failed { kind, message } | News::Forbidden { kind, message }) => {
                    tracing::warn!(kind, message, "cannot be read");
                }
                Ok(News::Listed(_) | News::Absent(_)) => {}
                Ok(News::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => break,
            }
            if seen.len() >= AT_ONCE {
                break;
            }
            next = heard.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        write(world).observe(run::now(), seen.drain(..));
    }
}

impl Reading<'_> {
    /// The engine, as if it had decided what is there.
    pub fn engine(&self) -> &Engine {
        self.0.engine()
    }

    /// Projects, by name.
    pub fn projects(&self) -> impl Iterator<Item = &Arc<api::Project>> {
        self.0.owners.projects()
    }

    /// Departments, by name.
    pub fn departments(&self) -> impl Iterator<Item = &Arc<api::Department>> {
        self.0.owners.departments()
    }

    /// The project that pays for what lives in a namespace.
    pub fn project_of(&self, namespace: &str) -> Result<Arc<api::Project>, Refusal> {
        self.0.owners.project_of(namespace).map(|(_, project)| Arc::clone(project))
    }

    /// Claims of volumes, by namespace and name, with when they were made.
    pub fn volume_claims(&self) -> impl Iterator<Item = (&str, &str, Time)> {
        self.0.volumes.all_claims()
    }

    /// Workloads, in the order in which they came.
    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadId, &Arc<api::Workload>)> {
        self.0.groups.iter().filter_map(|(id, group)| Some((*id, group.workload.as_ref()?)))
    }

    /// A workload by its namespace and name.
    pub fn workload(&self, namespace: &str, name: &str) -> Option<(WorkloadId, &Arc<api::Workload>)> {
        self.workloads().find(|(_, workload)| {
            workload.metadata.namespace.as_deref() == Some(namespace)
                && workload.metadata.name.as_deref() == Some(name)
        })
    }

    /// The Pods of a workload, by run, rank and turn.
    pub fn pods(&self, id: WorkloadId) -> Vec<PodView> {
        let Some(group) = self.0.groups.get(&id) else { return Vec::new() };
        let mut pods: Vec<PodView> =
            group.pods.iter().filter_map(|uid| self.0.pods.get(uid)).map(|pod| pod_view(pod)).collect();
        pods.sort_by_key(|pod| (pod.run, pod.rank, pod.turn));
        pods
    }

    /// Whether every worker that must be there runs, and is not just bound to its node.
    pub fn all_run(&self, id: WorkloadId) -> bool {
        self.0.all_run(id)
    }

    /// Why a workload waits.
    pub fn explain(&self, id: WorkloadId) -> Option<Explanation> {
        self.engine().explain(id, run::now())
    }

    /// An explanation in one word and one sentence.
    pub fn words(&self, explanation: &Explanation) -> Refusal {
        self.0.words(&explanation.reason)
    }

    /// Why a workload is not even in the queue.
    pub fn refusal(&self, id: WorkloadId) -> Option<&Refusal> {
        self.0.groups.get(&id)?.refusal.as_ref()
    }
}

fn pod_view(pod: &PodSeen) -> PodView {
    let (rank, run, turn, index) = match pod.member {
        crate::seen::pod::Member::Workload { rank, run, turn, index, .. } => (rank, run, turn, index),
        _ => (0, 0, 1, None),
    };
    PodView {
        name: pod.key.name.to_string(),
        rank,
        run,
        turn,
        index,
        node: pod.node.as_ref().map(ToString::to_string),
        running: pod.stage == Stage::Running,
        over: pod.is_over(),
        exit_code: pod.exit_code,
        leaving: pod.leaving,
    }
}
