//! Taking: whether a winner may take the group of victims it takes.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Amounts, Ledger, reserved_by_others},
    patience::check_patience,
    rights::{check_rights, evicted_by},
    room::{Room, View},
    search::{
        Bench, Reading, extras_make_way, is_small, ran_long_enough, room_without_extras, smallest_set_among,
    },
    tree::named,
    walk::happen,
};
use berth_types::{
    Action, Change, EvictRule, GpuRequest, Gpus, Phase, Place, Policy, StartBasis, State, Time, Workload,
    WorkloadId,
};
use std::rc::Rc;

/// What one plan takes for one winner: every eviction, move and shrink, and the state before the first of them.
pub(crate) struct Group {
    pub(crate) before: Rc<State>,
    pub(crate) taken: Vec<Action>,
}

/// The winner's start or hold, and the state just before it.
pub(crate) struct Winning<'a> {
    pub(crate) after: &'a State,
    pub(crate) workload: &'a Workload,
    pub(crate) places: &'a [Place],
    pub(crate) basis: StartBasis,
    pub(crate) now: Time,
}

/// The winner an action takes for, if it takes anything.
pub(crate) fn winner_of(action: &Action) -> Option<WorkloadId> {
    match action {
        Action::Evict { winner, .. } | Action::Shrink { winner, .. } => Some(*winner),
        Action::Move { winner, .. } => *winner,
        _ => None,
    }
}

/// All checks of one group.
pub(crate) fn check_group(policy: &Policy, group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let mut findings = check_rights(group, winning);
    findings.extend(check_patience(policy, group, winning));
    findings.extend(check_straddle(group, winning));
    findings.extend(check_minimal(group, winning));
    findings.extend(check_extras_first(group, winning));
    findings
}

/// Whether one victim can be a victim at all: preemptible, running, past its minimum run time, not started at this
/// instant.
pub(crate) fn check_victim(
    state: &State,
    victim: &Workload,
    rule: Option<EvictRule>,
    now: Time,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let id = victim.id;
    if !victim.spec.preemptible {
        findings.push(Finding::new(Rule::NotPreemptible, format!("non-preemptible workload {id} is taken")));
    }
    let Phase::Running { since, .. } = victim.phase else {
        findings.push(Finding::new(Rule::VictimRuns, format!("workload {id} is taken but does not run")));
        return findings;
    };
    if since == now {
        findings.push(Finding::new(
            Rule::EvictionAtOnce,
            format!("workload {id} was started at {since:?} and is taken at the same instant"),
        ));
    }
    // Passing work gave up its minimum run time.
    if rule != Some(EvictRule::Passing) && !ran_long_enough(state, victim, since, now) {
        findings.push(Finding::new(
            Rule::MinimumRun,
            format!(
                "workload {id} is taken after {}, inside the minimum run time {}",
                now.since(since),
                state.projects[&victim.spec.project].min_run
            ),
        ));
    }
    findings
}

/// In small states, a straddled line is held against every set that straddles none.
fn check_straddle(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let winner = winning.workload;
    let victims = evicted_by(group, EvictRule::QuotaReclaim);
    if victims.is_empty()
        || !is_small(&group.before, &winner.spec.pool)
        || reserved_by_others(&group.before, &winner.spec.pool, winner)
    {
        return Vec::new();
    }
    let ledger = Ledger::new(&group.before, &winner.spec.pool);
    let claim = Claim::waiting(&ledger, winner);
    let bench = Bench::new(&ledger, &claim, victims, Reading::Possible);
    let Some(account) = bench.straddled(bench.all()) else {
        return Vec::new();
    };
    if !claim.may_start_beside_extras(&ledger) {
        return Vec::new();
    }
    // Its own project's work goes only when that of borrowers does not suffice, however it is taken.
    let of_others = |victim: &Workload| victim.spec.project != winner.spec.project;
    let other = smallest_set_among(&ledger, &claim, winner, winning.now, Reading::Sure, of_others);
    other
        .filter(|set| set.clean)
        .map(|set| {
            Finding::new(
                Rule::Straddle,
                format!(
                    "workload {} takes {} from {} GPUs to below its quota {}, but taking {:?} would not",
                    winner.id,
                    named(account),
                    Gpus(ledger.used_gpus(account)),
                    ledger.tree.quota(account),
                    set.victims
                ),
            )
        })
        .into_iter()
        .collect()
}

/// Every victim, and every single extra, is left out once: the winner must then be unable to start.
fn check_minimal(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let winner = winning.workload;
    // What a full department must not grow by is the charge on the smallest device, and fewer victims may do for the
    // device that GPU memory gets in the end.
    let by_memory = matches!(winner.spec.request.gpu, GpuRequest::Memory { .. });
    let in_department = group.before.projects[&winner.spec.project].department.is_some();
    if by_memory && in_department || reserved_by_others(&group.before, &winner.spec.pool, winner) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (position, action) in group.taken.iter().enumerate() {
        for (rank, taken) in without(&group.taken, position) {
            let rest = Group { before: Rc::clone(&group.before), taken };
            if starts_after(&rest, winning) {
                let what = rank.map_or(String::new(), |rank| format!(" extra {rank} of"));
                findings.push(Finding::new(
                    Rule::MinimalVictims,
                    format!(
                        "workload {} could start without taking{what} workload {}; it takes {} in all",
                        winner.id,
                        action.workload(),
                        group.taken.len()
                    ),
                ));
            }
        }
    }
    findings
}

/// The actions with one left out; of a shrink, with each single extra left out.
fn without(taken: &[Action], position: usize) -> Vec<(Option<u32>, Vec<Action>)> {
    let mut rest = taken.to_vec();
    let Action::Shrink { workload, ranks, winner } = rest.remove(position) else {
        return vec![(None, rest)];
    };
    ranks
        .iter()
        .map(|left_out| {
            let mut fewer = rest.clone();
            let ranks: Vec<u32> = ranks.iter().copied().filter(|rank| rank != left_out).collect();
            if !ranks.is_empty() {
                let shrink = Action::Shrink { workload, ranks, winner };
                fewer.insert(position, shrink);
            }
            (Some(*left_out), fewer)
        })
        .collect()
}

/// Whether the winner could start after a part of what was taken for it, with every right that part needs.
fn starts_after(group: &Group, winning: &Winning<'_>) -> bool {
    let mut state = State::clone(&group.before);
    for action in &group.taken {
        let decided = Change::Decided { action: action.clone(), at: winning.now };
        if happen(&mut state, &decided).is_err() {
            return false;
        }
    }
    let room = Room::of(&state, View::Decided);
    // A move may go to where a victim was that is now left out; then it was needed.
    if !room.is_sound() {
        return false;
    }
    let fits = match winning.basis {
        StartBasis::Reservation => room.holds(winning.places),
        _ => room.fits(winning.workload),
    };
    let ledger = Ledger::new(&state, &winning.workload.spec.pool);
    let claim = Claim::waiting(&ledger, winning.workload);
    let reduced = Winning { after: &state, ..*winning };
    fits && claim.may_start_beside_extras(&ledger) && check_rights(group, &reduced).is_empty()
}

/// Nobody is evicted or moved when taking extras alone is enough.
fn check_extras_first(group: &Group, winning: &Winning<'_>) -> Vec<Finding> {
    let winner = winning.workload;
    let pool = &winner.spec.pool;
    let whole = |action: &&Action| !matches!(action, Action::Shrink { .. });
    let Some(victim) = group.taken.iter().find(whole).map(Action::workload) else {
        return Vec::new();
    };
    if winning.basis == StartBasis::Reservation || reserved_by_others(&group.before, pool, winner) {
        return Vec::new();
    }
    let ledger = Ledger::new(&group.before, pool);
    let room = room_without_extras(&group.before, pool, winning.now, Reading::Sure);
    let claim = Claim::waiting(&ledger, winner);
    // What fits beside all extras needs nobody at all, which is another finding.
    let needs_extras = !Room::of(&group.before, View::Decided).fits(winner) && room.fits(winner);
    if !needs_extras || !claim.may_start(&ledger) || !extras_make_way(&ledger, &claim, winning.now) {
        return Vec::new();
    }
    let extras = Amounts::of(&group.before, group.before.workloads.values().flat_map(Workload::extra_places));
    vec![Finding::new(
        Rule::ExtrasFirst,
        format!(
            "workload {victim} is taken for {}, though taking extras ({} GPUs run as such) is enough",
            winner.id, extras.gpus
        ),
    )]
}
