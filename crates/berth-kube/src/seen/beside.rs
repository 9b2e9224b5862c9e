//! How a Pod wants to be placed beside those it starts with: what its affinity to other Pods and its spread constraints come to
//! where they speak of its own group, and nobody else. What must hold towards others cannot be honoured, and is refused.

use super::{
    objects::{Expression, LabelSelector, Meta, PodAffinity, PodSpec, PodTerm, SpreadConstraint},
    pod::Member,
};
use crate::names;
use berth_types::{Spread, TopologyLevel};
use std::collections::BTreeSet;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Labels that all Pods of a group have, and no other Pod of the namespace: those that name the group, and those by which a
/// Job names its Pods.
const OF_A_GROUP: [&str; 6] = [
    names::GROUP_NAME,
    "pod-group.scheduling.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
];

/// What a Pod wishes of those it starts with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// All in one domain of this level, or none starts.
    pub(crate) required: Option<TopologyLevel>,
    /// All in one domain of this level, if one has room.
    pub(crate) preferred: Option<TopologyLevel>,
    pub(crate) spread: Spread,
    /// By which labels it speaks of them; Pods that speak of different ones mean different Pods.
    about: BTreeSet<(String, String)>,
}

/// The level that a label of nodes stands for.
pub(crate) fn level(label: &str) -> TopologyLevel {
    match label {
        HOSTNAME => TopologyLevel::Node,
        label => TopologyLevel::Label(label.into()),
    }
}

impl Beside {
    /// Whether something of it must hold.
    pub(crate) fn is_demanding(&self) -> bool {
        self.required.is_some() || self.spread == Spread::Apart
    }

    /// What a Pod wishes of those it starts with, if anything; or why what it demands cannot be honoured.
    pub(crate) fn of(meta: &Meta, spec: &PodSpec, member: &Member) -> Result<Option<Box<Self>>, String> {
        let affinity = spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let far = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let mut beside = Self::default();
        let own = |selector: &LabelSelector| names_own_group(selector, meta, member);
        let own_term =
            |term: &PodTerm| term.is_at_home(&meta.namespace).then(|| own(&term.label_selector)).flatten();
        for term in near.iter().flat_map(|near| &near.required) {
            let about = own_term(term).ok_or_else(|| not_its_own("affinity"))?;
            beside.about.insert(about);
            let wanted = level(&term.topology_key);
            if beside.required.replace(wanted.clone()).is_some_and(|known| known != wanted) {
                return Err(
                    "it must be near others in two ways at once; Berth knows one topology for each group"
                        .into(),
                );
            }
        }
        for term in far.iter().flat_map(|far| &far.required) {
            let about = own_term(term).ok_or_else(|| not_its_own("anti-affinity"))?;
            if term.topology_key != HOSTNAME {
                let text =
                    format!("Berth keeps Pods apart by node ({HOSTNAME}), not by {}", term.topology_key);
                return Err(text);
            }
            beside.about.insert(about);
            beside.spread = Spread::Apart;
        }
        let must = |one: &&SpreadConstraint| one.when_unsatisfiable != "ScheduleAnyway";
        if spec.topology_spread_constraints.iter().any(|one| must(&one)) {
            return Err("Berth does not know spread constraints that must hold; use ScheduleAnyway, or required anti-affinity between its own Pods".into());
        }
        beside.preferred =
            preferred(near, |term| own_term(term).is_some()).map(|term| level(&term.topology_key));
        let apart = preferred(far, |term| term.topology_key == HOSTNAME && own_term(term).is_some());
        let spread = spec.topology_spread_constraints.iter();
        let mut spread =
            spread.filter(|one| one.topology_key == HOSTNAME && own(&one.label_selector).is_some());
        if beside.spread == Spread::Pack && (apart.is_some() || spread.next().is_some()) {
            beside.spread = Spread::Spread;
        }
        Ok((beside != Self::default()).then(|| Box::new(beside)))
    }
}

/// The preference of most weight, the first of several, among those that are understood. Others are left alone.
fn preferred(of: Option<&PodAffinity>, understood: impl Fn(&PodTerm) -> bool) -> Option<&PodTerm> {
    let terms = of?.preferred.iter().filter(|one| understood(&one.pod_affinity_term));
    terms.rev().max_by_key(|one| one.weight).map(|one| &one.pod_affinity_term)
}

fn not_its_own(what: &str) -> String {
    format!(
        "Berth knows required {what} between Pods that start together: its selector must name their group, by the label {} or that of their Job",
        names::GROUP_NAME
    )
}

/// The label by which a selector names the group of a Pod that it selects; none when it may select Pods of others.
fn names_own_group(selector: &LabelSelector, meta: &Meta, member: &Member) -> Option<(String, String)> {
    let in_group = !matches!(member, Member::Alone | Member::Workload { .. });
    let one = |asked: &Expression| match (asked.operator.as_str(), asked.values.as_slice()) {
        ("In", [value]) => Some((asked.key.clone(), value.clone())),
        _ => None,
    };
    let labels = selector.match_labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let mut pinned = labels.chain(selector.match_expressions.iter().filter_map(one));
    let named = pinned.find(|(key, _)| OF_A_GROUP.contains(&key.as_str()));
    named.filter(|_| in_group && selector.selects(&meta.labels))
}

impl PodTerm {
    /// Whether it speaks of Pods in its own namespace only.
    fn is_at_home(&self, namespace: &str) -> bool {
        self.namespace_selector.is_none() && self.namespaces.iter().all(|named| named == namespace)
    }
}

#[cfg(test)]
mod tests;
