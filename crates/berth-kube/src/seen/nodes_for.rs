//! Which nodes a Pod may use: selectors, affinity, tolerations, and what a node must have of things nobody shares.

use super::objects::{Expression, LabelSelector, NodeTerm, NodeTerms, Taint, Texts, Toleration};
use super::ports::HostPort;
use std::collections::BTreeMap;

/// Tolerations that Kubernetes gives to every Pod; they say for how long it stays, not where it goes.
const USUAL: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What a Pod demands of a node, in one form for equal demands, so that demands can be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodesFor {
    labels: BTreeMap<String, String>,
    terms: Option<NodeTerms>,
    tolerations: Vec<Toleration>,
    /// Where its volumes can be reached: all of these hold.
    volumes: Vec<NodeTerms>,
    /// Bytes of local disk that one Pod asks for; held against all that a node has.
    disk: u64,
    /// Ports that nobody may have there yet.
    ports: Vec<HostPort>,
}

/// A node as demands see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeTraits {
    pub(crate) name: String,
    pub(crate) labels: Texts,
    pub(crate) taints: Vec<Taint>,
    pub(crate) disk: u64,
}

impl NodesFor {
    pub(crate) fn new(
        labels: &Texts,
        terms: Option<NodeTerms>,
        tolerations: &[Toleration],
        disk: u64,
    ) -> Self {
        let mut tolerations: Vec<_> = tolerations
            .iter()
            .filter(|toleration| !USUAL.contains(&toleration.key.as_str()))
            .cloned()
            .collect();
        tolerations.sort_unstable();
        tolerations.dedup();
        Self { labels: labels.clone(), terms, tolerations, disk, volumes: Vec::new(), ports: Vec::new() }
    }

    /// The same with volumes that can be reached from some nodes only.
    pub(crate) fn with_volumes(&self, mut volumes: Vec<NodeTerms>) -> Self {
        volumes.sort_unstable();
        volumes.dedup();
        Self { volumes, ..self.clone() }
    }

    /// The same with ports that must be free.
    pub(crate) fn with_ports(self, ports: &[HostPort]) -> Self {
        Self { ports: ports.to_vec(), ..self }
    }

    pub(crate) fn wants_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether none of the ports is in use on a node.
    pub(crate) fn has_ports(&self, in_use: &BTreeMap<HostPort, u32>) -> bool {
        self.ports.iter().all(|port| !in_use.contains_key(port))
    }

    /// Whether a node is one of them.
    pub(crate) fn accept(&self, node: &NodeTraits) -> bool {
        self.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && all_accept(self.terms.iter().chain(&self.volumes), node)
            && node.taints.iter().all(|taint| {
                !bars(taint) || self.tolerations.iter().any(|toleration| tolerates(toleration, taint))
            })
            && self.disk <= node.disk
    }
}

impl LabelSelector {
    /// Whether it selects what has these labels.
    pub(super) fn selects(&self, labels: &Texts) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|asked| holds(asked, labels.get(&asked.key)))
    }
}

/// Whether a node meets all of these.
pub(crate) fn all_accept<'a>(mut terms: impl Iterator<Item = &'a NodeTerms>, node: &NodeTraits) -> bool {
    terms.all(|terms| terms.node_selector_terms.iter().any(|term| term_accepts(term, node)))
}

/// Whether a taint keeps new Pods away.
fn bars(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let value = match toleration.operator.as_str() {
        "Exists" => true,
        _ => toleration.value == taint.value,
    };
    let any_key = toleration.key.is_empty() && toleration.operator == "Exists";
    effect && (any_key || (toleration.key == taint.key && value))
}

/// An empty term accepts nothing, as Kubernetes has it.
fn term_accepts(term: &NodeTerm, node: &NodeTraits) -> bool {
    let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    !empty
        && term.match_expressions.iter().all(|asked| holds(asked, node.labels.get(&asked.key)))
        && term
            .match_fields
            .iter()
            .all(|asked| asked.key == "metadata.name" && holds(asked, Some(&node.name)))
}

fn holds(asked: &Expression, found: Option<&String>) -> bool {
    let among = |found: &String| asked.values.contains(found);
    match (asked.operator.as_str(), found) {
        ("In", Some(found)) => among(found),
        ("NotIn", found) => !found.is_some_and(among),
        ("Exists", found) => found.is_some(),
        ("DoesNotExist", found) => found.is_none(),
        ("Gt", Some(found)) => compare(asked, found).is_some_and(|order| order.is_gt()),
        ("Lt", Some(found)) => compare(asked, found).is_some_and(|order| order.is_lt()),
        _ => false,
    }
}

fn compare(asked: &Expression, found: &str) -> Option<std::cmp::Ordering> {
    let found: i64 = found.parse().ok()?;
    let asked: i64 = asked.values.first()?.parse().ok()?;
    Some(found.cmp(&asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeTraits {
        let labels = [("zone", "a"), ("gpus", "8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taint = Taint { key: "team".into(), value: "vision".into(), effect: "NoSchedule".into() };
        NodeTraits { name: "n1".into(), labels: labels.into(), taints: vec![taint], disk: 100 }
    }

    fn untainted() -> NodeTraits {
        NodeTraits { taints: Vec::new(), ..node() }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Expression {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Expression { key: key.into(), operator: operator.into(), values }
    }

    fn affinity(expressions: Vec<Expression>) -> NodesFor {
        let term = NodeTerm { match_expressions: expressions, match_fields: Vec::new() };
        NodesFor { terms: Some(NodeTerms { node_selector_terms: vec![term] }), ..NodesFor::default() }
    }

    #[test]
    fn operators_hold_as_kubernetes_has_them() {
        for (operator, values, holds) in [
            ("In", &["a", "b"][..], true),
            ("In", &["b"], false),
            ("NotIn", &["b"], true),
            ("Exists", &[], true),
            ("DoesNotExist", &[], false),
        ] {
            let asked = affinity(vec![expression("zone", operator, values)]);
            assert_eq!(asked.accept(&untainted()), holds, "zone {operator} {values:?}");
        }
        assert!(affinity(vec![expression("gpus", "Gt", &["7"])]).accept(&untainted()));
        assert!(!affinity(vec![expression("gpus", "Lt", &["8"])]).accept(&untainted()));
        assert!(affinity(vec![expression("rack", "NotIn", &["r1"])]).accept(&untainted()));
        assert!(!affinity(Vec::new()).accept(&untainted()), "a term that asks for nothing accepts nothing");
    }

    #[test]
    fn a_taint_keeps_away_whoever_does_not_tolerate_it() {
        assert!(NodesFor::default().accept(&untainted()));
        assert!(!NodesFor::default().accept(&node()));
        let tolerate = |key: &str, operator: &str, value: &str| {
            let toleration = Toleration {
                key: key.into(),
                operator: operator.into(),
                value: value.into(),
                effect: "".into(),
            };
            NodesFor::new(&Texts::new(), None, &[toleration], 0).accept(&node())
        };
        assert!(tolerate("team", "Equal", "vision"));
        assert!(tolerate("team", "", "vision"), "equality is what is meant without an operator");
        assert!(tolerate("team", "Exists", ""));
        assert!(tolerate("", "Exists", ""));
        assert!(!tolerate("team", "Equal", "speech"));
        assert!(!tolerate("", "", ""));
    }

    #[test]
    fn what_every_pod_tolerates_makes_no_demand_of_its_own() {
        let usual =
            USUAL.map(|key| Toleration { key: key.into(), operator: "Exists".into(), ..Default::default() });
        assert_eq!(NodesFor::new(&Texts::new(), None, &usual, 0), NodesFor::default());
    }
}
