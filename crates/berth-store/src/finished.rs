//! Workloads that are over: listed from the disk, so that their number costs no memory.

use crate::{
    Json, StoreError,
    batch::{BODY_BYTES_MAX, TEXT_BYTES_MAX, bound},
    error::integer,
    tally::{signed, unsigned, unsigned_or_none},
};
use berth_types::{ProjectId, Time, WorkloadId};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Value};

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
    // One more than asked for tells whether there is a next page.
    let rows_max = count_max + 1;
    let mut workloads = Vec::new();
    for filter in in_order_of_an_index(filter) {
        let query = Query::new(&filter, after, rows_max);
        let mut statement = connection.prepare_cached(&query.sql)?;
        let rows = statement.query_map(rusqlite::params_from_iter(&query.values), read)?;
        workloads.append(&mut rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    workloads.sort_by_key(|workload| std::cmp::Reverse((workload.ended, workload.id)));
    let is_more = workloads.len() > count_max;
    workloads.truncate(count_max);
    let last = workloads.last().filter(|_| is_more);
    let next = last.map(|workload| FinishedCursor { ended: workload.ended, id: workload.id });
    Ok(FinishedPage { workloads, next })
}

/// Splits a filter into filters that together find the same, each of which an index gives in the order of a page. All
/// indices but that of names hold hidden workloads apart from the others: a query for both would read and sort every
/// workload of a project for its first page.
fn in_order_of_an_index(filter: &FinishedFilter) -> Vec<FinishedFilter> {
    if filter.hidden.is_some() || filter.name.is_some() {
        return vec![filter.clone()];
    }
    [false, true].map(|hidden| FinishedFilter { hidden: Some(hidden), ..filter.clone() }).into()
}

/// A statement that reads finished workloads in the order of a page, and the values of its parameters.
struct Query {
    sql: String,
    values: Vec<Value>,
}

impl Query {
    fn new(filter: &FinishedFilter, after: Option<FinishedCursor>, rows_max: usize) -> Self {
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        let mut require = |condition: &'static str, value: Option<Value>| {
            if let Some(value) = value {
                conditions.push(condition);
                values.push(value);
            }
        };
        let number = |value: u64| Value::from(i64::try_from(value).unwrap_or(i64::MAX));
        let text = |value: &Option<String>| value.clone().map(Value::from);
        require("project = ?", filter.project.map(|project| number(project.0)));
        require("user = ?", text(&filter.user));
        require("name = ?", text(&filter.name));
        require("kind = ?", text(&filter.kind));
        require("phase = ?", text(&filter.phase));
        require("hidden = ?", filter.hidden.map(Value::from));
        require("ended >= ?", filter.ended_from.map(|at| number(at.0)));
        require("ended < ?", filter.ended_before.map(|at| number(at.0)));
        if let Some(cursor) = after {
            conditions.push("(ended, id) < (?, ?)");
            values.extend([number(cursor.ended.0), number(cursor.id.0)]);
        }
        values.push(number(rows_max as u64));
        let conditions = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        let sql = format!("SELECT {COLUMNS} FROM finished {conditions} ORDER BY ended DESC, id DESC LIMIT ?");
        Self { sql, values }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_any_list_comes_from_an_index_without_sorting() {
        let connection = Connection::open_in_memory().expect("memory");
        connection.execute_batch(include_str!("../migrations/0001_log.sql")).expect("the schema");
        let all = FinishedFilter::default();
        let project = FinishedFilter { project: Some(ProjectId(3)), ..all.clone() };
        let user = FinishedFilter { user: Some("ann".into()), ..all.clone() };
        let name = FinishedFilter { name: Some("mine".into()), ..project.clone() };
        let phase = FinishedFilter { phase: Some("failed".into()), ..project.clone() };
        let shown = FinishedFilter { hidden: Some(false), ..project.clone() };
        for filter in [all, project, user, name, phase, shown] {
            for after in [None, Some(FinishedCursor { ended: Time(9), id: WorkloadId(9) })] {
                for part in in_order_of_an_index(&filter) {
                    let query = Query::new(&part, after, 101);
                    let mut plan =
                        connection.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sql)).expect("a plan");
                    let steps = plan
                        .query_map(rusqlite::params_from_iter(&query.values), |row| row.get::<_, String>(3))
                        .expect("a plan");
                    let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().expect("its steps");
                    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{part:?}: {steps:?}");
                }
            }
        }
    }
}
