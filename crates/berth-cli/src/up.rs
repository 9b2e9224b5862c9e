//! `berth up`: starts a server on this machine.

use crate::{
    failure::{Exit, Failure},
    names,
    session::ServerArgs,
};
use berth_api::GpuAmount;
use clap::Args;
use std::{net::SocketAddr, path::PathBuf};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  berth up -d                                      with the GPUs of this machine, in the background
  berth up --nodes 2xdgx1 --project team-a=4 --project team-b=2
  berth up --listen 127.0.0.1:0                    on any free port")]
pub(crate) struct UpArgs {
    /// Nodes declared for trying it out, as 2xdgx1, or a file that describes them; those found when absent
    #[arg(long, value_name = "NODES|FILE")]
    pub(crate) nodes: Option<String>,
    /// Where it listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7370", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// A project that is created if it is missing, with its quota
    #[arg(long = "project", value_name = "NAME=QUOTA", value_parser = parse_project)]
    pub(crate) projects: Vec<(String, GpuAmount)>,
    /// Go on in the background
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// What images run as processes
    #[arg(long, value_name = "FILE")]
    pub(crate) images: Option<PathBuf>,
}

fn parse_project(text: &str) -> Result<(String, GpuAmount), String> {
    let (name, quota) = text.split_once('=').ok_or("write NAME=QUOTA, as team-a=4")?;
    names::check("project", name).map_err(|failure| failure.to_string())?;
    Ok((name.to_owned(), quota.parse().map_err(|error: berth_types::AmountError| error.to_string())?))
}

/// Starts the server in the folder of `server`, and returns when it ends, or once it runs in the background.
pub(crate) fn run(server: &ServerArgs, arguments: &UpArgs) -> anyhow::Result<Exit> {
    let _ = (server.folder()?, arguments);
    Err(Failure::new(Exit::Failed, "this build has no server").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_named_with_their_quota() {
        assert_eq!(
            parse_project("team-a=4").expect("is read"),
            ("team-a".into(), "4".parse().expect("an amount"))
        );
        assert!(
            parse_project("team-a").is_err()
                && parse_project("../x=1").is_err()
                && parse_project("a=b").is_err()
        );
    }
}
