//! Words to statements. Every mistake is noted and reading goes on, so that one run shows them all.

use super::{
    Line, Scenario, Statement, Timing, Wait,
    problem::{Problem, Problems, did_you_mean},
    words::{self, Settings},
};
use berth_types::{Department, Gpus, Node, NodeId, Policy, Project, ProjectId, WorkloadId};
use std::collections::BTreeMap;

/// Words that begin a line.
const KEYWORDS: [&str; 18] = [
    "node",
    "nodes",
    "policy",
    "timing",
    "department",
    "project",
    "set",
    "submit",
    "delete",
    "wait",
    "cordon",
    "uncordon",
    "lose",
    "restore",
    "restart",
    "checkpoint",
    "fail",
    "title",
];
const ASKING: [&str; 2] = ["explain", "expect"];
/// Words with a meaning of their own after `expect`; nothing else may have such a name.
pub(super) const RESERVED: &[&str] = &[
    "free", "running", "queued", "held", "finished", "evicted", "moved", "shrunk", "grown", "share", "none",
];
const POLICY_KEYS: [&str; 7] = [
    "reserve-after",
    "reservations-per-pool",
    "lost-cap",
    "restart-cost",
    "patience",
    "moves",
    "search-steps",
];
/// A scenario is a text somebody reads; larger histories are traces.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// Holds what is known so far while a scenario is read.
pub(super) struct Parser {
    line: usize,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    policy: Policy,
    timing: Timing,
    begun: bool,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) departments: BTreeMap<String, Department>,
    pub(super) projects: BTreeMap<String, Project>,
    pub(super) workloads: BTreeMap<String, (WorkloadId, ProjectId)>,
}

pub(super) fn parse(file: &str, text: &str, policy: Policy) -> Result<Scenario, Problems> {
    let mut parser = Parser {
        line: 0,
        problems: Vec::new(),
        warnings: Vec::new(),
        policy,
        timing: Timing::default(),
        begun: false,
        nodes: BTreeMap::new(),
        departments: BTreeMap::new(),
        projects: BTreeMap::new(),
        workloads: BTreeMap::new(),
    };
    let mut lines = Vec::new();
    if text.len() > TEXT_BYTES_MAX {
        parser.problem("the file is too large; expected at most 4 MiB");
    } else {
        for (position, line) in text.lines().enumerate() {
            parser.line = position + 1;
            let number = parser.line;
            let statement = parser.read_line(line);
            lines.extend(statement.map(|statement| Line { number, statement }));
        }
        parser.line = 0;
        parser.warn_of_promises();
    }
    if parser.problems.is_empty() {
        Ok(Scenario {
            file: file.into(),
            policy: parser.policy,
            timing: parser.timing,
            lines,
            warnings: parser.warnings,
        })
    } else {
        Err(Problems { file: file.into(), problems: parser.problems })
    }
}

impl Parser {
    fn read_line(&mut self, line: &str) -> Option<Statement> {
        let words = self.noted(words::split(line))?;
        let (keyword, rest) = words.split_first()?;
        let statement = match keyword.as_str() {
            "node" => Statement::Nodes(self.read_node(rest)),
            "nodes" => Statement::Nodes(self.read_nodes(rest)),
            "policy" => return self.read_policy(rest),
            "timing" => return self.read_timing(rest),
            "department" => Statement::Department(self.read_department(rest, false)?),
            "project" => Statement::Project(self.read_project(rest, false)?),
            "set" => return self.read_set(rest),
            "submit" => {
                self.begun = true;
                return self.read_submit(rest);
            }
            "delete" => return self.read_delete(rest),
            "wait" => Statement::Wait(self.read_wait(rest)?),
            "cordon" => Statement::Cordon(self.read_one_node(keyword, rest)?),
            "uncordon" => Statement::Uncordon(self.read_one_node(keyword, rest)?),
            "lose" => Statement::Lose(self.read_one_node(keyword, rest)?),
            "restore" => Statement::Restore(self.read_one_node(keyword, rest)?),
            "restart" => {
                self.nothing_more(rest);
                Statement::Restart
            }
            "checkpoint" => Statement::Checkpoint(self.read_one_workload(keyword, rest)?),
            "fail" => Statement::Fail(self.read_one_workload(keyword, rest)?),
            "title" => Statement::Title(self.read_title(rest)?),
            "explain" => Statement::Explain(self.read_one_workload(keyword, rest)?),
            "expect" => Statement::Expect(self.read_expectation(rest)?, rest.join(" ")),
            _ => {
                let hint = match did_you_mean(keyword, KEYWORDS.into_iter().chain(ASKING)) {
                    hint if hint.is_empty() => {
                        let known: Vec<_> = KEYWORDS.into_iter().chain(ASKING).collect();
                        format!("; expected one of {}", known.join(", "))
                    }
                    hint => hint,
                };
                self.problem(format!("unknown word `{keyword}`{hint}"));
                return None;
            }
        };
        Some(statement)
    }

    fn read_policy(&mut self, rest: &[String]) -> Option<Statement> {
        self.before_the_first_submit("policy");
        let mut problems = Vec::new();
        let mut settings = Settings::read(rest, &mut problems);
        let policy = &mut self.policy;
        for (key, span) in [
            ("reserve-after", &mut policy.reserve_after),
            ("lost-cap", &mut policy.lost_cap),
            ("restart-cost", &mut policy.restart_cost),
            ("patience", &mut policy.patience),
        ] {
            if let Some(value) = settings.take(key, &mut problems, words::span) {
                *span = value;
            }
        }
        if let Some(value) = settings
            .take("reservations-per-pool", &mut problems, |what, text| words::number(what, text, 0, 1000))
        {
            policy.reservations_per_pool = value as usize;
        }
        if let Some(value) = settings.take("search-steps", &mut problems, |what, text| {
            words::number(what, text, 0, i64::from(u32::MAX))
        }) {
            policy.search_steps = value as u32;
        }
        if let Some(value) = settings.take("moves", &mut problems, words::switch) {
            policy.moves = value;
        }
        settings.finish(&POLICY_KEYS, &mut problems);
        self.problems_found(problems);
        None
    }

    fn read_timing(&mut self, rest: &[String]) -> Option<Statement> {
        self.before_the_first_submit("timing");
        let mut problems = Vec::new();
        let mut settings = Settings::read(rest, &mut problems);
        if let Some(span) = settings.take("pace", &mut problems, words::span) {
            self.timing.pace = span;
        }
        for (key, span) in [("start", &mut self.timing.start), ("stop", &mut self.timing.stop)] {
            if let Some(value) = settings.take(key, &mut problems, words::positive_span) {
                *span = value;
            }
        }
        settings.finish(&["pace", "start", "stop"], &mut problems);
        self.problems_found(problems);
        None
    }

    fn before_the_first_submit(&mut self, what: &str) {
        if self.begun {
            self.problem(format!(
                "`{what}` holds for the whole scenario; expected it before the first submit"
            ));
        }
    }

    fn read_set(&mut self, rest: &[String]) -> Option<Statement> {
        match rest.split_first() {
            Some((what, rest)) if what == "project" => self.read_project(rest, true).map(Statement::Project),
            Some((what, rest)) if what == "department" => {
                self.read_department(rest, true).map(Statement::Department)
            }
            _ => {
                self.problem("expected `set project NAME key=value` or `set department NAME key=value`");
                None
            }
        }
    }

    fn read_delete(&mut self, rest: &[String]) -> Option<Statement> {
        let mut project = None;
        let mut names = Vec::new();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            if word == "-p" || word == "--project" {
                match words.next() {
                    Some(name) => project = Some(self.project_id(name)?),
                    None => self.problem("`-p` has no value; expected the name of a project"),
                }
            } else {
                names.push(word);
            }
        }
        if names.is_empty() {
            self.problem("expected the names of workloads, as in `delete -p team-d d-1 d-2`");
        }
        let mut ids = Vec::new();
        for name in names {
            let Some((id, owner)) = self.workload(name) else {
                continue;
            };
            if project.is_some_and(|project| project != owner) {
                self.problem(format!("workload `{name}` belongs to another project than the one after `-p`"));
            }
            if ids.contains(&id) {
                self.problem(format!("workload `{name}` is named twice"));
            }
            ids.push(id);
        }
        Some(Statement::Delete(ids))
    }

    fn read_wait(&mut self, rest: &[String]) -> Option<Wait> {
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        match words[..] {
            ["until", "idle"] => Some(Wait::Idle),
            ["until", "settled"] => Some(Wait::Settled),
            [span] => self.noted(words::span("wait", span)).map(Wait::For),
            _ => {
                self.problem("expected `wait 10s`, `wait until settled` or `wait until idle`");
                None
            }
        }
    }

    fn read_title(&mut self, rest: &[String]) -> Option<String> {
        if rest.is_empty() {
            self.problem("expected a text, as in `title \"Quota is given back\"`");
            return None;
        }
        Some(rest.join(" "))
    }

    fn read_one_node(&mut self, keyword: &str, rest: &[String]) -> Option<NodeId> {
        let Some((name, rest)) = rest.split_first() else {
            self.problem(format!("expected the name of a node, as in `{keyword} node1`"));
            return None;
        };
        self.nothing_more(rest);
        self.node_id(name)
    }

    fn read_one_workload(&mut self, keyword: &str, rest: &[String]) -> Option<WorkloadId> {
        let Some((name, rest)) = rest.split_first() else {
            self.problem(format!("expected the name of a workload, as in `{keyword} job-1`"));
            return None;
        };
        self.nothing_more(rest);
        self.workload(name).map(|(id, _)| id)
    }

    pub(super) fn nothing_more(&mut self, rest: &[String]) {
        if let Some(word) = rest.first() {
            self.problem(format!("expected the end of the line, found `{word}`"));
        }
    }

    pub(super) fn node_id(&mut self, name: &str) -> Option<NodeId> {
        let found = self.nodes.get(name).map(|node| node.id);
        if found.is_none() {
            let hint = did_you_mean(name, self.nodes.keys().map(String::as_str));
            self.problem(format!("there is no node `{name}`{hint}"));
        }
        found
    }

    pub(super) fn project_id(&mut self, name: &str) -> Option<ProjectId> {
        let found = self.projects.get(name).map(|project| project.id);
        if found.is_none() {
            self.unknown_project(name);
        }
        found
    }

    pub(super) fn workload(&mut self, name: &str) -> Option<(WorkloadId, ProjectId)> {
        let found = self.workloads.get(name).copied();
        if found.is_none() {
            let hint = did_you_mean(name, self.workloads.keys().map(String::as_str));
            self.problem(format!("there is no workload `{name}` so far{hint}"));
        }
        found
    }

    pub(super) fn unknown_project(&mut self, name: &str) {
        let hint = match did_you_mean(name, self.projects.keys().map(String::as_str)) {
            hint if hint.is_empty() => "; expected one that a `project` line above declares".into(),
            hint => hint,
        };
        self.problem(format!("there is no project `{name}`{hint}"));
    }

    pub(super) fn unknown_department(&mut self, name: &str) {
        let hint = match did_you_mean(name, self.departments.keys().map(String::as_str)) {
            hint if hint.is_empty() => "; expected one that a `department` line above declares".into(),
            hint => hint,
        };
        self.problem(format!("there is no department `{name}`{hint}"));
    }

    pub(super) fn problem(&mut self, text: impl Into<String>) {
        let (line, text) = (self.line, text.into());
        self.problems.push(Problem { line, text });
    }

    pub(super) fn problems_found(&mut self, texts: Vec<String>) {
        for text in texts {
            self.problem(text);
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        let line = self.line;
        self.warnings.push(Problem { line, text });
    }

    /// The value, or nothing and a noted problem.
    pub(super) fn noted<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result.map_err(|text| self.problem(text)).ok()
    }

    /// A sum of quotas cannot pass what an amount can hold.
    pub(super) fn gpus(&mut self, what: &str, text: &str) -> Option<Gpus> {
        self.noted(words::amount(what, text))
    }
}
