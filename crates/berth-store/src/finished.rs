//! Workloads that are over: listed from the disk, so that their number costs no memory.

use crate::{
    Json, StoreError,
    batch::{BODY_BYTES_MAX, TEXT_BYTES_MAX, bound},
    error::integer,
    tally::{signed, unsigned, unsigned_or_none},
};
use berth_types::{ProjectId, Time, WorkloadId};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

/// The most workloads on one page.
pub const PAGE_MAX: usize = 1_000;

/// A workload that is over. The columns are what lists are filtered by; the document is what is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedWorkload {
    /// Its identity.
    pub id: WorkloadId,
    /// Its name.
    pub name: String,
    /// Who owned it.
    pub project: ProjectId,
    /// Who submitted it.
    pub user: String,
    /// Its kind.
    pub kind: String,
    /// How it ended.
    pub phase: String,
    /// Whether it is left out of lists.
    pub hidden: bool,
    /// When it was submitted.
    pub submitted: Time,
    /// When it was first started, if it was.
    pub started: Option<Time>,
    /// When it was over.
    pub ended: Time,
    /// Everything that is known of it.
    pub document: Json,
}

/// Which finished workloads are listed: those for which everything that is set holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedFilter {
    /// Owned by this project.
    pub project: Option<ProjectId>,
    /// Submitted by this user.
    pub user: Option<String>,
    /// With this name.
    pub name: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Ended in this way.
    pub phase: Option<String>,
    /// Left out of lists, or not.
    pub hidden: Option<bool>,
    /// Over at this time or later.
    pub ended_from: Option<Time>,
    /// Over before this time.
    pub ended_before: Option<Time>,
}

/// The last workload of a page: the next page begins after it. It names a place in the order and not a number of rows, so
/// that what is added or forgotten meanwhile neither repeats nor hides a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedCursor {
    /// When it was over.
    pub ended: Time,
    /// Its identity.
    pub id: WorkloadId,
}

/// Some finished workloads, those that were over last first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedPage {
    /// The workloads.
    pub workloads: Vec<FinishedWorkload>,
    /// Where the next page begins, if there is one.
    pub next: Option<FinishedCursor>,
}

impl FinishedWorkload {
    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        integer("id of a workload", self.id.0)?;
        integer("id of a project", self.project.0)?;
        let times = [self.submitted.0, self.started.map_or(0, |at| at.0), self.ended.0];
        times
            .into_iter()
            .try_for_each(|time| integer("time of a workload, in milliseconds", time).map(drop))?;
        for text in [&self.name, &self.user, &self.kind, &self.phase] {
            bound("bytes in a text of a finished workload", text.len(), TEXT_BYTES_MAX)?;
        }
        bound("bytes in the document of a workload", self.document.as_str().len(), BODY_BYTES_MAX)
    }
}

pub(crate) fn upsert(connection: &Connection, workload: &FinishedWorkload) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO finished
             (id, name, project, user, kind, phase, submitted, started, ended, document, hidden)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    statement.execute(params![
        signed(workload.id.0),
        workload.name,
        signed(workload.project.0),
        workload.user,
        workload.kind,
        workload.phase,
        signed(workload.submitted.0),
        workload.started.map(|at| signed(at.0)),
        signed(workload.ended.0),
        workload.document.as_str(),
        workload.hidden,
    ])?;
    Ok(())
}

pub(crate) fn delete(connection: &Connection, id: WorkloadId) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM finished WHERE id = ?1")?.execute([signed(id.0)])?;
    Ok(())
}

const COLUMNS: &str = "id, name, project, user, kind, phase, submitted, started, ended, document, hidden";

pub(crate) fn load(connection: &Connection, id: WorkloadId) -> rusqlite::Result<Option<FinishedWorkload>> {
    let Ok(id) = i64::try_from(id.0) else { return Ok(None) };
    let sql = format!("SELECT {COLUMNS} FROM finished WHERE id = ?1");
    connection.prepare_cached(&sql)?.query_row([id], read).optional()
}

pub(crate) fn load_page(
    connection: &Connection,
    filter: &FinishedFilter,
    after: Option<FinishedCursor>,
    count_max: usize,
) -> rusqlite::Result<FinishedPage> {
    let count_max = count_max.clamp(1, PAGE_MAX);
    let (mut conditions, mut values) = (Vec::new(), Vec::<Box<dyn ToSql>>::new());
    let mut require = |condition: &str, value: Option<Box<dyn ToSql>>| {
        if let Some(value) = value {
            conditions.push(condition.to_owned());
            values.push(value);
        }
    };
    let number = |value: u64| Box::new(i64::try_from(value).unwrap_or(i64::MAX)) as Box<dyn ToSql>;
    let text = |value: &Option<String>| value.clone().map(|value| Box::new(value) as Box<dyn ToSql>);
    require("project = ?", filter.project.map(|project| number(project.0)));
    require("user = ?", text(&filter.user));
    require("name = ?", text(&filter.name));
    require("kind = ?", text(&filter.kind));
    require("phase = ?", text(&filter.phase));
    require("hidden = ?", filter.hidden.map(|hidden| Box::new(hidden) as Box<dyn ToSql>));
    require("ended >= ?", filter.ended_from.map(|at| number(at.0)));
    require("ended < ?", filter.ended_before.map(|at| number(at.0)));
    if let Some(cursor) = after {
        conditions.push("(ended, id) < (?, ?)".to_owned());
        values.extend([number(cursor.ended.0), number(cursor.id.0)]);
    }
    // One more than asked for tells whether there is a next page.
    values.push(Box::new(count_max as i64 + 1));
    let conditions =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let sql = format!("SELECT {COLUMNS} FROM finished {conditions} ORDER BY ended DESC, id DESC LIMIT ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), read)?;
    let mut workloads = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_more = workloads.len() > count_max;
    workloads.truncate(count_max);
    let last = workloads.last().filter(|_| is_more);
    let next = last.map(|workload| FinishedCursor { ended: workload.ended, id: workload.id });
    Ok(FinishedPage { workloads, next })
}

fn read(row: &Row<'_>) -> rusqlite::Result<FinishedWorkload> {
    Ok(FinishedWorkload {
        id: WorkloadId(unsigned(row, 0)?),
        name: row.get(1)?,
        project: ProjectId(unsigned(row, 2)?),
        user: row.get(3)?,
        kind: row.get(4)?,
        phase: row.get(5)?,
        submitted: Time(unsigned(row, 6)?),
        started: unsigned_or_none(row, 7)?.map(Time),
        ended: Time(unsigned(row, 8)?),
        document: Json::stored(row.get(9)?),
        hidden: row.get(10)?,
    })
}
