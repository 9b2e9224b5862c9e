//! The rights that the manifest grants the operator.

use super::BETWEEN;
use berth_api::{MANIFEST, MANIFEST_NAMESPACE};
use serde::Deserialize;
use std::fmt;

/// The account that the operator runs under.
pub(crate) const ACCOUNT: &str = "berth-operator";

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) group: String,
    /// With its subresource, as `pods/binding`.
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// The one object it is about, if it is about one.
    pub(crate) name: Option<String>,
    /// The namespace it is granted in; everywhere when absent.
    pub(crate) namespace: Option<String>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        write!(f, "{} {}{group}", self.verb, self.resource)
    }
}

#[derive(Deserialize)]
struct Granted {
    metadata: Named,
    #[serde(default)]
    rules: Vec<Listed>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// What the operator may do in this namespace and beyond, by the manifest. Its roles are named as its account is.
pub(crate) fn rules(namespace: &str) -> anyhow::Result<Vec<Rule>> {
    let is_role = |text: &&str| text.lines().any(|line| line == "kind: ClusterRole" || line == "kind: Role");
    let mut rules = Vec::new();
    for text in MANIFEST.split(BETWEEN).filter(is_role) {
        let role: Granted = serde_saphyr::from_str(text)?;
        if role.metadata.name != ACCOUNT {
            continue;
        }
        let place = role.metadata.namespace.map(|place| place.replace(MANIFEST_NAMESPACE, namespace));
        for listed in &role.rules {
            let names: Vec<Option<&String>> = if listed.resource_names.is_empty() {
                vec![None]
            } else {
                listed.resource_names.iter().map(Some).collect()
            };
            for group in &listed.api_groups {
                for resource in &listed.resources {
                    for verb in &listed.verbs {
                        rules.extend(names.iter().map(|name| Rule {
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.cloned(),
                            namespace: place.clone(),
                        }));
                    }
                }
            }
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_grants_the_operator_something_everywhere_and_in_its_namespace() {
        let rules = rules("gpus").expect("the manifest is ours");
        let has = |text: &str, namespace: Option<&str>| {
            rules.iter().any(|rule| rule.to_string() == text && rule.namespace.as_deref() == namespace)
        };
        assert!(
            has("watch nodes", None) && has("update leases.coordination.k8s.io", Some("gpus")),
            "{rules:?}"
        );
        assert!(!rules.iter().any(|rule| rule.verb == "*" || rule.resource == "*"), "{rules:?}");
    }
}
