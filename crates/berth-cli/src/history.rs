//! `berth history`: what has ended, who had how many GPUs when, and how busy they were.

use crate::{
    failure::Exit,
    output::{Look, OutputArgs, Show, time},
    session::{ProjectArg, Session},
    show::Finished,
    submit::parse_secs,
};
use berth_api::{GpuAmount, Percent, Series, SeriesPoint, SeriesQuery, Timestamp, WorkloadQuery};
use berth_types::{Span, Time};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;

/// The series of GPUs that projects have, before the name of the project.
const GPUS_OF: &str = "gpus_allocated/";
/// The series of how busy the GPUs of a node are, before the name of the node.
const BUSY_OF: &str = "gpu_utilisation/";
/// The series of memory in use, before the node and the number of its GPU.
const MEMORY_OF: &str = "gpu_memory_used/";
/// Samples come this often.
const SAMPLES_EVERY: Span = Span::secs(10);
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
    /// How busy the GPUs of each node were over time, and how full their memory
    #[command(visible_alias = "node")]
    Nodes(UsageArgs),
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
        Some(HistoryCommand::Nodes(arguments)) => nodes(session, arguments).await,
        None => finished(session, &arguments.finished).await,
    }
}

async fn finished(session: &Session, arguments: &FinishedArgs) -> anyhow::Result<Exit> {
    let project = if arguments.all_projects { None } else { session.chosen_project(&arguments.project)? };
    let query = WorkloadQuery {
        project,
        user: arguments.user.clone(),
        finished: Some(true),
        deleted: true,
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
    let (from, to) = window(arguments);
    let items = load(session, GPUS_OF, from, to).await?;
    // Of every pool, unlike what a project is shown with.
    let query = WorkloadQuery { finished: Some(false), ..WorkloadQuery::default() };
    let mut now: BTreeMap<String, GpuAmount> = BTreeMap::new();
    for workload in session.client.all_workloads(&query).await?.value.items {
        now.entry(workload.project).or_default().0 += workload.gpus_allocated.0;
    }
    show(session, arguments, &Usage { from, to, now, items })
}

async fn nodes(session: &Session, arguments: &UsageArgs) -> anyhow::Result<Exit> {
    let (from, to) = window(arguments);
    let utilisation = load(session, BUSY_OF, from, to).await?;
    let memory = load(session, MEMORY_OF, from, to).await?;
    let nodes = session.client.nodes().await?.items;
    let now = nodes.into_iter().map(|node| (node.name, node.utilisation)).collect();
    show(session, arguments, &NodeUse { from, to, now, utilisation, memory })
}

fn window(arguments: &UsageArgs) -> (Timestamp, Timestamp) {
    let to = time::now();
    (Timestamp(Time(to.0.saturating_sub(Span::secs(arguments.since).0))), Timestamp(to))
}

/// Every series whose name begins so.
async fn load(
    session: &Session,
    prefix: &str,
    from: Timestamp,
    to: Timestamp,
) -> anyhow::Result<Vec<Series>> {
    let mut all = Vec::new();
    for name in session.client.series().await?.items {
        if name.starts_with(prefix) {
            let query = SeriesQuery { name, from: Some(from), to: Some(to) };
            all.push(session.client.series_points(&query).await?);
        }
    }
    Ok(all)
}

fn show(session: &Session, arguments: &UsageArgs, shown: &impl Show) -> anyhow::Result<Exit> {
    if shown.names().is_empty() {
        session.say("berth: nothing has been recorded yet");
    }
    session.show(arguments.output, shown)?;
    Ok(Exit::Done)
}

/// The GPUs of each project over a span.
#[derive(Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// GPUs of each project at this moment.
    pub(crate) now: BTreeMap<String, GpuAmount>,
    /// In the unit that each series names, times its scale.
    pub(crate) items: Vec<Series>,
}

impl Show for Usage {
    fn text(&self, look: &Look) -> String {
        let chart =
            Chart { from: self.from, to: self.to, what: "GPUs", prefix: GPUS_OF, full: None, unit: gpus };
        // A project that is gone has nothing now.
        let now = |project: &str| Some(self.now.get(project).map_or(0, |gpus| gpus.0.0 as i64));
        chart.text(&self.items, now, look)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|series| after(GPUS_OF, series).to_owned()).collect()
    }
}

/// How busy the GPUs of each node were, and how full.
#[derive(Debug, Serialize)]
pub(crate) struct NodeUse {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Mean utilisation of each node's GPUs at this moment, in percent; absent when it is not known.
    pub(crate) now: BTreeMap<String, Option<Percent>>,
    /// In millionths of a percent, the mean of the node's GPUs.
    pub(crate) utilisation: Vec<Series>,
    /// In bytes, by node and GPU.
    pub(crate) memory: Vec<Series>,
}

impl Show for NodeUse {
    fn text(&self, look: &Look) -> String {
        let (from, to) = (self.from, self.to);
        let what = "GPU utilisation";
        let busy = Chart { from, to, what, prefix: BUSY_OF, full: Some(100_000_000), unit: percent };
        let what = "GPU memory in use";
        let memory = Chart { from, to, what, prefix: MEMORY_OF, full: None, unit: bytes };
        let is_busy = |node: &str| self.now.get(node).copied().flatten().map(|busy| busy.0.0 as i64);
        let last = |name: &str| {
            let series = self.memory.iter().find(|series| after(MEMORY_OF, series) == name)?;
            let point = series.points.last()?;
            (to.0.since(point.at.0) <= hold(&series.points)).then_some(point.mean)
        };
        let charts = [busy.text(&self.utilisation, is_busy, look), memory.text(&self.memory, last, look)];
        charts.into_iter().filter(|chart| !chart.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn names(&self) -> Vec<String> {
        self.utilisation.iter().map(|series| after(BUSY_OF, series).to_owned()).collect()
    }
}

/// Several series to one scale, a line for each.
struct Chart {
    from: Timestamp,
    to: Timestamp,
    what: &'static str,
    /// What the names of all series begin with.
    prefix: &'static str,
    /// What a full bar stands for; the largest value when absent.
    full: Option<i64>,
    unit: fn(i64) -> String,
}

impl Chart {
    /// `now` is what holds at this moment, by name; nothing when that is not known.
    fn text(&self, items: &[Series], now: impl Fn(&str) -> Option<i64>, look: &Look) -> String {
        if items.is_empty() {
            return String::new();
        }
        let rows: Vec<(&str, Vec<Option<i64>>)> =
            items.iter().map(|series| (after(self.prefix, series), self.columns(&series.points))).collect();
        let most = |series: &Series| series.points.iter().map(|point| point.max).max();
        let largest = items.iter().filter_map(most).max().unwrap_or(0);
        let full = self.full.unwrap_or(largest);
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let column = Span(self.to.0.since(self.from.0).0 / COLUMNS);
        // An hour alone names no moment of a span that has it twice.
        let moment = |at| match self.to.0.since(self.from.0) < Span::secs(20 * 3600) {
            true => look.clock.hour(at),
            false => look.clock.day_and_hour(at),
        };
        let mut text = format!(
            "{} from {} to {}, a column for {}, the highest for {}\n",
            self.what,
            moment(self.from),
            moment(self.to),
            time::long(column),
            (self.unit)(full)
        );
        for ((name, row), series) in rows.iter().zip(items) {
            let bars: String = row.iter().map(|value| bar(*value, full)).collect();
            let now = now(name).map_or_else(|| "unknown".into(), self.unit);
            let most = most(series).map_or_else(|| "unknown".into(), self.unit);
            text.push_str(&format!("{name:<width$}  {bars}  {now} now, {most} at most\n"));
        }
        text
    }

    /// The mean of each column. What was last measured holds until the next point was due, and not over a gap.
    fn columns(&self, points: &[SeriesPoint]) -> Vec<Option<i64>> {
        let span = self.to.0.since(self.from.0).0.max(1);
        let mut sums: Vec<(i64, i64)> = vec![(0, 0); COLUMNS as usize];
        for point in points {
            let offset = point.at.0.since(self.from.0).0.min(span - 1);
            let column = (u128::from(offset) * u128::from(COLUMNS) / u128::from(span)) as usize;
            sums[column].0 = sums[column].0.saturating_add(point.mean);
            sums[column].1 += 1;
        }
        let hold = hold(points);
        let mut before = points.iter().peekable();
        let mut last: Option<&SeriesPoint> = None;
        sums.into_iter()
            .enumerate()
            .map(|(column, (sum, count))| {
                let (begin, end) = (column as u64 * span / COLUMNS, (column as u64 + 1) * span / COLUMNS);
                while let Some(point) = before.next_if(|point| point.at.0.since(self.from.0).0 < end) {
                    last = Some(point);
                }
                if count > 0 {
                    return Some(sum / count);
                }
                let last = last?;
                let age = begin.saturating_sub(last.at.0.since(self.from.0).0);
                (age <= hold.0).then_some(last.mean)
            })
            .collect()
    }
}

/// How long a point stands for what comes after it: twice the usual distance of two points.
fn hold(points: &[SeriesPoint]) -> Span {
    let gaps = points.windows(2).map(|two| two[1].at.0.since(two[0].at.0).0).filter(|gap| *gap > 0);
    Span(2 * gaps.min().unwrap_or(0).max(SAMPLES_EVERY.0))
}

fn after<'a>(prefix: &str, series: &'a Series) -> &'a str {
    series.name.strip_prefix(prefix).unwrap_or(&series.name)
}

/// Millionths as a number with at most one decimal.
fn gpus(millionths: i64) -> String {
    let tenths = (millionths + 50_000) / 100_000;
    if tenths % 10 == 0 { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

/// Millionths of a percent as whole percent.
fn percent(millionths: i64) -> String {
    format!("{} %", (millionths + 500_000) / 1_000_000)
}

fn bytes(count: i64) -> String {
    let tenths = (count.max(0) as u128 * 10 / (1 << 30)) as u64;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
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

    fn series(name: &str, points: Vec<SeriesPoint>) -> Series {
        Series { name: name.into(), unit: "gpus".into(), scale: Some(1_000_000), points }
    }

    #[test]
    fn a_gap_in_what_was_measured_stays_a_gap() {
        let minutes = |from: u32, to: u32, gpus: i64| {
            (from..to).map(move |minute| point(&format!("2026-11-17T00:{minute:02}:00Z"), gpus))
        };
        let usage = Usage {
            from: "2026-11-17T00:00:00Z".parse().expect("a time"),
            to: "2026-11-17T01:00:00Z".parse().expect("a time"),
            now: [("team-a".to_owned(), "2".parse().expect("an amount"))].into(),
            items: vec![
                series("gpus_allocated/team-a", minutes(10, 20, 4).chain(minutes(50, 60, 8)).collect()),
                series("gpus_allocated/b", minutes(0, 60, 0).collect()),
            ],
        };
        assert_eq!(
            usage.text(&look()),
            format!(
                "GPUs from 00:00 to 01:00, a column for 1m, the highest for 8\n\
                 team-a  {}{}{}{}  2 now, 8 at most\nb       {}  0 now, 0 at most\n",
                " ".repeat(10),
                "▄".repeat(12),
                " ".repeat(28),
                "█".repeat(10),
                "_".repeat(60)
            )
        );
    }

    #[test]
    fn the_most_is_what_was_had_for_a_moment_and_now_is_now() {
        let at = "2026-11-17T00:30:00Z".parse().expect("a time");
        let short = SeriesPoint { at, mean: 2_700_000, min: 0, max: 8_000_000 };
        let usage = Usage {
            from: "2026-11-17T00:00:00Z".parse().expect("a time"),
            to: "2026-11-17T01:00:00Z".parse().expect("a time"),
            now: BTreeMap::new(),
            items: vec![series("gpus_allocated/a", vec![short])],
        };
        assert!(usage.text(&look()).ends_with("0 now, 8 at most\n"), "{}", usage.text(&look()));
    }

    #[test]
    fn nodes_are_drawn_to_a_hundred_percent_and_memory_to_the_fullest() {
        let at = "2026-11-17T00:00:00Z";
        let points = |value: i64| {
            let minute = move |minute| {
                let at = format!("2026-11-17T00:{minute:02}:00Z").parse().expect("a time");
                SeriesPoint { at, mean: value, min: value, max: value }
            };
            (0..60).map(minute).collect()
        };
        let series = |name: &str, number: i64| series(name, points(number));
        let mut shown = NodeUse {
            from: at.parse().expect("a time"),
            to: "2026-11-17T01:00:00Z".parse().expect("a time"),
            now: [("node1".to_owned(), "49.6".parse().ok()), ("node10".to_owned(), None)].into(),
            utilisation: vec![
                series("gpu_utilisation/node1", 50_000_000),
                series("gpu_utilisation/node10", 0),
            ],
            memory: vec![series("gpu_memory_used/node1/0", 3 << 29)],
        };
        let expected = format!(
            "GPU utilisation from 00:00 to 01:00, a column for 1m, the highest for 100 %\n\
             node1   {}  50 % now, 50 % at most\nnode10  {}  unknown now, 0 % at most\n\n\
             GPU memory in use from 00:00 to 01:00, a column for 1m, the highest for 1.5 GiB\n\
             node1/0  {}  1.5 GiB now, 1.5 GiB at most\n",
            "▄".repeat(60),
            "_".repeat(60),
            "█".repeat(60)
        );
        assert_eq!(shown.text(&look()), expected);
        shown.memory.clear();
        assert!(shown.text(&look()).ends_with("0 % at most\n"), "what is not known is not drawn");
        assert_eq!(shown.names(), ["node1", "node10"]);
    }
}
