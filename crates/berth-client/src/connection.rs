//! One connection over HTTP/1.1.

use crate::{Address, ClientError};
use berth_tls::{Connector, TlsError};
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};

/// A connection that was opened, and may have been closed by the other side since.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// Why nothing came back.
pub(crate) enum Lost {
    /// The request was never sent.
    Unsent,
    /// The other side closed the connection; whether it saw the request is not known.
    Closed,
    /// What came back is not HTTP.
    Garbage(String),
}

impl Connection {
    /// Opens a connection; with a connector, by TLS.
    pub(crate) async fn open(
        address: &Address,
        connector: Option<&Connector>,
        within: Duration,
    ) -> Result<Self, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: address.to_string(), source };
        let stream = match time::timeout(within, TcpStream::connect(address.authority())).await {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(_) => return Err(unreachable(io::Error::from(io::ErrorKind::TimedOut))),
        };
        // Requests are small and each is waited for, so collecting bytes would only cost time.
        let _ = stream.set_nodelay(true);
        let Some(connector) = connector else { return Self::over(stream).await.map_err(unreachable) };
        let connected = match time::timeout(within, connector.connect(address.host(), stream)).await {
            Ok(connected) => connected,
            Err(_) => return Err(unreachable(io::Error::from(io::ErrorKind::TimedOut))),
        };
        let stream = connected.map_err(|error| match error {
            TlsError::Handshake(source) => unreachable(source),
            source => ClientError::Tls { address: address.to_string(), source },
        })?;
        Self::over(stream).await.map_err(unreachable)
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends by itself when either side closes; the request that meets its end learns of it.
        tokio::spawn(connection.with_upgrades());
        Ok(Self { sender })
    }

    /// Whether the other side has not closed it, as far as is known.
    pub(crate) async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Lost> {
        self.sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(_) => Lost::Unsent,
            None => {
                let error = error.into_error();
                if error.is_parse() { Lost::Garbage(error.to_string()) } else { Lost::Closed }
            }
        })
    }
}
