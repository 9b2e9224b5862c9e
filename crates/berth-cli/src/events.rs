//! `berth events`: what happened, and what happens.

use crate::{
    failure::Exit,
    output::{self, Form, OutputArgs},
    session::{ProjectArg, Session},
    show::event_line,
};
use berth_api::{Event, EventList, EventQuery};
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth events                 the last 50
  berth events hyper1 -f       of one workload, as they happen
  berth events --all           with every report of progress and every checkpoint
  berth events -f --json       a line of JSON for each, of all kinds")]
pub(crate) struct EventsArgs {
    /// Only of this workload, as NAME or PROJECT/NAME
    name: Option<String>,
    #[command(flatten)]
    project: ProjectArg,
    /// Go on as they happen
    #[arg(short, long)]
    follow: bool,
    /// Number of events to show
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    last: usize,
    /// Also show reports of progress and checkpoints, which tables leave out
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Kinds that come too often to leave room for others; a table leaves them out unless all are asked for.
pub(crate) const STEADY: [&str; 2] = ["progressed", "checkpointed"];
/// The most events that are read to find enough of the others.
const READ_MAX: usize = 1_000;

impl EventsArgs {
    /// Whether an event is left out. Programs get all of them.
    fn leaves_out(&self, event: &Event) -> bool {
        let is_table = matches!(self.output.form(), Form::Table | Form::Wide);
        is_table && !self.all && STEADY.contains(&event.kind.as_str())
    }
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
    let mut list = session.client.events(&query).await?;
    if list.items.iter().any(|event| arguments.leaves_out(event)) {
        let more = EventQuery { last: Some(READ_MAX.max(arguments.last)), ..query.clone() };
        list = session.client.events(&more).await?;
        let read = list.items.len();
        list.items.retain(|event| !arguments.leaves_out(event));
        let left_out = read - list.items.len();
        list.items = list.items.split_off(list.items.len().saturating_sub(arguments.last));
        session.say(&format!(
            "berth: {left_out} reports of progress and checkpoints are left out; `berth events --all` shows them"
        ));
    }
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
        if arguments.leaves_out(&event) {
            continue;
        }
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
