//! `berth history`: what has ended, and who had how many GPUs when.

use crate::{
    failure::Exit,
    output::{Look, OutputArgs, Show, time},
    session::{ProjectArg, Session},
    show::Finished,
    submit::parse_secs,
};
use berth_api::{Series, SeriesPoint, SeriesQuery, Timestamp, WorkloadQuery};
use berth_types::{Span, Time};
use clap::{Args, Subcommand};
use serde::Serialize;

/// The series of GPUs that projects have, before the name of the project.
const GPUS_OF: &str = "gpus_allocated/";
/// Columns of a chart.
const COLUMNS: u64 = 60;

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    command: Option<HistoryCommand>,
    #[command(flatten)]
    finished: FinishedArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum HistoryCommand {
    /// GPUs of each project over time
    Usage(UsageArgs),
}

#[derive(Debug, Clone, Args)]
struct FinishedArgs {
    #[command(flatten)]
    project: ProjectArg,
    /// Of all projects
    #[arg(short = 'A', long)]
    all_projects: bool,
    /// Only of this person
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only the last so many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    last: usize,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Args)]
struct UsageArgs {
    /// From this long ago until now
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = parse_secs)]
    since: u64,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, arguments: &HistoryArgs) -> anyhow::Result<Exit> {
    match &arguments.command {
        Some(HistoryCommand::Usage(arguments)) => usage(session, arguments).await,
        None => finished(session, &arguments.finished).await,
    }
}

async fn finished(session: &Session, arguments: &FinishedArgs) -> anyhow::Result<Exit> {
    let project = if arguments.all_projects { None } else { session.chosen_project(&arguments.project)? };
    let query = WorkloadQuery {
        project,
        user: arguments.user.clone(),
        finished: Some(true),
        limit: Some(arguments.last.clamp(1, berth_api::PAGE_MAX)),
        ..WorkloadQuery::default()
    };
    let mut list = session.client.workloads(&query).await?.value;
    list.items.truncate(arguments.last);
    if list.items.is_empty() {
        session.say("berth: nothing has finished yet");
    }
    session.show(arguments.output, &Finished(list))?;
    Ok(Exit::Done)
}

async fn usage(session: &Session, arguments: &UsageArgs) -> anyhow::Result<Exit> {
    let to = time::now();
    let from = Time(to.0.saturating_sub(Span::secs(arguments.since).0));
    let mut usage = Usage { from: Timestamp(from), to: Timestamp(to), items: Vec::new() };
    for name in session.client.series().await?.items {
        if name.starts_with(GPUS_OF) {
            let query = SeriesQuery { name, from: Some(usage.from), to: Some(usage.to) };
            usage.items.push(session.client.series_points(&query).await?);
        }
    }
    if usage.items.is_empty() {
        session.say("berth: nothing has been recorded yet");
    }
    session.show(arguments.output, &usage)?;
    Ok(Exit::Done)
}

/// The GPUs of each project over a span.
#[derive(Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) items: Vec<Series>,
}

impl Show for Usage {
    fn text(&self, look: &Look) -> String {
        if self.items.is_empty() {
            return String::new();
        }
        let rows: Vec<(&str, Vec<Option<i64>>)> =
            self.items.iter().map(|series| (project_of(series), self.columns(&series.points))).collect();
        let largest = rows.iter().flat_map(|(_, row)| row.iter().flatten()).copied().max().unwrap_or(0);
        let width = rows.iter().map(|(project, _)| project.len()).max().unwrap_or(0);
        let column = Span(self.to.0.since(self.from.0).0 / COLUMNS);
        let mut text = format!(
            "GPUs from {} to {}, a column for {}, the highest for {}\n",
            look.clock.hour(self.from),
            look.clock.hour(self.to),
            time::long(column),
            gpus(largest)
        );
        for (project, row) in &rows {
            let bars: String = row.iter().map(|value| bar(*value, largest)).collect();
            let now = row.iter().rev().flatten().next().copied().unwrap_or(0);
            let most = row.iter().flatten().copied().max().unwrap_or(0);
            text.push_str(&format!("{project:<width$}  {bars}  {} now, {} at most\n", gpus(now), gpus(most)));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|series| project_of(series).to_owned()).collect()
    }
}

impl Usage {
    /// The mean of each column, in millionths. What was last measured holds until something else is.
    fn columns(&self, points: &[SeriesPoint]) -> Vec<Option<i64>> {
        let span = self.to.0.since(self.from.0).0.max(1);
        let mut sums: Vec<(i64, i64)> = vec![(0, 0); COLUMNS as usize];
        for point in points {
            let offset = point.at.0.since(self.from.0).0.min(span - 1);
            let column = (u128::from(offset) * u128::from(COLUMNS) / u128::from(span)) as usize;
            sums[column].0 = sums[column].0.saturating_add(point.mean);
            sums[column].1 += 1;
        }
        let mut last = None;
        sums.into_iter()
            .map(|(sum, count)| {
                if count > 0 {
                    last = Some(sum / count);
                }
                last
            })
            .collect()
    }
}

fn project_of(series: &Series) -> &str {
    series.name.strip_prefix(GPUS_OF).unwrap_or(&series.name)
}

/// Millionths as a number with at most one decimal.
fn gpus(millionths: i64) -> String {
    let tenths = (millionths + 50_000) / 100_000;
    if tenths % 10 == 0 { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

fn bar(value: Option<i64>, largest: i64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match value {
        None => ' ',
        Some(value) if value <= 0 || largest <= 0 => '_',
        Some(value) => BARS[((value.saturating_mul(8) - 1) / largest).clamp(0, 7) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::examples::look;

    fn point(at: &str, gpus: i64) -> SeriesPoint {
        let value = gpus * 1_000_000;
        SeriesPoint { at: at.parse().expect("a time"), mean: value, min: value, max: value }
    }

    #[test]
    fn usage_is_drawn_to_one_scale_and_holds_until_the_next_point() {
        let usage = Usage {
            from: "2026-11-17T00:00:00Z".parse().expect("a time"),
            to: "2026-11-17T01:00:00Z".parse().expect("a time"),
            items: vec![
                Series {
                    name: "gpus_allocated/team-a".into(),
                    points: vec![point("2026-11-17T00:30:00Z", 4), point("2026-11-17T00:58:00Z", 8)],
                },
                Series { name: "gpus_allocated/b".into(), points: vec![point("2026-11-17T00:00:00Z", 0)] },
            ],
        };
        assert_eq!(
            usage.text(&look()),
            format!(
                "GPUs from 00:00 to 01:00, a column for 1m, the highest for 8\n\
                 team-a  {}{}██  8 now, 8 at most\nb       {}  0 now, 0 at most\n",
                " ".repeat(30),
                "▄".repeat(28),
                "_".repeat(60)
            )
        );
    }
}
