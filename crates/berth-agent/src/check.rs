//! Judges a task before it is started: its image, its mounts, its working directory and its program, as the account sees them that
//! it would run as.
//!
//! Nothing here looks with more rights than that account has. Otherwise a refusal would tell a caller which files exist where the
//! caller may not look.

use crate::{
    AgentConfig, ImageEntry, Mount, RuntimeKind, account, environment,
    images::{Images, Runs},
    oci, process,
};
use rustix::{
    fs::{
        Access, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, access, accessat, fstat, lstat, open,
        openat2, stat,
    },
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Names that are offered at most in place of a program that does not exist.
const NEAR_MAX: usize = 5_000;

/// Folders of a PATH that are looked at; more than any shell has.
const PATH_FOLDERS_MAX: usize = 128;

/// Files that are looked at for a name to offer.
const ENTRIES_MAX: usize = 20_000;

/// A task that is not decided yet.
#[derive(Debug, Clone)]
pub struct Planned {
    /// By what it would be run.
    pub runtime: RuntimeKind,
    /// The image.
    pub image: String,
    /// Whether the image must be on this machine already.
    pub local_image: bool,
    /// What replaces the image's entry point; may be empty.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables that the request names.
    pub environment: BTreeMap<String, String>,
    /// The working directory that the request names.
    pub working_dir: Option<PathBuf>,
    /// The current directory of a caller on this machine.
    pub caller_dir: Option<PathBuf>,
    /// Variables of a caller on this machine.
    pub caller_environment: BTreeMap<String, String>,
    /// What it would see of this machine.
    pub mounts: Vec<Mount>,
    /// User and group it would run as; none for those of the agent.
    pub run_as: Option<(u32, u32)>,
}

/// What becomes of a task that can be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Where it starts; none for its own folder, or for what its image says.
    pub working_dir: Option<PathBuf>,
    /// Whether the variables of the caller apply: a container has its own.
    pub takes_caller_environment: bool,
    /// The program that would be executed, where that is known.
    pub program: Option<PathBuf>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Why a task cannot be started on this machine, by what a caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The image stands for nothing that can be run here.
    #[error("{0}")]
    Image(String),
    /// A folder cannot be mounted.
    #[error("{0}")]
    Mount(String),
    /// The working directory is not there.
    #[error("the working directory {} does not exist on this machine", .0.display())]
    NoFolder(PathBuf),
    /// The working directory is something else.
    #[error("the working directory {} is not a directory", .0.display())]
    NotAFolder(PathBuf),
    /// The account may not enter the working directory.
    #[error("user {user}, as whom this workload would run, cannot enter the working directory {}: {}", .path.display(), closed(.path, .at))]
    ClosedFolder {
        /// The working directory.
        path: PathBuf,
        /// The first directory on the way that is closed.
        at: PathBuf,
        /// The number of the account.
        user: u32,
    },
    /// The account may not enter the caller's virtual environment.
    #[error("user {user}, as whom this workload would run, cannot enter the {variable} {}: {}", .path.display(), closed(.path, .at))]
    ClosedEnvironment {
        /// The variable that names it.
        variable: String,
        /// The virtual environment.
        path: PathBuf,
        /// The first directory on the way that is closed.
        at: PathBuf,
        /// The number of the account.
        user: u32,
    },
    /// No folder of the PATH has the program.
    #[error("there is no program `{program}` on the PATH of the workload")]
    NoProgram {
        /// What was asked for.
        program: String,
        /// Programs of a similar length that there are.
        near: Vec<String>,
        /// Folders of the PATH that are closed to the account.
        closed: Vec<PathBuf>,
    },
    /// There is no such file.
    #[error("there is no program {}", .0.display())]
    NoFile(PathBuf),
    /// It is not a program, or its mode lets no account execute it.
    #[error("{} is {}", .path.display(), if *.is_folder { "a directory, not a program" } else { "not executable" })]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// Whether it is a directory.
        is_folder: bool,
    },
    /// Others may execute it, and the account may not.
    #[error("user {user}, as whom this workload would run, cannot execute {}: {}", .path.display(), closed(.path, .at))]
    ClosedProgram {
        /// The file.
        path: PathBuf,
        /// The file, or the first directory on the way that is closed.
        at: PathBuf,
        /// The number of the account.
        user: u32,
    },
    /// There is nothing to run, or what runs it is not installed.
    #[error("{0}")]
    Command(String),
}

fn closed(path: &Path, at: &Path) -> String {
    match path == at {
        true => "it is closed to that user".into(),
        false => format!("{} is closed to that user", at.display()),
    }
}

/// What a path is to an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Missing,
    Closed,
    Folder,
    Program,
    /// A file that the account may not execute; whether another account may.
    File {
        others: bool,
    },
    /// It cannot be judged before the task starts; the task is not refused for it.
    Unknown,
}

/// Where a path of a task is.
enum Place<'a> {
    /// On this machine, where the rights of the account decide.
    Machine(PathBuf),
    /// Below a folder that Berth mounts for the task, also where the folders above it are closed to the account.
    Lent { folder: Option<&'a OwnedFd>, rest: PathBuf },
}

/// What this machine has against a task, or what would become of it.
pub(crate) fn check(
    planned: &Planned,
    images: &Images,
    config: &AgentConfig,
    folder: &Path,
) -> Result<Checked, Unfit> {
    let runs = images.find(&planned.image);
    let looked = process::look_at_mounts(config, &planned.mounts, planned.run_as).map_err(Unfit::Mount)?;
    let is_kept = matches!(runs, Ok(Runs::Entry(ImageEntry::Root(_) | ImageEntry::Archive(_))));
    match planned.runtime {
        // The engine is asked by the caller of this.
        RuntimeKind::Docker => return Ok(in_container(planned)),
        RuntimeKind::Process if !is_kept => {}
        RuntimeKind::Process | RuntimeKind::Oci => {
            let entry = process::with_rights_of(planned.run_as, || oci::entry(&planned.image, runs));
            let entry = entry.flatten().map_err(Unfit::Image)?;
            // What a person named by its path is opened later, with the rights of the account.
            return if is_kept { check_files(&entry) } else { Ok(()) }.map(|()| in_container(planned));
        }
    }
    let runs = runs.map_err(Unfit::Image)?;
    process::steps(folder, looked.clone(), planned.run_as).map_err(Unfit::Mount)?;
    check_process(planned, &runs, config, &looked)
}

/// What is started in a container, whose files are not those of this machine.
fn in_container(planned: &Planned) -> Checked {
    Checked { working_dir: planned.working_dir.clone(), ..Checked::default() }
}

/// Whether the files are there that an administrator keeps for an image.
fn check_files(entry: &ImageEntry) -> Result<(), Unfit> {
    let (ImageEntry::Root(path) | ImageEntry::Archive(path)) = entry else { return Ok(()) };
    match path.exists() {
        true => Ok(()),
        false => Err(Unfit::Image(format!("{} does not exist on this machine", path.display()))),
    }
}

fn check_process(
    planned: &Planned,
    runs: &Runs,
    config: &AgentConfig,
    mounts: &[Mount],
) -> Result<Checked, Unfit> {
    // Berth starts a notebook in its own way.
    let is_jupyter = process::is_notebook(runs, &planned.command);
    let argv = match is_jupyter {
        true => Vec::new(),
        false => process::argv(runs, &planned.command, &planned.args, config),
    };
    let is_brought =
        |program: &String| *runs == Runs::Quickstart || process::is_brought(config, Path::new(program));
    let asked = argv.first().filter(|program| !is_brought(program));
    let path = planned.environment.get("PATH").or_else(|| planned.caller_environment.get("PATH"));
    let path = path.cloned().unwrap_or_else(environment::usual_path);
    // Lent folders are opened by the agent; everything else is looked at with the rights of the account, all of it in one thread.
    let sight = Sight::new(planned.run_as, mounts);
    let look = || {
        let mut checked = look_around(planned, runs, &sight, is_jupyter)?;
        if let Some(program) = asked {
            let folder = checked.working_dir.as_deref();
            let found = sight.program(program, &path, folder)?;
            checked.warnings.extend(sight.script(program, &argv, folder));
            checked.program = Some(found);
        }
        Ok(checked)
    };
    let mut checked = process::with_rights_of(planned.run_as, look).map_err(Unfit::Command)??;
    if is_jupyter {
        process::notebook_program(config, &path, planned.run_as).map_err(Unfit::Command)?;
    } else if argv.is_empty() {
        // An administrator may give the image a program before it is started.
        checked.warnings.push(process::nothing_to_run(&planned.image));
    } else if *runs == Runs::Quickstart {
        no_other_program(planned)?;
    }
    Ok(checked)
}

/// Looks at the working directory and the virtual environment of a task.
fn look_around(
    planned: &Planned,
    runs: &Runs,
    sight: &Sight<'_>,
    is_jupyter: bool,
) -> Result<Checked, Unfit> {
    let mut checked = Checked { takes_caller_environment: true, ..Checked::default() };
    // Berth brings the trainer and JupyterLab itself, so they can do without the caller's directory.
    let is_own = *runs == Runs::Quickstart || is_jupyter;
    checked.working_dir = match (&planned.working_dir, &planned.caller_dir) {
        (Some(named), _) => Some(sight.folder(named).map(|()| named.clone())?),
        (None, None) => None,
        (None, Some(current)) => match sight.folder(current) {
            Ok(()) => Some(current.clone()),
            Err(_) if *runs == Runs::Quickstart => None,
            Err(unfit) if is_jupyter => {
                checked.warnings.push(format!("{unfit}; the notebook starts in the workload's own folder"));
                None
            }
            Err(unfit) => return Err(unfit),
        },
    };
    if !is_own {
        sight.virtual_environment(planned)?;
    }
    Ok(checked)
}

/// Refuses a program for the built-in trainer, which would train in its place. The report's benchmark images name one, and only
/// print what they are given.
fn no_other_program(planned: &Planned) -> Result<(), Unfit> {
    // Options of the trainer may have values, which follow them.
    let word = planned.command.iter().chain(&planned.args).next().filter(|word| !word.starts_with('-'));
    match word.filter(|_| planned.image.ends_with("/quickstart")) {
        None => Ok(()),
        Some(word) => Err(Unfit::Command(format!(
            "the image {} runs its own training and would not run `{word}`: leave the image out to run a program of this machine",
            planned.image
        ))),
    }
}

/// This machine as a task would see it. It looks with the rights of the calling thread.
struct Sight<'a> {
    /// The number of the account that the task would run as.
    user: u32,
    mounts: &'a [Mount],
    /// The lent folders among the mounts, each opened by the agent; none for one that could not be opened.
    lent: Vec<Option<OwnedFd>>,
}

impl<'a> Sight<'a> {
    fn new(run_as: Option<(u32, u32)>, mounts: &'a [Mount]) -> Self {
        let open_lent = |mount: &Mount| {
            let lent = mount.lent.then_some(&mount.source)?;
            open(lent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        let own = rustix::process::geteuid().as_raw();
        let user = run_as.filter(|_| account::is_root()).map_or(own, |(user, _)| user);
        Self { user, mounts, lent: mounts.iter().map(open_lent).collect() }
    }

    /// Where a path of the task is on this machine.
    fn place(&self, path: &Path) -> Place<'_> {
        let over = self.mounts.iter().zip(&self.lent).filter(|(mount, _)| path.starts_with(&mount.target));
        let Some((mount, lent)) = over.max_by_key(|(mount, _)| mount.target.components().count()) else {
            return Place::Machine(path.to_owned());
        };
        let rest = path.strip_prefix(&mount.target).unwrap_or(Path::new(""));
        match mount.lent {
            true => Place::Lent { folder: lent.as_ref(), rest: rest.to_owned() },
            false => Place::Machine(mount.source.join(rest)),
        }
    }

    fn look(&self, path: &Path) -> Found {
        match self.place(path) {
            Place::Machine(place) => probe(&place),
            Place::Lent { folder: Some(lent), rest } => probe_below(lent, &rest),
            Place::Lent { folder: None, .. } => Found::Missing,
        }
    }

    /// The first directory on the way to a path that is closed to the account.
    fn closed_at(&self, path: &Path) -> PathBuf {
        let Place::Machine(place) = self.place(path) else { return path.to_owned() };
        first_closed(&place, LINKS_MAX).unwrap_or_else(|| path.to_owned())
    }

    /// Whether the account can see that a file is there, also when it is a link to what it cannot reach.
    fn is_listed(&self, path: &Path) -> bool {
        match self.place(path) {
            Place::Machine(place) => lstat(&place).is_ok(),
            Place::Lent { .. } => true,
        }
    }

    fn folder(&self, path: &Path) -> Result<(), Unfit> {
        match self.look(path) {
            Found::Folder | Found::Unknown => Ok(()),
            Found::Missing => Err(Unfit::NoFolder(path.to_owned())),
            Found::Closed => {
                Err(Unfit::ClosedFolder { path: path.to_owned(), at: self.closed_at(path), user: self.user })
            }
            Found::Program | Found::File { .. } => Err(Unfit::NotAFolder(path.to_owned())),
        }
    }

    /// Without this, the task would find another Python further along its PATH, and not the caller's packages.
    fn virtual_environment(&self, planned: &Planned) -> Result<(), Unfit> {
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            let named = planned.caller_environment.get(variable);
            let Some(path) = named.filter(|_| !planned.environment.contains_key(variable)) else { continue };
            let path = PathBuf::from(path);
            if path.is_absolute() && self.look(&path) == Found::Closed {
                let (at, user) = (self.closed_at(&path), self.user);
                return Err(Unfit::ClosedEnvironment { variable: variable.into(), path, at, user });
            }
        }
        Ok(())
    }

    fn program(&self, program: &str, path: &str, folder: Option<&Path>) -> Result<PathBuf, Unfit> {
        let here = folder.unwrap_or(Path::new(process::MEETING_WORK));
        if program.contains('/') {
            let file = here.join(program);
            return match self.look(&file) {
                Found::Program | Found::Unknown => Ok(file),
                Found::Missing => Err(Unfit::NoFile(file)),
                Found::Folder => Err(Unfit::NotExecutable { path: file, is_folder: true }),
                Found::File { others: false } => Err(Unfit::NotExecutable { path: file, is_folder: false }),
                Found::Closed | Found::File { others: true } => {
                    Err(Unfit::ClosedProgram { at: self.closed_at(&file), path: file, user: self.user })
                }
            };
        }
        let mut seen = BTreeSet::new();
        let folders = path.split(':').filter(|folder| seen.insert(*folder)).take(PATH_FOLDERS_MAX);
        let folders: Vec<PathBuf> = folders.map(|folder| here.join(folder)).collect();
        let mut not_executable = None;
        let mut closed = Vec::new();
        for folder in &folders {
            let file = folder.join(program);
            match self.look(&file) {
                Found::Program | Found::Unknown => return Ok(file),
                Found::File { others } => not_executable = not_executable.or(Some((file, others))),
                // The caller's shell runs this one; another further along the PATH would not have the caller's packages.
                Found::Closed if self.is_listed(&file) => {
                    return Err(Unfit::ClosedProgram {
                        at: self.closed_at(&file),
                        path: file,
                        user: self.user,
                    });
                }
                Found::Closed => closed.push(folder.clone()),
                Found::Missing | Found::Folder => {}
            }
        }
        match not_executable {
            Some((path, false)) => Err(Unfit::NotExecutable { path, is_folder: false }),
            Some((path, true)) => Err(Unfit::ClosedProgram { at: path.clone(), path, user: self.user }),
            None => {
                Err(Unfit::NoProgram { program: program.into(), near: self.near(program, &folders), closed })
            }
        }
    }

    /// Programs along the path whose names are about as long.
    fn near(&self, program: &str, folders: &[PathBuf]) -> Vec<String> {
        let is_near = |name: &String| name.len().abs_diff(program.len()) <= 2;
        let names = folders.iter().flat_map(std::fs::read_dir).flatten().flatten().take(ENTRIES_MAX);
        let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_near);
        names.take(NEAR_MAX).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// A warning about the script that an interpreter is given, since the interpreter would end at once without it.
    fn script(&self, program: &str, argv: &[String], folder: Option<&Path>) -> Option<String> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let reads_scripts = name.starts_with("python") || matches!(name, "sh" | "bash");
        let script = argv.get(1).filter(|word| word.ends_with(".py") || word.ends_with(".sh"));
        let script = script.filter(|word| reads_scripts && !word.starts_with('-'))?;
        let file = folder.unwrap_or(Path::new(process::MEETING_WORK)).join(script);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match self.place(&file) {
            Place::Machine(place) => open(&place, flags, Mode::empty()),
            Place::Lent { folder, rest } => openat2(folder?, &rest, flags, Mode::empty(), BELOW),
        };
        match (opened, folder) {
            // A link out of the mount leads to a file of the task, which is not known before it starts.
            (Ok(_) | Err(Errno::XDEV), _) => None,
            (Err(Errno::ACCESS | Errno::PERM), _) => Some(format!(
                "user {}, as whom this workload would run, cannot read {}",
                self.user,
                file.display()
            )),
            (Err(_), Some(_)) => Some(format!("there is no file {}", file.display())),
            (Err(_), None) => Some(format!(
                "there is no file {script} in the workload's own folder, where it starts: name another with --working-dir"
            )),
        }
    }
}

/// Links that are followed to find what is closed behind them.
const LINKS_MAX: u32 = 8;

/// Returns the first part of a path that is closed to the calling thread's account; behind a link, of the link's target.
fn first_closed(path: &Path, links_left: u32) -> Option<PathBuf> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    let part = way.into_iter().find(|part| probe(part) == Found::Closed)?;
    let target = std::fs::read_link(part).ok().filter(|_| links_left > 0);
    let behind = target.and_then(|target| first_closed(&part.parent()?.join(target), links_left - 1));
    behind.or_else(|| Some(part.to_owned()))
}

/// Judges a path with the rights of the calling thread.
fn probe(path: &Path) -> Found {
    match stat(path) {
        Ok(found) => judge(&found, access(path, Access::EXEC_OK).is_ok()),
        Err(error) => missing(error),
    }
}

/// Judges a path below an opened folder with the rights of the calling thread. A path that leads out of the folder is not followed.
fn probe_below(folder: &OwnedFd, path: &Path) -> Found {
    let opened = match path.as_os_str().is_empty() {
        true => folder.try_clone().map_err(|_| Errno::MFILE),
        false => openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), BELOW),
    };
    match opened.and_then(|file| Ok((fstat(&file)?, file))) {
        Ok((found, file)) => {
            let may_execute = match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => accessat(&file, ".", Access::EXEC_OK, AtFlags::empty()).is_ok(),
                // The mount is the file itself, which only an administrator can have lent.
                _ if path.as_os_str().is_empty() => found.st_mode & 0o111 != 0,
                _ => accessat(folder, path, Access::EXEC_OK, AtFlags::empty()).is_ok(),
            };
            judge(&found, may_execute)
        }
        Err(error) => missing(error),
    }
}

/// What lies outside of an opened folder is not looked at, also not by a link.
const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

fn missing(error: Errno) -> Found {
    match error {
        Errno::ACCESS | Errno::PERM => Found::Closed,
        Errno::XDEV | Errno::MFILE | Errno::NFILE => Found::Unknown,
        _ => Found::Missing,
    }
}

fn judge(found: &Stat, may_execute: bool) -> Found {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory if may_execute => Found::Folder,
        FileType::Directory => Found::Closed,
        _ if may_execute => Found::Program,
        _ => Found::File { others: found.st_mode & 0o111 != 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use berth_types::Time;
    use std::fs;

    /// An account that the machine does not list.
    const STRANGER: Option<(u32, u32)> = Some((2_100_000_000, 2_100_000_000));

    fn planned(image: &str, command: &[&str]) -> Planned {
        Planned {
            runtime: RuntimeKind::Process,
            image: image.into(),
            local_image: false,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            args: Vec::new(),
            environment: BTreeMap::new(),
            working_dir: None,
            caller_dir: Some("/usr".into()),
            caller_environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            mounts: Vec::new(),
            run_as: None,
        }
    }

    fn check_in(folder: &Path, planned: &Planned) -> Result<Checked, Unfit> {
        let config = AgentConfig::new(folder, || Time(0));
        let images = Images::new(&config, folder).expect("a table");
        check(planned, &images, &config, folder)
    }

    #[test]
    fn a_container_keeps_the_directory_and_the_variables_of_its_image() {
        let scratch = Scratch::new();
        let archive = scratch.path().join("a.tar");
        fs::write(&archive, "").unwrap();
        let line = format!(
            "\"acme/a\" = {{ archive = \"{}\" }}\n\"acme/gone\" = {{ root = \"/no/such\" }}\n",
            archive.display()
        );
        fs::write(scratch.path().join("images.toml"), line).unwrap();
        let checked = check_in(scratch.path(), &planned("acme/a", &["train"])).expect("an archive");
        assert_eq!((checked.working_dir, checked.takes_caller_environment), (None, false));
        let unfit = check_in(scratch.path(), &planned("acme/gone", &[])).unwrap_err();
        assert!(unfit.to_string().contains("/no/such does not exist"), "{unfit}");
    }

    #[test]
    fn a_process_starts_in_the_directory_of_its_caller_unless_the_request_names_one() {
        let scratch = Scratch::new();
        let checked = check_in(scratch.path(), &planned("bash", &["sh"])).expect("a shell");
        assert_eq!(checked.working_dir.as_deref(), Some(Path::new("/usr")));
        assert!(checked.takes_caller_environment && checked.program.is_some_and(|path| path.ends_with("sh")));
        let named = Planned { working_dir: Some("/".into()), ..planned("bash", &["sh"]) };
        assert_eq!(
            check_in(scratch.path(), &named).expect("a shell").working_dir.as_deref(),
            Some(Path::new("/"))
        );
    }

    #[test]
    fn a_program_is_looked_for_where_a_mount_will_show_it() {
        let scratch = Scratch::new();
        let data = scratch.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("run"), "#!/bin/sh\n").unwrap();
        let mount = Mount {
            source: fs::canonicalize(&data).unwrap(),
            target: "/mnt/code".into(),
            read_only: true,
            lent: true,
        };
        let in_mount = Planned {
            mounts: vec![mount],
            working_dir: Some("/mnt/code".into()),
            ..planned("bash", &["./run"])
        };
        let unfit = check_in(&scratch.path().join("agent"), &in_mount).unwrap_err();
        assert!(matches!(unfit, Unfit::NotExecutable { is_folder: false, .. }), "{unfit}");
        fs::set_permissions(data.join("run"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(check_in(&scratch.path().join("agent"), &in_mount).is_ok());
    }

    #[test]
    fn a_mount_tells_nothing_about_files_outside_of_it() {
        if !account::is_root() {
            println!("SKIPPED: acting as another account needs root");
            return;
        }
        let scratch = Scratch::new();
        let root = fs::canonicalize(scratch.path()).unwrap();
        let mode = |path: &Path, mode: u32| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        for folder in ["volume/open", "volume/closed", "closed"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("closed/hidden"), "#!/bin/sh\n").unwrap();
        mode(&root.join("closed/hidden"), 0o755);
        mode(&root.join("closed"), 0o700);
        mode(&root.join("volume/closed"), 0o700);
        std::os::unix::fs::symlink(root.join("closed/hidden"), root.join("volume/there")).unwrap();
        std::os::unix::fs::symlink(root.join("closed/nothing"), root.join("volume/away")).unwrap();
        let mount = Mount { source: root.join("volume"), target: "/v".into(), read_only: true, lent: true };
        let mounts = [mount];
        let sight = Sight::new(STRANGER, &mounts);
        let look = |path: &str| process::with_rights_of(STRANGER, || sight.look(Path::new(path))).unwrap();
        assert_eq!(
            (look("/v"), look("/v/open"), look("/v/none")),
            (Found::Folder, Found::Folder, Found::Missing)
        );
        assert_eq!(look("/v/closed"), Found::Closed, "with the rights of the account");
        for (there, away) in [("/v/../closed/hidden", "/v/../closed/nothing"), ("/v/there", "/v/away")] {
            assert_eq!((look(there), look(away)), (Found::Unknown, Found::Unknown), "{there} is as {away}");
        }
        let hidden = ["sh".to_owned(), "../closed/hidden.sh".to_owned()];
        let script = || sight.script("sh", &hidden, Some(Path::new("/v")));
        assert_eq!(process::with_rights_of(STRANGER, script), Ok(None));
    }

    #[test]
    fn a_program_behind_a_closed_folder_is_not_replaced_by_another_of_its_name() {
        if !account::is_root() {
            println!("SKIPPED: acting as another account needs root");
            return;
        }
        let scratch = Scratch::new();
        let root = fs::canonicalize(scratch.path()).unwrap();
        for folder in ["venv/bin", "home/python/bin", "usr"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for program in ["home/python/bin/python3", "usr/python3"] {
            fs::write(root.join(program), "#!/bin/sh\n").unwrap();
            fs::set_permissions(root.join(program), std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        std::os::unix::fs::symlink("../../home/python/bin/python3", root.join("venv/bin/python3")).unwrap();
        let closed = root.join("home");
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let sight = Sight::new(STRANGER, &[]);
        let find = |path: &str| {
            process::with_rights_of(STRANGER, || sight.program("python3", path, Some(Path::new("/"))))
                .unwrap()
        };
        let unfit = find(&format!("{0}/venv/bin:{0}/usr", root.display())).unwrap_err();
        let Unfit::ClosedProgram { path: named, at, .. } = &unfit else { panic!("{unfit}") };
        assert_eq!(*named, root.join("venv/bin/python3"));
        assert_eq!(fs::canonicalize(at).unwrap(), closed, "the folder that is closed is named, not the link");
        assert_eq!(find(&format!("{0}/usr:{0}/venv/bin", root.display())), Ok(root.join("usr/python3")));
    }

    #[test]
    fn the_trainer_runs_no_program_of_others() {
        let scratch = Scratch::new();
        let unfit =
            check_in(scratch.path(), &planned("berth/quickstart", &["pyhton3", "train.py"])).unwrap_err();
        assert!(unfit.to_string().contains("would not run `pyhton3`"), "{unfit}");
        for image in ["berth/quickstart", "netapp/tensorflow-tfl-py3:20.01.0"] {
            assert!(check_in(scratch.path(), &planned(image, &["--epochs", "3"])).is_ok());
        }
        assert!(check_in(scratch.path(), &planned("netapp/tensorflow-tfl-py3:20.01.0", &["python"])).is_ok());
    }
}
