//! Submissions: from what a person wrote to what the engine places.

use super::{Happened, Platform, record::Stop};
use crate::names;
use berth_api::{Code, Framework, KindName, PriorityName, Problem, Restart, WorkloadRequest};
use berth_types::{
    Bytes, Cpu, GpuRequest, Gpus, Kind, Name, ProjectId, Request, Selector, Share, Span, Spread, Tasks, Time,
    Topology, TopologyLevel, Workload, WorkloadId, WorkloadSpec, default_pool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU8, NonZeroU64},
};

/// Failed runs that are started again unless the request says otherwise; interactive work has none.
const BACKOFF_LIMIT: u32 = 6;
/// Seconds between notice and the end unless the request says otherwise.
const GRACE_SECS: u64 = 30;
/// What a notebook runs, and where it listens, unless the request says otherwise.
const NOTEBOOK_IMAGE: &str = "jupyter/base-notebook";
const NOTEBOOK_PORT: u16 = 8888;
/// The variable in which Jupyter looks for the token that it asks for. In its arguments everybody on the machine could read it.
pub(crate) const NOTEBOOK_TOKEN: &str = "JUPYTER_TOKEN";
/// Runs programs of the machine.
const HOST_IMAGE: &str = "bash";
/// The longest span that is accepted, a hundred years.
const SECS_MAX: u64 = 100 * 365 * 86_400;
/// Words of a command, variables, mounts and so on in one request.
const ITEMS_MAX: usize = 1_000;
/// Completions of one workload.
const COMPLETIONS_MAX: u32 = 10_000;
/// The longest text in a request.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Less than this is a number without its unit.
const MEMORY_MIN: Bytes = Bytes(1 << 20);

impl Platform {
    /// Takes a submission, or says what is wrong with it; `unfit` is what only the machine can tell.
    pub(crate) fn submit(
        &mut self,
        request: WorkloadRequest,
        unfit: Option<Problem>,
        user: &str,
        now: Time,
    ) -> Result<(WorkloadId, Vec<String>), Problem> {
        let (workload, mut request, warnings) = self.lower(request, user, now)?;
        if let Some(problem) = unfit {
            return Err(problem);
        }
        // Otherwise it would run as whoever runs the server.
        if let Some(text) = request.run_as.as_ref().filter(|text| user_ids(text).is_none()) {
            return Err(Problem::invalid(
                "run_as",
                format!("nobody looked up the user {}", names::shown(text)),
            ));
        }
        if request.run_as.is_none() {
            request.run_as = self.take_account(user, now)?;
        }
        let id = workload.id;
        let happened = Happened::Submitted { workload: Box::new(workload), request: Box::new(request) };
        self.happen(happened, now)?;
        Ok((id, warnings))
    }

    /// Ends a workload for good.
    pub(crate) fn delete(&mut self, id: WorkloadId, by: &str, now: Time) -> Result<(), Problem> {
        if self.records.get(&id).is_some_and(|record| record.stop == Some(Stop::Deleted)) {
            return Ok(());
        }
        self.happen(Happened::Stopped { workload: id, stop: Stop::Deleted, by: by.into() }, now)
    }

    /// Stops a workload until it is resumed.
    pub(crate) fn suspend(&mut self, id: WorkloadId, by: &str, now: Time) -> Result<(), Problem> {
        let record = self.records.get(&id).ok_or_else(|| super::gone(id))?;
        if let Some((super::Parked::Suspended { .. }, _)) = record.parked {
            return Ok(());
        }
        match record.stop {
            Some(Stop::Suspended | Stop::Idle) => Ok(()),
            Some(_) => Err(Problem::new(Code::WrongState, format!("{} is being ended", self.full_name(id)))),
            None => {
                self.happen(Happened::Stopped { workload: id, stop: Stop::Suspended, by: by.into() }, now)
            }
        }
    }

    /// Returns a suspended workload to the queue.
    pub(crate) fn resume(&mut self, id: WorkloadId, by: &str, now: Time) -> Result<(), Problem> {
        let record = self.records.get(&id).ok_or_else(|| super::gone(id))?;
        if record.parked.is_some() {
            return self.happen(Happened::Resumed { workload: id, by: Some(by.into()) }, now);
        }
        let name = self.full_name(id);
        match record.stop {
            Some(Stop::Suspended | Stop::Idle) => {
                Err(Problem::new(Code::WrongState, format!("{name} is still stopping"))
                    .hint("try again when it is suspended"))
            }
            _ => Err(Problem::new(Code::WrongState, format!("{name} is not suspended"))),
        }
    }

    /// From what a person wrote to what the engine places.
    pub(crate) fn lower(
        &self,
        mut request: WorkloadRequest,
        user: &str,
        now: Time,
    ) -> Result<(Workload, WorkloadRequest, Vec<String>), Problem> {
        complete(&mut request);
        check_sizes(&request)?;
        check_workers(&mut request)?;
        let project_id = self.known_project(&request.project)?;
        self.check_node_rights(project_id, &request)?;
        let id = WorkloadId(self.next_id());
        let name = self.name_of(&request, id)?;
        let mut warnings = Vec::new();

        let kind = match (request.kind, request.workers.unwrap_or(1)) {
            (KindName::Train, 2..) if request.completions.is_none() => KindName::Distributed,
            (kind, _) => kind,
        };
        let engine_kind = match kind {
            KindName::Train => Kind::Train,
            KindName::Interactive => Kind::Interactive,
            KindName::Distributed => Kind::Distributed,
            KindName::Inference => Kind::Inference,
        };
        let preemptible = request.preemptible.unwrap_or_else(|| engine_kind.preemptible());
        let priority = match &request.priority {
            None => engine_kind.priority(preemptible),
            Some(priority) => priority_number(priority)?,
        };
        let tasks = tasks(&request)?;
        let gpu = gpu_request(&request)?;
        let cpu = request.cpu.map_or(Cpu::ZERO, |cpu| cpu.0);
        let memory = request.memory.map_or(Bytes::ZERO, |memory| memory.0);
        if memory > Bytes::ZERO && memory < MEMORY_MIN {
            return Err(Problem::invalid("memory", format!("{memory} of memory let no program start"))
                .hint(format!("write a unit, as in {}Gi", memory.0)));
        }
        for model in &request.gpu_models {
            if !self
                .engine
                .nodes()
                .values()
                .any(|node| node.devices.iter().any(|device| *device.model == **model))
            {
                warnings.push(format!("no node has a GPU of model {}", names::shown(model)));
            }
        }
        let pool: Name = match &request.node_pool {
            None => default_pool(),
            Some(pool) if self.engine.nodes().values().any(|node| *node.pool() == **pool) => {
                pool.as_str().into()
            }
            Some(pool) => {
                let problem = format!("no node is in the pool {}", names::shown(pool));
                return Err(Problem::invalid("node_pool", problem).hint("`berth node list` shows the pools"));
            }
        };
        let backoff = match engine_kind {
            Kind::Interactive => 0,
            // A service is up until somebody ends it.
            Kind::Inference => u32::MAX,
            _ => BACKOFF_LIMIT,
        };
        let backoff = request.backoff_limit.unwrap_or(backoff);
        let grace = secs("grace_secs", request.grace_secs.unwrap_or(GRACE_SECS))?;
        let max_run = request.max_run_secs.map(|max| secs("max_run_secs", max)).transpose()?;
        if max_run == Some(Span::ZERO) {
            return Err(Problem::invalid("max_run_secs", "a maximum run time of 0 ends it before it begins"));
        }
        self.check_volumes(&request)?;
        let level = |text: &String| match text.as_str() {
            "node" => TopologyLevel::Node,
            label => TopologyLevel::Label(label.into()),
        };
        let topology = Topology {
            required: request.topology_required.as_ref().map(level),
            preferred: request.topology_preferred.as_ref().map(level),
        };
        let selector = request.node_selector.iter();
        let selector =
            selector.map(|(key, value)| (key.as_str().into(), BTreeSet::from([value.as_str().into()])));
        let spec = WorkloadSpec {
            name: name.clone(),
            project: project_id,
            user: user.into(),
            kind: engine_kind,
            request: Request {
                gpu,
                models: request.gpu_models.iter().map(|model| model.as_str().into()).collect(),
                cpu,
                memory,
            },
            tasks,
            pool,
            selector: Selector(selector.collect::<BTreeMap<_, _>>()),
            topology,
            spread: Spread::asked(request.spread, request.apart),
            priority,
            preemptible,
            max_run,
            // Retries are made here, after a pause during which others have the GPUs.
            retry_limit: 0,
            grace,
        };
        request.name = Some(name);
        request.name_prefix = None;
        if request.notebook {
            know_its_path(&mut request);
        }
        request.kind = kind;
        request.backoff_limit = Some(backoff);
        request.grace_secs = Some(grace.as_secs());
        Ok((Workload::submitted(id, spec, now), request, warnings))
    }

    fn known_project(&self, name: &str) -> Result<berth_types::ProjectId, Problem> {
        if let Some(id) = self.projects.get(name) {
            return Ok(*id);
        }
        if name.is_empty() {
            return Err(Problem::invalid("project", "no project is named")
                .hint("name one with -p, or choose one with `berth project set NAME`"));
        }
        let problem = Problem::new(Code::NotFound, format!("there is no project {}", names::shown(name)));
        let problem = Problem { field: Some("project".into()), ..problem };
        Err(problem.hint(match names::nearest(name, self.projects.keys().map(String::as_str)) {
            Some(near) => format!("did you mean {near}? `berth project list` shows all"),
            None => "`berth project list` shows all, `berth project create NAME` makes one".into(),
        }))
    }

    /// The name asked for, or one that is made up and free.
    fn name_of(&self, request: &WorkloadRequest, id: WorkloadId) -> Result<String, Problem> {
        let project = self.known_project(&request.project)?;
        let is_free = |name: &String| !self.names.contains_key(&(project, name.clone()));
        match (&request.name, &request.name_prefix) {
            (Some(name), _) => {
                names::check("name", name)?;
                if is_free(name) {
                    return Ok(name.clone());
                }
                let text = format!("{}/{name} exists already", request.project);
                Err(Problem::new(Code::Exists, text).hint(format!(
                    "choose another name, or `berth delete {name} -p {}` first",
                    request.project
                )))
            }
            (None, prefix) => {
                let prefix = prefix.as_deref().unwrap_or("job");
                names::check("name_prefix", prefix)?;
                // Ids are never given twice, so one of these is free.
                let name = (id.0..).map(|number| format!("{prefix}-{number}")).find(is_free);
                let name = name.expect("numbers do not end");
                names::check("name_prefix", &name)?;
                Ok(name)
            }
        }
    }

    /// Whether its project allows what it wants of the node.
    fn check_node_rights(&self, project: ProjectId, request: &WorkloadRequest) -> Result<(), Problem> {
        let Some(project) = self.engine.projects().get(&project) else { return Ok(()) };
        let wanted = [
            ("host_network", "host-network", request.host_network, project.allow_host_network),
            ("privileged", "privileged", request.privileged, project.allow_privileged),
        ];
        match wanted.into_iter().find(|(_, _, wanted, allowed)| *wanted && !allowed) {
            None => Ok(()),
            Some((field, flag, ..)) => {
                let text = format!("--{flag} is not allowed in project {}", project.name);
                let problem = Problem { field: Some(field.into()), ..Problem::new(Code::Forbidden, text) };
                Err(problem.hint(format!(
                    "whoever administers it can allow it: `berth project update {} --allow-{flag}`",
                    project.name
                )))
            }
        }
    }

    fn check_volumes(&self, request: &WorkloadRequest) -> Result<(), Problem> {
        for mount in &request.volumes {
            let project = &request.project;
            let may_use = |owner: &Option<String>| owner.as_ref().is_none_or(|owner| owner == project);
            let volume = self.find_volume(&mount.name, project).filter(|volume| may_use(&volume.project));
            if volume.is_none() {
                // A volume of another project is answered like one that does not exist: its name may be no one else's business.
                let text = format!(
                    "there is no volume {} that project {project} can use",
                    names::shown(&mount.name)
                );
                let problem = Problem { field: Some("volumes".into()), ..Problem::new(Code::NotFound, text) };
                let usable =
                    self.volumes.keys().filter(|(_, owner)| may_use(owner)).map(|(name, _)| name.as_str());
                return Err(problem.hint(match names::nearest(&mount.name, usable) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("`berth volume create {}` makes it", mount.name),
                }));
            }
            absolute("volumes", &mount.target)?;
        }
        for mount in &request.mounts {
            absolute("mounts", &mount.source)?;
            absolute("mounts", &mount.target)?;
        }
        Ok(())
    }
}

/// What belongs together among workers, completions and how they are started again.
fn check_workers(request: &mut WorkloadRequest) -> Result<(), Problem> {
    match (request.completions, request.parallelism) {
        (None, Some(_)) => {
            return Err(Problem::invalid(
                "parallelism",
                "parallelism is of completions, and none are asked for",
            )
            .hint("say how many with --completions"));
        }
        (Some(0), _) => return Err(Problem::invalid("completions", "0 completions are done already")),
        (Some(completions), _) if completions > COMPLETIONS_MAX => {
            let text = format!("{completions} are too many; at most {COMPLETIONS_MAX} are accepted");
            return Err(Problem::invalid("completions", text));
        }
        (Some(_), Some(0)) => return Err(Problem::invalid("parallelism", "nobody would do the work")),
        (Some(completions), parallelism) => {
            let parallelism = parallelism.unwrap_or(1).min(completions);
            if matches!(request.kind, KindName::Interactive | KindName::Inference) {
                let text = "work that a person waits for, or that serves, has no completions";
                return Err(Problem::invalid("completions", text));
            }
            if request.workers.is_some_and(|workers| workers != parallelism) {
                let text = "completions are worked at by as many workers as --parallelism says";
                return Err(Problem::invalid("workers", text));
            }
            request.workers = Some(parallelism);
            request.parallelism = Some(parallelism);
            request.restart = Some(Restart::Worker);
        }
        (None, None) => {}
    }
    if request.kind == KindName::Inference {
        request.restart.get_or_insert(Restart::Worker);
    }
    if request.framework != Framework::None {
        if request.completions.is_some() {
            return Err(Problem::invalid("framework", "completions do not know of each other"));
        }
        if request.command.is_empty() {
            return Err(Problem::invalid("framework", "a framework starts a command, and none is named")
                .hint("write it after `--`"));
        }
    }
    Ok(())
}

/// Fills in what a request leaves to Berth: what a notebook is, and that a command alone is a program of the machine.
pub(crate) fn complete(request: &mut WorkloadRequest) {
    if request.notebook {
        as_notebook(request);
    }
    if request.image.is_empty() && !request.command.is_empty() {
        request.image = HOST_IMAGE.into();
    }
}

/// What a notebook is, where the request does not say otherwise.
fn as_notebook(request: &mut WorkloadRequest) {
    if request.image.is_empty() {
        request.image = NOTEBOOK_IMAGE.into();
    }
    if request.kind == KindName::Train {
        request.kind = KindName::Interactive;
    }
    if request.ports.is_empty() {
        request.ports = vec![NOTEBOOK_PORT];
    }
    if request.command.is_empty() {
        request.command = vec!["start-notebook.sh".into()];
    }
}

/// A notebook makes links that begin with its own path, so it must know it.
fn know_its_path(request: &mut WorkloadRequest) {
    let words = || request.command.iter().chain(&request.args);
    if let Some(name) = &request.name
        && !words().any(|word| word.contains("base_url"))
    {
        request.args.push(format!("--ServerApp.base_url=/{}/{name}/", request.project));
    }
}

/// User and group by number, as a request that the machine has looked at names them.
pub(crate) fn user_ids(text: &str) -> Option<(u32, u32)> {
    let (user, group) = text.split_once(':')?;
    Some((user.parse().ok()?, group.parse().ok()?))
}

fn absolute(field: &str, path: &str) -> Result<(), Problem> {
    let up = path.split('/').any(|part| part == "..");
    match path.starts_with('/') && !up && !path.contains('\0') {
        true => Ok(()),
        false => Err(Problem::invalid(
            field,
            format!("{} is not an absolute path without `..`", names::shown(path)),
        )),
    }
}

fn check_sizes(request: &WorkloadRequest) -> Result<(), Problem> {
    let lists = [
        ("command", request.command.len()),
        ("args", request.args.len()),
        ("environment", request.environment.len()),
        ("mounts", request.mounts.len()),
        ("volumes", request.volumes.len()),
        ("ports", request.ports.len()),
        ("gpu_models", request.gpu_models.len()),
        ("node_selector", request.node_selector.len()),
    ];
    if let Some((field, count)) = lists.into_iter().find(|(_, count)| *count > ITEMS_MAX) {
        return Err(Problem::invalid(
            field,
            format!("{count} are too many; at most {ITEMS_MAX} are accepted"),
        ));
    }
    let words = request.command.iter().chain(&request.args).map(|word| ("command or args", word));
    let variables = request.environment.values().map(|value| ("environment", value));
    for (field, text) in words.chain(variables).chain([("image", &request.image)]) {
        if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
            return Err(Problem::invalid(
                field,
                format!("{} is too long, or has a NUL in it", names::shown(text)),
            ));
        }
    }
    let is_variable = |name: &String| !name.is_empty() && !name.contains(['=', '\0']) && name.len() <= 1024;
    if let Some(name) = request.environment.keys().find(|name| !is_variable(name)) {
        return Err(Problem::invalid(
            "environment",
            format!("{} is no name of a variable", names::shown(name)),
        ));
    }
    if request.image.is_empty() {
        return Err(Problem::invalid("image", "neither an image nor a command is named")
            .hint("name an image with -i, as in `-i berth/quickstart`, or a command after --"));
    }
    if let Some(pattern) = &request.progress_pattern
        && pattern.len() > 1024
    {
        return Err(Problem::invalid("progress_pattern", "a pattern has at most 1024 bytes"));
    }
    if request.ports.contains(&0) {
        return Err(Problem::invalid("ports", "0 is no port"));
    }
    Ok(())
}

fn secs(field: &str, secs: u64) -> Result<Span, Problem> {
    match secs <= SECS_MAX {
        true => Ok(Span::secs(secs)),
        false => Err(Problem::invalid(field, format!("{secs} seconds are more than a hundred years"))),
    }
}

/// A priority as a number.
pub(crate) fn priority_number(priority: &PriorityName) -> Result<i32, Problem> {
    const NAMES: [(&str, i32); 7] = [
        ("very-low", 10),
        ("low", 25),
        ("medium", 50),
        ("medium-high", 75),
        ("high", 100),
        ("very-high", 125),
        ("critical", 200),
    ];
    match priority {
        PriorityName::Number(number) => Ok(*number),
        PriorityName::Name(name) => {
            let known = NAMES.into_iter().find(|(known, _)| known == name);
            known.map(|(_, number)| number).or_else(|| name.parse().ok()).ok_or_else(|| {
                let all = NAMES.map(|(name, _)| name).join(", ");
                Problem::invalid("priority", format!("{} is no priority", names::shown(name)))
                    .hint(format!("write a number, or one of {all}"))
            })
        }
    }
}

fn tasks(request: &WorkloadRequest) -> Result<Tasks, Problem> {
    let workers = request.workers.unwrap_or(1);
    let min = request.min_workers.unwrap_or(workers);
    Tasks::new(min, workers).ok_or_else(|| match (workers, min) {
        (0, _) => Problem::invalid("workers", "0 workers do nothing"),
        (_, 0) => Problem::invalid("min_workers", "at least one worker must start"),
        (workers, min) if min > workers => {
            Problem::invalid("min_workers", format!("{min} of {workers} workers cannot be"))
        }
        (workers, _) => Problem::invalid(
            "workers",
            format!("{workers} are too many; at most {} are accepted", Tasks::MAX),
        ),
    })
}

fn gpu_request(request: &WorkloadRequest) -> Result<GpuRequest, Problem> {
    let devices = NonZeroU8::new(request.gpu_devices.unwrap_or(1))
        .ok_or_else(|| Problem::invalid("gpu_devices", "0 devices hold nothing"))?;
    match (request.gpus.map(|gpus| gpus.0), request.gpu_memory.map(|memory| memory.0)) {
        (Some(_), Some(_)) => {
            Err(Problem::invalid("gpu_memory", "ask for GPUs or for GPU memory, not for both"))
        }
        (None, Some(memory)) => match NonZeroU64::new(memory.0) {
            Some(bytes) => Ok(GpuRequest::Memory { bytes, devices }),
            None => Err(Problem::invalid("gpu_memory", "0 bytes of GPU memory hold nothing")),
        },
        (None | Some(Gpus::ZERO), None) if request.gpu_devices.is_some() => {
            Err(Problem::invalid("gpu_devices", "say how much of each device with gpus or gpu_memory"))
        }
        (None | Some(Gpus::ZERO), None) => Ok(GpuRequest::None),
        (Some(gpus), None) if gpus < Gpus::ONE => {
            let share = Share::from_millionths(gpus.0 as u32).expect("is above nothing and below one");
            Ok(GpuRequest::Fraction { share, devices })
        }
        (Some(gpus), None) if !gpus.0.is_multiple_of(Gpus::SCALE) => {
            let text = format!("{gpus} GPUs are neither whole GPUs nor a fraction of one");
            Err(Problem::invalid("gpus", text)
                .hint("ask for `0.5`, or for `2`; `gpu_devices` takes a fraction of several"))
        }
        (Some(_), None) if request.gpu_devices.is_some() => {
            Err(Problem::invalid("gpu_devices", "is for fractions and for GPU memory"))
        }
        (Some(gpus), None) => {
            let count = u8::try_from(gpus.0 / Gpus::SCALE).ok().and_then(NonZeroU8::new);
            count
                .filter(|count| usize::from(count.get()) <= berth_types::Node::DEVICES_MAX)
                .map(GpuRequest::Whole)
                .ok_or_else(|| {
                    let text = format!(
                        "one worker cannot have {gpus} GPUs; no node has more than {}",
                        berth_types::Node::DEVICES_MAX
                    );
                    Problem::invalid("gpus", text).hint("spread the work over several workers with --workers")
                })
        }
    }
}
