//! `berth check`: whether what was written makes sense, without a server.

use crate::{
    failure::{Exit, Failure},
    output,
    session::ServerArgs,
};
use berth_server::{Folder, ServerError};
use berth_store::StoreError;
use clap::Args;

#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "\
Every event since the last snapshot is read and applied, as at a start, and the state is held against the rules: no
device given twice, no gang in part. Nothing is changed. Exit code 1 means that something is wrong.")]
pub(crate) struct CheckArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(server: &ServerArgs, arguments: CheckArgs) -> anyhow::Result<Exit> {
    let folder = Folder::at(server.folder()?);
    if !folder.store().exists() {
        let text = format!("{} holds no server", folder.path().display());
        return Err(Failure::new(Exit::NotFound, text)
            .hint("name its folder with --folder or BERTH_HOME")
            .into());
    }
    let berth_server::Written { state, unfinished, seq } =
        berth_server::read_state(&folder, &Default::default()).map_err(|error| match error {
            ServerError::Store(StoreError::Locked { .. }) => anyhow::Error::from(
                Failure::new(Exit::Failed, "the server runs").hint("stop it first with `berth down`"),
            ),
            error => error.into(),
        })?;
    let findings = berth_check::check_state(&state);
    let text = match arguments.json {
        true => {
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            let json = serde_json::json!({
                "events": seq, "nodes": state.nodes.len(), "projects": state.projects.len(),
                "workloads": unfinished, "findings": findings,
            });
            serde_json::to_string_pretty(&json)? + "\n"
        }
        false => {
            let mut text = format!(
                "{seq} events; {} nodes, {} projects, {} unfinished workloads; {} findings\n",
                state.nodes.len(),
                state.projects.len(),
                unfinished,
                findings.len()
            );
            findings.iter().for_each(|finding| text.push_str(&format!("{finding}\n")));
            text
        }
    };
    output::write_part(text.as_bytes())?;
    Ok(if findings.is_empty() { Exit::Done } else { Exit::Failed })
}
