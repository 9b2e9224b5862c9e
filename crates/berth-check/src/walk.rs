//! A walk through a plan: each action is checked in the state just before it, then happens.

use crate::{
    capacity::check_state,
    elastic::{check_grow, check_shrink},
    finding::{Finding, Rule},
    ledger::{reservation, workloads_of},
    order::check_order,
    places::{check_gang, check_topology},
    reserve::{check_filled, check_mark, check_reserve, check_reserved_capacity, run_limit},
    starts::{
        Beginning, check_beginning, check_decided_room, check_entitled, check_held_basis, check_held_start,
        check_new_places,
    },
    taking::{Group, Winning, check_group, check_victim, winner_of},
};
use berth_types::{
    Action, Change, ChangeError, EvictRule, Phase, Place, Plan, Policy, StartBasis, State, StopReason, Time,
    Workload, WorkloadId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Checks every action of a plan and the state after it.
pub(crate) fn check_plan(policy: &Policy, before: &State, plan: &Plan) -> Vec<Finding> {
    let mut walk =
        Walk { policy, now: plan.at, state: before.clone(), groups: BTreeMap::new(), grown: BTreeMap::new() };
    let mut findings = Vec::new();
    for action in &plan.actions {
        findings.extend(walk.check(action));
        let decided = Change::Decided { action: action.clone(), at: plan.at };
        if let Err(error) = happen(&mut walk.state, &decided) {
            // What comes after an impossible action has no meaning.
            findings.push(Finding::new(Rule::Applicable, format!("{action:?}: {error}")));
            return findings;
        }
    }
    for (winner, group) in walk.groups {
        let victims: Vec<WorkloadId> = group.taken.iter().map(Action::workload).collect();
        findings.push(Finding::new(
            Rule::WinnerStarts,
            format!("{victims:?} are taken for workload {winner}, which does not begin after that"),
        ));
    }
    findings.extend(check_state(&walk.state));
    findings
}

/// Lets a decision happen to its workload, whether or not its places can be: that is looked at here, by the rules.
pub(crate) fn happen(state: &mut State, decided: &Change) -> Result<(), ChangeError> {
    let id = decided.workload().expect("a decision is about a workload");
    state.workloads.get_mut(&id).ok_or(ChangeError::UnknownWorkload(id))?.apply(decided)
}

/// The state between two actions, and what the plan did so far.
struct Walk<'a> {
    policy: &'a Policy,
    now: Time,
    state: State,
    /// What was taken for winners that have not begun yet.
    groups: BTreeMap<WorkloadId, Group>,
    /// Extras grown by this plan.
    grown: BTreeMap<WorkloadId, BTreeSet<u32>>,
}

impl Walk<'_> {
    fn check(&mut self, action: &Action) -> Vec<Finding> {
        if let Some(winner) = winner_of(action) {
            let group = self
                .groups
                .entry(winner)
                .or_insert_with(|| Group { before: Rc::new(self.state.clone()), taken: Vec::new() });
            group.taken.push(action.clone());
        }
        // An unknown workload is found when the action is applied.
        let Some(workload) = self.state.workloads.get(&action.workload()).cloned() else {
            return Vec::new();
        };
        match action {
            Action::Start { places, basis, passing, .. } => match &workload.phase {
                Phase::Held { places: held, basis: held_by, .. } => {
                    let mut findings = check_held_start(&self.state, &workload, held, places);
                    findings.extend(check_held_basis(&workload, *held_by, *basis));
                    findings.extend(check_mark(&self.state, &workload, places, *passing, false));
                    findings
                }
                _ => {
                    let mut findings = self.check_beginning(&workload, places, *basis, true);
                    findings.extend(check_mark(&self.state, &workload, places, *passing, true));
                    findings
                }
            },
            Action::Hold { places, basis, .. } => self.check_beginning(&workload, places, *basis, false),
            Action::Evict { rule, lost, .. } => self.check_evict(&workload, *rule, *lost),
            Action::Move { places, winner, lost, .. } => match workload.phase {
                Phase::Stopping { .. } => self.check_move_of_leaver(&workload, places, *winner, *lost),
                _ => self.check_move(&workload, places, *winner),
            },
            Action::Grow { places, .. } => {
                let grown = self.grown.entry(workload.id).or_default();
                grown.extend(places.iter().map(|place| place.rank));
                check_grow(&self.state, &workload, places, self.now)
            }
            Action::Shrink { ranks, .. } => {
                let grown = self.grown.entry(workload.id).or_default();
                check_shrink(&workload, ranks, grown)
            }
            Action::Stop { reason, .. } => self.check_stop(&workload, *reason),
            Action::Reserve { places, .. } => {
                check_reserve(self.policy, &self.state, &workload, places, self.now)
            }
            Action::Unreserve { .. } => Vec::new(),
        }
    }

    fn check_beginning(
        &mut self,
        workload: &Workload,
        places: &[Place],
        basis: StartBasis,
        now: bool,
    ) -> Vec<Finding> {
        let beginning = Beginning { workload, places, basis, now };
        let mut findings = check_beginning(&self.state, &beginning, self.now);
        findings.extend(check_filled(&beginning));
        let starts = now.then_some(self.now);
        findings.extend(check_reserved_capacity(&self.state, workload, places, starts));
        match self.groups.remove(&workload.id) {
            Some(group) => {
                let winning = Winning { after: &self.state, workload, places, basis, now: self.now };
                findings.extend(check_group(self.policy, &group, &winning));
            }
            None => findings.extend(self.check_order(workload, basis)),
        }
        findings
    }

    /// With reservations, what is free depends on who asks, so the order is checked only without.
    fn check_order(&self, workload: &Workload, basis: StartBasis) -> Vec<Finding> {
        let by_order = matches!(basis, StartBasis::Quota | StartBasis::FairShare | StartBasis::Idle);
        let mut others = workloads_of(&self.state, &workload.spec.pool);
        if !by_order || others.any(|other| reservation(other).is_some()) {
            return Vec::new();
        }
        check_order(&self.state, workload, self.now)
    }

    fn check_evict(&self, workload: &Workload, rule: EvictRule, lost: u128) -> Vec<Finding> {
        let mut findings = check_victim(&self.state, workload, Some(rule), self.now);
        let expected = workload.work_lost(self.now, self.policy.lost_cap);
        if lost != expected {
            findings.push(Finding::new(
                Rule::WorkLost,
                format!("workload {} loses {expected} GPU-milliseconds, not {lost}", workload.id),
            ));
        }
        findings
    }

    /// A running workload is moved for a winner.
    fn check_move(&self, workload: &Workload, places: &[Place], winner: Option<WorkloadId>) -> Vec<Finding> {
        let mut findings = check_victim(&self.state, workload, None, self.now);
        findings.extend(self.check_destination(workload, places));
        let same = workload.base_places().eq(places);
        if same || winner.is_none() || !self.policy.moves {
            findings.push(Finding::new(
                Rule::Move,
                format!(
                    "workload {} is moved for {winner:?}; moves are allowed: {}; to where it is: {same}",
                    workload.id, self.policy.moves
                ),
            ));
        }
        findings
    }

    /// A workload that is leaving goes to other places instead of the queue, as its turn there comes.
    fn check_move_of_leaver(
        &mut self,
        workload: &Workload,
        places: &[Place],
        winner: Option<WorkloadId>,
        lost: u128,
    ) -> Vec<Finding> {
        let mut findings = self.check_destination(workload, places);
        findings.extend(check_entitled(&self.state, workload, places));
        findings.extend(check_reserved_capacity(&self.state, workload, places, None));
        match self.groups.remove(&workload.id) {
            Some(group) => {
                let winning =
                    Winning { after: &self.state, workload, places, basis: StartBasis::Idle, now: self.now };
                findings.extend(check_group(self.policy, &group, &winning));
                let mut taken = group.taken.iter();
                // Extras make way for everybody.
                if workload.evicted == Some(self.now)
                    && !taken.all(|action| matches!(action, Action::Shrink { .. }))
                {
                    findings.push(Finding::new(
                        Rule::RestartAtOnce,
                        format!(
                            "workload {} was evicted at {:?} and takes at the same instant",
                            workload.id, self.now
                        ),
                    ));
                }
            }
            None => findings.extend(self.check_order(workload, StartBasis::Idle)),
        }
        if winner.is_some() || lost != 0 {
            findings.push(Finding::new(
                Rule::Move,
                format!(
                    "workload {} was leaving already, so its move loses nothing and is for nobody, not {lost} for \
                     {winner:?}",
                    workload.id
                ),
            ));
        }
        findings
    }

    fn check_destination(&self, workload: &Workload, places: &[Place]) -> Vec<Finding> {
        let mut findings = check_gang(workload, places);
        findings.extend(check_new_places(&self.state, workload, places));
        findings.extend(check_topology(&self.state, workload, places));
        findings.extend(check_decided_room(&self.state, workload, places));
        findings
    }

    fn check_stop(&self, workload: &Workload, reason: StopReason) -> Vec<Finding> {
        let project = &self.state.projects[&workload.spec.project];
        let (since, limit) = match reason {
            StopReason::Idle => (workload.idle_since, project.idle_limit),
            StopReason::TimeLimit => (workload.running_since(), run_limit(&self.state, workload)),
        };
        let passed = since.zip(limit).is_some_and(|(since, limit)| self.now.since(since) >= limit);
        if passed {
            return Vec::new();
        }
        vec![Finding::new(
            Rule::Stop,
            format!(
                "workload {} is ended by {reason:?} at {:?}, counted from {since:?} with limit {limit:?}",
                workload.id, self.now
            ),
        )]
    }
}
