//! Single sign-on in a browser, for the dashboard and for a command line that waits beside it.

use super::{
    ApiError,
    audit::Knew,
    cookie, proxy,
    state::{Answer, AppState, Asked, Query},
    text_of, too_often,
};
use crate::{
    auth::{self, Identity},
    oidc::{Pending, Proof, Provider, SignedIn},
    platform::{By, Person, Platform},
};
use axum::{
    extract::{ConnectInfo, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use berth_api::{Code, Problem, SignInProof, SingleSignOn, Token, TokenMade};
use berth_types::{Span, Time};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// How long somebody who signed in at the provider stays; what it says of them is as old as that at most.
const SIGNED_IN: Span = Span::secs(12 * 3_600);
const START: &str = "/api/v1/oidc/start";
const CALLBACK: &str = "/api/v1/oidc/callback";
/// The cookie that ties a sign-in to the browser in which it began; its name goes on with what the provider gives back.
const COOKIE: &str = "berth-oidc-";

/// Say whether there is single sign-on, and by whom
#[utoipa::path(get, path = "/api/v1/oidc", tag = "sessions",
    responses((status = 200, body = SingleSignOn), (status = "4XX", body = Problem)))]
pub(crate) async fn offered(State(state): State<AppState>) -> Response {
    let provider = state.oidc.as_ref();
    let name = provider.map(|provider| provider.settings.name.clone());
    let start = provider.map(|_| START.to_owned());
    Answer(SingleSignOn { name, start }).into_response()
}

fn provider(state: &AppState) -> Result<&Provider, Problem> {
    state.oidc.as_ref().ok_or_else(|| {
        Problem::new(Code::NotFound, "there is no single sign-on here")
            .hint("sign in with a token, or ask an admin to set --oidc-issuer and --oidc-client-id")
    })
}

/// What a browser is sent with to begin.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Start {
    /// The port of this browser's machine on which a command line waits.
    port: Option<u16>,
    /// The hash of its proof.
    challenge: Option<String>,
    /// It was sent here from another name of this server.
    again: bool,
}

/// Send a browser to the provider of single sign-on
#[utoipa::path(get, path = "/api/v1/oidc/start", tag = "sessions",
    params(("port" = Option<u16>, Query), ("challenge" = Option<String>, Query), ("again" = Option<bool>, Query)),
    responses((status = 303, description = "to the provider"), (status = "4XX", body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn start(
    State(state): State<AppState>,
    headers: HeaderMap,
    Query(asked): Query<Start>,
) -> Response {
    let begun = begin(&state, &headers, asked).await;
    begun.unwrap_or_else(|problem| proxy::problem(&headers, problem))
}

async fn begin(state: &AppState, headers: &HeaderMap, asked: Start) -> Result<Response, Problem> {
    let provider = provider(state)?;
    let is_hash = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let command_line = match (asked.port, asked.challenge) {
        (None, None) => None,
        (Some(port), Some(challenge)) if port > 0 && is_hash(&challenge) => Some((port, challenge)),
        _ => return Err(Problem::invalid("challenge", "a command line has a port and a hash of 64 digits")),
    };
    // The provider sends browsers back to one name of this server, and cookies of another would not come with them.
    let own = state.public_url.split_once("://").map_or("", |(_, own)| own);
    if !asked.again && text_of(headers, "host").is_some_and(|host| !host.eq_ignore_ascii_case(own)) {
        let more = command_line.map(|(port, challenge)| format!("&port={port}&challenge={challenge}"));
        let to = format!("{}{START}?again=true{}", state.public_url, more.unwrap_or_default());
        return Ok((StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response());
    }
    let pending =
        Pending::new(command_line).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let redirect = format!("{}{CALLBACK}", state.public_url);
    let url = provider
        .sign_in_url(&redirect, &pending.state, &pending.nonce, &pending.challenge())
        .await
        .map_err(Problem::from)?;
    let cookie = set_cookie(state, &pending.state, &pending.cookie, 600);
    let secret = pending.state.clone();
    state.sign_ins.put(&secret, pending, state.shared.now());
    let headers =
        [(header::LOCATION, url), (header::SET_COOKIE, cookie), (header::CACHE_CONTROL, "no-store".into())];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

fn cookie_name(state: &str) -> String {
    format!("{COOKIE}{}", state.get(..16).unwrap_or_default())
}

fn set_cookie(state: &AppState, of: &str, value: &str, kept_secs: u64) -> String {
    let (name, secure) = (cookie_name(of), cookie::secure(state));
    format!("{name}={value}; Path=/api/v1/oidc; HttpOnly; SameSite=Lax; Max-Age={kept_secs}{secure}")
}

/// What a browser brings back from the provider.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Back {
    code: String,
    state: String,
    error: Option<String>,
    error_description: Option<String>,
}

/// Take a browser back from the provider, and sign in whoever sits at it
#[utoipa::path(get, path = "/api/v1/oidc/callback", tag = "sessions",
    params(("code" = Option<String>, Query), ("state" = Option<String>, Query), ("error" = Option<String>, Query),
        ("error_description" = Option<String>, Query)),
    responses((status = 303, description = "to the dashboard"), (status = 200, description = "a page, for a command line that waits"),
        (status = "4XX", body = Problem), (status = 502, body = Problem)))]
pub(crate) async fn callback(
    State(state): State<AppState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Response {
    let (now, from) = (state.shared.now(), from.ip().to_string());
    if let Some(wait) = state.failures.wait(&from, now) {
        return too_often(wait, "too many sign-ins from this address failed");
    }
    match finish(&state, &headers, &back).await {
        Ok(response) => response,
        Err(problem) => {
            if problem.code == Code::Unauthenticated {
                state.failures.count(&from, now);
            }
            proxy::problem(&headers, problem)
        }
    }
}

async fn finish(state: &AppState, headers: &HeaderMap, back: &Back) -> Result<Response, Problem> {
    let provider = provider(state)?;
    let now = state.shared.now();
    let refused = |text: &str| {
        Problem::new(Code::Unauthenticated, text)
            .hint("begin again: at the dashboard, or with `berth login --oidc`")
    };
    let pending = state.sign_ins.take(&back.state, now);
    let pending = pending.ok_or_else(|| refused("this sign-in is over, or took too long"))?;
    let kept = cookie::value(headers, &cookie_name(&pending.state)).unwrap_or_default();
    if !auth::same(&pending.cookie, kept) {
        return Err(refused("this sign-in began in another browser"));
    }
    if let Some(error) = &back.error {
        let text = back.error_description.as_deref().unwrap_or(error);
        return Err(refused(&format!(
            "the provider of single sign-on refused: {}",
            crate::names::shown(text)
        )));
    }
    let redirect = format!("{}{CALLBACK}", state.public_url);
    let proof =
        Proof { code: &back.code, verifier: &pending.verifier, nonce: &pending.nonce, redirect: &redirect };
    let signed_in = provider.redeem(&proof, now.0 / 1_000).await.map_err(Problem::from)?;
    let made = sign_in(state, signed_in, None, now + SIGNED_IN).await?;
    let person = Person { user: made.token.user.clone(), by: By::Token(made.token.id) };
    let gone = HeaderValue::from_str(&set_cookie(state, &pending.state, "", 0));
    let mut response = match pending.command_line {
        None => {
            let link = state.door.sessions().link(&person, now);
            let (code, _) = link.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
            let headers =
                [(header::LOCATION, format!("/#code={code}")), (header::CACHE_CONTROL, "no-store".into())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Some((port, challenge)) => {
            let secret =
                auth::new_token().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
            let code = &secret[..32];
            state.proofs.put(code, (challenge, made), now);
            proxy::page(&confirmation(&person.user, port, code))
        }
    };
    if let Ok(gone) = gone {
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
    response.extensions_mut().insert(Knew(Identity::Person(person)));
    Ok(response)
}

/// Whoever sits there says that it was they who began: another program of the same machine could wait on that port.
fn confirmation(user: &str, port: u16, code: &str) -> String {
    let user = proxy::escaped(user);
    format!(
        "<p><code>berth login</code> asks to act as <b>{user}</b>.</p>\
         <p><a href=\"http://127.0.0.1:{port}/?code={code}\">I started it: go on</a></p>\
         <p>If it runs on another machine than this browser, type this there: <code>{code}</code></p>\
         <p>If you did not start it, close this page.</p>"
    )
}

/// Get the token of a sign-in that a command line began
#[utoipa::path(post, path = "/api/v1/oidc/token", tag = "sessions", request_body = SignInProof,
    responses((status = 201, body = TokenMade), (status = "4XX", body = Problem)))]
pub(crate) async fn redeem(
    State(state): State<AppState>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    Asked { request, .. }: Asked<SignInProof>,
) -> Response {
    let (now, from) = (state.shared.now(), from.ip().to_string());
    if let Some(wait) = state.failures.wait(&from, now) {
        return too_often(wait, "too many sign-ins from this address failed");
    }
    let given = auth::hex(&Sha256::digest(&request.verifier));
    let made = state.proofs.take(request.code.trim(), now);
    match made.filter(|(challenge, _)| auth::same(challenge, &given)) {
        Some((_, made)) => {
            let person = Person { user: made.token.user.clone(), by: By::Token(made.token.id) };
            let mut response = (StatusCode::CREATED, Answer(made)).into_response();
            response.extensions_mut().insert(Knew(Identity::Person(person)));
            response
        }
        None => {
            state.failures.count(&from, now);
            let problem = Problem::new(Code::Unauthenticated, "this code was used already, or is not yours")
                .hint("begin again with `berth login --oidc`");
            ApiError(problem).into_response()
        }
    }
}

/// Makes a token for whom the provider knows; `shown` is what they will show, or else a new secret.
async fn sign_in(
    state: &AppState,
    signed_in: SignedIn,
    shown: Option<String>,
    until: Time,
) -> Result<TokenMade, Problem> {
    let random = auth::new_token().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let secret = random.clone();
    let kept = shown.clone();
    let command = move |platform: &mut Platform, now| {
        let hash = |id| auth::token_hash(&kept.unwrap_or_else(|| auth::user_token(id, &secret)));
        platform.sign_in(&signed_in.user, signed_in.groups, until, hash, now)
    };
    let token: Token =
        state.command(None, command).await.and_then(|body| body.read()).map_err(|error| error.0)?;
    let secret = shown.unwrap_or_else(|| auth::user_token(token.id, &random));
    Ok(TokenMade { token, secret })
}

/// Who shows an ID token of the provider. It is looked at once; from then on it counts like one of our own, until it ends.
pub(super) async fn bearer(state: &AppState, shown: &str) -> Result<Identity, Problem> {
    let now = state.shared.now();
    let known = state.shared.read().people().holder_of(&auth::token_hash(shown), now);
    if let Some(known) = known {
        return known.map(Identity::Person).map_err(super::refusal);
    }
    let signed_in = provider(state)?.verify(shown, now.0 / 1_000).await.map_err(Problem::from)?;
    let until = signed_in.until_secs.map_or(now, |secs| Time(secs.saturating_mul(1_000)));
    // The provider's clock may be behind ours; what was let in is let in for a moment at least.
    let until = until.max(now + Span::secs(60)).min(now + SIGNED_IN);
    let made = sign_in(state, signed_in, Some(shown.to_owned()), until).await?;
    Ok(Identity::Person(Person { user: made.token.user, by: By::Token(made.token.id) }))
}
