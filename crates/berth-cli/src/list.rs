//! `berth list`: workloads, once or as they change.

use crate::{
    failure::Exit,
    output::{self, Form, OutputArgs, Spelling, time::Clock},
    session::{ProjectArg, Session},
    show::workload_table,
};
use berth_api::{Code, EventQuery, Status, Workload, WorkloadList, WorkloadQuery};
use clap::Args;
use serde::Deserialize;
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// What ended this long ago is still news.
const RECENT: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth list                      of the chosen project, or of all when none is chosen
  berth list -A --watch           of all projects, as they change
  berth list --status Pending -o name | xargs -n1 berth why
  berth list --json | jq -r '.items[].name'")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    project: ProjectArg,
    /// Of all projects
    #[arg(short = 'A', long)]
    all_projects: bool,
    /// Go on and show what changes
    #[arg(short, long)]
    watch: bool,
    /// Only with this status
    #[arg(long, value_parser = parse_status)]
    status: Option<Status>,
    /// Only of this person
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only with a place on this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// All finished ones too, not only those of the last hour
    #[arg(long, visible_alias = "all")]
    finished: bool,
    /// Rows of a table at most; 0 for all. Other forms of output are never cut
    #[arg(long, value_name = "ROWS", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// A status by its name in any case.
pub(crate) fn parse_status(text: &str) -> Result<Status, String> {
    let names = [
        "Pending",
        "Starting",
        "Running",
        "Stopping",
        "Terminating",
        "Suspended",
        "BackOff",
        "Succeeded",
        "Failed",
        "TimedOut",
        "Deleted",
    ];
    let name = names.into_iter().find(|name| name.eq_ignore_ascii_case(text));
    let name = name.ok_or_else(|| format!("write one of {}", names.join(", ")))?;
    let words: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        serde::de::IntoDeserializer::into_deserializer(name);
    Status::deserialize(words).map_err(|error| error.to_string())
}

impl ListArgs {
    fn query(&self, session: &Session) -> anyhow::Result<WorkloadQuery> {
        let project = if self.all_projects { None } else { session.chosen_project(&self.project)? };
        // Who asks for a status of finished ones means all of those.
        let all_finished = self.finished || self.status.is_some_and(Status::is_final);
        let recent = (!all_finished).then(|| Clock::of_machine().before(RECENT));
        Ok(WorkloadQuery {
            project,
            user: self.user.clone(),
            status: self.status,
            node: self.node.clone(),
            ended_after: recent,
            ..WorkloadQuery::default()
        })
    }
}

pub(crate) async fn run(session: &Session, arguments: &ListArgs) -> anyhow::Result<Exit> {
    let query = arguments.query(session)?;
    let is_table = matches!(arguments.output.form(), Form::Table | Form::Wide) && !arguments.watch;
    let count = if is_table && arguments.limit > 0 { arguments.limit } else { usize::MAX };
    let mut listed = session.client.some_workloads(&query, count).await?;
    if listed.value.next.is_some() || listed.value.items.len() > count {
        listed.value.items.truncate(count);
        session.say(&format!(
            "berth: the first {count} are shown; narrow them with -p, --status or --user, or see all with --limit 0"
        ));
    }
    if listed.value.items.is_empty() {
        match &query.project {
            // An empty answer and a mistyped project look the same, so it is looked up.
            Some(project) => {
                if let Err(error) = session.client.project(project, None).await {
                    return Err(session.missing_project(error, project).await);
                }
                session.say(&format!("berth: {project} has no workloads to show"));
            }
            None => session.say("berth: there are no workloads to show"),
        }
    }
    // The report prints this line above the jobs of one project, and none above those of all.
    if session.spelling == Spelling::Runai
        && arguments.output.form() == Form::Table
        && let Some(project) = &query.project
    {
        output::write_part(format!("Showing jobs for project {project}\n\n").as_bytes())?;
    }
    if !arguments.watch {
        session.show(arguments.output, &listed.value)?;
        return Ok(Exit::Done);
    }
    watch(session, arguments, &query, listed.value, listed.cursor).await
}

/// Follows the changes after the list. A terminal shows the whole table anew; a pipe gets a line for each change.
async fn watch(
    session: &Session,
    arguments: &ListArgs,
    query: &WorkloadQuery,
    mut list: WorkloadList,
    cursor: Option<u64>,
) -> anyhow::Result<Exit> {
    let is_live = io::stdout().is_terminal() && matches!(arguments.output.form(), Form::Table | Form::Wide);
    let mut look = session.look(arguments.output);
    if !is_live {
        output::write_part(rows(&list.items, arguments.output, &look)?.as_bytes())?;
    }
    look.headers &= is_live;
    let events =
        EventQuery { after: cursor, project: query.project.clone(), objects: true, ..EventQuery::default() };
    let mut stream = session.client.event_stream(&events);
    loop {
        look.clock = Clock::of_machine();
        if is_live {
            let text = format!("\x1b[H\x1b[2J\x1b[3J{}", look.table(&workload_table(&list.items, &look)));
            output::write_part(text.as_bytes())?;
        }
        // Ages grow even when nothing happens.
        let next = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
        let Ok(event) = next else { continue };
        let event = match event {
            // We were away for longer than events are kept: what is now is asked for anew.
            Err(error) if error.problem().is_some_and(|problem| problem.code == Code::Gone) => {
                let listed = session.client.all_workloads(query).await?;
                list = listed.value;
                stream = session.client.event_stream(&EventQuery { after: listed.cursor, ..events.clone() });
                continue;
            }
            event => event?,
        };
        let workload = match (event.now, event.workload_id) {
            (Some(workload), _) => workload,
            // One that is over may no longer be told along with its last event.
            (None, Some(id)) if list.items.iter().any(|shown| shown.id == id) => {
                Box::new(session.client.workload_by_id(id).await?)
            }
            _ => continue,
        };
        if !is_live && matches(query, &workload) {
            let text = rows(std::slice::from_ref(&*workload), arguments.output, &look)?;
            if !output::write_part(text.as_bytes())? {
                return Ok(Exit::Done);
            }
        }
        update(&mut list.items, query, *workload);
    }
}

/// Rows of a table, or a line of JSON for each.
fn rows(workloads: &[Workload], output: OutputArgs, look: &output::Look) -> anyhow::Result<String> {
    Ok(match output.form() {
        Form::Table | Form::Wide => look.table(&workload_table(workloads, look)),
        Form::Json => workloads
            .iter()
            .map(|workload| serde_json::to_string(workload).map(|line| line + "\n"))
            .collect::<Result<_, _>>()?,
        form => output::render(form, look, &WorkloadList { items: workloads.to_vec(), next: None })?,
    })
}

fn matches(query: &WorkloadQuery, workload: &Workload) -> bool {
    query.project.as_ref().is_none_or(|project| *project == workload.project)
        && query.user.as_ref().is_none_or(|user| *user == workload.user)
        && query.status.is_none_or(|status| status == workload.status)
        && query.node.as_deref().is_none_or(|node| workload.nodes().contains(&node))
}

/// Puts a workload in its place, or takes it away when it is no longer asked for.
fn update(items: &mut Vec<Workload>, query: &WorkloadQuery, workload: Workload) {
    // Deleted is what a person wants to see no more, unless it is asked for.
    let is_shown = workload.status != Status::Deleted || query.status == Some(Status::Deleted);
    let stays = is_shown && matches(query, &workload);
    match items.iter().position(|other| other.id == workload.id) {
        Some(index) if stays => items[index] = workload,
        Some(index) => {
            items.remove(index);
        }
        None if stays => items.push(workload),
        None => {}
    }
}
