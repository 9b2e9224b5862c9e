//! Samples for charts: as they came for a while, then rolled up.
//!
//! Roll-ups are brought up to date with each sample instead of being computed later, so that they are exact at any time, also
//! for samples that come late, and dropping samples loses nothing but detail.

use crate::{
    batch::Window,
    settings::Settings,
    tally::{Tally, signed, unsigned},
};
use berth_types::{Span, Time};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

/// The most series there can be.
pub const SERIES_MAX: usize = 50_000;
/// The most points in one answer.
pub const POINTS_MAX: usize = 20_000;

/// What a sample costs in the file: its row, its part of the pages above, and room that is not filled.
const SAMPLE_BYTES: u64 = 40;
/// The same for a roll-up.
const ROLLUP_BYTES: u64 = 72;
/// Rows that are too old, dropped with one write.
const AGED_ROWS_MAX: u64 = 10_000;

/// How closely a series is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// As the samples came.
    Raw,
    /// One point for each five minutes.
    FiveMinutes,
    /// One point for each hour.
    Hours,
}

impl Resolution {
    /// The time one point stands for; none for a sample.
    pub const fn width(self) -> Span {
        match self {
            Self::Raw => Span::ZERO,
            Self::FiveMinutes => Span::secs(300),
            Self::Hours => Span::secs(3600),
        }
    }
}

/// One point of a series. The mean is `sum / count`; dividing is left to who draws it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The time of the sample, or the beginning of the time the point stands for. The value of a sample is of its time; its smallest and
    /// largest are since the sample before.
    pub at: Time,
    /// Samples in it.
    pub count: u64,
    /// Their sum, or the nearest number that can be stored.
    pub sum: i64,
    /// The smallest.
    pub min: i64,
    /// The largest.
    pub max: i64,
}

impl Point {
    fn of(at: Time, window: Window) -> Self {
        Self { at, count: 1, sum: window.mean, min: window.min, max: window.max }
    }

    fn with(self, window: Window) -> Self {
        Self {
            at: self.at,
            count: self.count + 1,
            sum: self.sum.saturating_add(window.mean),
            min: self.min.min(window.min),
            max: self.max.max(window.max),
        }
    }
}

/// How much is kept, and written at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) events_bytes: u64,
    raw_rows: u64,
    five_minutes_rows: u64,
    hours_rows: u64,
    raw_keep: Span,
    five_minutes_keep: Span,
    pub(crate) snapshot_part_bytes: usize,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Self {
        let bytes = settings.history_bytes_max;
        Self {
            events_bytes: bytes / 2,
            raw_rows: bytes / 4 / SAMPLE_BYTES,
            five_minutes_rows: bytes / 8 / ROLLUP_BYTES,
            hours_rows: bytes / 8 / ROLLUP_BYTES,
            raw_keep: settings.raw_keep,
            five_minutes_keep: settings.five_minutes_keep,
            snapshot_part_bytes: settings.snapshot_part_bytes.max(1),
        }
    }
}

/// Bytes that samples and their roll-ups take.
pub(crate) fn bytes(tally: &Tally) -> u64 {
    tally.raw_rows * SAMPLE_BYTES + (tally.five_minutes_rows + tally.hours_rows) * ROLLUP_BYTES
}

/// The numbers of series by name.
#[derive(Debug, Default)]
pub(crate) struct SeriesIndex(HashMap<String, i64>);

impl SeriesIndex {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT name, id FROM series")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self(rows.collect::<rusqlite::Result<_>>()?))
    }

    /// How many there would be with these.
    pub(crate) fn len_with<'a>(&self, names: impl Iterator<Item = &'a str>) -> usize {
        let new: std::collections::HashSet<&str> = names.filter(|name| !self.0.contains_key(*name)).collect();
        self.0.len() + new.len()
    }

    fn number(&mut self, connection: &Connection, name: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.0.get(name) {
            return Ok(*number);
        }
        connection.prepare_cached("INSERT INTO series (name) VALUES (?1)")?.execute([name])?;
        let number = connection.last_insert_rowid();
        self.0.insert(name.to_owned(), number);
        Ok(number)
    }
}

/// Takes a sample in, and brings its roll-ups up to date. A second sample of one series and time is ignored.
pub(crate) fn insert(
    connection: &Connection,
    series: &mut SeriesIndex,
    tally: &mut Tally,
    at: Time,
    sample: &crate::Sample,
) -> rusqlite::Result<()> {
    let number = series.number(connection, &sample.series)?;
    let window = sample.window();
    let differs = |bound: i64| (bound != sample.value).then_some(bound);
    let mut statement = connection.prepare_cached(
        "INSERT OR IGNORE INTO sample (at, series, value, min, max) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let row = params![signed(at.0), number, sample.value, differs(window.min), differs(window.max)];
    if statement.execute(row)? == 0 {
        return Ok(());
    }
    tally.raw_rows += 1;
    for (resolution, rows) in
        [(Resolution::FiveMinutes, &mut tally.five_minutes_rows), (Resolution::Hours, &mut tally.hours_rows)]
    {
        let width = resolution.width().0;
        let start = Time(at.0 / width * width);
        let known = load_rollup(connection, resolution, start, number)?;
        let point = known.map_or_else(|| Point::of(start, window), |point| point.with(window));
        *rows += u64::from(known.is_none());
        let mut statement = connection.prepare_cached(
            "INSERT OR REPLACE INTO rollup (width, start, series, count, sum, min, max)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let count = signed(point.count);
        statement.execute([
            signed(width),
            signed(start.0),
            number,
            count,
            point.sum,
            point.min,
            point.max,
        ])?;
    }
    Ok(())
}

/// Drops what is above the limits: all that is too much, and some of what is too old.
pub(crate) fn trim(
    connection: &Connection,
    tally: &mut Tally,
    limits: &Limits,
    now: Time,
) -> rusqlite::Result<()> {
    let excess = tally.raw_rows.saturating_sub(limits.raw_rows);
    tally.raw_rows -= drop_samples(connection, Time(i64::MAX as u64), excess)?;
    let horizon = Time(now.0.saturating_sub(limits.raw_keep.0));
    tally.raw_rows -= drop_samples(connection, horizon, AGED_ROWS_MAX)?;

    let end = Time(i64::MAX as u64);
    let excess = tally.five_minutes_rows.saturating_sub(limits.five_minutes_rows);
    tally.five_minutes_rows -= drop_rollups(connection, Resolution::FiveMinutes, end, excess)?;
    let horizon = Time(now.0.saturating_sub(limits.five_minutes_keep.0));
    tally.five_minutes_rows -= drop_rollups(connection, Resolution::FiveMinutes, horizon, AGED_ROWS_MAX)?;

    let excess = tally.hours_rows.saturating_sub(limits.hours_rows);
    tally.hours_rows -= drop_rollups(connection, Resolution::Hours, end, excess)?;
    Ok(())
}

/// Drops the oldest samples before a time. Gives how many.
fn drop_samples(connection: &Connection, before: Time, rows_max: u64) -> rusqlite::Result<u64> {
    if rows_max == 0 {
        return Ok(0);
    }
    let mut statement = connection.prepare_cached(
        "DELETE FROM sample WHERE (at, series) IN
         (SELECT at, series FROM sample WHERE at < ?1 ORDER BY at, series LIMIT ?2)",
    )?;
    Ok(statement.execute([signed(before.0), signed(rows_max)])? as u64)
}

/// Drops the oldest roll-ups before a time. Gives how many.
fn drop_rollups(
    connection: &Connection,
    resolution: Resolution,
    before: Time,
    rows_max: u64,
) -> rusqlite::Result<u64> {
    if rows_max == 0 {
        return Ok(0);
    }
    let mut statement = connection.prepare_cached(
        "DELETE FROM rollup WHERE (width, start, series) IN
         (SELECT width, start, series FROM rollup WHERE width = ?1 AND start < ?2
          ORDER BY width, start, series LIMIT ?3)",
    )?;
    let width = signed(resolution.width().0);
    Ok(statement.execute([width, signed(before.0), signed(rows_max)])? as u64)
}

/// The points of a series in `from <= at < to`, oldest first; an unknown series has none.
pub(crate) fn load(
    connection: &Connection,
    name: &str,
    resolution: Resolution,
    from: Time,
    to: Time,
) -> rusqlite::Result<Vec<Point>> {
    let mut statement = connection.prepare_cached("SELECT id FROM series WHERE name = ?1")?;
    let Some(series) = statement.query_row([name], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(Vec::new());
    };
    let clamp = |time: Time| time.0.min(i64::MAX as u64);
    let (from, to) = (clamp(from), clamp(to));
    if resolution == Resolution::Raw {
        return load_samples(connection, series, from, to);
    }
    load_rollups(connection, resolution, series, from, to)
}

/// The key begins with the time: one series is found by stepping from one time that has roll-ups to the next, and not by a walk
/// over all series, nor over all times.
fn load_rollups(
    connection: &Connection,
    resolution: Resolution,
    series: i64,
    from: u64,
    to: u64,
) -> rusqlite::Result<Vec<Point>> {
    let mut statement = connection.prepare_cached(
        "SELECT start FROM rollup WHERE width = ?1 AND start >= ?2 AND start < ?3 ORDER BY width, start LIMIT 1",
    )?;
    let width = signed(resolution.width().0);
    let (mut points, mut next) = (Vec::new(), signed(from));
    while points.len() < POINTS_MAX {
        let start = statement.query_row([width, next, signed(to)], |row| unsigned(row, 0)).optional()?;
        let Some(start) = start else { break };
        points.extend(load_rollup(connection, resolution, Time(start), series)?);
        next = signed(start) + 1;
    }
    Ok(points)
}

pub(crate) fn load_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT name FROM series ORDER BY name")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

fn load_samples(connection: &Connection, series: i64, from: u64, to: u64) -> rusqlite::Result<Vec<Point>> {
    let mut statement = connection.prepare_cached(
        "SELECT at, value, ifnull(min, value), ifnull(max, value) FROM sample WHERE at >= ?1 AND at < ?2 AND series = ?3 ORDER BY at LIMIT ?4",
    )?;
    let rows = statement.query_map([signed(from), signed(to), series, POINTS_MAX as i64], |row| {
        let (at, value) = (Time(unsigned(row, 0)?), row.get(1)?);
        Ok(Point { at, count: 1, sum: value, min: row.get(2)?, max: row.get(3)? })
    })?;
    rows.collect()
}

fn load_rollup(
    connection: &Connection,
    resolution: Resolution,
    start: Time,
    series: i64,
) -> rusqlite::Result<Option<Point>> {
    let mut statement = connection.prepare_cached(
        "SELECT count, sum, min, max FROM rollup WHERE width = ?1 AND start = ?2 AND series = ?3",
    )?;
    let width = signed(resolution.width().0);
    let point = statement.query_row([width, signed(start.0), series], |row| {
        Ok(Point {
            at: start,
            count: unsigned(row, 0)?,
            sum: row.get(1)?,
            min: row.get(2)?,
            max: row.get(3)?,
        })
    });
    point.optional()
}
