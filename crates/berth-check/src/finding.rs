//! Findings: which rule was broken, and by which numbers.

use std::fmt;

/// A rule of `docs/scheduling.md` that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Neither view of a device passes one.
    DeviceCapacity,
    /// Neither view of a node's CPU or memory passes what it has.
    NodeCapacity,
    /// A place gives a task what it asked for, on devices that exist and are accepted.
    PlaceShape,
    /// Ranks of a workload are distinct and below its maximum.
    Ranks,
    /// No more tasks than asked for; a gang is all of its minimum.
    Gang,
    /// Places are on ready nodes of the pool that the workload and its project accept.
    NodeAccepted,
    /// A required topology level holds the whole gang.
    Topology,
    /// Tasks that must be apart are not on one node.
    Apart,
    /// A start waits until its places are left.
    StartBeforeFree,
    /// A hold is only for places that somebody is leaving.
    HoldWithoutCause,
    /// A limit is never passed.
    Limit,
    /// Non-preemptible work stays within quota.
    NonPreemptibleQuota,
    /// Weight zero does not borrow.
    Borrowing,
    /// The named basis of a start is true.
    Basis,
    /// Starts follow the order of heads.
    StartOrder,
    /// What was evicted at an instant is not started at it.
    RestartAtOnce,
    /// What was started at an instant is not evicted at it.
    EvictionAtOnce,
    /// Nothing is evicted inside its minimum run time.
    MinimumRun,
    /// Share reclaim and moves come after a wait, and only to work that has run.
    Patience,
    /// Only preemptible work is taken.
    NotPreemptible,
    /// Only running work is taken; held work is not.
    VictimRuns,
    /// The conditions of quota reclaim.
    QuotaReclaim,
    /// The conditions of share reclaim.
    ShareReclaim,
    /// The conditions of preemption.
    Preemption,
    /// The conditions under which passing work is evicted.
    PassingEviction,
    /// A project at or below quota loses nothing to others.
    QuotaUntouched,
    /// The line is straddled only when nothing else suffices.
    Straddle,
    /// No victim can be left out.
    MinimalVictims,
    /// Elastic extras go before anything else.
    ExtrasFirst,
    /// What is taken is taken for a workload that starts in the same plan.
    WinnerStarts,
    /// The work lost is what the workload did since its last checkpoint or start.
    WorkLost,
    /// Extras start only on capacity that no waiting minimum can use.
    Grow,
    /// Only extras that are there are shrunk.
    Shrink,
    /// Moves are allowed and go elsewhere.
    Move,
    /// Work is ended only by a limit that has passed.
    Stop,
    /// Who may have a reservation, and how many there are.
    Reservation,
    /// Reserved capacity is invisible to non-preemptible work of others.
    ReservedCapacity,
    /// Work on capacity reserved for another is marked as passing.
    PassingMark,
    /// Every action can happen in the state it is decided in.
    Applicable,
    /// Work within quota starts as soon as capacity can be reclaimed for it.
    QuotaGuarantee,
    /// Capacity that waiting work may use is not left idle.
    IdleCapacity,
    /// In a small world, whatever the rules allow is found.
    NotFound,
    /// In a small world, no other allowed set of victims is better.
    BestVictims,
    /// In a small world, no other set of moves is cheaper.
    CheapestMoves,
    /// A held workload starts when its places are left.
    HeldTooLong,
    /// Planning again gives nothing.
    Stability,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants are named so that they read as the rule's short name.
        fmt::Debug::fmt(self, f)
    }
}

/// One broken rule with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: Rule,
    /// Who broke it, with the numbers.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}
