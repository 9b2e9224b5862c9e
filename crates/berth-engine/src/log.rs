//! A log of what changed, by which an index that is brought up to date now and then knows how far behind it is.

/// Which of some things changed, in order; a position in it tells an index how far behind it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeLog {
    base: usize,
    changed: Vec<u32>,
}

impl ChangeLog {
    /// One of `count` things changed.
    pub(crate) fn push(&mut self, changed: u32, count: usize) {
        if self.changed.len() > 4 * count + 1024 {
            self.base += self.changed.len();
            self.changed.clear();
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
