//! Which of several sufficient sets of victims is taken.
//!
//! Step by step: the project with the largest excess over its fair share for its weight gives, and its excess is counted
//! anew after each victim; inside a project the lower priority goes first. Between sets that are equal by that, the least
//! work lost by the set as a whole decides, then the fewer workloads, then the project evicted least recently, then the later start,
//! then ids.

use crate::units::Precedence;
use berth_types::{Time, WorkloadId};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BinaryHeap},
};

/// What the choice needs to know of one victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// None for the claimant's own project, which gives last.
    pub(crate) precedence: Option<Precedence>,
    pub(crate) project: u32,
    pub(crate) priority: i32,
    pub(crate) gpus: u64,
    pub(crate) lost: u128,
    pub(crate) started: Time,
    pub(crate) id: WorkloadId,
}

/// One step of giving: whose turn it is, with what it has above its share then, and the priority of what goes.
#[derive(Clone, Copy)]
struct Step {
    precedence: Option<Precedence>,
    project: u32,
    priority: i32,
}

/// The steps in which a set is given.
fn steps_of(set: &[Loss]) -> Vec<Step> {
    let mut by_project: BTreeMap<u32, Vec<Loss>> = BTreeMap::new();
    for victim in set {
        by_project.entry(victim.project).or_default().push(*victim);
    }
    let mut givers: BinaryHeap<(Option<Precedence>, Reverse<u32>)> = BinaryHeap::new();
    for (project, victims) in &mut by_project {
        // The next to go is taken from the end.
        victims.sort_unstable_by_key(|victim| {
            Reverse((victim.priority, victim.lost, Reverse(victim.started), victim.id))
        });
        givers.push((victims[0].precedence, Reverse(*project)));
    }
    let mut steps = Vec::with_capacity(set.len());
    while let Some((precedence, Reverse(project))) = givers.pop() {
        let Some(victim) = by_project.get_mut(&project).and_then(Vec::pop) else { continue };
        steps.push(Step { precedence, project, priority: victim.priority });
        givers.push((precedence.map(|precedence| precedence.after(victim.gpus)), Reverse(project)));
    }
    steps
}

fn compare_excess(one: &Option<Precedence>, other: &Option<Precedence>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => one.compare_excess(other),
        _ => one.is_some().cmp(&other.is_some()),
    }
}

/// The position of the best of these sets.
pub(crate) fn best_of(sets: &[Vec<Loss>]) -> Option<usize> {
    let mut left: Vec<(usize, Vec<Step>)> =
        sets.iter().enumerate().map(|(at, set)| (at, steps_of(set))).collect();
    let longest = left.iter().map(|(_, steps)| steps.len()).max()?;
    for at in 0..longest {
        // A set that has given all it has is no worse than those that go on.
        let here = left.iter().filter_map(|(_, steps)| steps.get(at));
        let Some(largest) = here.map(|step| step.precedence).max_by(compare_excess) else { break };
        left.retain(|(_, steps)| {
            steps.get(at).is_none_or(|step| compare_excess(&step.precedence, &largest) == Ordering::Equal)
        });
        let mut lowest: BTreeMap<u32, i32> = BTreeMap::new();
        for step in left.iter().filter_map(|(_, steps)| steps.get(at)) {
            let priority = lowest.entry(step.project).or_insert(step.priority);
            *priority = step.priority.min(*priority);
        }
        left.retain(|(_, steps)| steps.get(at).is_none_or(|step| step.priority == lowest[&step.project]));
    }
    let rank = |(at, steps): &(usize, Vec<Step>)| {
        let set = &sets[*at];
        let lost: u128 = set.iter().map(|victim| victim.lost).sum();
        let evicted: Vec<_> =
            steps.iter().map(|step| step.precedence.map(|precedence| precedence.evicted_last())).collect();
        let mut latest: Vec<_> = set.iter().map(|victim| (Reverse(victim.started), victim.id)).collect();
        latest.sort_unstable();
        (lost, set.len(), evicted, latest)
    };
    left.iter().min_by_key(|set| rank(set)).map(|(at, _)| *at)
}
