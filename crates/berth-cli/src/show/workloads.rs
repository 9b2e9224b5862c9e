//! Lists of workloads.

use crate::output::{
    Look, Show, Spelling,
    table::{Cell, Paint, Table},
    time,
};
use berth_api::{KindName, ProgressView, Status, Workload, WorkloadList, WorkloadRequest};
use berth_types::Span;
use serde::Serialize;

impl Show for WorkloadList {
    fn text(&self, look: &Look) -> String {
        look.table(&workload_table(&self.items, look))
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|workload| format!("{}/{}", workload.project, workload.name)).collect()
    }
}

const COLUMNS: [&str; 9] = ["NAME", "STATUS", "KIND", "PROJECT", "USER", "GPUS", "NODE", "AGE", "PROGRESS"];
const WIDE_COLUMNS: [&str; 7] = ["PRIORITY", "PREEMPTIBLE", "RUNS", "SAMPLES/SEC", "IMAGE", "URL", "MESSAGE"];

pub(crate) fn workload_table(workloads: &[Workload], look: &Look) -> Table {
    if look.spelling == Spelling::Runai {
        return super::runai::workload_table(workloads, look);
    }
    let mut columns = COLUMNS.to_vec();
    if look.wide {
        columns.extend(WIDE_COLUMNS);
    }
    let mut table = Table::new(&columns);
    for workload in workloads {
        table.row(workload_row(workload, look));
    }
    table
}

fn workload_row(workload: &Workload, look: &Look) -> Vec<Cell> {
    let mut row = vec![
        workload.name.clone().into(),
        Cell::painted(workload.status.to_string(), paint(workload.status)),
        kind(workload.kind).into(),
        workload.project.clone().into(),
        workload.user.clone().into(),
        gpus(workload).into(),
        nodes(workload).into(),
        look.clock.age(workload.submitted_at).into(),
        workload.progress.as_ref().map(progress).unwrap_or_default().into(),
    ];
    if look.wide {
        row.extend([
            workload.priority.to_string().into(),
            if workload.preemptible { "yes" } else { "no" }.into(),
            workload.runs.to_string().into(),
            workload.progress.as_ref().and_then(|said| said.throughput.clone()).unwrap_or_default().into(),
            image(&workload.request).into(),
            workload.urls.join(",").into(),
            workload.message.clone().unwrap_or_default().into(),
        ]);
    }
    row
}

pub(crate) fn paint(status: Status) -> Paint {
    match status {
        Status::Running | Status::Succeeded => Paint::Good,
        Status::Pending | Status::Starting | Status::Stopping | Status::Terminating => Paint::Busy,
        Status::BackOff | Status::Failed | Status::TimedOut => Paint::Bad,
        Status::Suspended | Status::Deleted => Paint::Faint,
    }
}

pub(super) fn kind(kind: KindName) -> &'static str {
    match kind {
        KindName::Train => "train",
        KindName::Interactive => "interactive",
        KindName::Distributed => "distributed",
        KindName::Inference => "inference",
    }
}

/// The image that was asked for. A command without one runs a program of the machine, which the server keeps as `bash`.
pub(super) fn image(request: &WorkloadRequest) -> &str {
    match (request.image.as_str(), request.command.is_empty()) {
        ("bash", false) => "",
        (image, _) => image,
    }
}

/// A number that a workload reported, with at most four significant digits; what is no decimal number stays as it is.
pub(super) fn rounded(text: &str) -> String {
    const DIGITS: usize = 4;
    let (sign, number) = text.strip_prefix('-').map_or(("", text), |number| ("-", number));
    let Some((whole, decimals)) = number.split_once('.') else { return text.to_owned() };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(decimals) {
        return text.to_owned();
    }
    let leading = if whole.trim_start_matches('0').is_empty() {
        decimals.len() - decimals.trim_start_matches('0').len()
    } else {
        0
    };
    let significant = whole.trim_start_matches('0').len();
    let kept = (leading + DIGITS.saturating_sub(significant)).min(decimals.len());
    let round_up = decimals.as_bytes().get(kept).is_some_and(|digit| *digit >= b'5');
    let mut digits: Vec<u8> = whole.bytes().chain(decimals.bytes().take(kept)).collect();
    if round_up {
        let mut index = digits.len();
        loop {
            if index == 0 {
                digits.insert(0, b'1');
                break;
            }
            index -= 1;
            if digits[index] < b'9' {
                digits[index] += 1;
                break;
            }
            digits[index] = b'0';
        }
    }
    let digits = String::from_utf8(digits).expect("digits are text");
    let (whole, decimals) = digits.split_at(digits.len() - kept);
    let decimals = decimals.trim_end_matches('0');
    if decimals.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{decimals}") }
}

/// GPUs as they were asked for; an amount of memory stands for itself until a device is known.
pub(super) fn gpus(workload: &Workload) -> String {
    match workload.request.gpu_memory {
        Some(memory) if workload.gpus_requested.0.is_zero() => memory.to_string(),
        _ => workload.gpus_requested.to_string(),
    }
}

/// Its nodes; many of them by the first and a count.
pub(super) fn nodes(workload: &Workload) -> String {
    match workload.nodes()[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        [one, other] => format!("{one},{other}"),
        [first, ..] => format!("{first} +{}", workload.nodes().len() - 1),
    }
}

/// Percent or epoch, and the time left.
pub(super) fn progress(progress: &ProgressView) -> String {
    let of = |done: u64, all: Option<u64>| all.map_or(done.to_string(), |all| format!("{done}/{all}"));
    let mut text = match (progress.percent, progress.epoch, progress.step) {
        (Some(percent), ..) => format!("{percent}%"),
        (None, Some(epoch), _) => format!("epoch {}", of(epoch, progress.epochs)),
        (None, None, Some(step)) => format!("step {}", of(step, progress.steps)),
        (None, None, None) => String::new(),
    };
    if let Some(left) = progress.left_secs {
        let separator = if text.is_empty() { "" } else { ", " };
        text = format!("{text}{separator}{} left", time::short(Span::secs(left)));
    }
    text
}

/// GPUs, nodes and progress as every list writes them.
pub(crate) fn workload_cells(workload: &Workload) -> (String, String, String) {
    (gpus(workload), nodes(workload), workload.progress.as_ref().map(progress).unwrap_or_default())
}

/// Finished workloads, with how they ended.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Finished(pub(crate) WorkloadList);

impl Show for Finished {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&[
            "NAME",
            "STATUS",
            "PROJECT",
            "USER",
            "GPUS",
            "ENDED",
            "RAN",
            "EXIT",
            "RUNS",
            "PREEMPTIONS",
            "REASON",
        ]);
        for workload in &self.0.items {
            let ended = workload.ended.as_ref();
            // A server that does not say how long it ran is an old one; then the time in the queue counts too.
            let ran = match (workload.ran_secs, workload.started_at, ended) {
                (Some(secs), Some(_), _) => time::long(Span::secs(secs)),
                (None, Some(started), Some(ended)) => time::long(ended.at.0.since(started.0)),
                _ => String::new(),
            };
            let exit = match ended.map(|ended| (ended.exit_code, ended.signal)) {
                Some((_, Some(signal))) => format!("signal {signal}"),
                Some((Some(code), _)) => code.to_string(),
                _ => String::new(),
            };
            table.row(vec![
                workload.name.clone().into(),
                Cell::painted(workload.status.to_string(), paint(workload.status)),
                workload.project.clone().into(),
                workload.user.clone().into(),
                gpus(workload).into(),
                ended.map(|ended| look.clock.local(ended.at)).unwrap_or_default().into(),
                ran.into(),
                exit.into(),
                workload.runs.to_string().into(),
                workload.preemptions.to_string().into(),
                workload.message.clone().unwrap_or_default().into(),
            ]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.0.names()
    }
}
