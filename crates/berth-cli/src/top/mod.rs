//! `berth top`: what nodes and workloads do, live in a terminal, once elsewhere.

mod rows;
mod screen;

use crate::{
    failure::Exit,
    output::{self, Form, OutputArgs},
    session::{ProjectArg, Session},
};
use berth_api::{Cluster, NodeList, WorkloadList, WorkloadQuery};
use clap::{Args, Subcommand};
use rows::{Sort, Subject};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// Between two looks at the server.
const REFRESH: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TopCommand {
    /// Nodes: GPUs given and busy
    #[command(visible_alias = "nodes")]
    Node(TableArgs),
    /// Workloads that have a place or wait for one
    #[command(visible_aliases = ["jobs", "workload", "workloads"])]
    Job(JobArgs),
}

/// `berth top` shows workloads unless it names something else.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TopArgs {
    #[command(subcommand)]
    command: Option<TopCommand>,
    #[command(flatten)]
    workloads: JobArgs,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct TableArgs {
    /// One table, and no more
    #[arg(long)]
    once: bool,
    /// The order of rows
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Keys: q quits; n, g, b, p, a, s sort by name, GPUs, busy, project, age, status; arrows scroll."
)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    project: ProjectArg,
    /// Of all projects, also when one is chosen
    #[arg(short = 'A', long)]
    all_projects: bool,
    #[command(flatten)]
    top: TableArgs,
}

/// What the server said last.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    cluster: Cluster,
    nodes: NodeList,
    workloads: WorkloadList,
}

pub(crate) async fn run(session: &Session, arguments: &TopArgs) -> anyhow::Result<Exit> {
    let of_workloads = |arguments: &JobArgs| {
        let project = match arguments.all_projects {
            true => None,
            false => session.chosen_project(&arguments.project)?,
        };
        Ok::<_, crate::failure::Failure>((Subject::Workloads, arguments.top, project))
    };
    let (subject, arguments, project) = match &arguments.command {
        Some(TopCommand::Node(arguments)) => (Subject::Nodes, *arguments, None),
        Some(TopCommand::Job(arguments)) => of_workloads(arguments)?,
        None => of_workloads(&arguments.workloads)?,
    };
    let first = look(session, project.as_deref()).await?;
    if !matches!(arguments.output.form(), Form::Table | Form::Wide) {
        return match subject {
            Subject::Nodes => session.show(arguments.output, &first.nodes),
            Subject::Workloads => session.show(arguments.output, &first.workloads),
        }
        .map(|()| Exit::Done);
    }
    if arguments.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let look = session.look(arguments.output);
        let text =
            look.table(&rows::table(subject, &first, arguments.sort, &look)) + &rows::totals(&first) + "\n";
        output::write_part(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    live(session, subject, arguments, project.as_deref(), first).await?;
    Ok(Exit::Done)
}

async fn look(session: &Session, project: Option<&str>) -> anyhow::Result<Seen> {
    let query = WorkloadQuery {
        project: project.map(str::to_owned),
        finished: Some(false),
        ..WorkloadQuery::default()
    };
    Ok(Seen {
        cluster: session.client.cluster().await?,
        nodes: session.client.nodes().await?,
        workloads: session.client.all_workloads(&query).await?.value,
    })
}

/// Draws until the person has seen enough. What goes wrong in between is shown, and tried again.
async fn live(
    session: &Session,
    subject: Subject,
    arguments: TableArgs,
    project: Option<&str>,
    mut seen: Seen,
) -> anyhow::Result<()> {
    let mut terminal = screen::Terminal::open()?;
    let mut view = screen::View::new(subject, arguments.sort);
    loop {
        if !terminal.show(&mut view, &seen, &session.look(arguments.output), REFRESH)? {
            return Ok(());
        }
        match look(session, project).await {
            Ok(new) => {
                seen = new;
                view.trouble = None;
            }
            Err(error) => view.trouble = Some(crate::failure::Failure::of(&error).text),
        }
    }
}
