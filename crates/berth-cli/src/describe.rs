//! `berth get` and `berth why`: all about one workload.

use crate::{
    events::STEADY,
    failure::Exit,
    output::{Form, OutputArgs},
    session::{ProjectArg, Session},
    show::Described,
};
use berth_api::EventQuery;
use clap::Args;

/// So many events are shown with a workload; `berth events NAME` shows all.
const EVENTS_SHOWN: usize = 10;
/// So many are looked through for them.
const EVENTS_READ: usize = 200;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OneArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn get(session: &Session, arguments: &OneArgs) -> anyhow::Result<Exit> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    let workload = match session.client.workload(&place.project, &place.name).await {
        Ok(workload) => workload,
        Err(error) => return Err(session.missing(error, &place).await),
    };
    let events = match arguments.output.form() {
        Form::Table | Form::Wide => {
            let query = EventQuery {
                workload: Some(workload.id.to_string()),
                last: Some(EVENTS_READ),
                ..EventQuery::default()
            };
            // The page is worth showing without them.
            let mut all = session.client.events(&query).await.map(|list| list.items).unwrap_or_default();
            all.retain(|event| !STEADY.contains(&event.kind.as_str()));
            all.split_off(all.len().saturating_sub(EVENTS_SHOWN))
        }
        _ => Vec::new(),
    };
    session.show(arguments.output, &Described { workload, events })?;
    Ok(Exit::Done)
}

pub(crate) async fn why(session: &Session, arguments: &OneArgs) -> anyhow::Result<Exit> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    match session.client.why(&place.project, &place.name).await {
        Ok(why) => session.show(arguments.output, &why)?,
        Err(error) => return Err(session.missing(error, &place).await),
    }
    Ok(Exit::Done)
}
