//! WebSockets: shells beside workers, and connections to their ports.

use crate::{
    Client, ClientError,
    client::Call,
    query::{path, with_query},
};
use berth_api::{
    ConnectQuery, SHELL_MESSAGE_BYTES_MAX, SHELL_PROTOCOL, STREAM_STDERR, STREAM_STDIN, STREAM_STDOUT,
    ShellQuery, ShellRequest, ShellSays, ShellSize, ShellTells,
};
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use hyper::{Method, StatusCode, body::Bytes, header, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use std::{io, time::Duration};
use tokio::time;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

/// A server that says nothing for so many of its own intervals is gone; never less than the shortest time.
const SILENT_INTERVALS: u32 = 4;
const SILENCE_MIN: Duration = Duration::from_secs(10);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What comes from a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellMessage {
    /// It printed this.
    Printed(Bytes),
    /// It printed this as an error.
    Errors(Bytes),
    /// The server says something about it.
    Told(ShellTells),
}

/// To a shell.
#[derive(Debug)]
pub struct ShellSender(SplitSink<Socket, Message>);

/// From a shell.
#[derive(Debug)]
pub struct ShellReceiver {
    socket: SplitStream<Socket>,
    silence_max: Duration,
    address: String,
}

impl Client {
    /// Runs a command beside a worker. The first message that comes tells whether it runs.
    pub async fn exec(
        &self,
        project: &str,
        name: &str,
        query: &ShellQuery,
        request: ShellRequest,
    ) -> Result<(ShellSender, ShellReceiver), ClientError> {
        self.shell(&with_query(path(&["workloads", project, name, "exec"]), query), request).await
    }

    /// Joins a worker's own terminal.
    pub async fn attach(
        &self,
        project: &str,
        name: &str,
        query: &ShellQuery,
        size: Option<ShellSize>,
    ) -> Result<(ShellSender, ShellReceiver), ClientError> {
        let request = ShellRequest { terminal: size, ..ShellRequest::default() };
        self.shell(&with_query(path(&["workloads", project, name, "attach"]), query), request).await
    }

    async fn shell(
        &self,
        path: &str,
        request: ShellRequest,
    ) -> Result<(ShellSender, ShellReceiver), ClientError> {
        let socket = self.socket(path, Some(SHELL_PROTOCOL)).await?;
        let (sender, socket) = socket.split();
        let mut sender = ShellSender(sender);
        let address = self.address().to_string();
        if !sender.say(&ShellSays::Start(request)).await {
            return Err(ClientError::Closed { address });
        }
        Ok((sender, ShellReceiver { socket, silence_max: self.limits.silence, address }))
    }

    /// Connects to a port of a worker.
    pub async fn connect_port(
        &self,
        project: &str,
        name: &str,
        query: &ConnectQuery,
    ) -> Result<(PortSender, PortReceiver), ClientError> {
        let socket =
            self.socket(&with_query(path(&["workloads", project, name, "connect"]), query), None).await?;
        let (sender, receiver) = socket.split();
        Ok((PortSender(sender), PortReceiver(receiver)))
    }

    /// Opens a WebSocket on a connection of its own.
    async fn socket(&self, path: &str, protocol: Option<&'static str>) -> Result<Socket, ClientError> {
        let key = generate_key();
        let call = Call { socket: Some((key.clone(), protocol)), ..Call::new(Method::GET, path) };
        let opened = time::timeout(self.limits.answer, self.answer_on_its_own(&call)).await;
        let timeout =
            || ClientError::Timeout { address: self.address().to_string(), after: self.limits.answer };
        let (response, _) = opened.map_err(|_| timeout())??;
        let accepts = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        let is_meant = response.status() == StatusCode::SWITCHING_PROTOCOLS
            && accepts
                .is_some_and(|accepts| accepts.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes());
        if !is_meant {
            return Err(self.protocol("it does not open a WebSocket"));
        }
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|error| self.protocol(error.to_string()))?;
        let config = WebSocketConfig::default().max_message_size(Some(SHELL_MESSAGE_BYTES_MAX + 1));
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await)
    }
}

impl ShellSender {
    /// Types something; whether anybody takes it.
    pub async fn type_bytes(&mut self, bytes: &[u8]) -> bool {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(STREAM_STDIN);
        message.extend_from_slice(bytes);
        self.0.send(Message::Binary(message.into())).await.is_ok()
    }

    /// Tells another size of the terminal.
    pub async fn resize(&mut self, size: ShellSize) -> bool {
        self.say(&ShellSays::Resize(size)).await
    }

    /// Tells that nothing more will be typed.
    pub async fn close_stdin(&mut self) -> bool {
        self.say(&ShellSays::CloseStdin).await
    }

    async fn say(&mut self, what: &ShellSays) -> bool {
        let text = serde_json::to_string(what).expect("what is said is JSON");
        self.0.send(Message::Text(text.into())).await.is_ok()
    }
}

impl ShellReceiver {
    /// The next message. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<ShellMessage, ClientError> {
        let closed = || ClientError::Closed { address: self.address.clone() };
        loop {
            let message = match time::timeout(self.silence_max, self.socket.next()).await {
                Err(_) => {
                    return Err(ClientError::Timeout {
                        address: self.address.clone(),
                        after: self.silence_max,
                    });
                }
                Ok(None) => return Err(closed()),
                Ok(Some(message)) => message.map_err(|_| closed())?,
            };
            match message {
                Message::Binary(bytes) => match bytes.first() {
                    Some(&STREAM_STDOUT) => return Ok(ShellMessage::Printed(bytes.slice(1..))),
                    Some(&STREAM_STDERR) => return Ok(ShellMessage::Errors(bytes.slice(1..))),
                    _ => {}
                },
                Message::Text(text) => {
                    // What a newer server says beyond this is not for us.
                    let Ok(told) = serde_json::from_str::<ShellTells>(text.as_str()) else { continue };
                    if let ShellTells::Started { ping_every_ms, .. } = &told {
                        let every = Duration::from_millis(*ping_every_ms);
                        self.silence_max = every.saturating_mul(SILENT_INTERVALS).max(SILENCE_MIN);
                    }
                    return Ok(ShellMessage::Told(told));
                }
                Message::Close(_) => return Err(closed()),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

/// To a port of a worker.
#[derive(Debug)]
pub struct PortSender(SplitSink<Socket, Message>);

/// From a port of a worker.
#[derive(Debug)]
pub struct PortReceiver(SplitStream<Socket>);

impl PortSender {
    /// Sends bytes; none say that there will be no more. Whether anybody takes them.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.send(Message::Binary(Bytes::copy_from_slice(bytes))).await.is_ok()
    }
}

impl PortReceiver {
    /// Why the server closed the connection, if it said so.
    pub fn reason(error: &tungstenite::Error) -> Option<String> {
        match error {
            tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::Other => Some(error.to_string()),
            _ => None,
        }
    }

    /// The next bytes; none at their end. An error says that the connection was lost, and why when the server said so.
    pub async fn next(&mut self) -> Result<Bytes, tungstenite::Error> {
        loop {
            match self.0.next().await.ok_or(tungstenite::Error::ConnectionClosed)?? {
                Message::Binary(bytes) => return Ok(bytes),
                Message::Close(Some(close)) if !close.reason.is_empty() => {
                    return Err(tungstenite::Error::Io(io::Error::other(close.reason.as_str())));
                }
                Message::Close(_) => return Err(tungstenite::Error::ConnectionClosed),
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}
