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
use std::time::Duration;

/// Between tries of a namespace that could not be made: it may be another project's, or going.
const TENANCY_AGAIN: Duration = Duration::from_secs(10);
/// Between tries of what could not be said.
const AGAIN: Duration = Duration::from_secs(1);

/// Something to be said about an object.
#[derive(Debug)]
pub(super) enum Saying {
    /// The state of a Workload.
    State { workload: Key, status: Box<api::WorkloadStatus> },
    /// Why a Pod waits.
    Waits { pod: Key, reason: &'static str, message: String },
}

impl Writer {
    /// Says something about an object, until that is heard. While something is being said, only the newest that comes is kept.
    pub(super) fn say(&self, uid: Text, saying: Saying) {
        {
            let mut sayings = self.sayings();
            if let Some(newer) = sayings.get_mut(&uid) {
                *newer = Some(saying);
                return;
            }
            sayings.insert(uid.clone(), None);
        }
        let writer = self.clone();
        tokio::spawn(async move {
            let mut next = Some(saying);
            while let Some(saying) = next {
                let said = match &saying {
                    Saying::State { workload, status } => writer.put_status(&uid, workload, status).await,
                    Saying::Waits { pod, reason, message } => {
                        writer.explain(pod, &uid, reason, message).await
                    }
                };
                let again = match said {
                    // It is gone, or somebody else speaks now.
                    Ok(()) | Err(WriteError::Fenced | WriteError::Refused { code: 409, .. }) => false,
                    Err(error) if error.is_gone() => false,
                    Err(WriteError::Refused { code, message })
                        if ![404, 429].contains(&code) && code < 500 =>
                    {
                        tracing::warn!(%uid, message, "what there is to say about it is refused");
                        false
                    }
                    Err(error) => {
                        tracing::debug!(%uid, %error, "what there is to say about it is said again");
                        tokio::time::sleep(AGAIN).await;
                        true
                    }
                };
                let mut sayings = writer.sayings();
                next = sayings.get_mut(&uid).and_then(Option::take).or(again.then_some(saying));
                if next.is_none() {
                    sayings.remove(&uid);
                }
            }
        });
    }

    async fn put_status(
        &self,
        uid: &Text,
        workload: &Key,
        status: &api::WorkloadStatus,
    ) -> Result<(), WriteError> {
        let Key { namespace, name } = workload;
        let path = format!("/apis/berth.dev/v1alpha1/namespaces/{namespace}/workloads/{name}/status");
        let mut body = json!({ "metadata": { "uid": &**uid }, "status": status });
        let fields = body["status"].as_object_mut().expect("a status is an object");
        // How far it is, is said by whoever reads what it prints, and when; of completions it is counted here.
        if status.progress.as_ref().is_none_or(|progress| progress.at.is_some()) {
            fields.remove("progress");
        }
        // What is not said any more is taken away.
        for field in
            ["reason", "message", "nodes", "node", "finishedAt", "retryAt", "gpusAllocated", "workersReady"]
        {
            fields.entry(field).or_insert(Value::Null);
        }
        self.0.requests.merge(&path, &body).await.map(drop)
    }

    /// Tells a Pod why it waits: as a condition, which autoscalers read, and as an event, which people do.
    async fn explain(&self, pod: &Key, uid: &Text, reason: &str, message: &str) -> Result<(), WriteError> {
        let Key { namespace, name } = pod;
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
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let words = format!("{reason}: {message}");
        let (said, noted) =
            tokio::join!(self.say_unscheduled(pod, uid, &words), self.0.requests.post(&events, &event));
        if let Err(error) = noted {
            tracing::debug!(%pod, %error, "nobody is told by an event that it waits");
        }
        said
    }

    /// Writes on a Pod that it has no node. That changes its version, so a binding that is still under way is refused.
    pub(super) async fn say_unscheduled(
        &self,
        pod: &Key,
        uid: &Text,
        message: &str,
    ) -> Result<(), WriteError> {
        let Key { namespace, name } = pod;
        let condition = json!({
            "metadata": { "uid": &**uid },
            "status": { "conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastProbeTime": format!("{:.0}", jiff::Timestamp::now()),
            }] },
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        self.0.requests.merge_lists(&path, &condition).await.map(drop)
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
            while let Err(error) = self.make_one_tenancy(&tenancy, &project.name_any()).await {
                tracing::warn!(project = %project.name_any(), %namespace, %error, "its namespace could not be made");
                let path = format!("/apis/berth.dev/v1alpha1/projects/{}", project.name_any());
                let found = self.0.requests.get(&path).await;
                let found = found.and_then(|found| super::start::read::<api::Project>(&found));
                let is_stale = found
                    .as_ref()
                    .is_ok_and(|found| found.spec != project.spec || found.uid() != project.uid());
                let is_gone = found.as_ref().is_err_and(WriteError::is_gone);
                if is_stale || is_gone || self.0.requests.epoch().is_err() {
                    return;
                }
                tokio::time::sleep(TENANCY_AGAIN).await;
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
