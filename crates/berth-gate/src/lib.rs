//! The platform's API in front of a Kubernetes cluster: the same routes and answers as on one machine, with everything kept in
//! the cluster.
//!
//! ```text
//! berth, curl --HTTP--> berth-server --Wish--> Gate --> API server <--watch-- View --image--> berth-server
//! ```

mod image;
mod log;
mod progress;
mod wish;

use berth_api::{LogQuery, Problem};
use berth_kube::view::View;
use berth_server::{Cluster, ClusterImage, Later, Made, RequestKey, Wish};
use kube::Client;
use std::sync::Arc;
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
    /// Ends with the gate.
    _progress: JoinSet<()>,
}

impl Gate {
    /// Looks at a cluster; returns when everything has been seen once.
    pub async fn open(client: Client) -> anyhow::Result<Self> {
        let view = View::start(client.clone()).await?;
        let mut reading = JoinSet::new();
        reading.spawn(progress::follow(client.clone(), view.clone()));
        Ok(Self(Arc::new(Inner { client, view, _progress: reading })))
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
}
