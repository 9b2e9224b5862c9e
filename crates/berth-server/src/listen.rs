//! Where a server listens, and how it is protected there.
//!
//! ```text
//! people    --TLS, or plain on loopback--> api, ports
//! workloads --plain, on loopback---------> api, or reports beside it when the api speaks TLS
//! ```
//!
//! Work on this machine reports without TLS, over an address that no other machine reaches: it would have to trust a certificate
//! that its image knows nothing of.

use crate::{Access, Folder, ServerError, access, beside::Duplex};
use berth_api::{Code, Problem, RunningServer};
use berth_tls::{Certificate, TlsAcceptor};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time,
};

/// Whoever connects has shown that it speaks TLS within this time.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Connections whose handshake is under way; more wait to be accepted.
const HANDSHAKES_MAX: usize = 512;
/// How often files of the certificate are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever did not speak TLS reads why within this time.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What a connection that begins TLS says first.
const TLS_HANDSHAKE: u8 = 22;
/// Waiting helps when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Everything that is listened on.
pub(crate) struct Listening {
    /// Where the API is.
    pub(crate) address: SocketAddr,
    /// The same, as this machine reaches it.
    pub(crate) url: String,
    /// The same, as people reach it.
    pub(crate) public_url: String,
    /// Where ports of workloads are, as people reach them.
    pub(crate) ports_url: String,
    /// Where workloads of this machine report.
    pub(crate) report_url: String,
    pub(crate) certificate: Option<Arc<Certificate>>,
    pub(crate) sockets: Listeners,
}

/// The sockets themselves.
pub(crate) struct Listeners {
    pub(crate) api: Listener,
    pub(crate) ports: Listener,
    pub(crate) reports: Option<Listener>,
}

/// Begins to listen.
pub(crate) async fn listen(
    address: SocketAddr,
    access: &Access,
    folder: &Folder,
) -> Result<Listening, ServerError> {
    access.check(address)?;
    let certificate = access.certificate(address, folder).map(Certificate::open).transpose()?;
    let acceptor = certificate.as_ref().map(Certificate::acceptor).transpose()?;
    let bound = TcpListener::bind(address).await;
    let api = bound.map_err(|source| ServerError::Listen { address, source })?;
    let address_of = |listener: &TcpListener| {
        listener.local_addr().map_err(|source| ServerError::Start { doing: "listening", source })
    };
    let beside = |address: SocketAddr, steps: u16| async move {
        let bound = listen_beside(address, steps).await;
        bound.map_err(|source| ServerError::Start { doing: "listening for workloads", source })
    };
    let address = address_of(&api)?;
    let ports = beside(address, 1).await?;
    let reports = match &acceptor {
        Some(_) => Some(beside(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()), 2).await?),
        None => None,
    };
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let host = access.host(address.ip());
    // An address of IPv6 stands in brackets, also when it was written as a name.
    let host = if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) { format!("[{host}]") } else { host };
    let own = SocketAddr::new(access::own(address.ip()), address.port());
    let reports_at = reports.as_ref().map(address_of).transpose()?;
    Ok(Listening {
        address,
        url: format!("{scheme}://{own}"),
        public_url: format!("{scheme}://{host}:{}", address.port()),
        ports_url: format!("{scheme}://{host}:{}", address_of(&ports)?.port()),
        report_url: format!("http://{}/api/v1", reports_at.unwrap_or(own)),
        sockets: Listeners {
            api: Listener::new(api, acceptor.clone()),
            ports: Listener::new(ports, acceptor),
            reports: reports.map(|reports| Listener::new(reports, None)),
        },
        certificate,
    })
}

/// Beside an address, so that it is found again, or wherever there is room.
async fn listen_beside(address: SocketAddr, steps: u16) -> io::Result<TcpListener> {
    let next = SocketAddr::new(address.ip(), address.port().checked_add(steps).unwrap_or(0));
    match TcpListener::bind(next).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((address.ip(), 0)).await,
    }
}

impl Listening {
    /// What a folder says of its server.
    pub(crate) fn server_file(&self) -> RunningServer {
        RunningServer {
            address: self.url.clone(),
            pid: std::process::id(),
            version: berth_api::release().into(),
            fingerprint: self.certificate.as_ref().map(|certificate| certificate.fingerprint().to_string()),
        }
    }

    /// Takes up changed files of the certificate until it is dropped, and tells whoever finds the server by its folder.
    pub(crate) fn watch(&self, folder: &Folder) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        if let Some(certificate) = &self.certificate {
            watching.spawn(watch(Arc::clone(certificate), folder.clone(), self.server_file()));
        }
        watching
    }
}

async fn watch(certificate: Arc<Certificate>, folder: Folder, file: RunningServer) {
    loop {
        time::sleep(LOOK_EVERY).await;
        let looked = {
            let certificate = Arc::clone(&certificate);
            tokio::task::spawn_blocking(move || certificate.look_again()).await
        };
        match looked {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                let fingerprint = certificate.fingerprint();
                tracing::warn!(%fingerprint, "the certificate has changed; new connections get the new one");
                let file = RunningServer { fingerprint: Some(fingerprint.to_string()), ..file.clone() };
                if let Err(error) = folder.write_server_file(&file) {
                    tracing::error!(%error, "commands on this machine do not know the new certificate");
                }
            }
            // A file that is being replaced is missing for a moment; the one in use goes on.
            Ok(Err(berth_tls::TlsError::Unreadable { .. })) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "the new certificate cannot be used; the old one goes on")
            }
            Err(_) => return,
        }
    }
}

/// A socket that connections come from, each ready to be spoken HTTP over.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    /// Those that have connected, and not yet shown that they speak TLS.
    handshakes: JoinSet<Option<(Box<dyn Duplex>, SocketAddr)>>,
}

impl Listener {
    fn new(socket: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        Self { socket, tls, handshakes: JoinSet::new() }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Box<dyn Duplex>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept(), if self.handshakes.len() < HANDSHAKES_MAX => accepted,
                Some(done) = self.handshakes.join_next() => match done {
                    Ok(Some(ready)) => return ready,
                    Ok(None) | Err(_) => continue,
                },
            };
            match accepted {
                Ok((stream, from)) => {
                    // What is typed into a shell is not held back to be sent with more.
                    let _ = stream.set_nodelay(true);
                    let Some(tls) = self.tls.clone() else { return (Box::new(stream), from) };
                    self.handshakes.spawn(async move {
                        let ready = time::timeout(HANDSHAKE_MAX, handshake(tls, stream)).await.ok()??;
                        Some((ready, from))
                    });
                }
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection can be accepted");
                    time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn handshake(tls: TlsAcceptor, stream: TcpStream) -> Option<Box<dyn Duplex>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 1 && first[0] != TLS_HANDSHAKE {
        say_https(stream).await;
        return None;
    }
    Some(Box::new(tls.accept(stream).await.ok()?))
}

/// Tells whoever speaks plain HTTP what to do instead. They are not sent on: what they showed was read by whoever is in between.
async fn say_https(mut stream: TcpStream) {
    let problem = Problem::new(Code::Malformed, "this server speaks TLS")
        .hint("write https:// instead of http://; a token that was sent without TLS should be revoked");
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} Bad Request\r\n{}: {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        problem.status,
        berth_api::RELEASE_HEADER,
        berth_api::release(),
        body.len()
    );
    let said = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await?;
        // To close with something unread would take the answer from them.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let _ = time::timeout(LAST_WORDS, said).await;
}
