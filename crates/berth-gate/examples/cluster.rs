//! Berth on a control plane with two simulated DGX-1, or with one real node (`--real`), for tests that know nothing but an address,
//! such as those of the dashboard. The real node has an image with a shell, [`SHELL`].
//!
//! One line of JSON says where it answers and with which token, or why it cannot be started here. It ends when its input does.

use anyhow::{Context, Result};
use berth_gate::Gate;
use berth_kube::run;
use berth_server::Serving;
use berth_testbed::{Cluster, Image, NodeSpec, Options};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::{fs, io::Read, path::Path, sync::Arc};
use tokio::sync::oneshot;

/// An image that only the real node has; whoever uses that node is told of it.
const SHELL: &str = "localhost/shell:1";

fn main() -> Result<()> {
    let is_real = std::env::args().skip(1).any(|word| word == "--real");
    let real = is_real.then(Cluster::real_node_available).unwrap_or(Ok(()));
    if let Err(reason) = Cluster::available().and(real) {
        println!("{}", json!({ "missing": reason }));
        return Ok(());
    }
    let options = match is_real {
        true => Options { real_node: true, real_gpus: 2, kwok: false, ..Options::default() },
        false => Options { nodes: vec![NodeSpec::dgx1(2).with_dra()], ..Options::default() },
    };
    let cluster = Cluster::start(options)?;
    if is_real {
        cluster.import_image(&Image::new(SHELL).shell()?)?;
    }
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(cluster.kubeconfig(), folder.path(), is_real.then_some(SHELL)))
}

async fn serve(kubeconfig: &Path, folder: &Path, image: Option<&str>) -> Result<()> {
    let client = run::client(run::config(Some(kubeconfig)).await?)?;
    run::install(&client).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "berth-system" } });
    namespaces.patch("berth-system", &PatchParams::apply("test"), &Patch::Apply(namespace)).await?;
    let (end, ended) = oneshot::channel::<()>();
    let operator = tokio::spawn(run::run(client.clone(), run::Options::new("berth-system"), async {
        let _ = ended.await;
    }));
    let gate = Gate::open(client, berth_server::PING_EVERY).await?;
    let serving = Serving {
        folder: folder.to_owned(),
        listen: "127.0.0.1:0".parse()?,
        access: Default::default(),
        user: "ada".into(),
        clock: berth_server::now,
        ping_every: berth_server::PING_EVERY,
    };
    let (answers_at, answers) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(berth_server::serve(serving, Arc::new(gate), answers_at, async {
        let _ = stopped.await;
    }));
    let answering = answers.await.context("it did not begin to answer")?;
    let token = fs::read_to_string(folder.join("token"))?;
    println!("{}", json!({ "address": answering.public_url, "token": token.trim(), "image": image }));
    let input_ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    input_ended.await??;
    let _ = stop.send(());
    served.await??;
    let _ = end.send(());
    operator.await??;
    Ok(())
}
