//! What is written for people: the state of Workloads, why Pods wait, and the namespaces of projects.

use super::{WriteError, Writer};
use crate::{
    api, pods,
    seen::{Key, Text},
    tenancy,
    world::StartOrder,
};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

/// The state of a Workload.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) workload: Key,
    pub(super) status: Box<api::WorkloadStatus>,
}

impl Writer {
    /// Writes the state of a Workload. While one is being written, only the newest that comes is kept.
    pub(super) fn write_status(&self, uid: Text, status: Status) {
        {
            let mut statuses = self.statuses();
            if let Some(newer) = statuses.get_mut(&uid) {
                *newer = Some(status);
                return;
            }
            statuses.insert(uid.clone(), None);
        }
        let writer = self.clone();
        tokio::spawn(async move {
            let mut next = Some(status);
            while let Some(status) = next {
                writer.put_status(&uid, &status).await;
                let mut statuses = writer.statuses();
                next = statuses.get_mut(&uid).and_then(Option::take);
                if next.is_none() {
                    statuses.remove(&uid);
                }
            }
        });
    }

    async fn put_status(&self, uid: &Text, status: &Status) {
        let Key { namespace, name } = &status.workload;
        let path = format!("/apis/berth.dev/v1alpha1/namespaces/{namespace}/workloads/{name}/status");
        let mut body = json!({ "metadata": { "uid": &**uid }, "status": &*status.status });
        // What is not said any more is taken away.
        for field in
            ["reason", "message", "nodes", "node", "finishedAt", "retryAt", "gpusAllocated", "workersReady"]
        {
            let fields = body["status"].as_object_mut().expect("a status is an object");
            fields.entry(field).or_insert(Value::Null);
        }
        match self.0.requests.merge(&path, &body).await {
            Ok(_) | Err(WriteError::Fenced | WriteError::Refused { code: 404 | 409, .. }) => {}
            Err(error) => {
                tracing::warn!(workload = %status.workload, %error, "its state could not be written")
            }
        }
    }

    /// Tells a Pod why it waits: as a condition, which autoscalers read, and as an event, which people do.
    pub(super) async fn explain(&self, pod: &Key, uid: &Text, reason: &str, message: &str) {
        let Key { namespace, name } = pod;
        let condition = json!({
            "metadata": { "uid": &**uid },
            "status": { "conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": format!("{reason}: {message}"),
            }] },
        });
        let now = jiff::Timestamp::now();
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "generateName": "berth-", "namespace": &**namespace },
            "eventTime": format!("{now:.6}"),
            "reportingController": "berth.dev/scheduler",
            "reportingInstance": "berth",
            "action": "Scheduling",
            "reason": reason,
            "note": message.chars().take(1000).collect::<String>(),
            "type": "Warning",
            "regarding": { "apiVersion": "v1", "kind": "Pod", "namespace": &**namespace, "name": &**name, "uid": &**uid },
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let (said, noted) = tokio::join!(
            self.0.requests.merge_lists(&path, &condition),
            self.0.requests.post(&events, &event)
        );
        for error in [said.err(), noted.err()].into_iter().flatten() {
            match error {
                WriteError::Fenced | WriteError::Refused { code: 404 | 409, .. } => {}
                error => tracing::debug!(%pod, %error, "it could not be told why it waits"),
            }
        }
    }

    /// Services by which the Pods of a Workload find each other and are reached.
    pub(super) async fn make_services(&self, order: &StartOrder) -> Result<(), WriteError> {
        let Some((workload, project)) = &order.make else { return Ok(()) };
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        for service in pods::services(workload, project) {
            self.apply(&format!("/api/v1/namespaces/{namespace}/services"), &service).await?;
        }
        if let Some(ingress) = pods::ingress(workload, project) {
            self.apply(&format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"), &ingress)
                .await?;
        }
        Ok(())
    }

    /// Makes what a project needs in the cluster.
    pub(super) async fn make_tenancy(&self, project: &api::Project) {
        for tenancy in tenancy::tenancies(project) {
            let namespace = tenancy.namespace.name_any();
            if let Err(error) = self.make_one_tenancy(&tenancy, &project.name_any()).await {
                tracing::warn!(project = %project.name_any(), %namespace, %error, "its namespace could not be made");
            }
        }
    }

    async fn make_one_tenancy(&self, tenancy: &tenancy::Tenancy, project: &str) -> Result<(), WriteError> {
        let namespace = tenancy.namespace.name_any();
        let found = match self.0.requests.get(&format!("/api/v1/namespaces/{namespace}")).await {
            Ok(found) => serde_json::from_slice(&found).ok(),
            Err(WriteError::Refused { code: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        if found.as_ref().is_some_and(|found| !tenancy::may_adopt(found, project)) {
            let message = format!("namespace {namespace} is another project's");
            return Err(WriteError::Refused { code: 409, message });
        }
        self.apply("/api/v1/namespaces", &tenancy.namespace).await?;
        self.apply(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &tenancy.account).await?;
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        if let Some(members) = &tenancy.members {
            self.apply(&format!("{rbac}/rolebindings"), members).await?;
        }
        Ok(())
    }

    async fn apply<K: Serialize + kube::Resource<DynamicType = ()>>(
        &self,
        path: &str,
        object: &K,
    ) -> Result<(), WriteError> {
        let mut body = serde_json::to_value(object).expect("an object is JSON");
        body["apiVersion"] = K::api_version(&()).into();
        body["kind"] = K::kind(&()).into();
        let name = object.meta().name.clone().unwrap_or_default();
        self.0.requests.apply(&format!("{path}/{name}"), &body).await?;
        Ok(())
    }
}
