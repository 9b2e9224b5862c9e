//! The indices of a sweep.

use super::workloads::paint;
use crate::output::{
    Look,
    table::{Cell, Table},
};
use berth_api::IndexView;

pub(super) fn table(indices: &[IndexView], look: &Look) -> Table {
    let mut table = Table::new(&["INDEX", "STATUS", "WORKER", "ATTEMPTS", "EXIT", "STARTED", "ENDED"]);
    for row in indices {
        let exit = match (row.exit_code, row.signal) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(code), None) => code.to_string(),
            (None, None) => String::new(),
        };
        table.row(vec![
            row.index.to_string().into(),
            Cell::painted(row.status.to_string(), paint(row.status)),
            row.worker.map(|worker| worker.to_string()).unwrap_or_default().into(),
            row.attempts.to_string().into(),
            exit.into(),
            row.started_at.map(|at| look.clock.local(at)).unwrap_or_default().into(),
            row.ended_at.map(|at| look.clock.local(at)).unwrap_or_default().into(),
        ]);
    }
    table
}
