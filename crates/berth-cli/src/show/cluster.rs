//! The installation as a whole.

use super::Page;
use crate::output::{Look, Show};
use berth_api::Cluster;

impl Show for Cluster {
    fn text(&self, look: &Look) -> String {
        let mut page = Page::default();
        page.line("Version", &self.version);
        page.line("Mode", &self.mode);
        page.line("Folder", &self.folder);
        page.line(
            "Since",
            format!("{} ({} ago)", look.clock.local(self.started_at), look.clock.age(self.started_at)),
        );
        page.line("Nodes", format!("{} of {} ready", self.nodes_ready, self.nodes));
        let declared = if self.declared { ", simulated" } else { "" };
        page.line("GPUs", format!("{} of {} allocated{declared}", self.gpus_allocated, self.gpus));
        if let Some(totals) = &self.totals {
            let busy = totals.utilisation.map(|percent| (percent.0.0 + 50_000) / 100_000);
            let source = format!("{:?}", totals.utilisation_source).to_lowercase();
            let text = busy.map_or_else(
                || "unknown".into(),
                |tenths| format!("{}.{} % of all GPUs ({source})", tenths / 10, tenths % 10),
            );
            page.line("Utilisation", text);
        }
        page.line("Workloads", format!("{} running, {} waiting", self.running_count, self.waiting_count));
        page.line("Projects", self.projects.to_string());
        page.render()
    }

    fn names(&self) -> Vec<String> {
        vec![self.folder.clone()]
    }
}
