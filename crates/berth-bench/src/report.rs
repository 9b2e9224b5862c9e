//! Tables for people, and a summary for machines.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// One result. Later benchmarks add rows of their own; a row replaces an earlier one of its name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    name: String,
    /// Nothing when it could not be measured; its target is missed then.
    value: Option<f64>,
    unit: &'static str,
    /// The value may not be above this.
    target: Option<f64>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str, target: Option<f64>) -> Self {
        Self { name: name.into(), value: Some(value), unit, target }
    }

    /// A target that could not even be measured.
    pub(crate) fn missed(name: impl Into<String>, unit: &'static str, target: f64) -> Self {
        Self { name: name.into(), value: None, unit, target: Some(target) }
    }

    pub(crate) fn count(name: impl Into<String>, value: u64, unit: &'static str) -> Self {
        Self::new(name, value as f64, unit, None)
    }

    fn met(&self) -> Option<bool> {
        let target = self.target?;
        Some(self.value.is_some_and(|value| value <= target))
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "met": self.met(),
        })
    }
}

/// The results of one run, and what went wrong in it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// Name and error of each scenario that ended in another way than it must.
    failures: Vec<(String, String)>,
    skipped: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// A scenario ended in another way than it must.
    pub(crate) fn fail(&mut self, name: &str, error: &anyhow::Error) {
        println!("  WRONG OUTCOME in {name}: {error:#}");
        self.failures.push((name.to_owned(), format!("{error:#}")));
    }

    /// Something could not be measured here.
    pub(crate) fn skip(&mut self, what: &str) {
        println!("NOT MEASURED: {what}");
        self.skipped.push(what.to_owned());
    }

    /// Merges what is known so far into the summary.
    pub(crate) fn save(&self) -> Result<()> {
        let failed: Vec<&str> = self.failures.iter().map(|(name, _)| name.as_str()).collect();
        merge_into(&summary_path(), &self.rows, &failed)
    }

    /// Prints the closing table, writes the summary, and says whether every outcome was right. A missed target is said
    /// and is no failure: machines differ.
    pub(crate) fn finish(&self) -> Result<bool> {
        println!("{self}");
        self.save()?;
        println!("written to target/bench/summary.json");
        Ok(self.failures.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
        writeln!(f, "{:width$}  {:>14} {:6} {:>14}  met", "name", "value", "unit", "target")?;
        for row in &self.rows {
            let target = row.target.map_or_else(String::new, number);
            let met = match row.met() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            };
            writeln!(
                f,
                "{:width$}  {:>14} {:6} {target:>14}  {met}",
                row.name,
                row.value.map_or_else(|| "-".to_owned(), number),
                row.unit
            )?;
        }
        let (with_target, met) = self
            .rows
            .iter()
            .filter_map(Row::met)
            .fold((0, 0), |(all, met), is_met| (all + 1, met + usize::from(is_met)));
        writeln!(f, "\n{met} of {with_target} targets met")?;
        for skipped in &self.skipped {
            writeln!(f, "NOT MEASURED: {skipped}")?;
        }
        for (name, error) in &self.failures {
            writeln!(f, "WRONG OUTCOME: {name}: {error}")?;
        }
        Ok(())
    }
}

/// Values against a size, with the growth from step to step.
pub(crate) struct Curve {
    size_name: String,
    columns: Vec<&'static str>,
    points: Vec<(usize, Vec<f64>)>,
}

impl Curve {
    pub(crate) fn new(size_name: &str, columns: &[&'static str]) -> Self {
        Self { size_name: size_name.to_owned(), columns: columns.to_vec(), points: Vec::new() }
    }

    pub(crate) fn add(&mut self, size: usize, values: &[f64]) {
        self.points.push((size, values.to_vec()));
    }
}

impl fmt::Display for Curve {
    /// Each value is followed by the exponent of its growth since the line above: 0 is flat, 1 linear, 2 quadratic.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:>8}", self.size_name)?;
        for column in &self.columns {
            write!(f, "  {column:>14} {:>6}", "growth")?;
        }
        writeln!(f)?;
        let mut previous: Option<&(usize, Vec<f64>)> = None;
        for point in &self.points {
            write!(f, "  {:>8}", point.0)?;
            for (column, value) in point.1.iter().enumerate() {
                let growth = previous
                    .map(|(size, values)| exponent((*size as f64, values[column]), (point.0 as f64, *value)))
                    .filter(|growth| growth.is_finite())
                    .map_or_else(String::new, |growth| format!("{growth:+.1}"));
                write!(f, "  {:>14} {growth:>6}", number(*value))?;
            }
            writeln!(f)?;
            previous = Some(point);
        }
        Ok(())
    }
}

/// The power of the size with which a value grew between two points.
fn exponent((size, value): (f64, f64), (next_size, next_value): (f64, f64)) -> f64 {
    (next_value / value).ln() / (next_size / size).ln()
}

/// Whole numbers with thousands apart, small ones with four decimals.
fn number(value: f64) -> String {
    if value.fract().abs() > 0.0 && value < 100.0 {
        return format!("{value:.4}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `target/bench` in the repository, wherever cargo's own target folder is.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench")
}

fn summary_path() -> PathBuf {
    folder().join("summary.json")
}

/// Replaces rows of the same name where they stand, appends the others, and drops what is known of scenarios that failed.
fn merge_into(path: &Path, rows: &[Row], failed: &[&str]) -> Result<()> {
    let mut summary: Vec<Value> = match fs::read(path) {
        Ok(text) => {
            serde_json::from_slice(&text).with_context(|| format!("{} is not a summary", path.display()))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    summary.retain(|known| {
        let name = known["name"].as_str().unwrap_or_default();
        let is_of = |failed: &&str| name.strip_prefix(failed).is_some_and(|rest| rest.starts_with('/'));
        !failed.iter().any(is_of)
    });
    for row in rows {
        match summary.iter_mut().find(|known| known["name"] == row.name.as_str()) {
            Some(known) => *known = row.to_json(),
            None => summary.push(row.to_json()),
        }
    }
    let folder = path.parent().context("a summary is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    fs::write(path, serde_json::to_string_pretty(&summary)? + "\n")
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_replaces_the_one_of_its_name_and_a_failure_drops_its_rows() {
        let folder = std::env::temp_dir().join(format!("berth-bench-{}", std::process::id()));
        let path = folder.join("summary.json");
        let rows = [
            Row::new("a", 1.0, "ms", Some(2.0)),
            Row::count("b", 5, "bytes"),
            Row::count("wrong/10/time", 5, "ms"),
        ];
        merge_into(&path, &rows, &[]).unwrap();
        let rows = [Row::new("c", 9.0, "ms", None), Row::new("a", 3.0, "ms", Some(2.0))];
        merge_into(&path, &rows, &["wrong/10"]).unwrap();
        let summary: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            summary,
            json!([
                {"name": "a", "value": 3.0, "unit": "ms", "target": 2.0, "met": false},
                {"name": "b", "value": 5.0, "unit": "bytes", "target": null, "met": null},
                {"name": "c", "value": 9.0, "unit": "ms", "target": null, "met": null},
            ])
        );
    }

    #[test]
    fn growth_is_the_exponent_of_the_size() {
        let mut curve = Curve::new("nodes", &["ms"]);
        curve.add(10, &[1.0]);
        curve.add(20, &[4.0]);
        curve.add(40, &[8.0]);
        let text = curve.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("+2.0"), "{text}");
        assert!(lines[3].ends_with("+1.0"), "{text}");
    }

    #[test]
    fn a_wrong_outcome_fails_the_run_and_a_missed_target_does_not() {
        let mut report = Report::default();
        report.add(Row::new("slow", 3.0, "ms", Some(2.0)));
        assert!(report.to_string().contains("0 of 1 targets met"));
        assert!(report.failures.is_empty());
        report.fail("wrong", &anyhow::anyhow!("two starts"));
        assert!(report.to_string().contains("WRONG OUTCOME: wrong: two starts"));
    }
}
