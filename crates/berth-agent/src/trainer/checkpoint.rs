//! What the trainer needs to go on.

use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) seed: u64,
    pub(super) epochs_done: u64,
    pub(super) weights: Vec<f64>,
}

impl Checkpoint {
    /// None when there is none, or when it belongs to another model.
    pub(super) fn read(file: &Path, seed: u64) -> Option<Self> {
        let checkpoint: Self = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        (checkpoint.seed == seed).then_some(checkpoint)
    }

    /// Whole or not at all: the trainer may be killed at any moment.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let beside = file.with_extension("new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(&beside, file)
    }
}
