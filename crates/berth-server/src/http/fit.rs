//! Whether the machine, or the cluster, can run what a request asks for. A caller learns it now instead of when the turn of the
//! workload has come.

use super::{state::AppState, workloads::find_account};
use crate::{
    platform::{self, user_ids},
    tasks::{Tasks, runtime},
};
use berth_agent::{Checked, Mount, Planned, Unfit};
use berth_api::{CallerPlace, Code, Framework, Problem, WorkloadRequest};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A file system or a container engine that takes longer does not answer.
const WITHIN: Duration = Duration::from_secs(40);
/// Names are long enough to read, and short enough for one line.
const CLOSED_SHOWN_MAX: usize = 3;

/// A request as it would be run, and what speaks against it.
pub(super) struct Fit {
    pub(super) request: WorkloadRequest,
    pub(super) unfit: Option<Problem>,
    /// The program that would run, where that is known.
    pub(super) program: Option<String>,
    pub(super) warnings: Vec<String>,
}

impl Fit {
    fn refused(request: WorkloadRequest, problem: Problem) -> Self {
        Self { request, unfit: Some(problem), program: None, warnings: Vec::new() }
    }
}

/// Looks at a request of a user. An account becomes the numbers that the machine knows it by, so that a later account of the same
/// name is another. The place of the caller becomes a part of the request where it applies.
pub(super) async fn ask(state: &AppState, mut request: WorkloadRequest, user: &str) -> Fit {
    let caller = request.caller.take().unwrap_or_default();
    let Some(tasks) = &state.tasks else {
        let unfit = unfit_for_cluster(&mut request);
        return Fit { request, unfit, program: None, warnings: Vec::new() };
    };
    // The network is that of the machine in any case, so there is nothing to allow.
    request.host_network = false;
    if std::mem::take(&mut request.privileged) {
        let problem = Problem::invalid("privileged", "on one machine nothing is privileged: leave it out");
        let hint = "work runs as the user that --run-as names; privileged work is for Berth on Kubernetes";
        return Fit::refused(request, problem.hint(hint));
    }
    if let Some(text) = request.run_as.clone() {
        match find_account(tasks, text).await {
            Ok((user, group)) => request.run_as = Some(format!("{user}:{group}")),
            Err(why) => {
                let problem = Problem::invalid("run_as", why);
                return Fit::refused(
                    request,
                    problem.hint("`getent passwd` lists the users of this machine"),
                );
            }
        }
    }
    let account = request.run_as.clone().or_else(|| state.shared.read().next_account(user));
    if let Some(problem) = not_absolute(&request, &caller) {
        return Fit::refused(request, problem);
    }
    let planned = planned(tasks, &request, &caller, account.as_deref());
    let host = Arc::clone(&tasks.host);
    let asked = tokio::task::spawn_blocking(move || host.check(&planned));
    match tokio::time::timeout(WITHIN, asked).await {
        Ok(Ok(Ok(checked))) => apply(request, caller, checked),
        Ok(Ok(Err(unfit))) => {
            let problem = problem(&unfit, user);
            Fit::refused(request, problem)
        }
        _ => {
            let text = format!(
                "the files of this workload could not be looked at within {} seconds",
                WITHIN.as_secs()
            );
            Fit::refused(
                request,
                Problem::new(Code::Overloaded, text).hint("does a network file system hang?"),
            )
        }
    }
}

/// What the agent needs to judge a request.
fn planned(tasks: &Tasks, request: &WorkloadRequest, caller: &CallerPlace, account: Option<&str>) -> Planned {
    let mut whole = request.clone();
    platform::complete(&mut whole);
    let mounts = whole.mounts.iter().map(|mount| Mount {
        source: PathBuf::from(&mount.source),
        target: PathBuf::from(&mount.target),
        read_only: mount.read_only,
        lent: false,
    });
    // A volume that is not there is refused by its name, not by its folder.
    let volumes = whole.volumes.iter().map(|mount| (tasks.volumes.join(&mount.name), mount));
    let volumes = volumes.filter(|(source, mount)| berth_api::is_name(&mount.name) && source.is_dir());
    let volumes = volumes.map(|(source, mount)| Mount {
        source,
        target: PathBuf::from(&mount.target),
        read_only: mount.read_only,
        lent: true,
    });
    // What starts the command on the workers is what must be there.
    let command = match whole.framework {
        Framework::None => whole.command,
        Framework::Torchrun => vec!["torchrun".into()],
        Framework::Mpi => vec!["mpirun".into()],
    };
    Planned {
        runtime: runtime(whole.runtime),
        image: whole.image,
        local_image: whole.local_image,
        command,
        args: whole.args,
        environment: whole.environment,
        working_dir: whole.working_dir.map(PathBuf::from),
        caller_dir: caller.working_dir.as_ref().map(PathBuf::from),
        caller_environment: caller.environment.clone(),
        mounts: mounts.chain(volumes).collect(),
        run_as: account.and_then(user_ids),
    }
}

/// A relative path means nothing to a server.
fn not_absolute(request: &WorkloadRequest, caller: &CallerPlace) -> Option<Problem> {
    let mut named = [&request.working_dir, &caller.working_dir].into_iter().flatten();
    let relative = named.find(|path| !Path::new(path).is_absolute() || path.contains('\0'))?;
    let text = format!("the working directory {} is not an absolute path", berth_api::quoted(relative));
    Some(Problem::invalid("working_dir", text))
}

/// Copies the place of the caller into the request, as far as it applies.
fn apply(mut request: WorkloadRequest, caller: CallerPlace, checked: Checked) -> Fit {
    let Checked { working_dir, takes_caller_environment, program, warnings } = checked;
    request.working_dir = working_dir.map(|path| path.display().to_string());
    if takes_caller_environment {
        for (name, value) in caller.environment {
            request.environment.entry(name).or_insert(value);
        }
    }
    Fit { request, unfit: None, program: program.map(|path| path.display().to_string()), warnings }
}

/// A refusal of the agent, with what the caller can do about it.
fn problem(unfit: &Unfit, user: &str) -> Problem {
    let field = match unfit {
        Unfit::Image(_) => "image",
        Unfit::Mount(_) => "mounts",
        Unfit::NoFolder(_) | Unfit::NotAFolder(_) | Unfit::ClosedFolder { .. } => "working_dir",
        Unfit::ClosedEnvironment { .. } => "environment",
        Unfit::NoProgram { .. }
        | Unfit::NoFile(_)
        | Unfit::NotExecutable { .. }
        | Unfit::ClosedProgram { .. }
        | Unfit::Command(_) => "command",
    };
    let problem = Problem::invalid(field, unfit.to_string());
    match unfit {
        Unfit::Image(_) | Unfit::Mount(_) | Unfit::Command(_) => problem,
        Unfit::NoFolder(_) | Unfit::NotAFolder(_) => problem.hint(format!(
            "the workload runs on {}: name a directory of that machine with --working-dir, or mount a volume with --pvc NAME:PATH",
            this_host()
        )),
        Unfit::ClosedFolder { path, at, user: account } => problem.hint(format!(
            "{}\n  or start it elsewhere: --working-dir DIR, or --working-dir - for a folder of its own\n  \
             or put the files into a volume: `berth volume create code`, then --pvc code:/code --working-dir /code\n  {}",
            acl(path, at, *account),
            other_account(user)
        )),
        Unfit::ClosedEnvironment { variable, path, at, user: account } => problem.hint(format!(
            "{}\n  or run it without: `unset {variable}` and take it off the PATH (`deactivate`)\n  {}",
            acl(path, at, *account),
            other_account(user)
        )),
        Unfit::ClosedProgram { path, at, user: account } => {
            problem.hint(format!("{}\n  {}", acl(path, at, *account), other_account(user)))
        }
        Unfit::NotExecutable { path, is_folder: false } => problem.hint(format!(
            "`chmod +x {0}`, or name what runs it, as in `-- python3 {0}`",
            path.display()
        )),
        Unfit::NotExecutable { .. } => problem,
        Unfit::NoFile(_) => problem.hint("a path is relative to the directory in which the workload starts: --working-dir"),
        Unfit::NoProgram { program, near, closed } => {
            let near = berth_api::nearest(program, near.iter().map(String::as_str));
            problem.hint(match (near, &closed[..]) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "install it, or name it by its path; -e PATH=... sets another PATH".into(),
                (None, closed) => {
                    let closed = closed.iter().take(CLOSED_SHOWN_MAX).map(|path| path.display().to_string());
                    format!(
                        "these directories of the PATH are closed to the account of the workload: {}",
                        closed.collect::<Vec<_>>().join(", ")
                    )
                }
            })
        }
    }
}

/// The command that opens a directory or a program to an account, and to nobody else.
fn acl(path: &Path, at: &Path, user: u32) -> String {
    let rights = if path == at { "rx" } else { "x" };
    format!("give that user access: `setfacl -m u:{user}:{rights} {}`", typed(at))
}

/// A path as a shell reads it.
fn typed(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@:,".contains(letter);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn other_account(user: &str) -> String {
    format!(
        "or let it run as another account: an admin names one (`berth user set {user} --account ACCOUNT`), or starts the server \
         with `berth up --change --tasks-run-as server`"
    )
}

/// The name of this machine, for people.
fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What a cluster has against a request that one machine would take.
fn unfit_for_cluster(request: &mut WorkloadRequest) -> Option<Problem> {
    request.runtime = Default::default();
    if request.image.is_empty() {
        let text = "a cluster runs images: name one with --image";
        return Some(Problem::invalid("image", text));
    }
    None
}
