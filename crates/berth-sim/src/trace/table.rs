//! Reading CSV files with errors that say where, and printing aligned tables.

use anyhow::{Context, anyhow};
use std::{fmt::Display, path::Path, str::FromStr};

/// A CSV file without quoting, as all public traces used here are.
#[derive(Debug)]
pub struct Table {
    file: String,
    text: String,
}

/// One line of a [`Table`], its fields in the order the caller named the columns.
#[derive(Debug)]
pub struct Row<'a> {
    file: &'a str,
    line: usize,
    columns: &'a [&'a str],
    fields: Vec<&'a str>,
}

impl Table {
    /// Reads a whole file.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}; name the folder with --traces", path.display()))?;
        Ok(Self::from_text(&path.display().to_string(), text))
    }

    /// A table that is in memory already; `file` is what errors call it.
    pub fn from_text(file: &str, text: impl Into<String>) -> Self {
        Self { file: file.into(), text: text.into() }
    }

    /// The rows, each with the named columns picked out of the file's own, whatever their order there. A name that
    /// ends in `?` may be missing and is then read as empty.
    pub fn rows<'a>(&'a self, columns: &'a [&'a str]) -> anyhow::Result<Vec<Row<'a>>> {
        let mut lines = self.text.lines().enumerate();
        let (_, header) = lines
            .next()
            .ok_or_else(|| anyhow!("{}:1: expected a header with {}", self.file, columns.join(",")))?;
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let positions = columns
            .iter()
            .map(|column| {
                let (wanted, optional) = match column.strip_suffix('?') {
                    Some(wanted) => (wanted, true),
                    None => (*column, false),
                };
                match names.iter().position(|name| *name == wanted) {
                    None if !optional => {
                        Err(anyhow!("{}:1: expected a column `{column}`, found `{header}`", self.file))
                    }
                    position => Ok(position),
                }
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut rows = Vec::new();
        for (index, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let fields: Vec<&str> = text.split(',').map(str::trim).collect();
            if fields.len() != names.len() {
                return Err(anyhow!(
                    "{}:{}: expected {} fields, found {}",
                    self.file,
                    index + 1,
                    names.len(),
                    fields.len()
                ));
            }
            rows.push(Row {
                file: &self.file,
                line: index + 1,
                columns,
                fields: positions
                    .iter()
                    .map(|position| position.map_or("", |position| fields[position]))
                    .collect(),
            });
        }
        Ok(rows)
    }
}

impl<'a> Row<'a> {
    /// The text of a column, by its position in the columns asked for.
    pub fn text(&self, column: usize) -> &'a str {
        self.fields[column]
    }

    /// A column as a value; `expected` is what the error asks for.
    pub fn value<T: FromStr>(&self, column: usize, expected: &str) -> anyhow::Result<T> {
        self.text(column).parse().map_err(|_| self.wrong(column, expected))
    }

    /// The error for a column that holds something else than `expected`.
    pub fn wrong(&self, column: usize, expected: &str) -> anyhow::Error {
        anyhow!(
            "{}:{}: expected {expected} in column `{}`, found `{}`",
            self.file,
            self.line,
            self.columns[column].trim_end_matches('?'),
            self.fields[column]
        )
    }
}

/// Lines of aligned text: the first column to the left, numbers to the right.
pub fn aligned<T: Display>(header: &[&str], rows: &[Vec<T>]) -> String {
    let mut cells: Vec<Vec<String>> = vec![header.iter().map(ToString::to_string).collect()];
    cells.extend(rows.iter().map(|row| row.iter().map(ToString::to_string).collect()));
    let widths: Vec<usize> = (0..header.len())
        .map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &cells {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let table = Table::from_text("jobs.csv", "b,a\n2,1\n");
        let rows = table.rows(&["a", "b"]).unwrap();
        assert_eq!((rows[0].text(0), rows[0].text(1)), ("1", "2"));
    }

    #[test]
    fn an_error_names_the_file_the_line_and_what_was_expected() {
        let table = Table::from_text("jobs.csv", "gpus,project\n\nmany,red\n");
        let error = table.rows(&["gpus"]).unwrap()[0].value::<u32>(0, "a whole number").unwrap_err();
        assert_eq!(error.to_string(), "jobs.csv:3: expected a whole number in column `gpus`, found `many`");
        let missing = table.rows(&["submit_s"]).unwrap_err();
        assert_eq!(missing.to_string(), "jobs.csv:1: expected a column `submit_s`, found `gpus,project`");
        let short = Table::from_text("jobs.csv", "a,b\n1\n");
        assert_eq!(short.rows(&["a"]).unwrap_err().to_string(), "jobs.csv:2: expected 2 fields, found 1");
    }

    #[test]
    fn a_table_is_aligned() {
        let text = aligned(&["list", "ours"], &[vec!["default", "4.77"], vec!["x", "12.00"]]);
        assert_eq!(text, "list      ours\ndefault   4.77\nx        12.00\n");
    }
}
