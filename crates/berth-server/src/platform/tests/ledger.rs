//! A plain model of who has what. It knows the orders that an agent gets and the events of the log, and nothing of the engine's
//! phases or of the sums that the platform shows.

use super::*;
use berth_types::{Action, Gpus, NodeId, Place, StopReason};

/// A task that an agent has.
#[derive(Debug, Clone)]
struct Tracked {
    place: Place,
    leaves: bool,
}

/// Why the last tasks of a workload leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It returns to the queue.
    Requeue,
    End,
}

/// One workload that is not over.
#[derive(Debug, Clone)]
pub(crate) struct Tracking {
    pub(crate) project: String,
    tasks: BTreeMap<u32, Tracked>,
    places: BTreeMap<u32, Place>,
    held: Vec<Place>,
    cause: Option<Cause>,
    suspends: bool,
    /// What it reported, and when.
    reported: Option<(u8, Time)>,
    written: Option<(u8, Time)>,
    started: Option<Time>,
    ran: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stands {
    Running,
    Pending,
    Suspended,
    Ending,
}

impl Tracking {
    fn allocated(&self) -> impl Iterator<Item = &Place> {
        let tasks = self.tasks.values().filter(|task| !task.leaves).map(|task| &task.place);
        tasks.chain(&self.held)
    }

    fn runs(&self) -> bool {
        self.tasks.values().any(|task| !task.leaves)
    }

    pub(crate) fn gpus(&self) -> u64 {
        self.allocated().map(|place| place.gpus().0).sum()
    }

    pub(crate) fn stands(&self) -> Stands {
        match (self.allocated().next().is_some(), self.tasks.is_empty(), self.cause) {
            (true, ..) => Stands::Running,
            (false, false, Some(Cause::Requeue)) => Stands::Pending,
            (false, false, _) => Stands::Ending,
            (false, true, _) if self.suspends => Stands::Suspended,
            (false, true, _) => Stands::Pending,
        }
    }

    fn utilisation(&self, now: Time) -> Option<u8> {
        self.reported.filter(|(_, at)| now < *at + Span::secs(60)).map(|(percent, _)| percent)
    }
}

/// Everything that is not over, and what was allocated when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) workloads: BTreeMap<WorkloadId, Tracking>,
    /// How long each workload ran that is over, by project.
    pub(crate) over: BTreeMap<WorkloadId, (String, Span)>,
    /// What was allocated in all and by project, each time that something happened.
    pub(crate) steps: Vec<(Time, BTreeMap<String, u64>)>,
}

impl Ledger {
    pub(super) fn note(&mut self, now: Time, logged: &[Logged], orders: &Orders, over: &[WorkloadId]) {
        for logged in logged {
            self.happened(&logged.happened);
        }
        for key in &orders.start {
            // One that is started again keeps its place.
            let Some(tracking) = self.workloads.get_mut(&key.workload) else { continue };
            if let (None, Some(place)) = (tracking.tasks.get(&key.rank), tracking.places.get(&key.rank)) {
                let place = place.clone();
                tracking.tasks.insert(key.rank, Tracked { place, leaves: false });
            }
        }
        for (key, _) in &orders.stop {
            let tracking = self.workloads.get_mut(&key.workload);
            if let Some(task) = tracking.and_then(|tracking| tracking.tasks.get_mut(&key.rank)) {
                task.leaves = true;
            }
        }
        for id in over {
            if let Some(tracking) = self.workloads.get_mut(id) {
                tracking.tasks.clear();
                tracking.held.clear();
            }
        }
        for tracking in self.workloads.values_mut() {
            match (tracking.runs(), tracking.started) {
                (true, None) => tracking.started = Some(now),
                (false, Some(since)) => {
                    tracking.ran = Span(tracking.ran.0 + now.since(since).0);
                    tracking.started = None;
                }
                _ => {}
            }
            if !tracking.runs() {
                (tracking.reported, tracking.written) = (None, None);
            }
        }
        for id in over {
            if let Some(tracking) = self.workloads.remove(id) {
                self.over.insert(*id, (tracking.project, tracking.ran));
            }
        }
        let mut values = BTreeMap::from([(String::new(), 0)]);
        for tracking in self.workloads.values() {
            *values.entry(String::new()).or_default() += tracking.gpus();
            *values.entry(tracking.project.clone()).or_default() += tracking.gpus();
        }
        match self.steps.last_mut() {
            Some((at, last)) if *at == now => *last = values,
            _ => self.steps.push((now, values)),
        }
    }

    fn happened(&mut self, happened: &Happened) {
        if let Happened::Submitted { workload, request } = happened {
            let tracking = Tracking {
                project: request.project.clone(),
                tasks: BTreeMap::new(),
                places: BTreeMap::new(),
                held: Vec::new(),
                cause: None,
                suspends: false,
                reported: None,
                written: None,
                started: None,
                ran: Span::ZERO,
            };
            self.workloads.insert(workload.id, tracking);
            return;
        }
        let Some(tracking) = happened.workload().and_then(|id| self.workloads.get_mut(&id)) else { return };
        match happened {
            Happened::Decided { action } => tracking.decided(action),
            Happened::Stopped { stop, .. } => {
                tracking.held.clear();
                tracking.cause = Some(if *stop == Stop::Drained { Cause::Requeue } else { Cause::End });
                tracking.suspends = *stop == Stop::Suspended;
            }
            Happened::Resumed { .. } => (tracking.suspends, tracking.cause) = (false, None),
            Happened::TaskExited { task, exit } => {
                tracking.tasks.remove(&task.rank);
                let cause = if *exit == TaskExit::Lost { Cause::Requeue } else { Cause::End };
                tracking.cause.get_or_insert(cause);
            }
            Happened::Progressed { report, .. } => {
                tracking.written = report.utilisation.map(|percent| (percent, report.utilisation_at));
            }
            _ => {}
        }
    }

    pub(super) fn reported(&mut self, id: WorkloadId, percent: u8, now: Time) {
        if let Some(tracking) = self.workloads.get_mut(&id).filter(|tracking| tracking.runs()) {
            tracking.reported = Some((percent, now));
        }
    }

    /// What was not written down is lost.
    pub(super) fn restarted(&mut self) {
        self.workloads.values_mut().for_each(|tracking| tracking.reported = tracking.written);
    }

    /// Allocated, workloads and utilisation in millionths of a percent of each device in use; the latter none when unknown.
    pub(crate) fn devices(&self, now: Time) -> BTreeMap<(NodeId, u8), (Gpus, u64, Option<u64>)> {
        let mut devices: BTreeMap<_, (Gpus, u64, Option<u64>)> = BTreeMap::new();
        for tracking in self.workloads.values() {
            let reported = tracking.utilisation(now);
            for place in tracking.allocated() {
                for taken in &place.devices {
                    let device =
                        devices.entry((place.node, taken.device)).or_insert((Gpus::ZERO, 0, Some(0)));
                    device.0 += taken.share.gpus();
                    device.1 += 1;
                    let part = reported.map(|percent| u64::from(percent) * taken.share.gpus().0);
                    device.2 = device.2.zip(part).map(|(sum, part)| sum + part);
                }
            }
        }
        for tracking in self.workloads.values() {
            for task in tracking.tasks.values().filter(|task| task.leaves) {
                for taken in &task.place.devices {
                    let device =
                        devices.entry((task.place.node, taken.device)).or_insert((Gpus::ZERO, 0, Some(0)));
                    device.2 = None;
                }
            }
        }
        devices.values_mut().for_each(|device| device.2 = device.2.map(|busy| busy.min(100_000_000)));
        devices
    }

    /// Mean, smallest and largest of a project, or of all, between two times.
    pub(crate) fn window(&self, project: &str, from: Time, to: Time) -> (i64, i64, i64) {
        let value = |values: &BTreeMap<String, u64>| values.get(project).copied().unwrap_or(0);
        let (mut sum, mut min, mut max) = (0u128, u64::MAX, 0);
        for (position, (at, values)) in self.steps.iter().enumerate() {
            let end = self.steps.get(position + 1).map_or(to, |(next, _)| *next).min(to);
            let begin = (*at).max(from);
            // What held for some time, and what holds at the end.
            let holds = begin < end
                || (end == to
                    && *at <= to
                    && self.steps.get(position + 1).is_none_or(|(next, _)| *next > to));
            if holds && end >= from {
                sum += u128::from(value(values)) * u128::from(end.since(begin).0);
                (min, max) = (min.min(value(values)), max.max(value(values)));
            }
        }
        let span = u128::from(to.since(from).0);
        let last = self.steps.iter().rev().find(|(at, _)| *at <= to).map_or(0, |(_, values)| value(values));
        let mean = sum.checked_div(span).unwrap_or_else(|| u128::from(last));
        if min == u64::MAX {
            (last as i64, last as i64, last as i64)
        } else {
            (mean as i64, min as i64, max as i64)
        }
    }
}

impl Tracking {
    fn decided(&mut self, action: &Action) {
        match action {
            Action::Start { places, .. } => {
                self.held.clear();
                self.tasks.clear();
                self.cause = None;
                (self.reported, self.written) = (None, None);
                self.take(places);
            }
            Action::Grow { places, .. } => self.take(places),
            Action::Hold { places, .. } => self.held.clone_from(places),
            Action::Move { places, .. } => {
                self.held.clone_from(places);
                self.cause = Some(Cause::Requeue);
            }
            Action::Evict { .. } => {
                self.held.clear();
                self.cause = Some(Cause::Requeue);
            }
            Action::Stop { reason, .. } => {
                self.held.clear();
                self.cause = Some(Cause::End);
                self.suspends = *reason == StopReason::Idle;
            }
            _ => {}
        }
    }

    fn take(&mut self, places: &[Place]) {
        for place in places {
            self.places.insert(place.rank, place.clone());
            self.tasks.insert(place.rank, Tracked { place: place.clone(), leaves: false });
        }
    }
}
