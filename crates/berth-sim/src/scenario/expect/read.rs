//! The `expect` line, as words.

use super::{Decision, Expectation, REASONS, Which};
use crate::{
    report::Standing,
    scenario::{parse::Parser, problem::did_you_mean, submit::topology_level, words},
};
use berth_types::WorkloadId;
use std::collections::BTreeSet;

const STANDINGS: [(&str, Standing); 9] = [
    ("queued", Standing::Queued),
    ("reserved", Standing::Reserved),
    ("held", Standing::Held),
    ("running", Standing::Running),
    ("finished", Standing::Finished),
    ("succeeded", Standing::Succeeded),
    ("failed", Standing::Failed),
    ("cancelled", Standing::Cancelled),
    ("timed-out", Standing::TimedOut),
];
const DECISIONS: [(&str, Decision); 4] = [
    ("evicted", Decision::Evicted),
    ("moved", Decision::Moved),
    ("shrunk", Decision::Shrunk),
    ("grown", Decision::Grown),
];
fn standing(word: &str) -> Option<Standing> {
    STANDINGS.iter().find(|(name, _)| *name == word).map(|(_, standing)| *standing)
}

impl Parser {
    pub(in crate::scenario) fn read_expectation(&mut self, words: &[String]) -> Option<Expectation> {
        let Some((subject, rest)) = words.split_first() else {
            self.problem("expected what must hold, as in `expect team-a 4/4 queued=none`");
            return None;
        };
        if let Some((_, decision)) = DECISIONS.iter().find(|(name, _)| name == subject) {
            let names = self.read_names(rest)?;
            return Some(Expectation::Met(*decision, names));
        }
        match subject.as_str() {
            "free" => {
                let Some((gpus, rest)) = rest.split_first() else {
                    self.problem("expected how many GPUs are free, as in `expect free 0`");
                    return None;
                };
                self.nothing_more(rest);
                self.gpus("free", gpus).map(Expectation::Free)
            }
            "share" => {
                if rest.len() < 2 {
                    self.problem("expected two or more workloads on one device, as in `expect share a b`");
                }
                let ids: Vec<_> = rest.iter().filter_map(|name| self.workload(name)).collect();
                Some(Expectation::Share(ids.into_iter().map(|(id, _)| id).collect()))
            }
            "queued" | "running" | "held" | "finished" => {
                let standing = standing(subject)?;
                let [which] = rest else {
                    self.problem(format!("expected names or a count, as in `expect {subject} 13`"));
                    return None;
                };
                let which = self.read_which(which)?;
                Some(Expectation::All(standing, which))
            }
            name if self.projects.contains_key(name) => self.expect_project(name, rest),
            name if self.workloads.contains_key(name) => self.expect_workload(name, rest),
            name => {
                let known = self.projects.keys().chain(self.workloads.keys()).map(String::as_str);
                let verbs = DECISIONS.iter().map(|(name, _)| *name);
                let all =
                    known.chain(verbs).chain(["free", "share", "running", "queued", "held", "finished"]);
                let hint = match did_you_mean(name, all) {
                    hint if hint.is_empty() => {
                        "; expected a project, a workload, free, share, running, queued, \
                                                held, finished, evicted, moved, shrunk or grown"
                            .into()
                    }
                    hint => hint,
                };
                self.problem(format!("nothing is called `{name}` so far{hint}"));
                None
            }
        }
    }

    fn expect_project(&mut self, name: &str, rest: &[String]) -> Option<Expectation> {
        let project = self.project_id(name)?;
        let (mut gpus, mut fair, mut standings) = (None, None, Vec::new());
        for word in rest {
            match word.split_once('=') {
                Some(("fair", value)) => fair = self.gpus("fair", value),
                Some((key, value)) if standing(key).is_some() => {
                    let which = self.read_which(value)?;
                    standings.extend(standing(key).map(|standing| (standing, which)));
                }
                None if word.starts_with(|first: char| first.is_ascii_digit()) => {
                    let (have, quota) = word.split_once('/').unwrap_or((word, ""));
                    let quota = match quota {
                        "" => None,
                        quota => Some(self.gpus("quota", quota)?),
                    };
                    gpus = Some((self.gpus("GPUs", have)?, quota));
                }
                _ => self.problem(format!(
                    "expected GPUs/quota, fair=GPUs, running=, queued= or held= with names, none or a count, found `{word}`"
                )),
            }
        }
        if gpus.is_none() && fair.is_none() && standings.is_empty() {
            self.problem(format!("expected what {name} has, as in `expect {name} 4/4 queued=none`"));
        }
        Some(Expectation::Project { project, gpus, fair, standings })
    }

    fn expect_workload(&mut self, name: &str, rest: &[String]) -> Option<Expectation> {
        let (workload, _) = self.workload(name)?;
        let (mut found, mut nodes, mut workers, mut within, mut because) = (None, None, None, None, None);
        let mut words = rest.iter().map(String::as_str);
        if rest.is_empty() {
            self.problem(format!("expected where {name} stands, as in `expect {name} running`"));
        }
        while let Some(word) = words.next() {
            if let Some(standing) = standing(word) {
                found = Some(standing);
                continue;
            }
            if let Some(count) = word.strip_prefix("workers=") {
                workers = self.noted(words::number("workers", count, 0, 100_000)).map(|count| count as usize);
                continue;
            }
            match (word, words.next()) {
                ("on", Some(names)) => {
                    let ids: Option<BTreeSet<_>> = names.split(',').map(|name| self.node_id(name)).collect();
                    nodes = Some(ids?);
                }
                ("within", Some(level)) => within = topology_level(level),
                ("because", Some(reason)) => {
                    because = REASONS.into_iter().find(|known| *known == reason);
                    if because.is_none() {
                        let hint = did_you_mean(reason, REASONS);
                        let known = REASONS.join(", ");
                        self.problem(format!("unknown reason `{reason}`{hint} expected one of {known}"));
                    }
                }
                _ => {
                    let known = STANDINGS.iter().map(|(name, _)| *name);
                    let hint = match did_you_mean(word, known.clone().chain(["on", "within", "because"])) {
                        hint if hint.is_empty() => {
                            let known: Vec<_> = known.collect();
                            format!(
                                "; expected {}, on NODE, within LEVEL, workers=N or because REASON",
                                known.join(", ")
                            )
                        }
                        hint => hint,
                    };
                    self.problem(format!("cannot read `{word}`{hint}"));
                    return None;
                }
            }
        }
        Some(Expectation::Workload { workload, standing: found, nodes, workers, within, because })
    }

    fn read_names(&mut self, words: &[String]) -> Option<BTreeSet<WorkloadId>> {
        match words {
            [] => {
                self.problem("expected names of workloads, or `none`");
                None
            }
            [none] if none == "none" => Some(BTreeSet::new()),
            names => {
                let names = names.iter().flat_map(|word| word.split(','));
                names.map(|name| self.workload(name).map(|(id, _)| id)).collect()
            }
        }
    }

    fn read_which(&mut self, text: &str) -> Option<Which> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let count = self.noted(words::number("count", text, 0, 10_000_000))?;
            return Some(Which::Count(count as usize));
        }
        let names = self.read_names(&[text.to_string()])?;
        Some(Which::These(names))
    }
}
