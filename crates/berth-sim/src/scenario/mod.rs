//! Scenarios: what happens to a cluster, as text a person can read. The language is described in `docs/scenarios.md`.

mod expect;
mod nodes;
mod owners;
mod parse;
mod problem;
mod run;
mod submit;
mod words;

pub use expect::Expectation;
pub use problem::{Problem, Problems};
pub use run::{Run, RunOptions, Section, Step, run};

use crate::Work;
use berth_types::{Department, Node, NodeId, Policy, Project, Span, WorkloadId, WorkloadSpec};

/// A scenario that was read and makes sense.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file, as the caller named it.
    pub file: String,
    /// Settings of the engine.
    pub policy: Policy,
    /// How long things take.
    pub timing: Timing,
    /// What happens, in order.
    pub lines: Vec<Line>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Problem>,
}

impl Scenario {
    /// Reads a scenario, or says everything that is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        parse::parse(file, text, Policy::default())
    }

    /// Reads a scenario whose `policy` lines change these settings.
    pub fn parse_with(file: &str, text: &str, policy: Policy) -> Result<Self, Problems> {
        parse::parse(file, text, policy)
    }
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From a decision to start until all tasks run.
    pub start: Span,
    /// From notice until a task is gone.
    pub stop: Span,
    /// From one line that does something to the next.
    pub pace: Span,
}

impl Default for Timing {
    fn default() -> Self {
        Self { start: Span::secs(1), stop: Span::secs(1), pace: Span::secs(1) }
    }
}

/// A statement, and where it is written.
#[derive(Debug, Clone)]
pub struct Line {
    /// From one.
    pub number: usize,
    /// What it says.
    pub statement: Statement,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So long.
    For(Span),
    /// Until every decision is carried out.
    Settled,
    /// Until nothing is due any more.
    Idle,
}

/// One line of a scenario. Names are resolved; ids count from one in the order of the file.
#[derive(Debug, Clone)]
pub enum Statement {
    /// Nodes come.
    Nodes(Vec<Node>),
    /// A department comes or changes.
    Department(Department),
    /// A project comes or changes.
    Project(Project),
    /// A workload is submitted.
    Submit(WorkloadId, Box<WorkloadSpec>, Work),
    /// Workloads are deleted, all at one instant.
    Delete(Vec<WorkloadId>),
    /// Time passes.
    Wait(Wait),
    /// A node takes no new work.
    Cordon(NodeId),
    /// A node takes new work again.
    Uncordon(NodeId),
    /// A node goes, with everything on it.
    Lose(NodeId),
    /// A lost node comes back.
    Restore(NodeId),
    /// The control loop is restarted.
    Restart,
    /// A workload saves its state.
    Checkpoint(WorkloadId),
    /// The first task of a workload fails.
    Fail(WorkloadId),
    /// A new section.
    Title(String),
    /// Why a workload waits is shown.
    Explain(WorkloadId),
    /// Something must hold. The text is what was written.
    Expect(Expectation, String),
}
