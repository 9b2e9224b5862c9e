//! Tasks as processes of this machine: what is executed, where, and what it sees.

use crate::{
    AgentConfig, ImageEntry, Mount, TaskSpec, account,
    environment::{self, Places},
    folder::{self, Folder},
    images::Runs,
    ports::Ports,
    task_folder::{Launch, MountStep},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

/// Where a task that runs as somebody else sees what Berth gives it: the agent's own folder is closed to others. Each task has
/// its own mounts there; for the rest of the machine these places are empty.
pub(crate) const MEETING: &str = "/run/berth";
/// Where it starts, and is at home if it has no other home.
pub(crate) const MEETING_WORK: &str = "/run/berth/work";

/// What there is to resolve a spec with.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a AgentConfig,
    pub(crate) folder: &'a Folder,
    pub(crate) ports: &'a mut Ports,
}

impl Context<'_> {
    /// Looks at what a task wants to see of this machine, and notes what it is lent whoever it runs as.
    pub(crate) fn look_at_mounts(&self, spec: &TaskSpec) -> Result<Vec<Mount>, String> {
        let looked_at = spec.mounts.iter().map(|mount| {
            check_mount(mount)?;
            // Whoever has an account of its own is kept from what is private by the kernel, and may see what lies around it. Where
            // all have one account nothing is private, and a person's own folder with everything in it may well be mounted.
            let private = &self.config.private;
            let leads_in = mount.source.starts_with(private);
            let is_root = account::is_root() && spec.run_as.is_none_or(|(user, _)| user == 0);
            let leads_over = is_root && private.starts_with(&mount.source);
            if !mount.lent && (leads_in || leads_over) {
                return Err(format!(
                    "{} cannot be mounted: the server keeps its own there",
                    mount.source.display()
                ));
            }
            let is_allowed = self.config.allowed_mounts.iter().any(|folder| mount.source.starts_with(folder));
            Ok(Mount { lent: mount.lent || is_allowed, ..mount.clone() })
        });
        looked_at.collect()
    }
}

/// What to execute for a task as a process. The text says why it cannot run, and what to do about it.
pub(crate) fn resolve(spec: &TaskSpec, runs: &Runs, context: &mut Context<'_>) -> Result<Launch, String> {
    let mut mounts = mounts(spec, context)?;
    let jupyter = *runs == Runs::Jupyter && spec.command.first().is_none_or(|word| is_notebook_word(word));
    let asked = if jupyter && spec.ports.is_empty() { vec![8888] } else { spec.ports.clone() };
    let ports = context.ports.for_all(&asked)?;
    let master_port = (spec.workers > 1).then(|| context.ports.of_gang(context.folder, spec)).transpose()?;
    let work = context.folder.workload_work(spec.id.workload);
    let places = places(spec, context.folder);
    let mut environment = environment::of_task(spec, context.folder, &places, &ports, master_port);
    let mut argv = match runs {
        _ if jupyter => notebook(spec, context.config, ports[0].1)?,
        Runs::Entry(ImageEntry::Program(program)) if spec.command.is_empty() => {
            with(program.clone(), &spec.args)
        }
        Runs::Quickstart => with(with(texts(&context.config.quickstart), &spec.command), &spec.args),
        Runs::Python if spec.command.is_empty() => with(vec!["python3".into()], &spec.args),
        Runs::Shell if spec.command.is_empty() && !spec.args.is_empty() => {
            with(vec!["bash".into()], &spec.args)
        }
        _ => with(spec.command.clone(), &spec.args),
    };
    let Some(program) = argv.first().cloned() else {
        return Err(format!("`{}` runs nothing by itself here: give a command after --", spec.image));
    };
    let mut working_dir = spec.working_dir.clone().unwrap_or_else(|| work.clone());
    if mounts.is_empty() {
        // With mounts, what will be there is seen by the task alone.
        if spec.working_dir.is_some() && !working_dir.is_dir() {
            return Err(format!(
                "the working folder {} does not exist on this machine",
                working_dir.display()
            ));
        }
        let path = environment.get("PATH").map_or("", String::as_str);
        if !is_program(&program, path, &working_dir) {
            return Err(format!("there is no program `{program}` on this machine"));
        }
    }
    if spec.run_as.is_some() && account::is_root() {
        meet(&work, context, &mut argv, &mut environment, &mut mounts)?;
        if spec.working_dir.is_none() {
            working_dir = MEETING_WORK.into();
        }
    }
    Ok(Launch { argv, environment, working_dir, mounts, run_as: spec.run_as, ports, ..Launch::default() })
}

/// Where the task sees its checkpoints and the rest.
fn places(spec: &TaskSpec, folder: &Folder) -> Places {
    let (work, signals) = (folder.workload_work(spec.id.workload), folder.signals(spec.id));
    if spec.run_as.is_none() || !account::is_root() {
        let (checkpoints, python) = (folder.checkpoints(spec.id.workload), folder.root().join("python"));
        return Places { python, checkpoints, signals };
    }
    let there = Path::new(MEETING_WORK);
    let below = |path: &Path| there.join(path.strip_prefix(&work).unwrap_or(path));
    Places {
        python: Path::new(MEETING).join("python"),
        checkpoints: below(&folder.checkpoints(spec.id.workload)),
        signals: below(&signals),
    }
}

/// Shows the workload's own folder, and what is Berth's, to somebody who may not enter the folders above them.
fn meet(
    work: &Path,
    context: &Context<'_>,
    argv: &mut [String],
    environment: &mut BTreeMap<String, String>,
    mounts: &mut Vec<MountStep>,
) -> Result<(), String> {
    let meeting = Path::new(MEETING);
    let failed = |error: &dyn std::fmt::Display| format!("{MEETING} cannot be made: {error}");
    for place in [meeting, Path::new(MEETING_WORK), &meeting.join("python")] {
        folder::create(place, 0o755).map_err(|error| failed(&error))?;
        fs::set_permissions(place, Permissions::from_mode(0o755)).map_err(|error| failed(&error))?;
    }
    let mut show = |source: &Path, name: &str, read_only: bool| {
        let (source, target) = (source.to_owned(), meeting.join(name));
        mounts.push(MountStep::Bind(Mount { source, target, read_only, lent: true }));
    };
    show(work, "work", false);
    show(&context.folder.root().join("python"), "python", true);
    let Some(program) = argv.first_mut() else { return Ok(()) };
    // The built-in trainer, and what takes `mpirun` to other workers, are this very program, which may lie in a folder that is
    // closed, too.
    if let Some(own) = context.config.quickstart.first().and_then(|program| fs::canonicalize(program).ok()) {
        let place = meeting.join("berth");
        File::options().create(true).append(true).open(&place).map_err(|error| failed(&error))?;
        show(&own, "berth", true);
        if fs::canonicalize(&*program).is_ok_and(|path| path == own) {
            *program = place.display().to_string();
        }
        if let Some(command) = environment.get_mut("BERTH_RSH") {
            *command = command.replacen(&own.display().to_string(), &place.display().to_string(), 1);
        }
    }
    if let Some(tool) = python_tool(&context.config.cache, Path::new(program)) {
        mounts.push(MountStep::Reveal { folders: tool, own: context.folder.root().to_owned() });
    }
    Ok(())
}

/// The Python environment among the tools that Berth installed in which a program lies, and the Python it was made from. Both know
/// their own places by heart, so they cannot be shown elsewhere.
fn python_tool(cache: &Path, program: &Path) -> Option<Vec<PathBuf>> {
    let name = program.strip_prefix(cache).ok()?.components().next()?;
    let tool = fs::canonicalize(cache.join(name)).ok().filter(|tool| tool.join("pyvenv.cfg").is_file())?;
    let python = fs::canonicalize(tool.join("bin/python3")).ok()?;
    let made_from = python.parent().and_then(Path::parent)?.to_owned();
    Some(vec![tool, made_from])
}

fn with(mut argv: Vec<String>, more: &[String]) -> Vec<String> {
    argv.extend_from_slice(more);
    argv
}

fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn is_program(program: &str, path: &str, working_dir: &Path) -> bool {
    if program.contains('/') {
        return working_dir.join(program).is_file();
    }
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Looks at what is to be mounted. A process sees the files of the machine, so what is wanted at its own path is there.
fn mounts(spec: &TaskSpec, context: &Context<'_>) -> Result<Vec<MountStep>, String> {
    let mut steps = Vec::new();
    for mount in context.look_at_mounts(spec)? {
        let there = mount.source == mount.target;
        if there && !mount.read_only {
            continue;
        }
        // The shim works in the same namespace: what it writes must stay where the agent looks for it, and what it reads of the
        // machine must be the machine's.
        let own = [context.folder.root(), Path::new("/proc"), Path::new("/sys"), Path::new(MEETING)];
        let hides = |needed: &&Path| needed.starts_with(&mount.target);
        let is_inside = own.iter().any(|own| mount.target.starts_with(own));
        if is_inside || own.iter().any(hides) || hides(&Path::new("/dev")) {
            return Err(format!(
                "nothing can be mounted at {}: Berth itself needs it",
                mount.target.display()
            ));
        }
        // A mount needs a folder to be mounted at; an empty one is made, as Docker does, but not a whole path of them.
        if !mount.target.exists() && !mount.target.parent().is_some_and(Path::is_dir) {
            return Err(format!(
                "{target} cannot be made on this machine, because its parent folder does not exist: create that, mount \
                 {source} at its own path (`-v {source}:{source}`), or use a container runtime",
                source = mount.source.display(),
                target = mount.target.display()
            ));
        }
        steps.push(MountStep::Bind(mount));
    }
    Ok(steps)
}

/// What holds for mounts in every runtime.
fn check_mount(Mount { source, target, .. }: &Mount) -> Result<(), String> {
    for path in [source, target] {
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !path.is_absolute() || !plain {
            return Err(format!("`{}` is not an absolute path without `..`", path.display()));
        }
    }
    if *target == Path::new("/") {
        return Err("nothing can be mounted at `/`".into());
    }
    let real = fs::canonicalize(source)
        .map_err(|error| format!("the folder {} cannot be mounted: {error}", source.display()))?;
    // Otherwise a link inside of a folder that somebody may use would lead to any other folder.
    if real != *source {
        return Err(format!(
            "{} leads to {} through a link: name that folder",
            source.display(),
            real.display()
        ));
    }
    Ok(())
}

fn is_notebook_word(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    matches!(name, "start-notebook.sh" | "start.sh" | "jupyter" | "jupyter-lab" | "jupyter-notebook")
}

/// JupyterLab with the options of the usual images.
fn notebook(spec: &TaskSpec, config: &AgentConfig, port: u16) -> Result<Vec<String>, String> {
    let installed = config.cache.join("jupyter/bin/jupyter-lab");
    let path =
        spec.environment.get("PATH").cloned().or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
    let on_path =
        path.split(':').map(|folder| Path::new(folder).join("jupyter-lab")).find(|file| file.is_file());
    let Some(program) = Some(installed).filter(|file| file.is_file()).or(on_path) else {
        let place: PathBuf = config.cache.join("jupyter");
        return Err(format!(
            "JupyterLab is not installed on this machine: install it with `python3 -m venv {place} && {place}/bin/pip install \
             jupyterlab`",
            place = place.display()
        ));
    };
    let mut argv = vec![
        program.display().to_string(),
        "--no-browser".to_owned(),
        "--allow-root".to_owned(),
        "--ServerApp.ip=127.0.0.1".to_owned(),
        format!("--ServerApp.port={port}"),
        "--ServerApp.port_retries=0".to_owned(),
    ];
    let words = spec
        .command
        .iter()
        .skip(1)
        .chain(&spec.args)
        .filter(|word| !matches!(word.as_str(), "lab" | "notebook"));
    // The images of 2020 have another name for the same options.
    argv.extend(words.map(|word| word.replacen("--NotebookApp.", "--ServerApp.", 1)));
    Ok(argv)
}
