//! `berth logs`: what a workload printed, or prints.

use crate::{
    failure::{Exit, Failure},
    output,
    session::{ProjectArg, Session},
};
use berth_api::LogQuery;
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth logs hyper1 -f
  berth logs gang --rank 3 --tail 100
  berth logs flaky --previous          the run before the last")]
pub(crate) struct LogsArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
    /// Go on while it runs
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short, long, value_name = "LINES", allow_negative_numbers = true)]
    tail: Option<i64>,
    /// Of this worker
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Of this run, from one
    #[arg(long, value_name = "N", conflicts_with = "previous")]
    run: Option<u32>,
    /// Of the run before the last
    #[arg(long)]
    previous: bool,
}

pub(crate) async fn run(session: &Session, arguments: &LogsArgs) -> anyhow::Result<Exit> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    let run = match arguments.previous {
        false => arguments.run,
        true => match session.client.workload(&place.project, &place.name).await {
            Ok(workload) if workload.runs > 1 => Some(workload.runs - 1),
            Ok(workload) => {
                let text =
                    format!("{place} has no run before the last: it was started {} times", workload.runs);
                return Err(Failure::new(Exit::NotFound, text).into());
            }
            Err(error) => return Err(session.missing(error, &place).await),
        },
    };
    let query = LogQuery {
        rank: arguments.rank,
        run,
        // The report's default, -1, means all lines.
        tail: arguments.tail.and_then(|lines| usize::try_from(lines).ok()),
        follow: arguments.follow,
    };
    let mut log = match session.client.logs(&place.project, &place.name, &query).await {
        Ok(log) => log,
        Err(error) => return Err(session.missing(error, &place).await),
    };
    loop {
        let part = match log.next().await {
            Ok(Some(part)) => part,
            Ok(None) => break,
            // A log that is cut off may be one that may not be read any more; the server says so to whoever asks.
            Err(error) => {
                session.client.workload(&place.project, &place.name).await?;
                return Err(error.into());
            }
        };
        if !output::write_part(&part)? {
            break;
        }
    }
    Ok(Exit::Done)
}
