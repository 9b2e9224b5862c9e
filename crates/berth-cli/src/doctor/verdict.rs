//! What was checked, and what came of it.

use crate::output::{
    Look, Show,
    table::{Cell, Paint, Table},
};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// It works, with less than it could.
    Warning,
    /// Something that is needed is missing.
    Failure,
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) found: String,
    /// What to do about it; of warnings and failures only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    pub(super) fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    pub(super) fn failure(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failure, ..Self::warning(name, found, fix) }
    }
}

/// All of them.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
}

impl Report {
    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    pub(super) fn fails(&self) -> bool {
        self.count(Verdict::Failure) > 0
    }
}

impl Show for Report {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["CHECK", "RESULT", "FOUND"]);
        for check in &self.checks {
            let (word, paint) = match check.verdict {
                Verdict::Ok => ("ok", Paint::Good),
                Verdict::Warning => ("warning", Paint::Busy),
                Verdict::Failure => ("failure", Paint::Bad),
            };
            table.row(vec![check.name.into(), Cell::painted(word, paint), check.found.clone().into()]);
            if let Some(fix) = &check.fix {
                table.row(vec!["".into(), "".into(), format!("fix: {fix}").into()]);
            }
        }
        let counts = [(Verdict::Failure, "failed"), (Verdict::Warning, "warned")];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(verdict, _)| self.count(*verdict) > 0)
            .map(|(verdict, word)| format!("{} {word}", self.count(verdict)))
            .collect();
        let sum = if counts.is_empty() { "all passed".to_owned() } else { counts.join(", ") };
        format!("{}\n{} checks: {sum}\n", look.table(&table), self.checks.len())
    }

    fn names(&self) -> Vec<String> {
        let failed = self.checks.iter().filter(|check| check.verdict != Verdict::Ok);
        failed.map(|check| check.name.to_owned()).collect()
    }
}
