//! Starts that wait for their turn: a plan may start thousands at once, and the server takes a few dozen requests at a time.
//!
//! What waits here costs its order and nothing more, and the first are bound before the last have begun. Turns are given in
//! lots, because starts on one node that begin together share a write to its ledger.

use std::collections::VecDeque;

/// Tasks whose starts are under way at one time. One start with more tasks than that is alone.
pub(super) const TASKS_AT_ONCE: usize = 1024;
/// The next lot begins when no more than this is left of those before.
const LEFT: usize = TASKS_AT_ONCE / 2;

/// Things that wait, each with the number of its tasks.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<(usize, T)>,
    under_way: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), under_way: 0 }
    }
}

impl<T> Queue<T> {
    pub(super) fn add(&mut self, tasks: usize, one: T) {
        self.waiting.push_back((tasks, one));
    }

    /// Something that had its turn has ended.
    pub(super) fn ended(&mut self, tasks: usize) {
        self.under_way -= tasks;
    }

    /// Those whose turn has come, in the order in which they came.
    pub(super) fn next_lot(&mut self) -> Vec<(usize, T)> {
        let mut lot = Vec::new();
        if self.under_way > LEFT {
            return lot;
        }
        while let Some((tasks, _)) = self.waiting.front()
            && (self.under_way == 0 || self.under_way + tasks <= TASKS_AT_ONCE)
        {
            self.under_way += tasks;
            lot.extend(self.waiting.pop_front());
        }
        lot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(queue: &mut Queue<usize>) -> Vec<usize> {
        queue.next_lot().into_iter().map(|(_, one)| one).collect()
    }

    #[test]
    fn turns_come_in_lots_and_in_order() {
        let mut queue = Queue::default();
        (0..3 * TASKS_AT_ONCE).for_each(|one| queue.add(1, one));
        assert_eq!(sizes(&mut queue), (0..TASKS_AT_ONCE).collect::<Vec<_>>());
        for _ in 0..TASKS_AT_ONCE - LEFT - 1 {
            queue.ended(1);
            assert!(sizes(&mut queue).is_empty(), "too few have ended");
        }
        queue.ended(1);
        assert_eq!(sizes(&mut queue), (TASKS_AT_ONCE..TASKS_AT_ONCE + LEFT).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_is_larger_than_everything_has_its_turn_alone() {
        let mut queue = Queue::default();
        [1, 8 * TASKS_AT_ONCE, 2].into_iter().for_each(|tasks| queue.add(tasks, tasks));
        assert_eq!(sizes(&mut queue), [1]);
        assert!(sizes(&mut queue).is_empty());
        queue.ended(1);
        assert_eq!(sizes(&mut queue), [8 * TASKS_AT_ONCE]);
        queue.ended(8 * TASKS_AT_ONCE);
        assert_eq!(sizes(&mut queue), [2]);
    }

    /// Starts of nothing take no room, and keep nobody from a turn.
    #[test]
    fn everybody_has_a_turn() {
        let mut queue = Queue::default();
        let tasks = [0, 700, 700, 0, 1024, 3, 5000, 1];
        tasks.into_iter().for_each(|tasks| queue.add(tasks, tasks));
        let mut had = Vec::new();
        while had.len() < tasks.len() {
            let lot = sizes(&mut queue);
            assert!(!lot.is_empty(), "stuck after {had:?}");
            lot.iter().for_each(|tasks| queue.ended(*tasks));
            had.extend(lot);
        }
        assert_eq!(had, tasks);
    }
}
