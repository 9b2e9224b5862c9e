//! Reservations: who gets one, how many there are, and who may use what is reserved.

use crate::{
    claim::Claim,
    finding::{Finding, Rule},
    ledger::{Ledger, reservation, reserved_by_others, workloads_of},
    places::{check_gang, check_topology},
    room::{Room, View},
    starts::{Beginning, check_new_places},
};
use berth_types::{Kind, Phase, Place, Policy, Span, StartBasis, State, Time, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a reservation may be made. `state` is the state before it.
pub(crate) fn check_reserve(
    policy: &Policy,
    state: &State,
    workload: &Workload,
    places: &[Place],
    now: Time,
) -> Vec<Finding> {
    let pool = &workload.spec.pool;
    let mut findings = check_gang(workload, places);
    findings.extend(check_new_places(state, workload, places));
    findings.extend(check_topology(state, workload, places));
    let mut add = |text: String| findings.push(Finding::new(Rule::Reservation, text));

    let others: Vec<_> = workloads_of(state, pool)
        .filter(|other| other.id != workload.id && reservation(other).is_some())
        .collect();
    if others.len() >= policy.reservations_per_pool {
        add(format!(
            "workload {} gets reservation {} of at most {} in pool {pool}",
            workload.id,
            others.len() + 1,
            policy.reservations_per_pool
        ));
    }
    let project = workload.spec.project;
    if let Some(other) = others.iter().find(|other| other.spec.project == project) {
        add(format!(
            "workload {} gets a reservation while {} of the same project {project} has one",
            workload.id, other.id
        ));
    }
    let waited = now.since(workload.submitted);
    if waited < policy.reserve_after {
        add(format!(
            "workload {} waited {waited} of {} before its reservation",
            workload.id, policy.reserve_after
        ));
    }
    let ledger = Ledger::new(state, pool);
    if !Claim::waiting(&ledger, workload).may_start(&ledger) {
        add(format!("workload {} gets a reservation but may not start", workload.id));
    }
    if others.is_empty() && workload.evicted != Some(now) && Room::of(state, View::Decided).fits(workload) {
        add(format!("workload {} gets a reservation though it fits", workload.id));
    }
    if !Room::empty(state).holds(places) {
        add(format!("the places reserved for workload {} do not fit on empty nodes", workload.id));
    }
    findings
}

/// Whether a start that names its reservation fills it.
pub(crate) fn check_filled(beginning: &Beginning<'_>) -> Vec<Finding> {
    let reserved = reservation(beginning.workload);
    if beginning.basis != StartBasis::Reservation || reserved == Some(beginning.places) {
        return Vec::new();
    }
    vec![Finding::new(
        Rule::Reservation,
        format!(
            "workload {} begins by its reservation in {:?}, but reserved is {reserved:?}",
            beginning.workload.id, beginning.places
        ),
    )]
}

/// Whether non-preemptible work keeps off what is reserved for others, unless it ends before that is needed. A
/// reservation does not hold against work within quota. `starts` is when the run begins, if that is known.
pub(crate) fn check_reserved_capacity(
    state: &State,
    workload: &Workload,
    places: &[Place],
    starts: Option<Time>,
) -> Vec<Finding> {
    let ledger = Ledger::new(state, &workload.spec.pool);
    if workload.spec.preemptible || Claim::placed(&ledger, workload, places).within_quota(&ledger) {
        return Vec::new();
    }
    let end = starts.zip(run_limit(state, workload)).map(|(start, limit)| start + limit);
    overlapped(state, workload, places)
        .filter_map(|other| {
            let fill = expected_fill(state, other);
            let before = end.zip(fill).is_some_and(|(end, fill)| end <= fill);
            let text = format!(
                "non-preemptible workload {} uses what is reserved for {}; it ends by {end:?}, and that is expected \
                 to be filled at {fill:?}",
                workload.id, other.id
            );
            (!before).then(|| Finding::new(Rule::ReservedCapacity, text))
        })
        .collect()
}

/// How long a run of the workload may last.
pub(crate) fn run_limit(state: &State, workload: &Workload) -> Option<Span> {
    let project = &state.projects[&workload.spec.project];
    let interactive =
        (workload.spec.kind == Kind::Interactive).then_some(project.interactive_time_limit).flatten();
    [workload.spec.max_run, project.time_limit, interactive].into_iter().flatten().min()
}

/// The first of all known ends at which, with everybody gone who has ended by then, the reserved places are free; the
/// beginning of time when nobody is in the way. Extras make way at once.
fn expected_fill(state: &State, owner: &Workload) -> Option<Time> {
    let Phase::Queued { reservation: Some(reservation) } = &owner.phase else { return None };
    let others: Vec<(&Workload, Option<Time>)> = workloads_of(state, &owner.spec.pool)
        .map(|other| (other, makes_way_by(state, other, reservation.since)))
        .collect();
    let ends: BTreeSet<Time> = others.iter().filter_map(|(_, end)| *end).collect();
    std::iter::once(Time(0)).chain(ends).find(|at| {
        let mut room = Room::empty(state);
        let stay = others.iter().filter(|(_, end)| end.is_none_or(|end| end > *at));
        stay.flat_map(|(other, _)| other.base_places()).for_each(|place| room.take(place));
        room.holds(&reservation.places)
    })
}

/// When a workload is out of the way of a reservation made at `reserved`, if that is known.
fn makes_way_by(state: &State, workload: &Workload, reserved: Time) -> Option<Time> {
    let Phase::Running { since, passing, .. } = workload.phase else { return None };
    let project = &state.projects[&workload.spec.project];
    let by_limit = run_limit(state, workload).map(|limit| since + limit);
    let by_idle = workload.idle_since.zip(project.idle_limit).map(|(idle, limit)| idle.max(since) + limit);
    let by_eviction = (passing && since >= reserved).then(|| since + project.min_run.max(Span(1)));
    [by_limit, by_idle, by_eviction].into_iter().flatten().min()
}

/// Whether a start is marked as passing exactly when it uses what is reserved for another. `fresh` starts come from
/// the queue; a reservation may have been made over the places of a held one, which is then not required to be
/// marked.
pub(crate) fn check_mark(
    state: &State,
    workload: &Workload,
    places: &[Place],
    passing: bool,
    fresh: bool,
) -> Vec<Finding> {
    let text = if passing && (!workload.spec.preemptible || is_apart(state, workload, places)) {
        format!("workload {} is marked as passing and passes nobody", workload.id)
    } else if !passing
        && fresh
        && workload.spec.preemptible
        && let Some(other) = overlapped(state, workload, places).next()
    {
        format!(
            "workload {} uses what is reserved for {} and is not marked as passing",
            workload.id, other.id
        )
    } else {
        return Vec::new();
    };
    vec![Finding::new(Rule::PassingMark, text)]
}

/// Other workloads whose reservation surely cannot be filled beside these places: the two together are more than a
/// node has.
fn overlapped<'a>(
    state: &'a State,
    workload: &'a Workload,
    places: &'a [Place],
) -> impl Iterator<Item = &'a Workload> {
    workloads_of(state, &workload.spec.pool).filter(|other| other.id != workload.id).filter(|other| {
        reservation(other).is_some_and(|reserved| {
            let mut room = Room::empty(state);
            reserved.iter().for_each(|place| room.take(place));
            !room.holds(places)
        })
    })
}

/// Whether the places surely use nothing that is reserved for others: no device is shared, and CPU and memory of
/// their nodes are enough for everybody.
fn is_apart(state: &State, workload: &Workload, places: &[Place]) -> bool {
    if !reserved_by_others(state, &workload.spec.pool, workload) {
        return true;
    }
    let mut room = Room::of(state, View::Decided);
    let own = workload.places().count() > 0;
    let mut reserved_devices: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for other in workloads_of(state, &workload.spec.pool).filter(|other| other.id != workload.id) {
        for place in reservation(other).unwrap_or_default() {
            room.take(place);
            let devices = place.devices.iter().map(|taken| taken.device);
            reserved_devices.entry(place.node).or_default().extend(devices);
        }
    }
    if !own {
        places.iter().for_each(|place| room.take(place));
    }
    places.iter().all(|place| {
        let Some(reserved) = reserved_devices.get(&place.node) else {
            return true;
        };
        let free = &room.nodes[&place.node];
        let shared = place.devices.iter().any(|taken| reserved.contains(&taken.device));
        !shared && free.cpu >= 0 && free.memory >= 0
    })
}
