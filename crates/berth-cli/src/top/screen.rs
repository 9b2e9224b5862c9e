//! Draws `berth top` on a terminal, and reads its keys.

use super::{
    Seen,
    rows::{self, Sort, Subject},
};
use crate::output::{
    Look,
    table::{Cell, Paint},
};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Gauge, Paragraph},
};
use std::time::{Duration, Instant};

/// What the person chose to see.
#[derive(Debug)]
pub(super) struct View {
    subject: Subject,
    sort: Sort,
    /// The first row that is shown.
    first: usize,
    /// Why what is shown is old.
    pub(super) trouble: Option<String>,
}

impl View {
    pub(super) fn new(subject: Subject, sort: Sort) -> Self {
        Self { subject, sort, first: 0, trouble: None }
    }

    /// Follows a key; `false` to leave.
    fn on_key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> bool {
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Down | KeyCode::Char('j') => self.first = self.first.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first = self.first.saturating_add(20),
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            KeyCode::Tab => {
                self.subject = match self.subject {
                    Subject::Nodes => Subject::Workloads,
                    Subject::Workloads => Subject::Nodes,
                };
                self.first = 0;
            }
            KeyCode::Char(key) => self.sort = Sort::of_key(key).unwrap_or(self.sort),
            _ => {}
        }
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>, seen: &Seen, look: &Look) {
        let layout = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ]);
        let [totals, gauge, _, body, keys] = layout.areas(frame.area());
        frame.render_widget(Paragraph::new(rows::totals(seen)), totals);
        let filled = if look.colour { Style::new().fg(Color::Green) } else { Style::new() };
        frame.render_widget(Gauge::default().percent(rows::given_percent(seen)).gauge_style(filled), gauge);
        let lines = self.lines(seen, look, usize::from(body.height));
        frame.render_widget(Paragraph::new(lines), body);
        let help = "q quit   tab nodes/workloads   sort: n name  g GPUs  b busy  p project  a age  s status";
        let foot = match &self.trouble {
            Some(trouble) => Line::styled(trouble.clone(), style(Paint::Bad, look.colour)),
            None => Line::styled(help, Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(Paragraph::new(foot), keys);
    }

    /// The rows that fit, below the names of the columns.
    fn lines<'a>(&mut self, seen: &Seen, look: &Look, height: usize) -> Vec<Line<'a>> {
        let (headers, rows) = rows::table(self.subject, seen, self.sort, look).parts();
        let shown = height.saturating_sub(1);
        self.first = self.first.min(rows.len().saturating_sub(shown));
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].text.chars().count());
            cells.max().unwrap_or(0).max(headers[column].len())
        };
        let widths: Vec<usize> = (0..headers.len()).map(width).collect();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let head =
            headers.iter().zip(&widths).map(|(name, width)| Span::styled(format!("{name:<width$}  "), bold));
        let line = |row: &Vec<Cell>| {
            let cells = row.iter().zip(&widths);
            Line::from_iter(cells.map(|(cell, width)| {
                Span::styled(format!("{:<width$}  ", cell.text), style(cell.paint, look.colour))
            }))
        };
        let body = rows.iter().skip(self.first).take(shown).map(line);
        std::iter::once(Line::from_iter(head)).chain(body).collect()
    }
}

fn style(paint: Paint, colour: bool) -> Style {
    match paint {
        _ if !colour => Style::new(),
        Paint::Plain => Style::new(),
        Paint::Good => Style::new().fg(Color::Green),
        Paint::Busy => Style::new().fg(Color::Yellow),
        Paint::Bad => Style::new().fg(Color::Red),
        Paint::Faint => Style::new().add_modifier(Modifier::DIM),
    }
}

/// The terminal as a whole screen; it is as it was before when this is dropped.
pub(super) struct Terminal {
    terminal: DefaultTerminal,
}

impl Terminal {
    pub(super) fn open() -> anyhow::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }

    /// Draws and follows keys for a while. `false` when the person has seen enough.
    ///
    /// Waiting for keys holds the thread, which has nothing else to do meanwhile.
    pub(super) fn show(
        &mut self,
        view: &mut View,
        seen: &Seen,
        look: &Look,
        during: Duration,
    ) -> anyhow::Result<bool> {
        let end = Instant::now() + during;
        loop {
            self.terminal.draw(|frame| view.draw(frame, seen, look))?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left)? {
                return Ok(true);
            }
            // A new size of the terminal is an event too, and draws again.
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !view.on_key(key.code, key.modifiers)
            {
                return Ok(false);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::examples::{look, read, running, waiting};
    use berth_api::{NodeList, WorkloadList};
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn seen() -> Seen {
        Seen {
            cluster: read(json!({
                "version": "0.1.0", "mode": "embedded", "started_at": "2026-11-17T07:00:00.000Z", "folder": "/data",
                "nodes": 1, "nodes_ready": 1, "gpus": 8, "gpus_allocated": 2, "running_count": 1, "waiting_count": 1,
                "projects": 2, "cursor": 77, "declared": true
            })),
            nodes: NodeList {
                items: vec![read(json!({
                    "name": "dgx-1", "state": "Ready", "pool": "default", "labels": {}, "gpus_allocated": 2, "cpu": 80,
                    "cpu_allocated": 0, "memory": 540_000_000_000u64, "memory_allocated": 0, "workloads": ["team-a/hyper1"],
                    "devices": [{"index": 0, "model": "V100", "memory": 34_089_205_760u64, "allocated": 1,
                        "workloads": [{"workload": "team-a/hyper1", "share": 1}],
                        "usage": {"utilisation": 97, "source": "nvml"}}]
                }))],
            },
            workloads: WorkloadList { items: vec![running(), waiting()], next: None },
        }
    }

    fn drawn(view: &mut View) -> Vec<String> {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(90, 8)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame, &seen(), &look())).expect("is drawn");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..8).map(row).collect()
    }

    #[test]
    fn workloads_are_drawn_in_the_order_that_was_asked_for() {
        let mut view = View::new(Subject::Workloads, Sort::Name);
        let lines = drawn(&mut view);
        assert_eq!(lines[0], "Cluster: 2 of 8 GPUs allocated, 1 running, 1 waiting, 1 of 1 nodes ready");
        assert_eq!(lines[3], "NAME    PROJECT  STATUS   GPUS  ALLOCATED  BUSY  NODE   AGE  PROGRESS");
        assert_eq!(lines[4], "b-4-gg  team-b   Pending  0.5   0                       2h");
        assert_eq!(lines[5], "hyper1  team-a   Running  2     2          97%   dgx-1  5m   40%, 7m left");
        assert!(view.on_key(KeyCode::Char('g'), KeyModifiers::NONE));
        assert!(drawn(&mut view)[4].starts_with("hyper1"), "most GPUs first");
        assert!(!view.on_key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!view.on_key(KeyCode::Char('c'), KeyModifiers::CONTROL));
    }

    #[test]
    fn scrolling_stops_at_the_last_row_and_tab_shows_nodes() {
        let mut view = View::new(Subject::Workloads, Sort::Name);
        for _ in 0..5 {
            view.on_key(KeyCode::PageDown, KeyModifiers::NONE);
        }
        assert!(drawn(&mut view)[4].starts_with("b-4-gg"), "all rows fit");
        view.on_key(KeyCode::Tab, KeyModifiers::NONE);
        let lines = drawn(&mut view);
        assert!(
            lines[4].starts_with("dgx-1  Ready  1     2          97%   0/80  0 B/502.9 GiB  1"),
            "{}",
            lines[4]
        );
        view.trouble = Some("nobody answers".into());
        assert_eq!(drawn(&mut view)[7], "nobody answers");
    }
}
