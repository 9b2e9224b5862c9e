//! The platform with an agent that does what the test says.

mod addresses;
mod behaviour;
pub(crate) mod history;
mod lasting;
pub(crate) mod ledger;
mod numbers;
mod why;

use super::*;
use berth_api::{ProjectSettings, WorkloadRequest};
use std::collections::BTreeSet;

/// A platform, its log, and the tasks that an agent would have.
pub(crate) struct World {
    pub(crate) platform: Platform,
    pub(crate) now: Time,
    /// Everything that was written down, with the time and how many finished with it.
    log: Vec<(Time, Logged)>,
    pub(crate) finished: Vec<berth_api::Workload>,
    /// The same as they are kept, and not taken yet.
    pub(crate) kept: Vec<FinishedWorkload>,
    /// What is true, worked out in another way.
    pub(crate) ledger: ledger::Ledger,
    /// Tasks that were ordered and have not started.
    ordered: BTreeSet<TaskKey>,
    up: BTreeSet<TaskKey>,
    told_to_stop: BTreeSet<TaskKey>,
    forgotten: Vec<WorkloadId>,
}

impl World {
    /// Two nodes of eight GPUs and the four teams of the report.
    pub(crate) fn of_the_report() -> Self {
        let mut world = Self::with_nodes("2xdgx1");
        for (name, quota) in [("team-a", "4"), ("team-b", "2"), ("team-c", "2"), ("team-d", "8")] {
            world.project(name, quota);
        }
        world
    }

    pub(crate) fn with_nodes(nodes: &str) -> Self {
        let mut world = Self {
            platform: Platform::new(Policy::default()),
            now: Time(1_000_000),
            log: Vec::new(),
            finished: Vec::new(),
            kept: Vec::new(),
            ledger: ledger::Ledger::default(),
            ordered: BTreeSet::new(),
            up: BTreeSet::new(),
            told_to_stop: BTreeSet::new(),
            forgotten: Vec::new(),
        };
        let nodes = crate::declared_nodes(nodes).expect("is understood");
        world.act(|platform, now| platform.set_nodes(nodes, now)).expect("nodes can be set");
        world
    }

    pub(crate) fn project(&mut self, name: &str, quota: &str) {
        let settings = ProjectSettings {
            name: Some(name.into()),
            quota: Some(quota.parse().expect("an amount")),
            ..ProjectSettings::default()
        };
        self.act(|platform, now| platform.create_project(&settings, now)).expect("a project can be made");
    }

    /// Does something, plans, and takes what follows.
    pub(crate) fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Platform, Time) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let result = act(&mut self.platform, self.now);
        self.take_news();
        self.platform.plan(self.now);
        self.take_news();
        result
    }

    fn take_news(&mut self) {
        let News { logged, finished, orders } = self.platform.take_news();
        let over: Vec<WorkloadId> = finished.iter().map(|finished| finished.id).collect();
        self.ledger.note(self.now, &logged, &orders, &over);
        self.kept.extend(finished.iter().cloned());
        self.log.extend(logged.into_iter().map(|logged| (self.now, logged)));
        self.finished
            .extend(finished.into_iter().map(|finished| finished.document.read().expect("is a workload")));
        self.ordered.extend(orders.start);
        self.told_to_stop.extend(orders.stop.into_iter().map(|(key, _)| key));
        self.forgotten.extend(orders.forget);
    }

    pub(crate) fn see(&mut self, seen: Seen) {
        if let Seen::Progress { workload, report } = &seen
            && let Some(percent) = report.utilisation
        {
            self.ledger.reported(*workload, percent, self.now);
        }
        self.act(|platform, now| {
            platform.on_seen(seen, now);
            Ok(())
        })
        .expect("facts are not refused");
    }

    /// The server ends and starts again: what is not in the log is lost.
    pub(crate) fn restart(&mut self) {
        let mut again = Platform::new(Policy::default());
        for (at, logged) in &self.log {
            again.replay(&logged.happened, *at).expect("the log can be read again");
        }
        again.take_news();
        again.begin_window(self.now);
        self.platform = again;
        self.ledger.restarted();
        self.act(|_, _| Ok(())).expect("nothing was asked");
    }

    /// Lets every ordered task start and every task that was told to stop exit, until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(task) = self.told_to_stop.pop_first() {
                self.ordered.remove(&task);
                self.up.remove(&task);
                self.see(Seen::Exited { task, exit: TaskExit::Code(143) });
            } else if let Some(task) = self.ordered.pop_first() {
                self.up.insert(task);
                self.see(Seen::Started { task, pid: Some(1), ports: Vec::new() });
            } else {
                return;
            }
        }
    }

    fn exit(&mut self, name: &str, exit: TaskExit) {
        let task = self.task(name);
        self.up.remove(&task);
        self.see(Seen::Exited { task, exit });
        self.settle();
    }

    pub(crate) fn wait(&mut self, secs: u64) {
        self.now = self.now + Span::secs(secs);
        self.act(|_, _| Ok(())).expect("nothing was asked");
        self.settle();
    }

    pub(crate) fn submit(&mut self, request: WorkloadRequest) -> Result<WorkloadId, Problem> {
        self.now = self.now + Span(1);
        let id = self.act(|platform, now| platform.submit(request, None, "ada", now).map(|(id, _)| id));
        self.settle();
        id
    }

    fn run(&mut self, name: &str, gpus: &str) -> WorkloadId {
        self.submit(train(name, gpus)).expect("is accepted")
    }

    fn id(&self, name: &str) -> WorkloadId {
        let record = self.platform.records.values().find(|record| record.name == name);
        record.unwrap_or_else(|| panic!("{name} is not over")).id
    }

    fn task(&self, name: &str) -> TaskKey {
        let id = self.id(name);
        *self.up.iter().find(|task| task.workload == id).unwrap_or_else(|| panic!("{name} has a task"))
    }

    fn view(&self, name: &str) -> berth_api::Workload {
        self.platform.workload_view(self.id(name), true).expect("is not over")
    }

    fn status(&self, name: &str) -> berth_api::Status {
        match self.finished.iter().rfind(|workload| workload.name == name) {
            Some(finished) if self.platform.records.values().all(|record| record.name != name) => {
                finished.status
            }
            _ => self.view(name).status,
        }
    }

    /// GPUs and quota of every project, and who waits.
    fn standing(&self) -> String {
        let projects = self.platform.project_views(&berth_types::default_pool());
        let rows = projects.iter().map(|project| {
            let waiting = self.platform.records.values().filter(|record| {
                record.request.project == project.name
                    && self.status(&record.name) == berth_api::Status::Pending
            });
            let waiting: Vec<_> = waiting.map(|record| record.name.as_str()).collect();
            let quota = project.settings.quota.expect("has one");
            format!("{} {}/{} [{}]", project.name, project.allocated, quota, waiting.join(" "))
        });
        rows.collect::<Vec<_>>().join("\n")
    }

    /// Reads the log again from a place on, and asks whether that arrives here.
    fn assert_replay(&self) {
        let image = |platform: &Platform| {
            let mut image = serde_json::to_value(platform.image()).expect("is JSON");
            // Progress is written seldom, and what was not written is lost.
            let records = image["records"].as_array_mut().expect("are there");
            records.iter_mut().for_each(|record| record["progress"] = serde_json::Value::Null);
            image
        };
        let mut again = Platform::new(Policy::default());
        let half = self.log.len() / 2;
        for (position, (at, logged)) in self.log.iter().enumerate() {
            if position == half {
                let written = serde_json::to_vec(&again.image()).expect("is JSON");
                let read = serde_json::from_slice(&written).expect("is an image");
                again = Platform::from_image(Policy::default(), read).expect("is a state");
            }
            let written = serde_json::to_string(logged).expect("is JSON");
            let read: Logged = serde_json::from_str(&written).expect("is an event");
            assert_eq!(read, *logged);
            again.replay(&read.happened, *at).unwrap_or_else(|problem| panic!("{written}: {problem}"));
        }
        if let Some(difference) = difference("", &image(&again), &image(&self.platform)) {
            panic!("read again it is another: {difference}");
        }
        let findings = berth_check::check_state(&self.platform.engine.state());
        assert!(findings.is_empty(), "{findings:?}");
    }
}

pub(crate) fn train(name: &str, gpus: &str) -> WorkloadRequest {
    WorkloadRequest {
        name: Some(name.into()),
        project: "team-a".into(),
        image: "berth/quickstart".into(),
        gpus: Some(gpus.parse().expect("an amount")),
        ..WorkloadRequest::default()
    }
}

/// The first place at which two values differ.
fn difference(path: &str, one: &serde_json::Value, other: &serde_json::Value) -> Option<String> {
    use serde_json::Value::{Array, Object};
    match (one, other) {
        (Object(ones), Object(others)) if ones.keys().eq(others.keys()) => {
            ones.iter().find_map(|(key, value)| difference(&format!("{path}.{key}"), value, &others[key]))
        }
        (Array(ones), Array(others)) if ones.len() == others.len() => {
            let pairs = ones.iter().zip(others).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (one, other))| difference(&format!("{path}[{index}]"), one, other))
        }
        (one, other) => (one != other).then(|| format!("{path}: {one} and {other}")),
    }
}
