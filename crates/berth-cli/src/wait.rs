//! `berth wait`: until workloads run, or have ended. The exit code tells how it went.

use crate::{
    failure::{Exit, Failure},
    session::{Place, ProjectArg, Session},
    submit::parse_secs,
};
use berth_api::{EventQuery, Status, Workload, WorkloadQuery};
use clap::{Args, ValueEnum};
use std::{collections::BTreeMap, time::Duration};

/// When nothing is heard for so long, the workloads are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Until {
    /// It runs, or has already ended
    Running,
    /// It has ended
    Finished,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit codes: 0 when all succeeded (or run, with --for running), 1 when one failed, was deleted or ran out of its time,
4 when the time given here is over, 5 when there is no such workload.

Examples:
  berth wait hyper1 && berth logs hyper1
  berth wait a b c --for running --timeout 10m")]
pub(crate) struct WaitArgs {
    /// The workloads, as NAME or PROJECT/NAME
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    project: ProjectArg,
    /// What is waited for
    #[arg(long = "for", value_enum, default_value = "finished", value_name = "UNTIL")]
    until: Until,
    /// Wait no longer than this, as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    timeout: Option<u64>,
}

pub(crate) async fn run(session: &Session, arguments: &WaitArgs) -> anyhow::Result<Exit> {
    let mut places = Vec::new();
    for name in &arguments.names {
        places.push(session.place(name, &arguments.project).await?);
    }
    wait_for(session, &places, arguments.until, arguments.timeout.map(Duration::from_secs)).await
}

pub(crate) async fn wait_for(
    session: &Session,
    places: &[Place],
    until: Until,
    timeout: Option<Duration>,
) -> anyhow::Result<Exit> {
    let waiting = follow(session, places, until);
    match timeout {
        None => waiting.await,
        Some(timeout) => match tokio::time::timeout(timeout, waiting).await {
            Ok(result) => result,
            Err(_) => {
                let what = match until {
                    Until::Running => "run",
                    Until::Finished => "ended",
                };
                let text = format!("not all of them {what} within {} s", timeout.as_secs());
                Err(Failure::new(Exit::TimedOut, text).hint("see why with `berth why NAME`").into())
            }
        },
    }
}

/// Looks at each once, then follows what happens from there, so that nothing in between is missed.
async fn follow(session: &Session, places: &[Place], until: Until) -> anyhow::Result<Exit> {
    let mut open: BTreeMap<u64, Place> = BTreeMap::new();
    let mut cursor: Option<u64> = None;
    let mut failed = false;
    for place in places {
        let query = WorkloadQuery {
            project: Some(place.project.clone()),
            name: Some(place.name.clone()),
            ..WorkloadQuery::default()
        };
        let listed = session.client.workloads(&query).await?;
        let workload = match listed.value.items.into_iter().next() {
            Some(workload) => workload,
            // Deleted ones are in no list, and whoever waits for one should know.
            None => match session.client.workload(&place.project, &place.name).await {
                Ok(workload) => workload,
                Err(error) => return Err(session.missing(error, place).await),
            },
        };
        match outcome(session, place, &workload, until) {
            Some(good) => failed |= !good,
            None => {
                open.insert(workload.id, place.clone());
            }
        }
        cursor = match (cursor, listed.cursor) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        };
    }
    let query = EventQuery { after: cursor, objects: true, ..EventQuery::default() };
    let mut stream = session.client.event_stream(&query);
    while !open.is_empty() {
        let about = match tokio::time::timeout(LOOK_AGAIN, stream.next()).await {
            Ok(event) => {
                let event = event?;
                let Some(id) = event.workload_id.filter(|id| open.contains_key(id)) else { continue };
                vec![(id, event.now)]
            }
            // Nothing said may also mean that nothing is heard.
            Err(_) => open.keys().map(|id| (*id, None)).collect(),
        };
        for (id, now) in about {
            let workload = match now {
                Some(workload) => *workload,
                // One that is over may no longer be told along with its last event.
                None => session.client.workload_by_id(id).await?,
            };
            let place = &open[&id];
            if let Some(good) = outcome(session, place, &workload, until) {
                failed |= !good;
                open.remove(&id);
            }
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Whether what was waited for happened well, or will never; nothing while that is open.
fn outcome(session: &Session, place: &Place, workload: &Workload, until: Until) -> Option<bool> {
    let good = match workload.status {
        Status::Succeeded => true,
        Status::Running if until == Until::Running => true,
        status if status.is_final() => false,
        _ => return None,
    };
    let message = workload.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
    session.say(&format!("berth: {place} {}{message}", workload.status));
    Some(good)
}
