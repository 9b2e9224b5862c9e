//! Sends one request and reads its answer.

use crate::{
    Address, ClientError, Endpoint,
    connection::{Connection, Lost},
};
use berth_api::{CURSOR_HEADER, Code, IDEMPOTENCY_HEADER, Problem, RELEASE_HEADER, USER_HEADER};
use berth_tls::Connector;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Write, time::Duration};
use tokio::{
    sync::{Mutex, OnceCell},
    time,
};

/// Bounds on what a server can make a client wait for or keep.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until a connection stands.
    pub connect: Duration,
    /// Until an answer is complete; of a stream, until it begins.
    pub answer: Duration,
    /// Silence on a stream after which it counts as lost; the server says something more often than that.
    pub silence: Duration,
    /// The pause before a lost stream is opened again; it doubles with each failure in a row.
    pub reconnect: Duration,
    /// The largest answer, in bytes.
    pub answer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            answer: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            reconnect: Duration::from_millis(200),
            answer_bytes_max: 64 << 20,
        }
    }
}

/// The longest name of a person that is sent.
const USER_CHARS_MAX: usize = 64;

/// An answer that says up to which event it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// What was asked for.
    pub value: T,
    /// The last event it includes.
    pub cursor: Option<u64>,
}

/// Calls one server. Requests go over one connection that is kept; streams get their own.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    user: String,
    pub(crate) limits: Limits,
    /// The connection that nobody uses at the moment.
    idle: Mutex<Option<Connection>>,
    /// Whom it trusts, once that was needed.
    connector: OnceCell<Connector>,
}

/// A request before it is sent.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Vec<u8>,
    pub(crate) accept: &'static str,
    /// Makes a create safe to repeat.
    pub(crate) key: Option<String>,
    /// A stream goes on after this event.
    pub(crate) last_event: Option<u64>,
    /// More time than the usual, for what is known to be slow.
    pub(crate) within: Option<Duration>,
    /// It is to become a WebSocket, with this key and for this way of speaking.
    pub(crate) socket: Option<(String, Option<&'static str>)>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            body: Vec::new(),
            accept: "application/json",
            key: None,
            last_event: None,
            within: None,
            socket: None,
        }
    }
}

impl Client {
    /// A client that acts for a person of this name. Nothing is sent before the first call.
    pub fn new(endpoint: Endpoint, user: &str) -> Self {
        // A header holds plain characters only. A person with another name is still worth telling apart.
        let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        let user = user.chars().take(USER_CHARS_MAX).map(plain).collect();
        let (limits, idle, connector) = (Limits::default(), Mutex::new(None), OnceCell::new());
        Self { endpoint, user, limits, idle, connector }
    }

    /// With other bounds.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        &self.endpoint.address
    }

    /// The server's process, when it is known.
    pub fn pid(&self) -> Option<u32> {
        self.endpoint.pid
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        Ok(self.listed(path).await?.value)
    }

    pub(crate) async fn listed<T: DeserializeOwned>(&self, path: &str) -> Result<Listed<T>, ClientError> {
        let (cursor, bytes) = self.exchange(&Call::new(Method::GET, path)).await?;
        Ok(Listed { value: self.read(&bytes)?, cursor })
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String, ClientError> {
        let (_, bytes) = self.exchange(&Call { accept: "*/*", ..Call::new(Method::GET, path) }).await?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.protocol("the answer is not text"))
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let bytes = self.send_for_bytes(method, path, body).await?;
        self.read(&bytes)
    }

    pub(crate) async fn send_for_nothing(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), ClientError> {
        self.send_for_bytes(method, path, body).await.map(|_| ())
    }

    /// A create that is known to be slow.
    pub(crate) async fn send_slow<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("the types of requests can be written as JSON");
        let call = Call { body, key: Some(new_key()), within: Some(within), ..Call::new(Method::POST, path) };
        self.read(&self.exchange(&call).await?.1)
    }

    async fn send_for_bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Bytes, ClientError> {
        let body =
            body.map(|body| serde_json::to_vec(body).expect("the types of requests can be written as JSON"));
        let key = (method == Method::POST).then(new_key);
        let call = Call { body: body.unwrap_or_default(), key, ..Call::new(method, path) };
        Ok(self.exchange(&call).await?.1)
    }

    /// Sends a request and reads the whole answer, within the time for both.
    async fn exchange(&self, call: &Call<'_>) -> Result<(Option<u64>, Bytes), ClientError> {
        let answered = async {
            let (response, connection) = self.answer(call).await?;
            let cursor = number(&response, CURSOR_HEADER);
            let bytes = self.whole(response).await?;
            *self.idle.lock().await = Some(connection);
            Ok((cursor, bytes))
        };
        let after = call.within.unwrap_or(self.limits.answer);
        match time::timeout(after, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(ClientError::Timeout { address: self.address().to_string(), after }),
        }
    }

    /// Sends a request, and again over a new connection if the kept one turns out to be closed and nothing can happen twice.
    async fn answer(&self, call: &Call<'_>) -> Result<(Response<Incoming>, Connection), ClientError> {
        let kept = self.idle.lock().await.take();
        if let Some(mut connection) = kept
            && connection.is_usable().await
        {
            match connection.send(self.request(call)).await {
                Ok(response) => return Ok((self.checked(response).await?, connection)),
                Err(Lost::Unsent) => {}
                Err(Lost::Closed) if call.method != Method::POST || call.key.is_some() => {}
                Err(lost) => return Err(self.lost(lost)),
            }
        }
        self.answer_on_its_own(call).await
    }

    /// Sends a request over a new connection.
    pub(crate) async fn answer_on_its_own(
        &self,
        call: &Call<'_>,
    ) -> Result<(Response<Incoming>, Connection), ClientError> {
        let connector = match self.address().is_tls() {
            false => None,
            true => {
                let trust = async || {
                    Connector::new(self.endpoint.trust())
                        .map_err(|source| ClientError::Tls { address: self.address().to_string(), source })
                };
                Some(self.connector.get_or_try_init(trust).await?)
            }
        };
        let mut connection = Connection::open(self.address(), connector, self.limits.connect).await?;
        let response = connection.send(self.request(call)).await.map_err(|lost| self.lost(lost))?;
        Ok((self.checked(response).await?, connection))
    }

    fn request(&self, call: &Call<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(header::HOST, self.address().authority())
            .header(header::ACCEPT, call.accept)
            .header(RELEASE_HEADER, berth_api::release());
        if !self.endpoint.token().is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.endpoint.token()));
        }
        if !self.user.is_empty() {
            request = request.header(USER_HEADER, &self.user);
        }
        if let Some(key) = &call.key {
            request = request.header(IDEMPOTENCY_HEADER, key);
        }
        if let Some(last) = call.last_event {
            request = request.header("last-event-id", last);
        }
        if let Some((key, protocol)) = &call.socket {
            request = request
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, key);
            if let Some(protocol) = protocol {
                request = request.header(header::SEC_WEBSOCKET_PROTOCOL, *protocol);
            }
        }
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::new(Bytes::from(call.body.clone())))
            .expect("paths are escaped, and names of users and tokens are checked before they get here")
    }

    /// Turns an answer that is no success into an error, and refuses releases that need not understand each other.
    async fn checked(&self, response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
        let status = response.status();
        let server = response.headers().get(RELEASE_HEADER).and_then(|value| value.to_str().ok());
        match server {
            Some(server) if understands(berth_api::release(), server) => {}
            Some(server) => {
                return Err(ClientError::Version {
                    client: berth_api::release().to_owned(),
                    server: server.to_owned(),
                    address: self.address().to_string(),
                });
            }
            None => return Err(self.protocol(format!("status {status} without the header {RELEASE_HEADER}"))),
        }
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let bytes = self.whole(response).await?;
        if status == StatusCode::UNAUTHORIZED && self.endpoint.token().is_empty() {
            return Err(ClientError::Unauthorised { address: self.address().to_string() });
        }
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => Err(ClientError::Problem(problem)),
            // A problem of a newer server may have a code that is not known here; its words are still worth showing.
            Err(_) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
                Ok(value) if value["detail"].is_string() => Err(ClientError::Problem(Problem {
                    status: status.as_u16(),
                    ..Problem::new(Code::Internal, value["detail"].as_str().unwrap_or_default())
                })),
                _ if status == StatusCode::UNAUTHORIZED => {
                    Err(ClientError::Unauthorised { address: self.address().to_string() })
                }
                _ => Err(self.protocol(format!("status {status} without a reason"))),
            },
        }
    }

    /// The whole body, which must not be larger than the limit.
    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), self.limits.answer_bytes_max);
        match body.collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(self.protocol(format!("the answer is above {} bytes", self.limits.answer_bytes_max)))
            }
            Err(_) => Err(ClientError::Closed { address: self.address().to_string() }),
        }
    }

    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(bytes)
            .map_err(|error| self.protocol(format!("the answer has another form: {error}")))
    }

    fn lost(&self, lost: Lost) -> ClientError {
        match lost {
            Lost::Unsent | Lost::Closed => ClientError::Closed { address: self.address().to_string() },
            Lost::Garbage(what) => self.protocol(what),
        }
    }

    pub(crate) fn protocol(&self, what: impl Into<String>) -> ClientError {
        ClientError::Protocol { address: self.address().to_string(), what: what.into() }
    }
}

fn number(response: &Response<Incoming>, name: &str) -> Option<u64> {
    response.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// Before 1.0 a minor release may change anything; afterwards a major one.
fn understands(client: &str, server: &str) -> bool {
    let significant = |version: &str| {
        let mut parts = version.split('.').map(str::to_owned);
        let (major, minor) = (parts.next(), parts.next());
        if major.as_deref() == Some("0") { (major, minor) } else { (major, None) }
    };
    significant(client) == significant(server)
}

/// A key that no other request has: 128 random bits.
fn new_key() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes.iter().fold(String::new(), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_one_zero_the_minor_release_must_be_the_same() {
        assert!(understands("0.1.0", "0.1.9"));
        assert!(!understands("0.1.0", "0.2.0"));
        assert!(!understands("0.1.0", "1.1.0"));
        assert!(understands("1.1.0", "1.2.0"));
        assert!(!understands("1.1.0", "2.1.0"));
        assert!(!understands("0.1.0", "nonsense"));
    }

    #[test]
    fn keys_differ() {
        assert_ne!(new_key(), new_key());
        assert_eq!(new_key().len(), 32);
    }
}
