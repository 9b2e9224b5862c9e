//! What was allocated between two samples: the exact mean, smallest and largest of each number, however short a job was.
//!
//! It follows every change of a workload at a cost that does not depend on how many others there are.

use super::{Happened, Platform, figures::Standing};
use berth_store::Window;
use berth_types::{Place, ProjectId, Time, WorkloadId};
use std::collections::BTreeMap;

const MILLION: u64 = 1_000_000;

/// A number that is followed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Allocated,
    OfProject(ProjectId),
    OfUser(String),
    Running,
    Pending,
}

/// What one workload adds to the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    project: ProjectId,
    user: String,
    gpus: u64,
    standing: Standing,
}

/// A number that holds until it changes.
#[derive(Debug, Clone, Copy)]
struct Gauge {
    now: u64,
    /// Since when it is what it is, or when the window began.
    since: Time,
    /// What was before `since` in this window: the value times its milliseconds.
    sum: u128,
    /// Smallest and largest of it.
    bounds: Option<(u64, u64)>,
}

impl Gauge {
    fn new(begun: Time) -> Self {
        Self { now: 0, since: begun, sum: 0, bounds: None }
    }

    /// What held until a time counts; what held for no time at all was never true.
    fn fold(&mut self, at: Time) {
        self.sum += u128::from(self.now) * u128::from(at.since(self.since).0);
        let (min, max) = self.bounds.unwrap_or((self.now, self.now));
        self.bounds = Some((min.min(self.now), max.max(self.now)));
        self.since = at;
    }

    fn set(&mut self, value: u64, at: Time) {
        if at > self.since {
            self.fold(at);
        }
        self.now = value;
    }

    /// Ends the window and begins the next.
    fn take(&mut self, begun: Time, at: Time) -> Window {
        self.fold(at);
        let span = u128::from(at.since(begun).0);
        let mean = self.sum.checked_div(span).unwrap_or_else(|| u128::from(self.now));
        let (min, max) = self.bounds.unwrap_or((self.now, self.now));
        (self.sum, self.bounds, self.since) = (0, None, at);
        Window { mean: mean as i64, min: min as i64, max: max as i64 }
    }
}

/// The numbers that are followed, and what each workload adds to them.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    parts: BTreeMap<WorkloadId, Part>,
    gauges: BTreeMap<Key, Gauge>,
    begun: Time,
}

impl Meter {
    fn set(&mut self, id: WorkloadId, part: Option<Part>, at: Time) {
        if self.parts.get(&id) == part.as_ref() {
            return;
        }
        let before = match &part {
            Some(part) => self.parts.insert(id, part.clone()),
            None => self.parts.remove(&id),
        };
        for (part, is_new) in
            before.iter().map(|part| (part, false)).chain(part.iter().map(|part| (part, true)))
        {
            let mut amounts = vec![
                (Key::Allocated, part.gpus),
                (Key::OfProject(part.project), part.gpus),
                (Key::OfUser(part.user.clone()), part.gpus),
            ];
            match part.standing {
                Standing::Running => amounts.push((Key::Running, MILLION)),
                Standing::Pending => amounts.push((Key::Pending, MILLION)),
                Standing::Suspended | Standing::Ending => {}
            }
            for (key, amount) in amounts {
                let gauge = self.gauges.entry(key).or_insert_with(|| Gauge::new(self.begun));
                let value = if is_new { gauge.now + amount } else { gauge.now - amount };
                gauge.set(value, at);
            }
        }
    }
}

impl Platform {
    /// Follows what happened.
    pub(super) fn meter_happened(&mut self, happened: &Happened, at: Time) {
        match happened {
            Happened::Progressed { .. } | Happened::Warned { .. } | Happened::Checkpointed { .. } => {}
            Happened::Node { .. } | Happened::NodeRemoved { .. } => self.meter_all(at),
            _ => happened.workload().into_iter().for_each(|id| self.meter_one(id, at)),
        }
    }

    /// Follows a workload of which something may have changed.
    pub(super) fn meter_one(&mut self, id: WorkloadId, at: Time) {
        let is_parked = self.records.get(&id).is_some_and(|record| record.parked.is_some());
        let known = self.engine.workload(id).filter(|_| !is_parked);
        let gpus = known.map_or(0, |workload| workload.places().map(|place: &Place| place.gpus().0).sum());
        let part = self.standing_of(id).and_then(|standing| {
            let (project, user) = match (self.records.get(&id), known) {
                (Some(record), _) => (record.project, record.user.clone()),
                (None, Some(workload)) => (workload.spec.project, workload.spec.user.clone()),
                (None, None) => return None,
            };
            Some(Part { project, user, gpus, standing })
        });
        self.meter.set(id, part, at);
    }

    fn meter_all(&mut self, at: Time) {
        let known = self.engine.workloads().map(|workload| workload.id);
        let mut ids: Vec<WorkloadId> =
            known.chain(self.records.keys().copied()).chain(self.meter.parts.keys().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().for_each(|id| self.meter_one(id, at));
    }

    /// Begins to follow: what was before is not part of the first sample.
    pub(crate) fn begin_window(&mut self, now: Time) {
        self.meter = Meter { begun: now, ..Meter::default() };
        self.meter_all(now);
    }

    /// What was allocated since this was last asked, by series.
    pub(crate) fn take_window(&mut self, now: Time) -> BTreeMap<String, (i64, Window)> {
        let Meter { gauges, begun, .. } = &mut self.meter;
        let mut series = BTreeMap::new();
        let projects = self.engine.projects();
        gauges.retain(|key, gauge| {
            let window = gauge.take(*begun, now);
            let is_used = gauge.now > 0 || window.max > 0;
            let name = match key {
                Key::Allocated => "gpus_allocated".to_owned(),
                Key::Running => "workloads_running".to_owned(),
                Key::Pending => "workloads_waiting".to_owned(),
                Key::OfUser(user) if is_used => format!("gpus_by_user/{user}"),
                Key::OfUser(_) => return false,
                Key::OfProject(id) => match projects.get(id) {
                    Some(project) => format!("gpus_allocated/{}", project.name),
                    None => return is_used,
                },
            };
            series.insert(name, (gauge.now as i64, window));
            true
        });
        *begun = now;
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_knows_what_held_between_two_looks() {
        let mut gauge = Gauge::new(Time(0));
        gauge.set(8, Time(1_000));
        gauge.set(12, Time(2_000));
        gauge.set(0, Time(2_000));
        assert_eq!(gauge.take(Time(0), Time(4_000)), Window { mean: 2, min: 0, max: 8 });
        assert_eq!(gauge.take(Time(4_000), Time(5_000)), Window { mean: 0, min: 0, max: 0 });
        gauge.set(3, Time(5_000));
        assert_eq!(gauge.take(Time(5_000), Time(5_000)), Window { mean: 3, min: 3, max: 3 });
    }
}
