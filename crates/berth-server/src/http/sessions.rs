//! Signing in to the dashboard, and out.

use super::{
    ApiError,
    audit::Knew,
    cookie, refusal,
    state::{Answer, AppState, Asked, Caller, User},
    too_often,
};
use crate::{
    auth::Identity,
    platform::{Person, Refused},
    sessions::SignedIn,
};
use axum::{
    extract::{ConnectInfo, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use berth_api::{Code, Problem, Session, SessionRequest, SignInLink};
use std::net::SocketAddr;

/// Make a link that signs in to the dashboard once
#[utoipa::path(post, path = "/api/v1/session/links", tag = "sessions",
    responses((status = 201, body = SignInLink), (status = "4XX", body = Problem)))]
pub(crate) async fn link(
    State(state): State<AppState>,
    Caller(person): Caller,
) -> Result<Response, ApiError> {
    let link = sign_in_link(&state, &person)?;
    Ok((StatusCode::CREATED, Answer(link)).into_response())
}

fn sign_in_link(state: &AppState, person: &Person) -> Result<SignInLink, ApiError> {
    let made = state.door.sessions().link(person, state.shared.now());
    let (code, until) = made.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(SignInLink { path: format!("/#code={code}"), until: until.into() })
}

/// Sign in to the dashboard with the code of a link, or with a token
#[utoipa::path(post, path = "/api/v1/session", tag = "sessions", request_body = SessionRequest,
    responses((status = 201, description = "with the other half in a cookie", body = Session), (status = "4XX", body = Problem)))]
pub(crate) async fn sign_in(
    State(state): State<AppState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    Asked { request, .. }: Asked<SessionRequest>,
) -> Result<Response, Response> {
    let now = state.shared.now();
    let from = from.ip().to_string();
    if let Some(wait) = state.failures.wait(&from, now) {
        return Err(too_often(wait, "too many sign-ins from this address failed"));
    }
    let person = entering(&state, &request).map_err(|problem| {
        if problem.code == Code::Unauthenticated {
            state.failures.count(&from, now);
        }
        ApiError(problem).into_response()
    })?;
    let sessions = state.door.sessions();
    let SignedIn { person, cookie, key, until } = sessions.sign_in(&person, now);
    let cookie = set_cookie(&state, &cookie, sessions.kept_secs());
    let session = Session { user: person.user.clone(), key: Some(key), until: Some(until.into()) };
    let mut response = (StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Answer(session)).into_response();
    response.extensions_mut().insert(Knew(Identity::Person(person)));
    Ok(response)
}

/// Who signs in.
fn entering(state: &AppState, request: &SessionRequest) -> Result<Person, Problem> {
    let now = state.shared.now();
    match (&request.code, &request.token) {
        (Some(code), None) => {
            let person = state.door.sessions().redeem(code, now);
            let standing = |person: &Person| state.shared.read().people().standing(person, now).is_ok();
            person.filter(standing).ok_or_else(|| {
                Problem::new(Code::Unauthenticated, "the link was used already, or is too old")
                    .hint("`berth dashboard` makes a new one")
            })
        }
        (None, Some(token)) => {
            let identity = state.door.identify(token.trim(), None, state.shared.read().people(), now);
            match identity {
                Ok(Identity::Person(person)) => Ok(person),
                Ok(_) => Err(Problem { field: Some("token".into()), ..refusal(Refused::Unknown) }),
                Err(refused) => Err(Problem { field: Some("token".into()), ..refusal(refused) }),
            }
        }
        _ => Err(Problem::invalid("code", "give the code of a link, or a token")),
    }
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
    let secure = cookie::secure(state);
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={kept_secs}{secure}");
    HeaderValue::from_str(&cookie).expect("names and values of our cookies are plain text")
}
