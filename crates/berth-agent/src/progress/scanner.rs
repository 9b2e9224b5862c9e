//! Cuts output into lines and keeps what they say, at a bounded cost.
//!
//! A job may print millions of lines. In each tick some lines are read as they come; of the rest the last ones are kept and read
//! when the tick ends, so that the newest state is always known. Lines that begin with `berth` are looked for in any case: a
//! checkpoint must not drown in noise.

use super::{Found, Parser};
use crate::Report;
use memchr::{memchr2, memmem, memrchr2};

pub(crate) const TICK_MS: u64 = 200;
const LINES_PER_TICK: u32 = 16;
/// Progress stands at the beginning of a line; the rest of a longer one is not read.
const LINE_BYTES_MAX: usize = 2048;
const PUT_OFF_BYTES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Scanner {
    parser: Parser,
    report: Report,
    changed: bool,
    checkpoint: bool,
    /// The line that has no end yet.
    partial: Vec<u8>,
    /// The last whole lines that were not read.
    latest: Vec<u8>,
    tick_started_ms: u64,
    lines_left: u32,
}

impl Scanner {
    pub(crate) fn new(parser: Parser) -> Self {
        Self { parser, lines_left: LINES_PER_TICK, ..Self::default() }
    }

    /// Takes output as it comes, at a time in milliseconds.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], now_ms: u64) {
        self.tick(now_ms);
        while self.lines_left > 0 {
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                return self.keep_partial(bytes);
            };
            let line = self.complete(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if !line.is_empty() {
                self.lines_left -= 1;
                self.read(&line);
            }
        }
        let Some(last_end) = memrchr2(b'\n', b'\r', bytes) else {
            return self.keep_partial(bytes);
        };
        let first_end = memchr2(b'\n', b'\r', bytes).unwrap_or(last_end);
        let line = self.complete(&bytes[..first_end]);
        self.read_if_ours(&line);
        self.put_off(&line);
        let rest = &bytes[first_end..=last_end];
        for start in memmem::find_iter(rest, b"berth") {
            if start > 0 && matches!(rest[start - 1], b'\n' | b'\r') {
                let end = memchr2(b'\n', b'\r', &rest[start..]).map_or(rest.len(), |length| start + length);
                self.read_if_ours(&rest[start..end.min(start + LINE_BYTES_MAX)]);
            }
        }
        self.put_off(rest);
        self.keep_partial(&bytes[last_end + 1..]);
    }

    /// Reads what was put off when the tick is over.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.tick_started_ms) < TICK_MS {
            return;
        }
        (self.tick_started_ms, self.lines_left) = (now_ms, LINES_PER_TICK);
        self.settle();
    }

    /// Reads what was put off.
    pub(crate) fn settle(&mut self) {
        let latest = std::mem::take(&mut self.latest);
        let lines: Vec<&[u8]> =
            latest.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty()).collect();
        for line in &lines[lines.len().saturating_sub(LINES_PER_TICK as usize)..] {
            self.read(line);
        }
    }

    /// Keeps the end of what was put off, from the beginning of a line.
    fn put_off(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(PUT_OFF_BYTES_MAX)..];
        self.latest.extend_from_slice(bytes);
        if self.latest.len() > PUT_OFF_BYTES_MAX {
            let cut = self.latest.len() - PUT_OFF_BYTES_MAX;
            let line = memchr2(b'\n', b'\r', &self.latest[cut..]).map_or(cut, |end| cut + end);
            self.latest.drain(..line);
        }
    }

    /// Whether a line waits for the end of the tick.
    pub(crate) fn has_put_off(&self) -> bool {
        !self.latest.is_empty()
    }

    /// Everything known so far, when it changed since it was last asked for.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let changed = std::mem::take(&mut self.changed);
        let report = changed.then(|| self.report.clone());
        // Utilisation is of the moment: it is passed on once, and not again with whatever is printed later.
        self.report.utilisation = None;
        report
    }

    pub(crate) fn has_report(&self) -> bool {
        self.changed
    }

    pub(crate) fn take_checkpoint(&mut self) -> bool {
        std::mem::take(&mut self.checkpoint)
    }

    fn keep_partial(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn complete(&mut self, end: &[u8]) -> Vec<u8> {
        self.keep_partial(end);
        std::mem::take(&mut self.partial)
    }

    fn read_if_ours(&mut self, line: &[u8]) {
        if line.starts_with(b"berth") {
            self.read(line);
        }
    }

    fn read(&mut self, line: &[u8]) {
        match self.parser.parse(line) {
            None => {}
            Some(Found::Checkpoint) => self.checkpoint = true,
            Some(Found::Progress(new)) => {
                merge(&mut self.report, new);
                self.changed = true;
            }
        }
    }
}

/// What is new replaces what was; what is not spoken of stays.
pub(super) fn merge(report: &mut Report, new: Report) {
    let just_began = report.step == Some(0) && report.steps.is_none();
    if new.epoch.is_some() && (new.epoch != report.epoch || just_began) {
        // Steps are counted anew in each epoch.
        (report.step, report.eta, report.percent) = (None, None, None);
    }
    macro_rules! take {
        ($($field:ident)*) => { $( if new.$field.is_some() { report.$field = new.$field; } )* };
    }
    take!(epoch epochs step steps loss accuracy throughput eta percent utilisation);
    report.metrics.extend(new.metrics);
    while report.metrics.len() > 64 {
        report.metrics.pop_last();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner() -> Scanner {
        Scanner::new(Parser::default())
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut scanner = scanner();
        for part in ["Epo", "ch 2/4\nste", "p 5/10 lo", "ss: 0.5\r\n"] {
            scanner.feed(part.as_bytes(), 1000);
        }
        let report = scanner.take_report().unwrap();
        assert_eq!((report.epoch, report.step, report.loss.as_deref()), (Some(2), Some(5), Some("0.5")));
        assert_eq!(scanner.take_report(), None);
    }

    #[test]
    fn the_newest_line_of_a_flood_is_known_and_no_checkpoint_is_missed() {
        let mut scanner = scanner();
        let mut flood = String::new();
        for step in 0..100_000 {
            flood.push_str(&format!("step {step}/100000\n"));
            if step == 50_000 {
                flood.push_str("berth.checkpoint\n");
            }
        }
        for part in flood.as_bytes().chunks(65_536) {
            scanner.feed(part, 1000);
        }
        assert!(scanner.take_checkpoint());
        scanner.tick(1000 + TICK_MS);
        assert_eq!(scanner.take_report().unwrap().step, Some(99_999));
    }

    #[test]
    fn what_is_done_never_falls_from_one_line_to_the_next() {
        let mut scanner = scanner();
        let mut done = Vec::new();
        for line in
            ["Epoch 1/4", " 50/100 [==>..]", "100/100 [====]", "Epoch 2/4", " 50/100 [==>..] - loss: 0.5"]
        {
            scanner.feed(format!("{line}\n").as_bytes(), 1000);
            done.push(scanner.take_report().unwrap().percent_done().unwrap());
        }
        assert_eq!(done, [0, 12, 25, 25, 37]);
        let mut scanner = self::scanner();
        let mut done = Vec::new();
        for line in ["epoch 1/4", "epoch 1/4 loss: 0.9", "epoch 2/4", "epoch 2/4 loss: 0.5"] {
            scanner.feed(format!("{line}\n").as_bytes(), 1000);
            done.push(scanner.take_report().unwrap().percent_done().unwrap());
        }
        assert_eq!(done, [0, 25, 25, 50]);
    }

    #[test]
    fn a_utilisation_is_passed_on_once() {
        let mut scanner = scanner();
        scanner.feed(b"step 1/9 utilisation: 92%\n", 1000);
        assert_eq!(scanner.take_report().unwrap().utilisation, Some(92));
        scanner.feed(b"step 2/9 loss: 0.5\n", 1000);
        let report = scanner.take_report().unwrap();
        assert_eq!((report.step, report.utilisation), (Some(2), None));
    }

    #[test]
    fn garbage_and_endless_lines_cost_no_memory() {
        let mut scanner = scanner();
        for _ in 0..1000 {
            scanner.feed(&[0xfe; 10_000], 1000);
            assert!(scanner.partial.len() <= LINE_BYTES_MAX);
        }
        scanner.feed(b"\nepoch 1/2\n", 1000);
        assert_eq!(scanner.take_report().unwrap().epoch, Some(1));
    }
}
