//! Takes one container from what it is to its end, whatever it is.

use super::{RETRY_FIRST, RETRY_LAST, Worker, create, follow::Follower};
use crate::{
    Exit, TaskId,
    clock::{boot_ms, unix_ms},
    folder,
    task_folder::{Ended, Order, Outcome, Process, Started, TaskFolder, Told},
};
use bollard::{
    Docker,
    errors::Error,
    models::{ContainerState, ContainerStateStatusEnum},
    query_parameters::{
        CreateContainerOptionsBuilder, CreateImageOptionsBuilder, KillContainerOptionsBuilder,
        RemoveContainerOptionsBuilder, WaitContainerOptions,
    },
};
use futures_util::StreamExt;
use std::time::Duration;

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const TERMINATED: i32 = 15;

/// Until the container has ended and its end is written down.
pub(super) async fn drive(worker: Worker, order: Order, task: TaskFolder) {
    let id = order.spec.id;
    let outcome = match run(&worker, &order, &task).await {
        Ok(exit) => Outcome::Exit(exit),
        Err(message) => Outcome::Refused(message),
    };
    if let Err(error) = task.write_ended(&Ended { outcome, unix_ms: unix_ms() }) {
        eprintln!("berth: {error}");
    }
    // The record comes first: a container that is gone without one would be lost.
    if let Ok(docker) = worker.connect().await
        && let Err(why) = remove(&docker, &worker.name(id)).await
    {
        eprintln!("berth: {why}");
    }
    worker.tell_ended(id);
}

async fn run(worker: &Worker, order: &Order, task: &TaskFolder) -> Result<Exit, String> {
    let (id, name) = (order.spec.id, worker.name(order.spec.id));
    let mut retry = RETRY_FIRST;
    let mut follower = Follower::new(worker, order, task).map_err(|error| format!("no log: {error}"))?;
    loop {
        let docker = match worker.connect().await {
            Ok(docker) => docker,
            // Nothing was ever asked of an engine, so there is nothing to wait for.
            Err(message) if task.shim().is_none() => return Err(message),
            Err(_) => {
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_LAST);
                continue;
            }
        };
        let state = match docker.inspect_container(&name, None).await {
            Ok(found) => found.state.unwrap_or_default(),
            Err(error) if status(&error) == Some(NOT_FOUND) => {
                if task.started().is_some() {
                    // Somebody removed it; what became of it is known to nobody.
                    return Ok(Exit::Lost);
                }
                if task.stop().is_some() {
                    return Ok(Exit::Signal(TERMINATED));
                }
                begin(worker, &docker, order, task, &name).await?;
                continue;
            }
            Err(_) => {
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_LAST);
                continue;
            }
        };
        match state.status {
            Some(ContainerStateStatusEnum::CREATED) => {
                if task.stop().is_some() {
                    return Ok(Exit::Signal(TERMINATED));
                }
                let started = docker.start_container(&name, None).await;
                started.map_err(|error| format!("the container could not be started: {}", text(&error)))?;
                continue;
            }
            Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD) => {
                tell_started(worker, order, task, &state);
                follower.follow(&docker, &name, false).await;
                return Ok(exit(&state));
            }
            _ => {}
        }
        tell_started(worker, order, task, &state);
        if task.stop().is_some() {
            // A request may have come between the creation and now.
            tokio::spawn(stop(worker.clone(), id, task.clone()));
        }
        follower.follow(&docker, &name, true).await;
        // The stream of output ends a moment before the container does, and also when the engine is restarted.
        let _ = docker.wait_container(&name, None::<WaitContainerOptions>).next().await;
    }
}

/// Creates the container, and fetches its image when that is not there yet and may be fetched.
async fn begin(
    worker: &Worker,
    docker: &Docker,
    order: &Order,
    task: &TaskFolder,
    name: &str,
) -> Result<(), String> {
    // From here on an engine may have it.
    let own = Process::own().map_err(|error| error.to_string())?;
    task.write_shim(own).map_err(|error| error.to_string())?;
    let body = create::body(worker, order)?;
    for attempt in 0..2 {
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        let created = docker.create_container(Some(options), body.clone()).await;
        match created {
            Ok(_) => return Ok(()),
            // An agent before this one came so far.
            Err(error) if status(&error) == Some(CONFLICT) => return Ok(()),
            Err(error) if status(&error) == Some(NOT_FOUND) && order.spec.local_image => {
                return Err(not_local(&order.spec.image));
            }
            Err(error) if status(&error) == Some(NOT_FOUND) && attempt == 0 => {
                pull(docker, &order.spec.image).await?
            }
            Err(error) => return Err(format!("the container could not be created: {}", text(&error))),
        }
    }
    Err(format!("the image `{}` is not there, although it was fetched", order.spec.image))
}

/// Whether an engine answers, and has an image if one is named.
pub(super) async fn check(worker: &Worker, image: Option<&str>) -> Result<(), String> {
    let docker = worker.connect().await?;
    let Some(image) = image else { return Ok(()) };
    match docker.inspect_image(image).await {
        Ok(_) => Ok(()),
        Err(error) if status(&error) == Some(NOT_FOUND) => Err(not_local(image)),
        Err(error) => Err(format!("the image `{image}` could not be looked up: {}", text(&error))),
    }
}

fn not_local(image: &str) -> String {
    format!(
        "the image `{image}` is not on this machine, and --local-image forbids to fetch it: load it with `docker load -i FILE` or \
         `podman load -i FILE`, or leave --local-image out"
    )
}

async fn pull(docker: &Docker, image: &str) -> Result<(), String> {
    let (name, tag) = crate::images::split_tag(image);
    let options = CreateImageOptionsBuilder::new().from_image(name).tag(tag.unwrap_or("latest")).build();
    let mut steps = docker.create_image(Some(options), None, None);
    while let Some(step) = steps.next().await {
        step.map_err(|error| format!("the image `{image}` could not be fetched: {}", text(&error)))?;
    }
    Ok(())
}

fn tell_started(worker: &Worker, order: &Order, task: &TaskFolder, state: &ContainerState) {
    let started = task.started().unwrap_or_else(|| {
        let pid = state.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let started = Started {
            process: Process::of(pid).unwrap_or(Process { pid, start_ticks: 0 }),
            boot_id: folder::boot_id(),
            unix_ms: unix_ms(),
            ports: order.launch.ports.clone(),
        };
        if let Err(error) = task.write_started(&started) {
            eprintln!("berth: {error}");
        }
        started
    });
    worker.tell(Told::Started(order.spec.id, started));
}

/// Asks the container to end, and ends it when the grace is over.
pub(super) async fn stop(worker: Worker, id: TaskId, task: TaskFolder) {
    let name = worker.name(id);
    kill(&worker, &name, "SIGTERM").await;
    while let Some(stop) = task.stop().filter(|_| task.ended().is_none()) {
        let left = stop.deadline_boot_ms.saturating_sub(boot_ms());
        if left == 0 {
            return kill(&worker, &name, "SIGKILL").await;
        }
        // A shorter grace that comes meanwhile has a wait of its own.
        tokio::time::sleep(Duration::from_millis(left)).await;
    }
}

async fn kill(worker: &Worker, name: &str, signal: &str) {
    if let Ok(docker) = worker.connect().await {
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        // One that has ended, or is not there yet, is dealt with by whoever drives it.
        let _ = docker.kill_container(name, Some(options)).await;
    }
}

pub(super) async fn remove(docker: &Docker, name: &str) -> Result<(), String> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match docker.remove_container(name, Some(options)).await {
        Err(error) if status(&error) != Some(NOT_FOUND) => Err(format!("removing {name}: {}", text(&error))),
        _ => Ok(()),
    }
}

/// Engines count a death by a signal as 128 and the signal.
fn exit(state: &ContainerState) -> Exit {
    match state.exit_code {
        Some(code @ 129..=192) => Exit::Signal(code as i32 - 128),
        Some(code) => Exit::Code(code as i32),
        None => Exit::Lost,
    }
}

fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn text(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
