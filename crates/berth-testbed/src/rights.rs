//! Rights: which were given, which were used, and which were missing.

use crate::Cluster;
use anyhow::{Context, Result};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

/// Group, resource with its part, verb.
pub type Right = (String, String, String);

/// What somebody asked the API server for.
#[derive(Debug, Default)]
pub struct Asked {
    /// What was allowed.
    pub used: BTreeSet<Right>,
    /// What was refused because it is not.
    pub refused: BTreeSet<Right>,
}

/// Everything that rules of roles allow.
pub fn rights_of(rules: &[Value]) -> BTreeSet<Right> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(ToOwned::to_owned)).collect()
    };
    let mut allowed = BTreeSet::new();
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let verbs = texts(&rule["verbs"]).into_iter();
                allowed.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    allowed
}

impl Cluster {
    /// What a service account asked for so far, of a cluster that writes down every request.
    pub fn asked_by(&self, namespace: &str, account: &str) -> Result<Asked> {
        let text = fs::read_to_string(self.audit_log()).context("no request was written down")?;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let mut asked = Asked::default();
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).context("a line is no object")?;
            let object = &event["objectRef"];
            if event["user"]["username"] != user || object.is_null() {
                continue;
            }
            let field = |name: &str| object[name].as_str().unwrap_or_default();
            let resource = match field("subresource") {
                "" => field("resource").to_owned(),
                part => format!("{}/{part}", field("resource")),
            };
            let verb = event["verb"].as_str().unwrap_or_default();
            let one = (field("apiGroup").to_owned(), resource.clone(), verb.to_owned());
            match event["responseStatus"]["code"].as_u64() {
                Some(403) => drop(asked.refused.insert(one)),
                // Whoever applies what is not there makes it.
                Some(201) if verb == "patch" => {
                    asked.used.insert((field("apiGroup").to_owned(), resource, "create".into()));
                    asked.used.insert(one);
                }
                _ => drop(asked.used.insert(one)),
            }
        }
        Ok(asked)
    }
}
