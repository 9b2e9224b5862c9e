//! Tables: columns as wide as their content, two spaces between.

use std::fmt::Write;

/// How a cell is drawn on a terminal with colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Good,
    Busy,
    Bad,
    Faint,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Faint => "\x1b[2m",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) paint: Paint,
}

impl Cell {
    /// A cell in colour.
    pub(crate) fn painted(text: impl Into<String>, paint: Paint) -> Self {
        Self { text: one_line(&text.into()), paint }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, Paint::Plain)
    }
}

/// What others wrote may hold anything; on a terminal it must stay text.
pub(crate) fn one_line(text: &str) -> String {
    if text.chars().any(char::is_control) {
        return text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    }
    text.to_owned()
}

/// Holds rows until the widths of all columns are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.headers.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Headers and rows, for whoever draws them in another way.
    pub(crate) fn parts(self) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
        (self.headers, self.rows)
    }

    pub(crate) fn render(&self, headers: bool, colour: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            let header = if headers { self.headers[column].chars().count() } else { 0 };
            cells.max().unwrap_or(0).max(header)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let mut text = String::new();
        if headers {
            let cells = self.headers.iter().map(|header| Cell::from(*header)).collect::<Vec<_>>();
            line(&cells, &widths, false, &mut text);
        }
        for row in &self.rows {
            line(row, &widths, colour, &mut text);
        }
        text
    }
}

fn line(cells: &[Cell], widths: &[usize], colour: bool, text: &mut String) {
    let last = cells.iter().rposition(|cell| !cell.text.is_empty());
    for (column, cell) in cells.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
        if colour && cell.paint != Paint::Plain {
            let _ = write!(text, "{}{}\x1b[0m", cell.paint.code(), cell.text);
        } else {
            text.push_str(&cell.text);
        }
        // Spaces at the end of a line serve nobody.
        if Some(column) != last {
            let padding = widths[column] - cell.text.chars().count() + 2;
            text.extend(std::iter::repeat_n(' ', padding));
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATUS", "NODE"]);
        table.row(vec!["hyper1".into(), Cell::painted("Running", Paint::Good), "dgx-1".into()]);
        table.row(vec!["b".into(), Cell::painted("Pending", Paint::Busy), "".into()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        assert_eq!(
            table().render(true, false),
            "NAME    STATUS   NODE\nhyper1  Running  dgx-1\nb       Pending\n"
        );
    }

    #[test]
    fn without_headers_columns_need_no_room_for_them() {
        assert_eq!(table().render(false, false), "hyper1  Running  dgx-1\nb       Pending\n");
        assert_eq!(Table::new(&["A", "B"]).render(false, false), "");
    }

    #[test]
    fn colour_does_not_change_the_widths() {
        let text = table().render(true, true);
        assert!(text.contains("hyper1  \x1b[32mRunning\x1b[0m  dgx-1\n"), "{text:?}");
    }

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.row(vec!["x\x1b[2J\ny".into()]);
        assert_eq!(table.render(false, false), "x\u{fffd}[2J\u{fffd}y\n");
    }
}
