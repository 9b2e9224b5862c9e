//! The operator as a process of its own, which can be killed and put to sleep.

use berth_testbed::Cluster;
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

/// The operator; it is killed when this is dropped.
pub(crate) struct Operator {
    process: Mutex<Child>,
    log: PathBuf,
}

impl Operator {
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        Self::start_as(cluster, cluster.kubeconfig(), name)
    }

    pub(crate) fn start_as(cluster: &Cluster, kubeconfig: &std::path::Path, name: &str) -> Self {
        let log = cluster.folder().join(format!("operator-{name}.log"));
        let file = File::create(&log).expect("the folder of the cluster can be written");
        let process = Command::new(env!("CARGO_BIN_EXE_berth-operator"))
            .env("KUBECONFIG", kubeconfig)
            .env("NO_COLOR", "1")
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "info,kube_client=off".into()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the operator was built");
        Self { process: Mutex::new(process), log }
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&self) {
        let mut process = self.process();
        let _ = process.kill();
        let _ = process.wait();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process().try_wait().expect("it was started here").is_none()
    }

    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    pub(crate) fn wake(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.process().id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill is there");
        assert!(sent.success(), "the operator takes the signal {name}");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&self) {
        self.signal("TERM");
        let ended = self.process().wait().expect("it was started here");
        assert!(ended.success(), "it ends well when it is asked to: {}", self.log());
    }

    /// How it ended, once it has.
    pub(crate) async fn ended(&self) -> (bool, String) {
        self.until_ended().await;
        (self.process().wait().expect("it was started here").success(), self.log())
    }

    pub(crate) async fn until_ended(&self) {
        crate::mirror::until("whoever does not lead any more ends", async || !self.is_running()).await;
    }

    /// The end of what it said.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(400)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}
