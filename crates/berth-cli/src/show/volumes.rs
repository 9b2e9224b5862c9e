//! Volumes and backups.

use super::nodes::size;
use crate::output::{Look, Show, table::Table};
use berth_api::{Backup, Volume, VolumeList};
use berth_types::Bytes;

impl Show for VolumeList {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["NAME", "PROJECT", "AGE", "USED BY", "PATH"]);
        for volume in &self.items {
            table.row(vec![
                volume.name.clone().into(),
                volume.project.clone().unwrap_or_else(|| "(all)".into()).into(),
                look.clock.age(volume.created_at).into(),
                volume.workloads.join(",").into(),
                volume.path.clone().into(),
            ]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|volume| volume.name.clone()).collect()
    }
}

impl Show for Volume {
    fn text(&self, look: &Look) -> String {
        VolumeList { items: vec![self.clone()] }.text(look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

impl Show for Backup {
    fn text(&self, _: &Look) -> String {
        format!("{}: {}, up to event {}\n", self.path, size(Bytes(self.bytes)), self.seq)
    }

    fn names(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}
