//! Persistent volumes: which nodes can reach them, and whether they are there yet.

use super::{
    Key, Text,
    objects::{
        Expression, LabelSelector, NodeTerm, NodeTerms, StorageClassObject, Texts, VolumeClaimObject,
        VolumeObject,
    },
    pod::time,
};
use crate::quantity;
use berth_types::Time;
use std::collections::BTreeSet;

/// Annotation of a claim whose volume is made for the node it names.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a claim that has its volume for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// What stands for a provisioner where volumes are made by hand.
const BY_HAND: &str = "kubernetes.io/no-provisioner";
/// Labels by which older volumes say where they are, the values of several places in one text.
const PLACES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const BETWEEN_PLACES: &str = "__";

/// A claim of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeClaimSeen {
    pub(crate) key: Key,
    pub(crate) uid: Text,
    pub(crate) created: Time,
    /// The volume it has.
    pub(crate) volume: Option<Text>,
    /// Its volume is gone.
    pub(crate) lost: bool,
    pub(crate) class: Option<Text>,
    /// The node that its volume is being made for.
    pub(crate) selected: Option<Text>,
    /// One Pod at a time may use it.
    pub(crate) alone: bool,
    pub(crate) leaving: bool,
    /// What its volume must be, while it has none.
    pub(crate) wants: Option<Box<Wants>>,
}

/// What a claim wants of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wants {
    bytes: u64,
    modes: BTreeSet<String>,
    block: bool,
    selector: LabelSelector,
}

/// A volume that was made by hand and is nobody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) class: Text,
    pub(crate) bytes: u64,
    pub(crate) version: Text,
    modes: BTreeSet<String>,
    block: bool,
    labels: Texts,
}

impl Offer {
    /// Whether it is what a claim wants.
    pub(crate) fn suits(&self, wants: &Wants) -> bool {
        self.bytes >= wants.bytes
            && self.block == wants.block
            && self.modes.is_superset(&wants.modes)
            && wants.selector.selects(&self.labels)
    }
}

fn is_block(mode: Option<&String>) -> bool {
    mode.is_some_and(|mode| mode == "Block")
}

fn storage(amounts: &Texts) -> Option<u64> {
    amounts.get("storage").and_then(|text| quantity::bytes(text).ok()).map(|bytes| bytes.0)
}

impl VolumeClaimSeen {
    pub(crate) fn of(claim: VolumeClaimObject) -> Self {
        let VolumeClaimObject { metadata: meta, spec, status } = claim;
        let bound = status.phase == "Bound" || meta.annotations.contains_key(BIND_COMPLETED);
        let text = |text: &str| Some(Text::from(text)).filter(|text| !text.is_empty());
        let volume = text(&spec.volume_name).filter(|_| bound);
        let wants = || Wants {
            bytes: storage(&spec.resources.requests).unwrap_or(u64::MAX),
            modes: spec.access_modes.iter().cloned().collect(),
            block: is_block(spec.volume_mode.as_ref()),
            selector: spec.selector.clone(),
        };
        Self {
            wants: volume.is_none().then(|| Box::new(wants())),
            key: Key::new(&meta.namespace, &meta.name),
            uid: meta.uid.as_str().into(),
            created: time(meta.creation_timestamp),
            volume,
            lost: status.phase == "Lost",
            class: text(spec.storage_class_name.as_deref().unwrap_or_default()),
            selected: text(meta.annotations.get(SELECTED_NODE).map_or("", String::as_str)),
            alone: spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod"),
            leaving: meta.deletion_timestamp.is_some(),
        }
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeSeen {
    pub(crate) name: Text,
    /// The claim that has it.
    pub(crate) claim: Option<Key>,
    /// Which nodes can reach it: all of these hold.
    pub(crate) nodes: Vec<NodeTerms>,
    /// It is free to be chosen.
    pub(crate) offer: Option<Box<Offer>>,
}

impl VolumeSeen {
    pub(crate) fn of(volume: VolumeObject) -> Self {
        let VolumeObject { metadata: meta, spec, status } = volume;
        let free =
            status.phase == "Available" && spec.claim_ref.is_none() && meta.deletion_timestamp.is_none();
        let offer = || Offer {
            class: spec.storage_class_name.as_str().into(),
            bytes: storage(&spec.capacity).unwrap_or(0),
            version: meta.resource_version.as_str().into(),
            modes: spec.access_modes.iter().cloned().collect(),
            block: is_block(spec.volume_mode.as_ref()),
            labels: meta.labels.clone(),
        };
        let offer = free.then(|| Box::new(offer()));
        let places = PLACES.iter().filter_map(|key| {
            let values = meta.labels.get(*key)?.split(BETWEEN_PLACES).map(ToOwned::to_owned).collect();
            Some(among((*key).to_owned(), values))
        });
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        Self {
            name: meta.name.as_str().into(),
            offer,
            claim: spec.claim_ref.map(|claim| Key::new(&claim.namespace, &claim.name)),
            nodes: places.map(|place| only(vec![place])).chain(required).collect(),
        }
    }
}

/// A class of volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageClassSeen {
    pub(crate) name: Text,
    /// A volume is bound only when a node is chosen for the first Pod that uses it.
    pub(crate) waits: bool,
    /// Somebody makes volumes of this class.
    pub(crate) is_made: bool,
    /// Which nodes can reach volumes that are made.
    pub(crate) nodes: Option<NodeTerms>,
}

impl StorageClassSeen {
    pub(crate) fn of(class: StorageClassObject) -> Self {
        let term = |topology: super::objects::StorageTopology| NodeTerm {
            match_expressions: topology
                .match_label_expressions
                .into_iter()
                .map(|label| among(label.key, label.values))
                .collect(),
            match_fields: Vec::new(),
        };
        let terms: Vec<NodeTerm> = class.allowed_topologies.into_iter().map(term).collect();
        Self {
            name: class.metadata.name.as_str().into(),
            waits: class.volume_binding_mode == "WaitForFirstConsumer",
            is_made: class.provisioner != BY_HAND,
            nodes: (!terms.is_empty()).then_some(NodeTerms { node_selector_terms: terms }),
        }
    }
}

/// One node by its name.
pub(crate) fn only_node(name: &str) -> NodeTerms {
    let named = among("metadata.name".into(), vec![name.to_owned()]);
    NodeTerms {
        node_selector_terms: vec![NodeTerm { match_expressions: Vec::new(), match_fields: vec![named] }],
    }
}

fn among(key: String, values: Vec<String>) -> Expression {
    Expression { key, operator: "In".into(), values }
}

fn only(expressions: Vec<Expression>) -> NodeTerms {
    NodeTerms {
        node_selector_terms: vec![NodeTerm { match_expressions: expressions, match_fields: Vec::new() }],
    }
}
