//! Jobs that come, wait, run and end: the Philly extract, or anybody's own file.
//!
//! Definitions, the same for every scheduler:
//!
//! - A job of more GPUs than a node has is a gang of as few equal tasks as fit: 16 GPUs on nodes of 8 are 2 tasks of 8,
//!   12 GPUs are 2 tasks of 6. When the GPUs cannot be divided, each task is rounded up and the job occupies the excess.
//! - *Queue time* is all time a job waits: before its first start and after every eviction. Work that is done again
//!   and the cost of a restart are not waiting; they lengthen the run.
//! - *Lost* is work destroyed by evictions, in GPU-seconds, as a share of the work all jobs ask for.

pub mod drive;
pub mod engine;
pub mod guarantee;
pub mod ledger;
pub mod lifo;
pub mod report;
pub mod restart;

use super::table::{Row, Table};
use anyhow::anyhow;
use std::path::Path;

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// When it was submitted, in seconds from the start of the replay.
    pub submit_s: u64,
    /// How long it runs when nobody disturbs it.
    pub duration_s: u64,
    /// How many GPUs.
    pub gpus: u32,
    /// Whose, as an index into [`Jobs::projects`].
    pub project: usize,
}

impl Job {
    /// How many tasks of how many GPUs, on nodes with so many.
    pub fn tasks(&self, node_gpus: u8) -> (u32, u8) {
        let tasks = self.gpus.div_ceil(u32::from(node_gpus));
        (tasks, self.gpus.div_ceil(tasks) as u8)
    }
}

/// All jobs of a replay, by submission, and who owns quota.
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    /// By submission; equal ones in the order of the file.
    pub jobs: Vec<Job>,
    /// Names and quotas in GPUs.
    pub projects: Vec<(String, u32)>,
}

/// The replay of Philly covers submissions from here, local time.
const PHILLY_FROM: &str = "2017-10-01 00:00:00";
/// And up to before here.
const PHILLY_TO: &str = "2017-12-01 00:00:00";

impl Jobs {
    /// The Philly extract, October and November 2017, the groups that have a quota.
    pub fn philly(traces: &Path) -> anyhow::Result<Self> {
        let quotas = Table::open(&traces.join("philly/vc_quota.csv"))?;
        Self::parse_philly(&quotas, &Table::open(&traces.join("philly/philly.csv"))?)
    }

    fn parse_philly(quotas: &Table, table: &Table) -> anyhow::Result<Self> {
        let mut all = Self { projects: parse_quotas(quotas, "vc")?, ..Self::default() };
        let at = |text: &str| parse_local_time(text).expect("a constant of this file");
        let (from, to) = (at(PHILLY_FROM), at(PHILLY_TO));
        for row in table.rows(&["timestamp", "duration", "num_gpus", "cluster"])? {
            let submit = parse_local_time(row.text(0))
                .ok_or_else(|| row.wrong(0, "a time like 2017-10-09 07:01:55"))?;
            let project = all.projects.iter().position(|(name, _)| name == row.text(3));
            if let Some(project) = project
                && (from..to).contains(&submit)
            {
                all.jobs.push(Job {
                    submit_s: submit - from,
                    duration_s: seconds(&row, 1)?,
                    gpus: gpus(&row, 2)?,
                    project,
                });
            }
        }
        all.jobs.sort_by_key(|job| job.submit_s);
        Ok(all)
    }

    /// Jobs with the columns `submit_s,duration_s,gpus,project`, and quotas with `project,quota_gpus`.
    pub fn csv(file: &Path, quotas: &Path) -> anyhow::Result<Self> {
        Self::parse_csv(&Table::open(quotas)?, &Table::open(file)?)
    }

    pub(crate) fn parse_csv(quotas: &Table, table: &Table) -> anyhow::Result<Self> {
        let mut all = Self { projects: parse_quotas(quotas, "project")?, ..Self::default() };
        for row in table.rows(&["submit_s", "duration_s", "gpus", "project"])? {
            let project = all.projects.iter().position(|(name, _)| name == row.text(3));
            all.jobs.push(Job {
                submit_s: seconds(&row, 0)?,
                duration_s: seconds(&row, 1)?,
                gpus: gpus(&row, 2)?,
                project: project.ok_or_else(|| row.wrong(3, "a project of the quota file"))?,
            });
        }
        if all.jobs.is_empty() {
            return Err(anyhow!("the file of jobs has a header and no jobs"));
        }
        all.jobs.sort_by_key(|job| job.submit_s);
        Ok(all)
    }
}

fn parse_quotas(table: &Table, name: &str) -> anyhow::Result<Vec<(String, u32)>> {
    let columns = [name, "quota_gpus"];
    let rows = table.rows(&columns)?;
    rows.iter()
        .map(|row| {
            let quota: u32 = row.value(1, "a number of GPUs")?;
            if quota > 1_000_000 {
                return Err(row.wrong(1, "at most 1,000,000 GPUs"));
            }
            Ok((row.text(0).to_string(), quota))
        })
        .collect()
}

/// No job of a replay lasts longer than a century.
const SECONDS_MAX: f64 = 3.2e9;

fn seconds(row: &Row<'_>, column: usize) -> anyhow::Result<u64> {
    let value: f64 = row.value(column, "a number of seconds")?;
    if !(0.0..=SECONDS_MAX).contains(&value) {
        return Err(row.wrong(column, "a number of seconds, zero or more"));
    }
    Ok(value.round() as u64)
}

fn gpus(row: &Row<'_>, column: usize) -> anyhow::Result<u32> {
    let gpus: u32 = row.value(column, "a number of GPUs")?;
    if gpus == 0 || gpus > 1_000_000 {
        return Err(row.wrong(column, "1 to 1,000,000 GPUs"));
    }
    Ok(gpus)
}

/// Seconds since 1970 of a local time without zone, as if it were UTC.
fn parse_local_time(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(' ')?;
    let numbers = |text: &str, mark: char| -> Option<[u64; 3]> {
        let parts: Option<Vec<u64>> = text.split(mark).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from the civil calendar, counted in years that begin in March so that the leap day comes last.
    let shifted = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(parse_local_time("1970-01-01 00:00:01"), Some(1));
        assert_eq!(parse_local_time("2017-10-01 00:00:00"), Some(1_506_816_000));
        assert_eq!(parse_local_time("2024-02-29 12:00:00"), Some(1_709_208_000));
        assert_eq!(parse_local_time("2017-13-01 00:00:00"), None);
        assert_eq!(parse_local_time("yesterday"), None);
    }

    #[test]
    fn only_the_two_months_and_the_groups_with_a_quota_are_replayed() {
        let quotas = Table::from_text("vc_quota.csv", "vc,quota_gpus\na,8\n");
        let jobs = "timestamp,duration,num_gpus,gpu_time,cluster\n\
            2017-10-01 00:01:00,66.0,1,66.0,a\n2017-10-01 00:00:30,5.0,12,60.0,a\n\
            2017-09-30 23:59:59,1.0,1,1.0,a\n2017-12-01 00:00:00,1.0,1,1.0,a\n2017-10-02 00:00:00,1.0,1,1.0,b\n";
        let all = Jobs::parse_philly(&quotas, &Table::from_text("philly.csv", jobs)).unwrap();
        let seen: Vec<_> = all.jobs.iter().map(|job| (job.submit_s, job.duration_s, job.tasks(8))).collect();
        assert_eq!(seen, [(30, 5, (2, 6)), (60, 66, (1, 1))]);
    }

    #[test]
    fn a_job_of_an_unknown_project_is_an_error() {
        let quotas = Table::from_text("quotas.csv", "project,quota_gpus\nred,8\n");
        let jobs = Table::from_text("jobs.csv", "submit_s,duration_s,gpus,project\n0,1,1,blue\n");
        assert_eq!(
            Jobs::parse_csv(&quotas, &jobs).unwrap_err().to_string(),
            "jobs.csv:2: expected a project of the quota file in column `project`, found `blue`"
        );
    }
}
