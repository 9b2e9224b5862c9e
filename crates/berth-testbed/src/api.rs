//! What the testbed itself asks of the API server.

use crate::nodes::{self, NodeSpec};
use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    coordination::v1::Lease,
    core::v1::{Namespace, Node, ServiceAccount},
    resource::v1::{DeviceClass, ResourceSlice},
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::Request,
};
use serde_json::json;
use std::{collections::HashSet, fmt::Debug, path::Path, time::Duration};

/// Requests on their way at the same time; the API server is faster than one after the other, not than this.
const REQUESTS_AT_ONCE: usize = 32;
const POLL: Duration = Duration::from_millis(100);
const NODE_LEASES: &str = "kube-node-lease";
const TOKEN_SECS: i64 = 24 * 3600;

/// A new client each time: the connections of an old one may lead to a server that has been restarted since.
pub(crate) async fn connect(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(60));
    Ok(Client::try_from(config)?)
}

/// Whether the API server says that it is ready, and what everybody expects of a cluster is there.
pub(crate) async fn is_ready(kubeconfig: &Path, service_account: bool) -> Result<()> {
    let client = connect(kubeconfig).await?;
    let request = Request::new("").get("readyz", &GetParams::default())?;
    client.request_text(request).await.context("asking for readyz")?;
    for namespace in ["default", NODE_LEASES] {
        Api::<Namespace>::all(client.clone()).get(namespace).await?;
    }
    if service_account {
        Api::<ServiceAccount>::namespaced(client, "default").get("default").await?;
    }
    Ok(())
}

/// Creates the nodes and what they publish. Where kwok plays the kubelets, waits until it holds every one of them.
pub(crate) async fn add_nodes(client: Client, spec: &NodeSpec, held: Option<Duration>) -> Result<()> {
    spec.check()?;
    let nodes = Api::<Node>::all(client.clone());
    let slices = Api::<ResourceSlice>::all(client.clone());
    if spec.dra {
        ensure(&Api::<DeviceClass>::all(client.clone()), &nodes::device_class()?).await?;
    }
    let now = jiff::Timestamp::now().to_string();
    let add = async |name: String| -> Result<()> {
        let node = spec.node(&name, &now)?;
        let node = nodes.create(&PostParams::default(), &node).await;
        let node = node.with_context(|| format!("creating node {name}"))?;
        if spec.dra && spec.gpus > 0 {
            let slice = slices.create(&PostParams::default(), &spec.slice(&node)?).await;
            slice.with_context(|| format!("publishing the devices of node {name}"))?;
        }
        Ok(())
    };
    stream::iter(spec.names()).map(add).buffer_unordered(REQUESTS_AT_ONCE).try_collect::<()>().await?;
    match held {
        Some(limit) => wait_until_held(client, spec, limit).await,
        None => Ok(()),
    }
}

async fn wait_until_held(client: Client, spec: &NodeSpec, limit: Duration) -> Result<()> {
    let leases = Api::<Lease>::namespaced(client, NODE_LEASES);
    let names: HashSet<String> = spec.names().into_iter().collect();
    let poll = async {
        loop {
            // From the server's memory: nobody needs to know more exactly.
            let list = leases.list_metadata(&ListParams::default().match_any()).await?;
            let found =
                list.items.iter().filter(|lease| names.contains(lease.meta().name.as_deref().unwrap_or("")));
            if found.count() == names.len() {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(limit, poll).await {
        Ok(result) => result,
        Err(_) => bail!("kwok did not take the {} nodes within {} s", names.len(), limit.as_secs()),
    }
}

/// Whether the kubelet of a node says that it is ready.
pub(crate) async fn node_is_ready(client: Client, name: &str) -> Result<()> {
    let node = Api::<Node>::all(client).get(name).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => bail!("{}", ready.message.unwrap_or_default()),
        None => bail!("it says nothing yet"),
    }
}

/// Says on behalf of a node that it has GPUs, as an administrator may of any resource that no plugin looks after.
pub(crate) async fn declare_gpus(client: Client, name: &str, spec: &NodeSpec) -> Result<()> {
    if spec.gpus == 0 {
        return Ok(());
    }
    let nodes = Api::<Node>::all(client);
    let labels = json!({"metadata": {"labels": spec.gpu_labels()}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(&labels)).await?;
    // kubelet would carry the capacity over to what can be allocated at its next report.
    let gpus = json!({"nvidia.com/gpu": spec.gpus.to_string()});
    let status = json!({"status": {"capacity": gpus, "allocatable": gpus}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Removes a node and what it published. Pods bound to it stay, as they do when a machine is gone.
pub(crate) async fn remove_node(client: Client, name: &str) -> Result<()> {
    let none = DeleteParams::default();
    Api::<Node>::all(client.clone())
        .delete(name, &none)
        .await
        .with_context(|| format!("removing node {name}"))?;
    let slices = Api::<ResourceSlice>::all(client.clone());
    for slice in slices.list(&ListParams::default().fields(&format!("spec.nodeName={name}"))).await? {
        unless_gone(slices.delete(&slice.metadata.name.unwrap_or_default(), &none).await)?;
    }
    unless_gone(Api::<Lease>::namespaced(client, NODE_LEASES).delete(name, &none).await)
}

/// A token of a service account, by the API that Pods get theirs from.
pub(crate) async fn token_of(client: Client, namespace: &str, account: &str) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(client, namespace);
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": TOKEN_SECS}}))?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("a token for service account {namespace}/{account}"))?;
    answer.status.and_then(|status| status.token).context("the API server gave no token")
}

async fn ensure<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(|_| ()).map_err(Into::into),
    }
}

fn unless_gone<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()).map_err(Into::into),
    }
}
