//! Users, their roles and their tokens.

use super::{
    ApiError,
    audit::About,
    state::{Answer, AppState, Asked, Body, Caller},
};
use crate::{auth, platform::Platform};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{
    Code, Grant, GrantList, Problem, Token, TokenList, TokenMade, TokenRequest, User, UserChange, UserList,
    UserRequest, WhoAmI,
};

/// Show who calls, and what they may do
#[utoipa::path(get, path = "/api/v1/whoami", tag = "people",
    responses((status = 200, body = WhoAmI), (status = "4XX", body = Problem)))]
pub(crate) async fn who_am_i(State(state): State<AppState>, Caller(person): Caller) -> Response {
    Answer(state.read(|platform| platform.who_am_i(&person)).await.0).into_response()
}

/// List users: all for whoever leads something, oneself otherwise
#[utoipa::path(get, path = "/api/v1/users", tag = "people",
    responses((status = 200, body = UserList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_users(State(state): State<AppState>, Caller(person): Caller) -> Response {
    Answer(state.read(|platform| platform.user_list(&person)).await.0).into_response()
}

/// Make a user
#[utoipa::path(post, path = "/api/v1/users", tag = "people", request_body = UserRequest,
    responses((status = 201, body = User), (status = "4XX", body = Problem)))]
pub(crate) async fn create_user(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, key }: Asked<UserRequest>,
) -> Result<Response, ApiError> {
    let UserRequest { name, account } = request;
    let account = match account {
        Some(account) => find_account(&state, account).await?,
        None => None,
    };
    let made = name.clone();
    let command = move |platform: &mut Platform, now| platform.create_user(&person, &name, account, now);
    Ok(About::made(state.command(key, command).await?.created(), made))
}

/// Change under which account of the machine the work of a user runs; work that was submitted before keeps its own
#[utoipa::path(patch, path = "/api/v1/users/{name}", tag = "people", params(("name" = String, Path)),
    request_body = UserChange, responses((status = 200, body = User), (status = "4XX", body = Problem)))]
pub(crate) async fn update_user(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
    Asked { request, key }: Asked<UserChange>,
) -> Result<Body, ApiError> {
    let account = find_account(&state, request.account).await?;
    state.command(key, move |platform, now| platform.set_account(&person, &name, account, now)).await
}

/// The numbers of an account of this machine, so that a later one of the same name is another; none for an empty name.
async fn find_account(state: &AppState, account: String) -> Result<Option<String>, Problem> {
    if account.is_empty() {
        return Ok(None);
    }
    let Some(tasks) = &state.tasks else {
        return Err(Problem::invalid(
            "account",
            "on a cluster, who a Pod runs as is said by its image or its request",
        ));
    };
    match super::workloads::find_account(tasks, account).await {
        Ok((user, group)) => Ok(Some(format!("{user}:{group}"))),
        Err(why) => {
            Err(Problem::invalid("account", why).hint("`getent passwd` lists the users of this machine"))
        }
    }
}

/// Delete a user, with all roles and tokens
#[utoipa::path(delete, path = "/api/v1/users/{name}", tag = "people", params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete_user(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.command(None, move |platform, now| platform.delete_user(&person, &name, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List roles that people have, where one may grant them, and one's own
#[utoipa::path(get, path = "/api/v1/roles", tag = "people",
    responses((status = 200, body = GrantList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_roles(State(state): State<AppState>, Caller(person): Caller) -> Response {
    Answer(state.read(|platform| platform.grant_list(&person)).await.0).into_response()
}

/// Grant a role; never above one's own, or outside of one's scope
#[utoipa::path(post, path = "/api/v1/roles", tag = "people", request_body = Grant,
    responses((status = 201, body = Grant), (status = "4XX", body = Problem)))]
pub(crate) async fn grant_role(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, key }: Asked<Grant>,
) -> Result<Response, ApiError> {
    let made = request.to_string();
    let command = move |platform: &mut Platform, now| {
        platform.grant(&person, &request, now)?;
        Ok(request)
    };
    Ok(About::made(state.command(key, command).await?.created(), made))
}

/// Take a role back
#[utoipa::path(post, path = "/api/v1/roles/revoke", tag = "people", request_body = Grant,
    responses((status = 200, body = Grant), (status = "4XX", body = Problem)))]
pub(crate) async fn revoke_role(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, key }: Asked<Grant>,
) -> Result<Response, ApiError> {
    let gone = request.to_string();
    let command = move |platform: &mut Platform, now| {
        platform.withdraw(&person, &request, now)?;
        Ok(request)
    };
    Ok(About::made(state.command(key, command).await?.into_response(), gone))
}

/// List tokens: one's own, and everybody's for an admin; never their secrets
#[utoipa::path(get, path = "/api/v1/tokens", tag = "people",
    responses((status = 200, body = TokenList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_tokens(State(state): State<AppState>, Caller(person): Caller) -> Response {
    let now = state.shared.now();
    Answer(state.read(|platform| platform.token_list(&person, now)).await.0).into_response()
}

/// Make a token; its secret is shown this once
#[utoipa::path(post, path = "/api/v1/tokens", tag = "people", request_body = TokenRequest,
    responses((status = 201, body = TokenMade), (status = "4XX", body = Problem)))]
pub(crate) async fn create_token(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, .. }: Asked<TokenRequest>,
) -> Result<Response, ApiError> {
    let random = auth::new_token().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let secret = random.clone();
    // What is answered by the controller may be written down, so the secret is added to it here. For the same reason no key
    // makes it safe to repeat: a token that nobody received harms nobody, and is listed.
    let command = move |platform: &mut Platform, now| {
        let hash = |id| auth::token_hash(&auth::user_token(id, &secret));
        platform.create_token(&person, &request, hash, now)
    };
    let token: Token = state.command(None, command).await?.read()?;
    let secret = auth::user_token(token.id, &random);
    let made = format!("{} of {}", token.name, token.user);
    Ok(About::made((StatusCode::CREATED, Answer(TokenMade { token, secret })).into_response(), made))
}

/// Revoke a token
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "people", params(("id" = u64, Path)),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn revoke_token(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id = id.parse().map_err(|_| Problem::invalid("id", "a token is named by its number"))?;
    state.command(None, move |platform, now| platform.revoke_token(&person, id, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
