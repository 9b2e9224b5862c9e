//! One cycle of one pool: from what changed to a fixpoint of decisions.
//!
//! ```text
//! held that can start -> limits that ran out -> (heads in order: start | take)* until nothing moves
//!   -> reservations filled, passed and made -> moves -> elastic extras
//! ```

use crate::{claim::Ask, order::Next, pool::Pool, queue::ProjectQueue};
use berth_types::{Action, Change, Phase, Span, StartBasis, StopReason, Time};

impl Pool {
    /// Decides everything there is to decide at `now`, and names the next instant at which that can change.
    pub(crate) fn plan(&mut self, now: Time, actions: &mut Vec<Action>) -> Option<Time> {
        self.mix.refresh(&self.nodes);
        self.stop_overdue(now, actions);
        self.heads_at(now);
        loop {
            let before = actions.len();
            self.start_held(now, actions);
            self.refresh_shares();
            self.retry_takes(now);
            self.serve_heads(now, actions);
            self.fill_reservations(now, actions);
            // Nobody passes a reservation for whom there is room beside it.
            if actions.len() == before {
                self.pass_reservations(now, actions);
            }
            // Nobody is moved for whom there is room already.
            if actions.len() == before {
                self.make_moves(now, actions);
            }
            if actions.len() == before {
                break;
            }
        }
        self.make_reservations(now, actions);
        self.grow_elastic(now, actions);
        self.next_wake(now)
    }

    /// Records a decision and lets it happen.
    pub(crate) fn decide(&mut self, slot: u32, action: Action, now: Time, actions: &mut Vec<Action>) {
        let change = Change::Decided { action, at: now };
        self.change(slot, &change).expect("the engine decides only what can be");
        let Change::Decided { action, .. } = change else { unreachable!("was just made") };
        actions.push(action);
    }

    fn stop_overdue(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some((deadline, _, slot)) = self.deadlines.first().copied()
            && deadline <= now
        {
            let entry = self.entry(slot);
            let idle_limit = self.queues[entry.project as usize].idle_limit;
            let idle =
                entry.workload.idle_since.zip(idle_limit).is_some_and(|(since, limit)| since + limit <= now);
            let reason = if idle { StopReason::Idle } else { StopReason::TimeLimit };
            let workload = entry.workload.id;
            self.decide(slot, Action::Stop { workload, reason }, now, actions);
        }
    }

    fn start_held(&mut self, now: Time, actions: &mut Vec<Action>) {
        for (_, slot) in std::mem::take(&mut self.held_to_check) {
            let entry = self.entry(slot);
            let Phase::Held { places, basis, leaving } = &entry.workload.phase else { continue };
            if !leaving.is_empty() || !self.free_now(places) {
                continue;
            }
            let (workload, places, held_by) = (entry.workload.id, places.clone(), *basis);
            let basis = held_by.unwrap_or_else(|| self.basis_of_moved(slot));
            let passing = self.passes_reservation(slot, &places);
            self.decide(slot, Action::Start { workload, places, basis, passing }, now, actions);
        }
    }

    /// Why a moved workload may start again: it is part of what its accounts use already.
    fn basis_of_moved(&mut self, slot: u32) -> StartBasis {
        self.refresh_shares();
        let ask = self.ask(self.entry(slot).project, self.class_of(slot));
        self.basis(&Ask { amounts: [0; 3], ..ask })
    }

    /// Serves heads in order until none may start or take.
    fn serve_heads(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.refresh_fits(false);
        self.mark_freed_departments();
        self.reconsider_rooms();
        loop {
            let Some(next) = self.next_head() else {
                if self.mark_freed_departments() | self.reconsider_rooms() {
                    continue;
                }
                break;
            };
            let (before, capacity) = (actions.len(), self.capacity);
            match next {
                Next::Takes(slot) => {
                    let Ok(taking) = self.find_taking(slot, now) else {
                        self.take_failed(slot, now);
                        continue;
                    };
                    if self.retry_not_tried() {
                        continue;
                    }
                    self.carry_out(slot, taking, now, actions);
                }
                Next::Fits(_) if self.retry_not_tried() => continue,
                Next::Fits(slot) => {
                    let placed = self.start_on_free(slot, now, actions);
                    assert!(placed, "what the index of a shape counts as room is room");
                }
            }
            self.retry_with_room();
            let only_shrinks_capacity = actions.len() == before + 1;
            self.refresh_fits(only_shrinks_capacity);
            // Starting alone moves no demand, unless by GPU memory, which is charged by the device it gets. A gang of which
            // tasks have ended asks for all of them again when it is evicted. Who is evicted from a node that takes no more
            // work takes that capacity along.
            if self.asks_by_memory || self.gangs_end_in_parts || self.capacity != capacity {
                self.refresh_shares();
            }
        }
    }

    fn start_on_free(&mut self, slot: u32, now: Time, actions: &mut Vec<Action>) -> bool {
        let min = self.class_of(slot).min;
        let Some(places) = self.place(slot, 0, min) else { return false };
        let ask = self.ask(self.entry(slot).project, self.class_of(slot));
        let basis = self.basis(&ask);
        self.put(slot, places, basis, now, actions);
        true
    }

    fn next_wake(&self, now: Time) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(at, _, _)| *at);
        let rests = self.queues.iter().any(ProjectQueue::someone_rests);
        let barred = rests.then_some(now + Span(1));
        let times = [
            deadline,
            self.retries.next(),
            self.next_fill,
            barred,
            self.next_reservation(now),
            self.next_move,
        ];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }
}
