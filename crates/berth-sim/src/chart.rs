//! GPUs per project over time, as an SVG a person can read and a browser can scale. Written by hand: a few rectangles
//! and paths need no library.

use crate::{World, report};
use berth_types::{Gpus, ProjectId, Time};
use std::{collections::BTreeSet, fmt::Write};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
/// Told apart by people who see few colours, and readable with dark text on top.
const COLOURS: [&str; 10] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#99ddff",
    "#bbbbbb",
];
/// Rows of the legend that fit.
const LEGEND_MAX: usize = 14;

/// One project: its colour, its quota, and its GPUs at every instant of the chart.
struct Series {
    name: String,
    colour: &'static str,
    quota: Gpus,
    gpus: Vec<Gpus>,
}

/// Draws stacked step areas, one per project, from time zero to now.
pub fn draw(world: &World, title: &str) -> String {
    let end = world.now().0.max(1);
    let times: Vec<Time> = instants(world);
    let series: Vec<Series> = world
        .state()
        .projects
        .values()
        .enumerate()
        .map(|(position, project)| Series {
            name: project.name.clone(),
            colour: COLOURS[position % COLOURS.len()],
            quota: report::project_quota(world.state(), project.id),
            gpus: times.iter().map(|at| gpus_at(world, project.id, *at)).collect(),
        })
        .collect();
    let highest = (0..times.len())
        .map(|at| series.iter().map(|series| series.gpus[at]).sum())
        .chain([report::all_gpus(world.state())])
        .max()
        .unwrap_or(Gpus::ONE)
        .max(Gpus::ONE);
    let frame = Frame { end: end as f64, top: highest.0 as f64 };

    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\" role=\"img\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"30\" font-size=\"16\" font-weight=\"600\">{title}</text>\n",
        title = escape(title)
    );
    frame.draw_axes(&mut svg);
    draw_areas(&mut svg, &frame, &times, &series);
    draw_quotas(&mut svg, &frame, &series);
    draw_legend(&mut svg, &series);
    svg.push_str("</svg>\n");
    svg
}

/// Every instant at which something changes, and both ends.
fn instants(world: &World) -> Vec<Time> {
    let changes = world.usage().values().flatten().map(|(at, _)| *at);
    let all: BTreeSet<Time> = changes.chain([Time(0), world.now()]).collect();
    all.into_iter().collect()
}

fn gpus_at(world: &World, project: ProjectId, at: Time) -> Gpus {
    let samples = world.usage().get(&project).map_or(&[][..], Vec::as_slice);
    let after = samples.partition_point(|(time, _)| *time <= at);
    after.checked_sub(1).map_or(Gpus::ZERO, |last| samples[last].1)
}

/// Maps time and GPUs to the sheet.
struct Frame {
    end: f64,
    top: f64,
}

impl Frame {
    fn x(&self, at: Time) -> f64 {
        LEFT + at.0 as f64 / self.end * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gpus: Gpus) -> f64 {
        HEIGHT - BOTTOM - gpus.0 as f64 / self.top * (HEIGHT - TOP - BOTTOM)
    }

    fn draw_axes(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let whole = (self.top / Gpus::SCALE as f64).ceil() as u64;
        let step = nice_step(whole, &[1, 2, 4, 5, 8], 10, 8);
        for gpus in (0..=whole).step_by(step as usize) {
            let y = self.y(Gpus::whole(gpus));
            let label = LEFT - 8.0;
            let _ = write!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e5e5e5\"/>\n\
                 <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{gpus}</text>\n",
                y + 4.0
            );
        }
        let millis = nice_time(self.end as u64);
        let mut at = 0;
        while at <= self.end as u64 {
            let x = self.x(Time(at));
            let _ = write!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"#999\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 5.0,
                bottom + 20.0,
                report::clock(Time(at))
            );
            at += millis;
        }
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#999\"/>\n\
             <text x=\"{LEFT}\" y=\"{}\" fill=\"#666\">GPUs given</text>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\" fill=\"#666\">time</text>\n",
            TOP - 10.0,
            HEIGHT - 8.0
        );
    }
}

fn draw_areas(svg: &mut String, frame: &Frame, times: &[Time], series: &[Series]) {
    let mut below = vec![Gpus::ZERO; times.len()];
    for series in series {
        let above: Vec<Gpus> = below.iter().zip(&series.gpus).map(|(low, own)| *low + *own).collect();
        let mut path = String::new();
        for (at, time) in times.iter().enumerate() {
            let (x, y) = (frame.x(*time), frame.y(above[at]));
            let _ = match at {
                0 => write!(path, "M{x:.1} {y:.1}"),
                _ => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        for (at, time) in times.iter().enumerate().rev() {
            let (x, y) = (frame.x(*time), frame.y(below[at]));
            // The lower edge is walked backwards, so a step changes its height before its time.
            let _ = match at + 1 == times.len() {
                true => write!(path, "V{y:.1}"),
                false => write!(path, "V{y:.1}H{x:.1}"),
            };
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}Z\" fill=\"{}\" fill-opacity=\"0.75\" stroke=\"#fff\" stroke-width=\"0.5\"><title>{}</title></path>",
            series.colour,
            escape(&series.name)
        );
        below = above;
    }
}

/// Quotas are stacked like the areas: a project that stays below the line above its own colour is within quota when those
/// below it are exactly at theirs.
fn draw_quotas(svg: &mut String, frame: &Frame, series: &[Series]) {
    let mut sum = Gpus::ZERO;
    for series in series {
        sum = sum.saturating_add(series.quota);
        if series.quota.is_zero() || sum.0 as f64 > frame.top {
            continue;
        }
        let (y, right) = (frame.y(sum), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"1.5\" \
             stroke-dasharray=\"5 4\"><title>quota of {}, stacked</title></line>",
            series.colour,
            escape(&series.name)
        );
    }
}

fn draw_legend(svg: &mut String, series: &[Series]) {
    let x = WIDTH - RIGHT + 20.0;
    for (row, series) in series.iter().take(LEGEND_MAX).enumerate() {
        let y = TOP + row as f64 * 22.0;
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\" fill-opacity=\"0.75\"/>\n\
             <text x=\"{}\" y=\"{}\">{} <tspan fill=\"#666\">quota {}</tspan></text>\n",
            series.colour,
            x + 20.0,
            y + 10.5,
            escape(&shorten(&series.name)),
            series.quota
        );
    }
    let rows = series.len().min(LEGEND_MAX) as f64;
    let y = TOP + rows * 22.0;
    if let Some(more @ 1..) = series.len().checked_sub(LEGEND_MAX) {
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{}\" fill=\"#666\">and {more} more</text>", x + 20.0, y + 10.5);
    }
    let _ = write!(
        svg,
        "<line x1=\"{x}\" x2=\"{}\" y1=\"{y2}\" y2=\"{y2}\" stroke=\"#666\" stroke-width=\"1.5\" stroke-dasharray=\"5 4\"/>\n\
         <text x=\"{}\" y=\"{}\" fill=\"#666\">quotas, stacked</text>\n",
        x + 14.0,
        x + 20.0,
        y + 32.0,
        y2 = y + 28.0
    );
}

/// The smallest round step that gives at most `most` labels.
fn nice_step(range: u64, bases: &[u64], scale: u64, most: u64) -> u64 {
    let mut unit = 1u64;
    loop {
        for base in bases {
            let step = base.saturating_mul(unit);
            if range / step <= most {
                return step;
            }
        }
        unit = unit.saturating_mul(scale);
    }
}

/// The smallest usual step of a clock that gives at most ten labels.
fn nice_time(millis: u64) -> u64 {
    const STEPS: [u64; 17] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
    let secs = millis / 1000;
    let known = STEPS.into_iter().find(|step| secs / step <= 10);
    1000 * known.unwrap_or_else(|| 86_400 * nice_step(secs / 86_400, &[1, 2, 5], 10, 10))
}

fn shorten(name: &str) -> String {
    if name.chars().count() <= 14 {
        return name.into();
    }
    let start: String = name.chars().take(13).collect();
    format!("{start}\u{2026}")
}

/// Text that cannot be taken for markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write these, not even escaped.
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_cannot_break_out_of_the_text() {
        assert_eq!(escape("<a> & \"b\"\u{0}"), "&lt;a&gt; &amp; &quot;b&quot;\u{fffd}");
    }

    #[test]
    fn axes_have_few_and_round_labels() {
        assert_eq!(nice_step(16, &[1, 2, 4, 5, 8], 10, 8), 2);
        assert_eq!(nice_step(80_000, &[1, 2, 4, 5, 8], 10, 8), 10_000);
        assert_eq!(nice_time(24_000), 5_000);
        assert_eq!(nice_time(90 * 86_400_000), 10 * 86_400_000);
    }
}
