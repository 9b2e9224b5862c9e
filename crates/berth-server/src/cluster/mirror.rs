//! Draws pictures of a cluster, notes what changed between them, and passes wishes on.

use super::{Cluster, RequestKey, Wish, differences::differences, history::History};
use crate::{
    Folder,
    auth::new_token,
    controller::{Command, Key, SAMPLE_EVERY, Shared, store_problem},
    feed::Told,
    platform::{Happened, Logged, NOTEBOOK_TOKEN, PeopleChange, Platform, Stop},
    samples,
};
use berth_api::{Code, Problem, Submitted};
use berth_store::{Json, StoreError};
use berth_types::{NodeCondition, Policy, Project, WorkloadId};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::MissedTickBehavior};

/// How long a cluster may take to show what it accepted.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time between two pictures.
const DRAW_EVERY: Duration = Duration::from_millis(20);

/// Shows a cluster and passes wishes on.
#[derive(Clone)]
pub(crate) struct Mirror {
    pub(crate) cluster: Arc<dyn Cluster>,
    /// Counts pictures.
    drawn: watch::Receiver<u64>,
    history: Arc<History>,
    folder: Folder,
}

/// What draws pictures.
struct Drawing {
    cluster: Arc<dyn Cluster>,
    shared: Arc<Shared>,
    policy: Policy,
    history: Arc<History>,
}

impl Mirror {
    /// Draws the first picture, and every later one until nobody looks any more.
    pub(crate) fn start(
        cluster: Arc<dyn Cluster>,
        shared: Arc<Shared>,
        policy: Policy,
        history: History,
        folder: Folder,
    ) -> Self {
        let (drawn, pictures) = watch::channel(0u64);
        let history = Arc::new(history);
        let mut changes = cluster.changes();
        let mirror =
            Self { cluster: Arc::clone(&cluster), drawn: pictures, history: Arc::clone(&history), folder };
        let drawing = Arc::new(Drawing { cluster, shared, policy, history });
        // What happened while nobody looked is not known.
        drawing.draw(|_, _| Vec::new());
        tokio::spawn(async move {
            let mut samples = tokio::time::interval(Duration::from_millis(SAMPLE_EVERY.0));
            samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let changed = tokio::select! {
                    changed = changes.changed() => changed.is_ok().then_some(true),
                    _ = samples.tick() => Some(false),
                };
                let began = Instant::now();
                let drawing = Arc::clone(&drawing);
                let done = match changed {
                    None => return,
                    Some(true) => {
                        changes.mark_unchanged();
                        tokio::task::spawn_blocking(move || drawing.draw(differences)).await
                    }
                    Some(false) => tokio::task::spawn_blocking(move || drawing.sample()).await,
                };
                let rises = (*drawn.borrow()).wrapping_add(1);
                if done.is_err() || drawn.send(rises).is_err() {
                    return;
                }
                // A large cluster is drawn half of the time at most.
                tokio::time::sleep(began.elapsed().max(DRAW_EVERY)).await;
            }
        });
        mirror
    }

    /// Lets a command happen in the cluster.
    pub(crate) async fn command(
        &self,
        shared: &Shared,
        key: Option<Key>,
        command: Command,
    ) -> Result<Json, Problem> {
        let Some(key) = key else { return self.happen(shared, None, command).await };
        let history = Arc::clone(&self.history);
        let (asked, now) = (key.clone(), shared.now());
        let given = tokio::task::spawn_blocking(move || history.answered(&asked, now)).await;
        if let Some(answer) = given.map_err(|_| Problem::new(Code::Internal, "reading failed"))?? {
            return Ok(answer);
        }
        let _turn = self.history.take_turn(&key)?;
        if let Some(answer) = self.made(shared, &key)? {
            return Ok(answer);
        }
        let answer = self.happen(shared, Some(&key), command).await?;
        self.history.give(key, answer.clone(), shared.now());
        Ok(answer)
    }

    /// What a submission with this key made, when its answer was lost together with what is remembered here.
    fn made(&self, shared: &Shared, key: &Key) -> Result<Option<Json>, Problem> {
        let asked = RequestKey::of(key);
        let Some(made) = self.cluster.made_by(&asked) else { return Ok(None) };
        if made.by.request != asked.request {
            return Err(store_problem(&StoreError::KeyReused { key: key.key.clone() }));
        }
        let platform = shared.read();
        let unfinished = platform.find(&made.project, &made.name);
        let workload = unfinished.and_then(|id| platform.workload_view(id, true)).or_else(|| {
            let over = platform.all_over();
            over.into_iter().find(|one| (&one.project, &one.name) == (&made.project, &made.name)).cloned()
        });
        let answer = |workload| Submitted { workload, warnings: Vec::new() };
        Ok(workload.map(|workload| Json::of(&answer(workload)).expect("answers are JSON")))
    }

    async fn happen(&self, shared: &Shared, key: Option<&Key>, command: Command) -> Result<Json, Problem> {
        let (answer, wishes) = {
            let mut copy = shared.read().clone();
            let answer = command(&mut copy, shared.now())?;
            let happened = copy.take_news().logged;
            self.keep_people(shared, &happened)?;
            let wishes: Result<Vec<Wish>, Problem> =
                happened.iter().filter_map(|logged| wish(&shared.read(), &copy, logged, key)).collect();
            (answer, wishes?)
        };
        self.cluster.carry_out(wishes.clone()).await?;
        self.shown(shared, &wishes).await;
        shared.commands.fetch_add(1, Ordering::Relaxed);
        Ok(with_identity(&shared.read(), answer, &wishes))
    }

    /// A cluster has no room for people, so they are kept in a file here. What happened to the copy happens to what is shown,
    /// change by change, so that two at once lose nothing.
    fn keep_people(&self, shared: &Shared, happened: &[Logged]) -> Result<(), Problem> {
        let change = |logged: &Logged| match &logged.happened {
            Happened::People { change } => Some(change.clone()),
            _ => None,
        };
        let changes: Vec<PeopleChange> = happened.iter().filter_map(change).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let mut known = shared.platform.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.people().clone();
        changes.iter().for_each(|change| known.on_people(change, shared.now()));
        self.folder.keep_people(known.people()).map_err(|error| {
            known.set_people(before);
            Problem::new(Code::ReadOnly, format!("users and roles could not be written: {error}"))
        })
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

impl Drawing {
    /// Draws a picture, and tells what is different in it.
    fn draw(&self, differences: impl Fn(&Platform, &Platform) -> Vec<Told>) {
        let mut platform = match Platform::of_cluster(self.policy.clone(), self.cluster.image()) {
            Ok(mut platform) => {
                platform.set_address(self.shared.read().address().to_owned());
                platform.forget_old_utilisation(self.shared.now());
                platform
            }
            Err(error) => return tracing::error!(%error, "what the cluster shows cannot be"),
        };
        // Nobody else draws, so what is there now is what will be replaced.
        let told = differences(&self.shared.read(), &platform);
        let before = {
            let mut known = self.shared.platform.write().unwrap_or_else(PoisonError::into_inner);
            platform.set_people(known.people().clone());
            *known = platform;
            self.shared.seq.fetch_add(told.len() as u64, Ordering::AcqRel)
        };
        self.history.note(before, self.shared.now(), told);
    }

    fn sample(&self) {
        let now = self.shared.now();
        self.shared.platform.write().unwrap_or_else(PoisonError::into_inner).forget_old_utilisation(now);
        let samples = samples::of(&self.shared.read(), &[]);
        self.history.sample(self.shared.now(), samples);
    }
}

/// What somebody wants of the cluster, from what happened to the copy of its picture.
fn wish(
    before: &Platform,
    after: &Platform,
    logged: &Logged,
    key: Option<&Key>,
) -> Option<Result<Wish, Problem>> {
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
        Happened::Node { node, draining, .. } => Wish::Node {
            name: node.name.clone(),
            cordoned: node.condition == NodeCondition::Cordoned,
            draining: *draining,
        },
        Happened::NodeLabels { node, labels } => Wish::NodeLabels {
            name: node.name.clone(),
            labels: labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.as_ref().map(|value| value.to_string())))
                .collect(),
        },
        Happened::Submitted { workload, request } => {
            let mut request = request.clone();
            if request.notebook && !request.environment.contains_key(NOTEBOOK_TOKEN) {
                // One that it makes up itself is in its log only, where nobody who is let in would look.
                match new_token() {
                    Ok(token) => drop(request.environment.insert(NOTEBOOK_TOKEN.into(), token)),
                    Err(error) => return Some(Err(Problem::new(Code::Internal, error.to_string()))),
                }
            }
            Wish::Submit {
                name: workload.spec.name.clone(),
                request,
                user: workload.spec.user.clone(),
                key: key.map(RequestKey::of),
            }
        }
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
        Happened::Volume { volume } => {
            Wish::Volume { project: volume.project.clone()?, name: volume.name.clone(), size: volume.size }
        }
        Happened::VolumeRemoved { name, project } => {
            Wish::VolumeGone { project: project.clone()?, name: name.clone() }
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
        Wish::NodeLabels { name, labels } => platform.known_node(name).is_ok_and(|id| {
            platform.engine().nodes().get(&id).is_none_or(|node| {
                labels.iter().all(|(key, value)| {
                    node.labels.get(key.as_str()).map(|known| &**known) == value.as_deref()
                })
            })
        }),
        Wish::Volume { project, name, .. } => platform.has_volume(name, project),
        Wish::VolumeGone { project, name } => !platform.has_volume(name, project),
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
