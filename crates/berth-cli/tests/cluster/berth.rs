//! Berth on a cluster of the test's own.

use crate::support::Home;
use berth_gate::Gate;
use berth_kube::run;
use berth_server::Serving;
use berth_testbed::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{process::Command, sync::Arc, thread, time::Duration};
use tokio::sync::oneshot;

/// Often, so that silence is long soon.
const PING_EVERY: Duration = Duration::from_millis(300);

/// Berth on a cluster: the operator and the API in front, inside of this process.
pub(crate) struct Berth {
    pub(crate) home: Home,
    pub(crate) cluster: Cluster,
    stop: Option<oneshot::Sender<()>>,
    running: Option<thread::JoinHandle<()>>,
}

impl Berth {
    pub(crate) fn start(test: &str, options: berth_testbed::Options) -> Option<Self> {
        let real = options.real_node.then(Cluster::real_node_available).unwrap_or(Ok(()));
        if let Err(reason) = Cluster::available().and(real) {
            eprintln!("NOT TESTED: {test}: {reason}");
            return None;
        }
        let cluster = Cluster::start(options).expect("it starts");
        let home = Home::new();
        let (kubeconfig, folder) = (cluster.kubeconfig().to_owned(), home.server_folder());
        let (answers_at, answers) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let config = run::config(Some(&kubeconfig)).await.expect("a kubeconfig");
                let client = run::client(config).expect("a client");
                run::install(&client).await.expect("the resources are accepted");
                let namespaces: Api<Namespace> = Api::all(client.clone());
                let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "berth-system" } });
                let parameters = PatchParams::apply("test");
                namespaces.patch("berth-system", &parameters, &Patch::Apply(namespace)).await.expect("a namespace");
                let (end, ended) = oneshot::channel::<()>();
                let operator = tokio::spawn(run::run(client.clone(), run::Options::new("berth-system"), async {
                    let _ = ended.await;
                }));
                let gate = Gate::open(client, PING_EVERY).await.expect("the cluster is seen");
                let serving = Serving {
                    folder,
                    listen: "127.0.0.1:0".parse().expect("an address"),
                    access: Default::default(),
                    user: "ada".into(),
                    clock: berth_server::now,
                    ping_every: PING_EVERY,
                };
                let served = berth_server::serve(serving, Arc::new(gate), answers_at, async {
                    let _ = stopped.await;
                });
                served.await.expect("it serves");
                let _ = end.send(());
                operator.await.expect("no panic").expect("the operator stops well");
            });
        });
        answers.blocking_recv().expect("it answers");
        Some(Self { home, cluster, stop: Some(stop), running: Some(running) })
    }

    pub(crate) fn run(&self, line: &str) -> String {
        let ran = self.home.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        ran.stdout
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{line} -o json"))).expect("is JSON")
    }

    pub(crate) fn kubectl(&self, line: &str) -> String {
        let kubectl = berth_testbed::kubectl().expect("kubectl is there with the rest");
        let ran = Command::new(kubectl)
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("KUBECACHEDIR", self.home.path())
            .output()
            .expect("kubectl starts");
        assert!(ran.status.success(), "kubectl {line}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let ended = self.running.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            assert!(ended.is_none_or(|ended| ended.is_ok()), "it ends well");
        }
    }
}
