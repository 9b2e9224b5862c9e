//! Shells beside workers, and connections to their ports, over WebSockets.

use super::{
    ApiError, guard,
    sockets::Permit,
    state::{AppState, Query},
    workloads::{Found, find},
};
use crate::{
    auth::Identity,
    beside::{Duplex, Shell, ShellInput, ShellOutput},
    platform::{Platform, Stop},
};
use axum::{
    Extension,
    body::Bytes,
    extract::{
        Path, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use berth_agent::{ShellSpec, TaskId, TerminalSize};
use berth_api::{
    Code, ConnectQuery, Problem, SHELL_MESSAGE_BYTES_MAX, SHELL_PROTOCOL, STREAM_STDERR, STREAM_STDIN,
    STREAM_STDOUT, ShellQuery, ShellRequest, ShellSays, ShellSize, ShellTells, Workload,
};
use berth_types::WorkloadId;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Whoever opens a socket says what it is for within this time.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// What became of the worker is known within this time after its last process is gone.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How long a worker that starts is waited for.
const STARTS_WITHIN: Duration = Duration::from_secs(25);
/// Silence of so many intervals means that the other side is gone; never less than the shortest time, which a busy machine may take.
const SILENT_INTERVALS: u32 = 3;
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// The other side answers the last message within this time.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The last message of a socket holds this much of a reason.
const CLOSE_REASON_BYTES_MAX: usize = 120;
/// Variables that come with a command.
const VARIABLES_MAX: usize = 100;

/// Run a command beside a worker: a WebSocket, whose messages docs/api.md describes
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}/exec", tag = "shells",
    params(("project" = String, Path), ("name" = String, Path), ShellQuery),
    responses((status = 101, description = "a WebSocket"), (status = "4XX", body = Problem)))]
pub(crate) async fn exec(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
    Path((project, name)): Path<(String, String)>,
    Query(query): Query<ShellQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let is_allowed = match &identity {
        // The guard of the route has asked.
        Identity::Person(_) => true,
        Identity::Workload(own) => state.shared.read().find(&project, &name) == Some(*own),
        Identity::Visitor { .. } => false,
    };
    if !is_allowed {
        return Err(ApiError(Problem::new(Code::Forbidden, "a workload may only enter its own workers")));
    }
    open(state, identity, project, name, query, upgrade, What::Command).await
}

/// Join a worker's own terminal: a WebSocket, whose messages docs/api.md describes
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}/attach", tag = "shells",
    params(("project" = String, Path), ("name" = String, Path), ShellQuery),
    responses((status = 101, description = "a WebSocket"), (status = "4XX", body = Problem)))]
pub(crate) async fn attach(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
    Path((project, name)): Path<(String, String)>,
    Query(query): Query<ShellQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    open(state, identity, project, name, query, upgrade, What::Terminal).await
}

/// Connect to a port of a worker: a WebSocket of bytes, where an empty message is the end of one direction
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}/connect", tag = "shells",
    params(("project" = String, Path), ("name" = String, Path), ConnectQuery),
    responses((status = 101, description = "a WebSocket"), (status = "4XX", body = Problem)))]
pub(crate) async fn connect(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
    Path((project, name)): Path<(String, String)>,
    Query(query): Query<ConnectQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(no_socket)?;
    if query.port == 0 {
        return Err(ApiError(Problem::invalid("port", "a port is a number from 1 to 65535")));
    }
    let worker = worker(&state, &project, &name, query.rank).await?;
    let permit = state.sockets.enter()?;
    let stream = super::ports::dial(&state, &worker, query.port).await?;
    let carried = move |socket| carry_port(state, identity, worker, socket, stream, permit);
    Ok(upgrade.max_message_size(SHELL_MESSAGE_BYTES_MAX).on_upgrade(carried))
}

/// What is opened beside a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Command,
    Terminal,
}

/// A worker that runs.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) project: String,
    pub(super) name: String,
    pub(super) task: TaskId,
    /// Ports that were asked for, and those it really has.
    pub(super) ports: Vec<(u16, u16)>,
}

async fn open(
    state: AppState,
    identity: Identity,
    project: String,
    name: String,
    query: ShellQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    what: What,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(no_socket)?;
    let worker = worker(&state, &project, &name, Some(query.rank.unwrap_or(0))).await?;
    let permit = state.sockets.enter()?;
    let session = move |socket| async move {
        Session { state, identity, worker, what, socket, heard: Instant::now() }.run().await;
        drop(permit);
    };
    let upgrade = upgrade.protocols([SHELL_PROTOCOL]).max_message_size(SHELL_MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(session))
}

fn no_socket(rejection: WebSocketUpgradeRejection) -> Problem {
    Problem::new(Code::Malformed, format!("a WebSocket is opened here: {}", rejection.body_text()))
        .hint("docs/api.md describes its messages; `berth bash` and `berth exec` speak them")
}

/// The worker that is meant, if it runs; without a rank, the first that does.
pub(super) async fn worker(
    state: &AppState,
    project: &str,
    name: &str,
    rank: Option<u32>,
) -> Result<Worker, Problem> {
    let found = find(state, project, name).await.map_err(|error| error.0)?;
    let full = format!("{project}/{name}");
    let id = match found {
        Found::Unfinished(id) => id,
        Found::Finished(finished) => {
            let problem = Problem::new(Code::WrongState, format!("{full} is over: it is {}", finished.phase));
            return Err(problem.hint(format!("what it printed is kept: `berth logs {full}`")));
        }
    };
    let mut bell = state.feed.bell();
    let until = tokio::time::Instant::now() + STARTS_WITHIN;
    loop {
        bell.mark_unchanged();
        let found = |platform: &Platform| (running(platform, id, rank), is_awaited(platform, id, rank));
        let ((worker, is_awaited), _) = state.read(found).await;
        if is_awaited && tokio::time::timeout_at(until, bell.changed()).await.is_ok_and(|rung| rung.is_ok()) {
            continue;
        }
        return worker.map(|(task, ports)| Worker {
            project: project.into(),
            name: name.into(),
            task,
            ports,
        });
    }
}

/// Whether a worker is about to run: those of a gang do not start in one moment, and the first calls the others before anybody has
/// heard of its own start.
fn is_awaited(platform: &Platform, id: WorkloadId, rank: Option<u32>) -> bool {
    let (Some(record), Some(rank)) = (platform.record(id), rank) else { return false };
    record.tasks.get(&rank).is_some_and(|task| task.started.is_none() && !task.stopping)
}

fn running(
    platform: &Platform,
    id: WorkloadId,
    rank: Option<u32>,
) -> Result<(TaskId, Vec<(u16, u16)>), Problem> {
    let full = platform.full_name(id);
    let over = || Problem::new(Code::WrongState, format!("{full} is over"));
    let record = platform.record(id).ok_or_else(over)?;
    let view = platform.workload_view(id, false).ok_or_else(over)?;
    let runs = |task: &crate::platform::TaskRecord| task.started.is_some() && !task.stopping;
    let found = match rank {
        Some(rank) => record.tasks.get(&rank).filter(|task| runs(task)).map(|task| (rank, task)),
        None => record.tasks.iter().find(|(_, task)| runs(task)).map(|(rank, task)| (*rank, task)),
    };
    if let Some((rank, task)) = found {
        return Ok((TaskId { workload: id, run: task.run, rank }, task.ports.clone()));
    }
    let is_up = record.tasks.values().any(runs);
    if let (Some(rank), true) = (rank, is_up) {
        let text = format!("{full} has no worker {rank} that runs");
        return Err(
            Problem::new(Code::WrongState, text).hint(format!("`berth get {full}` lists its workers"))
        );
    }
    let problem = Problem::new(Code::WrongState, format!("{full} does not run: it is {}", view.status));
    Err(match view.status.is_final() {
        true => problem,
        false => problem.hint(format!(
            "`berth why {full}` says what it waits for, `berth wait {full} --for running` waits with it"
        )),
    })
}

/// One socket, from its first message to its last.
struct Session {
    state: AppState,
    /// Who opened it.
    identity: Identity,
    worker: Worker,
    what: What,
    socket: WebSocket,
    /// When the other side last said something.
    heard: Instant,
}

impl Session {
    async fn run(mut self) {
        let Ok(Some(request)) = tokio::time::timeout(FIRST_WORDS, self.first_words()).await else {
            let detail = "the first message says what to run: {\"type\":\"start\"}".to_owned();
            return self.close(&ShellTells::Refused { detail }).await;
        };
        match begin(&self.state, &self.worker, self.what, request).await {
            Err(detail) => self.close(&ShellTells::Refused { detail }).await,
            Ok(shell) => {
                let ping_every_ms = self.state.ping_every.as_millis() as u64;
                if self.tell(&ShellTells::Started { terminal: shell.terminal, ping_every_ms }).await {
                    self.converse(shell).await;
                }
            }
        }
    }

    async fn first_words(&mut self) -> Option<ShellRequest> {
        loop {
            match self.socket.recv().await?.ok()? {
                Message::Text(text) => match serde_json::from_str(text.as_str()).ok()? {
                    ShellSays::Start(request) => return Some(request),
                    _ => return None,
                },
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Close(_) => return None,
            }
        }
    }

    /// Carries what is said both ways, until either side ends.
    async fn converse(mut self, mut shell: Shell) {
        let mut ping = tokio::time::interval(self.state.ping_every);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let silence_max = (self.state.ping_every * SILENT_INTERVALS).max(SILENCE_MIN);
        let mut bell = self.state.feed.bell();
        let mut warned = false;
        let (state, identity, worker) = (self.state.clone(), self.identity.clone(), self.worker.clone());
        let shut_out = guard::shut_out(&state, &identity, &worker.project, worker.task.workload);
        tokio::pin!(shut_out);
        // What it does not take yet. Until it does, nothing more is read from who types, and everything else goes on.
        let mut untaken = None;
        loop {
            tokio::select! {
                message = self.socket.recv(), if untaken.is_none() => {
                    self.heard = Instant::now();
                    match heard(message) {
                        Heard::Input(input) => untaken = Some(input),
                        Heard::Nothing => {}
                        Heard::Gone => return,
                    }
                }
                place = shell.input.reserve(), if untaken.is_some() => {
                    self.heard = Instant::now();
                    // What has ended takes nothing more, and its last words are still to come.
                    if let (Ok(place), Some(input)) = (place, untaken.take()) {
                        place.send(input);
                    }
                }
                said = shell.output.recv() => {
                    let goes_on = match said {
                        None => false,
                        Some(ShellOutput::Printed(bytes)) => self.print(STREAM_STDOUT, bytes).await,
                        Some(ShellOutput::Errors(bytes)) => self.print(STREAM_STDERR, bytes).await,
                        Some(ShellOutput::Ended { code, signal, with_worker: true }) => {
                            let detail = why_it_ended(&self.state, &self.worker).await;
                            if self.what == What::Command {
                                return self.close(&ShellTells::Ended { detail }).await;
                            }
                            // Who joined a worker is told its own end.
                            if self.tell(&ShellTells::Notice { detail }).await {
                                self.close(&ShellTells::Exit { code, signal }).await;
                            }
                            return;
                        }
                        Some(ShellOutput::Ended { code, signal, .. }) => {
                            return self.close(&ShellTells::Exit { code, signal }).await;
                        }
                        Some(ShellOutput::Failed(detail)) => {
                            return self.close(&ShellTells::Ended { detail }).await;
                        }
                    };
                    if !goes_on {
                        return;
                    }
                }
                _ = ping.tick() => {
                    let is_silent = untaken.is_none() && self.heard.elapsed() > silence_max;
                    if is_silent
                        || self.socket.send(Message::Ping(Bytes::new())).await.is_err()
                    {
                        return;
                    }
                }
                rung = bell.changed(), if !warned => match rung {
                    Ok(()) => if let Some(detail) = self.stopping() {
                        warned = true;
                        if !self.tell(&ShellTells::Notice { detail }).await {
                            return;
                        }
                    },
                    Err(_) => warned = true,
                },
                why = &mut shut_out => {
                    let full = format!("{}/{}", self.worker.project, self.worker.name);
                    let detail = format!("{why}; this shell ends with that, and {full} goes on");
                    return self.close(&ShellTells::Ended { detail }).await;
                }
                () = self.state.feed.closed() => {
                    let full = format!("{}/{}", self.worker.project, self.worker.name);
                    let detail = format!("the server is stopping; {full} goes on, `berth bash {full}` enters it again");
                    return self.close(&ShellTells::Ended { detail }).await;
                }
            }
        }
    }

    async fn print(&mut self, stream: u8, bytes: Vec<u8>) -> bool {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(stream);
        message.extend_from_slice(&bytes);
        self.socket.send(Message::Binary(message.into())).await.is_ok()
    }

    async fn tell(&mut self, what: &ShellTells) -> bool {
        let text = serde_json::to_string(what).expect("what is told is JSON");
        self.socket.send(Message::Text(text.into())).await.is_ok()
    }

    async fn close(mut self, last: &ShellTells) {
        if self.tell(last).await {
            part(self.socket, None).await;
        }
    }

    /// A sentence, once the worker was told to stop.
    fn stopping(&self) -> Option<String> {
        let platform = self.state.shared.read();
        let record = platform.record(self.worker.task.workload)?;
        let task = record.tasks.get(&self.worker.task.rank)?;
        let is_meant = task.run == self.worker.task.run && task.stopping;
        is_meant.then(|| {
            let why = reason(record.stop, record.message.as_deref());
            let full = platform.full_name(record.id);
            format!("{full} was told to stop ({why}); this shell ends with it")
        })
    }
}

/// Starts what is asked for. The text says why not.
async fn begin(
    state: &AppState,
    worker: &Worker,
    what: What,
    request: ShellRequest,
) -> Result<Shell, String> {
    check(&request)?;
    if let Some(mirror) = &state.mirror {
        let (project, name, rank) = (worker.project.clone(), worker.name.clone(), worker.task.rank);
        let begun = match what {
            What::Command => mirror.cluster.exec(project, name, rank, request).await,
            What::Terminal => mirror.cluster.attach(project, name, rank, request.terminal).await,
        };
        return begun.map_err(|problem| problem.detail);
    }
    let Some(tasks) = &state.tasks else { return Err("nothing runs here".into()) };
    let (host, task) = (Arc::clone(&tasks.host), worker.task);
    let size = request.terminal.map(|ShellSize { columns, rows }| TerminalSize { columns, rows });
    // The agent waits for the task's shim.
    let begun = tokio::task::spawn_blocking(move || match what {
        What::Command => {
            let ShellRequest { command, environment, .. } = request;
            host.shell(task, ShellSpec { command, environment, terminal: size })
        }
        What::Terminal => host.attach(task, size),
    });
    let begun = begun.await.map_err(|_| "the agent failed".to_owned())?;
    let begun = begun.map_err(|error| error.to_string())?;
    Shell::of_agent(begun).map_err(|error| format!("its streams cannot be used: {error}"))
}

/// What became of the worker, as soon as that is known.
async fn why_it_ended(state: &AppState, worker: &Worker) -> String {
    let TaskId { workload, run, rank } = worker.task;
    let full = format!("{}/{}", worker.project, worker.name);
    let mut bell = state.feed.bell();
    let known = async {
        loop {
            bell.mark_unchanged();
            let (is_known, why) = {
                let platform = state.shared.read();
                let record = platform.record(workload);
                let task = record.and_then(|record| record.tasks.get(&rank));
                let why = record.map(|record| reason(record.stop, record.message.as_deref()));
                // Of a cluster the end of a worker may be seen before anybody has said what becomes of its workload.
                let is_silent = state.mirror.is_some()
                    && record.is_some_and(|record| record.stop.is_none() && record.message.is_none());
                (task.is_none_or(|task| task.run != run) && !is_silent, why)
            };
            if is_known || bell.changed().await.is_err() {
                return why;
            }
        }
    };
    match tokio::time::timeout(KNOWN_WITHIN, known).await {
        Ok(Some(why)) => format!("{full} ended here: {why}"),
        Ok(None) => match find(state, &worker.project, &worker.name).await {
            Ok(Found::Finished(finished)) if finished.id == workload => {
                let message = finished.document.read::<Workload>().ok().and_then(|over| over.message);
                match message {
                    Some(message) => format!("{full} is over: it is {}; {message}", finished.phase),
                    None => format!("{full} is over: it is {}", finished.phase),
                }
            }
            _ => format!("{full} is over"),
        },
        Err(_) => format!("{full} ended"),
    }
}

fn reason(stop: Option<Stop>, message: Option<&str>) -> String {
    match (stop, message) {
        (Some(Stop::Deleted), _) => "deleted".into(),
        (Some(Stop::Suspended), _) => "suspended".into(),
        (Some(Stop::TimeLimit), _) => "its time is over".into(),
        (Some(Stop::Idle), _) => "its GPUs were idle".into(),
        (Some(Stop::Drained), _) => "its node is emptied".into(),
        (None, Some(message)) => message.into(),
        (None, None) => "it exited".into(),
    }
}

fn check(request: &ShellRequest) -> Result<(), String> {
    let words = request.command.iter().chain(request.environment.values()).chain(request.environment.keys());
    if words.clone().any(|word| word.contains('\0')) {
        return Err("a word of the command holds a zero byte".into());
    }
    if request.environment.len() > VARIABLES_MAX {
        return Err(format!("a command has at most {VARIABLES_MAX} variables of its own"));
    }
    match request.environment.keys().find(|name| name.is_empty() || name.contains('=')) {
        Some(name) => Err(format!("{} is no name of a variable", crate::names::shown(name))),
        None => Ok(()),
    }
}

/// What came from the client.
enum Heard {
    Input(ShellInput),
    Nothing,
    Gone,
}

fn heard(message: Option<Result<Message, axum::Error>>) -> Heard {
    match message {
        Some(Ok(Message::Binary(bytes))) => match bytes.split_first() {
            Some((&STREAM_STDIN, typed)) if !typed.is_empty() => {
                Heard::Input(ShellInput::Typed(typed.to_vec()))
            }
            _ => Heard::Nothing,
        },
        Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
            Ok(ShellSays::Resize(size)) => Heard::Input(ShellInput::Resize(size)),
            Ok(ShellSays::CloseStdin) => Heard::Input(ShellInput::Close),
            Ok(ShellSays::Start(_)) | Err(_) => Heard::Nothing,
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Heard::Nothing,
        Some(Ok(Message::Close(_)) | Err(_)) | None => Heard::Gone,
    }
}

/// Closes a socket when the other side has heard everything. To close it at once, with an answer to a ping still unread, would
/// take from the other side what it has not read yet.
async fn part(mut socket: WebSocket, close: Option<CloseFrame>) {
    if socket.send(Message::Close(close)).await.is_ok() {
        let heard = async { while let Some(Ok(_)) = socket.recv().await {} };
        let _ = tokio::time::timeout(LAST_WORDS, heard).await;
    }
}

/// As much of a reason as the last message of a socket holds.
fn close_reason(why: &str) -> String {
    let mut end = why.len().min(CLOSE_REASON_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why[..end].to_owned()
}

/// Carries bytes between a socket and a port until both directions have ended, or one side is gone.
async fn carry_port(
    state: AppState,
    identity: Identity,
    worker: Worker,
    mut socket: WebSocket,
    stream: Box<dyn Duplex>,
    permit: Permit,
) {
    let shut_out = guard::shut_out(&state, &identity, &worker.project, worker.task.workload);
    tokio::pin!(shut_out);
    let (mut from, mut to) = tokio::io::split(stream);
    let mut ping = tokio::time::interval(state.ping_every);
    let silence_max = (state.ping_every * SILENT_INTERVALS).max(SILENCE_MIN);
    let (mut sends, mut takes, mut heard) = (true, true, Instant::now());
    let mut buffer = vec![0; 32 << 10];
    while sends || takes {
        tokio::select! {
            message = socket.recv() => {
                heard = Instant::now();
                match message {
                    Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => {
                        takes = false;
                        let _ = to.shutdown().await;
                    }
                    Some(Ok(Message::Binary(bytes))) if to.write_all(&bytes).await.is_ok() => {}
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_))) => {}
                    _ => break,
                }
            }
            count = from.read(&mut buffer), if sends => {
                let count = count.unwrap_or(0);
                sends = count > 0;
                let message = Message::Binary(Bytes::copy_from_slice(&buffer[..count]));
                if socket.send(message).await.is_err() {
                    break;
                }
            }
            _ = ping.tick() => {
                if heard.elapsed() > silence_max || socket.send(Message::Ping(Bytes::new())).await.is_err() {
                    break;
                }
            }
            why = &mut shut_out => {
                let close = CloseFrame { code: 1008, reason: close_reason(&why).into() };
                part(socket, Some(close)).await;
                return drop(permit);
            }
            () = state.feed.closed() => {
                let close = CloseFrame { code: 1001, reason: "the server is stopping".into() };
                part(socket, Some(close)).await;
                return drop(permit);
            }
        }
    }
    part(socket, None).await;
    drop(permit);
}
