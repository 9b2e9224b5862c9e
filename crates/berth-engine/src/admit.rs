//! What others say was decided, held against what can be.
//!
//! The engine's own decisions are right by construction. Those that come from outside, in a log or with a workload that
//! was running before this engine was there, may not fit what it knows.

use crate::{
    node::{Free, NodeSlot},
    pool::Pool,
};
use berth_types::{Change, ChangeError, Node, NodeId, Place, Workload, no_room, validate_places};
use std::collections::BTreeMap;

impl Pool {
    /// Lets a decision happen that this engine did not make, if its places can be and are free.
    pub(crate) fn admit(
        &mut self,
        slot: u32,
        change: &Change,
        nodes: &BTreeMap<NodeId, Node>,
    ) -> Result<(), ChangeError> {
        let mut changed = self.entry(slot).workload.clone();
        changed.apply(change)?;
        validate_places(&changed, |id| nodes.get(&id))?;
        self.unindex(slot);
        let result = self.validate_room(&changed);
        if result.is_ok() {
            self.entries[slot as usize].as_mut().expect("a slot in use").workload = changed;
        }
        self.index(slot);
        result
    }

    /// Whether the places of a workload that is in no index are free in both views.
    pub(crate) fn validate_room(&self, workload: &Workload) -> Result<(), ChangeError> {
        let decided = self.holds_all(workload.places(), |node| &node.decided);
        let occupied = self.holds_all(workload.occupied(), |node| &node.occupied);
        if decided && occupied { Ok(()) } else { Err(no_room(workload)) }
    }

    fn holds_all<'a>(
        &self,
        mut places: impl Iterator<Item = &'a Place>,
        view: impl Fn(&NodeSlot) -> &Free,
    ) -> bool {
        let mut left: BTreeMap<u32, Free> = BTreeMap::new();
        places.all(|place| {
            let Some(slot) = self.node_slot(place.node) else { return false };
            let free = left.entry(slot).or_insert_with(|| view(self.node(slot)).clone());
            let holds = free.holds(place);
            if holds {
                free.take(place);
            }
            holds
        })
    }
}
