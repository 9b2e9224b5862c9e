//! A log of what changed, by which an index that is brought up to date now and then knows how far behind it is.

/// Which of some things changed, in order; a position in it tells an index how far behind it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeLog {
    base: usize,
    changed: Vec<u32>,
    /// Where the outermost batch began that is being written, while nobody reads, and how many there are.
    batch: usize,
    batches: u32,
}

/// Entries of a batch that are looked at to see whether one is there already.
const LOOKED_AT: usize = 16;

impl ChangeLog {
    /// Until the batch ends nobody reads, so what changes twice is written once.
    pub(crate) fn begin_batch(&mut self) {
        if self.batches == 0 {
            self.batch = self.end();
        }
        self.batches += 1;
    }

    pub(crate) fn end_batch(&mut self) {
        self.batches -= 1;
    }

    /// One of `count` things changed.
    pub(crate) fn push(&mut self, changed: u32, count: usize) {
        let batch = if self.batches > 0 { self.since(self.batch) } else { None };
        if batch.is_some_and(|batch| batch.iter().rev().take(LOOKED_AT).any(|known| *known == changed)) {
            return;
        }
        if self.changed.len() > 4 * count + 1024 {
            // Whoever reads often never misses anything, so that no decision depends on when this happens.
            let half = self.changed.len() / 2;
            self.base += half;
            self.changed.drain(..half);
        }
        self.changed.push(changed);
    }

    pub(crate) fn end(&self) -> usize {
        self.base + self.changed.len()
    }

    /// What changed since `position`, or none when that is too long ago to know.
    pub(crate) fn since(&self, position: usize) -> Option<&[u32]> {
        position.checked_sub(self.base).map(|from| &self.changed[from..])
    }
}
