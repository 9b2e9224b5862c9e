//! Clearing: what starts left behind that came to nothing, in this process or in one before it.

use super::{Effect, EvictOrder, World, groups::GroupKey, rank::Rank};
use crate::seen::{
    Key, Text,
    pod::{Member, PodGpus, PodSeen},
};
use berth_types::{Span, WorkloadId};

/// How long a Pod that was made may stay unseen before it is asked for.
pub(super) const UNSEEN: Span = Span::secs(20);

impl World {
    /// Pods of a Workload that are no part of its present run go: their node came back, or whoever made them did not live to
    /// bind them.
    pub(super) fn clear_strays(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        if !matches!(group.key, GroupKey::Workload(_)) {
            return;
        }
        let in_run = group.in_run();
        let is_stray = |pod: &PodSeen| match pod.member {
            _ if pod.leaving || pod.is_over() || in_run.contains(&pod.uid) => false,
            Member::Workload { run, .. } => run < group.run || (pod.node.is_none() && !group.starting),
            _ => false,
        };
        let strays = group.pods.iter().filter_map(|uid| self.pods.get(uid)).filter(|pod| is_stray(pod));
        let strays: Vec<_> = strays.filter(|pod| !group.cleared.contains(&pod.uid)).cloned().collect();
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        for pod in strays {
            let (key, uid) = (pod.key.clone(), pod.uid.clone());
            group.cleared.insert(uid.clone());
            let order = EvictOrder { workload: id, pod: key, uid, grace: pod.grace, politely: false };
            self.effects.push(Effect::Evict(order));
        }
    }

    /// Devices that claims of waiting Pods still have, because a start came to nothing, are given back: nobody else could have
    /// them.
    pub(super) fn release_claims(&mut self, id: WorkloadId) {
        let group = &self.groups[&id];
        if group.starting || matches!(group.key, GroupKey::Workload(_)) {
            return;
        }
        let in_run = group.in_run();
        let mut orders = Vec::new();
        for pod in group.pods.iter().filter_map(|uid| self.pods.get(uid)) {
            let PodGpus::Claimed(key) = &pod.gpus else { continue };
            let Some(claim) = self.claims.get(key).filter(|claim| claim.taken.is_some()) else { continue };
            let is_waiting = pod.ours && pod.node.is_none() && !pod.is_over() && !in_run.contains(&pod.uid);
            let in_use =
                |user: &&Text| **user != pod.uid && self.pods.get(*user).is_some_and(|one| !one.is_over());
            if is_waiting
                && !claim.users.iter().any(|user| in_use(&user))
                && !group.cleared.contains(&claim.version)
            {
                orders.push((
                    claim.version.clone(),
                    Effect::Release {
                        workload: id,
                        pod: pod.key.clone(),
                        uid: pod.uid.clone(),
                        claim: key.clone(),
                        claim_uid: claim.uid.clone(),
                    },
                ));
            }
        }
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        for (version, order) in orders {
            group.cleared.insert(version);
            group.releasing += 1;
            self.effects.push(order);
        }
    }

    /// Of a start that failed it may not be known what it gave to a claim.
    pub(super) fn release_claim(&mut self, id: WorkloadId, pod: &Text) {
        let Some(pod) = self.pods.get(pod).filter(|pod| pod.node.is_none()) else { return };
        let PodGpus::Claimed(key) = &pod.gpus else { return };
        let Some(claim) = self.claims.get(key) else { return };
        self.groups.get_mut(&id).expect("a group that is looked at").releasing += 1;
        self.effects.push(Effect::Release {
            workload: id,
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            claim: key.clone(),
            claim_uid: claim.uid.clone(),
        });
    }

    pub(super) fn on_released(&mut self, id: WorkloadId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.releasing = group.releasing.saturating_sub(1);
            self.dirty.insert(id);
        }
    }

    /// A Pod that was made and went while its watch was interrupted was never seen, and never will be: it is asked for.
    pub(super) fn seek_unseen(&mut self, id: WorkloadId) {
        let now = self.now;
        let group = self.groups.get_mut(&id).expect("a group that is looked at");
        let Some(at) = group.seek_at.filter(|at| *at <= now && !group.starting) else { return };
        group.seek_at = None;
        let Some(workload) = group.workload.as_ref() else { return };
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let unseen = group.ranks.iter().filter(|(_, rank)| rank.is_unseen());
        for (rank, Rank { turn, .. }) in unseen {
            let pod = Key::new(&group.namespace, &crate::pods::pod_name(name, group.run, *rank, *turn));
            self.effects.push(Effect::Seek { workload: id, run: group.run, rank: *rank, pod });
            group.seek_at = Some(at.max(now) + UNSEEN);
        }
        self.due.extend(group.seek_at.map(|at| (at, id)));
    }

    pub(super) fn on_no_pod(&mut self, id: WorkloadId, run: u32, rank: u32) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.run == run) else { return };
        if let Some(rank) = group.ranks.get_mut(&rank).filter(|rank| rank.pod.is_none()) {
            rank.gone = true;
            self.dirty.insert(id);
        }
    }
}
