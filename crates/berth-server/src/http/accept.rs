//! Takes connections, and lets nobody hold one for nothing.
//!
//! Whoever connects says what it wants within a time, in a head of a size; there are places for so many at once, and the others
//! wait at the door until one of them is free.

use axum::{Router, extract::connect_info::ConnectInfo, serve::Listener};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tower_service::Service;

/// Connections at one address at once. Shells, streams and ports of workloads are among them.
const CONNECTIONS_MAX: usize = 8_192;
/// The line and the headers of a request together.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Serves at one address until it is to stop and the last answer is out.
pub(super) async fn serve<L>(
    mut listener: L,
    router: Router,
    patience: Duration,
    stop: impl Future<Output = ()>,
) where
    L: Listener<Addr = SocketAddr>,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stopping, stopped) = watch::channel(());
    let (mut connections, mut stop) = (JoinSet::new(), pin!(stop));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, (stream, from)) = tokio::select! {
            next = next => next,
            () = &mut stop => break,
        };
        let carried = carry(stream, from, router.clone(), patience, stopped.clone());
        connections.spawn(async move {
            carried.await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
    drop((listener, stopping));
    while connections.join_next().await.is_some() {}
}

/// One connection, with every request on it. What becomes a socket goes on elsewhere.
async fn carry<S>(
    stream: S,
    from: SocketAddr,
    router: Router,
    patience: Duration,
    mut stopped: watch::Receiver<()>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(from));
        router.clone().call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // Whoever breaks off, or says what is not HTTP, is gone and nobody else's business.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
