//! Completions: one command that is run so many times, each time with another index, by a few workers at a time.
//!
//! Whoever is done takes the next in its place, and whoever failed tries the same again; to the engine such a worker never ended.

use crate::Span;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

/// The longest pause before a worker is started again.
const PAUSE_SECS_MAX: u64 = 60;

/// Completions of a workload that are done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Completed(BTreeSet<u32>);

/// What a worker does that has just ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It goes on with this one.
    Next(u32),
    /// It tries the same again, after a pause.
    Again,
    /// Nothing is left for it.
    Nothing,
    /// It failed, and so does all of it.
    Failed,
}

impl Completed {
    /// How many are done.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Whether none is done.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One is done.
    pub fn insert(&mut self, index: u32) {
        self.0.insert(index);
    }

    /// Others are done too.
    pub fn extend(&mut self, others: &Self) {
        self.0.extend(&others.0);
    }

    /// The first of so many that nobody has and nobody has done.
    pub fn first_free(&self, all: u32, taken: &BTreeSet<u32>) -> Option<u32> {
        (0..all).find(|index| !self.0.contains(index) && !taken.contains(index))
    }

    /// What a worker does next whose turn has ended, while others have what is taken.
    pub fn turn(
        &mut self,
        all: u32,
        (index, succeeded): (Option<u32>, bool),
        may_fail: bool,
        taken: &BTreeSet<u32>,
    ) -> Turn {
        if !succeeded {
            return if may_fail { Turn::Again } else { Turn::Failed };
        }
        self.0.extend(index);
        self.first_free(all, taken).map_or(Turn::Nothing, Turn::Next)
    }

    /// Those that a text names, such as `0-4,7`. What cannot be read is left out: it is done once more, which is better than not
    /// at all.
    pub fn from_text(text: &str) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
            // Nobody has so many; a text of a few bytes must not fill the memory.
            (last < 1_000_000).then_some(first..=last)
        };
        Self(text.split(',').filter_map(range).flatten().collect())
    }
}

impl fmt::Display for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut is_first = true;
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            if !std::mem::take(&mut is_first) {
                f.write_char(',')?;
            }
            if first == last { write!(f, "{first}")? } else { write!(f, "{first}-{last}")? }
        }
        Ok(())
    }
}

/// The pause before a worker is started again that failed so often in a row: twice as long each time.
pub fn restart_pause(restarts: u32) -> Span {
    Span::secs((1u64 << restarts.saturating_sub(1).min(6)).min(PAUSE_SECS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_done_takes_the_next_that_nobody_has() {
        let mut done = Completed::default();
        let taken = BTreeSet::from([0, 1]);
        assert_eq!(done.turn(4, (Some(0), true), true, &taken), Turn::Next(2));
        let taken = BTreeSet::from([2, 1]);
        assert_eq!(done.turn(4, (Some(1), true), true, &taken), Turn::Next(3));
        let taken = BTreeSet::from([2, 3]);
        assert_eq!(done.turn(4, (Some(2), true), true, &taken), Turn::Nothing, "the last one has another");
        assert_eq!(done.turn(4, (Some(3), false), true, &taken), Turn::Again);
        assert_eq!(done.turn(4, (Some(3), false), false, &taken), Turn::Failed);
        assert_eq!(done.count(), 3, "what failed is not done");
    }

    #[test]
    fn what_is_done_is_a_short_text_and_read_again() {
        let done = |text: &str| Completed::from_text(text);
        for text in ["", "0", "0-4,7", "1,3-4,9999"] {
            assert_eq!(done(text).to_string(), text);
        }
        assert_eq!(done("4,0-2,3").to_string(), "0-4");
        assert_eq!(done("x,1-,0-4000000000,5-3,2").to_string(), "2");
    }

    #[test]
    fn pauses_grow_and_have_an_end() {
        let pauses = [1, 2, 3, 7, 100].map(|restarts| restart_pause(restarts).as_secs());
        assert_eq!(pauses, [1, 2, 4, 60, 60]);
    }
}
