//! Tasks as processes of this machine: what is executed, where, and what it sees.

use crate::{
    AgentConfig, ImageEntry, Mount, TaskSpec,
    access::{acting_as, without_links},
    account::{self, Account},
    environment::{self, Places},
    folder::{self, Folder},
    images::Runs,
    ports::Ports,
    task_folder::{Launch, MountStep},
};
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
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
        look_at_mounts(self.config, &spec.mounts, spec.run_as)
    }
}

/// Looks at what a task wants to see of this machine, and notes what it is lent whoever it runs as.
pub(crate) fn look_at_mounts(
    config: &AgentConfig,
    mounts: &[Mount],
    run_as: Option<(u32, u32)>,
) -> Result<Vec<Mount>, String> {
    let looked_at = mounts.iter().map(|mount| {
        check_mount(mount)?;
        // Whoever has an account of its own is kept from what is private by the kernel, and may see what lies around it. Where
        // all have one account nothing is private, and a person's own folder with everything in it may well be mounted.
        let private = &config.private;
        let leads_in = mount.source.starts_with(private);
        let is_root = account::is_root() && run_as.is_none_or(|(user, _)| user == 0);
        let leads_over = is_root && private.starts_with(&mount.source);
        if !mount.lent && (leads_in || leads_over) {
            return Err(format!(
                "{} cannot be mounted: the server keeps its own there",
                mount.source.display()
            ));
        }
        let is_allowed = config.allowed_mounts.iter().any(|folder| mount.source.starts_with(folder));
        let lent = mount.lent || is_allowed;
        find_source(&mount.source, run_as.filter(|_| !lent))?;
        Ok(Mount { lent, ..mount.clone() })
    });
    looked_at.collect()
}

/// Refuses a folder to mount that is not there, or that the account of the task cannot reach; nothing is looked at with more rights
/// than that account has.
fn find_source(source: &Path, run_as: Option<(u32, u32)>) -> Result<(), String> {
    let source_shown = source.display();
    match with_rights_of(run_as, || without_links(source).map(drop))? {
        Ok(()) => Ok(()),
        // Otherwise a link inside of a folder that a user may change would lead to any other folder.
        Err(Errno::LOOP) => Err(format!("{source_shown} leads elsewhere through a link: name that folder")),
        Err(Errno::ACCESS | Errno::PERM) if let Some((user, _)) = run_as => Err(format!(
            "user {user}, as whom this workload would run, cannot reach {source_shown}: open the folders above it to that user, or \
             start the server with `berth up --change --allow-mount {source_shown}`"
        )),
        Err(error) => Err(format!("the folder {source_shown} cannot be mounted: {}", io::Error::from(error))),
    }
}

/// Does something with the rights of the account that a task runs as; with those of the agent where it has none of its own.
pub(crate) fn with_rights_of<T: Send>(
    run_as: Option<(u32, u32)>,
    act: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let account = run_as.filter(|_| account::is_root()).map(|(user, group)| Account::of(user, group));
    match account.transpose()? {
        None => Ok(act()),
        Some(account) => acting_as(&account, || Ok(act()))
            .map_err(|error| format!("user {} cannot be acted as: {}", account.user, io::Error::from(error))),
    }
}

/// What to execute for a task as a process. The text says why it cannot run, and what to do about it.
pub(crate) fn resolve(spec: &TaskSpec, runs: &Runs, context: &mut Context<'_>) -> Result<Launch, String> {
    let mut mounts = steps(context.folder.root(), context.look_at_mounts(spec)?, spec.run_as)?;
    let jupyter = is_notebook(runs, &spec.command);
    let asked = if jupyter && spec.ports.is_empty() { vec![8888] } else { spec.ports.clone() };
    let ports = context.ports.for_all(&asked)?;
    let master_port = (spec.workers > 1).then(|| context.ports.of_gang(context.folder, spec)).transpose()?;
    let work = context.folder.workload_work(spec.id.workload);
    let places = places(spec, context.folder);
    let mut environment = environment::of_task(spec, context.folder, &places, &ports, master_port);
    let mut argv = match jupyter {
        true => notebook(spec, context.config, ports[0].1)?,
        false => argv(runs, &spec.command, &spec.args, context.config),
    };
    let Some(program) = argv.first().cloned() else { return Err(nothing_to_run(&spec.image)) };
    let mut working_dir = spec.working_dir.clone().unwrap_or_else(|| work.clone());
    if mounts.is_empty() {
        // With mounts, what will be there is seen by the task alone.
        if let Some(named) = &spec.working_dir
            && !with_rights_of(spec.run_as, || named.is_dir())?
        {
            let closed = spec.run_as.map(|(user, _)| format!(", or is closed to user {user}"));
            return Err(format!(
                "the working directory {} does not exist on this machine{}",
                named.display(),
                closed.unwrap_or_default()
            ));
        }
        let path = environment.get("PATH").map_or("", String::as_str);
        // What lies in the workload's own folder is seen by the task alone too.
        let is_inside =
            spec.working_dir.is_none() && program.contains('/') && Path::new(&program).is_relative();
        let is_seen = is_inside
            || is_brought(context.config, Path::new(&program))
            || with_rights_of(spec.run_as, || is_program(&program, path, &working_dir))?;
        if !is_seen {
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

/// Whether a task is a notebook, which Berth starts in its own way.
pub(crate) fn is_notebook(runs: &Runs, command: &[String]) -> bool {
    *runs == Runs::Jupyter && command.first().is_none_or(|word| is_notebook_word(word))
}

/// The program and the arguments of a task that is no notebook; empty when there is nothing to run.
pub(crate) fn argv(runs: &Runs, command: &[String], args: &[String], config: &AgentConfig) -> Vec<String> {
    match runs {
        Runs::Entry(ImageEntry::Program(program)) if command.is_empty() => with(program.clone(), args),
        Runs::Quickstart => with(with(texts(&config.quickstart), command), args),
        Runs::Python if command.is_empty() => with(vec!["python3".into()], args),
        Runs::Shell if command.is_empty() && !args.is_empty() => with(vec!["bash".into()], args),
        _ => with(command.to_vec(), args),
    }
}

pub(crate) fn nothing_to_run(image: &str) -> String {
    format!("`{image}` runs nothing by itself here: give a command after --")
}

/// Whether Berth shows a program to every task, whoever may enter the folders above it: this very program, and the Python
/// environments that Berth installed.
pub(crate) fn is_brought(config: &AgentConfig, program: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let own = config.quickstart.first().and_then(|own| real(Path::new(own)));
    (own.is_some() && real(program) == own) || python_tool(&config.cache, program).is_some()
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
    // A relative folder of the path is one of the working directory.
    path.split(':').any(|folder| working_dir.join(folder).join(program).is_file())
}

/// What is to be mounted for a process. It sees the files of the machine, so what is wanted at its own path is there.
pub(crate) fn steps(
    root: &Path,
    looked_at: Vec<Mount>,
    run_as: Option<(u32, u32)>,
) -> Result<Vec<MountStep>, String> {
    let mut steps = Vec::new();
    for mount in looked_at {
        let there = mount.source == mount.target;
        if there && !mount.read_only {
            continue;
        }
        // The shim works in the same namespace: what it writes must stay where the agent looks for it, and what it reads of the
        // machine must be the machine's.
        let own = [root, Path::new("/proc"), Path::new("/sys"), Path::new(MEETING)];
        let hides = |needed: &&Path| needed.starts_with(&mount.target);
        let is_inside = own.iter().any(|own| mount.target.starts_with(own));
        if is_inside || own.iter().any(hides) || hides(&Path::new("/dev")) {
            return Err(format!(
                "nothing can be mounted at {}: Berth itself needs it",
                mount.target.display()
            ));
        }
        // A mount needs a folder to be mounted at; an empty one is made, as Docker does, but not a whole path of them.
        let target = mount.target.as_path();
        let is_possible = || target.exists() || target.parent().is_some_and(Path::is_dir);
        if !with_rights_of(run_as, is_possible)? {
            return Err(format!(
                "{target} cannot be made on this machine, because its parent folder does not exist, or is closed to the \
                 account of the workload: create or open that, mount \
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
    Ok(())
}

fn is_notebook_word(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    matches!(name, "start-notebook.sh" | "start.sh" | "jupyter" | "jupyter-lab" | "jupyter-notebook")
}

/// JupyterLab of this machine: the one that Berth installed, or one of the path.
pub(crate) fn notebook_program(
    config: &AgentConfig,
    path: &str,
    run_as: Option<(u32, u32)>,
) -> Result<PathBuf, String> {
    let installed = config.cache.join("jupyter/bin/jupyter-lab");
    let mut places = path.split(':').map(|folder| Path::new(folder).join("jupyter-lab"));
    let on_path = with_rights_of(run_as, || places.find(|file| file.is_file()))?;
    Some(installed).filter(|file| file.is_file()).or(on_path).ok_or_else(|| {
        let place: PathBuf = config.cache.join("jupyter");
        format!(
            "JupyterLab is not installed on this machine: install it with `python3 -m venv {place} && {place}/bin/pip install \
             jupyterlab`",
            place = place.display()
        )
    })
}

/// JupyterLab with the options of the usual images.
fn notebook(spec: &TaskSpec, config: &AgentConfig, port: u16) -> Result<Vec<String>, String> {
    let path = spec.environment.get("PATH").cloned().unwrap_or_else(environment::usual_path);
    let program = notebook_program(config, &path, spec.run_as)?;
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
