//! `berth events`: what happened, and what happens.

use crate::{
    failure::Exit,
    output::{self, Form, OutputArgs},
    session::{ProjectArg, Session},
    show::event_line,
};
use berth_api::{EventList, EventQuery};
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth events                 the last 50
  berth events hyper1 -f       of one workload, as they happen
  berth events -f --json       a line of JSON for each")]
pub(crate) struct EventsArgs {
    /// Only of this workload, as NAME or PROJECT/NAME
    name: Option<String>,
    #[command(flatten)]
    project: ProjectArg,
    /// Go on as they happen
    #[arg(short, long)]
    follow: bool,
    /// Only the last so many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    last: usize,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, arguments: &EventsArgs) -> anyhow::Result<Exit> {
    let mut query = EventQuery { last: Some(arguments.last), ..EventQuery::default() };
    match &arguments.name {
        Some(name) => {
            let place = session.place(name, &arguments.project).await?;
            if let Err(error) = session.client.workload(&place.project, &place.name).await {
                return Err(session.missing(error, &place).await);
            }
            query.project = Some(place.project);
            query.workload = Some(place.name);
        }
        // The chosen project is for workloads; what happened to nodes belongs to none, so only a named project counts.
        None => {
            query.project =
                session.chosen_project(&arguments.project)?.filter(|_| arguments.project.project.is_some())
        }
    }
    let list = session.client.events(&query).await?;
    if !arguments.follow {
        session.show(arguments.output, &list)?;
        return Ok(Exit::Done);
    }
    let cursor = list.cursor;
    if !write(session, arguments, &list)? {
        return Ok(Exit::Done);
    }
    let mut stream = session.client.event_stream(&EventQuery { after: Some(cursor), last: None, ..query });
    loop {
        let event = stream.next().await?;
        if !write(session, arguments, &EventList { cursor: event.seq, items: vec![event] })? {
            return Ok(Exit::Done);
        }
    }
}

/// Events as lines that do not depend on what comes later.
fn write(session: &Session, arguments: &EventsArgs, list: &EventList) -> anyhow::Result<bool> {
    let look = session.look(arguments.output);
    let text = match arguments.output.form() {
        Form::Table | Form::Wide => {
            list.items.iter().map(|event| event_line(event, &look)).collect::<String>()
        }
        Form::Json => {
            let lines = list.items.iter().map(|event| serde_json::to_string(event).map(|line| line + "\n"));
            lines.collect::<Result<String, _>>()?
        }
        form => output::render(form, &look, list)?,
    };
    output::write_part(text.as_bytes())
}
