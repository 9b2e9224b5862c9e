//! A project with a quota, and what its people do in its namespace.
#![allow(dead_code, reason = "each test uses a part of it")]

use crate::mirror::{until, until_there};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

/// A project with a quota, and a client for its namespace.
pub(crate) struct Team {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Team {
    pub(crate) async fn new(client: &Client, name: &str, quota: u32) -> Self {
        let projects: Api<berth_kube::api::Project> = Api::all(client.clone());
        let project = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name },
            "spec": { "quota": quota, "allowHostNetwork": true, "allowPrivileged": true },
        });
        let project = serde_json::from_value(project).expect("a project");
        projects.create(&PostParams::default(), &project).await.expect("the project is accepted");
        let team = Self { client: client.clone(), namespace: format!("berth-{name}") };
        until_there(client, &team.namespace).await;
        team
    }

    pub(crate) fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(
        &self,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).expect("an object");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("it is accepted");
    }

    pub(crate) async fn pods(&self, labels: &str) -> Vec<Pod> {
        let pods: Api<Pod> = self.api();
        pods.list(&ListParams::default().labels(labels)).await.expect("the API server answers").items
    }

    /// The nodes of Pods that are on one and not leaving it.
    pub(crate) async fn nodes(&self, labels: &str) -> Vec<String> {
        let pods = self.pods(labels).await;
        let there = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        there.filter_map(|pod| pod.spec?.node_name).collect()
    }

    pub(crate) async fn until_bound(&self, labels: &str, count: usize) -> Vec<String> {
        until(&format!("{count} Pods of {labels} are bound"), async || {
            self.nodes(labels).await.len() == count
        })
        .await;
        self.nodes(labels).await
    }

    /// Waits until a Pod is told that it waits for this reason.
    pub(crate) async fn until_told(&self, pod: &str, reason: &str) {
        let pods: Api<Pod> = self.api();
        let events: Api<Event> = self.api();
        until(&format!("{pod} is told {reason}"), async || {
            let found = pods.get(pod).await.expect("it is there");
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            let told = conditions.iter().any(|one| {
                one.type_ == "PodScheduled"
                    && one.message.as_deref().is_some_and(|text| text.starts_with(reason))
            });
            let events = events.list(&ListParams::default()).await.expect("the API server answers");
            let noted = events.items.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason)
            });
            told && noted
        })
        .await;
    }
}

/// A Pod that asks for counted GPUs.
pub(crate) fn pod(name: &str, gpus: u32, more: Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "schedulerName": "berth",
            "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": gpus } } }],
        },
    });
    merge(&mut pod, more);
    pod
}

pub(crate) fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

pub(crate) async fn clear(team: &Team) {
    let pods: Api<Pod> = team.api();
    let all = ListParams::default();
    pods.delete_collection(&Default::default(), &all).await.expect("Pods go");
    until("no Pod is left", async || pods.list(&all).await.expect("the API server answers").items.is_empty())
        .await;
}
