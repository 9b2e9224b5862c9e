//! Commands in containers of an engine, and the containers' own terminals.
//!
//! The engine is the parent; here its streams are made into the same descriptors that a shim's shell has.

use super::Worker;
use crate::{
    Exit, Shell, ShellControl, ShellEnd, ShellSpec, TaskId, TerminalSize,
    reactor::ShellSender,
    shell::{self, ShellAnswer, ShellOrder},
};
use bollard::{
    Docker,
    container::{AttachContainerResults, LogOutput},
    exec::{CreateExecOptions, ResizeExecOptions, StartExecOptions, StartExecResults},
    query_parameters::{AttachContainerOptionsBuilder, ResizeContainerTTYOptionsBuilder},
};
use futures_util::{Stream, StreamExt};
use std::{io, os::fd::OwnedFd, pin::Pin};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::unix::pipe::{Receiver, Sender},
};

/// What an engine gives for something that it runs.
struct Streams {
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// What it is that runs.
enum Running {
    Exec(String),
    Container(String),
}

/// Starts it and answers; then carries what is said until it ends or nobody listens.
pub(super) async fn answer(worker: Worker, id: TaskId, spec: Option<ShellSpec>, answer: ShellSender) {
    let begun = match spec {
        Some(spec) => exec(&worker, id, spec).await,
        None => attach(&worker, id).await,
    };
    match begun {
        Err(why) => drop(answer.send(Err(why))),
        Ok((docker, running, streams, has_terminal)) => match bridge(has_terminal) {
            Err(error) => drop(answer.send(Err(format!("no pipe could be had: {error}")))),
            Ok((shell, ends)) => {
                if answer.send(Ok(shell)).is_ok() {
                    carry(&docker, &running, streams, ends).await;
                }
            }
        },
    }
}

async fn exec(
    worker: &Worker,
    id: TaskId,
    spec: ShellSpec,
) -> Result<(Docker, Running, Streams, bool), String> {
    let docker = worker.connect().await?;
    let failed = |error: bollard::errors::Error| format!("the container engine refuses: {error}");
    let command = if spec.command.is_empty() { shell::usual_shell() } else { spec.command };
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(spec.terminal.is_some()),
        env: Some(spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        cmd: Some(command),
        ..CreateExecOptions::default()
    };
    let created = docker.create_exec(&worker.name(id), options).await.map_err(failed)?;
    let options = StartExecOptions { tty: spec.terminal.is_some(), ..StartExecOptions::default() };
    match docker.start_exec(&created.id, Some(options)).await.map_err(failed)? {
        StartExecResults::Detached => Err("the container engine did not attach to the command".into()),
        StartExecResults::Attached { output, input } => {
            let running = Running::Exec(created.id);
            if let Some(size) = spec.terminal {
                resize(&docker, &running, size).await;
            }
            Ok((docker, running, Streams { output, input }, spec.terminal.is_some()))
        }
    }
}

async fn attach(worker: &Worker, id: TaskId) -> Result<(Docker, Running, Streams, bool), String> {
    let docker = worker.connect().await?;
    let failed = |error: bollard::errors::Error| format!("the container engine refuses: {error}");
    let name = worker.name(id);
    let inspected = docker.inspect_container(&name, None).await.map_err(failed)?;
    let has_terminal = inspected.config.and_then(|config| config.tty).unwrap_or(false);
    let options =
        AttachContainerOptionsBuilder::new().stdin(true).stdout(true).stderr(true).stream(true).build();
    let AttachContainerResults { output, input } =
        docker.attach_container(&name, Some(options)).await.map_err(failed)?;
    Ok((docker, Running::Container(name), Streams { output, input }, has_terminal))
}

async fn resize(docker: &Docker, running: &Running, size: TerminalSize) {
    // A command that has ended has no size.
    let _ = match running {
        Running::Exec(id) => {
            docker.resize_exec(id, ResizeExecOptions { height: size.rows, width: size.columns }).await
        }
        Running::Container(name) => {
            let (rows, columns) = (i32::from(size.rows), i32::from(size.columns));
            let options = ResizeContainerTTYOptionsBuilder::new().h(rows).w(columns).build();
            docker.resize_container_tty(name, options).await
        }
    };
}

/// Our ends of what a shell's descriptors lead to.
struct Ends {
    typed: Receiver,
    printed: Sender,
    errors: Option<Sender>,
    line: OwnedFd,
    heard: Receiver,
}

fn bridge(has_terminal: bool) -> io::Result<(Shell, Ends)> {
    let [(typed, input), (output, printed), (errors, complaints)] =
        [shell::pipe()?, shell::pipe()?, shell::pipe()?];
    let (line, connection) = shell::line()?;
    for theirs in [&input, &output, &errors] {
        shell::no_block(theirs)?;
    }
    let has_errors = !has_terminal;
    let ends = Ends {
        typed: Receiver::from_owned_fd(typed)?,
        printed: Sender::from_owned_fd(printed)?,
        errors: has_errors.then(|| Sender::from_owned_fd(complaints)).transpose()?,
        // A socket reads like a pipe, one message at a time.
        heard: Receiver::from_owned_fd_unchecked(line.try_clone()?)?,
        line,
    };
    let control = ShellControl::new(connection, None);
    let errors = has_errors.then_some(errors);
    Ok((Shell { input, output, errors, has_terminal, control }, ends))
}

async fn carry(docker: &Docker, running: &Running, streams: Streams, ends: Ends) {
    let Streams { mut output, mut input } = streams;
    let Ends { mut typed, mut printed, mut errors, line, mut heard } = ends;
    let (mut keys, mut message) = ([0; 4096], [0; 4096]);
    let mut is_open = true;
    loop {
        tokio::select! {
            part = output.next() => {
                let Some(Ok(part)) = part else { break };
                let written = match (&part, &mut errors) {
                    (LogOutput::StdErr { message }, Some(errors)) => errors.write_all(message).await,
                    _ => printed.write_all(&part.into_bytes()).await,
                };
                if written.is_err() {
                    return;
                }
            }
            count = typed.read(&mut keys), if is_open => match count {
                Ok(count) if count > 0 && input.write_all(&keys[..count]).await.is_ok() => {
                    let _ = input.flush().await;
                }
                _ => {
                    is_open = false;
                    let _ = input.shutdown().await;
                }
            },
            count = heard.read(&mut message) => match count {
                Ok(count) if count > 0 => {
                    if let Ok(ShellOrder::Resize(size)) = serde_json::from_slice(&message[..count]) {
                        resize(docker, running, size).await;
                    }
                }
                // Whoever asked is gone; closing the streams is all an engine can be told.
                _ => return,
            },
        }
    }
    drop((printed, errors));
    let _ = shell::send(&line, &ShellAnswer::Ended(how_it_ended(docker, running).await), &[]);
}

async fn how_it_ended(docker: &Docker, running: &Running) -> ShellEnd {
    let (code, with_task) = match running {
        Running::Exec(id) => {
            let code = docker.inspect_exec(id).await.ok().and_then(|exec| exec.exit_code);
            (code, code.is_none())
        }
        Running::Container(name) => {
            let inspected = docker.inspect_container(name, None).await.ok();
            (inspected.and_then(|container| container.state).and_then(|state| state.exit_code), true)
        }
    };
    let exit = match code {
        None => Exit::Lost,
        Some(code) if (129..=192).contains(&code) => Exit::Signal((code - 128) as i32),
        Some(code) => Exit::Code(code as i32),
    };
    ShellEnd { exit, with_task }
}
