//! `berth delete`, `suspend` and `resume`: one word for several workloads.

use crate::{
    failure::{Exit, Failure},
    output::{self, Form, OutputArgs, Spelling},
    session::{ProjectArg, Session},
};
use berth_api::{Status, WorkloadList, WorkloadQuery};
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ManyArgs {
    /// The workloads, as NAME or PROJECT/NAME
    #[arg(required_unless_present = "all", value_name = "NAME")]
    names: Vec<String>,
    /// All unfinished workloads of the project
    #[arg(long, conflicts_with = "names")]
    all: bool,
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

/// Does it to each, whatever becomes of the others; the exit code is that of the first failure.
pub(crate) async fn run(session: &Session, verb: Verb, arguments: &ManyArgs) -> anyhow::Result<Exit> {
    let mut done = Vec::new();
    let mut exit = Exit::Done;
    for name in names(session, arguments).await? {
        let place = session.place(&name, &arguments.project).await?;
        let (project, name) = (place.project.as_str(), place.name.as_str());
        let result = match verb {
            Verb::Delete => session.client.delete_workload(project, name).await,
            Verb::Suspend => session.client.workload_action(project, name, "suspend").await,
            Verb::Resume => session.client.workload_action(project, name, "resume").await,
        };
        match result {
            Ok(workload) => {
                confirm(session, verb, &place.to_string(), name, workload.status, arguments.output)?;
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
    if !arguments.all {
        return Ok(arguments.names.clone());
    }
    let project = session.project(&arguments.project).await?;
    let query = WorkloadQuery { project: Some(project), finished: Some(false), ..WorkloadQuery::default() };
    let listed = session.client.all_workloads(&query).await?.value.items;
    Ok(listed.into_iter().map(|workload| format!("{}/{}", workload.project, workload.name)).collect())
}

fn confirm(
    session: &Session,
    verb: Verb,
    place: &str,
    name: &str,
    status: Status,
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
    session.say(&match (verb, status) {
        (Verb::Delete, Status::Terminating) => format!("berth: {place} was told to stop for good"),
        (Verb::Delete, _) => format!("berth: {place} is deleted"),
        (Verb::Suspend, _) => format!("berth: {place} is suspended; go on with `berth resume {place}`"),
        (Verb::Resume, _) => format!("berth: {place} waits for its place again"),
    });
    Ok(())
}
