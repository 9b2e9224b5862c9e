//! Why a workload waits, in words and numbers.

use super::Page;
use crate::output::{
    Look, Show,
    table::{Table, one_line},
};
use berth_api::{
    AccountNumbers, Eviction, GpuAmount, QueueNumbers, Requested, SuggestedChange, UsableNodes, Why,
};

impl Show for Why {
    fn text(&self, look: &Look) -> String {
        let mut text = format!("{}: {}\n", one_line(&self.workload), one_line(&self.text));
        let mut page = Page::default();
        if self.waits {
            page.line("Rule", &self.rule);
        }
        match &self.requested {
            Some(requested) => page.line("Requested", asked(requested)),
            // A server of an earlier release sends the numbers of the rule only.
            None => {
                for (name, value) in &self.numbers {
                    page.line(&name.replace('_', " "), value);
                }
            }
        }
        if let Some(usable) = &self.usable {
            page.line("Free", free(usable));
        }
        for account in &self.accounts {
            let name = format!("{} {}", capitalised(&account.kind), account.name);
            page.line(&name, amounts(account));
        }
        for blocked in &self.blocked_by {
            page.line("Blocked by", format!("{}: {}", blocked.cause, blocked.text));
        }
        if let Some(queue) = &self.queue {
            page.line("Queue", position(queue));
        }
        if let Some(last) = &self.preempted {
            page.line("Preempted", preemption(last, look));
        }
        if let Some(until) = self.until {
            page.line("Earliest change", look.clock.local(until));
        }
        for (at, change) in self.changes.iter().enumerate() {
            page.line(if at == 0 { "You can change" } else { "or" }, &change.text);
        }
        if self.waits && self.requested.is_some() && self.changes.is_empty() && can_change(&self.rule) {
            page.line("You can change", "nothing that would start it now was found");
        }
        if let Some(remedy) = &self.remedy {
            page.line("Others could", &remedy.text);
        }
        let mut table = Table::new(&["WORKLOAD", "GPUS"]);
        for held in &self.held_by {
            table.row(vec![held.workload.clone().into(), held.gpus.to_string().into()]);
        }
        for held in &self.held_by_projects {
            let workloads = match held.workloads {
                1 => format!("a workload of {}", held.project),
                count => format!("{count} workloads of {}", held.project),
            };
            table.row(vec![workloads.into(), held.gpus.to_string().into()]);
        }
        page.table("Held by", &table, look);
        let page = page.render();
        if !page.is_empty() {
            text.push('\n');
            text.push_str(page.trim_start_matches('\n'));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.workload.clone()]
    }
}

/// Lines about changes with which a request would start, for the page of a preview.
pub(super) fn change_lines(changes: &[SuggestedChange]) -> String {
    changes.iter().map(|change| format!("{}.\n", one_line(&change.text))).collect()
}

/// Whether another request could help.
fn can_change(rule: &str) -> bool {
    !matches!(rule, "leaving" | "ready")
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn gpus(amount: GpuAmount) -> String {
    let text = amount.to_string();
    if text == "1" { "1 GPU".into() } else { format!("{text} GPUs") }
}

fn asked(requested: &Requested) -> String {
    let mut parts = vec![gpus(requested.gpus)];
    if !requested.gpu_models.is_empty() {
        parts.push(format!("model {}", requested.gpu_models.join(" or ")));
    }
    if requested.workers > 1 {
        parts.push(format!("{} workers", requested.workers));
    }
    let each = if requested.workers > 1 { " each" } else { "" };
    parts.extend(requested.cpu.map(|cpu| format!("{cpu} CPU cores{each}")));
    parts.extend(requested.memory.map(|memory| format!("{memory} of memory{each}")));
    parts.join(", ")
}

fn free(usable: &UsableNodes) -> String {
    let nodes = if usable.nodes == 1 { "1 node".into() } else { format!("{} nodes", usable.nodes) };
    format!("{} of {} on {nodes} it may use", usable.free, gpus(usable.gpus))
}

fn amounts(account: &AccountNumbers) -> String {
    let mut parts = match account.quota {
        Some(quota) => vec![format!("{} of quota {quota} used", account.used)],
        None => vec![format!("{} used", account.used)],
    };
    parts.push(format!("fair share {}", account.fair_share));
    parts.extend(account.limit.map(|limit| format!("limit {limit}")));
    parts.join(", ")
}

fn position(queue: &QueueNumbers) -> String {
    let mut text = format!("{} of {} in its project", queue.position, queue.waiting);
    if !queue.ahead.is_empty() {
        text.push_str(&format!(", after {}", names_of(&queue.ahead, queue.position - 1)));
    }
    if queue.heads_ahead_count > 0 {
        let named: Vec<String> = queue.heads_ahead.iter().chain(&queue.projects_ahead).cloned().collect();
        let heads = if queue.heads_ahead_count == 1 { "project comes" } else { "projects come" };
        let named = names_of(&named, queue.heads_ahead_count);
        text.push_str(&format!("; {} other {heads} first: {named}", queue.heads_ahead_count));
    }
    text
}

/// Names, and how many of a count are not named.
fn names_of(named: &[String], count: u64) -> String {
    let mut text = named.join(", ");
    if let Some(more @ 1..) = count.checked_sub(named.len() as u64) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn preemption(last: &Eviction, look: &Look) -> String {
    let winner = last.winner.as_ref().map(|winner| format!(" by {winner}")).unwrap_or_default();
    format!("{} ago{winner} ({})", look.clock.age(last.at), last.rule)
}
