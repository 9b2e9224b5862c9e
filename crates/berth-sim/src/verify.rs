//! The rules, checked at every step. The rules themselves live in `berth-check`; here is when they are asked about.

use berth_check::Finding;
use berth_engine::Engine;
use berth_types::{Plan, Policy, State, Time};
use serde::Serialize;

/// A broken rule, and when it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// When.
    pub at: Time,
    /// Which rule.
    pub rule: String,
    /// What was seen.
    pub text: String,
}

/// A broken rule and what was seen, before it is known when.
pub(crate) type Broken = (String, String);

/// Plans made again at the same instant; all must be empty.
const PLANS_AGAIN: usize = 5;

/// Checks a plan against the state it was made for.
pub(crate) fn on_plan(policy: &Policy, before: &State, plan: &Plan) -> Vec<Broken> {
    broken(berth_check::check_plan(policy, before, plan))
}

/// Checks the state a plan has led to, and that the engine has nothing to add.
pub(crate) fn on_rest(policy: &Policy, engine: &Engine, state: &State, now: Time) -> Vec<Broken> {
    let mut findings = berth_check::check_state(state);
    findings.extend(berth_check::check_settled(policy, state, now));
    let mut again = engine.clone();
    let plans: Vec<Plan> = (0..PLANS_AGAIN).map(|_| again.plan(now)).collect();
    findings.extend(berth_check::check_empty(&plans));
    let mut found = broken(findings);
    if engine.state() != *state {
        found.push(one("engine-agrees", "the engine's state is not the world's"));
    }
    found
}

/// Checks that nothing is decided while only time passes and no wake was named.
pub(crate) fn on_quiet(engine: &Engine, from: Time, until: Time) -> Vec<Broken> {
    let middle = Time(from.0 + (until.0 - from.0) / 2);
    let plan = engine.clone().plan(middle);
    if plan.actions.is_empty() {
        Vec::new()
    } else {
        vec![one("wake", format!("at {middle:?}, unannounced: {:?}", plan.actions))]
    }
}

/// A rule of the simulator itself.
pub(crate) fn one(rule: &str, text: impl Into<String>) -> Broken {
    (rule.into(), text.into())
}

fn broken(findings: Vec<Finding>) -> Vec<Broken> {
    findings.into_iter().map(|finding| (format!("{:?}", finding.rule), finding.text)).collect()
}
