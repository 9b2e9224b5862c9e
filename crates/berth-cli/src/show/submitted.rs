//! What became of a submission, or would.

use crate::output::{Look, Show, table::one_line};
use berth_api::{Preview, Submitted};

impl Show for Submitted {
    /// Nothing: what a person is told about it is talk.
    fn text(&self, _: &Look) -> String {
        String::new()
    }

    fn names(&self) -> Vec<String> {
        vec![format!("{}/{}", self.workload.project, self.workload.name)]
    }
}

impl Show for Preview {
    fn text(&self, look: &Look) -> String {
        let nodes = self.nodes.join(", ");
        let others = self.evicts_others.iter().map(|(project, count)| match count {
            1 => format!("a workload of {project}"),
            count => format!("{count} workloads of {project}"),
        });
        let evicts: Vec<String> = self.evicts.iter().cloned().chain(others).collect();
        let mut text = runs(self);
        text.push_str(&match (self.starts, evicts.is_empty()) {
            (true, true) => format!("It would start at once on {nodes}.\n"),
            (true, false) => {
                format!("It would start on {nodes}, once these have left: {}.\n", evicts.join(", "))
            }
            (false, _) => match &self.waits {
                Some(reason) => format!("It would wait: {}\n", one_line(reason)),
                None => "It would wait.\n".into(),
            },
        });
        if let Some(at) = self.wakes_at {
            text.push_str(&format!("That may change at {}.\n", look.clock.local(at)));
        }
        text.push_str(&super::why::change_lines(&self.changes));
        text
    }

    fn names(&self) -> Vec<String> {
        self.evicts.clone()
    }
}

/// What would run where, and as whom; nothing where only a start can tell.
fn runs(preview: &Preview) -> String {
    if preview.program.is_none() && preview.working_dir.is_none() {
        return String::new();
    }
    let program = preview.program.as_deref().unwrap_or("its program");
    let place = preview.working_dir.as_deref().unwrap_or("a folder of its own");
    let user = preview.run_as.as_deref().and_then(|account| account.split(':').next());
    let user = user.map(|user| format!(" as user {user}")).unwrap_or_default();
    one_line(&format!("It would run {program} in {place}{user}.")) + "\n"
}
