//! Projects and departments.

use super::Page;
use crate::output::{
    Look, Show, Spelling,
    table::{Cell, Paint, Table},
    time,
};
use berth_api::{Department, DepartmentList, GpuAmount, Project, ProjectList, ProjectSettings, Warned};
use berth_types::Span;
use serde::Serialize;
use std::collections::BTreeMap;

impl<T: Show + Serialize> Show for Warned<T> {
    fn text(&self, look: &Look) -> String {
        self.item.text(look)
    }

    fn names(&self) -> Vec<String> {
        self.item.names()
    }
}

impl Show for ProjectList {
    fn text(&self, look: &Look) -> String {
        if look.spelling == Spelling::Runai {
            return super::runai::project_table(&self.items, look);
        }
        let mut columns =
            vec!["NAME", "DEPARTMENT", "QUOTA", "ALLOCATED", "FAIR SHARE", "RUNNING", "WAITING"];
        if look.wide {
            columns.extend(["LIMIT", "WEIGHT", "RANK", "NON-PREEMPTIBLE", "GPUS WAITED FOR"]);
        }
        let mut table = Table::new(&columns);
        for project in &self.items {
            let settings = &project.settings;
            let quota = settings.quota.unwrap_or_default();
            let mut row = vec![
                marked(&project.name, look).into(),
                settings.department.clone().unwrap_or_default().into(),
                quota.to_string().into(),
                allocated(project.allocated, quota),
                project.fair_share.to_string().into(),
                project.running_count.to_string().into(),
                project.waiting_count.to_string().into(),
            ];
            if look.wide {
                row.extend([
                    amount(settings.limit).into(),
                    amount(settings.weight).into(),
                    settings.rank.map(|rank| rank.to_string()).unwrap_or_default().into(),
                    project.allocated_non_preemptible.to_string().into(),
                    project.waiting.to_string().into(),
                ]);
            }
            table.row(row);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|project| project.name.clone()).collect()
    }
}

impl Show for Project {
    fn text(&self, look: &Look) -> String {
        let mut page = Page::default();
        page.line("Name", marked(&self.name, look));
        describe_settings(&self.settings, &mut page);
        page.line("Allocated", format!("{} GPUs", self.allocated));
        page.line("Non-preemptible", format!("{} GPUs", self.allocated_non_preemptible));
        page.line("Fair share", format!("{} GPUs", self.fair_share));
        page.line("Running", format!("{} workloads", self.running_count));
        page.line("Waiting", format!("{} workloads for {} GPUs", self.waiting_count, self.waiting));
        page.render()
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

fn describe_settings(settings: &ProjectSettings, page: &mut Page) {
    let span = |secs: Option<u64>| match secs {
        None | Some(0) => String::new(),
        Some(secs) => time::long(Span::secs(secs)),
    };
    page.line("Department", settings.department.clone().unwrap_or_default());
    page.line("Node pool", settings.node_pool.clone().unwrap_or_default());
    page.line("Quota", format!("{} GPUs", settings.quota.unwrap_or_default()));
    for (model, quota) in settings.model_quotas.iter().flatten() {
        page.line(&format!("Quota of {model}"), format!("{quota} GPUs"));
    }
    page.line("CPU quota", settings.cpu_quota.map(|cpu| cpu.to_string()).unwrap_or_default());
    page.line("Memory quota", settings.memory_quota.map(|memory| memory.to_string()).unwrap_or_default());
    page.line("Limit", amount(settings.limit));
    page.line("Weight", amount(settings.weight));
    page.line("Rank", settings.rank.map(|rank| rank.to_string()).unwrap_or_default());
    page.line("Training on", affinity(settings.train_nodes.as_ref()));
    page.line("Interactive on", affinity(settings.interactive_nodes.as_ref()));
    page.line("Interactive ends", span(settings.interactive_limit_secs));
    page.line("Work ends", span(settings.time_limit_secs));
    page.line("Idle limit", span(settings.idle_limit_secs));
    page.line("Minimum run", span(settings.min_run_secs));
    let allows = [("host network", settings.allow_host_network), ("privileged", settings.allow_privileged)];
    let allows: Vec<&str> =
        allows.into_iter().filter(|(_, allowed)| *allowed == Some(true)).map(|(name, _)| name).collect();
    page.line("Allows", allows.join(", "));
}

impl Show for DepartmentList {
    fn text(&self, look: &Look) -> String {
        let mut columns =
            vec!["NAME", "PARENT", "QUOTA", "PROJECTS' QUOTA", "ALLOCATED", "FAIR SHARE", "PROJECTS"];
        if look.wide {
            columns.extend(["LIMIT", "WEIGHT", "RANK"]);
        }
        let mut table = Table::new(&columns);
        for department in &self.items {
            let settings = &department.settings;
            let mut row = vec![
                department.name.clone().into(),
                settings.parent.clone().unwrap_or_default().into(),
                amount(settings.quota).into(),
                department.projects_quota.to_string().into(),
                allocated(department.allocated, settings.quota.unwrap_or(department.allocated)),
                department.fair_share.to_string().into(),
                department.projects.join(",").into(),
            ];
            if look.wide {
                row.extend([
                    amount(settings.limit).into(),
                    amount(settings.weight).into(),
                    settings.rank.map(|rank| rank.to_string()).unwrap_or_default().into(),
                ]);
            }
            table.row(row);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|department| department.name.clone()).collect()
    }
}

impl Show for Department {
    fn text(&self, _: &Look) -> String {
        let mut page = Page::default();
        page.line("Name", &self.name);
        page.line("Parent", self.settings.parent.clone().unwrap_or_default());
        page.line("Node pool", self.settings.node_pool.clone().unwrap_or_default());
        page.line("Quota", amount(self.settings.quota));
        page.line("Projects' quota", self.projects_quota.to_string());
        page.line("Limit", amount(self.settings.limit));
        page.line("Weight", amount(self.settings.weight));
        page.line("Rank", self.settings.rank.map(|rank| rank.to_string()).unwrap_or_default());
        page.line("Allocated", format!("{} GPUs", self.allocated));
        page.line("Fair share", format!("{} GPUs", self.fair_share));
        page.line("Projects", self.projects.join(", "));
        page.render()
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// The name, with a word when commands that name no project mean this one.
pub(super) fn marked(name: &str, look: &Look) -> String {
    if look.default_project.as_deref() == Some(name) { format!("{name} (default)") } else { name.to_owned() }
}

/// Labels of nodes, as `type=dgx1,dgx2`.
pub(super) fn affinity(labels: Option<&BTreeMap<String, Vec<String>>>) -> String {
    let labels = labels.into_iter().flatten();
    labels.map(|(label, values)| format!("{label}={}", values.join(","))).collect::<Vec<_>>().join(" ")
}

fn amount(amount: Option<GpuAmount>) -> String {
    amount.map(|amount| amount.to_string()).unwrap_or_default()
}

/// What is borrowed can be taken back, and stands out for that.
fn allocated(allocated: GpuAmount, quota: GpuAmount) -> Cell {
    let paint = if allocated > quota { Paint::Busy } else { Paint::Plain };
    Cell::painted(allocated.to_string(), paint)
}
