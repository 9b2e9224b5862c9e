//! What handlers share, and how they ask.

use super::{
    ApiError,
    ports::{Owned, Turns},
    proxy::Tickets,
    sockets::Sockets,
    text_of,
};
use crate::{
    Folder, Shutdown,
    attempts::Attempts,
    audit::Audit,
    auth::{Door, Identity},
    cluster::Mirror,
    controller::{Command, Key, Message, Shared, store_problem},
    feed::{Durable, Feed},
    oidc::{Pending, Provider, Waiting},
    platform::{By, Person, Platform},
    release::Reply,
    tasks::Tasks,
};
use axum::{
    body::{Bytes, HttpBody},
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, StatusCode, header, request::Parts as RequestParts},
    response::{IntoResponse, Response},
};
use berth_api::{ClusterTotals, Code, Problem, TokenMade};
use berth_store::{Json, Store, StoreError};
use berth_types::Time;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Unknown tokens and codes from one address.
const FAILURES_AT_ONCE: u64 = 200;
const FAILURES_PER_MINUTE: u64 = 60;
/// Submissions of one user; whoever has the token of the installation is not counted.
const SUBMISSIONS_AT_ONCE: u64 = 1_000;
const SUBMISSIONS_PER_MINUTE: u64 = 600;
/// Totals are computed at most this often while nothing happens.
const TOTALS_KEPT: Duration = Duration::from_millis(200);
/// The longest idempotency key.
const KEY_BYTES_MAX: usize = 255;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Inner>);

/// What a state is made of.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Arc<Store>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) tasks: Option<Tasks>,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) messages: Sender<Message>,
    pub(crate) door: Door,
    pub(crate) audit: Audit,
    pub(crate) folder: Folder,
    pub(crate) declared: bool,
    pub(crate) started: Time,
    pub(crate) ping_every: Duration,
    pub(crate) speaks_tls: bool,
    pub(crate) public_url: String,
    pub(crate) oidc: Option<Provider>,
    pub(crate) patience: Duration,
    pub(crate) sockets: Sockets,
    pub(crate) stop: oneshot::Sender<Shutdown>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Arc<Store>,
    pub(crate) feed: Arc<Feed>,
    /// What runs on this machine; nothing when a cluster is behind the API.
    pub(crate) tasks: Option<Tasks>,
    pub(crate) mirror: Option<Mirror>,
    messages: Sender<Message>,
    pub(crate) door: Door,
    pub(crate) audit: Audit,
    pub(crate) folder: Folder,
    pub(crate) declared: bool,
    pub(crate) started: Time,
    /// On an open socket something is said at least this often.
    pub(crate) ping_every: Duration,
    /// Cookies are kept for connections that nobody reads.
    pub(crate) speaks_tls: bool,
    /// Where people reach this server.
    pub(crate) public_url: String,
    /// Who says who somebody is, besides us.
    pub(crate) oidc: Option<Provider>,
    /// Sign-ins there that have begun.
    pub(crate) sign_ins: Waiting<Pending>,
    /// Tokens of those that are over, for command lines that can prove that they began them.
    pub(crate) proofs: Waiting<(String, TokenMade)>,
    /// Whoever asks has asked within this time.
    pub(crate) patience: Duration,
    pub(crate) sockets: Sockets,
    pub(crate) tickets: Tickets,
    pub(crate) owned: Owned,
    pub(crate) turns: Turns,
    /// Tokens and codes that were not known, by address.
    pub(crate) failures: Attempts,
    /// Submissions, by user.
    pub(crate) submissions: Attempts,
    /// The totals that were computed last, so that all who follow share the work.
    totals: Mutex<Option<(Durable, Instant, Arc<ClusterTotals>)>>,
    stop: Mutex<Option<oneshot::Sender<Shutdown>>>,
}

impl std::ops::Deref for AppState {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl AppState {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { shared, store, feed, tasks, mirror, messages, door, folder, declared, started, .. } =
            parts;
        let Parts { ping_every, patience, speaks_tls, public_url, oidc, sockets, stop, audit, .. } = parts;
        let stop = Mutex::new(Some(stop));
        Self(Arc::new(Inner {
            shared,
            store,
            feed,
            tasks,
            mirror,
            messages,
            door,
            audit,
            folder,
            declared,
            started,
            ping_every,
            speaks_tls,
            public_url,
            oidc,
            sign_ins: Waiting::default(),
            proofs: Waiting::default(),
            patience,
            sockets,
            tickets: Tickets::default(),
            owned: Owned::default(),
            turns: Turns::default(),
            failures: Attempts::new(FAILURES_AT_ONCE, FAILURES_PER_MINUTE),
            submissions: Attempts::new(SUBMISSIONS_AT_ONCE, SUBMISSIONS_PER_MINUTE),
            totals: Mutex::default(),
            stop,
        }))
    }

    /// Lets the controller do something; the answer comes when it is durable.
    pub(crate) async fn command<T: Serialize>(
        &self,
        key: Option<Key>,
        command: impl FnOnce(&mut Platform, Time) -> Result<T, Problem> + Send + 'static,
    ) -> Result<Body, ApiError> {
        let (reply, answer) = oneshot::channel();
        let command: Command = Box::new(move |platform, now| {
            command(platform, now).map(|answer| Json::of(&answer).expect("answers are JSON"))
        });
        if let Some(mirror) = &self.mirror {
            let json = mirror.command(&self.shared, key, command).await?;
            return Ok(Body(json.as_str().to_owned()));
        }
        let message = Message::Command { command, key, reply: Reply(reply) };
        let closing = || Problem::new(Code::ReadOnly, "the server is stopping");
        self.messages.send(message).map_err(|_| closing())?;
        let json = answer.await.map_err(|_| closing())??;
        Ok(Body(json.as_str().to_owned()))
    }

    /// Looks at the platform. What is shown is durable when it is shown; gives the last event in it too.
    pub(crate) async fn read<T>(&self, look: impl Fn(&Platform) -> T) -> (T, u64) {
        loop {
            let (seen, stands) = {
                let platform = self.shared.read();
                (look(&platform), self.shared.stands())
            };
            if self.feed.until(stands).await {
                return (seen, stands.seq);
            }
        }
    }

    /// Sums over the cluster, of this moment or of a quarter of a second ago.
    pub(crate) async fn totals(&self) -> Arc<ClusterTotals> {
        let stands = self.shared.stands();
        if let Some((seen, at, totals)) = &*self.totals.lock().unwrap_or_else(PoisonError::into_inner)
            && *seen == stands
            && at.elapsed() < TOTALS_KEPT
        {
            return Arc::clone(totals);
        }
        let (totals, _) = self.read(|platform| platform.totals(&self.shared.measured())).await;
        let totals = Arc::new(totals);
        let kept = (stands, Instant::now(), Arc::clone(&totals));
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        totals
    }

    /// Reads from the store without holding up the executor.
    pub(crate) async fn load<T: Send + 'static>(
        &self,
        load: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = Arc::clone(&self.store);
        let loaded = tokio::task::spawn_blocking(move || load(&store)).await;
        let loaded = loaded.map_err(|_| Problem::new(Code::Internal, "reading failed"))?;
        loaded.map_err(|error| ApiError(store_problem(&error)))
    }

    /// Asks for the end of the server; whether it was not asked before.
    pub(crate) fn ask_stop(&self, how: Shutdown) -> bool {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        stop.is_some_and(|stop| stop.send(how).is_ok())
    }
}

/// JSON that is an answer already.
pub(crate) struct Body(String);

impl IntoResponse for Body {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl Body {
    /// What it says.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_str(&self.0)
            .map_err(|error| ApiError(Problem::new(Code::Internal, error.to_string())))
    }

    /// As the answer to a create.
    pub(crate) fn created(self) -> Response {
        (StatusCode::CREATED, self).into_response()
    }
}

/// An answer of a type of the API.
pub(crate) struct Answer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.0).expect("answers are JSON");
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// The user for whom a person's request is made.
pub(crate) struct User(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for User {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut RequestParts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Identity>() {
            Some(Identity::Person(person)) => Ok(Self(person.user.clone())),
            _ => Err(ApiError(Problem::new(Code::Forbidden, "this is for people"))),
        }
    }
}

/// The person who calls.
pub(crate) struct Caller(pub(crate) Person);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut RequestParts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Identity>() {
            Some(Identity::Person(person)) => Ok(Self(person.clone())),
            _ => Err(ApiError(Problem::new(Code::Forbidden, "this is for people"))),
        }
    }
}

/// A body of a type of the API, with the idempotency key it came with. What is wrong with it is said by field and place.
pub(crate) struct Asked<T> {
    pub(crate) request: T,
    pub(crate) key: Option<Key>,
}

impl<T: DeserializeOwned> FromRequest<AppState> for Asked<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let headers = request.headers().clone();
        let path = request.uri().path().to_owned();
        let whose = match request.extensions().get::<Identity>() {
            Some(Identity::Person(Person { user, by: By::Token(_) })) => format!("{user}\n"),
            _ => String::new(),
        };
        let too_large =
            || Problem::new(Code::TooLarge, format!("the body is above {} bytes", berth_api::BODY_BYTES_MAX));
        // Whoever says so beforehand is not listened to for long.
        if request.body().size_hint().lower() > berth_api::BODY_BYTES_MAX as u64 {
            return Err(ApiError(too_large()));
        }
        let read = tokio::time::timeout(state.patience, Bytes::from_request(request, state)).await;
        let read = read.map_err(|_| {
            let detail = format!("the body did not come within {} s", state.patience.as_secs());
            Problem::new(Code::Malformed, detail)
        })?;
        let bytes = read.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            _ => Problem::new(Code::Malformed, "the body could not be read"),
        })?;
        let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let read = match is_object {
            true => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            // Serde would take a list for an object whose fields have no names.
            false => Err("an object is expected".into()),
        };
        let request = read.map_err(|error| {
            let hint = "docs/api.md and /openapi.json describe every request";
            Problem::new(Code::Malformed, format!("the body is not what is expected: {error}")).hint(hint)
        })?;
        Ok(Self { request, key: key(&headers, &whose, &path, &bytes)? })
    }
}

/// A key is its user's own: nobody is given the answer to somebody else.
fn key(headers: &HeaderMap, whose: &str, path: &str, body: &[u8]) -> Result<Option<Key>, Problem> {
    if !headers.contains_key(berth_api::IDEMPOTENCY_HEADER) {
        return Ok(None);
    }
    let key = text_of(headers, berth_api::IDEMPOTENCY_HEADER)
        .filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or_else(|| {
        Problem::invalid(
            berth_api::IDEMPOTENCY_HEADER,
            format!("an idempotency key is text of 1 to {KEY_BYTES_MAX} bytes"),
        )
    })?;
    let request = Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize().to_vec();
    Ok(Some(Key { key: format!("{whose}{key}"), request }))
}

/// Parameters of a type of the API.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, ApiError> {
        let axum::extract::Query(query) =
            axum::extract::Query::from_request_parts(parts, state).await.map_err(|rejection| {
                Problem::new(
                    Code::Malformed,
                    format!("the parameters are not what is expected: {}", rejection.body_text()),
                )
            })?;
        Ok(Self(query))
    }
}
