//! `berth down`, `status` and `version`: the server itself.

use crate::{
    config::{self, Config},
    failure::{Exit, Failure},
    output::{self, Form, OutputArgs},
    session::{ServerArgs, Session},
    submit::parse_secs,
};
use berth_client::ClientError;
use clap::Args;
use serde::Serialize;
use std::{
    path::Path,
    time::{Duration, Instant},
};

#[derive(Debug, Clone, Args)]
pub(crate) struct DownArgs {
    /// Leave what runs running; the next `berth up` takes it over. Otherwise it saves its state, and goes on then
    #[arg(long)]
    keep_workloads: bool,
    /// Wait no longer than this until it has ended
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = parse_secs)]
    timeout: u64,
}

/// Asks the server to end, and waits until its process is gone.
pub(crate) async fn down(session: &Session, arguments: &DownArgs) -> anyhow::Result<Exit> {
    let pid = session.client.pid();
    session.client.shutdown(arguments.keep_workloads).await?;
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
    while is_there(session, pid).await {
        if Instant::now() > deadline {
            let text = format!("it was told to end, and has not within {} s", arguments.timeout);
            return Err(Failure::new(Exit::TimedOut, text).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    session.say("berth: it has ended");
    Ok(Exit::Done)
}

/// Whether the server still is: its process when that is known, or else somebody who answers.
async fn is_there(session: &Session, pid: Option<u32>) -> bool {
    match pid {
        Some(pid) => is_alive(pid),
        None => !matches!(session.client.ready().await, Err(ClientError::Unreachable { .. })),
    }
}

/// Whether a process runs. One that has ended and was not collected by its parent does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) else {
        return false;
    };
    // The name before the state may hold anything, also brackets; the last one ends it.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

pub(crate) async fn status(session: &Session, arguments: OutputArgs) -> anyhow::Result<Exit> {
    let cluster = session.client.cluster().await?;
    if matches!(arguments.form(), Form::Table | Form::Wide) {
        let pid = session.client.pid().map(|pid| format!(", process {pid}")).unwrap_or_default();
        session.say(&format!("berth: running at {}{pid}", session.client.address()));
    }
    session.show(arguments, &cluster)?;
    Ok(Exit::Done)
}

/// Prints a link to the dashboard that signs in whoever opens it, once.
pub(crate) async fn dashboard(session: &Session) -> anyhow::Result<Exit> {
    let link = session.client.sign_in_link().await?;
    crate::write_data(format!("{}{}\n", session.client.address(), link.path).as_bytes())?;
    session.say("berth: open it in a browser; it signs you in once, within the hour");
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct VersionArgs {
    /// Only of this command; ask no server
    #[arg(long, visible_alias = "short")]
    client: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
}

/// The releases on both sides. That no server runs is no failure here.
pub(crate) fn version(server: &ServerArgs, arguments: VersionArgs) -> anyhow::Result<Exit> {
    let asked = || -> Option<String> {
        let config = Config::load(config::default_path().as_deref()).ok()?;
        let client = berth_client::Client::new(server.endpoint(&config).ok()?, "");
        match crate::block_on(async { Ok(client.cluster().await) }).ok()? {
            Ok(cluster) => Some(cluster.version),
            Err(ClientError::Version { server, .. }) => Some(server),
            Err(_) => None,
        }
    };
    let versions =
        Versions { client: berth_api::release(), server: if arguments.client { None } else { asked() } };
    let text = match arguments.output.form() {
        Form::Json => serde_json::to_string_pretty(&versions)? + "\n",
        Form::Yaml => serde_saphyr::to_string(&versions)?,
        Form::Table | Form::Wide | Form::Name => match &versions.server {
            Some(server) => format!("berth {}\nserver {server}\n", versions.client),
            None => format!("berth {}\n", versions.client),
        },
    };
    output::write_part(text.as_bytes())?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_alive_even_while_its_parent_has_not_looked() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(Path::new("/proc").join(child.id().to_string()).exists(), "nobody has collected it");
        child.wait().expect("is collected");
        assert!(!is_alive(u32::MAX));
    }
}
