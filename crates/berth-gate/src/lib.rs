//! The platform's API in front of a Kubernetes cluster: the same routes and answers as on one machine, with everything kept in
//! the cluster.
//!
//! ```text
//! berth, curl --HTTP--> berth-server --Wish--> Gate --> API server <--watch-- View --image--> berth-server
//! ```

mod beside;
mod differs;
mod image;
mod log;
mod mpi;
mod progress;
mod wish;

use berth_api::{LogQuery, Problem, ShellRequest, ShellSize};
use berth_kube::view::View;
use berth_server::{Cluster, ClusterImage, Duplex, Later, Made, RequestKey, Shell, Wish};
use kube::Client;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

/// A Kubernetes cluster, as the server sees it.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    client: Client,
    view: View,
    way: beside::Way,
    answered: beside::Answered,
    /// Ends with the gate.
    following: Mutex<JoinSet<()>>,
}

impl Gate {
    /// Looks at a cluster; returns when everything has been seen once. On open sockets something is said at least so often.
    pub async fn open(client: Client, ping_every: Duration) -> anyhow::Result<Self> {
        let view = View::start(client.clone()).await?;
        let way = beside::Way::new(client.clone(), view.clone(), ping_every);
        let mut following = JoinSet::new();
        following.spawn(progress::follow(client.clone(), view.clone()));
        following.spawn(mpi::follow(way.clone()));
        let answered = beside::Answered::default();
        Ok(Self(Arc::new(Inner { client, view, way, answered, following: Mutex::new(following) })))
    }

    /// Waits until every command that was abandoned has been told so, for at most so long. What is still open is waited for too:
    /// whoever serves it has said that it ends.
    pub async fn finish(&self, limit: Duration) {
        // What listens in Pods by itself hangs up first.
        self.0.following.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.0.way.are_told(limit).await;
    }
}

impl Cluster for Gate {
    fn mode(&self) -> &'static str {
        "kubernetes"
    }

    fn image(&self) -> ClusterImage {
        image::image(&self.0.view.read())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.view.changes()
    }

    fn carry_out(&self, wishes: Vec<Wish>) -> Later<Result<(), Problem>> {
        let gate = self.clone();
        Box::pin(async move {
            for wish in wishes {
                wish::carry_out(&gate.0.client, &gate.0.view, wish).await?;
            }
            Ok(())
        })
    }

    fn made_by(&self, key: &RequestKey) -> Option<Made> {
        wish::made_by(&self.0.view.read(), key)
    }

    fn log(
        &self,
        project: String,
        name: String,
        query: LogQuery,
    ) -> Later<Result<mpsc::Receiver<Vec<u8>>, Problem>> {
        let gate = self.clone();
        Box::pin(async move { log::read(&gate.0.client, &gate.0.view, &project, &name, query).await })
    }

    fn exec(
        &self,
        project: String,
        name: String,
        rank: u32,
        request: ShellRequest,
    ) -> Later<Result<Shell, Problem>> {
        let gate = self.clone();
        Box::pin(
            async move { beside::exec(beside::worker(&gate.0.way, &project, &name, rank)?, request).await },
        )
    }

    fn attach(
        &self,
        project: String,
        name: String,
        rank: u32,
        size: Option<ShellSize>,
    ) -> Later<Result<Shell, Problem>> {
        let gate = self.clone();
        Box::pin(
            async move { beside::attach(beside::worker(&gate.0.way, &project, &name, rank)?, size).await },
        )
    }

    fn connect(
        &self,
        project: String,
        name: String,
        rank: u32,
        port: u16,
    ) -> Later<Result<Box<dyn Duplex>, Problem>> {
        let gate = self.clone();
        Box::pin(async move {
            let worker = beside::worker(&gate.0.way, &project, &name, rank)?;
            beside::connect(worker, port, gate.0.answered.clone()).await
        })
    }
}
