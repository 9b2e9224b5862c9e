//! `berth url`: where a workload's port is reached, and a link for a browser. `berth notebook` ends with the same.

use crate::{
    failure::{Exit, Failure},
    output,
    session::{Place, ProjectArg, Session},
};
use berth_api::{Code, ConnectQuery};
use clap::Args;
use std::time::Duration;
use tokio::time::Instant;

/// A notebook that does not listen by then will not.
const LISTENS_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth url nb
  xdg-open \"$(berth url nb)\"")]
pub(crate) struct UrlArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
}

pub(crate) async fn run(session: &Session, arguments: &UrlArgs) -> anyhow::Result<Exit> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    print(session, &place).await
}

/// Prints a link that is good once.
pub(crate) async fn print(session: &Session, place: &Place) -> anyhow::Result<Exit> {
    let link = match session.client.link(&place.project, &place.name).await {
        Ok(link) => link,
        Err(error) => return Err(session.missing(error, place).await),
    };
    session.say(&format!("berth: this link is good once, within {} s:", link.expires_secs));
    output::write_part(format!("{}\n", link.url).as_bytes())?;
    Ok(Exit::Done)
}

/// Waits until somebody listens on a workload's first port.
pub(crate) async fn until_it_listens(session: &Session, place: &Place) -> anyhow::Result<()> {
    let workload = session.client.workload(&place.project, &place.name).await?;
    let port = workload.request.ports.first().copied().unwrap_or(0);
    let deadline = Instant::now() + LISTENS_WITHIN;
    loop {
        let query = ConnectQuery { port, rank: None };
        match session.client.connect_port(&place.project, &place.name, &query).await {
            Ok(_) => return Ok(()),
            // The server itself tries for a while before it says so.
            Err(error) if error.problem().is_some_and(|problem| problem.code == Code::WrongState) => {
                let workload = session.client.workload(&place.project, &place.name).await?;
                if workload.status.is_final() || Instant::now() > deadline {
                    let text = format!("{place} does not listen on port {port}: it is {}", workload.status);
                    let hint = format!("what it says is shown by `berth logs {place}`");
                    return Err(Failure::new(Exit::Failed, text).hint(hint).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
