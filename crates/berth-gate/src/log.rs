//! What workloads print, through the API server.

use crate::wish;
use berth_api::{Code, LogQuery, Problem};
use berth_kube::view::{PodView, View};
use futures_util::{AsyncBufRead, AsyncReadExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces that may wait for a slow reader.
const WAITING_MAX: usize = 16;
/// The size of a piece.
const PIECE: usize = 16 << 10;
/// How long a follower waits for the next run before it looks whether somebody still reads.
const LOOK_AROUND: Duration = Duration::from_secs(2);

/// Reads what a worker prints, run after run while somebody follows.
pub(crate) async fn read(
    client: &Client,
    view: &View,
    project: &str,
    name: &str,
    query: LogQuery,
) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
    let namespace = wish::namespace(view, project)?;
    let first = next(view, &namespace, name, &query, None);
    if first.is_none() && !query.follow {
        let text = format!("{project}/{name} has not run yet, or its Pods are gone");
        let hint = format!("`berth why {name} -p {project}` says what it waits for");
        return Err(Problem::new(Code::NotFound, text).hint(hint));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut tail = query.tail.and_then(|lines| i64::try_from(lines).ok());
    let mut opened = None;
    if let (Some(pod), false) = (&first, query.follow) {
        let log = open(&pods, &pod.name, false, tail.take()).await;
        opened = Some(log.map_err(|error| unreadable(project, name, &error))?);
    }
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (view, name) = (view.clone(), name.to_owned());
    tokio::spawn(async move {
        if let Some(log) = opened {
            send(log, &sender).await;
            return;
        }
        let mut last = None;
        while !sender.is_closed() {
            let pod = view.until(LOOK_AROUND, |_| next(&view, &namespace, &name, &query, last)).await;
            let is_there = view.read().workload(&namespace, &name).is_some_and(|(_, workload)| {
                let phase = workload.status.as_ref().and_then(|status| status.phase);
                !phase.is_some_and(berth_kube::api::WorkloadPhase::is_final)
            });
            match pod {
                Some(pod) => match open(&pods, &pod.name, true, tail).await {
                    Ok(log) => {
                        (last, tail) = (Some((pod.run, pod.turn)), None);
                        send(log, &sender).await;
                    }
                    // Its node may be away for a moment; a Pod that went is not seen again.
                    Err(error) => {
                        tracing::debug!(pod = pod.name, %error, "its log cannot be read");
                        if !is_there && !pod.running {
                            last = Some((pod.run, pod.turn));
                        }
                        tokio::time::sleep(LOOK_AROUND).await;
                    }
                },
                None if !is_there => return,
                None => {}
            }
            if last.is_some() && query.run.is_some() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// A log that is there and cannot be had.
fn unreadable(project: &str, name: &str, error: &kube::Error) -> Problem {
    let text = format!("what {project}/{name} printed cannot be read: {error}");
    Problem::new(Code::Unreachable, text).hint("its node may be away for a moment; try again")
}

/// The newest Pod that can have printed something, or the next after a run and a turn.
fn next(
    view: &View,
    namespace: &str,
    name: &str,
    query: &LogQuery,
    after: Option<(u32, u32)>,
) -> Option<PodView> {
    let reading = view.read();
    let (id, _) = reading.workload(namespace, name)?;
    let asked = |pod: &PodView| {
        pod.rank == query.rank.unwrap_or(0)
            && query.run.is_none_or(|run| pod.run == run)
            && after.is_none_or(|after| (pod.run, pod.turn) > after)
            && (pod.running || pod.over)
    };
    let mut pods = reading.pods(id).into_iter();
    match after {
        None => pods.rfind(asked),
        Some(_) => pods.find(asked),
    }
}

async fn open(
    pods: &Api<Pod>,
    pod: &str,
    follow: bool,
    tail_lines: Option<i64>,
) -> Result<impl AsyncBufRead + use<>, kube::Error> {
    pods.log_stream(pod, &LogParams { follow, tail_lines, ..LogParams::default() }).await
}

/// Sends a log as long as somebody reads.
async fn send(log: impl AsyncBufRead, sender: &mpsc::Sender<Vec<u8>>) {
    let mut log = std::pin::pin!(log);
    let mut piece = vec![0; PIECE];
    while let Ok(read) = log.read(&mut piece).await
        && read > 0
        && sender.send(piece[..read].to_vec()).await.is_ok()
    {}
}
