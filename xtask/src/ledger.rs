//! The ledger of the two reports: every row names a test that exists, or says why there is none.

use crate::tidy::Broken;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

const LEDGER: &str = "docs/reports.md";
const REASON: &str =
    "a promise without a test is a guess; name the test, or write `not yet` or `not planned: REASON`";

/// Reads the ledger of the repository at `root` and compares it with the tests.
pub(crate) fn check_repository(root: &Path) -> io::Result<Vec<Broken>> {
    let text = fs::read_to_string(root.join(LEDGER))?;
    Ok(check_ledger(&text, |file| fs::read_to_string(root.join(file)).ok()))
}

/// Lists the broken rows of a ledger; `read` returns the text of a file of the repository.
fn check_ledger(text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut add = |line: usize, rule: String| {
        broken.push(Broken { file: PathBuf::from(LEDGER), line, rule, reason: REASON });
    };
    let mut last_of: BTreeMap<char, u32> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let Some(row) = Row::parse(line) else {
            if looks_like_a_row(line) {
                add(index + 1, "a row has an id, an item and two cells".into());
            }
            continue;
        };
        let last = last_of.entry(row.report).or_default();
        if row.number != *last + 1 {
            add(index + 1, format!("{} does not follow {}{last:02}", row.id(), row.report));
        }
        *last = row.number;
        for (column, cell) in [("one machine", row.machine), ("Kubernetes", row.kubernetes)] {
            if let Some(rule) = broken_cell(cell, &read) {
                add(index + 1, format!("{}, {column}: {rule}", row.id()));
            }
        }
    }
    if last_of.is_empty() {
        add(1, "no rows".into());
    }
    broken
}

/// A row of the ledger: an item of a report, and what shows it in each way to run.
struct Row<'a> {
    /// `T` for TR-4858, `M` for the MLOps report.
    report: char,
    number: u32,
    machine: &'a str,
    kubernetes: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let id = cells.next()?;
        let report = id.chars().next().filter(|letter| matches!(letter, 'T' | 'M'))?;
        let number = id[1..].parse().ok()?;
        let _item = cells.next()?;
        let (machine, kubernetes) = (cells.next()?, cells.next()?);
        cells.next().is_none().then_some(Self { report, number, machine, kubernetes })
    }

    fn id(&self) -> String {
        format!("{}{:02}", self.report, self.number)
    }
}

/// Whether a line begins as a row of a report does.
fn looks_like_a_row(line: &str) -> bool {
    let id = line.strip_prefix('|').map(str::trim_start).unwrap_or_default();
    id.starts_with(['T', 'M']) && id[1..].starts_with(|digit: char| digit.is_ascii_digit())
}

/// What is wrong with a cell, if anything is.
fn broken_cell(cell: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).filter(|text| is_reference(text)).collect();
    if let Some(missing) = tests.iter().find(|test| !exists(test, &read)) {
        return Some(format!("there is no test `{missing}`"));
    }
    let is_open = cell == "not yet" || cell.starts_with("not yet: ");
    let is_refused = cell.strip_prefix("not planned: ").is_some_and(|reason| !reason.trim().is_empty());
    if tests.is_empty() && !is_open && !is_refused {
        return Some(format!("`{cell}` names no test"));
    }
    None
}

/// Whether a text in code font names a test, as `path::name`, or a scenario.
fn is_reference(text: &str) -> bool {
    text.contains("::") || (text.starts_with("scenarios/") && text.ends_with(".berth"))
}

/// Whether a test exists: a function of Rust or Python, a test of the dashboard, or a scenario.
fn exists(test: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    let Some((file, name)) = test.split_once("::") else { return read(test).is_some() };
    let Some(text) = read(file) else { return false };
    match file.rsplit('.').next() {
        Some("rs") => is_test_of_rust(&text, name),
        Some("py") => text.contains(&format!("def {name}(")),
        // Names of the dashboard's tests are sentences in any kind of quotes.
        Some("ts") => {
            ['\'', '"', '`'].iter().any(|quote| text.contains(&format!("test({quote}{name}{quote}")))
        }
        _ => false,
    }
}

/// Whether a function of this name has the attribute of a test.
fn is_test_of_rust(text: &str, name: &str) -> bool {
    text.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        // The first is the line of the function itself, up to its name.
        let above = text[..at].lines().rev().skip(usize::from(!text[..at].ends_with('\n')));
        let mut attributes = above.take_while(|line| line.trim_start().starts_with("#["));
        attributes.any(|line| line.contains("test]") || line.contains("test("))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str) -> Vec<String> {
        let read = |file: &str| match file {
            "crates/a/tests/b.rs" => Some(
                "#[test]\nfn a_job_runs() {}\n\nfn a_helper() {}\n\n#[tokio::test]\nasync fn it_waits() {}"
                    .to_owned(),
            ),
            "ui/tests/c.spec.ts" => Some("test('a page opens', async () => {});".to_owned()),
            "scenarios/d.berth" => Some(String::new()),
            _ => None,
        };
        check_ledger(rows, read).iter().map(|broken| broken.rule.clone()).collect()
    }

    #[test]
    fn rows_with_tests_scenarios_or_a_reason_hold() {
        let rows = "| T01 | a | `crates/a/tests/b.rs::a_job_runs` | `ui/tests/c.spec.ts::a page opens` |\n\
                    | T02 | `berth x` | `scenarios/d.berth` | not yet |\n\
                    | M01 | b | not yet: half of it | not planned: hardware |";
        assert_eq!(found(rows), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_does_not_exist_is_named() {
        let rows = "| T01 | a | `crates/a/tests/b.rs::a_job_flies` | `ui/tests/gone.spec.ts::a page opens` |";
        assert_eq!(
            found(rows),
            [
                "T01, one machine: there is no test `crates/a/tests/b.rs::a_job_flies`",
                "T01, Kubernetes: there is no test `ui/tests/gone.spec.ts::a page opens`"
            ]
        );
    }

    #[test]
    fn only_what_is_marked_as_a_test_counts_as_one() {
        let row = |name: &str| format!("| T01 | a | `crates/a/tests/b.rs::{name}` | not yet |");
        assert_eq!(found(&row("it_waits")), Vec::<String>::new());
        assert_eq!(found(&row("a_helper")).len(), 1);
        assert_eq!(
            found("| T01 | a | not yet | not yet |\n| T02 | not yet |").len(),
            1,
            "a row without an item"
        );
    }

    #[test]
    fn a_cell_without_test_or_reason_is_named() {
        let rows = "| T01 | a | works | not planned: |";
        assert_eq!(found(rows).len(), 2);
    }

    #[test]
    fn a_row_that_is_left_out_is_noticed() {
        let rows = "| T01 | a | not yet | not yet |\n| T03 | a | not yet | not yet |";
        assert_eq!(found(rows), ["T03 does not follow T01"]);
        assert_eq!(found("nothing"), ["no rows"]);
    }
}
