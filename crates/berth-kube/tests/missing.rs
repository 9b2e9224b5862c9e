//! What is missing when the operator starts is said, with what to do.

mod faulty;
mod mirror;

use faulty::Operator;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, api::PostParams};
use mirror::{block_on, cluster, connect, namespace, until};

#[test]
fn whatever_is_missing_is_said_with_what_to_do() {
    let options = berth_testbed::Options { kwok: false, controller_manager: false, ..Default::default() };
    let Some(cluster) = cluster("what is missing", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        namespace(&client, "plain").await;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "plain");
        let body = serde_json::from_value(serde_json::json!({ "metadata": { "name": "nobody" } }))
            .expect("an account");
        accounts.create(&PostParams::default(), &body).await.expect("it is accepted");
        let nobody = cluster.kubeconfig_of("plain", "nobody").expect("it is there");
        let (well, log) = Operator::start_as(&cluster, &nobody, "without-rights").ended().await;
        assert!(!well && log.contains("the lease cannot be had; apply the manifest"), "{log}");
        namespace(&client, "berth-system").await;
        let (well, log) = Operator::start(&cluster, "without-resources").ended().await;
        assert!(!well && log.contains("does not know Berth's resources; apply the manifest"), "{log}");
        // It said so at once, and left the lease to whoever comes next.
        mirror::install_resources(&client).await;
        let operator = Operator::start(&cluster, "with-all");
        until("it leads", async || operator.log().contains("everything is known")).await;
        operator.stop();
    });
}
