//! How the Pods of a group are placed beside each other: by what they say, by their native group, and by ports of the node that
//! two of them cannot have.

use super::{World, groups::GroupKey, ports::have_common_port};
use crate::seen::{
    Key, Refusal, Text,
    beside::Beside,
    native::NativeGroupSeen,
    pod::{Member, PodSeen},
};
use berth_types::{Spread, Topology};
use std::sync::Arc;

impl World {
    /// How the Pods of a group are laid out.
    pub(super) fn layout_of(
        &self,
        key: &GroupKey,
        pods: &[Arc<PodSeen>],
    ) -> Result<(Topology, Spread), Refusal> {
        let nothing = Beside::default();
        let wishes = |pod: &Arc<PodSeen>| pod.beside.clone();
        let said = pods.first().and_then(wishes);
        if pods.iter().any(|pod| pod.beside != said) {
            let text = "its Pods differ in how they want to be placed beside each other; those that start together must say the same";
            return Err(Refusal::new("MixedGroup", text));
        }
        let said = said.as_deref().unwrap_or(&nothing);
        // Whoever made it, or its native group, lets each of its Pods start by itself.
        if matches!(key, GroupKey::Pod(_)) && said.is_demanding() {
            let text = "it demands to be near or apart from Pods that start each by itself; Berth knows that of Pods that start together";
            return Err(Refusal::new("UnsupportedConstraint", text));
        }
        let mut topology = Topology { required: said.required.clone(), preferred: said.preferred.clone() };
        if let GroupKey::Native(key) = key
            && let Some(native) = self.native.get(key)
        {
            if let Some(refusal) = &native.refusal {
                return Err(refusal.clone());
            }
            let level = native.level.clone();
            if level.is_some() && topology.required.is_some() && topology.required != level {
                let text = format!("its Pods and PodGroup {} name different topologies", key.name);
                return Err(Refusal::new("UnsupportedConstraint", text));
            }
            topology.required = topology.required.or(level);
        }
        Ok((topology, if have_common_port(pods) { Spread::Apart } else { said.spread }))
    }

    pub(super) fn on_native_group(&mut self, group: NativeGroupSeen) {
        let key = group.key.clone();
        self.touch_native(&key);
        self.native.insert(key.clone(), group);
        // Pods that came before their group waited together; those that run stay what they are.
        let waiting = self.by_key.get(&GroupKey::Native(key.clone())).copied();
        let waiting = waiting.filter(|id| self.groups[id].ranks.is_empty());
        if let Some(id) = waiting.filter(|_| self.is_each_alone(&key)) {
            self.part_pods(id);
        }
    }

    /// How many Pods of a native group start together.
    pub(super) fn native_size(&self, key: &Key) -> Result<u32, Refusal> {
        let text = || format!("there is no PodGroup {} that says how many Pods start together", key.name);
        let group = self.native.get(key).ok_or_else(|| Refusal::new("NoGroup", text()))?;
        Ok(group.min.unwrap_or(1))
    }

    fn is_each_alone(&self, key: &Key) -> bool {
        self.native.get(key).is_some_and(|native| native.min.is_none() && native.refusal.is_none())
    }

    /// With whom a Pod of a native group starts: with nobody, where the group says so.
    pub(super) fn resolve_native(&self, namespace: &Text, member: &mut Member) {
        let Member::Native { name } = member else { return };
        let key = Key { namespace: namespace.clone(), name: name.clone() };
        if self.is_each_alone(&key) {
            *member = Member::Alone;
        }
    }
}
