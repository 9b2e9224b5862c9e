//! From a spec to a running shim.

use crate::{
    AgentConfig, RuntimeKind, TaskSpec, account, environment, oci,
    process::{self, Context},
    progress::Parser,
    reactor::Reactor,
    task_folder::{Launch, Order, TaskFolder},
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{PipeReader, pipe},
    process::{Child, Command},
};

/// More than this is a mistake, or an attack.
const WORDS_MAX: usize = 4096;
const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;

/// What the shim of a task is to do. The text says why the task cannot run, and what to do about it.
pub(crate) fn order(reactor: &mut Reactor, spec: &TaskSpec) -> Result<Order, String> {
    check(spec)?;
    check_user(spec)?;
    let runs = reactor.images.find(&spec.image);
    let mut context = Context { config: &reactor.config, folder: &reactor.folder, ports: &mut reactor.ports };
    let launch = match spec.runtime {
        RuntimeKind::Docker if cfg!(feature = "docker") => {
            let oci::Inside { environment, mounts, ports } = oci::inside(spec, &mut context)?;
            Launch { environment, binds: mounts, ports, ..Launch::default() }
        }
        RuntimeKind::Docker => return Err("this build of Berth cannot talk to container engines".into()),
        _ if oci::is_container(spec, &runs) => oci::resolve(spec, runs, &mut context)?,
        _ => process::resolve(spec, &runs?, &mut context)?,
    };
    let is_container = launch.container.is_some();
    reactor.folder.make_work(spec.id, spec.run_as).map_err(|error| error.to_string())?;
    let order = Order {
        spec: spec.clone(),
        launch,
        mark: reactor.folder.mark(spec.id),
        agent: reactor.folder.root().to_owned(),
        checkpoint_file: reactor.folder.signals(spec.id).join("checkpoint"),
        log_file_bytes_max: reactor.config.log_file_max.0,
        log_files_max: reactor.config.log_files_max,
        // A container's groups are made by its runtime.
        control_group: reactor.place.clone().filter(|_| !is_container),
    };
    reactor.ports.take(spec.id, ports_of(&order));
    Ok(order)
}

/// Every port that is the task's own while it runs.
pub(crate) fn ports_of(order: &Order) -> Vec<u16> {
    let gang = order.launch.environment.get("MASTER_PORT").and_then(|text| text.parse::<u16>().ok());
    let last = |first: u16| first.saturating_add(u16::try_from(order.spec.workers).unwrap_or(0));
    let gang = gang.into_iter().flat_map(|first| first..=last(first));
    order.launch.ports.iter().map(|(_, real)| *real).chain(gang).collect()
}

fn check(spec: &TaskSpec) -> Result<(), String> {
    let words = || {
        spec.command.iter().chain(&spec.args).chain(spec.environment.values()).chain(spec.environment.keys())
    };
    if words().any(|word| word.contains('\0')) {
        return Err("a command or variable holds a zero byte".into());
    }
    if spec.command.len() + spec.args.len() > WORDS_MAX {
        return Err(format!("the command has more than {WORDS_MAX} words"));
    }
    if words().map(String::len).sum::<usize>() > ENVIRONMENT_BYTES_MAX {
        return Err(format!("command and environment have more than {ENVIRONMENT_BYTES_MAX} bytes"));
    }
    if let Some(name) = spec.environment.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Err(format!("`{name}` is not the name of a variable"));
    }
    Parser::new(spec.progress_pattern.as_deref()).map(|_| ())
}

/// What was allowed at the submission may not be any more: a server that was root may be started by somebody else.
fn check_user(spec: &TaskSpec) -> Result<(), String> {
    let Some((user, group)) = spec.run_as else { return Ok(()) };
    account::find(&format!("{user}:{group}")).map(|_| ())
}

/// Writes the order and starts the shim, which takes over the lock as its standard input.
pub(crate) fn shim(
    config: &AgentConfig,
    task: &TaskFolder,
    order: &Order,
    lock: File,
) -> Result<(Child, PipeReader), String> {
    let no_shim = |error: std::io::Error| format!("the task's shim could not be started: {error}");
    task.write_order(order).map_err(|error| error.to_string())?;
    let complaints = File::create(task.path().join("shim.err")).map_err(no_shim)?;
    let (reader, writer) = pipe().map_err(no_shim)?;
    let [program, args @ ..] = &config.shim[..] else {
        return Err("no program is set for shims".into());
    };
    // No working folder, user or group is set here: that would make the start a fork of the whole server instead of a spawn.
    let child = Command::new(program)
        .args(args)
        .arg(task.path())
        // What else is in the server's own environment may be a secret of its.
        .env_clear()
        .envs(environment::inherited())
        .env(crate::environment::MARK, OsStr::new(&order.mark))
        .stdin(lock)
        .stdout(writer)
        .stderr(complaints)
        .spawn()
        .map_err(no_shim)?;
    Ok((child, reader))
}
