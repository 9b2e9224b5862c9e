//! Volumes: a Pod goes where its volumes can be reached, and waits for those that are not there.
//!
//! ```text
//! claim with a volume        --> nodes that reach the volume
//! claim that waits for a Pod --> any node of its class; the start has the volume made for the node that was chosen
//! the same, made by hand     --> nodes that reach one that is free; the start gives it the smallest of those
//! any other claim            --> the Pod waits, and says for which
//! ```

use super::{World, ports::ports_of};
use crate::{
    api, guard,
    seen::{
        Key, Refusal, Text,
        nodes_for::{NodeTraits, NodesFor, all_accept},
        objects::{NodeTerm, NodeTerms, Texts, Toleration},
        pod::PodSeen,
        volume::{Offer, StorageClassSeen, VolumeClaimSeen, VolumeSeen, only_node},
    },
};
use berth_types::{Time, WorkloadId};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Volumes, and who uses them.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    claims: HashMap<Key, VolumeClaimSeen>,
    volumes: HashMap<Text, VolumeSeen>,
    classes: HashMap<Text, StorageClassSeen>,
    /// Groups that use a claim, by the Pod or the Workload that names it.
    users: HashMap<Key, BTreeMap<Text, WorkloadId>>,
}

/// A claim whose volume is made when a node is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnboundVolume {
    pub(crate) claim: Key,
    pub(crate) uid: Text,
    /// Volumes that were made by hand, with their versions, of which it gets the first that is still free; none where one is
    /// made for it.
    pub(crate) choice: Option<Vec<(Text, Text)>>,
}

/// Terms of which one holds where all of these do.
fn both(all: &[NodeTerms]) -> Vec<NodeTerm> {
    let with = |known: Vec<NodeTerm>, more: &NodeTerms| {
        let pairs = known.iter().flat_map(|one| more.node_selector_terms.iter().map(move |two| (one, two)));
        let joined = pairs.map(|(one, two)| NodeTerm {
            match_expressions: [one.match_expressions.as_slice(), &two.match_expressions].concat(),
            match_fields: [one.match_fields.as_slice(), &two.match_fields].concat(),
        });
        joined.collect()
    };
    all.iter().fold(vec![NodeTerm::default()], with)
}

/// Claims of volumes that the Pods of a Workload use.
pub(super) fn claims_of(workload: &api::Workload) -> Vec<Text> {
    let named = workload.spec.volumes.iter().filter_map(|volume| volume.claim.as_deref());
    let template = guard::template(workload).ok().flatten().and_then(|template| template.0.spec);
    let volumes = template.and_then(|spec| spec.volumes).unwrap_or_default();
    let templates = volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    named.chain(templates.map(|claim| claim.claim_name.as_str())).map(Into::into).collect()
}

impl Volumes {
    /// What one claim demands of the node of a Pod.
    fn demand(&self, key: &Key, nodes: impl Fn(&str) -> bool) -> Result<Vec<NodeTerms>, Refusal> {
        let name = &key.name;
        let claim = self.claims.get(key).ok_or_else(|| {
            let text = format!("there is no PersistentVolumeClaim {name} in namespace {}", key.namespace);
            Refusal::new("VolumeClaimMissing", text)
        })?;
        if claim.leaving {
            let text = format!("PersistentVolumeClaim {name} is being deleted");
            return Err(Refusal::new("VolumeClaimLeaving", text));
        }
        if claim.lost {
            let text = format!("PersistentVolumeClaim {name} has lost its volume");
            return Err(Refusal::new("VolumeLost", text));
        }
        if let Some(volume) = &claim.volume {
            let found = self.volumes.get(volume).ok_or_else(|| {
                let text = format!("there is no PersistentVolume {volume}, which claim {name} has");
                Refusal::new("VolumeMissing", text)
            })?;
            return Ok(found.nodes.clone());
        }
        let class = claim.class.as_ref().and_then(|class| self.classes.get(class));
        let Some(class) = class.filter(|class| class.waits) else {
            let class = claim.class.as_deref().unwrap_or("none");
            let text = format!(
                "PersistentVolumeClaim {name} has no volume yet (storage class {class}): `kubectl describe pvc {name}` says why"
            );
            return Err(Refusal::new("VolumeUnbound", text));
        };
        if !class.is_made {
            return self.offered(claim, class);
        }
        // A volume that is being made is made for this node, unless the node is gone.
        let selected = claim.selected.as_deref().filter(|node| nodes(node)).map(only_node);
        Ok(class.nodes.clone().into_iter().chain(selected).collect())
    }

    /// Nodes that reach any of the volumes, made by hand, that a claim could have.
    fn offered(&self, claim: &VolumeClaimSeen, class: &StorageClassSeen) -> Result<Vec<NodeTerms>, Refusal> {
        let mut offers = self.offers(claim).peekable();
        if offers.peek().is_none() {
            let text = format!(
                "no volume of class {} is free that is what PersistentVolumeClaim {} asks for; they are made by hand",
                class.name, claim.key.name
            );
            return Err(Refusal::new("NoVolume", text));
        }
        let mut any = BTreeSet::new();
        for (volume, _) in offers {
            if volume.nodes.is_empty() {
                return Ok(class.nodes.clone().into_iter().collect());
            }
            any.extend(both(&volume.nodes));
        }
        let any = NodeTerms { node_selector_terms: any.into_iter().collect() };
        Ok(class.nodes.clone().into_iter().chain([any]).collect())
    }

    /// Volumes made by hand that a claim could have.
    fn offers<'a>(&'a self, claim: &'a VolumeClaimSeen) -> impl Iterator<Item = (&'a VolumeSeen, &'a Offer)> {
        let offers = self.volumes.values().filter_map(|volume| Some((volume, volume.offer.as_deref()?)));
        offers.filter(|(_, offer)| {
            claim.class.as_ref() == Some(&offer.class)
                && claim.wants.as_ref().is_some_and(|wants| offer.suits(wants))
        })
    }

    /// Claims that are to stay.
    pub(crate) fn all_claims(&self) -> impl Iterator<Item = (&str, &str, Time)> {
        let stay = self.claims.iter().filter(|(_, claim)| !claim.leaving);
        stay.map(|(key, claim)| (&*key.namespace, &*key.name, claim.created))
    }

    /// A claim without a volume, and what it could have on a node: the smallest first.
    fn is_unbound(&self, key: &Key, node: &NodeTraits) -> Option<UnboundVolume> {
        let claim = self.claims.get(key).filter(|claim| claim.volume.is_none())?;
        let class = claim.class.as_ref().and_then(|class| self.classes.get(class));
        let by_hand = class.is_some_and(|class| !class.is_made);
        let choice = by_hand.then(|| {
            let here = self.offers(claim).filter(|(volume, _)| all_accept(volume.nodes.iter(), node));
            let mut here: Vec<_> = here.collect();
            here.sort_by_key(|(volume, offer)| (offer.bytes, &volume.name));
            let offered =
                |(volume, offer): (&VolumeSeen, &Offer)| (volume.name.clone(), offer.version.clone());
            here.into_iter().map(offered).collect()
        });
        Some(UnboundVolume { claim: key.clone(), uid: claim.uid.clone(), choice })
    }
}

impl World {
    pub(super) fn on_volume_claim(&mut self, claim: VolumeClaimSeen) {
        let key = claim.key.clone();
        if self.volumes.claims.insert(key.clone(), claim.clone()).as_ref() != Some(&claim) {
            self.touch_volume(&key);
        }
    }

    pub(super) fn on_volume_claim_gone(&mut self, key: &Key) {
        self.volumes.claims.remove(key);
        self.touch_volume(key);
    }

    pub(super) fn on_volume(&mut self, volume: VolumeSeen) {
        let (claim, offer) = (volume.claim.clone(), volume.offer.clone());
        let before = self.volumes.volumes.insert(volume.name.clone(), volume.clone());
        if before.as_ref() != Some(&volume) {
            claim.iter().for_each(|claim| self.touch_volume(claim));
            let offers = offer.into_iter().chain(before.and_then(|before| before.offer));
            offers.for_each(|offer| self.touch_class(&offer.class));
        }
    }

    pub(super) fn on_volume_gone(&mut self, name: &Text) {
        let Some(volume) = self.volumes.volumes.remove(name) else { return };
        volume.claim.iter().for_each(|claim| self.touch_volume(claim));
        volume.offer.iter().for_each(|offer| self.touch_class(&offer.class));
    }

    pub(super) fn on_storage_class(&mut self, class: StorageClassSeen) {
        let name = class.name.clone();
        if self.volumes.classes.insert(name.clone(), class.clone()).as_ref() != Some(&class) {
            self.touch_class(&name);
        }
    }

    pub(super) fn on_storage_class_gone(&mut self, name: &Text) {
        self.volumes.classes.remove(name);
        self.touch_class(name);
    }

    fn touch_volume(&mut self, claim: &Key) {
        self.dirty.extend(self.volumes.users.get(claim).into_iter().flat_map(|users| users.values()));
    }

    fn touch_class(&mut self, name: &Text) {
        let of_class = |claim: &Key| {
            let claim = self.volumes.claims.get(claim);
            claim.is_some_and(|claim| claim.volume.is_none() && claim.class.as_ref() == Some(name))
        };
        let users = self.volumes.users.iter().filter(|(claim, _)| of_class(claim));
        self.dirty.extend(users.flat_map(|(_, users)| users.values().copied()));
    }

    /// A group uses claims, by a Pod or by a Workload.
    pub(super) fn use_volumes(&mut self, namespace: &Text, claims: &[Text], user: &Text, id: WorkloadId) {
        for name in claims {
            let claim = Key { namespace: namespace.clone(), name: name.clone() };
            self.volumes.users.entry(claim).or_default().insert(user.clone(), id);
        }
    }

    pub(super) fn leave_volumes(&mut self, namespace: &Text, claims: &[Text], user: &Text) {
        for name in claims {
            let claim = Key { namespace: namespace.clone(), name: name.clone() };
            let Some(users) = self.volumes.users.get_mut(&claim) else { continue };
            users.remove(user);
            let others: Vec<WorkloadId> = users.values().copied().collect();
            if others.is_empty() {
                self.volumes.users.remove(&claim);
            }
            // Who may not share it with this one may have it now.
            if self.volumes.claims.get(&claim).is_some_and(|claim| claim.alone) {
                self.dirty.extend(others);
            }
        }
    }

    /// What claims demand of the node of a Pod, and why it waits if it does.
    fn volumes_for(&self, namespace: &Text, claims: &[Text], user: &Text) -> Result<Vec<NodeTerms>, Refusal> {
        let mut demands = Vec::new();
        for name in claims {
            let key = Key { namespace: namespace.clone(), name: name.clone() };
            demands.extend(self.volumes.demand(&key, |node| self.nodes.contains_key(node))?);
            if self.volumes.claims.get(&key).is_some_and(|claim| claim.alone) {
                self.unshared(&key, user)?;
            }
        }
        Ok(demands)
    }

    /// Whether nobody else has a volume that one Pod at a time may use.
    fn unshared(&self, claim: &Key, user: &Text) -> Result<(), Refusal> {
        let users = self.volumes.users.get(claim).into_iter().flat_map(|users| users.keys());
        let mut others = users.filter(|other| *other != user).filter_map(|other| self.pods.get(other));
        match others.find(|other| other.node.is_some() && !other.is_over()) {
            None => Ok(()),
            Some(other) => Err(Refusal::new(
                "VolumeInUse",
                format!(
                    "PersistentVolumeClaim {} is for one Pod at a time, and Pod {} has it",
                    claim.name, other.key.name
                ),
            )),
        }
    }

    /// Which nodes the Pods of a group may use.
    pub(super) fn nodes_for_pods(
        &self,
        pods: &[Arc<PodSeen>],
        bound: bool,
    ) -> Result<Arc<NodesFor>, Refusal> {
        let mut all: Option<Arc<NodesFor>> = None;
        for pod in pods {
            let volumes = match self.volumes_for(&pod.key.namespace, &pod.volumes, &pod.uid) {
                // What is on a node has its volumes, whatever became of them; whoever looks on does not follow them.
                _ if pod.volumes.is_empty() || self.looks_on => Vec::new(),
                Err(_) if bound => Vec::new(),
                volumes => volumes?,
            };
            let own = match volumes.is_empty() {
                true => Arc::clone(&pod.nodes_for),
                false => Arc::new(pod.nodes_for.with_volumes(volumes)),
            };
            match &all {
                None => all = Some(own),
                Some(known) if *known == own => {}
                Some(_) if bound => {}
                Some(_) => {
                    return Err(Refusal::new(
                        "MixedGroup",
                        "its Pods demand different nodes, by themselves or by their volumes; those that start together must demand the same",
                    ));
                }
            }
        }
        Ok(all.unwrap_or_default())
    }

    /// What the Pods of a Workload demand of a node besides its labels: that they tolerate its taints and reach their volumes.
    pub(super) fn nodes_for_workload(
        &self,
        workload: &api::Workload,
        bound: bool,
    ) -> Result<Arc<NodesFor>, Refusal> {
        let claims = claims_of(workload);
        let meta = &workload.metadata;
        let (namespace, uid) = (meta.namespace.as_deref(), meta.uid.as_deref());
        let volumes =
            self.volumes_for(&namespace.unwrap_or_default().into(), &claims, &uid.unwrap_or_default().into());
        let volumes = match volumes {
            _ if self.looks_on => Vec::new(),
            Err(_) if bound => Vec::new(),
            volumes => volumes?,
        };
        Ok(Arc::new(tolerated(workload)?.with_ports(&ports_of(workload)).with_volumes(volumes)))
    }

    /// Claims whose volumes are to be made when a Pod that uses them has its node.
    pub(super) fn unbound_volumes(
        &self,
        namespace: &Text,
        claims: &[Text],
        node: &str,
    ) -> Vec<UnboundVolume> {
        let Some(node) = self.traits_of(node).filter(|_| !claims.is_empty()) else { return Vec::new() };
        let key = |name: &Text| Key { namespace: namespace.clone(), name: name.clone() };
        claims.iter().filter_map(|name| self.volumes.is_unbound(&key(name), node)).collect()
    }
}

/// What the Pods of a Workload tolerate.
fn tolerated(workload: &api::Workload) -> Result<NodesFor, Refusal> {
    let template = guard::template(workload)?.and_then(|template| template.0.spec).unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_default();
    let tolerations: Vec<Toleration> = template
        .tolerations
        .unwrap_or_default()
        .into_iter()
        .map(|one| Toleration {
            key: text(one.key),
            operator: text(one.operator),
            value: text(one.value),
            effect: text(one.effect),
        })
        .collect();
    Ok(NodesFor::new(&Texts::new(), None, &tolerations, 0))
}
