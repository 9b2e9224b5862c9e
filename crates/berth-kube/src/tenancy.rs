//! What a project gets in the cluster: namespaces, an account for its work that may do nothing, and rights for its people.

use crate::{api::Project, names};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{RoleBinding, RoleRef, Subject},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use std::collections::BTreeMap;

/// The cluster role of people who submit work, bound to the members of a project in each of its namespaces.
pub const RESEARCHER_ROLE: &str = "berth-researcher";

/// What a project needs in one of its namespaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenancy {
    /// The namespace, with the label that says whose it is.
    pub namespace: Namespace,
    /// The account of its work. Nothing is bound to it, so it may do nothing.
    pub account: ServiceAccount,
    /// What its members may do there; none when it has no members.
    pub members: Option<RoleBinding>,
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
        members: members(project).map(|subjects| RoleBinding {
            metadata: inside(RESEARCHER_ROLE),
            role_ref: RoleRef {
                api_group: Some(RBAC_GROUP.into()),
                kind: "ClusterRole".into(),
                name: RESEARCHER_ROLE.into(),
            },
            subjects: Some(subjects),
        }),
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn members(project: &Project) -> Option<Vec<Subject>> {
    let subjects = project.spec.members.iter().map(|member| Subject {
        api_group: Some(RBAC_GROUP.into()),
        kind: member.kind.text().into(),
        name: member.name.clone(),
        namespace: None,
    });
    let subjects: Vec<Subject> = subjects.collect();
    (!subjects.is_empty()).then_some(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Member, MemberKind, ProjectSpec};

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
    fn members_are_bound_in_every_namespace_and_work_is_not() {
        let member = |kind, name: &str| Member { kind, name: name.into() };
        let spec = ProjectSpec {
            namespaces: vec!["one".into(), "two".into()],
            members: vec![member(MemberKind::User, "ada"), member(MemberKind::Group, "team-a")],
            ..ProjectSpec::default()
        };
        for tenancy in tenancies(&Project::new("team-a", spec)) {
            assert_eq!(tenancy.account.automount_service_account_token, Some(false));
            let binding = tenancy.members.expect("it has members");
            assert_eq!(binding.role_ref.name, RESEARCHER_ROLE);
            let subjects = binding.subjects.expect("named");
            assert_eq!(subjects.iter().map(|who| who.kind.as_str()).collect::<Vec<_>>(), ["User", "Group"]);
        }
        assert_eq!(tenancies(&Project::new("team-b", ProjectSpec::default()))[0].members, None);
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
