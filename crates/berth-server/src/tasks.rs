//! Between the platform and the agent: from a task that was decided to everything that is needed to run it.

use crate::{
    auth::TaskTokens,
    controller::Message,
    frameworks::{self, Gang, Started},
    platform::{self, NOTEBOOK_TOKEN, Platform, Seen, TaskExit, TaskKey, TaskReport},
    samples::Measured,
};
use berth_agent::{Exit, Fact, Gpu, Granted, Host, Mount, RuntimeKind, TaskId, TaskSpec, Wanted};
use berth_api::{Framework, RuntimeName};
use berth_types::{Span, WorkloadId};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

/// GPUs are looked at this often.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// What the agent is told, with all it needs.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    start: Vec<TaskSpec>,
    stop: Vec<(TaskId, Span)>,
    forget: Vec<WorkloadId>,
}

/// Knows the agent, and what tasks are told about where they are.
#[derive(Clone)]
pub(crate) struct Tasks {
    pub(crate) host: Arc<dyn Host>,
    /// Where volumes are.
    pub(crate) volumes: PathBuf,
    pub(crate) tokens: TaskTokens,
    /// This very program, which takes `mpirun` from one worker to another.
    pub(crate) program: String,
    /// Where workloads report to.
    pub(crate) report_url: String,
    /// The GPUs of this machine, as they were at the start; none when nodes are declared.
    pub(crate) gpus: Arc<[Gpu]>,
}

impl Tasks {
    /// Everything the agent needs to carry out orders.
    pub(crate) fn prepare(&self, orders: &platform::Orders, platform: &Platform) -> Orders {
        Orders {
            start: orders.start.iter().filter_map(|key| self.spec(*key, platform)).collect(),
            stop: orders.stop.iter().map(|(key, grace)| (task_id(*key), *grace)).collect(),
            forget: orders.forget.clone(),
        }
    }

    /// Tells the agent.
    pub(crate) fn give(&self, orders: Orders) {
        let Orders { start, stop, forget } = orders;
        start.into_iter().for_each(|spec| self.host.ensure_started(spec));
        stop.into_iter().for_each(|(id, grace)| self.host.ensure_stopped(id, grace));
        forget.into_iter().for_each(|workload| self.host.forget(workload));
    }

    /// Tells the agent what should be, when it cannot know.
    pub(crate) fn recover(&self, platform: &Platform) {
        let mut wanted = Vec::new();
        for record in platform.unfinished() {
            for (rank, task) in &record.tasks {
                let key = TaskKey { workload: record.id, run: task.run, rank: *rank };
                wanted.extend(self.spec(key, platform).map(|spec| Wanted { spec, stopping: task.stopping }));
            }
        }
        self.host.recover(wanted);
    }

    /// The token that the notebook of a workload asks for, if it is one.
    pub(crate) fn notebook_token(&self, platform: &Platform, id: WorkloadId) -> Option<String> {
        let request = &platform.record(id).filter(|record| record.request.notebook)?.request;
        let own = request.environment.get(NOTEBOOK_TOKEN).cloned();
        Some(own.unwrap_or_else(|| self.tokens.notebook(id)))
    }

    fn spec(&self, key: TaskKey, platform: &Platform) -> Option<TaskSpec> {
        let record = platform.record(key.workload)?;
        let task = record.tasks.get(&key.rank)?;
        let request = &record.request;
        let nodes = platform.engine().nodes();
        let node = nodes.get(&task.place.node)?;
        let devices = task.place.devices.iter().filter_map(|taken| {
            let device = node.devices.get(usize::from(taken.device))?;
            let real = self.gpus.get(usize::from(taken.device));
            Some(Granted {
                index: taken.device,
                uuid: real.map(|gpu| gpu.uuid.clone()).unwrap_or_default(),
                minor: real.and_then(|gpu| gpu.minor),
                model: device.model.to_string(),
                memory: device.memory,
                share: taken.share,
                memory_limit: taken.share.memory(device.memory),
            })
        });
        let mounts = request.mounts.iter().map(|mount| Mount {
            source: PathBuf::from(&mount.source),
            target: PathBuf::from(&mount.target),
            read_only: mount.read_only,
            lent: false,
        });
        let volumes = request.volumes.iter().map(|mount| Mount {
            source: self.volumes.join(&mount.name),
            target: PathBuf::from(&mount.target),
            read_only: mount.read_only,
            lent: true,
        });
        let name_of =
            |id| nodes.get(&id).map_or_else(String::new, |node: &berth_types::Node| node.name.clone());
        let mut environment = request.environment.clone();
        for (name, value) in [
            ("BERTH_REPORT_URL", self.report_url.clone()),
            ("BERTH_REPORT_TOKEN", self.tokens.token(key.workload)),
        ] {
            environment.entry(name.into()).or_insert(value);
        }
        if let Some(token) = self.notebook_token(platform, key.workload) {
            environment.insert(NOTEBOOK_TOKEN.into(), token);
        }
        let devices: Vec<Granted> = devices.collect();
        let workers = record.tasks.len() as u32;
        let limits = platform.engine().workload(key.workload).map(|workload| &workload.spec.tasks);
        let (min, max) = limits.map_or((workers, workers), |tasks| (tasks.min(), tasks.max()));
        let gang = Gang { rank: key.rank, min, max, now: workers, devices: devices.len() };
        let Started { command, args } = match (request.completions, task.index) {
            (Some(completions), Some(index)) => {
                for name in ["BERTH_INDEX", "JOB_COMPLETION_INDEX"] {
                    environment.insert(name.into(), index.to_string());
                }
                environment.insert("BERTH_COMPLETIONS".into(), completions.to_string());
                frameworks::start(Framework::None, &gang, &request.command, &request.args)
            }
            // There is less left to do than there are workers.
            (Some(_), None) => Started { command: vec!["true".into()], args: Vec::new() },
            (None, _) => frameworks::start(request.framework, &gang, &request.command, &request.args),
        };
        if request.framework == Framework::Mpi {
            environment.insert("BERTH_RSH".into(), format!("{} rsh", self.program));
        }
        // Work that was submitted when it ran as the server did has no account.
        let run_as = request.run_as.clone().or_else(|| platform.usual_account(&record.user));
        environment.insert("BERTH_GANG".into(), record.gang_run.to_string());
        if min != max {
            environment.insert("BERTH_MIN_WORKERS".into(), min.to_string());
            environment.insert("BERTH_MAX_WORKERS".into(), max.to_string());
        }
        Some(TaskSpec {
            id: task_id(key),
            name: record.name.clone(),
            project: request.project.clone(),
            user: record.user.clone(),
            kind: platform::kind_text(request.kind).into(),
            node: node.name.clone(),
            runtime: runtime(request.runtime),
            image: request.image.clone(),
            local_image: request.local_image,
            command,
            args,
            environment,
            working_dir: request.working_dir.as_ref().map(PathBuf::from),
            mounts: mounts.chain(volumes).collect(),
            large_shm: request.large_shm,
            ports: request.ports.clone(),
            cpu: task.place.cpu,
            memory: task.place.memory,
            devices,
            // Completions do not know of each other.
            workers: if request.completions.is_some() { 1 } else { workers },
            hosts: record.tasks.values().map(|task| name_of(task.place.node)).collect(),
            run_as: run_as.as_deref().and_then(platform::user_ids),
            gang: record.gang_run,
            pause: task.pause,
            terminal: request.tty,
            stdin: request.stdin || request.tty,
            progress_pattern: request.progress_pattern.clone(),
            grace: Span::secs(request.grace_secs.unwrap_or(30)),
        })
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("volumes", &self.volumes).finish_non_exhaustive()
    }
}

/// By what the agent runs what was asked for.
pub(crate) fn runtime(name: RuntimeName) -> RuntimeKind {
    match name {
        RuntimeName::Process => RuntimeKind::Process,
        RuntimeName::Oci => RuntimeKind::Oci,
        RuntimeName::Docker => RuntimeKind::Docker,
    }
}

fn task_id(key: TaskKey) -> TaskId {
    TaskId { workload: key.workload, run: key.run, rank: key.rank }
}

/// Hands on what the agent saw, until it or the controller is gone.
pub(crate) fn forward(facts: Receiver<Fact>, controller: Sender<Message>) {
    for fact in facts {
        if controller.send(Message::Seen(seen(fact))).is_err() {
            return;
        }
    }
}

/// Looks at the GPUs of this machine again and again, until it is told to stop or the controller is gone.
pub(crate) fn measure(host: &dyn Host, stop: &Receiver<()>, controller: &Sender<Message>) {
    let mut wait = Duration::ZERO;
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(wait) {
        wait = MEASURE_EVERY;
        let gpus = host.devices().gpus.into_iter();
        let measured =
            gpus.map(|gpu| Measured { utilisation: gpu.utilisation, memory_used: gpu.memory_used });
        if controller.send(Message::Measured(measured.collect())).is_err() {
            return;
        }
    }
}

fn seen(fact: Fact) -> Seen {
    let id = fact.id();
    let task = TaskKey { workload: id.workload, run: id.run, rank: id.rank };
    match fact {
        Fact::Started { pid, ports, .. } => Seen::Started { task, pid, ports },
        Fact::Exited { exit, .. } => Seen::Exited {
            task,
            exit: match exit {
                Exit::Code(code) => TaskExit::Code(code),
                Exit::Signal(signal) => TaskExit::Signal(signal),
                Exit::Lost => TaskExit::Lost,
            },
        },
        Fact::Refused { message, .. } => Seen::Exited { task, exit: TaskExit::Refused(message) },
        Fact::Progress { report, at, .. } => {
            Seen::Progress { workload: task.workload, report: TaskReport::of(at, report) }
        }
        Fact::Checkpoint { .. } => Seen::Checkpoint { workload: task.workload },
    }
}
