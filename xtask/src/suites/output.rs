//! What a test program prints: shown as it comes, and read for counts and for what was skipped.

use anyhow::{Context, Result};
use std::{
    fmt,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

/// Sums over the programs of a suite.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skips: Vec<Skip>,
}

/// A test that could not be run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Skip {
    /// The program and the test.
    pub(super) test: String,
    /// What the test said.
    pub(super) text: String,
}

impl Skip {
    /// Nobody can expect a GPU of a build machine.
    pub(super) fn needs_a_real_gpu(&self) -> bool {
        self.text.contains("real GPU")
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.test, self.text)
    }
}

/// How long a program that ended is listened to: a process that it left behind may hold its output open for ever.
const LISTENED: Duration = Duration::from_secs(5);

/// A line that a program printed.
pub(super) enum Said {
    Stdout(String),
    Stderr(String),
}

/// Shows a line where it was meant to go. Whoever reads it may be gone; the tests go on.
pub(super) fn show(said: &Said) {
    let _ = match said {
        Said::Stdout(line) => writeln!(std::io::stdout(), "{line}"),
        Said::Stderr(line) => writeln!(std::io::stderr(), "{line}"),
    };
}

/// Runs a program, shows what it prints, and adds it up. Returns whether it succeeded.
pub(super) fn run_watched(
    command: &mut Command,
    title: &str,
    tally: &mut Tally,
    mut show: impl FnMut(&Said),
) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("starting it")?;
    let (said, heard) = channel();
    let other = said.clone();
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let stderr = child.stderr.take().expect("stderr is a pipe");
    thread::spawn(move || read_lines(stdout, |line| said.send(Said::Stdout(line)).is_ok()));
    thread::spawn(move || read_lines(stderr, |line| other.send(Said::Stderr(line)).is_ok()));
    let mut reader = Reader::new(title);
    let mut status = None;
    loop {
        // Looks up from time to time whether the program is still there.
        match heard.recv_timeout(if status.is_some() { LISTENED } else { Duration::from_millis(200) }) {
            Ok(said) => {
                if reader.on_line(&said, tally) {
                    show(&said);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(RecvTimeoutError::Timeout) => status = child.try_wait()?,
        }
    }
    let status = match status {
        Some(status) => status,
        None => child.wait()?,
    };
    Ok(status.success())
}

fn read_lines(from: impl Read, mut take: impl FnMut(String) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
        if !take(text) {
            return;
        }
        line.clear();
    }
}

/// Reads the output of one program.
struct Reader {
    title: String,
    /// The test whose output is being repeated, while that of passing tests is.
    successes: Option<String>,
}

impl Reader {
    fn new(title: &str) -> Self {
        Self { title: title.into(), successes: None }
    }

    /// Reads a line of the standard output; returns whether it is shown.
    fn on_stdout(&mut self, line: &str, tally: &mut Tally) -> bool {
        if line == "successes:" {
            self.successes.get_or_insert_default();
            return false;
        }
        if line == "failures:" || line.starts_with("test result:") {
            self.successes = None;
        }
        if let Some((passed, failed)) = counts(line) {
            tally.passed += passed;
            tally.failed += failed;
        }
        let test = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let (Some(current), Some(test)) = (&mut self.successes, test) {
            *current = test.to_owned();
        }
        self.note_skip(line, tally);
        self.successes.is_none()
    }

    /// Reads a line; returns whether it is shown.
    fn on_line(&mut self, said: &Said, tally: &mut Tally) -> bool {
        match said {
            Said::Stdout(line) => self.on_stdout(line, tally),
            Said::Stderr(line) => {
                self.note_skip(line, tally);
                true
            }
        }
    }

    fn note_skip(&self, line: &str, tally: &mut Tally) {
        if !is_skip(line) {
            return;
        }
        let test = match self.successes.as_deref() {
            None | Some("") => self.title.clone(),
            Some(test) => format!("{} {test}", self.title),
        };
        let text = line.trim_start_matches(['*', ' ']).to_owned();
        let skip = Skip { test, text };
        if !tally.skips.contains(&skip) {
            tally.skips.push(skip);
        }
    }
}

/// Whether a line says that something was not tested: in the words of our tests, or by the browser's test runner.
fn is_skip(line: &str) -> bool {
    let line = line.trim();
    let is_counted =
        line.strip_suffix(" skipped").is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0));
    line.contains("NOT TESTED") || line.starts_with("SKIPPED:") || is_counted
}

/// Passed and failed tests, from the closing line of a harness or of the browser's test runner.
fn counts(line: &str) -> Option<(u64, u64)> {
    if let Some(result) = line.strip_prefix("test result:") {
        let count = |what: &str| {
            let before = result.split(what).next()?.trim_end();
            before.rsplit(' ').next()?.parse::<u64>().ok()
        };
        return Some((count(" passed")?, count(" failed")?));
    }
    let (count, what) = line.trim().split_once(' ')?;
    let count = count.parse().ok()?;
    match what.split(' ').next()? {
        "passed" if what == "passed" || what.starts_with("passed (") => Some((count, 0)),
        "failed" if what == "failed" => Some((0, count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Tally) {
        let (mut reader, mut tally) = (Reader::new("tests/a.rs"), Tally::default());
        let shown =
            text.lines().filter(|line| reader.on_stdout(line, &mut tally)).map(str::to_owned).collect();
        (shown, tally)
    }

    const HARNESS: &str = "running 2 tests\n\
        test one ... ok\n\
        test two ... ok\n\
        \n\
        successes:\n\
        \n\
        ---- one stdout ----\n\
        SKIPPED: containers: no runc\n\
        \n\
        ---- two stdout ----\n\
        a story\n\
        \n\
        successes:\n    one\n    two\n\
        \n\
        test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s\n";

    #[test]
    fn what_passing_tests_printed_is_read_for_skips_and_not_shown() {
        let (shown, tally) = read(HARNESS);
        assert_eq!(
            shown,
            [
                "running 2 tests",
                "test one ... ok",
                "test two ... ok",
                "",
                "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s"
            ]
        );
        assert_eq!((tally.passed, tally.failed), (2, 0));
        let skips: Vec<String> = tally.skips.iter().map(ToString::to_string).collect();
        assert_eq!(skips, ["tests/a.rs one: SKIPPED: containers: no runc"]);
    }

    #[test]
    fn what_failed_tests_printed_is_shown() {
        let failed = HARNESS.replace(
            "test result: ok. 2 passed; 0 failed",
            "failures:\n\n---- three stdout ----\nit broke\n\nfailures:\n    three\n\ntest result: FAILED. 2 passed; 1 failed",
        );
        let (shown, tally) = read(&failed);
        assert!(shown.contains(&"---- three stdout ----".to_owned()), "{shown:?}");
        assert!(shown.contains(&"it broke".to_owned()), "{shown:?}");
        assert!(!shown.contains(&"a story".to_owned()), "{shown:?}");
        assert_eq!((tally.passed, tally.failed), (2, 1));
    }

    #[test]
    fn skips_of_programs_without_the_harness_and_of_the_browser_count() {
        let (shown, tally) =
            read("*** NOT TESTED: the dashboard\n  3 skipped\n  0 skipped\n  41 passed (2.1m)\n");
        assert_eq!(shown.len(), 4);
        let skips: Vec<String> = tally.skips.iter().map(ToString::to_string).collect();
        assert_eq!(skips, ["tests/a.rs: NOT TESTED: the dashboard", "tests/a.rs: 3 skipped"]);
        assert_eq!(tally.passed, 41);
    }

    #[test]
    fn a_program_is_watched_to_its_end_and_its_status_is_known() {
        let mut tally = Tally::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'SKIPPED: this'; echo 'NOT TESTED: that' >&2; exit 3"]);
        let mut shown = 0;
        assert!(!run_watched(&mut command, "a script", &mut tally, |_| shown += 1).expect("it runs"));
        assert_eq!((tally.skips.len(), shown), (2, 2), "{tally:?}");
    }
}
