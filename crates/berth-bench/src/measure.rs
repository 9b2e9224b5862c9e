//! Timing of one decision.

use crate::{counting::Counts, scenarios::Prepared};
use anyhow::{Context, Result};
use berth_engine::Engine;
use berth_types::{Change, Plan, Time};
use std::time::{Duration, Instant};

/// Runs of which the best counts: the machine can only add to what the engine takes.
const RUNS: usize = 20;

/// After this much measured time the runs so far are enough; an engine far off its target is not worth waiting for.
const MEASURED_MAX: Duration = Duration::from_secs(10);

/// What one decision took.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Taking the changes in.
    pub(crate) apply: Duration,
    /// Deciding.
    pub(crate) plan: Duration,
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    /// What the engine answered, when a scenario accepts several answers.
    pub(crate) note: Option<String>,
}

impl Measured {
    pub(crate) fn total(&self) -> Duration {
        self.apply + self.plan
    }

    pub(crate) fn total_ms(&self) -> f64 {
        millis(self.total())
    }

    pub(crate) fn apply_ms(&self) -> f64 {
        millis(self.apply)
    }
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// The most memory this process ever had.
pub(crate) fn peak_memory_bytes() -> Result<u64> {
    let status =
        std::fs::read_to_string("/proc/self/status").context("this system has no /proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("/proc/self/status has no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// The best of many runs, each on its own copy of the prepared engine.
pub(crate) fn best_of(prepared: &Prepared) -> Result<Measured> {
    let mut best = once(prepared)?;
    let mut spent = best.total();
    for _ in 1..RUNS {
        if spent > MEASURED_MAX {
            break;
        }
        let (next, _, _) = time_on_copy(prepared);
        spent += next.total();
        if next.total() < best.total() {
            best = Measured { note: best.note, ..next };
        }
    }
    Ok(best)
}

/// One run, whose outcome is compared with what the scenario expects.
pub(crate) fn once(prepared: &Prepared) -> Result<Measured> {
    let (mut measured, engine, plan) = time_on_copy(prepared);
    measured.note = prepared
        .verify(&engine, &plan)
        .with_context(|| format!("wrong after {:.4} ms", measured.total_ms()))?;
    Ok(measured)
}

fn time_on_copy(prepared: &Prepared) -> (Measured, Engine, Plan) {
    let mut engine = prepared.engine.clone();
    let (measured, plan) = time(&mut engine, &prepared.changes, prepared.now);
    (measured, engine, plan)
}

/// Times the taking in of changes and the plan that answers them.
pub(crate) fn time(engine: &mut Engine, changes: &[Change], now: Time) -> (Measured, Plan) {
    let mut applied = Duration::ZERO;
    let before = Counts::now();
    let start = Instant::now();
    let plan = measured(engine, changes, now, || applied = start.elapsed());
    let total = start.elapsed();
    let counted = Counts::now().since(before);
    let measured = Measured {
        apply: applied,
        plan: total - applied,
        allocations: counted.allocations,
        allocated_bytes: counted.bytes,
        note: None,
    };
    (measured, plan)
}

/// All that is measured. Never inlined, so that a profiler can be told to look at nothing else.
#[inline(never)]
fn measured(engine: &mut Engine, changes: &[Change], now: Time, on_applied: impl FnOnce()) -> Plan {
    for change in changes {
        engine.apply(change).expect("the scenario's changes are ones the engine can take");
    }
    on_applied();
    engine.plan(now)
}
