//! Ports of workloads under paths of the server.
//!
//! ```text
//! browser --cookie or token--> authenticate --> route: whose path is it --> dial: is its port its own --> workload
//!         <--headers within its path---------------------------------------------------------------------
//! ```
//!
//! A person's token and cookies stay here. Whoever has no token comes by a link that is good once and leaves a cookie, which is
//! good for one workload, and for nothing of the API.

mod headers;
mod page;
mod tickets;

pub(super) use headers::{COOKIE, is_cross_origin, sessions};
pub(super) use page::{escaped, page, problem};
pub(crate) use tickets::{OPENED_WITHIN, Ticket, Tickets};

use super::{
    ApiError,
    guard::{may_enter, shut_out},
    ports::dial,
    shell::{Worker, worker},
    state::{Answer, AppState, Caller, Query},
};
use crate::{
    auth::{Identity, new_token},
    platform::{NOTEBOOK_TOKEN, Routed, Sight, Target},
};
use axum::{
    body::Body,
    extract::{Path, Request, State},
    http::{HeaderValue, StatusCode, Uri, header, uri::PathAndQuery},
    response::{IntoResponse, Response},
};
use berth_api::{Code, Link, LinkQuery, Problem};
use berth_types::WorkloadId;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Instant;

/// The parameter of a link that is good once.
pub(super) const TICKET: &str = "berth-ticket";

/// Make a link to a workload's port that is good once, for a browser
#[utoipa::path(post, path = "/api/v1/workloads/{project}/{name}/link", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path), LinkQuery),
    responses((status = 200, body = Link), (status = "4XX", body = Problem)))]
pub(crate) async fn link(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path((project, name)): Path<(String, String)>,
    Query(query): Query<LinkQuery>,
) -> Result<Response, ApiError> {
    let found = super::workloads::find(&state, &project, &name).await?;
    let super::workloads::Found::Unfinished(workload) = found else {
        let text = format!("{project}/{name} is over, and listens no more");
        return Err(ApiError(Problem::new(Code::WrongState, text)));
    };
    let (found, _) = state
        .read(|platform| {
            let record = platform.record(workload)?;
            let mut urls = record.request.ports.iter().zip(platform.urls(record));
            urls.find(|(port, _)| query.port.is_none_or(|wanted| wanted == **port)).map(|(_, url)| url)
        })
        .await;
    let Some(url) = found else {
        if let Some(port) = query.port {
            let text = format!("{project}/{name} does not declare port {port}");
            return Err(ApiError(Problem::invalid("port", text)));
        }
        let text = format!("{project}/{name} declares no port");
        let hint = "a port is declared with `berth submit --port`; `berth port-forward` reaches any port";
        return Err(ApiError(Problem::new(Code::WrongState, text).hint(hint)));
    };
    let secret = new_token().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    state.tickets.put(secret.clone(), Ticket { workload, person }, Instant::now());
    let expires_secs = OPENED_WITHIN.as_secs();
    Ok(Answer(Link { url: format!("{url}?{TICKET}={secret}"), expires_secs }).into_response())
}

/// Everything that is no route of the server may be a port of a workload.
pub(super) async fn serve(State(state): State<AppState>, request: Request) -> Response {
    let headers = request.headers().clone();
    match forward(&state, request).await {
        Ok(response) => response,
        Err(problem) => page::of_port(&headers, problem),
    }
}

async fn forward(state: &AppState, request: Request) -> Result<Response, Problem> {
    let path = request.uri().path().to_owned();
    let nothing = || Problem::new(Code::NotFound, format!("there is nothing at {path}"));
    let (routed, _) = state.read(|platform| platform.route(&path)).await;
    let target = match routed {
        Routed::Nowhere => return Err(nothing()),
        Routed::Ambiguous(names) => {
            let sight = match request.extensions().get::<Identity>() {
                Some(Identity::Person(person)) => state.shared.read().sight(person),
                _ => Sight::Projects(Default::default()),
            };
            let names: Vec<String> = names.into_iter().filter(|name| sight.workload(name)).collect();
            if names.is_empty() {
                return Err(nothing());
            }
            let text = format!("{path} could mean {}", names.join(" or "));
            return Err(Problem::new(Code::NotFound, text).hint("write `/PROJECT/JOB` instead"));
        }
        Routed::To(target) => target,
    };
    let bears_token = match request.extensions().get::<Identity>() {
        Some(Identity::Person(person)) => {
            may_enter(state, person, &target.project, target.workload)?;
            true
        }
        Some(Identity::Visitor { person, workload }) if *workload == target.workload => {
            may_enter(state, person, &target.project, target.workload)?;
            false
        }
        Some(Identity::Visitor { .. }) => {
            let text = "this link was for another workload";
            return Err(
                Problem::new(Code::Forbidden, text).hint("`berth url NAME` prints a link to this one")
            );
        }
        _ => return Err(Problem::new(Code::Forbidden, "a workload may only report about itself")),
    };
    if let Some(base) = target.base.as_ref().filter(|base| **base != target.prefix) {
        let rest = &request.uri().path_and_query().map_or(path.as_str(), PathAndQuery::as_str)
            [target.prefix.len()..];
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        return Ok((StatusCode::FOUND, [(header::LOCATION, format!("{base}{rest}"))]).into_response());
    }
    // A page's relative links need the slash behind its folder.
    if path == target.prefix {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return Ok((StatusCode::FOUND, [(header::LOCATION, format!("{path}/{query}"))]).into_response());
    }
    let rank = state.turns.next(state, &target).await;
    let worker = worker(state, &target.project, &target.name, rank).await?;
    carry(state, &target, &worker, request, bears_token).await
}

/// Carries a request to the worker and its answer back; a socket, once it is one, until either side closes it.
async fn carry(
    state: &AppState,
    target: &Target,
    worker: &Worker,
    mut request: Request,
    bears_token: bool,
) -> Result<Response, Problem> {
    let full = format!("{}/{}", target.project, target.name);
    let unreachable = |error: hyper::Error| {
        let refused = refusal(&error);
        let text =
            refused.unwrap_or_else(|| format!("port {} of {full} does not answer: {error}", target.port));
        Problem::new(Code::Unreachable, text).hint(format!("`berth logs {full}` shows what it says"))
    };
    let stream = dial(state, worker, target.port).await.map_err(|problem| match problem.code {
        Code::WrongState => {
            Problem { code: Code::Unreachable, status: Code::Unreachable.status(), ..problem }
        }
        _ => problem,
    })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    let identity = request.extensions().get::<Identity>().cloned();
    let leaves = || left(state.clone(), identity.clone(), target.project.clone(), target.workload);
    let (gone, leaving) = (leaves(), leaves());
    tokio::spawn(async move {
        tokio::select! {
            _ = connection.with_upgrades() => {}
            // An answer that is still being given ends with it.
            () = gone => {}
        }
    });

    let is_stripped = target.base.is_none();
    let asked = request.headers();
    let upgrade = asked.get(header::UPGRADE).cloned();
    let scheme = if state.speaks_tls { "https" } else { "http" };
    let prefix = is_stripped.then_some(target.prefix.as_str());
    let mut passed = headers::for_workload(asked, bears_token, prefix, scheme);
    if let Some(upgrade) = &upgrade {
        passed.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        passed.insert(header::UPGRADE, upgrade.clone());
    }
    if !passed.contains_key(header::AUTHORIZATION)
        && let Some(token) = notebook_token(state, target.workload)
        && let Ok(value) = HeaderValue::from_str(&format!("token {token}"))
    {
        // The notebook asks for a token of its own, so that nobody else on this machine gets in beside us.
        passed.insert(header::AUTHORIZATION, value);
    }
    let theirs = hyper::upgrade::on(&mut request);
    let path = path_for(target, request.uri(), is_stripped)?;
    let (parts, body) = request.into_parts();
    let mut onward = hyper::Request::new(body);
    (*onward.method_mut(), *onward.uri_mut(), *onward.headers_mut()) = (parts.method, path, passed);
    let mut answer = sender.send_request(onward).await.map_err(unreachable)?;

    let mut passed = headers::for_browser(answer.headers(), &target.prefix, is_stripped);
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let permit = state.sockets.enter()?;
        let ours = hyper::upgrade::on(&mut answer);
        let closing = state.clone();
        tokio::spawn(async move {
            let (Ok(theirs), Ok(ours)) = (theirs.await, ours.await) else { return };
            let (mut theirs, mut ours) = (TokioIo::new(theirs), TokioIo::new(ours));
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut theirs, &mut ours) => {}
                () = closing.feed.closed() => {}
                () = leaving => {}
            }
            drop(permit);
        });
        passed.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(upgrade) = answer.headers().get(header::UPGRADE) {
            passed.insert(header::UPGRADE, upgrade.clone());
        }
    }
    let status = answer.status();
    let mut response = Response::new(Body::new(answer.into_body()));
    (*response.status_mut(), *response.headers_mut()) = (status, passed);
    Ok(response)
}

/// That nobody listens, where it is said only after a connection was made.
fn refusal(error: &hyper::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    (cause.kind() == std::io::ErrorKind::ConnectionRefused).then(|| cause.to_string())
}

/// The token that the notebook of a workload asks for. On a cluster it is in the environment of its Pod.
fn notebook_token(state: &AppState, workload: WorkloadId) -> Option<String> {
    let platform = state.shared.read();
    match &state.tasks {
        Some(tasks) => tasks.notebook_token(&platform, workload),
        None => platform.record(workload)?.request.environment.get(NOTEBOOK_TOKEN).cloned(),
    }
}

/// Waits until whoever came may not be there any more.
async fn left(state: AppState, identity: Option<Identity>, project: String, workload: WorkloadId) {
    match identity {
        Some(identity) => drop(shut_out(&state, &identity, &project, workload).await),
        None => std::future::pending().await,
    }
}

/// The path as the workload sees it.
fn path_for(target: &Target, uri: &Uri, is_stripped: bool) -> Result<Uri, Problem> {
    let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = if is_stripped { whole.strip_prefix(target.prefix.as_str()).unwrap_or(whole) } else { whole };
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    rest.parse().map_err(|_| Problem::new(Code::Malformed, "this is no path"))
}
