//! The description of a container for the engine.

use super::{LABEL_FOLDER, LABEL_TASK, Worker};
use crate::{
    access,
    account::{self, Account},
    task_folder::Order,
};
use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, ResourcesUlimits};
use rustix::process::{Resource, getrlimit};
use std::{collections::HashMap, fs};

const PROCESSES_MAX: i64 = 16_384;
const SHM_BYTES: i64 = 64 << 20;
const FILES_MAX: u64 = 1 << 20;

/// What is asked of the engine. Container paths were put into the launch when the task was looked at.
pub(super) fn body(worker: &Worker, order: &Order) -> Result<ContainerCreateBody, String> {
    let spec = &order.spec;
    let account = spec.run_as.map(|(user, group)| Account::of(user, group)).transpose()?;
    check_binds(order, account.as_ref())?;
    // Whoever is not root needs none of what root may do, and becomes root by no program of the image.
    let is_confined = account.as_ref().is_some_and(|account| account.user != 0);
    let environment = order.launch.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let labels = [(LABEL_FOLDER, worker.folder_id.clone()), (LABEL_TASK, spec.id.to_string())];
    let some = |words: &[String]| Some(words.to_vec()).filter(|words| !words.is_empty());
    Ok(ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: some(&spec.command),
        cmd: some(&spec.args),
        env: Some(environment.chain([worker.mark(spec.id)]).collect()),
        working_dir: spec.working_dir.as_ref().map(|folder| folder.display().to_string()),
        user: account.as_ref().map(|account| format!("{}:{}", account.user, account.group)),
        tty: Some(spec.terminal),
        open_stdin: Some(spec.terminal || spec.stdin),
        labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
        host_config: Some(HostConfig {
            cap_drop: is_confined.then(|| vec!["ALL".into()]),
            security_opt: is_confined.then(|| vec!["no-new-privileges".into()]),
            group_add: account.map(|account| account.groups.iter().map(u32::to_string).collect()),
            ..host(order)
        }),
        ..ContainerCreateBody::default()
    })
}

/// What a person named must be reached by whoever the container runs as: the engine itself asks nobody.
fn check_binds(order: &Order, account: Option<&Account>) -> Result<(), String> {
    let Some(account) = account.filter(|_| account::is_root()) else { return Ok(()) };
    order.launch.binds.iter().filter(|mount| !mount.lent).try_for_each(|mount| {
        let source = mount.source.display();
        access::as_account(account, &mount.source).map(drop).map_err(|error| {
            format!("{source} could not be mounted: user {} may not reach it ({error})", account.user)
        })
    })
}

fn host(order: &Order) -> HostConfig {
    let spec = &order.spec;
    let binds = order.launch.binds.iter().map(|mount| {
        let access = if mount.read_only { "ro" } else { "rw" };
        format!("{}:{}:{access}", mount.source.display(), mount.target.display())
    });
    let limit = |bytes: u64| Some(bytes as i64).filter(|bytes| *bytes > 0);
    HostConfig {
        // The network is the machine's, so that ports are what they are.
        network_mode: Some("host".into()),
        binds: Some(binds.collect()),
        memory: limit(spec.memory.0),
        nano_cpus: limit(spec.cpu.0.saturating_mul(1_000_000)),
        pids_limit: Some(PROCESSES_MAX),
        shm_size: Some(if spec.large_shm { large_shm(order) } else { SHM_BYTES }),
        ulimits: Some(ulimits()),
        device_requests: devices(order),
        ..HostConfig::default()
    }
}

/// Those of the agent, and no more than a sound task needs: an engine's own defaults may be above what it may set on this
/// machine. A number also where there is no limit, because not every engine has a word for that.
fn ulimits() -> Vec<ResourcesUlimits> {
    [("nofile", Resource::Nofile, FILES_MAX), ("nproc", Resource::Nproc, PROCESSES_MAX as u64)]
        .into_iter()
        .map(|(name, resource, most)| {
            let limits = getrlimit(resource);
            let value = |limit: Option<u64>| Some(limit.unwrap_or(most).min(most) as i64);
            ResourcesUlimits {
                name: Some(name.into()),
                soft: value(limits.current),
                hard: value(limits.maximum),
            }
        })
        .collect()
}

/// Half of the memory that the task may use.
fn large_shm(order: &Order) -> i64 {
    if !order.spec.memory.is_zero() {
        return (order.spec.memory.0 / 2) as i64;
    }
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().next().and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<i64>().ok());
    kib.unwrap_or(1 << 20) * 1024 / 2
}

/// Declared devices are no devices of the engine.
fn devices(order: &Order) -> Option<Vec<DeviceRequest>> {
    let ids: Vec<String> = order.spec.devices.iter().map(|device| device.uuid.clone()).collect();
    let real = !ids.is_empty() && ids.iter().all(|id| id.starts_with("GPU-") || id.starts_with("MIG-"));
    real.then(|| {
        vec![DeviceRequest {
            driver: Some("nvidia".into()),
            device_ids: Some(ids),
            capabilities: Some(vec![vec!["gpu".into()]]),
            options: Some(HashMap::new()),
            ..DeviceRequest::default()
        }]
    })
}
