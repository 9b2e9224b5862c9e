//! What a project gets in the cluster: namespaces, and an account for its work that may do nothing.

use crate::{api::Project, names};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use std::collections::BTreeMap;

/// The role of people who submit work to a project, in each of its namespaces. Nobody has it until an administrator binds
/// it to them.
pub const RESEARCHER_ROLE: &str = "berth-researcher";

/// What a project needs in one of its namespaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenancy {
    /// The namespace, with the label that says whose it is.
    pub namespace: Namespace,
    /// The account of its work.
    pub account: ServiceAccount,
    /// What people may do there who are given it.
    pub role: Role,
    /// What its work may do: nothing, said so that it can be seen.
    pub work_role: Role,
    /// Binds that to the account.
    pub work_binding: RoleBinding,
}

/// The namespaces of a project, by name.
pub fn namespaces(project: &Project) -> Vec<String> {
    if project.spec.namespaces.is_empty() {
        return vec![format!("{}{}", names::NAMESPACE_PREFIX, project.name_any())];
    }
    project.spec.namespaces.clone()
}

/// Whether Berth may make a namespace a project's: it is nobody's, or the project's already.
pub fn may_adopt(namespace: &Namespace, project: &str) -> bool {
    namespace.labels().get(names::PROJECT).is_none_or(|owner| owner == project)
}

/// Everything a project needs, one item for each of its namespaces.
pub fn tenancies(project: &Project) -> Vec<Tenancy> {
    namespaces(project).iter().map(|name| tenancy(project, name)).collect()
}

fn tenancy(project: &Project, namespace: &str) -> Tenancy {
    let labels = BTreeMap::from([(names::PROJECT.to_owned(), project.name_any())]);
    let inside = |name: &str| ObjectMeta {
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        labels: Some(labels.clone()),
        // With the project, but never the namespace itself: what people keep there is theirs.
        owner_references: project.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let mut namespace_labels = labels.clone();
    // The API server then refuses what the project may not do, also in Pods that Berth has not made.
    let level = match project.spec.allow_privileged || project.spec.allow_host_network {
        true => "privileged",
        false => "baseline",
    };
    namespace_labels.insert("pod-security.kubernetes.io/enforce".into(), level.into());
    Tenancy {
        namespace: Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.into()),
                labels: Some(namespace_labels),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        },
        account: ServiceAccount {
            metadata: inside(names::WORKLOAD_ACCOUNT),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role { metadata: inside(RESEARCHER_ROLE), rules: Some(researcher_rules()) },
        work_role: Role { metadata: inside(names::WORKLOAD_ACCOUNT), rules: Some(Vec::new()) },
        work_binding: RoleBinding {
            metadata: inside(names::WORKLOAD_ACCOUNT),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".into(),
                kind: "Role".into(),
                name: names::WORKLOAD_ACCOUNT.into(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".into(),
                name: names::WORKLOAD_ACCOUNT.into(),
                namespace: Some(namespace.into()),
                api_group: None,
            }]),
        },
    }
}

/// Submits, changes and deletes workloads; reads what became of them.
fn researcher_rules() -> Vec<PolicyRule> {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(list(groups)),
            resources: Some(list(resources)),
            verbs: list(verbs),
            ..PolicyRule::default()
        }
    };
    vec![
        rule(
            &[names::GROUP],
            &["workloads"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        rule(&[""], &["pods", "pods/log", "services", "persistentvolumeclaims"], &["get", "list", "watch"]),
        rule(&["", "events.k8s.io"], &["events"], &["get", "list", "watch"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProjectSpec;

    #[test]
    fn a_project_without_namespaces_gets_one_by_its_name() {
        let project = Project::new("team-a", ProjectSpec::default());
        let all = tenancies(&project);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].namespace.name_any(), "berth-team-a");
        let labels = all[0].namespace.labels();
        assert_eq!(labels[names::PROJECT], "team-a");
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline");
    }

    #[test]
    fn work_may_do_nothing() {
        let project = Project::new("team-a", ProjectSpec::default());
        let all = tenancies(&project);
        assert_eq!(all[0].work_role.rules, Some(Vec::new()));
        assert_eq!(all[0].account.automount_service_account_token, Some(false));
        assert_eq!(all[0].work_binding.role_ref.name, all[0].work_role.name_any());
    }

    #[test]
    fn a_namespace_of_another_project_is_not_taken() {
        let namespace = &tenancies(&Project::new("team-a", ProjectSpec::default()))[0].namespace;
        assert!(may_adopt(namespace, "team-a"));
        assert!(!may_adopt(namespace, "team-b"));
        assert!(may_adopt(&Namespace::default(), "team-b"));
    }

    #[test]
    fn the_node_is_open_only_to_projects_that_may_use_it() {
        let spec = ProjectSpec {
            namespaces: vec!["one".into(), "two".into()],
            allow_host_network: true,
            ..ProjectSpec::default()
        };
        let all = tenancies(&Project::new("team-a", spec));
        let levels =
            all.iter().map(|one| one.namespace.labels()["pod-security.kubernetes.io/enforce"].as_str());
        assert_eq!(levels.collect::<Vec<_>>(), ["privileged", "privileged"]);
    }
}
