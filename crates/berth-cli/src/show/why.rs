//! Why a workload waits, in words and numbers.

use super::Page;
use crate::output::{
    Look, Show,
    table::{Table, one_line},
};
use berth_api::Why;

impl Show for Why {
    fn text(&self, look: &Look) -> String {
        let mut text = format!("{}: {}\n", one_line(&self.workload), one_line(&self.text));
        let mut page = Page::default();
        if self.waits {
            page.line("Rule", &self.rule);
        }
        for (name, value) in &self.numbers {
            page.line(&name.replace('_', " "), value);
        }
        if let Some(until) = self.until {
            page.line("Earliest change", look.clock.local(until));
        }
        if let Some(remedy) = &self.remedy {
            page.line("Would start it now", &remedy.text);
        }
        let mut table = Table::new(&["WORKLOAD", "GPUS"]);
        for held in &self.held_by {
            table.row(vec![held.workload.clone().into(), held.gpus.to_string().into()]);
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
