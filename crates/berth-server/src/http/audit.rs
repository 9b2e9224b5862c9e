//! What people did, and what was refused.

use super::{
    ApiError,
    state::{Answer, AppState, Caller, Query},
};
use crate::{
    audit::Outcome,
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
use std::{net::SocketAddr, sync::Arc};

/// Whom an answer was for, put into it for the audit log.
#[derive(Debug, Clone)]
pub(super) struct Knew(pub(super) Identity);

/// What a request was about when its path does not say: a project, and a thing in it.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) project: Option<String>,
    pub(super) target: String,
}

impl About {
    /// Adds to the answer of a create what was made, so that the audit log names it.
    pub(super) fn made(mut response: Response, target: impl Into<String>) -> Response {
        response.extensions_mut().insert(Self { project: None, target: target.into() });
        response
    }
}

/// Why a request was refused.
#[derive(Debug, Clone)]
pub(super) struct Why(pub(super) String);

/// The address of whoever calls.
pub(super) fn address(request: &Request) -> Option<SocketAddr> {
    request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| *address)
}

/// Something that was noted before it is done. What is dropped without an outcome has none.
pub(super) struct Begun {
    state: AppState,
    seq: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.state.audit.abandon(self.seq);
    }
}

/// Routes on which a workload speaks of itself, often.
const CHATTER: [&str; 3] = ["/api/v1/report", "/api/v1/checkpoint", "/api/v1/ping"];

/// What a request is, as far as it can be told before it is answered.
struct Asked {
    is_change: bool,
    /// Whether it is noted when it is not refused.
    is_noted: bool,
    entry: AuditEntry,
}

impl Asked {
    fn of(state: &AppState, parameters: Option<&RawPathParams>, request: &Request) -> Self {
        let method = request.method();
        let path = request.uri().path().to_owned();
        let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        let project = parameters.and_then(|parameters| {
            let of =
                |wanted: &str| parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
            let by_name = || of("name").filter(|_| path.starts_with("/api/v1/projects/"));
            of("project").or_else(by_name).map(str::to_owned)
        });
        let is_change = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let is_entry = route.as_deref().is_some_and(|route| {
            ["/exec", "/attach", "/connect", "/oidc/callback"].iter().any(|end| route.ends_with(end))
        });
        // What goes through ports has no route here, and a notebook speaks of its own things all the time.
        let is_chatter = route.as_deref().is_none_or(|route| CHATTER.contains(&route));
        Self {
            is_change,
            is_noted: (is_change || is_entry) && !is_chatter,
            entry: AuditEntry {
                seq: 0,
                at: state.shared.now().into(),
                user: None,
                by: None,
                from: address(request).map(|address| address.ip().to_string()).unwrap_or_default(),
                action: format!("{method} {}", route.unwrap_or_else(|| "port".into())),
                target: path,
                project,
                status: 0,
                problem: None,
            },
        }
    }
}

/// Notes what somebody who may is about to do, if it is to be noted; the answer carries it on to its outcome.
pub(super) fn begin(
    state: &AppState,
    identity: &Identity,
    parameters: &RawPathParams,
    request: &Request,
) -> Result<Option<Arc<Begun>>, Problem> {
    let asked = Asked::of(state, Some(parameters), request);
    if !asked.is_noted {
        return Ok(None);
    }
    let (user, by) = who(state, Some(identity));
    match state.audit.begin(AuditEntry { user, by, ..asked.entry }) {
        Ok(seq) => Ok(Some(Arc::new(Begun { state: state.clone(), seq }))),
        Err(error) => {
            tracing::error!(%error, "the audit log could not be written");
            Err(not_noted(&error))
        }
    }
}

fn not_noted(error: &std::io::Error) -> Problem {
    Problem::new(
        Code::ReadOnly,
        format!("nothing was done, because it cannot be noted in the audit log: {error}"),
    )
    .hint("is the disk of the server full? Looking is possible meanwhile")
}

/// Writes what became of every change and every shell, and a line for every refusal, before it is answered.
pub(super) async fn note(
    State(state): State<AppState>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let Asked { is_change, is_noted, entry } = Asked::of(&state, parameters.as_ref().ok(), &request);
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    let extensions = response.extensions_mut();
    let (knew, about, why) =
        (extensions.remove::<Knew>(), extensions.remove::<About>(), extensions.remove::<Why>());
    let problem = why.map(|Why(why)| why);
    let about = about.unwrap_or_default();
    let target = Some(about.target).filter(|target| !target.is_empty());
    if let Some(begun) = extensions.remove::<Arc<Begun>>() {
        let outcome = Outcome { seq: begun.seq, status, target, project: about.project, problem };
        if let Err(error) = state.audit.end(&outcome) {
            // Who did what is noted; to deny what was done would be a second mistake.
            tracing::error!(%error, seq = begun.seq, status, "an outcome is missing in the audit log");
        }
        return response;
    }
    if !is_noted && !matches!(status, 401 | 403 | 429) {
        return response;
    }
    let (user, by) = who(&state, knew.as_ref().map(|Knew(identity)| identity));
    let target = target.unwrap_or(entry.target);
    let project = about.project.or(entry.project);
    if let Err(error) = state.audit.note(AuditEntry { user, by, target, project, status, problem, ..entry }) {
        tracing::error!(%error, "the audit log could not be written");
        if is_change {
            return ApiError(not_noted(&error)).into_response();
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
            let problem = Problem::new(Code::Forbidden, "only admins and leads can read the audit log");
            return Err(ApiError(problem.hint("`berth whoami` shows your roles")));
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
