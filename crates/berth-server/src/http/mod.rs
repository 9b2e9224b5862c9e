//! The API over HTTP. Handlers read, ask the controller, and say what it answers; nothing is decided here.

mod cluster;
mod cookie;
mod dashboard;
mod events;
mod logs;
mod nodes;
mod openapi;
mod owners;
mod ports;
mod proxy;
mod sessions;
mod shell;
mod sockets;
mod state;
mod volumes;
mod workloads;

pub use openapi::openapi;
pub(crate) use sockets::Sockets;
pub(crate) use state::{AppState, Parts};

use crate::{
    auth::{self, Identity},
    platform,
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use berth_api::{Code, Problem};
use tokio::{net::TcpListener, sync::oneshot};

/// Serves until it is told to stop.
pub(crate) async fn serve(listener: TcpListener, state: AppState, stop: oneshot::Receiver<()>) {
    let app = router(state.clone());
    let stopped = async move {
        // It ends also when nobody can tell it any more.
        let _ = stop.await;
        state.feed.close();
    };
    let served = axum::serve(listener, app).with_graceful_shutdown(stopped);
    if let Err(error) = served.await {
        tracing::error!(%error, "the API stopped");
    }
}

fn router(state: AppState) -> Router {
    let api = Router::new()
        .route("/cluster", get(cluster::show))
        .route("/backup", post(cluster::backup))
        .route("/shutdown", post(cluster::shutdown))
        .route("/ping", post(cluster::ping))
        .route("/projects", get(owners::list_projects).post(owners::create_project))
        .route(
            "/projects/{name}",
            get(owners::show_project).patch(owners::update_project).delete(owners::delete_project),
        )
        .route("/departments", get(owners::list_departments).post(owners::create_department))
        .route(
            "/departments/{name}",
            get(owners::show_department).patch(owners::update_department).delete(owners::delete_department),
        )
        .route("/nodes", get(nodes::list))
        .route("/nodes/{name}", get(nodes::show))
        .route("/nodes/{name}/{action}", post(nodes::act))
        .route("/workloads", get(workloads::list).post(workloads::submit))
        .route("/workloads/{id}", get(workloads::show_id))
        .route("/workloads/{project}/{name}", get(workloads::show).delete(workloads::delete))
        .route("/workloads/{project}/{name}/suspend", post(workloads::suspend))
        .route("/workloads/{project}/{name}/resume", post(workloads::resume))
        .route("/workloads/{project}/{name}/why", get(workloads::why))
        .route("/workloads/{project}/{name}/logs", get(logs::read))
        .route("/workloads/{project}/{name}/exec", get(shell::exec))
        .route("/workloads/{project}/{name}/attach", get(shell::attach))
        .route("/workloads/{project}/{name}/connect", get(shell::connect))
        .route("/workloads/{project}/{name}/link", post(proxy::link))
        .route("/events", get(events::list))
        .route("/events/stream", get(events::stream))
        .route("/series", get(events::series_names))
        .route("/series/points", get(events::series_points))
        .route("/session", get(sessions::show).delete(sessions::sign_out))
        .route("/session/links", post(sessions::link))
        .route("/volumes", get(volumes::list).post(volumes::create))
        .route("/volumes/{name}", axum::routing::delete(volumes::delete))
        // Everything above is for people; a workload may speak of itself only.
        .layer(middleware::from_fn(people_only))
        .route("/report", post(workloads::report))
        .route("/checkpoint", post(workloads::checkpoint))
        .fallback(no_such_route);
    Router::new()
        .nest("/api/v1", api)
        .route("/metrics", get(cluster::metrics).layer(middleware::from_fn(people_only)))
        .route("/openapi.json", get(openapi::serve))
        .fallback(proxy::serve)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), authenticate))
        // Whoever watches over the process has no token, and learns nothing.
        .route("/healthz", get(cluster::health))
        .route("/readyz", get(cluster::ready))
        // Whoever signs in has no token yet; and the page on which they do holds nothing secret.
        .route("/api/v1/session", post(sessions::sign_in))
        .merge(dashboard::router())
        .layer(DefaultBodyLimit::max(berth_api::BODY_BYTES_MAX))
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

/// Lets nobody in without a token, or the session of a page; to a port of a workload, also who came by a link that was made for it.
async fn authenticate(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let token =
        text_of(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let person = match token {
        Some(token) => state.door.identify(token, text_of(headers, berth_api::USER_HEADER)),
        None => cookie::session(&state, headers).map(|(user, _)| Identity::Person { user }),
    };
    let identity = match person {
        Some(person) => Some(person),
        None if request.uri().path().starts_with("/api/") => None,
        None => match visitor(&state, &request) {
            Ok(visitor) => visitor,
            Err(response) => return *response,
        },
    };
    match identity {
        Some(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        None => {
            let detail = if token.is_some() { "the token is not known here" } else { "a token is needed" };
            let problem = Problem::new(Code::Unauthenticated, detail).hint(
                "the token is in the file `token` of the server's folder; set BERTH_TOKEN to it. For a browser, `berth url NAME` \
                 prints a link that is good once",
            );
            proxy::problem(headers, problem)
        }
    }
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
        let session = state.door.session(ticket.workload, &ticket.user, state.shared.now());
        let cookie = format!(
            "{}={session}; Path={}; HttpOnly; SameSite=Lax; Max-Age={}",
            proxy::COOKIE,
            target.prefix,
            auth::SESSION_SECS
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
    let visitor = proxy::sessions(headers).find_map(|session| state.door.visitor(session, now));
    if visitor.is_some() && proxy::is_cross_origin(headers) {
        return Err(refused("a page of another origin may not use this one's cookies"));
    }
    Ok(visitor)
}

async fn people_only(request: Request, next: Next) -> Response {
    match request.extensions().get::<Identity>() {
        Some(Identity::Person { .. }) => next.run(request).await,
        _ => {
            let problem = Problem::new(Code::Forbidden, "a workload may only report about itself");
            ApiError(problem).into_response()
        }
    }
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
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}
