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
        let mut text = match (self.starts, self.evicts.is_empty()) {
            (true, true) => format!("It would start at once on {nodes}.\n"),
            (true, false) => {
                format!("It would start on {nodes}, once these have left: {}.\n", self.evicts.join(", "))
            }
            (false, _) => match &self.waits {
                Some(reason) => format!("It would wait: {}\n", one_line(reason)),
                None => "It would wait.\n".into(),
            },
        };
        if let Some(at) = self.wakes_at {
            text.push_str(&format!("That may change at {}.\n", look.clock.local(at)));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.evicts.clone()
    }
}
