//! Explanations name numbers, and numbers change. Whoever waits is told again when that matters, so many at a time: however many
//! wait and however much happens, a second of it costs one question to the engine.

use super::World;
use berth_types::{Bytes, Cpu, Gpus, Passed, PassedQuota, Span, Time, Verdict, WaitReason, WorkloadId};
use std::{
    collections::{BTreeSet, HashMap},
    mem::discriminant,
};

/// For how long an explanation stands, whatever happens.
const STANDS: Span = Span::secs(30);
/// Between two looks at explanations.
const PAUSE: Span = Span::secs(1);

/// When which explanation was found.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    found: BTreeSet<(Time, WorkloadId)>,
    /// The same by group.
    newest: HashMap<WorkloadId, Time>,
    /// When something last happened that could change one.
    changed: Time,
    /// When they are next looked at; never while nothing happens.
    pub(super) next: Option<Time>,
}

impl Renewals {
    pub(super) fn found(&mut self, at: Time, id: WorkloadId) {
        if let Some(before) = self.newest.insert(id, at) {
            self.found.remove(&(before, id));
        }
        self.found.insert((at, id));
        // What happened at the same time may have come after it.
        if at <= self.changed {
            self.plan(at);
        }
    }

    /// Something happened.
    pub(super) fn changed(&mut self, at: Time) {
        self.changed = at;
        if self.next.is_none() {
            self.plan(at);
        }
    }

    fn plan(&mut self, now: Time) {
        let outdated = self.found.first().filter(|(at, _)| *at <= self.changed);
        self.next = outdated.map(|(at, _)| (*at + STANDS).max(now + PAUSE));
    }

    /// Explanations that have stood long enough while something happened.
    fn take(&mut self, now: Time, most: usize) -> Vec<WorkloadId> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let is_due = |at: Time| at <= self.changed && at + STANDS <= now;
        let due: Vec<_> = self.found.iter().take_while(|(at, _)| is_due(*at)).take(most).copied().collect();
        for one in &due {
            self.found.remove(one);
            self.newest.remove(&one.1);
        }
        self.plan(now);
        due.into_iter().map(|(_, id)| id).collect()
    }
}

impl World {
    /// Finds anew why some of those wait who were told long ago, and tells those for whom it changed.
    pub(crate) fn renew_some(&mut self, now: Time, most: usize) -> Vec<super::Effect> {
        let due = self.renewals.take(now, most);
        // Those that do not wait any more are told something else, or nothing.
        let waits = |id: &WorkloadId| self.engine.workload(*id).is_some_and(|one| one.is_queued());
        let ids: Vec<WorkloadId> = due.into_iter().filter(waits).collect();
        if !ids.is_empty() {
            self.explain(&ids);
        }
        std::mem::take(&mut self.effects)
    }
}

/// Whether one explanation is so unlike another that somebody should hear of it: it is another rule, or a number of it is
/// another by a tenth.
pub(super) fn matters(before: &WaitReason, after: &WaitReason) -> bool {
    let (before, after) = (Told::of(before), Told::of(after));
    let far = |(one, other): (&u64, &u64)| one.abs_diff(*other).saturating_mul(10) >= *one.max(other);
    let far = |pair: (&u64, &u64)| pair.0 != pair.1 && far(pair);
    before.what != after.what
        || before.numbers.len() != after.numbers.len()
        || before.numbers.iter().zip(&after.numbers).any(far)
}

/// What an explanation says, and its numbers.
struct Told {
    what: (std::mem::Discriminant<WaitReason>, String),
    numbers: Vec<u64>,
}

impl Told {
    fn of(reason: &WaitReason) -> Self {
        let (more, numbers) = match reason {
            WaitReason::Never { most, needed } => (String::new(), vec![*most, *needed]),
            WaitReason::Limit { account, limit, used, asked } => {
                (format!("{account:?}"), vec![limit.0, used.0, asked.0])
            }
            WaitReason::NonPreemptibleQuota { account, passed }
            | WaitReason::NoBorrowing { account, passed } => {
                let (model, numbers) = quota(passed);
                (format!("{account:?} {model}"), numbers)
            }
            WaitReason::NoCapacity { fits, needed, within_quota, verdict, .. } => {
                let mut numbers = vec![*fits, *needed];
                match verdict {
                    Verdict::TooLittle { most, needed } => numbers.extend([most.0, needed.0]),
                    Verdict::NoShape { most, needed } => numbers.extend([*most, *needed]),
                    Verdict::NotEntitled | Verdict::Exhausted | Verdict::NotFound => {}
                }
                (format!("{within_quota} {:?}", discriminant(verdict)), numbers)
            }
            // Of an instant, the minute matters.
            WaitReason::MinimumRun { until } | WaitReason::Patience { until } => {
                ((until.0 / 60_000).to_string(), Vec::new())
            }
            WaitReason::Ready => (String::new(), Vec::new()),
            WaitReason::Leaving { workloads } => (String::new(), vec![workloads.len() as u64]),
        };
        Self { what: (discriminant(reason), more), numbers }
    }
}

fn quota(passed: &PassedQuota) -> (String, Vec<u64>) {
    fn numbers<T: Copy>(passed: &Passed<T>, number: impl Fn(T) -> u64) -> Vec<u64> {
        [passed.quota, passed.used, passed.asked].map(number).to_vec()
    }
    match passed {
        PassedQuota::Gpus(passed) => (String::new(), numbers(passed, |Gpus(amount)| amount)),
        PassedQuota::Model(model, passed) => (model.to_string(), numbers(passed, |Gpus(amount)| amount)),
        PassedQuota::Cpu(passed) => ("CPU".into(), numbers(passed, |Cpu(amount)| amount)),
        PassedQuota::Memory(passed) => ("memory".into(), numbers(passed, |Bytes(amount)| amount)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_matters_and_less_does_not() {
        let never = |most, needed| WaitReason::Never { most, needed };
        assert!(!matters(&never(50, 100), &never(50, 100)));
        assert!(!matters(&never(50, 100), &never(51, 100)));
        assert!(matters(&never(50, 100), &never(60, 100)));
        assert!(matters(&never(0, 2), &never(1, 2)), "of few, each matters");
        assert!(matters(&never(0, 2), &WaitReason::Ready));
    }

    #[test]
    fn explanations_are_looked_at_only_when_something_happened_and_not_too_often() {
        let (mut renewals, second) = (Renewals::default(), |at: u64| Time(1_000_000 + at * 1000));
        for id in 0..5 {
            renewals.found(second(0), WorkloadId(id));
        }
        assert_eq!(renewals.next, None, "nothing happened");
        renewals.changed(second(10));
        assert_eq!(renewals.next, Some(second(30)));
        assert!(renewals.take(second(20), 3).is_empty());
        assert_eq!(renewals.take(second(30), 3).len(), 3);
        assert_eq!(renewals.next, Some(second(31)), "the others a moment later");
        assert_eq!(renewals.take(second(31), 3).len(), 2);
        assert_eq!(renewals.next, None);
        renewals.found(second(31), WorkloadId(0));
        renewals.changed(second(40));
        assert_eq!(renewals.next, Some(second(61)));
    }
}
