//! Serves the API of a cluster: everything that [`crate::run`] does but run anything.

use crate::{
    Access, Folder, ServerError, Shutdown,
    auth::Door,
    cluster::{Cluster, History, Mirror},
    controller::Shared,
    feed::Feed,
    http, listen, oidc,
    platform::Platform,
};
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
    /// How it is reached from elsewhere.
    pub access: Access,
    /// Who acts when a caller does not say.
    pub user: String,
    /// The time by which it speaks.
    pub clock: fn() -> Time,
    /// On an open socket something is said at least this often.
    pub ping_every: std::time::Duration,
}

/// Where a server answers.
#[derive(Debug, Clone)]
pub struct Answering {
    /// Its address.
    pub address: SocketAddr,
    /// The same, as people reach it.
    pub public_url: String,
    /// The fingerprint of its certificate, when it speaks TLS.
    pub fingerprint: Option<String>,
}

/// Serves until somebody asks for the end: over the API, or by `stop`. Tells where once it answers.
pub async fn serve(
    serving: Serving,
    cluster: Arc<dyn Cluster>,
    answers_at: oneshot::Sender<Answering>,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    serving.access.check(serving.listen)?;
    let oidc = oidc::Settings::of(&serving.access)?.map(oidc::Provider::new);
    let folder = Folder::at(&serving.folder);
    folder.prepare()?;
    let (store, start) = Store::open(&folder.store(), &Settings::default())?;
    let door = Door::new(folder.token()?, serving.user.clone());
    let audit = crate::audit::Audit::open(&folder.audit())
        .map_err(ServerError::file("opening the audit log in", &folder.audit()))?;
    let listening = listen::listen(serving.listen, &serving.access, &folder).await?;
    let policy = Policy::default();
    let mut platform = Platform::new(policy.clone());
    platform.set_address(listening.ports_url.clone());
    platform.set_people(folder.people()?);
    let shared = Arc::new(Shared {
        platform: RwLock::new(platform),
        seq: AtomicU64::new(start.last_seq),
        epoch: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        plans: AtomicU64::new(0),
        measured: RwLock::default(),
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
        speaks_tls: listening.certificate.is_some(),
        public_url: listening.public_url.clone(),
        oidc,
        patience: crate::PATIENCE,
        sockets: http::Sockets::new(),
        stop: ask_stop,
    });
    let file = listening.server_file();
    let mut watching = listening.watch(&folder);
    let serving = tokio::spawn(http::serve(listening.sockets, state, http_stopped));
    folder.write_server_file(&file)?;
    let (address, public_url) = (listening.address, listening.public_url);
    // Whoever started it may have stopped caring.
    let _ = answers_at.send(Answering { address, public_url, fingerprint: file.fingerprint });
    tokio::select! {
        () = stop => {}
        _ = &mut stop_asked => {}
    }
    feed.close();
    let _ = http_stop.send(());
    let _ = serving.await;
    watching.shutdown().await;
    folder.remove_server_file();
    Ok(())
}
