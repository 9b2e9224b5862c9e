//! Labels of nodes that people set.

use super::{Happened, Platform};
use berth_api::{Code, LABEL_RULE, NodeLabels, Problem, quoted};
use berth_types::{Name, Node, POOL_LABEL, Time};
use std::collections::BTreeMap;

/// Labels of one node.
const LABELS_MAX: usize = 100;
/// Keys that Berth gives a meaning; of these, people set the pool alone.
const RESERVED: &str = "berth/";

impl Platform {
    /// Changes the labels of a node, all of them or none. Work that runs on the node stays, also when it could not be placed there
    /// again.
    pub(crate) fn label_node(&mut self, name: &str, change: &NodeLabels, now: Time) -> Result<(), Problem> {
        let id = self.known_node(name)?;
        let known = &self.engine.nodes()[&id];
        check(change)?;
        let mut node = known.clone();
        let mut by_hand = self.node_labels.get(name).cloned().unwrap_or_default();
        for (key, value) in &change.set {
            let (key, value) = (Name::from(key.as_str()), Name::from(value.as_str()));
            if let Some(old) = node.labels.get(&key).filter(|old| **old != value && !change.overwrite) {
                let text = format!("node {name} has the label {key}={old} already");
                return Err(Problem::new(Code::Exists, text).hint("--overwrite gives it another value"));
            }
            node.labels.insert(key.clone(), value.clone());
            by_hand.insert(key, Some(value));
        }
        for key in &change.remove {
            let key = Name::from(key.as_str());
            node.labels.remove(&key);
            by_hand.insert(key, None);
        }
        if node.labels.len() > LABELS_MAX || by_hand.len() > 2 * LABELS_MAX {
            return Err(Problem::invalid("set", format!("a node has at most {LABELS_MAX} labels")));
        }
        let is_used = || {
            let mut places = self.engine.workloads().flat_map(|one| one.places().chain(one.leaving()));
            places.any(|place| place.node == id)
        };
        if node.pool() != known.pool() && is_used() {
            let text = format!("node {name} has work on it, so it cannot go to another pool");
            return Err(Problem::new(Code::InUse, text).hint(format!(
                "`berth node drain {name}` empties it; `berth node uncordon {name}` opens it afterwards"
            )));
        }
        if node == *known && self.node_labels.get(name).cloned().unwrap_or_default() == by_hand {
            return Ok(());
        }
        self.happen(Happened::NodeLabels { node, labels: by_hand }, now)
    }

    /// Adds to a node that a start declares what people said about its labels.
    pub(super) fn label_by_hand(&self, node: &mut Node) {
        for (key, value) in self.node_labels.get(&node.name).into_iter().flatten() {
            match value {
                Some(value) => node.labels.insert(key.clone(), value.clone()),
                None => node.labels.remove(key),
            };
        }
    }
}

fn check(change: &NodeLabels) -> Result<(), Problem> {
    if change.set.is_empty() && change.remove.is_empty() {
        return Err(Problem::invalid("set", "no label is named")
            .hint("write KEY=VALUE to set one, KEY- to remove one"));
    }
    for key in change.set.keys().chain(&change.remove) {
        if !berth_api::is_label_key(key) {
            return Err(Problem::invalid("set", format!("{} is not the key of a label", quoted(key)))
                .hint(LABEL_RULE));
        }
        if key.starts_with(RESERVED) && key != POOL_LABEL {
            let text = format!("{key} cannot be changed: labels that begin with {RESERVED} are Berth's own");
            return Err(Problem::invalid("set", text).hint(format!("{POOL_LABEL} names the pool of a node")));
        }
    }
    if let Some(value) = change.set.values().find(|value| !berth_api::is_label_value(value)) {
        return Err(Problem::invalid("set", format!("{} is not the value of a label", quoted(value)))
            .hint(LABEL_RULE));
    }
    if let Some(pool) = change.set.get(POOL_LABEL).filter(|pool| !berth_api::is_name(pool)) {
        return Err(Problem::invalid("set", format!("{} is not the name of a pool", quoted(pool)))
            .hint(berth_api::NAME_RULE));
    }
    match change.remove.iter().find(|key| change.set.contains_key(*key)) {
        Some(both) => Err(Problem::invalid("remove", format!("{both} is both set and removed"))),
        None => Ok(()),
    }
}

/// What is said about the labels of a node.
pub(super) fn told(node: &Node) -> String {
    let labels: BTreeMap<_, _> = node.labels.iter().collect();
    let labels: Vec<String> = labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    match labels.is_empty() {
        true => "has no labels".into(),
        false => format!("has the labels {}", labels.join(", ")),
    }
}
