//! `berth delete`, `suspend` and `resume`: one word for several workloads.

use crate::{
    confirm,
    failure::{Exit, Failure},
    output::{self, Form, OutputArgs, Spelling, time},
    session::{ProjectArg, Session},
};
use berth_api::{Status, Workload, WorkloadList, WorkloadQuery};
use berth_types::Span;
use clap::Args;

/// The grace of work that asks for none.
const GRACE_SECS: u64 = 30;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ManyArgs {
    /// The workloads, as NAME or PROJECT/NAME
    #[arg(required_unless_present_any = ["all", "all_projects"], value_name = "NAME")]
    names: Vec<String>,
    /// All unfinished workloads of the project
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// All unfinished workloads of all projects; asks first
    #[arg(short = 'A', long, conflicts_with_all = ["names", "all", "project"])]
    all_projects: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    project: ProjectArg,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Delete,
    Suspend,
    Resume,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Suspend => "Suspend",
            Self::Resume => "Resume",
        }
    }
}

/// Does it to each, whatever becomes of the others; the exit code is that of the first failure.
pub(crate) async fn run(session: &Session, verb: Verb, arguments: &ManyArgs) -> anyhow::Result<Exit> {
    let mut done = Vec::new();
    let mut exit = Exit::Done;
    let names = names(session, arguments).await?;
    if arguments.all_projects && !arguments.yes && !names.is_empty() {
        let workloads = if names.len() == 1 { "workload" } else { "workloads" };
        confirm::ask(&format!("{} {} {workloads} of all projects?", verb.word(), names.len()))?;
    }
    // What is no name at all stops everything before the first is touched.
    let mut places = Vec::with_capacity(names.len());
    for name in &names {
        places.push(session.place(name, &arguments.project).await?);
    }
    for place in places {
        let (project, name) = (place.project.as_str(), place.name.as_str());
        let result = match verb {
            Verb::Delete => session.client.delete_workload(project, name).await,
            Verb::Suspend => session.client.workload_action(project, name, "suspend").await,
            Verb::Resume => session.client.workload_action(project, name, "resume").await,
        };
        match result {
            Ok(workload) => {
                confirmed(session, verb, &place.to_string(), name, &workload, arguments.output)?;
                done.push(workload);
            }
            Err(error) => {
                let failure = Failure::of(&session.missing(error, &place).await);
                // Without a server the others would only say the same again.
                if failure.exit == Exit::NotRunning {
                    return Err(failure.into());
                }
                eprintln!("{}: {failure}", session.spelling.command());
                exit = if exit == Exit::Done { failure.exit } else { exit };
            }
        }
    }
    if !matches!(arguments.output.form(), Form::Table | Form::Wide) {
        session.show(arguments.output, &WorkloadList { items: done, next: None })?;
    }
    Ok(exit)
}

async fn names(session: &Session, arguments: &ManyArgs) -> anyhow::Result<Vec<String>> {
    if !arguments.all && !arguments.all_projects {
        return Ok(arguments.names.clone());
    }
    let project = match arguments.all_projects {
        true => None,
        false => Some(session.project(&arguments.project).await?),
    };
    let query = WorkloadQuery { project, finished: Some(false), ..WorkloadQuery::default() };
    let listed = session.client.all_workloads(&query).await?.value.items;
    Ok(listed.into_iter().map(|workload| format!("{}/{}", workload.project, workload.name)).collect())
}

fn confirmed(
    session: &Session,
    verb: Verb,
    place: &str,
    name: &str,
    workload: &Workload,
    output: OutputArgs,
) -> anyhow::Result<()> {
    if session.spelling == Spelling::Runai && output.form() == Form::Table {
        let past = match verb {
            Verb::Delete => "deleted",
            Verb::Suspend => "suspended",
            Verb::Resume => "resumed",
        };
        return output::write_part(format!("The job '{name}' has been {past} successfully\n").as_bytes())
            .map(|_| ());
    }
    session.say(&match (verb, workload.status) {
        (Verb::Delete, Status::Terminating) => {
            let grace = workload.request.grace_secs.unwrap_or(GRACE_SECS);
            format!("berth: {place} stopping ({} grace)", time::long(Span::secs(grace)))
        }
        (Verb::Delete, _) => format!("berth: {place} deleted"),
        (Verb::Suspend, _) => format!("berth: {place} suspended; `berth resume {place}` continues it"),
        (Verb::Resume, _) => format!("berth: {place} queued again"),
    });
    Ok(())
}
