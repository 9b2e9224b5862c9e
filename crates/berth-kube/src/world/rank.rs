//! Tasks of the present run of a group: which Pod each has, and how far it is.

use crate::seen::{
    Text,
    pod::{Member, PodSeen},
};
use berth_types::Time;

/// A task of the present run.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Which Pod in its place it is, from one.
    pub(crate) turn: u32,
    /// The completion it works at, or takes next.
    pub(crate) index: Option<u32>,
    /// Its Pod is over, and another follows it in its place, not before this.
    pub(crate) next: Option<Time>,
    /// How often in a row it failed.
    pub(crate) restarts: u32,
    /// Its Pod was over when this process first saw it: that it failed may be written down already.
    pub(crate) found_over: bool,
    /// There is less left to do than there are workers: it has no Pod, and is done.
    pub(crate) idle: bool,
    /// Its Pod, once it is known.
    pub(crate) pod: Option<Text>,
    /// It is part of a start that is under way.
    pub(crate) ordered: bool,
    /// Its Pod is known to be gone.
    pub(crate) gone: bool,
    /// Its Pod was told to go.
    pub(crate) told: bool,
}

impl Rank {
    /// A task whose Pod is on a node.
    pub(super) fn of(pod: &PodSeen, told: bool) -> Self {
        let (turn, index) = turn_of(pod);
        Self { pod: Some(pod.uid.clone()), told, turn, index, found_over: pod.is_over(), ..Self::default() }
    }

    /// Whether its Pod is there and nobody told of it yet.
    pub(super) fn is_unseen(&self) -> bool {
        self.pod.is_none() && !self.gone && !self.idle && self.next.is_none()
    }
}

impl Default for Rank {
    fn default() -> Self {
        Self {
            turn: 1,
            index: None,
            next: None,
            restarts: 0,
            found_over: false,
            idle: false,
            pod: None,
            ordered: false,
            gone: false,
            told: false,
        }
    }
}

pub(super) fn run_of(pod: &PodSeen) -> Option<u32> {
    match pod.member {
        Member::Workload { run, .. } => Some(run),
        _ => None,
    }
}

/// Which Pod in its place a Pod is, and the completion it is for.
fn turn_of(pod: &PodSeen) -> (u32, Option<u32>) {
    match pod.member {
        Member::Workload { turn, index, .. } => (turn, index),
        _ => (1, None),
    }
}
