//! `berth bash` and `berth exec`: a shell or a command beside a worker that runs as a process of this machine.
//!
//! It gets the worker's environment, with the GPUs it was given, and its working folder; where the worker sees other mounts,
//! it is started among them. Nothing is charged for it: it shares what the worker has.

use crate::{
    failure::{Exit, Failure},
    session::{Place, ProjectArg, Session},
};
use anyhow::Context;
use berth_api::{RuntimeName, TaskView, Workload};
use clap::Args;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BashArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
    /// Beside this worker
    #[arg(long, default_value_t = 0, value_name = "N")]
    rank: u32,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Example:\n  berth exec build1 -- nvidia-smi -L")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    worker: BashArgs,
    /// Keep stdin, which is always so
    #[arg(short = 'i', long, hide = true)]
    stdin: bool,
    /// Use the terminal, which is always so
    #[arg(short, long, hide = true)]
    tty: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn bash(session: &Session, arguments: &BashArgs) -> anyhow::Result<ExitCode> {
    let shell = ["/bin/bash", "/bin/sh"].into_iter().find(|shell| Path::new(shell).exists()).unwrap_or("sh");
    run(session, arguments, &[shell.into()]).await
}

pub(crate) async fn exec(session: &Session, arguments: &ExecArgs) -> anyhow::Result<ExitCode> {
    run(session, &arguments.worker, &arguments.command).await
}

async fn run(session: &Session, arguments: &BashArgs, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    let workload = match session.client.workload(&place.project, &place.name).await {
        Ok(workload) => workload,
        Err(error) => return Err(session.missing(error, &place).await),
    };
    let pid = process_of(&place, &workload, arguments.rank)?;
    let beside = Beside::read(&place, worker_behind(pid))?;
    let mut command = beside.command(words)?;
    let status = command.status().with_context(|| format!("cannot start {}", words[0].display()))?;
    Ok(code_of(status))
}

/// The process of a worker, if it runs here and as one.
fn process_of(place: &Place, workload: &Workload, rank: u32) -> Result<u32, Failure> {
    if workload.request.runtime != RuntimeName::Process {
        return Err(Failure::misuse(format!(
            "{place} runs in a container, and this release enters processes only"
        ))
        .hint("use the tool of the container's runtime, such as `docker exec`"));
    }
    let task: Option<&TaskView> = workload.tasks.iter().find(|task| task.rank == rank);
    task.and_then(|task| task.pid).ok_or_else(|| {
        let text = format!("worker {rank} of {place} has no process: it is {}", workload.status);
        Failure::new(Exit::Refused, text).hint(format!("wait for it with `berth wait {place} --for running`"))
    })
}

/// The process that does the work. A keeper of ours may stand before it, whose environment is not the worker's.
fn worker_behind(pid: u32) -> u32 {
    let folder = Path::new("/proc").join(pid.to_string());
    let words = fs::read(folder.join("cmdline")).unwrap_or_default();
    if words.split(|byte| *byte == 0).nth(1) != Some(b"shim") {
        return pid;
    }
    let children = fs::read_to_string(folder.join("task").join(pid.to_string()).join("children"));
    children.ok().and_then(|pids| pids.split_whitespace().next()?.parse().ok()).unwrap_or(pid)
}

/// What a process started beside a worker needs.
#[derive(Debug)]
struct Beside {
    pid: u32,
    environment: Vec<(OsString, OsString)>,
    folder: PathBuf,
    /// Whether the worker sees other mounts than we do.
    has_own_mounts: bool,
    /// Whether it counts users in another way, as it must where only root may mount.
    has_own_users: bool,
}

impl Beside {
    fn read(place: &Place, pid: u32) -> Result<Self, Failure> {
        let proc = Path::new("/proc").join(pid.to_string());
        let unreadable = |error: io::Error| {
            let text = format!("the process {pid} of {place} cannot be looked into: {error}");
            Failure::new(Exit::Refused, text)
                .hint("it can be entered on the machine where it runs, by the user it runs as")
        };
        let environment = fs::read(proc.join("environ")).map_err(unreadable)?;
        let variables = environment.split(|byte| *byte == 0).filter_map(|variable| {
            let end = variable.iter().position(|byte| *byte == b'=')?;
            Some((
                OsStr::from_bytes(&variable[..end]).to_owned(),
                OsStr::from_bytes(&variable[end + 1..]).to_owned(),
            ))
        });
        let has_own = |namespace: &str| {
            let of = |process: &Path| fs::read_link(process.join("ns").join(namespace)).map_err(unreadable);
            Ok::<bool, Failure>(of(&proc)? != of(Path::new("/proc/self"))?)
        };
        Ok(Self {
            pid,
            environment: variables.collect(),
            folder: fs::read_link(proc.join("cwd")).map_err(unreadable)?,
            has_own_mounts: has_own("mnt")?,
            has_own_users: has_own("user")?,
        })
    }

    fn command(&self, words: &[OsString]) -> Result<Command, Failure> {
        let mut command = match self.has_own_mounts {
            false => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).current_dir(&self.folder);
                command
            }
            true => {
                if std::env::var_os("PATH").is_none_or(|path| {
                    !std::env::split_paths(&path).any(|folder| folder.join("nsenter").exists())
                }) {
                    return Err(Failure::new(
                        Exit::Failed,
                        "it sees other mounts, and `nsenter` is not installed",
                    )
                    .hint("install the package util-linux"));
                }
                let mut command = Command::new("nsenter");
                if self.has_own_users {
                    // The worker is the same person there, and so are we.
                    command.args(["--user", "--preserve-credentials"]);
                }
                command.args(["--mount", "--wd", "--target"]).arg(self.pid.to_string()).arg("--").args(words);
                command
            }
        };
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        // The terminal is the person's, not the worker's.
        for name in ["TERM", "COLORTERM", "LANG"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        Ok(command)
    }
}

/// The command's own exit code, and the usual number for one that was killed.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_beside_a_process_has_its_environment_and_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut worker = Command::new("sleep")
            .arg("60")
            .env_clear()
            .env("CUDA_VISIBLE_DEVICES", "3")
            .current_dir(folder.path())
            .spawn()
            .expect("starts");
        let place = Place { project: "a".into(), name: "b".into() };
        // Until the new program has replaced the copy of this one, the environment is ours.
        let beside = loop {
            let beside = Beside::read(&place, worker_behind(worker.id())).expect("is ours");
            if beside.environment.len() == 1 {
                break beside;
            }
            std::thread::yield_now();
        };
        assert!(!beside.has_own_mounts && !beside.has_own_users);
        let words = ["/bin/sh".into(), "-c".into(), "echo $CUDA_VISIBLE_DEVICES; pwd".into()];
        let output = beside.command(&words).expect("can be started").output().expect("runs");
        worker.kill().expect("is ended");
        worker.wait().expect("is collected");
        let folder = folder.path().canonicalize().expect("a path");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("3\n{}\n", folder.display()));
    }

    #[test]
    fn only_what_differs_is_entered() {
        let entered = |has_own_users: bool| {
            let beside = Beside {
                pid: 7,
                environment: vec![],
                folder: "/".into(),
                has_own_mounts: true,
                has_own_users,
            };
            let command = beside.command(&["ls".into()]).expect("nsenter is part of every Linux");
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        // Entering the namespace one is in already is refused by the system.
        assert_eq!(entered(false), "--mount --wd --target 7 -- ls");
        assert_eq!(entered(true), "--user --preserve-credentials --mount --wd --target 7 -- ls");
    }

    #[test]
    fn only_a_process_that_runs_can_be_entered() {
        let place = Place { project: "a".into(), name: "b".into() };
        let running = crate::show::examples::running();
        assert_eq!(process_of(&place, &running, 0), Ok(4711));
        assert!(process_of(&place, &running, 1).is_err_and(|failure| failure.exit == Exit::Refused));
        let waiting = crate::show::examples::waiting();
        assert!(
            process_of(&place, &waiting, 0).is_err_and(|failure| failure.text.ends_with("it is Pending"))
        );
        let mut contained = running;
        contained.request.runtime = RuntimeName::Docker;
        assert!(process_of(&place, &contained, 0).is_err_and(|failure| failure.exit == Exit::Misused));
    }
}
