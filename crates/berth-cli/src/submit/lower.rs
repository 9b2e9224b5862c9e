//! From flags to a request: what is written on the command line wins over the file.

use super::args::SubmitArgs;
use crate::failure::Failure;
use berth_api::{Framework, KindName, Restart, RuntimeName, ServiceType, WorkloadRequest};
use serde::de::{DeserializeOwned, value::StrDeserializer};

pub(crate) fn lower(
    arguments: &SubmitArgs,
    mut request: WorkloadRequest,
) -> Result<WorkloadRequest, Failure> {
    let name = arguments.name.as_ref().or(arguments.named.as_ref()).cloned();
    set(&mut request.name, &name);
    set(&mut request.name_prefix, &arguments.name_prefix);
    if name.is_some() {
        request.name_prefix = None;
    } else if arguments.name_prefix.is_some() {
        request.name = None;
    }
    if let Some(project) = &arguments.project.project {
        request.project.clone_from(project);
    }
    if let Some(image) = &arguments.image {
        request.image.clone_from(image);
    }
    lower_kind(arguments, &mut request);
    lower_amounts(arguments, &mut request);
    lower_process(arguments, &mut request)?;
    request.mounts.extend(arguments.volume.iter().cloned());
    request.volumes.extend(arguments.pvc.iter().cloned());
    if !arguments.port.is_empty() {
        request.ports.clone_from(&arguments.port);
    }
    if let Some(name) = &arguments.service_type {
        request.service_type = Some(known::<ServiceType>(name));
    }
    if let Some(name) = &arguments.runtime {
        request.runtime = known::<RuntimeName>(name);
    }
    Ok(request)
}

fn lower_kind(arguments: &SubmitArgs, request: &mut WorkloadRequest) {
    request.notebook |= arguments.jupyter;
    set(&mut request.workers, &arguments.workers);
    set(&mut request.workers, &arguments.processes);
    set(&mut request.workers, &arguments.replicas);
    set(&mut request.min_workers, &arguments.min_workers);
    set(&mut request.completions, &arguments.completions);
    set(&mut request.parallelism, &arguments.parallelism);
    if let Some(name) = &arguments.restart {
        request.restart = Some(known::<Restart>(name));
    }
    if let Some(name) = &arguments.framework {
        request.framework = known::<Framework>(name);
    }
    if arguments.interactive {
        request.kind = KindName::Interactive;
    } else if arguments.inference {
        request.kind = KindName::Inference;
    } else if request.kind == KindName::Train
        && request.workers.is_some_and(|workers| workers > 1)
        && request.completions.is_none()
    {
        request.kind = KindName::Distributed;
    }
    if arguments.preemptible {
        request.preemptible = Some(true);
    }
    set(&mut request.priority, &arguments.priority);
    set(&mut request.max_run_secs, &arguments.max_run_time);
    set(&mut request.backoff_limit, &arguments.backoff_limit);
    set(&mut request.grace_secs, &arguments.grace);
}

fn lower_amounts(arguments: &SubmitArgs, request: &mut WorkloadRequest) {
    // Either says how much of a device is asked for, so one on the command line replaces the other of the file.
    if arguments.gpus.is_some() {
        request.gpu_memory = None;
    } else if arguments.gpu_memory.is_some() {
        request.gpus = None;
    }
    set(&mut request.gpus, &arguments.gpus);
    set(&mut request.gpu_memory, &arguments.gpu_memory);
    set(&mut request.gpu_devices, &arguments.gpu_devices);
    if !arguments.gpu_models.is_empty() {
        request.gpu_models.clone_from(&arguments.gpu_models);
    }
    set(&mut request.cpu, &arguments.cpu);
    set(&mut request.memory, &arguments.memory);
    request.large_shm |= arguments.large_shm;
    set(&mut request.node_pool, &arguments.node_pool);
    request.node_selector.extend(arguments.node_selector.iter().cloned());
    set(&mut request.topology_required, &arguments.topology);
    set(&mut request.topology_preferred, &arguments.topology_preferred);
    request.spread |= arguments.spread;
    request.apart |= arguments.apart;
}

/// The report writes `--command CMD --args ARG`; today one writes `-- CMD ARG`. A command by flag makes what follows `--`
/// its arguments.
fn lower_process(arguments: &SubmitArgs, request: &mut WorkloadRequest) -> Result<(), Failure> {
    let command: Vec<String> = arguments.command.iter().filter(|word| !word.is_empty()).cloned().collect();
    let mut trailing = arguments.trailing.clone();
    if !arguments.args.is_empty() && !trailing.is_empty() {
        return Err(Failure::misuse("arguments are named by --args and after `--`")
            .hint("write all of them after `--`: berth submit NAME -i IMAGE -- CMD ARG ARG"));
    }
    if !arguments.command.is_empty() && command.is_empty() && trailing.is_empty() {
        return Err(
            Failure::misuse("--command names no command").hint("write --command CMD, or `-- CMD ARGS`")
        );
    }
    if !command.is_empty() {
        request.command = command;
        request.args = if trailing.is_empty() { arguments.args.clone() } else { trailing };
    } else if !trailing.is_empty() {
        request.command = vec![trailing.remove(0)];
        request.args = trailing;
    } else if !arguments.args.is_empty() {
        request.args.clone_from(&arguments.args);
    }
    request.environment.extend(arguments.environment.iter().cloned());
    set(&mut request.working_dir, &arguments.working_dir);
    set(&mut request.run_as, &run_as(arguments));
    request.tty |= arguments.tty || arguments.attach;
    request.stdin |= arguments.stdin || arguments.attach;
    request.local_image |= arguments.local_image;
    request.host_network |= arguments.host_network;
    request.privileged |= arguments.privileged;
    set(&mut request.progress_pattern, &arguments.progress_pattern);
    Ok(())
}

fn run_as(arguments: &SubmitArgs) -> Option<String> {
    if arguments.run_as_user {
        return Some(format!("{}:{}", rustix::process::getuid(), rustix::process::getgid()));
    }
    let by_number = arguments.run_as_uid.map(|uid| match arguments.run_as_gid {
        Some(gid) => format!("{uid}:{gid}"),
        None => uid.to_string(),
    });
    arguments.run_as.clone().or(by_number)
}

fn set<T: Clone>(field: &mut Option<T>, argument: &Option<T>) {
    if argument.is_some() {
        field.clone_from(argument);
    }
}

/// A value by its name in the API. The parser of arguments let only such names through.
fn known<T: DeserializeOwned>(name: &str) -> T {
    let words: StrDeserializer<'_, serde::de::value::Error> =
        serde::de::IntoDeserializer::into_deserializer(name);
    T::deserialize(words).expect("the parser of arguments lists the names of the API")
}
