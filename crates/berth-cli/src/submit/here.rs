//! The place of the caller: a submission to a server of this machine runs where the caller stands.

use super::args::SubmitArgs;
use crate::{failure::Failure, session::Session};
use berth_api::{CALLER_VARIABLES, CallerPlace, Code, RuntimeName, WorkloadRequest};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// In place of a working directory: the workload's own folder.
const OWN_FOLDER: &str = "-";

/// Adds the place of the caller to a request for a process, if the server sees the same files.
pub(super) async fn add(
    session: &Session,
    arguments: &SubmitArgs,
    request: &mut WorkloadRequest,
) -> anyhow::Result<()> {
    let wants_own = arguments.working_dir.as_deref() == Some(OWN_FOLDER);
    if wants_own {
        request.working_dir = None;
    }
    let named = request.working_dir.clone();
    let is_relative = named.as_ref().is_some_and(|path| !Path::new(path).is_absolute());
    if request.runtime != RuntimeName::Process && !is_relative {
        return Ok(());
    }
    let machine = match session.client.cluster().await {
        Ok(server) => server.machine,
        // What stands in front of a server may know submissions only.
        Err(error) if error.problem().is_some_and(|problem| problem.code == Code::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let is_here = machine.is_some() && machine == berth_api::machine_identity();
    if !is_here || request.runtime != RuntimeName::Process {
        return match named.filter(|_| is_relative) {
            None => Ok(()),
            Some(path) => Err(Failure::misuse(format!(
                "--working-dir {path} is a relative path, and the workload does not see the files of this directory"
            ))
            .hint("write an absolute path, as the machine or the image of the workload has it")
            .into()),
        };
    }
    let working_dir = match named {
        _ if wants_own => None,
        Some(_) if !is_relative => None,
        named => {
            let here = current_dir()?;
            let folder = named.map_or_else(|| here.clone(), |named| here.join(named));
            Some(text(&plain(&folder))?)
        }
    };
    // A directory that was named is one that the workload needs.
    if is_relative {
        request.working_dir = working_dir.clone();
    }
    request.caller = Some(CallerPlace { working_dir, environment: sent() });
    Ok(())
}

fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::misuse(format!("the current directory, in which the workload would run, cannot be used: {error}"))
            .hint("change to another with `cd`, or name one with --working-dir DIR; --working-dir - is a folder of its own")
    })
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| {
        Failure::misuse(format!("the name of the directory {} is not UTF-8 text", path.display()))
            .hint("name another with --working-dir DIR")
    })?;
    Ok(text.to_owned())
}

/// The same path without `.` and `..`, so that every list shows it in one way.
fn plain(path: &Path) -> PathBuf {
    // What does not exist is refused by the server, which says so in the words for every such path.
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Everything else stays here, because it may be a secret; `-e NAME` sends one more.
fn sent() -> BTreeMap<String, String> {
    let of =
        |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok().filter(|value| !value.is_empty())?));
    CALLER_VARIABLES.iter().filter_map(of).collect()
}
