//! `berth logs`: what a workload printed, or prints.

use crate::{
    failure::{Exit, Failure},
    output,
    session::{Place, ProjectArg, Session},
};
use berth_api::{Code, LogQuery};
use berth_client::Client;
use clap::Args;
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinSet};

/// Parts of logs that wait to be printed; readers wait when there are more.
const LINES_MAX: usize = 64;

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth logs hyper1 -f
  berth logs gang --rank 3 --tail 100
  berth logs gang --all -f             of all workers, each line with its rank
  berth logs sweep --index 17          one index of a sweep, its last attempt
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
    /// Of all workers, each line with its rank
    #[arg(long, conflicts_with_all = ["rank", "index"])]
    all: bool,
    /// Of this index of a sweep: its last attempt
    #[arg(long, value_name = "N", conflicts_with_all = ["rank", "run", "previous"])]
    index: Option<u32>,
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
        index: arguments.index,
        run,
        // The report's default, -1, means all lines.
        tail: arguments.tail.and_then(|lines| usize::try_from(lines).ok()),
        follow: arguments.follow,
    };
    if arguments.all {
        return all(session, &place, &query).await;
    }
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

/// Prints the logs of all workers: one after the other, or as they come when they are followed.
async fn all(session: &Session, place: &Place, query: &LogQuery) -> anyhow::Result<Exit> {
    let workload = match session.client.workload(&place.project, &place.name).await {
        Ok(workload) => workload,
        Err(error) => return Err(session.missing(error, place).await),
    };
    let last = workload.tasks.iter().map(|task| task.rank + 1).max().unwrap_or(0);
    let (lines, mut printed) = mpsc::channel::<anyhow::Result<Vec<u8>>>(LINES_MAX);
    let mut workers = JoinSet::new();
    for rank in 0..last.max(workload.workers_max) {
        let query = LogQuery { rank: Some(rank), ..query.clone() };
        let worker =
            Worker { client: Arc::clone(&session.client), place: place.clone(), query, lines: lines.clone() };
        match worker.query.follow {
            true => drop(workers.spawn(worker.read(rank))),
            // Not at once, so that what was printed is in the order of ranks.
            false => {
                let mut one = JoinSet::new();
                one.spawn(worker.read(rank));
                while let Some(result) = next(&mut one, &mut printed).await {
                    if !output::write_part(&result?)? {
                        return Ok(Exit::Done);
                    }
                }
            }
        }
    }
    drop(lines);
    while let Some(result) = printed.recv().await {
        if !output::write_part(&result?)? {
            break;
        }
    }
    Ok(Exit::Done)
}

/// The next lines, until the reader has ended and nothing is left.
async fn next(
    reader: &mut JoinSet<()>,
    printed: &mut mpsc::Receiver<anyhow::Result<Vec<u8>>>,
) -> Option<anyhow::Result<Vec<u8>>> {
    loop {
        tokio::select! {
            biased;
            Some(part) = printed.recv() => return Some(part),
            ended = reader.join_next() => if ended.is_none() { return printed.try_recv().ok() },
        }
    }
}

/// Reads the log of one worker.
struct Worker {
    client: Arc<Client>,
    place: Place,
    query: LogQuery,
    lines: mpsc::Sender<anyhow::Result<Vec<u8>>>,
}

impl Worker {
    /// Sends whole lines with the rank before each, so that workers do not cut into one another's.
    async fn read(self, rank: u32) {
        let mut log = match self.client.logs(&self.place.project, &self.place.name, &self.query).await {
            Ok(log) => log,
            // A worker that was never started has no log.
            Err(error) if error.problem().is_some_and(|problem| problem.code == Code::NotFound) => return,
            Err(error) => return drop(self.lines.send(Err(error.into())).await),
        };
        let mut rest = Vec::new();
        loop {
            let part = match log.next().await {
                Ok(Some(part)) => part,
                Ok(None) => break,
                Err(error) => return drop(self.lines.send(Err(error.into())).await),
            };
            rest.extend_from_slice(&part);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let whole: Vec<u8> = rest.drain(..=end).collect();
            if self.lines.send(Ok(prefixed(rank, &whole))).await.is_err() {
                return;
            }
        }
        if !rest.is_empty() {
            rest.push(b'\n');
            let _ = self.lines.send(Ok(prefixed(rank, &rest))).await;
        }
    }
}

/// Lines, each with the rank of the worker that printed it.
fn prefixed(rank: u32, lines: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(format!("[{rank}] ").as_bytes());
        text.extend_from_slice(line);
    }
    text
}
