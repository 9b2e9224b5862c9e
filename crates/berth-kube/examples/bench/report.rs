//! What was measured: a table for people, rows in `target/bench/summary.json` for machines.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    None,
    AtLeast(f64),
    AtMost(f64),
}

/// One result; it replaces an earlier one of its name.
#[derive(Debug)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    target: Target,
}

impl Row {
    fn met(&self) -> Option<bool> {
        match self.target {
            Target::None => None,
            Target::AtLeast(least) => Some(self.value >= least),
            Target::AtMost(most) => Some(self.value <= most),
        }
    }

    fn target(&self) -> Option<f64> {
        match self.target {
            Target::None => None,
            Target::AtLeast(bound) | Target::AtMost(bound) => Some(bound),
        }
    }
}

/// All results.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str, target: Target) {
        self.0.push(Row { name: name.into(), value, unit, target });
    }

    /// Merges the rows into the summary, by name.
    pub(crate) fn save(&self) -> Result<()> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/summary.json");
        let mut summary: Vec<Value> = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a summary", path.display()))?,
            Err(_) => Vec::new(),
        };
        for row in &self.0 {
            let json = json!({
                "name": row.name, "value": row.value, "unit": row.unit, "target": row.target(), "met": row.met(),
            });
            match summary.iter_mut().find(|known| known["name"] == row.name.as_str()) {
                Some(known) => *known = json,
                None => summary.push(json),
            }
        }
        fs::create_dir_all(path.parent().context("a summary is in a folder")?)?;
        fs::write(&path, serde_json::to_string_pretty(&summary)? + "\n")
            .with_context(|| format!("writing {}", path.display()))
    }

    pub(crate) fn print(&self) {
        let width = self.0.iter().map(|row| row.name.len()).max().unwrap_or(4);
        println!("\n{:width$}  {:>10} {:7} {:>9}  met", "name", "value", "unit", "target");
        for row in &self.0 {
            let target = match row.target {
                Target::None => String::new(),
                Target::AtLeast(least) => format!(">= {least}"),
                Target::AtMost(most) => format!("<= {most}"),
            };
            let met = match row.met() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            };
            println!("{:width$}  {:>10.2} {:7} {target:>9}  {met}", row.name, row.value, row.unit);
        }
        let judged: Vec<bool> = self.0.iter().filter_map(Row::met).collect();
        println!("\n{} of {} targets met", judged.iter().filter(|met| **met).count(), judged.len());
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value that this part of all values is not above.
pub(crate) fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}
