//! Makers of Pods: read when their first Pod is seen, because how many start together is said there and nowhere else.
//!
//! A maker is read once, and again only while a group of its Pods is incomplete, in case somebody changed it: what is asked
//! of the API server is bounded by who waits, not by who is there.

use super::{Effect, Seen, World, groups::GroupKey};
use crate::seen::{
    Refusal, Text,
    maker::{self, MakerKey, MakerRef, MakerSeen, Unread},
    pod::{Member, PodSeen},
};
use berth_types::{Span, Time, WorkloadId};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Between two looks at a maker.
const AGAIN: Span = Span::secs(30);

/// Makers of Pods that are there.
#[derive(Debug, Default)]
pub(crate) struct Makers(HashMap<MakerKey, Known>);

/// What is known of a maker.
#[derive(Debug, Default)]
struct Known {
    found: Option<Result<MakerSeen, Refusal>>,
    /// When it was last asked for.
    asked: Option<Time>,
    /// It is being read.
    reading: bool,
    /// Groups of its Pods.
    groups: BTreeSet<WorkloadId>,
}

impl Makers {
    fn found(&self, maker: &MakerKey) -> Option<&Result<MakerSeen, Refusal>> {
        self.0.get(maker)?.found.as_ref()
    }
}

/// Makers of Pods that wait or run, so that they can be read before anything is decided.
pub(crate) fn makers_of(seen: &[Seen]) -> BTreeSet<MakerKey> {
    let made = |seen: &Seen| match seen {
        Seen::Pod(pod) if pod.ours && !pod.is_over() => match &pod.member {
            Member::Made(made) => Some(made.maker.clone()),
            _ => None,
        },
        _ => None,
    };
    seen.iter().filter_map(made).collect()
}

impl World {
    /// Says with which part of its maker's Pods a Pod starts, if that is known.
    pub(super) fn resolve(&self, namespace: &Text, member: &mut Member) {
        self.resolve_native(namespace, member);
        let Member::Made(made) = member else { return };
        made.part = match self.makers.found(&made.maker) {
            Some(Ok(seen)) => match seen.part_of(&made.role) {
                Some(part) => Some(part.clone()),
                None => {
                    *member = Member::Alone;
                    return;
                }
            },
            // What a Pod says of itself is enough where its maker says nothing.
            Some(Err(_)) if made.size.is_some() => Some(maker::whole()),
            // Whoever looks on takes what is there for what starts together.
            _ if self.looks_on => Some(maker::whole()),
            _ => None,
        };
    }

    pub(super) fn join_maker(&mut self, key: &GroupKey, id: WorkloadId) {
        if let GroupKey::Unread(maker) | GroupKey::Made { maker, .. } = key {
            self.makers.0.entry(maker.clone()).or_default().groups.insert(id);
        }
    }

    /// Whoever has no Pods any more is forgotten: another of its name may be something else.
    pub(super) fn leave_maker(&mut self, key: &GroupKey, id: WorkloadId) {
        let (GroupKey::Unread(maker) | GroupKey::Made { maker, .. }) = key else { return };
        let Some(known) = self.makers.0.get_mut(maker) else { return };
        known.groups.remove(&id);
        // What is being read is wanted by somebody.
        if known.groups.is_empty() && !known.reading {
            self.makers.0.remove(maker);
        }
    }

    /// How many of a group start together, by whoever made it.
    pub(super) fn size_by_maker(&mut self, id: WorkloadId, there: u32) -> Result<u32, Refusal> {
        match self.groups[&id].key.clone() {
            GroupKey::Unread(maker) => {
                self.read_maker(&maker, id);
                match self.makers.found(&maker) {
                    Some(Err(refusal)) => Err(refusal.clone()),
                    _ => Err(maker::unread(&maker, Unread::Yet)),
                }
            }
            GroupKey::Made { maker, part, .. } => {
                let told = self.groups[&id].pods.iter().filter_map(|uid| match &self.pods.get(uid)?.member {
                    Member::Made(made) => made.size,
                    _ => None,
                });
                let size = match self.makers.found(&maker) {
                    Some(Ok(seen)) => seen.size_of(&part),
                    _ => told.max().or(Some(there)),
                };
                let size = size.unwrap_or(1).max(1);
                if there < size {
                    self.read_maker(&maker, id);
                }
                Ok(size)
            }
            _ => Ok(1),
        }
    }

    /// Reads a maker, unless that was done a moment ago; then the group that asks is looked at again when it is time.
    fn read_maker(&mut self, maker: &MakerKey, id: WorkloadId) {
        if self.looks_on {
            return;
        }
        let now = self.now;
        let known = self.makers.0.entry(maker.clone()).or_default();
        match known.asked.map(|asked| asked + AGAIN).filter(|again| *again > now) {
            _ if known.reading => {}
            Some(again) => drop(self.due.insert((again, id))),
            None => {
                (known.asked, known.reading) = (Some(now), true);
                self.effects.push(Effect::Read(maker.clone()));
            }
        }
    }

    /// A maker was read, or could not be.
    pub(super) fn on_maker(&mut self, maker: MakerKey, found: Result<MakerSeen, Refusal>) {
        let now = self.now;
        let known = self.makers.0.entry(maker.clone()).or_default();
        known.asked.get_or_insert(now);
        // What was known stays known while it cannot be read.
        if !matches!((&known.found, &found), (Some(Ok(_)), Err(_))) {
            known.found = Some(found);
        }
        // Its groups are looked at also when nothing changed, because one that is incomplete asks again later.
        self.dirty.extend(known.groups.iter().copied());
        if let Some(id) = self.by_key.get(&GroupKey::Unread(maker.clone())).copied() {
            self.part_group(id);
        }
        let Some(known) = self.makers.0.get_mut(&maker) else { return };
        known.reading = false;
        // On the first look makers come before their Pods.
        if known.groups.is_empty() && known.asked.is_some_and(|asked| asked < now) {
            self.makers.0.remove(&maker);
        }
    }

    /// Pods whose maker was unread go to the groups they belong to. None of them was started, so nothing is under way.
    fn part_group(&mut self, id: WorkloadId) {
        let pods: Vec<Arc<PodSeen>> =
            self.groups[&id].pods.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        let is_parted = |pod: &Arc<PodSeen>| {
            let mut member = pod.member.clone();
            self.resolve(&pod.key.namespace, &mut member);
            !matches!(&member, Member::Made(made) if made.part.is_none())
        };
        if pods.iter().all(is_parted) {
            self.part_pods(id);
        }
    }

    /// Pods that waited to hear with whom they start go to the groups they belong to.
    pub(super) fn part_pods(&mut self, id: WorkloadId) {
        let mut pods: Vec<Arc<PodSeen>> =
            self.groups[&id].pods.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        self.forget_in_engine(id);
        self.drop_group(id);
        pods.sort_by(|one, other| (one.created, &one.key).cmp(&(other.created, &other.key)));
        for pod in pods {
            let mut pod = PodSeen::clone(&pod);
            self.resolve(&pod.key.namespace.clone(), &mut pod.member);
            self.pods.insert(pod.uid.clone(), Arc::new(pod.clone()));
            self.join_group(&pod);
        }
    }
}

/// The group of a Pod by its maker.
pub(super) fn group_key(made: &MakerRef) -> GroupKey {
    match &made.part {
        None => GroupKey::Unread(made.maker.clone()),
        Some(part) => {
            GroupKey::Made { maker: made.maker.clone(), instance: made.instance.clone(), part: part.clone() }
        }
    }
}

/// What a group by its maker is called.
pub(super) fn group_name(maker: &MakerKey, instance: &Text) -> String {
    match &**instance {
        "" => maker.key.to_string(),
        instance => format!("{}-{instance}", maker.key),
    }
}
