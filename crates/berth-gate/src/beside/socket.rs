//! WebSockets to Pods, through the API server. Every message begins with the number of a channel, as `kubectl` speaks too.
//!
//! kube's own sockets ask for a second version of the library below them, ping once in a minute whatever is configured, and do
//! not notice that the other side is gone; what is needed is little.

use crate::wish;
use berth_api::{Code, Problem};
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use http::{Request, StatusCode, header};
use hyper::{body::Bytes, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body, core::Status};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::Role,
    },
};

/// The API server answers within this time, and so does the node behind it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// A side that says nothing for so many intervals is gone; never less than the shortest time, which a busy machine may take.
const SILENT_INTERVALS: u32 = 3;
const SILENCE_MIN: Duration = Duration::from_secs(10);
/// How much of a refusal is read.
const REFUSAL_CHARS_MAX: usize = 500;
/// What follows is the number of a channel that is closed.
const CLOSE: u8 = 255;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// To a Pod.
pub(super) struct Sender(SplitSink<Socket, Message>);

/// From a Pod.
pub(super) struct Receiver {
    socket: SplitStream<Socket>,
    silence_max: Duration,
}

/// Opens one. A refusal has the words of the API server.
pub(super) async fn open(
    client: &Client,
    path: &str,
    protocol: &'static str,
    ping_every: Duration,
) -> Result<(Sender, Receiver), Problem> {
    let wrong = |error: &dyn std::fmt::Display| Problem::new(Code::Internal, error.to_string());
    let key = generate_key();
    let request = Request::get(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, key.as_str())
        .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
        .body(Body::empty())
        .map_err(|error| wrong(&error))?;
    let opened = async {
        let response = client.send(request).await.map_err(wish::problem)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = response.status();
            let body = response.into_body().collect_bytes().await.unwrap_or_default();
            return Err(refusal(code, &body));
        }
        let accepts = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accepts.is_none_or(|accepts| accepts.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(Problem::new(Code::Internal, "the API server does not open a WebSocket"));
        }
        hyper::upgrade::on(response).await.map_err(|error| wrong(&error))
    };
    let late = |_| Problem::new(Code::Unreachable, "the node does not answer the API server: dial timed out");
    let upgraded = timeout(ANSWERS_WITHIN, opened).await.map_err(late)??;
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
    let (sink, stream) = socket.split();
    let silence_max = (ping_every * SILENT_INTERVALS).max(SILENCE_MIN);
    Ok((Sender(sink), Receiver { socket: stream, silence_max }))
}

/// Why there is no socket: the API server says it as an object, and those behind it in plain words.
fn refusal(code: StatusCode, body: &[u8]) -> Problem {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.message.is_empty() => wish::problem(kube::Error::Api(Box::new(status))),
        _ => {
            let text: String = String::from_utf8_lossy(body).trim().chars().take(REFUSAL_CHARS_MAX).collect();
            Problem::new(Code::Internal, format!("{code} {text}").trim_end())
        }
    }
}

impl Sender {
    /// Sends bytes on a channel; whether anybody takes them.
    pub(super) async fn send(&mut self, channel: u8, bytes: &[u8]) -> bool {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        self.0.send(Message::Binary(message.into())).await.is_ok()
    }

    /// Says that nothing more comes on a channel.
    pub(super) async fn end(&mut self, channel: u8) -> bool {
        self.send(CLOSE, &[channel]).await
    }

    /// Shows that we are here. The ping is answered, so that silence means something; an empty message is what the timers of
    /// the API server, of kubelet and of the runtime count as life, and nobody else hears it.
    pub(super) async fn ping(&mut self) -> bool {
        self.0.feed(Message::Binary(Bytes::new())).await.is_ok()
            && self.0.send(Message::Ping(Bytes::new())).await.is_ok()
    }
}

impl Receiver {
    /// The next bytes and their channel; nothing when the other side has ended or is gone. Safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Option<(u8, Bytes)> {
        loop {
            match timeout(self.silence_max, self.socket.next()).await.ok()??.ok()? {
                Message::Binary(bytes) if !bytes.is_empty() => return Some((bytes[0], bytes.slice(1..))),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_words_of_whoever_refused() {
        let status = r#"{"kind":"Status","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}"#;
        let problem = refusal(StatusCode::FORBIDDEN, status.as_bytes());
        assert_eq!((problem.code, problem.detail.as_str()), (Code::Forbidden, "pods is forbidden"));
        let problem = refusal(StatusCode::BAD_GATEWAY, b"nobody there\n");
        assert_eq!(problem.detail, "502 Bad Gateway nobody there");
    }
}
