//! Serves the API of a cluster: everything that [`crate::run`] does but run anything.

use crate::{
    Folder, ServerError, Shutdown,
    auth::Door,
    cluster::{Cluster, History, Mirror},
    controller::Shared,
    feed::Feed,
    http,
    platform::Platform,
};
use berth_api::RunningServer;
use berth_store::{Settings, Store};
use berth_types::{Policy, Time};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, RwLock, atomic::AtomicU64, mpsc},
};
use tokio::sync::oneshot;

/// How the API of a cluster is served.
#[derive(Debug, Clone)]
pub struct Serving {
    /// Where its token and the history for charts are; losing it loses those.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who acts when a caller does not say.
    pub user: String,
    /// The time by which it speaks.
    pub clock: fn() -> Time,
    /// On an open socket something is said at least this often.
    pub ping_every: std::time::Duration,
}

/// Serves until somebody asks for the end: over the API, or by `stop`. Tells its address once it answers.
pub async fn serve(
    serving: Serving,
    cluster: Arc<dyn Cluster>,
    answers_at: oneshot::Sender<SocketAddr>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    if !serving.listen.ip().is_loopback() {
        return Err(ServerError::NotLoopback(serving.listen));
    }
    let folder = Folder::at(&serving.folder);
    folder.prepare()?;
    let (store, start) = Store::open(&folder.store(), &Settings::default())?;
    let door = Door::new(folder.token()?, serving.user.clone());
    let audit = crate::audit::Audit::open(&folder.audit())
        .map_err(ServerError::file("opening the audit log in", &folder.audit()))?;
    let listener = tokio::net::TcpListener::bind(serving.listen)
        .await
        .map_err(|source| ServerError::Listen { address: serving.listen, source })?;
    let address =
        listener.local_addr().map_err(|source| ServerError::Start { doing: "listening", source })?;
    let policy = Policy::default();
    let mut platform = Platform::new(policy.clone());
    let ports = http::listen_for_ports(address)
        .await
        .map_err(|source| ServerError::Start { doing: "listening for ports of workloads", source })?;
    let ports_address =
        ports.local_addr().map_err(|source| ServerError::Start { doing: "listening", source })?;
    platform.set_address(format!("http://{ports_address}"));
    platform.set_people(folder.people()?);
    let shared = Arc::new(Shared {
        platform: RwLock::new(platform),
        seq: AtomicU64::new(start.last_seq),
        epoch: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        plans: AtomicU64::new(0),
        clock: serving.clock,
    });
    let (store, feed) = (Arc::new(store), Arc::new(Feed::new(start.last_seq)));
    let history = History::new(Arc::clone(&store), Arc::clone(&feed));
    let mirror = Mirror::start(cluster, Arc::clone(&shared), policy, history, folder.clone());
    // Commands go to the cluster, so nobody listens here.
    let (messages, _) = mpsc::channel();
    let (ask_stop, mut stop_asked) = oneshot::channel::<Shutdown>();
    let (http_stop, http_stopped) = oneshot::channel();
    let state = http::AppState::new(http::Parts {
        shared,
        store,
        feed: Arc::clone(&feed),
        tasks: None,
        mirror: Some(mirror),
        messages,
        door,
        audit,
        folder: folder.clone(),
        declared: false,
        started: (serving.clock)(),
        ping_every: serving.ping_every,
        sockets: http::Sockets::new(),
        stop: ask_stop,
    });
    let serving = tokio::spawn(http::serve(listener, ports, state, http_stopped));
    folder.write_server_file(&RunningServer {
        address: format!("http://{address}"),
        pid: std::process::id(),
        version: berth_api::release().into(),
    })?;
    // Whoever started it may have stopped caring.
    let _ = answers_at.send(address);
    tokio::select! {
        () = stop => {}
        _ = &mut stop_asked => {}
    }
    feed.close();
    let _ = http_stop.send(());
    let _ = serving.await;
    folder.remove_server_file();
    Ok(())
}
