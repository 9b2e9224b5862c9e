//! A page about one thing: names on the left, values on the right, tables below.

use crate::output::{
    Look,
    table::{Table, one_line},
};
use std::fmt::Write;

/// Holds the lines of a page until the widest name is known.
#[derive(Debug, Default)]
pub(crate) struct Page {
    lines: Vec<(String, String)>,
    sections: Vec<String>,
}

impl Page {
    /// A line; one without a value is left out.
    pub(crate) fn line(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.lines.push((name.to_owned(), one_line(&value)));
        }
    }

    /// A table below the lines; one without rows is left out.
    pub(crate) fn table(&mut self, title: &str, table: &Table, look: &Look) {
        if !table.is_empty() {
            let indented: String =
                table.render(true, look.colour).lines().map(|line| format!("  {line}\n")).collect();
            self.sections.push(format!("{title}:\n{indented}"));
        }
    }

    pub(crate) fn render(&self) -> String {
        let width = self.lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 1;
        let mut text = String::new();
        for (name, value) in &self.lines {
            let _ = writeln!(text, "{:<width$}  {value}", format!("{name}:"));
        }
        for section in &self.sections {
            let _ = write!(text, "\n{section}");
        }
        text
    }
}
