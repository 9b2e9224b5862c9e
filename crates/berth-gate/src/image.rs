//! What is in the cluster, in the words of the server.

use crate::{differs, progress};
use berth_api::{
    CoresAmount, Ended, Eviction, GpuAmount, KindName, MemoryAmount, MountRequest, PriorityName, Restart,
    ServiceType, Status, VolumeMount, WorkloadRequest,
};
use berth_kube::{
    api::{self, WorkloadPhase},
    convert, names, tenancy,
    view::{PodView, Reading},
};
use berth_server::{ClusterImage, ClusterTask, ClusterVolume, ClusterWorkload, ParkedBecause};
use berth_types::{Bytes, Completed, Gpus, Phase, Place, ProjectId, Time, Workload, WorkloadId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::BTreeMap;

/// Everything that is there.
pub(crate) fn image(reading: &Reading<'_>) -> ClusterImage {
    let state = reading.engine().state();
    let projects: BTreeMap<String, (ProjectId, String)> = reading
        .projects()
        .flat_map(|project| {
            let name = project.metadata.name.clone().unwrap_or_default();
            let id = state.projects.values().find(|known| known.name == name).map(|known| known.id);
            let spaces = tenancy::namespaces(project).into_iter();
            spaces.filter_map(move |space| Some((space, (id?, name.clone()))))
        })
        .collect();
    let mut image = ClusterImage::default();
    for project in reading.projects() {
        let name = project.metadata.name.as_deref().unwrap_or_default();
        let known = state.projects.values().find(|known| known.name == name);
        if let (Some(known), Some(at)) = (known, &project.metadata.creation_timestamp) {
            image.project_created.insert(known.id, convert::time(&MicroTime(at.0)));
        }
    }
    for (id, workload) in reading.workloads() {
        let Some((project, name)) =
            workload.metadata.namespace.as_ref().and_then(|space| projects.get(space))
        else {
            continue;
        };
        let status = workload.status.clone().unwrap_or_default();
        if status.phase.is_some_and(WorkloadPhase::is_final) {
            image.over.push(over(id, workload, &status, name));
        } else {
            image.workloads.extend(unfinished(reading, id, workload, &status, (*project, name)));
        }
    }
    let volume = |(space, name, created): (&str, &str, Time)| {
        let (_, project) = projects.get(space)?;
        Some(ClusterVolume { name: name.into(), project: project.clone(), created })
    };
    image.volumes = reading.volume_claims().filter_map(volume).collect();
    image.state = state;
    for (id, _) in reading.workloads().filter(|(id, _)| !reading.all_run(*id)) {
        // To the engine a place is taken when its Pod is bound; to people it starts until it runs.
        if let Some(mut workload) = image.state.workloads.get_mut(&id)
            && let Phase::Running { confirmed, .. } = &mut workload.phase
        {
            *confirmed = false;
        }
    }
    image
}

fn unfinished(
    reading: &Reading<'_>,
    id: WorkloadId,
    workload: &api::Workload,
    status: &api::WorkloadStatus,
    (project, project_name): (ProjectId, &str),
) -> Option<ClusterWorkload> {
    let known = reading.engine().workload(id);
    let user = workload.spec.user.clone().unwrap_or_default();
    let queued = queued_at(workload, status);
    let parked = match known {
        Some(_) => None,
        // What the engine does not know asks for nothing; it must be something all the same.
        None => {
            let spec = convert::workload_spec(workload, project, &user).ok()?;
            let since =
                status.finished_at.as_ref().or(status.started_at.as_ref()).map_or(queued, convert::time);
            let because = match (workload.spec.suspend, &status.retry_at) {
                (true, _) => ParkedBecause::Suspended(since),
                (false, Some(at)) => ParkedBecause::BackOff(convert::time(at)),
                (false, None) => ParkedBecause::Refused,
            };
            Some((because, Box::new(Workload::submitted(id, spec, queued))))
        }
    };
    let refusal = reading.refusal(id).map(|refusal| refusal.message.clone());
    let started = status.started_at.as_ref().map(convert::time);
    Some(ClusterWorkload {
        id,
        name: workload.metadata.name.clone().unwrap_or_default(),
        request: request(workload, project_name),
        parked,
        first_started: started,
        run_started: started,
        runs: number(status.runs),
        failures: number(status.failures),
        preemptions: number(status.evictions),
        last_eviction: eviction(status),
        done: done(status),
        // A Pod may be seen to run before it is written down since when the workload does.
        tasks: known
            .map(|known| tasks(known, &reading.pods(id), started.unwrap_or(queued)))
            .unwrap_or_default(),
        ends: workload.metadata.deletion_timestamp.is_some(),
        message: refusal.or_else(|| status.message.clone()),
        progress: match workload.spec.completions {
            Some(_) => None,
            None => status.progress.as_ref().map(progress::report),
        },
        user,
        project,
        submitted: queued,
    })
}

fn tasks(workload: &Workload, pods: &[PodView], started: Time) -> Vec<ClusterTask> {
    let min = workload.spec.tasks.min();
    let leaving = workload.leaving().iter().map(|place| (place, true));
    let places = match &workload.phase {
        Phase::Held { .. } => Vec::new(),
        _ => workload.places().map(|place| (place, false)).collect(),
    };
    let task = |(place, stopping): (&Place, bool)| {
        let pod = pods.iter().rfind(|pod| pod.rank == place.rank);
        ClusterTask {
            place: place.clone(),
            run: pod.map_or(1, |pod| pod.run),
            extra: place.rank >= min,
            // Of completions, a worker is at work between one and the next.
            started: pod
                .is_some_and(|pod| pod.running || pod.turn > 1 || (pod.over && pod.index.is_some()))
                .then_some(started),
            stopping: stopping || pod.is_some_and(|pod| pod.leaving),
        }
    };
    places.into_iter().chain(leaving).map(task).collect()
}

/// A finished workload, as it is shown.
fn over(
    id: WorkloadId,
    workload: &api::Workload,
    status: &api::WorkloadStatus,
    project: &str,
) -> berth_api::Workload {
    let stands = match status.phase {
        Some(WorkloadPhase::Succeeded) => Status::Succeeded,
        Some(WorkloadPhase::TimedOut) => Status::TimedOut,
        _ => Status::Failed,
    };
    let asked = convert::workload_spec(workload, ProjectId(0), "").ok();
    let charge = asked.as_ref().and_then(|spec| spec.request.gpu.charge_on(Bytes(1)));
    let tasks = asked.as_ref().map(|spec| spec.tasks);
    let min = tasks.map_or(1, |tasks| tasks.min());
    berth_api::Workload {
        ran_secs: None,
        indices: Vec::new(),
        id: id.0,
        name: workload.metadata.name.clone().unwrap_or_default(),
        project: project.into(),
        user: workload.spec.user.clone().unwrap_or_default(),
        kind: kind(workload.spec.kind),
        status: stands,
        message: status.message.clone(),
        priority: asked.as_ref().map_or(0, |spec| spec.priority),
        preemptible: asked.as_ref().is_some_and(|spec| spec.preemptible),
        submitted_at: queued_at(workload, status).into(),
        started_at: status.started_at.as_ref().map(|at| convert::time(at).into()),
        running_since: None,
        ended: Some(Ended {
            at: status.finished_at.as_ref().map_or(Time(0), convert::time).into(),
            exit_code: status.exit_code,
            signal: None,
        }),
        gpus_requested: GpuAmount(charge.unwrap_or(Gpus::ZERO).times(u64::from(min))),
        gpus_allocated: GpuAmount(Gpus::ZERO),
        workers_min: min,
        workers_max: tasks.map_or(1, |tasks| tasks.max()),
        tasks: Vec::new(),
        runs: number(status.runs),
        failures: number(status.failures),
        preemptions: number(status.evictions),
        evictions: eviction(status).into_iter().collect(),
        progress: match workload.spec.completions() {
            Some(all) => Some(berth_server::completions_shown(done(status).count(), all)),
            None => status.progress.as_ref().map(progress::shown),
        },
        checkpoint_at: status.checkpoint_at.as_ref().map(|at| convert::time(at).into()),
        idle_since: None,
        urls: status.urls.clone(),
        request: request(workload, project),
    }
}

/// When and why it was last stopped for others.
fn eviction(status: &api::WorkloadStatus) -> Option<Eviction> {
    let why = status.last_eviction.clone()?;
    Some(Eviction {
        at: convert::time(status.evicted_at.as_ref()?).into(),
        rule: why.rule,
        winner: why.winner,
        lost_gpu_secs: u64::try_from(why.lost_gpu_seconds).unwrap_or(0),
    })
}

/// Completions that are done.
fn done(status: &api::WorkloadStatus) -> Completed {
    status.completed.as_deref().map(Completed::from_text).unwrap_or_default()
}

fn queued_at(workload: &api::Workload, status: &api::WorkloadStatus) -> Time {
    let created = workload.metadata.creation_timestamp.as_ref().map(|at| MicroTime(at.0));
    status.queued_at.as_ref().or(created.as_ref()).map_or(Time(0), convert::time)
}

fn number(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn kind(kind: api::WorkloadKind) -> KindName {
    match kind {
        api::WorkloadKind::Train => KindName::Train,
        api::WorkloadKind::Interactive => KindName::Interactive,
        api::WorkloadKind::Distributed => KindName::Distributed,
        api::WorkloadKind::Inference => KindName::Inference,
    }
}

/// What was asked for, as somebody would ask the server for it. Values that come from secrets stay there.
fn request(workload: &api::Workload, project: &str) -> WorkloadRequest {
    let spec = &workload.spec;
    let seconds = |text: &Option<String>| {
        text.as_deref().and_then(|text| berth_kube::quantity::span(text).ok()).map(berth_types::Span::as_secs)
    };
    let claims = spec.volumes.iter().filter_map(|volume| {
        let name = volume.claim.clone()?;
        Some(VolumeMount { name, target: volume.path.clone(), read_only: volume.read_only })
    });
    let folders = spec.volumes.iter().filter_map(|volume| {
        let source = volume.host_path.clone()?;
        Some(MountRequest { source, target: volume.path.clone(), read_only: volume.read_only })
    });
    let topology = spec.topology.clone().unwrap_or_default();
    // The server fills in the same where a request leaves it out.
    let parallelism = spec.parallelism.and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    let (command, args) = differs::asked(workload);
    let at_once = spec.completions().map(|completions| parallelism.min(completions));
    WorkloadRequest {
        name: workload.metadata.name.clone(),
        project: project.into(),
        kind: kind(spec.kind),
        image: spec.image.clone(),
        command,
        args,
        framework: differs::framework(workload),
        notebook: differs::is_notebook(workload),
        environment: spec.env.iter().filter_map(|one| Some((one.name.clone(), one.value.clone()?))).collect(),
        gpus: spec.gpus.as_ref().and_then(|amount| amount.gpus().ok()).map(GpuAmount),
        gpu_memory: spec.gpu_memory.as_ref().and_then(|amount| amount.bytes().ok()).map(MemoryAmount),
        gpu_devices: spec.gpu_devices.and_then(|count| u8::try_from(count).ok()),
        gpu_models: spec.gpu_models.clone(),
        cpu: spec.cpu.as_ref().and_then(|amount| amount.cpu().ok()).map(CoresAmount),
        memory: spec.memory.as_ref().and_then(|amount| amount.bytes().ok()).map(MemoryAmount),
        workers: at_once.or_else(|| spec.workers.and_then(|count| u32::try_from(count).ok())),
        min_workers: spec.min_workers.and_then(|count| u32::try_from(count).ok()),
        completions: spec.completions(),
        parallelism: at_once,
        restart: match (spec.restart, at_once) {
            (Some(api::Restart::Gang), None) => Some(Restart::Gang),
            (Some(api::Restart::Worker), None) | (_, Some(_)) => Some(Restart::Worker),
            (None, None) => None,
        },
        priority: spec.priority.as_ref().map(|priority| PriorityName::Name(priority.text().into_owned())),
        preemptible: spec.preemptible,
        max_run_secs: seconds(&spec.max_run_time),
        backoff_limit: Some(convert::backoff_limit(spec)),
        grace_secs: seconds(&spec.grace_period),
        node_pool: spec.node_pool.clone(),
        node_selector: spec.node_selector.clone(),
        topology_required: topology.required,
        topology_preferred: topology.preferred,
        spread: spec.spread,
        apart: spec.apart,
        mounts: folders.collect(),
        volumes: claims.collect(),
        ports: spec.ports.iter().filter_map(|port| u16::try_from(*port).ok()).collect(),
        service_type: spec.service_type.map(|service| match service {
            api::ServiceType::ClusterIP => ServiceType::Portforward,
            api::ServiceType::NodePort => ServiceType::Nodeport,
            api::ServiceType::LoadBalancer => ServiceType::Loadbalancer,
            api::ServiceType::Ingress => ServiceType::Ingress,
        }),
        large_shm: spec.large_shm,
        host_network: spec.host_network,
        privileged: spec.privileged,
        working_dir: spec.working_dir.clone(),
        stdin: spec.stdin,
        tty: spec.tty,
        run_as: spec.run_as_user.map(|user| user.to_string()),
        command_line: note(workload, names::COMMAND_LINE),
        progress_pattern: note(workload, names::PROGRESS_PATTERN),
        ..WorkloadRequest::default()
    }
}

/// What is noted beside a workload.
pub(crate) fn note(workload: &api::Workload, name: &str) -> Option<String> {
    workload.metadata.annotations.as_ref()?.get(name).cloned()
}
