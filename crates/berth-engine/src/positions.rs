//! A map from positions in the tree, for the few of them that one claim comes across.

/// What is known of some positions. Nothing is hashed, and nothing is kept for positions far beyond the last.
#[derive(Clone, Debug)]
pub(crate) struct Positions<T> {
    /// By position: where its item is, counted from one; 0 where there is none.
    at: Vec<u32>,
    items: Vec<(u32, T)>,
}

impl<T> Default for Positions<T> {
    fn default() -> Self {
        Self { at: Vec::new(), items: Vec::new() }
    }
}

impl<T> Positions<T> {
    fn find(&self, position: u32) -> Option<usize> {
        self.at.get(position as usize).and_then(|at| (*at as usize).checked_sub(1))
    }

    pub(crate) fn get(&self, position: u32) -> Option<&T> {
        self.find(position).map(|at| &self.items[at].1)
    }

    pub(crate) fn get_mut(&mut self, position: u32) -> Option<&mut T> {
        self.find(position).map(|at| &mut self.items[at].1)
    }

    /// Something for a position that has nothing yet.
    pub(crate) fn insert(&mut self, position: u32, item: T) {
        debug_assert!(self.find(position).is_none(), "something is known of this position already");
        if self.at.len() <= position as usize {
            self.at.resize((position as usize + 1).next_power_of_two(), 0);
        }
        self.items.push((position, item));
        self.at[position as usize] = self.items.len() as u32;
    }

    pub(crate) fn clear(&mut self) {
        for (position, _) in self.items.drain(..) {
            self.at[position as usize] = 0;
        }
    }
}
