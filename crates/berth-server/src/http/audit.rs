//! What people did, and what was refused.

use super::{
    ApiError,
    state::{Answer, AppState, Caller, Query},
};
use crate::{
    auth::Identity,
    platform::{Act, By, Place},
};
use axum::{
    extract::{ConnectInfo, MatchedPath, RawPathParams, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use berth_api::{AuditEntry, AuditList, AuditQuery, Code, Problem};
use std::net::SocketAddr;

/// Whom an answer was for, put into it for the audit log.
#[derive(Debug, Clone)]
pub(super) struct Knew(pub(super) Identity);

/// What a request was about when its path does not say: a project, and a thing in it.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) project: Option<String>,
    pub(super) target: String,
}

/// Why a request was refused.
#[derive(Debug, Clone)]
pub(super) struct Why(pub(super) String);

/// The address of whoever calls.
pub(super) fn address(request: &Request) -> Option<SocketAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| *address)
}

/// Writes a line for every change, every shell, and every refusal, before it is answered.
pub(super) async fn note(
    State(state): State<AppState>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let from = address(&request).map(|address| address.ip().to_string()).unwrap_or_default();
    let project = parameters.ok().and_then(|parameters| {
        let of = |wanted: &str| parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let by_name = || of("name").filter(|_| path.starts_with("/api/v1/projects/"));
        of("project").or_else(by_name).map(str::to_owned)
    });
    let mut response = next.run(request).await;
    let status = response.status();
    let is_change = !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_entry = route
        .as_deref()
        .is_some_and(|route| ["/exec", "/attach", "/connect"].iter().any(|end| route.ends_with(end)));
    let is_refusal = matches!(status.as_u16(), 401 | 403 | 429);
    // A workload speaks of itself often, and a notebook of its own things all the time.
    let is_chatter =
        matches!(route.as_deref(), Some("/api/v1/report" | "/api/v1/checkpoint" | "/api/v1/ping") | None);
    let extensions = response.extensions_mut();
    let (knew, about, why) =
        (extensions.remove::<Knew>(), extensions.remove::<About>(), extensions.remove::<Why>());
    if !is_refusal && (is_chatter || !(is_change || is_entry)) {
        return response;
    }
    let about = about.unwrap_or_default();
    let (user, by) = who(&state, knew.as_ref().map(|Knew(identity)| identity));
    let entry = AuditEntry {
        seq: 0,
        at: state.shared.now().into(),
        user,
        by,
        from,
        action: format!("{method} {}", route.unwrap_or_else(|| "port".into())),
        target: if about.target.is_empty() { path } else { about.target },
        project: about.project.or(project),
        status: status.as_u16(),
        problem: why.map(|Why(why)| why),
    };
    if let Err(error) = state.audit.note(entry) {
        tracing::error!(%error, "the audit log could not be written");
        if is_change {
            let text = format!("the audit log could not be written: {error}");
            let hint = "what was asked may have happened; nothing more is accepted until it can be written";
            return ApiError(Problem::new(Code::ReadOnly, text).hint(hint)).into_response();
        }
    }
    response
}

fn who(state: &AppState, identity: Option<&Identity>) -> (Option<String>, Option<String>) {
    let by = |by: By| match by {
        By::Installation => "installation".to_owned(),
        By::Token(id) => {
            let platform = state.shared.read();
            platform
                .people()
                .token(id)
                .map_or_else(|| format!("token {id}"), |token| format!("token {id} {}", token.name))
        }
    };
    match identity {
        None => (None, None),
        Some(Identity::Person(person)) => (Some(person.user.clone()), Some(by(person.by))),
        Some(Identity::Visitor { person, .. }) => (Some(person.user.clone()), Some("link".into())),
        Some(Identity::Workload(id)) => (None, Some(format!("workload {id}"))),
    }
}

/// Read what people did and tried: all of it for an admin, of what they lead for others
#[utoipa::path(get, path = "/api/v1/audit", tag = "people", params(AuditQuery),
    responses((status = 200, body = AuditList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<AuditQuery>,
) -> Result<Response, ApiError> {
    let (all, led) = {
        let platform = state.shared.read();
        let all = platform.is_allowed(&person, Act::Rule, Place::Everywhere);
        if !platform.is_allowed_somewhere(&person, Act::People) {
            platform.may(&person, Act::People, Place::Everywhere)?;
        }
        (all, platform.led_projects(&person))
    };
    let limit = query.limit.unwrap_or(100).clamp(1, berth_api::PAGE_MAX);
    let reader = state.clone();
    let read = move || {
        let shown =
            |entry: &AuditEntry| all || entry.project.as_ref().is_some_and(|project| led.contains(project));
        let items = reader.audit.read(&query, limit, shown)?;
        let cursor = items.last().map_or(query.after.unwrap_or(0), |entry| entry.seq);
        Ok::<_, std::io::Error>(AuditList { items, cursor })
    };
    let read = tokio::task::spawn_blocking(read).await;
    let internal = |text: String| ApiError(Problem::new(Code::Internal, text));
    let list =
        read.map_err(|_| internal("reading failed".into()))?.map_err(|error| internal(error.to_string()))?;
    Ok(Answer(list).into_response())
}
