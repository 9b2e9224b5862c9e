//! Ports of workers, reached through the server.

use super::{shell::Worker, state::AppState};
use crate::{beside::Duplex, platform::Target};
use berth_agent::{Listening, TaskId};
use berth_api::{Code, KindName, Problem};
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

/// A worker that has just started may not listen yet; it is tried again for so long, and this often.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Whose a port is was looked at; for so long it is believed. A page is made of many requests.
const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// Ports that were found to be those of their workers.
#[derive(Debug, Default)]
pub(crate) struct Owned(Mutex<BTreeMap<(TaskId, u16), Instant>>);

impl Owned {
    fn is_believed(&self, task: TaskId, port: u16) -> bool {
        let owned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owned.get(&(task, port)).is_some_and(|seen| seen.elapsed() < BELIEVED_FOR)
    }

    fn is_own(&self, task: TaskId, port: u16) {
        let mut owned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owned.retain(|_, seen| seen.elapsed() < BELIEVED_FOR);
        owned.insert((task, port), Instant::now());
    }
}

/// Whose turn it is among replicas that serve the same.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicUsize);

impl Turns {
    /// The replica that gets the next request; of anything but replicas, whoever runs first.
    pub(super) async fn next(&self, state: &AppState, target: &Target) -> Option<u32> {
        let (ranks, _) = state
            .read(|platform| {
                let record = platform.record(target.workload)?;
                let is_up = |task: &crate::platform::TaskRecord| task.started.is_some() && !task.stopping;
                let up = record.tasks.iter().filter(|(_, task)| is_up(task)).map(|(rank, _)| *rank);
                (record.request.kind == KindName::Inference).then(|| up.collect::<Vec<u32>>())
            })
            .await;
        let ranks = ranks.filter(|ranks| !ranks.is_empty())?;
        Some(ranks[self.0.fetch_add(1, Ordering::Relaxed) % ranks.len()])
    }
}

/// A connection to a port of a worker. It is tried for a while, because programs take a while to listen.
pub(super) async fn dial(state: &AppState, worker: &Worker, port: u16) -> Result<Box<dyn Duplex>, Problem> {
    let full = format!("{}/{}", worker.project, worker.name);
    if let Some(mirror) = &state.mirror {
        let (project, name, rank) = (worker.project.clone(), worker.name.clone(), worker.task.rank);
        return mirror.cluster.connect(project, name, rank, port).await;
    }
    let Some(tasks) = &state.tasks else { return Err(Problem::new(Code::WrongState, "nothing runs here")) };
    let real = worker.ports.iter().find(|(asked, _)| *asked == port).map_or(port, |(_, real)| *real);
    let until = Instant::now() + LISTENS_WITHIN;
    loop {
        let (host, task) = (Arc::clone(&tasks.host), worker.task);
        let listening = match state.owned.is_believed(task, real) {
            true => Ok(Listening::Task),
            false => tokio::task::spawn_blocking(move || host.listening(task, real)).await,
        };
        match listening.unwrap_or(Listening::Nobody) {
            Listening::Task => {
                state.owned.is_own(task, real);
                if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, real)).await {
                    let _ = stream.set_nodelay(true);
                    return Ok(Box::new(stream));
                }
            }
            Listening::Other if Instant::now() > until => {
                let text = format!("port {real} of this machine belongs to somebody else than {full}");
                return Err(Problem::new(Code::WrongState, text).hint(format!(
                    "let the program listen on the port in BERTH_PORT, which is its own; `berth logs {full}` may say more"
                )));
            }
            Listening::Nobody if Instant::now() > until => {
                return Err(nobody_listens(&full, port, worker.task));
            }
            Listening::Other | Listening::Nobody => {}
        }
        if Instant::now() > until {
            return Err(nobody_listens(&full, port, worker.task));
        }
        sleep(TRY_EVERY).await;
    }
}

fn nobody_listens(full: &str, port: u16, task: TaskId) -> Problem {
    let text = format!("nobody listens on port {port} of worker {} of {full}", task.rank);
    Problem::new(Code::WrongState, text)
        .hint(format!("it may still be starting: `berth logs {full}` shows what it says"))
}
