//! Events.

use crate::output::{
    Look, Show,
    table::{Cell, Paint, Table, one_line},
};
use berth_api::{Event, EventList, Level};

impl Show for EventList {
    fn text(&self, look: &Look) -> String {
        look.table(&event_table(&self.items, look))
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|event| event.seq.to_string()).collect()
    }
}

pub(super) fn event_table(events: &[Event], look: &Look) -> Table {
    let mut table = Table::new(&["AGE", "KIND", "ABOUT", "MESSAGE"]);
    for event in events {
        table.row(vec![
            look.clock.age(event.at).into(),
            Cell::painted(event.kind.clone(), paint(event.level)),
            about(event).to_owned().into(),
            event.message.clone().into(),
        ]);
    }
    table
}

/// An event as one line of a stream: its time, since its age would always be nothing.
pub(crate) fn event_line(event: &Event, look: &Look) -> String {
    let message = one_line(&event.message);
    format!(
        "{}  {}  {}  {message}\n",
        look.clock.local(event.at),
        one_line(&event.kind),
        one_line(about(event))
    )
}

fn paint(level: Level) -> Paint {
    match level {
        Level::Normal => Paint::Plain,
        Level::Warning => Paint::Bad,
    }
}

fn about(event: &Event) -> &str {
    [&event.workload, &event.node, &event.project].into_iter().flatten().next().map_or("", String::as_str)
}
