//! `berth backup` and `restore`: one file that holds everything.

use crate::{
    failure::{Exit, Failure},
    output::OutputArgs,
    server::is_alive,
    session::{ServerArgs, Session},
};
use anyhow::Context;
use berth_api::BackupRequest;
use berth_server::Folder;
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  berth backup ~/berth-$(date +%F).backup")]
pub(crate) struct BackupArgs {
    /// A file that is not there yet
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn backup(session: &Session, arguments: &BackupArgs) -> anyhow::Result<Exit> {
    // The server has another working folder than the person.
    let path = std::path::absolute(&arguments.file).context("the file has no absolute path")?;
    let path = path.to_str().ok_or_else(|| Failure::misuse("the path of the file is not UTF-8 text"))?;
    let written = session.client.backup(&BackupRequest { path: path.to_owned() }).await?;
    session.show(arguments.output, &written)?;
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Example:\n  berth restore berth.backup --folder /data/berth-2 && berth up --folder /data/berth-2"
)]
pub(crate) struct RestoreArgs {
    /// A file that `berth backup` wrote
    file: PathBuf,
}

/// Makes a folder from a backup. The folder has to be empty, and nobody may run in it.
pub(crate) fn restore(server: &ServerArgs, arguments: &RestoreArgs) -> anyhow::Result<Exit> {
    let folder = server.folder()?;
    refuse_while_running(&folder)?;
    let manifest = berth_store::restore(&arguments.file, &Folder::at(&folder).store())
        .with_context(|| format!("{} was not restored", arguments.file.display()))?;
    eprintln!(
        "berth: {} is restored up to event {}; start it with `berth up --folder {}`",
        folder.display(),
        manifest.last_seq,
        folder.display()
    );
    Ok(Exit::Done)
}

fn refuse_while_running(folder: &Path) -> Result<(), Failure> {
    match berth_client::running(folder) {
        Ok(Some(running)) if is_alive(running.pid) => {
            let text = format!("berth runs in {} (process {})", folder.display(), running.pid);
            Err(Failure::new(Exit::Refused, text)
                .hint("end it with `berth down`, or name another folder with --folder"))
        }
        // What cannot be read names nobody who runs; that the folder is not empty is found next.
        _ => Ok(()),
    }
}
