//! Gangs that `mpirun` starts. It runs in the first worker and goes from there to the others, which have neither a server of
//! shells nor a key: what it asks for is carried out here, by the same way by which people enter a worker.
//!
//! ```text
//! mpirun --rsh--> a file --relay.sh--> here --exec--> worker 1, 2, ...
//!     worker 0    <-----code---------      API server
//! ```
//!
//! Nothing but the gate can enter a Pod, and it enters those of the same workload only: no worker holds a token, and no port is
//! opened. Nothing is kept either: what is asked while no gate runs is there for the next one, and what one was asked and did not
//! answer before it ended has failed, because nobody knows whether it was done.

mod asks;

use crate::{
    beside::{self, Way},
    differs,
};
use asks::{Ask, Asks};
use berth_api::{Framework, ShellRequest};
use berth_kube::{api::WorkloadPhase, view::PodView};
use berth_server::{Shell, ShellInput, ShellOutput};
use std::{collections::BTreeSet, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

/// What every worker of such a gang runs, by `sh`, with the command as its arguments. The first runs `mpirun`; the others are there
/// for what it starts in them, and end when it is done.
///
/// Told to stop, the first hands that on to `mpirun`, and the others stay until its daemons are gone, so that what they started has
/// its time to save its state. Variables of Open MPI that the workload sets come before ours.
const START: &str = include_str!("start.sh");
/// Tells us what is asked for, and takes answers, as long as somebody listens.
const RELAY: &str = include_str!("relay.sh");

/// Between two looks for first workers that nobody listens to.
const ROUND: Duration = Duration::from_secs(1);
/// A worker of a gang runs within this time after the first, images that are fetched included.
const THERE_WITHIN: Duration = Duration::from_secs(600);
/// Between two tries to enter a worker that runs and cannot be entered yet, and for how long.
const PAUSE: Duration = Duration::from_secs(1);
const ENTERED_WITHIN: Duration = Duration::from_secs(30);
/// Errands of one `mpirun` at one time, roughly: what it asks for beyond them waits.
const AT_ONCE: usize = 64;
/// Of what something prints in a worker, so much is shown in the first.
const SHOWN_MAX: usize = 2_000;
/// What ends without a code.
const UNKNOWN: i32 = 255;

/// The command and the arguments of every worker of a gang that `mpirun` starts.
pub(crate) fn started(command: &[String], args: &[String]) -> (Vec<String>, Vec<String>) {
    let mut words = vec!["-c".to_owned(), START.to_owned(), "mpirun".to_owned()];
    words.extend(command.iter().chain(args).cloned());
    (vec!["/bin/sh".into()], words)
}

/// The first worker of a gang that `mpirun` starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct First {
    project: String,
    namespace: String,
    name: String,
    run: u32,
    pod: String,
}

/// Listens to every first worker, for as long as it runs.
pub(crate) async fn follow(way: Way) {
    let mut heard: BTreeSet<First> = BTreeSet::new();
    let mut listeners = JoinSet::new();
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(Ok(first)) = listeners.join_next() => drop(heard.remove(&first)),
            _ = rounds.tick() => {
                for first in first_workers(&way) {
                    if heard.insert(first.clone()) {
                        listeners.spawn(listen(way.clone(), first));
                    }
                }
            }
        }
    }
}

fn first_workers(way: &Way) -> Vec<First> {
    let reading = way.view.read();
    let first = |(id, workload): (_, &std::sync::Arc<berth_kube::api::Workload>)| {
        let phase = workload.status.as_ref().and_then(|status| status.phase);
        if differs::framework(workload) != Framework::Mpi || phase.is_some_and(WorkloadPhase::is_final) {
            return None;
        }
        let namespace = workload.metadata.namespace.clone()?;
        let project = reading.project_of(&namespace).ok()?.metadata.name.clone()?;
        let pod = reading.pods(id).into_iter().rfind(|pod| pod.rank == 0 && runs(pod))?;
        Some(First { project, namespace, name: workload.metadata.name.clone()?, run: pod.run, pod: pod.name })
    };
    reading.workloads().filter_map(first).collect()
}

fn runs(pod: &PodView) -> bool {
    pod.running && !pod.leaving
}

/// Listens to one, until it cannot be listened to any more. Whoever looks next begins again if it still runs.
async fn listen(way: Way, first: First) -> First {
    match open(&way, &first, 0, RELAY).await {
        Ok(shell) => relay(&way, &first, shell).await,
        Err(why) => {
            tracing::warn!(workload = first.name, project = first.project, why, "its mpirun cannot be heard")
        }
    }
    sleep(PAUSE).await;
    first
}

/// Carries out what is asked for until nobody asks any more.
async fn relay(way: &Way, first: &First, mut shell: Shell) {
    let (mut asks, mut errands) = (Asks::default(), JoinSet::new());
    loop {
        tokio::select! {
            Some(Ok(answer)) = errands.join_next() => {
                let answer: String = answer;
                if shell.input.send(ShellInput::Typed(answer.into_bytes())).await.is_err() {
                    return;
                }
            }
            said = shell.output.recv(), if errands.len() < AT_ONCE => match said {
                Some(ShellOutput::Printed(bytes)) => match asks.take(&bytes) {
                    Ok(new) => for ask in new {
                        errands.spawn(carry_out(way.clone(), first.clone(), ask));
                    },
                    Err(why) => {
                        tracing::warn!(workload = first.name, why, "what its mpirun asks for cannot be read");
                        return;
                    }
                },
                Some(ShellOutput::Errors(bytes)) => {
                    tracing::debug!(workload = first.name, said = %String::from_utf8_lossy(&bytes), "beside its mpirun");
                }
                Some(ShellOutput::Ended { .. } | ShellOutput::Failed(_)) | None => return,
            }
        }
    }
}

/// Runs a line in a worker; gives the answer, as the first worker reads it.
async fn carry_out(way: Way, first: First, ask: Ask) -> String {
    let (code, said) = match open(&way, &first, ask.rank, &ask.line).await {
        Ok(shell) => end_of(shell).await,
        Err(why) => (UNKNOWN, why),
    };
    tracing::debug!(workload = first.name, rank = ask.rank, code, said, "mpirun was in a worker");
    asks::answer(&ask.id, code, &said)
}

/// Runs a line in a worker of the same run as the first, as soon as it can be.
async fn open(way: &Way, first: &First, rank: u32, line: &str) -> Result<Shell, String> {
    let there = |reading: &berth_kube::view::Reading<'_>| {
        let Some((id, _)) = reading.workload(&first.namespace, &first.name) else { return Some(false) };
        let pods = reading.pods(id);
        if !pods.iter().any(|pod| pod.name == first.pod && runs(pod)) {
            return Some(false);
        }
        let is_there = |pod: &PodView| pod.rank == rank && pod.run == first.run && runs(pod);
        pods.iter().any(is_there).then_some(true)
    };
    match way.view.until(THERE_WITHIN, there).await {
        Some(true) => {}
        Some(false) => return Err("the first worker is gone".into()),
        None => return Err(format!("it does not run after {} seconds", THERE_WITHIN.as_secs())),
    }
    let end = Instant::now() + ENTERED_WITHIN;
    loop {
        let request =
            ShellRequest { command: ["sh", "-c", line].map(str::to_owned).into(), ..ShellRequest::default() };
        let opened = match beside::worker(way, &first.project, &first.name, rank) {
            Ok(worker) => beside::exec(worker, request).await,
            Err(problem) => Err(problem),
        };
        match opened {
            Ok(shell) => return Ok(shell),
            // It was not started, so it may be tried again.
            Err(_) if Instant::now() < end => sleep(PAUSE).await,
            Err(problem) => return Err(problem.detail),
        }
    }
}

/// The code of what was started, and what it said.
async fn end_of(mut shell: Shell) -> (i32, String) {
    let mut said = Vec::new();
    // Nothing is typed.
    let _ = shell.input.send(ShellInput::Close).await;
    loop {
        match shell.output.recv().await {
            Some(ShellOutput::Printed(bytes) | ShellOutput::Errors(bytes)) => {
                let room = SHOWN_MAX.saturating_sub(said.len());
                said.extend(bytes.into_iter().take(room));
            }
            Some(ShellOutput::Ended { code, .. }) => {
                return (code.unwrap_or(UNKNOWN), String::from_utf8_lossy(&said).into_owned());
            }
            Some(ShellOutput::Failed(why)) => return (UNKNOWN, why),
            None => return (UNKNOWN, "the line was cut".into()),
        }
    }
}
