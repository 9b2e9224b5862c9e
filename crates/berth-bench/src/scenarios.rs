//! What is measured, and how each scenario must end.

mod fill;
pub(crate) mod huge;
mod mix;
mod reclaim;
mod unschedulable;

use crate::measure;
use anyhow::{Context, Result, ensure};
use berth_engine::Engine;
use berth_types::{Action, Change, Plan, Time, Verdict, WaitReason, WorkloadId};

/// One measured situation, at every size of its curve.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Nodes, rising.
    pub(crate) sizes: &'static [usize],
    /// The size the target speaks of.
    pub(crate) headline: usize,
    pub(crate) target_ms: f64,
    pub(crate) prepare: fn(usize) -> Prepared,
}

/// Every scenario but the large cluster, which is measured in another way.
pub(crate) const ALL: &[Scenario] = &[
    reclaim::LARGE,
    unschedulable::COUNT,
    unschedulable::SHAPE,
    unschedulable::BUDGET,
    fill::FILL,
    reclaim::MANY_SINGLE,
];

/// An engine before the measured changes, and what must follow from them.
pub(crate) struct Prepared {
    pub(crate) engine: Engine,
    pub(crate) changes: Vec<Change>,
    pub(crate) now: Time,
    pub(crate) expected: Expected,
}

/// The decisions a scenario must end with; any other decision is wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Expected {
    pub(crate) starts: usize,
    pub(crate) holds: usize,
    pub(crate) evictions: usize,
    pub(crate) waits: Option<Waits>,
}

/// A workload that must keep waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) workload: WorkloadId,
    /// Whether a verdict on it is one that may be given.
    pub(crate) is_accepted: fn(&Verdict) -> bool,
}

impl Prepared {
    /// Compares the plan with what is expected. Returns the verdict on the workload that must wait, as text.
    pub(crate) fn verify(&self, engine: &Engine, plan: &Plan) -> Result<Option<String>> {
        let counts = Counts::of(plan);
        let expected = Counts {
            starts: self.expected.starts,
            holds: self.expected.holds,
            evictions: self.expected.evictions,
            others: 0,
        };
        ensure!(counts == expected, "expected {expected:?}, the plan has {counts:?}");
        let Some(Waits { workload, is_accepted }) = self.expected.waits else {
            return Ok(None);
        };
        let explanation =
            engine.explain(workload, self.now).context("a waiting workload has no explanation")?;
        match &explanation.reason {
            WaitReason::NoCapacity { verdict, .. } if is_accepted(verdict) => {
                Ok(Some(format!("{verdict:?}")))
            }
            other => anyhow::bail!("workload {workload} waits for another reason than it should: {other:?}"),
        }
    }
}

/// The decisions of a plan, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) starts: usize,
    pub(crate) holds: usize,
    pub(crate) evictions: usize,
    pub(crate) others: usize,
}

impl Counts {
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut counts = Self::default();
        for action in &plan.actions {
            match action {
                Action::Start { .. } => counts.starts += 1,
                Action::Hold { .. } => counts.holds += 1,
                Action::Evict { .. } => counts.evictions += 1,
                _ => counts.others += 1,
            }
        }
        counts
    }
}

pub(crate) fn find(name: &str) -> Result<&'static Scenario> {
    ALL.iter()
        .find(|scenario| scenario.name == name)
        .with_context(|| format!("there is no scenario `{name}`; `berth-bench list` names them"))
}

/// One run of one size, for a profiler.
pub(crate) fn run_once(name: &str, size: usize) -> Result<()> {
    if name == huge::NAME {
        return huge::run_once(size);
    }
    let prepared = (find(name)?.prepare)(size);
    let measured = measure::once(&prepared)?;
    println!("{name}/{size}: {:.3} ms", measured.total_ms());
    Ok(())
}
