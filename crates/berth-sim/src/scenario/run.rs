//! Statements to happenings: a scenario is run in a world of its own.

use super::{Problem, Scenario, Statement, Wait};
use crate::{
    Entry, Faults, Found, Options, World, explain::explain, narrate, report::Snapshot, report::clock,
};
use berth_types::{Change, ChangeError, NodeCondition, Phase, Span, TaskOutcome, Time, Workload, WorkloadId};
use serde::Serialize;

/// Settings of a run that are not part of the scenario.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Where randomness starts.
    pub seed: u64,
    /// Whether every state and plan is checked against the rules.
    pub verify: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether every waiting workload is explained at the end of each section.
    pub explain: bool,
}

/// Something to show: what happened, an explanation, or an expectation and whether it held.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Something happened.
    Happened {
        /// When.
        at: Time,
        /// The line to show.
        text: String,
    },
    /// Why a workload waits.
    Explained {
        /// The workload.
        workload: String,
        /// A few lines.
        text: String,
    },
    /// Something was expected.
    Expected {
        /// Where it is written.
        line: usize,
        /// What was written.
        text: String,
        /// What was found instead, if it did not hold.
        found: Option<String>,
    },
}

/// What happened between two titles, and the state at the end.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// The title; empty before the first.
    pub title: String,
    /// In order.
    pub steps: Vec<Step>,
    /// The state at the end.
    pub state: Snapshot,
}

/// A scenario that was run.
#[derive(Debug)]
pub struct Run {
    /// In order.
    pub sections: Vec<Section>,
    /// Expectations that did not hold and lines that could not be carried out.
    pub unmet: Vec<Problem>,
    /// Expectations that held.
    pub met: usize,
    /// The world at the end.
    pub world: World,
}

impl Run {
    /// Whether everything held.
    pub fn holds(&self) -> bool {
        self.unmet.is_empty() && self.world.findings().is_empty()
    }

    /// Broken rules that were seen.
    pub fn findings(&self) -> &[Found] {
        self.world.findings()
    }
}

/// Waiting ends here: ten years.
const LIMIT: Span = Span::secs(3660 * 86_400);

struct Runner {
    world: World,
    pace: Span,
    options: RunOptions,
    shown: usize,
    section_start: usize,
    title: String,
    steps: Vec<Step>,
    sections: Vec<Section>,
    unmet: Vec<Problem>,
    met: usize,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, options: &RunOptions) -> Run {
    let world = World::new(Options {
        policy: scenario.policy.clone(),
        seed: options.seed,
        start_delay: scenario.timing.start,
        stop_delay: scenario.timing.stop,
        faults: options.faults.clone(),
        verify: options.verify,
    });
    let mut runner = Runner {
        world,
        pace: scenario.timing.pace,
        options: options.clone(),
        shown: 0,
        section_start: 0,
        title: String::new(),
        steps: Vec::new(),
        sections: Vec::new(),
        unmet: Vec::new(),
        met: 0,
    };
    for line in &scenario.lines {
        if let Err(text) = runner.on_statement(line.number, &line.statement) {
            let number = line.number;
            runner.unmet.push(Problem { line: number, text });
        }
    }
    runner.end_section();
    Run { sections: runner.sections, unmet: runner.unmet, met: runner.met, world: runner.world }
}

impl Runner {
    fn on_statement(&mut self, line: usize, statement: &Statement) -> Result<(), String> {
        let now = self.world.now();
        match statement {
            Statement::Nodes(nodes) => {
                for node in nodes {
                    said(self.world.apply(Change::NodeSet(node.clone())))?;
                }
                return Ok(());
            }
            Statement::Department(department) => {
                said(self.world.apply(Change::DepartmentSet(department.clone())))?;
            }
            Statement::Project(project) => said(self.world.apply(Change::ProjectSet(project.clone())))?,
            Statement::Submit(id, spec, work) => {
                let workload = Workload::submitted(*id, (**spec).clone(), now);
                said(self.world.submit(workload, *work))?;
            }
            Statement::Delete(ids) => {
                for id in ids {
                    said(self.world.take(Change::Cancelled { workload: *id, at: now }))
                        .inspect_err(|_| self.world.settle())?;
                }
                self.world.settle();
            }
            Statement::Wait(wait) => return self.on_wait(*wait),
            Statement::Cordon(node) => self.world.set_condition(*node, NodeCondition::Cordoned),
            Statement::Uncordon(node) => self.world.set_condition(*node, NodeCondition::Ready),
            Statement::Lose(node) => self.world.lose_node(*node),
            Statement::Restore(node) => self.world.restore_node(*node),
            Statement::Restart => self.world.restart(),
            Statement::Checkpoint(id) => said(self.world.checkpoint(*id))?,
            Statement::Fail(id) => self.on_fail(*id)?,
            Statement::Title(title) => {
                self.end_section();
                self.title.clone_from(title);
                return Ok(());
            }
            Statement::Explain(id) => {
                self.show_log();
                self.on_explain(*id);
                return Ok(());
            }
            Statement::Expect(expectation, text) => {
                self.show_log();
                let found = expectation.check(&self.world, self.section_start).err();
                let text = text.clone();
                self.steps.push(Step::Expected { line, text: text.clone(), found: found.clone() });
                return match found {
                    None => {
                        self.met += 1;
                        Ok(())
                    }
                    Some(found) => {
                        Err(format!("at {}: expected {text}, found {found}", clock(self.world.now())))
                    }
                };
            }
        }
        self.world.settle();
        // Declarations before anything runs take no time, so that a scenario starts at zero.
        if self.world.log().iter().any(|entry| matches!(entry.change, Change::Submitted(_))) {
            self.world.advance(now + self.pace);
        }
        Ok(())
    }

    fn on_wait(&mut self, wait: Wait) -> Result<(), String> {
        let now = self.world.now();
        let reached = match wait {
            Wait::For(span) => {
                self.world.advance(now + span);
                true
            }
            Wait::Settled => self.world.run_until_settled(now + LIMIT),
            Wait::Idle => self.world.run_until_idle(now + LIMIT),
        };
        if reached {
            Ok(())
        } else {
            let at = clock(self.world.now());
            Err(format!("waiting did not come to an end; it was given up at {at}"))
        }
    }

    fn on_fail(&mut self, workload: WorkloadId) -> Result<(), String> {
        let at = self.world.now();
        let first = match self.world.state().workloads.get(&workload).map(|found| &found.phase) {
            Some(Phase::Running { tasks, .. }) => tasks.first().map(|task| task.place.rank),
            _ => None,
        };
        let rank = first.ok_or("it does not run, so it cannot fail")?;
        let outcome = TaskOutcome::Failed;
        said(self.world.apply(Change::Ended { workload, rank, outcome, at }))
    }

    fn on_explain(&mut self, id: WorkloadId) {
        let name = crate::report::workload_name(self.world.state(), id);
        let text = match self.world.explain(id) {
            Some(explanation) => explain(self.world.state(), &explanation),
            None => format!("{name} does not wait"),
        };
        self.steps.push(Step::Explained { workload: name, text });
    }

    fn show_log(&mut self) {
        let state = self.world.state();
        for entry in &self.world.log()[self.shown..] {
            let Entry { at, .. } = *entry;
            if let Some(text) = narrate::narrate(state, entry) {
                self.steps.push(Step::Happened { at, text });
            }
        }
        self.shown = self.world.log().len();
    }

    /// A section without steps and before the first title is not worth showing.
    fn end_section(&mut self) {
        self.show_log();
        if self.options.explain {
            let waiting: Vec<WorkloadId> = self
                .world
                .state()
                .workloads
                .values()
                .filter(|workload| narrate::waits(workload))
                .map(|workload| workload.id)
                .collect();
            waiting.into_iter().for_each(|id| self.on_explain(id));
        }
        self.section_start = self.world.log().len();
        let steps = std::mem::take(&mut self.steps);
        if steps.is_empty() && self.title.is_empty() {
            return;
        }
        self.sections.push(Section {
            title: std::mem::take(&mut self.title),
            steps,
            state: Snapshot::of(&self.world),
        });
    }
}

fn said(result: Result<(), ChangeError>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}
