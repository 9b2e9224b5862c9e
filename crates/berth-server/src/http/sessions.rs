//! Signing in to the dashboard, and out.

use super::{
    ApiError, cookie,
    state::{Answer, AppState, Asked, User},
};
use crate::{auth::Identity, sessions::SignedIn};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use berth_api::{Code, Problem, Session, SessionRequest, SignInLink};

/// Make a link that signs in to the dashboard once
#[utoipa::path(post, path = "/api/v1/session/links", tag = "sessions",
    responses((status = 201, body = SignInLink), (status = "4XX", body = Problem)))]
pub(crate) async fn link(State(state): State<AppState>, User(user): User) -> Result<Response, ApiError> {
    let link = sign_in_link(&state, &user)?;
    Ok((StatusCode::CREATED, Answer(link)).into_response())
}

fn sign_in_link(state: &AppState, user: &str) -> Result<SignInLink, ApiError> {
    let made = state.door.sessions().link(user, state.shared.now());
    let (code, until) = made.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(SignInLink { path: format!("/#code={code}"), until: until.into() })
}

/// Sign in to the dashboard with the code of a link, or with a token
#[utoipa::path(post, path = "/api/v1/session", tag = "sessions", request_body = SessionRequest,
    responses((status = 201, description = "with the other half in a cookie", body = Session), (status = "4XX", body = Problem)))]
pub(crate) async fn sign_in(
    State(state): State<AppState>,
    Asked { request, .. }: Asked<SessionRequest>,
) -> Result<Response, ApiError> {
    let now = state.shared.now();
    let sessions = state.door.sessions();
    let user = match (&request.code, &request.token) {
        (Some(code), None) => sessions.redeem(code, now).ok_or_else(|| {
            Problem::new(Code::Unauthenticated, "the link was used already, or is too old")
                .hint("`berth dashboard` makes a new one")
        })?,
        (None, Some(token)) => match state.door.identify(token.trim(), None) {
            Some(Identity::Person { user }) => user,
            _ => {
                let problem = Problem::new(Code::Unauthenticated, "the token is not known here")
                    .hint("it is in the file `token` of the server's folder");
                return Err(ApiError(Problem { field: Some("token".into()), ..problem }));
            }
        },
        _ => return Err(ApiError(Problem::invalid("code", "give the code of a link, or a token"))),
    };
    let SignedIn { user, cookie, key, until } = sessions.sign_in(&user, now);
    let cookie = set_cookie(&state, &cookie, sessions.kept_secs());
    let session = Session { user, key: Some(key), until: Some(until.into()) };
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Answer(session)).into_response())
}

/// Show who is signed in
#[utoipa::path(get, path = "/api/v1/session", tag = "sessions",
    responses((status = 200, body = Session), (status = "4XX", body = Problem)))]
pub(crate) async fn show(State(state): State<AppState>, User(user): User, headers: HeaderMap) -> Response {
    let until = cookie::session(&state, &headers).map(|(_, until)| until.into());
    Answer(Session { user, key: None, until }).into_response()
}

/// Sign out
#[utoipa::path(delete, path = "/api/v1/session", tag = "sessions",
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn sign_out(State(state): State<AppState>) -> Response {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, set_cookie(&state, "", 0))]).into_response()
}

/// No script reads it, and no other site makes the browser send it.
fn set_cookie(state: &AppState, value: &str, kept_secs: u64) -> HeaderValue {
    let name = state.door.sessions().cookie_name();
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={kept_secs}");
    HeaderValue::from_str(&cookie).expect("names and values of our cookies are plain text")
}
