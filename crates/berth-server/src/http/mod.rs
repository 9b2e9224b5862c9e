//! The API over HTTP. Handlers read, ask the controller, and say what it answers; nothing is decided here.

mod accept;
mod audit;
mod cluster;
mod cookie;
mod dashboard;
mod events;
mod fit;
mod guard;
mod history;
mod logs;
mod nodes;
mod oidc;
mod openapi;
mod owners;
mod people;
mod ports;
mod proxy;
mod sessions;
mod shell;
mod sockets;
mod state;
mod table;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

pub use openapi::openapi;
pub(crate) use sockets::Sockets;
pub(crate) use state::{AppState, Parts};

use crate::{
    auth::{self, Identity},
    listen::{Listener, Listeners},
    oidc::is_id_token,
    platform::{self, Refused},
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use berth_api::{Code, Problem};
use berth_types::Span;
use guard::Guarded;
use tokio::sync::oneshot;

/// Serves until it is told to stop: the API and the dashboard at one address, and ports of workloads at another. What a
/// workload shows may hold scripts, and a script may read what pages of its own address keep, such as who is signed in.
pub(crate) async fn serve(listeners: Listeners, state: AppState, stop: oneshot::Receiver<()>) {
    let Listeners { api, ports, reports } = listeners;
    let closing = state.clone();
    let closes = async move {
        // It ends also when nobody can tell it any more.
        let _ = stop.await;
        closing.feed.close();
    };
    let reports = async {
        if let Some(reports) = reports {
            serve_one(reports, reports_router(state.clone()), &state).await;
        }
    };
    let app = serve_one(api, router(state.clone()), &state);
    let workloads = serve_one(ports, ports_router(state.clone()), &state);
    tokio::join!(closes, app, workloads, reports);
}

/// Serves at one address until streams are to end.
async fn serve_one(listener: Listener, router: Router, state: &AppState) {
    accept::serve(listener, router, state.patience, state.feed.closed()).await;
}

fn ports_router(state: AppState) -> Router {
    Router::new()
        .fallback(proxy::serve)
        .layer(middleware::from_fn_with_state(state.clone(), authenticate_visitor))
        .layer(middleware::from_fn_with_state(state.clone(), audit::note))
        .with_state(state)
}

/// Where workloads of this machine speak about themselves, when everybody else needs TLS.
fn reports_router(state: AppState) -> Router {
    let guarded = Guarded { router: Router::new(), state: state.clone() };
    table::routes(guarded)
        .router
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), authenticate_workload))
        .layer(DefaultBodyLimit::max(berth_api::BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), audit::note))
        .layer(middleware::from_fn(tell_release))
        .with_state(state)
}

fn router(state: AppState) -> Router {
    let guarded = Guarded { router: Router::new(), state: state.clone() };
    table::routes(guarded)
        .router
        .route("/api/{*rest}", any(no_such_route))
        .fallback(proxy::serve)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), authenticate))
        // Whoever watches over the process has no token, and learns nothing.
        .route("/healthz", get(cluster::health))
        .route("/readyz", get(cluster::ready))
        // Whoever signs in has no token yet; and the page on which they do holds nothing secret.
        .route("/api/v1/session", post(sessions::sign_in))
        .route("/api/v1/oidc", get(oidc::offered))
        .route("/api/v1/oidc/start", get(oidc::start))
        .route("/api/v1/oidc/callback", get(oidc::callback))
        .route("/api/v1/oidc/token", post(oidc::redeem))
        .merge(dashboard::router())
        .layer(DefaultBodyLimit::max(berth_api::BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(state.clone(), audit::note))
        .layer(middleware::from_fn(tell_release))
        .with_state(state)
}

async fn no_such_route(request: Request) -> ApiError {
    ApiError(Problem::new(Code::NotFound, format!("there is nothing at {}", request.uri().path())))
}

async fn wrong_method(request: Request) -> ApiError {
    let text = format!("{} is not possible at {}", request.method(), request.uri().path());
    ApiError(Problem::new(Code::MethodNotAllowed, text))
}

/// Lets nobody in without a token, or the session of a page.
async fn authenticate(State(state): State<AppState>, request: Request, next: Next) -> Response {
    // A browser sends no token when a person types an address. Where there is no route, the dashboard of a person who signed in
    // can say so; it holds nothing secret, and its answer is the same whatever the address.
    let has_session = cookie::value(request.headers(), &state.door.sessions().cookie_name()).is_some();
    if has_session && dashboard::is_visit(&request) && request.extensions().get::<MatchedPath>().is_none() {
        return dashboard::not_found(request.headers());
    }
    let identity = match bearer(&state, request.headers()).await {
        Ok(None) if !request.headers().contains_key(header::AUTHORIZATION) => {
            Ok(cookie::session(&state, request.headers()).map(|(person, _)| Identity::Person(person)))
        }
        Ok(None) => Err(refusal(Refused::Malformed)),
        known => known,
    };
    enter(&state, identity, request, next).await
}

/// Lets workloads in, and nobody else: what people show is for TLS.
async fn authenticate_workload(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let identity = match bearer(&state, request.headers()).await {
        Ok(Some(Identity::Workload(workload))) => Ok(Some(Identity::Workload(workload))),
        Ok(Some(_)) => Err(refusal(Refused::Unknown)),
        other => other,
    };
    enter(&state, identity, request, next).await
}

/// Lets nobody near a workload's port without a token, or the link that was made for it.
async fn authenticate_visitor(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let identity = match bearer(&state, request.headers()).await {
        Ok(Some(person)) => Ok(Some(person)),
        // What a notebook is shown may be a password of its own, which is none of ours.
        other => match visitor(&state, &request) {
            Ok(Some(visitor)) => Ok(Some(visitor)),
            Ok(None) => other,
            Err(response) => return *response,
        },
    };
    enter(&state, identity, request, next).await
}

/// Who has the token that is shown, if one is.
async fn bearer(state: &AppState, headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
    let shown =
        text_of(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let Some(token) = shown else { return Ok(None) };
    if state.oidc.is_some() && is_id_token(token) {
        return oidc::bearer(state, token).await.map(Some);
    }
    let user = text_of(headers, berth_api::USER_HEADER);
    let now = state.shared.now();
    state.door.identify(token, user, state.shared.read().people(), now).map(Some).map_err(refusal)
}

async fn enter(
    state: &AppState,
    identity: Result<Option<Identity>, Problem>,
    mut request: Request,
    next: Next,
) -> Response {
    let now = state.shared.now();
    let from = audit::address(&request).map(|address| address.ip());
    let key = from.map(|from| from.to_string()).unwrap_or_default();
    // Everybody on this machine has the same address, so there a token is looked at whatever others tried.
    if (identity.is_err() || !from.is_some_and(|from| from.is_loopback()))
        && let Some(wait) = state.failures.wait(&key, now)
    {
        return too_often(wait, "too many unknown tokens came from this address");
    }
    match identity {
        Ok(Some(identity)) => {
            request.extensions_mut().insert(identity.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(audit::Knew(identity));
            response
        }
        Ok(None) => {
            let problem = Problem::new(Code::Unauthenticated, "a token is needed").hint(WHERE_TOKENS_ARE);
            proxy::problem(request.headers(), problem)
        }
        Err(problem) => {
            // That a provider does not answer is nobody's guess.
            if problem.code == Code::Unauthenticated {
                state.failures.count(&key, now);
            }
            proxy::problem(request.headers(), problem)
        }
    }
}

const WHERE_TOKENS_ARE: &str = "`berth login` keeps one of yours; that of the installation is in the file `token` of its \
     folder, and BERTH_TOKEN can be set to it. For a browser, `berth url NAME` prints a link that is good once";

/// Why somebody is not let in, in words.
fn refusal(refused: Refused) -> Problem {
    let (detail, hint) = match refused {
        Refused::Unknown => ("the token is not known here", WHERE_TOKENS_ARE),
        Refused::Malformed => {
            ("this is no token", "a token is sent as `Authorization: Bearer TOKEN`, whole and without spaces")
        }
        Refused::Expired => {
            ("the token has expired", "make another with `berth token create`, or ask an admin for one")
        }
        Refused::Revoked => {
            ("the token was revoked", "make another with `berth token create`, or ask an admin for one")
        }
    };
    Problem::new(Code::Unauthenticated, detail).hint(hint)
}

/// Somebody has to wait.
fn too_often(wait: Span, detail: &str) -> Response {
    let secs = wait.0.div_ceil(1_000).max(1);
    let problem = Problem::new(Code::Overloaded, detail).hint(format!("try again in {secs} s"));
    let mut response = ApiError(problem).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
    response
}

/// Who came by a link: with the link itself, which becomes a cookie, or with that cookie.
fn visitor(state: &AppState, request: &Request) -> Result<Option<Identity>, Box<Response>> {
    let headers = request.headers();
    let refused = |text: &str| Box::new(proxy::problem(headers, Problem::new(Code::Forbidden, text)));
    let query = request.uri().query().unwrap_or_default();
    let mut parameters = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    if let Some((_, secret)) = parameters.find(|(name, _)| *name == proxy::TICKET) {
        let path = request.uri().path();
        let routed = state.shared.read().route(path);
        let ticket = state.tickets.take(secret, std::time::Instant::now());
        let (Some(ticket), platform::Routed::To(target)) = (ticket, routed) else {
            return Err(refused(
                "this link was used already, or is too old: `berth url NAME` prints another",
            ));
        };
        if ticket.workload != target.workload {
            return Err(refused("this link was for another workload"));
        }
        let session = state.door.session(ticket.workload, &ticket.person, state.shared.now());
        let cookie = format!(
            "{}={session}; Path={}; HttpOnly; SameSite=Lax; Max-Age={}{}",
            proxy::COOKIE,
            target.prefix,
            auth::SESSION_SECS,
            cookie::secure(state),
        );
        let rest: Vec<&str> =
            query.split('&').filter(|pair| !pair.starts_with(proxy::TICKET) && !pair.is_empty()).collect();
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        let headers = [
            (header::LOCATION, format!("{path}{query}")),
            (header::SET_COOKIE, cookie),
            (header::CACHE_CONTROL, "no-store".into()),
            (header::REFERRER_POLICY, "no-referrer".into()),
        ];
        return Err(Box::new((StatusCode::SEE_OTHER, headers).into_response()));
    }
    let now = state.shared.now();
    let visitor = proxy::sessions(headers).find_map(|session| state.door.visitor(session, now)).filter(|visitor| {
        // Whoever made the link is let in for as long as what let them in counts.
        matches!(visitor, Identity::Visitor { person, .. } if state.shared.read().people().standing(person, now).is_ok())
    });
    if visitor.is_some() && proxy::is_cross_origin(headers) {
        return Err(refused("a page of another origin may not use this one's cookies"));
    }
    Ok(visitor)
}

/// Tells every client which release it talks to, and every page which build of the dashboard would be shown now.
async fn tell_release(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(berth_api::RELEASE_HEADER, HeaderValue::from_static(berth_api::release()));
    response.headers_mut().insert(berth_api::DASHBOARD_HEADER, dashboard::build());
    response
}

/// The text of a header that has one.
fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A problem as an answer.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Problem);

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let why = audit::Why(self.0.detail);
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        response.extensions_mut().insert(why);
        response
    }
}
