//! Starts the workload's process. The only file of this crate with unsafe code: what happens in the child before it becomes the
//! workload, and a mount namespace of one's own.
#![allow(unsafe_code)]

use super::output::Keyboard;
use crate::{
    access::{self, become_account},
    account::{self, Account},
    cgroup::{Group, Limits},
    oci,
    process::MEETING_WORK,
    shell,
    task_folder::Order,
};
use rustix::{
    process::{Gid, Uid},
    process::{
        Pid, Signal, chdir, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid,
    },
    thread::{UnshareFlags, set_no_new_privs, unshare_unsafe},
};
use std::{
    collections::BTreeMap,
    ffi::CString,
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{self, Command},
};

/// A workload that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) output: OwnedFd,
    pub(super) keyboard: Keyboard,
    pub(super) group: Option<Group>,
}

/// What a process reads and prints.
#[derive(Debug)]
pub(super) enum Stdio {
    /// One side of a terminal, which becomes the terminal of its session.
    Terminal(OwnedFd),
    /// What it reads, prints, and prints as errors.
    Pipes(OwnedFd, OwnedFd, OwnedFd),
    /// It reads nothing; what it prints, and prints as errors.
    Mute(OwnedFd, OwnedFd),
}

impl Stdio {
    /// From what came with an order.
    pub(super) fn of(descriptors: Vec<OwnedFd>, terminal: bool) -> Result<Self, String> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| "a descriptor is missing".to_owned());
        if terminal { Ok(Self::Terminal(next()?)) } else { Ok(Self::Pipes(next()?, next()?, next()?)) }
    }

    fn has_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    fn give(self, command: &mut Command) -> io::Result<()> {
        let (stdin, stdout, stderr) = match self {
            Self::Terminal(slave) => (slave.try_clone()?.into(), slave.try_clone()?, slave),
            Self::Pipes(stdin, stdout, stderr) => (process::Stdio::from(stdin), stdout, stderr),
            Self::Mute(stdout, stderr) => (process::Stdio::null(), stdout, stderr),
        };
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        Ok(())
    }
}

/// Who a task runs as, if not as whoever runs this. Asked before anything of the task's is mounted: what looks it up are
/// libraries and files of the machine, and must be those of the machine. It may be a slow directory service.
pub(super) fn account(order: &Order) -> Result<Option<Account>, String> {
    let asked = order.spec.run_as.filter(|_| account::is_root());
    let account = asked.map(|(user, group)| Account::of(user, group)).transpose()?;
    Ok(account.map(|account| account.called(&order.spec.user)))
}

/// Starts what was ordered. The text says why it cannot run.
pub(super) fn spawn(order: &Order, account: Option<&Account>) -> Result<Running, String> {
    let launch = &order.launch;
    let [program, args @ ..] = &launch.argv[..] else {
        return Err("there is nothing to run".into());
    };
    // A container is made by root, and becomes its account inside.
    let account = account.filter(|_| launch.container.is_none());
    // Limits must hold from the first instruction. To enter takes the kernel some 15 ms, so without limits it is done later.
    let limits = limits(order);
    let group = order.control_group.as_ref().filter(|_| limits.any()).and_then(|place| {
        Group::create(place, &order.spec.id.to_string(), limits)
            .inspect_err(|error| eprintln!("berth: no control group: {error}"))
            .ok()
    });
    let (output, keyboard, stdio) =
        streams(order).map_err(|error| format!("no pipe for its output: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(account.iter().flat_map(|account| account.variables(MEETING_WORK)))
        .envs(&launch.environment);
    // A child that is not waited for through `Child` is reaped by the shim's loop, which reaps everything.
    match start(command, &launch.working_dir, stdio, group.as_ref(), account, Session::OfTask) {
        Ok(pid) => Ok(Running { pid, output, keyboard, group }),
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            Err(explain(&error, program, order, account))
        }
    }
}

/// Our side and the workload's side of what it reads and prints.
fn streams(order: &Order) -> io::Result<(OwnedFd, Keyboard, Stdio)> {
    if order.spec.terminal {
        let (master, slave) = shell::open_terminal()?;
        // Somebody prints before anybody looks; programs divide by the size.
        shell::set_size(&master, shell::TerminalSize { columns: 80, rows: 24 });
        return Ok((master.try_clone()?, Keyboard::Terminal(master), Stdio::Terminal(slave)));
    }
    let (output, writer) = shell::pipe()?;
    let second = writer.try_clone()?;
    if order.spec.stdin {
        let (reader, typed) = shell::pipe()?;
        return Ok((output, Keyboard::Pipe(typed), Stdio::Pipes(reader, writer, second)));
    }
    Ok((output, Keyboard::None, Stdio::Mute(writer, second)))
}

/// Starts a command beside the workload: as the same user, with its environment and folder, within the same limits, and in the
/// container if there is one. The text says why it cannot run.
pub(super) fn spawn_beside(
    order: &Order,
    account: Option<&Account>,
    group: Option<&Group>,
    words: &[String],
    environment: &BTreeMap<String, String>,
    stdio: Stdio,
) -> Result<u32, String> {
    let launch = &order.launch;
    let inside = launch.container.is_some();
    let words = match inside {
        true => oci::beside(launch, words, environment, stdio.has_terminal()),
        false => words.to_vec(),
    };
    let [program, args @ ..] = &words[..] else { return Err("there is nothing to run".into()) };
    let account = account.filter(|_| !inside);
    if let (Stdio::Terminal(slave), Some(account)) = (&stdio, account) {
        // The terminal is whose who runs in it, also for programs that open it by its name.
        let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
        let _ = rustix::fs::fchown(slave, Some(user), Some(group));
    }
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(account.iter().flat_map(|account| account.variables(MEETING_WORK)))
        .envs(&launch.environment)
        .envs(environment.iter().filter(|_| !inside))
        .env(crate::environment::MARK, &order.mark);
    start(command, &launch.working_dir, stdio, group, account, Session::Own)
        .map_err(|error| explain(&error, program, order, account))
}

/// To which session a new process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// That of the shim, in a group of its own.
    OfTask,
    /// A new one.
    Own,
}

/// Starts a process that does not outlive the shim.
fn start(
    mut command: Command,
    working_dir: &Path,
    stdio: Stdio,
    group: Option<&Group>,
    account: Option<&Account>,
    session: Session,
) -> io::Result<u32> {
    let terminal = stdio.has_terminal();
    stdio.give(&mut command)?;
    let own_session = terminal || session == Session::Own;
    if !own_session {
        command.process_group(0);
    }
    let mut doors = group.and_then(|group| group.doors().ok()).unwrap_or_default();
    let identity = account.map(Identity::of);
    let working_dir = CString::new(working_dir.as_os_str().as_bytes())?;
    let shim = getpid();
    let prepare = move || {
        if own_session {
            setsid()?;
        }
        if terminal {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        in_child(shim, &mut doors, identity.as_ref())?;
        // With the rights that it has from now on: whoever begins in a folder needs no leave for those above it.
        Ok(chdir(working_dir.as_c_str())?)
    };
    // SAFETY: the shim has one thread, so no lock can be held by another at the fork, and what runs in the child are a few
    // system calls and writes of constants to files that were opened before.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map(|child| child.id())
}

/// What the task may use.
pub(super) fn limits(order: &Order) -> Limits {
    Limits { memory: order.spec.memory, cpu: order.spec.cpu }
}

/// An account as the kernel knows it.
struct Identity {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Identity {
    fn of(account: &Account) -> Self {
        let groups = account.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        Self { user: Uid::from_raw(account.user), group: Gid::from_raw(account.group), groups }
    }
}

fn in_child(shim: Pid, doors: &mut [std::fs::File], identity: Option<&Identity>) -> io::Result<()> {
    for door in doors {
        // A process of real-time priority may not enter some groups; it runs without.
        let _ = door.write(b"0");
    }
    if let Some(Identity { user, group, groups }) = identity {
        become_account(*user, *group, groups)?;
        // No program makes more of it again, such as `sudo`: what it sees at the places of the machine's own may be its user's.
        if !user.is_root() {
            set_no_new_privs(true)?;
        }
    }
    // After the change of user, which would clear it. Without the shim nobody could stop it, count its time or tell of its end.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(shim) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

fn explain(error: &io::Error, program: &str, order: &Order, account: Option<&Account>) -> String {
    let folder = &order.launch.working_dir;
    if !folder.is_dir() {
        return format!("the working directory {} does not exist", folder.display());
    }
    if let Some(account) = account
        && access::enter_as_account(account, folder).is_err()
    {
        return format!(
            "the working directory {} cannot be entered by user {}",
            folder.display(),
            account.user
        );
    }
    let path = order.launch.environment.get("PATH").map_or("", String::as_str);
    // A folder of the path that is closed to the account hides behind a refusal that there is no such program anywhere.
    let is_nowhere = account.is_some_and(|account| !access::finds_as_account(account, path, program));
    match error.kind() {
        io::ErrorKind::PermissionDenied if is_nowhere => {
            format!("there is no program `{program}` on this machine")
        }
        io::ErrorKind::NotFound => format!("there is no program `{program}` on this machine"),
        io::ErrorKind::PermissionDenied => match order.launch.run_as {
            Some((user, _)) => format!("`{program}` may not be executed by user {user}: {error}"),
            None => format!("`{program}` may not be executed: {error}"),
        },
        _ => format!("`{program}` could not be started: {error}"),
    }
}

/// Runs a command of ours to its end, without a word.
pub(super) fn run_quietly(command: &[String], order: &Order) {
    let [program, args @ ..] = command else { return };
    let ended = Command::new(program)
        .args(args)
        .env("BERTH_TASK", &order.mark)
        .stdin(process::Stdio::null())
        .stdout(process::Stdio::null())
        .stderr(process::Stdio::null())
        .status();
    if let Err(error) = ended {
        eprintln!("berth: {program}: {error}");
    }
}

/// Whether this process may have mounts of its own.
pub(crate) fn can_have_own_mounts() -> bool {
    std::thread::spawn(|| own_mounts().is_ok()).join().unwrap_or(false)
}

/// From here on, what this process and its children mount is seen by them alone.
pub(super) fn own_mounts() -> rustix::io::Result<()> {
    // SAFETY: only the table of mounts is unshared, and with it the working folder of this thread; no file descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}
