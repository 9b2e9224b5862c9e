//! How far workloads are: read from what they print, and written down beside them.
//!
//! ```text
//! first worker --log, since the last look--> ProgressReader --> status of the Workload; a checkpoint --> its Pod
//! ```
//!
//! Workloads take turns, a few at a time: a thousand of them are looked at less often each, and cost no more.

use crate::{image, wish};
use berth_api::ProgressView;
use berth_kube::{
    api::{self, Progress},
    convert, names,
    view::View,
};
use berth_server::{ProgressReader, Report, Said};
use berth_types::{Span, Time, WorkloadId};
use futures_util::{StreamExt, stream};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{LogParams, Patch, PatchParams},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// Between two rounds through all that run.
const ROUND: Duration = Duration::from_secs(2);
/// Logs that are read at one time.
const AT_ONCE: usize = 4;
/// Of what was printed since the last look, so much is read: the newest lines, up to so many bytes.
const LINES_MAX: i64 = 1_000;
const BYTES_MAX: i64 = 256 << 10;
/// The longest wait for a log.
const PATIENCE: Duration = Duration::from_secs(10);
/// Failed reads of the log of a Pod that has ended, after which it is left alone: simulated nodes never have one.
const LAST_READS_FAILED_MAX: u32 = 30;
/// Waits between reads of the log of a Pod that has ended, as long as they bring nothing new: a busy node writes the last lines of a
/// container after it has reported its end. After the last of them the log is read once more, and then left alone.
const LAST_WAITS: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(15),
    Duration::from_secs(30),
];

/// What is known of the first worker of a workload.
struct Known {
    pod: String,
    reader: ProgressReader,
    /// The last line that was read.
    until: Option<Timestamp>,
    /// When it last spoke of progress.
    spoke: Option<Timestamp>,
    saved: Option<Timestamp>,
    /// What was written down last.
    written: Option<Progress>,
    /// Failed reads since its Pod ended.
    last_reads_failed: u32,
    /// Reads in a row since then that succeeded and brought nothing new.
    last_reads_quiet: usize,
    /// When it is read next, of one whose Pod has ended.
    next_read: Option<Instant>,
    /// Its Pod has ended, and its log was read and its progress written to the end, or given up.
    done: bool,
}

/// Someone to look at.
struct Turn {
    id: WorkloadId,
    namespace: String,
    name: String,
    uid: String,
    pod: String,
    over: bool,
    /// How far it is follows from what is done, not from what it prints.
    has_completions: bool,
    pattern: Option<String>,
}

/// Looks at everything that runs, round after round.
pub(crate) async fn follow(client: Client, view: View) {
    let mut known: HashMap<WorkloadId, Known> = HashMap::new();
    let mut rounds = tokio::time::interval(ROUND);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let (turns, now) = (turns(&view), Instant::now());
        known.retain(|id, _| turns.iter().any(|turn| turn.id == *id));
        let due: Vec<(Turn, Known)> = turns
            .into_iter()
            .filter_map(|turn| {
                let one = known
                    .remove(&turn.id)
                    .filter(|one| one.pod == turn.pod)
                    .unwrap_or_else(|| Known::new(&turn));
                if one.done || one.next_read.is_some_and(|at| at > now) {
                    known.insert(turn.id, one);
                    return None;
                }
                Some((turn, one))
            })
            .collect();
        let looked: Vec<(WorkloadId, Known)> = stream::iter(due)
            .map(|(turn, known)| look(&client, turn, known))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        known.extend(looked);
    }
}

/// The first worker of every workload that has one which may have printed something.
fn turns(view: &View) -> Vec<Turn> {
    let reading = view.read();
    let turn = |(id, workload): (WorkloadId, &std::sync::Arc<api::Workload>)| {
        let pods = reading.pods(id);
        let first = pods.into_iter().rfind(|pod| pod.rank == 0 && (pod.running || pod.over))?;
        Some(Turn {
            id,
            namespace: workload.metadata.namespace.clone()?,
            name: workload.metadata.name.clone()?,
            uid: workload.metadata.uid.clone()?,
            pod: first.name,
            over: first.over,
            has_completions: workload.spec.completions.is_some(),
            pattern: image::note(workload, names::PROGRESS_PATTERN),
        })
    };
    reading.workloads().filter_map(turn).collect()
}

impl Known {
    fn new(turn: &Turn) -> Self {
        Self {
            pod: turn.pod.clone(),
            // A pattern that does not read was refused when it was submitted, or written by hand.
            reader: ProgressReader::new(turn.pattern.as_deref()).unwrap_or_default(),
            until: None,
            spoke: None,
            saved: None,
            written: None,
            last_reads_failed: 0,
            last_reads_quiet: 0,
            next_read: None,
            done: false,
        }
    }

    /// Notes how a read of the log of a Pod that has ended went: whether all of it succeeded, and whether it brought lines. A busy
    /// node may refuse the first; the last lines, which say that everything is done, are in none before.
    fn on_last_read(&mut self, complete: bool, is_new: bool, now: Instant) {
        self.last_reads_failed += u32::from(!complete);
        self.last_reads_quiet = if complete && !is_new { self.last_reads_quiet + 1 } else { 0 };
        let wait = self.last_reads_quiet.checked_sub(1).and_then(|waits| LAST_WAITS.get(waits));
        self.next_read = wait.map(|wait| now + *wait);
        self.done =
            self.last_reads_quiet > LAST_WAITS.len() || self.last_reads_failed >= LAST_READS_FAILED_MAX;
    }

    /// Reads lines that begin with their time; whether one says that state was saved.
    fn read(&mut self, log: &str) -> bool {
        let saved = self.saved;
        for line in log.lines() {
            let Some((at, text)) = line.split_once(' ') else { continue };
            let Ok(at) = at.parse::<Timestamp>() else { continue };
            // Times are asked for by the second, so some lines come again.
            if self.until.is_some_and(|until| at <= until) {
                continue;
            }
            self.until = Some(at);
            match self.reader.read(text.as_bytes()) {
                Said::Nothing => {}
                Said::Progress => self.spoke = Some(at),
                Said::Checkpoint => self.saved = Some(at),
            }
        }
        self.saved != saved
    }
}

async fn look(client: &Client, turn: Turn, mut known: Known) -> (WorkloadId, Known) {
    let before = known.until;
    let complete = read_and_write(client, &turn, &mut known).await;
    if turn.over {
        let is_new = known.until != before;
        known.on_last_read(complete, is_new, Instant::now());
    }
    (turn.id, known)
}

/// Reads what a Pod has printed since the last look, and writes what follows from it; returns whether all of it succeeded.
async fn read_and_write(client: &Client, turn: &Turn, known: &mut Known) -> bool {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &turn.namespace);
    let parameters = LogParams {
        timestamps: true,
        since_time: known.until,
        tail_lines: Some(LINES_MAX),
        limit_bytes: Some(BYTES_MAX),
        ..LogParams::default()
    };
    let log = match tokio::time::timeout(PATIENCE, pods.logs(&turn.pod, &parameters)).await {
        Ok(Ok(log)) => log,
        // Simulated nodes have no logs; a real one may be away for a moment.
        Ok(Err(error)) => {
            tracing::debug!(pod = turn.pod, %error, "its log cannot be read");
            return false;
        }
        Err(_) => return false,
    };
    let mut complete = true;
    if known.read(&log)
        && let Some(saved) = known.saved
    {
        let patch = json!({ "metadata": { "annotations": { names::CHECKPOINT: saved.to_string() } } });
        if let Err(error) = pods.patch(&turn.pod, &PatchParams::default(), &Patch::Merge(patch)).await {
            tracing::warn!(pod = turn.pod, error = %wish::problem(error).detail, "its checkpoint is not noted");
            complete = false;
        }
    }
    let Some(spoke) = known.spoke.filter(|_| !turn.has_completions) else { return complete };
    let progress = written(known.reader.report(), spoke);
    if known.written.as_ref() != Some(&progress) {
        let workloads: Api<api::Workload> = Api::namespaced(client.clone(), &turn.namespace);
        let patch = json!({ "metadata": { "uid": turn.uid }, "status": { "progress": &progress } });
        match workloads.patch_status(&turn.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => known.written = Some(progress),
            Err(error) => {
                let why = wish::problem(error).detail;
                tracing::warn!(workload = turn.name, why, "its progress is not noted");
                complete = false;
            }
        }
    }
    complete
}

/// A report as it is written down.
fn written(report: &Report, at: Timestamp) -> Progress {
    let whole = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let percent = report.percent_done();
    let of = |word: &str, at: Option<u64>, all: Option<u64>| match (at, all) {
        (Some(at), Some(all)) => Some(format!("{word} {at}/{all}")),
        (Some(at), None) => Some(format!("{word} {at}")),
        _ => None,
    };
    let text: Vec<String> = [
        percent.map(|percent| format!("{percent}%")),
        of("epoch", report.epoch, report.epochs),
        report.loss.as_ref().map(|loss| format!("loss {loss}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    Progress {
        text: Some(text.join(", ")).filter(|text| !text.is_empty()),
        percent: percent.map(i32::from),
        epoch: whole(report.epoch),
        epochs: whole(report.epochs),
        step: whole(report.step),
        steps: whole(report.steps),
        loss: report.loss.clone(),
        accuracy: report.accuracy.clone(),
        left_secs: whole(report.eta.map(Span::as_secs)),
        metrics: with_throughput(report),
        at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(at)),
    }
}

/// The metric under which a Workload keeps its throughput.
const THROUGHPUT: &str = "throughput";

fn with_throughput(report: &Report) -> BTreeMap<String, String> {
    let mut metrics = report.metrics.clone();
    metrics.extend(report.throughput.clone().map(|throughput| (THROUGHPUT.to_owned(), throughput)));
    metrics
}

/// What was written down, as a report again, and when it was said.
pub(crate) fn report(progress: &Progress) -> (Time, Report) {
    let view = shown(progress);
    let report = Report {
        throughput: view.throughput,
        epoch: view.epoch,
        epochs: view.epochs,
        step: view.step,
        steps: view.steps,
        loss: view.loss,
        accuracy: view.accuracy,
        eta: view.left_secs.map(Span::secs),
        percent: view.percent,
        metrics: view.metrics,
        utilisation: None,
    };
    (progress.at.as_ref().map_or(Time(0), convert::time), report)
}

/// What was written down, as it is shown.
pub(crate) fn shown(progress: &Progress) -> ProgressView {
    let whole = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let mut metrics: BTreeMap<_, _> = progress.metrics.clone().into_iter().collect();
    ProgressView {
        throughput: metrics.remove(THROUGHPUT),
        percent: progress.percent.and_then(|percent| u8::try_from(percent).ok()),
        epoch: whole(progress.epoch),
        epochs: whole(progress.epochs),
        step: whole(progress.step),
        steps: whole(progress.steps),
        loss: progress.loss.clone(),
        accuracy: progress.accuracy.clone(),
        left_secs: whole(progress.left_secs),
        metrics,
        // A cluster keeps no word of it yet.
        utilisation: None,
        at: progress.at.as_ref().map(|at| convert::time(at).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known::new(&Turn {
            id: WorkloadId(1),
            namespace: "space".into(),
            name: "name".into(),
            uid: "uid".into(),
            pod: "pod".into(),
            over: false,
            has_completions: false,
            pattern: None,
        })
    }

    #[test]
    fn the_log_of_an_ended_pod_is_read_again_until_it_was_read_whole_or_never_will_be() {
        let now = Instant::now();
        let mut slow = known();
        slow.on_last_read(false, false, now);
        slow.on_last_read(true, true, now);
        assert!(!slow.done, "a node that was busy is asked again, and so is one that had more to say");
        for wait in &LAST_WAITS[..LAST_WAITS.len() - 1] {
            slow.on_last_read(true, false, now);
            assert_eq!(slow.next_read, Some(now + *wait), "each wait is longer than the one before");
        }
        slow.on_last_read(true, true, now);
        assert_eq!(
            (slow.done, slow.next_read),
            (false, None),
            "the last lines of a container came after its end"
        );
        for _ in 0..=LAST_WAITS.len() {
            assert!(!slow.done);
            slow.on_last_read(true, false, now);
        }
        assert!(slow.done);

        let mut simulated = known();
        for read in 1..=LAST_READS_FAILED_MAX {
            assert!(!simulated.done, "after {read} reads");
            simulated.on_last_read(false, false, now);
        }
        assert!(simulated.done);
    }

    #[test]
    fn lines_that_come_again_are_read_once() {
        let mut known = known();
        let first = "2026-11-17T08:00:00.1Z epoch 1/4\n2026-11-17T08:00:00.5Z berth.checkpoint\n";
        assert!(known.read(first));
        assert!(!known.read(first), "the same second is asked for again");
        let more = format!("{first}2026-11-17T08:00:01.0Z epoch 2/4 loss: 0.5\nno time at all\n");
        assert!(!known.read(&more));
        let written = written(known.reader.report(), known.spoke.expect("it spoke"));
        assert_eq!(written.text.as_deref(), Some("50%, epoch 2/4, loss 0.5"));
        let (at, report) = report(&written);
        assert_eq!((at, report.epoch), (Time(1_794_902_401_000), Some(2)));
    }
}
