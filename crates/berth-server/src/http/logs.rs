//! What workloads print.

use super::{
    ApiError,
    guard::{LOOK_EVERY, still_known},
    state::{AppState, Caller, Query},
    workloads::{Found, find},
};
use crate::{
    feed::Durable,
    platform::{Act, Person, Place},
};
use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use berth_agent::{LogReader, LogStart, TaskId};
use berth_api::{Code, LogQuery, Problem, Workload};
use berth_store::FinishedWorkload;
use berth_types::WorkloadId;
use std::{io, time::Duration};
use tokio::sync::{
    mpsc::{self, Sender},
    watch::Receiver,
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};

/// Parts that may wait for a slow reader.
const WAITING_MAX: usize = 16;
/// How long a follower sleeps at most before it asks whether anybody still reads.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// Read what a workload printed; with `follow`, go on through its runs until it is over
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}/logs", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path), LogQuery),
    responses((status = 200, content_type = "text/plain", body = String), (status = "4XX", body = Problem)))]
pub(crate) async fn read(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path((project, name)): Path<(String, String)>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let (id, ended) = match find(&state, &project, &name).await? {
        Found::Unfinished(id) => (id, None),
        Found::Finished(finished) => (finished.id, Some(finished)),
    };
    if let Some(mirror) = &state.mirror {
        if query.index.is_some() {
            let problem = Problem::invalid("index", "logs by index are for workloads of one machine");
            return Err(ApiError(problem.hint("name the worker with --rank")));
        }
        let pieces = mirror.cluster.log(project.clone(), name, query).await?;
        let pieces = ReceiverStream::new(pieces).map(Bytes::from);
        return Ok(answer(state, person, project, pieces));
    }
    let query = match query.index {
        Some(index) => of_index(&state, (id, ended.as_deref()), index, query, &format!("{project}/{name}"))?,
        None => query,
    };
    let is_over = ended.is_some();
    let newest = newest(&state, id, &query);
    if newest.is_none() && (!query.follow || is_over) {
        let text = match (query.run, is_over) {
            (Some(run), _) => format!("run {run} of {project}/{name} has no log, or it is not kept any more"),
            (None, true) => format!("the log of {project}/{name} is not kept any more, or it never ran"),
            (None, false) => format!("{project}/{name} has not run yet"),
        };
        // Whatever kept it from running is what they want to know.
        let ended = ended.and_then(|ended| ended.document.read::<Workload>().ok());
        let hint = match ended {
            None if is_over => format!("`berth get {name} -p {project}` shows what is known of it"),
            None => format!("`berth why {name} -p {project}` says what it waits for"),
            Some(Workload { status, message, .. }) => match message {
                Some(message) => format!("it is {status}: {message}"),
                None => format!("it is {status}"),
            },
        };
        return Err(ApiError(Problem::new(Code::NotFound, text).hint(hint)));
    }
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let follow = query.follow && !is_over;
    let reader = state.clone();
    tokio::task::spawn_blocking(move || send(&reader, id, &query, follow, &sender));
    Ok(answer(state, person, project, ReceiverStream::new(receiver)))
}

/// The run and worker that had an index of a sweep last.
fn of_index(
    state: &AppState,
    (id, ended): (WorkloadId, Option<&FinishedWorkload>),
    index: u32,
    query: LogQuery,
    name: &str,
) -> Result<LogQuery, Problem> {
    if query.rank.is_some() || query.run.is_some() {
        return Err(Problem::invalid("index", "an index has one worker and one run: leave out rank and run"));
    }
    let (completions, had) = match ended {
        Some(ended) => {
            let workload: Workload =
                ended.document.read().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
            let row = workload.indices.iter().find(|row| row.index == index);
            (workload.request.completions, row.and_then(|row| row.worker.zip(row.run)))
        }
        None => {
            let platform = state.shared.read();
            let record = platform.record(id);
            let row = record.and_then(|record| record.indices.get(&index));
            (record.and_then(|record| record.request.completions), row.map(|row| (row.rank, row.run)))
        }
    };
    match (completions, had) {
        (None, _) => Err(Problem::invalid("index", format!("{name} is no sweep: it has no indices"))
            .hint("submit one with --completions")),
        (Some(all), _) if index >= all => {
            let text = format!("{name} has the indices 0 to {}, not {index}", all.saturating_sub(1));
            Err(Problem::invalid("index", text))
        }
        (Some(_), None) => {
            Err(Problem::new(Code::NotFound, format!("index {index} of {name} has not run yet"))
                .hint("`berth get` shows the status of each index"))
        }
        (Some(_), Some((rank, run))) => {
            Ok(LogQuery { rank: Some(rank), run: Some(run), index: None, ..query })
        }
    }
}

/// Gives what is printed for as long as whoever reads it may. What is cut off ends as broken, so that nobody takes it for whole.
fn answer(
    state: AppState,
    person: Person,
    project: String,
    mut pieces: impl Stream<Item = Bytes> + Send + Unpin + 'static,
) -> Response {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let piece = tokio::select! {
                piece = pieces.next() => piece,
                () = sender.closed() => return,
                _ = look.tick() => {
                    let see = |()| state.shared.read().may(&person, Act::See, Place::Project(&project));
                    match still_known(&state, &person).and_then(see) {
                        Ok(()) => continue,
                        Err(problem) => {
                            let _ = sender.send(Err(io::Error::other(problem.detail))).await;
                            return;
                        }
                    }
                }
            };
            let Some(piece) = piece else { return };
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// The newest task with a log that is asked for.
fn newest(state: &AppState, id: WorkloadId, query: &LogQuery) -> Option<TaskId> {
    let rank = query.rank.unwrap_or(0);
    let tasks = state.tasks.as_ref()?.host.logged_tasks(id).into_iter();
    tasks
        .filter(|task| task.rank == rank && query.run.is_none_or(|run| task.run == run))
        .max_by_key(|task| task.run)
}

/// Sends one run after the other until the workload is over or nobody reads.
fn send(state: &AppState, id: WorkloadId, query: &LogQuery, follow: bool, sender: &Sender<Bytes>) {
    let mut start = query.tail.map_or(LogStart::Offset(0), |lines| LogStart::Lines(lines as u64));
    let mut sent = None;
    let mut bell = state.feed.bell();
    loop {
        // Before anything is looked at: what happens from now on is waited for, however soon it comes.
        bell.mark_unchanged();
        // Asked before looking for a newer run: what is over has no more runs.
        let is_over = state.shared.read().record(id).is_none();
        match newest(state, id, query).filter(|task| sent != Some(*task)) {
            Some(task) => {
                let Some(tasks) = &state.tasks else { return };
                let log = match tasks.host.log(task, start) {
                    Ok(log) => log,
                    Err(error) => {
                        tracing::warn!(%error, "a log cannot be read");
                        return;
                    }
                };
                if !send_run(state, log, follow, sender) {
                    return;
                }
                sent = Some(task);
                start = LogStart::Offset(0);
            }
            None if is_over => return,
            None => wait(state, &mut bell, sender),
        }
        if sender.is_closed() || state.feed.is_closing() || !follow || (query.run.is_some() && sent.is_some())
        {
            return;
        }
    }
}

/// Sends the log of one task; whether somebody still reads.
fn send_run(state: &AppState, mut log: LogReader, follow: bool, sender: &Sender<Bytes>) -> bool {
    loop {
        let is_ended = log.is_ended();
        while let Ok(Some(chunk)) = log.read() {
            if sender.blocking_send(chunk.bytes.into()).is_err() {
                return false;
            }
        }
        if is_ended || !follow || sender.is_closed() || state.feed.is_closing() {
            return !sender.is_closed();
        }
        if log.wait(LOOK_AROUND).is_err() {
            return false;
        }
    }
}

/// Waits until something happened.
fn wait(state: &AppState, bell: &mut Receiver<Durable>, sender: &Sender<Bytes>) {
    tokio::runtime::Handle::current().block_on(async {
        tokio::select! {
            _ = bell.changed() => {}
            () = sender.closed() => {}
            () = state.feed.closed() => {}
        }
    });
}
