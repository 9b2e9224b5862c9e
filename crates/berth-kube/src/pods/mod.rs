//! The objects of one run of a workload: Pods, claims of devices, Services. Pure: from what was decided to what is
//! written; who writes it, and in which order, is decided elsewhere.

mod claims;
mod environment;
mod services;

pub use claims::{claim, claim_status};
pub use services::{ingress, services};

use crate::{
    api::{Amount, Restart, Workload, WorkloadKind, WorkloadSpec},
    convert::{self, Refusal},
    guard, names, quantity,
};
use berth_types::{Bytes, DeviceShare, Gpus, Place, Share};
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, EmptyDirVolumeSource, HostPathVolumeSource, LocalObjectReference,
        PersistentVolumeClaimVolumeSource, Pod, PodResourceClaim, PodSpec, ResourceClaim, SecurityContext,
        Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use std::collections::BTreeMap;

/// The container of a worker, unless its template names another first.
pub const MAIN_CONTAINER: &str = "main";

/// One run of a workload, with every worker that has a place.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The project that pays for it.
    pub project: &'a str,
    /// Which run, from one.
    pub number: u32,
    /// Its workers, by rising rank.
    pub seats: &'a [Seat<'a>],
}

/// A worker in its place.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    /// What was decided for it.
    pub place: &'a Place,
    /// Where that is.
    pub node: &'a SeatNode,
    /// Which Pod in this place it is during the run, from one: of completions, one follows the other.
    pub turn: u32,
    /// The completion it is for.
    pub index: Option<u32>,
}

/// A node as its Pods must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatNode {
    /// Its name.
    pub name: String,
    /// Its GPUs, and how they are asked for.
    pub gpus: NodeGpus,
}

/// The GPUs of a node, and how they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeGpus {
    /// By claims: devices published by a driver, which may be shared.
    Claimed {
        /// The pool of the driver that they are in.
        pool: String,
        /// The devices, by position.
        devices: Vec<ClaimedGpu>,
    },
    /// By count: whole devices only, chosen by the node.
    Counted {
        /// The memory of each.
        memory: Bytes,
    },
}

/// A device of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedGpu {
    /// As the driver names it.
    pub name: String,
    /// Its memory.
    pub memory: Bytes,
}

impl SeatNode {
    /// The memory of a device.
    fn memory(&self, device: u8) -> Option<Bytes> {
        match &self.gpus {
            NodeGpus::Claimed { devices, .. } => devices.get(usize::from(device)).map(|device| device.memory),
            NodeGpus::Counted { memory } => Some(*memory),
        }
    }
}

impl<'a> Run<'a> {
    /// The worker of a rank.
    pub fn seat(&self, rank: u32) -> Option<Seat<'a>> {
        self.seats.iter().copied().find(|seat| seat.place.rank == rank)
    }

    /// Labels of everything that belongs to one worker.
    fn labels(&self, seat: Seat<'_>) -> BTreeMap<String, String> {
        let mut labels = labels(self.workload, self.project);
        labels.insert(names::RANK.into(), seat.place.rank.to_string());
        labels.insert(names::RUN.into(), self.number.to_string());
        if let Some(index) = seat.index {
            labels.insert(names::INDEX.into(), index.to_string());
            labels.insert(names::TURN.into(), seat.turn.to_string());
        }
        labels
    }
}

/// The name of the Pod of one worker in one run, and of those that follow it in its place.
pub fn pod_name(workload: &str, run: u32, rank: u32, turn: u32) -> String {
    match turn {
        0 | 1 => format!("{workload}-r{run}-{rank}"),
        turn => format!("{workload}-r{run}-{rank}-{turn}"),
    }
}

/// The name of the claim of such a Pod.
pub fn claim_name(workload: &str, run: u32, rank: u32, turn: u32) -> String {
    format!("{}-gpu", pod_name(workload, run, rank, turn))
}

/// The host name of a worker, the same in every run.
pub fn host_name(workload: &str, rank: u32) -> String {
    format!("{workload}-{rank}")
}

/// Whether a workload is a gang, whose workers must find each other.
pub fn is_gang(workload: &Workload) -> bool {
    let spec = &workload.spec;
    // Completions do not know of each other.
    spec.completions.is_none() && (spec.workers.unwrap_or(1) > 1 || spec.kind == WorkloadKind::Distributed)
}

/// The container of a worker, as far as the workload says it: its name, and whether it can be typed to.
pub fn main_container(workload: &Workload) -> Container {
    let template = guard::template(workload).ok().flatten().and_then(|template| template.0.spec);
    let first = template.and_then(|spec| spec.containers.into_iter().next());
    let mut main = first.unwrap_or_else(|| Container { name: MAIN_CONTAINER.into(), ..Container::default() });
    fill_terminal(&mut main, &workload.spec);
    main
}

/// A terminal is typed to, or it would be none.
fn fill_terminal(main: &mut Container, spec: &WorkloadSpec) {
    if spec.tty || spec.stdin {
        main.stdin = Some(true);
    }
    if spec.tty {
        main.tty = Some(true);
    }
}

/// What the node does when a worker ends. One that is started again alone is so in its place, without asking anybody.
fn restart_policy(spec: &WorkloadSpec) -> &'static str {
    // Tries of a completion are counted, and nodes do not count.
    if spec.completions.is_some() {
        return "Never";
    }
    match (spec.restart, spec.kind) {
        (Some(Restart::Worker) | None, WorkloadKind::Inference) => "Always",
        (Some(Restart::Worker), _) => "OnFailure",
        (Some(Restart::Gang) | None, _) => "Never",
    }
}

/// The reference by which an object of a workload goes with it.
pub fn owner(workload: &Workload) -> Option<OwnerReference> {
    workload.controller_owner_ref(&())
}

/// Labels of everything that belongs to a workload.
fn labels(workload: &Workload, project: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (names::WORKLOAD.to_owned(), workload.name_any()),
        (names::PROJECT.to_owned(), project.to_owned()),
        (names::KIND.to_owned(), workload.spec.kind.text().to_owned()),
    ]);
    if let Some(uid) = workload.uid() {
        labels.insert(names::WORKLOAD_UID.into(), uid);
    }
    labels
}

/// The Pod of one worker. It is bound to its node later.
pub fn pod(run: &Run<'_>, rank: u32) -> Result<Pod, Refusal> {
    let workload = run.workload;
    let (name, spec) = (workload.name_any(), &workload.spec);
    let seat = run.seat(rank).ok_or_else(|| {
        Refusal::new("NoPlace", format!("worker {rank} of {name} has no place in run {}", run.number))
    })?;
    let template = guard::template(workload)?.unwrap_or_default().0;
    let given = template.metadata.unwrap_or_default();
    let mut pod = template.spec.unwrap_or_default();
    if pod.containers.is_empty() {
        pod.containers.push(Container { name: MAIN_CONTAINER.into(), ..Container::default() });
    }
    // What is said in our name is said by us alone.
    let not_ours = |given: Option<BTreeMap<String, String>>| {
        let mut given = given.unwrap_or_default();
        given.retain(|key, _| !key.starts_with(names::GROUP));
        given
    };
    let mut labels = not_ours(given.labels);
    labels.extend(run.labels(seat));
    if let Some(preemptible) = spec.preemptible {
        labels.insert(names::PREEMPTIBLE.into(), preemptible.to_string());
    }
    if let Some(priority) = &spec.priority {
        labels.insert(names::PRIORITY.into(), priority.text().into_owned());
    }
    let mut annotations = not_ours(given.annotations);
    annotations.extend(spec.user.iter().map(|user| (names::USER.to_owned(), user.clone())));

    if seat.index.is_some() {
        let of = |taken: &DeviceShare| format!("{}={}", taken.device, taken.share.millionths());
        let devices: Vec<String> = seat.place.devices.iter().map(of).collect();
        annotations.insert(names::DEVICES.into(), devices.join(","));
    }

    fill_main(&mut pod.containers[0], run, seat);
    fill_gpus(&mut pod, run, seat)?;
    fill_volumes(&mut pod, workload);
    let grace = convert::grace(spec)?;
    let secrets = spec.image_pull_secrets.iter();
    let secrets: Vec<LocalObjectReference> =
        secrets.map(|name| LocalObjectReference { name: name.clone() }).collect();
    if !secrets.is_empty() {
        pod.image_pull_secrets = Some(secrets);
    }
    if spec.host_network {
        pod.host_network = Some(true);
    }
    if pod.host_network == Some(true) && pod.dns_policy.is_none() {
        // Otherwise workers could not find each other by name.
        pod.dns_policy = Some("ClusterFirstWithHostNet".into());
    }
    if is_gang(workload) {
        pod.hostname = Some(host_name(&name, rank));
        pod.subdomain = Some(name.clone());
    }
    pod.scheduler_name = Some(names::SCHEDULER.into());
    pod.restart_policy = Some(restart_policy(spec).into());
    pod.termination_grace_period_seconds = Some(i64::try_from(grace.0.div_ceil(1000)).unwrap_or(i64::MAX));
    pod.service_account_name.get_or_insert_with(|| names::WORKLOAD_ACCOUNT.into());
    pod.automount_service_account_token.get_or_insert(false);
    // Every Service of the namespace would become a dozen variables of every worker.
    pod.enable_service_links.get_or_insert(false);
    let metadata = ObjectMeta {
        name: Some(pod_name(&name, run.number, rank, seat.turn)),
        namespace: workload.namespace(),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: owner(workload).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(Pod { metadata, spec: Some(pod), status: None })
}

fn fill_main(main: &mut Container, run: &Run<'_>, seat: Seat<'_>) {
    let spec = &run.workload.spec;
    main.image = Some(spec.image.clone());
    let set = |ours: &Vec<String>| (!ours.is_empty()).then(|| ours.clone());
    main.command = set(&spec.command).or_else(|| main.command.take());
    main.args = set(&spec.args).or_else(|| main.args.take());
    main.working_dir = spec.working_dir.clone().or_else(|| main.working_dir.take());
    fill_terminal(main, spec);
    main.image_pull_policy = spec.image_pull_policy.clone().or_else(|| main.image_pull_policy.take());
    let mut environment = main.env.take().unwrap_or_default();
    environment.retain(|theirs| spec.env.iter().all(|ours| ours.name != theirs.name));
    environment.extend(spec.env.iter().cloned());
    main.env = Some(environment::with_ours(environment, run, seat));
    let ports =
        spec.ports.iter().map(|port| ContainerPort { container_port: *port, ..ContainerPort::default() });
    let ports: Vec<ContainerPort> = main.ports.take().unwrap_or_default().into_iter().chain(ports).collect();
    main.ports = (!ports.is_empty()).then_some(ports);
    let resources = main.resources.get_or_insert_default();
    let mut requests = resources.requests.take().unwrap_or_default();
    let amount = |name: &'static str, amount: &Option<Amount>| {
        amount.as_ref().map(|amount| (name.to_owned(), Quantity(amount.text().into_owned())))
    };
    requests.extend(amount("cpu", &spec.cpu));
    requests.extend(amount("memory", &spec.memory));
    resources.requests = (!requests.is_empty()).then_some(requests);
    if spec.privileged || spec.run_as_user.is_some() {
        let context = main.security_context.get_or_insert_with(SecurityContext::default);
        context.run_as_user = spec.run_as_user.or(context.run_as_user);
        if spec.privileged {
            context.privileged = Some(true);
        }
    }
}

/// How the worker asks for its GPUs: by a claim, or by count.
fn fill_gpus(pod: &mut PodSpec, run: &Run<'_>, seat: Seat<'_>) -> Result<(), Refusal> {
    if seat.place.devices.is_empty() {
        return Ok(());
    }
    let name = run.workload.name_any();
    match &seat.node.gpus {
        NodeGpus::Claimed { .. } => {
            pod.resource_claims = Some(vec![PodResourceClaim {
                name: names::CLAIM_REQUEST.into(),
                resource_claim_name: Some(claim_name(&name, run.number, seat.place.rank, seat.turn)),
                ..PodResourceClaim::default()
            }]);
            let claim = ResourceClaim { name: names::CLAIM_REQUEST.into(), request: None };
            pod.containers[0].resources.get_or_insert_default().claims = Some(vec![claim]);
        }
        NodeGpus::Counted { .. } => {
            if seat.place.devices.iter().any(|taken| taken.share != Share::WHOLE) {
                let text = format!(
                    "node {} counts its GPUs and cannot share one: fractions need a node with the driver {}",
                    seat.node.name,
                    names::DRIVER
                );
                return Err(Refusal::new("NoFractionsHere", text));
            }
            let count = Quantity(seat.place.devices.len().to_string());
            let resources = pod.containers[0].resources.get_or_insert_default();
            for named in [&mut resources.limits, &mut resources.requests] {
                named.get_or_insert_default().insert(names::COUNTED_GPU.into(), count.clone());
            }
        }
    }
    // Nodes with GPUs are often kept free of other work by this taint.
    let toleration = Toleration {
        key: Some(names::COUNTED_GPU.into()),
        operator: Some("Exists".into()),
        ..Toleration::default()
    };
    pod.tolerations.get_or_insert_default().push(toleration);
    Ok(())
}

fn fill_volumes(pod: &mut PodSpec, workload: &Workload) {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for (index, wanted) in workload.spec.volumes.iter().enumerate() {
        let name = format!("volume-{index}");
        let claim = wanted.claim.as_ref().map(|claim| PersistentVolumeClaimVolumeSource {
            claim_name: claim.clone(),
            read_only: wanted.read_only.then_some(true),
        });
        let host_path = wanted
            .host_path
            .as_ref()
            .map(|path| HostPathVolumeSource { path: path.clone(), ..HostPathVolumeSource::default() });
        volumes.push(Volume {
            name: name.clone(),
            persistent_volume_claim: claim,
            host_path,
            ..Volume::default()
        });
        mounts.push(VolumeMount {
            name,
            mount_path: wanted.path.clone(),
            sub_path: wanted.sub_path.clone(),
            read_only: wanted.read_only.then_some(true),
            ..VolumeMount::default()
        });
    }
    if workload.spec.large_shm {
        let limit = workload.spec.memory.as_ref().map(|memory| Quantity(memory.text().into_owned()));
        let memory = EmptyDirVolumeSource { medium: Some("Memory".into()), size_limit: limit };
        volumes.push(Volume { name: "dshm".into(), empty_dir: Some(memory), ..Volume::default() });
        mounts.push(VolumeMount {
            name: "dshm".into(),
            mount_path: "/dev/shm".into(),
            ..VolumeMount::default()
        });
    }
    if volumes.is_empty() {
        return;
    }
    pod.volumes.get_or_insert_default().extend(volumes);
    pod.containers[0].volume_mounts.get_or_insert_default().extend(mounts);
}

/// The GPUs of a place, as people read them.
fn gpus_text(place: &Place) -> String {
    let gpus: Gpus = place.gpus();
    gpus.to_string()
}

/// Bytes as a quantity.
fn bytes_quantity(bytes: Bytes) -> Quantity {
    Quantity(quantity::bytes_text(bytes))
}

#[cfg(test)]
mod tests;
