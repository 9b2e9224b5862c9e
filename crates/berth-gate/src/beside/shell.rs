//! Commands in the Pods of workers, and the workers' own terminals.

use super::{
    Worker,
    socket::{Receiver, Sender},
};
use berth_api::{Code, Problem, ShellRequest, ShellSize};
use berth_server::{Shell, ShellInput, ShellOutput};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::LogParams,
    core::{Status, response::StatusSummary},
};
use serde_json::json;
use std::{pin::pin, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval, timeout},
};

/// The way of speaking in which the end of what is typed can be said.
const PROTOCOL: &str = "v5.channel.k8s.io";
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// What a terminal takes for the end of what is typed.
const END_OF_TYPING: &[u8] = b"\x04";

/// Messages that may wait for a slow reader.
const WAITING_MAX: usize = 16;
/// Nobody says that a command was started, only that it was not; that is said within this time.
const REFUSED_WITHIN: Duration = Duration::from_millis(500);
/// What became of the Pod is known within this time after its last process is gone.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// The longest that the end of an abandoned command takes. One that did not succeed is tried again after a while, so often.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(20);
const HANG_UP_EVERY: Duration = Duration::from_secs(1);
const HANG_UP_TRIES: usize = 10;
/// What a runtime says of an image without the program.
const NO_PROGRAM: &str = "executable file not found";
/// Of what a worker printed before it was joined, so much is shown.
const RECENT_LINES: i64 = 50;
const RECENT_BYTES: i64 = 16 << 10;

/// The name of the variable by which a command and what it started are found again.
const MARK: &str = "BERTH_SHELL";
/// The best shell there is.
const USUAL_SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";
/// Runtimes leave a command alone whose terminal is gone, so it is told as a terminal would tell it, and ended if it does not
/// care.
const HANG_UP: &str = "tell() {
    for environ in /proc/[0-9]*/environ; do
        if grep -qs \"$MARKED\" $environ; then
            pid=${environ#/proc/}
            kill -s $1 ${pid%/environ} 2>/dev/null && told=1
        fi
    done
}
tell HUP
tell CONT
while [ -n \"$told\" ] && [ ${waited:-0} -lt 5 ]; do
    sleep 1
    waited=$((${waited:-0} + 1)) told=
    tell 0
done
tell KILL";

/// Commands that run beside workers, counted: one that is abandoned must be told before this process may end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commands(watch::Sender<usize>);

/// One of them.
struct Counted(Commands);

impl Commands {
    fn count(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// Waits until there is none left to be told.
    pub(crate) async fn are_told(&self, limit: Duration) {
        let _ = timeout(limit, self.0.subscribe().wait_for(|count| *count == 0)).await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// By itself, or by a signal, which is 128 more.
    Exited(i32),
    /// It was never run, or nobody knows.
    Failed(String),
    /// The line was cut.
    Lost,
}

/// Something that was opened in a Pod.
struct Opened {
    sender: Sender,
    receiver: Receiver,
    /// What was heard while it was waited for a refusal.
    first: Option<(u8, Bytes)>,
}

/// Runs a command beside a worker.
pub(crate) async fn exec(worker: Worker, request: ShellRequest) -> Result<Shell, Problem> {
    let mark = mark()?;
    let command = match request.command.is_empty() {
        true => ["sh", "-c", USUAL_SHELL].map(str::to_owned).into(),
        false => request.command,
    };
    let variables = request.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let with_mark: Vec<String> = ["env".to_owned(), format!("{MARK}={mark}")]
        .into_iter()
        .chain(variables)
        .chain(command.iter().cloned())
        .collect();
    let opened = match open_exec(&worker, &with_mark, request.terminal).await {
        // An image may hold one program and nothing else. It runs without what it cannot be told.
        Err(problem) if problem.detail.contains("\"env\": executable file not found") => {
            open_exec(&worker, &command, request.terminal).await.map_err(|problem| {
                match problem.detail.contains(NO_PROGRAM) {
                    true => no_program(&worker, &command),
                    false => problem,
                }
            })?
        }
        opened => opened?,
    };
    let (ours, shell) = channels(request.terminal.is_some());
    let counted = worker.commands.count();
    tokio::spawn(async move {
        let (worker, terminal) = (worker, request.terminal.is_some());
        match converse(opened, ours.said, &ours.told, terminal, worker.ping_every).await {
            Some(Outcome::Lost) => {
                let end = end_of_command(&worker, Outcome::Lost).await;
                let is_left = !matches!(end, ShellOutput::Ended { .. });
                let _ = ours.told.send(end).await;
                // Nobody finds the way back to it.
                if is_left {
                    hang_up(&worker, &mark, counted).await;
                }
            }
            Some(outcome) => drop(ours.told.send(end_of_command(&worker, outcome).await).await),
            None => hang_up(&worker, &mark, counted).await,
        }
    });
    Ok(shell)
}

/// Joins a worker's own terminal.
pub(crate) async fn attach(worker: Worker, size: Option<ShellSize>) -> Result<Shell, Problem> {
    let terminal = worker.has_terminal;
    let flag = |is: bool| if is { "true" } else { "false" };
    let query = [
        ("container", worker.container.as_str()),
        ("stdin", flag(worker.takes_input)),
        ("stdout", "true"),
        ("stderr", flag(!terminal)),
        ("tty", flag(terminal)),
    ];
    let (mut sender, receiver) = worker.open("attach", &query, PROTOCOL).await?;
    if let Some(size) = size.filter(|_| terminal) {
        // Whatever draws its own screen draws it again when the size changes.
        let larger = ShellSize { rows: size.rows.saturating_add(1), ..size };
        resize(&mut sender, larger).await;
        resize(&mut sender, size).await;
    }
    let opened = unless_refused(&worker, sender, receiver).await?;
    let recent = recent(&worker).await;
    let (ours, shell) = channels(terminal);
    tokio::spawn(async move {
        if !recent.is_empty() && ours.told.send(ShellOutput::Printed(recent)).await.is_err() {
            return;
        }
        if let Some(outcome) = converse(opened, ours.said, &ours.told, terminal, worker.ping_every).await {
            let _ = ours.told.send(end_of_worker(&worker, outcome).await).await;
        }
    });
    Ok(shell)
}

/// Our sides of the channels to whoever sits there.
struct Ours {
    said: mpsc::Receiver<ShellInput>,
    told: mpsc::Sender<ShellOutput>,
}

fn channels(terminal: bool) -> (Ours, Shell) {
    let (input, said) = mpsc::channel(WAITING_MAX);
    let (told, output) = mpsc::channel(WAITING_MAX);
    (Ours { said, told }, Shell { input, output, terminal })
}

/// Opens a command in the worker's container.
async fn open_exec(
    worker: &Worker,
    command: &[String],
    terminal: Option<ShellSize>,
) -> Result<Opened, Problem> {
    let mut query = vec![("container", worker.container.as_str()), ("stdin", "true"), ("stdout", "true")];
    query.push(if terminal.is_some() { ("tty", "true") } else { ("stderr", "true") });
    query.extend(command.iter().map(|word| ("command", word.as_str())));
    let (mut sender, receiver) = worker.open("exec", &query, PROTOCOL).await?;
    if let Some(size) = terminal {
        resize(&mut sender, size).await;
    }
    unless_refused(worker, sender, receiver).await
}

/// Waits whether what was opened is refused behind the API server.
async fn unless_refused(worker: &Worker, sender: Sender, mut receiver: Receiver) -> Result<Opened, Problem> {
    let first = timeout(REFUSED_WITHIN, async {
        loop {
            match receiver.next().await {
                // The API server says nothing on a channel to say that it is there.
                Some((_, bytes)) if bytes.is_empty() => {}
                heard => return heard,
            }
        }
    });
    let first = match first.await {
        Err(_) => None,
        Ok(None) => return Err(worker.refused("the line was cut before it began")),
        Ok(Some((STATUS, status))) => match outcome(&status) {
            Outcome::Failed(why) => return Err(worker.refused(&why)),
            _ => Some((STATUS, status)),
        },
        Ok(heard) => heard,
    };
    Ok(Opened { sender, receiver, first })
}

/// Carries what is said both ways, until the command has ended; nothing when nobody listens any more.
async fn converse(
    opened: Opened,
    said: mpsc::Receiver<ShellInput>,
    told: &mpsc::Sender<ShellOutput>,
    terminal: bool,
    ping_every: Duration,
) -> Option<Outcome> {
    let Opened { sender, receiver, first } = opened;
    let mut typing = pin!(hand_on(said, sender, terminal, ping_every));
    let mut printing = pin!(show(receiver, first, told));
    let mut takes = true;
    loop {
        tokio::select! {
            outcome = &mut printing => return outcome,
            () = &mut typing, if takes => takes = false,
            () = told.closed() => return None,
        }
    }
}

/// Hands on what is typed, and shows now and then that we are here.
async fn hand_on(
    mut said: mpsc::Receiver<ShellInput>,
    mut sender: Sender,
    terminal: bool,
    ping_every: Duration,
) {
    let mut ping = interval(ping_every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let goes_on = tokio::select! {
            input = said.recv() => match input {
                None => false,
                Some(ShellInput::Typed(bytes)) => sender.send(STDIN, &bytes).await,
                Some(ShellInput::Resize(size)) => resize(&mut sender, size).await,
                // A runtime that hears the end of what is typed at a terminal shows nothing more of it.
                Some(ShellInput::Close) if terminal => sender.send(STDIN, END_OF_TYPING).await,
                Some(ShellInput::Close) => sender.end(STDIN).await,
            },
            _ = ping.tick() => sender.ping().await,
        };
        if !goes_on {
            return;
        }
    }
}

/// Shows what is printed until the end; nothing when nobody looks any more.
async fn show(
    mut receiver: Receiver,
    mut first: Option<(u8, Bytes)>,
    told: &mpsc::Sender<ShellOutput>,
) -> Option<Outcome> {
    loop {
        let heard = match first.take() {
            Some(first) => Some(first),
            None => receiver.next().await,
        };
        let output = match heard {
            None => return Some(Outcome::Lost),
            Some((STATUS, status)) if !status.is_empty() => return Some(outcome(&status)),
            Some((STDOUT, bytes)) if !bytes.is_empty() => ShellOutput::Printed(bytes.to_vec()),
            Some((STDERR, bytes)) if !bytes.is_empty() => ShellOutput::Errors(bytes.to_vec()),
            Some(_) => continue,
        };
        told.send(output).await.ok()?;
    }
}

async fn resize(sender: &mut Sender, ShellSize { columns, rows }: ShellSize) -> bool {
    sender.send(RESIZE, json!({ "Width": columns, "Height": rows }).to_string().as_bytes()).await
}

/// What the last message says.
fn outcome(status: &[u8]) -> Outcome {
    let Ok(status) = serde_json::from_slice::<Status>(status) else {
        return Outcome::Failed(String::from_utf8_lossy(status).trim().to_owned());
    };
    if status.status == Some(StatusSummary::Success) {
        return Outcome::Exited(0);
    }
    let causes = status.details.into_iter().flat_map(|details| details.causes);
    let code = causes.filter(|cause| cause.reason == "ExitCode").find_map(|cause| cause.message.parse().ok());
    code.map_or(Outcome::Failed(status.message), Outcome::Exited)
}

/// Whether something may have ended because everything in its Pod was ended: by a kill, or without a word.
fn may_end_with_worker(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Exited(code) if *code != 137)
}

async fn end_of_command(worker: &Worker, outcome: Outcome) -> ShellOutput {
    if may_end_with_worker(&outcome) && worker.ends_within(KNOWN_WITHIN).await {
        return ShellOutput::Ended { code: None, signal: None, with_worker: true };
    }
    let full = &worker.full;
    match outcome {
        Outcome::Exited(code) => ShellOutput::Ended { code: Some(code), signal: None, with_worker: false },
        Outcome::Failed(why) => ShellOutput::Failed(worker.refused(&why).detail),
        Outcome::Lost => ShellOutput::Failed(format!("the line to {full} was cut; {full} goes on")),
    }
}

/// Who joined a worker is told how that ended, once it is known.
async fn end_of_worker(worker: &Worker, outcome: Outcome) -> ShellOutput {
    if !worker.ends_within(KNOWN_WITHIN).await {
        let full = &worker.full;
        return ShellOutput::Failed(match outcome {
            Outcome::Failed(why) => worker.refused(&why).detail,
            Outcome::Exited(_) | Outcome::Lost => format!("the line to {full} was cut; {full} goes on"),
        });
    }
    // Of a Pod that is gone nobody knows how it ended.
    let over = |reading: &berth_kube::view::Reading<'_>| {
        let pod = reading.pods(worker.id).into_iter().find(|pod| pod.name == worker.pod);
        pod.map_or(Some(None), |pod| pod.over.then_some(pod.exit_code))
    };
    let code = worker.view.until(KNOWN_WITHIN, over).await.flatten();
    ShellOutput::Ended { code, signal: None, with_worker: true }
}

/// What a worker printed of late; nothing if that cannot be read.
async fn recent(worker: &Worker) -> Vec<u8> {
    let pods: Api<Pod> = Api::namespaced(worker.client.clone(), &worker.namespace);
    let parameters = LogParams {
        container: Some(worker.container.clone()),
        tail_lines: Some(RECENT_LINES),
        limit_bytes: Some(RECENT_BYTES),
        ..LogParams::default()
    };
    let recent = pods.logs(&worker.pod, &parameters).await.unwrap_or_default();
    // A log has lines; a terminal returns to its left edge only when it is told to.
    if worker.has_terminal { recent.replace('\n', "\r\n").into_bytes() } else { recent.into_bytes() }
}

/// Ends a command that nobody listens to any more, with what it started. It is tried until it is done, or the worker has ended.
/// Without a shell in the image the command runs on.
async fn hang_up(worker: &Worker, mark: &str, counted: Counted) {
    let script = HANG_UP.replace("$MARKED", &format!("{MARK}={mark}"));
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let mut counted = Some(counted);
    for _ in 0..HANG_UP_TRIES {
        let told = timeout(HUNG_UP_WITHIN, async {
            let opened = open_exec(worker, &command, None).await?;
            // From here on it goes on without us.
            drop(counted.take());
            Ok::<Outcome, Problem>(its_end(opened).await)
        });
        match told.await {
            Ok(Ok(Outcome::Exited(_))) => return,
            Ok(Err(problem)) if problem.detail.contains(NO_PROGRAM) => return,
            Ok(Ok(Outcome::Failed(why))) => {
                tracing::debug!(pod = worker.pod, why, "an abandoned command is not ended")
            }
            Ok(Err(problem)) => {
                tracing::debug!(pod = worker.pod, why = problem.detail, "an abandoned command is not ended");
            }
            Ok(Ok(Outcome::Lost)) | Err(_) => {
                tracing::debug!(pod = worker.pod, "whether it ended is not known")
            }
        }
        if worker.ends_within(HANG_UP_EVERY).await {
            return;
        }
    }
}

/// How a command ended that prints nothing. What is empty says only that a channel is there.
async fn its_end(mut opened: Opened) -> Outcome {
    let mut heard = opened.first.take();
    loop {
        match heard {
            Some((STATUS, status)) if !status.is_empty() => return outcome(&status),
            _ => heard = opened.receiver.next().await,
        }
        if heard.is_none() {
            return Outcome::Lost;
        }
    }
}

fn no_program(worker: &Worker, command: &[String]) -> Problem {
    let program = command.first().map(String::as_str).unwrap_or_default();
    Problem::new(Code::WrongState, format!("there is no program `{program}` in the image of {}", worker.full))
}

/// A name that no other command has.
fn mark() -> Result<String, Problem> {
    let mut random = [0u8; 12];
    let none = |_| Problem::new(Code::Internal, "the system has no random numbers");
    getrandom::fill(&mut random).map_err(none)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_says_how_it_ended() {
        let success = br#"{"metadata":{},"status":"Success"}"#;
        assert_eq!(outcome(success), Outcome::Exited(0));
        let failed =
            br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}"#;
        assert_eq!(outcome(failed), Outcome::Exited(42));
        let refused = br#"{"metadata":{},"status":"Failure","message":"container not found","code":500}"#;
        assert_eq!(outcome(refused), Outcome::Failed("container not found".into()));
        assert_eq!(outcome(b"no object\n"), Outcome::Failed("no object".into()));
    }

    #[test]
    fn an_end_by_its_own_code_is_never_taken_for_that_of_its_worker() {
        for (outcome, may) in
            [(Outcome::Exited(0), false), (Outcome::Exited(143), false), (Outcome::Exited(137), true)]
        {
            assert_eq!(may_end_with_worker(&outcome), may, "{outcome:?}");
        }
        assert!(may_end_with_worker(&Outcome::Lost) && may_end_with_worker(&Outcome::Failed("?".into())));
    }
}
